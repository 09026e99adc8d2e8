//! The gateway's settings and their defaults, without I/O.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use throughline_core::matches_pattern;
use throughline_json::Name;
use throughline_replay::DEFAULT_CACHE_SIZE;
use throughline_server::{Level, OnStoreFailure, PrefixPolicy, ReplayMode, StorePolicy};
use throughline_store::Durability;

use crate::args::LogLevel;
use crate::listen_address::ListenAddress;

/// `[server]`: which clients may connect, and what is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) listen: ListenAddress,
    /// The certificate of the listener; `None` if connections are not encrypted.
    pub(crate) tls: Option<TlsFiles>,
    /// Whether other machines may connect if there are no API keys.
    pub(crate) allow_open: bool,
    /// Host names that other machines may use to connect without a key.
    pub(crate) hosts: Vec<Name>,
    /// Minimum level of the lines that are logged.
    pub(crate) log: LogLevel,
}

impl Default for ServerSettings {
    fn default() -> Self {
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4400);
        let listen = ListenAddress::Address(listen);
        Self { listen, tls: None, allow_open: false, hosts: Vec::new(), log: Some(Level::Info) }
    }
}

/// `[server.tls]`: the PEM files of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate, followed by the intermediate certificates.
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    /// Resolves relative paths against the folder of the configuration file.
    pub(super) fn resolve(&mut self, config: &Path) {
        if let Some(folder) = config.parent() {
            self.cert = folder.join(&self.cert);
            self.key = folder.join(&self.key);
        }
    }
}

/// `[store]`: where the store is and how it is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreSettings {
    /// Store URL, which may contain a password; `None` for the default location.
    pub(crate) url: Option<String>,
    /// URL of a direct connection for notifications, which may contain a password.
    pub(crate) listen_url: Option<String>,
    /// Environment variable that holds the master key.
    pub(crate) master_key_env: Option<Name>,
}

/// `[agents]`: limits of agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentSettings {
    /// Lease duration; another process can take over after the lease expires.
    pub(crate) lease: Duration,
    /// Maximum number of steps per run.
    pub(crate) max_steps: u32,
    pub(crate) max_runs_per_tenant: u32,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), max_steps: 1000, max_runs_per_tenant: 256 }
    }
}

/// `[gateway]`: how requests are handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewaySettings {
    /// What to do with requests that the provider would refuse.
    pub(crate) replay: ReplayMode,
    /// Whether a captured reply must survive a power loss, or only a crash of the gateway process.
    pub(crate) capture: Durability,
    /// What to do if a client changes the messages before prefix-bound Seals.
    pub(crate) prefix: PrefixPolicy,
    /// Maximum size of a request in bytes.
    pub(crate) body_limit: u64,
    /// Maximum JSON nesting depth of a request.
    pub(crate) depth_limit: u32,
    /// Maximum number of JSON values and field names in a request.
    pub(crate) entry_limit: u32,
    /// Maximum number of messages and parts in a request.
    pub(crate) item_limit: u32,
    /// Maximum number of declared tools in a request.
    pub(crate) tool_limit: u32,
    /// Maximum number of concurrent responses.
    pub(crate) max_streams: u32,
    /// Limit in bytes for the estimated memory of all concurrent requests.
    pub(crate) max_request_memory: u64,
    /// Limit in bytes for the memory of the caches.
    pub(crate) cache_size: u64,
    /// Patterns of unknown paths that are forwarded with the operator's key.
    pub(crate) passthrough: Vec<Name>,
    /// URL that receives a message when a key reaches the soft limit of a budget. The URL may
    /// contain a secret.
    pub(crate) budget_webhook: Option<Name>,
    /// What to do with requests while the store fails, and how long cached API keys stay valid.
    pub(crate) store: StorePolicy,
    pub(crate) timeouts: Timeouts,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            replay: ReplayMode::default(),
            capture: Durability::default(),
            prefix: PrefixPolicy::default(),
            body_limit: 64 << 20,
            depth_limit: 512,
            entry_limit: 400_000,
            item_limit: 20_000,
            tool_limit: 4_096,
            max_streams: 4096,
            max_request_memory: 1 << 30,
            cache_size: DEFAULT_CACHE_SIZE as u64,
            passthrough: Vec::new(),
            budget_webhook: None,
            store: StorePolicy::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// Values of `replay`, with their names in the configuration file.
