//! Decodes the settings of a request.

use throughline_core::{NativeReasoning, OutputFormat, Settings, ToolChoice};
use throughline_json::{Name, Node};

/// Returns whether this request member is decoded into a field of the Call.
pub(super) fn is_represented(key: Node<'_>, value: Node<'_>, is_native: bool) -> bool {
    let key = key.text().unwrap_or_default();
    match &*key {
        "model"
        | "messages"
        | "tools"
        | "stream"
        | "max_tokens"
        | "max_completion_tokens"
        | "temperature"
        | "top_p"
        | "top_k"
        | "stop"
        | "tool_choice"
        | "parallel_tool_calls"
        | "reasoning_effort"
        | "reasoning"
        | "thinking"
        | "enable_thinking"
        | "thinking_budget" => {
            !is_native || matches!(&*key, "model" | "messages" | "tools" | "stream")
        }
        "response_format" => !is_native && (output(value).is_some() || is_text(value)),
        "think" | "format" => is_native,
        "options" => is_native && value.members().all(|(key, _)| is_known_option(key)),
        _ => false,
    }
}

fn is_known_option(key: Node<'_>) -> bool {
    ["temperature", "top_p", "top_k", "stop", "num_predict"].iter().any(|known| key.is(known))
}

fn is_text(format: Node<'_>) -> bool {
    format.get("type").is_some_and(|kind| kind.is("text"))
}

pub(super) fn decode_settings(root: Node<'_>, is_native: bool) -> Settings {
    // Ollama's native API nests the sampling settings in `options`.
    let sampling = if is_native { root.get("options").unwrap_or(root) } else { root };
    let raw = |key: &str| sampling.present(key).map(Node::json);
    // `stop` is a single sequence or a list of sequences.
    let stop = sampling.present("stop");
    let stops = stop.into_iter().chain(stop.into_iter().flat_map(Node::elements));
    let limits: &[&str] =
        if is_native { &["num_predict"] } else { &["max_completion_tokens", "max_tokens"] };
    Settings {
        max_tokens: limits.iter().find_map(|key| sampling.get(key).and_then(Node::u64)),
        temperature: raw("temperature"),
        top_p: raw("top_p"),
        top_k: raw("top_k"),
        stop: stops.filter_map(Node::name).collect(),
        choice: root.present("tool_choice").map(choice),
        parallel: root.get("parallel_tool_calls").and_then(Node::bool),
        reasoning: reasoning(root),
        output: if is_native {
            root.present("format").map(native_format)
        } else {
            root.present("response_format").and_then(output)
        },
    }
}

pub(in crate::chat) fn choice(choice: Node<'_>) -> ToolChoice {
    let name = choice.at("/function/name").or_else(|| choice.at("/custom/name"));
    match (choice.text().as_deref(), name.and_then(Node::name)) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("required" | "any"), _) => ToolChoice::Any,
        (None, Some(name)) => ToolChoice::Tool(name),
        (Some(_) | None, _) => ToolChoice::Other(choice.json()),
    }
}

fn output(format: Node<'_>) -> Option<OutputFormat> {
    match &*format.text_of("type")? {
        "json_object" => Some(OutputFormat::Json),
        "json_schema" => {
            let schema = format.get("json_schema")?;
            Some(OutputFormat::Schema {
                name: schema.name_of("name"),
                schema: schema.get("schema")?.json(),
                strict: schema.get("strict").and_then(Node::bool),
            })
        }
        _ => None,
    }
}

fn native_format(format: Node<'_>) -> OutputFormat {
    if format.is_object() {
        return OutputFormat::Schema { name: None, schema: format.json(), strict: None };
    }
    OutputFormat::Json
}

/// Reads the reasoning settings of any dialect.
pub(in crate::chat) fn reasoning(root: Node<'_>) -> Option<NativeReasoning> {
    let object = root.present("reasoning").filter(|reasoning| reasoning.is_object());
    let within = |key: &str| object.and_then(|object| object.present(key));
    let toggle = root.at("/thinking/type");
    let think = root.present("think");
    let flag = root.get("enable_thinking").and_then(Node::bool);
    let effort = root.get("reasoning_effort").and_then(Node::name);
    let effort = effort.or_else(|| within("effort").and_then(Node::name));
    let effort: Option<Name> = effort.or_else(|| think.and_then(Node::name));
    let budget = within("max_tokens")
        .or_else(|| root.at("/thinking/budget_tokens"))
        .or_else(|| root.get("thinking_budget"))
        .and_then(Node::u64);
    let enabled = within("enabled").and_then(Node::bool);
    let enabled = enabled.or(flag).or_else(|| think.and_then(Node::bool));
    let reasoning = NativeReasoning {
        enabled: enabled.or_else(|| Some(!toggle?.is("disabled"))),
        effort,
        budget_tokens: budget,
        include_thoughts: within("exclude").and_then(Node::bool).map(|excluded| !excluded),
        provider_extras: Vec::new(),
    };
    (reasoning != NativeReasoning::default()).then_some(reasoning)
}
