//! How hard to think, in the words of each dialect.

use std::borrow::Cow;

use throughline_core::{Call, Json, Name, NativeReasoning, Profile, Switch, json};

use crate::draft::{self, Draft};
use crate::effort;

/// The members that ask for reasoning, in whichever dialect.
const SWITCHES: [&str; 6] =
    ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "think"];

/// Asks for no particular reasoning.
pub(super) fn remove(draft: &mut Draft<'_>) {
    for key in SWITCHES {
        if draft.was(key).is_some() {
            draft.remove(key);
        }
    }
}

/// Asks for reasoning, as far as the model has any and the endpoint a word for it.
pub(super) fn put(draft: &mut Draft<'_>, reasoning: &NativeReasoning, call: &Call) {
    let switch = call.target.provider.dialect.switch;
    let profile = &*call.target.profile;
    let is_off = reasoning.is_off();
    if switch != Switch::Object
        && let Some(problem) = problem(reasoning, switch, profile)
    {
        // Not to think is what a model does that cannot.
        if !is_off || profile.can_think() {
            draft.warn("reasoning", problem);
        }
        remove(draft);
        return;
    }
    if reasoning.include_thoughts == Some(false) && switch != Switch::Object {
        draft.warn("reasoning.include_thoughts", "this endpoint cannot hide its thoughts");
    }
    let effort = match switch {
        Switch::Effort => put_effort(draft, reasoning, profile),
        Switch::Toggle => put_toggle(draft, reasoning, profile),
        Switch::Think => put_think(draft, reasoning, profile),
        Switch::Object => return put_object(draft, reasoning),
        Switch::Flag => return put_flag(draft, reasoning),
        Switch::None => None,
    };
    if let Some(budget) = reasoning.budget_tokens.filter(|_| !is_off) {
        let became = match (&reasoning.effort, effort) {
            (None, Some(effort)) => format!("{budget} became the effort `{effort}`"),
            (Some(_), _) | (None, None) => format!("{budget} was left out"),
        };
        draft.warn("reasoning.budget_tokens", format!("this endpoint takes no budget; {became}"));
    }
}

/// Why nothing can be asked for.
fn problem(reasoning: &NativeReasoning, switch: Switch, profile: &Profile) -> Option<String> {
    let name = &profile.name;
    if reasoning.is_off() && profile.always_thinks {
        Some(format!("{name} cannot stop thinking"))
    } else if switch == Switch::None {
        Some("this endpoint has no switch for it; it was left out".to_owned())
    } else if !profile.can_think() {
        Some(format!("{name} does not think; it was left out"))
    } else {
        None
    }
}

/// The effort that was asked for, in words or as a budget.
fn wanted_effort(reasoning: &NativeReasoning, profile: &Profile) -> Option<Name> {
    if reasoning.is_off() {
        return Some(Name::from("none"));
    }
    let of_budget = |budget: u64| match budget {
        0 => "none",
        1..=1024 => "minimal",
        1025..=4096 => "low",
        4097..=12_288 => "medium",
        12_289.. => "high",
    };
    // A budget is nothing to a model that knows no efforts.
    let budget = reasoning.budget_tokens.filter(|_| !profile.efforts.is_empty());
    reasoning.effort.clone().or_else(|| budget.map(|budget| Name::from(of_budget(budget))))
}

fn put_effort(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let asks_to_think = reasoning.enabled == Some(true) && !profile.thinks_by_default;
    let wanted = wanted_effort(reasoning, profile)
        .or_else(|| asks_to_think.then(|| Name::from("medium")))
        // A model that has no word for it does not think unless it is asked to.
        .filter(|wanted| {
            let is_known = profile.efforts.iter().any(|effort| **effort == **wanted);
            &**wanted != "none" || profile.thinks_by_default || is_known
        });
    let effort = wanted.and_then(|wanted| effort::fitting(draft, &wanted, profile));
    draft.set("reasoning_effort", effort.as_deref().map(json::string));
    effort
}

fn put_object(draft: &mut Draft<'_>, reasoning: &NativeReasoning) {
    let is_sized = reasoning.effort.is_some() || reasoning.budget_tokens.is_some();
    if reasoning.effort.is_some() && reasoning.budget_tokens.is_some() && !reasoning.is_off() {
        draft.warn(
            "reasoning.effort",
            "this endpoint takes an effort or a budget; the budget was sent",
        );
    }
    let exclude = reasoning.include_thoughts.map(|included| !included);
    let text = |value: &str| Some(json::string(value));
    let (effort, budget) = match (reasoning.is_off(), reasoning.budget_tokens) {
        (true, _) => (text("none"), None),
        (false, Some(budget)) => (None, Some(Json::from(budget))),
        (false, None) => (reasoning.effort.as_deref().and_then(text), None),
    };
    let enabled = reasoning.enabled.filter(|enabled| *enabled && !is_sized).map(Json::from);
    let changes = [
        (Cow::Borrowed("effort"), effort),
        (Cow::Borrowed("max_tokens"), budget),
        (Cow::Borrowed("enabled"), enabled),
        (Cow::Borrowed("exclude"), exclude.map(Json::from)),
    ];
    let base = draft.latest("reasoning");
    draft.put("reasoning", draft::edited(base.as_ref(), &changes));
}

fn put_toggle(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let kind = if reasoning.is_off() { "disabled" } else { "enabled" };
    let base = draft.latest("thinking");
    let changes = [(Cow::Borrowed("type"), Some(json::string(kind)))];
    draft.put("thinking", draft::edited(base.as_ref(), &changes));
    let wanted = wanted_effort(reasoning, profile).filter(|_| !reasoning.is_off());
    let effort = wanted.and_then(|wanted| effort::fitting(draft, &wanted, profile));
    if effort.is_some() || draft.was("reasoning_effort").is_some() {
        draft.set("reasoning_effort", effort.as_deref().map(json::string));
    }
    effort
}

fn put_flag(draft: &mut Draft<'_>, reasoning: &NativeReasoning) {
    let is_on = !reasoning.is_off();
    draft.put("enable_thinking", is_on.into());
    let of_effort = || reasoning.effort.as_deref().map(|effort| effort::budget(Some(effort)));
    let budget = reasoning.budget_tokens.or_else(of_effort).filter(|_| is_on);
    if budget.is_some() || draft.was("thinking_budget").is_some() {
        draft.set("thinking_budget", budget.map(Json::from));
    }
}

fn put_think(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let wanted = wanted_effort(reasoning, profile).filter(|_| !reasoning.is_off());
    // A model that takes no efforts is switched on, whatever effort was wanted.
    let effort = wanted.filter(|_| !profile.efforts.is_empty());
    let effort = effort.and_then(|effort| effort::fitting(draft, &effort, profile));
    let think = match &effort {
        Some(effort) => json::string(effort),
        None => Json::from(!reasoning.is_off()),
    };
    draft.put("think", think);
    effort
}
