//! Parses the API keys of providers and accounts, the sources of keys, and the names of the
//! variables that hold keys.

use std::path::{Path, PathBuf};
use std::time::Duration;

use throughline_codec::is_variable_name;
use throughline_core::Credential as Key;
use throughline_json::Name;
use throughline_provider::{
    AwsSettings, CommandSettings, CredentialSettings, EntraSettings, GoogleSettings,
};
use throughline_tools::reader::{Diagnostics, Section};

use super::routes::Credential;

/// Keys of a provider or an account that configure a credential. A section may have one of them.
pub(super) const SOURCES: &[&str] =
    &["api_key", "api_key_env", "key_file", "key_command", "credentials"];

/// Keys of a section that configure a secret, one for each source.
pub(super) struct SecretKeys {
    pub(super) value: &'static str,
    pub(super) variable: &'static str,
    pub(super) file: &'static str,
    pub(super) command: &'static str,
}

const API_KEY: SecretKeys = SecretKeys {
    value: "api_key",
    variable: "api_key_env",
    file: "key_file",
    command: "key_command",
};

/// Keys that refine a credential, each with the key that it requires.
const REFINEMENTS: [(&str, &str); 4] = [
    ("key_command_timeout", "key_command"),
    ("key_command_interval", "key_command"),
    ("aws_profile", "credentials"),
    ("azure_scope", "credentials"),
];

/// Default time after which a `key_command` is stopped.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Default time after which a `key_command` is run again.
const COMMAND_INTERVAL: Duration = Duration::from_mins(5);

/// Clouds whose identity services provide credentials.
#[derive(Clone, Copy)]
enum Cloud {
    Aws,
    Google,
    Azure,
}

const CLOUDS: &[(&str, Cloud)] =
    &[("aws", Cloud::Aws), ("google", Cloud::Google), ("azure", Cloud::Azure)];

/// Returns the keys of a section that configure a credential, after the section's other keys.
pub(super) fn with_credential_keys<'k>(keys: &[&'k str]) -> Vec<&'k str> {
    let refinements = REFINEMENTS.iter().map(|(key, _)| *key);
    let own = SOURCES.iter().copied().chain(refinements);
    let missing: Vec<&str> = own.filter(|key| !keys.contains(key)).collect();
    [keys, &missing].concat()
}

/// Returns the credential in the section; `None` if the section configures no credential. `owner`
/// is what the section describes, for messages.
pub(super) fn own_key(
    section: &Section<'_>,
    owner: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    check_combination(section, SOURCES, notes);
    if section.has("credentials") {
        return cloud_identity(section, notes);
    }
    secret(section, &API_KEY, owner, notes)
}

/// Returns the secret in the section, whose keys have these names; `None` if the section configures
/// no secret.
pub(super) fn own_secret(
    section: &Section<'_>,
    keys: &SecretKeys,
    owner: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    check_combination(section, &[keys.value, keys.variable, keys.file, keys.command], notes);
    secret(section, keys, owner, notes)
}

fn secret(
    section: &Section<'_>,
    keys: &SecretKeys,
    owner: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    if section.has(keys.file) {
        return key_file(section, keys.file, owner, notes);
    }
    if section.has(keys.command) {
        return key_command(section, keys.command, notes);
    }
    let (key, variable, at, key_source) = match section.text(keys.value, "…", notes) {
        Some(key) => {
            (key.to_owned(), None, section.value_at(keys.value), format!("`{}`", keys.value))
        }
        None => {
            let name = variable_name(keys.variable, section, notes)?;
            let (at, variable) = (section.value_at(keys.variable), Name::from(name));
            let shown = shown_variable(name);
            let Some(key) = (notes.variables)(name) else {
                let message = format!("{shown} is not set; this {owner} cannot be used without it");
                notes.warning(at, message);
                return Some(Credential::Missing { variable });
            };
            (key.trim().to_owned(), Some(variable), at, format!("the key in {shown}"))
        }
    };
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        let message = format!(
            "{key_source} contains a character that is invalid in an HTTP header: copy the key again"
        );
        notes.error(at, message);
    }
    Some(Credential::Own { key: Key::new(key), variable })
}

