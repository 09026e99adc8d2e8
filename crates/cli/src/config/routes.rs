//! Resolves model names to providers, without I/O.
//!
//! A name is the alias of a route, `PROVIDER/model`, or a bare name that matches a provider's
//! patterns. Configured providers take precedence over built-in ones, longer patterns over shorter
//! ones, and earlier entries over later ones.

use std::fmt;
use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Credential as Key, Memoized, Provider, matches_pattern};
use throughline_json::Name;
use throughline_provider::{AwsKeys, CredentialSettings};
use throughline_server::{PoolAccount, PoolOptions};
use throughline_tools::suggest::{did_you_mean, distance, is_close};

use super::builtin;

/// Maximum length of a model name that an error message repeats.
const SHOWN: usize = 100;

/// A provider that requests can be sent to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderSettings {
    /// Name of the provider: the part before the slash in `PROVIDER/model`, and the account label
    /// in the provider's Seals.
    pub(crate) name: Name,
    pub(crate) endpoint: Endpoint,
    pub(crate) credential: Credential,
    /// Patterns of the bare model names that the provider serves.
    pub(crate) models: Vec<Name>,
    /// Line in the configuration file; `None` if the provider is built in.
    pub(crate) line: Option<usize>,
    /// Environment variable that sets the address; `None` if the catalog or the configuration file
    /// sets the address.
    pub(crate) variable: Option<Name>,
    /// The accounts among which requests are distributed; `None` if the provider has one account.
    /// The vendor's other entries share the pool.
    pub(crate) pool: Option<Arc<PoolSettings>>,
}

/// Address and wire of a provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Endpoint {
    /// A remote endpoint: the catalog entry with the configured address and wire. The name of the
    /// entry identifies the owner of the endpoint's Seals.
    Remote(Arc<Provider>),
    /// The simulators in this process. They serve each model under the catalog entry of its vendor.
    Simulators,
}

/// Which key is sent to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The caller's key. Each request must contain a key.
    Callers,
    /// The caller's key, if the request has a key. The endpoint does not require a key.
    Open,
    /// The operator's key.
    Own {
        key: Key,
        /// Environment variable that held the key; `None` if the key is in the configuration file.
        variable: Option<Name>,
    },
    /// The operator's AWS keys. They are used to sign each request.
    Aws(AwsKeys),
    /// The operator's credential from a source that can replace it while the process runs.
    Dynamic(CredentialSettings),
    /// The operator's key is missing because its environment variable is not set, so the provider
    /// cannot be used.
    Missing { variable: Name },
}

impl Credential {
    /// Returns whether the caller's key may be forwarded. If the key is forwarded, the provider
    /// account and its conversations belong to the caller.
    pub(crate) fn may_be_callers(&self) -> bool {
        match self {
            Credential::Callers | Credential::Open => true,
            Credential::Own { .. }
            | Credential::Aws(_)
            | Credential::Dynamic(_)
            | Credential::Missing { .. } => false,
        }
    }
}

/// The accounts of a provider, and how requests are distributed among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolSettings {
    /// Name of the provider that configures the pool.
    pub(crate) provider: Name,
    /// Accounts in the order of the configuration; at least one.
    pub(crate) accounts: Vec<AccountSettings>,
    pub(crate) options: PoolOptions,
}

/// An account of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountSettings {
    pub(crate) name: Name,
    pub(crate) credential: Credential,
    pub(crate) weight: u32,
}

impl AccountSettings {
    /// Returns whether the account has a key.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.credential, Credential::Missing { .. })
    }
}

impl PoolSettings {
    /// Returns the account that requests use if they are not distributed: the first account with a
    /// key.
    pub(crate) fn first(&self) -> Option<&AccountSettings> {
        let usable = self.accounts.iter().find(|account| account.is_usable());
        usable.or(self.accounts.first())
    }

