//! Encodes the settings of a Call within the model's limits.

use throughline_core::{Call, NativeReasoning, Profile, ToolChoice};
use throughline_json::{self as json, Json, Node};

use crate::claude::{self, ThinkingMode};
use crate::converse::contract::{self, FieldFormat};
use crate::draft::{self, Draft};
use crate::{cross_wire, effort};

/// The request member that holds family-specific settings.
const FIELDS: &str = "additionalModelRequestFields";

type FieldChanges = Vec<(&'static str, Option<Json>)>;

/// Writes every setting that differs from the source request. If the model changed, checks all
/// settings again, because models accept different settings.
pub(super) fn put_settings(
    draft: &mut Draft<'_>,
    call: &Call,
    messages: &[Json],
    tools: &[Json],
    is_retargeted: bool,
) {
    let settings = &call.settings;
    let mut mode = ThinkingMode::from_json(current_field(draft, "thinking").as_ref());
    let mut max_tokens = settings.max_tokens;
    let is_reconsidered = is_retargeted || draft.differs(|s| &s.reasoning);
    if is_reconsidered {
        (mode, max_tokens) = put_reasoning(draft, call, messages);
    }
    let mut inference: FieldChanges = Vec::new();
    if max_tokens != settings.max_tokens || draft.differs(|s| &s.max_tokens) {
        inference.push(("maxTokens", max_tokens.map(Json::from)));
    }
    put_sampling(draft, call, mode, is_reconsidered, &mut inference);
    if draft.differs(|s| &s.stop) {
        inference.push(("stopSequences", draft::stop_list(settings)));
    }
    edit_member(draft, "inferenceConfig", inference);
    put_tools(draft, call, mode, tools, is_reconsidered);
    if draft.differs(|s| &s.output) {
        let schema = cross_wire::output_schema(draft, call);
        let format = schema.map(|(name, schema)| text_format(name, schema));
        edit_member(draft, "outputConfig", vec![("textFormat", format)]);
    }
}

/// Applies `changes` to a nested object, skipping changes that would have no effect.
fn edit_member(draft: &mut Draft<'_>, member: &'static str, changes: FieldChanges) {
    let base = draft.current_value(member).filter(|base| base.tree().root().is_object());
    let tree = base.as_ref().map(Json::tree);
    let is_new = |(key, value): &(&'static str, Option<Json>)| {
        let current = tree.as_ref().and_then(|tree| tree.root().get(key)).map(Node::json);
        match (current, value) {
            (Some(current), Some(value)) => !current.is_equivalent_to(value),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    };
    let changes: FieldChanges = changes.into_iter().filter(is_new).collect();
    if !changes.is_empty() {
        draft.put(member, draft::edit_object(base.as_ref(), &changes));
    }
}

/// Returns the current value of a family-specific setting.
fn current_field(draft: &Draft<'_>, key: &str) -> Option<Json> {
    draft.current_value(FIELDS)?.tree().root().present(key).map(Node::json)
}

/// Writes the reasoning settings in the format of the model's family, and removes settings in the
/// formats of other families.
fn put_reasoning(
    draft: &mut Draft<'_>,
    call: &Call,
    messages: &[Json],
) -> (ThinkingMode, Option<u64>) {
    let profile = &*call.target.profile;
    let mut max_tokens = call.settings.max_tokens;
    let mut decision = claude::ThinkingSettings::unset();
    let (mut config, mut effort_word) = (None, None);
    if let Some(reasoning) = cross_wire::requested_reasoning(call, draft.wire()).as_deref() {
        match FieldFormat::from_profile(profile) {
            FieldFormat::Claude => {
                let is_loop_unsigned = lacks_leading_thinking(messages);
                decision = claude::decide_thinking(draft, reasoning, profile, is_loop_unsigned);
                max_tokens = claude::raise_max_tokens(draft, max_tokens, &decision);
            }
            FieldFormat::Nova => config = Some(nova_reasoning(draft, reasoning, profile)),
            FieldFormat::OpenAi => effort_word = openai_reasoning(draft, reasoning, profile),
            FieldFormat::Other => {
                let is_default = profile.thinks_by_default
                    && !reasoning.is_off()
                    && reasoning.effort.is_none()
                    && reasoning.budget_tokens.is_none();
                if !is_default {
                    let name = &profile.name;
                    let message =
                        format!("{name} has no such setting on this wire; it was omitted");
                    draft.warn("reasoning", message);
                }
            }
        }
    }
    let output = current_field(draft, "output_config");
    let change = [("effort", decision.effort.clone())];
    let output = (output.is_some() || decision.effort.is_some())
        .then(|| draft::edit_object(output.as_ref(), &change))
        .filter(|output| output.as_str() != "{}");
    let changes = vec![
        ("thinking", decision.thinking.clone()),
        ("output_config", output),
        ("reasoningConfig", config),
        ("reasoning_effort", effort_word),
    ];
    edit_member(draft, FIELDS, changes);
    (decision.mode, max_tokens)
}

fn nova_reasoning(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) -> Json {
    if reasoning.is_off() {
        return object! { "type": "disabled" };
    }
    warn_about_budget(draft, reasoning, profile);
    let effort = reasoning.effort.as_deref().unwrap_or("medium");
    let effort = effort::supported_effort(draft, effort, profile);
    object! { "type": "enabled", "maxReasoningEffort": effort.as_deref() }
}

fn openai_reasoning(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
) -> Option<Json> {
    if reasoning.is_off() && profile.always_thinks {
        draft.warn("reasoning", format!("{} cannot disable thinking", profile.name));
        return None;
    }
    warn_about_budget(draft, reasoning, profile);
    let effort = reasoning.effort.as_deref()?;
    effort::supported_effort(draft, effort, profile).map(|effort| json::string(&effort))
}

fn warn_about_budget(draft: &mut Draft<'_>, reasoning: &NativeReasoning, profile: &Profile) {
    if let Some(budget) = reasoning.budget_tokens {
        let message = format!("{} accepts no thinking budget; {budget} was omitted", profile.name);
        draft.warn("reasoning.budget_tokens", message);
    }
}

/// Returns whether the last assistant message is in a tool loop and does not begin with thinking.
/// The provider rejects such a message if the request sets a manual thinking budget.
fn lacks_leading_thinking(messages: &[Json]) -> bool {
    let has = |message: Node<'_>, key: &str| {
        let mut blocks = message.get("content").into_iter().flat_map(Node::elements);
        blocks.any(|block| block.get(key).is_some())
    };
    let is_loop = messages.last().is_some_and(|last| has(last.tree().root(), "toolResult"));
    let assistant = messages
        .iter()
        .rev()
        .map(Json::tree)
        .find(|message| message.root().get("role").is_some_and(|role| role.is("assistant")));
    let Some(assistant) = assistant.filter(|_| is_loop) else { return false };
    assistant.root().at("/content/0/reasoningContent").is_none()
}

fn put_sampling(
    draft: &mut Draft<'_>,
    call: &Call,
    mode: ThinkingMode,
    is_reconsidered: bool,
    inference: &mut FieldChanges,
) {
    let settings = &call.settings;
    let profile = &*call.target.profile;
    let is_refused = claude::rejects_sampling(profile, mode);
    let allowed = |draft: &mut Draft<'_>, key: &'static str, value: &Option<Json>| {
        if is_refused && value.is_some() {
            draft.warn(
                key,
                "this model does not accept this setting while thinking; the setting was omitted",
            );
        }
        value.clone().filter(|_| !is_refused)
    };
    if is_reconsidered || draft.differs(|s| &s.temperature) {
        inference.push(("temperature", allowed(draft, "temperature", &settings.temperature)));
    }
    if is_reconsidered || draft.differs(|s| &s.top_p) {
        inference.push(("topP", allowed(draft, "top_p", &settings.top_p)));
    }
    if !is_reconsidered && !draft.differs(|s| &s.top_k) {
        return;
    }
    let top_k = allowed(draft, "top_k", &settings.top_k);
    // `top_k` is the only family-specific sampling setting.
    let (mut flat, mut nested) = (None, None);
    match (FieldFormat::from_profile(profile), top_k) {
        (FieldFormat::Claude, top_k) => flat = top_k,
        (FieldFormat::Nova, top_k) => nested = top_k,
        (FieldFormat::OpenAi | FieldFormat::Other, Some(_)) => {
            let name = &profile.name;
            let message = format!("{name} has no such setting on this wire; it was omitted");
            draft.warn("top_k", message);
        }
        (FieldFormat::OpenAi | FieldFormat::Other, None) => {}
    }
    let config = current_field(draft, "inferenceConfig");
    let change = [("topK", nested.clone())];
    let config = (config.is_some() || nested.is_some())
        .then(|| draft::edit_object(config.as_ref(), &change))
        .filter(|config| config.as_str() != "{}");
    edit_member(draft, FIELDS, vec![("top_k", flat), ("inferenceConfig", config)]);
}

fn put_tools(
    draft: &mut Draft<'_>,
    call: &Call,
    mode: ThinkingMode,
    tools: &[Json],
    is_reconsidered: bool,
) {
    let settings = &call.settings;
    if draft.differs(|s| &s.parallel) && settings.parallel == Some(false) {
        draft.warn("parallel", "this wire cannot disable parallel calls");
    }
    let was = draft.current_value("toolConfig");
    let tree = was.as_ref().map(Json::tree);
    let list = tree.as_ref().and_then(|tree| tree.root().get("tools"));
    let current: Vec<Json> = list.into_iter().flat_map(Node::elements).map(Node::json).collect();
    let has_no_tools = tools.is_empty();
    let mut changes: FieldChanges = Vec::new();
    if *tools != *current {
        changes.push(("tools", Some(json::array_of(tools))));
    }
    if is_reconsidered || draft.differs(|s| &s.choice) {
        changes.push(("toolChoice", tool_choice(draft, call, mode, has_no_tools)));
    }
    if has_no_tools {
        // An object without `tools` would be invalid.
        if !current.is_empty() {
            draft.remove("toolConfig");
        }
        return;
    }
    edit_member(draft, "toolConfig", changes);
}

fn tool_choice(
    draft: &mut Draft<'_>,
    call: &Call,
    mode: ThinkingMode,
    has_no_tools: bool,
) -> Option<Json> {
    let typed = |key: &str, name: Option<&str>| Some(object! { (key): { "name": name } });
    let choice = call.settings.choice.as_ref()?;
    if has_no_tools {
        if matches!(choice, ToolChoice::Any | ToolChoice::Tool(_)) {
            draft.warn("tool_choice", "there are no tools to choose from; it was omitted");
        }
        return None;
    }
    if contract::rejects_tool_choice(&call.target.profile, mode, choice) {
        let message = "this model does not support a forced tool choice; `auto` was sent instead";
        draft.warn("tool_choice", message);
        return typed("auto", None);
    }
    match choice {
        ToolChoice::Auto => typed("auto", None),
        ToolChoice::Any => typed("any", None),
        ToolChoice::Tool(name) => typed("tool", Some(name)),
        ToolChoice::None => {
            draft.warn("tool_choice", "this wire cannot disable tools; it was omitted");
            None
        }
        ToolChoice::Other(other) => {
            // A tool choice that is unchanged since the source needs no warning.
            let own = draft.source().is_some_and(|source| {
                source.settings.choice.as_ref() == call.settings.choice.as_ref()
            });
            if !own {
                draft.warn("tool_choice", "this wire does not support this choice; it was omitted");
            }
            own.then(|| other.clone())
        }
    }
}

fn text_format(name: Option<&str>, schema: &Json) -> Json {
    object! {
        "type": "json_schema",
        "structure": { "jsonSchema": { "schema": schema.as_str(), "name": name } },
    }
}
