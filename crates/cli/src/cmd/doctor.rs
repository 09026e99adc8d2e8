//! `throughline doctor`: environment details for bug reports. Contains no secret, address or path,
//! not even in part.

use std::path::Path;

use owo_colors::OwoColorize as _;
use serde_json::{Map, Value};
use throughline_codec::{CODECS, Catalog};

use crate::args::Doctor;
use crate::config::environment::variable;
use crate::config::{self, Config, Credential};
use crate::print::failure::Failure;
use crate::print::text::{self, count, push_line, stored_size};
use crate::store::sqlite_file;

pub(crate) fn run(options: &Doctor) -> Result<(), Failure> {
    let facts = facts(options);
    text::answer(&options.printing, || told(&facts), || json_of(&facts))
}

/// Labels and values in output order.
type ReportLines = Vec<(&'static str, String)>;

fn facts(options: &Doctor) -> ReportLines {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let rules: usize = CODECS.iter().map(|codec| codec.rules().len()).sum();
    let rows = Catalog::builtin().providers().len();
    let mut facts = vec![
        ("version", format!("{}, {build} build", env!("CARGO_PKG_VERSION"))),
        ("machine", format!("{system} {machine}, {}", count(cores, "core"))),
        ("rule book", format!("{rules} rules on {} wires, {rows} providers", CODECS.len())),
    ];
    let read = config::load(options.at.config.as_deref());
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

fn configuration(read: &Result<Config, Failure>) -> String {
    match read {
        Ok(config) if config.file.is_some() => "a valid file".to_owned(),
        Ok(_) => "none; all values are defaults".to_owned(),
        Err(_) => "a file with errors: `throughline config check` lists them".to_owned(),
    }
}

/// Describes the kind and size of the store.
fn store(options: &Doctor) -> String {
    let Some(file) = sqlite_file(&options.at) else {
        return "PostgreSQL, or unknown".to_owned();
    };
    let size = |file: &Path| std::fs::metadata(file).ok().map(|about| about.len());
    match size(&file) {
        Some(bytes) => format!("SQLite, {}", stored_size(bytes)),
        None => "SQLite, not created yet".to_owned(),
    }
}

/// Lists the providers that work without a caller's key, and the sources of their keys.
fn providers(config: &Config) -> String {
    let ready = config.routes.providers().iter().filter_map(|provider| {
        let name = if Catalog::builtin().provider(&provider.name).is_some() {
            provider.name.to_string()
        } else {
            "a custom provider".to_owned()
        };
        match &provider.credential {
            Credential::Own { variable: Some(_), .. } => Some(format!("{name} (variable)")),
            Credential::Own { variable: None, .. } => Some(format!("{name} (file)")),
            Credential::Aws(_) => Some(format!("{name} (AWS)")),
            Credential::Missing { .. } => Some(format!("{name} (key missing)")),
            Credential::Callers | Credential::Open => None,
        }
    });
    let ready: Vec<String> = ready.collect();
    if ready.is_empty() { "the simulators only".to_owned() } else { ready.join(", ") }
}

fn told(facts: &ReportLines) -> String {
    let mut out = String::new();
    push_line(&mut out, &"throughline doctor".bold().to_string());
    for (what, value) in facts {
        push_line(&mut out, &format!("  {} {value}", format!("{what:<14}").dimmed()));
    }
    push_line(
        &mut out,
        "\nThis output contains no key, address or path. Paste it into a bug report.",
    );
    out
}

fn json_of(facts: &ReportLines) -> Map<String, Value> {
    facts.iter().map(|(what, value)| (what.replace(' ', "_"), value.as_str().into())).collect()
}
