//! Reads and writes the reasoning of chat messages as typed reasoning elements.
//!
//! The format of an element names the member that holds it: `reasoning_content`, `reasoning` or
//! `thinking` for a string, [`THINKING_CHUNK`] for Mistral's chunks, [`INLINE_TAGS`] for tags in
//! the text, and [`EXTRA_CONTENT_SIGNATURE`] for a call that Google signed. Elements of all other
//! formats belong to `reasoning_details`.

use throughline_core::ReasoningFormat;
use throughline_json::{self as json, Json, Name, Node};
use throughline_spec::{DetailMeta, OpenRouterReasoningCodec, ReasoningCodec, ReasoningItem};

use crate::chat::OpenAiChat;
use crate::chat::decode::message::{INLINE_TAGS, THINKING_CHUNK, chunk_text};
use crate::chat::slot::{CALLS, CONTENT, DETAILS, EXTRA_CONTENT, FIELDS};
use crate::chat::tags::{TagPiece, TagScope, TagSplitter};
use crate::edit;

/// The format of a signature that Google's compatible endpoint attaches to a call.
pub(crate) const EXTRA_CONTENT_SIGNATURE: &str = "google-extra-content";
/// The position of such a signature in a call or message, and in the value of `extra_content`.
const SIGNATURE: [&str; 2] =
    ["/extra_content/google/thought_signature", "/google/thought_signature"];
const MESSAGE: &str = "/choices/0/message";

impl ReasoningCodec for OpenAiChat {
    /// Reads the elements of a response, of a message, of one `reasoning_details` element, of one
    /// thinking chunk, or of one call.
    fn parse_response(&self, response: &Json) -> Vec<ReasoningItem> {
        let tree = response.tree();
        let root = tree.root();
        if is_thinking_chunk(root) {
            return vec![chunk_element(root)];
        }
        let message = root.at(MESSAGE).or_else(|| root.get("message")).unwrap_or(root);
        let mut elements = OpenRouterReasoningCodec.parse_response(&message.json());
        if elements.is_empty() {
            elements.extend(FIELDS.iter().filter_map(|field| {
                let text = message.name_of(field).filter(|text: &Name| !text.is_empty())?;
                Some(text_element(text, field))
            }));
            elements.extend(content_elements(message));
        }
        let calls = message.get(CALLS).into_iter().flat_map(Node::elements);
        elements.extend(calls.chain([message]).filter_map(signature));
        elements
    }

    fn write_assistant(&self, message: &Json, items: &[ReasoningItem]) -> Json {
        if items.is_empty() {
            return message.clone();
        }
        let tree = message.tree();
        let inner = tree.root().at(MESSAGE).or_else(|| tree.root().get("message"));
        if let Some(inner) = inner.filter(|inner| inner.is_object()) {
            let written = self.write_assistant(&inner.json(), items);
            return message.with_value_at(inner.range(), &written);
        }
        let mut written = message.clone();
        for key in FIELDS.into_iter().chain([DETAILS]).filter(|key| tree.root().get(key).is_some())
        {
            written = edit::edit_object(Some(&written), &[(key, None)]);
        }
        let mut details = Vec::new();
        for element in items {
            let format = element.format();
            let is = |name: &str| format.as_str() == name;
            if let Some(field) = FIELDS.into_iter().find(|field| is_field(&format, field)) {
                written = append_text(&written, field, element);
            } else if is(THINKING_CHUNK) {
                written = write_chunk(&written, element);
            } else if is(INLINE_TAGS) {
                written = prepend_tagged(&written, element);
            } else if is(EXTRA_CONTENT_SIGNATURE) {
                written = sign_call(&written, element);
            } else {
                details.push(element.clone());
            }
        }
        OpenRouterReasoningCodec.write_assistant(&written, &details)
    }
}

/// Returns whether the format names this member, alone or with members that repeat its text.
fn is_field(format: &ReasoningFormat, field: &str) -> bool {
    format.as_str().split('+').any(|name| name == field)
}

fn text_element(text: Name, format: &str) -> ReasoningItem {
    let format = Some(ReasoningFormat::new(format));
    let meta = DetailMeta { format, ..DetailMeta::default() };
    ReasoningItem::Text { meta, text: Some(text), signature: None }
}

/// Reads the thinking chunks of a content list, or the tagged reasoning at the start of a text.
fn content_elements(message: Node<'_>) -> Vec<ReasoningItem> {
    let Some(content) = message.get(CONTENT) else { return Vec::new() };
    let Some(text) = content.text() else {
        let chunks = content.elements().filter(|part| is_thinking_chunk(*part));
        return chunks.map(chunk_element).collect();
    };
    let mut splitter = TagSplitter::new(TagScope::Beginning);
    let mut pieces = splitter.push(&text);
    pieces.extend(splitter.finish());
    let thoughts = pieces.into_iter().filter_map(|piece| match piece {
        TagPiece::Thought(text) => Some(text),
        TagPiece::Text(_) | TagPiece::Open(_) | TagPiece::Close(_) => None,
    });
    let thought: String = thoughts.collect();
    (!thought.is_empty()).then(|| text_element(thought.into(), INLINE_TAGS)).into_iter().collect()
}

fn is_thinking_chunk(part: Node<'_>) -> bool {
    part.get("type").is_some_and(|kind| kind.is("thinking"))
}

