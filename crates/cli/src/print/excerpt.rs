//! Source excerpts with carets, in the style of compiler diagnostics.
//!
//! Requests are either pretty-printed or a single line of up to a hundred kilobytes. A long line is
//! cut to a window around the marked range, with `…` for the rest. Control characters are replaced,
//! Seals are masked, and carets align with characters of any width.

use std::borrow::Cow;
use std::ops::Range;

use owo_colors::{OwoColorize as _, Style};
use throughline_json::Tree;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::print::mask::{Mask, masks};
use crate::print::text::{continued, plain, push_line, wrapped};

/// Number of lines above which a marked range is abbreviated to its first few lines and its last
/// line.
const MOST_LINES: usize = 10;

/// Minimum number of columns for a label that is printed next to its carets.
const LABEL: usize = 36;

/// A source text with an index for looking up lines and columns.
pub(crate) struct SourceText<'s> {
    text: &'s str,
    masks: Vec<Mask>,
    /// Byte offset, line number and column of each line start, and of further positions in long
    /// lines.
    marks: Vec<(usize, usize, usize)>,
}

/// Distance in bytes between two indexed positions in a long line.
const STRIDE: usize = 4096;

/// A byte range to mark, with a label and a style.
pub(crate) struct Annotation<'m> {
    pub(crate) range: Range<usize>,
    pub(crate) label: &'m str,
    pub(crate) style: Style,
}

/// The visible part of a line, and the columns that the marked range occupies in this part.
#[derive(Debug, PartialEq, Eq)]
struct VisibleLine {
    text: String,
    start: usize,
    end: usize,
}

/// The smallest unit of output: a character with its combining characters, or a masked value.
struct TextCell<'s> {
    at: usize,
    end: usize,
    shown: Cow<'s, str>,
}

impl TextCell<'_> {
    fn width(&self) -> usize {
        self.shown.width()
    }
}

/// Returns the longest prefix of the cells that fits into `columns` columns.
fn fitting_prefix<'c, 's>(cells: &'c [TextCell<'s>], columns: usize) -> &'c [TextCell<'s>] {
    let mut width = 0;
    let count = cells.iter().take_while(|cell| {
        width += cell.width();
        width <= columns
    });
    cells.get(..count.count()).unwrap_or_default()
}

/// Collects cells until they fill more than `room` columns.
fn fill<'s>(room: usize, mut next: impl FnMut() -> Option<TextCell<'s>>) -> Vec<TextCell<'s>> {
    let (mut cells, mut width) = (Vec::new(), 0);
    while width <= room
        && let Some(cell) = next()
    {
        width += cell.width();
        cells.push(cell);
    }
    cells
}

