//! The runner: does what a step says, and keeps each step before and after.
//!
//! # What is kept
//! A run has a log of its own. Its first record says who takes part; then come its events, and with every step a checkpoint,
//! which is the [`Progress`](crate::Progress). The conversation and the documented state are in the Thread's log. Everything of one step is one
//! commit, so a process that reads both logs knows what the one that wrote them knew. A third log, the run's inbox, is where
//! others leave a word for whoever holds the run.
//!
//! # Who may go on
//! Whoever holds the lease of the run's log. A process that lost it cannot write any more, and stops; another one takes the
//! lease and goes on from the last step. What was begun and not ended then is told to [`step`](crate::step()) as `Interrupted`.

mod ask;
mod drive;
mod keep;
mod load;
mod memory;
mod note;
mod restore;
mod word;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{
    Append, Batch, Body, Clock, CostEstimator, Ids, LogHead, LogId, LogOpening, ModelError, Models,
    Name, NewRecord, RunEvent, Store, StoreError, Tenant, ThreadSecret, TokenCounter,
    UserQuestionEvent, kind,
};

pub use crate::run::word::Word;

use crate::action::Refusal;
use crate::cast::{ByLength, Cast, Casting};
use crate::config::{AgentConfig, InvalidConfig};
use crate::input::{Input, What};
use crate::permit::CallPermit;
use crate::ports::Ports;
use crate::progress::{Progress, RunStatus};
use crate::run::keep::Held;
use crate::run::memory::Memory;
use crate::state::State;
use crate::step::step;
use crate::tool::Tool;

/// The kind of the record that says who takes part in a run.
pub const RUN: &str = "run";

/// Runs agents. Everything that they need is a port; nothing is global.
#[derive(Clone)]
pub struct Runner {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The models.
    pub models: Arc<dyn Models>,
    /// The tools, by name.
    pub tools: Arc<BTreeMap<Name, Arc<dyn Tool>>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Ids that nobody else makes up.
    pub ids: Arc<dyn Ids>,
    /// Counts tokens.
    pub counter: Arc<dyn TokenCounter>,
    /// What answers cost.
    pub costs: Option<Arc<dyn CostEstimator>>,
    /// From which the Threads' own secrets are made.
    pub secret: [u8; 32],
    /// Who this process is.
    pub owner: Name,
    /// How long a run is held without a word.
    pub lease: Duration,
    /// Who is told which runs go on here.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Who hears what they tell.
    pub listener: Option<Arc<dyn Listener>>,
    /// Decides before every model call whether the run may make it; without it, every call may be made.
    pub permit: Option<Arc<dyn CallPermit>>,
    /// The Threads that it remembers.
    memory: Memory,
}

/// Whoever wants to know which runs go on in this process: a tracer, for one. Nothing waits for it.
pub trait Watcher: Send + Sync {
    /// This process goes on with a run, whose log has that many records: none where nobody went on with it before. What is
    /// given back is dropped when it goes on no longer, however that came.
    fn goes_on(&self, tenant: &Tenant, run: &LogId, records: u64) -> Box<dyn Send>;
}

/// Whoever wants to hear what runs tell while they go on in this process: what the documents call `onEvent` and `onQuestion`.
/// It hears each event after that is kept, but for pieces, which it hears as they come. Nothing rests on it.
pub trait Listener: Send + Sync {
    /// A run told something.
    fn on_event(&self, run: &Name, event: &RunEvent);

    /// The model asks a person, or a question of its is settled. [`Listener::on_event`] heard of it, too.
    fn on_question(&self, _run: &Name, _event: &UserQuestionEvent) {}
}

/// Tells whoever listens.
pub(crate) fn tell_listener(listener: Option<&Arc<dyn Listener>>, run: &Name, event: &RunEvent) {
    let Some(listener) = listener else { return };
    listener.on_event(run, event);
    if let RunEvent::UserQuestion(event) = event {
        listener.on_question(run, event);
    }
}

/// Why a run cannot begin, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was asked of the run cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent's declaration is wrong.
    #[error("{0}")]
    Config(#[from] InvalidConfig),
    /// There is no such model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The Thread has a run that is not over.
    #[error("run {run} of this thread is {status}: wait for it, answer it, or cancel it")]
    Busy {
        /// The run.
        run: Name,
        /// How it stands.
        status: Name,
    },
    /// What is kept of the run cannot be read.
    #[error("run {run} cannot be read: {problem}")]
    Damaged {
        /// The run.
        run: Name,
        /// What is wrong.
        problem: Name,
    },
}

/// A run that is to begin.
#[derive(Clone, Debug)]
pub struct Start {
    /// Whose it is.
    pub tenant: Tenant,
    /// The Thread that it goes on with; a new one without.
    pub thread: Option<LogId>,
    /// Who takes part.
    pub casting: Casting,
    /// What is said: the parts of one message.
    pub said: Vec<Body>,
    /// Names under which it begins once: the same names give the same run.
    pub once: Vec<Name>,
}

