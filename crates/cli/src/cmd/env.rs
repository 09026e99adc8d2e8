//! `throughline env`: prints environment details for bug reports. The output contains no secret and
//! no address. Environment variables are printed without their values, and paths without the name
//! of the home directory.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use owo_colors::OwoColorize as _;
use serde_json::{Map, Value};
use throughline_codec::CODECS;
use throughline_provider::CredentialSettings;
use throughline_store::open;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::args::CommonArgs;
use crate::config::environment::{folder, variable};
use crate::config::{self, Config, Credential, InstalledCatalog};
use crate::listen_address::ListenAddress;
use crate::print::failure::{Failure, Result};
use crate::print::text::{count, plain, stored_size};
use crate::store::{IfMissing, open_failure, open_options, runtime, sqlite_file, store_url};

/// Environment variables that change the behaviour of this program, besides the providers' keys.
const VARIABLES: [&str; 10] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_REGION",
    "NO_COLOR",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "THROUGHLINE_KEY",
    "THROUGHLINE_MASTER_KEY",
    "THROUGHLINE_STORE",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

/// Time limit for opening the store.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &CommonArgs) -> Result<()> {
    let facts = facts(options);
    options.format.print(|| text_of(&facts), || json_of(&facts))
}

/// Labels and values of the report, in output order.
type ReportLines = Vec<(&'static str, String)>;

fn facts(options: &CommonArgs) -> ReportLines {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let rules: usize = CODECS.iter().map(|codec| codec.rules().len()).sum();
    let read = config::load(options.at.config.as_deref());
    let catalog = read.as_ref().map(|config| config.catalog.clone()).unwrap_or_default();
    let rows = catalog.shared.current().providers().len();
    let features = if cfg!(feature = "profile") { "profile" } else { "none" };
    let mut facts = vec![
        ("version", format!("{}, {build} build", env!("CARGO_PKG_VERSION"))),
        ("features", features.to_owned()),
        ("machine", format!("{system} {machine}, {}", count(cores, "core"))),
        ("rule book", format!("{rules} rules on {} wires, {rows} providers", CODECS.len())),
    ];
    facts.push(("catalog", installed(&catalog)));
    facts.push(("configuration", configuration(&read)));
    facts.push(("store", store(options)));
    let has_key = options.at.master_key_file.is_some()
        || variable("THROUGHLINE_MASTER_KEY").is_ok_and(|key| key.is_some());
    facts.push(("master key", if has_key { "given" } else { "none" }.to_owned()));
    if let Ok(config) = &read {
        facts.push(("providers", providers(config)));
        let sinks = config.tracing.sinks.iter().map(|sink| sink.kind.as_str());
        let sinks: Vec<&str> = sinks.collect();
        facts.push(("traces", if sinks.is_empty() { "none".to_owned() } else { sinks.join(", ") }));
        let tls = if config.server.tls.is_some() { "with TLS" } else { "without TLS" };
        let kind = match &config.server.listen {
            ListenAddress::Address(_) | ListenAddress::HostName { .. } => "an address",
            ListenAddress::Port(_) => "all interfaces",
            ListenAddress::Unix(_) => "a Unix socket",
        };
        facts.push(("listener", format!("{kind}, {tls}")));
    }
    facts.push(("variables", variables(&catalog)));
    facts
}

/// Lists the relevant environment variables that are set, without their values, and counts the
/// others.
fn variables(catalog: &InstalledCatalog) -> String {
    let catalog = catalog.shared.current();
    let keys = catalog.providers().iter().filter_map(|row| row.key_env.as_deref());
    let names: BTreeSet<&str> = VARIABLES.into_iter().chain(keys).collect();
    // A variable that is not valid UTF-8 is set, but cannot be used.
    let (set, unset): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| variable(name).map_or(true, |value| value.is_some()));
    let set =
        if set.is_empty() { "none set".to_owned() } else { format!("{} set", set.join(", ")) };
    format!("{set}; {} unset", unset.len())
}

