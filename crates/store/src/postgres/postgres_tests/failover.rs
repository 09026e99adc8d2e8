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
    // The first node also connects to the second server, but does not write to another store.
    let outcome = commit(&first, adding([append("b", [record("3")])])).await;
    assert_refused(&outcome, "another store");
    assert_eq!(contents(&second, "b").await, [(1, "2".to_owned())]);
    drop((first, second));
    tokio::task::spawn_blocking(move || drop(servers)).await.unwrap();
}

fn assert_refused<T: std::fmt::Debug>(outcome: &Result<T, StoreError>, expected: &str) {
    let message = match outcome {
        Err(error @ StoreError::Unreachable(..)) => error.to_string(),
        other => panic!("{other:?} is not a refusal"),
    };
    assert!(message.contains(expected) && message.contains("restart this process"), "{message}");
}

/// Returns a batch that opens a log of a tenant.
fn opening(tenant: &str, name: &str) -> SealedBatch {
    SealedBatch { tenant: Tenant::from(tenant), ..adding([opened(name, [record(tenant)])]) }
}

/// Returns a tenant's id in the database.
async fn tenant_id(url: &str, tenant: &str) -> i64 {
    let sql = "SELECT id FROM tenants WHERE name = $1";
    client(url).await.query_one(sql, &[&tenant]).await.unwrap().get(0)
}

/// Restarts a server, and waits until the node can connect to it. A pooler delays its connections
/// after a failure.
async fn restart(cluster: &Arc<Cluster>, url: &str, act: fn(&Cluster)) {
    let cluster = Arc::clone(cluster);
    tokio::task::spawn_blocking(move || act(&cluster)).await.unwrap();
    let (url, _) = url.split_once('?').unwrap_or((url, ""));
    until(async || {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let Ok((client, connection)) = connected else { return false };
        tokio::spawn(async move { drop(connection.await) });
        client.batch_execute("SELECT 1").await.is_ok()
    })
    .await;
}

/// Gives the id of a tenant that a node has cached to another tenant, as after a failover to a
/// replica without the last writes. `url` is the URL of the node, which may be that of a pooler.
async fn lose_writes(cluster: &Arc<Cluster>, direct: &str, url: &str) {
    let first = node(url, "w1").await;
    commit(&first, opening("acme", "a")).await.unwrap();
    restart(cluster, url, Cluster::save).await;
    commit(&first, opening("lost", "b")).await.unwrap();
    let lost = tenant_id(direct, "lost").await;
    restart(cluster, url, Cluster::restore).await;
    // Another node creates a tenant, which gets the same id.
    let second = node(direct, "w2").await;
    commit(&second, opening("other", "b")).await.unwrap();
    assert_eq!(tenant_id(direct, "other").await, lost);
    // The first node neither reads nor writes under the id that it knows.
    let appending = SealedBatch { tenant: "lost".into(), ..adding([append("b", [record("2")])]) };
    assert_refused(&commit(&first, appending).await, "all writes");
    let span = Span { after: 0, up_to: u64::MAX, limit: 10 };
    assert_refused(&first.rows(&"lost".into(), &log("b"), span).await, "all writes");
    assert_refused(&commit(&first, opening("acme", "c")).await, "all writes");
    let rows = second.rows(&"other".into(), &log("b"), span).await.unwrap();
    assert_eq!(rows.len(), 1, "only the record of the other tenant");
    // A restarted process continues with what the store contains.
    drop(first);
    let restarted = node(url, "w3").await;
    commit(&restarted, opening("lost", "b")).await.unwrap();
    assert_ne!(tenant_id(direct, "lost").await, lost);
    assert_sound(&restarted).await;
}

#[tokio::test]
async fn a_server_that_lost_writes_is_refused_until_a_restart() {
    let cluster = tokio::task::spawn_blocking(|| Arc::new(Cluster::start())).await.unwrap();
    let url = database_at(&cluster.url).await;
    lose_writes(&cluster, &url, &url).await;
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

/// Starts a server with a pooler, and returns the URLs of a database at both.
async fn pooled_cluster() -> (Arc<Cluster>, String, String) {
    let started = tokio::task::spawn_blocking(|| {
        let cluster = Cluster::start();
        let pooled = cluster.start_pgbouncer();
        (Arc::new(cluster), pooled)
    });
    let (cluster, pooled) = started.await.unwrap();
    let direct = database_at(&cluster.url).await;
    let (_, name) = direct.rsplit_once('/').unwrap();
    let pooled = pooled.replace("/postgres", &format!("/{name}?pgbouncer=true"));
    (cluster, direct, pooled)
}

#[tokio::test]
async fn a_pooler_that_connects_to_a_server_without_all_writes_is_refused() {
    let (cluster, direct, pooled) = pooled_cluster().await;
    lose_writes(&cluster, &direct, &pooled).await;
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}

#[tokio::test]
async fn a_restart_of_the_same_server_is_accepted_through_a_pooler() {
    let (cluster, _, pooled) = pooled_cluster().await;
    let first = node(&pooled, "w1").await;
    commit(&first, opening("acme", "a")).await.unwrap();
    let act = |cluster: &Cluster| {
        cluster.crash();
        cluster.resume();
    };
    restart(&cluster, &pooled, act).await;
    commit(&first, opening("acme", "b")).await.unwrap();
    assert_sound(&first).await;
    drop(first);
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
}
