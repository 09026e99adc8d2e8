//! Code shared by all OpenAI-style wires: errors, model lists, tool settings and message texts.

use serde_json::{Value, json};
use throughline_core::{Profile, Provider};
use throughline_json::{Json, Node};

use crate::turn::{OfferedTool, Operation, Refusal, SimRequest, ToolChoice, Turn};
use crate::wires::{empty_schema, is_true, list, member_is, string, value};

/// Creation time of all objects; constant, because the simulator has no clock.
pub(crate) const CREATED: u64 = 1_763_164_800;

/// Writes an error body in the provider's format.
pub(crate) fn refuse(row: &Provider, refusal: &Refusal, _: &str) -> Value {
    let kind = refusal.kind_or(match refusal.status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    });
    // DeepSeek also returns the type as the code.
    let repeated = row.name.starts_with("deepseek").then_some(kind);
    let code = refusal.code.as_deref().or(repeated);
    json!({"error": {
        "message": refusal.message,
        "type": kind,
        "param": refusal.param,
        "code": code,
    }})
}

/// Returns the list of models, or the named model; `None` if the named model is unknown.
pub(crate) fn models(model: Option<&str>) -> Option<Value> {
    const MODELS: &[(&str, &str)] = &[
        ("gpt-4.1", "system"),
        ("gpt-5", "system"),
        ("gpt-5-mini", "system"),
        ("gpt-5.1", "system"),
        ("gpt-5.2", "system"),
        ("gpt-5.5", "system"),
        ("gpt-5.6", "system"),
        ("o3", "system"),
        ("o4-mini", "system"),
        ("grok-4.3", "xai"),
        ("deepseek-v4-flash", "deepseek"),
        ("deepseek-reasoner", "deepseek"),
        ("kimi-k2-thinking", "moonshot"),
        ("mistral-large-latest", "mistralai"),
        ("magistral-medium-latest", "mistralai"),
        ("glm-4.7", "z-ai"),
        ("anthropic/claude-sonnet-4.5", "openrouter"),
        ("google/gemini-3-pro-preview", "openrouter"),
        ("openai/gpt-5.6", "openrouter"),
    ];
    let entry = |(id, owner): &(&str, &str)| json!({"id": id, "object": "model", "created": CREATED, "owned_by": owner});
    match model {
        Some(model) => MODELS.iter().find(|(id, _)| *id == model).map(entry),
        None => {
            let data: Vec<Value> = MODELS.iter().map(entry).collect();
            Some(json!({"object": "list", "data": data}))
        }
    }
}

pub(crate) fn missing(param: &str) -> Refusal {
    let message = format!("Missing required parameter: '{param}'.");
    Refusal::invalid(message).param(param).code("missing_required_parameter")
}

