//! What is known of a run, read from its logs.

use std::sync::Arc;

use throughline_core::{
    Folded, Item, LogHead, LogId, Record, SmartState, Store, StoreError, Tenant, ThreadState,
    restore_items,
};

use crate::cast::{Cast, Casting};
use crate::progress::Progress;
use crate::run::keep::Held;
use crate::run::{RunError, Runner, is_item};
use crate::state::State;
use crate::window::{Kept, Window, readable};

/// How many records are read at a time.
const PAGE: u32 = 512;

/// A Thread as it stands.
pub(crate) struct OpenThread {
    pub(crate) log: LogId,
    pub(crate) folded: Folded<ThreadState>,
    /// Its latest Items, each with its number.
    pub(crate) items: Vec<(u64, Item)>,
    /// The run that was last on it.
    pub(crate) run: Option<LogId>,
}

impl OpenThread {
    /// A Thread that is to begin.
    pub(crate) fn new(log: LogId) -> Self {
        Self { log, folded: Folded::default(), items: Vec::new(), run: None }
    }

    /// The documented state.
    pub(crate) fn smart(&self) -> Result<SmartState, StoreError> {
        let state = self.folded.state.state(Vec::new());
        state.map_err(|error| StoreError::Corrupt(error.to_string().into()))
    }

    /// The part that a model is shown.
    pub(crate) fn window(&self, tokens: impl Fn(&str) -> u64) -> Window {
        let mut window = Window::default();
        for (seq, item) in &self.items {
            let tokens = tokens(&readable(item));
            window.push(Kept { item: item.clone(), tokens, seq: *seq });
        }
        window
    }
}

/// A Thread as it stands: its state, and its Items from where the last summary ends.
pub(crate) async fn thread(
    store: &dyn Store,
    tenant: &Tenant,
    log: &LogId,
) -> Result<OpenThread, StoreError> {
    let folded = Folded::<ThreadState>::open(store, tenant, log).await?;
    let smart = folded.state.state(Vec::new());
    let smart = smart.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let member = |key: &str| {
        let found = smart.ctx.iter().flatten().find(|(name, _)| **name == *key);
        found.map(|(_, value)| value.tree())
    };
    let from = member("__contextFrom").and_then(|tree| tree.root().u64()).unwrap_or(1);
    let run = member("__run").and_then(|tree| tree.root().name()).map(LogId);
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
    Ok(OpenThread { log: log.clone(), folded, items: restored(&items)?, run })
}

fn restored(records: &[Record]) -> Result<Vec<(u64, Item)>, StoreError> {
    let contents = records.iter().map(|record| record.content.bytes().cloned());
    let items = restore_items(contents);
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let seqs = records.iter().filter(|record| record.content.bytes().is_some());
    Ok(seqs.map(|record| record.seq).zip(items).collect())
}

/// All that is known of a run.
pub(crate) async fn run(
    runner: &Runner,
    tenant: &Tenant,
    run: &LogId,
) -> Result<(Held, State), RunError> {
    let damaged = |problem: &str| RunError::Damaged { run: run.0.clone(), problem: problem.into() };
    let own = runner.head(tenant, run).await?;
    let thread = own.of.clone().ok_or_else(|| damaged("it belongs to no thread"))?;
    let thread = self::thread(&*runner.store, tenant, &thread).await?;
    let (casting, progress) = self::progress(runner, tenant, &own).await?;
    let cast = Arc::new(Cast::new(casting, Arc::clone(&runner.counter))?);
    let (held, smart, window) = Held::of(runner, tenant.clone(), run.clone(), thread);
    Ok((held, State::resumed(cast, smart, window, progress)))
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
