//! The empty database that a migration writes to. One transaction creates the tables and copies all
//! rows, so an interrupted migration leaves the database empty or with a complete copy.

use std::pin::Pin;

use bytes::Bytes;
use throughline_core::StoreError;
use tokio::runtime::Handle;
use tokio_postgres::Transaction as OpenTransaction;
use tokio_postgres::binary_copy::BinaryCopyInWriter;

use crate::backend::copy::{RowSink, copy_rows};
use crate::options::Options;
use crate::postgres::connect::Server;
use crate::postgres::values::{BlockingTransaction, parameters};
use crate::postgres::{schema, servers};
use crate::rejection::{Result, invalid};
use crate::row_mac::RowKey;
use crate::sql::{SqlRow, SqlValue, TABLES, Transaction, values};
use crate::turn_keys::WATERMARK;

/// Returns whether the database contains a store.
pub(crate) async fn has_store(url: &str, options: &Options) -> Result<bool> {
    let (server, _) = servers(url, options).await?;
    let client = server.client().await?;
    Ok(schema::version(&server, &client).await? > 0)
}

/// A connection to the database that a migration writes to.
pub(crate) struct PostgresTarget {
    server: Server,
    client: tokio_postgres::Client,
}

impl PostgresTarget {
    pub(crate) async fn connect(url: &str, options: &Options) -> Result<Self> {
        let (server, _) = servers(url, options).await?;
        let client = server.client().await?;
        schema::check_encoding(&server, &client).await?;
        Ok(Self { server, client })
    }

    /// Copies a store to the database and commits, unless `is_current` returns an error. Blocks
    /// the thread, which must be outside the async runtime. No lease stays active.
    pub(crate) fn fill(
        mut self,
        runtime: &Handle,
        from: &dyn Transaction,
        key: &RowKey,
        report: &dyn Fn(f64) -> bool,
        is_current: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let server = &self.server;
        let error = |error| server.error(error);
        let transaction = runtime.block_on(self.client.transaction()).map_err(error)?;
        if !runtime.block_on(schema::create_tables(server, &transaction))? {
            return Err(crate::rejection::target_has_store(server.name()));
        }
        let mut sink = PostgresSink { runtime, server, transaction: &transaction, table: None };
        copy_rows(from, &mut sink, report)?;
        sink.finish()?;
        let db = BlockingTransaction {
            runtime,
            server,
            transaction: &transaction,
            page: 1000,
            has_packs: true,
        };
        complete(&db, key)?;
        is_current()?;
        if !report(1.0) {
            return Err(StoreError::Closed);
        }
        runtime.block_on(transaction.commit()).map_err(error)
    }
}

/// Adjusts the copied rows to this database.
fn complete(db: &BlockingTransaction<'_>, key: &RowKey) -> Result<()> {
    // SQLite adds the keys of the latest turns to the table later, and stores how far it is.
    let sql = "SELECT CAST(convert_from(value, 'UTF8') AS bigint) FROM kept WHERE name = $1";
    if let Some(row) = db.query(sql, &values![WATERMARK])?.first() {
        let watermark: i64 = row.get(0)?;
        let sql = "INSERT INTO turn_keys SELECT t.tenant, get_byte(t.keys, k), \
                   substr(t.keys, k + 2, 16), t.id FROM turns t, \
                   generate_series(0, octet_length(t.keys) - 1, 17) k WHERE t.id > $1 \
                   ON CONFLICT DO NOTHING";
        db.query(sql, &values![watermark])?;
        let sql = "SELECT throughline_replace($1, $2, NULL)";
        db.query(sql, &values![key.bytes(), WATERMARK])?;
    }
    // Fences must not start again from 1, so the rows stay. SQLite adds a lease's duration to the
    // owner's name, as a second line.
    db.query("UPDATE leases SET until = 0, owner = split_part(owner, E'\\n', 1)", &[])?;
    for (table, _) in TABLES.iter().filter(|(_, columns)| columns.starts_with("id,")) {
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table} \
             HAVING max(id) > 0"
        );
        db.query(&sql, &[])?;
    }
    Ok(())
}

/// Adds rows with the binary copy protocol, one table after another.
struct PostgresSink<'t> {
    runtime: &'t Handle,
    server: &'t Server,
    transaction: &'t OpenTransaction<'t>,
    table: Option<(&'static str, Pin<Box<BinaryCopyInWriter>>)>,
}

impl PostgresSink<'_> {
    fn begin(&mut self, table: &'static str, columns: &str) -> Result<()> {
        self.finish()?;
        let writer = self.runtime.block_on(async {
            let select = format!("SELECT {columns} FROM {table}");
            let selected = self.transaction.prepare(&select).await?;
            let types: Vec<_> =
                selected.columns().iter().map(|column| column.type_().clone()).collect();
            let copy = format!("COPY {table} ({columns}) FROM STDIN BINARY");
            let sink = self.transaction.copy_in::<_, Bytes>(copy.as_str()).await?;
            Ok(BinaryCopyInWriter::new(sink, &types))
        });
        let writer = writer.map_err(|error| self.server.error(error))?;
        self.table = Some((table, Box::pin(writer)));
        Ok(())
    }

    /// Completes the current table.
    fn finish(&mut self) -> Result<()> {
        let Some((_, mut writer)) = self.table.take() else { return Ok(()) };
        let finished = self.runtime.block_on(writer.as_mut().finish());
        finished.map(drop).map_err(|error| self.server.error(error))
    }
}

impl RowSink for PostgresSink<'_> {
    fn add(&mut self, table: &'static str, columns: &str, row: SqlRow) -> Result<()> {
        if self.table.as_ref().is_none_or(|(current, _)| *current != table) {
            self.begin(table, columns)?;
        }
        let Some((_, writer)) = &mut self.table else { return Err(StoreError::Closed) };
        let has_nul =
            |value: &SqlValue| matches!(value, SqlValue::Text(text) if text.contains('\0'));
        if row.0.iter().any(has_nul) {
            return Err(invalid!(
                "a row of the table {table} contains the character U+0000, which PostgreSQL cannot \
                 store"
            ));
        }
        let added = self.runtime.block_on(writer.as_mut().write(&parameters(&row.0)));
        added.map_err(|error| self.server.error(error))
    }
}
