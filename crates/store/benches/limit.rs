//! Compares the store's throughput with a bare loop that writes the same rows to the same database,
//! in the same run.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "benches measure and print"
)]
#![allow(missing_docs, reason = "a program has no public API")]

mod support;

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use throughline_core::{Append, Batch, LogOpening, NewRecord, Store};
use throughline_store::{Journal, Options, open};

use support::{BenchFolder, measuring};

const CONTENT: usize = 1024;
const CALLERS: usize = 32;

fn main() {
    let (rounds, appends) = if measuring() { (5, 8_000) } else { (1, 64) };
    let alone = appends / 8;
    println!("appends of {CONTENT} B, as a ratio to a bare loop that inserts the same rows");
    println!("{:<44} {:>10} {:>10} {:>8} {:>9}", "", "bare/s", "ours/s", "ratio", "target");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let mut sqlite = (BestRates::default(), BestRates::default());
    for round in 0..rounds {
        let folder = BenchFolder::new(&format!("limit-{round}"));
        let bare = BareTables::new(&folder.file("bare.db"));
        let url = format!("sqlite://{}", folder.file("ours.db").display());
        let journal = runtime.block_on(opened(&url));
        sqlite.0.bare(appends, || bare.groups(appends));
        sqlite.0.store(appends, || {
            runtime.block_on(concurrent(std::slice::from_ref(&journal), appends));
        });
        sqlite.1.bare(alone, || bare.one_by_one(alone));
        sqlite.1.store(alone, || runtime.block_on(one_caller(&journal, alone)));
        runtime.block_on(journal.close()).unwrap();
    }
    sqlite.0.print("SQLite, 32 callers / groups of 32", "≥ 0.70");
    sqlite.1.print_inverse("SQLite, one caller / insert + commit (time)", "≤ 1.30");
    if !throughline_testkit::has_postgres() {
        println!(
            "PostgreSQL: not measured; run it as scripts/postgres run cargo bench -p throughline-store"
        );
        return;
    }
    let mut postgres = (BestRates::default(), BestRates::default());
    for _ in 0..rounds {
        let url = throughline_testkit::postgres_database();
        let clients = runtime.block_on(bare_clients(&url));
        let one = runtime.block_on(opened(&url));
        let other = runtime.block_on(open(&url, &Options::default())).unwrap();
        postgres.0.bare(appends, || runtime.block_on(bare_inserts(&clients, appends)));
        postgres
            .0
            .store(appends, || runtime.block_on(concurrent(std::slice::from_ref(&one), appends)));
        let nodes = [one.clone(), other.clone()];
        postgres.1.bare(appends, || runtime.block_on(bare_inserts(&clients, appends)));
        postgres.1.store(appends, || runtime.block_on(concurrent(&nodes, appends)));
        runtime.block_on(async { (one.close().await.unwrap(), other.close().await.unwrap()) });
    }
    postgres.0.print("PostgreSQL, 32 callers / 32 connections", "≥ 0.70");
    postgres.1.print("PostgreSQL, one tenant on two nodes", "≥ 0.70");
}

/// The highest measured rates of the bare database and of the store. The caller measures both
/// alternately.
#[derive(Default)]
struct BestRates {
    bare: f64,
    store: f64,
}

impl BestRates {
    fn bare(&mut self, count: usize, work: impl FnOnce()) {
        self.bare = self.bare.max(rate(count, work));
    }

    fn store(&mut self, count: usize, work: impl FnOnce()) {
        self.store = self.store.max(rate(count, work));
    }

    fn print(&self, name: &str, target: &str) {
        let (bare, store, ratio) = (self.bare, self.store, self.store / self.bare);
        println!("{name:<44} {bare:>10.0} {store:>10.0} {ratio:>8.2} {target:>9}");
    }

    fn print_inverse(&self, name: &str, target: &str) {
        let (bare, store, ratio) = (self.bare, self.store, self.bare / self.store);
        println!("{name:<44} {bare:>10.0} {store:>10.0} {ratio:>8.2} {target:>9}");
    }
}

fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

async fn opened(url: &str) -> Journal {
    let journal = open(url, &Options::default()).await.unwrap();
    for caller in 0..CALLERS {
        let opening = Append::new(format!("log-{caller}")).opening(LogOpening::thread());
        journal.commit(Batch::new("bench").append(opening)).await.unwrap();
    }
    journal
}

