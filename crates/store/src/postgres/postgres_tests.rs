//! Tests of the store on PostgreSQL. They need a server: `scripts/postgres run cargo test -p
//! throughline-store`.

mod commits;
mod failover;
mod faults;
mod nodes;
mod packs;
mod pgbouncer;
mod tls;
mod whole;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{LogId, LogOpening, Receipt, StoreError, Tenant};
use throughline_json::Name;

use crate::backend::{Backend, Driver};
use crate::chain::{GENESIS, Head, Header, Link, nature};
use crate::cipher::Secret;
use crate::options::Options;
use crate::postgres::Postgres;
use crate::protection::{ApiKeyMac, Protection, row_key};
use crate::query::Span;
use crate::row::{ChainRow, Salt};
use crate::sealed_batch::{Guard, SealedAppend, SealedBatch, SealedRecord};

/// A row MAC key for groups that tests send without a node.
const KEY: &[u8] = &[5; 32];

/// Creates an empty database and returns its URL.
async fn database() -> String {
    database_at(&throughline_testkit::postgres_url()).await
}

async fn database_at(server: &str) -> String {
    let random = u64::from_be_bytes(crate::cipher::random().unwrap());
    let name = format!("test_{random:016x}");
    let client = client(server).await;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database is made");
    let (server, _) = server.rsplit_once('/').expect("the URL contains a database name");
    format!("{server}/{name}")
}

async fn client(url: &str) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("the server responds");
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// Returns MAC keys for nodes that tests open without a Journal.
fn test_protection() -> Protection {
    let secret = Secret::new([5; 32]);
    let (key, api_keys) = (row_key(&secret), ApiKeyMac::new(&secret));
    Protection { key, api_keys, is_marked: false, marked: Some(Bytes::from_static(b"marked")) }
}

async fn node(url: &str, writer: &str) -> Arc<Postgres> {
    node_with(url, writer, &Options::default()).await
}

async fn node_with(url: &str, writer: &str, options: &Options) -> Arc<Postgres> {
    let node = Postgres::open(url, options, Name::from(writer)).await.expect("the store opens");
    let node = Arc::new(node);
    node.protect(test_protection()).await.expect("the row MACs are added");
    node
}

async fn commit(node: &Postgres, batch: SealedBatch) -> Result<Receipt, StoreError> {
    Driver::commit(node, batch).await
}

/// Polls until the condition holds, and fails after a timeout.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking)
        .await
        .expect("the condition holds in time");
}

/// Waits until another record is added to the log.
async fn until_file_grows(node: &Postgres, name: &str) {
    let last = async || node.log(&tenant(), &log(name)).await.ok().flatten().map(|head| head.last);
    let mut before = None;
    until(async || {
        let found = last().await;
        let has_grown = before.is_some() && found > before;
        before = before.or(found);
        has_grown
    })
    .await;
}

fn tenant() -> Tenant {
    Tenant::from("acme")
}

fn log(name: &str) -> LogId {
    LogId::from(name)
}

fn batch() -> SealedBatch {
    SealedBatch {
        tenant: tenant(),
        once: Vec::new(),
        appends: Vec::new(),
        vault: Vec::new(),
        asks: Vec::new(),
        takes: Vec::new(),
        erases: Vec::new(),
        keys: Vec::new(),
    }
}

fn adding(appends: impl IntoIterator<Item = SealedAppend>) -> SealedBatch {
    SealedBatch { appends: appends.into_iter().collect(), ..batch() }
}

fn append(name: &str, records: impl IntoIterator<Item = SealedRecord>) -> SealedAppend {
    SealedAppend {
        log: log(name),
        opening: None,
        expect: None,
        guard: Guard::Free,
        records: records.into_iter().collect(),
        rewind_to: None,
        status: None,
    }
}

fn opened(name: &str, records: impl IntoIterator<Item = SealedRecord>) -> SealedAppend {
    SealedAppend { opening: Some(LogOpening::thread()), ..append(name, records) }
}

