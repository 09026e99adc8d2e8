//! Encodes the settings of a Call within the model's limits.

use throughline_core::{Call, ToolChoice};
use throughline_json::{Json, Node};

use crate::anthropic::contract;
use crate::claude::{self, ThinkingMode, ThinkingSettings};
use crate::cross_wire;
use crate::draft::{self, Draft};

/// The `max_tokens` to send if the Call sets none, because the wire requires a value.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Writes every setting that differs from the source request. If the model changed, all settings
/// are checked again, because models accept different settings.
pub(super) fn put_settings(draft: &mut Draft<'_>, call: &Call, messages: &[Json]) {
    let settings = &call.settings;
    let mut mode = ThinkingMode::from_json(draft.source_value("thinking").as_ref());
    let mut max_tokens = settings.max_tokens;
    let is_reconsidered = draft.differs(|s| &s.reasoning) || draft.is_retargeted();
    if is_reconsidered {
        (mode, max_tokens) = put_thinking(draft, call, messages);
    }
    if draft.source().is_none() && max_tokens.is_none() {
        draft.warn("max_tokens", format!("the API requires it; {DEFAULT_MAX_TOKENS} was sent"));
        max_tokens = Some(DEFAULT_MAX_TOKENS);
    }
    if max_tokens != settings.max_tokens || draft.differs(|s| &s.max_tokens) {
        draft.set("max_tokens", max_tokens.map(Json::from));
    }
    let refusal = claude::rejects_sampling(&call.target.profile, mode).then_some(
        "this model does not accept this setting while thinking; the setting was omitted",
    );
    let names = ["temperature", "top_p", "top_k"];
    for (key, value) in
        cross_wire::sampling_changes(draft, call, &names, is_reconsidered, |_| refusal)
    {
        draft.set(key, value);
    }
    if draft.differs(|s| &s.stop) {
        draft.set("stop_sequences", draft::stop_list(settings));
    }
    put_choice(draft, call, mode, is_reconsidered);
    if draft.differs(|s| &s.output) {
        let schema = cross_wire::output_schema(draft, call);
        let format = schema.map(|(_, schema)| object! { "type": "json_schema", "schema": schema });
        put_output_config(draft, "format", format);
    }
}

fn put_thinking(
    draft: &mut Draft<'_>,
    call: &Call,
    messages: &[Json],
) -> (ThinkingMode, Option<u64>) {
    let is_loop_unsigned = contract::lacks_leading_thinking(messages);
    let decision = match cross_wire::requested_reasoning(call, draft.wire()) {
        Some(reasoning) => {
            claude::decide_thinking(draft, &reasoning, &call.target.profile, is_loop_unsigned)
        }
        None => ThinkingSettings::unset(),
    };
    let was = draft.source_value("thinking");
    let is_unchanged = match (&was, &decision.thinking) {
        (Some(was), Some(thinking)) => was.is_equivalent_to(thinking),
        (was, thinking) => was.is_none() && thinking.is_none(),
    };
    if !is_unchanged {
        draft.set("thinking", decision.thinking.clone());
    }
    put_output_config(draft, "effort", decision.effort.clone());
    let max_tokens = claude::raise_max_tokens(draft, call.settings.max_tokens, &decision);
    (decision.mode, max_tokens)
}

fn put_output_config(draft: &mut Draft<'_>, key: &'static str, value: Option<Json>) {
    let base = draft.current_value("output_config");
    let tree = base.as_ref().map(Json::tree);
    let current = tree.as_ref().and_then(|tree| tree.root().get(key)).map(Node::json);
    if current == value {
        return;
    }
    let config = draft::edit_object(base.as_ref(), &[(key, value)]);
    let is_empty = config.as_str() == "{}";
    draft.set("output_config", (!is_empty).then_some(config));
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, mode: ThinkingMode, is_reconsidered: bool) {
    let settings = &call.settings;
    let is_refused = |c: &ToolChoice| contract::rejects_tool_choice(&call.target.profile, mode, c);
    let is_revised = is_reconsidered && settings.choice.as_ref().is_some_and(is_refused);
    if !is_revised && !draft.differs(|s| &s.choice) && !draft.differs(|s| &s.parallel) {
        return;
    }
    let parallel = settings.parallel;
    let mut choice = draft.supported_tool_choice();
    if choice.is_none() && parallel == Some(false) && draft.current_value("tools").is_some() {
        choice = Some(ToolChoice::Auto);
    }
    if choice.as_ref().is_some_and(is_refused) {
        let message = "this model does not support a forced tool choice; `auto` was sent instead";
        draft.warn("tool_choice", message);
        choice = Some(ToolChoice::Auto);
    }
    let typed = |kind: &str, name: Option<&str>| {
        let no_parallel = parallel.filter(|_| kind != "none").map(|parallel| !parallel);
        Some(object! { "type": kind, "name": name, "disable_parallel_tool_use": no_parallel })
    };
    let value = match choice {
        Some(ToolChoice::Auto) => typed("auto", None),
        Some(ToolChoice::None) => typed("none", None),
        Some(ToolChoice::Any) => typed("any", None),
        Some(ToolChoice::Tool(name)) => typed("tool", Some(&name)),
        Some(ToolChoice::Other(_)) => {
            draft.warn("tool_choice", "this wire does not support this choice; it was omitted");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}