pub(crate) const REPLAY_MODES: &[(&str, ReplayMode)] = &[
    ("observe", ReplayMode::Observe),
    ("repair", ReplayMode::Repair),
    ("enforce", ReplayMode::Enforce),
    ("off", ReplayMode::Off),
];

/// Values of `capture`, with their names in the configuration file.
pub(crate) const CAPTURE_MODES: &[(&str, Durability)] =
    &[("durable", Durability::Durable), ("relaxed", Durability::Relaxed)];

/// Values of `on_store_failure`, with their names in the configuration file.
pub(crate) const STORE_FAILURES: &[(&str, OnStoreFailure)] =
    &[("pass", OnStoreFailure::Pass), ("refuse", OnStoreFailure::Refuse)];

/// Values of `prefix`, with their names in the configuration file.
pub(crate) const PREFIX_POLICIES: &[(&str, PrefixPolicy)] = PrefixPolicy::NAMES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// Time limit for receiving request headers. Also the maximum idle time of a kept-alive
    /// connection before its next request.
    pub(crate) client_headers: Duration,
    pub(crate) client_body: Duration,
    /// Time limit for a client that does not read its response.
    pub(crate) slow_reader: Duration,
    pub(crate) connect: Duration,
    /// Time limit for the first byte of a provider's response.
    pub(crate) first_byte: Duration,
    /// Time limit between two reads of a provider's response.
    pub(crate) idle: Duration,
    /// Time limit for the store write that precedes the last frame of a response.
    pub(crate) capture: Duration,
    pub(crate) shutdown: Duration,
    /// Time limit for requests that wait because the gateway is at capacity.
    pub(crate) queue: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_headers: Duration::from_secs(30),
            client_body: Duration::from_secs(30),
            slow_reader: Duration::from_mins(1),
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(10),
            idle: Duration::from_mins(5),
            capture: Duration::from_secs(2),
            shutdown: Duration::from_secs(30),
            queue: Duration::from_secs(10),
        }
    }
}

impl Timeouts {
    /// Returns all timeouts with their names in the configuration file.
    pub(crate) fn by_name(&mut self) -> [(&'static str, &mut Duration); 9] {
        [
            ("client_headers", &mut self.client_headers),
            ("client_body", &mut self.client_body),
            ("slow_reader", &mut self.slow_reader),
            ("connect", &mut self.connect),
            ("first_byte", &mut self.first_byte),
            ("idle", &mut self.idle),
            ("capture", &mut self.capture),
            ("shutdown", &mut self.shutdown),
            ("queue", &mut self.queue),
        ]
    }
}

/// Prices for a model, in millionths of a dollar per million tokens; `None` if not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Price {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    /// Price for input tokens that the provider reads from its cache.
    pub(crate) cached: Option<u64>,
    /// Price for input tokens that the provider writes to its cache.
    pub(crate) written: Option<u64>,
}

/// Prices by model name pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prices(pub(crate) Vec<(Name, Price)>);

impl Prices {
    /// Returns the price with the longest matching pattern. A pattern with a slash applies to
    /// `PROVIDER/model` and takes precedence over patterns without a slash.
    pub(crate) fn price_for(&self, provider: &str, model: &str) -> Option<Price> {
        self.price_where(provider, model, |_| true)
    }

    /// Like [`price_for`](Self::price_for), with only the patterns for which `applies` is true.
    pub(crate) fn price_where(
        &self,
        provider: &str,
        model: &str,
        applies: impl Fn(&str) -> bool,
    ) -> Option<Price> {
        let full = format!("{provider}/{model}");
        let last = model.rsplit('/').next().unwrap_or(model);
        let has_slash = |pattern: &str| pattern.contains('/');
        let rows = self.0.iter().filter(|(pattern, _)| {
            let other = if has_slash(pattern) { &full } else { last };
            applies(pattern) && (matches_pattern(pattern, model) || matches_pattern(pattern, other))
        });
        rows.max_by_key(|(pattern, _)| (has_slash(pattern), pattern.len())).map(|(_, price)| *price)
    }
}

/// Returns the name of a setting's value in the configuration file.
pub(crate) fn config_name<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}
