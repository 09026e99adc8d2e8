//! `throughline serve`: runs the gateway in the foreground.

pub(crate) mod bind;
mod budget_webhook;
mod first_key;
mod keyring;
mod lines;
pub(crate) mod parts;
mod reload;
mod retention;
mod settings;
mod welcome;

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::join3;
use throughline_agent::{Runner, Watcher};
use throughline_json::{self as json, Json, SizeLimits};
use throughline_provider::FetchError;
use throughline_replay::{Claims, Replay};
use throughline_server::{
    AgentApi, CallTraces, Level, Limits, Log, RunCaps, Server, ServerHandle, SharedTls,
    SimulatorLedger, Telemetry,
};
use throughline_sim::{LedgerReader, Script};
use throughline_store::{Durability, Journal, open};
use tokio::runtime::Builder;
use tokio::sync::watch;

use self::bind::{BoundListener, ResolvedAddress};
use self::budget_webhook::BudgetWebhook;
use self::keyring::StoreKeys;
use self::lines::JsonLog;
use self::parts::{GatewayParts, load_tls};
use self::reload::Reloader;
use self::retention::RetentionJob;
use self::settings::ServedSettings;
use self::welcome::{AccessMode, StoreSummary};
use crate::agent::{AgentModels, config_router, runner_with};
use crate::args::Serve;
use crate::catalog_watch::{self, CatalogChange};
use crate::clock::{self, SystemClock};
use crate::cmd::sim::load_script;
use crate::config::prices::SharedPrices;
use crate::config::{self, Config, ConfigSnapshot, TlsFiles};
use crate::credentials::SharedCredentials;
use crate::listen_address::ListenAddress;
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::retention::trace_folders;
use crate::store::{IfMissing, Signals, open_failure, open_options, runtime, without_password};
use crate::tracing::{ConsoleTraces, ProcessTraces};

pub(crate) fn run(options: &Serve) -> Result<()> {
    let (config, snapshot, warnings) = config::load_snapshot(options.at.config.as_deref())?;
    for warning in &warnings {
        text::note(warning);
    }
    let script = options.script.as_deref().map(load_script).transpose()?.unwrap_or_default();
    runtime(Builder::new_multi_thread())?.block_on(serve(options, (config, snapshot), script))
}

async fn serve(
    options: &Serve,
    (mut config, snapshot): (Config, ConfigSnapshot),
    script: Script,
) -> Result<()> {
    apply_options(&mut config, options);
    let (url, mut how) = open_options(&options.at, IfMissing::IsMade)?;
    how.durability = config.gateway.capture;
    let journal = open(&url, &how).await.map_err(|error| open_failure(error, &url))?;
    let start = Startup {
        options,
        journal: &journal,
        store: &without_password(&url),
        has_master_key: how.master_key.is_some(),
    };
    let served = async {
        if let Some(file) = &options.first_key_file {
            first_key::create_if_none(&journal, file).await?;
        }
        start.answer(config, snapshot, script).await
    };
    let served = Box::pin(served).await;
    let closed = journal.close().await.map_err(|error| open_failure(error, &url));
    served.and(closed)
}

/// Applies the options that override the configuration.
fn apply_options(config: &mut Config, options: &Serve) {
    let server = &mut config.server;
    server.listen = options.listen.clone().unwrap_or_else(|| server.listen.clone());
    server.allow_open |= options.allow_open;
    server.log = options.log.unwrap_or(server.log);
    if let (Some(cert), Some(key)) = (&options.tls_cert, &options.tls_key) {
        server.tls = Some(TlsFiles { cert: cert.clone(), key: key.clone() });
    }
}

/// Returns whether the gateway may be served only with keys: other machines can connect to it, and
/// the operator does not allow requests without a key. With an identity provider, the gateway never
/// serves callers without a key or a session.
fn needs_keys(config: &Config, is_local: bool) -> bool {
    !is_local && !config.server.allow_open && config.console.is_none()
}

async fn has_keys(journal: &Journal) -> Result<bool> {
    Ok(journal.has_api_keys().await.context("cannot read the API keys")?)
}

fn missing_keys(listen: &ListenAddress) -> Failure {
    Failure::Usage(format!(
        "{listen} is reachable from other machines, and there are no API keys: create a key with \
         `throughline keys create`, or use --allow-open"
    ))
}