impl Start {
    /// Somebody says something to an agent of that declaration, on a new Thread.
    pub fn new(tenant: impl Into<Tenant>, agent: AgentConfig, said: &str) -> Self {
        Self {
            tenant: tenant.into(),
            thread: None,
            casting: Casting::solo(agent, Vec::new()),
            said: vec![Body::Text(said.into())],
            once: Vec::new(),
        }
    }
}

/// A run that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The run.
    pub run: LogId,
    /// Its Thread.
    pub thread: LogId,
    /// Whether it had begun before, under the same names.
    pub repeated: bool,
}

impl Runner {
    /// A runner with what it cannot do without; the rest is as usual.
    pub fn new(store: Arc<dyn Store>, models: Arc<dyn Models>, ports: Ports) -> Self {
        let Ports { clock, ids, secret } = ports;
        Self {
            owner: ids.fresh("node"),
            store,
            models,
            tools: Arc::default(),
            clock,
            ids,
            counter: Arc::new(ByLength),
            costs: None,
            secret,
            lease: Duration::from_secs(15),
            watcher: None,
            listener: None,
            permit: None,
            memory: Memory::default(),
        }
    }

    /// The same, with these tools.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let named = tools.into_iter().map(|tool| (tool.spec().name, tool));
        self.tools = Arc::new(named.collect());
        self
    }

    /// The same, with this tool besides.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Tool + 'static) -> Self {
        let mut tools = BTreeMap::clone(&self.tools);
        tools.insert(tool.spec().name, Arc::new(tool));
        self.tools = Arc::new(tools);
        self
    }

    /// Begins a run: when it returns, the run is kept, and nobody is at it yet.
    pub async fn begin(&self, mut start: Start) -> Result<Begun, RunError> {
        let said = std::mem::take(&mut start.said);
        self.begin_with(start, What::Said(said)).await
    }

    /// Begins a run that summarises all that was said on a Thread, and does nothing else.
    pub async fn begin_compaction(&self, start: Start) -> Result<Begun, RunError> {
        self.begin_with(start, What::Compact).await
    }

    async fn begin_with(&self, start: Start, what: What) -> Result<Begun, RunError> {
        let cast = self.cast(start.casting)?;
        self.check_costs(&cast)?;
        let run = LogId(self.ids.fresh("run"));
        let thread = match &start.thread {
            Some(thread) => load::thread(self, &start.tenant, thread).await?,
            None => {
                let era = load::era(self, &start.tenant).await?;
                load::OpenThread::new(LogId(self.ids.fresh("thread")), era)
            }
        };
        if let Some(before) = thread.run()
            && let Err(busy) = self.must_be_over(&start.tenant, &before).await
        {
            self.memory.put(start.tenant.clone(), thread, Arc::clone(&self.counter));
            // What was asked before is the same run, however it stands.
            return self.begun_before(&start.tenant, &start.once).await?.ok_or(busy);
        }
        let now = self.clock.now();
        let log = thread.log.clone();
        let (mut held, known) = Held::of(self, start.tenant.clone(), run.clone(), thread);
        let mut state = State::beginning(run.0.clone(), cast, known, &now.to_string());
        state.progress.from = held.folded.last;
        let casting = serde_json::to_vec(&state.cast.casting);
        let casting = casting.map_err(|error| InvalidConfig::new("agent", error.to_string()))?;
        held.opening = Some(keep::Opening {
            run: NewRecord::new(RUN, casting),
            thread: start.thread.is_none(),
            once: start.once,
        });
        let (mut state, mut actions) = step(state, Input { at: now, what });
        keep::mark_run(&mut state, &mut actions, &run.0);
        let kept = held.keep(&mut state, actions).await?;
        if let Some((thread, run)) = kept.repeated {
            return Ok(Begun { run, thread, repeated: true });
        }
        held.remember(state);
        Ok(Begun { run, thread: log, repeated: false })
    }

    /// The run that began under these names, if there is one.
    async fn begun_before(
        &self,
        tenant: &Tenant,
        once: &[Name],
    ) -> Result<Option<Begun>, RunError> {
        let Some(receipt) = self.kept_under(tenant, once).await? else { return Ok(None) };
        let mut logs = receipt.written.into_iter().map(|written| written.log);
        let (thread, run) = (logs.next(), logs.next());
        Ok(thread.zip(run).map(|(thread, run)| Begun { run, thread, repeated: true }))
    }

    /// All that is known of a run.
    pub async fn state(&self, tenant: &Tenant, run: &LogId) -> Result<State, RunError> {
        let (_, state) = load::read_run(self, tenant, run).await?;
        Ok(state)
    }

    /// Who takes part in a run, and how far it is. Its Thread is not read for that.
    pub async fn progress(
        &self,
        tenant: &Tenant,
        run: &LogId,
    ) -> Result<(Casting, Progress), RunError> {
        let head = self.head(tenant, run).await?;
        load::progress(self, tenant, &head).await
    }

    /// How a run stands.
    pub async fn status(&self, tenant: &Tenant, run: &LogId) -> Result<RunStatus, RunError> {
        let (_, progress) = self.progress(tenant, run).await?;
        Ok(progress.status())
    }

    /// Leaves a word for whoever holds the run. If nobody does, it is heard by who takes it next.
    pub async fn leave_word(
        &self,
        tenant: &Tenant,
        run: &LogId,
        word: &Word,
    ) -> Result<u64, RunError> {
        self.head(tenant, run).await?;
        let append = Append::to(inbox(run)).record(NewRecord::new(word::WORD, word.json()));
        let batch = Batch::of(tenant.clone()).append(append);
        let receipt = self.store.commit(batch).await?;
        Ok(receipt.written.first().map_or(0, |written| written.last))
    }

    pub(crate) fn cast(&self, mut casting: Casting) -> Result<Arc<Cast>, RunError> {
        for (name, tool) in &*self.tools {
            if !casting.tools.iter().any(|spec| spec.name == *name) {
                casting.tools.push(tool.spec());
            }
        }
        self.resolve(casting)
    }

    /// Checks who takes part, with the tools that are listed and no others.
    pub(crate) fn resolve(&self, mut casting: Casting) -> Result<Arc<Cast>, RunError> {
        let models = casting.agents.values().flat_map(AgentConfig::models);
        let mut bound = std::collections::BTreeSet::new();
        for name in models {
            let model = self.models.model(name)?;
            if model.target().profile.bound.prefix {
                bound.insert(name.clone());
            }
        }
        casting.prefix_bound = bound;
        Ok(Arc::new(Cast::new(casting, Arc::clone(&self.counter))?))
    }

    /// A limit on costs that is none, or that nobody can hold, is an error before anything is asked.
    pub(crate) fn check_costs(&self, cast: &Cast) -> Result<(), RunError> {
        for agent in cast.casting.agents.values() {
            let limit = agent.limits.max_cost_usd.unwrap_or_default();
            if !limit.is_finite() || limit < 0.0 {
                let field = format!("agents.{}.limits.maxCostUsd", agent.name);
                let problem =
                    format!("{limit} is no amount: write dollars, as 0.5, or 0 for no limit");
                return Err(InvalidConfig::new(field, problem).into());
            }
            for model in agent.models() {
                self.must_have_price(agent, model)?;
            }
        }
        Ok(())
    }

    /// Whether an agent may ask a model: what it costs must be known where there is a limit on that.
    pub(crate) fn must_have_price(
        &self,
        agent: &AgentConfig,
        model: &str,
    ) -> Result<(), InvalidConfig> {
        if agent.resolved_limits().max_cost_usd.is_none() {
            return Ok(());
        }
        let field = format!("agents.{}.limits.maxCostUsd", agent.name);
        let Some(costs) = &self.costs else {
            return Err(InvalidConfig::new(field, "needs a cost estimator, and there is none"));
        };
        if costs.cost(model, &throughline_core::Usage::default()).is_none() {
            let problem = format!("cannot be held: there is no price for {model}");
            return Err(InvalidConfig::new(field, problem));
        }
        Ok(())
    }

    async fn must_be_over(&self, tenant: &Tenant, run: &LogId) -> Result<(), RunError> {
        let head = self.store.log(tenant, run).await?;
        let status = head.and_then(|head| head.status);
        match status {
            Some(status) if matches!(&*status, "running" | "waiting") => {
                Err(RunError::Busy { run: run.0.clone(), status })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) async fn head(&self, tenant: &Tenant, run: &LogId) -> Result<LogHead, RunError> {
        let head = self.store.log(tenant, run).await?;
        let missing = || StoreError::NotFound { what: "run", name: run.0.clone() };
        Ok(head.filter(|head| !is_inbox(&head.log)).ok_or_else(missing)?)
    }

    /// The secret of a Thread, from which the envelopes of plain thoughts get their nonces.
    pub(crate) fn thread_secret(&self, thread: &LogId) -> ThreadSecret {
        ThreadSecret::new(*blake3::keyed_hash(&self.secret, thread.0.as_bytes()).as_bytes())
    }
}

/// The log in which others leave a word for whoever holds the run.
pub(crate) fn inbox(run: &LogId) -> LogId {
    LogId::from(format!("{run}.inbox"))
}

/// Whether a log is one in which others leave a word for a run, and no run itself.
pub fn is_inbox(log: &LogId) -> bool {
    log.0.ends_with(".inbox")
}

/// The appends that open the logs of a run.
pub(crate) fn openings(run: &LogId, thread: &LogId) -> [Append; 2] {
    let opening = || LogOpening::run(thread.clone());
    [Append::to(run.clone()).opening(opening()), Append::to(inbox(run)).opening(opening())]
}

/// Whether a record holds an Item.
pub(crate) fn is_item(kind: &str) -> bool {
    kind == kind::ITEM
}
