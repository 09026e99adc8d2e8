//! The runner stores each step of a run before it performs the step's actions.
//!
//! # Storage
//! Each run has its own log. The first record declares the agents. Later records contain events,
//! and each step adds a checkpoint with the [`Progress`](crate::Progress). The Thread's log
//! contains the conversation and the documented state (`SmartState`). Each step is one commit, so
//! any process can rebuild the state from these two logs. A third log, the run's inbox, receives
//! commands for the process that owns the run.
//!
//! # Ownership
//! The process that holds the lease on the run's log owns the run. A process that loses the lease
//! can no longer write, and stops. Another process then takes the lease and resumes from the last
//! step. [`step`](crate::step()) receives the input `Interrupted` for unfinished calls.

mod annotations;
mod commit;
mod drive;
mod inbox;
mod load;
mod model_call;
mod replay;
mod restore;
mod tasks;
mod thread_cache;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{
    Append, Batch, Body, Clock, CostEstimator, ElisionReason, EventWriter, IdGenerator, Item,
    LogHead, LogId, ModelError, ModelRegistry, NewRecord, Receipt, Store, StoreError, Tenant,
    ThreadSecret, TokenCounter, Usage,
};
use throughline_json::{self as json, Name};
use throughline_spec::{RunEvent, UserQuestionEvent};

pub use crate::run::inbox::RunCommand;

use crate::action::{Action, Refusal};
use crate::config::{AgentConfig, InvalidConfig};
use crate::input::{Input, RunInput};
use crate::permit::CallPermit;
use crate::ports::Ports;
use crate::progress::{Progress, RunStatus};
use crate::roster::{LengthTokenCounter, ResolvedRun, RunSpec};
use crate::run::commit::{LeasedRun, LogCreation};
use crate::run::load::{OpenThread, ThreadSource};
use crate::run::thread_cache::ThreadCache;
use crate::state::State;
use crate::step::step;
use crate::tool::Tool;

/// Record kind for the record that declares the agents of a run.
pub const RUN: &str = "run";

/// Starts and drives runs. All dependencies are injected as ports; there is no global state.
#[derive(Clone)]
pub struct Runner {
    /// Store for Threads, runs and events.
    pub store: Arc<dyn Store>,
    /// Resolves model names to models.
    pub models: Arc<dyn ModelRegistry>,
    /// Tools that this runner can execute, by name.
    pub tools: Arc<BTreeMap<Name, Arc<dyn Tool>>>,
    /// Clock for all timestamps of the runner.
    pub clock: Arc<dyn Clock>,
    /// Generator for the ids of runs and Threads.
    pub ids: Arc<dyn IdGenerator>,
    /// Estimates token counts for limits and compaction.
    pub counter: Arc<dyn TokenCounter>,
    /// Price list for model answers. Without a price list, agents with a cost limit are rejected.
    pub costs: Option<Arc<dyn CostEstimator>>,
    /// Secret that all Thread secrets are derived from.
    pub secret: [u8; 32],
    /// Name under which this process holds leases.
    pub owner: Name,
    /// Lease duration; another process can take over after the lease expires.
    pub lease: Duration,
    /// Observer that is notified when this process starts or stops driving a run.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Receives the events of the runs that this process drives.
    pub listener: Option<Arc<dyn Listener>>,
    /// Allows or denies each model call. Without a permit port, all calls are allowed.
    pub permit: Option<Arc<dyn CallPermit>>,
    /// Cache of recently used Threads.
    memory: ThreadCache,
}

/// Observes which runs this process drives, for example to trace these runs. The runner does not
/// wait for the observer.
pub trait Watcher: Send + Sync {
    /// Called when this process starts to drive a run. `records` is the number of records in the
    /// run's log, or 0 if the run was never driven. The returned guard is dropped when this process
    /// stops driving the run for any reason.
    fn on_drive(&self, tenant: &Tenant, run: &LogId, records: u64) -> Box<dyn Send>;
}

/// Receives the events of runs in this process, like the documented callbacks `onEvent` and
/// `onQuestion`. Events arrive after they are committed, and deltas arrive immediately. Correctness
/// never depends on a listener.
pub trait Listener: Send + Sync {
    /// Called for each event, including deltas.
    fn on_event(&self, run: &Name, event: &RunEvent);

    /// Called when the model asks a person a question and when the question is resolved.
    /// [`Listener::on_event`] also receives the event.
    fn on_question(&self, _run: &Name, _event: &UserQuestionEvent) {}
}

