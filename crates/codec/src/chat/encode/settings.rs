//! Encodes the settings of a Call within the endpoint's limits.

use throughline_core::{Call, OutputFormat, ReasoningChannel, ReasoningSwitch, ToolChoice};
use throughline_json::{self as json, Json, Node};

use crate::chat::encode::reasoning;
use crate::chat::{contract, wire};
use crate::cross_wire;
use crate::draft::{self, Draft};

/// Writes every setting that differs from the source request.
pub(super) fn put_settings(draft: &mut Draft<'_>, call: &Call, tools: &[Json]) {
    let is_asked_anew = draft.differs(|s| &s.reasoning);
    // Another model may reject settings that the source's model accepted, and many settings depend
    // on whether the model reasons.
    let is_reconsidered = is_asked_anew || draft.is_retargeted();
    if is_asked_anew || draft.is_retargeted() && has_own_switch(draft, call) {
        match cross_wire::requested_reasoning(call, draft.wire()) {
            Some(reasoning) => reasoning::put_reasoning(draft, &reasoning, call),
            None => reasoning::remove_reasoning(draft),
        }
    }
    if is_reconsidered || draft.source().is_none() {
        stop_reasoning_for_tools(draft, call, tools);
    }
    if wire::uses_ollama_api(&call.target) {
        put_ollama_settings(draft, call);
    } else {
        put_limit(draft, call);
        put_sampling(draft, call, is_reconsidered);
        put_parallel(draft, call, tools);
        put_choice(draft, call, tools, is_reconsidered);
        put_output(draft, call);
    }
    put_stream(draft, call);
}

/// Disables reasoning if the endpoint would reject the tools otherwise.
fn stop_reasoning_for_tools(draft: &mut Draft<'_>, call: &Call, tools: &[Json]) {
    let reasons = contract::will_reason(&call.target, call.settings.reasoning.as_ref());
    let is_function =
        |tool: &Json| tool.tree().root().get("type").is_some_and(|kind| kind.is("function"));
    if !reasons || !contract::limits_tools(&call.target) || !tools.iter().any(is_function) {
        return;
    }
    if call.target.profile.efforts.iter().any(|effort| effort == "none") {
        let message = "this API does not accept tools while the model reasons; `none` was sent";
        draft.warn("reasoning", message);
        draft.put("reasoning_effort", json::string("none"));
    } else {
        let message = "this API does not accept tools while the model reasons, and this model \
                       always reasons; use the Responses API";
        draft.warn("tools", message);
    }
}

/// Returns whether the source request configures reasoning with this endpoint's members. Members of
/// other dialects stay unchanged.
fn has_own_switch(draft: &Draft<'_>, call: &Call) -> bool {
    let keys: &[&str] = match call.target.provider.dialect.switch {
        ReasoningSwitch::Effort => &["reasoning_effort"],
        ReasoningSwitch::Object => &["reasoning"],
        ReasoningSwitch::Toggle => &["thinking", "reasoning_effort"],
        ReasoningSwitch::Flag => &["enable_thinking", "thinking_budget", "reasoning_effort"],
        ReasoningSwitch::Think => &["think"],
        ReasoningSwitch::None => &[],
    };
    keys.iter().any(|key| draft.source_value(key).is_some())
}

fn put_stream(draft: &mut Draft<'_>, call: &Call) {
    // Ollama's native API streams by default; all others stream only on request.
    let default = wire::uses_ollama_api(&call.target);
    draft.put_stream(default);
    let is_told = call.extras.iter().any(|extra| &*extra.key == "stream_options");
    let is_fresh = draft.source().is_none() && call.stream && !is_told;
    let counts_unasked = matches!(
        call.target.provider.dialect.channel,
        ReasoningChannel::Thinking | ReasoningChannel::Chunks
    );
    if is_fresh && !counts_unasked {
        draft.put("stream_options", object! { "include_usage": true });
    }
}

fn put_limit(draft: &mut Draft<'_>, call: &Call) {
    let (old, new) = ("max_tokens", "max_completion_tokens");
    let has_old = draft.source_value(old).is_some();
    let is_misnamed =
        has_old && draft.is_retargeted() && contract::requires_max_completion_tokens(&call.target);
    if !draft.differs(|s| &s.max_tokens) && !is_misnamed {
        return;
    }
    if is_misnamed {
        draft.remove(old);
    }
    let is_new = draft.source_value(new).is_some()
        || is_misnamed
        || !has_old && contract::requires_max_completion_tokens(&call.target);
    draft.set(if is_new { new } else { old }, call.settings.max_tokens.map(Json::from));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, is_reconsidered: bool) {
    let reasons = contract::will_reason(&call.target, call.settings.reasoning.as_ref());
    let refusal = |key: &str| {
        if contract::rejects_sampling(&call.target, reasons) {
            Some("this model does not support it; it was left out")
        } else if key == "top_k" && contract::is_strict(&call.target) {
            Some("this endpoint does not support it; it was left out")
        } else {
            None
        }
    };
    let names = ["temperature", "top_p", "top_k"];
    for (key, value) in cross_wire::sampling_changes(draft, call, &names, is_reconsidered, refusal)
    {
        draft.set(key, value);
    }
    if draft.differs(|s| &s.stop) {
        draft.set("stop", draft::stop_list(&call.settings));
    }
}

