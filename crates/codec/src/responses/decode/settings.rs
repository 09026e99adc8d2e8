//! Decodes the settings, tools and remaining members of a request.

use std::collections::HashMap;

use throughline_core::{
    Body, Call, Direction, Extra, NativePart, NativeReasoning, OutputFormat, Settings, Tool,
    ToolChoice,
};
use throughline_json::{Json, Name, Node};

use crate::cross_wire::{self, ADDITIONAL_TOOLS, CONFIGURATION_UPDATE, NAMESPACE};
use crate::draft;
use crate::responses::WIRE;
use crate::responses::wire;

/// The request members that are decoded into fields of the Call.
const KNOWN: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "max_output_tokens",
    "temperature",
    "top_p",
    "tool_choice",
    "parallel_tool_calls",
    "previous_response_id",
];

/// Objects of which only the listed members are decoded into fields of the Call.
const KNOWN_INSIDE: &[(&str, &[&str])] =
    &[("reasoning", &["effort", "summary", "generate_summary"]), ("text", &["format"])];

/// Collects the members that are not decoded into a field of the Call.
pub(super) fn extras(root: Node<'_>) -> Vec<Extra> {
    let is_extra = |(key, value): &(Node<'_>, Node<'_>)| {
        let inside = KNOWN_INSIDE.iter().find(|(known, _)| key.is(known));
        match inside {
            Some((_, known)) => {
                !value.is_object()
                    || value.members().any(|(key, _)| !known.iter().any(|known| key.is(known)))
            }
            None => !KNOWN.iter().any(|known| key.is(known)),
        }
    };
    let named = |(key, value): (Node<'_>, _)| (key.name().unwrap_or_default(), value);
    draft::extras(root.members().filter(is_extra).map(named), &WIRE)
}

pub(super) fn tool(node: Node<'_>) -> Tool {
    let kind = node.text_of("type");
    let is_custom = kind.as_deref() == Some("custom");
    let is_client_run = is_custom || matches!(kind.as_deref(), Some("function" | NAMESPACE) | None);
    let name = node.name_of("name").or_else(|| node.name_of("server_label"));
    let schema = node.present("parameters").map(Node::json);
    Tool {
        name: name.or_else(|| kind.as_deref().map(Name::from)).unwrap_or_default(),
        description: node.name_of("description"),
        schema: schema.or_else(|| is_custom.then(free_text_schema)),
        hosted: !is_client_run,
        native: None,
    }
}

/// Returns the arguments of a custom tool on wires that accept only objects.
fn free_text_schema() -> Json {
    object! {
        "type": "object", "properties": { "input": { "type": "string" } }, "required": ["input"],
    }
}

/// Adds the tools in namespaces and in `additional_tools` elements of the input, so that targets on
/// other wires receive them. Tools in namespaces get [qualified names](wire::qualified_name). A
/// later definition of a tool replaces an earlier one.
pub(super) fn add_tools(tools: &mut Vec<Tool>, own: Option<Node<'_>>, input: Option<Node<'_>>) {
    for node in own.into_iter().flat_map(Node::elements).filter(|node| is_type(*node, NAMESPACE)) {
        add_namespace(tools, node);
    }
    let elements = input.into_iter().flat_map(Node::elements);
    let elements = elements.filter(|element| is_type(*element, ADDITIONAL_TOOLS));
    let defined = elements.filter_map(|element| element.get("tools")).flat_map(Node::elements);
    for node in defined {
        if is_type(node, NAMESPACE) {
            add_namespace(tools, node);
        } else {
            add_tool(tools, node, None);
        }
    }
}

fn is_type(node: Node<'_>, name: &str) -> bool {
    node.get("type").is_some_and(|kind| kind.is(name))
}

fn add_namespace(tools: &mut Vec<Tool>, namespace: Node<'_>) {
    let name = namespace.name_of("name");
    for node in namespace.get("tools").into_iter().flat_map(Node::elements) {
        add_tool(tools, node, name.as_deref());
    }
}

fn add_tool(tools: &mut Vec<Tool>, node: Node<'_>, namespace: Option<&str>) {
    let native = NativePart::new(WIRE, Direction::Request, node.json());
    let native = NativePart { slot: wire::slot_in(namespace), ..native };
    let added = tool(node);
    let name = wire::qualified_name(namespace, added.name);
    let added = Tool { name, native: Some(native), ..added };
    let is_same = |known: &&mut Tool| known.name == added.name && !cross_wire::is_namespace(known);
    match tools.iter_mut().find(is_same) {
        Some(known) if wire::is_additional(known) => *known = added,
        // The tools of the request itself take precedence.
        Some(_) => {}
        None => tools.push(added),
    }
}

/// Completes the names of called and chosen tools whose namespace the client omitted, if only one
/// tool has that name.
pub(super) fn complete_tool_names(call: &mut Call) {
    if !call.tools.iter().any(wire::is_in_namespace) {
        return;
    }
    let mut names: HashMap<Name, Option<Name>> = HashMap::new();
    for tool in call.tools.iter().filter(|tool| !cross_wire::is_namespace(tool)) {
        let (_, own) = wire::own_names(tool);
        let is_only = !names.contains_key(&own);
        names.insert(own, is_only.then(|| tool.name.clone()));
    }
    let complete = |name: &mut Name| {
        if let Some(Some(full)) = names.get(&*name) {
            name.clone_from(full);
        }
    };
    for item in &mut call.items {
        if let Body::Call(call) = &mut item.body {
            complete(&mut call.name);
        }
    }
    if let Some(ToolChoice::Tool(name)) = &mut call.settings.choice {
        complete(name);
    }
}

pub(super) fn settings(root: Node<'_>) -> Settings {
    let raw = |key: &str| root.present(key).map(Node::json);
    Settings {
        max_tokens: root.get("max_output_tokens").and_then(Node::u64),
        temperature: raw("temperature"),
        top_p: raw("top_p"),
        top_k: None,
        stop: Vec::new(),
        choice: root.present("tool_choice").map(choice),
        parallel: root.get("parallel_tool_calls").and_then(Node::bool),
        reasoning: root.present("reasoning").and_then(reasoning),
        output: root.at("/text/format").and_then(output),
    }
}

/// Applies the configuration updates in the input. The settings of an update hold until a later
/// update replaces them, so the last value of each setting applies to the response.
pub(super) fn apply_updates(settings: &mut Settings, input: Option<Node<'_>>) {
    let is_update =
        |element: &Node<'_>| element.get("type").is_some_and(|kind| kind.is(CONFIGURATION_UPDATE));
    for update in input.into_iter().flat_map(Node::elements).filter(is_update) {
        if let Some(effort) = update.at("/reasoning/effort").and_then(Node::name) {
            let reasoning = settings.reasoning.get_or_insert_default();
            reasoning.enabled = Some(&*effort != "none");
            reasoning.effort = Some(effort);
        }
        if let Some(format) = update.at("/text/format") {
            settings.output = output(format);
        }
    }
}

fn choice(choice: Node<'_>) -> ToolChoice {
    if let Some(word) = choice.text() {
        return match &*word {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Any,
            _ => ToolChoice::Other(choice.json()),
        };
    }
    let is_function = choice.get("type").is_some_and(|kind| kind.is("function"));
    match wire::called_tool(choice).filter(|_| is_function) {
        Some(name) => ToolChoice::Tool(name),
        None => ToolChoice::Other(choice.json()),
    }
}

fn reasoning(reasoning: Node<'_>) -> Option<NativeReasoning> {
    let effort = reasoning.name_of("effort");
    let summary = reasoning.present("summary").or_else(|| reasoning.present("generate_summary"));
    if effort.is_none() && summary.is_none() {
        return None;
    }
    Some(NativeReasoning {
        enabled: effort.as_deref().map(|effort| effort != "none"),
        effort,
        budget_tokens: None,
        include_thoughts: summary.map(|_| true),
        provider_extras: Vec::new(),
    })
}

fn output(format: Node<'_>) -> Option<OutputFormat> {
    match &*format.text_of("type")? {
        "json_object" => Some(OutputFormat::Json),
        "json_schema" => Some(OutputFormat::Schema {
            name: format.name_of("name"),
            schema: format.get("schema")?.json(),
            strict: format.get("strict").and_then(Node::bool),
        }),
        _ => None,
    }
}
