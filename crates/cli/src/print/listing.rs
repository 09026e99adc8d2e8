//! Lists of threads and runs as tables that fit the terminal.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width,
    presets,
};
use owo_colors::OwoColorize as _;
use throughline_core::{LogHead, LogId};
use throughline_store::{Order, Page};
use unicode_width::UnicodeWidthStr as _;

use crate::args::PageArgs;
use crate::print::text::{self, plain, push_line, stored_size};

/// Returns the requested page plus one row, which shows whether there are more.
pub(crate) fn page(paging: &PageArgs) -> Page {
    let after = paging.after.as_deref().map(LogId::from);
    Page { after, limit: paging.limit.saturating_add(1), order: Order::Newest }
}

/// Removes the extra row; returns the last row of the page if there was one.
pub(crate) fn cut<T>(rows: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() <= limit {
        return None;
    }
    rows.truncate(limit);
    rows.last()
}

/// A column of a table.
pub(crate) struct Column {
    head: &'static str,
    cells: Vec<Cell>,
    /// Whether the column is right-aligned, as for numbers.
    is_right: bool,
    /// Whether the column is dropped first on a narrow terminal.
    can_go: bool,
}

impl Column {
    /// Creates a column of texts.
    pub(crate) fn new(head: &'static str, cells: impl Iterator<Item = Cell>) -> Self {
        Self { head, cells: cells.collect(), is_right: false, can_go: false }
    }

    /// Creates a right-aligned column of numbers.
    pub(crate) fn numbers(head: &'static str, cells: impl Iterator<Item = String>) -> Self {
        let right = |number| Cell::new(number).set_alignment(CellAlignment::Right);
        Self { is_right: true, ..Self::new(head, cells.map(right)) }
    }

    /// Marks the column as one that is dropped first.
    pub(crate) fn droppable(mut self) -> Self {
        self.can_go = true;
        self
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(Cell::content);
        let lines = cells.filter_map(|cell| cell.lines().map(str::width).max());
        lines.chain([self.head.width()]).max().unwrap_or(0)
    }
}

/// Creates a table without borders that wraps its cells to `width` columns.
pub(crate) fn borderless_table(width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).enforce_styling();
    table
}

/// Disables wrapping in a table column, so that names can be copied.
pub(crate) fn keep_whole(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// Formats the columns. The first one holds names and is never broken; the last one takes the
/// remaining width.
pub(crate) fn table(mut columns: Vec<Column>) -> String {
    const GAP: usize = 2;
    let room = text::width(std::io::stdout());
    let needed = |columns: &[Column]| -> usize {
        columns.iter().map(|column| column.width() + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while needed(&columns) > room
        && let Some(place) = columns.iter().rposition(|column| column.can_go)
    {
        columns.remove(place);
    }
    let mut table = borderless_table(room);
    table.set_header(columns.iter().map(|column| {
        let head = Cell::new(column.head).add_attribute(Attribute::Dim);
        head.set_alignment(if column.is_right { CellAlignment::Right } else { CellAlignment::Left })
    }));
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let mut cells: Vec<_> = columns.into_iter().map(|column| column.cells.into_iter()).collect();
    while let Some(row) = cells.iter_mut().map(Iterator::next).collect::<Option<Vec<Cell>>>() {
        if row.is_empty() {
            break;
        }
        table.add_row(row);
    }
    let fits = widths.iter().map(|width| width + GAP).sum::<usize>() <= room + GAP;
    for (index, width) in widths.iter().enumerate() {
        let Some(column) = table.column_mut(index) else { continue };
        let gap = if index + 1 == widths.len() { 0 } else { GAP };
        column.set_padding((0, u16::try_from(gap).unwrap_or_default()));
        if index == 0 || fits {
            let width = u16::try_from(width + gap).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    let mut out = String::new();
    for line in table.lines() {
        push_line(&mut out, line.trim_end());
    }
    out
}

/// Returns the status column, with erased logs marked; `None` if no log has a status.
pub(crate) fn status_column(heads: &[LogHead]) -> Option<Column> {
    let is_said = |head: &LogHead| head.status.is_some() || head.gone.is_some();
    heads.iter().any(is_said).then(|| {
        Column::new(
            "status",
            heads.iter().map(|head| match (&head.gone, &head.status) {
                (Some(gone), _) => Cell::new(gone).fg(Color::Red),
                (None, Some(status)) => Cell::new(plain(status)),
                (None, None) => Cell::new(""),
            }),
        )
    })
}

/// Returns the columns for the last write and the creation.
pub(crate) fn time_columns(heads: &[LogHead]) -> [Column; 2] {
    let written = heads.iter().map(|head| Cell::new(text::minute(head.updated)));
    let created =
        heads.iter().map(|head| Cell::new(text::day(head.created)).add_attribute(Attribute::Dim));
    [Column::new("last written", written), Column::new("created", created).droppable()]
}

/// Returns the column for sizes.
pub(crate) fn size_column(heads: &[LogHead]) -> Column {
    Column::numbers("size", heads.iter().map(|head| stored_size(head.bytes)))
}

/// Returns the hint for the next page.
pub(crate) fn next_page_hint(after: &str) -> String {
    let option = format!("--after {}", plain(after));
    format!("\n{} {}\n", "more rows: add".dimmed(), option.bold())
}
