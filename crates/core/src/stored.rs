//! Items as a store keeps them: one JSON text for each, written once, read back to an equal Item.
//!
//! # Said once
//! What the wire said is embedded as it is, and what it says already is pointed at:
//!
//! ```json
//! {"v":1,"at":[3,0],"role":"assistant","thought":{"text":["/thinking"],"format":"anthropic-claude-v1"},
//!  "seals":[{"at":"/signature","format":"anthropic.signature"}],"origin":["anthropic","https://…",…],
//!  "to":"anthropic-messages","cut":{"of":2,"before":"{\"role\":\"assistant\",\"content\":["},
//!  "json":{"type":"thinking","thinking":"…","signature":"…"}}
//! ```
//!
//! | member | says |
//! |---|---|
//! | `v` | the version of this form: 1 |
//! | `id`, `at`, `role`, `ephemeral` | the Item's id (absent: the one that its place gives), `[message, part]`, who speaks |
//! | `text`, `media`, `thought`, `call`, `result`, `hosted`, `compaction`, `summary`, `unknown` | its body: exactly one of these |
//! | `seals` | `at`, `leads`, `format`; `bytes` (absent: the string at `at`); `owner` (absent: the Item's origin); what it is bound to |
//! | `origin` | `[provider, endpoint, account, asked, family, answered, wire, routed]`; `null` at the end is left out, `null` in `answered` is the model asked for, in `wire` the native one's |
//! | `author` | the agent whose model answered with it: `identifier` (or `number`) and `representation`, as in a thought's `identity` |
//! | `to` or `by` | the wire on which it was said to a model or by one |
//! | `json`, `native_id`, `slot`, `assembled` | what the wire said, verbatim, and what is known of it |
//! | `cut` | how to put the message together again that the Item was cut from |
//!
//! A **text** is a string, or `[pointer]` where `json` has it, `[pointer, from, to]` where it is a stretch of a string there
//! (bytes; without `to`, up to the end), `{"joined": […]}` where it is made of such, or `{"hex": …}` where it is no text at all.
//! A **value** is `[pointer]`, `{"in": pointer}` where it is the text of a string in `json`, or `{"is": value}`.
//!
//! # Messages
//! Items of one message share their [`Envelope`](crate::Envelope). Each keeps the bytes between the part before it and itself; the one that stands
//! last keeps the rest, too. `of` tells how many there are, `part` which of them this is (absent: 1 and 0), `first` the id of the first (absent: the id
//! that part 0 of its message has), `stands` where its part stands in the message if that is another place. So to destroy one Item's text is to destroy all of its content, and the others read on without
//! an envelope. Where a message is not made of its Items' parts, or repeats their content between them, it is kept `whole` with the
//! first Item: that text then [`holds_siblings`], and must give them up ([`without_siblings`]) when one of them is forgotten.

use bytes::Bytes;

use crate::document::{Fields, InvalidDocument};
use crate::item::Item;
use crate::json::{self, Json, Tree};
use crate::name::Name;

mod cut;
mod read;
mod said;
mod words;
mod write;

/// The version of the form that is written, and the only one that is read.
const VERSION: u64 = 1;

/// One Item as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// The text to keep.
    pub json: Json,
    /// Whether the text also holds what other Items of its message say: see [`without_siblings`].
    pub holds_siblings: bool,
}

/// The texts of Items, in their order. Items of one message are best stored together: one that comes alone keeps the whole
/// message.
pub fn store_items(items: &[Item]) -> Vec<StoredItem> {
    let cuts = cut::plan(items);
    let stored = items.iter().zip(cuts).map(|(item, cut)| StoredItem {
        json: write::item(item, cut.as_ref()),
        holds_siblings: cut.is_some_and(|cut| cut.holds_siblings()),
    });
    stored.collect()
}

/// The Items that were stored as these texts, given in the same order; nothing stands for one that was forgotten. What the
/// wire said stays a slice of the given bytes.
pub fn restore_items(
    stored: impl IntoIterator<Item = Option<Bytes>>,
) -> Result<Vec<Item>, InvalidDocument> {
    let mut items = Vec::new();
    let mut reader = read::Reader::default();
    let mut messages = cut::Messages::default();
    for (number, text) in stored.into_iter().enumerate() {
        let Some(text) = text else {
            messages.interrupt();
            continue;
        };
        let path = format!("stored[{number}]");
        let tree = Tree::parse(text).map_err(|error| InvalidDocument {
            field: Name::from(&*path),
            problem: format!("is not JSON: {error}").into(),
        })?;
        let fields = Fields::of(tree.root(), path)?;
        let item = reader.item(&fields)?;
        let piece = cut::read(&fields, &item)?;
        items.push(item);
        messages.push(piece, &mut items, &fields)?;
    }
    Ok(items)
}

/// Whether a stored text also holds what other Items of its message say.
pub fn holds_siblings(stored: &Json) -> bool {
    let tree = stored.tree();
    tree.root().present(cut::KEY).is_some_and(cut::is_whole_of_many)
}

/// The stored text without the message that it was cut from, and so without what its siblings say. None of them has an
/// envelope then.
#[must_use]
pub fn without_siblings(stored: &Json) -> Json {
    let tree = stored.tree();
    if !tree.root().is_object() {
        return stored.clone();
    }
    json::object(|out| {
        for (key, value) in tree.root().members().filter(|(key, _)| !key.is(cut::KEY)) {
            out.node(&key.text().unwrap_or_default(), value);
        }
    })
}

#[cfg(test)]
#[path = "stored/made_tests.rs"]
mod made_tests;
#[cfg(test)]
#[path = "stored/stored_tests.rs"]
mod stored_tests;
