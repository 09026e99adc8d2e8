//! Masks values in a request that must not be printed: Seals and other long unreadable values.
//!
//! An excerpt shows only the length of a Seal: `"‹seal 344 B›"`. Seals are recognised by field name
//! on every wire; long base64 values are masked under any name.

use std::ops::Range;

use throughline_codec::Catalog;
use throughline_json::{Node, Tree};

use crate::print::text::{plain, size};

/// Length in bytes above which a base64 value is masked.
const LONG: usize = 80;

/// The byte range of a value to hide, with its replacement text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    pub(crate) range: Range<usize>,
    pub(crate) shown: String,
    /// Size in bytes if the value is a Seal, else `None`.
    pub(crate) sealed: Option<usize>,
}

/// Finds the values in a document that must not be printed, in document order.
pub(crate) fn masks(tree: &Tree) -> Vec<Mask> {
    let mut masks = Vec::new();
    let mut waiting = vec![tree.root()];
    while let Some(node) = waiting.pop() {
        for element in node.elements() {
            masks.extend(mask("", None, element));
            waiting.push(element);
        }
        let kind = node.text_of("type");
        for (name, value) in node.members() {
            if value.is_string() {
                masks.extend(mask(&name.text().unwrap_or_default(), kind.as_deref(), value));
            } else {
                waiting.push(value);
            }
        }
    }
    masks.sort_by_key(|mask| mask.range.start);
    masks
}

/// Masks a JSON text. Other text is returned unchanged.
pub(crate) fn masked(text: &str) -> String {
    let Ok(tree) = Tree::parse(text.to_owned()) else { return text.to_owned() };
    replace_ranges(text, masks(&tree).into_iter().map(|mask| (mask.range, mask.shown)))
}

/// Replaces byte ranges of a text. The ranges must be in text order.
pub(crate) fn replace_ranges(
    text: &str,
    edits: impl IntoIterator<Item = (Range<usize>, String)>,
) -> String {
    let (mut output, mut copied) = (String::with_capacity(text.len()), 0);
    for (range, replacement) in edits {
        output.push_str(text.get(copied..range.start).unwrap_or_default());
        output.push_str(&replacement);
        copied = range.end;
    }
    output.push_str(text.get(copied..).unwrap_or_default());
    output
}

/// Returns the mask for the string field `name` in an object of type `kind`; `None` if the value
/// may be printed.
fn mask(name: &str, kind: Option<&str>, value: Node<'_>) -> Option<Mask> {
    let text = value.text().filter(|text| !text.is_empty())?;
    let bytes = size(text.len());
    let sealed = (is_sealed(name, kind) && !is_documented_placeholder(&text)).then_some(text.len());
    let replacement = if sealed.is_some() {
        format!("seal {bytes}")
    } else if let Some((head, _)) = text.split_once(";base64,").filter(|_| text.len() > LONG) {
        format!("{} {bytes}", plain(head))
    } else if text.len() > LONG && text.bytes().all(is_base64) {
        bytes
    } else {
        return None;
    };
    Some(Mask { range: value.range(), shown: format!("\"‹{replacement}›\""), sealed })
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

/// Returns whether a value is a documented placeholder for a signature. Placeholders are not
/// secret.
fn is_documented_placeholder(text: &str) -> bool {
    let rows = Catalog::builtin().profiles();
    rows.iter().any(|row| row.stand_in.as_deref() == Some(text))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod mask_tests;
