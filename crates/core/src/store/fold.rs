//! State as a fold of records, with checkpoints so that it need not be folded from the beginning.

use bytes::Bytes;

use crate::store::{LogId, NewRecord, Record, Store, StoreError, Tenant, kind};

/// How many records are read at a time.
const PAGE: u32 = 512;

/// Something that is the sum of a log's records.
pub trait Fold: Default + Send {
    /// Takes a record in.
    fn apply(&mut self, record: &Record) -> Result<(), StoreError>;

    /// What a checkpoint keeps of it.
    fn save(&self) -> Bytes;

    /// What a checkpoint kept.
    fn load(saved: &Bytes) -> Result<Self, StoreError>;
}

/// The sum of a log's records, and how far they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded<F> {
    /// The sum.
    pub state: F,
    /// The last record that was taken in.
    pub last: u64,
    /// The checkpoint that it began from.
    pub checkpoint: u64,
    /// How many bytes of content were taken in since.
    pub since: u64,
    /// How many bytes that checkpoint had.
    pub saved: u64,
    /// Whether something was destroyed that it may have taken in: then it must be opened again, and keeps no checkpoint.
    pub stale: bool,
}

impl<F: Fold> Folded<F> {
    /// The state of a log: from its last checkpoint, and the records after it. What was rewound is not in it.
    pub async fn open(store: &dyn Store, tenant: &Tenant, log: &LogId) -> Result<Self, StoreError> {
        let Some(head) = store.log(tenant, log).await? else {
            return Err(StoreError::NotFound { what: "log", name: log.0.clone() });
        };
        let mut folded = Self::default_of();
        if let Some(checkpoint) = store.checkpoint(tenant, log, head.last).await?
            && let Some(bytes) = checkpoint.content.bytes()
        {
            folded.state = F::load(bytes)?;
            folded.last = checkpoint.seq;
            folded.checkpoint = checkpoint.seq;
            folded.saved = size(bytes);
        }
        for span in head.spans(head.last) {
            folded.last = folded.last.max(span.start().saturating_sub(1));
            while folded.last < *span.end() {
                let left = u32::try_from(span.end() - folded.last).unwrap_or(PAGE);
                let records = store.read(tenant, log, folded.last, left.min(PAGE)).await?;
                if records.is_empty() {
                    break;
                }
                for record in &records {
                    folded.take_in(record)?;
                }
            }
        }
        Ok(folded)
    }

    /// Takes a record in that was added since.
    pub fn apply(&mut self, record: &Record) -> Result<(), StoreError> {
        self.stale |= matches!(&*record.kind, kind::FORGOTTEN | kind::EXPIRED);
        self.take_in(record)
    }

    fn take_in(&mut self, record: &Record) -> Result<(), StoreError> {
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

    /// Whether a checkpoint is worth its bytes: then the folding that it saves costs more than writing it. So all the
    /// checkpoints of a log together are smaller than a fraction of the log.
    pub fn is_due(&self) -> bool {
        const RECORDS: u64 = 64;
        const SHARE: u64 = 16;
        !self.stale
            && self.last.saturating_sub(self.checkpoint) >= RECORDS
            && self.since >= SHARE.saturating_mul(self.saved)
    }

    /// The record that keeps the state so far. Tell [`Folded::kept`] where it was written.
    pub fn checkpoint(&self) -> NewRecord {
        NewRecord::new(kind::CHECKPOINT, self.state.save())
    }

    /// A checkpoint of that size was written there.
    pub fn kept(&mut self, seq: u64, bytes: u64) {
        (self.checkpoint, self.saved, self.since) = (seq, bytes, 0);
        self.last = self.last.max(seq);
    }

    fn default_of() -> Self {
        Self { state: F::default(), last: 0, checkpoint: 0, since: 0, saved: 0, stale: false }
    }
}

fn size(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
