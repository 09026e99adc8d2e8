//! Rebuilds the state of a run from its logs.

use std::fmt::Display;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use throughline_core::{
    Content, ErasureEpoch, FoldedLog, Item, LogHead, LogId, Record, Store, StoreError, Tenant,
    kind, restore_items,
};
use throughline_json::Tree;
use throughline_spec::{SmartState, ThreadState};

use crate::progress::Progress;
use crate::roster::{ResolvedRun, RunSpec};
use crate::run::commit::LeasedRun;
use crate::run::{RunError, RunResult, Runner};
use crate::state::{State, ThreadContext};
use crate::window::Window;

/// Number of records to read at a time.
const PAGE: u32 = 512;

/// A Thread with its state and window in memory.
pub(crate) struct OpenThread {
    pub(crate) log: LogId,
    pub(crate) folded: FoldedLog<ThreadState>,
    /// Documented state (`SmartState`), window and tool call ids.
    pub(crate) context: ThreadContext,
    /// Erasure epoch in which the Thread was read.
    pub(crate) era: ErasureEpoch,
}

impl OpenThread {
    /// Creates the state of a Thread that does not exist yet.
    pub(crate) fn new(log: LogId, era: ErasureEpoch) -> Self {
        Self { log, folded: FoldedLog::default(), context: ThreadContext::default(), era }
    }

    /// Returns the most recent run on the Thread.
    pub(crate) fn last_run(&self) -> Option<LogId> {
        context(&self.context.smart, "__run").and_then(|tree| tree.root().name()).map(LogId)
    }

    /// Estimates the memory that a cache entry uses, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        // The state is held both as JSON and in parsed form.
        let state = self.folded.saved.saturating_add(self.folded.since);
        state.saturating_mul(2).saturating_add(self.context.window.tokens().saturating_mul(4))
    }
}

fn context(smart: &SmartState, key: &str) -> Option<Tree> {
    let found = smart.ctx.iter().flatten().find(|(name, _)| **name == *key);
    found.map(|(_, value)| value.tree())
}

/// Where to load a run's Thread from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadSource {
    /// Take the Thread out of the cache, or read it from the store. Used by the owner of the run.
    Cache,
    /// Read only the store and leave the cache entry in place. Used to read or export a run.
    Store,
}

impl Runner {
    /// Loads a Thread from the cache if the cached entry is current, otherwise from the store.
    pub(crate) async fn load_thread(&self, tenant: &Tenant, log: &LogId) -> RunResult<OpenThread> {
        let era = self.erasure_epoch(tenant).await?;
        let Some(head) = self.store.log(tenant, log).await? else { return Err(missing(log)) };
        match self.memory.take(tenant, &head, era, &self.counter) {
            Some(thread) => Ok(thread),
            None => self.read_thread(tenant, log, era).await,
        }
    }

    /// Returns the tenant's erasure epoch. Callers must read the epoch before they read the data,
    /// so that later erasures are detected.
    pub(crate) async fn erasure_epoch(&self, tenant: &Tenant) -> RunResult<ErasureEpoch> {
        Ok(self.store.find(tenant, &[]).await?.era)
    }

    /// Reads a Thread's state and the Items after its last summary from the store.
    async fn read_thread(
        &self,
        tenant: &Tenant,
        log: &LogId,
        era: ErasureEpoch,
    ) -> RunResult<OpenThread> {
        let store = &*self.store;
        let folded = FoldedLog::<ThreadState>::open(store, tenant, log).await?;
        let smart = folded.state.to_smart_state(Vec::new());
        let smart = smart.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
        let from = context(&smart, "__contextFrom").and_then(|tree| tree.root().u64()).unwrap_or(1);
        let Some(head) = store.log(tenant, log).await? else { return Err(missing(log)) };
        let mut items = Vec::new();
        for span in head.valid_ranges(folded.last) {
            let mut after = from.saturating_sub(1).max(span.start().saturating_sub(1));
            while after < *span.end() {
                let limit = u32::try_from(span.end() - after).unwrap_or(PAGE).min(PAGE);
                let records = store.read(tenant, log, after, limit).await?;
                let Some(last) = records.last() else { break };
                after = last.seq;
                items.extend(records.into_iter().filter(|record| &*record.kind == kind::ITEM));
            }
        }
        let window = Window::from_items(decode_items(&items)?, &*self.counter);
        Ok(OpenThread { log: log.clone(), folded, context: ThreadContext::new(smart, window), era })
    }

