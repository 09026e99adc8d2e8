//! State that is folded from a log's records. Checkpoints save the state, so that folding need not
//! start at the first record.

use bytes::Bytes;

use crate::store::{LogId, NewRecord, Record, Store, StoreError, Tenant, kind};

/// Number of records per read.
const PAGE: u32 = 512;

/// State that is folded from a log's records.
pub trait Fold: Default + Send {
    /// Updates the state with the next record of the log.
    fn apply(&mut self, record: &Record) -> Result<(), StoreError>;

    /// Serializes the state into the content of a checkpoint.
    fn save(&self) -> Bytes;

    /// Restores the state from a checkpoint that [`Fold::save`] wrote.
    fn load(saved: &Bytes) -> Result<Self, StoreError>;
}

/// The folded state of a log, and the position up to which the log was folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoldedLog<F> {
    /// The state after the last applied record.
    pub state: F,
    /// The sequence number of the last applied record.
    pub last: u64,
    /// The sequence number of the last checkpoint.
    pub checkpoint: u64,
    /// Bytes of content applied since the last checkpoint.
    pub since: u64,
    /// The size of the last checkpoint in bytes.
    pub saved: u64,
    /// Whether content that was already applied may have been erased since. A stale state writes no
    /// checkpoints; call [`FoldedLog::open`] to rebuild it.
    pub stale: bool,
}

impl<F: Fold> FoldedLog<F> {
    /// Loads the state of a log from its last checkpoint and the later records. Rewound records are
    /// skipped.
    pub async fn open(store: &dyn Store, tenant: &Tenant, log: &LogId) -> Result<Self, StoreError> {
        let Some(head) = store.log(tenant, log).await? else {
            return Err(StoreError::NotFound { what: "log", name: log.0.clone() });
        };
        let mut folded = Self::default();
        if let Some(checkpoint) = store.checkpoint(tenant, log, head.last).await?
            && let Some(bytes) = checkpoint.content.bytes()
        {
            folded.state = F::load(bytes)?;
            folded.last = checkpoint.seq;
            folded.checkpoint = checkpoint.seq;
            folded.saved = size(bytes);
        }
        for span in head.valid_ranges(head.last) {
            folded.last = folded.last.max(span.start().saturating_sub(1));
            while folded.last < *span.end() {
                let remaining = u32::try_from(span.end() - folded.last).unwrap_or(PAGE);
                let records = store.read(tenant, log, folded.last, remaining.min(PAGE)).await?;
                if records.is_empty() {
                    break;
                }
                for record in &records {
                    folded.apply_record(record)?;
                }
            }
        }
        Ok(folded)
    }

    /// Applies the next record of the log. Call this for each record that was added after the state
    /// was loaded.
    pub fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        self.stale |= matches!(&*record.kind, kind::FORGOTTEN | kind::EXPIRED);
        self.apply_record(record)
    }

    fn apply_record(&mut self, record: &Record) -> Result<(), StoreError> {
        self.last = record.seq;
        if &*record.kind == kind::CHECKPOINT {
            if let Some(bytes) = record.content.bytes() {
                (self.checkpoint, self.since, self.saved) = (record.seq, 0, size(bytes));
            }
            return Ok(());
        }
        self.since += record.content.bytes().map_or(0, size);
        self.state.apply(record)
    }

    /// Whether a checkpoint is due. It is due after at least 64 records whose total size is at
    /// least 16 times the size of the last checkpoint. All checkpoints together therefore take a
    /// small fraction of the log.
    pub fn is_checkpoint_due(&self) -> bool {
        const RECORDS: u64 = 64;
        const SHARE: u64 = 16;
        !self.stale
            && self.last.saturating_sub(self.checkpoint) >= RECORDS
            && self.since >= SHARE.saturating_mul(self.saved)
    }

    /// Returns a checkpoint of the current state. After storing it, call
    /// [`FoldedLog::checkpoint_written`].
    pub fn checkpoint(&self) -> NewRecord {
        NewRecord::new(kind::CHECKPOINT, self.state.save())
    }

    /// Records that a checkpoint of `bytes` bytes was stored at sequence number `seq`.
    pub fn checkpoint_written(&mut self, seq: u64, bytes: u64) {
        (self.checkpoint, self.saved, self.since) = (seq, bytes, 0);
        self.last = self.last.max(seq);
    }
}

fn size(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
