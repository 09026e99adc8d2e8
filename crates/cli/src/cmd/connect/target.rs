//! The target of a client's connection: the gateway's address, the models and the key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::args::Connect;
use crate::clients::{ClientEntry, KeyKind};
use crate::config::environment::variable;
use crate::config::{Config, Credential, ServerSettings};
use crate::listen_address::ListenAddress;
use crate::print::failure::{Failure, Result};

/// Environment variable that holds the gateway key of the client.
pub(crate) const KEY_VARIABLE: &str = "THROUGHLINE_KEY";

/// Key that a gateway without API keys accepts. Most clients refuse to start without a key.
pub(crate) const OPEN_KEY: &str = "any";

/// Prefix of the models that the gateway's own simulators serve.
const SIMULATED: &str = "sim/";

/// The gateway key of a client.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum GatewayKey {
    /// The gateway needs no key.
    None,
    /// `THROUGHLINE_KEY` holds the key.
    Variable(String),
    /// The command line contains the key.
    Value(String),
}

impl GatewayKey {
    pub(crate) fn kind(&self) -> KeyKind {
        match self {
            Self::None => KeyKind::None,
            Self::Variable(_) => KeyKind::Variable,
            Self::Value(_) => KeyKind::Value,
        }
    }

    /// Returns the key itself.
    pub(crate) fn secret(&self) -> &str {
        match self {
            Self::None => OPEN_KEY,
            Self::Variable(key) | Self::Value(key) => key,
        }
    }

    /// Returns the key as `--print` shows it. A key from the environment is never printed.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::None => OPEN_KEY.to_owned(),
            Self::Variable(_) => format!("${KEY_VARIABLE}"),
            Self::Value(key) => key.clone(),
        }
    }
}

/// The values that replace the placeholders in the client list.
#[derive(Clone)]
pub(crate) struct ConnectTarget {
    /// Address of the gateway without a path.
    pub(crate) url: String,
    pub(crate) model: String,
    /// Model for background work.
    pub(crate) small: String,
    pub(crate) key: GatewayKey,
}

impl ConnectTarget {
    /// Determines the target from the options, the configuration and the environment.
    pub(crate) fn resolve(
        options: &Connect,
        client: &ClientEntry,
        config: &Config,
    ) -> Result<Self> {
        let url = match &options.url {
            Some(url) => checked_url(url)?,
            None => listen_url(&config.server)?,
        };
        let key = match options.key.as_deref() {
            Some(key) if key != "env" => GatewayKey::Value(checked_key(key)?),
            source => match (variable(KEY_VARIABLE)?, source) {
                (Some(key), _) => GatewayKey::Variable(checked_key(&key)?),
                (None, None) => GatewayKey::None,
                (None, Some(_)) => {
                    return Err(Failure::Usage(format!(
                        "--key env reads the key from {KEY_VARIABLE}, which is not set: create a \
                         key with `throughline keys create` and export it"
                    )));
                }
            },
        };
        let default = |model: &str| default_model(model, config);
        let model = options.model.clone().unwrap_or_else(|| default(&client.model));
        let small = match (&options.model, &client.small) {
            (None, Some(small)) => default(small),
            (Some(_) | None, _) => model.clone(),
        };
        Ok(Self { url, model, small, key })
    }

    /// Replaces the placeholders in a text. `key` is the text for `{key}`.
    pub(crate) fn fill(&self, text: &str, key: &str) -> String {
        let values = [
            ("{url}", &*self.url),
            ("{model}", &self.model),
            ("{small}", &self.small),
            ("{key}", key),
        ];
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        // A value is never searched for placeholders, so that it is inserted unchanged.
        while let Some(start) = rest.find('{') {
            let (before, placeholder) = rest.split_at(start);
            filled.push_str(before);
            match values.iter().find(|(name, _)| placeholder.starts_with(name)) {
                Some((name, value)) => {
                    filled.push_str(value);
                    rest = placeholder.get(name.len()..).unwrap_or_default();
                }
                None => {
                    filled.push('{');
                    rest = placeholder.get(1..).unwrap_or_default();
                }
            }
        }
        filled + rest
    }
}

