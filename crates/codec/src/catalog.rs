//! The catalog of providers and model families: the built-in entries of `providers.toml` and
//! `profiles.toml`, which user-defined entries extend or replace.
//!
//! A provider is looked up by name, a model family by the pattern that matches the model name best:
//!
//! 1. The longest pattern wins. A version in braces, such as in `*claude-opus-{5.5}*`, counts only
//!    if the model name has exactly this version, in any spelling.
//! 2. A name whose version no row lists takes the row with the newest version of its series. A
//!    series consists of all patterns that differ only in their version. For example,
//!    `claude-opus-5-9` and `claude-opus-6` take the row of Opus 5.5, never the row of Opus 5. A
//!    name whose version is older than all listed versions takes the row with the oldest version.
//! 3. If patterns match equally well, the first row wins. User-defined rows precede built-in rows.
//!
//! Unlisted models get the profile `unknown`, which requires nothing and rejects nothing.

mod shared;
mod signature;
mod update;
mod version;

use std::sync::{Arc, LazyLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use throughline_core::{
    Dialect, Memoized, Origin, PlainReplay, Profile, Provider, Target, Wire, best_match,
    is_valid_pattern,
};
use throughline_json::Name;

pub use self::shared::SharedCatalog;
pub use self::signature::{
    CatalogKey, CatalogSecret, InvalidCatalogKey, InvalidCatalogSecret, SignatureError,
    sign_catalog, verify_catalog,
};
pub use self::update::{CatalogProblem, CatalogUpdate};
pub use self::version::{CatalogVersion, InvalidVersion};

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod catalog_tests;

#[cfg(test)]
#[path = "catalog/update_tests.rs"]
mod update_tests;

/// The provider name of the simulators, which no catalog row and no configuration can use.
pub const SIMULATORS: &str = "sim";

const PROVIDERS: &str = include_str!("providers.toml");
const PROFILES: &str = include_str!("profiles.toml");

/// The known providers and model families.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    version: Option<CatalogVersion>,
    providers: Vec<Arc<Provider>>,
    profiles: Vec<Arc<Profile>>,
    /// Caches the profile of each model name that was looked up.
    families: Memoized<Arc<Profile>>,
}

/// An invalid catalog file, or a failed lookup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The text is not valid TOML, or an entry has an unknown key or an invalid value.
    #[error("line {line} of the {rows} catalog is invalid: {message}")]
    Syntax {
        /// The affected file: `providers` or `profiles`.
        rows: &'static str,
        /// The line number in the file, starting at 1.
        line: usize,
        /// The TOML parser's message.
        message: String,
    },
    /// Two entries of one file have the same name.
    #[error("the {rows} catalog has two entries named `{name}`")]
    Twice {
        /// The affected file: `providers` or `profiles`.
        rows: &'static str,
        /// The duplicate name.
        name: String,
    },
    /// An entry has no name.
    #[error("entry {row} of the {rows} catalog has no name")]
    Nameless {
        /// The affected file: `providers` or `profiles`.
        rows: &'static str,
        /// The index of the entry in its file, starting at 1.
        row: usize,
    },
    /// A model pattern has braces that do not contain one version.
    #[error(
        "the profile `{name}` has the invalid model pattern `{pattern}`; write one version in \
         braces, such as `{{5}}` or `{{5.1}}`, or no braces"
    )]
    Pattern {
        /// The name of the profile.
        name: String,
        /// The invalid pattern.
        pattern: String,
    },
    /// No provider has the requested name.
    #[error("there is no provider named `{name}`{}", suggestion(.close))]
    UnknownProvider {
        /// The name that was looked up.
        name: String,
        /// The most similar provider names, best first.
        close: Vec<Name>,
    },
}

impl Catalog {
    /// The name of the profile of models that the catalog does not list.
    pub const UNLISTED: &str = "unknown";