    /// Loads a run's state from its own log and its Thread's log.
    pub(crate) async fn load_run(
        &self,
        tenant: &Tenant,
        run: &LogId,
        source: ThreadSource,
    ) -> RunResult<(LeasedRun, State)> {
        let head = self.head(tenant, run).await?;
        let thread = head.of.as_ref().ok_or_else(|| damaged(run, "it belongs to no Thread"))?;
        let thread = match source {
            ThreadSource::Cache => self.load_thread(tenant, thread).await?,
            ThreadSource::Store => {
                let era = self.erasure_epoch(tenant).await?;
                self.read_thread(tenant, thread, era).await?
            }
        };
        let (casting, progress) = self.load_progress(tenant, &head).await?;
        let cast = Arc::new(ResolvedRun::new(casting, Arc::clone(&self.counter))?);
        let (leased, context) = LeasedRun::new(self, tenant.clone(), head.log.clone(), thread);
        Ok((leased, State::from_parts(cast, context, progress)))
    }

    /// Reads the declaration and the progress of a run.
    pub(crate) async fn load_progress(
        &self,
        tenant: &Tenant,
        head: &LogHead,
    ) -> RunResult<(RunSpec, Progress)> {
        let run = &head.log;
        let first = self.store.read(tenant, run, 0, 1).await?;
        let casting = parse(run, first.first(), "the record of its agents is missing")?;
        let checkpoint = self.store.checkpoint(tenant, run, head.last).await?;
        let progress = parse(run, checkpoint.as_ref(), "its last checkpoint is missing")?;
        Ok((casting, progress))
    }
}

fn missing(thread: &LogId) -> RunError {
    StoreError::NotFound { what: "thread", name: thread.0.clone() }.into()
}

pub(crate) fn damaged(run: &LogId, problem: impl Display) -> RunError {
    RunError::Damaged { run: run.0.clone(), problem: problem.to_string().into() }
}

/// Parses a record's content. `absent` is the error message to use if there is no record.
fn parse<T: DeserializeOwned>(run: &LogId, record: Option<&Record>, absent: &str) -> RunResult<T> {
    let record = record.ok_or_else(|| damaged(run, absent))?;
    match &record.content {
        Content::Here(content) => {
            serde_json::from_slice(content).map_err(|error| damaged(run, error))
        }
        Content::Gone(reason) => Err(RunError::Erased { run: run.0.clone(), reason: *reason }),
    }
}

fn decode_items(records: &[Record]) -> Result<Vec<(u64, Item)>, StoreError> {
    let contents = records.iter().map(|record| record.content.bytes().cloned());
    let items = restore_items(contents);
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let seqs = records.iter().filter(|record| record.content.bytes().is_some());
    Ok(seqs.map(|record| record.seq).zip(items).collect())
}

/// Returns the Item with this sequence number in a Thread; `None` if the Item no longer exists.
pub(crate) async fn read_item(
    store: &dyn Store,
    tenant: &Tenant,
    thread: &LogId,
    number: &str,
) -> Result<Option<Item>, StoreError> {
    let number = number.parse::<u64>().ok().filter(|number| *number > 0);
    let Some(number) = number else { return Ok(None) };
    let mut records = store.read(tenant, thread, number - 1, 1).await?;
    records.retain(|record| &*record.kind == kind::ITEM);
    Ok(decode_items(&records)?.into_iter().next().map(|(_, item)| item))
}
