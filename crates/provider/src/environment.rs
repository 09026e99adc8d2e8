//! The endpoints that the usual variables switch on.
//!
//! The variables are looked up by a function that is passed in, since only the binary reads the environment.

use std::sync::Arc;

use throughline_codec::Catalog;
use throughline_core::{Credential, Name, Provider, Wire};

use crate::endpoint::{Endpoint, InvalidEndpoint, Source};
use crate::sigv4::AwsKeys;

/// The endpoints of the catalog whose keys are set, each under its row's name.
///
/// - A row is switched on by its `key-env`; `gemini` also by `GOOGLE_API_KEY`.
/// - `bedrock` is also switched on by `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, with `AWS_SESSION_TOKEN` where there
///   is one. `AWS_REGION` or `AWS_DEFAULT_REGION` takes the place of the region in the address.
/// - `AZURE_OPENAI_ENDPOINT` is the address of an Azure resource, `SNOWFLAKE_ACCOUNT` the account.
/// - A server that one runs oneself is also switched on by its address, as `OLLAMA_BASE_URL`, and needs no key.
///
/// A row whose address is left open without such a variable stays off.
pub fn endpoints_from_environment(
    lookup: impl Fn(&str) -> Option<String>,
    catalog: &Catalog,
) -> Result<Vec<Endpoint>, InvalidEndpoint> {
    let set = |name: &str| {
        let value = lookup(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    let mut endpoints = Vec::new();
    for row in catalog.providers() {
        if let Some(credential) = credential(row, &set)
            && let Some(address) = address(row, &set)
        {
            let (name, row) = (Arc::clone(&row.name), Arc::clone(row));
            endpoints.push(Endpoint::new(name, row, &address, credential)?);
        }
    }
    Ok(endpoints)
}

/// The credential that switches a row on.
fn credential(row: &Provider, set: &dyn Fn(&str) -> Option<String>) -> Option<Source> {
    let also = if *row.name == *"gemini" { set("GOOGLE_API_KEY") } else { None };
    if let Some(key) = row.key_env.as_deref().and_then(set).or(also) {
        return Some(Source::Key(Credential::new(key)));
    }
    if row.wire == Wire::BEDROCK_CONVERSE
        && let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY"))
    {
        let session_token = set("AWS_SESSION_TOKEN").map(Credential::new);
        let secret = Credential::new(secret);
        return Some(Source::Aws(AwsKeys { id: Name::from(id), secret, session_token }));
    }
    own_address(row, set).map(|_| Source::Open)
}

/// The address of a row, with the user's own parts in it.
fn address(row: &Provider, set: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let address = row.base_url.to_string();
    if let Some(own) = own_address(row, set) {
        return Some(own);
    }
    if address.contains("{resource}") {
        let endpoint = set("AZURE_OPENAI_ENDPOINT")?;
        let endpoint = endpoint.trim_end_matches('/').trim_end_matches("/openai/v1");
        return Some([endpoint, "/openai/v1"].concat());
    }
    if address.contains("{account}") {
        return Some(address.replace("{account}", &set("SNOWFLAKE_ACCOUNT")?));
    }
    if row.name.starts_with("bedrock")
        && let Some(region) = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION"))
    {
        return Some(address.replace("us-east-1", &region));
    }
    (!address.is_empty() && !address.contains('{')).then_some(address)
}

/// Where a server that one runs oneself was put. Vendors' rows have no such variable: the ones that their clients read may
/// point those clients at us.
fn own_address(row: &Provider, set: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if !row.base_url.starts_with("http://localhost") {
        return None;
    }
    let key_env = row.key_env.as_deref()?;
    let (server, default) = (key_env.strip_suffix("_API_KEY")?, row.base_url.rsplit('/').next()?);
    let address = set(&[server, "_BASE_URL"].concat())?;
    // The variable says where the server is; `/v1` or `/api` is a matter of the row.
    let host = address.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/api");
    Some([host, "/", default].concat())
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod environment_tests;