/// Reads a thinking chunk. The extras keep its further members, and `thinking` if its text alone
/// does not describe it.
fn chunk_element(chunk: Node<'_>) -> ReasoningItem {
    let text = chunk_text(chunk);
    let is_plain = |thinking: Node<'_>| thinking.json().is_equivalent_to(&plain_thinking(&text));
    let is_extra = |key: &str, value: Node<'_>| match key {
        "type" => false,
        "thinking" => !is_plain(value),
        "signature" => !value.is_string(),
        _ => true,
    };
    let members = chunk.members().filter_map(|(key, value)| Some((key.name()?, value)));
    let extras = members.filter(|(key, value)| is_extra(key, *value));
    let extras = extras.map(|(key, value)| (key, value.json())).collect();
    let format = Some(ReasoningFormat::new(THINKING_CHUNK));
    let meta = DetailMeta { format, extras, ..DetailMeta::default() };
    let signature = chunk.name_of("signature").map(Into::into);
    ReasoningItem::Text { meta, text: Some(text.into()), signature }
}

/// Returns the member `thinking` of a chunk that has a single text.
fn plain_thinking(text: &str) -> Json {
    json::array_of(&[object! { "type": "text", "text": text }])
}

/// Reads the signature that Google attached to a call or to a message.
fn signature(holder: Node<'_>) -> Option<ReasoningItem> {
    let data = SIGNATURE.iter().find_map(|pointer| holder.at(pointer)?.name());
    let data = data.filter(|data| !data.is_empty())?;
    let format = Some(ReasoningFormat::new(EXTRA_CONTENT_SIGNATURE));
    let meta = DetailMeta { id: holder.name_of("id"), format, ..DetailMeta::default() };
    Some(ReasoningItem::Encrypted { meta, data: data.into() })
}

fn readable(element: &ReasoningItem) -> &str {
    match element {
        ReasoningItem::Text { text, .. } => text.as_deref().unwrap_or_default(),
        ReasoningItem::Summary { summary, .. } => summary,
        ReasoningItem::Encrypted { .. } | ReasoningItem::Unknown(_) => "",
    }
}

fn append_text(message: &Json, field: &'static str, element: &ReasoningItem) -> Json {
    let before = message.tree().root().text_of(field).unwrap_or_default().into_owned();
    edit::with_member(message, field, json::string(&(before + readable(element))))
}

/// Puts tagged reasoning before the text of a message. Reasoning that the text already begins with
/// is not repeated.
fn prepend_tagged(message: &Json, element: &ReasoningItem) -> Json {
    let tree = message.tree();
    if content_elements(tree.root()).iter().any(|known| readable(known) == readable(element)) {
        return message.clone();
    }
    let text = tree.root().get(CONTENT).and_then(Node::text).unwrap_or_default();
    let tagged = format!("<think>{}</think>{text}", readable(element));
    edit::with_member(message, CONTENT, json::string(&tagged))
}

/// Writes a thinking chunk before the other content of a message, after the chunks that were
/// written before it. The chunk replaces an equal chunk, or one that only lacks the signature.
fn write_chunk(message: &Json, element: &ReasoningItem) -> Json {
    let tree = message.tree();
    let content = tree.root().get(CONTENT);
    let parts = content.into_iter().flat_map(Node::elements).map(Node::json);
    let text = content.and_then(Node::text).filter(|text| !text.is_empty());
    let text = text.map(|text| object! { "type": "text", "text": &*text });
    let mut parts: Vec<Json> = parts.chain(text).collect();
    let signature = element.sealed().map(|(signature, _)| signature.reveal_to_tenant());
    let is_same = |part: &Json| {
        let part = part.tree();
        let own = part.root().text_of("signature").filter(|own| !own.is_empty());
        is_thinking_chunk(part.root())
            && chunk_text(part.root()) == readable(element)
            && own.is_none_or(|own| Some(&*own) == signature)
    };
    let chunk = chunk_json(element, signature);
    if let Some(known) = parts.iter_mut().find(|part| is_same(part)) {
        *known = chunk;
    } else {
        let is_later = |part: &Json| !is_thinking_chunk(part.tree().root());
        let at = parts.iter().position(is_later).unwrap_or(parts.len());
        parts.insert(at, chunk);
    }
    edit::with_member(message, CONTENT, json::array_of(&parts))
}

/// Returns the chunk of an element. The extras replace `thinking` only if they have the same text.
fn chunk_json(element: &ReasoningItem, signature: Option<&str>) -> Json {
    let text = readable(element);
    let extras = element.meta().map(|meta| &*meta.extras).unwrap_or_default();
    let of_chunk = |thinking: &Json| object! { "thinking": thinking };
    let thinking = extras.iter().find(|(key, _)| **key == *"thinking").map(|(_, value)| value);
    let thinking = thinking.filter(|thinking| chunk_text(of_chunk(thinking).tree().root()) == text);
    let thinking = thinking.cloned().unwrap_or_else(|| plain_thinking(text));
    let mut chunk = object! { "type": "thinking", "thinking": &thinking };
    if let Some(signature) = signature {
        chunk = edit::with_member(&chunk, "signature", json::string(signature));
    }
    for (key, value) in extras.iter().filter(|(key, _)| **key != *"thinking") {
        chunk = edit::with_member(&chunk, key.to_string(), value.clone());
    }
    chunk
}

/// Signs the call with the element's id, or the message if no call has this id.
fn sign_call(message: &Json, element: &ReasoningItem) -> Json {
    let ReasoningItem::Encrypted { meta, data } = element else { return message.clone() };
    let seal = |holder: &Json| {
        let google = object! { "google": { "thought_signature": data.reveal_to_tenant() } };
        edit::with_member(holder, EXTRA_CONTENT, google)
    };
    let tree = message.tree();
    let calls = tree.root().get(CALLS);
    let mut named = calls.into_iter().flat_map(Node::elements);
    match named.find(|call| meta.id.is_some() && call.name_of("id") == meta.id) {
        Some(call) => message.with_value_at(call.range(), &seal(&call.json())),
        None => seal(message),
    }
}
