//! `throughline serve`: runs the gateway in the foreground.

mod keyring;
mod lines;
mod welcome;

use std::sync::Arc;

use anyhow::Context as _;
use throughline_agent::Watcher;
use throughline_core::Upstream;
use throughline_json::{self as json, Json, SizeLimits};
use throughline_replay::{Claims, Replay};
use throughline_server::{
    AgentApi, CallTraces, Gateway, Level, Limits, Log, Passthrough, RunCaps, SimulatorLedger,
    Telemetry,
};
use throughline_sim::{LedgerReader, Script};
use throughline_store::{Durability, Journal, open};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::args::Serve;
use crate::catalog_watch::{CatalogChange, watch};
use crate::cmd::sim::load_script;
use crate::config::prices::PriceTable;
use crate::config::{self, Config, ServerSettings};
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::store::{IfMissing, Signals, open_failure, open_options, runtime, without_password};
use crate::tracing::{ConsoleTraces, ProcessTraces};

use self::keyring::StoreKeys;
use self::lines::JsonLog;
use self::welcome::AccessMode;
use crate::router::ConfigRouter;

pub(crate) fn run(options: &Serve) -> Result<()> {
    let config = config::load(options.at.config.as_deref())?;
    let script = options.script.as_deref().map(load_script).transpose()?.unwrap_or_default();
    runtime(Builder::new_multi_thread())?.block_on(serve(options, config, script))
}

async fn serve(options: &Serve, mut config: Config, script: Script) -> Result<()> {
    config.server.listen = options.listen.unwrap_or(config.server.listen);
    config.server.allow_open |= options.allow_open;
    config.server.log = options.log.unwrap_or(config.server.log);
    let (url, mut how) = open_options(&options.at, IfMissing::IsMade)?;
    how.durability = config.gateway.capture;
    let journal = open(&url, &how).await.map_err(|error| open_failure(error, &url))?;
    let served = answer(&config, &journal, &without_password(&url), script).await;
    let closed = journal.close().await.map_err(|error| open_failure(error, &url));
    served.and(closed)
}