/// Appends from all callers concurrently and distributes the callers over the nodes.
async fn concurrent(nodes: &[Journal], appends: usize) {
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let journal = nodes[caller % nodes.len()].clone();
        callers.spawn(async move {
            for _ in 0..appends / CALLERS {
                append(&journal, caller).await;
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
}

async fn one_caller(journal: &Journal, appends: usize) {
    for _ in 0..appends {
        append(journal, 0).await;
    }
}

async fn append(journal: &Journal, caller: usize) {
    let record = NewRecord::new("item", vec![7; CONTENT]);
    let append = Append::new(format!("log-{caller}")).record(record);
    journal.commit(Batch::new("bench").append(append)).await.unwrap();
}

/// A database with the store's tables and indexes, for writing rows without the store's code.
struct BareTables {
    db: Connection,
}

impl BareTables {
    fn new(path: &std::path::Path) -> Self {
        let db = Connection::open(path).unwrap();
        for (pragma, value) in
            [("journal_mode", "WAL"), ("synchronous", "FULL"), ("secure_delete", "ON")]
        {
            db.pragma_update(None, pragma, value).unwrap();
        }
        db.pragma_update(None, "cache_size", -16_000).unwrap();
        db.pragma_update(None, "wal_autocheckpoint", 4096).unwrap();
        db.set_prepared_statement_cache_capacity(64);
        db.execute_batch(include_str!("../src/sqlite/schema_1.sql")).unwrap();
        db.execute_batch(
            "INSERT INTO tenants (id, name, created) VALUES (1, 'bench', 0);
             INSERT INTO segments VALUES (1, 1, 'bare', 0, x'00');",
        )
        .unwrap();
        for log in 1..=CALLERS as i64 {
            let add = "INSERT INTO logs VALUES (?1, 1, ?2, 1, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL)";
            db.execute(add, params![log, format!("log-{log}")]).unwrap();
        }
        Self { db }
    }

    fn groups(&self, appends: usize) {
        for _ in 0..appends / CALLERS {
            self.db.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
            for log in 1..=CALLERS as i64 {
                self.row(log);
            }
            self.end();
        }
    }

    fn one_by_one(&self, appends: usize) {
        for _ in 0..appends {
            self.db.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
            self.row(1);
            self.end();
        }
    }

    fn row(&self, log: i64) {
        let next = "UPDATE logs SET last = last + 1, bytes = bytes + ?2, updated = updated + 1
                    WHERE id = ?1 RETURNING last";
        let mut next = self.db.prepare_cached(next).unwrap();
        let last: i64 = next.query_row(params![log, CONTENT as i64], |row| row.get(0)).unwrap();
        let keep = "INSERT INTO records (tenant, log, seq, kind, at, events, last_event, about, size,
                    segment, position, commitment, link, blob, content)
                    VALUES (1, ?1, ?2, 'item', 1800000000000, 0, NULL, NULL, ?3, 1, ?2, ?4, ?4, NULL, ?5)";
        let (digest, content) = ([7_u8; 32], vec![7_u8; CONTENT + 16]);
        let row = params![log, last, CONTENT as i64, digest, content];
        self.db.prepare_cached(keep).unwrap().execute(row).unwrap();
        let record = self.db.last_insert_rowid();
        let keep = "INSERT INTO salts VALUES (?1, 1, 0, ?2)";
        self.db.prepare_cached(keep).unwrap().execute(params![record, [7_u8; 16]]).unwrap();
    }

    fn end(&self) {
        let head = "UPDATE segments SET position = position + 1, link = ?1 WHERE id = 1";
        self.db.prepare_cached(head).unwrap().execute([[7_u8; 32]]).unwrap();
        self.db.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
    }
}

async fn bare_clients(url: &str) -> Vec<tokio_postgres::Client> {
    let mut clients = Vec::new();
    for caller in 0..CALLERS {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        if caller == 0 {
            let table =
                "CREATE TABLE bare_records (id bigserial PRIMARY KEY, tenant bigint NOT NULL,
                log bigint NOT NULL, seq bigint NOT NULL, kind text NOT NULL, at bigint NOT NULL,
                size bigint NOT NULL, segment bigint NOT NULL, position bigint NOT NULL,
                commitment bytea NOT NULL, link bytea NOT NULL, content bytea);
                CREATE UNIQUE INDEX ON bare_records (tenant, log, seq);
                CREATE SEQUENCE bare_seq;";
            client.batch_execute(table).await.unwrap();
        }
        clients.push(client);
    }
    clients
}

/// Inserts prepared rows on all connections concurrently. Each connection waits until its row is
/// durable.
async fn bare_inserts(clients: &[tokio_postgres::Client], appends: usize) {
    let one = |caller: usize| async move {
        let client = &clients[caller];
        let insert =
            "INSERT INTO bare_records (tenant, log, seq, kind, at, size, segment, position,
                      commitment, link, content)
                      VALUES (1, $1, nextval('bare_seq'), 'item', 0, 0, 1, 1, $2, $2, $3)";
        let insert = client.prepare(insert).await.unwrap();
        let (digest, content) = (vec![7_u8; 32], vec![7_u8; CONTENT + 16]);
        let log = i64::try_from(caller).unwrap();
        for _ in 0..appends / CALLERS {
            client.execute(&insert, &[&log, &digest, &content]).await.unwrap();
        }
    };
    futures_util::future::join_all((0..CALLERS).map(one)).await;
}
