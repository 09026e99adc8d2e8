//! The startup message: addresses, an example request, and settings for official clients.

use owo_colors::OwoColorize as _;

use crate::clients::clients;
use crate::cmd::connect::{ConnectTarget, GatewayKey, KEY_VARIABLE, default_model, exports};
use crate::config::{Config, Credential, Endpoint};
use crate::listen_address::ListenAddress;

/// Which callers the gateway accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMode {
    Keys,
    ThisMachine,
    AnyMachine,
}

/// Client settings. Lines that are not indented are headings.
const EXAMPLES: &str = include_str!("welcome.txt");

/// The store in the startup message.
#[derive(Clone, Copy)]
pub(super) struct StoreSummary<'s> {
    /// The URL without a password.
    pub(super) url: &'s str,
    pub(super) has_master_key: bool,
}

impl StoreSummary<'_> {
    fn encryption(self) -> &'static str {
        if self.has_master_key {
            "with a master key, which is not in the store"
        } else {
            "without a master key: a copy of the store is readable (see docs/store.md)"
        }
    }
}

pub(super) fn welcome(
    config: &Config,
    url: &str,
    store: StoreSummary<'_>,
    access: AccessMode,
) -> String {
    let (keys, header, key) = match access {
        AccessMode::Keys => {
            let header = " -H 'authorization: Bearer tl_…'";
            ("callers need an API key of this gateway", header, "tl_…")
        }
        AccessMode::ThisMachine => {
            let keys =
                "none: only this machine has access; create a key with `throughline keys create`";
            (keys, "", "any")
        }
        AccessMode::AnyMachine => {
            ("none: every machine that can connect has access (--allow-open)", "", "any")
        }
    };
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "none; all values are defaults".to_owned());
    let mut lines = vec![format!("{} {}", "throughline serve".bold(), url.cyan().bold())];
    let socket = match &config.server.listen {
        ListenAddress::Unix(path) => Some(path.display().to_string()),
        ListenAddress::Address(_) | ListenAddress::HostName { .. } | ListenAddress::Port(_) => None,
    };
    for (label, value) in [
        ("console", format!("{url}/")),
        ("store", store.url.to_owned()),
        ("encrypted", store.encryption().to_owned()),
        ("retention", config.retention.describe()),
        ("config", file),
        ("providers", providers(config)),
        ("keys", keys.to_owned()),
    ] {
        lines.push(format!("  {} {value}", format!("{label:<9}").dimmed()));
    }
    if let Some(socket) = &socket {
        let socket = format!("{socket}; use it with `curl --unix-socket {socket} {url}/…`");
        lines.push(format!("  {} {socket}", format!("{:<9}", "socket").dimmed()));
    }
    // The examples are for clients that connect to a port.
    if socket.is_none() {
        let examples = EXAMPLES.replace("{url}", url).replace("{header}", header);
        lines.extend(examples.replace("{key}", key).lines().map(|line| match line {
            heading if !heading.starts_with(' ') && !heading.is_empty() => {
                heading.bold().to_string()
            }
            line => line.to_owned(),
        }));
        let key = match access {
            AccessMode::Keys => GatewayKey::Value(key.to_owned()),
            AccessMode::ThisMachine | AccessMode::AnyMachine => GatewayKey::None,
        };
        lines.extend(client_lines(config, url, &key));
    }
    lines.push(format!("{}\n", "Ctrl-C drains open streams and stops the gateway".dimmed()));
    lines.join("\n")
}

/// Returns how to connect the most common clients.
fn client_lines(config: &Config, url: &str, key: &GatewayKey) -> Vec<String> {
    let mut lines = Vec::new();
    let clients = clients().unwrap_or_default();
    for client in clients.iter().filter(|client| client.welcome) {
        let model = default_model(&client.model, config);
        let small = client.small.as_ref().map(|small| default_model(small, config));
        let small = small.unwrap_or_else(|| model.clone());
        let target = ConnectTarget { url: url.to_owned(), model, small, key: key.clone() };
        lines.push(client.title.bold().to_string());
        if client.needs_only_environment() {
            lines.push(format!("  export {}", exports(client, &target).join(" ")));
        }
        // Without a key, the client would send the key of an open gateway, which is refused.
        let variable = match key {
            GatewayKey::None => String::new(),
            GatewayKey::Variable(_) | GatewayKey::Value(_) => {
                format!("{KEY_VARIABLE}={} ", key.shown())
            }
        };
        lines.push(format!("  {variable}throughline connect {} --url {url} --run", client.name));
        lines.push(String::new());
    }
    lines
}

/// Lists the providers that can be used without a key from the caller.
fn providers(config: &Config) -> String {
    let providers = config.routes.providers().iter();
    let ready = providers.filter(|provider| match provider.credential {
        Credential::Own { .. } | Credential::Aws(_) | Credential::Dynamic(_) => true,
        // It is unknown whether a local server runs at its default address.
        Credential::Open => provider.is_configured() || provider.endpoint == Endpoint::Simulators,
        Credential::Callers | Credential::Missing { .. } => false,
    });
    let names: Vec<&str> = ready.map(|provider| &*provider.name).collect();
    format!(
        "{}; others with the caller's key, or when their usual variables are set",
        names.join(", ")
    )
}
