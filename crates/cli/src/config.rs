//! The gateway's configuration file, `throughline.toml`, and the `throughline config` commands.
//!
//! `settings`, `routes` and `builtin` are plain data without I/O. `file`, `provider`, `pool`,
//! `key`, `console`, `retention` and `tracing` parse the text, and `opentelemetry` parses
//! OpenTelemetry's variables. `changes` compares two versions of the file. This module reads the
//! file and the environment variables.

mod builtin;
mod catalog;
mod changes;
mod console;
pub(crate) mod environment;
pub(crate) mod file;
mod key;
mod opentelemetry;
pub(crate) mod pool;
pub(crate) mod prices;
mod provider;
pub(crate) mod retention;
pub(crate) mod routes;
pub(crate) mod settings;
mod tracing;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use throughline_spec::RedactionPolicy;
use throughline_tools::{Problem, ToolDeclarations};

use crate::config::environment::{folder, readable_variable};
use crate::print::failure::{Failure, Result};
use crate::print::text;

#[cfg(test)]
pub(crate) use self::builtin::providers as builtin_providers;
pub(crate) use self::catalog::{
    CatalogFile, CatalogFileError, CatalogSettings, FileStamp, InstalledCatalog, check_version,
    read_bytes,
};
pub(crate) use self::changes::ConfigSnapshot;
pub(crate) use self::console::OidcConfig;
pub(crate) use self::file::price_table;
pub(crate) use self::key::shown_variable;
pub(crate) use self::retention::RetentionSettings;
pub(crate) use self::routes::{Credential, Endpoint, PoolSettings, ProviderSettings, Routes};
pub(crate) use self::settings::{
    AgentSettings, GatewaySettings, Price, Prices, ServerSettings, StoreSettings, TlsFiles,
};
pub(crate) use self::tracing::TracingSettings;

#[cfg(test)]
#[path = "config/config_tests.rs"]
mod config_tests;

#[cfg(test)]
#[path = "config/routes_tests.rs"]
mod routes_tests;

const NAME: &str = "throughline.toml";

/// Maximum number of problems that commands other than `config check` print.
const PRINTED: usize = 5;

#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The file that was read; `None` if all values are defaults.
    pub(crate) file: Option<PathBuf>,
    pub(crate) server: ServerSettings,
    /// `[console.oidc]`: the identity provider of the console.
    pub(crate) console: Option<OidcConfig>,
    pub(crate) store: StoreSettings,
    pub(crate) gateway: GatewaySettings,
    pub(crate) agents: AgentSettings,
    /// `[mcp.NAME]` and `[http.NAME]`: tools for agents.
    pub(crate) tools: ToolDeclarations,
    /// `[redaction]`: which text is redacted in agent output.
    pub(crate) redaction: Option<RedactionPolicy>,
    /// `[providers.NAME]` and `[[routes]]`, with the built-in providers.
    pub(crate) routes: Routes,
    /// The `[prices."MODEL"]` tables.
    pub(crate) prices: Prices,
    pub(crate) tracing: TracingSettings,
    pub(crate) retention: RetentionSettings,
    /// `[catalog]`, and the catalog in effect.
    pub(crate) catalog: InstalledCatalog,
    /// Line numbers of the keys in the file, by key path.
    pub(crate) lines: BTreeMap<String, usize>,
}

/// Loads `file`. Without `file`, loads the first default file that exists, or returns the defaults.
pub(crate) fn load(file: Option<&Path>) -> Result<Config> {
    without_errors(read_config(file)?)
}

/// Loads the same file as `load`. Returns the values as written and the warnings in addition.
pub(crate) fn load_snapshot(file: Option<&Path>) -> Result<(Config, ConfigSnapshot, Vec<String>)> {
    let (path, text) = read_text(file)?;
    let name = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let snapshot = ConfigSnapshot::parse(&text);
    let parsed = parse_with_catalog(path, &text);
    let warnings = parsed.warnings.iter().map(|problem| format!("{name}:{problem}"));
    let warnings = warnings.collect();
    Ok((without_errors(parsed)?, snapshot, warnings))
}

/// Loads the same file as `load` for a running process, which keeps the catalog in effect.
pub(crate) fn reload(
    file: Option<&Path>,
    catalog: InstalledCatalog,
) -> Result<(Config, ConfigSnapshot)> {
    let (path, text) = read_text(file)?;
    let snapshot = ConfigSnapshot::parse(&text);
    Ok((without_errors(parse(path, &text, catalog))?, snapshot))
}

