//! Formats log records for display: Seals are replaced by their size, and secrets are redacted.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_codec::shorten_opaque_words;
use throughline_core::{Body, Item, Part, Record, Seal, kind, restore_items, unpack_events};
use throughline_json::{self as json, Json, Node, SyntaxError, Tree};
use throughline_spec::RedactionPolicy;

use crate::cmd::show::role_word;
use crate::config;
use crate::print::failure::{Failure, Result};
use crate::print::mask::{masks, replace_ranges};
use crate::print::text::{compact, size};

const READABLE: [&str; 8] =
    ["text", "content", "thinking", "reasoning", "summary", "refusal", "arguments", "message"];

/// Maximum nesting depth of JSON documents inside strings. For deeper documents, only the size is
/// shown.
const DEEPEST: usize = 4;

/// Number of bytes after which no more text is collected for an excerpt.
const ENOUGH: usize = 1000;

/// Summary of a record for text output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordSummary {
    /// Item id for use with `throughline forget`; empty if the record has no Item id.
    pub(crate) id: String,
    /// Role and kind, such as `assistant thought`; empty if unknown.
    pub(crate) label: String,
    pub(crate) text: String,
    /// Sizes of the record's Seals in bytes.
    pub(crate) seals: Vec<usize>,
}

enum DisplayContent {
    Json(Json),
    /// Content that is text but not JSON.
    Text(String),
    Binary,
}

impl DisplayContent {
    fn into_json(self) -> Json {
        match self {
            Self::Json(document) => document,
            Self::Text(text) => json::string(&text),
            Self::Binary => Json::null(),
        }
    }
}

/// Describes a record. The summary of erased content is empty. JSON is described by its well-known
/// fields.
pub(crate) fn describe(record: &Record, policy: &RedactionPolicy) -> RecordSummary {
    if *record.kind == *kind::EVENTS {
        let range = record.events.map(|(first, last)| match last - first {
            0 => format!("event {first}"),
            _ => format!("events {first} to {last}"),
        });
        return RecordSummary { label: range.unwrap_or_default(), ..RecordSummary::default() };
    }
    let Some(content) = record.content.bytes() else { return RecordSummary::default() };
    if *record.kind == *kind::ITEM
        && let Ok(items) = restore_items([Some(content.clone())])
        && let [item] = items.as_slice()
    {
        return describe_item(item, policy);
    }
    match shown(&record.kind, content, policy) {
        (DisplayContent::Json(document), seals) => {
            let tree = document.tree();
            let root = tree.root();
            let kind = root.text_of("kind").or_else(|| root.text_of("type"));
            let labels: Vec<_> = [root.text_of("role"), kind].into_iter().flatten().collect();
            let is_item = *record.kind == *kind::ITEM;
            let id = root.text_of("id").filter(|_| is_item).unwrap_or_default().into_owned();
            let text = match (readable(root), root.get("role")) {
                (text, _) if !text.is_empty() => text,
                (_, Some(_)) => remaining_members(root),
                (_, None) => compact(document.as_str()),
            };
            RecordSummary { id, label: labels.join(" "), text, seals }
        }
        (DisplayContent::Text(text), seals) => {
            RecordSummary { text, seals, ..RecordSummary::default() }
        }
        (DisplayContent::Binary, seals) => RecordSummary { seals, ..RecordSummary::default() },
    }
}

fn describe_item(item: &Item, policy: &RedactionPolicy) -> RecordSummary {
    let role = role_word(item.role);
    let (kind, text) = match &item.body {
        Body::Text(text) => ("", text.to_string()),
        Body::Thought(thought) => ("thought", policy.redact_thought(&thought.content).into_owned()),
        Body::Media(_) => ("media", String::new()),
        Body::Call(call) => ("call", format!("{} {}", call.name, call.args.as_str())),
        Body::Result(result) => {
            let parts = result.parts.iter().map(|part| match part {
                Part::Text(text) => text,
                Part::Value(value) => value.as_str(),
                Part::Media(_) => "media",
                Part::Unknown(..) => "…",
            });
            ("result", parts.collect::<Vec<&str>>().join(" "))
        }
        Body::Hosted(hosted) => ("hosted", format!("{} {}", hosted.name, hosted.visible)),
        Body::Compaction => ("compaction", String::new()),
        Body::Summary { text, .. } => ("summary", text.to_string()),
        Body::Unknown => ("unknown", String::new()),
    };
    let label = if kind.is_empty() { role.to_owned() } else { format!("{role} {kind}") };
    let text = shorten_opaque_words(&policy.redact_text(&text));
    let seals = item.seals.iter().map(Seal::len).collect();
    RecordSummary { id: item.id.to_string(), label, text, seals }
}

/// Returns the displayable content of a record and the sizes of its Seals. Redaction runs before
/// masking, so that redaction patterns are matched against the whole text.
fn shown(kind: &str, content: &Bytes, policy: &RedactionPolicy) -> (DisplayContent, Vec<usize>) {
    let content = policy.redact_record(kind, content).unwrap_or_else(|| content.clone());
    masked(&content)
}

