//! The configuration of the gateway, `throughline.toml`: what it says, where it is found, and `throughline config`.
//!
//! `settings`, `routes`, `builtin`, `likeness` and `secret` are plain data and know neither files nor the environment;
//! `file`, `provider` and `reader` make them of a text; what reads the file and the variables is here.

mod builtin;
mod check;
mod file;
mod likeness;
mod provider;
mod reader;
mod routes;
mod secret;
mod settings;
mod show;
mod tracing;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use throughline_codec::Catalog;
use throughline_core::RedactionPolicy;
use throughline_tools::Declared;

use crate::environment::{folder, variable};
use crate::failure::Failure;

pub(crate) use self::check::run as check;
pub(crate) use self::file::price_table;
pub(crate) use self::provider::shown_variable;
pub(crate) use self::routes::{Credential, Endpoint, Routes};
pub(crate) use self::settings::{
    Agents, Capture, Gateway, LogLevel, Price, Prices, ReplayMode, Server, StoreSettings, Timeouts,
};
pub(crate) use self::show::run as show;
pub(crate) use self::tracing::TracingSettings;

#[cfg(test)]
#[path = "config/config_tests.rs"]
mod config_tests;

#[cfg(test)]
#[path = "config/routes_tests.rs"]
mod routes_tests;

/// What the file is called.
const NAME: &str = "throughline.toml";

/// How many problems are told at once to who only wanted to use the configuration.
const TOLD: usize = 5;

/// How the gateway is to work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The file that said so; none where everything is as usual.
    pub(crate) file: Option<PathBuf>,
    /// `[server]`
    pub(crate) server: Server,
    /// `[store]`
    pub(crate) store: StoreSettings,
    /// `[gateway]`
    pub(crate) gateway: Gateway,
    /// `[agents]`
    pub(crate) agents: Agents,
    /// `[mcp.NAME]` and `[http.NAME]`: the tools of agents.
    pub(crate) tools: Declared,
    /// `[redaction]`: what nobody is shown of agents.
    pub(crate) redaction: Option<RedactionPolicy>,
    /// `[providers.NAME]` and `[[routes]]`, with the built-in providers.
    pub(crate) routes: Routes,
    /// `[prices."model"]`
    pub(crate) prices: Prices,
    /// `[tracing]`
    pub(crate) tracing: TracingSettings,
    /// The lines of the keys that the file has, by their paths.
    lines: BTreeMap<String, usize>,
}

/// What nobody is shown, as the configuration says; else the usual secrets.
pub(crate) fn redaction(file: Option<&Path>) -> Result<RedactionPolicy, Failure> {
    Ok(load(file)?.redaction.unwrap_or_default())
}

/// The configuration of that file, or of the first that is found; the defaults where there is none.
pub(crate) fn load(file: Option<&Path>) -> Result<Config, Failure> {
    let file::Reading { config, errors, .. } = examine(file)?;
    if errors.is_empty() {
        return Ok(config);
    }
    let name = config.file.unwrap_or_default();
    let name = name.display();
    let told = errors.iter().take(TOLD).map(|problem| format!("{name}:{problem}"));
    let mut told: Vec<String> = told.collect();
    if errors.len() > TOLD {
        told.push(format!(
            "and {} more: `throughline config check --config {name}` shows them",
            errors.len() - TOLD
        ));
    }
    Err(Failure::BadData(told.join("\n")))
}

/// Reads the same, and says what is wrong with it.
fn examine(file: Option<&Path>) -> Result<file::Reading, Failure> {
    let found = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, error))?;
            Some((file.to_owned(), text))
        }
        None => found()?,
    };
    let (path, text) = found.map_or((None, String::new()), |(path, text)| (Some(path), text));
    // A variable that is not text holds no key.
    let variable = |name: &str| variable(name).ok().flatten();
    let mut reading = file::read(&text, Catalog::builtin(), &variable);
    reading.config.file = path;
    Ok(reading)
}

fn unreadable(file: &Path, error: io::Error) -> Failure {
    let message = format!("the configuration {} cannot be read", file.display());
    anyhow::Error::new(error).context(message).into()
}

/// The file in the working directory, or else the user's own.
fn found() -> Result<Option<(PathBuf, String)>, Failure> {
    let own = config_folder()?.map(|folder| folder.join("throughline").join(NAME));
    for file in [Some(PathBuf::from(NAME)), own].into_iter().flatten() {
        match std::fs::read_to_string(&file) {
            Ok(text) => return Ok(Some((file, text))),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
                _ => return Err(unreadable(&file, error)),
            },
        }
    }
    Ok(None)
}

/// Where a user's programs keep their configuration; none for who has no home.
fn config_folder() -> Result<Option<PathBuf>, Failure> {
    if let Some(folder) = folder("XDG_CONFIG_HOME")? {
        return Ok(Some(folder));
    }
    if cfg!(windows) {
        return folder("APPDATA");
    }
    let own: &[&str] =
        if cfg!(target_os = "macos") { &["Library", "Application Support"] } else { &[".config"] };
    Ok(folder("HOME")?.map(|home| home.join(own.iter().collect::<PathBuf>())))
}
