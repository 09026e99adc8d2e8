//! Law 11, *Durable*: what was acknowledged survives `kill -9`, and a server that stops in the middle of everything.
//!
//! A child process writes from several callers at once and says what was acknowledged; the parent ends it at some moment,
//! opens the store again and looks for all of it. The same store is used again and again, so that recovery is recovered
//! from. Whoever opens and kills is a [`Victim`]: SQLite is killed with its process, PostgreSQL is stopped under it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child speaks through its output"
)]

#[path = "crash/load.rs"]
mod load;
#[path = "crash/memory.rs"]
mod memory;

use throughline_store::{Journal, Options, open};
use throughline_testkit::{Child, Cluster, Dice, Folder, cases, child_task, figure};
use tokio::runtime::Runtime;

use crate::memory::Memory;

/// Something that can be opened, and killed while it is written to.
trait Victim {
    /// Where it is.
    fn url(&self) -> String;

    /// Kills it while the child writes. The child need not have ended.
    fn kill(&self, child: &mut Child);
}

/// A file: it is enough to kill who writes to it.
struct File(Folder);

impl Victim for File {
    fn url(&self) -> String {
        format!("sqlite://{}", self.0.join("store.db").display())
    }

    fn kill(&self, child: &mut Child) {
        child.kill();
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    // Ten times fewer kills than cases, and a new store from time to time, so that a look at all of it stays short.
    const PER_STORE: u32 = 50;
    let kills = (cases(500) / 10).max(PER_STORE);
    let mut sum = Sum::default();
    for store in 0..kills.div_ceil(PER_STORE) {
        let file = File(Folder::new("crash"));
        sum.add(&ordeal(&file, PER_STORE.min(kills - store * PER_STORE), u64::from(store)));
    }
    figure("kill -9 under load", &sum);
    assert_eq!(sum.kills, kills);
}

/// A server of its own: it is stopped at once under everybody who writes, and started again when none of them is left.
struct Server(Cluster);

impl Victim for Server {
    fn url(&self) -> String {
        self.0.url.clone()
    }

    fn kill(&self, child: &mut Child) {
        self.0.crash();
        child.kill();
        self.0.resume();
    }
}

#[test]
fn crash_postgres() {
    let stops = (cases(30) / 500).max(3);
    let sum = ordeal(&Server(Cluster::start()), stops, 0);
    figure("immediate stops of PostgreSQL under load", &sum);
    assert_eq!(sum.kills, stops);
}

/// The child: it writes until it is killed, or until the store fails.
#[test]
fn child() {
    let Some(task) = child_task() else { return };
    load::run(&task);
}

#[derive(Default)]
struct Sum {
    kills: u32,
    /// Kills before anything was acknowledged: while the store was opened.
    early: u32,
    batches: usize,
    records: u64,
    unacknowledged: usize,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.kills += other.kills;
        self.early += other.early;
        self.batches += other.batches;
        self.records += other.records;
        self.unacknowledged += other.unacknowledged;
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, early, batches, records, unacknowledged } = self;
        write!(
            f,
            "{kills} kills ({early} while opening), {batches} acknowledged batches, none lost; {unacknowledged} \
             more were whole; {records} records proven"
        )
    }
}

/// Kills it again and again, and looks for everything each time.
fn ordeal(victim: &dyn Victim, kills: u32, seed: u64) -> Sum {
    let runtime = Runtime::new().unwrap();
    let mut memory = Memory::default();
    let mut sum = Sum::default();
    for round in 0..kills {
        let mut dice = Dice::new((seed << 32) | u64::from(round));
        let mut child = Child::start("child", &format!("{round} {}", victim.url()));
        // Some are killed while they open the store, most while they write.
        let patience = if dice.below(8) == 0 { 0 } else { 1 + dice.below(60) };
        let mut heard = 0;
        let mut begun = false;
        while heard < patience || !begun {
            let Some(line) = child.line() else {
                panic!("the child of round {round} ended by itself after {heard} lines");
            };
            // The test runner writes before it, on the same line.
            begun |= line.ends_with(load::BEGUN);
            heard += usize::from(memory.hear(&line));
        }
        victim.kill(&mut child);
        // What it had said before it died counts too.
        while let Some(line) = child.line() {
            heard += usize::from(memory.hear(&line));
        }
        child.ended();
        sum.early += u32::from(heard == 0);
        runtime.block_on(async {
            let journal = reopen(victim).await;
            memory.check(&journal, round).await;
            let proof = journal.verify(None, &|_| {}).await.unwrap();
            assert_eq!(proof.broken, None, "round {round}");
            sum.records += proof.records.saturating_sub(memory.proven);
            memory.proven = proof.records;
            memory.free_leases(&journal).await;
            journal.close().await.unwrap();
        });
        sum.kills += 1;
    }
    sum.batches = memory.batches();
    sum.unacknowledged = memory.unacknowledged();
    sum
}

async fn reopen(victim: &dyn Victim) -> Journal {
    open(&victim.url(), &Options::default()).await.unwrap()
}