    /// Returns the credential of the first account with a key. If no account has a key, the
    /// provider cannot be used.
    pub(crate) fn credential(&self) -> Credential {
        let first = self.first().map(|account| account.credential.clone());
        first.unwrap_or(Credential::Missing { variable: Name::default() })
    }

    /// Returns the accounts that can be used, for the pool of the gateway.
    pub(crate) fn usable(&self) -> Vec<PoolAccount> {
        let usable = self.accounts.iter().filter(|account| account.is_usable());
        let account =
            |it: &AccountSettings| PoolAccount { name: Name::clone(&it.name), weight: it.weight };
        usable.map(account).collect()
    }
}

/// A configured alias and its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) model: Name,
    /// Targets in the order in which they are tried.
    pub(crate) targets: Vec<Destination>,
    pub(crate) line: usize,
}

/// A model at a provider, identified by the provider's own model name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) provider: Name,
    pub(crate) model: Name,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// No provider serves the requested model name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{model}`{}", advice(.model, .close, .providers))]
pub(crate) struct UnknownModelError {
    pub(crate) model: String,
    /// Known names that are similar to the requested name, most similar first.
    pub(crate) close: Vec<String>,
    /// Names of the available providers.
    pub(crate) providers: Vec<Name>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Routes {
    providers: Vec<ProviderSettings>,
    aliases: Vec<Route>,
    /// The providers whose patterns match recent model names.
    pattern_matches: Memoized<Option<Destination>>,
}

impl Routes {
    /// Creates routes. `providers` must list configured providers before built-in providers.
    pub(crate) fn new(providers: Vec<ProviderSettings>, routes: Vec<Route>) -> Self {
        Self { providers, aliases: routes, pattern_matches: Memoized::default() }
    }

    pub(crate) fn provider(&self, name: &str) -> Option<&ProviderSettings> {
        self.providers.iter().find(|provider| *provider.name == *name)
    }

    /// Returns all providers, with configured providers first.
    pub(crate) fn providers(&self) -> &[ProviderSettings] {
        &self.providers
    }

    /// Returns all routes in the order of the configuration.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.aliases
    }

    /// Resolves a model name to one or more destinations, in the order in which they are tried.
    pub(crate) fn resolve(&self, model: &str) -> Result<Vec<Destination>, UnknownModelError> {
        self.find(model).ok_or_else(|| self.unknown_model(model))
    }

    /// Like [`Routes::resolve`], but does not look for similar names if the model is unknown.
    pub(crate) fn find(&self, model: &str) -> Option<Vec<Destination>> {
        if let Some(route) = self.aliases.iter().find(|route| *route.model == *model) {
            return Some(route.targets.clone());
        }
        let found = self.parse_destination(model).or_else(|| self.find_claim(model));
        found.map(|destination| vec![destination])
    }

    /// Parses `PROVIDER/model`; `None` if the provider is unknown or does not serve the model.
    pub(crate) fn parse_destination(&self, text: &str) -> Option<Destination> {
        let (provider, model) = text.split_once('/')?;
        let provider = self.provider(provider).filter(|provider| provider.serves(model))?;
        Some(Destination { provider: Arc::clone(&provider.name), model: Name::from(model) })
    }

    /// Finds the provider whose pattern matches a bare model name.
    fn find_claim(&self, model: &str) -> Option<Destination> {
        self.pattern_matches.get_or_insert_with(model, || self.match_patterns(model))
    }

    fn match_patterns(&self, model: &str) -> Option<Destination> {
        let rank = |provider: &&ProviderSettings| {
            let patterns = provider.models.iter().filter(|pattern| matches_pattern(pattern, model));
            let length = patterns.map(|pattern| pattern.len()).max();
            length.map(|length| (provider.line.is_some(), length))
        };
        // `max_by_key` returns the last maximum, so the order is reversed to select the first.
        let best = self.providers.iter().rev().max_by_key(rank);
        let provider = best.filter(|best| !model.is_empty() && rank(best).is_some())?;
        Some(Destination { provider: Arc::clone(&provider.name), model: Name::from(model) })
    }

