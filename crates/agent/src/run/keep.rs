//! A step is kept: everything of it in one commit.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{
    Append, Asked, Batch, Content, Era, Fence, Folded, Json, LogId, Name, NewRecord, Pack, Record,
    RunEvent, StateChange, Tenant, ThreadState, json, kind, store_items,
};

use crate::action::{Action, Refusal};
use crate::progress::RunStatus;
use crate::run::load::OpenThread;
use crate::run::{RunError, Runner, openings, tell_listener};
use crate::state::{Known, State};

/// A run that somebody has in hand, with the places of its logs.
pub(crate) struct Held {
    pub(crate) runner: Runner,
    pub(crate) tenant: Tenant,
    pub(crate) run: LogId,
    pub(crate) thread: LogId,
    pub(crate) folded: Folded<ThreadState>,
    /// The era in which the Thread was read.
    era: Era,
    /// Whether all that is known is kept.
    is_kept: bool,
    /// The right to write.
    pub(crate) fence: Option<Fence>,
    /// The logs are to be opened.
    pub(crate) opening: Option<Opening>,
    /// Where the deltas wait that are written with the next step.
    pub(crate) events: Option<Arc<dyn throughline_core::EventWriter>>,
}

/// The logs of a run are to be opened.
pub(crate) struct Opening {
    /// The record that says who takes part.
    pub(crate) run: NewRecord,
    /// Whether the Thread begins, too.
    pub(crate) thread: bool,
    /// Names under which it happens once.
    pub(crate) once: Vec<Name>,
}

/// What came of a step that was kept.
#[derive(Debug, Default)]
pub(crate) struct KeptStep {
    /// What is to be done now.
    pub(crate) actions: Vec<Action>,
    /// The Thread and the run that had begun before under the same names.
    pub(crate) repeated: Option<(LogId, LogId)>,
}

impl Held {
    pub(crate) fn of(
        runner: &Runner,
        tenant: Tenant,
        run: LogId,
        thread: OpenThread,
    ) -> (Self, Known) {
        let OpenThread { log, folded, known, era } = thread;
        let held = Self {
            runner: runner.clone(),
            tenant,
            run,
            thread: log,
            folded,
            era,
            is_kept: true,
            fence: None,
            opening: None,
            events: None,
        };
        (held, known)
    }

    /// Remembers the Thread for the next run on it. A step that could not be kept has not happened, so nothing is then.
    pub(crate) fn remember(self, state: State) {
        if self.is_kept {
            let Self { runner, tenant, thread: log, folded, era, .. } = self;
            let thread = OpenThread { log, folded, known: state.into_known(), era };
            runner.memory.put(tenant, thread, Arc::clone(&runner.counter));
        }
    }

    /// Keeps a step: what happened, what is known after it, and what is told of it. What is to be done is given back.
    pub(crate) async fn keep(
        &mut self,
        state: &mut State,
        actions: Vec<Action>,
    ) -> Result<KeptStep, RunError> {
        // A step that is refused, or not kept, is not what the store knows.
        self.is_kept = false;
        let mut step = Sorted::default();
        for action in actions {
            step.take(action)?;
        }
        let items: Vec<Name> = step.items.iter().map(|item| item.id.0.clone()).collect();
        let mut records = Vec::new();
        for (item, stored) in step.items.iter().zip(store_items(&step.items)) {
            let about = format!("{}/{}", self.thread, item.id);
            records.push(NewRecord::new(kind::ITEM, stored.json.bytes().clone()).about(about));
        }
        records.extend((!step.change.is_empty()).then(|| step.change.record()));
        // What is known so far stands before what is added.
        let is_due = !records.is_empty() && self.folded.is_due();
        let checkpoint = is_due.then(|| self.folded.checkpoint());
        let all: Vec<_> = checkpoint.iter().chain(&records).cloned().collect();
        let batch = self.batch(state, &step, all)?;
        let receipt = match &self.events {
            Some(events) => events.commit(batch).await?,
            None => self.runner.store.commit(batch).await?,
        };
        self.opening = None;
        if receipt.repeated {
            // The Thread, and then the run.
            let mut logs = receipt.written.into_iter().map(|written| written.log);
            let repeated = logs.next().zip(logs.next());
            return Ok(KeptStep { actions: Vec::new(), repeated });
        }
        for event in &step.events {
            tell_listener(self.runner.listener.as_ref(), &self.run.0, event);
        }
        let written = receipt.written.iter().find(|written| written.log == self.thread);
        if let Some(written) = written {
            let mut first = written.first;
            if let Some(checkpoint) = checkpoint {
                self.folded.kept(first, checkpoint.content.len() as u64);
                first += 1;
            }
            state.window.written(&items, first);
            for (record, seq) in records.into_iter().zip(first..) {
                let (at, content) = (Timestamp::UNIX_EPOCH, Content::Here(record.content));
                self.folded.apply(&Record { seq, kind: record.kind, at, events: None, content })?;
            }
        }
        self.is_kept = true;
        Ok(KeptStep { actions: step.rest, repeated: None })
    }

