//! Formats tables that fit the terminal.

use owo_colors::{OwoColorize as _, Style};
use throughline_core::LogId;
use throughline_store::{Order, Page};
use unicode_width::UnicodeWidthStr as _;

use crate::args::PageArgs;
use crate::print::text::{self, one_line, plain, push_line, wrapped};

/// Number of spaces between two table columns.
const GAP: usize = 2;

/// Minimum width of a column whose cells are wrapped or truncated. A table with narrower columns is
/// unreadable, so its rows are stacked instead.
const NARROWEST: usize = 16;

/// Width of a truncated column that is kept before other columns are dropped.
const TRUNCATED: usize = 18;

/// Maximum width of a table on a terminal.
const WIDEST: usize = 240;

/// Returns a page request for one row more than the limit. The extra row reveals whether there is
/// another page.
pub(crate) fn page(paging: &PageArgs) -> Page {
    let after = paging.after.as_deref().map(LogId::from);
    Page { after, limit: paging.limit.saturating_add(1), order: Order::Newest }
}

/// Removes the extra row that `page` requested. Returns the last row of the page if there was an
/// extra row, else `None`.
pub(crate) fn cut<T>(rows: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() <= limit {
        return None;
    }
    rows.truncate(limit);
    rows.last()
}

pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

pub(crate) struct Column {
    head: &'static str,
    cells: Vec<Cell>,
    /// Whether the column is right-aligned, as for numbers.
    is_right: bool,
    /// Whether the column may be dropped on a narrow terminal.
    is_droppable: bool,
    overflow: Overflow,
}

/// What happens to the cells of a column that are too wide for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// The cells are wrapped.
    Wrap,
    /// The cells are never wrapped, so that names can be copied.
    Keep,
    /// The cells are truncated to one line.
    Truncate,
}

impl Column {
    /// Creates a left-aligned column.
    pub(crate) fn new(head: &'static str, cells: impl Iterator<Item: Into<Cell>>) -> Self {
        Self {
            head,
            cells: cells.map(Into::into).collect(),
            is_right: false,
            is_droppable: false,
            overflow: Overflow::Wrap,
        }
    }

    /// Creates a right-aligned column of numbers.
    pub(crate) fn numbers(head: &'static str, cells: impl Iterator<Item: Into<Cell>>) -> Self {
        Self { is_right: true, ..Self::new(head, cells) }
    }

    /// Allows the column to be dropped on a narrow terminal. The last such column is dropped first.
    pub(crate) fn droppable(self) -> Self {
        Self { is_droppable: true, ..self }
    }

    /// Prevents wrapping of the cells.
    pub(crate) fn unwrapped(self) -> Self {
        Self { overflow: Overflow::Keep, ..self }
    }

    /// Truncates the cells to one line on a narrow terminal.
    pub(crate) fn truncated(self) -> Self {
        Self { overflow: Overflow::Truncate, ..self }
    }

