//! Reloads the configuration and the TLS certificate of a running gateway.
//!
//! SIGHUP and a changed file start a reload. The new gateway is built and checked completely before
//! it replaces the old one, so an invalid file changes nothing. A reload that fails for a reason
//! outside of its files, such as a store outage, is tried again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use throughline_json as json;
use throughline_server::{
    AgentApi, Level, Log as _, ReloadKind, Server, ServerHandle, SharedTls, TlsSettings,
};
use throughline_store::Journal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::lines::JsonLog;
use super::parts::{GatewayParts, load_tls};
use super::settings::ServedSettings;
use super::{apply_options, has_keys, missing_keys, needs_keys};
use crate::agent::{AgentModels, config_router};
use crate::args::Serve;
use crate::config::{self, Config, ConfigSnapshot, RetentionSettings, TlsFiles};
use crate::file_watch::{FileWatch, INTERVAL};
use crate::print::failure::{Failure, Result};
use crate::router::ConfigRouter;
use crate::tracing::ProcessTraces;

#[cfg(test)]
#[path = "reload_tests.rs"]
mod reload_tests;

/// Time limit for reading files, which may be on a network file system.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// Delay before a failed reload is tried again. Each further failure doubles the delay.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
const LONGEST_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Why a reload did not take effect.
#[derive(Debug)]
struct ReloadFailure {
    failure: Failure,
    /// Whether a later reload of the same files can succeed.
    is_retried: bool,
}

impl ReloadFailure {
    /// Creates the failure of a check that does not depend on the configuration file alone.
    fn retried(failure: Failure) -> Self {
        Self { failure, is_retried: true }
    }
}

impl From<Failure> for ReloadFailure {
    fn from(failure: Failure) -> Self {
        let is_retried = match &failure {
            Failure::Outside(_) | Failure::NoStore(_) => true,
            Failure::Usage(_)
            | Failure::BadData(_)
            | Failure::Interrupted(_)
            | Failure::ReaderGone => false,
        };
        Self { failure, is_retried }
    }
}

/// The changed settings that need a restart, or why the reload did not take effect.
type ReloadResult = Result<Vec<String>, ReloadFailure>;

/// Schedules the next attempt of a failed reload.
#[derive(Debug, Default)]
struct ReloadRetry {
    /// The time of the next attempt, and the delay before it.
    next: Option<(Instant, Duration)>,
}

impl ReloadRetry {
    /// Returns what triggers a reload now; `None` if no reload is due.
    fn trigger(&self, is_changed: bool, watch: &FileWatch, now: Instant) -> Option<&'static str> {
        if is_changed {
            return Some("file");
        }
        let is_due = self.next.is_some_and(|(at, _)| now >= at);
        // A file that is still being written is reloaded when the change is complete.
        (is_due && !watch.is_settling()).then_some("retry")
    }

    /// Records the result of a reload. Only consecutive retries increase the delay.
    fn record(&mut self, trigger: &str, result: &ReloadResult, now: Instant) {
        let last = self.next.take().filter(|_| trigger == "retry");
        if result.as_ref().is_err_and(|error| error.is_retried) {
            let delay = last.map_or(FIRST_RETRY_DELAY, |(_, delay)| delay * 2);
            let delay = delay.min(LONGEST_RETRY_DELAY);
            self.next = Some((now + delay, delay));
        }
    }
}

/// What a reload replaces, and what it needs to build the replacement.
pub(super) struct Reloader<'s> {
    pub(super) options: &'s Serve,
    pub(super) journal: &'s Journal,
    pub(super) parts: &'s GatewayParts,
    pub(super) log: &'s JsonLog,
    pub(super) handle: ServerHandle,
    pub(super) agents: Arc<AgentApi>,
    pub(super) traces: Option<Arc<ProcessTraces>>,
    pub(super) models: Arc<AgentModels>,
    /// The router in effect, whose account pools the next router takes over.
    pub(super) router: Arc<ConfigRouter>,
    pub(super) tls: Option<SharedTls>,
    /// Receives the settings of `[retention]`.
    pub(super) retention: watch::Sender<RetentionSettings>,
    /// The description of the configuration for the console.
    pub(super) settings: Arc<ServedSettings>,
    /// Whether only this machine can connect to the listener.
    pub(super) is_local: bool,
    /// The configuration in effect.
    pub(super) config: Config,
    /// The file as it was at startup, for settings that need a restart.
    pub(super) started_with: ConfigSnapshot,
}

