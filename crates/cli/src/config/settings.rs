//! How the gateway works: plain values with their defaults. Nothing here reads a file or the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use throughline_core::{Name, fits};
use throughline_server::{OnStoreFailure, PrefixPolicy, StorePolicy};

/// Where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The address and port.
    pub(crate) listen: SocketAddr,
    /// Whether it may serve other machines without any key.
    pub(crate) allow_open: bool,
    /// The names under which other machines may reach it without a key.
    pub(crate) hosts: Vec<Name>,
    /// What is written to the log.
    pub(crate) log: LogLevel,
}

impl Default for Server {
    fn default() -> Self {
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4400);
        Self { listen, allow_open: false, hosts: Vec::new(), log: LogLevel::default() }
    }
}

/// What is written to the log: this and what matters more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// What was lost.
    Error,
    /// Calls that failed on our side or at the provider.
    Warn,
    /// All calls.
    #[default]
    Info,
    /// Whatever happens.
    Debug,
}

impl LogLevel {
    /// All of them, by the words of the configuration.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
    ];
}

/// Where it keeps what it captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreSettings {
    /// The store's address; the usual place when not given. It may hold a password.
    pub(crate) url: Option<String>,
    /// The variable that holds the master key.
    pub(crate) master_key_env: Option<Name>,
}

/// How agents are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agents {
    /// How long a run is held without a word of whoever is at it.
    pub(crate) lease: Duration,
    /// The most steps that a run may make.
    pub(crate) max_steps: u32,
    /// The most runs of one tenant that are driven at once.
    pub(crate) max_runs_per_tenant: u32,
}

impl Default for Agents {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), max_steps: 1000, max_runs_per_tenant: 256 }
    }
}

/// How requests are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// What is done about a request that its provider would refuse.
    pub(crate) replay: ReplayMode,
    /// When a reply counts as captured.
    pub(crate) capture: Capture,
    /// What is done where the prefix of a prefix-bound model changed.
    pub(crate) prefix: PrefixPolicy,
    /// The most bytes that a request may have.
    pub(crate) body_limit: u64,
    /// The deepest nesting of a request's JSON.
    pub(crate) depth_limit: u32,
    /// The most JSON values and member names that a request may hold.
    pub(crate) entry_limit: u32,
    /// The most messages and parts that a request may hold.
    pub(crate) item_limit: u32,
    /// The most tools that a request may declare.
    pub(crate) tool_limit: u32,
    /// The most answers that are under way at once.
    pub(crate) max_streams: u32,
    /// The memory in bytes that all requests under way may be expected to take.
    pub(crate) max_request_memory: u64,
    /// Patterns of the paths that are forwarded for keys although the gateway does not know them.
    pub(crate) passthrough: Vec<Name>,
    /// What is done with requests while the store fails, and how long keys are believed without it.
    pub(crate) store: StorePolicy,
    /// How long it waits, and for what.
    pub(crate) timeouts: Timeouts,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            replay: ReplayMode::default(),
            capture: Capture::default(),
            prefix: PrefixPolicy::default(),
            body_limit: 64 << 20,
            depth_limit: 512,
            entry_limit: 400_000,
            item_limit: 20_000,
            tool_limit: 4_096,
            max_streams: 4096,
            max_request_memory: 1 << 30,
            passthrough: Vec::new(),
            store: StorePolicy::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// What is done about a request that its provider would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplayMode {
    /// It is reported, and sent as it came.
    Observe,
    /// What was dropped is restored, and what would be refused is mended.
    #[default]
    Repair,
    /// It is answered with the provider's error, the rule and the fix.
    Enforce,
    /// Nobody looks.
    Off,
}

impl ReplayMode {
    /// All of them, by the words of the configuration.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("observe", Self::Observe),
        ("repair", Self::Repair),
        ("enforce", Self::Enforce),
        ("off", Self::Off),
    ];
}

/// When a reply counts as captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Capture {
    /// When it survives a loss of power.
    #[default]
    Durable,
    /// When it survives the end of the process; it is flushed within 50 milliseconds.
    Relaxed,
}

impl Capture {
    /// All of them, by the words of the configuration.
    pub(crate) const ALL: &[(&str, Self)] =
        &[("durable", Self::Durable), ("relaxed", Self::Relaxed)];
}

/// What is done with requests while the store fails, by the words of the configuration.
pub(crate) const STORE_FAILURES: &[(&str, OnStoreFailure)] =
    &[("pass", OnStoreFailure::Pass), ("refuse", OnStoreFailure::Refuse)];

/// What is done where the prefix of a prefix-bound model changed, by the words of the configuration.
pub(crate) const PREFIX_POLICIES: &[(&str, PrefixPolicy)] = &[
    ("freeze", PrefixPolicy::Freeze),
    ("freeze_or_error", PrefixPolicy::FreezeOrError),
    ("drop_block", PrefixPolicy::DropBlock),
    ("error", PrefixPolicy::Error),
];

/// How long the gateway waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// For the headers of a caller, and for its next request on the same connection.
    pub(crate) client_headers: Duration,
    /// For the body of a caller.
    pub(crate) client_body: Duration,
    /// For a caller that does not read its answer.
    pub(crate) slow_reader: Duration,
    /// For a connection to a provider.
    pub(crate) connect: Duration,
    /// For the first byte of a provider's answer.
    pub(crate) first_byte: Duration,
    /// For the next byte of it.
    pub(crate) idle: Duration,
    /// For the store, before the last frame of an answer is let go.
    pub(crate) capture: Duration,
    /// For open answers, before it stops.
    pub(crate) shutdown: Duration,
    /// For a share of the gateway, where others have all of it.
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
    /// All of them, by the words of the configuration.
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

/// What a model costs, where it is not what the built-in table says. All in millionths of a dollar per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Price {
    /// For what is asked.
    pub(crate) input: Option<u64>,
    /// For what is answered.
    pub(crate) output: Option<u64>,
    /// For what is asked again, and was still in the provider's cache.
    pub(crate) cached: Option<u64>,
    /// For what is asked, and written to the provider's cache.
    pub(crate) written: Option<u64>,
}

/// The user's own prices, by patterns of model names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prices(pub(crate) Vec<(Name, Price)>);

impl Prices {
    /// What a provider takes for a model: the row with the longest pattern that it fits. A pattern with a slash is for
    /// `PROVIDER/model`, and goes before the others.
    pub(crate) fn of(&self, provider: &str, model: &str) -> Option<Price> {
        let full = format!("{provider}/{model}");
        let last = model.rsplit('/').next().unwrap_or(model);
        let has_slash = |pattern: &str| pattern.contains('/');
        let rows = self.0.iter().filter(|(pattern, _)| {
            let other = if has_slash(pattern) { &full } else { last };
            fits(pattern, model) || fits(pattern, other)
        });
        rows.max_by_key(|(pattern, _)| (has_slash(pattern), pattern.len())).map(|(_, price)| *price)
    }
}

/// The word of the configuration for a value.
pub(crate) fn word<T: PartialEq>(all: &'static [(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}
