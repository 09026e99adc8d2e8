//! Whom a model's name reaches. Nothing here reads a file or the environment.
//!
//! A name is the alias of a route, `PROVIDER/model`, or a bare name that a provider's patterns claim. A provider of the
//! configuration goes before a built-in one, a longer pattern before a shorter one, and what is written first before the
//! rest.

use std::fmt;
use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Name, Provider, fits};
use throughline_provider::AwsKeys;

use super::builtin;
use super::likeness::{did_you_mean, distance, is_close};
use super::secret::Secret;

/// The most of a name that is repeated in an error.
const SHOWN: usize = 100;

/// A provider that can be asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderSettings {
    /// What it is called: the part of a model's name before the slash, and the account of its seals.
    pub(crate) name: Name,
    /// Where it is, and how it speaks.
    pub(crate) endpoint: Endpoint,
    /// Whose key goes along.
    pub(crate) credential: Credential,
    /// Patterns of the bare names that it claims.
    pub(crate) models: Vec<Name>,
    /// The line of the configuration that it begins in; none where it is built in.
    pub(crate) line: Option<usize>,
    /// The variable that says where it is; none where its row or the configuration does.
    pub(crate) variable: Option<Name>,
}

/// Where a provider is, and how it speaks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Endpoint {
    /// Elsewhere: the row, with the address and the wire of the configuration. Its name is the row's, whose seals they are.
    Remote(Arc<Provider>),
    /// In this very process, each model under the row of its maker.
    Simulators,
}

/// Whose key goes along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The caller's own, and nothing is asked without one.
    Callers,
    /// The caller's own if it brings one, else none: nobody asks for a key there.
    Open,
    /// The gateway's own.
    Own {
        /// The key.
        key: Secret,
        /// The variable that it came from; none where the configuration holds it.
        variable: Option<Name>,
    },
    /// A signature with the gateway's own keys of an AWS account.
    Aws(AwsKeys),
    /// None, and nothing can be asked: the variable that should hold the gateway's own is not set.
    Missing {
        /// The variable.
        variable: Name,
    },
}

impl Credential {
    /// Whether the caller's own key may go out. Its account and its conversations are the caller's own then.
    pub(crate) fn may_be_callers(&self) -> bool {
        match self {
            Credential::Callers | Credential::Open => true,
            Credential::Own { .. } | Credential::Aws(_) | Credential::Missing { .. } => false,
        }
    }
}

/// A name of the user's own, and who answers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The name.
    pub(crate) model: Name,
    /// Whom it reaches, in the order in which they are tried.
    pub(crate) targets: Vec<Destination>,
    /// The line of the configuration that it begins in.
    pub(crate) line: usize,
}

/// A model at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The provider's name.
    pub(crate) provider: Name,
    /// The model, as the provider calls it.
    pub(crate) model: Name,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// Nobody answers to the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no model `{asked}`{}", advice(.close, .providers))]
pub(crate) struct NoSuchModel {
    /// The name, cut where it is long.
    pub(crate) asked: String,
    /// The names that may be meant, the likeliest first.
    pub(crate) close: Vec<String>,
    /// The providers that there are.
    pub(crate) providers: Vec<Name>,
}

/// All providers and routes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Routes {
    providers: Vec<ProviderSettings>,
    routes: Vec<Route>,
}

impl Routes {
    /// Providers, those of the configuration first, and routes to them.
    pub(crate) fn new(providers: Vec<ProviderSettings>, routes: Vec<Route>) -> Self {
        Self { providers, routes }
    }

    /// The provider of that name.
    pub(crate) fn provider(&self, name: &str) -> Option<&ProviderSettings> {
        self.providers.iter().find(|provider| *provider.name == *name)
    }

    /// All providers, those of the configuration first.
    pub(crate) fn providers(&self) -> &[ProviderSettings] {
        &self.providers
    }

    /// All routes, in the order of the configuration.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Whom a model's name reaches, in the order in which they are tried: at least one.
    pub(crate) fn resolve(&self, model: &str) -> Result<Vec<Destination>, NoSuchModel> {
        if let Some(route) = self.routes.iter().find(|route| *route.model == *model) {
            return Ok(route.targets.clone());
        }
        let found = self.named(model).or_else(|| self.claimed(model));
        found.map(|destination| vec![destination]).ok_or_else(|| self.no_such(model))
    }

