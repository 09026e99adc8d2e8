//! Setup shared by `serve` and the agent commands, such as `run` and `resume`: a runner over the
//! store, the configured models and the simulators.

mod accounts;
mod agent_file;
mod declaration;
mod event_printer;
mod follow;
mod hint;
mod program;
mod prompts;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use throughline_agent::{Ports, RunCommand, RunError, Runner, State, Watcher};
use throughline_core::{
    CostEstimator, LogId, Model, ModelError, ModelErrorKind, ModelRegistry, Record, Store as _,
    Tenant, Upstream, Usage,
};
use throughline_provider::{EndpointModels, Http};
use throughline_server::{ModelRouter as _, Prices as _, RouteTarget, Telemetry};
use throughline_sim::{Script, Simulator};
use throughline_spec::RedactionPolicy;
use throughline_store::{Journal, open};
use tokio::runtime::Builder;

use self::accounts::{PooledUpstream, account_order};
pub(crate) use self::declaration::{Tools, run_spec};
pub(crate) use self::event_printer::{EventPrinter, plan_mark, tool_mark};
pub(crate) use self::follow::{FollowedRun, events_of, last_event};
pub(crate) use self::hint::CommandHints;
pub(crate) use self::prompts::{
    REJECT_EFFECT, UNKNOWN_OUTCOME, approvals, option_lines, parse_answers, prompt_decisions,
    questions,
};

use crate::args::StoreArgs;
use crate::config::prices::PriceTable;
use crate::config::{self, Config};
use crate::credentials::SharedCredentials;
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::router::{ConfigRouter, endpoints};
use crate::store::{IfMissing, open_failure, open_options, runtime, store_failure};
use crate::tracing::ProcessTraces;

/// Maximum time that shutdown waits for blocking threads, one of which may still be reading
/// keyboard input.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(500);

/// Number of records that are read from the store at a time.
const PAGE: u32 = 512;

/// Store, runner and settings that agent commands use.
pub(crate) struct AgentContext {
    pub(crate) runner: Runner,
    pub(crate) journal: Journal,
    pub(crate) tenant: Tenant,
    pub(crate) policy: RedactionPolicy,
    /// Stops the simulators when dropped.
    _simulator: Option<Simulator>,
    traces: Option<Arc<ProcessTraces>>,
}

/// Models that an agent command can reach.
pub(crate) enum ModelAccess {
    /// The configured models and the simulators. The runner also gets these tools.
    Models(Tools),
    /// No models, for CLI commands that only send a command to a run.
    NoModels,
}

/// Opens the store, calls `work`, and closes the store even if `work` fails.
pub(crate) fn with<T>(
    at: &StoreArgs,
    access: ModelAccess,
    work: impl AsyncFnOnce(&mut AgentContext) -> Result<T>,
) -> Result<T> {
    let runtime = runtime(Builder::new_multi_thread())?;
    let result = runtime.block_on(async {
        let mut context = AgentContext::open(at, access).await?;
        let result = work(&mut context).await;
        if let Some(traces) = &context.traces {
            traces.finish().await;
        }
        let closed = context.run(context.journal.close()).await;
        result.and_then(|value| closed.map(|()| value))
    });
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    result
}

impl AgentContext {
    async fn open(at: &StoreArgs, access: ModelAccess) -> Result<Self> {
        let missing = match access {
            ModelAccess::Models(_) => IfMissing::IsMade,
            ModelAccess::NoModels => IfMissing::Fails,
        };
        let (url, options) = open_options(at, missing)?;
        let journal = open(&url, &options).await.map_err(|error| open_failure(error, &url))?;
        let config = config::load(at.config.as_deref())?;
        let policy = config.redaction.clone().unwrap_or_default();
        let (mut runner, simulator, traces) = match access {
            ModelAccess::NoModels => {
                let store = Arc::new(journal.clone());
                (Runner::new(store, Arc::new(NoModels), store_ports(&journal)), None, None)
            }
            ModelAccess::Models(tools) => {
                if let Some(warning) = config.catalog.warning() {
                    text::note(&warning);
                }
                let simulator = simulator(&config, Script::default()).await?;
                let credentials = SharedCredentials::default();
                let upstream = Arc::new(upstream(&config, &simulator, &credentials)?);
                let traces = ProcessTraces::new(&config.tracing, policy.clone(), &journal, true)?;
                let runner = self::runner(&config, &journal, upstream);
                (runner.with_tools(tools.open().await?), Some(simulator), traces)
            }
        };
        runner.watcher = traces.clone().map(|traces| traces as Arc<dyn Watcher>);
        let tenant = Tenant::from(at.tenant.as_str());
        Ok(Self { runner, journal, tenant, policy, _simulator: simulator, traces })
    }

