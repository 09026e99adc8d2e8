//! Copies the whole database to an SQLite file that opens as an independent store.

use std::sync::Arc;

use rusqlite::types::Value;
use throughline_core::StoreError;
use tokio::sync::mpsc;

use crate::backup_files::NewBackup;
use crate::postgres::Shared;
use crate::postgres::read::number;
use crate::postgres::rows::fields;
use crate::query::{Progress, share};
use crate::row_mac::Field;
use crate::sqlite::PendingBackup;
use crate::sync::blocking;

/// Number of rows fetched at a time. Each may have a large content.
const PAGE: i32 = 64;

/// The tables and columns that both databases have.
pub(in crate::postgres) const TABLES: [(&str, &str); 14] = [
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

/// Rows of one of the [`TABLES`].
type TablePage = (usize, Vec<Vec<Value>>);

/// Copies all tables from one snapshot, while other processes read and write.
pub(in crate::postgres) async fn backup(
    shared: &Shared,
    plan: NewBackup,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let unpublished = Arc::new(PendingBackup::new(plan)?);
    let (pages, received) = mpsc::channel(4);
    let writing = Arc::clone(&unpublished);
    let writing = tokio::task::spawn_blocking(move || write(&writing, received));
    let copied = copy(shared, &pages, progress).await;
    drop(pages);
    let written = writing.await.map_err(|error| StoreError::Database(Arc::new(error)));
    // If writing failed, copying fails too, with a less specific error.
    let keys = written.and_then(|written| written);
    let keys = keys.and_then(|keys| copied.map(|()| keys))?;
    let unpublished = Arc::into_inner(unpublished).ok_or(StoreError::Closed)?;
    blocking(move || unpublished.publish(keys)).await?;
    progress(1.0);
    Ok(())
}

async fn copy(
    shared: &Shared,
    pages: &mpsc::Sender<TablePage>,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let server = &shared.server;
    let error = |error| server.error(error);
    let mut client = server.client().await?;
    let transaction = client.build_transaction().read_only(true);
    let transaction = transaction.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let transaction = transaction.start().await.map_err(error)?;
    let mut total = 0;
    for (table, _) in TABLES {
        let counted = transaction.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await;
        total += number(&counted.map_err(error)?, 0)?;
    }
    let mut done = 0;
    for (place, (table, columns)) in TABLES.into_iter().enumerate() {
        // Key files are compared with the store in the order of records.
        let order = if table == "salts" { " ORDER BY record" } else { "" };
        let select = format!("SELECT {columns} FROM {table}{order}");
        let statement = transaction.prepare(&select).await;
        let portal = transaction.bind(&statement.map_err(error)?, &[]).await.map_err(error)?;
        loop {
            let rows = transaction.query_portal(&portal, PAGE).await.map_err(error)?;
            if rows.is_empty() {
                break;
            }
            done += rows.len() as u64;
            let values = |row| Ok(fields(row)?.into_iter().map(value).collect());
            let page = rows.iter().map(values).collect::<Result<_, StoreError>>()?;
            if pages.send((place, page)).await.is_err() {
                return Err(StoreError::invalid("cannot write the copy of the database"));
            }
            progress(share(done, total).min(0.99));
        }
    }
    transaction.commit().await.map_err(error)
}

fn value(field: Field<'_>) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Number(number) => Value::Integer(number),
        Field::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        Field::Bytes(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// Writes the pages to new files. Returns the key file, which is still locked.
fn write(
    unpublished: &PendingBackup,
    mut pages: mpsc::Receiver<TablePage>,
) -> Result<std::fs::File, StoreError> {
    let mut writer = unpublished.writer()?;
    while let Some((place, rows)) = pages.blocking_recv() {
        let Some((table, columns)) = TABLES.get(place) else { continue };
        writer.add(table, columns, rows)?;
    }
    writer.finish()
}
