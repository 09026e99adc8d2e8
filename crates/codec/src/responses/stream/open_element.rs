//! Accumulates an element of a streamed response.

use std::collections::BTreeMap;

use throughline_json::{self as json, Json, Name, Node};

use crate::draft;
use crate::responses::wire::{CONTENT, ResponsesElementKind as Kind};

/// An incomplete element: its opening event and the content received after that event.
pub(super) struct ResponsesOpenElement {
    pub(super) kind: Kind,
    /// The indexes of the element's Items in the reply, by part number.
    pub(super) indices: BTreeMap<usize, u32>,
    start: Json,
    parts: BTreeMap<usize, OpenMessagePart>,
    summary: BTreeMap<usize, String>,
    thoughts: BTreeMap<usize, String>,
    pub(super) arguments: String,
}

/// The kind of a message part, as reported by its opening event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessagePartKind {
    Text,
    Refusal,
    Other,
}

/// An incomplete message part: its opening event and the text received after that event.
#[derive(Default)]
struct OpenMessagePart {
    start: Option<Json>,
    text: String,
}

impl ResponsesOpenElement {
    pub(super) fn new(element: Node<'_>) -> Self {
        Self {
            kind: Kind::from_element(element),
            indices: BTreeMap::new(),
            start: element.json(),
            parts: BTreeMap::new(),
            summary: BTreeMap::new(),
            thoughts: BTreeMap::new(),
            arguments: String::new(),
        }
    }

    /// Records the opening of a part. Only message parts become separate Items.
    pub(super) fn begin_part(&mut self, number: usize, start: Json) {
        if self.kind == Kind::Message {
            self.parts.entry(number).or_default().start = Some(start);
        }
    }

    pub(super) fn id(&self) -> Option<Name> {
        self.start.tree().root().name_of("id")
    }

    /// Returns the number and kind of the first part that was not assigned an Item index.
    pub(super) fn part_without_index(&self) -> Option<(usize, MessagePartKind)> {
        let mut parts = self.parts.iter();
        let (number, part) = parts.find(|(number, _)| !self.indices.contains_key(number))?;
        let begun = part.start.as_ref().map_or(MessagePartKind::Text, |start| {
            match start.tree().root().text_of("type").as_deref() {
                Some("output_text") => MessagePartKind::Text,
                Some("refusal") => MessagePartKind::Refusal,
                Some(_) | None => MessagePartKind::Other,
            }
        });
        Some((*number, begun))
    }

    pub(super) fn add_text(&mut self, number: usize, delta: &str) {
        if self.kind == Kind::Message {
            self.parts.entry(number).or_default().text.push_str(delta);
        }
    }

    /// Adds text to a thought. Returns `true` if the text begins another part of the thought.
    pub(super) fn add_thought(&mut self, list: &str, number: usize, delta: &str) -> bool {
        let texts = if list == CONTENT { &mut self.thoughts } else { &mut self.summary };
        let text = texts.entry(number).or_default();
        let is_next = number > 0 && text.is_empty();
        text.push_str(delta);
        is_next
    }

    /// Assembles the element from the content received so far.
    pub(super) fn assemble(&self) -> Json {
        use Kind::{Compaction, CustomResult, HostedCall, HostedResult, Message, Result, Unknown};
        let texts = |kind: &str, texts: &BTreeMap<usize, String>| {
            json::array(|a| {
                for text in texts.values() {
                    a.object(members! { "type": kind, "text": text });
                }
            })
        };
        let changes = match self.kind {
            Kind::Message if !self.parts.is_empty() => {
                let parts: Vec<Json> = self.parts.values().map(OpenMessagePart::assemble).collect();
                vec![(CONTENT, Some(json::array_of(&parts)))]
            }
            Kind::Reasoning => {
                let lists = [
                    ("summary", "summary_text", &self.summary),
                    (CONTENT, "reasoning_text", &self.thoughts),
                ];
                let lists = lists.into_iter().filter(|(.., list)| !list.is_empty());
                lists.map(|(key, kind, list)| (key, Some(texts(kind, list)))).collect()
            }
            Kind::Call => {
                vec![("arguments", Some(json::string(&self.arguments)))]
            }
            Kind::CustomCall => {
                vec![("input", Some(json::string(&self.arguments)))]
            }
            Message | Result | CustomResult | HostedCall | HostedResult | Compaction | Unknown => {
                Vec::new()
            }
        };
        draft::edit_object(Some(&self.start), &changes)
    }
}

impl OpenMessagePart {
    fn assemble(&self) -> Json {
        let plain = || object! { "type": "output_text", "text": "", "annotations": [] };
        let start = self.start.clone().unwrap_or_else(plain);
        let is_refusal = start.tree().root().get("type").is_some_and(|kind| kind.is("refusal"));
        let key = if is_refusal { "refusal" } else { "text" };
        if self.text.is_empty() {
            return start;
        }
        draft::with_member(&start, key, json::string(&self.text))
    }
}
