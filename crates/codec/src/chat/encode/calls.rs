//! Calls and their answers.

use throughline_core::{Item, Json, Name, Node, Outcome, Part, ToolCall, ToolResult, json};

use crate::chat::encode::fit::{is_marked, warn_of_marks};
use crate::chat::encode::message::Message;
use crate::chat::encode::{WIRE, Writer, custom, is_own};
use crate::chat::slot;
use crate::draft::{self, Draft};

impl Writer<'_> {
    /// A call in the shape that the endpoint reads, under the id that this wire gave it or one that the endpoint takes.
    pub(super) fn call_json(
        &mut self,
        item: &Item,
        call: &ToolCall,
        native: Option<&Json>,
    ) -> Json {
        self.names.insert(call.id.clone(), Name::clone(&call.name));
        let is_own = is_own(self.call, item);
        let own_id = call.wire_id.as_ref().filter(|id| {
            item.native_on(&WIRE).is_some() && !id.is_empty() && (is_own || self.ids.takes(id))
        });
        let id = match own_id {
            Some(id) => {
                self.ids.native(&call.id, id);
                Name::clone(id)
            }
            None => {
                self.renamed.insert(call.id.clone());
                self.ids.call(&call.id)
            }
        };
        if let Some(native) = native {
            let tree = native.tree();
            // Arguments that say nothing at all are known to pass only where they come from.
            let is_silent = |arguments: Node<'_>| arguments.raw() == b"\"\"";
            let is_complete = tree.root().get("id").is_some_and(|own| own.is(&id))
                && tree.root().get("type").is_some()
                && (is_own || !tree.root().at("/function/arguments").is_some_and(is_silent));
            if self.is_native || is_complete {
                return native.clone();
            }
        }
        if self.is_native {
            return json::object(|o| {
                o.object("function", |o| {
                    // This endpoint takes objects only.
                    o.string("name", &call.name).raw("arguments", &custom::argument(call));
                });
            });
        }
        json::object(|o| {
            o.string("id", &id);
            if call.custom && self.takes_custom() {
                o.string("type", "custom").object("custom", |o| {
                    o.string("name", &call.name).raw("input", &custom::input(call));
                });
                return;
            }
            o.string("type", "function").object("function", |o| {
                o.string("name", &call.name).string("arguments", &custom::arguments(call));
            });
            let extra = native.map(Json::tree);
            let extra = extra.as_ref().and_then(|tree| tree.root().get(slot::EXTRA_CONTENT));
            if let Some(extra) = extra {
                o.node(slot::EXTRA_CONTENT, extra);
            }
        })
    }

    /// The message that answers a call, under the id under which the call went out.
    pub(super) fn result(&self, draft: &mut Draft<'_>, item: &Item, result: &ToolResult) -> Json {
        let native = item.native_on(&WIRE).filter(|native| native.slot.is_empty());
        if let Some(native) = native.filter(|native| self.fits(item) && self.lists(&native.json)) {
            let id = self.ids.result(&result.call);
            if self.is_native || result.wire_id.as_deref() == Some(&*id) {
                return native.json.clone();
            }
            let id = Some(json::string(&id));
            return draft::edited(Some(&native.json), &[("tool_call_id".into(), id)]);
        }
        if native.is_some_and(|native| is_marked(&native.json)) {
            warn_of_marks(draft);
        }
        if !matches!(result.outcome, Outcome::Ok) {
            draft.warn(
                "tool result",
                "this wire cannot say that a tool failed; only its text was sent",
            );
        }
        let mut parts = Message::default();
        for part in &result.parts {
            match part {
                Part::Text(text) => parts.add_text(text),
                Part::Value(value) => parts.add_text(value.as_str()),
                Part::Media(_) => {
                    draft.warn("media", "an answer on this wire is text; its media were left out");
                }
                Part::Unknown(wire, json) if *wire == WIRE && !self.is_native => {
                    parts.add(&slot::at(slot::CONTENT, 0), json.clone(), "");
                }
                Part::Unknown(wire, _) => {
                    draft
                        .warn("tool result", format!("a part that only {wire} knows was left out"));
                }
            }
        }
        let content = parts.content(self.is_native).unwrap_or_else(|| json::string(""));
        json::object(|o| {
            o.string("role", "tool");
            if self.is_native {
                let name = result.name.as_ref().or_else(|| self.names.get(&result.call));
                o.maybe_string("tool_name", name.map(|name| &**name));
            } else {
                o.string("tool_call_id", &self.ids.result(&result.call));
            }
            o.raw("content", &content);
        })
    }
}
