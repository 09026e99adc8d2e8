//! The place in a text that a message is about, drawn as compilers draw it.
//!
//! Requests come as people write them, a member on each line, and as programs write them: a hundred kilobytes on one. Of
//! a long line only a window round the place is shown, `…` standing for the rest. Nothing in it steers the terminal,
//! seals are masked, and the carets stand below what they mean however wide its characters are.

use std::borrow::Cow;
use std::ops::Range;

use owo_colors::{OwoColorize as _, Style};
use throughline_core::Tree;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::mask::{Mask, masks};
use crate::text::{continued, plain, push_line, wrapped};

/// Of a place with more lines than this, the first few and the last are shown.
const MOST_LINES: usize = 10;

/// The narrowest column that a label is written in beside its carets.
const LABEL: usize = 36;

/// A text to draw from.
pub(crate) struct Source<'s> {
    text: &'s str,
    masks: Vec<Mask>,
    /// Where each line begins, and in long lines now and then a place with the number of characters before it.
    marks: Vec<(usize, usize, usize)>,
}

/// How many bytes of a line are counted at once.
const STRIDE: usize = 4096;

/// What to draw, and how.
pub(crate) struct Mark<'m> {
    /// The place.
    pub(crate) place: Range<usize>,
    /// What is said of it.
    pub(crate) label: &'m str,
    /// The colour of its carets.
    pub(crate) style: Style,
}

/// Part of a line as it is shown, and the columns of the place in it.
#[derive(Debug, PartialEq, Eq)]
struct Strip {
    text: String,
    start: usize,
    end: usize,
}

/// A character of the text with those that join it, or a value that is masked.
struct Cell<'s> {
    at: usize,
    end: usize,
    shown: Cow<'s, str>,
}

impl Cell<'_> {
    fn width(&self) -> usize {
        self.shown.width()
    }
}

/// As many of the cells as fit into that many columns.
fn fitting<'c, 's>(cells: &'c [Cell<'s>], columns: usize) -> &'c [Cell<'s>] {
    let mut width = 0;
    let count = cells.iter().take_while(|cell| {
        width += cell.width();
        width <= columns
    });
    cells.get(..count.count()).unwrap_or_default()
}

impl<'s> Source<'s> {
    /// The text that a tree indexes.
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

