//! Invariant 11, durability: acknowledged writes survive `kill -9` and an immediate stop of the
//! server.
//!
//! A child process writes from several callers and prints which writes were acknowledged. The
//! parent kills the database at a random time, opens the store again and checks all acknowledged
//! writes. Many rounds use the same store, so repeated recovery is tested too. A [`Victim`] is the
//! database to kill: the child process that uses SQLite, or the PostgreSQL server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking, and a child prints its results for its parent"
)]

#[path = "crash/load.rs"]
mod load;
#[path = "crash/memory.rs"]
mod memory;

use throughline_store::{Journal, Options, open};
use throughline_testkit::{Child, Cluster, Folder, TestRng, cases, child_task, figure};
use tokio::runtime::Runtime;

use crate::memory::AcknowledgedWrites;

/// A database that can be killed while a child writes to it.
trait Victim {
    /// Returns the URL for opening the store.
    fn url(&self) -> String;

    /// Kills the database and the child while the child writes.
    fn kill(&self, child: &mut Child);
}

/// An SQLite file. Killing the child is sufficient, because SQLite runs in the child's process.
struct SqliteVictim(Folder);

impl Victim for SqliteVictim {
    fn url(&self) -> String {
        format!("sqlite://{}", self.0.join("store.db").display())
    }

    fn kill(&self, child: &mut Child) {
        child.kill();
    }
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    // Use a tenth of the cases as kills, and start a new store from time to time to keep each check
    // short.
    const PER_STORE: u32 = 50;
    let kills = (cases(500) / 10).max(PER_STORE);
    let mut sum = CrashTotals::default();
    for store in 0..kills.div_ceil(PER_STORE) {
        let file = SqliteVictim(Folder::new("crash"));
        sum.add(&ordeal(&file, PER_STORE.min(kills - store * PER_STORE), u64::from(store)));
    }
    figure("kill -9 under load", &sum);
    assert_eq!(sum.kills, kills);
}

/// A separate PostgreSQL server. It is stopped without a clean shutdown during writes, and
/// restarted after the child has ended.
struct PostgresVictim(Cluster);

impl Victim for PostgresVictim {
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
fn acknowledged_writes_survive_postgres_crash() {
    let stops = (cases(30) / 500).max(3);
    let sum = ordeal(&PostgresVictim(Cluster::start()), stops, 0);
    figure("immediate stops of PostgreSQL under load", &sum);
    assert_eq!(sum.kills, stops);
}

/// Entry point of the child process, which writes until it is killed or the store fails.
#[test]
fn child() {
    let Some(task) = child_task() else { return };
    load::run(&task);
}

#[derive(Default)]
struct CrashTotals {
    kills: u32,
    /// Number of kills while the child was opening the store, before its first acknowledged write.
    early: u32,
    batches: usize,
    records: u64,
    unacknowledged: usize,
}

impl CrashTotals {
    fn add(&mut self, other: &CrashTotals) {
        self.kills += other.kills;
        self.early += other.early;
        self.batches += other.batches;
        self.records += other.records;
        self.unacknowledged += other.unacknowledged;
    }
}

impl std::fmt::Display for CrashTotals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, early, batches, records, unacknowledged } = self;
        write!(
            f,
            "{kills} kills ({early} while opening), {batches} acknowledged batches, none lost; {unacknowledged} \
             more were whole; {records} records proven"
        )
    }
}

/// Kills the database repeatedly, and checks the whole store after each kill.
fn ordeal(victim: &dyn Victim, kills: u32, seed: u64) -> CrashTotals {
    let runtime = Runtime::new().unwrap();
    let mut memory = AcknowledgedWrites::default();
    let mut sum = CrashTotals::default();
    for round in 0..kills {
        let mut dice = TestRng::new((seed << 32) | u64::from(round));
        let mut child = Child::start("child", &format!("{round} {}", victim.url()));
        // Kill some children while they open the store, and most while they write.
        let patience = if dice.below(8) == 0 { 0 } else { 1 + dice.below(60) };
        let mut acknowledged = 0;
        let mut started = false;
        while acknowledged < patience || !started {
            let Some(line) = child.line() else {
                panic!("the child of round {round} ended unexpectedly after {acknowledged} lines");
            };
            // The test runner prints to the same line before the child does.
            started |= line.ends_with(load::STARTED);
            acknowledged += usize::from(memory.record_line(&line));
        }
        victim.kill(&mut child);
        // Acknowledgements that the child printed before it ended count too.
        while let Some(line) = child.line() {
            acknowledged += usize::from(memory.record_line(&line));
        }
        child.wait_for_success();
        sum.early += u32::from(acknowledged == 0);
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