fn once(name: &str, batch: SealedBatch) -> SealedBatch {
    let hash = blake3::hash(name.as_bytes()).as_bytes().first_chunk().copied().unwrap();
    let mut names = batch.once.clone();
    names.push((hash, Name::from(name)));
    SealedBatch { once: names, ..batch }
}

/// Returns a record that stores the text unencrypted as its content.
fn record(content: &str) -> SealedRecord {
    SealedRecord {
        kind: Name::from("item"),
        at: None,
        events: 0,
        about: None,
        size: u64::try_from(content.len()).unwrap(),
        commitment: *blake3::hash(content.as_bytes()).as_bytes(),
        content: Bytes::copy_from_slice(content.as_bytes()),
        salt: Salt { epoch: 0, bytes: Bytes::from_static(b"0123456789abcdef") },
        blob: None,
    }
}

/// Returns the sequence number and content of each record in a log; `-` stands for missing content.
async fn contents(node: &Postgres, name: &str) -> Vec<(u64, String)> {
    let span = Span { after: 0, up_to: u64::MAX, limit: 1_000_000 };
    let rows = node.rows(&tenant(), &log(name), span).await.expect("rows are read");
    let text = |content: Option<Bytes>| {
        content.map_or("-".to_owned(), |content| String::from_utf8_lossy(&content).into_owned())
    };
    rows.into_iter().map(|row| (row.seq, text(row.content))).collect()
}

/// Reads all records of all chains in small pages, while other nodes may write.
async fn whole_chain(node: &Postgres) -> Vec<ChainRow> {
    let mut all: Vec<ChainRow> = Vec::new();
    let up_to = node.last_record().await.expect("the last number is read");
    loop {
        let after = all.last().map_or(0, |row| row.id);
        let page = node.chain(None, after, up_to, 100).await.expect("the chain is read");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Recomputes all links and returns the resulting chain heads.
async fn proven(node: &Postgres, rows: &[ChainRow]) -> Vec<Head> {
    let mut natures: HashMap<(Tenant, LogId), String> = HashMap::new();
    let mut ends: HashMap<(Tenant, Name), (u64, Link)> = HashMap::new();
    for ChainRow { tenant, log, row, .. } in rows {
        let end = ends.entry((tenant.clone(), row.writer.clone())).or_insert((0, GENESIS));
        assert_eq!(row.position, end.0 + 1, "a chain has no gap");
        let key = (tenant.clone(), log.clone());
        if !natures.contains_key(&key) {
            let head =
                node.log(tenant, log).await.expect("the log is read").expect("the log exists");
            let nature = nature(head.kind, head.of.as_ref(), head.fork.as_ref());
            natures.insert(key.clone(), nature);
        }
        let header = Header {
            tenant,
            log,
            nature: &natures[&key],
            seq: row.seq,
            kind: &row.kind,
            at: row.at,
            events: row.events,
            last_event: row.last_event,
            about: row.about,
            size: row.size,
            writer: &row.writer,
            position: row.position,
        };
        assert_eq!(
            header.link(&end.1, &row.commitment),
            row.link,
            "the link matches the one that Rust computes"
        );
        *end = (row.position, row.link);
    }
    let mut heads: Vec<Head> = ends
        .into_iter()
        .map(|((tenant, writer), (position, link))| Head { tenant, writer, position, link })
        .collect();
    heads.sort_by_key(|head| (head.tenant.clone(), head.writer.clone()));
    heads
}

/// Asserts that the chains end at the heads stored in `segments`, and that the database passes its
/// checks.
async fn assert_sound(node: &Postgres) {
    let rows = whole_chain(node).await;
    let mut heads = node.heads(None).await.expect("the heads are read");
    heads.sort_by_key(|head| (head.tenant.clone(), head.writer.clone()));
    assert_eq!(proven(node, &rows).await, heads);
    assert_eq!(node.check().await.expect("the check runs"), Vec::<String>::new());
}

fn error_message<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    outcome.expect_err("the call fails").to_string()
}
