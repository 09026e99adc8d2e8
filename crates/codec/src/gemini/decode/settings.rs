//! Decodes the settings of a request.

use throughline_core::{NativeReasoning, OutputFormat, Settings, ToolChoice};
use throughline_json::{Name, Node};

use crate::gemini::wire::{self, get, is_spelled, present};

/// The members of `generationConfig` that are decoded into `Settings`.
const CONFIG: &[&str] = &[
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "thinkingConfig",
];

const THINKING: &[&str] = &["includeThoughts", "thinkingBudget", "thinkingLevel"];

const JSON_TYPE: &str = "application/json";

/// Returns the values in a request member that are not decoded into `Settings`. For
/// `generationConfig` and `toolConfig`, returns only their unknown members, keyed by path. Any
/// other member is returned whole.
pub(super) fn unrepresented_members(key: Name, value: Node<'_>) -> Vec<(Name, Node<'_>)> {
    let known = if is_spelled(&key, "generationConfig") {
        CONFIG
    } else if is_spelled(&key, "toolConfig") {
        &["functionCallingConfig"]
    } else {
        return vec![(key, value)];
    };
    let mut unsaid = Vec::new();
    for (name, value) in value.members() {
        let name = name.text().unwrap_or_default();
        if is_spelled(&name, "thinkingConfig") && known.len() > 1 {
            let others = value.members().filter_map(|(inner, value)| Some((inner.text()?, value)));
            let others = others.filter(|(inner, _)| !is_known(inner, THINKING));
            unsaid
                .extend(others.map(|(inner, v)| (Name::from(format!("{key}.{name}.{inner}")), v)));
            continue;
        }
        let is_other_type = is_spelled(&name, "responseMimeType")
            && !matches!(value.text().as_deref(), Some(JSON_TYPE | "text/plain") | None);
        if is_other_type || !is_known(&name, known) {
            unsaid.push((Name::from(format!("{key}.{name}")), value));
        }
    }
    unsaid
}

fn is_known(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| is_spelled(key, name))
}

pub(super) fn decode_settings(root: Node<'_>) -> Settings {
    let calling = get(root, "toolConfig").and_then(|tools| get(tools, "functionCallingConfig"));
    let choice = calling.and_then(choice);
    let Some(config) = present(root, "generationConfig") else {
        return Settings { choice, ..Settings::default() };
    };
    let raw = |name: &str| present(config, name).map(Node::json);
    let stop = get(config, "stopSequences").into_iter().flat_map(Node::elements);
    Settings {
        max_tokens: get(config, "maxOutputTokens").and_then(Node::u64),
        temperature: raw("temperature"),
        top_p: raw("topP"),
        top_k: raw("topK"),
        stop: stop.filter_map(Node::name).collect(),
        choice,
        parallel: None,
        reasoning: present(config, "thinkingConfig").map(reasoning),
        output: output(config),
    }
}

fn choice(calling: Node<'_>) -> Option<ToolChoice> {
    let mode = calling.text_of("mode")?.to_ascii_uppercase();
    let allowed = get(calling, "allowedFunctionNames");
    let allowed: Vec<_> = allowed.into_iter().flat_map(Node::elements).collect();
    Some(match (&*mode, allowed.as_slice()) {
        ("AUTO", []) => ToolChoice::Auto,
        ("NONE", _) => ToolChoice::None,
        ("ANY", []) => ToolChoice::Any,
        ("ANY", [only]) => ToolChoice::Tool(only.name().unwrap_or_default()),
        _ => ToolChoice::Other(calling.json()),
    })
}

fn reasoning(thinking: Node<'_>) -> NativeReasoning {
    let budget = get(thinking, "thinkingBudget");
    let level = wire::name_of(thinking, "thinkingLevel");
    let enabled = match budget.and_then(Node::number) {
        Some("0") => Some(false),
        Some(_) => Some(true),
        None => level.as_ref().map(|_| true),
    };
    NativeReasoning {
        enabled,
        effort: level.map(|level| level.to_ascii_lowercase().into()),
        // `-1` lets the model choose the budget.
        budget_tokens: budget.and_then(Node::u64).filter(|budget| *budget > 0),
        include_thoughts: get(thinking, "includeThoughts").and_then(Node::bool),
        provider_extras: Vec::new(),
    }
}

fn output(config: Node<'_>) -> Option<OutputFormat> {
    let is_json = wire::name_of(config, "responseMimeType").is_some_and(|mime| &*mime == JSON_TYPE);
    let schema = present(config, "responseJsonSchema").map(Node::json);
    let schema =
        schema.or_else(|| present(config, "responseSchema").map(crate::gemini::tools::json_schema));
    match schema {
        Some(schema) => Some(OutputFormat::Schema { name: None, schema, strict: None }),
        None => is_json.then_some(OutputFormat::Json),
    }
}
