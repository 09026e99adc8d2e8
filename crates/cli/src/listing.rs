//! Lists of threads and runs, in a table that fits the terminal.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width,
    presets,
};
use owo_colors::OwoColorize as _;
use throughline_core::{LogHead, LogId, json};
use throughline_store::{Order, Page};
use unicode_width::UnicodeWidthStr as _;

use crate::failure::Failure;
use crate::options::Paging;
use crate::store::Opened;
use crate::text::{self, plain, push_line, stored_size};

/// The page that is asked for, and one row more: so it is known whether there are more.
pub(crate) fn page(paging: &Paging) -> Page {
    let after = paging.after.as_deref().map(LogId::from);
    Page { after, limit: paging.limit.saturating_add(1), order: Order::Newest }
}

/// Cuts off the row that was one too many; says after which row to go on, if there was one.
pub(crate) fn cut<T>(rows: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() <= limit {
        return None;
    }
    rows.truncate(limit);
    rows.last()
}

/// The runs of a tenant, or of a thread. What else is kept beside a thread, as words for a run and kept responses, does not
/// say how it stands, and is no run.
pub(crate) fn runs(
    opened: &Opened,
    thread: Option<&LogId>,
    mut page: Page,
) -> Result<Vec<LogHead>, Failure> {
    const LOOKED_AT: u32 = 256;
    let wanted = usize::try_from(page.limit).unwrap_or(usize::MAX);
    page.limit = page.limit.max(LOOKED_AT);
    let mut runs = Vec::new();
    loop {
        let logs = opened.run(opened.journal.runs(&opened.tenant, thread, page.clone()))?;
        page.after = logs.last().map(|head| head.log.clone());
        runs.extend(logs.into_iter().filter(|head| head.status.is_some()));
        if page.after.is_none() || runs.len() >= wanted {
            runs.truncate(wanted);
            return Ok(runs);
        }
    }
}

/// A column of a list of logs.
pub(crate) struct Column {
    /// What stands above it.
    head: &'static str,
    /// What stands in it, row by row.
    cells: Vec<Cell>,
    /// Whether it stands at the right end of its room, as numbers do.
    is_right: bool,
    /// Whether it is one of those that are left out first where the terminal is narrow.
    can_go: bool,
}

impl Column {
    /// A column of texts.
    pub(crate) fn new(head: &'static str, cells: impl Iterator<Item = Cell>) -> Self {
        Self { head, cells: cells.collect(), is_right: false, can_go: false }
    }

    /// A column of numbers, which stand below each other by their ends.
    pub(crate) fn numbers(head: &'static str, cells: impl Iterator<Item = String>) -> Self {
        let right = |number| Cell::new(number).set_alignment(CellAlignment::Right);
        Self { is_right: true, ..Self::new(head, cells.map(right)) }
    }

    /// The same, as one that is left out first.
    pub(crate) fn that_can_go(mut self) -> Self {
        self.can_go = true;
        self
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(Cell::content);
        let lines = cells.filter_map(|cell| cell.lines().map(str::width).max());
        lines.chain([self.head.width()]).max().unwrap_or(0)
    }
}

/// The columns side by side. The first holds names, and is never broken; the last takes what room there is.
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
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(room).unwrap_or(u16::MAX)).enforce_styling();
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

/// How logs stand: what their writers say, or that their content is no more. No column where there is nothing to say.
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

/// When logs were last written to, and when they began.
pub(crate) fn time_columns(heads: &[LogHead]) -> [Column; 2] {
    let written = heads.iter().map(|head| Cell::new(text::minute(head.updated)));
    let created =
        heads.iter().map(|head| Cell::new(text::day(head.created)).add_attribute(Attribute::Dim));
    [Column::new("last written", written), Column::new("created", created).that_can_go()]
}

/// How many bytes logs have.
pub(crate) fn size_column(heads: &[LogHead]) -> Column {
    Column::numbers("size", heads.iter().map(|head| stored_size(head.bytes)))
}

/// How to see the rows that are not on the page.
pub(crate) fn more(after: &str) -> String {
    let option = format!("--after {}", plain(after));
    format!("\n{} {}\n", "there are more: add".dimmed(), option.bold())
}

/// What is said of a tenant that has none of something.
pub(crate) fn none_of(opened: &Opened, what: &str) -> Result<String, Failure> {
    let tenant = &opened.tenant;
    let mut others = opened.run(opened.journal.tenants())?;
    others.retain(|other| other != tenant);
    let mut said = format!("there are no {what} of the tenant {}\n", plain(&tenant.0));
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|other| plain(&other.0)).collect();
        let names = names.join(", ");
        push_line(&mut said, &format!("{} {names}", "other tenants of this store:".dimmed()));
    }
    Ok(said)
}

/// What every log says about itself to a program, after its own members.
pub(crate) fn put_head(o: &mut json::Object<'_>, head: &LogHead) {
    o.number("bytes", head.bytes);
    put_maybe(o, "status", head.status.as_deref());
    put_maybe(o, "gone", head.gone.map(|why| why.to_string()).as_deref());
    o.string("created", &head.created.to_string()).string("updated", &head.updated.to_string());
}

/// A text, or null: the member is always there.
pub(crate) fn put_maybe(o: &mut json::Object<'_>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => o.string(key, value),
        None => o.null(key),
    };
}
