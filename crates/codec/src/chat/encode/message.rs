//! Builds one outgoing message.

use std::borrow::Cow;

use throughline_core::{Media, Target};
use throughline_json::{self as json, Json, Node};

use crate::chat::encode::media;
use crate::chat::slot::{self, FIELDS};
use crate::draft;

type MessageMembers = Vec<(Cow<'static, str>, Option<Json>)>;

/// A message under construction.
#[derive(Default)]
pub(in crate::chat) struct ChatMessageBuilder {
    content: Vec<MessageContent>,
    /// The reasoning strings, with their field names.
    fields: Vec<(&'static str, PiecewiseText)>,
    /// The fields that repeat the text of the details, with their texts.
    echoes: Vec<(&'static str, String)>,
    details: Vec<Json>,
    calls: Vec<Json>,
    images: Vec<Json>,
    others: Vec<(Cow<'static, str>, Json)>,
}

enum MessageContent {
    /// A string from this wire. Consecutive strings are concatenated without a separator.
    Own(Json),
    /// A text that was a separate block on another wire.
    Text(String),
    Part(Json),
}

/// A string that is built from pieces. A single piece keeps its original JSON bytes.
struct PiecewiseText {
    raw: Json,
    pieces: Vec<String>,
}

impl PiecewiseText {
    fn json(&self) -> Json {
        match self.pieces.as_slice() {
            [_] => self.raw.clone(),
            pieces => json::string(&pieces.concat()),
        }
    }
}

impl ChatMessageBuilder {
    pub(in crate::chat) fn is_empty(&self) -> bool {
        self.content.is_empty()
            && self.fields.is_empty()
            && self.details.is_empty()
            && self.calls.is_empty()
            && self.images.is_empty()
            && self.others.is_empty()
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn has_field(&self, field: &str) -> bool {
        self.fields.iter().any(|(known, _)| *known == field)
            || self.echoes.iter().any(|(known, _)| *known == field)
    }

    /// Adds a part to a slot; `text` is the part's readable text.
    pub(in crate::chat) fn add(&mut self, slot_name: &str, part: Json, text: &str) {
        match slot::first_member(slot_name) {
            slot::CONTENT if part.bytes().first() == Some(&b'"') => {
                self.content.push(MessageContent::Own(part));
            }
            slot::CONTENT => self.content.push(MessageContent::Part(part)),
            slot::DETAILS => {
                self.details.push(part);
                for field in slot::fields(slot_name) {
                    match self.echoes.iter_mut().find(|(known, _)| *known == field) {
                        Some((_, echo)) => echo.push_str(text),
                        None => self.echoes.push((field, text.to_owned())),
                    }
                }
            }
            slot::CALLS => self.calls.push(part),
            "images" => self.images.push(part),
            _ => {
                let mut is_field = false;
                for field in slot::fields(slot_name) {
                    is_field = true;
                    let piece = text.to_owned();
                    match self.fields.iter_mut().find(|(known, _)| *known == field) {
                        Some((_, known)) => known.pieces.push(piece),
                        None => {
                            let text = PiecewiseText { raw: part.clone(), pieces: vec![piece] };
                            self.fields.push((field, text));
                        }
                    }
                }
                if !is_field {
                    self.others.push((Cow::Owned(slot_name.to_owned()), part));
                }
            }
        }
    }

    pub(super) fn add_text(&mut self, text: &str) {
        self.content.push(MessageContent::Text(text.to_owned()));
    }

    /// Adds media; returns whether the wire can represent the media.
    pub(super) fn add_media(&mut self, media: &Media, target: &Target, is_native: bool) -> bool {
        let part = if is_native { media::bare_image(media) } else { media::part(media, target) };
        let is_taken = part.is_some();
        if is_native {
            self.images.extend(part);
        } else {
            self.content.extend(part.map(MessageContent::Part));
        }
        is_taken
    }

    /// Returns the content: a string if all parts are text, else a list of parts. `is_string`
    /// forces a string, because Ollama's native API accepts nothing else.
    pub(super) fn content(&self, is_string: bool) -> Option<Json> {
        match self.content.as_slice() {
            [] => None,
            [MessageContent::Own(text)] => Some(text.clone()),
            [MessageContent::Text(text)] => Some(json::string(text)),
            contents
                if is_string || contents.iter().all(|c| matches!(c, MessageContent::Own(_))) =>
            {
                let mut joined = String::new();
                for content in contents {
                    match content {
                        MessageContent::Own(text) => {
                            joined.push_str(&text.tree().root().text().unwrap_or_default());
                        }
                        MessageContent::Text(text) => {
                            if !joined.is_empty() {
                                joined.push_str("\n\n");
                            }
                            joined.push_str(text);
                        }
                        MessageContent::Part(part) => {
                            joined
                                .push_str(&part.tree().root().text_of("text").unwrap_or_default());
                        }
                    }
                }
                Some(json::string(&joined))
            }
            contents => Some(json::array(|a| {
                for content in contents {
                    match content {
                        MessageContent::Own(text) => a.raw(&text_part(text)),
                        MessageContent::Text(text) => a.raw(&text_part(&json::string(text))),
                        MessageContent::Part(part) => a.raw(part),
                    };
                }
            })),
        }
    }

    /// Returns the members of the message in a fixed order.
    pub(in crate::chat) fn members(&self, is_native: bool) -> MessageMembers {
        // Prefer a string, because not every endpoint accepts a list of texts.
        let has_parts =
            self.content.iter().any(|content| matches!(content, MessageContent::Part(_)));
        let content = self.content(is_native || !has_parts);
        // Only a message that calls tools may have null content.
        let silence = || {
            if self.calls.is_empty() || is_native { json::string("") } else { Json::null() }
        };
        let mut members = MessageMembers::with_capacity(FIELDS.len() + 8 + self.others.len());
        members.push((Cow::Borrowed(slot::CONTENT), Some(content.unwrap_or_else(silence))));
        let mut put = |key: &'static str, value: Option<Json>| {
            members.push((Cow::Borrowed(key), value));
        };
        for field in FIELDS {
            let own = self.fields.iter().find(|(known, _)| *known == field);
            let echo = self.echoes.iter().find(|(known, _)| *known == field);
            let text = own.map(|(_, text)| text.json());
            put(field, text.or_else(|| echo.map(|(_, text)| json::string(text))));
        }
        let list = |values: &[Json]| (!values.is_empty()).then(|| json::array_of(values));
        put(slot::DETAILS, list(&self.details));
        put(slot::CALLS, list(&self.calls));
        put("images", list(&self.images));
        for key in [slot::REFUSAL, slot::AUDIO, slot::FUNCTION_CALL, slot::EXTRA_CONTENT] {
            put(key, self.others.iter().find(|(known, _)| known == key).map(|(_, v)| v.clone()));
        }
        for (key, value) in &self.others {
            if !members.iter().any(|(known, _)| known == key) {
                members.push((key.clone(), Some(value.clone())));
            }
        }
        members
    }
}

/// Builds a message from its role and members, without a source message.
pub(super) fn new_message(role: &str, members: &MessageMembers) -> Json {
    let role = json::string(role);
    let present = members.iter().filter_map(|(key, value)| Some((&**key, value.as_ref()?)));
    json::object_of([("role", &role)].into_iter().chain(present))
}

/// Edits the source message: replaces only the members whose values changed.
pub(super) fn edit_message(envelope: &Json, members: MessageMembers) -> Json {
    let tree = envelope.tree();
    let is_empty_value = |node: Option<Node<'_>>| {
        node.is_none_or(|node| node.is_null() || matches!(node.raw(), b"\"\"" | b"[]"))
    };
    let changes: MessageMembers = members
        .into_iter()
        .filter(|(key, value)| {
            let was = tree.root().get(key);
            match value {
                Some(value) => {
                    let is_empty = matches!(value.as_str(), "null" | "\"\"");
                    let is_same = was.is_some_and(|was| was.json().is_equivalent_to(value));
                    !(is_same || is_empty && is_empty_value(was))
                }
                None => !is_empty_value(was),
            }
        })
        .collect();
    draft::edit_object(Some(envelope), &changes)
}

fn text_part(text: &Json) -> Json {
    object! { "type": "text", "text": text }
}
