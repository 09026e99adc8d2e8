//! The writes of the child process: batches of every kind, from several concurrent callers.
//!
//! A batch contains an Item of a Thread, events of a run, a captured turn, an idempotency name, and
//! sometimes a checkpoint. All content is derived from the batch's number, so the parent can
//! compute it.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::pack_events;
use throughline_core::{
    Append, Batch, Fence, LogId, LogOpening, NewRecord, NewVaultTurn, Receipt, Store, StoreError,
    Tenant, VaultKey, kind,
};
use throughline_store::{Journal, Options, open};
use throughline_testkit::TestRng;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The line that the child prints before it opens the store.
pub(crate) const STARTED: &str = "begun";

/// Number of concurrent callers in the child process.
pub(crate) const CALLERS: u32 = 6;

pub(crate) fn tenant() -> Tenant {
    Tenant::from("crash")
}

/// Number of records before the Item of each batch.
pub(crate) const PARTS: u32 = 2;

/// Identifies a batch: its round, its caller and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BatchNumber {
    pub(crate) round: u32,
    pub(crate) caller: u32,
    pub(crate) count: u32,
}

impl std::fmt::Display for BatchNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.round, self.caller, self.count)
    }
}

impl std::str::FromStr for BatchNumber {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.').map(str::parse);
        let mut next = || parts.next().unwrap_or(Ok(0));
        Ok(Self { round: next()?, caller: next()?, count: next()? })
    }
}

impl BatchNumber {
    /// Returns the name of the batch's Thread. Two callers share a Thread, and every round appends
    /// to the same Threads.
    pub(crate) fn thread(self) -> LogId {
        LogId::from(format!("thread-{}", self.caller / 2))
    }

    /// Returns the name of the batch's run. Each caller starts a new run in every round.
    pub(crate) fn run(self) -> LogId {
        LogId::from(format!("run-{}-{}", self.round, self.caller))
    }

    /// Returns the Item's content. Some Items are large enough to be stored as blobs, and some of
    /// the large Items are equal.
    pub(crate) fn item(self) -> Vec<u8> {
        let mut dice = TestRng::new(u64::from(self.round << 16 | self.caller << 12 | self.count));
        let length = match dice.below(20) {
            0 => 20_000,
            1 => 5_000,
            _ => 50 + dice.below(400),
        };
        let mut content = format!("{{\"batch\":\"{self}\",\"text\":\"").into_bytes();
        content.extend((0..length).map(|_| b'a' + u8::try_from(dice.below(26)).unwrap_or(0)));
        content.extend(b"\"}");
        content
    }

    pub(crate) fn events(self) -> Vec<Vec<u8>> {
        (0..=self.count % 5).map(|event| format!("{self} event {event}").into_bytes()).collect()
    }

    /// Returns whether the batch has a checkpoint after its Item.
    pub(crate) fn has_checkpoint(self) -> bool {
        self.count % 7 == 3
    }

    pub(crate) fn checkpoint(self) -> Vec<u8> {
        format!("checkpoint of {self}").into_bytes()
    }

    /// Returns the content of one of the records before the Item. The store packs these records.
    pub(crate) fn part(self, part: u32) -> Vec<u8> {
        format!("part {part} of {self}").into_bytes()
    }

    pub(crate) fn claim(self) -> VaultKey {
        VaultKey::Claim(format!("claim-{self}").into())
    }

    /// Returns the batch with this number: an Item, events, a captured turn, and sometimes a
    /// checkpoint.
    pub(crate) fn batch(self) -> Batch {
        let mut thread = Append::new(self.thread());
        for part in 0..PARTS {
            thread = thread.record(NewRecord::new("part", self.part(part)));
        }
        thread = thread.record(NewRecord::new(kind::ITEM, self.item()));
        if self.has_checkpoint() {
            thread = thread.record(NewRecord::new(kind::CHECKPOINT, self.checkpoint()));
        }
        let events = self.events();
        let mut run = Append::new(self.run()).record(pack_events(events.iter().map(Vec::as_slice)));
        if self.count == 0 {
            run = run.opening(LogOpening::run(self.thread()));
        }
        let mut batch = Batch::new(tenant())
            .append(thread)
            .append(run)
            .with_idempotency_key(format!("once-{self}"));
        batch.vault.push(NewVaultTurn {
            id: format!("turn-{self}").into(),
            parent: self
                .count
                .checked_sub(1)
                .map(|count| format!("turn-{}", Self { count, ..self }).into()),
            keys: vec![self.claim()],
            log: self.thread(),
            prefix: None,
        });
        batch
    }
}

/// Returns the name of the log that the child writes to under a lease.
pub(crate) fn held() -> LogId {
    LogId::from("held")
}

/// Returns the content of a record that is written under this fence.
pub(crate) fn behind(fence: Fence, count: u32) -> Vec<u8> {
    format!("behind {} the {count}th", fence.0).into_bytes()
}

/// Writes until the process is killed. `task` contains the round and the store's URL.
pub(crate) fn run(task: &str) {
    let (round, url) = task.split_once(' ').expect("the task is a round and a URL");
    let round: u32 = round.parse().expect("the round is a number");
    println!("{STARTED}");
    let runtime = Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        // A small batch, so that the process is also killed while it indexes the keys of turns.
        let options = Options { index_batch: 50, ..Options::default() };
        let journal = Arc::new(open(url, &options).await?);
        for caller in (0..CALLERS).step_by(2) {
            open_log(&journal, BatchNumber { round, caller, count: 0 }.thread()).await?;
        }
        open_log(&journal, held()).await?;
        let mut writers = JoinSet::new();
        for caller in 0..CALLERS {
            writers.spawn(write(journal.clone(), round, caller));
        }
        writers.spawn(write_under_fence(journal.clone()));
        while let Some(ended) = writers.join_next().await {
            ended.unwrap()?;
        }
        Ok::<(), StoreError>(())
    });
    // If the database was stopped, this process ends too. The parent decides whether that is an
    // error.
    if let Err(error) = outcome {
        println!("ended {error}");
    }
}

async fn open_log(journal: &Journal, log: LogId) -> Result<(), StoreError> {
    let opening = Append::new(log).opening(LogOpening::thread());
    match journal.commit(Batch::new(tenant()).append(opening)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn write(journal: Arc<Journal>, round: u32, caller: u32) -> Result<(), StoreError> {
    for count in 0.. {
        let number = BatchNumber { round, caller, count };
        let receipt = journal.commit(number.batch()).await?;
        println!("batch {number} {}", places(&receipt));
    }
    Ok(())
}

/// Formats a receipt as one word. It contains the numbers of the first and last records in the
/// Thread and in the run, and of the run's last event.
pub(crate) fn places(receipt: &Receipt) -> String {
    let [thread, run] = &receipt.written[..] else { panic!("a batch writes to two logs") };
    let (first, last) = (thread.first, thread.last);
    format!("{first}-{last}:{}-{}:{}", run.first, run.last, run.events)
}

async fn write_under_fence(journal: Arc<Journal>) -> Result<(), StoreError> {
    let lease = journal.lease(&tenant(), &held(), "child", Duration::from_mins(10)).await?;
    println!("lease {}", lease.fence.0);
    for count in 0.. {
        let record = NewRecord::new(kind::STATE, behind(lease.fence, count));
        let append = Append::new(held()).with_fence(lease.fence).record(record);
        let receipt = journal.commit(Batch::new(tenant()).append(append)).await?;
        println!("behind {} {count} {}", lease.fence.0, receipt.written[0].first);
    }
    Ok(())
}