impl Reloader<'_> {
    /// Installs the handler of SIGHUP, which otherwise ends the process.
    pub(super) fn signal() -> Result<Signal> {
        Ok(signal(SignalKind::hangup()).context("cannot install signal handlers")?)
    }

    /// Reloads after each signal and each change of a file; runs until it is dropped.
    pub(super) async fn run(mut self, hangup: Signal) {
        // Watching does not panic; if the runtime shuts down, there is nothing to watch.
        self.watch_files(hangup).await.ok();
    }

    async fn watch_files(&mut self, mut hangup: Signal) -> Result<(), JoinError> {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut config_retry, mut tls_retry) = (ReloadRetry::default(), ReloadRetry::default());
        let mut config_watch = new_watch(self.config_files()).await?;
        let mut tls_watch = new_watch(self.tls_files()).await?;
        loop {
            let (config_trigger, mut tls_trigger) = tokio::select! {
                Some(()) = hangup.recv() => {
                    // Only a change from now on starts another reload.
                    config_watch = new_watch(self.config_files()).await?;
                    (Some("signal"), None)
                }
                _ = ticks.tick() => {
                    let checked = spawn_blocking(move || {
                        let changed =
                            (config_watch.has_settled_change(), tls_watch.has_settled_change());
                        (config_watch, tls_watch, changed)
                    });
                    let changed;
                    (config_watch, tls_watch, changed) = checked.await?;
                    let now = Instant::now();
                    let config_trigger = config_retry.trigger(changed.0, &config_watch, now);
                    (config_trigger, tls_retry.trigger(changed.1, &tls_watch, now))
                }
            };
            if let Some(trigger) = config_trigger {
                let result = self.apply().await;
                self.record(ReloadKind::Config, trigger, &result);
                config_retry.record(trigger, &result, Instant::now());
                if result.is_ok() {
                    // A reload of the configuration includes the certificate.
                    (tls_trigger, tls_retry) = (None, ReloadRetry::default());
                }
            }
            if let Some(trigger) = tls_trigger {
                let result = self.apply_certificate().await;
                self.record(ReloadKind::Certificate, trigger, &result);
                tls_retry.record(trigger, &result, Instant::now());
            }
            // A reload may change the paths. The watch of a path that stays is kept, so that a
            // change during the reload is not missed.
            if !config_watch.is_for(&self.config_files()) {
                config_watch = new_watch(self.config_files()).await?;
            }
            if !tls_watch.is_for(&self.tls_files()) {
                tls_watch = new_watch(self.tls_files()).await?;
            }
        }
    }

    fn config_files(&self) -> Vec<PathBuf> {
        self.config.file.iter().cloned().collect()
    }

    fn tls_files(&self) -> Vec<PathBuf> {
        let files = self.config.server.tls.iter().filter(|_| self.tls.is_some());
        files.flat_map(|TlsFiles { cert, key }| [cert.clone(), key.clone()]).collect()
    }

    /// Loads and applies the certificate.
    async fn apply_certificate(&self) -> ReloadResult {
        if let (Some(tls), Some(files)) = (&self.tls, &self.config.server.tls) {
            let settings = read_tls(files.clone()).await?;
            self.warn_if_expired(&settings);
            tls.replace(settings);
        }
        Ok(Vec::new())
    }

    /// Loads, checks and applies the configuration. Returns the changed settings that need a
    /// restart.
    async fn apply(&mut self) -> ReloadResult {
        // The file in effect is loaded again. If it is missing, no other file takes its place.
        let file = self.options.at.config.clone().or_else(|| self.config.file.clone());
        let catalog = self.config.catalog.clone();
        let loaded = in_background(move || config::reload(file.as_deref(), catalog)).await?;
        let (mut config, snapshot) = loaded;
        apply_options(&mut config, self.options);
        config.server.listen = self.config.server.listen.clone();
        if needs_keys(&config, self.is_local) && !has_keys(self.journal).await? {
            // A key may be created later.
            return Err(ReloadFailure::retried(missing_keys(&config.server.listen)));
        }
        let certificate = match config.server.tls.clone().filter(|_| self.tls.is_some()) {
            Some(files) => Some(read_tls(files).await.map_err(ReloadFailure::retried)?),
            None => None,
        };
        if certificate.is_none() {
            // Encryption is not switched on or off while the gateway runs.
            config.server.tls = self.config.server.tls.clone();
        }
        // This reads the certificates of the system.
        let upstream = tokio::task::block_in_place(|| self.parts.upstream(&config))?;
        let router = Arc::new(config_router(&config).with_pools_of(&self.router));
        let gateway = self.parts.gateway(&config, Arc::clone(&router), Arc::clone(&upstream))?;
        self.settings.replace(&config)?;
        // Everything is valid, so the new configuration takes effect.
        if let (Some(tls), Some(certificate)) = (&self.tls, certificate) {
            self.warn_if_expired(&certificate);
            tls.replace(certificate);
        }
        self.models.replace(&config, Arc::clone(&router), upstream);
        self.parts.prices.replace(config.prices.clone());
        if config.redaction != self.config.redaction {
            self.agents = Arc::new(self.agents.with_new_redaction(config.redaction.clone()));
            if let Some(traces) = &self.traces {
                traces.set_redaction(config.redaction.clone().unwrap_or_default());
            }
        }
        self.handle.replace(Server::new(gateway, Some(Arc::clone(&self.agents))));
        self.log.set_level(config.server.log);
        self.retention.send_if_modified(|settings| {
            let is_changed = *settings != config.retention;
            settings.clone_from(&config.retention);
            is_changed
        });
        (self.config, self.router) = (config, router);
        Ok(self.started_with.keys_that_need_restart(&snapshot))
    }

    /// Logs that a certificate has expired.
    fn warn_if_expired(&self, settings: &TlsSettings) {
        let end = settings.expired_at(crate::clock::now());
        if let Some(end) = end.filter(|_| self.log.wants(Level::Warn)) {
            let line = json::object(|o| {
                o.string("event", "certificate_expired").string("expired", &end.to_string());
            });
            self.log.write(Level::Warn, &line);
        }
    }

    /// Counts and logs a reload.
    fn record(&self, kind: ReloadKind, trigger: &str, result: &ReloadResult) {
        let applied = result.is_ok().then(crate::clock::now);
        self.parts.operations.record_reload(kind, applied);
        let level = match result {
            Err(_) => Level::Error,
            Ok(keys) if keys.is_empty() => Level::Info,
            Ok(_) => Level::Warn,
        };
        if !self.log.wants(level) {
            return;
        }
        let event = match kind {
            ReloadKind::Config => "config_reload",
            ReloadKind::Certificate => "certificate_reload",
        };
        let line = json::object(|o| {
            o.string("event", event).string("trigger", trigger);
            match result {
                Ok(keys) => {
                    o.string("result", "applied");
                    let keys = (!keys.is_empty()).then(|| keys.join(", "));
                    o.maybe_string("needs_restart", keys.as_deref());
                }
                Err(error) => {
                    o.string("result", "rejected").string("problem", &error.failure.to_string());
                }
            }
        });
        self.log.write(level, &line);
    }
}

/// Starts to watch files, on a blocking thread.
async fn new_watch(paths: Vec<PathBuf>) -> Result<FileWatch, JoinError> {
    spawn_blocking(move || FileWatch::new(paths)).await
}

async fn read_tls(files: TlsFiles) -> Result<TlsSettings> {
    in_background(move || load_tls(&files)).await
}

/// Reads files on a blocking thread.
async fn in_background<T: Send + 'static>(
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let reading = tokio::time::timeout(READ_LIMIT, spawn_blocking(read)).await;
    let Ok(Ok(read)) = reading else {
        return Err(Failure::Outside(anyhow::anyhow!("reading the files took too long")));
    };
    read
}
