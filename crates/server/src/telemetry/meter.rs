//! Keeps the usage ledger, which all nodes share.
//!
//! A call's usage is added in memory immediately. About once a second, each node appends its new
//! usage to a log that all nodes share, and reads what the other nodes appended. Budgets therefore
//! survive restarts, and apply across nodes with a delay of about one second.
//!
//! The known usage is the sum of three parts: usage read from the log, usage being appended, and
//! usage not yet appended. Each append has a unique name, so a retry after a lost acknowledgement
//! does not write the usage twice.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{Append, Batch, Clock, NewRecord, Store, StoreError, Tenant, kind};
use throughline_json::Name;
use tokio::time::Instant;

use crate::records::{RecordPages, StoreResult, commit_with_entry};
use crate::sync::lock;
use crate::telemetry::budget::Budgets;
use crate::telemetry::log::Log;
use crate::telemetry::rate_window::RateWindow;
use crate::telemetry::usage::{
    self, Price, Prices, UsageAmount, UsageKey, UsageRow, UsageRows, usage_log,
};

/// Number of records between two checkpoints. A checkpoint stores the totals, so that a node does
/// not have to read the whole log.
const CHECKPOINT_INTERVAL: u64 = 1000;

/// The usage ledger of one node.
pub(crate) struct Meter {
    store: Arc<dyn Store>,
    prices: Arc<dyn Prices>,
    node: Name,
    book: Mutex<UsageLedger>,
    minutes: Mutex<HashMap<Name, RateWindow>>,
    pub(super) budgets: Budgets,
    /// Serializes reads and writes of the log.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct UsageLedger {
    /// Totals of the log up to the record `seen`. `seen` is `None` until the first read.
    read: UsageRows,
    seen: Option<u64>,
    /// Sequence number of the last checkpoint.
    summed: u64,
    /// The batch that is being appended.
    flying: Option<InFlightBatch>,
    /// Usage that is not in a batch yet.
    fresh: UsageRows,
    flights: u64,
}

#[derive(Clone)]
struct InFlightBatch {
    name: Name,
    rows: UsageRows,
}

