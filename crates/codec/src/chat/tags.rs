//! Separates inline reasoning (`<think>…</think>`) from text.
//!
//! Whole texts and streams use the same splitter, so the result does not depend on chunk
//! boundaries. The concatenated pieces always equal the input.

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;

/// The tag names that models use for reasoning.
const NAMES: [&str; 5] = ["think", "thinking", "thought", "reasoning", "reflection"];

/// Where the splitter looks for tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagScope {
    /// Only at the beginning of the text; elsewhere a tag may be part of the answer itself.
    Beginning,
    /// Anywhere, because the endpoint is known to emit inline tags.
    Anywhere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TagPiece {
    Text(String),
    /// An opening tag. At the beginning of the text, this includes the white space before the tag.
    Open(String),
    /// Text between the tags.
    Thought(String),
    Close(String),
}

/// Splits a text into pieces as the text arrives.
pub(super) struct TagSplitter {
    scope: TagScope,
    mode: SplitterState,
    buffer: String,
}

#[derive(Clone, Copy)]
enum SplitterState {
    Beginning,
    Text,
    Thought(&'static str),
}

enum TagMatch {
    Found(&'static str, usize),
    Perhaps,
    No,
}

impl TagSplitter {
    pub(super) fn new(scope: TagScope) -> Self {
        Self { scope, mode: SplitterState::Beginning, buffer: String::new() }
    }

    /// Adds input and returns the completed pieces. A suffix that may be the start of a tag is
    /// buffered.
    pub(super) fn push(&mut self, more: &str) -> Vec<TagPiece> {
        self.buffer.push_str(more);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Returns whether all further input is plain text.
    pub(super) fn is_plain_text_only(&self) -> bool {
        matches!(self.mode, SplitterState::Text)
            && self.scope == TagScope::Beginning
            && self.buffer.is_empty()
    }

    /// Returns the buffered text when another part starts, because the text can no longer become a
    /// tag.
    pub(super) fn pause(&mut self) -> Vec<TagPiece> {
        if self.buffer.is_empty() || matches!(self.mode, SplitterState::Thought(_)) {
            return Vec::new();
        }
        self.mode = SplitterState::Text;
        self.finish()
    }

    /// Returns the buffered text at the end of the input.
    pub(super) fn finish(&mut self) -> Vec<TagPiece> {
        let rest = std::mem::take(&mut self.buffer);
        let piece = match self.mode {
            SplitterState::Beginning | SplitterState::Text => TagPiece::Text(rest),
            SplitterState::Thought(_) => TagPiece::Thought(rest),
        };
        let mut pieces = Vec::new();
        push(&mut pieces, piece);
        pieces
    }

    /// Consumes the next piece of the buffered text; returns `false` if more input is needed.
    fn step(&mut self, pieces: &mut Vec<TagPiece>) -> bool {
        match self.mode {
            SplitterState::Beginning => {
                let blank = self.buffer.len() - self.buffer.trim_start().len();
                match match_opening_tag(self.buffer.get(blank..).unwrap_or_default()) {
                    TagMatch::Found(name, length) => {
                        pieces.push(TagPiece::Open(self.take(blank + length)));
                        self.mode = SplitterState::Thought(name);
                        true
                    }
                    TagMatch::Perhaps => false,
                    TagMatch::No => {
                        self.mode = SplitterState::Text;
                        true
                    }
                }
            }
            SplitterState::Text if self.scope == TagScope::Beginning => {
                let rest = self.buffer.len();
                push(pieces, TagPiece::Text(self.take(rest)));
                false
            }
            SplitterState::Text => {
                let found = self.buffer.match_indices('<').find_map(|(start, _)| {
                    match match_opening_tag(self.buffer.get(start..).unwrap_or_default()) {
                        TagMatch::No => None,
                        other => Some((start, other)),
                    }
                });
                let (start, found) = found.unwrap_or((self.buffer.len(), TagMatch::No));
                push(pieces, TagPiece::Text(self.take(start)));
                let TagMatch::Found(name, length) = found else { return false };
                pieces.push(TagPiece::Open(self.take(length)));
                self.mode = SplitterState::Thought(name);
                true
            }
            SplitterState::Thought(name) => {
                let close = format!("</{name}>");
                if let Some(start) = self.buffer.find(&close) {
                    push(pieces, TagPiece::Thought(self.take(start)));
                    pieces.push(TagPiece::Close(self.take(close.len())));
                    self.mode = SplitterState::Text;
                    return true;
                }
                let safe = self.buffer.len() - partial_tag_len(&self.buffer, &close);
                push(pieces, TagPiece::Thought(self.take(safe)));
                false
            }
        }
    }

    fn take(&mut self, length: usize) -> String {
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }
}

fn push(pieces: &mut Vec<TagPiece>, piece: TagPiece) {
    let (TagPiece::Text(text)
    | TagPiece::Thought(text)
    | TagPiece::Open(text)
    | TagPiece::Close(text)) = &piece;
    if !text.is_empty() {
        pieces.push(piece);
    }
}

/// Checks whether `text` begins with an opening tag, or may do so after more input.
fn match_opening_tag(text: &str) -> TagMatch {
    let Some(rest) = text.strip_prefix('<') else {
        return if text.is_empty() { TagMatch::Perhaps } else { TagMatch::No };
    };
    let mut answer = TagMatch::No;
    for name in NAMES {
        match rest.strip_prefix(name) {
            Some(end) if end.starts_with('>') => return TagMatch::Found(name, name.len() + 2),
            Some("") => answer = TagMatch::Perhaps,
            None if name.starts_with(rest) => answer = TagMatch::Perhaps,
            Some(_) | None => {}
        }
    }
    answer
}

/// Returns whether a whole text may contain tags. The check is cheap and lets most texts skip
/// splitting.
pub(super) fn may_contain_tags(text: &str, scope: TagScope) -> bool {
    match scope {
        TagScope::Beginning => matches!(match_opening_tag(text.trim_start()), TagMatch::Found(..)),
        TagScope::Anywhere => text.contains('<'),
    }
}

/// Returns the length of the longest suffix of `text` that is a prefix of `tag`.
fn partial_tag_len(text: &str, tag: &str) -> usize {
    let longest = tag.len().min(text.len());
    let is_beginning =
        |length: &usize| tag.get(..*length).is_some_and(|beginning| text.ends_with(beginning));
    (1..=longest).rev().find(is_beginning).unwrap_or(0)
}
