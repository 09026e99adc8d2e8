//! Identifies the account of a request by a digest of the API key, and reads the account's creation
//! date.

use axum::http::HeaderMap;
use jiff::civil::Date;

use crate::digest::Digest;

/// Returns the digest of the request's API key. Requests without a key share one account, because
/// the simulator does not authenticate callers.
pub(crate) fn account(headers: &HeaderMap, query: &str) -> Digest {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let in_query = || query.split('&').find_map(|pair| pair.strip_prefix("key="));
    let key = text("x-api-key")
        .or_else(|| text("x-goog-api-key"))
        .or_else(|| text("api-key"))
        .or_else(|| text("authorization").map(credential))
        .or_else(in_query);
    Digest::new("throughline-sim account", key.unwrap_or_default())
}

/// Extracts the part of an `authorization` header that is the same in all requests: the bearer
/// token, or the key id of an AWS signature.
fn credential(authorization: &str) -> &str {
    if let Some((_, rest)) = authorization.split_once("Credential=") {
        return rest.split('/').next().unwrap_or(rest);
    }
    authorization.split_once(' ').map_or(authorization, |(_, token)| token.trim())
}

/// Reads the account's creation date from the `x-sim-account-created` header.
pub(crate) fn created(headers: &HeaderMap) -> Result<Option<Date>, String> {
    let Some(value) = headers.get("x-sim-account-created") else { return Ok(None) };
    let read = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    read.map(Some)
        .ok_or_else(|| "x-sim-account-created is not a date; write it as 2026-08-31".to_owned())
}
