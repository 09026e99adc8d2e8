//! Tests of failures: lost connections, a crashed server, an unreachable server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_testkit::Cluster;

use super::*;

/// Appends records to a log until stopped. Returns the acknowledged records with their numbers, and
/// the rejected records.
pub(super) async fn load(
    node: Arc<Postgres>,
    name: String,
    over: Arc<AtomicBool>,
) -> (Vec<(u64, String)>, Vec<String>) {
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    let mut n = 0;
    while !over.load(Ordering::Acquire) {
        n += 1;
        let content = format!("{name} {n}");
        match commit(&node, adding([append(&name, [record(&content)])])).await {
            Ok(receipt) => acknowledged.push((receipt.written[0].last, content)),
            Err(StoreError::Unreachable(..)) => refused.push(content),
            Err(error) => panic!("{error:?}"),
        }
    }
    (acknowledged, refused)
}

/// Asserts that each acknowledged record exists once, in order. Every other record in the log must
/// have been rejected with an unknown outcome.
pub(super) async fn assert_kept(
    node: &Postgres,
    name: &str,
    acknowledged: &[(u64, String)],
    refused: &[String],
) {
    let stored = contents(node, name).await;
    let numbers: Vec<u64> = stored.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=u64::try_from(stored.len()).unwrap()).collect::<Vec<_>>(), "no gap");
    for entry in acknowledged {
        assert_eq!(stored.iter().filter(|found| found.1 == entry.1).collect::<Vec<_>>(), [entry]);
    }
    for (_, content) in &stored {
        let was_acknowledged = acknowledged.iter().any(|(_, known)| known == content);
        assert!(was_acknowledged || refused.contains(content), "{content} was never sent");
    }
}

#[tokio::test]
async fn lost_connections_neither_lose_nor_repeat_writes() {
    let url = database().await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await];
    let over = Arc::new(AtomicBool::new(false));
    let mut loads = Vec::new();
    for n in 0..8 {
        let name = format!("log {n}");
        commit(&nodes[0], adding([opened(&name, [])])).await.unwrap();
        loads.push((name.clone(), tokio::spawn(load(nodes[n % 2].clone(), name, over.clone()))));
    }
    let cutter = client(&url).await;
    for _ in 0..30 {
        until_file_grows(&nodes[0], "log 0").await;
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE pid <> pg_backend_pid() AND datname = current_database()";
        cutter.query(cut, &[]).await.unwrap();
    }
    over.store(true, Ordering::Release);
    for (name, load) in loads {
        let (acknowledged, refused) = load.await.unwrap();
        assert_eq!(refused, Vec::<String>::new(), "the server stayed available");
        assert!(!acknowledged.is_empty());
        assert_kept(&nodes[0], &name, &acknowledged, &[]).await;
        assert_eq!(contents(&nodes[0], &name).await.len(), acknowledged.len());
    }
    assert_sound(&nodes[1]).await;
}

#[tokio::test]
async fn a_group_that_is_sent_twice_is_written_once() {
    use crate::postgres::commit::{Columns, PreparedBatch, statement};
    let url = database().await;
    let node = node(&url, "w1").await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    let id = node.shared.find_or_create_tenant(&tenant()).await.unwrap();
    let prepared = [PreparedBatch::new(adding([append("a", [record("x")])]), id)];
    let columns = Columns::from_group(&prepared);
    let client = client(&url).await;
    let send = async |number: i64| {
        client.query_one(&statement(), &columns.params([&"w9", &number, &false, &KEY])).await
    };
    let answers = |row: tokio_postgres::Row| row.get::<_, Vec<String>>(0);
    let first = answers(send(5).await.unwrap());
    assert_eq!(answers(send(5).await.unwrap()), first);
    assert_eq!(contents(&node, "a").await.len(), 1);
    assert_ne!(answers(send(6).await.unwrap()), first);
    // A group that arrives after a group with a higher number is not written.
    send(5).await.unwrap_err();
    assert_eq!(contents(&node, "a").await.len(), 2);
    assert_sound(&node).await;
}

#[tokio::test]
async fn a_first_group_that_is_sent_twice_at_once_is_written_once() {
    use crate::postgres::commit::{Columns, PreparedBatch, statement};
    let url = database().await;
    let node = node(&url, "w1").await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    let id = node.shared.find_or_create_tenant(&tenant()).await.unwrap();
    let prepared = [PreparedBatch::new(adding([append("a", [record("x")])]), id)];
    let columns = Columns::from_group(&prepared);
    let params = columns.params([&"w9", &1_i64, &false, &KEY]);
    let (first, second, watcher) = (client(&url).await, client(&url).await, client(&url).await);
    let answers = |row: tokio_postgres::Row| row.get::<_, Vec<String>>(0);
    first.batch_execute("BEGIN").await.unwrap();
    let expected = answers(first.query_one(&statement(), &params).await.unwrap());
    // Send the group again while the first attempt is not committed yet.
    let committed = async {
        let waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() \
                     AND wait_event_type = 'Lock'";
        until(async || !watcher.query(waits, &[]).await.unwrap().is_empty()).await;
        first.batch_execute("COMMIT").await.unwrap();
    };
    let statement = statement();
    let (repeated, ()) = tokio::join!(second.query_one(&statement, &params), committed);
    assert_eq!(answers(repeated.unwrap()), expected);
    assert_eq!(contents(&node, "a").await.len(), 1);
    assert_sound(&node).await;
}

