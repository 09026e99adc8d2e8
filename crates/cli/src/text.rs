//! Writing for people: nothing that a model or a file said can steer the terminal.

use std::io::Write as _;

use anyhow::Context as _;

use crate::failure::Failure;

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

fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        result => Ok(result.context("standard output cannot be written")?),
    }
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
        let mut rest: &str = line;
        while let Some((limit, _)) = rest.char_indices().nth(width) {
            let fitting = rest.get(..limit).unwrap_or(rest);
            let end = fitting.rfind(' ').filter(|end| *end > width / 2).unwrap_or(limit);
            let (head, tail) = rest.split_at(end);
            lines.push(head.trim_end().to_owned());
            rest = tail.trim_start_matches(' ');
        }
        lines.push(rest.to_owned());
    }
    lines
}

/// The text with everything that a terminal would obey made visible: control characters and bidirectional marks.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() || is_bidirectional(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{061c}')
}

/// A number of bytes for people: `812 B`, `2.1 KB`.
pub(crate) fn size(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal place is shown")]
    let bytes_f = bytes as f64;
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} KB", bytes_f / 1e3),
        1_000_000.. => format!("{:.1} MB", bytes_f / 1e6),
    }
}