/// What the start of a gateway needs beside its configuration.
struct Startup<'s> {
    options: &'s Serve,
    journal: &'s Journal,
    /// The store's URL without a password.
    store: &'s str,
    has_master_key: bool,
}

impl Startup<'_> {
    async fn answer(self, config: Config, snapshot: ConfigSnapshot, script: Script) -> Result<()> {
        let (listen, journal) = (&config.server.listen, self.journal);
        let address = ResolvedAddress::resolve(listen).await?;
        let is_local = address.is_local();
        let has_keys = has_keys(journal).await?;
        if needs_keys(&config, is_local) && !has_keys {
            return Err(missing_keys(listen));
        }
        let tls = load_shared_tls(&config)?;
        let BoundListener { mut listener, authority, file: socket_file } =
            address.bind(listen).await?;
        if let Some(tls) = &tls {
            listener = listener.with_tls(tls.clone());
        }
        let log = Arc::new(JsonLog::new(config.server.log));
        let policy = config.redaction.clone().unwrap_or_default();
        let traces = ProcessTraces::new(&config.tracing, policy, journal, false)?;
        let parts = parts(&config, journal, &log, traces.clone(), script).await?;
        let upstream = parts.upstream(&config)?;
        // Agents share the account pools of the gateway.
        let router = Arc::new(config_router(&config));
        let models = Arc::new(AgentModels::new(
            &config,
            Arc::clone(&router),
            Arc::clone(&upstream),
            Some(Arc::clone(&parts.operations)),
        ));
        let runner = runner_with(Arc::clone(&models), journal);
        let settings = Arc::new(ServedSettings::new(&config)?);
        let agents = agent_api(&config, &parts, journal, runner, traces.clone()).await?;
        let agents = Arc::new(agents.with_settings(Arc::<ServedSettings>::clone(&settings)));
        let gateway = parts.gateway(&config, Arc::clone(&router), upstream)?;
        let handle = ServerHandle::new(Server::new(gateway, Some(Arc::clone(&agents))));
        let url = format!("{}://{authority}", if tls.is_some() { "https" } else { "http" });
        let needs_keys = has_keys || config.console.is_some();
        let open = access_mode(needs_keys, config.server.allow_open);
        let store = StoreSummary { url: self.store, has_master_key: self.has_master_key };
        // A process that reads the text may send a signal at once, so the handlers come first.
        let (mut signals, mut again) = (Signals::new()?, Signals::new()?);
        let hangup = Reloader::signal()?;
        // The reader may need only the first lines. The gateway runs without a reader, too.
        text::write_styled(&welcome::welcome(&config, &url, store, open))
            .or_else(Failure::ignore_closed_pipe)?;
        // The first signal drains open streams; a second signal stops the gateway at once.
        let hurry = async move {
            again.wait_for_stop().await;
            again.wait_for_stop().await;
        };
        if let Some(error) = &config.catalog.problem {
            log_catalog(&log, &CatalogChange::Refused(error.clone()));
        }
        let watching =
            catalog_watch::watch(config.catalog.clone(), |change| log_catalog(&log, &change));
        let (retention, retention_settings) = watch::channel(config.retention.clone());
        let retention_job = RetentionJob {
            journal: journal.clone(),
            operations: Arc::clone(&parts.operations),
            log: Arc::clone(&log),
            folders: trace_folders(&config.tracing),
            settings: retention_settings,
        };
        let reloader = Reloader {
            options: self.options,
            journal,
            parts: &parts,
            log: &log,
            handle: handle.clone(),
            agents,
            traces: traces.clone(),
            models,
            router,
            tls,
            retention,
            settings,
            is_local,
            config,
            started_with: snapshot,
        };
        let stop = async move {
            signals.wait_for_stop().await;
            if std::io::stderr().is_terminal() {
                text::note("waiting for open responses; press Ctrl-C again to stop at once");
            }
        };
        // The server has its own task, so a reload that blocks its thread does not stop the server.
        let serving = tokio::spawn(throughline_server::serve(handle, listener, stop, hurry));
        // The watchers end only if the runtime shuts down.
        tokio::select! {
            served = serving => served.context("the server failed")?,
            ((), (), ()) = join3(watching, reloader.run(hangup), retention_job.run()) => {}
        }
        drop(socket_file);
        if let Some(traces) = traces {
            traces.finish().await;
        }
        log.end();
        parts.simulator.stop().await;
        Ok(())
    }
}

