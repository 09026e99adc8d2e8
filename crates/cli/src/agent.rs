//! Shared setup of `run`, `resume`, related commands and `serve`: a runner over the store, the
//! configured models and the simulators.

mod declaration;
mod event_printer;
mod follow;
mod hint;
mod ports;
mod program;
mod prompts;
mod stream_redactor;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use throughline_agent::{Ports, RunError, Runner, Watcher};
use throughline_codec::Catalog;
use throughline_core::{ModelError, ModelErrorKind, ModelRegistry, Tenant, Upstream};
use throughline_json::Name;
use throughline_provider::{EndpointModels, Http};
use throughline_server::ModelRouter as _;
use throughline_sim::Simulator;
use throughline_spec::RedactionPolicy;
use throughline_store::{Journal, open};
use tokio::runtime::Runtime;

pub(crate) use self::declaration::{Tools, run_spec};
pub(crate) use self::event_printer::EventPrinter;
pub(crate) use self::follow::{FollowOutcome, events_of, follow, last_event};
pub(crate) use self::hint::CommandHints;
pub(crate) use self::prompts::{
    REJECT_EFFECT, UNKNOWN_OUTCOME, approvals, parse_answers, prompt_decisions, questions,
};

use crate::args::StoreArgs;
use crate::config;
use crate::config::prices::PriceTable;
use crate::print::failure::Failure;
use crate::router::{ConfigRouter, endpoints};
use crate::store::{IfMissing, open_failure, open_options, store_failure};
use crate::tracing::ProcessTraces;

/// Grace period for blocking threads at shutdown: one may still wait for keyboard input.
const PATIENCE: Duration = Duration::from_millis(500);

/// Store, runner and settings that agent commands use.
pub(crate) struct AgentContext {
    pub(crate) runner: Runner,
    pub(crate) journal: Journal,
    pub(crate) tenant: Tenant,
    /// Redaction of all output.
    pub(crate) policy: RedactionPolicy,
    /// Stops the simulators when dropped.
    _simulator: Option<Simulator>,
    traced: Option<Arc<ProcessTraces>>,
}

/// Models that an agent command can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelAccess {
    /// The configured models and the simulators.
    Models,
    /// None: the command only sends commands to runs.
    NoModels,
}

/// Opens the store, calls `work`, and closes the store on every outcome.
pub(crate) fn with<T>(
    at: &StoreArgs,
    asks: ModelAccess,
    tools: Tools,
    work: impl AsyncFnOnce(&mut AgentContext) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("the async runtime cannot be started")?;
    let worked = runtime.block_on(async {
        let mut house = AgentContext::open(at, asks, tools).await?;
        let worked = work(&mut house).await;
        if let Some(traced) = &house.traced {
            traced.finish().await;
        }
        let closed = house.journal.close().await;
        worked
            .and_then(|done| closed.map(|()| done).map_err(|error| house.to_failure(error.into())))
    });
    close(runtime);
    worked
}

fn close(runtime: Runtime) {
    runtime.shutdown_timeout(PATIENCE);
}

impl AgentContext {
    async fn open(at: &StoreArgs, asks: ModelAccess, tools: Tools) -> Result<Self, Failure> {
        let missing =
            if asks == ModelAccess::Models { IfMissing::IsMade } else { IfMissing::Fails };
        let (url, options) = open_options(at, missing)?;
        let journal = open(&url, &options).await.map_err(|error| open_failure(error, &url))?;
        let mut traced = None;
        let (mut runner, simulator) = match asks {
            ModelAccess::NoModels => {
                let store = Arc::new(journal.clone());
                (Runner::new(store, Arc::new(NoModels), store_ports(&journal)), None)
            }
            ModelAccess::Models => {
                let config = config::load(at.config.as_deref())?;
                let simulator = throughline_sim::start(throughline_sim::Options::default()).await;
                let simulator = simulator.context("the simulators cannot be started")?;
                let upstream = upstream(&config, &simulator)?;
                let policy = config.redaction.clone().unwrap_or_default();
                traced = ProcessTraces::new(&config.tracing, policy, &journal)?;
                (self::runner(&config, &journal, Arc::new(upstream)), Some(simulator))
            }
        };
        runner.watcher = traced.clone().map(|traced| traced as Arc<dyn Watcher>);
        let runner = runner.with_tools(tools.open().await?);
        let tenant = Tenant::from(at.tenant.as_str());
        let policy = config::redaction(at.config.as_deref())?;
        Ok(Self { runner, journal, tenant, policy, _simulator: simulator, traced })
    }