    /// Returns the built-in catalog. It is parsed once, on first use.
    pub fn builtin() -> &'static Self {
        // A test parses the same text, so the empty fallback is never used.
        static BUILTIN: LazyLock<Catalog> =
            LazyLock::new(|| Catalog::parse(PROVIDERS, PROFILES).unwrap_or_default());
        &BUILTIN
    }

    /// Parses a catalog from the text of a providers file and a profiles file.
    pub fn parse(providers_toml: &str, profiles_toml: &str) -> Result<Self, CatalogError> {
        Self::default().with_providers(providers_toml)?.with_profiles(profiles_toml)
    }

    /// Returns a copy with additional profiles. A profile replaces the existing profile of the same
    /// name. If patterns match equally well, the added profile wins.
    pub fn with_profiles(&self, toml: &str) -> Result<Self, CatalogError> {
        let file: ProfileFile = read("profiles", toml)?;
        let names: Vec<&str> = file.profile.iter().map(|row| row.name.as_str()).collect();
        check_names("profiles", &names)?;
        check_patterns(&file.profile)?;
        let version = file.version.or(self.version);
        let catalog = self.with_profile_rows(file.profile.into_iter().map(Arc::new).collect());
        Ok(Self { version, ..catalog })
    }

    fn with_profile_rows(&self, rows: Vec<Arc<Profile>>) -> Self {
        let is_kept = |old: &&Arc<Profile>| rows.iter().all(|row| row.name != old.name);
        let kept: Vec<_> = self.profiles.iter().filter(is_kept).map(Arc::clone).collect();
        let profiles = rows.into_iter().chain(kept).collect();
        let (version, providers) = (self.version, self.providers.clone());
        Self { version, providers, profiles, families: Memoized::default() }
    }

    /// Returns a copy with additional providers. A provider replaces the existing provider of the
    /// same name; otherwise it is appended.
    pub fn with_providers(&self, toml: &str) -> Result<Self, CatalogError> {
        let file: ProviderFile = read("providers", toml)?;
        let names: Vec<&str> = file.provider.iter().map(|row| row.name.as_str()).collect();
        check_names("providers", &names)?;
        let rows = file.provider.into_iter().map(|row| Arc::new(row.into_provider()));
        Ok(self.with_provider_rows(rows))
    }

    fn with_provider_rows(&self, rows: impl Iterator<Item = Arc<Provider>>) -> Self {
        let mut providers = self.providers.clone();
        for row in rows {
            match providers.iter_mut().find(|old| old.name == row.name) {
                Some(old) => *old = row,
                None => providers.push(row),
            }
        }
        Self { providers, ..self.clone() }
    }

    /// Returns the version of the catalog, which is the date of its newest row.
    pub fn version(&self) -> Option<CatalogVersion> {
        self.version
    }

    /// Looks up a provider by its exact name.
    pub fn provider(&self, name: &str) -> Option<Arc<Provider>> {
        self.providers.iter().find(|row| *row.name == *name).map(Arc::clone)
    }

    /// Returns the provider's catalog entry for a wire. For example, the entry of `xai` on
    /// `openai-chat` is `xai-chat`. If several entries extend the name, the first one wins, so that
    /// an added entry never replaces a built-in one.
    pub fn provider_on_wire(&self, name: &str, wire: &Wire) -> Option<Arc<Provider>> {
        let named = self.providers.iter().filter(|row| {
            row.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        let on_wire = named.filter(|row| row.wire == *wire);
        on_wire.min_by_key(|row| *row.name != *name).map(Arc::clone)
    }

    /// Returns the provider that most likely serves a model on a wire: the model's vendor, or
    /// OpenRouter if the model name contains a slash.
    pub fn provider_for_model(&self, wire: &Wire, model: &str) -> Option<Arc<Provider>> {
        let name = match wire.as_str() {
            "openai-chat" => chat_provider(model),
            "openai-responses" if model.starts_with("grok") => "xai",
            "openai-responses" if model.starts_with("deepseek") => "deepseek-responses",
            _ => "",
        };
        let named = self.provider(name).filter(|row| row.wire == *wire);
        named.or_else(|| self.default_provider(wire))
    }

    /// Returns all providers in catalog order.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    /// Returns all profiles. User-defined profiles precede built-in profiles.
    pub fn profiles(&self) -> &[Arc<Profile>] {
        &self.profiles
    }

    /// Returns the model's family: the profile with the best matching pattern, else `unknown`.
    pub fn profile(&self, model: &str) -> Arc<Profile> {
        self.families.get_or_insert_with(model, || self.family_of(model))
    }

    fn family_of(&self, model: &str) -> Arc<Profile> {
        let patterns = self.profiles.iter().flat_map(|row| {
            let patterns = row.models.iter();
            patterns.map(move |pattern| (pattern.as_str(), row))
        });
        best_match(patterns, model).map_or_else(
            || Arc::new(Profile { name: Self::UNLISTED.to_owned(), ..Profile::default() }),
            Arc::clone,
        )
    }

    /// Returns the default provider of a wire, which is the first provider in the catalog that uses
    /// it.
    pub fn default_provider(&self, wire: &Wire) -> Option<Arc<Provider>> {
        self.providers.iter().find(|row| row.wire == *wire).map(Arc::clone)
    }

    /// Creates a Target for a model at a provider, on behalf of an account.
    pub fn target(&self, provider: &Arc<Provider>, model: &str, account: &str) -> Target {
        let profile = self.profile(model);
        let model = Name::from(model);
        let origin = Origin {
            provider: Arc::clone(&provider.name),
            endpoint: host(&provider.base_url)
                .map_or_else(|| Arc::clone(&provider.name), Name::from),
            account: Name::from(account),
            wire: provider.wire.clone(),
            asked: Arc::clone(&model),
            answered: model,
            family: Name::from(profile.name.as_str()),
            routed: None,
        };
        Target { origin: Arc::new(origin), provider: Arc::clone(provider), profile }
    }

    /// Creates a Target for a model at the provider with this name, on behalf of an account.
    pub fn target_for(
        &self,
        provider_name: &str,
        model: &str,
        account: &str,
    ) -> Result<Target, CatalogError> {
        let provider = self.provider(provider_name).ok_or_else(|| {
            let (name, close) = (provider_name.to_owned(), self.similar_names(provider_name));
            CatalogError::UnknownProvider { name, close }
        })?;
        Ok(self.target(&provider, model, account))
    }

    /// Returns the provider names that are most similar to `requested`, best first.
    fn similar_names(&self, requested: &str) -> Vec<Name> {
        let requested = requested.to_ascii_lowercase();
        let mut close: Vec<(usize, &Name)> = Vec::new();
        for Provider { name, .. } in self.providers.iter().map(Arc::as_ref) {
            let edits = strsim::osa_distance(&requested, name);
            let contained =
                requested.len() > 2 && (name.contains(&*requested) || requested.contains(&**name));
            if contained || edits <= 1 + requested.len() / 4 {
                close.push((edits, name));
            }
        }
        close.sort();
        close.into_iter().take(3).map(|(_, name)| Arc::clone(name)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(default, deserialize_with = "read_version")]
    version: Option<CatalogVersion>,
    #[serde(default)]
    profile: Vec<Profile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderFile {
    #[serde(default)]
    provider: Vec<ProviderRow>,
}

/// A provider entry as written in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProviderRow {
    name: String,
    wire: String,
    base_url: String,
    key_env: Option<String>,
    #[serde(default)]
    dialect: Dialect,
}

impl ProviderRow {
    fn into_provider(self) -> Provider {
        Provider {
            name: Name::from(self.name),
            wire: Wire::new(self.wire),
            base_url: Name::from(self.base_url),
            key_env: self.key_env.map(Name::from),
            dialect: self.dialect,
            replay_plain: PlainReplay::default(),
        }
    }
}

fn read_version<'de, D: Deserializer<'de>>(value: D) -> Result<Option<CatalogVersion>, D::Error> {
    let text = String::deserialize(value)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

fn read<'de, F: Deserialize<'de>>(rows: &'static str, text: &'de str) -> Result<F, CatalogError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
        CatalogError::Syntax { rows, line, message: error.message().to_owned() }
    })
}