    fn unknown_model(&self, model: &str) -> UnknownModelError {
        let model: String = model.chars().take(SHOWN).collect();
        let mut close: Vec<(usize, String)> = self.names_like(&model).collect();
        close.sort();
        close.dedup();
        let close = close.into_iter().take(3).map(|(_, name)| name).collect();
        let providers = self.providers.iter().map(|provider| Arc::clone(&provider.name)).collect();
        UnknownModelError { model, close, providers }
    }

    /// Returns resolvable model names, each with its edit distance from the requested name.
    fn names_like<'a>(&'a self, requested: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        let prefixed = requested.split_once('/').into_iter().flat_map(|(name, model)| {
            let close = self.providers.iter().filter(|provider| is_close(name, &provider.name));
            let close = close.filter(move |provider| provider.serves(model));
            close.map(move |provider| format!("{}/{model}", provider.name))
        });
        let aliases = self.aliases.iter().map(|route| route.model.to_string());
        let patterns = self.providers.iter().flat_map(|provider| &provider.models);
        let claimed = patterns.filter_map(|pattern| like_pattern(requested, pattern));
        let all = prefixed.chain(aliases).chain(claimed);
        all.filter(|name| is_close(requested, name) && self.can_resolve(name))
            .map(|name| (distance(requested, &name), name))
    }

    fn can_resolve(&self, name: &str) -> bool {
        self.aliases.iter().any(|route| *route.model == *name)
            || self.parse_destination(name).or_else(|| self.find_claim(name)).is_some()
    }
}

impl ProviderSettings {
    /// Returns whether this provider is set up in the configuration file or with an environment
    /// variable.
    pub(crate) fn is_configured(&self) -> bool {
        self.line.is_some() || self.variable.is_some()
    }

    /// Returns the catalog entry that serves a model. The entry of a simulated model has no
    /// address, because the simulators get their address at startup.
    pub(crate) fn row_for(&self, model: &str, catalog: &Catalog) -> Option<Arc<Provider>> {
        match &self.endpoint {
            Endpoint::Remote(row) => Some(Arc::clone(row)),
            Endpoint::Simulators => {
                let row = catalog.provider(builtin::row_of(model)?)?;
                Some(Arc::new(Provider { base_url: Name::from(""), ..Provider::clone(&row) }))
            }
        }
    }

    /// Returns whether the provider may serve a model. Only the simulators have a complete model
    /// list; all other providers may serve any model.
    fn serves(&self, model: &str) -> bool {
        match self.endpoint {
            Endpoint::Simulators => builtin::row_of(model).is_some(),
            Endpoint::Remote(_) => !model.is_empty(),
        }
    }
}

/// Suggests a name for a misspelled prefix: `claud-x` with the pattern `claude-*` gives `claude-x`.
fn like_pattern(model: &str, pattern: &str) -> Option<String> {
    let Some((head, _)) = pattern.split_once('*') else { return Some(pattern.to_owned()) };
    let length = head.chars().count();
    let cuts = (length.saturating_sub(1).max(1)..=length + 1).filter_map(|count| {
        let at = model.char_indices().nth(count).map_or(model.len(), |(at, _)| at);
        let (begin, rest) = model.split_at_checked(at)?;
        Some((distance(begin, head), rest))
    });
    let (edits, rest) = cuts.min_by_key(|(edits, _)| *edits)?;
    (edits <= length / 4).then(|| format!("{head}{rest}"))
}

/// Formats the hint at the end of the error message: similar names, the simulated models, or the
/// available providers.
fn advice(model: &str, close: &[String], providers: &[Name]) -> String {
    if !close.is_empty() {
        return did_you_mean(close);
    }
    if model.split_once('/').is_some_and(|(provider, _)| provider == builtin::SIMULATORS) {
        return format!("; {}", builtin::simulated_model_hint());
    }
    let names: Vec<&str> = providers.iter().map(|name| &**name).collect();
    format!("; use PROVIDER/model with one of {}", names.join(", "))
}
