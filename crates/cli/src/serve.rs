//! `throughline serve`: the gateway, in the foreground.

pub(crate) mod directory;
mod keyring;
mod lines;
mod welcome;

use std::io;
use std::sync::Arc;

use anyhow::Context as _;
use throughline_agent::Watcher;
use throughline_codec::Catalog;
use throughline_core::Upstream;
use throughline_provider::Http;
use throughline_server::{
    AgentApi, Claims, Gateway, Level, Limits, Operations, Replay, ReplayMode, Traces,
};
use throughline_store::{Durability, Journal, open};
use tokio::net::TcpListener;

use crate::config::{self, Capture, Config, LogLevel, Server};
use crate::failure::Failure;
use crate::options::Serve;
use crate::prices::PriceTable;
use crate::store::{Missing, Signals, how_to_open, not_opened, without_password};
use crate::text;
use crate::tracing::{Shown, Traced};

use self::directory::{Phonebook, endpoints};
use self::keyring::StoreKeys;
use self::lines::Lines;
use self::welcome::Admits;

pub(crate) fn run(options: &Serve) -> Result<(), Failure> {
    let config = config::load(options.at.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("the gateway cannot be started")?.block_on(serve(options, config))
}

async fn serve(options: &Serve, mut config: Config) -> Result<(), Failure> {
    config.server.listen = options.listen.unwrap_or(config.server.listen);
    config.server.allow_open |= options.allow_open;
    config.server.log = options.log.unwrap_or(config.server.log);
    let (url, mut how) = how_to_open(&options.at, Missing::IsMade)?;
    how.durability = match config.gateway.capture {
        Capture::Durable => Durability::Durable,
        Capture::Relaxed => Durability::Relaxed,
    };
    let journal = open(&url, &how).await.map_err(|error| not_opened(error, &url))?;
    let served = answer(&config, &journal, &without_password(&url)).await;
    let closed = journal.close().await.map_err(|error| not_opened(error, &url));
    served.and(closed)
}

async fn answer(config: &Config, journal: &Journal, store: &str) -> Result<(), Failure> {
    let Server { listen, allow_open, log } = config.server;
    let has_keys = journal.has_api_keys().await.context("the keys cannot be read")?;
    if !listen.ip().is_loopback() && !has_keys && !allow_open {
        return Err(Failure::Usage(format!(
            "{listen} is open to other machines, and there are no keys: make one with \
             `throughline keys create`, or say --allow-open"
        )));
    }
    let listener = TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{listen} is in use: choose another with --listen, or port 0 for any that is free"
        ),
        _ => anyhow::Error::new(error).context(format!("{listen} cannot be listened on")),
    })?;
    let address = listener.local_addr().context("the address cannot be told")?;
    let simulator = throughline_sim::start(throughline_sim::Options::default()).await;
    let simulator = simulator.context("the simulators cannot be started")?;
    let catalog = Arc::new(Catalog::builtin().clone());
    let endpoints = endpoints(&config.routes, &config.gateway.timeouts, &catalog, &simulator.url());
    let endpoints = endpoints.map_err(|error| Failure::BadData(error.to_string()))?;
    let upstream = Http::new(endpoints, Arc::new(now));
    let upstream = upstream.map_err(|error| Failure::BadData(error.to_string()))?;
    let limits = limits(&config.gateway);
    let lines = Arc::new(Lines::new(level(log)));
    let prices = Arc::new(PriceTable::with(config.prices.clone()));
    let told = Arc::<Lines>::clone(&lines);
    let keyring_log = Arc::<Lines>::clone(&lines);
    let operations = Operations::new(Arc::new(journal.clone()), prices, told, limits);
    let mut operations = operations.context("the gateway cannot be started")?;
    let traced = Traced::of(&config.tracing, journal)?;
    if let Some(traced) = &traced {
        operations = operations.traced(Arc::clone(traced) as Arc<dyn Traces>);
    }
    let claims = Claims::new(journal.derived_key("claims"));
    let replay = Replay::new(Arc::new(journal.clone()), claims);
    let replay = match config.gateway.capture {
        Capture::Durable => replay,
        Capture::Relaxed => replay.relaxed(),
    };
    let upstream: Arc<dyn Upstream> = Arc::new(upstream);
    let tools = config.tools.clone().open().await;
    let tools = tools.map_err(|error| Failure::Outside(anyhow::anyhow!(error)))?;
    let mut runner = crate::agent::runner(config, journal, Arc::clone(&upstream)).with_tools(tools);
    runner.lease = config.agents.lease;
    runner.watcher = traced.clone().map(|traced| traced as Arc<dyn Watcher>);
    let mut agents = AgentApi::new(runner)
        .with_archive(Arc::new(journal.clone()))
        .with_traces(Arc::new(Shown(journal.clone())));
    if let Some(policy) = &config.redaction {
        agents = agents.with_redaction(policy.clone());
    }
    let gateway = Gateway {
        replay: Arc::new(replay),
        upstream,
        directory: Arc::new(Phonebook::new(config.routes.clone(), Arc::clone(&catalog))),
        catalog,
        mode: mode(config.gateway.replay),
        prefix: config.gateway.prefix,
        keyring: Arc::new(StoreKeys::new(journal.clone(), keyring_log)),
        allow_open,
        body_limit: usize::try_from(config.gateway.body_limit).unwrap_or(usize::MAX),
        depth_limit: config.gateway.depth_limit,
        operations: Arc::new(operations),
        agents: Some(Arc::new(agents)),
    };
    let open = match (has_keys, allow_open) {
        (true, _) => Admits::Keys,
        (false, true) => Admits::Everybody,
        (false, false) => Admits::ThisMachine,
    };
    text::write_styled(&welcome::welcome(config, address, store, open))?;
    let mut signals = Signals::new().context("signals cannot be waited for")?;
    let mut again = Signals::new().context("signals cannot be waited for")?;
    // Streams may end; whoever asks twice does not wait for them.
    let hurry = async {
        again.asked_to_stop().await;
        again.asked_to_stop().await;
    };
    throughline_server::serve(gateway, listener, signals.asked_to_stop(), hurry).await;
    if let Some(traced) = traced {
        traced.finish().await;
    }
    lines.end();
    simulator.stop().await;
    Ok(())
}

fn limits(gateway: &config::Gateway) -> Limits {
    Limits {
        streams: usize::try_from(gateway.max_streams).unwrap_or(usize::MAX),
        headers: gateway.timeouts.client_headers,
        body: gateway.timeouts.client_body,
        slow_reader: gateway.timeouts.slow_reader,
        capture: gateway.timeouts.capture,
        shutdown: gateway.timeouts.shutdown,
    }
}

fn level(level: LogLevel) -> Option<Level> {
    match level {
        LogLevel::Off => None,
        LogLevel::Error => Some(Level::Error),
        LogLevel::Warn => Some(Level::Warn),
        LogLevel::Info => Some(Level::Info),
        LogLevel::Debug => Some(Level::Debug),
    }
}

fn mode(mode: config::ReplayMode) -> ReplayMode {
    match mode {
        config::ReplayMode::Observe => ReplayMode::Observe,
        config::ReplayMode::Repair => ReplayMode::Repair,
        config::ReplayMode::Enforce => ReplayMode::Enforce,
        config::ReplayMode::Off => ReplayMode::Off,
    }
}

#[expect(clippy::disallowed_methods, reason = "the cli is who reads the clock")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