fn put_parallel(draft: &mut Draft<'_>, call: &Call, tools: &[Json]) {
    let has_lost_tools = tools.is_empty() && source_has_tool(draft, |_| true);
    if !draft.differs(|s| &s.parallel) && !has_lost_tools {
        return;
    }
    let parallel = call.settings.parallel;
    if parallel.is_some() && tools.is_empty() {
        draft.warn("parallel_tool_calls", "no tools are sent; it was left out");
    }
    draft.set("parallel_tool_calls", parallel.filter(|_| !tools.is_empty()).map(Json::from));
}

/// Returns whether the source request declares a matching tool.
fn source_has_tool(draft: &Draft<'_>, is_meant: impl Fn(Node<'_>) -> bool) -> bool {
    draft.source_value("tools").is_some_and(|tools| tools.tree().root().elements().any(is_meant))
}

fn is_named(tool: Node<'_>, name: &str) -> bool {
    let tool_name = tool.at("/function/name").or_else(|| tool.at("/custom/name"));
    tool_name.is_some_and(|tool_name| tool_name.is(name))
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, tools: &[Json], is_reconsidered: bool) {
    let settings = &call.settings;
    let differs = draft.differs(|s| &s.choice);
    let Some(requested) = &settings.choice else {
        if differs {
            draft.remove("tool_choice");
        }
        return;
    };
    let has_lost_tools = match requested {
        ToolChoice::Tool(name) => {
            !call.tools.iter().any(|tool| tool.name == *name)
                && source_has_tool(draft, |tool| is_named(tool, name))
        }
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Any | ToolChoice::Other(_) => {
            tools.is_empty() && source_has_tool(draft, |_| true)
        }
    };
    if !differs && !is_reconsidered && !has_lost_tools {
        return;
    }
    let fitting = draft.supported_tool_choice().filter(|_| !has_lost_tools);
    let reasons = contract::will_reason(&call.target, settings.reasoning.as_ref());
    let is_refused =
        |choice: &ToolChoice| contract::rejects_tool_choice(&call.target, reasons, choice);
    let value = match &fitting {
        Some(choice) if is_refused(choice) => {
            let message = "this model does not support a forced tool; the choice was set to auto";
            draft.warn("tool_choice", message);
            Some(json::string("auto"))
        }
        // The source already has this value.
        Some(_) if !differs => return,
        Some(ToolChoice::Auto) => Some(json::string("auto")),
        Some(ToolChoice::None) => Some(json::string("none")),
        Some(ToolChoice::Any) => Some(json::string("required")),
        Some(ToolChoice::Tool(name)) => Some(named_choice(name, tools)),
        Some(ToolChoice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}

fn named_choice(name: &str, tools: &[Json]) -> Json {
    let is_custom = tools.iter().any(|tool| {
        let tree = tool.tree();
        tree.root().at("/custom/name").is_some_and(|own| own.is(name))
    });
    let kind = if is_custom { "custom" } else { "function" };
    object! { "type": kind, (kind): { "name": name } }
}

fn put_output(draft: &mut Draft<'_>, call: &Call) {
    if !draft.differs(|s| &s.output) {
        return;
    }
    let format = call.settings.output.as_ref().map(|output| match output {
        OutputFormat::Json => object! { "type": "json_object" },
        // The wire requires a name.
        OutputFormat::Schema { name, schema, strict } => object! {
            "type": "json_schema",
            "json_schema": {
                "name": name.as_deref().unwrap_or("answer"), "schema": schema, "strict": strict,
            },
        },
    });
    draft.set("response_format", format);
}

/// Writes the settings of Ollama's native API: sampling in `options`, the schema in `format`, no
/// tool choice.
fn put_ollama_settings(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let options = [
        ("num_predict", draft.differs(|s| &s.max_tokens), settings.max_tokens.map(Json::from)),
        ("temperature", draft.differs(|s| &s.temperature), settings.temperature.clone()),
        ("top_p", draft.differs(|s| &s.top_p), settings.top_p.clone()),
        ("top_k", draft.differs(|s| &s.top_k), settings.top_k.clone()),
        ("stop", draft.differs(|s| &s.stop), draft::stop_list(settings)),
    ];
    let options = options.into_iter().filter(|(_, differs, _)| *differs);
    let changes: Vec<_> = options.map(|(key, _, value)| (key, value)).collect();
    if !changes.is_empty() {
        let base = draft.current_value("options");
        draft.put("options", draft::edit_object(base.as_ref(), &changes));
    }
    if draft.differs(|s| &s.output) {
        let format = settings.output.as_ref().map(|output| match output {
            OutputFormat::Json => json::string("json"),
            OutputFormat::Schema { schema, .. } => schema.clone(),
        });
        draft.set("format", format);
    }
    if draft.differs(|s| &s.choice) && !matches!(settings.choice, None | Some(ToolChoice::Auto)) {
        draft.warn("tool_choice", "this endpoint has no tool choice; it was left out");
    }
    if draft.differs(|s| &s.parallel) && settings.parallel.is_some() {
        draft.warn("parallel_tool_calls", "this endpoint does not support it; it was left out");
    }
}
