//! Tests with two servers in one URL: a replica takes over from a failed primary server.

use std::sync::atomic::{AtomicBool, Ordering};

use throughline_testkit::Cluster;

use super::faults::{assert_kept, load};
use super::*;

/// Returns a URL with the hosts of both servers.
fn both(first: &str, second: &str, parameters: &str) -> String {
    let host = |url: &str| {
        let (_, host) = url.split_once('@').expect("the URL contains a user");
        host.split('/').next().unwrap_or_default().to_owned()
    };
    let (_, database) = second.rsplit_once('/').expect("the URL contains a database name");
    let hosts = [host(first), host(second)].join(",");
    format!("postgres://throughline@{hosts}/{database}?{parameters}")
}

#[tokio::test]
async fn a_promoted_replica_continues_with_all_acknowledged_writes() {
    let servers = tokio::task::spawn_blocking(|| {
        let primary = Cluster::start();
        let replica = primary.start_replica();
        Arc::new((primary, replica))
    });
    let servers = servers.await.unwrap();
    // The replica is first in the list, but does not accept writes yet.
    let created = database_at(&servers.0.url).await;
    let url = both(&servers.1.url, &created, "target_session_attrs=read-write");
    let node = node(&url, "w1").await;
    let over = Arc::new(AtomicBool::new(false));
    let mut loads = Vec::new();
    for n in 0..4 {
        let name = format!("log {n}");
        commit(&node, adding([opened(&name, [])])).await.unwrap();
        loads.push((name.clone(), tokio::spawn(load(node.clone(), name, over.clone()))));
    }
    until_file_grows(&node, "log 0").await;
    let failing = Arc::clone(&servers);
    let fail_over = move || {
        failing.0.crash();
        failing.1.promote();
    };
    tokio::task::spawn_blocking(fail_over).await.unwrap();
    until_file_grows(&node, "log 0").await;
    over.store(true, Ordering::Release);
    let mut total = 0;
    for (name, load) in loads {
        let (acknowledged, refused) = load.await.unwrap();
        total += acknowledged.len();
        assert_kept(&node, &name, &acknowledged, &refused).await;
    }
    assert!(total > 4);
    assert_sound(&node).await;
    drop(node);
    tokio::task::spawn_blocking(move || drop(servers)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_becomes_read_only_is_replaced_by_the_next_host() {
    let servers = tokio::task::spawn_blocking(|| Arc::new((Cluster::start(), Cluster::start())));
    let servers = servers.await.unwrap();
    let url = both(&servers.0.url, &servers.1.url, "target_session_attrs=read-write");
    let first = node(&url, "w1").await;
    commit(&first, adding([opened("a", [record("1")])])).await.unwrap();
    // The open connections of the node stay open, but their next transactions are read-only.
    let admin = client(&servers.0.url).await;
    let read_only = "ALTER SYSTEM SET default_transaction_read_only = on";
    admin.batch_execute(read_only).await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(async || {
        let row = client(&servers.0.url).await.query_one("SHOW transaction_read_only", &[]).await;
        row.unwrap().get::<_, String>(0) == "on"
    })
    .await;
    // A new node creates its store on the second server.
    let second = node(&url, "w2").await;
    commit(&second, adding([opened("b", [record("2")])])).await.unwrap();
    // The first node's writes go to the second server too, which has no log `a`.
    let outcome = commit(&first, adding([append("a", [record("3")])])).await;
    assert!(matches!(outcome, Err(StoreError::NotFound { .. })), "{outcome:?}");
    drop((first, second));
    tokio::task::spawn_blocking(move || drop(servers)).await.unwrap();
}
