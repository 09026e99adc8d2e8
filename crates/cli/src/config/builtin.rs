//! Providers that need no configuration: every catalog entry with a known address, and the
//! simulators.
//!
//! The vendors' usual environment variables provide keys and some addresses, as defined in
//! `throughline_provider`. A provider without a key is still available to callers that send their
//! own key, or to all callers if the endpoint needs no key.

use std::sync::Arc;

use throughline_codec::Catalog;
pub(crate) use throughline_codec::SIMULATORS;
use throughline_core::{Provider, matches_pattern};
use throughline_json::Name;
use throughline_provider::{
    EnvAddress, EnvKey, EnvLookup, EnvWarning, address_from_env, key_from_env, needs_key,
};

use super::routes::{Credential, Endpoint, ProviderSettings};

/// Patterns of bare model names that each catalog entry serves by default. No name matches two
/// entries.
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

/// Returns the patterns of bare model names that a catalog entry serves.
pub(crate) fn claims(row: &str) -> Vec<Name> {
    let claims = CLAIMS.iter().find(|(name, _)| *name == row);
    claims
        .map(|(_, patterns)| patterns.iter().copied().map(Name::from).collect())
        .unwrap_or_default()
}

/// Returns the catalog entry of the model's vendor. The simulators serve the model under this
/// entry.
pub(crate) fn row_of(model: &str) -> Option<&'static str> {
    let has = |patterns: &[&str]| patterns.iter().any(|pattern| matches_pattern(pattern, model));
    CLAIMS.iter().find(|(_, patterns)| has(patterns)).map(|(row, _)| *row)
}

/// Returns a hint for an unknown simulated model, which lists the names that the simulators serve.
pub(crate) fn simulated_model_hint() -> String {
    let patterns = CLAIMS.iter().flat_map(|(_, patterns)| patterns.iter().copied());
    let patterns = patterns.collect::<Vec<_>>().join(", ");
    format!("use {SIMULATORS}/MODEL, where MODEL matches one of {patterns}")
}

/// Returns the built-in providers in catalog order, with keys and addresses from environment
/// variables. Also returns a warning for each variable with an invalid value.
pub(crate) fn providers(
    catalog: &Catalog,
    variable: EnvLookup<'_>,
) -> (Vec<ProviderSettings>, Vec<EnvWarning>) {
    let mut warnings = Vec::new();
    let simulators = ProviderSettings {
        name: Name::from(SIMULATORS),
        endpoint: Endpoint::Simulators,
        credential: Credential::Open,
        models: Vec::new(),
        line: None,
        variable: None,
        pool: None,
    };
    let rows = catalog.providers().iter().filter_map(|row| {
        let address = address_from_env(row, variable).unwrap_or_else(|warning| {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
            None
        });
        let (row, from) = match address {
            Some(EnvAddress { base_url, variable }) => {
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
            variable: from,
            pool: None,
        })
    });
    ([simulators].into_iter().chain(rows).collect(), warnings)
}

/// Applies the providers of the configuration file to a built-in provider. Some vendors have one
/// catalog entry per wire at the same address, such as `openai` and `openai-chat`. If the file
/// redefines the address, the key or `replay_plain` of the first entry, the change also applies to
/// the vendor's other entries. Otherwise, requests for a redefined provider could still reach the
/// vendor.
pub(crate) fn apply_overrides(
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
        let Endpoint::Remote(endpoint) = &other.endpoint else { return None };
        let base_url = Name::from(format!("{}{path}", endpoint.base_url));
        let (credential, pool) = (other.credential.clone(), other.pool.clone());
        Some((base_url, endpoint.replay_plain, credential, pool))
    };
    let found = declared.iter().find_map(place_of);
    let Some((base_url, replay_plain, credential, pool)) = found else { return row };
    let moved = Arc::new(Provider { base_url, replay_plain, ..Provider::clone(built_in) });
    ProviderSettings { endpoint: Endpoint::Remote(moved), credential, pool, ..row }
}

/// Returns the credential that a provider uses if no credential is configured.
pub(crate) fn credential(row: &Provider, catalog: &Catalog, variable: EnvLookup<'_>) -> Credential {
    // A self-hosted server needs no key, even if its address is configured.
    let is_open =
        !needs_key(row) || catalog.provider(&row.name).is_some_and(|row| !needs_key(&row));
    match key_from_env(row, variable) {
        Some(EnvKey::Key(key, variable)) => Credential::Own { key, variable: Some(variable) },
        Some(EnvKey::Aws(keys)) => Credential::Aws(keys),
        None if is_open => Credential::Open,
        None => Credential::Callers,
    }
}

/// Returns whether an address is usable. Some catalog addresses are not, because they contain a
/// placeholder in braces that the user must replace.
pub(crate) fn is_complete(base_url: &str) -> bool {
    !base_url.is_empty() && !base_url.contains('{')
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod builtin_tests;