    fn batch(
        &mut self,
        state: &State,
        step: &Sorted,
        records: Vec<NewRecord>,
    ) -> Result<Batch, RunError> {
        let progress = serde_json::to_vec(&state.progress).map_err(|error| RunError::Damaged {
            run: self.run.0.clone(),
            problem: error.to_string().into(),
        })?;
        let mut batch = Batch::of(self.tenant.clone());
        let mut run = Append::to(self.run.clone());
        if let Some(opening) = &self.opening {
            let [own, inbox] = openings(&self.run, &self.thread);
            run = own.record(opening.run.clone());
            batch.appends.push(inbox);
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
            let mut thread = Append::to(self.thread.clone());
            let begins = self.opening.as_ref().is_some_and(|opening| opening.thread);
            thread.opening = begins.then(throughline_core::LogOpening::thread);
            thread.expect = (!begins).then_some(self.folded.last);
            thread.records = records;
            // A Run belongs to a Thread that is there before it.
            batch.appends.insert(0, thread);
        }
        batch.asks =
            step.asks.iter().map(|ask| Asked { log: self.run.clone(), ..ask.clone() }).collect();
        batch.takes.clone_from(&step.takes);
        Ok(batch)
    }
}

/// What a step says is to be done, sorted.
#[derive(Default)]
struct Sorted {
    items: Vec<throughline_core::Item>,
    change: StateChange,
    events: Vec<RunEvent>,
    asks: Vec<Asked>,
    takes: Vec<Name>,
    status: Option<RunStatus>,
    rest: Vec<Action>,
}

impl Sorted {
    fn take(&mut self, action: Action) -> Result<(), Refusal> {
        match action {
            Action::Keep(items) => self.items.extend(items),
            Action::Change(change) => self.change.merge(change),
            Action::Tell(event) => self.events.push(event),
            Action::Ask(ask) => self.asks.push(Asked {
                id: ask.id,
                kind: Name::from(ask.kind.as_str()),
                log: LogId::from(""),
                expires_in: ask.expires_in,
            }),
            Action::Take(id) => self.takes.push(id),
            Action::Stand(status) => self.status = Some(status),
            Action::Refuse(refusal) => return Err(refusal),
            Action::Call(_) | Action::Begin(_) | Action::Run(_) | Action::Rest => {
                self.rest.push(action);
            }
        }
        Ok(())
    }
}

/// The Thread knows which run is on it.
pub(crate) fn mark_run(state: &mut State, actions: &mut Vec<Action>, run: &Name) {
    let ctx = state.smart.ctx.get_or_insert_default();
    ctx.retain(|(name, _)| &**name != "__run");
    ctx.push((Name::from("__run"), json::string(run)));
    let ctx: Json = json::object_of(ctx.iter().map(|(name, value)| (&**name, value)));
    actions.push(Action::Change(StateChange::new().set("ctx", ctx)));
}