fn total_width(cells: &[TextCell<'_>]) -> usize {
    cells.iter().map(TextCell::width).sum()
}

impl<'s> SourceText<'s> {
    /// Indexes the lines of a document.
    pub(crate) fn new(tree: &'s Tree) -> Self {
        let text = std::str::from_utf8(tree.bytes()).unwrap_or_default();
        let mut marks = vec![(0, 1, 1)];
        let (mut line, mut column, mut last) = (1, 1, 0);
        for (at, character) in text.char_indices() {
            if at - last >= STRIDE {
                marks.push((at, line, column));
                last = at;
            }
            column += 1;
            if character == '\n' {
                (line, column, last) = (line + 1, 1, at + 1);
                marks.push((last, line, column));
            }
        }
        Self { text, masks: masks(tree), marks }
    }

    /// Returns the line and column of a byte offset, both starting at 1. Columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let known = self.marks.partition_point(|(start, ..)| *start <= at);
        let known = known.checked_sub(1).and_then(|known| self.marks.get(known));
        let (start, line, column) = known.copied().unwrap_or((0, 1, 1));
        let before = self.text.get(start..at).unwrap_or_default();
        (line, column + before.chars().count())
    }

    /// Returns the number of digits in the last line number of a range.
    pub(crate) fn digits(&self, range: &Range<usize>) -> usize {
        self.position(self.last_byte(range)).0.to_string().len()
    }

    /// Renders a source excerpt with line numbers, carets and a label. Line numbers are padded to
    /// `digits` columns, lines are at most `width` columns wide, and each line ends with a line
    /// feed.
    pub(crate) fn draw(&self, mark: &Annotation<'_>, digits: usize, width: usize) -> String {
        let mut page = ExcerptWriter { out: String::new(), digits, width };
        page.gutter(None, "");
        self.draw_mark(mark, MOST_LINES, &mut page);
        page.out
    }

    /// Renders the whole text with line numbers, and marks the annotated range.
    pub(crate) fn draw_whole(&self, mark: Option<&Annotation<'_>>, width: usize) -> String {
        let mut page =
            ExcerptWriter { out: String::new(), digits: self.digits(&(0..self.text.len())), width };
        let nowhere = usize::MAX..usize::MAX;
        let (first, last) =
            mark.map_or((nowhere.clone(), nowhere), |mark| self.lines_of(&mark.range));
        // The bar of a multi-line mark shifts its lines to the right, so all other lines are
        // shifted too.
        let lead = if first == last { "" } else { "  " };
        let mut line = self.line_around(0);
        let end = self.text.trim_end().len();
        loop {
            if let Some(mark) = mark.filter(|_| line.start == first.start) {
                self.draw_mark(mark, usize::MAX, &mut page);
                line = last.clone();
            } else {
                // The whole text is requested, so long lines are wrapped instead of cut.
                let strip = self.visible_line(&line, &(line.start..line.start), usize::MAX / 4);
                let mut number = Some(self.position(line.start).0);
                for text in continued(&strip.text, page.room() - lead.len()) {
                    page.gutter(number.take(), &format!("{lead}{text}"));
                }
            }
            if line.end >= end {
                return page.out;
            }
            line = self.next_line(&line);
        }
    }

    /// Renders the marked range: a single line with carets below, or several lines joined by a bar
    /// on the left.
    fn draw_mark(&self, mark: &Annotation<'_>, most_lines: usize, page: &mut ExcerptWriter) {
        let (first, last) = self.lines_of(&mark.range);
        let (top, bottom) = (self.position(first.start).0, self.position(last.start).0);
        if first == last {
            let strip = self.visible_line(&first, &mark.range, page.room());
            page.gutter(Some(top), &strip.text);
            let carets = "^".repeat(strip.end.saturating_sub(strip.start).max(1));
            return page.label(&" ".repeat(strip.start), &carets, mark);
        }
        let room = page.room().saturating_sub(2);
        let head = self.visible_line(&first, &(mark.range.start..first.end), room);
        let bar = "|".style(mark.style).to_string();
        // A range that starts at the beginning of its line needs no carets to show its start.
        let lead = self.text.get(first.start..mark.range.start).unwrap_or_default();
        if lead.trim().is_empty() {
            page.gutter(Some(top), &format!("{} {}", "/".style(mark.style), head.text));
        } else {
            page.gutter(Some(top), &format!("  {}", head.text));
            let line = format!(" {}^", "_".repeat(head.start + 1));
            page.gutter(None, &line.style(mark.style).to_string());
        }
        let skipped = if bottom - top < most_lines { usize::MAX } else { top + most_lines / 2 };
        let mut line = self.next_line(&first);
        for number in top + 1..bottom.min(skipped) {
            let strip = self.visible_line(&line, &(line.start..line.start), room);
            page.gutter(Some(number), &format!("{bar} {}", strip.text));
            line = self.next_line(&line);
        }
        if skipped < bottom {
            let dots = format!("{:<digits$}", "...", digits = page.digits + 2);
            push_line(&mut page.out, &format!("{} {bar}", dots.blue().bold()));
        }
        let end = self.last_byte(&mark.range);
        let tail = self.visible_line(&last, &(end..mark.range.end), room);
        page.gutter(Some(bottom), &format!("{bar} {}", tail.text));
        page.label("", &format!("|_{}^", "_".repeat(tail.start)), mark);
    }

    /// Cuts a line to `room` columns around the start of the marked range.
    fn visible_line(&self, line: &Range<usize>, range: &Range<usize>, room: usize) -> VisibleLine {
        let start = self.mask_over(range.start).map_or(range.start, |mask| mask.range.start);
        let before = self.cells_before(start, line.start, room);
        let after = self.cells_from(start, line.end, room);
        let after_width = total_width(&after);
        let is_whole = total_width(&before) + after_width <= room;
        // Two columns are reserved for the ellipses. The text before the range gets a third of the
        // columns, or more if the rest of the line needs less than two thirds.
        let space = if is_whole { room } else { room.saturating_sub(2) };
        let lead = fitting_prefix(&before, (space / 3).max(space.saturating_sub(after_width)));
        let rest = fitting_prefix(&after, space.saturating_sub(total_width(lead)));
        let mut text = if lead.len() < before.len() { "…".to_owned() } else { String::new() };
        text.extend(lead.iter().rev().map(|cell| &*cell.shown));
        let start_column = text.width();
        let covered = rest.iter().take_while(|cell| cell.at < range.end).count();
        text.extend(rest.iter().take(covered).map(|cell| &*cell.shown));
        let mut end_column = text.width();
        text.extend(rest.iter().skip(covered).map(|cell| &*cell.shown));
        if let Some(next) = after.get(rest.len()) {
            text.push('…');
            end_column += usize::from(next.at < range.end);
        }
        VisibleLine { text, start: start_column, end: end_column }
    }

    /// Returns the cells between the start of the line and a byte offset, nearest first. Stops when
    /// they fill more than `room` columns.
    fn cells_before(&self, mut at: usize, line_start: usize, room: usize) -> Vec<TextCell<'_>> {
        fill(room, || {
            let line = self.text.get(line_start..at).filter(|line| !line.is_empty())?;
            let letter = line.char_indices().rfind(|(_, c)| !is_combining(*c));
            let letter = letter.map_or(line_start, |(at, _)| line_start + at);
            let mask = self.mask_over(at - 1).or_else(|| self.mask_over(letter));
            let cell = self.cell_at(mask.map_or(letter, |mask| mask.range.start));
            at = cell.at;
            Some(cell)
        })
    }

    /// Returns the cells from a byte offset to the end of the line. Stops when they fill more than
    /// `room` columns.
    fn cells_from(&self, mut at: usize, line_end: usize, room: usize) -> Vec<TextCell<'_>> {
        fill(room, || {
            let cell = (at < line_end).then(|| self.cell_at(at))?;
            at = cell.end;
            Some(cell)
        })
    }

    /// Returns the cell for the character or masked value that starts at a byte offset.
    fn cell_at(&self, at: usize) -> TextCell<'_> {
        if let Some(mask) = self.mask_over(at) {
            return TextCell { at, end: mask.range.end, shown: Cow::Borrowed(&mask.shown) };
        }
        let mut rest = self.text.get(at..).unwrap_or_default().char_indices().skip(1);
        let end =
            rest.find(|(_, c)| !is_combining(*c)).map_or(self.text.len(), |(next, _)| at + next);
        TextCell { at, end, shown: shown(self.text.get(at..end).unwrap_or_default()) }
    }

    fn mask_over(&self, at: usize) -> Option<&Mask> {
        let after = self.masks.partition_point(|mask| mask.range.start <= at);
        self.masks.get(after.checked_sub(1)?).filter(|mask| at < mask.range.end)
    }

    /// Returns the range of the line that contains a byte offset, without its line ending.
    fn line_around(&self, at: usize) -> Range<usize> {
        let (before, behind) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = at + behind.find('\n').unwrap_or(behind.len());
        let line = self.text.get(start..end).unwrap_or_default();
        start..start + line.trim_end_matches('\r').len()
    }

    /// Returns the first and last line that a range touches.
    fn lines_of(&self, range: &Range<usize>) -> (Range<usize>, Range<usize>) {
        (self.line_around(range.start), self.line_around(self.last_byte(range)))
    }

    fn next_line(&self, line: &Range<usize>) -> Range<usize> {
        let rest = self.text.get(line.end..).unwrap_or_default();
        self.line_around(rest.find('\n').map_or(self.text.len(), |end| line.end + end + 1))
    }

    /// Returns the byte offset of the last character in a range.
    fn last_byte(&self, range: &Range<usize>) -> usize {
        let inside = self.text.get(range.clone()).unwrap_or_default();
        inside.char_indices().next_back().map_or(range.start, |(at, _)| range.start + at)
    }
}