    /// The destination that `PROVIDER/model` names.
    pub(crate) fn named(&self, text: &str) -> Option<Destination> {
        let (provider, model) = text.split_once('/')?;
        let provider = self.provider(provider).filter(|provider| provider.serves(model))?;
        Some(Destination { provider: Arc::clone(&provider.name), model: Name::from(model) })
    }

    /// The provider that claims a bare name.
    fn claimed(&self, model: &str) -> Option<Destination> {
        let mut best: Option<((bool, usize), &ProviderSettings)> = None;
        for provider in &self.providers {
            let patterns = provider.models.iter().filter(|pattern| fits(pattern, model));
            let Some(length) = patterns.map(|pattern| pattern.len()).max() else { continue };
            let rank = (provider.line.is_some(), length);
            if best.is_none_or(|(highest, _)| rank > highest) {
                best = Some((rank, provider));
            }
        }
        let (_, provider) = best.filter(|_| !model.is_empty())?;
        Some(Destination { provider: Arc::clone(&provider.name), model: Name::from(model) })
    }

    fn no_such(&self, model: &str) -> NoSuchModel {
        let asked: String = model.chars().take(SHOWN).collect();
        let mut close: Vec<(usize, String)> = self.names_like(&asked).collect();
        close.sort();
        close.dedup();
        let close = close.into_iter().take(3).map(|(_, name)| name).collect();
        let providers = self.providers.iter().map(|provider| Arc::clone(&provider.name)).collect();
        NoSuchModel { asked, close, providers }
    }

    /// Names that somebody is answering to, with how far they are from the one that was asked for.
    fn names_like<'a>(&'a self, asked: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        let prefixed = asked.split_once('/').into_iter().flat_map(|(name, model)| {
            let close = self.providers.iter().filter(|provider| is_close(name, &provider.name));
            let close = close.filter(move |provider| provider.serves(model));
            close.map(move |provider| format!("{}/{model}", provider.name))
        });
        let aliases = self.routes.iter().map(|route| route.model.to_string());
        let patterns = self.providers.iter().flat_map(|provider| &provider.models);
        let claimed = patterns.filter_map(|pattern| like_pattern(asked, pattern));
        let all = prefixed.chain(aliases).chain(claimed);
        all.filter(|name| is_close(asked, name) && self.reaches(name))
            .map(|name| (distance(asked, &name), name))
    }

    fn reaches(&self, name: &str) -> bool {
        self.routes.iter().any(|route| *route.model == *name)
            || self.named(name).or_else(|| self.claimed(name)).is_some()
    }
}

impl ProviderSettings {
    /// Whether somebody said that it is there: the configuration, or a variable.
    pub(crate) fn is_chosen(&self) -> bool {
        self.line.is_some() || self.variable.is_some()
    }

    /// The row under which a model is asked. That of the simulators has no address: it is where they were started.
    pub(crate) fn row_for(&self, model: &str, catalog: &Catalog) -> Option<Arc<Provider>> {
        match &self.endpoint {
            Endpoint::Remote(row) => Some(Arc::clone(row)),
            Endpoint::Simulators => {
                let row = catalog.provider(builtin::row_of(model)?)?;
                Some(Arc::new(Provider { base_url: Name::from(""), ..Provider::clone(&row) }))
            }
        }
    }

    /// Whether it can be asked for the model at all. Only the simulators know all that they have.
    fn serves(&self, model: &str) -> bool {
        match self.endpoint {
            Endpoint::Simulators => builtin::row_of(model).is_some(),
            Endpoint::Remote(_) => !model.is_empty(),
        }
    }
}

/// The name that somebody may have meant who wrote nearly what fits the pattern: `claud-x` for `claude-*` is `claude-x`.
fn like_pattern(asked: &str, pattern: &str) -> Option<String> {
    let Some((head, _)) = pattern.split_once('*') else { return Some(pattern.to_owned()) };
    let length = head.chars().count();
    let cuts = (length.saturating_sub(1).max(1)..=length + 1).filter_map(|count| {
        let at = asked.char_indices().nth(count).map_or(asked.len(), |(at, _)| at);
        let (begin, rest) = asked.split_at_checked(at)?;
        Some((distance(begin, head), rest))
    });
    let (edits, rest) = cuts.min_by_key(|(edits, _)| *edits)?;
    (edits <= length / 4).then(|| format!("{head}{rest}"))
}

/// What to write instead.
fn advice(close: &[String], providers: &[Name]) -> String {
    if !close.is_empty() {
        return did_you_mean(close);
    }
    let names: Vec<&str> = providers.iter().map(|name| &**name).collect();
    format!(": write PROVIDER/model, with one of {}", names.join(", "))
}