/// Calls `on_event`, and also `on_question` for a question event.
pub(crate) fn notify_listener(listener: Option<&Arc<dyn Listener>>, run: &Name, event: &RunEvent) {
    let Some(listener) = listener else { return };
    listener.on_event(run, event);
    if let RunEvent::UserQuestion(event) = event {
        listener.on_question(run, event);
    }
}

/// Emits events that are not part of a step: answer deltas and tool progress.
#[derive(Clone)]
pub(crate) struct EventEmitter {
    pub(crate) run: Name,
    pub(crate) events: Arc<dyn EventWriter>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

impl EventEmitter {
    pub(crate) async fn emit(&self, event: &RunEvent) {
        notify_listener(self.listener.as_ref(), &self.run, event);
        self.events.push(event.json().bytes(), None).await;
    }
}

/// Reason why a run cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run rejected the input.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent declaration is invalid.
    #[error("{0}")]
    Config(#[from] InvalidConfig),
    /// The model is not configured or cannot be reached.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The Thread already has an unfinished run.
    #[error(
        "run {run} of this thread is still {status}; wait until it ends, answer its pending \
         request, or cancel it"
    )]
    Busy {
        /// Id of the unfinished run.
        run: Name,
        /// Status of the unfinished run.
        status: Name,
    },
    /// The stored records of the run cannot be read.
    #[error("cannot read run {run}: {problem}")]
    Damaged {
        /// Id of the run whose records are damaged.
        run: Name,
        /// What is missing or invalid in the stored records.
        problem: Name,
    },
    /// The content of the run was erased, so the run cannot be read or continued.
    #[error("run {run} was erased ({reason}) and can no longer be used; start a new run")]
    Erased {
        /// Id of the erased run.
        run: Name,
        /// Why the content was erased.
        reason: ElisionReason,
    },
}

pub(crate) type RunResult<T> = Result<T, RunError>;

/// Parameters for starting a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// Tenant that owns the run.
    pub tenant: Tenant,
    /// Thread to continue; `None` creates a new Thread.
    pub thread: Option<LogId>,
    /// Declaration of the run's agents and tools.
    pub casting: RunSpec,
    /// Parts of the user message that starts the run.
    pub said: Vec<Body>,
    /// Idempotency keys: a second start with the same keys returns the first run.
    pub once: Vec<Name>,
}

impl RunRequest {
    /// Creates a request for a new Thread with one agent and one text message.
    pub fn new(tenant: impl Into<Tenant>, agent: AgentConfig, message: &str) -> Self {
        Self {
            tenant: tenant.into(),
            thread: None,
            casting: RunSpec::single_agent(agent, Vec::new()),
            said: vec![Body::Text(message.into())],
            once: Vec::new(),
        }
    }
}

/// Ids of a newly created run, or of an existing run with the same idempotency keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRun {
    /// Id of the run, which is also the id of its log.
    pub run: LogId,
    /// Id of the run's Thread.
    pub thread: LogId,
    /// Whether an earlier request with the same idempotency keys created the run.
    pub repeated: bool,
}

impl StartedRun {
    /// Reads the ids of an existing run from its creation receipt, which lists the Thread first.
    fn from_receipt(receipt: Receipt) -> Option<Self> {
        let mut logs = receipt.written.into_iter().map(|written| written.log);
        let (thread, run) = (logs.next()?, logs.next()?);
        Some(Self { run, thread, repeated: true })
    }
}

impl Runner {
    /// Creates a runner without tools, price list, observers or call permit.
    pub fn new(store: Arc<dyn Store>, models: Arc<dyn ModelRegistry>, ports: Ports) -> Self {
        let Ports { clock, ids, secret } = ports;
        Self {
            owner: ids.generate("node"),
            store,
            models,
            tools: Arc::default(),
            clock,
            ids,
            counter: Arc::new(LengthTokenCounter),
            costs: None,
            secret,
            lease: Duration::from_secs(15),
            watcher: None,
            listener: None,
            permit: None,
            memory: ThreadCache::default(),
        }
    }

