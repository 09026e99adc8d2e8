//! Converts values and rows for SQLite, and runs SQL that both databases execute.

use std::path::Path;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use throughline_core::StoreError;

use crate::sql::{SqlRow, SqlValue, Transaction};
use crate::sqlite::schema::failure;
use crate::sqlite::statements::query_all;

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            SqlValue::Null => ValueRef::Null,
            SqlValue::Number(number) => ValueRef::Integer(*number),
            SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
            SqlValue::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl FromSql for SqlValue {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => SqlValue::Null,
            ValueRef::Integer(number) => SqlValue::Number(number),
            ValueRef::Text(_) => SqlValue::from(value.as_str()?),
            ValueRef::Blob(bytes) => SqlValue::from(bytes),
            // No column of the store has this type.
            ValueRef::Real(_) => return Err(FromSqlError::InvalidType),
        })
    }
}

impl Transaction for Connection {
    fn added_columns(&self, table: &str) -> &'static str {
        match table {
            "records" => ", span",
            "turns" => ", keys",
            _ => "",
        }
    }

    fn visit(
        &self,
        sql: &str,
        values: &[SqlValue],
        visit: &mut dyn FnMut(SqlRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |error| failure(error, Path::new(self.path().unwrap_or_default()));
        let mut statement = self.prepare_cached(&placeholders(sql)).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            visit(sql_row(row).map_err(failed)?)?;
        }
        Ok(())
    }
}

/// Runs a query whose placeholders have the form `$1`.
pub(super) fn select(
    db: &Connection,
    sql: &str,
    values: &[SqlValue],
) -> rusqlite::Result<Vec<SqlRow>> {
    query_all(db, &placeholders(sql), params_from_iter(values), sql_row)
}

/// Replaces placeholders such as `$1` with `?1`. SQLite numbers `$1` by order of occurrence, but
/// uses the number in `?1` as written.
fn placeholders(sql: &str) -> String {
    sql.replace('$', "?")
}

pub(super) fn sql_row(row: &Row<'_>) -> rusqlite::Result<SqlRow> {
    let columns = 0..row.as_ref().column_count();
    columns.map(|column| row.get(column)).collect::<Result<_, _>>().map(SqlRow)
}

/// Wraps a store error in an SQLite error. [`failure`] unwraps the store error again.
pub(super) fn own_error(error: StoreError) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}
