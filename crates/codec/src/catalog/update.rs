//! Parses catalog files: provider and model rows that are newer than those of a release.
//!
//! ```toml
//! [catalog]
//! version = "2026-11-17"
//!
//! [[profile]]
//! name = "claude-fable-6"
//! models = ["*claude-fable-6*"]
//! ```
//!
//! The rows have the format of `providers.toml` and `profiles.toml`. The parser reports all
//! problems of a file, each with its line.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use throughline_core::{Profile, Provider, is_valid_pattern};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::version::CatalogVersion;
use super::{Catalog, ProviderRow, SIMULATORS, host, is_provider_name, is_variable_name};

/// Rows that extend a catalog or replace its rows, and the version of the file that contains them.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogUpdate {
    /// The version of the file.
    pub version: CatalogVersion,
    providers: Vec<Arc<Provider>>,
    profiles: Vec<Arc<Profile>>,
}

/// A problem in a catalog file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct CatalogProblem {
    /// The line number, starting at 1.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl CatalogUpdate {
    /// Parses a catalog file without checking its signature. Returns all problems in the order of
    /// their lines.
    pub fn parse(text: &str) -> Result<Self, Vec<CatalogProblem>> {
        let mut reader = UpdateReader { text, problems: Vec::new() };
        let update = reader.read();
        let UpdateReader { mut problems, .. } = reader;
        problems.sort_by_key(|problem| problem.line);
        update.filter(|_| problems.is_empty()).ok_or(problems)
    }

    /// Returns the provider rows in the order of the file.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    /// Returns the provider rows whose names no built-in row has, in the order of the file.
    pub fn added_providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.iter().filter(|row| Catalog::builtin().provider(&row.name).is_none())
    }

    /// Returns the model rows in the order of the file.
    pub fn profiles(&self) -> &[Arc<Profile>] {
        &self.profiles
    }
}

impl Catalog {
    /// Returns a copy with the rows and the version of an update. A row replaces the existing row
    /// of the same name.
    #[must_use]
    pub fn with_update(&self, update: &CatalogUpdate) -> Self {
        let providers = self.with_provider_rows(update.providers.iter().cloned());
        let catalog = providers.with_profile_rows(update.profiles.clone());
        Self { version: Some(update.version), ..catalog }
    }
}

/// The `[catalog]` table of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateHeader {
    version: Spanned<String>,
}

/// Parses a file and collects its problems.
struct UpdateReader<'t> {
    text: &'t str,
    problems: Vec<CatalogProblem>,
}

impl<'t> UpdateReader<'t> {
    fn read(&mut self) -> Option<CatalogUpdate> {
        let root = match DeTable::parse(self.text) {
            Ok(root) => root.into_inner(),
            Err(error) => {
                self.add_error(&error, 0);
                return None;
            }
        };
        let (mut version, mut providers, mut profiles) = (None, Vec::new(), Vec::new());
        let mut has_header = false;
        for (key, value) in root {
            match &**key.get_ref() {
                "catalog" => {
                    has_header = true;
                    version = self.version(value);
                }
                "provider" => providers = self.rows("provider", value),
                "profile" => profiles = self.rows("profile", value),
                other => {
                    let message = format!(
                        "unknown key `{other}`: a catalog file has [catalog], [[provider]] and \
                         [[profile]]"
                    );
                    self.add(key.span().start, message);
                }
            }
        }
        if !has_header {
            let message = "the file has no version: write [catalog] and version = \"2026-11-17\"";
            self.add(0, message.to_owned());
        }
        let providers = self.providers(providers);
        let profiles = self.profiles(profiles);
        Some(CatalogUpdate { version: version?, providers, profiles })
    }

    fn version(&mut self, value: Spanned<DeValue<'t>>) -> Option<CatalogVersion> {
        // TOML reads an unquoted date as a date, which the parser would call a map.
        if let DeValue::Table(table) = value.get_ref()
            && let Some((_, date)) = table.iter().find(|(key, _)| &**key.get_ref() == "version")
            && matches!(date.get_ref(), DeValue::Datetime(_))
        {
            let text = self.text.get(date.span()).unwrap_or_default();
            let message = format!("put the version in quotes: write version = \"{text}\"");
            self.add(date.span().start, message);
            return None;
        }
        let header: UpdateHeader = self.deserialize(value)?;
        let at = header.version.span().start;
        let parsed = header.version.get_ref().parse();
        parsed.map_err(|error: super::InvalidVersion| self.add(at, error.to_string())).ok()
    }

