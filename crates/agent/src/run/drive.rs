//! Drives a run until it waits or ends.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{
    Call, EventWriter, LogId, ModelError, PendingStatus, RUNNING, Record, StoreError, Tenant, kind,
    unpack_events,
};
use throughline_json::Tree;
use throughline_spec::RunEvent;
use tokio::time::{Instant, interval_at, sleep, timeout};

use crate::action::{Action, Refusal, RefusalKind, ToolRun};
use crate::input::{Input, RunInput};
use crate::progress::{Phase, Progress, Purpose, RunStatus};
use crate::roster::GET_TOOL_RESPONSE;
use crate::run::commit::LeasedRun;
use crate::run::inbox::RunCommand;
use crate::run::load::ThreadSource;
use crate::run::model_call::ModelCall;
use crate::run::tasks::{RunTasks, read_archived};
use crate::run::{EventEmitter, RunError, RunResult, Runner, inbox};
use crate::state::State;
use crate::step::step;
use crate::tool::ToolAnswer;

impl Runner {
    /// Drives a run until it waits or ends. Fails if another process holds the lease, because that
    /// process continues the run.
    pub async fn drive(&self, tenant: &Tenant, run: &LogId) -> RunResult<RunStatus> {
        let mut driver = Driver::lease(self, tenant, run).await?;
        let found = if driver.is_first { 0 } else { driver.found };
        let watched = self.watcher.as_ref().map(|watcher| watcher.on_drive(tenant, run, found));
        let status = driver.run().await;
        driver.release().await;
        drop(watched);
        status
    }

