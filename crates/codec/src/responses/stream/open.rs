//! An element of a streamed response whose end has not come.

use std::borrow::Cow;
use std::collections::BTreeMap;

use throughline_core::{Json, Name, Node, json};

use crate::draft;
use crate::responses::wire::{CONTENT, Kind};

/// An element whose end has not come: how it began, and what was said since.
pub(super) struct Open {
    pub(super) kind: Kind,
    /// The numbers of its Items in the answer, by their number in the element.
    pub(super) indices: BTreeMap<usize, u32>,
    start: Json,
    parts: BTreeMap<usize, Said>,
    summary: BTreeMap<usize, String>,
    thoughts: BTreeMap<usize, String>,
    arguments: String,
}

/// What a part of a message is, as far as its beginning tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Text,
    Refusal,
    Other,
}

/// A part of a message: how it began, and its text.
#[derive(Default)]
struct Said {
    start: Option<Json>,
    text: String,
}

impl Open {
    pub(super) fn new(element: Node<'_>) -> Self {
        Self {
            kind: Kind::of(element),
            indices: BTreeMap::new(),
            start: element.json(),
            parts: BTreeMap::new(),
            summary: BTreeMap::new(),
            thoughts: BTreeMap::new(),
            arguments: String::new(),
        }
    }

    /// Notes how a part began. Only a message's parts are Items of their own.
    pub(super) fn begin_part(&mut self, number: usize, start: Json) {
        if self.kind == Kind::Message {
            self.parts.entry(number).or_default().start = Some(start);
        }
    }

    /// The element's own id.
    pub(super) fn id(&self) -> Option<Name> {
        self.start.tree().root().name_of("id")
    }

    /// The first part whose number in the answer is not known, and what it is.
    pub(super) fn part_without_index(&self) -> Option<(usize, Begun)> {
        let mut parts = self.parts.iter();
        let (number, part) = parts.find(|(number, _)| !self.indices.contains_key(number))?;
        let begun = part.start.as_ref().map_or(Begun::Text, |start| {
            match start.tree().root().text_of("type").as_deref() {
                Some("output_text") => Begun::Text,
                Some("refusal") => Begun::Refusal,
                Some(_) | None => Begun::Other,
            }
        });
        Some((*number, begun))
    }

    pub(super) fn add_text(&mut self, number: usize, delta: &str) {
        if self.kind == Kind::Message {
            self.parts.entry(number).or_default().text.push_str(delta);
        }
    }

    /// Adds to a thought; true where this begins another part of it.
    pub(super) fn add_thought(&mut self, list: &str, number: usize, delta: &str) -> bool {
        let texts = if list == CONTENT { &mut self.thoughts } else { &mut self.summary };
        let text = texts.entry(number).or_default();
        let is_next = number > 0 && text.is_empty();
        text.push_str(delta);
        is_next
    }

    pub(super) fn add_arguments(&mut self, delta: &str) {
        self.arguments.push_str(delta);
    }

    /// The element as far as it came.
    pub(super) fn assemble(&self) -> Json {
        let change = |key: &'static str, value: Json| (Cow::Borrowed(key), Some(value));
        let texts = |kind: &str, texts: &BTreeMap<usize, String>| {
            json::array(|a| {
                for text in texts.values() {
                    a.object(|o| {
                        o.string("type", kind).string("text", text);
                    });
                }
            })
        };
        let changes = match self.kind {
            Kind::Message if !self.parts.is_empty() => {
                let parts: Vec<Json> = self.parts.values().map(Said::assemble).collect();
                vec![change(CONTENT, json::array_of(&parts))]
            }
            Kind::Reasoning => {
                let mut changes = Vec::new();
                if !self.summary.is_empty() {
                    changes.push(change("summary", texts("summary_text", &self.summary)));
                }
                if !self.thoughts.is_empty() {
                    changes.push(change(CONTENT, texts("reasoning_text", &self.thoughts)));
                }
                changes
            }
            Kind::Call => vec![change("arguments", json::string(&self.arguments))],
            Kind::CustomCall => vec![change("input", json::string(&self.arguments))],
            Kind::Message
            | Kind::Result
            | Kind::CustomResult
            | Kind::HostedCall
            | Kind::HostedResult
            | Kind::Compaction
            | Kind::Unknown => Vec::new(),
        };
        draft::edited(Some(&self.start), &changes)
    }
}

impl Said {
    fn assemble(&self) -> Json {
        let plain = || {
            json::object(|o| {
                o.string("type", "output_text").string("text", "").array("annotations", |_| {});
            })
        };
        let start = self.start.clone().unwrap_or_else(plain);
        let is_refusal = start.tree().root().get("type").is_some_and(|kind| kind.is("refusal"));
        let key = if is_refusal { "refusal" } else { "text" };
        if self.text.is_empty() {
            return start;
        }
        draft::edited(Some(&start), &[(Cow::Borrowed(key), Some(json::string(&self.text)))])
    }
}