fn check_names(rows: &'static str, names: &[&str]) -> Result<(), CatalogError> {
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(CatalogError::Nameless { rows, row: index + 1 });
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(CatalogError::Twice { rows, name: (*name).to_owned() });
        }
    }
    Ok(())
}

fn check_patterns(rows: &[Profile]) -> Result<(), CatalogError> {
    for row in rows {
        if let Some(pattern) = row.models.iter().find(|pattern| !is_valid_pattern(pattern)) {
            let (name, pattern) = (row.name.clone(), pattern.clone());
            return Err(CatalogError::Pattern { name, pattern });
        }
    }
    Ok(())
}

/// Returns whether a provider can have this name. The name precedes the slash in model names.
pub fn is_provider_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=100).contains(&name.len()) && name.chars().all(is_good)
}

/// Returns whether a text is a portable name of an environment variable.
pub fn is_variable_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins_well = !name.starts_with(|c: char| c.is_ascii_digit());
    !name.is_empty() && begins_well && name.chars().all(is_good)
}

/// Returns the host and port of a URL.
fn host(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    (!host.is_empty()).then_some(host)
}

fn suggestion(close: &[Name]) -> String {
    let quoted: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

/// Returns the name of the provider entry that belongs to the vendor of a chat model.
fn chat_provider(model: &str) -> &'static str {
    const VENDORS: [(&str, &[&str]); 9] = [
        ("compatible", &["gpt-oss"]),
        ("openai-chat", &["gpt", "o1", "o3", "o4", "chatgpt", "codex"]),
        ("xai-chat", &["grok"]),
        ("deepseek", &["deepseek"]),
        ("moonshot", &["kimi", "moonshot"]),
        ("mistral", &["mistral", "magistral", "ministral", "devstral", "codestral", "pixtral"]),
        ("zai", &["glm"]),
        ("minimax", &["MiniMax", "minimax"]),
        ("qwen", &["qwen", "qwq", "qvq"]),
    ];
    if model.contains('/') {
        return "openrouter";
    }
    let is_its = |starts: &[&str]| starts.iter().any(|start| model.starts_with(start));
    VENDORS.iter().find(|(_, starts)| is_its(starts)).map_or("compatible", |(name, _)| name)
}
