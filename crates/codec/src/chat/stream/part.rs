//! Accumulates the fragments of a streamed message, and serialises each part once.

use throughline_json::{self as json, Json, Label, Name, Node};

use crate::object::put_all;

/// A part of a message that may still be incomplete.
pub(super) struct ChatOpenPart {
    pub(super) index: u32,
    pub(super) slot: Label,
    pub(super) kind: OpenPartKind,
    pub(super) is_open: bool,
}

/// The accumulated fragments of a part.
pub(super) enum OpenPartKind {
    /// Text of `content` or `refusal`.
    Text(String),
    /// Reasoning between tags; `raw` includes the tags and `inner` does not.
    Tagged {
        raw: String,
        inner: String,
        is_whole: bool,
    },
    /// Reasoning in a string member.
    Field(String),
    /// An entry of `reasoning_details`.
    Detail(OpenDetail),
    /// A Mistral `thinking` chunk.
    Chunk(OpenChunk),
    Call(ChatOpenCall),
    /// A part that arrives in a single fragment.
    Raw(Json),
}

impl OpenPartKind {
    pub(super) fn is_thought(&self) -> bool {
        matches!(self, Self::Field(_) | Self::Detail(_) | Self::Chunk(_))
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, OpenPartKind::Text(_))
    }

    pub(super) fn json(&self) -> Json {
        match self {
            OpenPartKind::Text(text) | OpenPartKind::Field(text) => json::string(text),
            OpenPartKind::Tagged { raw, .. } => json::string(raw),
            OpenPartKind::Detail(detail) => detail.json(),
            OpenPartKind::Chunk(chunk) => chunk.json(),
            OpenPartKind::Call(call) => call.json(),
            OpenPartKind::Raw(json) => json.clone(),
        }
    }
}

/// An accumulated detail: the first value of each member, the joined texts, and the last non-empty
/// signature.
pub(super) struct OpenDetail {
    kind: Name,
    index: Option<u64>,
    id: Option<Name>,
    pub(super) text: String,
    members: Vec<(Name, Json)>,
}

impl OpenDetail {
    pub(super) fn new(fragment: Node<'_>) -> Self {
        Self {
            kind: fragment.name_of("type").unwrap_or_default(),
            index: fragment.get("index").and_then(Node::u64),
            id: fragment.name_of("id"),
            text: String::new(),
            members: Vec::new(),
        }
    }

    /// Returns the member that holds the readable text; `None` for a detail that arrives in one
    /// fragment.
    pub(super) fn text_key(&self) -> Option<&'static str> {
        match &*self.kind {
            "reasoning.text" => Some("text"),
            "reasoning.summary" => Some("summary"),
            _ => None,
        }
    }

    /// Returns whether a fragment continues this detail. A fragment without an index can continue
    /// only the last detail.
    pub(super) fn is_continued_by(&self, fragment: Node<'_>, is_last: bool) -> bool {
        let index = fragment.get("index").and_then(Node::u64);
        let id = fragment.name_of("id");
        self.text_key().is_some()
            && fragment.get("type").is_some_and(|kind| kind.is(&self.kind))
            && self.index == index
            && (index.is_some() || is_last)
            && (self.id.is_none() || id.is_none() || self.id == id)
    }

    /// Adds a fragment and returns the text that it contributes.
    pub(super) fn add(&mut self, fragment: Node<'_>) -> String {
        let mut added = String::new();
        for (key, value) in fragment.members() {
            let name = key.name().unwrap_or_default();
            if self.text_key() == Some(&*name) && value.is_string() {
                let piece = value.text().unwrap_or_default();
                self.text.push_str(&piece);
                added.push_str(&piece);
            }
            merge_member(&mut self.members, name, value);
        }
        self.id = self.id.take().or_else(|| fragment.name_of("id"));
        added
    }

    fn json(&self) -> Json {
        json::object(|o| {
            for (key, value) in &self.members {
                match self.text_key() {
                    Some(text) if text == &**key => o.string(key, &self.text),
                    Some(_) | None => o.raw(key, value),
                };
            }
        })
    }
}

/// Records a member. A later value replaces an earlier value unless the later value is empty or
/// `null`.
fn merge_member(members: &mut Vec<(Name, Json)>, name: Name, value: Node<'_>) {
    let is_empty = value.is_null() || value.raw() == b"\"\"";
    match members.iter_mut().find(|(known, _)| *known == name) {
        Some(_) if is_empty => {}
        Some((_, known)) => *known = value.json(),
        None => members.push((name, value.json())),
    }
}

/// An accumulated Mistral chunk: joined texts with references between them.
#[derive(Default)]
pub(super) struct OpenChunk {
    thinking: Vec<ChunkElement>,
    is_string: bool,
    members: Vec<(Name, Json)>,
}

enum ChunkElement {
    Text(String),
    Other(Json),
}

