//! Encodes the settings of a Call within the model's limits.

use std::sync::Arc;

use throughline_core::{
    Call, NativeReasoning, OutputFormat, Profile, ReceivedRequest, Tool, ToolChoice,
};
use throughline_json::{self as json, Json, Name, Node};

use crate::draft::{self, Draft};
use crate::responses::{contract, wire};
use crate::{cross_wire, effort};

/// Writes every setting that differs from the source request.
pub(super) fn put_settings(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_reconsidered = draft.differs(|s| &s.reasoning) || draft.is_retargeted();
    if is_reconsidered {
        put_reasoning(draft, call);
    }
    if draft.differs(|s| &s.max_tokens) {
        let least = contract::MIN_OUTPUT_TOKENS;
        if let Some(few) = settings.max_tokens.filter(|limit| *limit < least) {
            draft.warn("max_tokens", format!("{few} is below the minimum; {least} was sent"));
        }
        let limit = settings.max_tokens.map(|limit| limit.max(least));
        draft.set("max_output_tokens", limit.map(Json::from));
    }
    put_sampling(draft, call, is_reconsidered);
    if !settings.stop.is_empty() && draft.differs(|s| &s.stop) {
        draft.warn("stop", "this wire has no stop sequences; they were left out");
    }
    if draft.differs(|s| &s.output) {
        put_member(draft, "text", &[("format", settings.output.as_ref().map(format))]);
    }
}

/// Returns the reasoning effort that the draft currently contains.
fn effort(draft: &Draft<'_>) -> Option<Name> {
    draft.current_value("reasoning").and_then(|reasoning| reasoning.tree().root().name_of("effort"))
}

/// Writes references to state that the endpoint stores: a response to continue from, a conversation
/// or a prompt. Only the same endpoint and account can resolve them.
pub(super) fn put_stored_references(draft: &mut Draft<'_>, call: &Call, resumes: Option<&str>) {
    let unknown = "only the endpoint that stores it can use it; it was left out";
    if call.resumes.is_some() && resumes.is_none() {
        draft.warn("previous_response_id", unknown);
    }
    let was = draft.source_value("previous_response_id").and_then(|was| was.tree().root().name());
    if was.as_deref() != resumes {
        draft.set("previous_response_id", resumes.map(json::string));
    }
    for key in ["conversation", "prompt"] {
        if is_stored_elsewhere(draft, call)
            && draft.source_value(key).is_some_and(|was| was != Json::null())
        {
            draft.warn(key, unknown);
            draft.remove(key);
        }
    }
}

/// Returns whether the state that the source request refers to is stored at another endpoint or
/// account.
pub(super) fn is_stored_elsewhere(draft: &Draft<'_>, call: &Call) -> bool {
    let account = &call.target.origin.account;
    let is_other = |source: &ReceivedRequest| source.target.origin.account != *account;
    draft.has_other_endpoint() || draft.source().is_some_and(is_other)
}

fn put_reasoning(draft: &mut Draft<'_>, call: &Call) {
    let profile = &*call.target.profile;
    let reasons = profile.thinks_by_default || profile.always_thinks || !profile.efforts.is_empty();
    if !reasons && profile.name != "unknown" {
        drop_reasoning(draft, call);
        return;
    }
    let Some(reasoning) = cross_wire::requested_reasoning(call, draft.wire()) else {
        let nothing = ["effort", "summary", "generate_summary"].map(|key| (key, None));
        put_member(draft, "reasoning", &nothing);
        return;
    };
    let effort = wanted_effort(draft, &reasoning, profile);
    let effort = effort.and_then(|effort| effort::supported_effort(draft, &effort, profile));
    let stores = call.target.provider.dialect.stores;
    // An endpoint with plain reasoning does not offer summaries.
    let shows = reasoning.include_thoughts == Some(true) && stores;
    let was = draft.current_value("reasoning");
    let current = |key: &str| was.as_ref()?.tree().root().present(key).map(Node::json);
    let (summary, older) = match (shows, current("summary"), current("generate_summary")) {
        (false, ..) => (None, None),
        (true, None, None) => (Some(json::string("auto")), None),
        (true, summary, older) => (summary, older),
    };
    let effort = effort.as_deref().map(json::string);
    let members = [("effort", effort), ("summary", summary), ("generate_summary", older)];
    put_member(draft, "reasoning", &members);
    // A Call without a source keeps its own reasoning. It therefore requests encrypted content and
    // disables storage.
    if draft.source().is_none() && stores {
        if draft.current_value("include").is_none() {
            let sealed = json::array(|a| {
                a.string("reasoning.encrypted_content");
            });
            draft.put("include", sealed);
        }
        if draft.current_value("store").is_none() {
            draft.put("store", false.into());
        }
    }
}

/// Drops reasoning settings for non-reasoning models, which reject them.
fn drop_reasoning(draft: &mut Draft<'_>, call: &Call) {
    let was = draft.current_value("reasoning").filter(|was| *was != Json::null());
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
    let Some(include) = draft.current_value("include").filter(|_| draft.is_retargeted()) else {
        return;
    };
    let tree = include.tree();
    let is_sealed = |kind: &Node<'_>| kind.is("reasoning.encrypted_content");
    if tree.root().elements().any(|kind| is_sealed(&kind)) {
        let others: Vec<Json> =
            tree.root().elements().filter(|kind| !is_sealed(kind)).map(Node::json).collect();
        draft.set("include", (!others.is_empty()).then(|| json::array_of(&others)));
    }
}

