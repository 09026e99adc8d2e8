//! `throughline doctor`: the environment, for bug reports. No secret is told, nor an address or a path, nor any part of one.

use std::path::Path;

use owo_colors::OwoColorize as _;
use throughline_codec::{CODECS, Catalog};
use throughline_core::{Json, json};

use crate::config::{self, Config, Credential};
use crate::environment::variable;
use crate::failure::Failure;
use crate::options::Doctor;
use crate::store::file_of;
use crate::text::{self, count, push_line, stored_size};

pub(crate) fn run(options: &Doctor) -> Result<(), Failure> {
    let facts = facts(options);
    text::answer(&options.printing, || told(&facts), || json_of(&facts))
}

/// What is told, in its order.
type Facts = Vec<(&'static str, String)>;

fn facts(options: &Doctor) -> Facts {
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
        Ok(config) if config.file.is_some() => "a file, which holds".to_owned(),
        Ok(_) => "none; everything is as usual".to_owned(),
        Err(_) => "a file with errors: `throughline config check` says which".to_owned(),
    }
}

/// Of which kind the store is, and how large.
fn store(options: &Doctor) -> String {
    let Some(file) = file_of(&options.at) else {
        return "PostgreSQL, or one that is not known".to_owned();
    };
    let size = |file: &Path| std::fs::metadata(file).ok().map(|about| about.len());
    match size(&file) {
        Some(bytes) => format!("SQLite, {}", stored_size(bytes)),
        None => "SQLite, not made yet".to_owned(),
    }
}

/// Who can be asked without a caller's key, and where the keys come from.
fn providers(config: &Config) -> String {
    let ready = config.routes.providers().iter().filter_map(|provider| {
        let name = if Catalog::builtin().provider(&provider.name).is_some() {
            provider.name.to_string()
        } else {
            "one of your own".to_owned()
        };
        match &provider.credential {
            Credential::Own { variable: Some(_), .. } => Some(format!("{name} (variable)")),
            Credential::Own { variable: None, .. } => Some(format!("{name} (file)")),
            Credential::Aws(_) => Some(format!("{name} (AWS)")),
            Credential::Missing { .. } => Some(format!("{name} (its key is missing)")),
            Credential::Callers | Credential::Open => None,
        }
    });
    let ready: Vec<String> = ready.collect();
    if ready.is_empty() { "the simulators only".to_owned() } else { ready.join(", ") }
}

fn told(facts: &Facts) -> String {
    let mut out = String::new();
    push_line(&mut out, &"throughline doctor".bold().to_string());
    for (what, value) in facts {
        push_line(&mut out, &format!("  {} {value}", format!("{what:<14}").dimmed()));
    }
    push_line(&mut out, "\nNo key, address or path is in this. Paste it into a report.");
    out
}

fn json_of(facts: &Facts) -> Json {
    json::object(|o| {
        for (what, value) in facts {
            o.string(&what.replace(' ', "_"), value);
        }
    })
}
