//! The settings of a Call, in this wire's words and within this model's limits.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{
    Call, Choice, Json, Name, NativeReasoning, Node, Output, Profile, Received, Tool, json,
};

use crate::draft::{self, Draft};
use crate::effort;
use crate::responses::contract;

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_reconsidered = draft.differs(|s| &s.reasoning) || draft.is_retargeted();
    if is_reconsidered {
        put_reasoning(draft, call);
    }
    if draft.differs(|s| &s.max_tokens) {
        let least = contract::LEAST_OUTPUT;
        if let Some(few) = settings.max_tokens.filter(|given| *given < least) {
            draft.warn("max_tokens", format!("{few} is too few; {least} was asked for"));
        }
        let given = settings.max_tokens.map(|given| given.max(least));
        draft.set("max_output_tokens", given.map(Json::from));
    }
    put_sampling(draft, call, is_reconsidered);
    if !settings.stop.is_empty() && draft.differs(|s| &s.stop) {
        draft.warn("stop", "this wire has no stop sequences; they were left out");
    }
    if draft.differs(|s| &s.output) {
        put_member(draft, "text", &[("format", settings.output.as_ref().map(format))]);
    }
}

/// How hard the model is asked to think.
fn effort(draft: &Draft<'_>) -> Option<Name> {
    draft.latest("reasoning").and_then(|reasoning| reasoning.tree().root().name_of("effort"))
}

/// Writes what the endpoint must have kept itself: the answer to go on from, as `resumes` says, a conversation, a prompt.
/// No other endpoint knows them, nor does another account.
pub(super) fn put_kept(draft: &mut Draft<'_>, call: &Call, resumes: Option<&str>) {
    let unknown = "only the endpoint that keeps it knows it; it was left out";
    if call.resumes.is_some() && resumes.is_none() {
        draft.warn("previous_response_id", unknown);
    }
    let was = draft.was("previous_response_id").and_then(|was| was.tree().root().name());
    if was.as_deref() != resumes {
        draft.set("previous_response_id", resumes.map(json::string));
    }
    for key in ["conversation", "prompt"] {
        if is_elsewhere(draft, call) && draft.was(key).is_some_and(|was| was != Json::null()) {
            draft.warn(key, unknown);
            draft.remove(key);
        }
    }
}

/// Whether what the source's endpoint keeps cannot be found at the target.
pub(super) fn is_elsewhere(draft: &Draft<'_>, call: &Call) -> bool {
    let account = &call.target.origin.account;
    let is_other = |source: &Received| source.target.origin.account != *account;
    draft.has_moved() || draft.source().is_some_and(is_other)
}

fn put_reasoning(draft: &mut Draft<'_>, call: &Call) {
    let profile = &*call.target.profile;
    let reasons = profile.thinks_by_default || profile.always_thinks || !profile.efforts.is_empty();
    if !reasons && profile.name != "unknown" {
        leave_out_reasoning(draft, call);
        return;
    }
    let Some(reasoning) = &call.settings.reasoning else {
        let nothing = ["effort", "summary", "generate_summary"].map(|key| (key, None));
        put_member(draft, "reasoning", &nothing);
        return;
    };
    let effort = wanted_effort(draft, reasoning, profile);
    let effort = effort.and_then(|effort| effort::fitting(draft, &effort, profile));
    let stores = call.target.provider.dialect.stores;
    // An endpoint that writes its reasoning openly has no summaries to ask for.
    let shows = reasoning.include_thoughts == Some(true) && stores;
    let was = draft.latest("reasoning");
    let said = |key: &str| was.as_ref()?.tree().root().present(key).map(Node::json);
    let (summary, older) = match (shows, said("summary"), said("generate_summary")) {
        (false, ..) => (None, None),
        (true, None, None) => (Some(json::string("auto")), None),
        (true, summary, older) => (summary, older),
    };
    let effort = effort.as_deref().map(json::string);
    let members = [("effort", effort), ("summary", summary), ("generate_summary", older)];
    put_member(draft, "reasoning", &members);
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

/// A model that does not reason takes no word on how to, nor can it seal its reasoning.
fn leave_out_reasoning(draft: &mut Draft<'_>, call: &Call) {
    let was = draft.latest("reasoning").filter(|was| *was != Json::null());
    let is_asked = match &call.settings.reasoning {
        Some(reasoning) => !reasoning.is_off(),
        None => was.is_some(),
    };
    if is_asked {
        let name = &call.target.profile.name;
        draft.warn("reasoning", format!("{name} does not reason; the setting was left out"));
    }
    if was.is_some() {
        draft.remove("reasoning");
    }
    let Some(include) = draft.latest("include").filter(|_| draft.is_retargeted()) else { return };
    let tree = include.tree();
    let is_sealed = |kind: &Node<'_>| kind.is("reasoning.encrypted_content");
    if tree.root().elements().any(|kind| is_sealed(&kind)) {
        let others: Vec<Json> =
            tree.root().elements().filter(|kind| !is_sealed(kind)).map(Node::json).collect();
        draft.set("include", (!others.is_empty()).then(|| json::array_of(&others)));
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
        let effort = effort::of_budget(budget);
        let message = format!("this wire takes an effort; {budget} tokens became `{effort}`");
        draft.warn("reasoning.budget_tokens", message);
        return Some(effort.to_owned());
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

fn put_sampling(draft: &mut Draft<'_>, call: &Call, is_reconsidered: bool) {
    let settings = &call.settings;
    let effort = effort(draft);
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
    ];
    let is_refused = contract::refuses_sampling(&call.target.profile, effort.as_deref());
    for (key, value, differs) in all {
        if is_refused && (differs || is_reconsidered) && value.is_some() {
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

/// Writes which tools to call, and how many at once; both need tools to speak of, so the tools must be written already.
pub(super) fn put_calling(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_reconsidered =
        draft.differs(|s| &s.reasoning) || draft.is_retargeted() || has_other_tools(draft, call);
    if draft.differs(|s| &s.choice) || (is_reconsidered && settings.choice.is_some()) {
        put_choice(draft, call);
    }
    if settings.parallel.is_some() && !has_tools(draft.latest("tools")) {
        if draft.differs(|s| &s.parallel) || is_reconsidered {
            draft.warn("parallel", "there are no tools to call; it was left out");
            draft.remove("parallel_tool_calls");
        }
    } else if draft.differs(|s| &s.parallel) {
        draft.set("parallel_tool_calls", settings.parallel.map(Json::from));
    }
}

fn has_tools(tools: Option<Json>) -> bool {
    tools.is_some_and(|tools| tools.tree().root().elements().next().is_some())
}

/// Whether other tools are sent than the source had.
fn has_other_tools(draft: &Draft<'_>, call: &Call) -> bool {
    let list = |tool: &Tool| tool.native.as_ref().and_then(|native| native.envelope.clone());
    match call.tools.first().map(list) {
        None => has_tools(draft.was("tools")),
        Some(None) => true,
        Some(Some(first)) => {
            let is_same = |tool| list(tool).is_some_and(|other| Arc::ptr_eq(&first, &other));
            first.parts != call.tools.len() || !call.tools.iter().all(is_same)
        }
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call) {
    let mut choice = draft.fitting_choice();
    let effort = effort(draft);
    let refuses =
        |choice: &Choice| contract::refuses_choice(&call.target.profile, effort.as_deref(), choice);
    if choice.as_ref().is_some_and(refuses) {
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
        // The source's own word stays, unless it may be about a tool that only its endpoint has.
        Some(Choice::Other(own)) if !draft.differs(|s| &s.choice) && !draft.has_moved() => {
            Some(own)
        }
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
