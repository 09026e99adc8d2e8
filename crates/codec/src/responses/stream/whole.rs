//! Emits complete elements as the full sequence of stream events.

use throughline_core::Item;
use throughline_json::{self as json, Json, Node};

use crate::frame::Frame;
use crate::responses::encode;
use crate::responses::stream::write::{ResponsesEncoder, summary_part, text_part, thinking_part};
use crate::responses::wire::{CONTENT, ResponsesElementKind};

impl ResponsesEncoder {
    /// Emits a complete element in all its events.
    pub(super) fn write_whole_element(&mut self, at: usize, group: &[&Item], out: &mut Vec<Frame>) {
        let made = self.id.clone();
        let made = |kind: &str| encode::generated_id(kind, made.as_deref(), at);
        let Some(element) = encode::output(group, made) else { return };
        let tree = element.tree();
        let node = tree.root();
        let id = node.text_of("id").unwrap_or_default();
        out.push(self.item("response.output_item.added", at, &opening_form(node)));
        match ResponsesElementKind::from_element(node) {
            ResponsesElementKind::Message => {
                for (number, part) in elements(node, CONTENT).enumerate() {
                    self.message_part(at, &id, number, part, out);
                }
            }
            ResponsesElementKind::Reasoning => self.reasoning_parts(at, &id, node, out),
            ResponsesElementKind::Call => {
                self.arguments(at, &id, node, "function_call_arguments", "arguments", out);
            }
            ResponsesElementKind::CustomCall => {
                self.arguments(at, &id, node, "custom_tool_call_input", "input", out);
            }
            ResponsesElementKind::Result
            | ResponsesElementKind::CustomResult
            | ResponsesElementKind::HostedCall
            | ResponsesElementKind::HostedResult
            | ResponsesElementKind::Compaction
            | ResponsesElementKind::Unknown => {}
        }
        out.push(self.item("response.output_item.done", at, &element));
    }

    pub(super) fn message_part(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        part: Node<'_>,
        out: &mut Vec<Frame>,
    ) {
        let (added, done) = ("response.content_part.added", "response.content_part.done");
        match &*part.text_of("type").unwrap_or_default() {
            "output_text" => {
                out.push(self.part(added, at, id, number, &text_part("")));
                let text = part.text_of("text").unwrap_or_default();
                if !text.is_empty() {
                    out.push(self.text_delta(at, id, number, &text));
                }
                self.whole_text_done(at, id, number, part, out);
            }
            "refusal" => {
                let refusal = part.text_of("refusal").unwrap_or_default();
                let begin = object! { "type": "refusal", "refusal": "" };
                out.push(self.part(added, at, id, number, &begin));
                for (suffix, key) in [("delta", "delta"), ("done", "refusal")] {
                    out.push(self.element_event(
                        &format!("response.refusal.{suffix}"),
                        at,
                        id,
                        members! { "content_index": number as u64, (key): refusal },
                    ));
                }
                out.push(self.part(done, at, id, number, &part.json()));
            }
            _ => {
                out.push(self.part(added, at, id, number, &part.json()));
                out.push(self.part(done, at, id, number, &part.json()));
            }
        }
    }

    /// Ends a text, including its annotations.
    pub(super) fn whole_text_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        part: Node<'_>,
        out: &mut Vec<Frame>,
    ) {
        for (count, annotation) in elements(part, "annotations").enumerate() {
            out.push(self.element_event(
                "response.output_text.annotation.added",
                at,
                id,
                members! {
                    "content_index": number as u64, "annotation_index": count as u64,
                    "annotation": annotation,
                },
            ));
        }
        self.text_done(at, id, number, &part.json(), out);
    }

    fn reasoning_parts(&mut self, at: usize, id: &str, node: Node<'_>, out: &mut Vec<Frame>) {
        for (number, part) in elements(node, "summary").enumerate() {
            let text = part.text_of("text").unwrap_or_default();
            out.push(self.summary(
                "response.reasoning_summary_part.added",
                at,
                id,
                number,
                members! {
                    "part": summary_part(""),
                },
            ));
            out.push(self.summary(
                "response.reasoning_summary_text.delta",
                at,
                id,
                number,
                members! {
                    "delta": text,
                },
            ));
            self.summary_done(at, id, number, &text, out);
        }
        for (number, part) in elements(node, CONTENT).enumerate() {
            let text = part.text_of("text").unwrap_or_default();
            let begin = thinking_part("");
            out.push(self.part("response.content_part.added", at, id, number, &begin));
            out.push(self.element_event(
                "response.reasoning_text.delta",
                at,
                id,
                members! {
                    "content_index": number as u64, "delta": text,
                },
            ));
            self.thinking_done(at, id, number, &text, out);
        }
    }

    fn arguments(
        &mut self,
        at: usize,
        id: &str,
        node: Node<'_>,
        event: &str,
        key: &str,
        out: &mut Vec<Frame>,
    ) {
        let text = node.text_of(key).unwrap_or_default();
        for (suffix, key) in [("delta", "delta"), ("done", key)] {
            out.push(self.element_event(
                &format!("response.{event}.{suffix}"),
                at,
                id,
                members! {
                    (key): text,
                },
            ));
        }
    }
}

fn elements<'t>(node: Node<'t>, key: &str) -> impl Iterator<Item = Node<'t>> {
    node.get(key).into_iter().flat_map(Node::elements)
}

/// Returns the opening form of an element: in progress, without content or Seals.
pub(super) fn opening_form(element: Node<'_>) -> Json {
    let kind = ResponsesElementKind::from_element(element);
    json::object(|o| {
        for (key, value) in element.members() {
            let name = key.text().unwrap_or_default();
            match (&*name, kind) {
                ("status", _) => o.string("status", "in_progress"),
                ("arguments", ResponsesElementKind::Call)
                | ("input", ResponsesElementKind::CustomCall) => o.string(&name, ""),
                (CONTENT, ResponsesElementKind::Message | ResponsesElementKind::Reasoning)
                | ("summary", ResponsesElementKind::Reasoning) => o.array(&name, |_| {}),
                (key, kind) if kind.is_sealed(key) => continue,
                (name, _) => o.node(name, value),
            };
        }
    })
}
