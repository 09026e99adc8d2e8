//! The account book. What a call used is in memory at once; about once a second each node appends what is new to the log of all
//! nodes, and reads what the others appended. So a budget holds over all nodes within about that time, and over restarts.
//!
//! What is known is what was read from the log, what is on its way there, and what is still to go. Each append has a name, so
//! that one whose acknowledgement was lost is not written twice.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::{
    Append, Batch, LogOpening, Name, NewRecord, Recall, Store, StoreError, Tenant, kind,
};
use tokio::time::Instant;

use crate::operations::allowance::Minute;
use crate::operations::usage::{self, Price, Prices, Rows, UsageRow, Used, UsedFor, usage_log};

/// How many records are read at once.
const PAGE: u32 = 500;
/// After how many records the sums are written down, so that nobody has to add them up from the beginning.
const BETWEEN_SUMS: u64 = 1000;

/// The account book of one node.
pub(crate) struct Meter {
    store: Arc<dyn Store>,
    prices: Arc<dyn Prices>,
    known_prices: Recall<Option<Price>>,
    /// The name of this node.
    node: Name,
    book: Mutex<Book>,
    minutes: Mutex<HashMap<Name, Minute>>,
    /// Held by who reads and writes the log.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Book {
    /// What the log says, up to this record; nothing before it was read.
    read: Rows,
    seen: Option<u64>,
    /// The record that holds the last sums.
    summed: u64,
    /// What is on its way to the log.
    flying: Option<Flight>,
    /// What is still to go.
    fresh: Rows,
    flights: u64,
}

#[derive(Clone)]
struct Flight {
    name: Name,
    rows: Rows,
}