    /// Deserializes an array of tables, and returns the offset of each row.
    fn rows<R: Deserialize<'t>>(
        &mut self,
        key: &str,
        value: Spanned<DeValue<'t>>,
    ) -> Vec<(usize, R)> {
        let at = value.span().start;
        let DeValue::Array(rows) = value.into_inner() else {
            self.add(at, format!("`{key}` is not a list of rows: write [[{key}]] above each row"));
            return Vec::new();
        };
        let read = rows.into_iter().map(|row| {
            let at = row.span().start;
            self.deserialize(row).map(|row| (at, row))
        });
        read.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn providers(&mut self, rows: Vec<(usize, ProviderRow)>) -> Vec<Arc<Provider>> {
        self.check_names("provider", rows.iter().map(|(at, row)| (*at, row.name.as_str())));
        let mut providers = Vec::new();
        for (at, row) in rows {
            let provider = row.into_provider();
            let (name, wire) = (&provider.name, &provider.wire);
            if crate::codec(wire).is_none() {
                let wires: Vec<String> =
                    crate::CODECS.iter().map(|codec| codec.wire().to_string()).collect();
                let wires = wires.join(", ");
                let message = format!(
                    "the provider `{name}` has the unknown wire `{wire}`: use one of {wires}"
                );
                self.add(at, message);
            }
            self.check_provider(at, &provider);
            self.check_address(at, &provider);
            providers.push(Arc::new(provider));
        }
        providers
    }

    /// Refuses names that cannot be requested, and a `key-env` that no variable can have.
    fn check_provider(&mut self, at: usize, provider: &Provider) {
        let Provider { name, key_env, .. } = provider;
        if **name == *SIMULATORS {
            let message = format!("the provider `{SIMULATORS}` is built in: choose another name");
            self.add(at, message);
        } else if !name.is_empty() && !is_provider_name(name) {
            let message = format!(
                "the provider name `{name}` is invalid: use at most 100 letters, digits, `-`, `_` \
                 and `.`"
            );
            self.add(at, message);
        }
        // The value may be a misplaced secret, so the message does not repeat it.
        if key_env.as_deref().is_some_and(|variable| !is_variable_name(variable)) {
            let message = format!(
                "the key-env of `{name}` is not the name of an environment variable: write \
                 key-env = \"EXAMPLE_API_KEY\""
            );
            self.add(at, message);
        }
    }

    /// Refuses addresses to which a key must not be sent, and rows that would send the key of a
    /// built-in provider to another host.
    fn check_address(&mut self, at: usize, provider: &Provider) {
        let Provider { name, base_url, key_env, .. } = provider;
        let is_http = base_url.starts_with("http://");
        let is_url = is_http || base_url.starts_with("https://");
        // URL parsers remove or replace the other characters, which changes the host.
        let is_plain = base_url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let own = host(base_url).filter(|_| is_url && is_plain && !base_url.contains('@'));
        if own.is_none() && !base_url.is_empty() {
            let message = format!(
                "the base-url of `{name}` is not an http or https URL with a host and without a \
                 user name"
            );
            return self.add(at, message);
        }
        if is_http && !own.is_some_and(is_loopback) {
            let message = format!(
                "the base-url of `{name}` is not encrypted: use https, or http for a server on \
                 this machine"
            );
            self.add(at, message);
        }
        let Some(known) = Catalog::builtin().provider(name) else { return };
        let known_host = host(&known.base_url);
        let is_same_host = match (own, known_host) {
            (Some(own), Some(known)) => own.eq_ignore_ascii_case(known),
            (own, known) => own == known,
        };
        let overrides = format!("configure it in [providers.{name}] instead");
        if !is_same_host {
            let known = known_host.unwrap_or("none");
            let message = format!(
                "a catalog file must not change the host of the built-in provider `{name}`, which \
                 is {known}: {overrides}"
            );
            self.add(at, message);
        }
        if provider.wire != known.wire {
            let message = format!(
                "a catalog file must not change the wire of the built-in provider `{name}`, which \
                 is {}: {overrides}",
                known.wire
            );
            self.add(at, message);
        }
        if *key_env != known.key_env {
            let known = known.key_env.as_deref().unwrap_or("none");
            let message = format!(
                "a catalog file must not change the key-env of the built-in provider `{name}`, \
                 which is {known}: {overrides}"
            );
            self.add(at, message);
        }
    }

    fn profiles(&mut self, rows: Vec<(usize, Profile)>) -> Vec<Arc<Profile>> {
        self.check_names("profile", rows.iter().map(|(at, row)| (*at, row.name.as_str())));
        for (at, row) in &rows {
            if row.models.is_empty() || row.models.iter().any(String::is_empty) {
                let message = format!(
                    "the profile `{}` needs patterns of model names: write models = [\"name*\"]",
                    row.name
                );
                self.add(*at, message);
            }
            for pattern in row.models.iter().filter(|pattern| !is_valid_pattern(pattern)) {
                let message = format!(
                    "the pattern `{pattern}` is invalid: braces contain one version, such as {{5.5}}"
                );
                self.add(*at, message);
            }
            // A row may list efforts that this release does not know, because vendors add some.
            let is_word = |effort: &&String| {
                let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                !effort.is_empty() && effort.chars().all(is_good)
            };
            for effort in row.efforts.iter().filter(|effort| !is_word(effort)) {
                let message = format!(
                    "the effort `{effort}` of `{}` is invalid: write one word, such as \"high\"",
                    row.name
                );
                self.add(*at, message);
            }
        }
        rows.into_iter().map(|(_, row)| Arc::new(row)).collect()
    }

    /// Reports rows without a name, and names that occur twice.
    fn check_names<'n>(&mut self, key: &str, names: impl Iterator<Item = (usize, &'n str)>) {
        let mut earlier: Vec<&str> = Vec::new();
        for (at, name) in names {
            if name.is_empty() {
                self.add(at, format!("this {key} has no name: write name = \"example\""));
            } else if earlier.contains(&name) {
                self.add(at, format!("there are two {key} rows named `{name}`: remove one"));
            }
            earlier.push(name);
        }
    }

    fn deserialize<R: Deserialize<'t>>(&mut self, value: Spanned<DeValue<'t>>) -> Option<R> {
        let at = value.span().start;
        let read = R::deserialize(ValueDeserializer::from(value));
        read.map_err(|error| self.add_error(&error, at)).ok()
    }

    fn add_error(&mut self, error: &toml::de::Error, at: usize) {
        let at = error.span().map_or(at, |span| span.start);
        self.add(at, error.message().to_owned());
    }

    fn add(&mut self, at: usize, message: String) {
        let line = 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        self.problems.push(CatalogProblem { line, message });
    }
}

/// Returns whether a host, with or without a port, is the local machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        Some(_) | None => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}
