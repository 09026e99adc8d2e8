//! Builds tool results for the model, within a size limit.

use bytes::Bytes;
use throughline_agent::ToolAnswer;
use throughline_core::{Media, Outcome, Part};
use throughline_json::Name;

use crate::secret::Mask;

/// Advice appended to the error of a call that failed after it was sent, because the call may have
/// taken effect.
const UNKNOWN_EFFECT: &str =
    "It is unknown whether the call took effect; check before you call the tool again.";

/// Builds the result for a call that failed after it was sent.
pub(crate) fn lost_call(reason: &str, idempotent: bool) -> ToolAnswer {
    // An idempotent call can be repeated, so a plain error is enough.
    if idempotent {
        return ToolAnswer::error(reason);
    }
    let answer = ToolAnswer::error(format!("{reason} {UNKNOWN_EFFECT}"));
    ToolAnswer { outcome: Outcome::Unknown, ..answer }
}

/// Masks secrets in the texts of an error result.
pub(crate) fn mask_errors(mut answer: ToolAnswer, mask: &Mask) -> ToolAnswer {
    if answer.outcome != Outcome::Ok {
        for part in &mut answer.parts {
            if let Part::Text(text) = part {
                *text = mask.apply(text).into();
            }
        }
    }
    answer
}

/// Collects result parts up to a total size in bytes.
pub(crate) struct Parts {
    remaining: usize,
    limit: usize,
    all: Vec<Part>,
    is_truncated: bool,
}

impl Parts {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { remaining: limit, limit, all: Vec::new(), is_truncated: false }
    }

    /// Adds a text, truncated to the remaining size.
    pub(crate) fn text(&mut self, text: &str) {
        let end = text.floor_char_boundary(self.remaining);
        let truncated = text.get(..end).unwrap_or_default();
        self.is_truncated |= truncated.len() < text.len();
        self.remaining -= truncated.len();
        if !truncated.is_empty() || text.is_empty() {
            self.all.push(Part::Text(truncated.into()));
        }
    }

    /// Adds base64 media if it fits.
    pub(crate) fn media(&mut self, mime: &str, base64: impl Into<Bytes>) {
        let base64 = base64.into();
        if base64.len() > self.remaining {
            self.is_truncated = true;
            return;
        }
        self.remaining -= base64.len();
        self.all.push(Part::Media(Media::Inline { mime: Name::from(mime), base64 }));
    }

    /// Marks the result as truncated.
    pub(crate) fn mark_truncated(&mut self) {
        self.is_truncated = true;
    }

    /// Returns whether any collected text satisfies the predicate.
    pub(crate) fn has_text(&self, matches_text: impl Fn(&str) -> bool) -> bool {
        self.all.iter().any(|part| matches!(part, Part::Text(text) if matches_text(text)))
    }

    /// Builds the result and adds a note if part of it was omitted.
    pub(crate) fn into_answer(mut self, outcome: Outcome) -> ToolAnswer {
        if self.is_truncated {
            let limit = self.limit;
            let note = format!("[The result is longer than {limit} bytes and was truncated here.]");
            self.all.push(Part::Text(note.into()));
        }
        if self.all.is_empty() {
            self.all.push(Part::Text("".into()));
        }
        ToolAnswer { outcome, parts: self.all }
    }
}