    /// The line and column of a place, counted from one; the column in characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let known = self.marks.partition_point(|(start, ..)| *start <= at);
        let known = known.checked_sub(1).and_then(|known| self.marks.get(known));
        let (start, line, column) = known.copied().unwrap_or((0, 1, 1));
        let before = self.text.get(start..at).unwrap_or_default();
        (line, column + before.chars().count())
    }

    /// How many digits the numbers of the lines of a place have.
    pub(crate) fn digits(&self, place: &Range<usize>) -> usize {
        self.position(self.last_byte(place)).0.to_string().len()
    }

    /// The place with line numbers, carets and its label, in lines that end with a line feed. The numbers take `digits`
    /// columns, the whole at most `width`.
    pub(crate) fn draw(&self, mark: &Mark<'_>, digits: usize, width: usize) -> String {
        let mut page = Page { out: String::new(), digits, width };
        page.gutter(None, "");
        self.draw_mark(mark, MOST_LINES, &mut page);
        page.out
    }

    /// The whole text with line numbers, and the mark at its place.
    pub(crate) fn draw_whole(&self, mark: Option<&Mark<'_>>, width: usize) -> String {
        let mut page =
            Page { out: String::new(), digits: self.digits(&(0..self.text.len())), width };
        let (first, last) = match mark {
            Some(mark) => self.lines_of(&mark.place),
            None => (usize::MAX..usize::MAX, usize::MAX..usize::MAX),
        };
        // Lines beside a bar are moved to the right by it, and so are all others.
        let lead = if first == last { "" } else { "  " };
        let mut line = self.line_around(0);
        let end = self.text.trim_end().len();
        loop {
            if let Some(mark) = mark.filter(|_| line.start == first.start) {
                self.draw_mark(mark, usize::MAX, &mut page);
                line = last.clone();
            } else {
                // Who reads a whole text wants all of it, so what does not fit goes on below.
                let strip = self.strip(&line, &(line.start..line.start), usize::MAX / 4);
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

    fn draw_mark(&self, mark: &Mark<'_>, most_lines: usize, page: &mut Page) {
        let (first, last) = self.lines_of(&mark.place);
        if first == last {
            self.draw_line(mark, &first, page);
        } else {
            self.draw_lines(mark, most_lines, page);
        }
    }

    /// One line with carets below.
    fn draw_line(&self, mark: &Mark<'_>, line: &Range<usize>, page: &mut Page) {
        let strip = self.strip(line, &mark.place, page.room());
        page.gutter(Some(self.position(line.start).0), &strip.text);
        let carets = "^".repeat(strip.end.saturating_sub(strip.start).max(1));
        page.label(&" ".repeat(strip.start), &carets, mark);
    }

    /// Several lines, held together by a bar on the left.
    fn draw_lines(&self, mark: &Mark<'_>, most_lines: usize, page: &mut Page) {
        let (first, last) = self.lines_of(&mark.place);
        let (top, bottom) = (self.position(first.start).0, self.position(last.start).0);
        let room = page.room().saturating_sub(2);
        let head = self.strip(&first, &(mark.place.start..first.end), room);
        let bar = "|".style(mark.style).to_string();
        // A place that opens its line needs no carets to show where it begins.
        let lead = self.text.get(first.start..mark.place.start).unwrap_or_default();
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
            let strip = self.strip(&line, &(line.start..line.start), room);
            page.gutter(Some(number), &format!("{bar} {}", strip.text));
            line = self.next_line(&line);
        }
        if skipped < bottom {
            page.elided(&bar);
        }
        let end = self.last_byte(&mark.place);
        let tail = self.strip(&last, &(end..mark.place.end), room);
        page.gutter(Some(bottom), &format!("{bar} {}", tail.text));
        page.label("", &format!("|_{}^", "_".repeat(tail.start)), mark);
    }

    /// As much of a line as fits into `room` columns, with the beginning of the place in it.
    fn strip(&self, line: &Range<usize>, place: &Range<usize>, room: usize) -> Strip {
        let start = self.mask_over(place.start).map_or(place.start, |mask| mask.place.start);
        let before = self.cells_before(start, line.start, room);
        let behind = self.cells_behind(start, line.end, room);
        let behind_width: usize = behind.iter().map(Cell::width).sum();
        let is_whole = before.iter().map(Cell::width).sum::<usize>() + behind_width <= room;
        // Two columns are kept for the dots. A third is for what stands before, and what is not needed behind.
        let space = if is_whole { room } else { room.saturating_sub(2) };
        let lead = fitting(&before, (space / 3).max(space.saturating_sub(behind_width)));
        let lead_width: usize = lead.iter().map(Cell::width).sum();
        let rest = fitting(&behind, space.saturating_sub(lead_width));
        let mut text = if lead.len() < before.len() { "…".to_owned() } else { String::new() };
        text.extend(lead.iter().rev().map(|cell| &*cell.shown));
        let start_column = text.width();
        let covered = rest.iter().take_while(|cell| cell.at < place.end).count();
        text.extend(rest.iter().take(covered).map(|cell| &*cell.shown));
        let mut end_column = text.width();
        text.extend(rest.iter().skip(covered).map(|cell| &*cell.shown));
        if let Some(next) = behind.get(rest.len()) {
            text.push('…');
            end_column += usize::from(next.at < place.end);
        }
        Strip { text, start: start_column, end: end_column }
    }

    /// What stands before a place on its line, the nearest first, until it fills more than `room` columns.
    fn cells_before(&self, mut at: usize, line_start: usize, room: usize) -> Vec<Cell<'_>> {
        let (mut cells, mut width) = (Vec::new(), 0);
        while at > line_start && width <= room {
            let line = self.text.get(line_start..at).unwrap_or_default();
            let mut letters = line.char_indices().rev();
            let letter =
                letters.find(|(_, c)| !joins(*c)).map_or(line_start, |(at, _)| line_start + at);
            let mask = self.mask_over(at - 1).or_else(|| self.mask_over(letter));
            let cell = self.cell_at(mask.map_or(letter, |mask| mask.place.start));
            at = cell.at;
            width += cell.width();
            cells.push(cell);
        }
        cells
    }

    /// What stands at a place and behind it on its line, until it fills more than `room` columns.
    fn cells_behind(&self, mut at: usize, line_end: usize, room: usize) -> Vec<Cell<'_>> {
        let (mut cells, mut width) = (Vec::new(), 0);
        while at < line_end && width <= room {
            let cell = self.cell_at(at);
            at = cell.end;
            width += cell.width();
            cells.push(cell);
        }
        cells
    }

    /// What is shown for the character or the masked value that begins at a place.
    fn cell_at(&self, at: usize) -> Cell<'_> {
        if let Some(mask) = self.mask_over(at) {
            return Cell { at, end: mask.place.end, shown: Cow::Borrowed(&mask.shown) };
        }
        let mut rest = self.text.get(at..).unwrap_or_default().char_indices().skip(1);
        let end = rest.find(|(_, c)| !joins(*c)).map_or(self.text.len(), |(next, _)| at + next);
        Cell { at, end, shown: shown(self.text.get(at..end).unwrap_or_default()) }
    }

    fn mask_over(&self, at: usize) -> Option<&Mask> {
        let after = self.masks.partition_point(|mask| mask.place.start <= at);
        self.masks.get(after.checked_sub(1)?).filter(|mask| at < mask.place.end)
    }

    /// The line that a place is on, without what ends it.
    fn line_around(&self, at: usize) -> Range<usize> {
        let (before, behind) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = at + behind.find('\n').unwrap_or(behind.len());
        let line = self.text.get(start..end).unwrap_or_default();
        start..start + line.trim_end_matches('\r').len()
    }

    /// The first and the last line of a place.
    fn lines_of(&self, place: &Range<usize>) -> (Range<usize>, Range<usize>) {
        (self.line_around(place.start), self.line_around(self.last_byte(place)))
    }

    fn next_line(&self, line: &Range<usize>) -> Range<usize> {
        let rest = self.text.get(line.end..).unwrap_or_default();
        self.line_around(rest.find('\n').map_or(self.text.len(), |end| line.end + end + 1))
    }

    /// Where the last character of a place begins.
    fn last_byte(&self, place: &Range<usize>) -> usize {
        let inside = self.text.get(place.clone()).unwrap_or_default();
        inside.char_indices().next_back().map_or(place.start, |(at, _)| place.start + at)
    }
}

