//! Decodes and encodes tools: function declarations, which share one array element, and
//! provider-run tools.

use std::sync::Arc;

use throughline_core::{Call, Direction, Envelope, NativePart, Tool};
use throughline_json::{self as json, Json, Label, Name, Node};

use crate::cross_wire;
use crate::draft::Draft;
use crate::gemini::WIRE;
use crate::gemini::wire::{get, is_spelled};

const DECLARATIONS: &str = "functionDeclarations";

pub(super) fn declared_tools(element: Node<'_>) -> Vec<Tool> {
    let mut found: Vec<(Name, Node<'_>, Label)> = Vec::new();
    for (key, value) in element.members() {
        let name = key.name().unwrap_or_default();
        if is_spelled(&name, DECLARATIONS) && value.is_array() {
            let declared = value.elements().map(|tool| {
                (tool.name_of("name").unwrap_or_default(), tool, Label::Borrowed(DECLARATIONS))
            });
            found.extend(declared);
        } else {
            let slot = Label::Owned(name.to_string());
            found.push((name, value, slot));
        }
    }
    if found.is_empty() {
        // Keep an empty element, so that it can be sent back unchanged.
        found.push((Name::from(""), element, Label::Borrowed("")));
    }
    let envelope = Arc::new(Envelope { json: element.json(), parts: found.len() });
    let tool = |(name, node, slot): (Name, Node<'_>, Label)| {
        let hosted = slot != DECLARATIONS;
        let schema = get(node, "parametersJsonSchema").map(Node::json);
        let schema = schema.or_else(|| get(node, "parameters").map(json_schema));
        Tool {
            name,
            description: node.name_of("description").filter(|_| !hosted),
            schema: schema.filter(|_| !hosted),
            hosted,
            native: Some(NativePart {
                slot,
                envelope: Some(Arc::clone(&envelope)),
                ..NativePart::new(WIRE, Direction::Request, node.json())
            }),
        }
    };
    found.into_iter().map(tool).collect()
}

pub(super) fn encode_tools(draft: &mut Draft<'_>, call: &Call) -> Vec<Json> {
    let mut elements = Vec::new();
    let mut declared = Vec::new();
    let mut rest = call.tools.as_slice();
    while let Some(first) = rest.first() {
        if let Some((envelope, others)) = intact_element(rest) {
            elements.push(envelope.json.clone());
            rest = others;
            continue;
        }
        rest = rest.get(1..).unwrap_or_default();
        match first.native_on(&WIRE) {
            Some(native) if native.slot == DECLARATIONS => declared.push(native.json.clone()),
            Some(native) if native.slot.is_empty() => elements.push(native.json.clone()),
            Some(native) => elements.push(object! { (&native.slot): native.json }),
            None => declared.extend(cross_wire::tool(draft, first, |draft| {
                cross_wire::warn_about_input_format(draft, first);
                declaration(first)
            })),
        }
    }
    if !declared.is_empty() {
        elements.push(object! { (DECLARATIONS): json::array_of(&declared) });
    }
    elements
}

/// Returns the source array element that the first tools were decoded from, and the tools after it.
/// Returns `None` unless all tools of that element are still present.
fn intact_element(tools: &[Tool]) -> Option<(&Envelope, &[Tool])> {
    let envelope = |tool: &'_ Tool| tool.native_on(&WIRE)?.envelope.clone();
    let first = tools.first()?.native_on(&WIRE)?.envelope.as_ref()?;
    let cut = tools.get(..first.parts)?;
    let is_same = |tool: &Tool| envelope(tool).is_some_and(|other| Arc::ptr_eq(first, &other));
    cut.iter().all(is_same).then_some((&**first, tools.get(first.parts..)?))
}

fn declaration(tool: &Tool) -> Json {
    object! {
        "name": tool.name, "description": tool.description.as_deref(),
        "parametersJsonSchema": tool.schema,
    }
}

/// Converts type names such as `STRING` to JSON Schema's lower case; nothing else changes.
pub(super) fn json_schema(schema: Node<'_>) -> Json {
    const TYPES: [&str; 7] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"];
    let mut upper_case = Vec::new();
    let mut pending = vec![schema];
    while let Some(node) = pending.pop() {
        pending.extend(node.elements());
        for (key, value) in node.members() {
            if key.is("type") && TYPES.iter().any(|type_name| value.is(type_name)) {
                upper_case.push(value.range());
            } else if !["enum", "default", "example", "const"].iter().any(|data| key.is(data)) {
                pending.push(value);
            }
        }
    }
    if upper_case.is_empty() {
        return schema.json();
    }
    let start = schema.range().start;
    let mut text = schema.raw().to_vec();
    for range in upper_case {
        if let Some(type_name) = text.get_mut(range.start - start..range.end - start) {
            type_name.make_ascii_lowercase();
        }
    }
    Json::parse(text).unwrap_or_else(|_| schema.json())
}
