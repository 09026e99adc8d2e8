//! Creates and upgrades the tables. If several processes start at once, one creates the tables
//! while the others wait.

use throughline_core::StoreError;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, Transaction};

use crate::postgres::connect::Server;
use crate::postgres::values::{damaged, field};
use crate::rejection::{Result, corrupt, invalid};
use crate::sql::TABLES;

/// The schema version that this version of Throughline writes.
pub(super) const KNOWN: u32 = 3;
/// SQL that creates the tables of version 1, and that upgrades them from each version to the next.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
const FUNCTIONS: &str = include_str!("functions_3.sql");

/// Takes the lock that a process holds while it creates tables. `functions_3.sql` documents the
/// other lock ids.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(1414025804, 1)";

/// Creates the tables of a new store, or checks that an existing store has all tables. Returns the
/// schema version. A store of an earlier version keeps its version until its keys are loaded: see
/// `protect.rs`.
pub(super) async fn migrate(server: &Server, create: bool) -> Result<u32> {
    let mut client = server.client().await?;
    // If nothing must change, no write permission is needed.
    let found = version(server, &client).await?;
    if found > 0 {
        return check_tables(server, &client).await.map(|()| found);
    }
    if !create {
        return Err(invalid!(
            "{} contains no store; create one or check the database name",
            server.name()
        ));
    }
    check_encoding(server, &client).await?;
    let error = |error| server.error(error);
    let transaction = client.transaction().await.map_err(error)?;
    create_tables(server, &transaction).await?;
    transaction.commit().await.map_err(error)?;
    Ok(KNOWN)
}

/// Checks that a database without tables stores text as UTF-8.
pub(super) async fn check_encoding(server: &Server, client: &Client) -> Result<()> {
    let encoding = "SELECT current_setting('server_encoding')";
    let encoding: String = field(&query_one(server, client, encoding).await?, 0)?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(invalid!(
        "{} uses the encoding {encoding}; create the database with ENCODING 'UTF8'",
        server.name()
    ))
}

/// Creates the tables. Returns false if another process created them before this one acquired the
/// lock.
pub(super) async fn create_tables(server: &Server, transaction: &Transaction<'_>) -> Result<bool> {
    let error = |error| server.error(error);
    transaction.batch_execute(LOCK).await.map_err(error)?;
    let table = "CREATE TABLE IF NOT EXISTS throughline_schema (version integer PRIMARY KEY, \
                 applied timestamptz NOT NULL DEFAULT clock_timestamp())";
    transaction.batch_execute(table).await.map_err(error)?;
    if latest(server, transaction.client()).await? > 0 {
        return Ok(false);
    }
    let exists = "SELECT to_regclass('records') IS NOT NULL";
    let exists = transaction.query_one(exists, &[]).await.map_err(error)?;
    if field::<bool>(&exists, 0)? {
        return Err(corrupt!(
            "{} contains store tables but no schema version; restore a backup",
            server.name()
        ));
    }
    upgrade(server, transaction, 0).await?;
    Ok(true)
}

/// Upgrades the tables and functions from version `from` to [`KNOWN`]. Rows of version 1 get their
/// MACs afterwards. Version 3 leaves all rows unchanged, so upgrading a large store from version 2
/// takes little time.
pub(super) async fn upgrade(
    server: &Server,
    transaction: &Transaction<'_>,
    from: u32,
) -> Result<()> {
    let error = |error| server.error(error);
    let applied = usize::try_from(from).unwrap_or(usize::MAX);
    for statements in MIGRATIONS.into_iter().skip(applied).chain([FUNCTIONS]) {
        transaction.batch_execute(statements).await.map_err(error)?;
    }
    let note = "INSERT INTO throughline_schema (version) VALUES ($1)";
    let version = i32::try_from(KNOWN).unwrap_or(i32::MAX);
    transaction.execute(note, &[&version]).await.map_err(error)?;
    Ok(())
}

async fn check_tables(server: &Server, client: &Client) -> Result<()> {
    let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).chain(["writers"]).collect();
    let sql = "SELECT name FROM unnest($1::text[]) name WHERE to_regclass(name) IS NULL LIMIT 1";
    let missing = client.query_typed(sql, &[(&names, Type::TEXT_ARRAY)]).await;
    match missing.map_err(|error| server.error(error))?.first() {
        None => Ok(()),
        Some(row) => {
            let table: String = field(row, 0)?;
            Err(corrupt!("{} has no table {table}; restore a backup", server.name()))
        }
    }
}

/// Returns the schema version of the database, or 0 if it contains no store.
pub(super) async fn version(server: &Server, client: &Client) -> Result<u32> {
    let exists = "SELECT to_regclass('throughline_schema') IS NOT NULL";
    if !field::<bool>(&query_one(server, client, exists).await?, 0)? {
        return Ok(0);
    }
    latest(server, client).await
}

/// Returns the latest applied schema version. Fails if it is newer than [`KNOWN`].
async fn latest(server: &Server, client: &Client) -> Result<u32> {
    let sql = "SELECT coalesce(max(version), 0) FROM throughline_schema";
    let latest = query_one(server, client, sql).await?;
    let found = u32::try_from(field::<i32>(&latest, 0)?).unwrap_or(0);
    if found > KNOWN {
        return Err(StoreError::NewerSchema { found, known: KNOWN });
    }
    Ok(found)
}

/// Runs a query that returns one row. The statement is not prepared, because a pooler may run the
/// prepared statement on another connection.
async fn query_one(server: &Server, client: &Client, sql: &str) -> Result<Row> {
    let rows = client.query_typed(sql, &[]).await.map_err(|error| server.error(error))?;
    rows.into_iter().next().ok_or_else(|| damaged("an answer"))
}
