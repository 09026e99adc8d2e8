//! What `run`, `resume`, their siblings and `serve` share: a runner over the store, the configured models and the simulators.

mod declared;
mod follow;
mod hint;
mod live;
mod people;
mod pieces;
mod ports;
mod program;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use throughline_agent::{Ports, RunError, Runner, Watcher};
use throughline_codec::Catalog;
use throughline_core::{ModelError, Models, Name, RedactionPolicy, Tenant, Trouble, Upstream};
use throughline_provider::{EndpointModels, Http};
use throughline_server::Directory as _;
use throughline_sim::Simulator;
use throughline_store::{Journal, open};
use tokio::runtime::Runtime;

pub(crate) use self::declared::{Tools, declared};
pub(crate) use self::follow::{Rest, events_of, follow, last_event};
pub(crate) use self::hint::Hint;
pub(crate) use self::live::Live;
pub(crate) use self::people::{LOST, UNTOLD, answers, approvals, decisions, questions};
pub(crate) use self::ports::{Now, now};

use crate::config;
use crate::failure::Failure;
use crate::options::At;
use crate::prices::PriceTable;
use crate::serve::directory::{Phonebook, endpoints};
use crate::store::{Missing, failed, how_to_open, not_opened};
use crate::tracing::Traced;

/// How long a thread may take to end after its work: one may still wait for somebody to type.
const PATIENCE: Duration = Duration::from_millis(500);

/// Everything that runs need.
pub(crate) struct House {
    pub(crate) runner: Runner,
    pub(crate) journal: Journal,
    pub(crate) tenant: Tenant,
    /// What nobody is shown.
    pub(crate) policy: RedactionPolicy,
    /// The simulators, which stop when this is dropped.
    _simulator: Option<Simulator>,
    traced: Option<Arc<Traced>>,
}

/// Who is asked in a house.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The configured models and the simulators.
    Models,
    /// Nobody: only words are left.
    Nobody,
}

/// Opens the store, works with runs in it, and closes it whatever came of it.
pub(crate) fn with<T>(
    at: &At,
    asks: Asks,
    tools: Tools,
    work: impl AsyncFnOnce(&mut House) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("the runs' threads cannot be started")?;
    let worked = runtime.block_on(async {
        let mut house = House::open(at, asks, tools).await?;
        let worked = work(&mut house).await;
        if let Some(traced) = &house.traced {
            traced.finish().await;
        }
        let closed = house.journal.close().await;
        worked.and_then(|done| closed.map(|()| done).map_err(|error| house.failed(error.into())))
    });
    close(runtime);
    worked
}

fn close(runtime: Runtime) {
    runtime.shutdown_timeout(PATIENCE);
}

impl House {
    async fn open(at: &At, asks: Asks, tools: Tools) -> Result<Self, Failure> {
        let missing = if asks == Asks::Models { Missing::IsMade } else { Missing::Fails };
        let (url, options) = how_to_open(at, missing)?;
        let journal = open(&url, &options).await.map_err(|error| not_opened(error, &url))?;
        let mut traced = None;
        let (mut runner, simulator) = match asks {
            Asks::Nobody => {
                let store = Arc::new(journal.clone());
                (Runner::new(store, Arc::new(Nobody), ports_of(&journal)), None)
            }
            Asks::Models => {
                let config = config::load(at.config.as_deref())?;
                let simulator = throughline_sim::start(throughline_sim::Options::default()).await;
                let simulator = simulator.context("the simulators cannot be started")?;
                let upstream = upstream(&config, &simulator)?;
                let policy = config.redaction.clone().unwrap_or_default();
                traced = Traced::of(&config.tracing, policy, &journal)?;
                (self::runner(&config, &journal, Arc::new(upstream)), Some(simulator))
            }
        };
        runner.watcher = traced.clone().map(|traced| traced as Arc<dyn Watcher>);
        let runner = runner.with_tools(tools.open().await?);
        let tenant = Tenant::from(at.tenant.as_str());
        let policy = config::redaction(at.config.as_deref())?;
        Ok(Self { runner, journal, tenant, policy, _simulator: simulator, traced })
    }

    /// What a failure of a run means here: who is to do what.
    pub(crate) fn failed(&self, error: RunError) -> Failure {
        match error {
            RunError::Store(error) => failed(error, &self.tenant),
            RunError::Config(error) => Failure::BadData(format!("the agent is not right: {error}")),
            RunError::Damaged { .. } => {
                Failure::BadData(format!("{error}; `throughline verify` says where"))
            }
            RunError::Refused(_) | RunError::Model(_) | RunError::Busy { .. } => {
                Failure::Usage(error.to_string())
            }
        }
    }
}

fn phonebook(config: &config::Config) -> Phonebook {
    Phonebook::new(config.routes.clone(), Arc::new(Catalog::builtin().clone()))
}

/// The endpoints that the configuration knows, and the simulated ones.
fn upstream(config: &config::Config, simulator: &Simulator) -> Result<Http, Failure> {
    let catalog = Catalog::builtin();
    let lines = endpoints(&config.routes, &config.gateway.timeouts, catalog, &simulator.url());
    let lines = lines.map_err(|error| Failure::BadData(error.to_string()))?;
    let http = Http::new(lines, Arc::new(ports::now));
    http.map_err(|error| Failure::BadData(error.to_string()))
}

/// What every runner of a store has: whichever process goes on with a run has the same.
fn ports_of(journal: &Journal) -> Ports {
    Ports::usual(journal.derived_key("agent threads"))
}

/// A runner over a store, which asks the models that the configuration reaches, at its prices.
pub(crate) fn runner(
    config: &config::Config,
    journal: &Journal,
    upstream: Arc<dyn Upstream>,
) -> Runner {
    let models = models(config, upstream);
    let mut runner = Runner::new(Arc::new(journal.clone()), Arc::new(models), ports_of(journal));
    let table = PriceTable::with(config.prices.clone());
    runner.costs = Some(Arc::new(ports::Costs { table, book: phonebook(config) }));
    runner
}

/// The models that the configuration reaches.
fn models(config: &config::Config, upstream: Arc<dyn Upstream>) -> EndpointModels {
    let (book, catalog) = (phonebook(config), Catalog::builtin());
    EndpointModels::new(upstream, move |model| {
        let unknown = |message: String| ModelError::new(Trouble::Other, message);
        let reached = book.reach(model).map_err(unknown)?;
        // There are no callers here whose keys could go along.
        let (without, with): (Vec<_>, Vec<_>) = reached.into_iter().partition(|one| one.is_callers);
        if let (Some(missing), true) = (without.first(), with.is_empty()) {
            let variable = missing.provider.key_env.as_deref().map(|name| format!("set {name}"));
            let advice = variable.unwrap_or_else(|| "configure one in throughline.toml".to_owned());
            return Err(unknown(format!("there is no key for {}: {advice}", missing.endpoint)));
        }
        let found = with.into_iter().map(|one| {
            let target = catalog.target(&one.provider, &one.model, &one.account);
            (one.endpoint, target)
        });
        Ok(found.collect())
    })
}

/// For those who only leave a word.
struct Nobody;

impl Models for Nobody {
    fn model(&self, name: &str) -> Result<Arc<dyn throughline_core::Model>, ModelError> {
        let message = Name::from(format!("nobody asks {name} here"));
        Err(ModelError::new(Trouble::Other, message))
    }
}
