//! Text that comes in pieces, and is shown as it comes without what a policy leaves out.
//!
//! A secret may be cut anywhere, so the last words are held back until more has come. What is left out is looked for line by
//! line.

use std::borrow::Cow;

/// How many words are held back: a token may stand behind the word that says that it is one.
const HELD: usize = 2;

/// Text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The line that is being written.
    line: String,
    /// How much of it was shown, after redaction.
    shown: usize,
}

impl Pieces {
    /// What can be shown now that this has come.
    pub(super) fn push(&mut self, piece: &str, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        self.line.push_str(piece);
        let mut out = String::new();
        if let Some(end) = self.line.rfind('\n') {
            let rest = self.line.split_off(end + 1);
            out.push_str(&self.finish(&redact));
            self.line = rest;
        }
        let sure = self.line.get(..self.sure()).unwrap_or_default();
        let redacted = redact(sure);
        // What follows may tell that something before it is a secret, too: then it is not shown yet.
        if redact(&self.line).starts_with(&*redacted) {
            out.push_str(redacted.get(self.shown..).unwrap_or_default());
            self.shown = self.shown.max(redacted.len());
        }
        out
    }

    /// What is left when nothing more comes.
    pub(super) fn finish(&mut self, redact: impl Fn(&str) -> Cow<'_, str>) -> String {
        let line = std::mem::take(&mut self.line);
        let shown = std::mem::take(&mut self.shown);
        redact(&line).get(shown..).unwrap_or_default().to_owned()
    }

    /// Where the words begin that are held back.
    fn sure(&self) -> usize {
        let mut starts = Vec::new();
        let mut is_inside = false;
        for (at, c) in self.line.char_indices() {
            if !c.is_whitespace() && !is_inside {
                starts.push(at);
            }
            is_inside = !c.is_whitespace();
        }
        starts.len().checked_sub(HELD).and_then(|at| starts.get(at)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use throughline_core::RedactionPolicy;

    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_cut() {
        let key = "sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
        let text = format!("The key is {key} and naïve.\nAgain: Bearer {key} ☕ end");
        let policy = RedactionPolicy::default();
        let whole = policy.redact_text(&text).into_owned();
        assert!(!whole.contains(key) && whole.contains("naïve"));
        for size in 1..text.chars().count() {
            let (mut pieces, mut shown) = (Pieces::default(), String::new());
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
