//! Redacts secrets in text that arrives in pieces.
//!
//! A secret may be split at any position. The last words are therefore buffered until more text
//! arrives, and each line is searched for secrets as a whole.

use std::borrow::Cow;

/// Number of words to buffer. A secret may follow the word that marks it, such as `Bearer`.
const BUFFERED_WORDS: usize = 2;

/// Redacts streamed text and releases it as early as possible.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    /// Text of the current line, before redaction.
    line: String,
    /// Number of bytes of the redacted line that were already released.
    released: usize,
}

impl StreamRedactor {
    /// Adds a piece of text, and returns the redacted text that can be shown now.
    pub fn push(&mut self, piece: &str, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        self.line.push_str(piece);
        let mut out = String::new();
        if let Some(end) = self.line.rfind('\n') {
            let rest = self.line.split_off(end + 1);
            out.push_str(&self.finish(&redact));
            self.line = rest;
        }
        let redacted = redact(self.line.get(..self.buffer_start()).unwrap_or_default());
        // If later text shows that earlier text is part of a secret, release nothing yet.
        if redact(&self.line).starts_with(&*redacted) {
            out.push_str(redacted.get(self.released..).unwrap_or_default());
            self.released = self.released.max(redacted.len());
        }
        out
    }

    /// Ends the line, and returns its redacted text that was not released yet.
    pub fn finish(&mut self, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        let line = std::mem::take(&mut self.line);
        let released = std::mem::take(&mut self.released);
        redact(&line).get(released..).unwrap_or_default().to_owned()
    }

    /// Returns the byte offset at which the buffered words start.
    fn buffer_start(&self) -> usize {
        let mut head = self.line.as_str();
        for _ in 0..BUFFERED_WORDS {
            head = head.trim_end().trim_end_matches(|letter: char| !letter.is_whitespace());
        }
        head.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedactionPolicy;

    const KEY: &str = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";

    /// Returns the text that is released for pieces of `size` characters, before the end.
    fn released(redactor: &mut StreamRedactor, text: &str, size: usize) -> String {
        let policy = RedactionPolicy::default();
        let letters: Vec<char> = text.chars().collect();
        let pieces = letters.chunks(size).map(|piece| piece.iter().collect::<String>());
        pieces.map(|piece| redactor.push(&piece, |text| policy.redact_text(text))).collect()
    }

    #[test]
    fn split_secrets_are_redacted() {
        let text = format!("The key is {KEY} and naïve.\nAgain: Bearer {KEY} ☕ end");
        let policy = RedactionPolicy::default();
        let expected = policy.redact_text(&text).into_owned();
        assert!(!expected.contains(KEY) && expected.contains("naïve"));
        for size in 1..text.chars().count() {
            let mut redactor = StreamRedactor::default();
            let mut out = released(&mut redactor, &text, size);
            out.push_str(&redactor.finish(|text| policy.redact_text(text)));
            assert_eq!(out, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn pieces_never_show_part_of_a_secret() {
        let text = format!("It is Bearer {KEY} and no more.\nThen come some other words");
        for size in 1..text.chars().count() {
            let out = released(&mut StreamRedactor::default(), &text, size);
            assert!(!out.contains("a1B2"), "in pieces of {size}: {out}");
            assert!(out.starts_with("It is"), "in pieces of {size}: {out}");
        }
    }
}
