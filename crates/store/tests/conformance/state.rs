//! Tests that state is a fold of the log, and that loading it from a checkpoint reads only later
//! records.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Fence, Fold, FoldedLog, Lease, LogHead, LogId, NewRecord, PendingEntry, Receipt,
    Record, StaleRun, Store, StoreError, StoreFuture, Tenant, VaultKey, VaultLookup, VaultTurn,
    kind,
};
use throughline_store::Journal;

use crate::harness::*;

/// A fold that concatenates the texts of all Items.
#[derive(Clone, Debug, Default, PartialEq)]
struct TextFold(String);

impl Fold for TextFold {
    fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        if *record.kind == *kind::ITEM {
            self.0 += &text(record);
        }
        Ok(())
    }

    fn save(&self) -> Bytes {
        Bytes::from(self.0.clone())
    }

    fn load(saved: &Bytes) -> Result<Self, StoreError> {
        Ok(Self(String::from_utf8_lossy(saved).into_owned()))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct CountFold(u64);

impl Fold for CountFold {
    fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0 += u64::from(*record.kind == *kind::ITEM);
        Ok(())
    }

    fn save(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }

    fn load(saved: &Bytes) -> Result<Self, StoreError> {
        Ok(Self(u64::from_be_bytes(saved[..].try_into().unwrap())))
    }
}

async fn state(store: &dyn Store, name: &str) -> String {
    FoldedLog::<TextFold>::open(store, &us(), &log(name)).await.unwrap().state.0
}

/// Writes a checkpoint of the current state. Returns its sequence number.
async fn checkpoint(journal: &Journal, name: &str) -> u64 {
    let folded = FoldedLog::<TextFold>::open(journal, &us(), &log(name)).await.unwrap();
    let record = NewRecord::new(kind::CHECKPOINT, folded.state.save());
    let append = Append::new(name).expect_last(folded.last).record(record);
    journal.commit(batch(append)).await.unwrap().written[0].last
}

/// Returns the sequence number and content of the last checkpoint at or before `at_most`.
async fn found(journal: &Journal, name: &str, at_most: u64) -> Option<(u64, String)> {
    let found = journal.checkpoint(&us(), &log(name), at_most).await.unwrap();
    found.map(|record| (record.seq, text(&record)))
}

fn holds(seq: u64, state: &str) -> Option<(u64, String)> {
    Some((seq, state.to_owned()))
}

async fn rewind(journal: &Journal, name: &str, to: u64) {
    let mut append = Append::new(name);
    append.rewind_to = Some(to);
    journal.commit(batch(append)).await.unwrap();
}

pub(crate) async fn checkpoints_are_valid_only_in_their_history(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    assert_eq!(found(&journal, "thread", u64::MAX).await, None);
    assert_eq!(checkpoint(&journal, "thread").await, 2);
    add(&journal, "thread", &["b"]).await;
    assert_eq!(checkpoint(&journal, "thread").await, 4);
    assert_eq!(found(&journal, "thread", 1).await, None);
    assert_eq!(found(&journal, "thread", 3).await, holds(2, "a"));
    assert_eq!(found(&journal, "thread", u64::MAX).await, holds(4, "ab"));
    // After a rewind, a checkpoint among the rewound records is used only to read the earlier
    // state.
    rewind(&journal, "thread", 3).await;
    assert_eq!(found(&journal, "thread", u64::MAX).await, holds(2, "a"));
    assert_eq!(found(&journal, "thread", 4).await, holds(4, "ab"));
    assert_eq!(state(&journal, "thread").await, "ab");
    add(&journal, "thread", &["c"]).await;
    assert_eq!(checkpoint(&journal, "thread").await, 7);
    assert_eq!(found(&journal, "thread", u64::MAX).await, holds(7, "abc"));
    rewind(&journal, "thread", 2).await;
    assert_eq!(found(&journal, "thread", u64::MAX).await, holds(2, "a"));
    rewind(&journal, "thread", 0).await;
    assert_eq!(found(&journal, "thread", u64::MAX).await, None);
    assert_eq!(state(&journal, "thread").await, "");
}