/// Returns a model that works without further setup: the model itself if the gateway has a key for
/// its provider or a route of that name, else the simulated model.
pub(crate) fn default_model(model: &str, config: &Config) -> String {
    let Ok(targets) = config.routes.resolve(model) else { return format!("{SIMULATED}{model}") };
    let is_usable = targets.iter().any(|target| {
        let provider = config.routes.provider(&target.provider);
        provider.is_some_and(|provider| match provider.credential {
            Credential::Own { .. } | Credential::Aws(_) | Credential::Dynamic(_) => true,
            Credential::Open => provider.is_configured(),
            Credential::Callers | Credential::Missing { .. } => false,
        })
    });
    if is_usable { model.to_owned() } else { format!("{SIMULATED}{model}") }
}

/// Returns the URL under which this machine reaches the configured address.
fn listen_url(server: &ServerSettings) -> Result<String> {
    let (host, port) = match &server.listen {
        ListenAddress::Address(address) => {
            let host = match address.ip() {
                IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
                IpAddr::V4(host) => host.to_string(),
                IpAddr::V6(host) if host.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
                IpAddr::V6(host) => format!("[{host}]"),
            };
            (host, address.port())
        }
        ListenAddress::HostName { host, port } => (host.clone(), *port),
        ListenAddress::Port(port) => ("localhost".to_owned(), *port),
        ListenAddress::Unix(_) => {
            return Err(Failure::Usage(
                "the configured address is a Unix socket, which clients cannot use: name a URL \
                 with --url"
                    .to_owned(),
            ));
        }
    };
    if port == 0 {
        return Err(Failure::Usage(
            "the configured port is 0, so the gateway picks a port at each start: name its \
             address with --url"
                .to_owned(),
        ));
    }
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{host}:{port}"))
}

/// Checks the value of `--url` and removes trailing slashes. The value is written to configuration
/// files and shell commands, so it may contain only plain characters.
fn checked_url(url: &str) -> Result<String> {
    let invalid = |problem: &str| {
        Err(Failure::Usage(format!(
            "--url is not valid: {problem}; write it as http://127.0.0.1:4400 or https://HOST"
        )))
    };
    let plain = url.trim_end_matches('/');
    let rest = plain.strip_prefix("http://").or_else(|| plain.strip_prefix("https://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return invalid("it must start with http:// or https://, and name a host");
    };
    if rest.contains('@') {
        return Err(Failure::Usage(
            "--url must not contain a user or a password: pass the gateway key with --key, or \
             export it as THROUGHLINE_KEY"
                .to_owned(),
        ));
    }
    if rest.contains(['?', '#']) {
        return invalid("it must not contain a query or a fragment");
    }
    let is_plain = |letter: char| letter.is_ascii_graphic() && !"\"'`$\\{}".contains(letter);
    if let Some(letter) = rest.chars().find(|letter| !is_plain(*letter)) {
        return invalid(&format!("it must not contain {letter:?}"));
    }
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    if host.is_empty() {
        return invalid("it must name a host");
    }
    if let Some(port) = port
        && !port.parse::<u16>().is_ok_and(|number| number > 0)
    {
        return invalid(&format!("the port `{port}` must be a number from 1 to 65535"));
    }
    if let Some(end) = ["/v1", "/v1beta"].into_iter().find(|end| plain.ends_with(end)) {
        return Err(Failure::Usage(format!(
            "--url must not end with {end}: connect adds the path that each client needs"
        )));
    }
    Ok(plain.to_owned())
}

/// Checks that a key can be part of an HTTP header. The error does not repeat the key.
fn checked_key(key: &str) -> Result<String> {
    if !key.is_empty() && key.chars().all(|letter| letter.is_ascii_graphic()) {
        return Ok(key.to_owned());
    }
    Err(Failure::Usage(
        "the gateway key must consist of printable ASCII characters without spaces".to_owned(),
    ))
}
