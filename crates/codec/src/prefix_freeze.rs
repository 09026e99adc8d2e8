//! Compares and restores the request prefix that Seals are bound to.

use std::ops::Range;

use bytes::Bytes;
use throughline_json::{Node, Tree};

use crate::Codec;
use crate::audit::prefix_change::{differs, member};

/// Returns the path of the first prefix element whose meaning differs between the two requests, for
/// example `system` or `tools.3`. Messages appended to the conversation do not count as a change.
pub fn first_prefix_change(codec: &dyn Codec, before: &Bytes, now: &Bytes) -> Option<String> {
    let (before, now) = (Tree::parse(before.clone()).ok()?, Tree::parse(now.clone()).ok()?);
    let mut names = codec.prefix_members().iter();
    names.find_map(|name| differs(name, before.root(), now.root())).map(|(element, _)| element)
}

/// Replaces the system prompt and tools in `now` with their bytes in `before` where they are equal
/// as JSON. Returns `None` if there is nothing to replace.
pub fn restore_prefix_bytes(codec: &dyn Codec, before: &Bytes, now: &Bytes) -> Option<Bytes> {
    let (was, is) = (Tree::parse(before.clone()).ok()?, Tree::parse(now.clone()).ok()?);
    let (_, instructions) = codec.prefix_members().split_last()?;
    let mut edits: Vec<(Range<usize>, Node<'_>)> = Vec::new();
    for name in instructions {
        let (Some(was), Some(is)) = (member(was.root(), name), member(is.root(), name)) else {
            continue;
        };
        if was.raw() != is.raw() && was.canonical() == is.canonical() {
            edits.push((is.range(), was));
        }
    }
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|(place, _)| place.start);
    let (mut body, mut copied) = (Vec::with_capacity(now.len()), 0);
    for (place, was) in edits {
        body.extend_from_slice(now.get(copied..place.start)?);
        body.extend_from_slice(was.raw());
        copied = place.end;
    }
    body.extend_from_slice(now.get(copied..)?);
    Some(Bytes::from(body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::AnthropicMessages;

    fn freeze(before: &'static str, now: &'static str) -> Option<String> {
        let frozen =
            restore_prefix_bytes(&AnthropicMessages, &Bytes::from(before), &Bytes::from(now));
        frozen.map(|body| String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn equal_json_is_sent_in_its_earlier_bytes() {
        let before = r#"{"system": "Be kind.", "tools":[{"name":"a","input_schema":{"type":"object"}}],"messages":[]}"#;
        let now = r#"{"messages":[ 1 ],"tools":[{"input_schema":{"type":"object"}, "name":"a"}],"system":"Be kind."}"#;
        assert_eq!(
            freeze(before, now).unwrap(),
            r#"{"messages":[ 1 ],"tools":[{"name":"a","input_schema":{"type":"object"}}],"system":"Be kind."}"#
        );
        assert_eq!(freeze(before, before), None);
    }

    #[test]
    fn different_json_is_left_unchanged() {
        let before = r#"{"system":"Be kind.","tools":[1,2],"messages":[]}"#;
        let now = r#"{"system":"Be brief.","tools":[1, 2],"messages":[]}"#;
        assert_eq!(
            freeze(before, now).unwrap(),
            r#"{"system":"Be brief.","tools":[1,2],"messages":[]}"#
        );
        assert_eq!(freeze(r#"{"system":"a","messages":[]}"#, r#"{"messages":[]}"#), None);
        assert_eq!(freeze("no JSON", now), None);
    }

    #[test]
    fn first_prefix_change_returns_the_element_path() {
        let change = |now: &'static str| {
            let before = r#"{"system":"Be kind.","tools":[{"name":"a"}],"messages":[{"role":"user","content":"1"}]}"#;
            first_prefix_change(&AnthropicMessages, &Bytes::from(before), &Bytes::from(now))
        };
        assert_eq!(
            change(
                r#"{"system":"Be kind.","tools":[{"name":"a"}],"messages":[{"role":"user","content":"1"},{"role":"user","content":"2"}]}"#
            ),
            None
        );
        assert_eq!(
            change(r#"{"system":"Be brief.","tools":[{"name":"a"},{"name":"b"}],"messages":[]}"#)
                .as_deref(),
            Some("tools.1")
        );
        assert_eq!(
            change(r#"{"system":"Be brief.","tools":[{"name":"a"}],"messages":[]}"#).as_deref(),
            Some("system")
        );
    }
}
