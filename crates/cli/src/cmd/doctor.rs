//! `throughline doctor`: prints environment details for bug reports. The output contains no secret,
//! address or path, not even in part.

use owo_colors::OwoColorize as _;
use serde_json::{Map, Value};
use throughline_codec::CODECS;

use crate::args::CommonArgs;
use crate::config::environment::variable;
use crate::config::{self, Config, Credential, InstalledCatalog};
use crate::print::failure::Result;
use crate::print::text::{count, stored_size};
use crate::store::sqlite_file;

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
    let mut facts = vec![
        ("version", format!("{}, {build} build", env!("CARGO_PKG_VERSION"))),
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
    }
    facts
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
        Ok(config) if config.file.is_some() => "a valid file".to_owned(),
        Ok(_) => "none; all values are defaults".to_owned(),
        Err(_) => "a file with errors: `throughline config check` lists them".to_owned(),
    }
}

/// Returns the type of the store and, for SQLite, the file size.
fn store(options: &CommonArgs) -> String {
    match sqlite_file(&options.at).map(std::fs::metadata) {
        None => "PostgreSQL, or unknown".to_owned(),
        Some(Ok(file)) => format!("SQLite, {}", stored_size(file.len())),
        Some(Err(_)) => "SQLite, not created yet".to_owned(),
    }
}

/// Lists the providers that use the operator's key, and where each key comes from.
fn providers(config: &Config) -> String {
    let ready = config.routes.providers().iter().filter_map(|provider| {
        let is_known = config.catalog.shared.current().provider(&provider.name).is_some();
        let name = if is_known { &*provider.name } else { "a custom provider" };
        let source = match &provider.credential {
            Credential::Own { variable: Some(_), .. } => "variable",
            Credential::Own { variable: None, .. } => "file",
            Credential::Aws(_) => "AWS",
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
    let (title, facts) = ("throughline doctor".bold(), facts.iter().map(fact).collect::<String>());
    let end = "This output contains no key, address or path. Paste it into a bug report.";
    format!("{title}\n{facts}\n{end}\n")
}

fn json_of(facts: &ReportLines) -> Map<String, Value> {
    facts.iter().map(|(name, value)| (name.replace(' ', "_"), value.as_str().into())).collect()
}
