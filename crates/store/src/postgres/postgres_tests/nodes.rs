//! Tests with several callers and several nodes on one database.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::options::Durability;

#[tokio::test]
async fn eight_nodes_can_open_a_new_database_concurrently() {
    let url = database().await;
    let opening = (0..8).map(|n| {
        let url = url.clone();
        tokio::spawn(async move { node(&url, &format!("w{n}")).await })
    });
    for opening in opening.collect::<Vec<_>>() {
        opening.await.unwrap();
    }
    let rows =
        client(&url).await.query("SELECT version FROM throughline_schema", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn rejected_batch_does_not_affect_its_group() {
    let node = node(&database().await, "w1").await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    // All batches are queued before the first result arrives, so they are sent in groups.
    let callers = (0..60).map(|n: u64| {
        let node = node.clone();
        tokio::spawn(async move {
            let batch = match n % 3 {
                0 => adding([append("a", [record(&n.to_string())])]),
                1 => adding([append("missing", [record("x")])]),
                _ => once("same", adding([append("a", [record("once")])])),
            };
            (n, commit(&node, batch).await)
        })
    });
    let mut repeated = 0;
    for caller in callers.collect::<Vec<_>>() {
        match caller.await.unwrap() {
            (n, Err(StoreError::NotFound { .. })) if n % 3 == 1 => {}
            (n, Ok(receipt)) if n % 3 != 1 => repeated += usize::from(receipt.repeated),
            (n, answer) => panic!("{n}: {answer:?}"),
        }
    }
    assert_eq!(repeated, 19);
    assert_eq!(contents(&node, "a").await.len(), 21);
    assert_sound(&node).await;
}

#[tokio::test]
async fn nodes_write_to_one_tenant_and_log_concurrently() {
    let url = database().await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await, node(&url, "w3").await];
    commit(&nodes[0], adding([opened("shared", [])])).await.unwrap();
    let mut callers = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for caller in 0..8 {
            let node = node.clone();
            callers.push(tokio::spawn(async move {
                let mut receipts = Vec::new();
                let own = format!("own {index} {caller}");
                commit(&node, adding([opened(&own, [])])).await.unwrap();
                for n in 0..25 {
                    let content = format!("{index} {caller} {n}");
                    let appends =
                        [append(&own, [record(&content)]), append("shared", [record(&content)])];
                    // Use both orders, because locking in batch order would deadlock.
                    let appends: Vec<_> = if n % 2 == 0 {
                        appends.into()
                    } else {
                        appends.into_iter().rev().collect()
                    };
                    let receipt = commit(&node, adding(appends)).await.unwrap();
                    let shared = receipt
                        .written
                        .iter()
                        .find(|written| written.log == log("shared"))
                        .unwrap();
                    receipts.push((shared.last, content));
                }
                receipts
            }));
        }
    }
    // A concurrent reader reads the chain in pages and never finds a gap.
    let reader = nodes[1].clone();
    let reading = tokio::spawn(async move {
        for _ in 0..5 {
            proven(&reader, &whole_chain(&reader).await).await;
        }
    });
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await.unwrap());
    }
    reading.await.unwrap();
    acknowledged.sort();
    assert_eq!(contents(&nodes[2], "shared").await, acknowledged);
    assert_eq!(acknowledged.len(), 3 * 8 * 25);
    for node in &nodes {
        assert_sound(node).await;
    }
}

#[tokio::test]
async fn same_batch_from_two_nodes_is_written_once() {
    let url = database().await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await];
    commit(&nodes[0], adding([opened("a", [])])).await.unwrap();
    for round in 0..20 {
        let send = async |node: &Postgres| {
            let batch = once(&format!("round {round}"), adding([append("a", [record("x")])]));
            commit(node, batch).await.unwrap()
        };
        let (one, two) = tokio::join!(send(&nodes[0]), send(&nodes[1]));
        assert_eq!(one.written, two.written);
        assert!(one.repeated != two.repeated, "exactly one is the repeat");
    }
    assert_eq!(contents(&nodes[0], "a").await.len(), 20);
}

/// SQL that selects the listening connections, each of which holds a shared lock.
const LISTENERS: &str = "FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                         WHERE l.locktype = 'advisory' AND l.classid = 1414025804 AND l.objid = 3 \
                         AND a.datname = current_database()";

/// A timeout shorter than the polling interval of a connected node, so that only a notification can
/// wake the task in time.
const NOTIFIED: Duration = Duration::from_secs(4);

