//! What a tool answered, as parts that a model is shown, and how much of it.

use bytes::Bytes;
use throughline_agent::ToolAnswer;
use throughline_core::{Media, Name, Outcome, Part};

use crate::secret::Mask;

/// What is said of a call that was lost on its way, after which nobody knows whether it took effect.
const NOBODY_KNOWS: &str = "Whether it took effect is unknown: find out before you call it again.";

/// An answer to a call that failed after it was sent.
pub(crate) fn lost(reason: &str, idempotent: bool) -> ToolAnswer {
    // What may be run again can be told to have failed.
    if idempotent {
        return ToolAnswer::error(reason);
    }
    let answer = ToolAnswer::error(format!("{reason} {NOBODY_KNOWS}"));
    ToolAnswer { outcome: Outcome::Unknown, ..answer }
}

/// The same answer, with no secret in its texts where it is an error.
pub(crate) fn masked(mut answer: ToolAnswer, mask: &Mask) -> ToolAnswer {
    if answer.outcome != Outcome::Ok {
        for part in &mut answer.parts {
            if let Part::Text(text) = part {
                *text = mask.over(text).into();
            }
        }
    }
    answer
}

/// Parts that hold no more than so many bytes in all.
pub(crate) struct Parts {
    left: usize,
    limit: usize,
    all: Vec<Part>,
    was_cut: bool,
}

impl Parts {
    pub(crate) fn within(limit: usize) -> Self {
        Self { left: limit, limit, all: Vec::new(), was_cut: false }
    }

    /// Adds a text, or as much of it as there is room for.
    pub(crate) fn text(&mut self, text: &str) {
        let room = text.floor_char_boundary(self.left);
        let kept = text.get(..room).unwrap_or_default();
        self.was_cut |= kept.len() < text.len();
        self.left -= kept.len();
        if !kept.is_empty() || text.is_empty() {
            self.all.push(Part::Text(kept.into()));
        }
    }

    /// Adds a picture or document in base64, if there is room for it.
    pub(crate) fn media(&mut self, mime: &str, base64: impl Into<Bytes>) {
        let base64 = base64.into();
        if base64.len() > self.left {
            self.was_cut = true;
            return;
        }
        self.left -= base64.len();
        self.all.push(Part::Media(Media::Inline { mime: Name::from(mime), base64 }));
    }

    /// Notes that there was more than what was added.
    pub(crate) fn cut(&mut self) {
        self.was_cut = true;
    }

    /// Whether one of the texts says just this.
    pub(crate) fn has_text(&self, same: impl Fn(&str) -> bool) -> bool {
        self.all.iter().any(|part| matches!(part, Part::Text(text) if same(text)))
    }

    /// The answer that they are.
    pub(crate) fn answer(mut self, outcome: Outcome) -> ToolAnswer {
        if self.was_cut {
            let note =
                format!("[The answer is longer than {} bytes and was cut here.]", self.limit);
            self.all.push(Part::Text(note.into()));
        }
        if self.all.is_empty() {
            self.all.push(Part::Text("".into()));
        }
        ToolAnswer { outcome, parts: self.all }
    }
}