    /// Maps a run error to the failure and exit code of this program.
    pub(crate) fn to_failure(&self, error: RunError) -> Failure {
        match error {
            RunError::Store(error) => store_failure(error, &self.tenant),
            RunError::Config(error) => {
                Failure::BadData(format!("the agent configuration is invalid: {error}"))
            }
            RunError::Damaged { .. } => {
                Failure::BadData(format!("{error}; `throughline verify` locates the problem"))
            }
            RunError::Refused(_) | RunError::Model(_) | RunError::Busy { .. } => {
                Failure::Usage(error.to_string())
            }
        }
    }
}

fn config_router(config: &config::Config) -> ConfigRouter {
    ConfigRouter::new(config.routes.clone(), Arc::new(Catalog::builtin().clone()))
}

/// Builds the HTTP client for the configured and the simulated endpoints.
pub(crate) fn upstream(config: &config::Config, simulator: &Simulator) -> Result<Http, Failure> {
    let catalog = Catalog::builtin();
    let lines = endpoints(&config.routes, &config.gateway.timeouts, catalog, &simulator.url());
    let lines = lines.map_err(|error| Failure::BadData(error.to_string()))?;
    let http = Http::new(lines, Arc::new(crate::clock::now));
    http.map_err(|error| Failure::BadData(error.to_string()))
}

/// Ports derived from the store, so any process can resume any run.
fn store_ports(journal: &Journal) -> Ports {
    Ports::with_system_clock(journal.derived_key("agent threads"))
}

/// Creates a runner over a store with the configured models and prices.
pub(crate) fn runner(
    config: &config::Config,
    journal: &Journal,
    upstream: Arc<dyn Upstream>,
) -> Runner {
    let models = models(config, upstream);
    let mut runner = Runner::new(Arc::new(journal.clone()), Arc::new(models), store_ports(journal));
    let table = PriceTable::with(config.prices.clone());
    runner.costs = Some(Arc::new(ports::PriceEstimator { table, book: config_router(config) }));
    runner
}

/// Resolves model names with the configured routes.
fn models(config: &config::Config, upstream: Arc<dyn Upstream>) -> EndpointModels {
    let (book, catalog) = (config_router(config), Catalog::builtin());
    EndpointModels::new(upstream, move |model| {
        let unknown = |message: String| ModelError::new(ModelErrorKind::Other, message);
        let reached = book.reach(model).map_err(unknown)?;
        // No callers exist here, so endpoints that need a caller's key cannot be used.
        let (without, with): (Vec<_>, Vec<_>) = reached.into_iter().partition(|one| one.is_callers);
        if let (Some(missing), true) = (without.first(), with.is_empty()) {
            let variable = missing.provider.key_env.as_deref().map(|name| format!("set {name}"));
            let advice = variable.unwrap_or_else(|| "configure one in throughline.toml".to_owned());
            return Err(unknown(format!("no API key for {}; {advice}", missing.endpoint)));
        }
        let found = with.into_iter().map(|one| {
            let target = catalog.target(&one.provider, &one.model, &one.account);
            (one.endpoint, target)
        });
        Ok(found.collect())
    })
}

/// Rejects every model, for commands that only send commands to runs.
struct NoModels;

impl ModelRegistry for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn throughline_core::Model>, ModelError> {
        let message =
            Name::from(format!("this command does not call models, so `{name}` is unavailable"));
        Err(ModelError::new(ModelErrorKind::Other, message))
    }
}