impl Meter {
    pub(super) fn new(store: Arc<dyn Store>, prices: Arc<dyn Prices>, node: Name) -> Self {
        let (book, minutes, turn) =
            (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { store, prices, known_prices: Recall::default(), node, book, minutes, turn }
    }

    /// What that provider takes for that model.
    pub(crate) fn price(&self, provider: &str, model: &str) -> Option<Price> {
        let name = [provider, model].join("\n");
        self.known_prices.or_find(&name, || self.prices.price(provider, model))
    }

    /// The version of the prices.
    pub(crate) fn prices(&self) -> &str {
        self.prices.version()
    }

    /// Adds what was used.
    pub(crate) fn charge(&self, whom: UsedFor, used: &Used) {
        self.book().fresh.entry(whom).or_default().add(used);
    }

    /// What a key has used, as far as this node knows.
    pub(crate) fn used(&self, tenant: &Tenant, key: &Name) -> Used {
        let mut sum = Used::default();
        for (_, used) in self.lines(tenant, Some(key)) {
            sum.add(&used);
        }
        sum
    }

    /// The same, line by line; of those who have no key, where none is given.
    pub(crate) fn lines(&self, tenant: &Tenant, key: Option<&Name>) -> Vec<UsageRow> {
        let book = self.book();
        let first = UsedFor {
            tenant: tenant.clone(),
            key: key.cloned(),
            provider: "".into(),
            model: "".into(),
        };
        let mut sums = Rows::new();
        let flying = book.flying.as_ref().map(|flight| &flight.rows);
        for rows in [Some(&book.read), flying, Some(&book.fresh)].into_iter().flatten() {
            let own = rows.range(first.clone()..);
            let own = own.take_while(|(whom, _)| whom.tenant == *tenant && whom.key == first.key);
            for (whom, used) in own {
                sums.entry(whom.clone()).or_default().add(used);
            }
        }
        sums.into_iter().collect()
    }

    /// Counts a request of a key, or says how long to wait.
    pub(super) fn count_in_minute(&self, key: &Name, most: u32) -> Result<(), Duration> {
        let now = Instant::now();
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        minutes.entry(key.clone()).or_default().count(most, now)
    }

    /// Reads what was used before this node began, if it was not read yet.
    pub(super) async fn read_once(&self) -> Result<(), StoreError> {
        if self.book().seen.is_some() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.read(false).await
    }

    /// Keeps what is new, and reads what others kept; gives whether there was something to keep.
    pub(crate) async fn settle(&self) -> Result<bool, StoreError> {
        let _turn = self.turn.lock().await;
        self.forget_old_minutes();
        let kept = self.keep().await;
        self.read(kept.is_ok()).await?;
        let wrote = kept?;
        self.sum_up().await?;
        Ok(wrote)
    }

    async fn keep(&self) -> Result<bool, StoreError> {
        let Some(flight) = self.next_flight() else { return Ok(false) };
        let (tenant, log) = usage_log();
        let record = usage::record(&flight.rows, self.prices.version());
        let record = NewRecord::new(usage::KIND, record.bytes().clone());
        let append = Append::to(log).record(record);
        let batch = |append| Batch::of(tenant.clone()).append(append).once(flight.name.clone());
        let mut done = self.store.commit(batch(append.clone())).await;
        if let Err(StoreError::NotFound { .. }) = done {
            done = self.store.commit(batch(append.clone().opening(LogOpening::thread()))).await;
            if let Err(StoreError::Conflict { .. } | StoreError::Invalid(_)) = done {
                // Another node has begun it meanwhile.
                done = self.store.commit(batch(append)).await;
            }
        }
        done.map(|_| true)
    }

    /// What goes to the log next: what did not get there before, or what is new.
    fn next_flight(&self) -> Option<Flight> {
        let mut book = self.book();
        if book.flying.is_none() && !book.fresh.is_empty() {
            book.flights += 1;
            let name = Name::from(format!("usage {} {}", self.node, book.flights));
            let rows = mem::take(&mut book.fresh);
            book.flying = Some(Flight { name, rows });
        }
        book.flying.clone()
    }

    /// Reads what is new in the log. What has landed there counts no longer as on its way.
    async fn read(&self, has_landed: bool) -> Result<(), StoreError> {
        let (tenant, log) = usage_log();
        let mut fresh = Rows::new();
        let (seen, summed) = {
            let book = self.book();
            (book.seen, book.summed)
        };
        let head = self.store.log(&tenant, &log).await?;
        let Some(head) = head else {
            self.book().seen = Some(0);
            return Ok(());
        };
        let (mut after, mut summed) = (seen.unwrap_or_default(), summed);
        if seen.is_none()
            && let Some(sums) = self.store.checkpoint(&tenant, &log, head.last).await?
        {
            add(&mut fresh, sums.content.bytes());
            (after, summed) = (sums.seq, sums.seq);
        }
        loop {
            let records = self.store.read(&tenant, &log, after, PAGE).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in &records {
                match &*record.kind {
                    usage::KIND => add(&mut fresh, record.content.bytes()),
                    kind::CHECKPOINT => summed = record.seq,
                    _ => {}
                }
            }
        }
        let mut book = self.book();
        for (whom, used) in fresh {
            book.read.entry(whom).or_default().add(&used);
        }
        (book.seen, book.summed) = (Some(after), summed);
        if has_landed {
            book.flying = None;
        }
        Ok(())
    }

    /// Writes the sums down, if that was not done for long, and if nobody wrote meanwhile.
    async fn sum_up(&self) -> Result<(), StoreError> {
        let (tenant, log) = usage_log();
        let (sums, seen) = {
            let book = self.book();
            let seen = book.seen.unwrap_or_default();
            if seen.saturating_sub(book.summed) < BETWEEN_SUMS {
                return Ok(());
            }
            (usage::record(&book.read, self.prices.version()), seen)
        };
        let record = NewRecord::new(kind::CHECKPOINT, sums.bytes().clone());
        let append = Append::to(log).expecting(seen).record(record);
        match self.store.commit(Batch::of(tenant).append(append)).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forget_old_minutes(&self) {
        let now = Instant::now();
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        minutes.retain(|_, minute| !minute.is_over(now));
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(rows: &mut Rows, record: Option<&bytes::Bytes>) {
    for (whom, used) in record.map(UsedFor::lines).unwrap_or_default() {
        rows.entry(whom).or_default().add(&used);
    }
}
