//! Checks settings that the endpoint rejects for the requested model.

use throughline_core::{ReasoningSwitch, ToolChoice};
use throughline_json as json;

use crate::audit::{Edit, Finding, Fix};
use crate::chat::contract::rules::{
    EFFORT_NOT_SUPPORTED, FORCED_TOOL_CHOICE, MAX_TOKENS_RENAMED, REASONING_FORMAT_EXCLUSIVE,
    SAMPLING_FIXED,
};
use crate::chat::contract::view::{ChatFindings, ChatRequest, member_key};
use crate::chat::{contract, decode};
use crate::effort;

pub(super) fn check(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    check_effort(view, report);
    check_sampling(view, report);
    check_token_limit(view, report);
    check_tool_choice(view, report);
    check_reasoning_format(view, report);
}

fn check_effort(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    let (target, profile) = (view.case.target(), view.case.profile());
    let is_switch = target.provider.dialect.switch == ReasoningSwitch::Effort;
    let Some(node) = view.root.present("reasoning_effort").filter(|_| is_switch) else { return };
    let Some(wanted) = node.text() else { return };
    if profile.efforts.iter().any(|effort| **effort == *wanted) {
        return;
    }
    let model = target.model();
    let (message, answer, fix) = if profile.efforts.is_empty() {
        (
            format!("{model} does not reason and accepts no `reasoning_effort`"),
            "Unrecognized request argument supplied: reasoning_effort".to_owned(),
            Fix::new("removes `reasoning_effort`", [Edit::Remove(node.range())]),
        )
    } else {
        let taken: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
        let fix = match effort::closest(&wanted, &profile.efforts) {
            Some(nearest) => Fix::new(
                format!("uses the nearest effort, `{nearest}`"),
                [Edit::Replace(node.range(), json::string(nearest))],
            ),
            None => Fix::new("removes `reasoning_effort`", [Edit::Remove(node.range())]),
        };
        (
            format!("{model} supports {}, not `{wanted}`", effort::quoted_list(&taken)),
            format!(
                "Unsupported value: 'reasoning_effort' does not support '{wanted}' with this model. \
                 Supported values are: {}.",
                effort::quoted_series(&profile.efforts, '\'')
            ),
            fix,
        )
    };
    report.add(
        Finding::at(&EFFORT_NOT_SUPPORTED, node, message)
            .with_provider_error(answer)
            .with_auto_fix(fix),
    );
}

fn check_sampling(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    let target = view.case.target();
    if !contract::rejects_sampling(target, view.thinks) {
        return;
    }
    // Kimi fixes only the temperature; OpenAI's reasoning models fix all sampling settings.
    let is_openai = contract::is_openai(target);
    let keys: &[&str] = if is_openai { &["temperature", "top_p"] } else { &["temperature"] };
    for key in keys {
        let Some(node) = view.root.present(key) else { continue };
        let Some(value) = node.number().filter(|number| number.parse() != Ok(1.0)) else {
            continue;
        };
        let answer = match (is_openai, *key) {
            (false, _) => "invalid temperature: only 1 is allowed for this model".to_owned(),
            (true, "temperature") => format!(
                "Unsupported value: 'temperature' does not support {value} with this model. \
                 Only the default (1) value is supported."
            ),
            (true, key) => {
                format!("Unsupported parameter: '{key}' is not supported with this model.")
            }
        };
        let message = format!("{} accepts only its default `{key}`", target.model());
        let fix = Fix::new(format!("removes `{key}`"), [Edit::Remove(node.range())]);
        report.add(
            Finding::at(&SAMPLING_FIXED, node, message)
                .with_provider_error(answer)
                .with_auto_fix(fix),
        );
    }
}

fn check_token_limit(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    let Some(old) = view.root.present("max_tokens") else { return };
    let model = view.case.target().model();
    let message = format!("{model} requires the name `max_completion_tokens`");
    let mut edits = vec![Edit::Remove(old.range())];
    if view.root.present("max_completion_tokens").is_none() {
        edits.push(Edit::Set(view.root.range(), "max_completion_tokens".to_owned(), old.json()));
    }
    let fix = Fix::new("renames `max_tokens` to `max_completion_tokens`", edits);
    let finding = Finding::at(&MAX_TOKENS_RENAMED, old, message).with_path("max_tokens");
    report.add_at(member_key(view.root, "max_tokens"), finding.with_auto_fix(fix));
}

fn check_tool_choice(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    let target = view.case.target();
    let Some(node) = view.root.present("tool_choice") else { return };
    let choice = decode::choice_of(node);
    if !contract::rejects_tool_choice(target, view.thinks, &choice) {
        return;
    }
    let message = match &choice {
        ToolChoice::Tool(name) => format!("this forces a call to `{name}`"),
        ToolChoice::Any | ToolChoice::Auto | ToolChoice::None | ToolChoice::Other(_) => {
            "this forces a tool call".to_owned()
        }
    };
    let fix = Fix::new(
        "leaves the choice to the model",
        [Edit::Replace(node.range(), json::string("auto"))],
    );
    report.add(Finding::at(&FORCED_TOOL_CHOICE, node, message).with_auto_fix(fix));
}

fn check_reasoning_format(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    let format = view.root.present("reasoning_format");
    let (Some(format), Some(include)) = (format, view.root.present("include_reasoning")) else {
        return;
    };
    let message = format!("`reasoning_format` is also set, to {}", format.json().as_str());
    let fix = Fix::new("removes `include_reasoning`", [Edit::Remove(include.range())]);
    report.add(Finding::at(&REASONING_FORMAT_EXCLUSIVE, include, message).with_auto_fix(fix));
}
