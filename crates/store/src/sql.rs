//! Values, rows and transactions that are independent of the database.
//!
//! SQL statements that run on both SQLite and PostgreSQL use placeholders such as `$1`.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{Digest, ElisionReason, LogId, LogKind, Rewind, Tenant, TurnId};
use throughline_json::Name;

use crate::rejection::{Result, corrupt};
use crate::row::ErasureReason;
use crate::row_mac::{Field, IndexTable, RowKey, Sum};

/// The tables and their columns in schema version 2, which SQLite and PostgreSQL have in common.
pub(crate) const TABLES: [(&str, &str); 14] = [
    ("tenants", "id, name, created, era"),
    (
        "logs",
        "id, tenant, name, kind, of, fork, fork_at, rewinds, status, last, events, bytes, created, \
         updated, gone",
    ),
    (
        "records",
        "id, tenant, log, seq, kind, at, events, last_event, about, size, segment, position, \
         commitment, link, erased, blob, content",
    ),
    ("salts", "record, tenant, epoch, salt"),
    ("blobs", "id, tenant, hash, content"),
    ("segments", "id, tenant, writer, position, link, changes, sums, mac"),
    ("manifests", "id, body, signature"),
    ("once", "tenant, name, receipt"),
    ("leases", "tenant, log, owner, fence, until"),
    ("pending", "tenant, id, kind, log, seq, opened, expires, taken"),
    ("turns", "id, tenant, name, parent, log, first, last, prefix"),
    ("turn_keys", "tenant, kind, hash, turn"),
    ("api_keys", "tenant, id, label, limits, hash, created, revoked, mac"),
    ("kept", "name, value"),
];

/// A transaction on SQLite or PostgreSQL. Its methods block the calling thread.
pub(crate) trait Transaction {
    /// Returns the column that schema version 3 added to a table, after a comma; empty if there is
    /// none.
    fn added_columns(&self, table: &str) -> &'static str;

    /// Runs a statement and passes each row of its result to `visit`. Only a few rows are in memory
    /// at a time.
    fn visit(
        &self,
        sql: &str,
        values: &[SqlValue],
        visit: &mut dyn FnMut(SqlRow) -> Result<()>,
    ) -> Result<()>;

    /// Runs a statement and returns all rows of its result.
    fn query(&self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>> {
        let mut rows = Vec::new();
        self.visit(sql, values, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }
}

/// The value of a column or parameter.
#[derive(Clone, Debug)]
pub(crate) enum SqlValue {
    Null,
    Number(i64),
    Text(Name),
    Bytes(Bytes),
}

/// Builds an array of [`SqlValue`]s.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::sql::SqlValue::from($value)),*] };
}
pub(crate) use values;

/// One row of a query result.
pub(crate) struct SqlRow(pub(crate) Vec<SqlValue>);

impl SqlRow {
    /// Returns the value in a column. Fails if the column is missing or has another type.
    pub(crate) fn get<T: FromValue>(&self, column: usize) -> Result<T> {
        self.0
            .get(column)
            .and_then(T::from_value)
            .ok_or_else(|| corrupt!("column {column} of a stored row has an invalid value"))
    }

    /// Returns the MAC of this row as a [`Sum`]. The row must start with the table's columns.
    pub(crate) fn mac(&self, key: &RowKey, table: &IndexTable) -> Sum {
        let fields = self.0.iter().take(table.columns.split(',').count());
        key.row(table, &fields.map(Field::from).collect::<Vec<_>>())
    }
}

/// Reads the columns of a row in order.
pub(crate) struct ColumnReader<'r> {
    pub(crate) row: &'r SqlRow,
    pub(crate) column: usize,
}

impl ColumnReader<'_> {
    pub(crate) fn next<T: FromValue>(&mut self) -> Result<T> {
        self.column += 1;
        self.row.get(self.column - 1)
    }
}

/// Decodes consecutive columns of a row into fields of a struct, starting at column `$first`. A
/// second pair of braces can set the remaining fields.
macro_rules! decode {
    ($row:expr, $first:expr, $type:ident { $($field:ident),* $(,)? } $({ $($others:tt)* })?) => {{
        let mut columns = $crate::sql::ColumnReader { row: $row, column: $first };
        $type { $($field: columns.next()?,)* $($($others)*)? }
    }};
}
pub(crate) use decode;

impl<'v> From<&'v SqlValue> for Field<'v> {
    fn from(value: &'v SqlValue) -> Self {
        match value {
            SqlValue::Null => Field::Null,
            SqlValue::Number(number) => Field::Number(*number),
            SqlValue::Text(text) => Field::Text(text.as_bytes()),
            SqlValue::Bytes(bytes) => Field::Bytes(bytes),
        }
    }
}

/// A Rust type that a column value can be converted to.
pub(crate) trait FromValue: Sized {
    /// Returns `None` if the value is invalid for the type.
    fn from_value(value: &SqlValue) -> Option<Self>;
}

