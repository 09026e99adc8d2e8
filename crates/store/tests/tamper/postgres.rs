//! The same on PostgreSQL: every column of every table is changed once, and rows are deleted and moved.

use std::collections::BTreeMap;

use throughline_store::{Journal, Options, open};
use throughline_testkit::{Folder, figure};
use tokio_postgres::Client;

use crate::change::TABLES;
use crate::store;

/// A change of one column of the first row, by the column's type. Nothing becomes something.
fn changed(column: &str, kind: &str) -> String {
    match kind {
        "text" => format!("coalesce({column}, '') || 'x'"),
        "bytea" => format!("coalesce({column}, '\\x00'::bytea) || '\\x01'::bytea"),
        "smallint" => format!("(coalesce({column}, 0)::integer # 1)::smallint"),
        _ => format!("coalesce({column}, 0) # 1"),
    }
}

/// The columns of a table that can be written, with their types.
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
            // What the table's own rules refuse is no change.
            let Ok(1..) = client.execute(&change, &[]).await else { continue };
            let (tried, seen) = found.entry(table).or_default();
            *tried += 1;
            if is_found(&journal, &url, table).await {
                *seen += 1;
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

/// A change is found: it is named, or the store does not open. Small values are read when the store is opened.
async fn is_found(journal: &Journal, url: &str, table: &str) -> bool {
    if table != "kept" {
        return journal.verify(None, &|_| {}).await.is_ok_and(|proof| proof.broken.is_some());
    }
    let options = Options { read_only: true, ..store::options() };
    match open(url, &options).await {
        Err(_) => true,
        Ok(journal) => {
            journal.verify(None, &|_| {}).await.is_ok_and(|proof| proof.broken.is_some())
        }
    }
}
