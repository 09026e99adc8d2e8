//! Selects the headers to forward to a provider, and removes keys from the query string.

use axum::http::HeaderMap;
use axum::http::header::CONNECTION;
use throughline_json::Name;

use crate::access::TOKEN_HEADER;
use crate::gateway::compression;

/// The header in which a client names its end user.
pub(crate) const END_USER_HEADER: &str = "x-throughline-user";

/// The header in which a client selects the prefix policy of a request. In a response, the header
/// names the first change that caused Seals to be dropped.
pub(crate) const PREFIX_HEADER: &str = "x-throughline-prefix";

/// An internal header that marks a request for Anthropic's own compaction. Clients cannot set it,
/// and no provider receives it.
pub(crate) const COMPACTION_HEADER: &str = "x-throughline-compaction";

/// Headers that belong to the connection, to a proxy or to authentication. They are never
/// forwarded.
const OWN: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-authorization",
    "proxy-connection",
    "expect",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "cookie",
    "forwarded",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    // A signature of AWS covers the request as the client sent it.
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    END_USER_HEADER,
    PREFIX_HEADER,
    TOKEN_HEADER,
    COMPACTION_HEADER,
];

/// Prefix of headers that proxies add. These headers are never forwarded.
const PROXY_HEADER_PREFIX: &str = "x-forwarded-";

pub(crate) fn forwarded_headers(headers: &HeaderMap) -> Vec<(Name, Name)> {
    // Headers listed in `Connection` apply to this connection only.
    let connection: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let is_ours = |name: &str| {
        OWN.contains(&name)
            || name.starts_with(PROXY_HEADER_PREFIX)
            || connection.iter().any(|own| own == name)
    };
    let passed = headers.iter().filter(|(name, _)| !is_ours(name.as_str()));
    passed
        .filter_map(|(name, value)| {
            let (name, value) = (name.as_str(), value.to_str().ok()?);
            if name == "accept-encoding" {
                return Some((Name::from(name), compression::narrow_accept_encoding(value)?));
            }
            Some((Name::from(name), Name::from(value)))
        })
        .collect()
}

pub(crate) fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Removes the `key` parameter, which Gemini clients may put into the query.
pub(crate) fn without_key(path: &str) -> Name {
    let Some((bare, query)) = path.split_once('?') else { return Name::from(path) };
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
    if rest.is_empty() { Name::from(bare) } else { format!("{bare}?{}", rest.join("&")).into() }
}
