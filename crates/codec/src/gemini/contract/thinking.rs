//! Checks thinking levels and budgets.

use throughline_core::{Profile, TokenBudget};
use throughline_json::{self as json, Json, Node};

use crate::gemini::contract;
use crate::gemini::contract::rules;
use crate::gemini::contract::view::GeminiRequest;
use crate::gemini::wire;
use crate::{Finding, Findings, Fix, Severity, effort};

pub(super) fn check(view: &GeminiRequest<'_>, findings: &mut Findings<'_>) {
    let config = wire::present(view.root, "generationConfig")
        .and_then(|config| wire::present(config, "thinkingConfig"));
    let Some(config) = config else { return };
    let profile = view.case.profile();
    let budget = wire::present(config, "thinkingBudget");
    if let Some(level) = wire::present(config, "thinkingLevel") {
        findings.extend(check_level(profile, config, level, budget));
    }
    let limits = profile.budget.as_ref();
    let out_of_range = budget.zip(limits).and_then(|(b, limits)| check_budget(profile, b, limits));
    let is_refused = out_of_range.as_ref().is_some_and(|f| f.severity == Severity::Refuse);
    findings.extend(out_of_range);
    let is_off = budget.is_some_and(|budget| budget.raw() == b"0");
    if let Some(shown) = wire::present(config, "includeThoughts")
        && shown.bool() == Some(true)
        && is_off
        && !is_refused
    {
        let message = "the request includes thoughts, but thinking is disabled";
        let finding = Finding::at(&rules::THOUGHTS_WITHOUT_THINKING, shown, message);
        findings.add(finding.fixed_by_removing(shown, "omits the thoughts"));
    }
}

fn check_level(
    profile: &Profile,
    config: Node<'_>,
    level: Node<'_>,
    budget: Option<Node<'_>>,
) -> Option<Finding> {
    let level_name = level.text().unwrap_or_default();
    let is_unset = level_name.eq_ignore_ascii_case("THINKING_LEVEL_UNSPECIFIED");
    let name = &profile.name;
    let omitted = || Fix::removal(level, "leaves the level out");
    let (message, error, fix) = if profile.levels.is_empty() {
        let limits = profile.budget.as_ref().filter(|_| budget.is_none() && !is_unset);
        let fix = limits.map_or_else(omitted, |limits| {
            let requested = effort::budget(Some(&level_name.to_ascii_lowercase()));
            let size = contract::nearest_budget(requested, Some(limits));
            let description = format!("uses a budget of {size} tokens instead of the level");
            Fix::replacement(config, with_budget(config, size), description)
        });
        let error = "Thinking level is not supported for this model.".to_owned();
        (format!("{name} supports a token budget, not a level"), error, fix)
    } else if is_unset
        || profile.levels.iter().any(|supported| supported.eq_ignore_ascii_case(&level_name))
    {
        return None;
    } else {
        let levels: Vec<String> = profile.levels.iter().map(|level| format!("`{level}`")).collect();
        let levels = levels.join(", ");
        let message =
            format!("{name} does not support the level `{level_name}`; it supports {levels}");
        let upper = level_name.to_ascii_uppercase();
        let error = format!("Thinking level {upper} is not supported for this model.");
        let fix = effort::closest(&level_name, &profile.levels).map_or_else(omitted, |nearest| {
            let description = format!("uses the level `{nearest}` instead");
            Fix::replacement(level, json::string(nearest), description)
        });
        (message, error, fix)
    };
    let finding = Finding::at(&rules::LEVEL_NOT_SUPPORTED, level, message);
    Some(finding.with_provider_error(error).with_auto_fix(fix))
}

/// Replaces the thinking level with a budget of `size` tokens.
fn with_budget(config: Node<'_>, size: u64) -> Json {
    json::object(|o| {
        for (key, value) in config.members() {
            let key = key.text().unwrap_or_default();
            if wire::is_spelled(&key, "thinkingLevel") {
                o.number("thinkingBudget", size);
            } else if !wire::is_spelled(&key, "thinkingBudget") {
                o.node(&key, value);
            }
        }
    })
}

/// Reports a budget that the model does not accept.
fn check_budget(profile: &Profile, budget: Node<'_>, limits: &TokenBudget) -> Option<Finding> {
    let size: i64 = budget.number()?.parse().ok()?;
    let name = &profile.name;
    let at = |message: String| Finding::at(&rules::BUDGET_OUT_OF_RANGE, budget, message);
    if size == -1 {
        // Reports disagree on whether models that always think reject -1.
        let message = format!("{name} may reject a budget of -1 (automatic); reports disagree");
        return (!limits.zero).then(|| at(message).with_severity(Severity::Note));
    }
    let requested = u64::try_from(size).unwrap_or_default();
    let fitting = contract::nearest_budget(requested, Some(limits));
    if size >= 0 && fitting == requested {
        return None;
    }
    let (min, max) = (limits.min, limits.max);
    let message = match size {
        0 => format!("{name} cannot disable thinking: its budget is {min} to {max} tokens"),
        _ => format!("{name} supports a budget of {min} to {max} tokens, not {size}"),
    };
    let description = format!("uses {fitting} tokens instead");
    let fix = Fix::replacement(budget, Json::from(fitting), description);
    let error = format!("The thinking budget ({size}) is invalid.");
    Some(at(message).with_provider_error(error).with_auto_fix(fix))
}