    /// Waits for an operation on the runner or the store, and converts its error to a failure of
    /// the CLI command.
    pub(crate) async fn run<T, E: Into<RunError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        work.await.map_err(|error| self.to_failure(error.into()))
    }

    pub(crate) async fn state(&self, run: &LogId) -> Result<State> {
        self.run(self.runner.state(&self.tenant, run)).await
    }

    /// Sends a command to the process that owns a run.
    pub(crate) async fn send(&self, run: &LogId, command: RunCommand) -> Result<()> {
        self.run(Box::pin(self.runner.send_command(&self.tenant, run, command))).await
    }

    /// Returns the next page of log records after sequence number `seen`; empty at the end of the
    /// log.
    pub(crate) async fn records_after(&self, log: &LogId, seen: u64) -> Result<Vec<Record>> {
        self.run(self.journal.read(&self.tenant, log, seen, PAGE)).await
    }

    pub(crate) async fn records(&self, log: &LogId) -> Result<Vec<Record>> {
        let mut records = self.records_after(log, 0).await?;
        while let Some(last) = records.last() {
            let page = self.records_after(log, last.seq).await?;
            if page.is_empty() {
                break;
            }
            records.extend(page);
        }
        Ok(records)
    }

    /// Converts a run error to a failure with the matching exit code.
    fn to_failure(&self, error: RunError) -> Failure {
        match error {
            RunError::Store(error) => store_failure(error, &self.tenant),
            RunError::Config(error) => {
                Failure::BadData(format!("the agent configuration is invalid: {error}"))
            }
            RunError::Damaged { .. } => {
                Failure::BadData(format!("{error}; run `throughline verify` to locate the problem"))
            }
            RunError::Refused(_)
            | RunError::Model(_)
            | RunError::Busy { .. }
            | RunError::Erased { .. } => Failure::Usage(error.to_string()),
        }
    }
}

/// Starts the simulators with the catalog of the configuration.
pub(crate) async fn simulator(config: &Config, script: Script) -> Result<Simulator> {
    let catalog = config.catalog.shared.clone();
    let options = throughline_sim::Options { catalog, script, ..Default::default() };
    let simulator = throughline_sim::start(options).await;
    Ok(simulator.context("cannot start the simulators")?)
}

/// Creates the router for the configured routes.
pub(crate) fn config_router(config: &Config) -> ConfigRouter {
    ConfigRouter::new(config.routes.clone(), config.catalog.shared.clone())
}

/// Builds the HTTP client for the configured and the simulated endpoints.
pub(crate) fn upstream(
    config: &Config,
    simulator: &Simulator,
    credentials: &SharedCredentials,
) -> Result<Http> {
    let http = endpoints(config, &simulator.url(), credentials)
        .and_then(|all| Http::new(all, Arc::new(crate::clock::now)));
    http.map_err(|error| Failure::BadData(error.to_string()))
}

/// Ports derived from the store, so any process can resume any run.
fn store_ports(journal: &Journal) -> Ports {
    Ports::with_system_clock(journal.derived_key("agent threads"))
}

/// Creates a runner over a store with the configured models and prices.
pub(crate) fn runner(config: &Config, journal: &Journal, upstream: Arc<dyn Upstream>) -> Runner {
    let router = Arc::new(config_router(config));
    runner_with(Arc::new(AgentModels::new(config, router, upstream, None)), journal)
}

/// Creates a runner over a store with these models.
pub(crate) fn runner_with(models: Arc<AgentModels>, journal: &Journal) -> Runner {
    let store = Arc::new(journal.clone());
    let mut runner = Runner::new(store, Arc::clone(&models) as _, store_ports(journal));
    runner.costs = Some(models);
    runner
}

