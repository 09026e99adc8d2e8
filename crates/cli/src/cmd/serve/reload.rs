//! Reloads the configuration and the TLS certificate of a running gateway.
//!
//! SIGHUP and a changed file start a reload. The new gateway is built and checked completely before
//! it replaces the old one, so an invalid file changes nothing.

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
use tokio::time::{MissedTickBehavior, interval};

use super::lines::JsonLog;
use super::parts::{GatewayParts, load_tls};
use super::{apply_options, check_access};
use crate::agent::AgentModels;
use crate::args::Serve;
use crate::config::{self, Config, ConfigSnapshot, TlsFiles};
use crate::file_watch::{FileWatch, INTERVAL};
use crate::print::failure::{Failure, Result};

/// Time limit for reading files, which may be on a network file system.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// What a reload replaces, and what it needs to build the replacement.
pub(super) struct Reloader<'s> {
    pub(super) options: &'s Serve,
    pub(super) journal: &'s Journal,
    pub(super) parts: &'s GatewayParts,
    pub(super) log: &'s JsonLog,
    pub(super) handle: ServerHandle,
    pub(super) agents: Arc<AgentApi>,
    pub(super) models: Arc<AgentModels>,
    pub(super) tls: Option<SharedTls>,
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
    pub(super) async fn run(mut self, mut hangup: Signal) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut config_watch = FileWatch::new(self.config_files());
        let mut tls_watch = FileWatch::new(self.tls_files());
        loop {
            tokio::select! {
                Some(()) = hangup.recv() => {
                    // Only a change from now on starts another reload.
                    config_watch = FileWatch::new(self.config_files());
                    self.reload("signal").await;
                }
                _ = ticks.tick() => {
                    let checked = tokio::task::spawn_blocking(move || {
                        let changed =
                            (config_watch.has_settled_change(), tls_watch.has_settled_change());
                        (config_watch, tls_watch, changed)
                    });
                    // Reading does not panic; if the runtime shuts down, there is nothing to watch.
                    let Ok((config, tls, changed)) = checked.await else { return };
                    (config_watch, tls_watch) = (config, tls);
                    let is_applied = changed.0 && self.reload("file").await;
                    // A reload of the configuration includes the certificate.
                    if changed.1 && !is_applied {
                        self.reload_certificate().await;
                    }
                }
            }
            // A reload may change the paths. The watch of a path that stays is kept, so that a
            // change during the reload is not missed.
            config_watch = config_watch.or_new(self.config_files());
            tls_watch = tls_watch.or_new(self.tls_files());
        }
    }

    fn config_files(&self) -> Vec<PathBuf> {
        self.config.file.iter().cloned().collect()
    }

    fn tls_files(&self) -> Vec<PathBuf> {
        let files = self.config.server.tls.iter().filter(|_| self.tls.is_some());
        files.flat_map(|TlsFiles { cert, key }| [cert.clone(), key.clone()]).collect()
    }

    /// Reloads the configuration, and returns whether the new one took effect.
    async fn reload(&mut self, trigger: &str) -> bool {
        let result = self.apply().await;
        self.record(ReloadKind::Config, trigger, &result);
        result.is_ok()
    }

    async fn reload_certificate(&self) {
        let (Some(tls), Some(files)) = (&self.tls, &self.config.server.tls) else { return };
        let loaded = read_tls(files.clone()).await.map(|certificate| {
            tls.replace(certificate);
            Vec::new()
        });
        self.record(ReloadKind::Certificate, "file", &loaded);
    }

    /// Loads, checks and applies the configuration. Returns the changed settings that need a
    /// restart.
    async fn apply(&mut self) -> Result<Vec<String>> {
        // The file in effect is loaded again. If it is missing, no other file takes its place.
        let file = self.options.at.config.clone().or_else(|| self.config.file.clone());
        let catalog = self.config.catalog.clone();
        let loaded = in_background(move || config::reload(file.as_deref(), catalog)).await?;
        let (mut config, snapshot) = loaded;
        apply_options(&mut config, self.options);
        config.server.listen = self.config.server.listen.clone();
        check_access(&config, self.is_local, self.journal).await?;
        let certificate = match config.server.tls.clone().filter(|_| self.tls.is_some()) {
            Some(files) => Some(read_tls(files).await?),
            None => None,
        };
        if certificate.is_none() {
            // Encryption is not switched on or off while the gateway runs.
            config.server.tls = self.config.server.tls.clone();
        }
        // This reads the certificates of the system.
        let upstream = tokio::task::block_in_place(|| self.parts.upstream(&config))?;
        let gateway = self.parts.gateway(&config, Arc::clone(&upstream))?;
        // Everything is valid, so the new configuration takes effect.
        if let (Some(tls), Some(certificate)) = (&self.tls, certificate) {
            tls.replace(certificate);
        }
        self.models.replace(&config, upstream);
        self.handle.replace(Server::new(gateway, Some(Arc::clone(&self.agents))));
        self.log.set_level(config.server.log);
        self.config = config;
        Ok(self.started_with.keys_that_need_restart(&snapshot))
    }

    /// Counts and logs a reload.
    fn record(&self, kind: ReloadKind, trigger: &str, result: &Result<Vec<String>>) {
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
                Err(failure) => {
                    o.string("result", "rejected").string("problem", &failure.to_string());
                }
            }
        });
        self.log.write(level, &line);
    }
}

async fn read_tls(files: TlsFiles) -> Result<TlsSettings> {
    in_background(move || load_tls(&files)).await
}

/// Reads files on a blocking thread.
async fn in_background<T: Send + 'static>(
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let reading = tokio::time::timeout(READ_LIMIT, tokio::task::spawn_blocking(read)).await;
    let Ok(Ok(read)) = reading else {
        return Err(Failure::Outside(anyhow::anyhow!("reading the files took too long")));
    };
    read
}
