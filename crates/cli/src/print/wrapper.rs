//! Wraps streamed text between words.

use unicode_width::UnicodeWidthStr as _;

/// Length in columns after which an incomplete word is printed. Some scripts have no spaces.
const LONGEST_WORD: usize = 40;

/// Wraps a text that arrives in pieces. The last word is held back until it is complete.
pub(crate) struct WordWrapper {
    width: usize,
    indent: usize,
    /// Number of columns that are used on the current line.
    column: usize,
    /// Whether a space precedes the held word.
    has_space: bool,
    word: String,
}

impl WordWrapper {
    /// Creates a wrapper for lines of `width` columns. The first line already has a mark of
    /// `indent` columns, and all further lines are indented by as many columns.
    pub(crate) fn new(width: usize, indent: usize) -> Self {
        Self { width, indent, column: indent, has_space: false, word: String::new() }
    }

    /// Returns the text that can be printed after the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for c in piece.chars() {
            if c == '\n' {
                self.end_word(&mut out);
                self.break_line(&mut out);
            } else if c.is_whitespace() {
                self.end_word(&mut out);
                self.has_space = self.column > self.indent;
            } else {
                self.word.push(c);
                if self.word.width() > LONGEST_WORD {
                    self.end_word(&mut out);
                }
            }
        }
        out
    }

    /// Returns the held word.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        let is_full = self.column + usize::from(self.has_space) + word.width() > self.width;
        if is_full && self.column > self.indent {
            self.break_line(out);
        } else if self.has_space {
            out.push(' ');
            self.column += 1;
        }
        self.has_space = false;
        self.column += word.width();
        out.push_str(&word);
    }

    fn break_line(&mut self, out: &mut String) {
        out.push('\n');
        out.push_str(&" ".repeat(self.indent));
        (self.column, self.has_space) = (self.indent, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps pieces and returns the whole output.
    fn wrap(pieces: &[&str], width: usize) -> String {
        let mut wrapper = WordWrapper::new(width, 2);
        let printed: String = pieces.iter().map(|piece| wrapper.push(piece)).collect();
        printed + &wrapper.finish()
    }

    #[test]
    fn streamed_words_are_not_broken() {
        assert_eq!(wrap(&["one two th", "ree four"], 12), "one two\n  three four");
        assert_eq!(wrap(&["one", " two"], 80), "one two");
        assert_eq!(wrap(&["one\n\ntwo  three"], 80), "one\n  \n  two three");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(wrap(&["東京 東京 東京"], 11), "東京 東京\n  東京");
    }

    #[test]
    fn long_words_are_printed_in_parts() {
        let word = "x".repeat(100);
        assert_eq!(wrap(&[&word], 60).replace(['\n', ' '], ""), word);
    }
}
