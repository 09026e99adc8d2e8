//! The providers that nobody has to configure: every row of the catalog whose address is complete, and the simulators.
//!
//! A row's usual variable gives it its key. Without one it is still there, for callers that bring their own.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Name, Provider, fits};

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

/// The built-in providers, in the order of their rows, with the keys that these variables hold.
pub(crate) fn providers(
    catalog: &Catalog,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<ProviderSettings> {
    let simulators = ProviderSettings {
        name: Name::from(SIMULATORS),
        endpoint: Endpoint::Simulators,
        credential: Credential::Callers,
        models: Vec::new(),
        line: None,
    };
    let rows = catalog.providers().iter().filter(|row| is_complete(&row.base_url));
    let rows = rows.map(|row| ProviderSettings {
        name: Arc::clone(&row.name),
        endpoint: Endpoint::Remote(Arc::clone(row)),
        credential: usual_key(row, variable),
        models: claims(&row.name),
        line: None,
    });
    [simulators].into_iter().chain(rows).collect()
}

/// The key that a row's usual variable holds.
pub(crate) fn usual_key(row: &Provider, variable: &dyn Fn(&str) -> Option<String>) -> Credential {
    let Some(name) = &row.key_env else { return Credential::Callers };
    match variable(name) {
        Some(key) => {
            Credential::Own { key: Secret::new(key.trim()), variable: Some(Arc::clone(name)) }
        }
        None => Credential::Callers,
    }
}

/// Whether an address can be asked as it stands: the part in braces of some rows is the user's own.
pub(crate) fn is_complete(base_url: &str) -> bool {
    !base_url.is_empty() && !base_url.contains('{')
}
