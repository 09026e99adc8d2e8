//! The provider keys that callers send, and the providers that each key may be sent to.
//!
//! If the gateway has no key for a provider, it sends the caller's key. The path and the model name
//! select the provider, so the key may belong to another vendor. A key of another vendor is never
//! sent. The vendor follows from the prefix of the key, or else from the header that contains it.

use throughline_core::{Credential, Provider, Wire};
use throughline_replay::Family;

/// A key that a caller sends for a provider.
#[derive(Clone)]
pub(crate) struct ProviderKey {
    credential: Credential,
    place: KeyPlace,
}

/// The place of a key in a request. Clients of each vendor use a different place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    /// The header `x-api-key`.
    Anthropic,
    /// The header `x-goog-api-key` or the query parameter `key`.
    Google,
    /// The header `api-key`.
    Azure,
    /// The header `authorization` with the scheme `Bearer`, which clients of all vendors use.
    Bearer,
}

/// A vendor whose keys have a known format.
struct KeyVendor {
    prefixes: &'static [&'static str],
    /// The environment variables of the catalog entries that accept the keys.
    variables: &'static [&'static str],
    /// The host of the vendor's API, for entries without a variable.
    host: &'static str,
}

/// These formats are not part of the catalog, because an update of the catalog must not send keys
/// to another address.
const VENDORS: &[KeyVendor] = &[
    KeyVendor {
        prefixes: &["sk-ant-"],
        variables: &["ANTHROPIC_API_KEY", "ANTHROPIC_AWS_API_KEY"],
        host: "anthropic.com",
    },
    KeyVendor {
        prefixes: &["ya29.", "AIza", "AQ."],
        variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN"],
        host: "googleapis.com",
    },
    KeyVendor {
        prefixes: &["sk-proj-", "sk-svcacct-", "sk-admin-"],
        variables: &["OPENAI_API_KEY"],
        host: "openai.com",
    },
    KeyVendor {
        prefixes: &["ABSK", "bedrock-api-key-"],
        variables: &["AWS_BEARER_TOKEN_BEDROCK"],
        host: "amazonaws.com",
    },
    KeyVendor { prefixes: &["sk-or-"], variables: &["OPENROUTER_API_KEY"], host: "openrouter.ai" },
    KeyVendor { prefixes: &["vck_"], variables: &["AI_GATEWAY_API_KEY"], host: "vercel.sh" },
    KeyVendor { prefixes: &["xai-"], variables: &["XAI_API_KEY"], host: "x.ai" },
    KeyVendor { prefixes: &["gsk_"], variables: &["GROQ_API_KEY"], host: "groq.com" },
    KeyVendor { prefixes: &["csk-"], variables: &["CEREBRAS_API_KEY"], host: "cerebras.ai" },
];

/// The environment variables of the catalog entries on Azure.
const AZURE_VARIABLES: [&str; 2] = ["AZURE_OPENAI_API_KEY", "ANTHROPIC_FOUNDRY_API_KEY"];

impl ProviderKey {
    pub(crate) fn new(key: &str, place: KeyPlace) -> Self {
        Self { credential: Credential::new(key), place }
    }

    /// Returns the key in plain text.
    pub(crate) fn reveal(&self) -> &str {
        self.credential.reveal()
    }

    /// Returns the key if a request in this dialect may send it to the provider.
    pub(crate) fn for_provider(&self, provider: &Provider, dialect: &Wire) -> Option<Credential> {
        self.fits(provider, dialect).then(|| self.credential.clone())
    }

    fn fits(&self, provider: &Provider, dialect: &Wire) -> bool {
        let key = self.reveal();
        let is_named =
            |vendor: &&KeyVendor| vendor.prefixes.iter().any(|prefix| key.starts_with(prefix));
        if let Some(vendor) = VENDORS.iter().find(is_named) {
            return has_variable(provider, vendor.variables) || is_at(provider, vendor.host);
        }
        match self.place {
            KeyPlace::Anthropic => provider.wire == Wire::ANTHROPIC_MESSAGES,
            KeyPlace::Google => provider.wire == Wire::GEMINI,
            KeyPlace::Azure => {
                has_variable(provider, &AZURE_VARIABLES) || is_at(provider, "azure.com")
            }
            // A JSON Web Token is a login at the vendor of the client, such as ChatGPT or Entra.
            KeyPlace::Bearer if key.starts_with("eyJ") => is_same_family(&provider.wire, dialect),
            // The client selected the provider by the name of the model.
            KeyPlace::Bearer => true,
        }
    }
}

fn has_variable(provider: &Provider, variables: &[&str]) -> bool {
    provider.key_env.as_deref().is_some_and(|variable| variables.contains(&variable))
}

/// Returns whether the address of a provider belongs to a domain.
fn is_at(provider: &Provider, domain: &str) -> bool {
    let (_, rest) = provider.base_url.split_once("://").unwrap_or_default();
    let host = rest.split(['/', ':', '?', '#']).next().unwrap_or_default();
    let before = host.strip_suffix(domain);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn is_same_family(wire: &Wire, dialect: &Wire) -> bool {
    wire == dialect || Family::of(wire).is_some_and(|family| Family::of(dialect) == Some(family))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use throughline_codec::Catalog;

    use super::*;

    /// Returns which of four providers get a key from a client of the chat API.
    fn receivers(key: &str, place: KeyPlace) -> Vec<&'static str> {
        let names = ["anthropic", "openai", "gemini", "deepseek", "azure", "ollama"];
        let key = ProviderKey::new(key, place);
        let fits = |name: &&str| {
            let provider = Catalog::builtin().provider(name).unwrap();
            key.for_provider(&provider, &Wire::OPENAI_CHAT).is_some()
        };
        names.into_iter().filter(fits).collect()
    }

    #[test]
    fn keys_with_a_known_prefix_reach_only_their_vendor() {
        for place in [KeyPlace::Anthropic, KeyPlace::Google, KeyPlace::Azure, KeyPlace::Bearer] {
            assert_eq!(receivers("sk-ant-api03-x", place), ["anthropic"]);
            assert_eq!(receivers("AIzaSyX", place), ["gemini"]);
            assert_eq!(receivers("ya29.x", place), ["gemini"]);
            assert_eq!(receivers("sk-proj-x", place), ["openai"]);
            assert!(receivers("xai-x", place).is_empty());
        }
    }

    #[test]
    fn other_keys_follow_their_header() {
        assert_eq!(receivers("k", KeyPlace::Anthropic), ["anthropic"]);
        assert_eq!(receivers("k", KeyPlace::Google), ["gemini"]);
        assert_eq!(receivers("k", KeyPlace::Azure), ["azure"]);
        assert_eq!(
            receivers("eyJhbGci.x", KeyPlace::Bearer),
            ["openai", "deepseek", "azure", "ollama"]
        );
        assert_eq!(receivers("sk-0123", KeyPlace::Bearer).len(), 6);
    }

    #[test]
    fn vendors_are_recognised_by_their_whole_domain() {
        let provider = Catalog::builtin().provider("compatible").unwrap();
        let at = |base_url: &str| Provider { base_url: base_url.into(), ..(*provider).clone() };
        let key = ProviderKey::new("sk-or-v1-x", KeyPlace::Bearer);
        let fits = |base_url| key.for_provider(&at(base_url), &Wire::OPENAI_CHAT).is_some();
        assert!(fits("https://openrouter.ai/api/v1") && fits("https://eu.openrouter.ai:443/v1"));
        assert!(!fits("https://notopenrouter.ai/v1") && !fits("https://example.com/openrouter.ai"));
    }
}
