//! The clients that `throughline connect` knows. The list is data: `clients.toml` describes each
//! entry, and this module only parses it.

use serde::Deserialize;
use serde_json::Value;

const CLIENTS: &str = include_str!("clients.toml");

/// A program or library that can use the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientEntry {
    /// Name on the command line.
    pub(crate) name: String,
    /// The client's own name.
    pub(crate) title: String,
    /// Dialect of the gateway that the client uses.
    pub(crate) dialect: String,
    /// Default model.
    pub(crate) model: String,
    /// Default model for background work; `None` if the client uses only one model.
    pub(crate) small: Option<String>,
    /// Page in `docs/`.
    pub(crate) page: String,
    /// The vendor's documentation.
    pub(crate) docs: String,
    /// Program that `--run` starts; `None` for libraries.
    pub(crate) program: Option<String>,
    /// Command that installs the client.
    pub(crate) install: String,
    /// Whether `serve` prints how to connect the client.
    #[serde(default)]
    pub(crate) welcome: bool,
    /// Environment variables and their values.
    #[serde(default)]
    pub(crate) environment: Vec<(String, String)>,
    /// Environment variables that override or bypass the settings.
    #[serde(default)]
    pub(crate) conflicts: Vec<VariableConflict>,
    /// What to do after `--write`, unless it is only to start the program.
    pub(crate) next: Option<String>,
    /// Configuration files that `--write` changes.
    #[serde(default, rename = "file")]
    pub(crate) files: Vec<ClientFile>,
    pub(crate) snippet: Option<Snippet>,
}

/// An environment variable that overrides or bypasses the settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariableConflict {
    pub(crate) variable: String,
    /// What happens if the variable is set, as a clause.
    pub(crate) effect: String,
    /// Whether `--run` keeps the variable, because its own settings take precedence.
    #[serde(default)]
    pub(crate) keep: bool,
}

/// A configuration file of a client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientFile {
    pub(crate) folder: ClientFolder,
    /// Possible file names. The first existing file is used, otherwise the last name.
    pub(crate) names: Vec<String>,
    pub(crate) format: FileFormat,
    /// Path under which the file holds environment variables; `None` if it holds none.
    pub(crate) environment: Option<Vec<String>>,
    /// Whether exported variables take precedence over those in the file.
    #[serde(default, rename = "environment-wins")]
    pub(crate) environment_wins: bool,
    /// Files in a project folder that take precedence over this file, by their relative paths.
    #[serde(default)]
    pub(crate) project: Vec<String>,
    /// Whether the client ignores this file if a project folder has one of those files.
    #[serde(default, rename = "project-replaces")]
    pub(crate) project_replaces: bool,
    #[serde(default)]
    pub(crate) set: Vec<ClientSetting>,
    /// Option with which `--run` passes each setting.
    pub(crate) option: Option<String>,
    /// Option with which `--run` passes the path of a private copy of the settings.
    #[serde(rename = "path-option")]
    pub(crate) path_option: Option<String>,
    /// Environment variable with which `--run` passes the whole file.
    pub(crate) variable: Option<String>,
    /// Whether `--run` selects a folder of its own if the file lacks the settings.
    #[serde(default, rename = "own-folder")]
    pub(crate) has_own_folder: bool,
}

/// The folder of a configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientFolder {
    /// Environment variable that names the folder, or its parent if there is a suffix.
    pub(crate) variable: String,
    pub(crate) suffix: Option<String>,
    /// Folder if the variable is not set. `~` is the home directory.
    pub(crate) default: String,
}

/// Format of a configuration file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileFormat {
    /// JSON, with or without comments and trailing commas.
    Json,
    Toml,
    /// Lines of the form `NAME=value`.
    Env,
}

/// One setting in a configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientSetting {
    /// Path of the setting: member names, from the outermost object to the setting.
    pub(crate) at: Vec<String>,
    pub(crate) value: Value,
    /// Kind of key that the setting applies to; `None` if it applies to all.
    pub(crate) when: Option<KeyKind>,
}

/// Where the gateway key comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyKind {
    /// The gateway needs no key.
    None,
    /// The client reads the key from `THROUGHLINE_KEY`.
    Variable,
    /// The key is written out.
    Value,
}

/// A program text that shows how to use the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snippet {
    pub(crate) language: String,
    /// Start of a comment line.
    pub(crate) comment: String,
    /// Expression that reads the key from `THROUGHLINE_KEY`.
    pub(crate) key: String,
    /// Line that the expression needs at the start of the text.
    pub(crate) import: Option<String>,
    pub(crate) text: String,
}

impl ClientEntry {
    /// Returns the variables that `--run` and `--print` remove from the environment.
    pub(crate) fn removed_variables(&self) -> impl Iterator<Item = &str> {
        let removed = self.conflicts.iter().filter(|conflict| !conflict.keep);
        removed.map(|conflict| conflict.variable.as_str())
    }

    /// Returns whether the environment alone connects the client.
    pub(crate) fn needs_only_environment(&self) -> bool {
        !self.environment.is_empty() && self.files.iter().all(|file| file.environment.is_some())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientList {
    client: Vec<ClientEntry>,
}

/// Returns all clients in the order of the data file.
pub(crate) fn clients() -> Result<Vec<ClientEntry>, toml::de::Error> {
    toml::from_str::<ClientList>(CLIENTS).map(|list| list.client)
}

/// Returns the names of all clients.
pub(crate) fn names() -> Vec<String> {
    let clients = clients().unwrap_or_default();
    clients.into_iter().map(|client| client.name).collect()
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod clients_tests;
