//! Tests of the store through PgBouncer in transaction mode. All clients share two connections to
//! the server, so a statement that depends on session state fails.

use throughline_core::{Append, Batch, Content, NewRecord, NewVaultTurn, Store as _, VaultKey};
use throughline_testkit::Cluster;
use tokio_postgres::AsyncMessage;

use super::*;
use crate::{Journal, KeyLimits};

/// A server, PgBouncer, and the URLs of one database at both.
struct Bouncer {
    cluster: Cluster,
    direct: String,
    pooled: String,
}

impl Bouncer {
    async fn start() -> Self {
        let started = tokio::task::spawn_blocking(|| {
            let cluster = Cluster::start();
            let pooled = cluster.start_pgbouncer();
            (cluster, pooled)
        });
        let (cluster, pooled) = started.await.unwrap();
        let direct = database_at(&cluster.url).await;
        let (_, name) = direct.rsplit_once('/').unwrap();
        let pooled = pooled.replace("/postgres", &format!("/{name}"));
        Self { cluster, direct, pooled }
    }

    async fn stop(self) {
        tokio::task::spawn_blocking(move || drop(self.cluster)).await.unwrap();
    }
}

async fn write(journal: &Journal, name: &str, text: &str) -> Result<Receipt, StoreError> {
    let append = Append::new(name).record(NewRecord::new("item", text.as_bytes().to_vec()));
    journal.commit(Batch::new("acme").append(append)).await
}

async fn open_thread(journal: &Journal, name: &str) {
    let append = Append::new(name).opening(LogOpening::thread());
    journal.commit(Batch::new("acme").append(append)).await.unwrap();
}

/// Uses all kinds of statements of a node.
async fn use_store(journal: Journal, name: String) {
    open_thread(&journal, &name).await;
    for n in 1..=20_u64 {
        write(&journal, &name, &format!("{name} {n}")).await.unwrap();
    }
    let append = Append::new(&*name).record(NewRecord::new("item", vec![7; 300_000]));
    let mut capture = Batch::new("acme").append(append);
    capture.vault.push(NewVaultTurn {
        id: name.as_str().into(),
        parent: None,
        keys: vec![VaultKey::Claim(name.as_str().into())],
        log: log(&name),
        prefix: None,
    });
    journal.commit(capture).await.unwrap();
    let found = journal.find(&tenant(), &[VaultKey::Claim(name.as_str().into())]).await.unwrap();
    assert!(found.found[0].is_some());
    let read = journal.read(&tenant(), &log(&name), 0, 100).await.unwrap();
    assert_eq!(read.len(), 21);
    assert_eq!(read[2].content, Content::Here(format!("{name} 3").into()));
    let time = Duration::from_mins(1);
    let lease = journal.lease(&tenant(), &log(&name), "me", time).await.unwrap();
    journal.renew(&tenant(), &log(&name), lease.fence, time).await.unwrap();
    journal.release(&tenant(), &log(&name), lease.fence).await.unwrap();
    let key = journal.create_api_key(&tenant(), &name, &KeyLimits::default()).await.unwrap();
    assert!(journal.api_key(&key.secret).await.unwrap().is_some());
}

#[tokio::test]
async fn nodes_share_server_connections_through_pgbouncer() {
    let bouncer = Bouncer::start().await;
    let refused = Postgres::open(&bouncer.pooled, &Options::default(), "w".into()).await.map(drop);
    let refused = error_message(refused);
    let expected = "unsupported startup parameter: options; if this is PgBouncer, add \
                    pgbouncer=true to the database URL";
    assert!(refused.contains(expected), "{refused}");

    let url = format!("{}?pgbouncer=true", bouncer.pooled);
    let options = Options::default();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(crate::open(&url, &options).await.unwrap());
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (n, node) in nodes.iter().enumerate() {
        for task in 0..2 {
            tasks.spawn(use_store(node.clone(), format!("log {n} {task}")));
        }
    }
    tasks.join_all().await;

    // A node polls for the records of another node.
    let (tenant, waited) = (tenant(), log("log 0 0"));
    let (woken, written) = tokio::join!(
        nodes[1].wait(&tenant, &waited, 21),
        write(&nodes[0], "log 0 0", "the last record")
    );
    woken.unwrap();
    written.unwrap();
    let forgotten = nodes[2].forget(&tenant, &waited, None).await.unwrap();
    assert!(forgotten.unreached.is_empty());
    let report = nodes[0].verify(None, &|_| {}).await.unwrap();
    assert_eq!((report.broken, report.records > 130), (None, true));
    for node in nodes {
        node.close().await.unwrap();
    }

    // No statement or setting stays on the server's connections, even if queries are dropped.
    let node = Postgres::open(&url, &options, "w".into()).await.unwrap();
    for polls in 0..60 {
        let sql = format!("SELECT $1::bigint + {polls}");
        let polled = async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = node.shared.server.query(&sql, &[&1_i64]) => {}
            () = polled => {}
        }
    }
    node.close().await.unwrap();
    let admin = client(&bouncer.direct).await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    assert!(admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) <= 2);
    let pooled = client(&bouncer.pooled).await;
    let left = "SELECT (SELECT count(*) FROM pg_prepared_statements) \
                || ' ' || current_setting('enable_seqscan')";
    for _ in 0..4 {
        let rows = pooled.query_typed(left, &[]).await.unwrap();
        assert_eq!(rows[0].get::<_, String>(0), "0 on");
    }
    bouncer.stop().await;
}

#[tokio::test]
async fn listen_url_delivers_notifications_past_pgbouncer() {
    let bouncer = Bouncer::start().await;
    let url = format!("{}?pgbouncer=true", bouncer.pooled);
    // This connection listens like a node.
    let (client, mut connection) =
        tokio_postgres::connect(&bouncer.direct, tokio_postgres::NoTls).await.unwrap();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notification(notification) = message {
                drop(sender.send(notification.payload().to_owned()));
            }
        }
    });
    let listen = "SELECT pg_advisory_lock_shared(1414025804, 3); LISTEN throughline";
    client.batch_execute(listen).await.unwrap();

    // A node with `listen_url` listens at the server, and needs no pgbouncer=true in its URL.
    let options = Options { listen_url: Some(bouncer.direct.clone()), ..Options::default() };
    let listening = crate::open(&bouncer.pooled, &options).await.unwrap();
    assert_eq!(received.recv().await.unwrap(), "hello");
    open_thread(&listening, "a").await;
    write(&listening, "a", "the first record").await.unwrap();
    assert_eq!(received.recv().await.unwrap(), "1", "the id of the written log");

    // A node that only polls sends notifications too.
    let polling = crate::open(&url, &Options::default()).await.unwrap();
    let mut notified = None;
    for n in 0.. {
        write(&polling, "a", &n.to_string()).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), received.recv()).await;
        if let Ok(next) = next {
            notified = next;
            break;
        }
    }
    assert_eq!(notified.unwrap(), "1");
    let pooler = Options { listen_url: Some(url.clone()), ..Options::default() };
    let refused = error_message(crate::open(&url, &pooler).await.map(drop));
    assert!(refused.contains("listen_url must be the URL of the server itself"), "{refused}");
    listening.close().await.unwrap();
    polling.close().await.unwrap();
    bouncer.stop().await;
}