async fn answer(config: &Config, journal: &Journal, store: &str, script: Script) -> Result<()> {
    let ServerSettings { listen, allow_open, log, ref hosts } = config.server;
    let patterns = config.gateway.passthrough.iter().map(|pattern| &**pattern);
    let passthrough = Passthrough::new(patterns);
    let passthrough = passthrough.map_err(|error| Failure::BadData(error.to_string()))?;
    let has_keys = journal.has_api_keys().await.context("cannot read the API keys")?;
    if !listen.ip().is_loopback() && !has_keys && !allow_open {
        return Err(Failure::Usage(format!(
            "{listen} is reachable from other machines, and there are no API keys: create a key \
             with `throughline keys create`, or use --allow-open"
        )));
    }
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| Failure::from_listen(listen, &error))?;
    let address =
        listener.local_addr().context("cannot determine the address the server listens on")?;
    let simulator = crate::agent::simulator(config, script).await?;
    let catalog = config.catalog.shared.clone();
    let upstream: Arc<dyn Upstream> = Arc::new(crate::agent::upstream(config, &simulator)?);
    let limits = limits(&config.gateway);
    let log = Arc::new(JsonLog::new(log));
    let shared_log: Arc<dyn Log> = Arc::<JsonLog>::clone(&log);
    let prices = Arc::new(PriceTable::with(config.prices.clone()));
    let operations =
        Telemetry::new(Arc::new(journal.clone()), prices, Arc::clone(&shared_log), limits);
    let operations = operations.context("cannot start the gateway")?;
    let mut operations = operations.with_store_policy(config.gateway.store);
    let policy = config.redaction.clone().unwrap_or_default();
    let traces = ProcessTraces::new(&config.tracing, policy, journal, false)?;
    if let Some(traces) = &traces {
        operations = operations.with_traces(Arc::clone(traces) as Arc<dyn CallTraces>);
    }
    let claims = Claims::new(journal.derived_key("claims"));
    let replay = Replay::new(Arc::new(journal.clone()), claims);
    let replay = match config.gateway.capture {
        Durability::Durable => replay,
        Durability::Relaxed => replay.relaxed(),
    };
    let tools = config.tools.clone().open().await;
    let tools = tools.map_err(|error| Failure::Outside(anyhow::anyhow!(error)))?;
    let mut runner = crate::agent::runner(config, journal, Arc::clone(&upstream)).with_tools(tools);
    runner.lease = config.agents.lease;
    runner.watcher = traces.clone().map(|traces| traces as Arc<dyn Watcher>);
    let caps = RunCaps {
        max_steps: config.agents.max_steps.into(),
        max_runs_per_tenant: count(config.agents.max_runs_per_tenant),
    };
    let mut agents = AgentApi::new(runner)
        .with_caps(caps)
        .with_archive(Arc::new(journal.clone()))
        .with_simulators(Arc::new(BuiltInLedger(simulator.ledger_reader())))
        .with_traces(Arc::new(ConsoleTraces(journal.clone())));
    if let Some(policy) = &config.redaction {
        agents = agents.with_redaction(policy.clone());
    }
    let routes = config.routes.clone();
    let gateway = Gateway {
        replay: Arc::new(replay),
        upstream,
        directory: Arc::new(ConfigRouter::new(routes, catalog.clone())),
        catalog,
        mode: config.gateway.replay,
        prefix: config.gateway.prefix,
        keyring: Arc::new(StoreKeys::new(journal.clone(), shared_log)),
        allow_open,
        hosts: hosts.clone(),
        passthrough,
        body_limit: usize::try_from(config.gateway.body_limit).unwrap_or(usize::MAX),
        depth_limit: config.gateway.depth_limit,
        operations: Arc::new(operations),
        redaction: config.redaction.clone().map(Arc::new),
    };
    let server = throughline_server::Server::new(gateway, Some(Arc::new(agents)));
    let open = access_mode(has_keys, allow_open);
    let url = format!("http://{address}");
    text::write_styled(&welcome::welcome(config, &url, store, open))?;
    let (mut signals, mut again) = (Signals::new()?, Signals::new()?);
    // The first signal drains open streams; a second signal stops the gateway at once.
    let hurry = async {
        again.wait_for_stop().await;
        again.wait_for_stop().await;
    };
    if let Some(error) = &config.catalog.problem {
        log_catalog(&log, &CatalogChange::Refused(error.clone()));
    }
    let watching = watch(config.catalog.clone(), |change| log_catalog(&log, &change));
    let serving = throughline_server::serve(server, listener, signals.wait_for_stop(), hurry);
    // The watcher ends only if the runtime shuts down.
    tokio::select! {
        () = serving => {}
        () = async { watching.await; std::future::pending().await } => {}
    }
    if let Some(traces) = traces {
        traces.finish().await;
    }
    log.end();
    simulator.stop().await;
    Ok(())
}

fn access_mode(has_keys: bool, allow_open: bool) -> AccessMode {
    match (has_keys, allow_open) {
        (true, _) => AccessMode::Keys,
        (false, true) => AccessMode::AnyMachine,
        (false, false) => AccessMode::ThisMachine,
    }
}

/// The ledger of the built-in simulators.
struct BuiltInLedger(LedgerReader);

impl SimulatorLedger for BuiltInLedger {
    fn ledger(&self, after: u64) -> Json {
        let ledger = serde_json::to_value(self.0.read().after(after));
        Json::from(&ledger.unwrap_or_default())
    }
}

/// Logs a change of the installed catalog.
fn log_catalog(log: &JsonLog, change: &CatalogChange) {
    let (level, event) = match change {
        CatalogChange::Updated(_) => (Level::Info, "catalog_updated"),
        CatalogChange::Removed => (Level::Warn, "catalog_removed"),
        CatalogChange::Refused(_) => (Level::Error, "catalog_refused"),
    };
    if log.wants(level) {
        let line = json::object(|o| {
            o.string("event", event).string("message", &change.to_string());
        });
        log.write(level, &line);
    }
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn limits(gateway: &config::GatewaySettings) -> Limits {
    Limits {
        streams: count(gateway.max_streams),
        sizes: SizeLimits {
            entries: count(gateway.entry_limit),
            items: count(gateway.item_limit),
            tools: count(gateway.tool_limit),
        },
        memory: gateway.max_request_memory,
        queue: gateway.timeouts.queue,
        headers: gateway.timeouts.client_headers,
        body: gateway.timeouts.client_body,
        slow_reader: gateway.timeouts.slow_reader,
        capture: gateway.timeouts.capture,
        shutdown: gateway.timeouts.shutdown,
        ..Limits::default()
    }
}