#[tokio::test]
async fn a_server_that_crashes_under_load_loses_nothing_acknowledged() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let url = database_at(&cluster.url).await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await];
    let over = Arc::new(AtomicBool::new(false));
    let mut loads = Vec::new();
    for n in 0..8 {
        let name = format!("log {n}");
        commit(&nodes[0], adding([opened(&name, [])])).await.unwrap();
        loads.push((name.clone(), tokio::spawn(load(nodes[n % 2].clone(), name, over.clone()))));
    }
    let cluster = Arc::new(cluster);
    for _ in 0..2 {
        until_file_grows(&nodes[0], "log 0").await;
        let cluster = cluster.clone();
        let restart = move || {
            cluster.crash();
            cluster.resume();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
    }
    until_file_grows(&nodes[0], "log 0").await;
    over.store(true, Ordering::Release);
    let mut total = 0;
    for (name, load) in loads {
        let (acknowledged, refused) = load.await.unwrap();
        total += acknowledged.len();
        assert_kept(&nodes[0], &name, &acknowledged, &refused).await;
    }
    assert!(total > 8);
    assert_sound(&nodes[1]).await;
    // During a longer outage, callers receive an error. When the server returns, writing continues.
    let crashed = cluster.clone();
    tokio::task::spawn_blocking(move || crashed.crash()).await.unwrap();
    let refused = commit(&nodes[0], adding([append("log 0", [record("x")])])).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(..))), "{refused:?}");
    let refused = node_result(&url).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(..))), "{refused:?}");
    let resumed = cluster.clone();
    tokio::task::spawn_blocking(move || resumed.resume()).await.unwrap();
    commit(&nodes[0], adding([append("log 0", [record("x")])])).await.unwrap();
    drop(nodes);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

async fn node_result(url: &str) -> Result<(), StoreError> {
    Postgres::open(url, &Options::default(), Name::from("w")).await.map(drop)
}

#[tokio::test]
async fn open_error_states_reason_without_password() {
    let base = throughline_testkit::postgres_url();
    for (url, expected) in [
        (
            "postgres://me:hunter2@127.0.0.1:1/db".to_owned(),
            "cannot reach postgres://127.0.0.1:1/db: ",
        ),
        (
            "postgres://me:hunter2@nowhere.invalid/db".to_owned(),
            "cannot reach postgres://nowhere.invalid:5432/db: ",
        ),
        (
            "postgres://me:hunter2@127.0.0.1/db?sslmode=hunter2".to_owned(),
            "sslmode in the database URL must be disable, prefer, require, verify-ca or verify-full",
        ),
        (
            "postgres://me:hunter2@127.0.0.1/db?sslmode=verify-ca".to_owned(),
            "sslmode=verify-ca in the database URL needs sslrootcert=FILE",
        ),
        (
            "postgres://me:hunter2@127.0.0.1/db?sslrootcert=system&sslmode=require".to_owned(),
            "sslrootcert=system in the database URL needs sslmode=verify-full",
        ),
        (
            "postgres://me:hunter2@127.0.0.1/db?sslrootcert=%2Fno%2Fca.pem".to_owned(),
            "cannot read the certificates in sslrootcert=/no/ca.pem: ",
        ),
        (
            "postgres://me:hunter2@127.0.0.1/db?sslcert=a.crt".to_owned(),
            "a client certificate needs both sslcert=FILE and sslkey=FILE",
        ),
        ("postgres://me:hunter2@127.0.0.1:x/db".to_owned(), "the database URL is invalid: "),
        ("host=localhost password=hunter2".to_owned(), "a PostgreSQL URL must start with"),
        (
            base.replace("/postgres", "/no_such_database").replace('@', ":hunter2@"),
            "cannot reach postgres://127.0.0.1:",
        ),
    ] {
        let began = tokio::time::Instant::now();
        let error = error_message(node_result(&url).await);
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(8));
    }
}

#[tokio::test]
async fn newer_schema_is_rejected_unchanged() {
    let url = database().await;
    node(&url, "w1").await;
    client(&url).await.execute("INSERT INTO throughline_schema VALUES (99)", &[]).await.unwrap();
    let refused = node_result(&url).await;
    assert!(matches!(refused, Err(StoreError::NewerSchema { found: 99, known: 3 })), "{refused:?}");
    let none = Options { create: false, ..Options::default() };
    let refused = Postgres::open(&database().await, &none, Name::from("w")).await.map(drop);
    assert!(error_message(refused).contains("contains no store"));
}

#[tokio::test]
async fn read_only_database_is_reported() {
    let url = database().await;
    let node = node(&url, "w1").await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    let read_only = "SELECT format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database())";
    let admin = client(&url).await;
    let sql: String = admin.query_one(read_only, &[]).await.unwrap().get(0);
    admin.batch_execute(&sql).await.unwrap();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()";
    admin.query(cut, &[]).await.unwrap();
    let refused = commit(&node, adding([append("a", [record("x")])])).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert_eq!(contents(&node, "a").await, []);
}
