//! Elements that are whole, written in all the events in which they would have come.

use throughline_core::{Item, Json, Node, json};

use crate::frame::Frame;
use crate::responses::encode;
use crate::responses::stream::write::{ResponseEncoder, summary_part, text_part, thinking_part};
use crate::responses::wire::{CONTENT, Kind};

impl ResponseEncoder {
    /// Writes an element that is whole, in all its events.
    pub(super) fn whole(&mut self, at: usize, group: &[&Item], out: &mut Vec<Frame>) {
        let made = self.id.clone();
        let made = |kind: &str| encode::made_id(kind, made.as_deref(), at);
        let Some(element) = encode::output(group, made) else { return };
        let tree = element.tree();
        let node = tree.root();
        let id = node.text_of("id").unwrap_or_default();
        out.push(self.item("response.output_item.added", at, &beginning(node)));
        match Kind::of(node) {
            Kind::Message => {
                for (number, part) in elements(node, CONTENT).enumerate() {
                    self.message_part(at, &id, number, part, out);
                }
            }
            Kind::Reasoning => self.reasoning_parts(at, &id, node, out),
            Kind::Call => {
                self.arguments(at, &id, node, "function_call_arguments", "arguments", out);
            }
            Kind::CustomCall => {
                self.arguments(at, &id, node, "custom_tool_call_input", "input", out);
            }
            Kind::Result
            | Kind::CustomResult
            | Kind::HostedCall
            | Kind::HostedResult
            | Kind::Compaction
            | Kind::Unknown => {}
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
                let begin = json::object(|o| {
                    o.string("type", "refusal").string("refusal", "");
                });
                out.push(self.part(added, at, id, number, &begin));
                for (suffix, key) in [("delta", "delta"), ("done", "refusal")] {
                    out.push(self.of(&format!("response.refusal.{suffix}"), at, id, |o| {
                        o.number("content_index", number as u64).string(key, &refusal);
                    }));
                }
                out.push(self.part(done, at, id, number, &part.json()));
            }
            _ => {
                out.push(self.part(added, at, id, number, &part.json()));
                out.push(self.part(done, at, id, number, &part.json()));
            }
        }
    }

    /// Ends a text, with what it cites.
    pub(super) fn whole_text_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        part: Node<'_>,
        out: &mut Vec<Frame>,
    ) {
        for (count, annotation) in elements(part, "annotations").enumerate() {
            out.push(self.of("response.output_text.annotation.added", at, id, |o| {
                o.number("content_index", number as u64);
                o.number("annotation_index", count as u64).node("annotation", annotation);
            }));
        }
        self.text_done(at, id, number, &part.json(), out);
    }

    fn reasoning_parts(&mut self, at: usize, id: &str, node: Node<'_>, out: &mut Vec<Frame>) {
        for (number, part) in elements(node, "summary").enumerate() {
            let text = part.text_of("text").unwrap_or_default();
            out.push(self.summary("response.reasoning_summary_part.added", at, id, number, |o| {
                o.raw("part", &summary_part(""));
            }));
            out.push(self.summary("response.reasoning_summary_text.delta", at, id, number, |o| {
                o.string("delta", &text);
            }));
            self.summary_done(at, id, number, &text, out);
        }
        for (number, part) in elements(node, CONTENT).enumerate() {
            let text = part.text_of("text").unwrap_or_default();
            let begin = thinking_part("");
            out.push(self.part("response.content_part.added", at, id, number, &begin));
            out.push(self.of("response.reasoning_text.delta", at, id, |o| {
                o.number("content_index", number as u64).string("delta", &text);
            }));
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
            out.push(self.of(&format!("response.{event}.{suffix}"), at, id, |o| {
                o.string(key, &text);
            }));
        }
    }
}

fn elements<'t>(node: Node<'t>, key: &str) -> impl Iterator<Item = Node<'t>> {
    node.get(key).into_iter().flat_map(Node::elements)
}

/// An element as it begins: under way, with nothing said and nothing sealed.
pub(super) fn beginning(element: Node<'_>) -> Json {
    let kind = Kind::of(element);
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
