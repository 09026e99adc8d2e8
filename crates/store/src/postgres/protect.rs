//! Adds MACs and sums to a new store, or to a store with schema version 1.

use std::sync::Arc;

use throughline_core::StoreError;
use tokio::runtime::Handle;

use crate::backend::row_sums::{add_sums, stored_tally};
use crate::postgres::values::BlockingTransaction;
use crate::postgres::{Shared, schema};
use crate::protection::{Protection, SECRET, Upgrade, report_migration};
use crate::sql::{Transaction as _, values};
use crate::sync::blocking;

/// Adds MACs and sums, unless the store already has them.
pub(super) async fn protect(
    shared: &Arc<Shared>,
    protection: Protection,
) -> Result<(), StoreError> {
    let mut client = shared.server.client().await?;
    // If nothing must change, no write permission and no lock are needed.
    if protection.is_marked && schema::version(&shared.server, &client).await? > 1 {
        return Ok(());
    }
    let (shared, runtime) = (Arc::clone(shared), Handle::current());
    blocking(move || {
        let server = &shared.server;
        let error = |error| server.error(error);
        let change = runtime.block_on(client.transaction()).map_err(error)?;
        let db =
            BlockingTransaction { runtime: &runtime, server, transaction: &change, page: 1000 };
        db.query(schema::LOCK, &[])?;
        db.query("SELECT pg_advisory_xact_lock(1414025804, 0)", &[])?;
        let version = runtime.block_on(schema::version(server, change.client()))?;
        let is_counted = version > 1 && stored_tally(&db)?.is_some();
        match protection.upgrade(version > 1, is_counted)? {
            Upgrade::None => return Ok(()),
            Upgrade::Mark(secret) => {
                let sql = "SELECT throughline_replace($1, $2, $3)";
                db.query(sql, &values![protection.key.bytes(), SECRET, secret])?;
            }
            Upgrade::AddSums => {
                if version < 2 {
                    let records = db.query("SELECT count(*) FROM records", &[])?;
                    let records = records.first().map_or(Ok(0), |row| row.get(0))?;
                    report_migration(server.name(), Some(records));
                    runtime.block_on(schema::upgrade(server, &change))?;
                }
                add_sums(&db, &protection)?;
            }
        }
        runtime.block_on(change.commit()).map_err(error)?;
        if version < 2 {
            report_migration(server.name(), None);
        }
        Ok(())
    })
    .await
}