impl Meter {
    pub(super) fn new(
        store: Arc<dyn Store>,
        prices: Arc<dyn Prices>,
        clock: Arc<dyn Clock>,
        log: Arc<dyn Log>,
        node: Name,
    ) -> Self {
        let budgets = Budgets::new(Arc::clone(&store), clock, log, node.clone());
        let (book, minutes, turn) =
            (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { store, prices, node, book, minutes, budgets, turn }
    }

    pub(crate) fn price(&self, provider: &str, model: &str) -> Option<Price> {
        self.prices.price(provider, model)
    }

    /// Returns the time of the clock that budget periods follow.
    pub(crate) fn now(&self) -> Timestamp {
        self.budgets.now()
    }

    /// Returns the version of the price table.
    pub(crate) fn prices(&self) -> Name {
        self.prices.version()
    }

    /// Adds usage in memory. The next [`settle`](Self::settle) appends this usage to the log.
    pub(crate) fn charge(&self, key: UsageKey, used: &UsageAmount) {
        lock(&self.book).fresh.entry(key).or_default().add(used);
    }

    /// Returns the total usage of a key, as far as this node knows it.
    pub(crate) fn used(&self, tenant: &Tenant, key: &Name) -> UsageAmount {
        let mut sum = UsageAmount::default();
        for (_, used) in self.rows(tenant, Some(key)) {
            sum.add(&used);
        }
        sum
    }

    /// Returns a key's usage by provider and model. If `key` is `None`, returns the usage of
    /// callers without a key.
    pub(crate) fn rows(&self, tenant: &Tenant, key: Option<&Name>) -> Vec<UsageRow> {
        let book = lock(&self.book);
        let first = UsageKey {
            tenant: tenant.clone(),
            key: key.cloned(),
            provider: "".into(),
            model: "".into(),
        };
        let mut sums = UsageRows::new();
        let flying = book.flying.as_ref().map(|flight| &flight.rows);
        for rows in [Some(&book.read), flying, Some(&book.fresh)].into_iter().flatten() {
            let own = rows.range(first.clone()..);
            let own = own.take_while(|(line, _)| line.tenant == *tenant && line.key == first.key);
            for (line, used) in own {
                sums.entry(line.clone()).or_default().add(used);
            }
        }
        sums.into_iter().collect()
    }

    /// Counts a request against a key's limit of `most` per minute, or returns how long to wait.
    pub(super) fn count_in_window(&self, key: &Name, most: u32) -> Result<(), Duration> {
        lock(&self.minutes).entry(key.clone()).or_default().count(most, Instant::now())
    }

    /// Reads the usage that was recorded before this node started, unless it has already been read.
    pub(super) async fn read_once(&self) -> StoreResult<()> {
        if lock(&self.book).seen.is_some() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.read(false).await
    }

    /// Appends new usage and reads what other nodes appended. Returns whether there was new usage.
    pub(crate) async fn settle(&self) -> StoreResult<bool> {
        let _turn = self.turn.lock().await;
        let now = Instant::now();
        lock(&self.minutes).retain(|_, minute| !minute.is_empty_at(now));
        let appended = self.append_pending().await;
        self.read(appended.is_ok()).await?;
        let wrote = appended?;
        self.write_checkpoint().await?;
        Ok(wrote)
    }

    async fn append_pending(&self) -> StoreResult<bool> {
        let Some(flight) = self.next_batch() else { return Ok(false) };
        let (tenant, log) = usage_log();
        let record = usage::record(&flight.rows, &self.prices.version());
        let record = NewRecord::new(usage::KIND, record.bytes().clone());
        let batch = Batch::new(tenant).with_idempotency_key(flight.name);
        let done = commit_with_entry(&*self.store, &batch, &Append::new(log).record(record)).await;
        done.map(|_| true)
    }

    /// Returns the next batch to append: the batch whose append failed, or a new batch.
    fn next_batch(&self) -> Option<InFlightBatch> {
        let mut book = lock(&self.book);
        if book.flying.is_none() && !book.fresh.is_empty() {
            book.flights += 1;
            let name = Name::from(format!("usage {} {}", self.node, book.flights));
            let rows = mem::take(&mut book.fresh);
            book.flying = Some(InFlightBatch { name, rows });
        }
        book.flying.clone()
    }

    /// Reads new records of the log. If `has_landed` is set, the append succeeded and the batch is
    /// no longer in flight.
    async fn read(&self, has_landed: bool) -> StoreResult<()> {
        let (tenant, log) = usage_log();
        let mut fresh = UsageRows::new();
        let (read_up_to, mut summed) = {
            let book = lock(&self.book);
            (book.seen, book.summed)
        };
        let Some(head) = self.store.log(&tenant, &log).await? else {
            lock(&self.book).seen = Some(0);
            return Ok(());
        };
        let mut after = read_up_to.unwrap_or_default();
        if read_up_to.is_none()
            && let Some(sums) = self.store.checkpoint(&tenant, &log, head.last).await?
        {
            add(&mut fresh, sums.content.bytes());
            (after, summed) = (sums.seq, sums.seq);
        }
        let mut pages = RecordPages::new(&*self.store, &tenant, &log, after);
        while let Some(records) = pages.next().await? {
            for record in &records {
                match &*record.kind {
                    usage::KIND => add(&mut fresh, record.content.bytes()),
                    kind::CHECKPOINT => summed = record.seq,
                    _ => {}
                }
            }
        }
        let mut book = lock(&self.book);
        for (line, used) in fresh {
            book.read.entry(line).or_default().add(&used);
        }
        (book.seen, book.summed) = (Some(pages.after), summed);
        if has_landed {
            book.flying = None;
        }
        Ok(())
    }

    /// Writes a checkpoint of the totals if the last checkpoint is old enough. Skips the write if
    /// another node has appended records that the totals do not include.
    async fn write_checkpoint(&self) -> StoreResult<()> {
        let (tenant, log) = usage_log();
        let (sums, read_up_to) = {
            let book = lock(&self.book);
            let read_up_to = book.seen.unwrap_or_default();
            if read_up_to.saturating_sub(book.summed) < CHECKPOINT_INTERVAL {
                return Ok(());
            }
            (usage::record(&book.read, &self.prices.version()), read_up_to)
        };
        let record = NewRecord::new(kind::CHECKPOINT, sums.bytes().clone());
        let append = Append::new(log).expect_last(read_up_to).record(record);
        match self.store.commit(Batch::new(tenant).append(append)).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn add(rows: &mut UsageRows, record: Option<&bytes::Bytes>) {
    for (line, used) in record.map(UsageKey::lines).unwrap_or_default() {
        rows.entry(line).or_default().add(&used);
    }
}
