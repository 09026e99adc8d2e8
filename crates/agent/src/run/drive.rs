//! A run goes on, until there is nothing more to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{
    Call, EventWriter, LogId, PendingStatus, RUNNING, Record, RunEvent, StoreError, Tenant,
};
use tokio::time::{Instant, interval_at, sleep, timeout};

use crate::action::{Action, Refusal, RefusalKind, ToolRun};
use crate::cast::GET_TOOL_RESPONSE;
use crate::input::{Input, What};
use crate::progress::{Phase, RunStatus};
use crate::run::ask::Question;
use crate::run::keep::Held;
use crate::run::word::{self, Word};
use crate::run::work::{Archived, Telling, Work};
use crate::run::{RunError, Runner, inbox, load};
use crate::state::State;
use crate::step::step;
use crate::tool::ToolAnswer;

impl Runner {
    /// Goes on with a run until it waits for somebody or is over. Whoever else holds it goes on with it instead.
    pub async fn drive(&self, tenant: &Tenant, run: &LogId) -> Result<RunStatus, RunError> {
        let mut driver = Driver::take(self, tenant, run).await?;
        let found = if driver.is_first { 0 } else { driver.found };
        let watched = self.watcher.as_ref().map(|watcher| watcher.goes_on(tenant, run, found));
        let status = driver.go().await;
        driver.leave().await;
        drop(watched);
        status
    }

