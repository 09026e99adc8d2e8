//! Calls and their answers.

use throughline_core::{Item, Json, Name, Outcome, Part, ToolCall, ToolResult, json};

use crate::chat::encode::message::Message;
use crate::chat::encode::{WIRE, Writer};
use crate::chat::slot;
use crate::draft::Draft;

impl Writer<'_> {
    /// A call in the shape that the endpoint reads, under the id that this wire gave it or a safe one.
    pub(super) fn call_json(
        &mut self,
        call: &ToolCall,
        own_id: Option<&Name>,
        native: Option<&Json>,
    ) -> Json {
        self.names.insert(call.id.clone(), Name::clone(&call.name));
        let id = match own_id.filter(|id| !id.is_empty()) {
            Some(id) => {
                self.ids.native(&call.id, id);
                Name::clone(id)
            }
            None => self.ids.call(&call.id),
        };
        if let Some(native) = native {
            let tree = native.tree();
            let is_complete = tree.root().get("id").is_some_and(|own| own.is(&id))
                && tree.root().get("type").is_some();
            if self.is_native || is_complete {
                return native.clone();
            }
        }
        if self.is_native {
            return json::object(|o| {
                o.object("function", |o| {
                    o.string("name", &call.name);
                    // This endpoint takes objects only.
                    if call.args.tree().root().is_object() {
                        o.raw("arguments", &call.args);
                    } else {
                        o.object("arguments", |o| {
                            o.raw("input", &call.args);
                        });
                    }
                });
            });
        }
        json::object(|o| {
            o.string("id", &id);
            if call.custom {
                o.string("type", "custom").object("custom", |o| {
                    o.string("name", &call.name).raw("input", &call.args);
                });
                return;
            }
            o.string("type", "function").object("function", |o| {
                o.string("name", &call.name).string("arguments", call.args.as_str());
            });
            let extra = native.map(Json::tree);
            let extra = extra.as_ref().and_then(|tree| tree.root().get(slot::EXTRA_CONTENT));
            if let Some(extra) = extra {
                o.node(slot::EXTRA_CONTENT, extra);
            }
        })
    }

    /// The message that answers a call.
    pub(super) fn result(&self, draft: &mut Draft<'_>, item: &Item, result: &ToolResult) -> Json {
        if let Some(native) = item.native_on(&WIRE).filter(|_| self.fits(item)) {
            return native.json.clone();
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