/// Masks the Seals in redacted content. Returns the masked content and the sizes of the Seals.
fn masked(content: &Bytes) -> (DisplayContent, Vec<usize>) {
    let mut seals = Vec::new();
    if let Ok(document) = Json::parse(content.clone()) {
        let veiled = mask_document(&document, DEEPEST, &mut seals);
        return (DisplayContent::Json(veiled), seals);
    }
    match std::str::from_utf8(content) {
        Ok(text) => (DisplayContent::Text(shorten_opaque_words(text)), seals),
        Err(_) => (DisplayContent::Binary, seals),
    }
}

/// Writes the content of a record as the JSON field `content`.
pub(crate) fn put_content(o: &mut json::Object<'_>, record: &Record, policy: &RedactionPolicy) {
    let Some(content) = record.content.bytes() else { return };
    if *record.kind == *kind::EVENTS {
        o.array("content", |list| {
            for (_, event) in unpack_events(record).unwrap_or_default() {
                let event = match Json::parse(event.clone()) {
                    Ok(json) => policy.redact_stored_event(&json).bytes().clone(),
                    Err(_) => policy.redact_record("", &event).unwrap_or(event),
                };
                list.raw(&masked(&event).0.into_json());
            }
        });
        return;
    }
    o.raw("content", &shown(&record.kind, content, policy).0.into_json());
}

/// Masks Seals and unreadable values in a document, including JSON documents inside strings.
fn mask_document(document: &Json, deepest: usize, seals: &mut Vec<usize>) -> Json {
    let tree = document.tree();
    let masks = masks(&tree);
    seals.extend(masks.iter().filter_map(|mask| mask.sealed));
    let edits = masks.iter().map(|mask| (mask.range.clone(), mask.shown.clone()));
    let mut edits: Vec<(Range<usize>, String)> = edits.collect();
    let mut waiting = vec![tree.root()];
    while let Some(node) = waiting.pop() {
        waiting.extend(node.elements());
        waiting.extend(node.members().map(|(_, value)| value));
        let range = node.range();
        let is_masked =
            || masks.binary_search_by_key(&range.start, |mask| mask.range.start).is_ok();
        if let Some(text) = node.text().filter(|_| !is_masked())
            && let Some(shown) = mask_text(&text, deepest, seals)
        {
            edits.push((range, json::string(&shown).as_str().to_owned()));
        }
    }
    if edits.is_empty() {
        return document.clone();
    }
    edits.sort_by_key(|(range, _)| range.start);
    // Each edit replaces a string with a string, so the result is still JSON.
    Json::parse(replace_ranges(document.as_str(), edits)).unwrap_or_else(|_| Json::null())
}

/// Returns the replacement for a string value, or `None` if the value can be shown unchanged.
fn mask_text(text: &str, deepest: usize, seals: &mut Vec<usize>) -> Option<String> {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(inner) = Json::parse(text.to_owned())
    {
        if deepest == 0 {
            return Some(format!("‹{}›", size(text.len())));
        }
        let shown = mask_document(&inner, deepest - 1, seals);
        return (shown.as_str() != inner.as_str()).then(|| shown.as_str().to_owned());
    }
    let shown = shorten_opaque_words(text);
    (shown != text).then_some(shown)
}

/// Collects the text of readable fields, such as `text` and `content`, in document order.
fn readable(root: Node<'_>) -> String {
    let mut text = String::new();
    let mut waiting: Vec<(Node<'_>, bool)> = vec![(root, false)];
    while let Some((node, is_read)) = waiting.pop() {
        if text.len() > ENOUGH {
            break;
        }
        if let Some(value) = node.text().filter(|value| is_read && !value.trim().is_empty()) {
            text.push_str(if text.is_empty() { "" } else { " " });
            text.push_str(&value);
        }
        let elements = node.elements().map(|element| (element, is_read));
        let is_readable = |name: Node<'_>| READABLE.iter().any(|known| name.is(known));
        let members = node.members().map(|(name, value)| (value, is_readable(name)));
        let inner: Vec<(Node<'_>, bool)> = elements.chain(members).collect();
        waiting.extend(inner.into_iter().rev());
    }
    text
}

/// Lists the field values of an Item that has no text. Fields that are shown elsewhere are omitted.
fn remaining_members(root: Node<'_>) -> String {
    const DESCRIBED: [&str; 4] = ["id", "role", "kind", "type"];
    let others = root.members().filter(|(name, _)| !DESCRIBED.iter().any(|known| name.is(known)));
    let values = others.map(|(_, value)| match value.text() {
        Some(text) => text.into_owned(),
        None => compact(value.json().as_str()),
    });
    values.collect::<Vec<_>>().join(" ")
}

/// Returns the redaction policy in `file`. Without `file`, returns the configured policy.
pub(crate) fn policy(file: Option<&PathBuf>, config: Option<&Path>) -> Result<RedactionPolicy> {
    let Some(file) = file else {
        return Ok(config::load(config)?.redaction.unwrap_or_default());
    };
    let name = file.display();
    let bytes = std::fs::read(file)
        .map_err(|error| Failure::unreadable(&format!("cannot read {name}"), &error))?;
    let tree = Tree::parse(bytes).map_err(|error| {
        let SyntaxError { line, column, what, .. } = error;
        Failure::BadData(format!("{name}:{line}:{column}: not JSON: {what}"))
    })?;
    RedactionPolicy::parse(&tree.root().json())
        .map_err(|error| Failure::BadData(format!("{name}: {error}")))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod record_tests;
