//! What may not be printed of a request: seals, and other long values that nobody can read.
//!
//! A seal stands in an excerpt by its length, `"‹seal 344 B›"`. It is known by the name of its member, on whichever wire;
//! what is long and looks like base64 is left out whatever its name.

use std::ops::Range;

use throughline_codec::Catalog;
use throughline_core::{Node, Tree};

use crate::text::size;

/// From this many letters on, a value that looks like base64 is not read by people.
const LONG: usize = 80;

/// A value that is not shown as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    /// Its place, quotes included.
    pub(crate) place: Range<usize>,
    /// What is shown instead.
    pub(crate) shown: String,
    /// How many bytes it has, if it is a seal.
    pub(crate) sealed: Option<usize>,
}

/// The values of a document that may not be printed, in the order of the text.
pub(crate) fn masks(tree: &Tree) -> Vec<Mask> {
    let mut found = Vec::new();
    let mut waiting = vec![tree.root()];
    while let Some(node) = waiting.pop() {
        for element in node.elements() {
            found.extend(mask("", None, element));
            waiting.push(element);
        }
        let kind = node.text_of("type");
        for (name, value) in node.members() {
            if value.is_string() {
                found.extend(mask(&name.text().unwrap_or_default(), kind.as_deref(), value));
            } else {
                waiting.push(value);
            }
        }
    }
    found.sort_by_key(|mask| mask.place.start);
    found
}

/// A JSON text in which everything that may not be printed is masked; any other text as it is.
pub(crate) fn masked(text: &str) -> String {
    let Ok(tree) = Tree::parse(text.to_owned()) else { return text.to_owned() };
    let (mut shown, mut copied) = (String::with_capacity(text.len()), 0);
    for mask in masks(&tree) {
        shown.push_str(text.get(copied..mask.place.start).unwrap_or_default());
        shown.push_str(&mask.shown);
        copied = mask.place.end;
    }
    shown.push_str(text.get(copied..).unwrap_or_default());
    shown
}

/// How the string `value` is shown as the member `name` of an object of that `kind`, unless it is shown as it is.
fn mask(name: &str, kind: Option<&str>, value: Node<'_>) -> Option<Mask> {
    let text = value.text().filter(|text| !text.is_empty())?;
    let bytes = size(text.len());
    let sealed = (is_sealed(name, kind) && !is_stand_in(&text)).then_some(text.len());
    let what = if sealed.is_some() {
        format!("seal {bytes}")
    } else if let Some((head, _)) = text.split_once(";base64,").filter(|_| text.len() > LONG) {
        format!("{} {bytes}", crate::text::plain(head))
    } else if text.len() > LONG && text.bytes().all(is_base64) {
        bytes
    } else {
        return None;
    };
    Some(Mask { place: value.range(), shown: format!("\"‹{what}›\""), sealed })
}

fn is_sealed(name: &str, kind: Option<&str>) -> bool {
    name.ends_with("ignature")
        || name.starts_with("encrypted")
        || name.starts_with("redacted")
        || name == "fingerprint"
        || name == "data"
            && kind.is_some_and(|kind| kind.contains("redacted") || kind.contains("encrypted"))
        || name == "content" && kind == Some("compaction")
}

/// Whether it is a value that a provider documents in place of a signature: public words, and worth seeing.
fn is_stand_in(text: &str) -> bool {
    let rows = Catalog::builtin().profiles();
    rows.iter().any(|row| row.stand_in.as_deref() == Some(text))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod mask_tests;
