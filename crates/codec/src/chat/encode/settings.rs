//! The settings of a Call, in this wire's words and within this endpoint's limits.

use std::borrow::Cow;

use throughline_core::{Call, Channel, Choice, Json, Name, Node, Output, Switch, json};

use crate::chat::encode::reasoning;
use crate::chat::{contract, wire};
use crate::draft::{self, Draft};

/// Writes every setting that is not already in the source as it should be.
pub(super) fn put(draft: &mut Draft<'_>, call: &Call, tools: &[Json]) {
    let is_asked_anew = draft.differs(|s| &s.reasoning);
    // Another model may not take what the last one did, and much hangs on whether it reasons.
    let is_reconsidered = is_asked_anew || draft.is_retargeted();
    if is_asked_anew || draft.is_retargeted() && has_own_switch(draft, call) {
        match &call.settings.reasoning {
            Some(reasoning) => reasoning::put(draft, reasoning, call),
            None => reasoning::remove(draft),
        }
    }
    if wire::speaks_native(&call.target) {
        put_native(draft, call);
    } else {
        put_limit(draft, call);
        put_sampling(draft, call, is_reconsidered);
        put_parallel(draft, call, tools);
        put_choice(draft, call, tools, is_reconsidered);
        put_output(draft, call);
    }
    put_stream(draft, call);
}

/// Whether the source asks for reasoning in this endpoint's own words; what it says in others' is left to it.
fn has_own_switch(draft: &Draft<'_>, call: &Call) -> bool {
    let keys: &[&str] = match call.target.provider.dialect.switch {
        Switch::Effort => &["reasoning_effort"],
        Switch::Object => &["reasoning"],
        Switch::Toggle => &["thinking", "reasoning_effort"],
        Switch::Flag => &["enable_thinking", "thinking_budget"],
        Switch::Think => &["think"],
        Switch::None => &[],
    };
    keys.iter().any(|key| draft.was(key).is_some())
}

fn put_stream(draft: &mut Draft<'_>, call: &Call) {
    // Ollama's native API streams unless told not to; all others have to be asked.
    let default = wire::speaks_native(&call.target);
    let was = draft.was("stream").and_then(|was| was.tree().root().bool()).unwrap_or(default);
    if was != call.stream {
        draft.put("stream", call.stream.into());
    }
    let is_told = call.extras.iter().any(|extra| &*extra.key == "stream_options");
    let is_fresh = draft.source().is_none() && call.stream && !is_told;
    let counts_unasked =
        matches!(call.target.provider.dialect.channel, Channel::Thinking | Channel::Chunks);
    if is_fresh && !counts_unasked {
        draft.put(
            "stream_options",
            json::object(|o| {
                o.bool("include_usage", true);
            }),
        );
    }
}

fn put_limit(draft: &mut Draft<'_>, call: &Call) {
    let (old, new) = ("max_tokens", "max_completion_tokens");
    let has_old = draft.was(old).is_some();
    let is_misnamed =
        has_old && draft.is_retargeted() && contract::wants_completion_tokens(&call.target);
    if !draft.differs(|s| &s.max_tokens) && !is_misnamed {
        return;
    }
    if is_misnamed {
        draft.remove(old);
    }
    let is_new = draft.was(new).is_some()
        || is_misnamed
        || !has_old && contract::wants_completion_tokens(&call.target);
    draft.set(if is_new { new } else { old }, call.settings.max_tokens.map(Json::from));
}

fn put_sampling(draft: &mut Draft<'_>, call: &Call, is_reconsidered: bool) {
    let settings = &call.settings;
    let reasons = contract::reasons(&call.target, settings.reasoning.as_ref());
    let all = [
        ("temperature", &settings.temperature, draft.differs(|s| &s.temperature)),
        ("top_p", &settings.top_p, draft.differs(|s| &s.top_p)),
        ("top_k", &settings.top_k, draft.differs(|s| &s.top_k)),
    ];
    for (key, value, differs) in all {
        if !differs && !is_reconsidered {
            continue;
        }
        let refusal = if value.is_none() {
            None
        } else if contract::refuses_sampling(&call.target, reasons) {
            Some("this model sets it itself; it was left out")
        } else if key == "top_k" && contract::is_strict(&call.target) {
            Some("this endpoint does not know it; it was left out")
        } else {
            None
        };
        match refusal {
            Some(message) => {
                draft.warn(key, message);
                draft.remove(key);
            }
            None if differs => draft.set(key, value.clone()),
            None => {}
        }
    }
    if draft.differs(|s| &s.stop) {
        draft.set("stop", stop_list(&settings.stop));
    }
}

fn stop_list(stop: &[Name]) -> Option<Json> {
    let list = || {
        json::array(|a| {
            for stop in stop {
                a.string(stop);
            }
        })
    };
    (!stop.is_empty()).then(list)
}

fn put_parallel(draft: &mut Draft<'_>, call: &Call, tools: &[Json]) {
    let has_lost_tools = tools.is_empty() && had_tool(draft, |_| true);
    if !draft.differs(|s| &s.parallel) && !has_lost_tools {
        return;
    }
    let parallel = call.settings.parallel;
    if parallel.is_some() && tools.is_empty() {
        draft.warn("parallel_tool_calls", "no tools are sent; it was left out");
    }
    draft.set("parallel_tool_calls", parallel.filter(|_| !tools.is_empty()).map(Json::from));
}

