//! Copies all rows of a store, for backups and migrations.

use throughline_core::StoreError;

use crate::query::share;
use crate::rejection::Result;
use crate::sql::{SqlRow, TABLES, Transaction};

/// The destination of copied rows.
pub(crate) trait RowSink {
    /// Adds a row of a table. `columns` lists the row's columns, separated by commas.
    fn add(&mut self, table: &'static str, columns: &str, row: SqlRow) -> Result<()>;
}

/// Copies all rows, one table after another. `report` receives the completed fraction, and returns
/// false to stop the copy if the caller was cancelled.
pub(crate) fn copy_rows(
    from: &dyn Transaction,
    to: &mut dyn RowSink,
    report: &dyn Fn(f64) -> bool,
) -> Result<()> {
    let count = |table: &str| -> Result<u64> {
        let rows = from.query(&format!("SELECT count(*) FROM {table}"), &[])?;
        rows.first().map_or(Ok(0), |row| row.get(0))
    };
    let mut total = 0;
    for (table, _) in TABLES {
        total += count(table)?;
    }
    let mut copied = 0;
    for (table, columns) in TABLES {
        // Salts are sorted, because key files are compared with the store in record order.
        let order = if table == "salts" { " ORDER BY record" } else { "" };
        let added = from.added_columns(table);
        // Older rows have no span, but new rows must have one.
        let (columns, selected) = match (table, added) {
            ("records", "") => (format!("{columns}, span"), format!("{columns}, 0")),
            ("records", _) => (format!("{columns}, span"), format!("{columns}, coalesce(span, 0)")),
            (_, added) => (format!("{columns}{added}"), format!("{columns}{added}")),
        };
        from.visit(&format!("SELECT {selected} FROM {table}{order}"), &[], &mut |row| {
            to.add(table, &columns, row)?;
            copied += 1;
            let is_reported = copied % 64 != 0 || report(share(copied, total).min(0.99));
            if is_reported { Ok(()) } else { Err(StoreError::Closed) }
        })?;
    }
    if report(1.0) { Ok(()) } else { Err(StoreError::Closed) }
}
