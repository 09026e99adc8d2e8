//! Settings that an endpoint refuses with the model that is asked.

use throughline_core::{Choice, Switch, json};

use crate::audit::{Edit, Finding, Mend};
use crate::chat::contract::rules::{
    EFFORT_NOT_SUPPORTED, FORCED_TOOL_CHOICE, MAX_TOKENS_RENAMED, REASONING_FORMAT_EXCLUSIVE,
    SAMPLING_FIXED,
};
use crate::chat::contract::view::{Report, View, name_of};
use crate::chat::{contract, decode};
use crate::effort;

pub(super) fn check(view: &View<'_>, report: &mut Report<'_, '_>) {
    effort(view, report);
    sampling(view, report);
    limit(view, report);
    choice(view, report);
    reasoning_format(view, report);
}

fn effort(view: &View<'_>, report: &mut Report<'_, '_>) {
    let (target, profile) = (view.case.target(), view.case.profile());
    let is_switch = target.provider.dialect.switch == Switch::Effort;
    let Some(node) = view.root.present("reasoning_effort").filter(|_| is_switch) else { return };
    let Some(wanted) = node.text() else { return };
    if profile.efforts.iter().any(|effort| **effort == *wanted) {
        return;
    }
    let model = target.model();
    let (message, answer, mend) = if profile.efforts.is_empty() {
        (
            format!("{model} does not reason and takes no `reasoning_effort`"),
            "Unrecognized request argument supplied: reasoning_effort".to_owned(),
            Mend::new("removes `reasoning_effort`", [Edit::Remove(node.range())]),
        )
    } else {
        let words = profile.efforts.iter().map(|effort| format!("'{effort}'")).collect::<Vec<_>>();
        let taken: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
        let mend = match effort::closest(&wanted, &profile.efforts) {
            Some(nearest) => Mend::new(
                format!("asks for the nearest effort, `{nearest}`"),
                [Edit::Replace(node.range(), json::string(nearest))],
            ),
            None => Mend::new("removes `reasoning_effort`", [Edit::Remove(node.range())]),
        };
        (
            format!("{model} takes {}, not `{wanted}`", effort::listed(&taken)),
            format!(
                "Unsupported value: 'reasoning_effort' does not support '{wanted}' with this model. \
                 Supported values are: {}.",
                listed(&words)
            ),
            mend,
        )
    };
    report
        .add(Finding::at(&EFFORT_NOT_SUPPORTED, node, message).answered(answer).mended(Some(mend)));
}

/// The words as the provider lists them: `'low', 'medium', and 'high'`.
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [one, other] => format!("{one} and {other}"),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}

fn sampling(view: &View<'_>, report: &mut Report<'_, '_>) {
    let target = view.case.target();
    if !contract::refuses_sampling(target, view.thinks) {
        return;
    }
    // Kimi fixes the temperature; OpenAI's reasoning models all of their sampling.
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
        let message = format!("{} takes no other `{key}` than its own", target.model());
        let mend = Mend::new(format!("removes `{key}`"), [Edit::Remove(node.range())]);
        report.add(Finding::at(&SAMPLING_FIXED, node, message).answered(answer).mended(Some(mend)));
    }
}

fn limit(view: &View<'_>, report: &mut Report<'_, '_>) {
    let Some(old) = view.root.present("max_tokens") else { return };
    let model = view.case.target().model();
    let message = format!("{model} calls this limit `max_completion_tokens`");
    let mut edits = vec![Edit::Remove(old.range())];
    if view.root.present("max_completion_tokens").is_none() {
        edits.push(Edit::Set(view.root.range(), "max_completion_tokens".to_owned(), old.json()));
    }
    let mend = Mend::new("renames `max_tokens` to `max_completion_tokens`", edits);
    let finding = Finding::at(&MAX_TOKENS_RENAMED, old, message).under("max_tokens");
    report.add_at(name_of(view.root, "max_tokens"), finding.mended(Some(mend)));
}

fn choice(view: &View<'_>, report: &mut Report<'_, '_>) {
    let target = view.case.target();
    let Some(node) = view.root.present("tool_choice") else { return };
    let choice = decode::choice_of(node);
    if !contract::refuses_choice(target, view.thinks, &choice) {
        return;
    }
    let message = match &choice {
        Choice::Tool(name) => format!("this forces a call of `{name}`"),
        Choice::Any | Choice::Auto | Choice::None | Choice::Other(_) => {
            "this forces a tool call".to_owned()
        }
    };
    let mend = Mend::new(
        "leaves the choice to the model",
        [Edit::Replace(node.range(), json::string("auto"))],
    );
    report.add(Finding::at(&FORCED_TOOL_CHOICE, node, message).mended(Some(mend)));
}

fn reasoning_format(view: &View<'_>, report: &mut Report<'_, '_>) {
    let format = view.root.present("reasoning_format");
    let (Some(format), Some(include)) = (format, view.root.present("include_reasoning")) else {
        return;
    };
    let message = format!("`reasoning_format` is set as well, to {}", format.json().as_str());
    let mend = Mend::new("removes `include_reasoning`", [Edit::Remove(include.range())]);
    report.add(Finding::at(&REASONING_FORMAT_EXCLUSIVE, include, message).mended(Some(mend)));
}
