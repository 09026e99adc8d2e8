//! Tests tampering on PostgreSQL: each column of each table is changed once, and rows are deleted
//! and moved.

use std::collections::BTreeMap;

use throughline_core::{Append, Batch, LogOpening, NewRecord, Store as _};
use throughline_store::{Journal, Options, open};
use throughline_testkit::{Folder, figure};
use tokio_postgres::Client;

use crate::change::TABLES;
use crate::{is_refusal, store};

/// Returns an SQL expression that changes a column according to its type. NULL becomes a value.
fn changed(column: &str, kind: &str) -> String {
    match kind {
        "text" => format!("coalesce({column}, '') || 'x'"),
        "bytea" => format!("coalesce({column}, '\\x00'::bytea) || '\\x01'::bytea"),
        "smallint" => format!("(coalesce({column}, 0)::integer # 1)::smallint"),
        _ => format!("coalesce({column}, 0) # 1"),
    }
}

/// Returns the names and types of a table's writable columns.
async fn columns(client: &Client, table: &str) -> Vec<(String, String)> {
    let sql = "SELECT column_name::text, data_type::text FROM information_schema.columns \
               WHERE table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position";
    let rows = client.query(sql, &[&table]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_every_single_change_to_a_row_is_found() {
    let folder = Folder::new("tamper-postgres");
    let url = throughline_testkit::postgres_database();
    store::write_at(&url, &folder.join("store")).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let options = Options { read_only: true, ..store::options() };
    let journal = open(&url, &options).await.unwrap();
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
    let mut found: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut missed = Vec::new();
    for table in TABLES {
        let columns = columns(&client, table).await;
        let mut changes: Vec<String> = Vec::new();
        for (column, kind) in &columns {
            if column != "created" && (table, column.as_str()) != ("logs", "updated") {
                let value = changed(column, kind);
                changes.push(format!(
                    "UPDATE {table} SET {column} = {value} WHERE ctid = (SELECT max(ctid) FROM {table})"
                ));
            }
            // An empty value must not pass for NULL. In `rewinds`, an empty list means the same as
            // NULL.
            if ["text", "bytea"].contains(&kind.as_str()) && column != "rewinds" {
                changes.push(format!(
                    "UPDATE {table} SET {column} = '' WHERE ctid = \
                     (SELECT max(ctid) FROM {table} WHERE {column} IS NULL)"
                ));
            }
            if column == "tenant" {
                changes.push(format!(
                    "UPDATE {table} SET tenant = 3 - tenant WHERE ctid = (SELECT min(ctid) FROM {table})"
                ));
            }
        }
        changes.push(format!("DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table})"));
        changes.push(format!("DELETE FROM {table}"));
        let names: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
        let names = names.join(", ");
        client
            .batch_execute(&format!("CREATE TEMP TABLE saved AS SELECT {names} FROM {table}"))
            .await
            .unwrap();
        for change in changes {
            // Skip changes that the table's constraints reject.
            let Ok(1..) = client.execute(&change, &[]).await else { continue };
            let (tried, detected) = found.entry(table).or_default();
            *tried += 1;
            if is_found(&journal, &url, table).await {
                *detected += 1;
            } else {
                missed.push(change);
            }
            let restore = format!(
                "DELETE FROM {table}; INSERT INTO {table} ({names}) SELECT {names} FROM saved"
            );
            client.batch_execute(&restore).await.unwrap();
        }
        client.batch_execute("DROP TABLE saved").await.unwrap();
    }
    figure("changes to rows on PostgreSQL, found of tried", format!("{found:?}"));
    assert_eq!(missed, Vec::<String>::new());
    assert_eq!(found.len(), TABLES.len(), "{found:?}");
    assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None);
}

/// If a segment's row was tampered with, later commits succeed but do not give the row a valid MAC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_commit_does_not_resign_a_changed_segment() {
    let url = throughline_testkit::postgres_database();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for change in ["changes = changes + 5", "sums = ''", "sums = 'x'", "mac = NULL"] {
        let journal = open(&url, &store::options()).await.unwrap();
        let begin = Append::new(change).opening(LogOpening::thread());
        journal.commit(Batch::new("one").append(begin)).await.unwrap();
        assert_eq!(journal.verify(None, &|_| {}).await.unwrap().broken, None, "{change}");
        let last = "WHERE id = (SELECT max(id) FROM segments)";
        let sql = format!("UPDATE segments SET {change} {last}");
        assert_eq!(client.execute(&sql, &[]).await.unwrap(), 1);
        for number in 0..3 {
            let append = Append::new(change).record(NewRecord::new("note", format!("{number}")));
            journal.commit(Batch::new("one").append(append)).await.unwrap();
        }
        let broken = journal.verify(None, &|_| {}).await.unwrap().broken.unwrap();
        assert!(broken.place.starts_with("the chain of "), "{change}: {broken}");
        assert_eq!(broken.problem, "has a row whose MAC does not match", "{change}");
        journal.close().await.unwrap();
        let all = "DROP SCHEMA public CASCADE; CREATE SCHEMA public";
        client.batch_execute(all).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_tenant_verification_covers_only_its_rows() {
    let folder = Folder::new("tamper-postgres-tenant");
    let url = throughline_testkit::postgres_database();
    store::write_at(&url, &folder.join("store")).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let options = Options { read_only: true, ..store::options() };
    let journal = open(&url, &options).await.unwrap();
    let change = "UPDATE api_keys SET label = 'x' WHERE tenant = \
                  (SELECT id FROM tenants WHERE name = 'two')";
    assert!(client.execute(change, &[]).await.unwrap() > 0);
    let proof = journal.verify_tenant(&"one".into()).await.unwrap();
    assert!(proof.records > 0);
    assert_eq!(proof.broken, None);
    let broken = journal.verify_tenant(&"two".into()).await.unwrap().broken.unwrap();
    assert_eq!(broken.place, "the rows of api_keys (tenant two)");
    assert_eq!(journal.verify_tenant(&"missing".into()).await.unwrap().broken, None);
}

/// Returns whether a change to `table` is found: verification reports it, or the store does not
/// open. For internal values, the store is opened again, because they are read on open.
async fn is_found(journal: &Journal, url: &str, table: &str) -> bool {
    if table != "kept" {
        return journal.verify(None, &|_| {}).await.is_ok_and(|proof| proof.broken.is_some());
    }
    let options = Options { read_only: true, ..store::options() };
    match open(url, &options).await {
        Err(error) => {
            assert!(is_refusal(&error), "{error:?}");
            true
        }
        Ok(journal) => {
            journal.verify(None, &|_| {}).await.is_ok_and(|proof| proof.broken.is_some())
        }
    }
}
