//! The storage format of Items: one JSON text per Item, from which an equal Item is restored.
//!
//! # References
//! The native JSON is embedded verbatim, and content that it already contains is referenced:
//!
//! ```json
//! {"v":1,"at":[3,0],"role":"assistant",
//!  "thought":{"text":["/thinking"],"format":"anthropic-claude-v1"},
//!  "seals":[{"at":"/signature","format":"anthropic.signature"}],
//!  "origin":["anthropic","https://…",…],
//!  "to":"anthropic-messages","cut":{"of":2,"before":"{\"role\":\"assistant\",\"content\":["},
//!  "json":{"type":"thinking","thinking":"…","signature":"…"}}
//! ```
//!
//! | member | content |
//! |---|---|
//! | `v` | format version: 1 |
//! | `id`, `at`, `role`, `ephemeral` | Item id (default: derived from `at`), `[message, part]`, role |
//! | `text` … `unknown` | exactly one body: see below |
//! | `seals` | list of Seals: see below |
//! | `origin` | `[provider, endpoint, account, asked, family, answered, wire, routed]` |
//! | `author` | the agent whose model produced the Item, like a Thought's `identity` |
//! | `to` or `by` | wire of a request part (`to`) or a response part (`by`) |
//! | `json`, `native_id`, `slot`, `assembled` | the native JSON, verbatim, and its properties |
//! | `cut` | the Item's share of its message |
//!
//! - The **body** is one of `text`, `media`, `thought`, `call`, `result`, `hosted`, `compaction`,
//!   `summary` and `unknown`.
//! - A **Seal** has `at`, `leads`, `format`, `bytes` (default: the string at `at`), `owner`
//!   (default: the Item's origin) and its binding.
//! - In an **origin**, trailing `null`s are omitted. A `null` in `answered` means the requested
//!   model, and a `null` in `wire` means the wire of the native JSON.
//! - An **identity** has `identifier` (or `number`) and `representation`.
//! - A **text** is a string or a reference: `[pointer]` for a string in `json`, or `[pointer, from,
//!   to]` for a byte range of that string (default for `to`: the end). A text can also be
//!   `{"joined": […]}` for a concatenation of strings and references, or `{"hex": …}` for bytes
//!   that are not UTF-8.
//! - A **value** is `[pointer]`, `{"in": pointer}` for JSON inside a string of `json`, or
//!   `{"is": value}`.
//!
//! # Messages
//! The Items of one message share their [`Envelope`](crate::Envelope). Each Item stores the bytes
//! between the previous part and its own. The last Item also stores the bytes after its part. In
//! `cut`:
//!
//! - `of` is the number of Items in the message, and `part` is the index of this Item (defaults: 1
//!   and 0).
//! - `first` is the id of the first Item (default: the id of part 0 of the message).
//! - `stands` is the position of the part in the message, if it differs from `part`.
//!
//! Erasing an Item's text therefore erases all of the Item's content, and the other Items of the
//! message are restored without an envelope. If a message does not consist of its Items' parts, or
//! repeats their content between the parts, the first Item stores the message as `whole`. For such
//! an Item, [`holds_siblings`] is true, and [`without_siblings`] must be applied when a sibling is
//! erased.

use bytes::Bytes;
use throughline_json::{self as json, Fields, InvalidDocument, Json, Name, Tree};

use crate::item::Item;

mod back_refs;
mod message_split;
mod read;
mod write;

/// The version of the storage format. Other versions are rejected.
const VERSION: u64 = 1;

/// The stored form of one Item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// The JSON text to store.
    pub json: Json,
    /// Whether the text also contains content of other Items; see [`without_siblings`].
    pub holds_siblings: bool,
}

/// Returns the stored text of each Item, in order. Pass all Items of a message together, because an
/// Item that is stored alone includes the whole message.
pub fn store_items(items: &[Item]) -> Vec<StoredItem> {
    let cuts = message_split::plan_shares(items);
    let stored = items.iter().zip(cuts).map(|(item, cut)| StoredItem {
        json: write::item(item, cut.as_ref()),
        holds_siblings: cut.is_some_and(|cut| cut.holds_siblings()),
    });
    stored.collect()
}

/// Restores Items from their stored texts, in order. `None` stands for an erased Item. The native
/// JSON of each Item stays a slice of the given bytes.
pub fn restore_items(
    stored: impl IntoIterator<Item = Option<Bytes>>,
) -> Result<Vec<Item>, InvalidDocument> {
    let mut items = Vec::new();
    let mut reader = read::StoredItemReader::default();
    let mut messages = message_split::MessageAssembler::default();
    for (number, text) in stored.into_iter().enumerate() {
        let Some(text) = text else {
            messages.reset();
            continue;
        };
        let path = format!("stored[{number}]");
        let tree = Tree::parse(text).map_err(|error| InvalidDocument {
            field: Name::from(&*path),
            problem: format!("is not JSON: {error}").into(),
        })?;
        let fields = Fields::from_node(tree.root(), path)?;
        let item = reader.item(&fields)?;
        let piece = message_split::read(&fields, &item)?;
        items.push(item);
        messages.push(piece, &mut items, &fields)?;
    }
    Ok(items)
}

/// Whether a stored text also contains content of other Items in the same message.
pub fn holds_siblings(stored: &Json) -> bool {
    let tree = stored.tree();
    tree.root().present(message_split::KEY).is_some_and(message_split::is_whole_of_many)
}

/// Removes the whole message, and with it the content of the sibling Items, from a stored text. The
/// message's Items are then restored without an envelope.
#[must_use]
pub fn without_siblings(stored: &Json) -> Json {
    let tree = stored.tree();
    if !tree.root().is_object() {
        return stored.clone();
    }
    json::object(|out| {
        for (key, value) in tree.root().members().filter(|(key, _)| !key.is(message_split::KEY)) {
            out.node(&key.text().unwrap_or_default(), value);
        }
    })
}

#[cfg(test)]
#[path = "item_json/stored_tests.rs"]
mod item_json_tests;
#[cfg(test)]
#[path = "item_json/made_tests.rs"]
mod random_item_tests;
