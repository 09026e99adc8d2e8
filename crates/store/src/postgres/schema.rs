//! The tables, version by version. Several processes may begin at once: one of them makes the tables, the others wait.

use throughline_core::StoreError;
use tokio_postgres::Client;

use crate::postgres::connect::Server;
use crate::postgres::read::field;

/// Each version's statements, the first one's first.
const VERSIONS: [&[&str]; 1] = [&[include_str!("schema_1.sql"), include_str!("functions_1.sql")]];

/// The lock that whoever makes tables holds. Other numbers after the first: see `functions_1.sql`.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1414025804, 1)";

/// Brings the database to the latest version.
pub(super) async fn migrate(server: &Server, create: bool) -> Result<(), StoreError> {
    let mut client = server.client().await?;
    let known = u32::try_from(VERSIONS.len()).unwrap_or(u32::MAX);
    // Who need not change anything needs no right to.
    let found = version(server, &client).await?;
    if found == known {
        return Ok(());
    }
    if found == 0 && !create {
        return Err(StoreError::invalid(format!(
            "{} holds no store: create one, or check the name of the database",
            server.name()
        )));
    }
    let error = |error| server.error(error);
    let encoding = client.query_one("SELECT current_setting('server_encoding')", &[]).await;
    let encoding: String = field(&encoding.map_err(error)?, 0)?;
    if encoding != "UTF8" {
        return Err(StoreError::invalid(format!(
            "{} has the encoding {encoding}: create the database with ENCODING 'UTF8'",
            server.name()
        )));
    }
    let transaction = client.transaction().await.map_err(error)?;
    transaction.batch_execute(LOCK).await.map_err(error)?;
    let table = "CREATE TABLE IF NOT EXISTS throughline_schema (version integer PRIMARY KEY, \
                 applied timestamptz NOT NULL DEFAULT clock_timestamp())";
    transaction.batch_execute(table).await.map_err(error)?;
    // Another process may have made them since.
    let found = latest(server, transaction.client()).await?;
    for (version, statements) in (1u32..).zip(VERSIONS).filter(|(version, _)| *version > found) {
        for statement in statements {
            transaction.batch_execute(statement).await.map_err(error)?;
        }
        let version = i32::try_from(version).unwrap_or(i32::MAX);
        let note = "INSERT INTO throughline_schema (version) VALUES ($1)";
        transaction.execute(note, &[&version]).await.map_err(error)?;
    }
    transaction.commit().await.map_err(error)
}

/// The version that the database has; 0 where there is no store yet.
async fn version(server: &Server, client: &Client) -> Result<u32, StoreError> {
    let error = |error| server.error(error);
    let there = "SELECT to_regclass('throughline_schema') IS NOT NULL";
    if !field::<bool>(&client.query_one(there, &[]).await.map_err(error)?, 0)? {
        return Ok(0);
    }
    latest(server, client).await
}

/// The latest version that was applied, where there is a table that says so.
async fn latest(server: &Server, client: &Client) -> Result<u32, StoreError> {
    let sql = "SELECT coalesce(max(version), 0) FROM throughline_schema";
    let latest = client.query_one(sql, &[]).await.map_err(|error| server.error(error))?;
    let found = u32::try_from(field::<i32>(&latest, 0)?).unwrap_or(0);
    match u32::try_from(VERSIONS.len()) {
        Ok(known) if found > known => Err(StoreError::NewerSchema { found, known }),
        Ok(_) | Err(_) => Ok(found),
    }
}