fn without_errors(parsed: file::ParsedConfig) -> Result<Config> {
    let file::ParsedConfig { config, errors, .. } = parsed;
    if errors.is_empty() {
        return Ok(config);
    }
    let name = config.file.unwrap_or_default();
    let name = name.display();
    let lines = errors.iter().take(PRINTED).map(|problem| format!("{name}:{problem}"));
    let mut lines: Vec<String> = lines.collect();
    if let more @ 1.. = errors.len().saturating_sub(PRINTED) {
        let check = format!("`throughline config check --config {name}`");
        lines.push(format!("and {more} more: {check} lists them"));
    }
    Err(Failure::BadData(lines.join("\n")))
}

/// Reads the same file as `load` and returns the configuration with all its problems.
pub(crate) fn read_config(file: Option<&Path>) -> Result<file::ParsedConfig> {
    let (path, text) = read_text(file)?;
    Ok(parse_with_catalog(path, &text))
}

fn parse_with_catalog(path: Option<PathBuf>, text: &str) -> file::ParsedConfig {
    // The rest of the file may name providers of the installed catalog.
    let settings = file::catalog_settings(text, path.as_deref()).unwrap_or_default();
    parse(path, text, InstalledCatalog::load(settings))
}

fn parse(path: Option<PathBuf>, text: &str, catalog: InstalledCatalog) -> file::ParsedConfig {
    let mut parsed = file::read(text, &catalog.shared.current(), &readable_variable);
    if let Some(message) = catalog.warning() {
        let line = parsed.config.lines.get("catalog").copied().unwrap_or(1);
        parsed.warnings.insert(0, Problem { line, column: 1, message });
    }
    if let (Some(files), Some(path)) = (&mut parsed.config.server.tls, &path) {
        files.resolve(path);
    }
    parsed.config.file = path;
    parsed.config.catalog = catalog;
    parsed
}

/// Loads only the catalog in effect, for commands that need no other configuration. A problem in a
/// default file does not stop these commands: they print a note and use the built-in rows.
pub(crate) fn load_catalog(file: Option<&Path>) -> Result<InstalledCatalog> {
    let settings = match load_catalog_settings(file) {
        Err(failure) if file.is_none() => {
            text::note(&format!("{failure}; only the built-in catalog is used"));
            CatalogSettings::default()
        }
        settings => settings?,
    };
    let catalog = InstalledCatalog::load(settings);
    if let Some(warning) = catalog.warning() {
        text::note(&warning);
    }
    Ok(catalog)
}

/// Loads only the `[catalog]` table.
pub(crate) fn load_catalog_settings(file: Option<&Path>) -> Result<CatalogSettings> {
    let (path, text) = read_text(file)?;
    file::catalog_settings(&text, path.as_deref()).map_err(|problem| {
        let name = path.unwrap_or_default();
        Failure::BadData(format!("{}:{problem}", name.display()))
    })
}

/// Returns the path and the text of the configuration file; no path and no text if there is none.
fn read_text(file: Option<&Path>) -> Result<(Option<PathBuf>, String)> {
    let found = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
            Some((file.to_owned(), text))
        }
        None => find_config_file()?,
    };
    let (path, text) = found.unzip();
    Ok((path, text.unwrap_or_default()))
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "create the file, or name another file with --config",
        ErrorKind::PermissionDenied => {
            "make the file readable for this user, or name another file with --config"
        }
        ErrorKind::IsADirectory => "this is a folder: name a file with --config",
        ErrorKind::InvalidData => "save the file as UTF-8",
        _ => "name another file with --config",
    };
    let name = file.display();
    Failure::Usage(format!("cannot read the configuration {name}: {error}; {remedy}"))
}

/// Returns the path and text of the file in the working directory. If there is none, returns those
/// of the user's file.
fn find_config_file() -> Result<Option<(PathBuf, String)>> {
    let user_file = config_folder()?.map(|folder| folder.join("throughline").join(NAME));
    for file in [Some(PathBuf::from(NAME)), user_file].into_iter().flatten() {
        match std::fs::read_to_string(&file) {
            Ok(text) => return Ok(Some((file, text))),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unreadable(&file, &error)),
        }
    }
    Ok(None)
}

/// Returns the user's configuration directory; `None` if there is no home directory.
fn config_folder() -> Result<Option<PathBuf>> {
    if let Some(folder) = folder("XDG_CONFIG_HOME")? {
        return Ok(Some(folder));
    }
    if cfg!(windows) {
        return folder("APPDATA");
    }
    let folders: &[&str] =
        if cfg!(target_os = "macos") { &["Library", "Application Support"] } else { &[".config"] };
    Ok(folder("HOME")?.map(|home| home.join(folders.iter().collect::<PathBuf>())))
}
