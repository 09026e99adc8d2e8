//! Redacts secrets in text that arrives in pieces.
//!
//! A secret may be split at any position. The last words are therefore buffered until more text
//! arrives, and each line is searched for secrets as a whole. Nothing has to be flushed at the end,
//! because the event that ends a text contains the whole text.

use throughline_spec::RedactionPolicy;

/// Number of words to buffer. A marker word, such as `Bearer`, may precede a secret.
const HELD: usize = 2;

#[derive(Debug, Default)]
pub(super) struct StreamRedactor {
    line: String,
    /// Number of bytes of the redacted line that were already shown.
    shown: usize,
}

impl StreamRedactor {
    /// Adds a piece, and returns the text that can be shown now.
    pub(super) fn push(&mut self, piece: &str, policy: &RedactionPolicy) -> String {
        self.line.push_str(piece);
        let mut out = String::new();
        if let Some(end) = self.line.rfind('\n') {
            let rest = self.line.split_off(end + 1);
            let line = std::mem::replace(&mut self.line, rest);
            let shown = std::mem::take(&mut self.shown);
            out.push_str(policy.redact_thought(&line).get(shown..).unwrap_or_default());
        }
        let sure = policy.redact_thought(self.line.get(..self.safe_end()).unwrap_or_default());
        // Later text may reveal that earlier text belongs to a secret. That text is not shown yet.
        if policy.redact_thought(&self.line).starts_with(&*sure) {
            out.push_str(sure.get(self.shown..).unwrap_or_default());
            self.shown = self.shown.max(sure.len());
        }
        out
    }

    /// Returns the byte offset in the line at which the buffered words start.
    fn safe_end(&self) -> usize {
        let mut rest = self.line.as_str();
        for _ in 0..HELD {
            let words = rest.trim_end();
            let end = words.char_indices().rev().find(|(_, letter)| letter.is_whitespace());
            let end = end.map_or(0, |(at, letter)| at + letter.len_utf8());
            rest = words.get(..end).unwrap_or_default();
        }
        rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_show_part_of_a_secret() {
        let key = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
        let text = format!("It is Bearer {key} and no more.\nThen come some other words");
        let letters: Vec<char> = text.chars().collect();
        for size in 1..letters.len() {
            let (mut pieces, mut out) = (StreamRedactor::default(), String::new());
            for piece in letters.chunks(size) {
                let piece: String = piece.iter().collect();
                out.push_str(&pieces.push(&piece, &RedactionPolicy::default()));
            }
            assert!(!out.contains("a1B2"), "in pieces of {size}: {out}");
            assert!(out.starts_with("It is"), "in pieces of {size}: {out}");
        }
    }
}
