//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{Call, Choice, Json, NativeReasoning, Output, Profile, json};

use crate::draft::{self, Draft};
use crate::effort;
use crate::responses::contract;

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    if draft.differs(|s| &s.reasoning) {
        put_reasoning(draft, call);
    }
    let effort = draft.latest("reasoning").and_then(|r| r.tree().root().name_of("effort"));
    if draft.differs(|s| &s.max_tokens) {
        let least = contract::LEAST_OUTPUT;
        if let Some(few) = settings.max_tokens.filter(|given| *given < least) {
            draft.warn("max_tokens", format!("{few} is too few; {least} was asked for"));
        }
        let given = settings.max_tokens.map(|given| given.max(least));
        draft.set("max_output_tokens", given.map(Json::from));
    }
    put_sampling(draft, call, effort.as_deref());
    if !settings.stop.is_empty() && draft.differs(|s| &s.stop) {
        draft.warn("stop", "this wire has no stop sequences; they were left out");
    }
    put_choice(draft, call, effort.as_deref());
    if draft.differs(|s| &s.parallel) {
        draft.set("parallel_tool_calls", settings.parallel.map(Json::from));
    }
    if draft.differs(|s| &s.output) {
        put_member(draft, "text", &[("format", settings.output.as_ref().map(format))]);
    }
    let was = draft.was("previous_response_id").and_then(|was| was.tree().root().name());
    if was != call.resumes {
        draft.set("previous_response_id", call.resumes.as_deref().map(json::string));
    }
}

fn put_reasoning(draft: &mut Draft<'_>, call: &Call) {
    let profile = &*call.target.profile;
    let Some(reasoning) = &call.settings.reasoning else {
        put_member(draft, "reasoning", &[("effort", None), ("summary", None)]);
        return;
    };
    let reasons = profile.thinks_by_default || profile.always_thinks || !profile.efforts.is_empty();
    if !reasons && profile.name != "unknown" {
        if !reasoning.is_off() {
            let message = format!("{} does not reason; the setting was left out", profile.name);
            draft.warn("reasoning", message);
        }
        return;
    }
    let effort = wanted_effort(draft, reasoning, profile);
    let effort = effort.and_then(|effort| effort::fitting(draft, &effort, profile));
    let stores = call.target.provider.dialect.stores;
    // An endpoint that writes its reasoning openly has no summaries to ask for.
    let shows = reasoning.include_thoughts == Some(true) && stores;
    let summary = match draft.latest("reasoning").as_ref().map(Json::tree) {
        Some(was) if shows && was.root().present("summary").is_some() => {
            was.root().get("summary").map(throughline_core::Node::json)
        }
        Some(_) | None => shows.then(|| json::string("auto")),
    };
    let effort = effort.as_deref().map(json::string);
    put_member(draft, "reasoning", &[("effort", effort), ("summary", summary)]);
    // A Call of our own keeps its reasoning itself: sealed, and nowhere else.
    if draft.source().is_none() && stores {
        if draft.latest("include").is_none() {
            let sealed = json::array(|a| {
                a.string("reasoning.encrypted_content");
            });
            draft.put("include", sealed);
        }
        if draft.latest("store").is_none() {
            draft.put("store", false.into());
        }
    }
}

/// How hard to think, before the model's own limits.
fn wanted_effort(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<String> {
    if reasoning.is_off() {
        return Some("none".to_owned());
    }
    let budget = reasoning.budget_tokens;
    if let Some(effort) = &reasoning.effort {
        if let Some(budget) = budget {
            let message = format!("this wire takes an effort; the budget of {budget} was left out");
            draft.warn("reasoning.budget_tokens", message);
        }
        return Some(effort.to_string());
    }
    if let Some(budget) = budget {
        let ladder = ["minimal", "low", "medium", "high", "xhigh"];
        let fits = ladder.iter().find(|effort| effort::budget(Some(effort)) >= budget);
        let effort = fits.unwrap_or(&"xhigh");
        let message = format!("this wire takes an effort; {budget} tokens became `{effort}`");
        draft.warn("reasoning.budget_tokens", message);
        return Some((*effort).to_owned());
    }
    // Asked to reason and not told how hard, a model that would not by itself needs a word.
    let is_silent = !profile.thinks_by_default && !profile.always_thinks;
    (reasoning.enabled == Some(true) && is_silent).then(|| "medium".to_owned())
}

/// Changes members of an object that is itself a member; an empty one is left out.
fn put_member(draft: &mut Draft<'_>, key: &'static str, changes: &[(&'static str, Option<Json>)]) {
    let base = draft.latest(key).filter(|base| base.tree().root().is_object());
    if base.is_none() && changes.iter().all(|(_, value)| value.is_none()) {
        return;
    }
    let changes: Vec<_> =
        changes.iter().map(|(key, value)| (Cow::Borrowed(*key), value.clone())).collect();
    let object = draft::edited(base.as_ref(), &changes);
    let is_empty = object.tree().root().members().next().is_none();
    draft.set(key, (!is_empty).then_some(object));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, effort: Option<&str>) {
    let settings = &call.settings;
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
    ];
    let is_refused = contract::refuses_sampling(&call.target.profile, effort);
    for (key, value, differs) in all {
        if is_refused && differs && value.is_some() {
            draft.warn(key, "this model sets it itself while it reasons; it was left out");
            draft.remove(key);
        } else if differs {
            draft.set(key, value.clone());
        }
    }
    if settings.top_k.is_some() && draft.differs(|s| &s.top_k) {
        draft.warn("top_k", "this wire has no such setting; it was left out");
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, effort: Option<&str>) {
    if !draft.differs(|s| &s.choice) {
        return;
    }
    let mut choice = call.settings.choice.clone();
    if choice.as_ref().is_some_and(|c| contract::refuses_choice(&call.target.profile, effort, c)) {
        let message = "this model cannot be told which tool to call; it was left free to choose";
        draft.warn("tool_choice", message);
        choice = Some(Choice::Auto);
    }
    let value = match choice {
        Some(Choice::Auto) => Some(json::string("auto")),
        Some(Choice::None) => Some(json::string("none")),
        Some(Choice::Any) => Some(json::string("required")),
        Some(Choice::Tool(name)) => Some(json::object(|o| {
            o.string("type", "function").string("name", &name);
        })),
        Some(Choice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}

fn format(output: &Output) -> Json {
    json::object(|o| match output {
        Output::Json => {
            o.string("type", "json_object");
        }
        Output::Schema { name, schema, strict } => {
            let name = name.as_ref().map_or_else(|| Arc::from("answer"), Arc::clone);
            o.string("type", "json_schema").string("name", &name).raw("schema", schema);
            // Unsaid it is not strict; said or not, it stays what it was.
            if let Some(strict) = strict {
                o.bool("strict", *strict);
            }
        }
    })
}
