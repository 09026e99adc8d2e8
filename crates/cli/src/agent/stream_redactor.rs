//! Incremental redaction of streamed text.
//!
//! A secret may be split across pieces of streamed text, so the last words are buffered until more
//! text arrives. Redaction works line by line.

use std::borrow::Cow;

/// Number of words to buffer before printing. A secret may follow a word that identifies it as a
/// secret, so words cannot be redacted one by one.
const HELD: usize = 2;

/// Redacts streamed text and returns the redacted text for printing as early as possible.
#[derive(Debug, Default)]
pub(super) struct StreamRedactor {
    /// Text of the current line, before redaction.
    line: String,
    /// Number of bytes of the redacted line that were already printed.
    shown: usize,
}

impl StreamRedactor {
    /// Appends a piece and returns the redacted text that can be printed now.
    pub(super) fn push(&mut self, piece: &str, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        self.line.push_str(piece);
        let mut out = String::new();
        if let Some(end) = self.line.rfind('\n') {
            let rest = self.line.split_off(end + 1);
            out.push_str(&self.finish(&redact));
            self.line = rest;
        }
        let sure = self.line.get(..self.held_back_start()).unwrap_or_default();
        let redacted = redact(sure);
        // If later text shows that earlier text is part of a secret, print nothing yet.
        if redact(&self.line).starts_with(&*redacted) {
            out.push_str(redacted.get(self.shown..).unwrap_or_default());
            self.shown = self.shown.max(redacted.len());
        }
        out
    }

    /// Ends the line and returns the part of the redacted line that is not printed yet.
    pub(super) fn finish(&mut self, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        let line = std::mem::take(&mut self.line);
        let shown = std::mem::take(&mut self.shown);
        redact(&line).get(shown..).unwrap_or_default().to_owned()
    }

    /// Returns the byte position where the buffered words start.
    fn held_back_start(&self) -> usize {
        let mut head = self.line.as_str();
        for _ in 0..HELD {
            head = head.trim_end().trim_end_matches(|c: char| !c.is_whitespace());
        }
        head.len()
    }
}

#[cfg(test)]
mod tests {
    use throughline_spec::RedactionPolicy;

    use super::*;

    #[test]
    fn split_secrets_are_redacted() {
        let key = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
        let text = format!("The key is {key} and naïve.\nAgain: Bearer {key} ☕ end");
        let policy = RedactionPolicy::default();
        let whole = policy.redact_text(&text).into_owned();
        assert!(!whole.contains(key) && whole.contains("naïve"));
        for size in 1..text.chars().count() {
            let (mut pieces, mut shown) = (StreamRedactor::default(), String::new());
            let all: Vec<char> = text.chars().collect();
            for piece in all.chunks(size) {
                let piece: String = piece.iter().collect();
                shown.push_str(&pieces.push(&piece, |text| policy.redact_text(text)));
            }
            shown.push_str(&pieces.finish(|text| policy.redact_text(text)));
            assert_eq!(shown, whole, "in pieces of {size}");
        }
    }
}
