//! Encodes reasoning settings for each dialect.

use throughline_core::{Call, NativeReasoning, Profile, ReasoningSwitch};
use throughline_json::{self as json, Json, Name};

use crate::draft::{self, Draft};
use crate::effort;

/// The members that configure reasoning in any dialect.
const SWITCHES: [&str; 6] =
    ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "think"];

pub(super) fn remove_reasoning(draft: &mut Draft<'_>) {
    for key in SWITCHES {
        if draft.source_value(key).is_some() {
            draft.remove(key);
        }
    }
}

/// Writes the reasoning settings that both the model and the endpoint support.
pub(super) fn put_reasoning(draft: &mut Draft<'_>, reasoning: &NativeReasoning, call: &Call) {
    let switch = call.target.provider.dialect.switch;
    let profile = &*call.target.profile;
    let is_off = reasoning.is_off();
    if switch != ReasoningSwitch::Object
        && let Some(problem) = unsupported_reason(reasoning, switch, profile)
    {
        // Switching reasoning off has no effect on a model that cannot reason, so it needs no
        // warning.
        if !is_off || profile.can_think() {
            draft.warn("reasoning", problem);
        }
        remove_reasoning(draft);
        return;
    }
    if reasoning.include_thoughts == Some(false) && switch != ReasoningSwitch::Object {
        draft.warn("reasoning.include_thoughts", "this endpoint cannot hide its thoughts");
    }
    let effort = match switch {
        ReasoningSwitch::Effort => put_effort(draft, reasoning, profile),
        ReasoningSwitch::Toggle => put_toggle(draft, reasoning, profile),
        ReasoningSwitch::Think => put_think(draft, reasoning, profile),
        ReasoningSwitch::Object => return put_object(draft, reasoning),
        ReasoningSwitch::Flag => return put_flag(draft, reasoning, profile),
        ReasoningSwitch::None => None,
    };
    if let Some(budget) = reasoning.budget_tokens.filter(|_| !is_off) {
        let became = match (&reasoning.effort, effort) {
            (None, Some(effort)) => format!("{budget} became the effort `{effort}`"),
            (Some(_), _) | (None, None) => format!("{budget} was left out"),
        };
        draft.warn("reasoning.budget_tokens", format!("this endpoint accepts no budget; {became}"));
    }
}

/// Returns the reason why no reasoning setting can be sent.
fn unsupported_reason(
    reasoning: &NativeReasoning,
    switch: ReasoningSwitch,
    profile: &Profile,
) -> Option<String> {
    let name = &profile.name;
    if reasoning.is_off() && profile.always_thinks {
        Some(format!("{name} cannot stop thinking"))
    } else if switch == ReasoningSwitch::None {
        Some("this endpoint has no such setting; it was left out".to_owned())
    } else if !profile.can_think() {
        Some(format!("{name} does not think; it was left out"))
    } else {
        None
    }
}

/// Returns the requested effort, or an effort derived from the requested budget.
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
    // Do not convert a budget to an effort if the model has no efforts.
    let budget = reasoning.budget_tokens.filter(|_| !profile.efforts.is_empty());
    reasoning.effort.clone().or_else(|| budget.map(|budget| Name::from(of_budget(budget))))
}

fn put_effort(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let asks_to_think = reasoning.enabled == Some(true) && !profile.thinks_by_default;
    let requested = wanted_effort(reasoning, profile)
        .or_else(|| asks_to_think.then(|| Name::from("medium")))
        // Omit `none` for a model that lacks this effort and does not reason by default.
        .filter(|requested| {
            let is_known = profile.efforts.iter().any(|effort| **effort == **requested);
            &**requested != "none" || profile.thinks_by_default || is_known
        });
    let effort =
        requested.and_then(|requested| effort::supported_effort(draft, &requested, profile));
    draft.set("reasoning_effort", effort.as_deref().map(json::string));
    effort
}

fn put_object(draft: &mut Draft<'_>, reasoning: &NativeReasoning) {
    let is_sized = reasoning.effort.is_some() || reasoning.budget_tokens.is_some();
    if reasoning.effort.is_some() && reasoning.budget_tokens.is_some() && !reasoning.is_off() {
        let message = "this endpoint accepts an effort or a budget; the budget was sent";
        draft.warn("reasoning.effort", message);
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
        ("effort", effort),
        ("max_tokens", budget),
        ("enabled", enabled),
        ("exclude", exclude.map(Json::from)),
    ];
    let base = draft.current_value("reasoning");
    draft.put("reasoning", draft::edit_object(base.as_ref(), &changes));
}

fn put_toggle(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let kind = if reasoning.is_off() { "disabled" } else { "enabled" };
    let base = draft.current_value("thinking");
    let changes = [("type", Some(json::string(kind)))];
    draft.put("thinking", draft::edit_object(base.as_ref(), &changes));
    let requested = wanted_effort(reasoning, profile).filter(|_| !reasoning.is_off());
    let effort =
        requested.and_then(|requested| effort::supported_effort(draft, &requested, profile));
    if effort.is_some() || draft.source_value("reasoning_effort").is_some() {
        draft.set("reasoning_effort", effort.as_deref().map(json::string));
    }
    effort
}

fn put_flag(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    let is_on = !reasoning.is_off();
    draft.put("enable_thinking", is_on.into());
    // Newer models accept an effort. For older models it becomes a budget.
    let takes_effort = profile.notes.contains_key("default-effort");
    let effort = reasoning.effort.as_deref().filter(|_| takes_effort && is_on);
    let effort = effort.and_then(|effort| effort::supported_effort(draft, effort, profile));
    if effort.is_some() || draft.source_value("reasoning_effort").is_some() {
        draft.set("reasoning_effort", effort.as_deref().map(json::string));
    }
    let of_effort = || {
        let effort = reasoning.effort.as_deref().filter(|_| !takes_effort);
        effort.map(|effort| effort::budget(Some(effort)))
    };
    let budget = reasoning.budget_tokens.or_else(of_effort).filter(|_| is_on);
    if budget.is_some() || draft.source_value("thinking_budget").is_some() {
        draft.set("thinking_budget", budget.map(Json::from));
    }
}

fn put_think(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    let requested = wanted_effort(reasoning, profile).filter(|_| !reasoning.is_off());
    // Reasoning can only be switched on or off for a model without efforts.
    let effort = requested.filter(|_| !profile.efforts.is_empty());
    let effort = effort.and_then(|effort| effort::supported_effort(draft, &effort, profile));
    let think = match &effort {
        Some(effort) => json::string(effort),
        None => Json::from(!reasoning.is_off()),
    };
    draft.put("think", think);
    effort
}
