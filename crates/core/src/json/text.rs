//! Strings inside JSON text: reading escapes and writing them.

use std::borrow::Cow;

/// The value of a string, given the bytes between its quotes. A lone surrogate, which JSON can write and
/// Unicode cannot hold, reads as U+FFFD; the verbatim text still has it.
pub(super) fn unescape(inner: &[u8], escaped: bool) -> Cow<'_, str> {
    if !escaped {
        return String::from_utf8_lossy(inner);
    }
    let mut value = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(slash) = memchr::memchr(b'\\', rest) {
        let (plain, after) = rest.split_at(slash);
        value.push_str(&String::from_utf8_lossy(plain));
        rest = escape(after, &mut value);
    }
    value.push_str(&String::from_utf8_lossy(rest));
    Cow::Owned(value)
}

/// Reads the escape that `text` begins with and answers what is left.
fn escape<'t>(text: &'t [u8], value: &mut String) -> &'t [u8] {
    let Some((code, rest)) = text.get(1).copied().zip(text.get(2..)) else { return &[] };
    let plain = match code {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => return unicode_escape(rest, value),
        other => char::from(other),
    };
    value.push(plain);
    rest
}

fn unicode_escape<'t>(text: &'t [u8], value: &mut String) -> &'t [u8] {
    let (Some(first), Some(rest)) = (hex4(text), text.get(4..)) else { return &[] };
    if (0xD800..0xDC00).contains(&first) && rest.starts_with(b"\\u") {
        let second = rest.get(2..).and_then(hex4).filter(|unit| (0xDC00..0xE000).contains(unit));
        if let (Some(second), Some(after)) = (second, rest.get(6..)) {
            let point = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            value.push(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
            return after;
        }
    }
    value.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    rest
}

pub(super) fn hex4(text: &[u8]) -> Option<u32> {
    text.get(..4)?
        .iter()
        .try_fold(0, |unit, byte| char::from(*byte).to_digit(16).map(|digit| (unit << 4) | digit))
}

/// Writes `value` between quotes, escaping only what JSON demands.
pub(super) fn push_quoted(out: &mut Vec<u8>, value: &str) {
    out.reserve(value.len() + 2);
    out.push(b'"');
    let mut rest = value.as_bytes();
    while let Some(stop) = rest.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\') {
        let (plain, tail) = rest.split_at(stop);
        out.extend_from_slice(plain);
        let Some((special, after)) = tail.split_first() else { break };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            other => out.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
