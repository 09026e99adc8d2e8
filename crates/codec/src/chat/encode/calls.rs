//! Encodes tool calls and their results.

use throughline_core::{Item, Outcome, Part, ToolCall, ToolResult};
use throughline_json::{self as json, Json, Name, Node};

use crate::chat::encode::compatibility::{may_have_cache_markers, warn_about_cache_markers};
use crate::chat::encode::message::ChatMessageBuilder;
use crate::chat::encode::{ChatWriter, custom, is_own};
use crate::chat::{WIRE, slot};
use crate::draft::{self, Draft};

impl ChatWriter<'_> {
    /// Encodes a call in the endpoint's shape. The original id is kept if the endpoint accepts it.
    pub(super) fn call_json(
        &mut self,
        item: &Item,
        call: &ToolCall,
        native: Option<&Json>,
    ) -> Json {
        self.names.insert(call.id.clone(), Name::clone(&call.name));
        let is_own = is_own(self.call, item);
        let own_id = call.wire_id.as_ref().filter(|id| {
            item.native_on(&WIRE).is_some() && !id.is_empty() && (is_own || self.ids.accepts(id))
        });
        let id = match own_id {
            Some(id) => {
                self.ids.record_native(&call.id, id);
                Name::clone(id)
            }
            None => {
                self.renamed.insert(call.id.clone());
                self.ids.assign(&call.id)
            }
        };
        if let Some(native) = native {
            let tree = native.tree();
            // Only the endpoint that emitted empty arguments is known to accept them.
            let is_silent = |arguments: Node<'_>| arguments.raw() == b"\"\"";
            let is_complete = tree.root().get("id").is_some_and(|own| own.is(&id))
                && tree.root().get("type").is_some()
                && (is_own || !tree.root().at("/function/arguments").is_some_and(is_silent));
            if self.is_native || is_complete {
                return native.clone();
            }
        }
        if self.is_native {
            // Ollama's native API accepts only objects as arguments.
            let arguments = custom::object_arguments(call);
            return object! { "function": { "name": call.name, "arguments": arguments } };
        }
        json::object(|o| {
            o.string("id", &id);
            let is_custom = call.custom && self.takes_custom();
            custom::put_call(o, call, is_custom);
            let extra = native.filter(|_| !is_custom).map(Json::tree);
            let extra = extra.as_ref().and_then(|tree| tree.root().get(slot::EXTRA_CONTENT));
            if let Some(extra) = extra {
                o.node(slot::EXTRA_CONTENT, extra);
            }
        })
    }

    /// Encodes a tool result with the id that was sent for its call.
    pub(super) fn result(&self, draft: &mut Draft<'_>, item: &Item, result: &ToolResult) -> Json {
        let native = item.native_on(&WIRE).filter(|native| native.slot.is_empty());
        if let Some(native) =
            native.filter(|native| self.fits(item) && self.is_listed_message(&native.json))
        {
            let id = self.ids.result_id(&result.call);
            if self.is_native || result.wire_id.as_deref() == Some(&*id) {
                return native.json.clone();
            }
            return draft::with_member(&native.json, "tool_call_id", json::string(&id));
        }
        if native.is_some_and(|native| may_have_cache_markers(&native.json)) {
            warn_about_cache_markers(draft);
        }
        if !matches!(result.outcome, Outcome::Ok) {
            let message = "this wire cannot mark a tool failure; only its text was sent";
            draft.warn("tool result", message);
        }
        let mut parts = ChatMessageBuilder::default();
        for part in &result.parts {
            match part {
                Part::Text(text) => parts.add_text(text),
                Part::Value(value) => parts.add_text(value.as_str()),
                Part::Media(_) => {
                    let message = "tool results on this wire are text; their media were left out";
                    draft.warn("media", message);
                }
                Part::Unknown(wire, json) if *wire == WIRE && !self.is_native => {
                    parts.add(&slot::list_slot(slot::CONTENT, 0), json.clone(), "");
                }
                Part::Unknown(wire, _) => {
                    let message = format!("a part that only {wire} supports was left out");
                    draft.warn("tool result", message);
                }
            }
        }
        let content = parts.content(self.is_native).unwrap_or_else(|| json::string(""));
        let name = result.name.as_ref().or_else(|| self.names.get(&result.call));
        let name = name.filter(|_| self.is_native);
        let id = (!self.is_native).then(|| self.ids.result_id(&result.call));
        object! { "role": "tool", "tool_name": name, "tool_call_id": id, "content": content }
    }
}
