//! Converts between bytes and hexadecimal text.

use bytes::Bytes;
use throughline_core::Digest;

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::new();
    push_hex(&mut digits, bytes);
    String::from_utf8(digits).unwrap_or_default()
}

/// Appends bytes as lower-case hexadecimal digits.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + (value - 10) };
    out.reserve(2 * bytes.len());
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

/// Decodes a digest from 64 lower-case hexadecimal digits.
pub(crate) fn parse_digest(hex: &str) -> Option<Digest> {
    // Only lower case is accepted, so that each digest has exactly one text form.
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let bytes = unhex(hex).filter(|_| hex.bytes().all(is_digit))?;
    bytes.as_ref().try_into().ok()
}

pub(crate) fn unhex(text: &str) -> Option<Bytes> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().map(Bytes::from)
}
