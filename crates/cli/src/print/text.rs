//! Terminal output. Text from models and files is escaped, so that it cannot control the terminal.
//!
//! Only marks and single words are coloured. Sentences keep the terminal's default colour, which is
//! readable on any background. Cyan marks the model, magenta tools, green Seals and kept values,
//! yellow warnings, red failures and elisions.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;
pub(crate) use throughline_codec::size;
use throughline_json::Json;
use unicode_width::UnicodeWidthChar as _;

use crate::args::Format;
use crate::print::failure::{Failure, Result};

#[cfg(test)]
#[path = "text_tests.rs"]
mod text_tests;

/// Writes bytes to standard output unchanged.
pub(crate) fn write_out(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes text to standard output. Colours are removed if the terminal does not support them.
pub(crate) fn write_styled(text: &str) -> Result<()> {
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn write_json(value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(value).context("cannot serialize the output as JSON")?;
    line.push(b'\n');
    write_out(&line)
}

impl Format {
    /// Prints text or JSON, depending on the output format.
    pub(crate) fn print<J: Serialize>(
        self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> J,
    ) -> Result<()> {
        match self {
            Self::Text => write_styled(&text()),
            Self::Json => write_json(&json()),
        }
    }
}

/// Writes a document to standard output unchanged, and adds a line feed on a terminal.
pub(crate) fn write_document(bytes: &[u8]) -> Result<()> {
    write_out(bytes)?;
    if std::io::stdout().is_terminal() { write_out(b"\n") } else { Ok(()) }
}

/// A JSON report that a command-line option requests. The option's value is a file, or `-` for
/// standard error.
pub(crate) struct Report<'r> {
    pub(crate) option: &'static str,
    pub(crate) file: Option<&'r Path>,
    pub(crate) json: &'r Json,
}

impl Report<'_> {
    /// Writes the report if the option names a file. Fails if that file is one of the inputs.
    pub(crate) fn write_file<'p>(
        &self,
        inputs: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Result<()> {
        let Some(file) = self.file.filter(|file| file.as_os_str() != "-") else { return Ok(()) };
        let real = file.canonicalize().ok();
        if real.is_some() && inputs.into_iter().any(|other| other.canonicalize().ok() == real) {
            let (option, name) = (self.option, file.display());
            return Err(Failure::Usage(format!("{option} {name} would overwrite the request")));
        }
        write_file(file, format!("{}\n", self.json.as_str()).as_bytes())
    }

    /// Prints the report if the option's value is `-`. Returns whether the option is set.
    pub(crate) fn print(&self) -> bool {
        if self.file.is_some_and(|file| file.as_os_str() == "-") {
            anstream::eprintln!("{}", self.json.as_str());
        }
        self.file.is_some()
    }
}

pub(crate) fn write_file(file: &Path, bytes: &[u8]) -> Result<()> {
    let written = std::fs::write(file, bytes);
    Ok(written.with_context(|| format!("cannot write {}", file.display()))?)
}

pub(crate) fn read_file(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file);
    text.map_err(|error| Failure::unreadable(&format!("cannot read {}", file.display()), &error))
}

pub(crate) fn push_line(page: &mut String, line: &str) {
    page.push_str(line);
    page.push('\n');
}

fn written(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        result => Ok(result.context("cannot write to standard output")?),
    }
}

/// Prints a message with a label on standard error. On a terminal, continuation lines are aligned.
pub(crate) fn notice(word: &str, style: Style, message: &str) {
    let indent = word.chars().count() + 1;
    let terminal = std::io::stderr();
    let width = if terminal.is_terminal() { width(terminal) - indent } else { usize::MAX };
    let lines = wrapped(&plain(message), width).join(&format!("\n{:indent$}", ""));
    anstream::eprintln!("{} {lines}", word.style(style.bold()));
}

pub(crate) fn note(message: &str) {
    notice("note:", Style::new().cyan(), message);
}

/// Writes to standard error. Colours are removed if the terminal does not support them.
pub(crate) fn write_stderr(text: &str) -> Result<()> {
    let mut out = anstream::stderr();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.context("cannot write to standard error")?)
}