/// Returns the requested effort, before the model's limits are applied.
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
            let message =
                format!("this wire supports an effort; the budget of {budget} was left out");
            draft.warn("reasoning.budget_tokens", message);
        }
        return Some(effort.to_string());
    }
    if let Some(budget) = budget {
        let effort = effort::effort_for_budget(budget);
        let message = format!("this wire supports an effort; {budget} tokens became `{effort}`");
        draft.warn("reasoning.budget_tokens", message);
        return Some(effort.to_owned());
    }
    // A model that does not reason by default needs an effort to enable reasoning.
    let is_silent = !profile.thinks_by_default && !profile.always_thinks;
    (reasoning.enabled == Some(true) && is_silent).then(|| "medium".to_owned())
}

/// Changes members of the object at `key`. If the object becomes empty, it is removed.
fn put_member(draft: &mut Draft<'_>, key: &'static str, changes: &[(&'static str, Option<Json>)]) {
    let base = draft.current_value(key).filter(|base| base.tree().root().is_object());
    if base.is_none() && changes.iter().all(|(_, value)| value.is_none()) {
        return;
    }
    let object = draft::edit_object(base.as_ref(), changes);
    let is_empty = object.tree().root().members().next().is_none();
    draft.set(key, (!is_empty).then_some(object));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, is_reconsidered: bool) {
    let refusal = contract::rejects_sampling(&call.target.profile, effort(draft).as_deref())
        .then_some(
            "this model does not support this setting while reasoning; the setting was omitted",
        );
    let names = ["temperature", "top_p"];
    for (key, value) in
        cross_wire::sampling_changes(draft, call, &names, is_reconsidered, |_| refusal)
    {
        draft.set(key, value);
    }
    if call.settings.top_k.is_some() && draft.differs(|s| &s.top_k) {
        draft.warn("top_k", "this wire has no such setting; it was left out");
    }
}

/// Writes the tool choice and the parallelism setting. Both require tools, so tools must be written
/// first.
pub(super) fn put_tool_settings(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let is_reconsidered =
        draft.differs(|s| &s.reasoning) || draft.is_retargeted() || has_other_tools(draft, call);
    if draft.differs(|s| &s.choice) || (is_reconsidered && settings.choice.is_some()) {
        put_choice(draft, call);
    }
    let offers_tools =
        has_tools(draft.current_value("tools")) || call.tools.iter().any(wire::is_additional);
    if settings.parallel.is_some() && !offers_tools {
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

/// Returns whether the tools differ from the tools of the source request.
fn has_other_tools(draft: &Draft<'_>, call: &Call) -> bool {
    let list = |tool: &Tool| tool.native.as_ref().and_then(|native| native.envelope.clone());
    let mut tools = call.tools.iter().filter(|tool| !wire::is_additional(tool));
    match tools.clone().next().map(list) {
        None => has_tools(draft.source_value("tools")),
        Some(None) => true,
        Some(Some(first)) => {
            let is_same = |tool| list(tool).is_some_and(|other| Arc::ptr_eq(&first, &other));
            first.parts != tools.clone().count() || !tools.all(is_same)
        }
    }
}

fn put_choice(draft: &mut Draft<'_>, call: &Call) {
    let mut choice = draft.supported_tool_choice();
    let effort = effort(draft);
    let refuses = |choice: &ToolChoice| {
        contract::rejects_tool_choice(&call.target.profile, effort.as_deref(), choice)
    };
    if choice.as_ref().is_some_and(refuses) {
        let message = "this model does not support a forced tool; the choice was set to auto";
        draft.warn("tool_choice", message);
        choice = Some(ToolChoice::Auto);
    }
    let value = match choice {
        Some(ToolChoice::Auto) => Some(json::string("auto")),
        Some(ToolChoice::None) => Some(json::string("none")),
        Some(ToolChoice::Any) => Some(json::string("required")),
        Some(ToolChoice::Tool(name)) => {
            let tool = call.tools.iter().find(|tool| tool.name == name);
            let (namespace, name) = tool.map_or((None, name), wire::own_names);
            Some(object! {
                "type": "function", "namespace": namespace.as_deref(), "name": name,
            })
        }
        // Keep the source's value, unless it may name a tool that only the source's endpoint
        // offers.
        Some(ToolChoice::Other(own))
            if !draft.differs(|s| &s.choice) && !draft.has_other_endpoint() =>
        {
            Some(own)
        }
        Some(ToolChoice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}

fn format(output: &OutputFormat) -> Json {
    match output {
        OutputFormat::Json => object! { "type": "json_object" },
        // Strict mode is off by default, so an absent value stays absent.
        OutputFormat::Schema { name, schema, strict } => object! {
            "type": "json_schema", "name": name.as_deref().unwrap_or("answer"), "schema": schema,
            "strict": strict,
        },
    }
}