/// Loads the certificate of the listener; `None` if connections are not encrypted.
fn load_shared_tls(config: &Config) -> Result<Option<SharedTls>> {
    let Some(files) = &config.server.tls else { return Ok(None) };
    if matches!(config.server.listen, ListenAddress::Unix(_)) {
        return Err(Failure::Usage(
            "connections to a Unix socket are not encrypted: remove [server.tls], --tls-cert and \
             --tls-key, or listen on HOST:PORT"
                .to_owned(),
        ));
    }
    let settings = load_tls(files)?;
    if let Some(end) = settings.expired_at(clock::now()) {
        let file = files.cert.display();
        text::note(&format!("the certificate {file} expired on {end}; install a renewed one"));
    }
    Ok(Some(SharedTls::new(settings)))
}

/// Starts the services that stay the same while the configuration changes.
async fn parts(
    config: &Config,
    journal: &Journal,
    log: &Arc<JsonLog>,
    traces: Option<Arc<ProcessTraces>>,
    script: Script,
) -> Result<GatewayParts> {
    let simulator = crate::agent::simulator(config, script).await?;
    let shared_log: Arc<dyn Log> = Arc::<JsonLog>::clone(log);
    let prices = Arc::new(SharedPrices::new(config.prices.clone()));
    let limits = limits(&config.gateway);
    let (stored, clock) = (Arc::new(journal.clone()), Arc::new(SystemClock));
    let of_telemetry = Arc::clone(&prices) as Arc<dyn throughline_server::Prices>;
    let operations = Telemetry::new(stored, of_telemetry, clock, Arc::clone(&shared_log), limits);
    let operations = operations.context("cannot start the gateway")?;
    let mut operations = operations.with_store_policy(config.gateway.store);
    if let Some(url) = &config.gateway.budget_webhook {
        let alerts = BudgetWebhook::start(url, Arc::clone(&shared_log))?;
        operations = operations.with_budget_alerts(Arc::new(alerts));
    }
    if let Some(traces) = traces {
        operations = operations.with_traces(traces as Arc<dyn CallTraces>);
    }
    let claims = Claims::new(journal.derived_key("claims"));
    let cache_size = usize::try_from(config.gateway.cache_size).unwrap_or(usize::MAX);
    let replay = Replay::with_cache_size(Arc::new(journal.clone()), claims, cache_size);
    let replay = match config.gateway.capture {
        Durability::Durable => replay,
        Durability::Relaxed => replay.relaxed(),
    };
    let credential_log = Arc::clone(log);
    let credentials = SharedCredentials::with_log(Arc::new(move |error: &FetchError| {
        log_credential(&credential_log, error);
    }));
    Ok(GatewayParts {
        replay: Arc::new(replay),
        keyring: Arc::new(StoreKeys::new(journal.clone(), shared_log)),
        operations: Arc::new(operations),
        prices,
        simulator,
        credentials,
        journal: journal.clone(),
    })
}

/// Creates the agent API, which keeps its tools and caps while the configuration changes.
async fn agent_api(
    config: &Config,
    parts: &GatewayParts,
    journal: &Journal,
    runner: Runner,
    traces: Option<Arc<ProcessTraces>>,
) -> Result<AgentApi> {
    let tools = config.tools.clone().open().await;
    let tools = tools.map_err(|error| Failure::Outside(anyhow::anyhow!(error)))?;
    let mut runner = runner.with_tools(tools);
    runner.lease = config.agents.lease;
    runner.watcher = traces.map(|traces| traces as Arc<dyn Watcher>);
    let caps = RunCaps {
        max_steps: config.agents.max_steps.into(),
        max_runs_per_tenant: count(config.agents.max_runs_per_tenant),
    };
    let agents = AgentApi::new(runner)
        .with_caps(caps)
        .with_archive(Arc::new(journal.clone()))
        .with_keys(Arc::new(journal.clone()))
        .with_simulators(Arc::new(BuiltInLedger(parts.simulator.ledger_reader())))
        .with_traces(Arc::new(ConsoleTraces(journal.clone())));
    Ok(match &config.redaction {
        Some(policy) => agents.with_redaction(policy.clone()),
        None => agents,
    })
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

/// Logs a source of credentials that failed. The message contains no secret.
fn log_credential(log: &JsonLog, error: &FetchError) {
    if log.wants(Level::Error) {
        let line = json::object(|o| {
            o.string("event", "credential_unavailable").string("message", &error.to_string());
        });
        log.write(Level::Error, &line);
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