/// Whether the source declares such a tool.
fn had_tool(draft: &Draft<'_>, is_meant: impl Fn(Node<'_>) -> bool) -> bool {
    draft.was("tools").is_some_and(|tools| tools.tree().root().elements().any(is_meant))
}

fn is_named(tool: Node<'_>, name: &str) -> bool {
    let own = tool.at("/function/name").or_else(|| tool.at("/custom/name"));
    own.is_some_and(|own| own.is(name))
}

fn put_choice(draft: &mut Draft<'_>, call: &Call, tools: &[Json], is_reconsidered: bool) {
    let settings = &call.settings;
    let differs = draft.differs(|s| &s.choice);
    let Some(wanted) = &settings.choice else {
        if differs {
            draft.remove("tool_choice");
        }
        return;
    };
    let has_lost_tools = match wanted {
        Choice::Tool(name) => {
            !call.tools.iter().any(|tool| tool.name == *name)
                && had_tool(draft, |tool| is_named(tool, name))
        }
        Choice::Auto | Choice::None | Choice::Any | Choice::Other(_) => {
            tools.is_empty() && had_tool(draft, |_| true)
        }
    };
    if !differs && !is_reconsidered && !has_lost_tools {
        return;
    }
    let fitting = draft.fitting_choice().filter(|_| !has_lost_tools);
    let reasons = contract::reasons(&call.target, settings.reasoning.as_ref());
    let is_refused = |choice: &Choice| contract::refuses_choice(&call.target, reasons, choice);
    let value = match &fitting {
        Some(choice) if is_refused(choice) => {
            draft.warn(
                "tool_choice",
                "this model cannot be told which tool to call; it was left free to choose",
            );
            Some(json::string("auto"))
        }
        // It is there already.
        Some(_) if !differs => return,
        Some(Choice::Auto) => Some(json::string("auto")),
        Some(Choice::None) => Some(json::string("none")),
        Some(Choice::Any) => Some(json::string("required")),
        Some(Choice::Tool(name)) => Some(chosen(name, tools)),
        Some(Choice::Other(_)) => {
            draft.warn("tool_choice", "this wire has no such choice; it was left out");
            None
        }
        None => None,
    };
    draft.set("tool_choice", value);
}

fn chosen(name: &str, tools: &[Json]) -> Json {
    let is_custom = tools.iter().any(|tool| {
        let tree = tool.tree();
        tree.root().at("/custom/name").is_some_and(|own| own.is(name))
    });
    let kind = if is_custom { "custom" } else { "function" };
    json::object(|o| {
        o.string("type", kind).object(kind, |o| {
            o.string("name", name);
        });
    })
}

fn put_output(draft: &mut Draft<'_>, call: &Call) {
    if !draft.differs(|s| &s.output) {
        return;
    }
    let format = call.settings.output.as_ref().map(|output| match output {
        Output::Json => json::object(|o| {
            o.string("type", "json_object");
        }),
        Output::Schema { name, schema, strict } => json::object(|o| {
            o.string("type", "json_schema").object("json_schema", |o| {
                // The wire demands a name.
                o.string("name", name.as_deref().unwrap_or("answer")).raw("schema", schema);
                if let Some(strict) = strict {
                    o.bool("strict", *strict);
                }
            });
        }),
    });
    draft.set("response_format", format);
}

/// Ollama's native API: sampling in `options`, the schema in `format`, no choice of tools.
fn put_native(draft: &mut Draft<'_>, call: &Call) {
    let settings = &call.settings;
    let options = [
        ("num_predict", draft.differs(|s| &s.max_tokens), settings.max_tokens.map(Json::from)),
        ("temperature", draft.differs(|s| &s.temperature), settings.temperature.clone()),
        ("top_p", draft.differs(|s| &s.top_p), settings.top_p.clone()),
        ("top_k", draft.differs(|s| &s.top_k), settings.top_k.clone()),
        ("stop", draft.differs(|s| &s.stop), stop_list(&settings.stop)),
    ];
    let changes: Vec<_> = options
        .into_iter()
        .filter_map(|(key, differs, value)| differs.then_some((Cow::Borrowed(key), value)))
        .collect();
    if !changes.is_empty() {
        let base = draft.latest("options");
        draft.put("options", draft::edited(base.as_ref(), &changes));
    }
    if draft.differs(|s| &s.output) {
        let format = settings.output.as_ref().map(|output| match output {
            Output::Json => json::string("json"),
            Output::Schema { schema, .. } => schema.clone(),
        });
        draft.set("format", format);
    }
    if draft.differs(|s| &s.choice) && !matches!(settings.choice, None | Some(Choice::Auto)) {
        draft.warn("tool_choice", "this endpoint has no choice of tools; it was left out");
    }
    if draft.differs(|s| &s.parallel) && settings.parallel.is_some() {
        draft.warn("parallel_tool_calls", "this endpoint does not know it; it was left out");
    }
}