    /// Waits until the current owner releases its lease or the lease expires, then drives the run.
    pub async fn take_over(&self, tenant: &Tenant, run: &LogId) -> RunResult<RunStatus> {
        loop {
            match self.drive(tenant, run).await {
                Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                    sleep(Duration::from_millis(left_ms.max(1))).await;
                }
                driven => return driven,
            }
        }
    }

    /// Sends a command to a run and waits until the command is stored or rejected. Call
    /// [drive](Runner::drive) afterwards to continue the run.
    pub async fn send_command(
        &self,
        tenant: &Tenant,
        run: &LogId,
        command: RunCommand,
    ) -> RunResult<()> {
        self.send_command_within(tenant, run, command, self.lease).await
    }

    /// Like [`Runner::send_command`], but waits at most `patience` for an owner that does not
    /// respond. After that time, the command stays in the inbox for the next owner.
    pub async fn send_command_within(
        &self,
        tenant: &Tenant,
        run: &LogId,
        command: RunCommand,
        patience: Duration,
    ) -> RunResult<()> {
        match self.lease_soon(tenant, run, patience).await {
            Ok(mut driver) => {
                let handled = driver.handle_command(command).await;
                driver.release().await;
                handled
            }
            // Another process owns the run and handles the command.
            Err(RunError::Store(StoreError::Held { .. })) => {
                self.send_to_owner(tenant, run, &command, patience).await
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the run's lease. If the run is idle but another process still holds the lease, waits
    /// up to `patience` until the lease is released.
    async fn lease_soon(
        &self,
        tenant: &Tenant,
        run: &LogId,
        patience: Duration,
    ) -> RunResult<Driver> {
        let deadline = Instant::now() + patience;
        loop {
            let driver = Driver::lease(self, tenant, run).await;
            let is_held = matches!(driver, Err(RunError::Store(StoreError::Held { .. })));
            if !is_held
                || Instant::now() >= deadline
                || self.head(tenant, run).await?.status.as_deref() == Some(RUNNING)
            {
                return driver;
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn send_to_owner(
        &self,
        tenant: &Tenant,
        run: &LogId,
        command: &RunCommand,
        patience: Duration,
    ) -> RunResult<()> {
        let mut last_seq = self.head(tenant, run).await?.last;
        let seq = self.enqueue_command(tenant, run, command).await?;
        loop {
            let new_records = async {
                self.store.wait(tenant, run, last_seq).await?;
                self.store.read(tenant, run, last_seq, 256).await
            };
            let Ok(records) = timeout(patience, new_records).await else {
                // The owner stopped. The next owner handles the command.
                return Ok(());
            };
            for record in &records? {
                last_seq = record.seq;
                if let Some(outcome) = command_outcome(record, seq) {
                    return outcome.map_err(RunError::from);
                }
            }
        }
    }
}

/// Returns the outcome of the inbox command with sequence number `seq`, if this record of the run's
/// log contains the outcome.
fn command_outcome(record: &Record, seq: u64) -> Option<Result<(), Refusal>> {
    let mut events = unpack_events(record).unwrap_or_default().into_iter();
    let refusal = events.find_map(|(_, event)| {
        let tree = Tree::parse(event).ok()?;
        inbox::parse_refusal(tree.root(), seq)
    });
    if let Some(refusal) = refusal {
        return Some(Err(refusal));
    }
    let bytes = record.content.bytes().filter(|_| &*record.kind == kind::CHECKPOINT)?;
    let progress: Progress = serde_json::from_slice(bytes).ok()?;
    (progress.heard >= seq).then_some(Ok(()))
}

/// A run whose lease this process holds.
struct Driver {
    held: LeasedRun,
    state: State,
    emitter: EventEmitter,
    tasks: RunTasks,
    queue: VecDeque<Action>,
    /// Whether no process has driven the run before.
    is_first: bool,
    /// Number of records in the run's log when the lease was taken.
    found: u64,
}

impl Driver {
    async fn lease(runner: &Runner, tenant: &Tenant, run: &LogId) -> RunResult<Self> {
        let found = runner.head(tenant, run).await?.last;
        let lease = runner.store.lease(tenant, run, &runner.owner, runner.lease).await?;
        let (mut held, state) = runner.load_run(tenant, run, ThreadSource::Cache).await?;
        held.fence = Some(lease.fence);
        let events: Arc<dyn EventWriter> = runner.store.events(tenant, run, held.fence).into();
        held.events = Some(Arc::clone(&events));
        let (run, listener) = (run.0.clone(), runner.listener.clone());
        let emitter = EventEmitter { run, events, listener };
        let is_first = lease.fence.0.get() == 1;
        let (tasks, queue) = (RunTasks::default(), VecDeque::new());
        Ok(Self { held, state, emitter, tasks, queue, is_first, found })
    }

    /// Stops all tasks and releases the lease. A step that was not committed is lost.
    async fn release(mut self) {
        self.tasks.stop().await;
        drop(self.emitter.events.flush().await);
        let LeasedRun { runner, tenant, run, fence, .. } = &self.held;
        let (store, tenant, run) = (Arc::clone(&runner.store), tenant.clone(), run.clone());
        let fence = *fence;
        self.held.remember(self.state);
        if let Some(fence) = fence {
            drop(store.release(&tenant, &run, fence).await);
        }
    }

    /// Handles inputs and actions until the run waits or ends.
    async fn run(&mut self) -> RunResult<RunStatus> {
        self.expire_requests().await?;
        self.drain_inbox().await?;
        match self.state.progress.phase {
            // No process has driven the run, so the call has not started.
            Phase::Asking { purpose } if self.is_first => {
                self.queue.push_back(Action::Call(purpose));
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting if self.queue.is_empty() => {
                self.apply_or_ignore(RunInput::Interrupted).await?;
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting | Phase::Ended { .. } => {}
        }
        let LeasedRun { runner, tenant, run, .. } = &self.held;
        let (runner, tenant, run) = (runner.clone(), tenant.clone(), run.clone());
        let period = runner.lease / 3;
        let mut renewal = interval_at(Instant::now() + period, period);
        let inbox = inbox(&run);
        loop {
            while let Some(action) = self.queue.pop_front() {
                self.perform(action).await?;
            }
            if self.tasks.is_empty() {
                return Ok(self.state.status());
            }
            let handled_seq = self.state.progress.heard;
            let remaining = self.time_left();
            tokio::select! {
                event = self.tasks.next() => {
                    if let Some(event) = event {
                        self.apply_or_ignore(event).await?;
                    }
                }
                waited = runner.store.wait(&tenant, &inbox, handled_seq) => {
                    waited?;
                    self.drain_inbox().await?;
                }
                () = sleep(remaining.unwrap_or_default()), if remaining.is_some() => {
                    self.apply_or_ignore(RunInput::TimeUp).await?;
                }
                _ = renewal.tick() => {
                    if let Some(fence) = self.held.fence {
                        runner.store.renew(&tenant, &run, fence, runner.lease).await?;
                    }
                }
            }
        }
    }

    /// Returns the time left until the run's wall-clock limit; `None` without a limit.
    fn time_left(&self) -> Option<Duration> {
        let limit = self.state.current_agent()?.limits.max_wall_clock_ms?;
        let since: jiff::Timestamp = self.state.progress.since.parse().ok()?;
        let used = self.held.runner.clock.now().duration_since(since).as_millis();
        let remaining = limit.saturating_sub(u64::try_from(used).unwrap_or(0));
        // The limit is exceeded only after its last millisecond has passed.
        Some(Duration::from_millis(remaining.saturating_add(1)))
    }

    /// Like `apply`, but returns an error only for a refusal that reports an invalid input. Other
    /// refusals are ignored.
    async fn apply_or_ignore(&mut self, event: RunInput) -> RunResult<()> {
        match self.apply(event).await {
            Err(RunError::Refused(refusal)) if refusal.kind != RefusalKind::Invalid => Ok(()),
            applied => applied,
        }
    }

    /// Applies an input: computes the step, commits the step and queues its actions. Returns an
    /// error if the step refuses the input.
    async fn apply(&mut self, event: RunInput) -> RunResult<()> {
        let at = self.held.runner.clock.now();
        let placeholder = self.state.placeholder();
        let state = std::mem::replace(&mut self.state, placeholder);
        let (state, actions) = step(state, Input { at, event });
        self.state = state;
        // A step that cannot be committed never happened. The run is released, and the next owner
        // loads the stored state.
        let committed = self.held.commit(&mut self.state, actions).await?;
        if matches!(self.state.progress.phase, Phase::Ended { .. }) {
            self.tasks.stop().await;
            self.queue.clear();
        }
        self.queue.extend(committed.actions);
        Ok(())
    }

    async fn handle_command(&mut self, command: RunCommand) -> RunResult<()> {
        let event = command.into_input(&*self.held.runner.models)?;
        let part = self.state.current_agent();
        if let (RunInput::Switched { model, .. }, Some(part)) = (&event, part) {
            let checked = self.held.runner.check_price(&part.config, model);
            checked.map_err(|error| Refusal::invalid(error.to_string()))?;
        }
        self.apply(event).await
    }

    /// Handles all new commands in the inbox, each exactly once.
    async fn drain_inbox(&mut self) -> RunResult<()> {
        let LeasedRun { runner, tenant, run, .. } = &self.held;
        let (store, tenant, inbox) = (Arc::clone(&runner.store), tenant.clone(), inbox(run));
        loop {
            let records = store.read(&tenant, &inbox, self.state.progress.heard, 64).await?;
            if records.is_empty() {
                return Ok(());
            }
            for record in records {
                self.state.progress.heard = record.seq;
                let command = record.content.bytes().filter(|_| &*record.kind == inbox::COMMAND);
                let Some(command) = command.and_then(RunCommand::parse) else { continue };
                match self.handle_command(command).await {
                    Err(RunError::Refused(refusal)) => {
                        let event = inbox::refusal_event(record.seq, &refusal);
                        let report = Action::Tell(RunEvent::Unknown(event));
                        self.held.commit(&mut self.state, vec![report]).await?;
                    }
                    handled => handled?,
                }
            }
        }
    }

    async fn expire_requests(&mut self) -> RunResult<()> {
        let LeasedRun { runner, tenant, run, .. } = &self.held;
        let pending = runner.store.pending(tenant, Some(run)).await?;
        let expired = pending.into_iter().filter(|entry| entry.status == PendingStatus::Expired);
        for id in expired.map(|entry| entry.id) {
            let mut calls = self.state.progress.calls.iter();
            if calls.any(|call| call.stage.pending() == Some(&id)) {
                self.apply_or_ignore(RunInput::Expired(id)).await?;
            }
        }
        Ok(())
    }

    async fn perform(&mut self, action: Action) -> RunResult<()> {
        match action {
            Action::Call(purpose) => match self.model_call(purpose) {
                Ok((model_call, call)) => self.tasks.call_model(model_call, call),
                Err(error) => {
                    let event = RunInput::Failed { purpose, error, streamed: false };
                    self.apply_or_ignore(event).await?;
                }
            },
            Action::Begin(calls) => self.apply_or_ignore(RunInput::ToolsBegan(calls)).await?,
            Action::Run(tool) => self.run_tool(tool),
            // All other actions were already stored by the commit.
            _ => {}
        }
        Ok(())
    }

    fn model_call(&self, purpose: Purpose) -> Result<(ModelCall, Call), ModelError> {
        let runner = &self.held.runner;
        let part = self.state.current_agent();
        let summary = part.and_then(|part| part.config.context.model.clone());
        let summary = summary.filter(|_| purpose == Purpose::Summary);
        let name = summary.unwrap_or_else(|| self.state.model());
        let model = runner.models.model(&name)?;
        let secret = runner.thread_secret(&self.held.thread);
        let call = self.state.call(purpose, model.target().clone(), &secret);
        let model_call = ModelCall {
            model,
            name,
            purpose,
            turn: self.state.progress.turn,
            ids: self.state.progress.ids,
            discarded: self.state.progress.discarded,
            agent: self.state.progress.agent.clone(),
            holds_text: part.is_some_and(|part| part.output.is_some()),
            emitter: self.emitter.clone(),
            runner: runner.clone(),
        };
        Ok((model_call, call))
    }

    fn run_tool(&mut self, run: ToolRun) {
        let LeasedRun { runner, tenant, thread, .. } = &self.held;
        if &*run.tool == GET_TOOL_RESPONSE {
            let number = self.state.archive_id(&run.args).unwrap_or_default();
            let store = Arc::clone(&runner.store);
            let answer = read_archived(store, tenant.clone(), thread.clone(), number);
            return self.tasks.answer(run.call, answer);
        }
        let is_declared = self.state.cast.tool(&run.tool).is_some();
        let tool = runner.tools.get(&run.tool).filter(|_| is_declared);
        let Some(tool) = tool.cloned() else {
            let error = format!("The tool {} is no longer available.", run.tool);
            return self.tasks.answer(run.call, ready(ToolAnswer::error(error)));
        };
        let ctx = Arc::new(self.state.caller_context());
        self.tasks.run(tool, run, ctx, self.emitter.clone());
    }
}