/// Whether a character stands in the same column as the one before it.
fn joins(character: char) -> bool {
    character.width() == Some(0)
}

/// A character as a terminal may have it. A tab would move the carets, so it is a few spaces.
fn shown(character: &str) -> Cow<'_, str> {
    match character {
        "\t" => Cow::Borrowed("    "),
        _ if character.is_ascii() && !character.contains(char::is_control) => {
            Cow::Borrowed(character)
        }
        _ => Cow::Owned(plain(character)),
    }
}

/// Lines that are being drawn.
struct Page {
    out: String,
    digits: usize,
    width: usize,
}

impl Page {
    /// How many columns a line has behind its number.
    fn room(&self) -> usize {
        self.width.saturating_sub(self.digits + 3).max(20)
    }

    fn gutter(&mut self, number: Option<usize>, text: &str) {
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        let gutter = format!("{number:>digits$} |", digits = self.digits);
        let text = if text.is_empty() { String::new() } else { format!(" {text}") };
        push_line(&mut self.out, &format!("{}{text}", gutter.blue().bold()));
    }

    /// Stands for lines that are not shown.
    fn elided(&mut self, bar: &str) {
        let dots = format!("{:<digits$}", "...", digits = self.digits + 2);
        push_line(&mut self.out, &format!("{} {bar}", dots.blue().bold()));
    }

    /// Carets with what is said of them: behind them where there is room, else below.
    fn label(&mut self, lead: &str, carets: &str, mark: &Mark<'_>) {
        let drawn = format!("{lead}{}", carets.style(mark.style));
        if mark.label.is_empty() {
            return self.gutter(None, &drawn);
        }
        let label = plain(mark.label);
        let column = lead.width() + carets.width() + 1;
        let beside = self.room().saturating_sub(column);
        let lines = wrapped(&label, beside);
        // A column so narrow that it breaks words is no place for a sentence.
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
