//! Upgrades a store of an earlier schema version, and adds MACs and sums to a new store or to a
//! store with schema version 1.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::StoreError;
use tokio::runtime::Handle;
use tokio_postgres::error::SqlState;

use crate::backend::row_sums::{add_sums, stored_tally};
use crate::postgres::values::BlockingTransaction;
use crate::postgres::{Shared, schema};
use crate::protection::{Protection, SECRET, Upgrade, report_migration};
use crate::rejection::invalid;
use crate::sql::{Transaction as _, values};
use crate::sync::blocking;

/// Time limit for each lock on a table. Writers wait while an upgrade waits for readers.
const TABLE_LOCKS: &str = "SET LOCAL lock_timeout = '3s'";
/// Delay before an upgrade is tried again, in which writers can continue.
const PAUSE: Duration = Duration::from_secs(3);
/// Number of times that an upgrade is tried.
const ATTEMPTS: u32 = 20;

/// Upgrades the schema, and adds MACs and sums, unless the store already has them. Readers with an
/// open transaction, such as a backup, delay the upgrade.
pub(super) async fn protect(
    shared: &Arc<Shared>,
    protection: Protection,
) -> Result<(), StoreError> {
    for _ in 1..ATTEMPTS {
        match try_protect(shared, protection.clone()).await {
            Err(error) if is_lock_timeout(&error) => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
    try_protect(shared, protection).await.map_err(|error| {
        if !is_lock_timeout(&error) {
            return error;
        }
        invalid!(
            "{} cannot be upgraded while other processes read it; end backups and other \
             long transactions first",
            shared.server.name()
        )
    })
}

/// Returns whether a table was locked for longer than the time limit.
fn is_lock_timeout(error: &StoreError) -> bool {
    let StoreError::Database(error) = error else { return false };
    let error = error.downcast_ref::<tokio_postgres::Error>();
    error.and_then(tokio_postgres::Error::code) == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

async fn try_protect(shared: &Arc<Shared>, protection: Protection) -> Result<(), StoreError> {
    let mut client = shared.server.client().await?;
    // If nothing must change, no write permission and no lock are needed.
    let version = schema::version(&shared.server, &client).await?;
    if protection.is_marked && version == schema::KNOWN {
        return Ok(());
    }
    let (shared, runtime) = (Arc::clone(shared), Handle::current());
    blocking(move || {
        let server = &shared.server;
        let error = |error| server.error(error);
        let change = runtime.block_on(client.transaction()).map_err(error)?;
        let db = BlockingTransaction {
            runtime: &runtime,
            server,
            transaction: &change,
            page: 1000,
            has_packs: true,
        };
        db.query(schema::LOCK, &[])?;
        db.query("SELECT pg_advisory_xact_lock(1414025804, 0)", &[])?;
        let version = runtime.block_on(schema::version(server, change.client()))?;
        let is_counted = version > 1 && stored_tally(&db)?.is_some();
        let change_needed = protection.upgrade(version > 1, is_counted)?;
        if version < schema::KNOWN {
            runtime.block_on(change.batch_execute(TABLE_LOCKS)).map_err(error)?;
            runtime.block_on(schema::upgrade(server, &change, version))?;
            let reset = change.batch_execute("SET LOCAL lock_timeout TO DEFAULT");
            runtime.block_on(reset).map_err(error)?;
        }
        if version == 1 {
            let records = db.query("SELECT count(*) FROM records", &[])?;
            let records = records.first().map_or(Ok(0), |row| row.get(0))?;
            report_migration(server.name(), Some(records));
        }
        match change_needed {
            Upgrade::None => {}
            Upgrade::Mark(secret) => {
                let sql = "SELECT throughline_replace($1, $2, $3)";
                db.query(sql, &values![protection.key.bytes(), SECRET, secret])?;
            }
            Upgrade::AddSums => add_sums(&db, &protection)?,
        }
        runtime.block_on(change.commit()).map_err(error)?;
        if version < 2 {
            report_migration(server.name(), None);
        }
        Ok(())
    })
    .await
}