pub(crate) async fn fork_ignores_later_checkpoints_of_its_parent(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    assert_eq!(checkpoint(&journal, "thread").await, 2);
    add(&journal, "thread", &["b"]).await;
    journal.fork(&us(), &log("thread"), Some(3), &log("fork")).await.unwrap();
    assert_eq!(checkpoint(&journal, "thread").await, 4);
    add(&journal, "fork", &["x", "y", "z"]).await;
    assert_eq!(found(&journal, "fork", u64::MAX).await, holds(2, "a"));
    assert_eq!(state(&journal, "fork").await, "abxyz");
    // A fork of the fork finds the same checkpoints, and prefers its own.
    journal.fork(&us(), &log("fork"), Some(4), &log("nested")).await.unwrap();
    assert_eq!(checkpoint(&journal, "fork").await, 7);
    add(&journal, "nested", &["n", "n", "n", "n"]).await;
    assert_eq!(found(&journal, "nested", u64::MAX).await, holds(2, "a"));
    assert_eq!(state(&journal, "nested").await, "abxnnnn");
    assert_eq!(checkpoint(&journal, "nested").await, 9);
    assert_eq!(found(&journal, "nested", u64::MAX).await, holds(9, "abxnnnn"));
    assert_eq!(found(&journal, "nested", 8).await, holds(2, "a"));
    // This fork point is before all checkpoints.
    journal.fork(&us(), &log("nested"), Some(1), &log("early")).await.unwrap();
    assert_eq!(found(&journal, "early", u64::MAX).await, None);
    assert_eq!(state(&journal, "early").await, "a");
}

pub(crate) async fn rewind_restores_the_earlier_state(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    // The expected state at each record of the log.
    let mut states = vec![String::new()];
    // Sequence numbers of the records that are still part of the history.
    let mut held = vec![0];
    let mut dice = throughline_testkit::TestRng::new(7);
    for round in 0_u64..120 {
        let last = states.len() as u64 - 1;
        match dice.below(8) {
            0 => {
                let to = *dice.pick(&held).unwrap();
                held.retain(|seq| *seq <= to);
                rewind(&journal, "thread", to as u64).await;
                let state = states[to].clone();
                states.push(state);
            }
            1 => {
                assert_eq!(checkpoint(&journal, "thread").await, last + 1);
                states.push(states[states.len() - 1].clone());
            }
            _ => {
                let letter = char::from(b'a' + u8::try_from(round % 26).unwrap()).to_string();
                add(&journal, "thread", &[&letter]).await;
                states.push(states[states.len() - 1].clone() + &letter);
            }
        }
        held.push(states.len() - 1);
        assert_eq!(state(&journal, "thread").await, states[states.len() - 1], "round {round}");
    }
    // A fork starts with the state that the log had at the fork point.
    for at in (0..states.len()).step_by(7) {
        let name = format!("fork {at}");
        journal.fork(&us(), &log("thread"), Some(at as u64), &log(&name)).await.unwrap();
        assert_eq!(state(&journal, &name).await, states[at]);
        add(&journal, &name, &["!"]).await;
        assert_eq!(state(&journal, &name).await, format!("{}!", states[at]));
    }
}

