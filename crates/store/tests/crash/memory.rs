//! The acknowledgements that the parent has read from the child, and the checks that the store
//! contains the acknowledged writes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

use throughline_core::unpack_events;
use throughline_core::{Fence, LogId, Record, Store, StoreError};
use throughline_store::Journal;

use crate::load::{BatchNumber, CALLERS, PARTS, behind, held, places, tenant};

#[derive(Default)]
pub(crate) struct AcknowledgedWrites {
    /// Acknowledged batches, each with its formatted receipt.
    batches: BTreeMap<BatchNumber, String>,
    /// Batches acknowledged since the last check.
    new: Vec<BatchNumber>,
    /// Batches in the store that were not acknowledged.
    unacknowledged_batches: BTreeSet<BatchNumber>,
    /// Content of the acknowledged records that were written under a lease, by sequence number.
    behind: BTreeMap<u64, Vec<u8>>,
    /// The highest fence that the child reported.
    fence: u64,
    /// Number of records at the last verification.
    pub(crate) proven: u64,
}

impl AcknowledgedWrites {
    /// Parses a line that the child printed. Returns whether the line is an acknowledgement.
    pub(crate) fn record_line(&mut self, line: &str) -> bool {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[..] {
            ["batch", number, places] => {
                let number: BatchNumber = number.parse().unwrap();
                assert!(self.batches.insert(number, places.to_owned()).is_none(), "{number} twice");
                self.new.push(number);
                true
            }
            ["lease", fence] => {
                let fence: u64 = fence.parse().unwrap();
                assert!(fence > self.fence, "fence {fence} after {}", self.fence);
                self.fence = fence;
                true
            }
            ["behind", fence, count, seq] => {
                let fence = Fence(fence.parse::<NonZeroU64>().unwrap());
                let content = behind(fence, count.parse().unwrap());
                let before = self.behind.insert(seq.parse().unwrap(), content);
                assert!(before.is_none(), "record {seq} is under the fence twice");
                true
            }
            _ => false,
        }
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn unacknowledged(&self) -> usize {
        self.unacknowledged_batches.len()
    }

    /// Checks that no acknowledged write is lost or changed, and that no write is duplicated or
    /// partial.
    pub(crate) async fn check(&mut self, journal: &Journal, round: u32) {
        let mut found: BTreeSet<BatchNumber> = BTreeSet::new();
        let mut checkpoints: BTreeMap<BatchNumber, u64> = BTreeMap::new();
        for caller in (0..CALLERS).step_by(2) {
            let thread = BatchNumber { round, caller, count: 0 }.thread();
            let mut before: Option<BatchNumber> = None;
            let mut parts = Vec::new();
            for record in all(journal, &thread).await {
                let bytes = record.content.bytes().expect("nothing was forgotten");
                if &*record.kind == "checkpoint" {
                    let number = before.expect("a checkpoint comes after its item");
                    assert_eq!(**bytes, number.checkpoint());
                    checkpoints.insert(number, record.seq);
                } else if &*record.kind == "part" {
                    parts.push(bytes.to_vec());
                } else {
                    let number = batch_of(bytes);
                    let expected: Vec<_> = (0..PARTS).map(|part| number.part(part)).collect();
                    assert_eq!(std::mem::take(&mut parts), expected, "{number} is incomplete");
                    assert!(found.insert(number), "{number} is in {thread} twice");
                    assert!(**bytes == number.item(), "{number} has different content");
                    if let Some(before) = before.filter(|before| before.has_checkpoint()) {
                        assert!(checkpoints.contains_key(&before), "{before} is incomplete");
                    }
                    before = Some(number);
                }
            }
        }
        for number in self.batches.keys() {
            assert!(found.contains(number), "{number} was acknowledged but is lost");
        }
        self.unacknowledged_batches =
            found.iter().filter(|number| !self.batches.contains_key(number)).copied().collect();
        self.check_runs(journal, round, &found).await;
        self.check_once_and_vault(journal, round, &found).await;
        if let Some((_, seq)) = checkpoints.iter().next_back() {
            let thread = checkpoints.keys().next_back().unwrap().thread();
            let last = journal.checkpoint(&tenant(), &thread, *seq).await.unwrap().unwrap();
            assert_eq!(last.seq, *seq);
        }
        let held = all(journal, &held()).await;
        for (seq, content) in &self.behind {
            let record = usize::try_from(*seq).ok().and_then(|seq| held.get(seq - 1));
            let record = record.unwrap_or_else(|| panic!("record {seq} under the fence is lost"));
            assert_eq!(**record.content.bytes().unwrap(), **content);
        }
    }

    /// Checks that the runs contain the events of exactly those batches whose Items are in the
    /// Threads.
    async fn check_runs(&self, journal: &Journal, round: u32, found: &BTreeSet<BatchNumber>) {
        for caller in 0..CALLERS {
            let mut batches =
                found.iter().filter(|number| number.round == round && number.caller == caller);
            let run = BatchNumber { round, caller, count: 0 }.run();
            if journal.log(&tenant(), &run).await.unwrap().is_none() {
                assert_eq!(batches.next(), None, "{run} is lost");
                continue;
            }
            let mut event = 0;
            for record in all(journal, &run).await {
                let number = batches
                    .next()
                    .unwrap_or_else(|| panic!("{run} has more batches than its thread"));
                let events = unpack_events(&record).unwrap();
                for ((event_number, found), expected) in events.iter().zip(number.events()) {
                    event += 1;
                    assert_eq!((*event_number, &**found), (event, &*expected));
                }
            }
            assert_eq!(batches.next(), None, "{run} has fewer batches than its thread");
            let head = journal.log(&tenant(), &run).await.unwrap().unwrap();
            assert_eq!(head.events, event);
        }
    }

    /// Checks that no batch is written again if it is repeated, and that each batch's turn is
    /// found. This includes stored batches that were not acknowledged.
    async fn check_once_and_vault(
        &mut self,
        journal: &Journal,
        round: u32,
        found: &BTreeSet<BatchNumber>,
    ) {
        for number in found.iter().filter(|number| number.round == round) {
            let receipt = journal.commit(number.batch()).await.unwrap();
            assert!(receipt.repeated, "{number} was written twice");
            if let Some(acknowledged_places) = self.batches.get(number) {
                assert_eq!(places(&receipt), *acknowledged_places, "{number}");
            }
            let turn = journal.find(&tenant(), &[number.claim()]).await.unwrap().found;
            let [Some(turn)] = &turn[..] else { panic!("the turn of {number} is lost") };
            assert_eq!(turn.turn.log, number.thread());
            let span = (turn.turn.first, turn.turn.last);
            assert_eq!(span, (receipt.written[0].first, receipt.written[0].last));
        }
        for number in self.new.drain(..) {
            assert_eq!(number.round, round);
        }
    }

    /// Checks that the killed child's lease can be taken over, and that the child's fence is then
    /// rejected.
    pub(crate) async fn free_leases(&mut self, journal: &Journal) {
        let time = Duration::from_mins(10);
        // The child may have been killed between taking the lease and printing it.
        for fence in [self.fence, self.fence + 1] {
            if let Some(fence) = NonZeroU64::new(fence).map(Fence) {
                journal.release(&tenant(), &held(), fence).await.unwrap();
            }
        }
        let lease = journal.lease(&tenant(), &held(), "parent", time).await.unwrap();
        assert!(lease.fence.0.get() > self.fence);
        self.fence = lease.fence.0.get();
        if let Some(before) = NonZeroU64::new(self.fence - 1).map(Fence) {
            let refused = journal.renew(&tenant(), &held(), before, time).await;
            assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
        }
        journal.release(&tenant(), &held(), lease.fence).await.unwrap();
    }
}

/// Reads all records of a log and checks that their sequence numbers have no gap. Returns no
/// records if the log was never opened.
async fn all(journal: &Journal, log: &LogId) -> Vec<Record> {
    let Some(head) = journal.log(&tenant(), log).await.unwrap() else { return Vec::new() };
    let mut records: Vec<Record> = Vec::new();
    while records.len() < usize::try_from(head.last).unwrap() {
        let after = records.len() as u64;
        records.extend(journal.read(&tenant(), log, after, 1000).await.unwrap());
        assert!(
            records.len() as u64 > after,
            "{log} ends at {after}, but its row states {}",
            head.last
        );
    }
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record.seq, index as u64 + 1, "{log} has a gap");
    }
    records
}

/// Returns the number of the batch that wrote an Item.
fn batch_of(item: &[u8]) -> BatchNumber {
    let text = std::str::from_utf8(item).unwrap();
    text.split('"').nth(3).unwrap().parse().unwrap()
}
