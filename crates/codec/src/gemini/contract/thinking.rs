//! How hard to think: the levels and budgets that a model takes.

use throughline_core::{Budget, Json, Node, Profile, json};

use crate::gemini::contract;
use crate::gemini::contract::rules::{
    BUDGET_OUT_OF_RANGE, LEVEL_NOT_SUPPORTED, THOUGHTS_WITHOUT_THINKING,
};
use crate::gemini::contract::view::View;
use crate::gemini::wire;
use crate::{Case, Edit, Finding, Findings, Mend, Severity, effort};

/// Looks at the thinking settings.
pub(super) fn look(case: &Case<'_>, view: &View<'_>, findings: &mut Findings<'_>) {
    let config = wire::present(view.root, "generationConfig")
        .and_then(|config| wire::present(config, "thinkingConfig"));
    let Some(config) = config else { return };
    let profile = case.profile();
    let budget = wire::present(config, "thinkingBudget");
    if let Some(level) = wire::present(config, "thinkingLevel") {
        look_at_level(profile, config, level, budget, findings);
    }
    let mut is_refused = false;
    if let (Some(budget), Some(limits)) = (budget, &profile.budget) {
        is_refused = look_at_budget(profile, budget, limits, findings);
    }
    let is_off = budget.is_some_and(|budget| budget.raw() == b"0");
    if let Some(shown) = wire::present(config, "includeThoughts")
        && shown.bool() == Some(true)
        && is_off
        && !is_refused
    {
        let message = "thoughts are asked for, and thinking is switched off";
        let edit = Edit::Remove(shown.range());
        findings.add(
            Finding::at(&THOUGHTS_WITHOUT_THINKING, shown, message)
                .mended(Some(Mend::new("asks for no thoughts", [edit]))),
        );
    }
}

fn look_at_level(
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
            contract::fitting_budget(wanted, Some(&limits))
        });
        let mut mend = Mend::new("leaves the level out", [Edit::Remove(level.range())]);
        if let Some(size) = size {
            let config_now = with_budget(config, size);
            mend = Mend::new(
                format!("asks for a budget of {size} tokens instead of the level"),
                [Edit::Replace(config.range(), config_now)],
            );
        }
        let message = format!("{name} takes a budget of tokens, and no level");
        findings.add(
            Finding::at(&LEVEL_NOT_SUPPORTED, level, message)
                .answered("Thinking level is not supported for this model.")
                .mended(Some(mend)),
        );
    } else if !is_unsaid && !profile.levels.iter().any(is_taken) {
        let levels: Vec<String> = profile.levels.iter().map(|level| format!("`{level}`")).collect();
        let message =
            format!("{name} does not take the level `{word}`; it takes {}", levels.join(", "));
        let upper = word.to_ascii_uppercase();
        let mend = match effort::closest(&word, &profile.levels) {
            Some(nearest) => Mend::new(
                format!("asks for the level `{nearest}` instead"),
                [Edit::Replace(level.range(), json::string(nearest))],
            ),
            None => Mend::new("leaves the level out", [Edit::Remove(level.range())]),
        };
        findings.add(
            Finding::at(&LEVEL_NOT_SUPPORTED, level, message)
                .answered(format!("Thinking level {upper} is not supported for this model."))
                .mended(Some(mend)),
        );
    }
}

/// The thinking settings with a budget where a level was.
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

/// Whether the budget is one that the model refuses.
fn look_at_budget(
    profile: &Profile,
    budget: Node<'_>,
    limits: &Budget,
    findings: &mut Findings<'_>,
) -> bool {
    let Some(size) = budget.number().and_then(|number| number.parse::<i64>().ok()) else {
        return false;
    };
    let name = &profile.name;
    if size == -1 {
        // That the models which always think refuse it is disputed.
        if !limits.zero {
            let message =
                format!("whether {name} takes -1, which leaves the size to it, is disputed");
            findings.add(
                Finding::at(&BUDGET_OUT_OF_RANGE, budget, message).as_grave_as(Severity::Note),
            );
        }
        return false;
    }
    let wanted = u64::try_from(size).unwrap_or_default();
    let fitting = contract::fitting_budget(wanted, Some(limits));
    if size >= 0 && fitting == wanted {
        return false;
    }
    let (min, max) = (limits.min, limits.max);
    let message = match size {
        0 => format!("{name} cannot stop thinking: its budget is {min} to {max} tokens"),
        _ => format!("{name} takes a budget of {min} to {max} tokens, and not {size}"),
    };
    let edit = Edit::Replace(budget.range(), Json::from(fitting));
    findings.add(
        Finding::at(&BUDGET_OUT_OF_RANGE, budget, message)
            .answered(format!("The thinking budget ({size}) is invalid."))
            .mended(Some(Mend::new(format!("asks for {fitting} tokens instead"), [edit]))),
    );
    true
}
