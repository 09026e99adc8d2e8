//! Strings inside JSON text: reading escapes and writing them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// The value of a string, given the bytes between its quotes. A lone surrogate, which JSON can write and
/// Unicode cannot hold, reads as U+FFFD; the verbatim text still has it.
pub(super) fn unescape(inner: &[u8], escaped: bool) -> Cow<'_, str> {
    if !escaped {
        return Cow::Borrowed(checked(inner));
    }
    Cow::Owned(with_unescaped(inner, |value| checked(value).to_owned()))
}

/// The value of a string as shared text, copied once.
pub(super) fn shared(inner: &[u8], escaped: bool) -> Arc<str> {
    if !escaped {
        return Arc::from(checked(inner));
    }
    with_unescaped(inner, |value| Arc::from(checked(value)))
}

/// Reads the escapes of a string into memory that is kept from one string to the next, and hands out the value.
pub(super) fn with_unescaped<T>(inner: &[u8], take: impl FnOnce(&[u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|value| {
        value.clear();
        unescape_into(inner, value);
        let taken = take(value);
        value.shrink_to(1 << 20);
        taken
    })
}

/// Text that is known to be UTF-8, because the whole text was checked and escapes make whole characters.
fn checked(bytes: &[u8]) -> &str {
    simdutf8::basic::from_utf8(bytes).unwrap_or_default()
}

/// The first quote or backslash. Escapes often stand close together in prose and in code, so the first few words of eight
/// bytes are looked at in place; only a longer run is worth the start of a wide search.
pub(super) fn find_special(text: &[u8]) -> Option<usize> {
    const NEAR: usize = 8;
    let has = |word: u64, byte: u8| {
        let zeroed = word ^ (u64::from(byte) * 0x0101_0101_0101_0101);
        zeroed.wrapping_sub(0x0101_0101_0101_0101) & !zeroed & 0x8080_8080_8080_8080
    };
    let (words, _) = text.as_chunks::<8>();
    for (at, word) in words.iter().take(NEAR).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = has(word, b'"') | has(word, b'\\');
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let near = words.len().min(NEAR) * 8;
    let far = memchr::memchr2(b'"', b'\\', text.get(near..)?)?;
    Some(near + far)
}

fn unescape_into(inner: &[u8], value: &mut Vec<u8>) {
    let mut rest = inner;
    // No quote stands inside a string but behind a backslash.
    while let Some(slash) = find_special(rest) {
        let (plain, after) = rest.split_at(slash);
        value.extend_from_slice(plain);
        rest = escape(after, value);
    }
    value.extend_from_slice(rest);
}

/// Reads the escape that `text` begins with and answers what is left.
fn escape<'t>(text: &'t [u8], value: &mut Vec<u8>) -> &'t [u8] {
    let Some((code, rest)) = text.get(1).copied().zip(text.get(2..)) else { return &[] };
    let plain = match code {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0c,
        b'u' => return unicode_escape(rest, value),
        other => other,
    };
    value.push(plain);
    rest
}

fn unicode_escape<'t>(text: &'t [u8], value: &mut Vec<u8>) -> &'t [u8] {
    let (Some(first), Some(mut rest)) = (hex4(text), text.get(4..)) else { return &[] };
    let mut point = first;
    if (0xD800..0xDC00).contains(&first) && rest.starts_with(b"\\u") {
        let second = rest.get(2..).and_then(hex4).filter(|unit| (0xDC00..0xE000).contains(unit));
        if let (Some(second), Some(after)) = (second, rest.get(6..)) {
            point = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            rest = after;
        }
    }
    let c = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
    value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
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