/// Returns whether a character combines with the previous character and therefore takes no column
/// of its own.
fn is_combining(character: char) -> bool {
    character.width() == Some(0)
}

/// Makes a character safe for a terminal. A tab becomes spaces, because it would shift the carets.
fn shown(character: &str) -> Cow<'_, str> {
    match character {
        "\t" => Cow::Borrowed("    "),
        _ if character.is_ascii() && !character.contains(char::is_control) => {
            Cow::Borrowed(character)
        }
        _ => Cow::Owned(plain(character)),
    }
}

/// Output buffer for an excerpt, with the width of the line numbers and of the whole excerpt.
struct ExcerptWriter {
    out: String,
    digits: usize,
    width: usize,
}

impl ExcerptWriter {
    /// Returns the number of columns to the right of the line numbers.
    fn room(&self) -> usize {
        self.width.saturating_sub(self.digits + 3).max(20)
    }

    fn gutter(&mut self, number: Option<usize>, text: &str) {
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        let gutter = format!("{number:>digits$} |", digits = self.digits);
        let text = if text.is_empty() { String::new() } else { format!(" {text}") };
        push_line(&mut self.out, &format!("{}{text}", gutter.blue().bold()));
    }

    /// Writes the carets and their label. The label is to the right of the carets if it fits, else
    /// below.
    fn label(&mut self, lead: &str, carets: &str, mark: &Annotation<'_>) {
        let drawn = format!("{lead}{}", carets.style(mark.style));
        if mark.label.is_empty() {
            return self.gutter(None, &drawn);
        }
        let label = plain(mark.label);
        let column = lead.width() + carets.width() + 1;
        let beside = self.room().saturating_sub(column);
        let lines = wrapped(&label, beside);
        // If whole words do not fit next to the carets, the label goes below them.
        if beside >= label.width().min(LABEL) && lines.join(" ") == label {
            let mut lines = lines.into_iter();
            self.gutter(None, &format!("{drawn} {}", lines.next().unwrap_or_default()));
            lines.for_each(|line| self.gutter(None, &format!("{:column$}{line}", "")));
            return;
        }
        self.gutter(None, &drawn);
        let needed = label.width().clamp(1, self.room() * 3 / 4);
        let column = lead.width().min(self.room().saturating_sub(needed));
        for line in wrapped(&label, self.room().saturating_sub(column)) {
            self.gutter(None, &format!("{:column$}{line}", ""));
        }
    }
}

#[cfg(test)]
#[path = "excerpt_tests.rs"]
mod excerpt_tests;
