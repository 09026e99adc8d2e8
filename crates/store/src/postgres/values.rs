//! Converts values and rows for PostgreSQL, and runs SQL that both databases execute.

use std::error::Error;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use throughline_core::StoreError;
use tokio::runtime::Handle;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Row, Transaction as OpenTransaction};

use crate::postgres::connect::Server;
use crate::rejection::{Result, corrupt};
use crate::sql::{SqlRow, SqlValue, Transaction};

pub(super) type Parameter<'p> = &'p (dyn ToSql + Sync);

impl ToSql for SqlValue {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Number(number) if *ty == Type::BOOL => (*number != 0).to_sql(ty, out),
            SqlValue::Number(number) if *ty == Type::INT2 => {
                i16::try_from(*number)?.to_sql(ty, out)
            }
            SqlValue::Number(number) if *ty == Type::INT4 => {
                // A number above the type's maximum becomes that maximum, which exceeds all stored
                // values.
                i32::try_from(*number).unwrap_or(i32::MAX).to_sql(ty, out)
            }
            SqlValue::Number(number) => number.to_sql(ty, out),
            SqlValue::Text(text) => (&**text).to_sql(ty, out),
            SqlValue::Bytes(bytes) => (&**bytes).to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'r> FromSql<'r> for SqlValue {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *ty {
            Type::BOOL => SqlValue::Number(bool::from_sql(ty, raw)?.into()),
            Type::INT2 => SqlValue::Number(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => SqlValue::Number(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => SqlValue::Number(i64::from_sql(ty, raw)?),
            Type::BYTEA => SqlValue::Bytes(Bytes::copy_from_slice(raw)),
            _ => SqlValue::from(<&str>::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(SqlValue::Null)
    }

    fn accepts(ty: &Type) -> bool {
        let text = [Type::TEXT, Type::VOID];
        let others = [Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::BYTEA];
        text.contains(ty) || others.contains(ty)
    }
}

pub(super) fn sql_row(row: &Row) -> Result<SqlRow> {
    let values = (0..row.len()).map(|column| field(row, column));
    values.collect::<Result<_, _>>().map(SqlRow)
}

pub(super) fn field<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|error| StoreError::Database(Arc::new(error)))
}

/// Converts values to statement parameters.
pub(super) fn parameters(values: &[SqlValue]) -> Vec<Parameter<'_>> {
    values.iter().map(|value| value as Parameter<'_>).collect()
}

/// Converts a number to the database's integer type. Numbers that are too large become the type's
/// maximum, which exceeds all stored values.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn damaged(what: &str) -> StoreError {
    corrupt!("{what} cannot be read")
}

/// A transaction whose methods block the current thread, which must be outside the async runtime.
pub(super) struct BlockingTransaction<'t> {
    pub(super) runtime: &'t Handle,
    pub(super) server: &'t Server,
    pub(super) transaction: &'t OpenTransaction<'t>,
    /// Number of rows that the server returns at a time.
    pub(super) page: i32,
    /// Whether the schema has packs.
    pub(super) has_packs: bool,
}

impl Transaction for BlockingTransaction<'_> {
    fn added_columns(&self, table: &str) -> &'static str {
        match table {
            "records" if self.has_packs => ", span",
            "turns" if self.has_packs => ", keys",
            _ => "",
        }
    }

    fn visit(
        &self,
        sql: &str,
        values: &[SqlValue],
        visit: &mut dyn FnMut(SqlRow) -> Result<()>,
    ) -> Result<()> {
        let error = |error| self.server.error(error);
        self.runtime.block_on(async {
            let statement = self.transaction.prepare(sql).await.map_err(error)?;
            let portal = self.transaction.bind(&statement, &parameters(values)).await;
            let portal = portal.map_err(error)?;
            loop {
                let rows = self.transaction.query_portal(&portal, self.page).await;
                let rows = rows.map_err(error)?;
                for row in &rows {
                    visit(sql_row(row)?)?;
                }
                if rows.is_empty() {
                    return Ok(());
                }
            }
        })
    }
}
