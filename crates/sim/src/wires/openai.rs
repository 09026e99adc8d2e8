//! Shared by the endpoints in OpenAI's style: errors, model lists, tool settings and message texts.

use serde_json::{Value, json};
use throughline_core::{Profile, Provider};
use throughline_json::{Json, Node};

use crate::turn::{OfferedTool, Refusal, ToolChoice};

/// Constant creation time of all objects, because a simulator has no clock.
pub(crate) const CREATED: u64 = 1_763_164_800;

pub(crate) fn json(value: &Value) -> Json {
    Json::parse(value.to_string()).unwrap_or_else(|_| Json::null())
}

/// Sets a member of an object.
pub(crate) fn set_member(object: &mut Value, key: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
}

/// Converts a node of a request to a JSON value.
pub(crate) fn value(node: Node<'_>) -> Value {
    serde_json::from_slice(node.raw()).unwrap_or_default()
}

/// Writes the body of an error in the provider's format.
pub(crate) fn refusal(row: &Provider, refusal: &Refusal) -> Json {
    let usual = match refusal.status {
        401 => "authentication_error",
        404 | 405 => "invalid_request_error",
        429 => "rate_limit_error",
        status if status >= 500 => "server_error",
        _ => "invalid_request_error",
    };
    let kind = if refusal.kind.is_empty() { usual } else { refusal.kind.as_str() };
    let code = refusal.code.clone().or_else(|| {
        // DeepSeek repeats the type as the code.
        row.name.starts_with("deepseek").then(|| kind.to_owned())
    });
    json(&json!({"error": {
        "message": refusal.message,
        "type": kind,
        "param": refusal.param,
        "code": code,
    }}))
}

/// Returns the list of models or the named model.
pub(crate) fn models(model: Option<&str>) -> Option<Json> {
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
        Some(model) => {
            let found = MODELS.iter().find(|(id, _)| *id == model)?;
            Some(json(&entry(found)))
        }
        None => {
            let data: Vec<Value> = MODELS.iter().map(entry).collect();
            Some(json(&json!({"object": "list", "data": data})))
        }
    }
}

/// Returns the text of a message's content: a string, or the texts of its parts.
pub(crate) fn text(content: Option<Node<'_>>) -> String {
    let Some(content) = content else { return String::new() };
    if let Some(text) = content.text() {
        return text.into_owned();
    }
    let texts = content.elements().filter_map(|part| {
        let said = part.text_of("text").or_else(|| part.text_of("refusal"));
        said.or_else(|| part.text())
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the client's tools. `nested` states whether a tool's members are in a nested object.
pub(crate) fn tools(root: Node<'_>, nested: bool) -> Vec<OfferedTool> {
    let tools = root.get("tools").into_iter().flat_map(Node::elements);
    let offered = tools.filter_map(|tool| {
        let kind = tool.text_of("type")?;
        let custom = match &*kind {
            "function" => false,
            "custom" => true,
            _ => return None,
        };
        let own = if nested { tool.get(&kind)? } else { tool };
        let schema = own.present("parameters").map(value);
        let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        Some(OfferedTool { name: own.text_of("name")?.into_owned(), schema, custom })
    });
    offered.collect()
}

/// Returns the tool choice of a request.
pub(crate) fn choice(root: Node<'_>) -> ToolChoice {
    let Some(choice) = root.present("tool_choice") else { return ToolChoice::Auto };
    match choice.text().as_deref() {
        Some("none") => return ToolChoice::Never,
        Some("required" | "any") => return ToolChoice::Any,
        Some(_) => return ToolChoice::Auto,
        None => {}
    }
    let named = ["/name", "/function/name", "/custom/name"];
    let name = named.iter().find_map(|at| choice.at(at)?.text());
    let is_required = ["/mode", "/allowed_tools/mode"]
        .iter()
        .any(|at| choice.at(at).is_some_and(|m| m.is("required")));
    match (name, choice.text_of("type").as_deref()) {
        (Some(name), Some("function" | "custom")) => ToolChoice::Tool(name.into_owned()),
        (_, Some("allowed_tools")) if is_required => ToolChoice::Any,
        (_, _) => ToolChoice::Auto,
    }
}

/// Returns the first sampling parameter that differs from its default.
pub(crate) fn sampling(root: Node<'_>) -> Option<&'static str> {
    ["temperature", "top_p"].into_iter().find(|key| {
        let number = root.present(key).and_then(Node::number);
        number
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(|value| (value - 1.0).abs() > 1e-9)
    })
}

/// Returns whether the model thinks at an effort.
pub(crate) fn thinks(profile: &Profile, effort: Option<&str>) -> bool {
    let default = profile.notes.get("default-effort").map(String::as_str);
    match effort.or(default) {
        Some("none") => profile.always_thinks,
        Some(_) => profile.can_think(),
        None => profile.thinks_by_default || profile.always_thinks,
    }
}

/// Joins quoted names as OpenAI does: `'low', 'medium', and 'high'`.
pub(crate) fn list(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [one, two] => format!("{one} and {two}"),
        [many @ .., last] => format!("{}, and {last}", many.join(", ")),
    }
}

/// Builds the error for an effort that the model does not support.
pub(crate) fn unsupported_effort(
    profile: &Profile,
    model: &str,
    effort: &str,
    param: &str,
) -> Refusal {
    if profile.efforts.is_empty() {
        let message = format!("Unsupported parameter: '{param}' is not supported with this model.");
        return Refusal::invalid(message).param(param).code("unsupported_parameter");
    }
    let message = format!(
        "Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are: {}.",
        list(&profile.efforts)
    );
    Refusal::invalid(message).param(param).code("unsupported_value")
}

/// Returns the identity of a call: its name and its arguments in canonical form.
pub(crate) fn call_identity(name: &str, arguments: &str) -> Vec<u8> {
    let said = match Json::parse(arguments.to_owned()) {
        Ok(json) => json.canonical().into_bytes(),
        Err(_) => arguments.as_bytes().to_vec(),
    };
    [name.as_bytes(), b"\n", &said].concat()
}