    /// Goes on with a run that somebody else holds, as soon as that one's lease is over or given back.
    pub async fn take_over(&self, tenant: &Tenant, run: &LogId) -> Result<RunStatus, RunError> {
        loop {
            match self.drive(tenant, run).await {
                Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                    sleep(Duration::from_millis(left_ms.max(1))).await;
                }
                driven => return driven,
            }
        }
    }

    /// Tells a run something, and waits until that is kept or refused. Then somebody has to [drive](Runner::drive) it on.
    pub async fn tell(&self, tenant: &Tenant, run: &LogId, word: Word) -> Result<(), RunError> {
        self.tell_within(tenant, run, word, self.lease).await
    }

    /// The same, and waits for a holder that does not answer no longer than `patience`. The word is in the run's inbox by
    /// then: the next holder of the run reads it.
    pub async fn tell_within(
        &self,
        tenant: &Tenant,
        run: &LogId,
        word: Word,
        patience: Duration,
    ) -> Result<(), RunError> {
        match self.take_soon(tenant, run, patience).await {
            Ok(mut driver) => {
                let told = driver.hear(word).await;
                driver.leave().await;
                told
            }
            // Somebody is at it: that one hears it.
            Err(RunError::Store(StoreError::Held { .. })) => {
                self.tell_holder(tenant, run, &word, patience).await
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a run. Whoever still holds one that is not at work is about to leave it, and is waited for.
    async fn take_soon(
        &self,
        tenant: &Tenant,
        run: &LogId,
        patience: Duration,
    ) -> Result<Driver, RunError> {
        let patience = Instant::now() + patience;
        loop {
            let taken = Driver::take(self, tenant, run).await;
            let is_held = matches!(taken, Err(RunError::Store(StoreError::Held { .. })));
            if !is_held || Instant::now() >= patience {
                return taken;
            }
            let head = self.head(tenant, run).await?;
            if head.status.as_deref() == Some(RUNNING) {
                return taken;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn tell_holder(
        &self,
        tenant: &Tenant,
        run: &LogId,
        word: &Word,
        patience: Duration,
    ) -> Result<(), RunError> {
        let mut seen = self.head(tenant, run).await?.last;
        let seq = self.leave_word(tenant, run, word).await?;
        loop {
            let heard = async {
                self.store.wait(tenant, run, seen).await?;
                self.store.read(tenant, run, seen, 256).await
            };
            let Ok(records) = timeout(patience, heard).await else {
                // Whoever held it is gone. It hears the word that takes it next.
                return Ok(());
            };
            for record in &records? {
                seen = record.seq;
                if let Some(answer) = outcome_of(record, seq) {
                    return answer.map_err(RunError::from);
                }
            }
        }
    }
}

/// Whether a record of a run's log says what became of a word.
fn outcome_of(record: &Record, seq: u64) -> Option<Result<(), Refusal>> {
    for (_, event) in throughline_core::unpack(record).unwrap_or_default() {
        let Ok(tree) = throughline_core::Tree::parse(event) else { continue };
        if let Some(refusal) = word::refusal_of(tree.root(), seq) {
            return Some(Err(refusal));
        }
    }
    let bytes =
        record.content.bytes().filter(|_| &*record.kind == throughline_core::kind::CHECKPOINT)?;
    let progress: crate::progress::Progress = serde_json::from_slice(bytes).ok()?;
    (progress.heard >= seq).then_some(Ok(()))
}

/// A run in somebody's hands.
struct Driver {
    held: Held,
    state: State,
    events: Arc<dyn EventWriter>,
    work: Work,
    /// What is to be done.
    todo: VecDeque<Action>,
    /// Whether nobody held the run before.
    is_first: bool,
    /// How many records its log had when it was taken.
    found: u64,
}

impl Driver {
    async fn take(runner: &Runner, tenant: &Tenant, run: &LogId) -> Result<Self, RunError> {
        let found = runner.head(tenant, run).await?.last;
        let lease = runner.store.lease(tenant, run, &runner.owner, runner.lease).await?;
        let (mut held, state) = load::run(runner, tenant, run).await?;
        held.fence = Some(lease.fence);
        let events: Arc<dyn EventWriter> = runner.store.events(tenant, run, held.fence).into();
        held.events = Some(Arc::clone(&events));
        let is_first = lease.fence.0.get() == 1;
        let (work, todo) = (Work::default(), VecDeque::new());
        Ok(Self { held, state, events, work, todo, is_first, found })
    }

    /// Gives the run back. A step that is not kept is nobody's.
    async fn leave(mut self) {
        self.work.stop().await;
        drop(self.events.flush().await);
        let Held { runner, tenant, run, fence, .. } = &self.held;
        let (runner, tenant, run, fence) = (runner.clone(), tenant.clone(), run.clone(), *fence);
        self.held.remember(self.state);
        if let Some(fence) = fence {
            drop(runner.store.release(&tenant, &run, fence).await);
        }
    }

    /// Goes on until nothing is left to do.
    async fn go(&mut self) -> Result<RunStatus, RunError> {
        self.expire().await?;
        self.listen().await?;
        let phase = self.state.progress.phase.clone();
        match phase {
            // Nobody had it before, so nobody has begun anything.
            Phase::Asking { purpose } if self.is_first => {
                self.todo.push_back(Action::Call(purpose));
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting if self.todo.is_empty() => {
                self.happen(What::Interrupted).await?;
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting | Phase::Ended { .. } => {}
        }
        let (runner, tenant, run) =
            (self.held.runner.clone(), self.held.tenant.clone(), self.held.run.clone());
        let every = runner.lease / 3;
        let mut renewal = interval_at(Instant::now() + every, every);
        let letters = inbox(&run);
        loop {
            while let Some(action) = self.todo.pop_front() {
                self.perform(action).await?;
            }
            if self.work.is_empty() {
                return Ok(self.state.status());
            }
            let heard = self.state.progress.heard;
            let left = self.time_left();
            tokio::select! {
                what = self.work.next() => {
                    if let Some(what) = what {
                        self.happen(what).await?;
                    }
                }
                word = runner.store.wait(&tenant, &letters, heard) => {
                    word?;
                    self.listen().await?;
                }
                () = sleep(left.unwrap_or_default()), if left.is_some() => {
                    self.happen(What::TimeUp).await?;
                }
                _ = renewal.tick() => {
                    if let Some(fence) = self.held.fence {
                        runner.store.renew(&tenant, &run, fence, runner.lease).await?;
                    }
                }
            }
        }
    }

    /// How long somebody may still be at work, where the run has only so much time.
    fn time_left(&self) -> Option<Duration> {
        let limit = self.state.part()?.limits.max_wall_clock_ms?;
        let since: jiff::Timestamp = self.state.progress.since.parse().ok()?;
        let used = self.held.runner.clock.now().duration_since(since).as_millis();
        let left = limit.saturating_sub(u64::try_from(used).unwrap_or(0));
        // It is up when more than that is used.
        Some(Duration::from_millis(left.saturating_add(1)))
    }

    /// Something happened: the step is made and kept, and what is to be done is put down.
    async fn happen(&mut self, what: What) -> Result<(), RunError> {
        match self.tell(what).await {
            Err(RunError::Refused(refusal)) if refusal.kind != RefusalKind::Invalid => Ok(()),
            told => told,
        }
    }

    /// The same, where a refusal is the teller's affair.
    async fn tell(&mut self, what: What) -> Result<(), RunError> {
        let at = self.held.runner.clock.now();
        let hollow = self.state.hollow();
        let known = std::mem::replace(&mut self.state, hollow);
        let (state, actions) = step(known, Input { at, what });
        self.state = state;
        // What cannot be kept has not happened: whoever holds it then lets go, and the next one reads it again.
        let kept = self.held.keep(&mut self.state, actions).await?;
        if matches!(self.state.progress.phase, Phase::Ended { .. }) {
            self.work.stop().await;
            self.todo.clear();
        }
        self.todo.extend(kept.actions);
        Ok(())
    }

    /// Somebody tells the run something.
    async fn hear(&mut self, word: Word) -> Result<(), RunError> {
        let what = word.what(&*self.held.runner.models)?;
        if let (What::Switched { model, .. }, Some(part)) = (&what, self.state.part()) {
            let priced = self.held.runner.must_have_price(&part.config, model);
            priced.map_err(|error| Refusal::invalid(error.to_string()))?;
        }
        self.tell(what).await
    }

    /// Words that others left are heard, each once.
    async fn listen(&mut self) -> Result<(), RunError> {
        let Held { runner, tenant, run, .. } = &self.held;
        let (store, tenant, letters) = (Arc::clone(&runner.store), tenant.clone(), inbox(run));
        loop {
            let words = store.read(&tenant, &letters, self.state.progress.heard, 64).await?;
            if words.is_empty() {
                return Ok(());
            }
            for record in words {
                self.state.progress.heard = record.seq;
                let word = record.content.bytes().filter(|_| &*record.kind == word::WORD);
                let Some(word) = word.and_then(Word::parse) else { continue };
                match self.hear(word).await {
                    Ok(()) => {}
                    Err(RunError::Refused(refusal)) => {
                        let event = word::refused(record.seq, &refusal);
                        let told = Action::Tell(RunEvent::Unknown(event));
                        self.held.keep(&mut self.state, vec![told]).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// What nobody decided in time is decided by that.
    async fn expire(&mut self) -> Result<(), RunError> {
        let Held { runner, tenant, run, .. } = &self.held;
        let pending = runner.store.pending(tenant, Some(run)).await?;
        for pending in
            pending.into_iter().filter(|pending| pending.status == PendingStatus::Expired)
        {
            let waits = self
                .state
                .progress
                .calls
                .iter()
                .any(|call| call.stage.pending() == Some(&pending.id));
            if waits {
                self.happen(What::Expired(pending.id)).await?;
            }
        }
        Ok(())
    }

    async fn perform(&mut self, action: Action) -> Result<(), RunError> {
        match action {
            Action::Call(purpose) => {
                let question = self.question(purpose);
                match question {
                    Ok((question, call)) => self.work.ask(question, call),
                    Err(error) => {
                        let what = What::Failed { purpose, error, streamed: false };
                        self.happen(what).await?;
                    }
                }
            }
            Action::Begin(calls) => self.happen(What::ToolsBegan(calls)).await?,
            Action::Run(tool) => self.run_tool(tool),
            // What was to be kept is kept.
            Action::Keep(_)
            | Action::Change(_)
            | Action::Tell(_)
            | Action::Ask(_)
            | Action::Take(_)
            | Action::Stand(_)
            | Action::Rest
            | Action::Refuse(_) => {}
        }
        Ok(())
    }

    fn question(
        &self,
        purpose: crate::progress::Purpose,
    ) -> Result<(Question, Call), throughline_core::ModelError> {
        let runner = &self.held.runner;
        let part = self.state.part();
        let summary = part.and_then(|part| part.config.context.model.clone());
        let summary = summary.filter(|_| purpose == crate::progress::Purpose::Summary);
        let name = summary.unwrap_or_else(|| self.state.model());
        let model = runner.models.model(&name)?;
        let secret = runner.thread_secret(&self.held.thread);
        let call = self.state.call(purpose, model.target().clone(), &secret);
        let question = Question {
            model,
            name,
            purpose,
            turn: self.state.progress.turn,
            run: self.state.progress.run.clone(),
            ids: self.state.progress.ids,
            agent: self.state.progress.agent.clone(),
            holds: part.is_some_and(|part| part.output.is_some()),
            events: Arc::clone(&self.events),
            listener: runner.listener.clone(),
            costs: runner.costs.clone(),
            clock: Arc::clone(&runner.clock),
            permit: runner.permit.clone(),
        };
        Ok((question, call))
    }

    fn run_tool(&mut self, run: ToolRun) {
        let Held { runner, tenant, thread, .. } = &self.held;
        if &*run.tool == GET_TOOL_RESPONSE {
            let number = self.state.archive_of(&run.args).unwrap_or_default();
            let (store, tenant, thread) =
                (Arc::clone(&runner.store), tenant.clone(), thread.clone());
            self.work.bring_back(run.call, Archived { store, tenant, thread, number });
            return;
        }
        let given =
            runner.tools.get(&run.tool).filter(|_| self.state.cast.tool(&run.tool).is_some());
        let Some(tool) = given.cloned() else {
            let answer = ToolAnswer::error(format!("The tool {} is not there any more.", run.tool));
            self.work.answer(run.call, answer);
            return;
        };
        let telling = Telling {
            run: self.held.run.0.clone(),
            events: Arc::clone(&self.events),
            listener: runner.listener.clone(),
        };
        self.work.run(tool, run, telling);
    }
}