    /// Replaces all tools that this runner can execute.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let named = tools.into_iter().map(|tool| (tool.spec().name, tool));
        self.tools = Arc::new(named.collect());
        self
    }

    /// Adds a tool, or replaces the tool with the same name.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Tool + 'static) -> Self {
        let mut tools = BTreeMap::clone(&self.tools);
        tools.insert(tool.spec().name, Arc::new(tool));
        self.tools = Arc::new(tools);
        self
    }

    /// Creates and stores a run without driving it. Call [`Runner::drive`] to execute the run.
    pub async fn start(&self, mut start: RunRequest) -> RunResult<StartedRun> {
        let bodies = std::mem::take(&mut start.said);
        self.start_with(start, RunInput::Said(bodies)).await
    }

    /// Creates and stores a run that continues an earlier conversation. The Items of `history` are
    /// added to the Thread before the user message, which may be empty. Ephemeral Items are sent to
    /// the model but not stored in the Thread.
    pub async fn start_with_history(
        &self,
        mut start: RunRequest,
        history: Vec<Item>,
    ) -> RunResult<StartedRun> {
        let said = std::mem::take(&mut start.said);
        self.start_with(start, RunInput::Continued { history, said }).await
    }

    /// Creates and stores a run that only summarises the Thread. Call [`Runner::drive`] to execute
    /// the run.
    pub async fn start_compaction(&self, start: RunRequest) -> RunResult<StartedRun> {
        self.start_with(start, RunInput::Compact).await
    }

    async fn start_with(&self, start: RunRequest, event: RunInput) -> RunResult<StartedRun> {
        let mut cast = self.resolve_with_runner_tools(start.casting)?;
        self.check_costs(&cast)?;
        // The values become part of the documented state, so the declaration does not repeat them.
        let ctx = Arc::get_mut(&mut cast).map(|cast| std::mem::take(&mut cast.casting.ctx));
        let run = LogId(self.ids.generate("run"));
        let thread = match &start.thread {
            Some(thread) => self.load_thread(&start.tenant, thread).await?,
            None => {
                let era = self.erasure_epoch(&start.tenant).await?;
                OpenThread::new(LogId(self.ids.generate("thread")), era)
            }
        };
        if let Some(before) = thread.last_run()
            && let Err(busy) = self.check_thread_is_free(&start.tenant, &before).await
        {
            self.memory.put(start.tenant.clone(), thread, Arc::clone(&self.counter));
            // A repeated request returns the existing run, whatever its status.
            let receipt = self.find_record(&start.tenant, &start.once).await?;
            return receipt.and_then(StartedRun::from_receipt).ok_or(busy);
        }
        let (now, log) = (self.clock.now(), thread.log.clone());
        let (mut held, context) = LeasedRun::new(self, start.tenant, run.clone(), thread);
        let progress = Progress {
            run: run.0.clone(),
            agent: cast.casting.first.clone(),
            since: now.to_string().into(),
            from: held.folded.last,
            ..Progress::default()
        };
        let mut state = State::from_parts(cast, context, progress);
        let mut ctx_change = None;
        for (key, value) in ctx.into_iter().flatten() {
            ctx_change = state.set_context(&key, Some(value)).or(ctx_change);
        }
        if ctx_change.is_some() {
            state.check_context_size()?;
        }
        let thread = start.thread.is_none();
        held.opening = Some(LogCreation::new(&state.cast, thread, start.once)?);
        let (mut state, mut actions) = step(state, Input { at: now, event });
        actions.splice(0..0, ctx_change.map(Action::Change));
        let last_run = state.set_context("__run", Some(json::string(&run.0)));
        actions.extend(last_run.map(Action::Change));
        let committed = held.commit(&mut state, actions).await?;
        if let Some(earlier) = committed.repeated {
            return Ok(earlier);
        }
        held.remember(state);
        Ok(StartedRun { run, thread: log, repeated: false })
    }

    /// Returns the receipt of the commit that used these idempotency keys; `None` if the keys are
    /// unused.
    async fn find_record(&self, tenant: &Tenant, once: &[Name]) -> RunResult<Option<Receipt>> {
        if once.is_empty() {
            return Ok(None);
        }
        // No log can match the expected position `u64::MAX`, so this batch never stores anything.
        // It only returns the receipt of an earlier commit.
        let probe = Append::new(self.ids.generate("nowhere").to_string()).expect_last(u64::MAX);
        let mut batch = Batch::new(tenant.clone()).append(probe);
        batch.once = once.to_vec();
        match self.store.commit(batch).await {
            Ok(receipt) => Ok(Some(receipt)),
            Err(
                StoreError::Conflict { .. }
                | StoreError::NotFound { .. }
                | StoreError::MixedOnce { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Loads the complete state of a run, including its conversation.
    pub async fn state(&self, tenant: &Tenant, run: &LogId) -> RunResult<State> {
        Ok(self.load_run(tenant, run, ThreadSource::Store).await?.1)
    }

    /// Returns the declaration and progress of a run without reading its Thread.
    pub async fn progress(&self, tenant: &Tenant, run: &LogId) -> RunResult<(RunSpec, Progress)> {
        let head = self.head(tenant, run).await?;
        self.load_progress(tenant, &head).await
    }

    /// Reads the current status of a run from the store.
    pub async fn status(&self, tenant: &Tenant, run: &LogId) -> RunResult<RunStatus> {
        Ok(self.progress(tenant, run).await?.1.status())
    }

    /// Adds a command to the run's inbox. The process that owns the run handles the command. If no
    /// process owns the run, the next owner handles it.
    pub async fn enqueue_command(
        &self,
        tenant: &Tenant,
        run: &LogId,
        command: &RunCommand,
    ) -> RunResult<u64> {
        self.head(tenant, run).await?;
        let append = Append::new(inbox(run)).record(NewRecord::new(inbox::COMMAND, command.json()));
        let batch = Batch::new(tenant.clone()).append(append);
        let receipt = self.store.commit(batch).await?;
        Ok(receipt.written.first().map_or(0, |written| written.last))
    }

    /// Validates a declaration after adding all tools of this runner to the declaration.
    fn resolve_with_runner_tools(&self, mut casting: RunSpec) -> RunResult<Arc<ResolvedRun>> {
        for (name, tool) in &*self.tools {
            if !casting.tools.iter().any(|spec| spec.name == *name) {
                casting.tools.push(tool.spec());
            }
        }
        self.resolve(casting)
    }

    /// Validates a declaration without adding tools to the declaration.
    pub(crate) fn resolve(&self, mut casting: RunSpec) -> RunResult<Arc<ResolvedRun>> {
        let mut bound = BTreeSet::new();
        for name in casting.agents.values().flat_map(AgentConfig::models) {
            if self.models.model(name)?.target().profile.bound.prefix {
                bound.insert(name.clone());
            }
        }
        casting.prefix_bound = bound;
        Ok(Arc::new(ResolvedRun::new(casting, Arc::clone(&self.counter))?))
    }

    /// Rejects cost limits that are invalid or cannot be enforced, before any model is called.
    pub(crate) fn check_costs(&self, cast: &ResolvedRun) -> Result<(), InvalidConfig> {
        for agent in cast.casting.agents.values() {
            let limit = agent.limits.max_cost_usd.unwrap_or_default();
            if !limit.is_finite() || limit < 0.0 {
                let field = format!("agents.{}.limits.maxCostUsd", agent.name);
                let problem = format!(
                    "{limit} is not a valid amount; write US dollars, such as 0.5, or 0 for no limit"
                );
                return Err(InvalidConfig::new(field, problem));
            }
            for model in agent.models() {
                self.check_price(agent, model)?;
            }
        }
        Ok(())
    }

    /// Checks that the model has a price, if the agent has a cost limit.
    pub(crate) fn check_price(
        &self,
        agent: &AgentConfig,
        model: &str,
    ) -> Result<(), InvalidConfig> {
        if agent.resolved_limits().max_cost_usd.is_none() {
            return Ok(());
        }
        let problem = match &self.costs {
            None => "needs a cost estimator, and none is configured".to_owned(),
            Some(costs) if costs.cost(model, &Usage::default()).is_none() => {
                format!("cannot be enforced: there is no price for {model}")
            }
            Some(_) => return Ok(()),
        };
        Err(InvalidConfig::new(format!("agents.{}.limits.maxCostUsd", agent.name), problem))
    }

    async fn check_thread_is_free(&self, tenant: &Tenant, run: &LogId) -> RunResult<()> {
        match self.store.log(tenant, run).await?.and_then(|head| head.status) {
            Some(status) if matches!(&*status, "running" | "waiting") => {
                Err(RunError::Busy { run: run.0.clone(), status })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the head of a run's log. Fails if the run does not exist or was erased.
    pub(crate) async fn head(&self, tenant: &Tenant, run: &LogId) -> RunResult<LogHead> {
        let head = self.store.log(tenant, run).await?;
        let missing = || StoreError::NotFound { what: "run", name: run.0.clone() };
        let head = head.filter(|head| !is_inbox(&head.log)).ok_or_else(missing)?;
        match head.gone {
            Some(reason) => Err(RunError::Erased { run: run.0.clone(), reason }),
            None => Ok(head),
        }
    }

    /// Derives a Thread's secret, which is used to derive the nonces in the envelopes of plain
    /// Thoughts.
    pub(crate) fn thread_secret(&self, thread: &LogId) -> ThreadSecret {
        ThreadSecret::new(*blake3::keyed_hash(&self.secret, thread.0.as_bytes()).as_bytes())
    }
}

/// Returns the id of the log that receives commands for a run.
pub(crate) fn inbox(run: &LogId) -> LogId {
    LogId::from(format!("{run}.inbox"))
}

/// Returns whether a log id names a run's inbox instead of a run.
pub fn is_inbox(log: &LogId) -> bool {
    log.0.ends_with(".inbox")
}