/// Reports sources that exclude each other, and refinements without their source.
fn check_combination(section: &Section<'_>, sources: &[&str], notes: &mut Diagnostics<'_>) {
    let mut present = sources.iter().filter(|key| section.has(key));
    if let (Some(first), Some(second)) = (present.next(), present.next()) {
        let hint = if second.ends_with("_env") { ", preferably the variable" } else { "" };
        let message = format!("both `{first}` and `{second}` are set: keep only one{hint}");
        notes.error(section.key_at(first), message);
    }
    for (key, source) in REFINEMENTS {
        if section.has(key) && !section.has(source) {
            let message = format!("`{key}` requires `{source}`: add it, or remove `{key}`");
            notes.error(section.key_at(key), message);
        }
    }
}

/// Parses the path of a file that contains a key. The file may be created later.
fn key_file(
    section: &Section<'_>,
    key: &str,
    owner: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    const EXAMPLE: &str = "/run/secrets/openai";
    let path = section.text(key, EXAMPLE, notes)?;
    let at = section.value_at(key);
    if !Path::new(path).is_absolute() {
        let message = format!("`{key}` must be an absolute path: write {key} = \"{EXAMPLE}\"");
        notes.error(at, message);
        return None;
    }
    if !Path::new(path).is_file() {
        let message = format!("there is no file {path}; this {owner} cannot be used without it");
        notes.warning(at, message);
    }
    Some(Credential::Dynamic(CredentialSettings::File(PathBuf::from(path))))
}

/// Parses a program that prints a key.
fn key_command(
    section: &Section<'_>,
    key: &str,
    notes: &mut Diagnostics<'_>,
) -> Option<Credential> {
    let words = section.any_texts(key, "\"pass\", \"openai\"", notes)?;
    let command: Vec<String> = words.into_iter().map(|(_, word)| word.to_owned()).collect();
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        let message = format!("`{key}` needs a program: write {key} = [\"pass\", \"openai\"]");
        notes.error(section.value_at(key), message);
        return None;
    }
    let timeout = section.time("key_command_timeout", notes).unwrap_or(COMMAND_TIMEOUT);
    let interval = section.time("key_command_interval", notes).unwrap_or(COMMAND_INTERVAL);
    let settings = CommandSettings { command, timeout, interval };
    Some(Credential::Dynamic(CredentialSettings::Command(settings)))
}

/// Parses the cloud whose identity service provides the credential.
fn cloud_identity(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> Option<Credential> {
    let cloud = section.choice("credentials", CLOUDS, notes)?;
    let profile = section.text("aws_profile", "production", notes);
    let scope = section.text("azure_scope", "https://ai.azure.com/.default", notes);
    let settings = match cloud {
        Cloud::Aws => {
            let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter();
            let region = region.filter_map(notes.variables).find(|region| !region.is_empty());
            CredentialSettings::Aws(AwsSettings {
                profile: profile.map(Name::from),
                region: region.map(Name::from),
            })
        }
        Cloud::Google => CredentialSettings::Google(GoogleSettings::from_env(notes.variables)),
        Cloud::Azure => CredentialSettings::Entra(EntraSettings::from_env(scope, notes.variables)),
    };
    for (key, is_allowed) in [
        ("aws_profile", matches!(cloud, Cloud::Aws)),
        ("azure_scope", matches!(cloud, Cloud::Azure)),
    ] {
        if section.has(key) && !is_allowed {
            let message =
                format!("`{key}` does not apply to this value of `credentials`: remove it");
            notes.error(section.key_at(key), message);
        }
    }
    Some(Credential::Dynamic(settings))
}

/// Reads a setting that names an environment variable. If the value looks like a secret, the error
/// message omits the value.
pub(super) fn variable_name<'s>(
    key: &str,
    section: &Section<'s>,
    notes: &mut Diagnostics<'_>,
) -> Option<&'s str> {
    let name = section.text(key, "WORK_KEY", notes)?;
    let is_name = is_variable_name(name);
    let expected =
        format_args!("the name of a variable, not the secret itself: write {key} = \"WORK_KEY\"");
    section.parse(key, |_| is_name.then_some(name), expected, notes)
}

/// Formats the name of an environment variable for display. A value that does not look like a name
/// is hidden, because it may be a misplaced secret.
pub(crate) fn shown_variable(name: &str) -> String {
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_word = name.contains('_') || !name.contains(|c: char| c.is_ascii_digit());
    if name.len() <= 60 && is_word && name.chars().all(is_usual) {
        format!("${name}")
    } else {
        "a variable whose name looks like a secret".to_owned()
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod key_tests;
