//! Checks thinking levels and budgets.

use throughline_core::{Profile, TokenBudget};
use throughline_json::{self as json, Json, Node};

use crate::gemini::contract;
use crate::gemini::contract::rules::{
    BUDGET_OUT_OF_RANGE, LEVEL_NOT_SUPPORTED, THOUGHTS_WITHOUT_THINKING,
};
use crate::gemini::contract::view::GeminiRequest;
use crate::gemini::wire;
use crate::{AuditContext, Edit, Finding, Findings, Fix, Severity, effort};

/// Checks the thinking settings.
pub(super) fn check(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    findings: &mut Findings<'_>,
) {
    let config = wire::present(view.root, "generationConfig")
        .and_then(|config| wire::present(config, "thinkingConfig"));
    let Some(config) = config else { return };
    let profile = case.profile();
    let budget = wire::present(config, "thinkingBudget");
    if let Some(level) = wire::present(config, "thinkingLevel") {
        check_level(profile, config, level, budget, findings);
    }
    let mut is_refused = false;
    if let (Some(budget), Some(limits)) = (budget, &profile.budget) {
        is_refused = check_budget(profile, budget, limits, findings);
    }
    let is_off = budget.is_some_and(|budget| budget.raw() == b"0");
    if let Some(shown) = wire::present(config, "includeThoughts")
        && shown.bool() == Some(true)
        && is_off
        && !is_refused
    {
        let message = "the request includes thoughts, but thinking is disabled";
        let edit = Edit::Remove(shown.range());
        findings.add(
            Finding::at(&THOUGHTS_WITHOUT_THINKING, shown, message)
                .with_auto_fix(Fix::new("omits the thoughts", [edit])),
        );
    }
}

fn check_level(
    profile: &Profile,
    config: Node<'_>,
    level: Node<'_>,
    budget: Option<Node<'_>>,
    findings: &mut Findings<'_>,
) {
    let word = level.text().unwrap_or_default();
    let is_taken = |taken: &String| taken.eq_ignore_ascii_case(&word);
    let is_unsaid = word.eq_ignore_ascii_case("THINKING_LEVEL_UNSPECIFIED");
    let name = &profile.name;
    if profile.levels.is_empty() {
        let size = profile.budget.filter(|_| budget.is_none() && !is_unsaid).map(|limits| {
            let wanted = effort::budget(Some(&word.to_ascii_lowercase()));
            contract::nearest_budget(wanted, Some(&limits))
        });
        let mut fix = Fix::new("leaves the level out", [Edit::Remove(level.range())]);
        if let Some(size) = size {
            let config_now = with_budget(config, size);
            fix = Fix::new(
                format!("uses a budget of {size} tokens instead of the level"),
                [Edit::Replace(config.range(), config_now)],
            );
        }
        let message = format!("{name} supports a token budget, not a level");
        findings.add(
            Finding::at(&LEVEL_NOT_SUPPORTED, level, message)
                .with_provider_error("Thinking level is not supported for this model.")
                .with_auto_fix(fix),
        );
    } else if !is_unsaid && !profile.levels.iter().any(is_taken) {
        let levels: Vec<String> = profile.levels.iter().map(|level| format!("`{level}`")).collect();
        let message = format!(
            "{name} does not support the level `{word}`; it supports {}",
            levels.join(", ")
        );
        let upper = word.to_ascii_uppercase();
        let fix = match effort::closest(&word, &profile.levels) {
            Some(nearest) => Fix::new(
                format!("uses the level `{nearest}` instead"),
                [Edit::Replace(level.range(), json::string(nearest))],
            ),
            None => Fix::new("leaves the level out", [Edit::Remove(level.range())]),
        };
        findings.add(
            Finding::at(&LEVEL_NOT_SUPPORTED, level, message)
                .with_provider_error(format!(
                    "Thinking level {upper} is not supported for this model."
                ))
                .with_auto_fix(fix),
        );
    }
}

/// Replaces the level of the thinking settings with a budget.
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

/// Checks whether the model accepts the budget.
fn check_budget(
    profile: &Profile,
    budget: Node<'_>,
    limits: &TokenBudget,
    findings: &mut Findings<'_>,
) -> bool {
    let Some(size) = budget.number().and_then(|number| number.parse::<i64>().ok()) else {
        return false;
    };
    let name = &profile.name;
    if size == -1 {
        // Reports disagree on whether models that always think reject -1.
        if !limits.zero {
            let message = format!("reports disagree on whether {name} accepts -1 (automatic size)");
            findings.add(
                Finding::at(&BUDGET_OUT_OF_RANGE, budget, message).with_severity(Severity::Note),
            );
        }
        return false;
    }
    let wanted = u64::try_from(size).unwrap_or_default();
    let fitting = contract::nearest_budget(wanted, Some(limits));
    if size >= 0 && fitting == wanted {
        return false;
    }
    let (min, max) = (limits.min, limits.max);
    let message = match size {
        0 => format!("{name} cannot disable thinking: its budget is {min} to {max} tokens"),
        _ => format!("{name} supports a budget of {min} to {max} tokens, not {size}"),
    };
    let edit = Edit::Replace(budget.range(), Json::from(fitting));
    findings.add(
        Finding::at(&BUDGET_OUT_OF_RANGE, budget, message)
            .with_provider_error(format!("The thinking budget ({size}) is invalid."))
            .with_auto_fix(Fix::new(format!("uses {fitting} tokens instead"), [edit])),
    );
    true
}
