//! Rebuilds the state of a run from its logs.

use std::sync::Arc;

use throughline_core::{
    ErasureEpoch, FoldedLog, Item, LogHead, LogId, Record, Store, StoreError, Tenant, restore_items,
};
use throughline_json::{Name, Tree};
use throughline_spec::{SmartState, ThreadState};

use crate::progress::Progress;
use crate::roster::{ResolvedRun, RunSpec};
use crate::run::commit::LeasedRun;
use crate::run::{RunError, Runner, is_item};
use crate::state::{State, ThreadContext};
use crate::window::Window;

/// Number of records per read.
const PAGE: u32 = 512;

/// The current state of a Thread.
pub(crate) struct OpenThread {
    pub(crate) log: LogId,
    pub(crate) folded: FoldedLog<ThreadState>,
    /// Documented state and latest Items.
    pub(crate) known: ThreadContext,
    /// Erase epoch in which the Thread was read.
    pub(crate) era: ErasureEpoch,
}

impl OpenThread {
    /// Creates the state of a Thread that does not exist yet.
    pub(crate) fn new(log: LogId, era: ErasureEpoch) -> Self {
        Self { log, folded: FoldedLog::default(), known: ThreadContext::default(), era }
    }

    /// Returns the last run on the Thread.
    pub(crate) fn last_run(&self) -> Option<LogId> {
        context(&self.known.smart, "__run").and_then(|tree| tree.root().name()).map(LogId)
    }

    /// Estimates the size of the entry in a cache, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        // The state is held as JSON and in parsed form.
        let state = self.folded.saved.saturating_add(self.folded.since);
        state.saturating_mul(2).saturating_add(self.known.window.tokens().saturating_mul(4))
    }
}

fn context(smart: &SmartState, key: &str) -> Option<Tree> {
    let found = smart.ctx.iter().flatten().find(|(name, _)| **name == *key);
    found.map(|(_, value)| value.tree())
}

/// Returns the current Thread from the cache or the store.
pub(crate) async fn load_thread(
    runner: &Runner,
    tenant: &Tenant,
    log: &LogId,
) -> Result<OpenThread, StoreError> {
    let era = erasure_epoch(runner, tenant).await?;
    let Some(head) = runner.store.log(tenant, log).await? else {
        return Err(StoreError::NotFound { what: "thread", name: log.0.clone() });
    };
    match runner.memory.take(tenant, &head, era, &runner.counter) {
        Some(thread) => Ok(thread),
        None => read_thread(runner, tenant, log, era).await,
    }
}

/// Returns the tenant's erasure epoch. Read it before anything else, so that later erasures are
/// detected.
pub(crate) async fn erasure_epoch(
    runner: &Runner,
    tenant: &Tenant,
) -> Result<ErasureEpoch, StoreError> {
    Ok(runner.store.find(tenant, &[]).await?.era)
}

/// Reads a Thread from the store: its state, and its Items after the last summary.
async fn read_thread(
    runner: &Runner,
    tenant: &Tenant,
    log: &LogId,
    era: ErasureEpoch,
) -> Result<OpenThread, StoreError> {
    let store = &*runner.store;
    let folded = FoldedLog::<ThreadState>::open(store, tenant, log).await?;
    let smart = folded.state.to_smart_state(Vec::new());
    let smart = smart.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let from = context(&smart, "__contextFrom").and_then(|tree| tree.root().u64()).unwrap_or(1);
    let Some(head) = store.log(tenant, log).await? else {
        return Err(StoreError::NotFound { what: "thread", name: log.0.clone() });
    };
    let mut items = Vec::new();
    for span in head.valid_ranges(folded.last) {
        let mut after = from.saturating_sub(1).max(span.start().saturating_sub(1));
        while after < *span.end() {
            let left = u32::try_from(span.end() - after).unwrap_or(PAGE).min(PAGE);
            let records = store.read(tenant, log, after, left).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            items.extend(records.into_iter().filter(|record| is_item(&record.kind)));
        }
    }
    let window = Window::from_items(decode_items(&items)?, &*runner.counter);
    Ok(OpenThread { log: log.clone(), folded, known: ThreadContext::new(smart, window), era })
}

fn decode_items(records: &[Record]) -> Result<Vec<(u64, Item)>, StoreError> {
    let contents = records.iter().map(|record| record.content.bytes().cloned());
    let items = restore_items(contents);
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let seqs = records.iter().filter(|record| record.content.bytes().is_some());
    Ok(seqs.map(|record| record.seq).zip(items).collect())
}

/// Source of the Thread of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadSource {
    /// The cache, whose entry is taken, or the store: for the owner of the run.
    Cache,
    /// Only the store, so that the cache keeps its entry: for a reader.
    Store,
}

/// Loads a run.
pub(crate) async fn load_run(
    runner: &Runner,
    tenant: &Tenant,
    run: &LogId,
    source: ThreadSource,
) -> Result<(LeasedRun, State), RunError> {
    let own = runner.head(tenant, run).await?;
    let problem = Name::from("it belongs to no Thread");
    let thread = own.of.as_ref();
    let thread = thread.ok_or_else(|| RunError::Damaged { run: run.0.clone(), problem })?;
    let thread = match source {
        ThreadSource::Cache => load_thread(runner, tenant, thread).await?,
        ThreadSource::Store => {
            let era = erasure_epoch(runner, tenant).await?;
            read_thread(runner, tenant, thread, era).await?
        }
    };
    let (casting, progress) = load_progress(runner, tenant, &own).await?;
    let cast = Arc::new(ResolvedRun::new(casting, Arc::clone(&runner.counter))?);
    let (held, known) = LeasedRun::of(runner, tenant.clone(), own.log.clone(), thread);
    Ok((held, State::from_parts(cast, known, progress)))
}

/// Reads the agents and the progress of a run.
pub(crate) async fn load_progress(
    runner: &Runner,
    tenant: &Tenant,
    own: &LogHead,
) -> Result<(RunSpec, Progress), RunError> {
    let (store, run) = (&*runner.store, &own.log);
    let damaged = |problem: &str| RunError::Damaged { run: run.0.clone(), problem: problem.into() };
    let first = store.read(tenant, run, 0, 1).await?;
    let first = first.first().and_then(|record| record.content.bytes());
    let first = first.ok_or_else(|| damaged("the record of its agents was deleted"))?;
    let casting: RunSpec =
        serde_json::from_slice(first).map_err(|error| damaged(&error.to_string()))?;
    let progress = store.checkpoint(tenant, run, own.last).await?;
    let progress = progress.as_ref().and_then(|record| record.content.bytes());
    let progress = progress.ok_or_else(|| damaged("its last checkpoint was deleted"))?;
    let progress: Progress =
        serde_json::from_slice(progress).map_err(|error| damaged(&error.to_string()))?;
    Ok((casting, progress))
}

/// Returns the Item with this sequence number in a Thread, if it still exists.
pub(crate) async fn read_item(
    store: &dyn Store,
    tenant: &Tenant,
    thread: &LogId,
    number: &str,
) -> Result<Option<Item>, StoreError> {
    let number = number.parse::<u64>().ok().filter(|number| *number > 0);
    let Some(number) = number else { return Ok(None) };
    let records = store.read(tenant, thread, number - 1, 1).await?;
    let is_it = records.first().is_some_and(|record| is_item(&record.kind));
    let items = if is_it { decode_items(&records)? } else { Vec::new() };
    Ok(items.into_iter().next().map(|(_, item)| item))
}