    pub(crate) fn dimmed(mut self) -> Self {
        self.cells.iter_mut().for_each(|cell| cell.style = Style::new().dimmed());
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn width(&self) -> usize {
        let lines = self.cells.iter().flat_map(|cell| cell.text.lines());
        lines.chain([self.head]).map(str::width).max().unwrap_or(0)
    }
}

/// Formats a table for standard output. The first column contains names and is never wrapped. If
/// standard output is not a terminal, all columns are printed in full, so that other programs
/// receive whole ids.
pub(crate) fn table(mut columns: Vec<Column>) -> String {
    let output = std::io::stdout();
    let Some(width) = text::terminal_width(&output) else {
        for column in &mut columns {
            column.overflow = Overflow::Keep;
        }
        return table_in(columns, usize::MAX / 2);
    };
    if let Some(first) = columns.first_mut() {
        first.overflow = Overflow::Keep;
    }
    table_in(columns, width.min(WIDEST))
}

/// Formats a table without borders, at most `room` terminal columns wide. If the columns do not
/// fit, formats each row as a block of lines.
pub(crate) fn table_in(mut columns: Vec<Column>, room: usize) -> String {
    let total = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>();
    let wanted = |column: &Column| match column.width() {
        width if column.overflow == Overflow::Truncate => width.min(TRUNCATED),
        width => width,
    };
    while total(&columns.iter().map(wanted).collect::<Vec<_>>()) > room + GAP
        && let Some(index) = columns.iter().rposition(|column| column.is_droppable)
    {
        columns.remove(index);
    }
    let least = |column: &Column| match column.width() {
        width if column.overflow == Overflow::Keep => width,
        width => width.min(NARROWEST),
    };
    if total(&columns.iter().map(least).collect::<Vec<_>>()) > room + GAP {
        return stacked(&columns, room);
    }
    let mut widths: Vec<usize> = columns.iter().map(Column::width).collect();
    // Narrow the widest column until the table fits.
    while total(&widths) > room + GAP {
        let widths = widths.iter_mut().zip(&columns);
        let breakable = widths.filter(|(_, column)| column.overflow != Overflow::Keep);
        match breakable.map(|(width, _)| width).max() {
            Some(width) if *width > 1 => *width -= 1,
            Some(_) | None => break,
        }
    }
    let mut out = String::new();
    let mut push_row = |cells: Vec<(&str, Style)>| {
        let cells = cells.into_iter().zip(widths.iter().zip(&columns));
        let cells = cells.map(|((text, style), (width, column))| {
            let is_cut = column.overflow == Overflow::Truncate;
            let lines = if is_cut { vec![one_line(text, *width)] } else { wrapped(text, *width) };
            (lines, style)
        });
        let cells: Vec<(Vec<String>, Style)> = cells.collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        for number in 0..height.max(1) {
            let mut line = String::new();
            for ((lines, style), (width, column)) in cells.iter().zip(widths.iter().zip(&columns)) {
                let text = lines.get(number).map(String::as_str).unwrap_or_default();
                let padding = " ".repeat(width.saturating_sub(text.width()));
                let (before, after) =
                    if column.is_right { (&*padding, "") } else { ("", &*padding) };
                // Padding and empty cells have no style, so that trailing spaces can be trimmed.
                let style = if text.trim().is_empty() { Style::new() } else { *style };
                for part in [before, &text.style(style).to_string(), after, &" ".repeat(GAP)] {
                    line.push_str(part);
                }
            }
            push_line(&mut out, line.trim_end());
        }
    };
    if columns.iter().any(|column| !column.head.is_empty()) {
        push_row(columns.iter().map(|column| (column.head, Style::new().dimmed())).collect());
    }
    for row in 0..columns.first().map_or(0, |first| first.cells.len()) {
        let cells = columns.iter().filter_map(|column| column.cells.get(row));
        push_row(cells.map(|cell| (&*cell.text, cell.style)).collect());
    }
    out
}

/// Formats each row as a block: the names on the first line, then one labelled line per further
/// column.
fn stacked(columns: &[Column], room: usize) -> String {
    let leading =
        columns.iter().take_while(|column| column.overflow == Overflow::Keep).count().max(1);
    let (names, details) = columns.split_at(leading.min(columns.len()));
    let label = details.iter().map(|column| column.head.width()).max().unwrap_or(0);
    let indent = if label == 0 { GAP } else { label + 2 * GAP };
    let mut out = String::new();
    for row in 0..columns.first().map_or(0, |first| first.cells.len()) {
        let names = names.iter().filter_map(|column| column.cells.get(row));
        let names = names.map(|cell| cell.text.trim_end().style(cell.style).to_string());
        push_line(&mut out, &names.collect::<Vec<_>>().join(&" ".repeat(GAP)));
        for column in details {
            let Some(cell) = column.cells.get(row) else { continue };
            let mut head = column.head;
            for line in wrapped(&cell.text, room.saturating_sub(indent).max(NARROWEST)) {
                if line.is_empty() {
                    continue;
                }
                let label = format!("{:GAP$}{head:<width$}", "", width = indent - GAP);
                let text = line.style(cell.style).to_string();
                push_line(&mut out, &format!("{}{text}", label.dimmed()));
                head = "";
            }
        }
    }
    out
}

/// Formats the hint that shows how to request the next page.
pub(crate) fn next_page_hint(after: &str) -> String {
    let option = format!("--after {}", plain(after));
    format!("\n{} {}\n", "more rows: add".dimmed(), option.bold())
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod listing_tests;
