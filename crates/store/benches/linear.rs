//! Whether the ten-thousandth turn costs what the hundredth did: bytes on the disk, the time of an append, the time to open
//! the state. Beside it, the same turns on LangGraph's checkpointers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a program has no interface")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use throughline_core::{
    Append, Batch, Folded, LogId, LogOpening, Name, NewRecord, Store, Tenant, ThreadState, json,
    kind,
};
use throughline_store::{Journal, Options, RunEvents, about_item, open};
use throughline_testkit::Dice;

use support::{Folder, measuring, median, text, time};

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
    let folder = Folder::new("linear");
    let url = format!("sqlite://{}", folder.file("store.db").display());
    let sqlite = runtime.block_on(measure(&url, turns));
    sqlite.print("Throughline, SQLite", turns, folder.size());
    if throughline_testkit::has_postgres() {
        let server = throughline_testkit::postgres_url();
        let database = throughline_testkit::postgres_database();
        let postgres = runtime.block_on(measure(&database, turns));
        let size = runtime.block_on(postgres_size(&database));
        postgres.print("Throughline, PostgreSQL", turns, size);
        langgraph("postgres", &server);
    }
    langgraph("sqlite", &folder.file("langgraph.db").display().to_string());
    println!(
        "{:<26} {:>7} {:>10} {:>12} {:>12} {:>14}",
        "target", "", "", "≤ 1.60", "≤ 1.30", "≤ 2.00"
    );
    println!(
        "append ×: the median at the end to that at turn 100. open state ×: the last turn to turn 100."
    );
    println!("LangGraph writes the whole state at each step, so it is measured over fewer turns.");
}

struct Measured {
    raw: u64,
    early: Duration,
    late: Duration,
    opened_early: Duration,
    opened_late: Duration,
}

impl Measured {
    fn print(&self, name: &str, turns: usize, disk: u64) {
        let ratio = |late: Duration, early: Duration| late.as_secs_f64() / early.as_secs_f64();
        println!(
            "{name:<26} {turns:>7} {:>10.1} {:>12.2} {:>12.2} {:>14.2}",
            self.raw as f64 / 1e6,
            disk as f64 / self.raw as f64,
            ratio(self.late, self.early),
            ratio(self.opened_late, self.opened_early),
        );
    }
}

async fn measure(url: &str, turns: usize) -> Measured {
    let journal = open(url, &Options::default()).await.unwrap();
    let (tenant, thread) = (Tenant::from("bench"), LogId::from("thread"));
    let opening = Append::to(thread.clone()).opening(LogOpening::thread());
    journal.commit(Batch::of(tenant.clone()).append(opening)).await.unwrap();
    let mut dice = Dice::new(7);
    let mut folded = Folded::<ThreadState>::open(&journal, &tenant, &thread).await.unwrap();
    let (mut raw, mut times, mut opened_early) = (0, Vec::with_capacity(turns), Duration::ZERO);
    for turn in 1..=turns {
        let said = text(&mut dice, TURN - 100);
        let item = json::object(|item| {
            item.string("id", &format!("{turn}.0"))
                .string("role", "assistant")
                .string("text", &said);
        });
        raw += item.bytes().len() + said.len();
        times.push(
            write(&journal, &tenant, &thread, &mut folded, (turn, &said, item.bytes().clone()))
                .await,
        );
        if turn == 100 {
            opened_early = open_state(&journal, &tenant, &thread).await;
        }
    }
    let opened_late = open_state(&journal, &tenant, &thread).await;
    journal.close().await.unwrap();
    let early = median(&times[50.min(times.len() - 1)..150.min(times.len())]);
    let late = median(&times[times.len() - 100..]);
    Measured { raw: u64::try_from(raw).unwrap(), early, late, opened_early, opened_late }
}

/// One turn: a run that streams its deltas, and the item that they add up to. Gives the time of the append.
async fn write(
    journal: &Journal,
    tenant: &Tenant,
    thread: &LogId,
    folded: &mut Folded<ThreadState>,
    (turn, said, item): (usize, &str, bytes::Bytes),
) -> Duration {
    let run = LogId::from(format!("run-{turn}"));
    let opening =
        Append::to(run.clone()).opening(LogOpening::run(thread.clone())).status("running");
    journal.commit(Batch::of(tenant.clone()).append(opening)).await.unwrap();
    let events = RunEvents::new(journal.clone(), tenant.clone(), run.clone(), None);
    let about: Name = about_item(thread, &format!("{turn}.0"));
    for delta in said.as_bytes().chunks(DELTA) {
        events.push(delta, Some(&about)).await;
    }
    let record = NewRecord::new(kind::ITEM, item.clone()).about(about);
    let mut append = Append::to(thread.clone()).record(record);
    let due = folded.is_due();
    if due {
        append = append.record(folded.checkpoint());
    }
    let batch =
        Batch::of(tenant.clone()).append(append).append(Append::to(run).status("completed"));
    let (time, receipt) = time(events.commit(batch)).await;
    let last = receipt.unwrap().written[0].last;
    folded.state.items += 1;
    folded.last = last;
    folded.since += u64::try_from(item.len()).unwrap();
    if due {
        folded.kept(last, 64);
    }
    time
}

async fn open_state(journal: &Journal, tenant: &Tenant, thread: &LogId) -> Duration {
    let mut times = Vec::new();
    for _ in 0..41 {
        let (time, state) = time(Folded::<ThreadState>::open(journal, tenant, thread)).await;
        assert!(state.unwrap().state.items > 0);
        times.push(time);
    }
    median(&times)
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

/// The same turns on LangGraph, in an environment that is made on the first run.
fn langgraph(kind: &str, place: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/langgraph");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("langgraph");
    let python = home.join("bin/python");
    if !measuring() {
        println!("LangGraph, {kind}: only measured by cargo bench");
        return;
    }
    if !home.join("ready").exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&home).status();
        assert!(made.unwrap().success(), "python3 -m venv failed: install python3-venv");
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        assert!(install.arg(here.join("requirements.txt")).status().unwrap().success());
        std::fs::write(home.join("ready"), "").unwrap();
    }
    let ran = Command::new(&python).arg(here.join("turns.py")).args([kind, place]).status();
    assert!(ran.unwrap().success(), "LangGraph's turns failed");
}
