//! The forms in which a client of this wire expects the calls of its tools, for replies from other
//! wires.

use std::collections::HashMap;

use throughline_core::{Body, Call, Direction, Item, NativePart, Tool};
use throughline_json::{self as json, Json, Name};

use crate::responses::WIRE;
use crate::responses::encode::{arguments, call_type_and_member};
use crate::responses::wire;

/// The forms of calls that differ from a plain function call, by the tool's name on other wires.
/// Calls of custom tools contain free text, and calls of tools in a namespace contain its name.
#[derive(Clone, Debug, Default)]
pub struct CallForms(HashMap<Name, CallForm>);

#[derive(Clone, Debug)]
struct CallForm {
    namespace: Option<Name>,
    /// The tool's name in its namespace.
    name: Name,
    is_custom: bool,
}

impl CallForms {
    /// Collects the forms from the tools of a Responses request. For requests of other wires, no
    /// call has a form of its own.
    pub fn of(call: &Call) -> Self {
        let forms = call.tools.iter().filter_map(|tool| {
            let (namespace, name) = wire::own_names(tool);
            let form = CallForm { namespace, name, is_custom: is_custom(tool) };
            let is_plain = form.namespace.is_none() && !form.is_custom;
            (!is_plain).then(|| (tool.name.clone(), form))
        });
        Self(forms.collect())
    }

    /// Returns whether calls of this tool differ from a plain function call.
    pub fn contains(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// Gives a call from another wire the form that the client expects. Leaves other Items
    /// unchanged.
    pub fn apply(&self, item: &mut Item) {
        let Body::Call(call) = &mut item.body else { return };
        let Some(form) = self.0.get(&call.name) else { return };
        if let Some(input) = free_text(&call.args).filter(|_| form.is_custom) {
            call.custom = true;
            call.args = input;
        }
        let (kind, key) = call_type_and_member(call);
        let prefix = if key == "input" { "ctc" } else { "fc" };
        let element = object! {
            "id": format!("{prefix}_{}", call.id.0), "type": kind, "status": "completed",
            "call_id": call.id.0, "name": form.name, "namespace": form.namespace.as_deref(),
            (key): arguments(call),
        };
        let native = NativePart::new(WIRE, Direction::Response, element);
        item.native = Some(NativePart { assembled: true, ..native });
    }
}

fn is_custom(tool: &Tool) -> bool {
    let native = tool.native_on(&WIRE);
    native.is_some_and(|native| {
        native.json.tree().root().get("type").is_some_and(|kind| kind.is("custom"))
    })
}

/// Returns the free text in arguments of the form `{"input": text}`, as a JSON string. Custom tools
/// are offered with such arguments on other wires.
fn free_text(args: &Json) -> Option<Json> {
    let tree = args.tree();
    let mut members = tree.root().members();
    let (key, value) = members.next()?;
    let is_only = members.next().is_none() && key.is("input");
    value.text().filter(|_| is_only).map(|text| json::string(&text))
}
