//! The providers that nobody has to configure: every row of the catalog whose address is known, and the simulators.
//!
//! The usual variables give a row its key, and some their address: `throughline_provider` has the rules. Without a key a row
//! is still there: for callers that bring their own, or for everybody where no key is needed.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Name, Provider, fits};
use throughline_provider::{Lookup, UsualAddress, UsualKey, needs_key, usual_address, usual_key};

use super::reader::Notes;
use super::routes::{Credential, Endpoint, ProviderSettings};
use super::secret::Secret;

/// What the simulators are called.
pub(crate) const SIMULATORS: &str = "sim";

/// The bare names that rows claim, unless the configuration says otherwise. No name fits the patterns of two rows.
const CLAIMS: &[(&str, &[&str])] = &[
    ("anthropic", &["claude-*"]),
    ("openai", &["gpt-*", "chatgpt-*", "codex-*", "o1*", "o3*", "o4*"]),
    ("gemini", &["gemini-*"]),
    ("deepseek", &["deepseek-*"]),
    ("xai", &["grok-*"]),
    ("mistral", &["mistral-*", "magistral-*", "ministral-*", "devstral-*", "codestral-*"]),
    ("moonshot", &["kimi-*", "moonshot-*"]),
    ("zai", &["glm-*"]),
    ("minimax", &["minimax-*"]),
    ("qwen", &["qwen*", "qwq*", "qvq*"]),
    ("bedrock", &["anthropic.*", "*.anthropic.*", "amazon.*", "*.amazon.*"]),
];

/// The bare names that a row claims.
pub(crate) fn claims(row: &str) -> Vec<Name> {
    let claims = CLAIMS.iter().find(|(name, _)| *name == row);
    claims
        .map(|(_, patterns)| patterns.iter().copied().map(Name::from).collect())
        .unwrap_or_default()
}

/// The row that the simulators answer for a model as: the one of its maker.
pub(crate) fn row_of(model: &str) -> Option<&'static str> {
    let has = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, model));
    CLAIMS.iter().find(|(_, patterns)| has(patterns)).map(|(row, _)| *row)
}

/// The built-in providers, in the order of their rows, with the keys and the addresses that these variables hold.
pub(crate) fn providers(
    catalog: &Catalog,
    variable: Lookup<'_>,
    notes: &mut Notes<'_>,
) -> Vec<ProviderSettings> {
    let simulators = ProviderSettings {
        name: Name::from(SIMULATORS),
        endpoint: Endpoint::Simulators,
        credential: Credential::Open,
        models: Vec::new(),
        line: None,
        variable: None,
    };
    let rows = catalog.providers().iter().filter_map(|row| {
        let (row, said_by) = match address(row, variable, notes) {
            Some(UsualAddress { base_url, variable }) => {
                (Arc::new(Provider { base_url, ..Provider::clone(row) }), Some(variable))
            }
            None => (Arc::clone(row), None),
        };
        is_complete(&row.base_url).then(|| ProviderSettings {
            name: Arc::clone(&row.name),
            credential: credential(&row, catalog, variable),
            models: claims(&row.name),
            endpoint: Endpoint::Remote(row),
            line: None,
            variable: said_by,
        })
    });
    [simulators].into_iter().chain(rows).collect()
}

/// A built-in row as the file's providers leave it. Some vendors have a row for each of their wires, as `openai` and
/// `openai-chat`, at one address. Where the file gives the first row another address or key, the other rows follow it: no request
/// of a provider that the operator redefined goes to the vendor.
pub(crate) fn moved(
    row: ProviderSettings,
    declared: &[ProviderSettings],
    catalog: &Catalog,
) -> ProviderSettings {
    let Endpoint::Remote(built_in) = &row.endpoint else { return row };
    let home = |name: &str| catalog.provider(name).map(|row| row.base_url.clone());
    let place_of = |other: &ProviderSettings| {
        let rest = row.name.strip_prefix(&*other.name)?;
        let (own, home) = (home(&row.name)?, home(&other.name)?);
        let path = own.strip_prefix(&*home).filter(|_| rest.starts_with('-'))?;
        let Endpoint::Remote(place) = &other.endpoint else { return None };
        Some((Name::from(format!("{}{path}", place.base_url)), other.credential.clone()))
    };
    let Some((base_url, credential)) = declared.iter().find_map(place_of) else { return row };
    let moved = Arc::new(Provider { base_url, ..Provider::clone(built_in) });
    ProviderSettings { endpoint: Endpoint::Remote(moved), credential, ..row }
}

/// Where the usual variables say that a row is. One that cannot be heard is noted.
pub(crate) fn address(
    row: &Provider,
    variable: Lookup<'_>,
    notes: &mut Notes<'_>,
) -> Option<UsualAddress> {
    usual_address(row, variable).unwrap_or_else(|unheard| {
        notes.unheard(unheard);
        None
    })
}

/// Whose key goes to a row where nothing else is said.
pub(crate) fn credential(row: &Provider, catalog: &Catalog, variable: Lookup<'_>) -> Credential {
    // A server that one runs oneself is as open elsewhere as it usually is.
    let is_open =
        !needs_key(row) || catalog.provider(&row.name).is_some_and(|row| !needs_key(&row));
    match usual_key(row, variable) {
        Some(UsualKey::Key(key, variable)) => {
            Credential::Own { key: Secret::new(key.reveal()), variable: Some(variable) }
        }
        Some(UsualKey::Aws(keys)) => Credential::Aws(keys),
        None if is_open => Credential::Open,
        None => Credential::Callers,
    }
}

/// Whether an address can be asked as it stands: the part in braces of some rows is the user's own.
pub(crate) fn is_complete(base_url: &str) -> bool {
    !base_url.is_empty() && !base_url.contains('{')
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod builtin_tests;
