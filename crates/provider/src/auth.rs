//! Authentication headers for each kind of endpoint.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use throughline_core::{Credential, Provider, Wire};

/// The header in which an endpoint expects its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `x-api-key`, or `authorization` for an OAuth token of Anthropic.
    Anthropic,
    /// As [`Scheme::Anthropic`], and also `authorization` for an access token of Google Cloud or
    /// Microsoft Entra.
    CloudAnthropic,
    /// `authorization: Bearer`.
    Bearer,
    /// `api-key`, or `authorization` for a Microsoft Entra token.
    Azure,
    /// `x-goog-api-key`, or `authorization` for an access token.
    Google,
}

impl Scheme {
    /// Returns the authentication scheme for a catalog entry and the host of its base URL.
    pub fn for_row(row: &Provider, host: &str) -> Self {
        if row.wire == Wire::ANTHROPIC_MESSAGES {
            // Other endpoints may issue API keys that look like access tokens.
            match &*row.name {
                "vertex-anthropic" | "anthropic-google" | "azure-anthropic" => {
                    Scheme::CloudAnthropic
                }
                _ => Scheme::Anthropic,
            }
        } else if row.wire == Wire::GEMINI {
            Scheme::Google
        } else if host.ends_with(".azure.com") || row.name.starts_with("azure") {
            Scheme::Azure
        } else {
            Scheme::Bearer
        }
    }

    /// Adds a key to the request headers, in the header that the scheme prescribes.
    pub(crate) fn add(
        self,
        headers: &mut HeaderMap,
        key: &Credential,
    ) -> Result<(), InvalidHeaderValue> {
        let key = key.reveal();
        // Login tokens use another header than API keys, and are recognised by their prefix.
        let (own_header, token) = match self {
            Scheme::Bearer => (AUTHORIZATION, true),
            Scheme::Anthropic => (X_API_KEY, key.starts_with("sk-ant-oat")),
            Scheme::CloudAnthropic => {
                let prefixes = ["sk-ant-oat", "ya29.", "eyJ"];
                (X_API_KEY, prefixes.iter().any(|prefix| key.starts_with(prefix)))
            }
            Scheme::Azure => (API_KEY, key.starts_with("eyJ")),
            Scheme::Google => (X_GOOG_API_KEY, key.starts_with("ya29.") || key.starts_with("eyJ")),
        };
        if token { insert_bearer(headers, key) } else { insert_secret(headers, own_header, key) }
    }
}

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Adds an access token, regardless of the scheme.
pub(crate) fn insert_bearer(
    headers: &mut HeaderMap,
    token: &str,
) -> Result<(), InvalidHeaderValue> {
    insert_secret(headers, AUTHORIZATION, &format!("Bearer {token}"))
}

/// Adds a header whose value is hidden in `Debug` output.
pub(crate) fn insert_secret(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: &str,
) -> Result<(), InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(value)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Headers that contain client credentials for any provider. These headers are never copied from
/// the client's request.
const CREDENTIALS: [&str; 9] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "proxy-authorization",
    "cookie",
];

pub(crate) fn is_credential(name: &HeaderName) -> bool {
    CREDENTIALS.contains(&name.as_str())
}

/// Headers that select one of the accounts available to a client's key. Sent with the operator's
/// key, these headers would select one of the operator's accounts.
const ACCOUNTS: [&str; 3] = ["openai-organization", "openai-project", "x-goog-user-project"];

/// Returns whether a header selects the account that is charged.
pub(crate) fn is_account_header(name: &HeaderName) -> bool {
    ACCOUNTS.contains(&name.as_str())
}

/// Removes the API key that Google clients may put into the query string.
pub(crate) fn strip_query_keys(query: &str) -> String {
    let is_key = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        ["key", "access_token"].contains(&name)
    };
    query.split('&').filter(|pair| !is_key(pair)).collect::<Vec<&str>>().join("&")
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod auth_tests;