pub(crate) async fn opening_reads_a_bounded_number_of_records(on: Database) {
    const ITEMS: u64 = 100_000;
    const PAGE: u64 = 2_000;
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let mut folded = FoldedLog::<CountFold>::open(&journal, &us(), &log("thread")).await.unwrap();
    let mut reads = Vec::new();
    while folded.state.0 < ITEMS {
        let mut append = Append::new("thread").expect_last(folded.last);
        append.records = (0..PAGE).map(|_| item("something that was said")).collect();
        if folded.is_checkpoint_due() {
            append.records.push(NewRecord::new(kind::CHECKPOINT, folded.state.save()));
        }
        // The checkpoint contains the state before this append, so it must be the first record.
        append.records.rotate_right(usize::from(folded.is_checkpoint_due()));
        let written = journal.commit(batch(append)).await.unwrap().written[0].clone();
        for record in
            journal.read(&us(), &log("thread"), written.first - 1, u32::MAX).await.unwrap()
        {
            folded.apply(&record).unwrap();
        }
        let counting = CountingStore::new(&journal);
        let opened = FoldedLog::<CountFold>::open(&counting, &us(), &log("thread")).await.unwrap();
        assert_eq!((&opened.state, opened.last), (&folded.state, folded.last));
        reads.push(counting.records.load(Ordering::Relaxed));
    }
    assert_eq!(folded.state, CountFold(ITEMS));
    let most = reads.iter().max().copied().unwrap();
    throughline_testkit::figure("records read to open 100,000 items, at most", most);
    assert!(most <= 2 * PAGE, "{reads:?}");
}

pub(crate) async fn checkpoints_are_due_now_and_then(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let mut folded = FoldedLog::<TextFold>::open(&journal, &us(), &log("thread")).await.unwrap();
    let mut checkpoints = 0_u64;
    for _ in 0..2_000 {
        let record = if folded.is_checkpoint_due() {
            checkpoints += 1;
            NewRecord::new(kind::CHECKPOINT, folded.state.save())
        } else {
            item("0123456789")
        };
        let at = folded.last;
        let written = journal.commit(batch(Append::new("thread").expect_last(at).record(record)));
        let last = written.await.unwrap().written[0].last;
        for record in journal.read(&us(), &log("thread"), at, 1).await.unwrap() {
            folded.apply(&record).unwrap();
        }
        assert_eq!(folded.last, last);
    }
    // The state grows with the log, so checkpoints must become rarer to stay small in total.
    assert!((2..=10).contains(&checkpoints), "{checkpoints}");
    assert_eq!(state(&journal, "thread").await, folded.state.0);
}

/// A store that counts the records read through it.
struct CountingStore<'s> {
    store: &'s dyn Store,
    records: AtomicU64,
}

impl<'s> CountingStore<'s> {
    fn new(store: &'s dyn Store) -> Self {
        Self { store, records: AtomicU64::new(0) }
    }

    fn count(&self, records: usize) {
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }
}

impl Store for CountingStore<'_> {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        self.store.commit(batch)
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Record>> {
        Box::pin(async move {
            let records = self.store.read(tenant, log, after, limit).await?;
            self.count(records.len());
            Ok(records)
        })
    }

    fn seq_before_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        self.store.seq_before_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        self.store.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
        self.store.log(tenant, log)
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let found = self.store.checkpoint(tenant, log, at_most).await?;
            self.count(usize::from(found.is_some()));
            Ok(found)
        })
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        self.store.lease(tenant, log, owner, time)
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        self.store.renew(tenant, log, fence, time)
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        self.store.release(tenant, log, fence)
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [VaultKey],
    ) -> StoreFuture<'a, VaultLookup> {
        self.store.find(tenant, keys)
    }

    fn find_newest<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a VaultKey,
        limit: u32,
    ) -> StoreFuture<'a, Vec<VaultTurn>> {
        self.store.find_newest(tenant, key, limit)
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> StoreFuture<'a, ()> {
        self.store.forget_run(tenant, run)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &LogId,
        fence: Option<Fence>,
    ) -> Box<dyn throughline_core::EventWriter> {
        self.store.events(tenant, run, fence)
    }

    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        self.store.runs_of(tenant, thread, before, limit)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        self.store.pending(tenant, log)
    }

    fn stale_runs(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.store.stale_runs(idle, after, limit)
    }
}