/// Prints a prompt on standard error and reads a line. Returns `None` at end of input.
pub(crate) fn prompt(prompt: &str) -> Result<Option<String>> {
    write_stderr(prompt)?;
    let mut line = String::new();
    let bytes = std::io::stdin().read_line(&mut line).context("cannot read the answer")?;
    Ok((bytes > 0).then(|| line.trim().to_owned()))
}

/// Returns the width for prose in columns, between 40 and 160. Returns 100 if the output is not a
/// terminal.
pub(crate) fn width(output: impl std::os::fd::AsFd) -> usize {
    terminal_width(output).map_or(100, |width| width.min(160))
}

/// Returns the terminal width in columns, at least 40; `None` if the output is not a terminal.
pub(crate) fn terminal_width(output: impl std::os::fd::AsFd) -> Option<usize> {
    let size = terminal_size::terminal_size_of(output);
    size.map(|(width, _)| usize::from(width.0).max(40))
}

/// Wraps text to lines of at most `width` columns, between words if possible.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.replace('\t', "    ");
        let mut rest: &str = &line;
        while let Some(limit) = overflow(rest, width) {
            let fitting = rest.get(..limit).unwrap_or(rest);
            // A word that fits on one line is not broken.
            let is_border = |end: &usize| {
                let next = rest.get(end + 1..).unwrap_or_default();
                *end > limit / 2 || (*end > 0 && next.find(' ').unwrap_or(next.len()) <= limit)
            };
            let end = fitting.rfind(' ').filter(is_border);
            let (head, tail) = rest.split_at(end.unwrap_or_else(|| break_position(fitting)));
            lines.push(head.trim_end().to_owned());
            rest = tail.trim_start_matches(' ');
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// Finds a break position in a word that is too long, such as a URL or JSON: after a separator if
/// possible.
fn break_position(word: &str) -> usize {
    let after = |marks: &[char]| {
        // Do not break between the slashes of `//` or directly after them.
        let is_joint = |(at, _): &(usize, &str)| {
            *at >= word.len() / 2 && !word.get(..*at).is_some_and(|head| head.ends_with(['/', ':']))
        };
        word.rmatch_indices(marks).find(is_joint).map(|(at, mark)| at + mark.len())
    };
    after(&[',', '/', '&', ';']).or_else(|| after(&['_', '-', '.'])).unwrap_or(word.len())
}

/// Splits a line into lines of at most `width` columns, with continuation lines indented.
pub(crate) fn continued(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len() + 4;
    let mut lines = wrapped(line, width);
    if lines.len() > 1 {
        lines = wrapped(line, width.saturating_sub(indent).max(width / 2));
        lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, &" ".repeat(indent)));
    }
    lines
}

/// Returns the byte offset where a line exceeds the width; `None` if the line fits. Wide characters
/// take two columns.
fn overflow(line: &str, width: usize) -> Option<usize> {
    let mut columns = 0;
    let mut ends = line.char_indices().map(|(at, c)| {
        columns += c.width().unwrap_or_default();
        (at, columns)
    });
    ends.find(|(at, columns)| *columns > width && *at > 0).map(|(at, _)| at)
}

/// Escapes control, bidirectional and invisible characters. Zero-width joiners between characters
/// are kept, because many scripts need them.
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

/// Returns whether a character is invisible or changes the text direction. The console escapes the
/// same characters.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Removes the white space between JSON tokens.
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

/// Formats a number with a noun: `1 seal`, `2 seals`.
pub(crate) fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let end = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// Formats a byte count from the store with a unit.
pub(crate) fn stored_size(bytes: u64) -> String {
    size(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Formats a time in the local time zone: `2026-08-31 12:00`.
pub(crate) fn minute(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Formats a date in the local time zone: `2026-08-31`.
pub(crate) fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string()
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min` or `3 d 4 h`.
pub(crate) fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..10 => format!("{seconds}.{} s", time.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Returns a coloured tick for success or a cross for failure.
pub(crate) fn mark(is_good: bool) -> String {
    if is_good { "✓".green().bold().to_string() } else { "✗".red().bold().to_string() }
}

/// Collapses white space and truncates a text to `width` columns.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(end) = overflow(&line, width).and(overflow(&line, width.saturating_sub(1))) {
        line.truncate(end);
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    line
}