/// The models of agents, and their prices. A reload of the configuration replaces the models for
/// new calls.
pub(crate) struct AgentModels {
    current: RwLock<Arc<ConfiguredModels>>,
    /// Counts and logs cooldowns of accounts; `None` outside of a server.
    telemetry: Option<Arc<Telemetry>>,
}

struct ConfiguredModels {
    models: EndpointModels,
    router: Arc<ConfigRouter>,
    prices: PriceTable,
}

impl ConfiguredModels {
    fn new(config: &Config, router: Arc<ConfigRouter>, upstream: PooledUpstream) -> Self {
        let prices = PriceTable::with(config.prices.clone());
        Self { models: models(config, Arc::clone(&router), upstream), router, prices }
    }
}

impl AgentModels {
    /// Creates the models of a configuration. A gateway with the same `router` shares its account
    /// pools with the agents.
    pub(crate) fn new(
        config: &Config,
        router: Arc<ConfigRouter>,
        upstream: Arc<dyn Upstream>,
        telemetry: Option<Arc<Telemetry>>,
    ) -> Self {
        let upstream = PooledUpstream::new(upstream, Arc::clone(&router), telemetry.clone());
        let current = Arc::new(ConfiguredModels::new(config, router, upstream));
        Self { current: RwLock::new(current), telemetry }
    }

    /// Replaces the models and their prices. Calls in progress keep their models.
    pub(crate) fn replace(
        &self,
        config: &Config,
        router: Arc<ConfigRouter>,
        upstream: Arc<dyn Upstream>,
    ) {
        let telemetry = self.telemetry.clone();
        let upstream = PooledUpstream::new(upstream, Arc::clone(&router), telemetry);
        let new = Arc::new(ConfiguredModels::new(config, router, upstream));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn current(&self) -> Arc<ConfiguredModels> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ModelRegistry for AgentModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.current().models.model(name)
    }
}

impl CostEstimator for AgentModels {
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        let current = self.current();
        let target = current.router.reach(model).ok()?.into_iter().next()?;
        let price = current.prices.price(&target.charged_provider(), &target.model)?;
        // `Price::of` returns millionths of a micro-dollar.
        #[expect(clippy::cast_precision_loss, reason = "a sum of dollars needs fewer digits")]
        let cost = price.of(usage) as f64;
        Some(cost / 1e12)
    }
}

/// Resolves model names with the configured routes.
fn models(config: &Config, router: Arc<ConfigRouter>, upstream: PooledUpstream) -> EndpointModels {
    let catalog = config.catalog.shared.clone();
    let orderer = Arc::clone(&router);
    let models = EndpointModels::new(Arc::new(upstream), move |model| {
        let unknown = |message: String| ModelError::new(ModelErrorKind::Other, message);
        // Agent commands have no HTTP caller, so endpoints that need a caller's key cannot be used.
        let (unusable, usable): (Vec<_>, Vec<_>) =
            router.reach(model).map_err(unknown)?.into_iter().partition(|target| target.is_callers);
        if let (Some(missing), true) = (unusable.first(), usable.is_empty()) {
            let variable = missing.provider.key_env.as_deref().map(|name| format!("set {name}"));
            let advice = variable.unwrap_or_else(|| "configure one in throughline.toml".to_owned());
            return Err(unknown(format!("no API key for {}; {advice}", missing.endpoint)));
        }
        let catalog = catalog.current();
        let target =
            |to: RouteTarget| (to.endpoint, catalog.target(&to.provider, &to.model, &to.account));
        let accounts = usable.into_iter().flat_map(|target| match router.pool(&target) {
            Some(pool) => target.at_accounts(&pool),
            None => vec![target],
        });
        Ok(accounts.map(target).collect())
    });
    models.with_order(move |call, models| account_order(&orderer, call, models))
}

/// Rejects every model, for CLI commands that only send a command to a run.
struct NoModels;

impl ModelRegistry for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let message = format!("this command does not call models, so `{name}` is unavailable");
        Err(ModelError::new(ModelErrorKind::Other, message))
    }
}
