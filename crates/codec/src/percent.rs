//! Percent-encodes model names in request paths.

/// Encodes a text as one path segment. Letters, digits, `-._~` and the characters in `kept` stay as
/// they are.
pub(crate) fn percent_encode(text: &str, kept: &str) -> String {
    let is_safe = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.as_bytes().contains(&byte)
    };
    let letter = |byte| match byte {
        byte if is_safe(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}