/// Implements the conversions to and from [`SqlValue`] for integer types. A parameter that is too
/// large for the database's integer type becomes that type's maximum, which exceeds all stored
/// values.
macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl FromValue for $integer {
            fn from_value(value: &SqlValue) -> Option<Self> {
                let SqlValue::Number(number) = value else { return None };
                Self::try_from(*number).ok()
            }
        }

        impl From<$integer> for SqlValue {
            fn from(number: $integer) -> Self {
                SqlValue::Number(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }
    )*};
}
integers!(i64, u64, i32, u32, i16);

/// Implements the conversions to and from [`SqlValue`] for types that wrap a [`Name`].
macro_rules! names {
    ($($name:ident),*) => {$(
        impl FromValue for $name {
            fn from_value(value: &SqlValue) -> Option<Self> {
                Name::from_value(value).map($name)
            }
        }

        impl From<&$name> for SqlValue {
            fn from(name: &$name) -> Self {
                SqlValue::Text(name.0.clone())
            }
        }
    )*};
}
names!(Tenant, LogId, TurnId);

impl FromValue for bool {
    fn from_value(value: &SqlValue) -> Option<Self> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl FromValue for Name {
    fn from_value(value: &SqlValue) -> Option<Self> {
        if let SqlValue::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl FromValue for String {
    fn from_value(value: &SqlValue) -> Option<Self> {
        Name::from_value(value).map(|text| text.to_string())
    }
}

impl FromValue for Bytes {
    fn from_value(value: &SqlValue) -> Option<Self> {
        if let SqlValue::Bytes(bytes) = value { Some(bytes.clone()) } else { None }
    }
}

impl<const LENGTH: usize> FromValue for [u8; LENGTH] {
    fn from_value(value: &SqlValue) -> Option<Self> {
        if let SqlValue::Bytes(bytes) = value { bytes.as_ref().try_into().ok() } else { None }
    }
}

impl FromValue for Timestamp {
    /// Converts milliseconds since 1970. A time outside the supported range becomes the nearest
    /// supported time.
    fn from_value(value: &SqlValue) -> Option<Self> {
        i64::from_value(value).map(timestamp)
    }
}

impl FromValue for LogKind {
    fn from_value(value: &SqlValue) -> Option<Self> {
        let number = i16::from_value(value)?;
        [LogKind::Thread, LogKind::Run].into_iter().find(|kind| kind_number(*kind) == number)
    }
}

impl FromValue for ErasureReason {
    fn from_value(value: &SqlValue) -> Option<Self> {
        ErasureReason::from_number(i16::from_value(value)?)
    }
}

impl FromValue for ElisionReason {
    fn from_value(value: &SqlValue) -> Option<Self> {
        ErasureReason::from_value(value).map(ErasureReason::to_elision_reason)
    }
}

impl FromValue for Vec<Rewind> {
    /// Parses `AT:TO` pairs such as `7:3`, separated by spaces.
    fn from_value(value: &SqlValue) -> Option<Self> {
        let rewind = |pair: &str| {
            let (at, to) = pair.split_once(':')?;
            Some(Rewind { at: at.parse().ok()?, to: to.parse().ok()? })
        };
        let text = Option::<Name>::from_value(value)?;
        text.as_deref().unwrap_or_default().split_ascii_whitespace().map(rewind).collect()
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &SqlValue) -> Option<Self> {
        if matches!(value, SqlValue::Null) { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl From<bool> for SqlValue {
    fn from(value: bool) -> Self {
        SqlValue::Number(value.into())
    }
}

impl From<&Name> for SqlValue {
    fn from(name: &Name) -> Self {
        SqlValue::Text(name.clone())
    }
}

impl From<&Bytes> for SqlValue {
    fn from(bytes: &Bytes) -> Self {
        SqlValue::Bytes(bytes.clone())
    }
}

impl From<&Digest> for SqlValue {
    fn from(digest: &Digest) -> Self {
        SqlValue::from(digest.as_slice())
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(SqlValue::Null, Into::into)
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        SqlValue::Text(text.into())
    }
}

impl From<&[u8]> for SqlValue {
    fn from(bytes: &[u8]) -> Self {
        SqlValue::Bytes(Bytes::copy_from_slice(bytes))
    }
}

/// Converts milliseconds since 1970. A time outside the supported range becomes the nearest
/// supported time.
pub(crate) fn timestamp(milliseconds: i64) -> Timestamp {
    let limit = if milliseconds > 0 { Timestamp::MAX } else { Timestamp::MIN };
    Timestamp::from_millisecond(milliseconds).unwrap_or(limit)
}

/// Returns the number that the database stores for a log kind.
pub(crate) fn kind_number(kind: LogKind) -> i16 {
    match kind {
        LogKind::Thread => 1,
        LogKind::Run => 2,
    }
}
