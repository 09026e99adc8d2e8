//! Whose request it is: an account is known by a digest of its key, and is as old as it was said to be.

use axum::http::HeaderMap;
use jiff::civil::Date;

use crate::digest::Mark;

/// The account that a request comes from. Without a key it is nobody's, which is an account like any other: a simulator
/// lets everybody in.
pub(crate) fn account(headers: &HeaderMap, query: &str) -> Mark {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let in_query = || query.split('&').find_map(|pair| pair.strip_prefix("key="));
    let key = text("x-api-key")
        .or_else(|| text("x-goog-api-key"))
        .or_else(|| text("api-key"))
        .or_else(|| text("authorization").map(credential))
        .or_else(in_query);
    Mark::of("throughline-sim account", key.unwrap_or_default())
}

/// What stays the same from one request to the next: the token, or the key's id in a signature of AWS.
fn credential(authorization: &str) -> &str {
    if let Some((_, rest)) = authorization.split_once("Credential=") {
        return rest.split('/').next().unwrap_or(rest);
    }
    authorization.split_once(' ').map_or(authorization, |(_, token)| token.trim())
}

/// When the account was created, if the request says so.
pub(crate) fn created(headers: &HeaderMap) -> Result<Option<Date>, String> {
    let Some(value) = headers.get("x-sim-account-created") else { return Ok(None) };
    let read = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    read.map(Some).ok_or_else(|| "x-sim-account-created is not a date as 2026-08-31".to_owned())
}
