//! Reasoning written into the text, as `<think>…</think>`.
//!
//! The same reader serves whole texts and streams, so that both agree wherever a stream was cut. Nothing is lost or
//! added: what it gives back, put together, is the text that it was given.

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;

/// The names of the tags that models use.
const NAMES: [&str; 5] = ["think", "thinking", "thought", "reasoning", "reflection"];

/// Where tags are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// At the beginning of the text only: elsewhere they may be what the text is about.
    Beginning,
    /// Anywhere, because the endpoint is known to write them.
    Anywhere,
}

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Plain text.
    Text(String),
    /// An opening tag, with the white space before it at the beginning of the text.
    Open(String),
    /// Text between tags.
    Thought(String),
    /// A closing tag.
    Close(String),
}

/// Reads a text piece by piece.
pub(super) struct Splitter {
    scope: Scope,
    mode: Mode,
    held: String,
}

#[derive(Clone, Copy)]
enum Mode {
    Beginning,
    Text,
    Thought(&'static str),
}

enum Opening {
    Found(&'static str, usize),
    Perhaps,
    No,
}

impl Splitter {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, mode: Mode::Beginning, held: String::new() }
    }

    /// The pieces that `more` completes. What may be the beginning of a tag is held back.
    pub(super) fn push(&mut self, more: &str) -> Vec<Piece> {
        self.held.push_str(more);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Whether all that comes is text.
    pub(super) fn has_done(&self) -> bool {
        matches!(self.mode, Mode::Text) && self.scope == Scope::Beginning && self.held.is_empty()
    }

    /// Something else begins: what was held back of the text is no tag.
    pub(super) fn pause(&mut self) -> Vec<Piece> {
        match self.mode {
            Mode::Beginning | Mode::Text if !self.held.is_empty() => {
                self.mode = Mode::Text;
                self.finish()
            }
            Mode::Beginning | Mode::Text | Mode::Thought(_) => Vec::new(),
        }
    }

    /// The text has ended: what was held back is no tag.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let rest = std::mem::take(&mut self.held);
        let piece = match self.mode {
            Mode::Beginning | Mode::Text => Piece::Text(rest),
            Mode::Thought(_) => Piece::Thought(rest),
        };
        let mut pieces = Vec::new();
        push(&mut pieces, piece);
        pieces
    }

    /// Takes the next piece off what is held; `false` when more has to come first.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.mode {
            Mode::Beginning => {
                let blank = self.held.len() - self.held.trim_start().len();
                match opening(self.held.get(blank..).unwrap_or_default()) {
                    Opening::Found(name, length) => {
                        pieces.push(Piece::Open(self.take(blank + length)));
                        self.mode = Mode::Thought(name);
                        true
                    }
                    Opening::Perhaps => false,
                    Opening::No => {
                        self.mode = Mode::Text;
                        true
                    }
                }
            }
            Mode::Text if self.scope == Scope::Beginning => {
                let rest = self.held.len();
                push(pieces, Piece::Text(self.take(rest)));
                false
            }
            Mode::Text => {
                let found = self.held.match_indices('<').find_map(|(start, _)| {
                    match opening(self.held.get(start..).unwrap_or_default()) {
                        Opening::No => None,
                        other => Some((start, other)),
                    }
                });
                let (start, found) = found.unwrap_or((self.held.len(), Opening::No));
                push(pieces, Piece::Text(self.take(start)));
                let Opening::Found(name, length) = found else { return false };
                pieces.push(Piece::Open(self.take(length)));
                self.mode = Mode::Thought(name);
                true
            }
            Mode::Thought(name) => {
                let close = format!("</{name}>");
                if let Some(start) = self.held.find(&close) {
                    push(pieces, Piece::Thought(self.take(start)));
                    pieces.push(Piece::Close(self.take(close.len())));
                    self.mode = Mode::Text;
                    return true;
                }
                let safe = self.held.len() - open_end(&self.held, &close);
                push(pieces, Piece::Thought(self.take(safe)));
                false
            }
        }
    }

    fn take(&mut self, length: usize) -> String {
        let rest = self.held.split_off(length);
        std::mem::replace(&mut self.held, rest)
    }
}

fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match &piece {
        Piece::Text(text) | Piece::Thought(text) if text.is_empty() => {}
        Piece::Text(_) | Piece::Thought(_) | Piece::Open(_) | Piece::Close(_) => pieces.push(piece),
    }
}

/// Whether `text` begins with an opening tag, or might when more of it has come.
fn opening(text: &str) -> Opening {
    let Some(rest) = text.strip_prefix('<') else {
        return if text.is_empty() { Opening::Perhaps } else { Opening::No };
    };
    let mut answer = Opening::No;
    for name in NAMES {
        match rest.strip_prefix(name) {
            Some(end) if end.starts_with('>') => return Opening::Found(name, name.len() + 2),
            Some("") => answer = Opening::Perhaps,
            None if name.starts_with(rest) => answer = Opening::Perhaps,
            Some(_) | None => {}
        }
    }
    answer
}

/// Whether a whole text may hold tags. Most do not, and need not be taken apart.
pub(super) fn may_hold(text: &str, scope: Scope) -> bool {
    match scope {
        Scope::Beginning => matches!(opening(text.trim_start()), Opening::Found(..)),
        Scope::Anywhere => text.contains('<'),
    }
}

/// How many bytes at the end of `text` may be the beginning of `tag`.
fn open_end(text: &str, tag: &str) -> usize {
    let longest = tag.len().min(text.len());
    let is_beginning =
        |length: &usize| tag.get(..*length).is_some_and(|beginning| text.ends_with(beginning));
    (1..=longest).rev().find(is_beginning).unwrap_or(0)
}
