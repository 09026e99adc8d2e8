//! Emits complete elements as the full sequence of stream events.

use throughline_core::Item;
use throughline_json::{self as json, Json, Node};

use crate::responses::encode;
use crate::responses::stream::write::{
    EventFamily, LiveItem, PartPlace, ResponsesEncoder, text_part,
};
use crate::responses::wire::{CONTENT, ResponsesElementKind as Kind};

impl ResponsesEncoder {
    /// Emits all events of a complete element.
    pub(super) fn write_whole_element(&mut self, at: usize, group: &[&Item]) {
        use Kind::{Compaction, CustomResult, HostedCall, HostedResult, Result, Unknown};
        let reply_id = self.id.clone();
        let new_id = |kind: &str| encode::generated_id(kind, reply_id.as_deref(), at);
        let Some(element) = encode::output(group, new_id) else { return };
        let tree = element.tree();
        let node = tree.root();
        let id = node.text_of("id").unwrap_or_default();
        self.item("response.output_item.added", at, &opening_form(node));
        let place = PartPlace { at, id: &id, number: 0 };
        match Kind::from_element(node) {
            Kind::Message => {
                for (number, part) in elements(node, CONTENT).enumerate() {
                    self.message_part(PartPlace { at, id: &id, number }, part);
                }
            }
            Kind::Reasoning => self.reasoning_parts(at, &id, node),
            Kind::Call => {
                self.arguments(place, node, "function_call_arguments", "arguments");
            }
            Kind::CustomCall => {
                self.arguments(place, node, "custom_tool_call_input", "input");
            }
            Result | CustomResult | HostedCall | HostedResult | Compaction | Unknown => {}
        }
        self.item("response.output_item.done", at, &element);
    }

    pub(super) fn message_part(&mut self, place: PartPlace<'_>, part: Node<'_>) {
        let (added, done) = ("response.content_part.added", "response.content_part.done");
        match &*part.text_of("type").unwrap_or_default() {
            "output_text" => {
                self.part(added, place, &text_part(""));
                let text = part.text_of("text").unwrap_or_default();
                if !text.is_empty() {
                    self.text_delta(place, &text);
                }
                self.whole_text_done(place, part);
            }
            "refusal" => {
                let refusal = part.text_of("refusal").unwrap_or_default();
                self.part(added, place, &object! { "type": "refusal", "refusal": "" });
                self.part_event("response.refusal.delta", place, members! { "delta": refusal });
                self.part_event("response.refusal.done", place, members! { "refusal": refusal });
                self.part(done, place, &part.json());
            }
            _ => {
                self.part(added, place, &part.json());
                self.part(done, place, &part.json());
            }
        }
    }

    /// Emits the end of a text, with its annotations.
    pub(super) fn whole_text_done(&mut self, place: PartPlace<'_>, part: Node<'_>) {
        for (count, annotation) in elements(part, "annotations").enumerate() {
            let added = members! { "annotation_index": count as u64, "annotation": annotation };
            self.part_event("response.output_text.annotation.added", place, added);
        }
        self.text_done(place, &part.json());
    }

    fn reasoning_parts(&mut self, at: usize, id: &str, node: Node<'_>) {
        for (list, kind) in [("summary", EventFamily::Summary), (CONTENT, EventFamily::Thinking)] {
            for (number, part) in elements(node, list).enumerate() {
                let mut live = LiveItem::new(at, id.to_owned(), kind, number);
                self.write_piece(&mut live, &part.text_of("text").unwrap_or_default());
                self.end_part(&live);
            }
        }
    }

    fn arguments(&mut self, place: PartPlace<'_>, node: Node<'_>, event: &str, key: &str) {
        let text = node.text_of(key).unwrap_or_default();
        for (suffix, key) in [("delta", "delta"), ("done", key)] {
            let kind = format!("response.{event}.{suffix}");
            self.element_event(&kind, place, members! { (key): text });
        }
    }
}

fn elements<'t>(node: Node<'t>, key: &str) -> impl Iterator<Item = Node<'t>> {
    node.get(key).into_iter().flat_map(Node::elements)
}

/// Returns the form of an element for its opening event: in progress, without content or Seals.
pub(super) fn opening_form(element: Node<'_>) -> Json {
    let kind = Kind::from_element(element);
    json::object(|o| {
        for (key, value) in element.members() {
            let name = key.text().unwrap_or_default();
            match (&*name, kind) {
                ("status", _) => o.string("status", "in_progress"),
                ("arguments", Kind::Call) | ("input", Kind::CustomCall) => o.string(&name, ""),
                (CONTENT, Kind::Message | Kind::Reasoning) | ("summary", Kind::Reasoning) => {
                    o.array(&name, |_| {})
                }
                (key, kind) if kind.is_sealed(key) => continue,
                (name, _) => o.node(name, value),
            };
        }
    })
}
