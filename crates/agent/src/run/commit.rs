//! Stores all effects of a step in one commit.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, Content, ErasureEpoch, EventWriter, Fence, FoldedLog, Item, LogId, LogOpening,
    NewRecord, Pack, PendingRequest, Record, StoredItem, Tenant, kind, store_items,
};
use throughline_json::Name;
use throughline_spec::{RunEvent, StateChange, ThreadState};

use crate::action::{Action, HumanRequest, Refusal};
use crate::config::InvalidConfig;
use crate::progress::RunStatus;
use crate::roster::ResolvedRun;
use crate::run::load::{OpenThread, damaged};
use crate::run::{RUN, RunResult, Runner, StartedRun, inbox, notify_listener};
use crate::state::{State, ThreadContext};

/// A run whose lease this process holds, with the state of its logs.
pub(crate) struct LeasedRun {
    pub(crate) runner: Runner,
    pub(crate) tenant: Tenant,
    pub(crate) run: LogId,
    pub(crate) thread: LogId,
    pub(crate) folded: FoldedLog<ThreadState>,
    /// Erasure epoch in which the Thread was read.
    era: ErasureEpoch,
    /// Whether the last step was committed, so that the store and the state in memory agree.
    is_committed: bool,
    /// Fencing token of the lease; `None` until the lease is taken.
    pub(crate) fence: Option<Fence>,
    /// Parameters for creating the logs; `None` once the logs exist.
    pub(crate) opening: Option<LogCreation>,
    /// Writer that buffers deltas. The buffered deltas are written with the next step.
    pub(crate) events: Option<Arc<dyn EventWriter>>,
}

/// Parameters for creating a run's logs.
pub(crate) struct LogCreation {
    /// Record that declares the agents.
    run: NewRecord,
    /// Whether the Thread must be created as well.
    thread: bool,
    once: Vec<Name>,
}

impl LogCreation {
    pub(crate) fn new(
        cast: &ResolvedRun,
        thread: bool,
        once: Vec<Name>,
    ) -> Result<Self, InvalidConfig> {
        let casting = serde_json::to_vec(&cast.casting);
        let casting = casting.map_err(|error| InvalidConfig::new("agent", error.to_string()))?;
        Ok(Self { run: NewRecord::new(RUN, casting), thread, once })
    }
}

#[derive(Debug, Default)]
pub(crate) struct CommittedStep {
    /// Actions to perform after the commit.
    pub(crate) actions: Vec<Action>,
    /// The existing run that was created with the same idempotency keys, if any.
    pub(crate) repeated: Option<StartedRun>,
}

impl LeasedRun {
    pub(crate) fn new(
        runner: &Runner,
        tenant: Tenant,
        run: LogId,
        thread: OpenThread,
    ) -> (Self, ThreadContext) {
        let OpenThread { log: thread, folded, context, era } = thread;
        let (runner, is_committed) = (runner.clone(), true);
        let (fence, opening, events) = (None, None, None);
        (
            Self { runner, tenant, run, thread, folded, era, is_committed, fence, opening, events },
            context,
        )
    }

    /// Caches the Thread for its next run, unless the last step could not be committed.
    pub(crate) fn remember(self, state: State) {
        if self.is_committed {
            let Self { runner, tenant, thread: log, folded, era, .. } = self;
            let thread = OpenThread { log, folded, context: state.into_thread_context(), era };
            runner.memory.put(tenant, thread, Arc::clone(&runner.counter));
        }
    }

    /// Commits a step with its events and the new state. Returns the actions to perform afterwards.
    pub(crate) async fn commit(
        &mut self,
        state: &mut State,
        actions: Vec<Action>,
    ) -> RunResult<CommittedStep> {
        // Until the commit succeeds, the state in memory differs from the store.
        self.is_committed = false;
        let step = StepEffects::new(actions)?;
        let items: Vec<Name> = step.items.iter().map(|item| item.id.0.clone()).collect();
        let mut records = item_records(&self.thread, &step.items);
        records.extend((!step.change.is_empty()).then(|| step.change.record()));
        // A due checkpoint describes the earlier state, so it is written before the new records.
        let is_due = !records.is_empty() && self.folded.is_checkpoint_due();
        let checkpoint = is_due.then(|| self.folded.checkpoint());
        let all: Vec<_> = checkpoint.iter().chain(&records).cloned().collect();
        let batch = self.batch(state, &step, all)?;
        let receipt = match &self.events {
            Some(events) => events.commit(batch).await?,
            None => self.runner.store.commit(batch).await?,
        };
        self.opening = None;
        if receipt.repeated {
            let repeated = StartedRun::from_receipt(receipt);
            return Ok(CommittedStep { actions: Vec::new(), repeated });
        }
        for event in &step.events {
            notify_listener(self.runner.listener.as_ref(), &self.run.0, event);
        }
        let written = receipt.written.iter().find(|written| written.log == self.thread);
        if let Some(written) = written {
            let mut first = written.first;
            if let Some(checkpoint) = checkpoint {
                self.folded.checkpoint_written(first, checkpoint.content.len() as u64);
                first += 1;
            }
            state.window.record_positions(&items, first);
            for (record, seq) in records.into_iter().zip(first..) {
                let (at, content) = (Timestamp::UNIX_EPOCH, Content::Here(record.content));
                self.folded.apply(&Record { seq, kind: record.kind, at, events: None, content })?;
            }
        }
        self.is_committed = true;
        Ok(CommittedStep { actions: step.rest, repeated: None })
    }

