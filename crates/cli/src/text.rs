//! Writing for people: nothing that a model or a file said can steer the terminal.
//!
//! Colours stand on marks and single words only. Sentences have the terminal's own colour, which its owner can read on
//! whichever background: cyan is the model's own, magenta the tools', green what is sealed or kept, yellow asks for
//! attention, red is what failed or was left out.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use owo_colors::{OwoColorize as _, Style};
pub(crate) use throughline_codec::size;
use throughline_core::Json;
use unicode_width::UnicodeWidthChar as _;

use crate::failure::Failure;
use crate::options::{Format, Printing};

#[cfg(test)]
#[path = "text_tests.rs"]
mod text_tests;

/// Writes bytes to standard output as they are.
pub(crate) fn write_out(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes text to standard output, with its colours where the terminal has them.
pub(crate) fn write_styled(text: &str) -> Result<(), Failure> {
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Answers people with a text, or a program with JSON.
pub(crate) fn answer(
    printing: &Printing,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Json,
) -> Result<(), Failure> {
    match printing.format {
        Format::Text => write_styled(&text()),
        Format::Json => {
            let mut out = json().as_str().to_owned();
            out.push('\n');
            write_out(out.as_bytes())
        }
    }
}

/// Writes a report to a file, never over one that was read.
pub(crate) fn write_beside<'p>(
    option: &str,
    file: &Path,
    read: impl IntoIterator<Item = &'p PathBuf>,
    bytes: &[u8],
) -> Result<(), Failure> {
    let name = file.display();
    let is_same = |other: &PathBuf| {
        file.canonicalize().ok().zip(other.canonicalize().ok()).is_some_and(|(a, b)| a == b)
    };
    if read.into_iter().any(is_same) {
        return Err(Failure::Usage(format!("{option} {name} would overwrite the request")));
    }
    Ok(std::fs::write(file, bytes).with_context(|| format!("{name} cannot be written"))?)
}

/// Appends a line to a page that is being written.
pub(crate) fn push_line(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        result => Ok(result.context("standard output cannot be written")?),
    }
}

/// Says something on standard error behind a word that tells what it is. On a terminal its lines stand below each other.
pub(crate) fn notice(word: &str, style: Style, message: &str) {
    let indent = word.chars().count() + 1;
    let terminal = std::io::stderr();
    let width = if terminal.is_terminal() { width(terminal) - indent } else { usize::MAX };
    let lines = wrapped(&plain(message), width).join(&format!("\n{:indent$}", ""));
    anstream::eprintln!("{} {lines}", word.style(style.bold()));
}

/// Says something worth knowing on standard error.
pub(crate) fn note(message: &str) {
    notice("note:", Style::new().cyan(), message);
}

/// How many columns there are to write in: the terminal's, or a page's where there is none.
pub(crate) fn width(terminal: impl std::os::fd::AsFd) -> usize {
    let size = terminal_size::terminal_size_of(terminal);
    size.map_or(100, |(width, _)| usize::from(width.0).clamp(40, 160))
}

/// Lines of at most `width` columns, broken between words where there are any.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.replace('\t', "    ");
        let mut rest: &str = &line;
        while let Some(limit) = overflow(rest, width) {
            let fitting = rest.get(..limit).unwrap_or(rest);
            // A word that fits on a line of its own is not broken, however early the line then ends.
            let is_border = |end: &usize| {
                let next = rest.get(end + 1..).unwrap_or_default();
                *end > limit / 2 || (*end > 0 && next.find(' ').unwrap_or(next.len()) <= limit)
            };
            let end = fitting.rfind(' ').filter(is_border);
            let (head, tail) = rest.split_at(end.unwrap_or_else(|| joint(fitting)));
            lines.push(head.trim_end().to_owned());
            rest = tail.trim_start_matches(' ');
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// Where to break a word that no line holds, an address or JSON: behind a mark that ends a piece of it, if one is near.
fn joint(word: &str) -> usize {
    let behind = |marks: &[char]| {
        // Not between the two of `//`, nor right behind them.
        let is_joint = |(at, _): &(usize, &str)| {
            *at >= word.len() / 2 && !word.get(..*at).is_some_and(|head| head.ends_with(['/', ':']))
        };
        word.rmatch_indices(marks).find(is_joint).map(|(at, mark)| at + mark.len())
    };
    behind(&[',', '/', '&', ';']).or_else(|| behind(&['_', '-', '.'])).unwrap_or(word.len())
}

/// One line as several of at most `width` columns, the further ones a little to the right of the first.
pub(crate) fn continued(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len() + 4;
    let mut lines = wrapped(line, width);
    if lines.len() > 1 {
        lines = wrapped(line, width.saturating_sub(indent).max(width / 2));
        lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, &" ".repeat(indent)));
    }
    lines
}

/// Where a line has filled its columns, if it does: wide characters take two.
fn overflow(line: &str, width: usize) -> Option<usize> {
    let mut columns = 0;
    let mut ends = line.char_indices().map(|(at, c)| {
        columns += c.width().unwrap_or_default();
        (at, columns)
    });
    ends.find(|(at, columns)| *columns > width && *at > 0).map(|(at, _)| at)
}

/// The text with everything made visible that a terminal would obey, that turns the direction, or that nobody could see. Joiners
/// stay where they join something: in many scripts they belong to words.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.replace("\r\n", "\n").chars() {
        let joins_nothing = matches!(c, '\u{200c}' | '\u{200d}') && last <= '\u{ff}';
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() || is_hidden(c) || joins_nothing => {
                shown.extend(c.escape_unicode());
            }
            c => shown.push(c),
        }
        last = c;
    }
    shown
}

/// Whether a letter cannot be seen, or turns the direction of those behind it. The console has the same list.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// JSON without the white space between its tokens.
pub(crate) fn compact(json: &str) -> String {
    let (mut out, mut in_string, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        match (in_string, escaped, c) {
            (true, true, _) => escaped = false,
            (true, false, '\\') => escaped = true,
            (_, _, '"') => in_string = !in_string,
            (false, _, c) if c.is_ascii_whitespace() => continue,
            _ => {}
        }
        out.push(c);
    }
    out
}

/// A number of things: `1 seal`, `2 seals`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Never breaks what stands in a column of a table: names are there to be copied.
pub(crate) fn keep_whole(table: &mut comfy_table::Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
    }
}

/// What a store counts, for people.
pub(crate) fn stored_size(bytes: u64) -> String {
    size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A time for people, on their own clock: `2026-08-31 12:00`.
pub(crate) fn minute(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// A day for people: `2026-08-31`.
pub(crate) fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string()
}

/// A mark before a sentence that says how something ended.
pub(crate) fn mark(is_good: bool) -> String {
    if is_good { "✓".green().bold().to_string() } else { "✗".red().bold().to_string() }
}

/// The beginning of a text, on one line of at most so many columns.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(end) = overflow(&line, width).and(overflow(&line, width.saturating_sub(1))) {
        line.truncate(end);
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    line
}