impl OpenChunk {
    /// Adds a fragment and returns the text that it contributes.
    pub(super) fn add(&mut self, fragment: Node<'_>) -> String {
        let mut added = String::new();
        for (key, value) in fragment.members() {
            if !key.is("thinking") {
                merge_member(&mut self.members, key.name().unwrap_or_default(), value);
                continue;
            }
            if let Some(text) = value.text() {
                self.is_string = true;
                self.text(&text);
                added.push_str(&text);
            }
            for part in value.elements() {
                let is_text = part.get("type").is_some_and(|kind| kind.is("text"));
                let is_plain = part.members().count() == 2;
                match part.text_of("text").filter(|_| is_text && is_plain) {
                    Some(text) => {
                        self.text(&text);
                        added.push_str(&text);
                    }
                    None => self.thinking.push(ChunkElement::Other(part.json())),
                }
            }
        }
        added
    }

    fn text(&mut self, piece: &str) {
        match self.thinking.last_mut() {
            Some(ChunkElement::Text(text)) => text.push_str(piece),
            Some(ChunkElement::Other(_)) | None => {
                self.thinking.push(ChunkElement::Text(piece.to_owned()));
            }
        }
    }

    fn json(&self) -> Json {
        json::object(|o| {
            let (kind, others): (Vec<_>, Vec<_>) =
                self.members.iter().partition(|(key, _)| &**key == "type");
            put_all(o, kind);
            match self.thinking.as_slice() {
                [ChunkElement::Text(text)] if self.is_string => {
                    o.string("thinking", text);
                }
                pieces => {
                    o.array("thinking", |a| {
                        for piece in pieces {
                            match piece {
                                ChunkElement::Text(text) => a.object(members! {
                                    "type": "text", "text": text,
                                }),
                                ChunkElement::Other(json) => a.raw(json),
                            };
                        }
                    });
                }
            }
            put_all(o, others);
        })
    }
}

/// A tool call whose arguments are still arriving.
#[derive(Default)]
pub(super) struct ChatOpenCall {
    number: Option<u64>,
    id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Arguments that arrived as an object instead of text.
    object: Option<Json>,
    members: Vec<(Name, Json)>,
    function: Vec<(Name, Json)>,
    /// Whether the part is a legacy `function_call`.
    pub(super) is_bare: bool,
    /// Whether the `Opened` event was emitted.
    pub(super) is_announced: bool,
}

impl ChatOpenCall {
    pub(super) fn new(fragment: Node<'_>, is_bare: bool) -> Self {
        let number = fragment.get("index").and_then(Node::u64);
        Self { number, is_bare, ..Self::default() }
    }

    /// Returns whether a fragment continues this call. Some servers give all calls the same index
    /// or no index; then a different id and name start a new call.
    pub(super) fn is_continued_by(&self, fragment: Node<'_>, is_last: bool) -> bool {
        if self.is_bare {
            return false;
        }
        let number = fragment.get("index").and_then(Node::u64);
        let id = fragment.text_of("id").unwrap_or_default();
        let names = fragment.at("/function/name").is_some_and(|name| name.raw().len() > 2);
        let is_another = !id.is_empty() && !self.id.is_empty() && *id != *self.id && names;
        match number {
            Some(_) => number == self.number && !is_another,
            None if id.is_empty() => is_last && !names,
            None => *id == *self.id,
        }
    }

    /// Adds a fragment and returns the argument text that it contributes.
    pub(super) fn add(&mut self, fragment: Node<'_>) -> String {
        let mut added = String::new();
        for (key, value) in fragment.members().filter(|(key, _)| !key.is("index")) {
            if key.is("function") && !self.is_bare {
                added.push_str(&self.add_function(value));
                merge_member(&mut self.members, Name::from("function"), value);
                continue;
            }
            if key.is("id") && self.id.is_empty() {
                self.id = value.text().unwrap_or_default().into_owned();
            }
            if key.is("custom") && self.name.is_empty() {
                self.name = value.text_of("name").unwrap_or_default().into_owned();
            }
            if !self.is_bare {
                merge_member(&mut self.members, key.name().unwrap_or_default(), value);
            }
        }
        if self.is_bare {
            added.push_str(&self.add_function(fragment));
        }
        added
    }

    fn add_function(&mut self, function: Node<'_>) -> String {
        let mut added = String::new();
        for (key, value) in function.members() {
            if key.is("arguments") {
                match value.text() {
                    Some(piece) => added.push_str(&piece),
                    None if value.is_null() => {}
                    None => self.object = Some(value.json()),
                }
            }
            if key.is("name") {
                if !self.name.is_empty() {
                    continue;
                }
                self.name = value.text().unwrap_or_default().into_owned();
            }
            merge_member(&mut self.function, key.name().unwrap_or_default(), value);
        }
        self.arguments.push_str(&added);
        added
    }

    fn function(&self, o: &mut json::Object<'_>) {
        for (key, value) in &self.function {
            match (&**key, &self.object) {
                ("arguments", Some(object)) => o.raw(key, object),
                ("arguments", None) => o.string(key, &self.arguments),
                (_, _) => o.raw(key, value),
            };
        }
    }

    fn json(&self) -> Json {
        json::object(|o| {
            if self.is_bare {
                self.function(o);
                return;
            }
            for (key, value) in &self.members {
                if &**key == "function" {
                    o.object(key, |o| self.function(o));
                } else {
                    o.raw(key, value);
                }
            }
        })
    }
}
