//! Measures whether turn 10,000 costs the same as turn 100: bytes on disk, append time, and time to
//! open the state. Also runs the same turns on LangGraph's checkpointers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "benches measure and print"
)]
#![allow(missing_docs, reason = "a program has no public API")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_core::{
    Append, Batch, FoldedLog, LogId, LogOpening, NewRecord, Store, Tenant, kind,
};
use throughline_json::{self as json, Name};
use throughline_spec::ThreadState;
use throughline_store::{Journal, Options, RunEvents, about_item, open};
use throughline_testkit::TestRng;

use support::{BenchFolder, measuring, median, text, time};

const TURN: usize = 4096;
const DELTA: usize = 20;

fn main() {
    let turns = if measuring() { 10_000 } else { 120 };
    println!("{turns} turns of {TURN} B, each streamed in deltas of {DELTA} B");
    println!(
        "{:<26} {:>7} {:>10} {:>12} {:>12} {:>14}",
        "store", "turns", "raw MB", "disk / raw", "append ×", "open state ×"
    );
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let (folder, young) = (BenchFolder::new("linear"), BenchFolder::new("linear-young"));
    let url = |folder: &BenchFolder| format!("sqlite://{}", folder.file("store.db").display());
    let size = async || folder.size();
    let sqlite = runtime.block_on(measure(&url(&young), &url(&folder), turns, size));
    sqlite.print("Throughline, SQLite", turns);
    if throughline_testkit::has_postgres() {
        let server = throughline_testkit::postgres_url();
        let (young, old) =
            (throughline_testkit::postgres_database(), throughline_testkit::postgres_database());
        let size = async || postgres_size(&old).await;
        let postgres = runtime.block_on(measure(&young, &old, turns, size));
        postgres.print("Throughline, PostgreSQL", turns);
        langgraph("postgres", &server);
    }
    langgraph("sqlite", &folder.file("langgraph.db").display().to_string());
    println!(
        "{:<26} {:>7} {:>10} {:>12} {:>12} {:>14}",
        "target", "", "", "≤ 1.60", "≤ 1.30", "≤ 2.00"
    );
    println!(
        "disk: excludes the size of an empty database. append ×, open state ×: the ratio of the median after this many turns \
         to the median after 100 turns, measured alternately."
    );
    println!("LangGraph writes the whole state at each step, so it is measured over fewer turns.");
}

struct Measurement {
    raw: u64,
    disk: u64,
    append: f64,
    open: f64,
}

impl Measurement {
    fn print(&self, name: &str, turns: usize) {
        println!(
            "{name:<26} {turns:>7} {:>10.1} {:>12.2} {:>12.2} {:>14.2}",
            self.raw as f64 / 1e6,
            self.disk as f64 / self.raw as f64,
            self.append,
            self.open,
        );
    }
}

/// Measures two stores alternately, one with 100 turns and one with many, so that other load on the
/// machine affects both equally.
async fn measure(young: &str, old: &str, turns: usize, size: impl AsyncFn() -> u64) -> Measurement {
    let empty = size().await;
    let mut old = Load::new(old).await;
    for _ in 0..turns {
        old.turn().await;
    }
    let (raw, disk) = (old.raw, size().await - empty);
    let mut young = Load::new(young).await;
    for _ in 0..100.min(turns) {
        young.turn().await;
    }
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..200.min(turns) {
        early.push(young.turn().await);
        late.push(old.turn().await);
    }
    let append = ratio(&late, &early);
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        early.push(young.open_state().await);
        late.push(old.open_state().await);
    }
    young.journal.close().await.unwrap();
    old.journal.close().await.unwrap();
    Measurement { raw, disk, append, open: ratio(&late, &early) }
}

fn ratio(late: &[Duration], early: &[Duration]) -> f64 {
    median(late).as_secs_f64() / median(early).as_secs_f64()
}

/// A Thread to which the benchmark appends turn by turn.
struct Load {
    journal: Journal,
    tenant: Tenant,
    thread: LogId,
    folded: FoldedLog<ThreadState>,
    dice: TestRng,
    turn: usize,
    /// Total size of the Items and deltas, in bytes.
    raw: u64,
}

impl Load {
    async fn new(url: &str) -> Self {
        let journal = open(url, &Options::default()).await.unwrap();
        let (tenant, thread) = (Tenant::from("bench"), LogId::from("thread"));
        let opening = Append::new(thread.clone()).opening(LogOpening::thread());
        journal.commit(Batch::new(tenant.clone()).append(opening)).await.unwrap();
        let folded = FoldedLog::open(&journal, &tenant, &thread).await.unwrap();
        Self { journal, tenant, thread, folded, dice: TestRng::new(7), turn: 0, raw: 0 }
    }

    /// Writes one turn: a run with its streamed deltas, and the resulting Item. Returns the
    /// duration of the append.
    async fn turn(&mut self) -> Duration {
        self.turn += 1;
        let (turn, tenant, thread) = (self.turn, &self.tenant, &self.thread);
        let content = text(&mut self.dice, TURN - 100);
        let item = json::object(|item| {
            item.string("id", &format!("{turn}.0"))
                .string("role", "assistant")
                .string("text", &content);
        });
        let item = item.bytes().clone();
        self.raw += u64::try_from(item.len() + content.len()).unwrap();
        let run = LogId::from(format!("run-{turn}"));
        let opening =
            Append::new(run.clone()).opening(LogOpening::run(thread.clone())).status("running");
        self.journal.commit(Batch::new(tenant.clone()).append(opening)).await.unwrap();
        let events = RunEvents::new(self.journal.clone(), tenant.clone(), run.clone(), None);
        let about: Name = about_item(thread, &format!("{turn}.0"));
        for delta in content.as_bytes().chunks(DELTA) {
            events.push(delta, Some(&about)).await;
        }
        let record = NewRecord::new(kind::ITEM, item.clone()).about(about);
        let mut append = Append::new(thread.clone()).record(record);
        let due = self.folded.is_checkpoint_due();
        if due {
            append = append.record(self.folded.checkpoint());
        }
        let batch =
            Batch::new(tenant.clone()).append(append).append(Append::new(run).status("completed"));
        let (time, receipt) = time(events.commit(batch)).await;
        let last = receipt.unwrap().written[0].last;
        self.folded.state.items += 1;
        self.folded.last = last;
        self.folded.since += u64::try_from(item.len()).unwrap();
        if due {
            self.folded.checkpoint_written(last, 64);
        }
        time
    }

    async fn open_state(&self) -> Duration {
        let opened = FoldedLog::<ThreadState>::open(&self.journal, &self.tenant, &self.thread);
        let (time, state) = time(opened).await;
        assert!(state.unwrap().state.items > 0);
        time
    }
}

async fn postgres_size(url: &str) -> u64 {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let row = client.query_one("SELECT pg_database_size(current_database())", &[]).await.unwrap();
    let size: i64 = row.get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    u64::try_from(size).unwrap()
}

/// Runs the same turns on LangGraph, in a Python environment that is created on the first run.
fn langgraph(kind: &str, place: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/langgraph");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("langgraph");
    if !measuring() {
        println!("LangGraph, {kind}: only measured by cargo bench");
        return;
    }
    let python = throughline_testkit::python(&home, &here.join("requirements.txt"));
    let ran = Command::new(&python).arg(here.join("turns.py")).args([kind, place]).status();
    assert!(ran.unwrap().success(), "LangGraph's turns failed");
}