/// Returns the text of a message's content, which is a string or a list of parts.
pub(crate) fn text(content: Option<Node<'_>>) -> String {
    let Some(content) = content else { return String::new() };
    if let Some(text) = content.text() {
        return text.into_owned();
    }
    let texts = content.elements().filter_map(|part| {
        part.text_of("text").or_else(|| part.text_of("refusal")).or_else(|| part.text())
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Locations of the settings that differ between the OpenAI APIs.
pub(crate) struct SettingPaths {
    /// Whether a tool's fields are in a nested object, as in Chat Completions.
    pub(crate) nests_tools: bool,
    /// JSON pointers to the format type and the schema of a structured reply.
    pub(crate) format_type: &'static str,
    pub(crate) format_schema: &'static str,
}

/// Reads the settings for tools, streaming and the reply format.
pub(crate) fn read_settings(turn: &mut Turn, request: &SimRequest, paths: &SettingPaths) {
    let root = request.body.root();
    turn.choice = choice(root);
    turn.stream = request.verb == Operation::Stream || is_true(root, "stream");
    turn.tools = list(root, "tools").flat_map(|tool| parse_tools(tool, paths)).collect();
    turn.parallel = root.present("parallel_tool_calls").and_then(Node::bool);
    turn.schema = schema(root, paths);
}

/// Reads the format of the reply; see [`Turn::schema`].
pub(crate) fn schema(root: Node<'_>, paths: &SettingPaths) -> Option<Value> {
    match root.at(paths.format_type).and_then(Node::text).as_deref() {
        Some("json_schema") => root.at(paths.format_schema).map(value),
        Some("json_object") => Some(Value::Bool(true)),
        Some(_) | None => None,
    }
}

/// Reads a tool, or all tools of a namespace.
pub(crate) fn parse_tools(tool: Node<'_>, paths: &SettingPaths) -> Vec<OfferedTool> {
    if !member_is(tool, "type", "namespace") {
        return parse_tool(tool, paths.nests_tools).into_iter().collect();
    }
    // Calls of the default namespace need not name it.
    let namespace = string(tool, "name").filter(|name| name != "functions");
    let tools = list(tool, "tools").filter_map(|tool| parse_tool(tool, paths.nests_tools));
    tools.map(|tool| OfferedTool { namespace: namespace.clone(), ..tool }).collect()
}

fn parse_tool(tool: Node<'_>, is_nested: bool) -> Option<OfferedTool> {
    let kind = tool.text_of("type")?;
    let custom = match &*kind {
        "function" => false,
        "custom" => true,
        _ => return None,
    };
    let definition = if is_nested { tool.get(&kind)? } else { tool };
    let schema = definition.present("parameters").map_or_else(empty_schema, value);
    Some(OfferedTool { custom, ..OfferedTool::new(string(definition, "name")?, schema) })
}

/// Reads `tool_choice`; defaults to `Auto`.
fn choice(root: Node<'_>) -> ToolChoice {
    let Some(choice) = root.present("tool_choice") else { return ToolChoice::Auto };
    match choice.text().as_deref() {
        Some("none") => return ToolChoice::Never,
        Some("required" | "any") => return ToolChoice::Any,
        Some(_) => return ToolChoice::Auto,
        None => {}
    }
    let named = ["/name", "/function/name", "/custom/name"];
    let name = named.iter().find_map(|at| choice.at(at)?.text());
    let modes = ["/mode", "/allowed_tools/mode"];
    let is_required = modes.iter().any(|at| choice.at(at).is_some_and(|mode| mode.is("required")));
    match (name, choice.text_of("type").as_deref()) {
        (Some(name), Some("function" | "custom")) => ToolChoice::Tool(name.into_owned()),
        (_, Some("allowed_tools")) if is_required => ToolChoice::Any,
        (_, _) => ToolChoice::Auto,
    }
}

/// Returns the first sampling parameter that the request sets to a non-default value, if the model
/// accepts only the defaults.
pub(crate) fn fixed_sampling(turn: &Turn, root: Node<'_>) -> Option<&'static str> {
    let profile = &turn.target.profile;
    let is_fixed = profile.fixed_sampling || (profile.unsampled_while_reasoning && turn.thinks);
    ["temperature", "top_p"].into_iter().filter(|_| is_fixed).find(|key| {
        let number = root.present(key).and_then(Node::number);
        let number = number.and_then(|text| text.parse::<f64>().ok());
        number.is_some_and(|value| (value - 1.0).abs() > 1e-9)
    })
}

/// Returns whether the model thinks at this effort; `None` is the model's default effort.
pub(crate) fn thinks(profile: &Profile, effort: Option<&str>) -> bool {
    let default = profile.notes.get("default-effort").map(String::as_str);
    match effort.or(default) {
        Some("none") => profile.always_thinks,
        Some(_) => profile.can_think(),
        None => profile.thinks_by_default || profile.always_thinks,
    }
}

/// Joins quoted names in OpenAI's style: `'low', 'medium', and 'high'`.
fn join_quoted(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [one, two] => format!("{one} and {two}"),
        [many @ .., last] => format!("{}, and {last}", many.join(", ")),
    }
}

/// Rejects an effort that the model does not support.
pub(crate) fn check_effort(
    profile: &Profile,
    model: &str,
    effort: Option<&str>,
    param: &str,
) -> Result<(), Refusal> {
    let is_known = |effort: &&str| profile.efforts.iter().any(|known| known == effort);
    let Some(effort) = effort.filter(|effort| !is_known(effort)) else { return Ok(()) };
    let (message, code) = if profile.efforts.is_empty() {
        let message = format!("Unsupported parameter: '{param}' is not supported with this model.");
        (message, "unsupported_parameter")
    } else {
        let message = format!(
            "Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are: {}.",
            join_quoted(&profile.efforts)
        );
        (message, "unsupported_value")
    };
    Err(Refusal::invalid(message).param(param).code(code))
}

/// Returns the name and canonical arguments of a call. Equal calls have equal results.
pub(crate) fn call_identity(name: &str, arguments: &str) -> Vec<u8> {
    let parsed = Json::parse(arguments.to_owned());
    let arguments = parsed.map_or_else(|_| arguments.to_owned(), |json| json.canonical());
    [name.as_bytes(), b"\n", arguments.as_bytes()].concat()
}