    /// Builds the commit for a step. `records` go to the Thread's log.
    pub(crate) fn batch(
        &self,
        state: &State,
        step: &StepEffects,
        records: Vec<NewRecord>,
    ) -> RunResult<Batch> {
        let progress = serde_json::to_vec(&state.progress);
        let progress = progress.map_err(|error| damaged(&self.run, error))?;
        let mut batch = Batch::new(self.tenant.clone());
        let mut run = Append::new(self.run.clone());
        if let Some(opening) = &self.opening {
            let of_thread = || LogOpening::run(self.thread.clone());
            run = run.opening(of_thread()).record(opening.run.clone());
            batch.appends.push(Append::new(inbox(&self.run)).opening(of_thread()));
            batch.once.clone_from(&opening.once);
        }
        run.fence = self.fence;
        let mut pack = Pack::default();
        for event in &step.events {
            pack.push(event.json().bytes());
        }
        run.records.extend((!pack.is_empty()).then(|| pack.record()));
        run.records.push(NewRecord::new(kind::CHECKPOINT, progress));
        run.status = step.status.map(|status| Name::from(status.as_str()));
        batch.appends.insert(0, run);
        if !records.is_empty() {
            let mut thread = Append::new(self.thread.clone());
            let is_new = self.opening.as_ref().is_some_and(|opening| opening.thread);
            thread.opening = is_new.then(LogOpening::thread);
            thread.expect = (!is_new).then_some(self.folded.last);
            thread.records = records;
            // The Thread must exist before its run.
            batch.appends.insert(0, thread);
        }
        let request = |human: &HumanRequest| PendingRequest {
            id: human.id.clone(),
            kind: Name::from(human.kind.as_str()),
            log: self.run.clone(),
            expires_in: human.expires_in,
        };
        batch.asks = step.asks.iter().map(request).collect();
        batch.takes.clone_from(&step.takes);
        Ok(batch)
    }
}

/// Builds the records that store these Items in a Thread.
pub(crate) fn item_records(thread: &LogId, items: &[Item]) -> Vec<NewRecord> {
    let record = |(item, stored): (&Item, StoredItem)| {
        let record = NewRecord::new(kind::ITEM, stored.json.bytes().clone());
        record.about(format!("{thread}/{}", item.id))
    };
    items.iter().zip(store_items(items)).map(record).collect()
}

/// The actions of a step, grouped by how the commit stores them.
#[derive(Default)]
pub(crate) struct StepEffects {
    pub(crate) items: Vec<Item>,
    change: StateChange,
    events: Vec<RunEvent>,
    pub(crate) asks: Vec<HumanRequest>,
    pub(crate) takes: Vec<Name>,
    pub(crate) status: Option<RunStatus>,
    rest: Vec<Action>,
}

impl StepEffects {
    pub(crate) fn new(actions: Vec<Action>) -> Result<Self, Refusal> {
        let mut step = Self::default();
        for action in actions {
            match action {
                Action::Keep(items) => step.items.extend(items),
                Action::Change(change) => step.change.merge(change),
                Action::Tell(event) => step.events.push(event),
                Action::Ask(request) => step.asks.push(request),
                Action::Take(id) => step.takes.push(id),
                Action::Stand(status) => step.status = Some(status),
                Action::Refuse(refusal) => return Err(refusal),
                Action::Call(_) | Action::Begin(_) | Action::Run(_) | Action::Rest => {
                    step.rest.push(action);
                }
            }
        }
        Ok(step)
    }
}