#[tokio::test]
async fn waiting_task_is_woken_by_other_nodes() {
    let url = database().await;
    let (node_a, node_b) = (node(&url, "w1").await, node(&url, "w2").await);
    commit(&node_a, adding([opened("a", [])])).await.unwrap();
    // The listening connections are established in the background.
    let watcher = client(&url).await;
    until(async || {
        let listening = format!("SELECT count(*) {LISTENERS} AND a.state = 'idle'");
        watcher.query_one(&listening, &[]).await.unwrap().get::<_, i64>(0) == 2
    })
    .await;
    let waited_for = async |node: &Arc<Postgres>, name: &str| {
        until(async || node.shared.waits.is_waited_for(&tenant(), &log(name))).await;
    };
    let waiting = |node: &Arc<Postgres>, name: &str, after| {
        let (node, name) = (node.clone(), log(name));
        tokio::spawn(async move { node.wait(&tenant(), &name, after).await })
    };
    for (after, writer) in [(0, &node_a), (1, &node_b), (2, &node_a)] {
        let waits = [waiting(&node_a, "a", after), waiting(&node_b, "a", after)];
        waited_for(&node_a, "a").await;
        waited_for(&node_b, "a").await;
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        commit(writer, adding([append("a", [record("x")])])).await.unwrap();
        // Until the first node has received the other node's greeting, it assumes that it is alone
        // and sends no notifications.
        let limit = if after == 0 { Duration::from_mins(1) } else { NOTIFIED };
        for wait in waits {
            timeout(limit, wait).await.expect("a notification arrives").unwrap().unwrap();
        }
    }
    timeout(Duration::from_secs(1), node_a.wait(&tenant(), &log("a"), 2)).await.unwrap().unwrap();
    // The awaited log does not exist yet.
    let wait = waiting(&node_b, "later", 0);
    waited_for(&node_b, "later").await;
    commit(&node_a, adding([opened("later", [record("x")])])).await.unwrap();
    timeout(NOTIFIED, wait).await.expect("a notification arrives").unwrap().unwrap();
    // Without the listening connection, the log is polled.
    let wait = waiting(&node_b, "a", 3);
    waited_for(&node_b, "a").await;
    let end = format!("SELECT pg_terminate_backend(pid) {LISTENERS}");
    watcher.query(&end, &[]).await.unwrap();
    commit(&node_a, adding([append("a", [record("x")])])).await.unwrap();
    timeout(Duration::from_mins(1), wait).await.expect("polling finds it").unwrap().unwrap();
    let wait = waiting(&node_b, "a", 4);
    waited_for(&node_b, "a").await;
    Driver::close(&*node_b).await.unwrap();
    assert!(matches!(wait.await.unwrap(), Err(StoreError::Closed)));
}

#[tokio::test]
async fn relaxed_writes_are_visible_and_become_durable() {
    let options = Options { durability: Durability::Relaxed, ..Options::default() };
    let url = database().await;
    let node = node_with(&url, "w1", &options).await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    for n in 0..50 {
        commit(&node, adding([append("a", [record(&n.to_string())])])).await.unwrap();
    }
    let client = client(&url).await;
    let written = client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await.unwrap();
    let written = written.get::<_, String>(0);
    // The node flushed by itself: it wrote its row after the last record, and all earlier commits
    // are durable.
    let sql = "SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn
               AND xmin <> (SELECT xmin FROM records ORDER BY id DESC LIMIT 1)
               FROM writers WHERE writer = 'w1'";
    let is_durable = async || client.query_one(sql, &[&written]).await.unwrap().get::<_, bool>(0);
    while !is_durable().await {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(contents(&node, "a").await.len(), 50);
    assert_sound(&node).await;
}

#[tokio::test]
async fn batch_with_more_names_than_locks_is_written() {
    let url = database().await;
    let nodes = [node(&url, "w1").await, node(&url, "w2").await];
    let many =
        |index: usize| adding((0..1100).map(|n| opened(&format!("{index} {n}"), [record("x")])));
    let (one, two) = tokio::join!(commit(&nodes[0], many(0)), commit(&nodes[1], many(1)));
    let names = |receipt: Receipt| {
        receipt.written.into_iter().map(|written| written.log).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(one.unwrap()).union(&names(two.unwrap())).count(), 2200);
    assert_sound(&nodes[0]).await;
}
