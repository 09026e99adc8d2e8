//! The tools of a request: declarations that stand together in one element, and the provider's own beside them.

use std::sync::Arc;

use throughline_core::{Call, Envelope, Json, Label, Name, Native, Node, Side, Tool, Wire, json};

use crate::crossing;
use crate::draft::{self, Draft};
use crate::gemini::wire::{get, is_spelled};

const WIRE: Wire = Wire::GEMINI;
const DECLARATIONS: &str = "functionDeclarations";

/// Reads the tools. Every declaration is one, and so is every other member of an element.
pub(super) fn read(tools: Node<'_>) -> Vec<Tool> {
    tools.elements().flat_map(element).collect()
}

fn element(element: Node<'_>) -> Vec<Tool> {
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
        // An element that offers nothing is kept all the same.
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
            native: Some(Native {
                slot,
                ..draft::heard(WIRE, Side::Request, node.json(), Some(&envelope))
            }),
        }
    };
    found.into_iter().map(tool).collect()
}

/// The elements of the tools as they go out.
pub(super) fn write(draft: &mut Draft<'_>, call: &Call) -> Vec<Json> {
    let mut elements = Vec::new();
    let mut declared = Vec::new();
    let mut rest = call.tools.as_slice();
    while let Some(first) = rest.first() {
        if let Some((envelope, others)) = intact(rest) {
            elements.push(envelope.json.clone());
            rest = others;
            continue;
        }
        rest = rest.get(1..).unwrap_or_default();
        match first.native_on(&WIRE) {
            Some(native) if native.slot == DECLARATIONS => declared.push(native.json.clone()),
            Some(native) if native.slot.is_empty() => elements.push(native.json.clone()),
            Some(native) => elements.push(json::object(|o| {
                o.raw(&native.slot, &native.json);
            })),
            None => declared.extend(crossing::tool(draft, first, |_| declaration(first))),
        }
    }
    if !declared.is_empty() {
        elements.push(json::object(|o| {
            o.raw(DECLARATIONS, &json::array_of(&declared));
        }));
    }
    elements
}

/// The element that the first tools were cut from, if all of them are here, and the tools behind them.
fn intact(tools: &[Tool]) -> Option<(&Envelope, &[Tool])> {
    let envelope = |tool: &'_ Tool| tool.native_on(&WIRE)?.envelope.clone();
    let first = tools.first()?.native_on(&WIRE)?.envelope.as_ref()?;
    let cut = tools.get(..first.parts)?;
    let is_same = |tool: &Tool| envelope(tool).is_some_and(|other| Arc::ptr_eq(first, &other));
    cut.iter().all(is_same).then_some((&**first, tools.get(first.parts..)?))
}

fn declaration(tool: &Tool) -> Json {
    json::object(|o| {
        o.string("name", &tool.name);
        o.maybe_string("description", tool.description.as_deref());
        if let Some(schema) = &tool.schema {
            o.raw("parametersJsonSchema", schema);
        }
    })
}

/// The wire's own schemas say `STRING` where JSON Schema says `string`. Nothing else is changed.
pub(super) fn json_schema(schema: Node<'_>) -> Json {
    const TYPES: [&str; 7] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"];
    let mut loud = Vec::new();
    let mut waiting = vec![schema];
    while let Some(node) = waiting.pop() {
        waiting.extend(node.elements());
        for (key, value) in node.members() {
            if key.is("type") && TYPES.iter().any(|word| value.is(word)) {
                loud.push(value.range());
            } else if !["enum", "default", "example", "const"].iter().any(|data| key.is(data)) {
                waiting.push(value);
            }
        }
    }
    if loud.is_empty() {
        return schema.json();
    }
    let start = schema.range().start;
    let mut text = schema.raw().to_vec();
    for range in loud {
        if let Some(word) = text.get_mut(range.start - start..range.end - start) {
            word.make_ascii_lowercase();
        }
    }
    Json::parse(text).unwrap_or_else(|_| schema.json())
}
