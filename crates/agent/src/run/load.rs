//! What is known of a run, read from its logs.

use std::sync::Arc;

use throughline_core::{
    Era, Folded, Item, LogHead, LogId, Name, Record, SmartState, Store, StoreError, Tenant,
    ThreadState, Tree, restore_items,
};

use crate::cast::{Cast, Casting};
use crate::progress::Progress;
use crate::run::keep::Held;
use crate::run::{RunError, Runner, is_item};
use crate::state::{Known, State};
use crate::window::{Kept, Window, readable};

/// How many records are read at a time.
const PAGE: u32 = 512;

/// A Thread as it stands.
pub(crate) struct OpenThread {
    pub(crate) log: LogId,
    pub(crate) folded: Folded<ThreadState>,
    /// Its documented state, and its latest Items.
    pub(crate) known: Known,
    /// The era in which it was read.
    pub(crate) era: Era,
}

impl OpenThread {
    /// A Thread that is to begin.
    pub(crate) fn new(log: LogId, era: Era) -> Self {
        Self { log, folded: Folded::default(), known: Known::default(), era }
    }

    /// The run that was last on it.
    pub(crate) fn run(&self) -> Option<LogId> {
        context(&self.known.smart, "__run").and_then(|tree| tree.root().name()).map(LogId)
    }

    /// How many bytes it takes to remember it, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        // The state is kept as JSON and as what it says.
        let state = self.folded.saved.saturating_add(self.folded.since);
        state.saturating_mul(2).saturating_add(self.known.window.tokens().saturating_mul(4))
    }
}

fn context(smart: &SmartState, key: &str) -> Option<Tree> {
    let found = smart.ctx.iter().flatten().find(|(name, _)| **name == *key);
    found.map(|(_, value)| value.tree())
}

/// A Thread as it stands, from what this process remembers of it, or else from the store.
pub(crate) async fn thread(
    runner: &Runner,
    tenant: &Tenant,
    log: &LogId,
) -> Result<OpenThread, StoreError> {
    let era = era(runner, tenant).await?;
    let Some(head) = runner.store.log(tenant, log).await? else {
        return Err(StoreError::NotFound { what: "thread", name: log.0.clone() });
    };
    match runner.memory.take(tenant, &head, era, &runner.counter) {
        Some(thread) => Ok(thread),
        None => read_thread(runner, tenant, log, era).await,
    }
}

/// How often something of the tenant's was destroyed. It is asked for before anything is read: what is destroyed later shows.
pub(crate) async fn era(runner: &Runner, tenant: &Tenant) -> Result<Era, StoreError> {
    Ok(runner.store.find(tenant, &[]).await?.era)
}

/// A Thread as it stands in the store: its state, and its Items from where the last summary ends.
async fn read_thread(
    runner: &Runner,
    tenant: &Tenant,
    log: &LogId,
    era: Era,
) -> Result<OpenThread, StoreError> {
    let store = &*runner.store;
    let folded = Folded::<ThreadState>::open(store, tenant, log).await?;
    let smart = folded.state.state(Vec::new());
    let smart = smart.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let from = context(&smart, "__contextFrom").and_then(|tree| tree.root().u64()).unwrap_or(1);
    let Some(head) = store.log(tenant, log).await? else {
        return Err(StoreError::NotFound { what: "thread", name: log.0.clone() });
    };
    let mut items = Vec::new();
    for span in head.spans(folded.last) {
        let mut after = from.saturating_sub(1).max(span.start().saturating_sub(1));
        while after < *span.end() {
            let left = u32::try_from(span.end() - after).unwrap_or(PAGE).min(PAGE);
            let records = store.read(tenant, log, after, left).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            items.extend(records.into_iter().filter(|record| is_item(&record.kind)));
        }
    }
    let mut window = Window::default();
    for (seq, item) in restored(&items)? {
        let tokens = runner.counter.count(&readable(&item));
        window.push(Kept { item, tokens, seq });
    }
    Ok(OpenThread { log: log.clone(), folded, known: Known::new(smart, window), era })
}