/// Returns the version of the catalog in effect, and whether a file was installed.
fn installed(catalog: &InstalledCatalog) -> String {
    let version = catalog.shared.current().version();
    let version = version.map(|version| version.to_string()).unwrap_or_default();
    match (&catalog.file, &catalog.problem) {
        (Some(_), _) => format!("{version}, installed"),
        (None, None) => format!("{version}, built in"),
        (None, Some(_)) => format!("{version}, built in; the installed file is not used"),
    }
}

fn configuration(read: &Result<Config>) -> String {
    match read {
        Ok(Config { file: Some(file), .. }) => format!("a valid file, {}", shown_path(file)),
        Ok(_) => "none; all values are defaults".to_owned(),
        Err(Failure::BadData(_)) => {
            "a file with errors: `throughline config check` lists them".to_owned()
        }
        Err(_) => "cannot be read: `throughline config check` prints the reason".to_owned(),
    }
}

/// Returns a path, with `~` instead of the home directory.
fn shown_path(path: &Path) -> String {
    let home = folder("HOME").ok().flatten();
    let path = match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) => Path::new("~").join(rest),
        None => path.to_owned(),
    };
    plain(&path.display().to_string())
}

/// Returns the type of the store, its schema version and, for SQLite, the file size.
fn store(options: &CommonArgs) -> String {
    if store_url(&options.at).is_err() {
        return "unknown: `throughline check` prints the reason".to_owned();
    }
    let kind = match sqlite_file(&options.at).map(std::fs::metadata) {
        None => "PostgreSQL".to_owned(),
        Some(Ok(file)) => format!("SQLite, {}", stored_size(file.len())),
        Some(Err(_)) => return "SQLite, not created yet".to_owned(),
    };
    match schema_version(options) {
        Ok(version) => format!("{kind}, schema version {version}"),
        Err(_) => format!("{kind}, cannot be opened: `throughline check` prints the reason"),
    }
}

/// Opens the store read-only and returns its schema version.
fn schema_version(options: &CommonArgs) -> Result<i64> {
    let (url, how) = open_options(&options.at, IfMissing::FailsReadOnly)?;
    runtime(Builder::new_current_thread())?.block_on(async {
        let opened = timeout(OPEN_LIMIT, open(&url, &how)).await.context("the store is slow")?;
        let journal = opened.map_err(|error| open_failure(error, &url))?;
        let version = journal.schema_version().await;
        journal.close().await.map_err(|error| open_failure(error, &url))?;
        version.map_err(|error| open_failure(error, &url))
    })
}

/// Lists the providers that use the operator's key, and where each key comes from.
fn providers(config: &Config) -> String {
    let ready = config.routes.providers().iter().filter_map(|provider| {
        let name = plain(&provider.name);
        let source = match &provider.credential {
            Credential::Own { variable: Some(_), .. } => "variable",
            Credential::Own { variable: None, .. } => "file",
            Credential::Aws(_) => "AWS",
            // The full description may contain a path.
            Credential::Dynamic(settings) => match settings {
                CredentialSettings::File(_) => "key file",
                CredentialSettings::Command(_) => "command",
                CredentialSettings::Aws(_) => "AWS",
                CredentialSettings::Google(_) => "Google",
                CredentialSettings::Entra(_) => "Entra",
            },
            Credential::Missing { .. } => "key missing",
            Credential::Callers | Credential::Open => return None,
        };
        Some(format!("{name} ({source})"))
    });
    let ready: Vec<String> = ready.collect();
    if ready.is_empty() { "the simulators only".to_owned() } else { ready.join(", ") }
}

fn text_of(facts: &ReportLines) -> String {
    let fact = |(label, value): &(&str, String)| {
        format!("  {} {value}\n", format!("{label:<14}").dimmed())
    };
    let (title, facts) = ("throughline env".bold(), facts.iter().map(fact).collect::<String>());
    let end = "This output contains no key, password or address. Paste it into a bug report.";
    format!("{title}\n{facts}\n{end}\n")
}

fn json_of(facts: &ReportLines) -> Map<String, Value> {
    facts.iter().map(|(name, value)| (name.replace(' ', "_"), value.as_str().into())).collect()
}