fn restored(records: &[Record]) -> Result<Vec<(u64, Item)>, StoreError> {
    let contents = records.iter().map(|record| record.content.bytes().cloned());
    let items = restore_items(contents);
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let seqs = records.iter().filter(|record| record.content.bytes().is_some());
    Ok(seqs.map(|record| record.seq).zip(items).collect())
}

/// All that is known of a run, for whoever holds it.
pub(crate) async fn run(
    runner: &Runner,
    tenant: &Tenant,
    run: &LogId,
) -> Result<(Held, State), RunError> {
    let (own, thread) = heads(runner, tenant, run).await?;
    let thread = self::thread(runner, tenant, &thread).await?;
    held(runner, tenant, &own, thread).await
}

/// All that is known of a run, for whoever only looks: as it stands in the store. What is remembered stays where it is.
pub(crate) async fn read_run(
    runner: &Runner,
    tenant: &Tenant,
    run: &LogId,
) -> Result<(Held, State), RunError> {
    let (own, thread) = heads(runner, tenant, run).await?;
    let era = era(runner, tenant).await?;
    let thread = read_thread(runner, tenant, &thread, era).await?;
    held(runner, tenant, &own, thread).await
}

async fn heads(
    runner: &Runner,
    tenant: &Tenant,
    run: &LogId,
) -> Result<(LogHead, LogId), RunError> {
    let own = runner.head(tenant, run).await?;
    let problem = Name::from("it belongs to no thread");
    let of = own.of.clone();
    let thread = of.ok_or_else(|| RunError::Damaged { run: run.0.clone(), problem })?;
    Ok((own, thread))
}

async fn held(
    runner: &Runner,
    tenant: &Tenant,
    own: &LogHead,
    thread: OpenThread,
) -> Result<(Held, State), RunError> {
    let (casting, progress) = self::progress(runner, tenant, own).await?;
    let cast = Arc::new(Cast::new(casting, Arc::clone(&runner.counter))?);
    let (held, known) = Held::of(runner, tenant.clone(), own.log.clone(), thread);
    Ok((held, State::of(cast, known, progress)))
}

/// Who takes part in a run, and how far it is.
pub(crate) async fn progress(
    runner: &Runner,
    tenant: &Tenant,
    own: &LogHead,
) -> Result<(Casting, Progress), RunError> {
    let (store, run) = (&*runner.store, &own.log);
    let damaged = |problem: &str| RunError::Damaged { run: run.0.clone(), problem: problem.into() };
    let first = store.read(tenant, run, 0, 1).await?;
    let first = first.first().and_then(|record| record.content.bytes());
    let first = first.ok_or_else(|| damaged("who takes part is no more"))?;
    let casting: Casting =
        serde_json::from_slice(first).map_err(|error| damaged(&error.to_string()))?;
    let progress = store.checkpoint(tenant, run, own.last).await?;
    let progress = progress.as_ref().and_then(|record| record.content.bytes());
    let progress = progress.ok_or_else(|| damaged("how far it was is no more"))?;
    let progress: Progress =
        serde_json::from_slice(progress).map_err(|error| damaged(&error.to_string()))?;
    Ok((casting, progress))
}

/// The Item of that number in a Thread, if it is still there.
pub(crate) async fn item_at(
    store: &dyn Store,
    tenant: &Tenant,
    thread: &LogId,
    number: &str,
) -> Result<Option<Item>, StoreError> {
    let number = number.parse::<u64>().ok().filter(|number| *number > 0);
    let Some(number) = number else { return Ok(None) };
    let records = store.read(tenant, thread, number - 1, 1).await?;
    let is_it = records.first().is_some_and(|record| is_item(&record.kind));
    let items = if is_it { restored(&records)? } else { Vec::new() };
    Ok(items.into_iter().next().map(|(_, item)| item))
}
