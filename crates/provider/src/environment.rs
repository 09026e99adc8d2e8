//! Reads providers' addresses and keys from the conventional environment variables.
//!
//! The lookup function is a parameter, because only the binary reads the environment.
//!
//! - The `key-env` member of a catalog entry names the variable that contains the key. `gemini`
//!   also uses `GOOGLE_API_KEY`.
//! - `bedrock` also accepts AWS keys: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and optionally
//!   `AWS_SESSION_TOKEN`. `AWS_REGION` or `AWS_DEFAULT_REGION` replaces the region in its address.
//! - `AZURE_OPENAI_ENDPOINT` contains the address of an Azure resource, and `SNOWFLAKE_ACCOUNT` a
//!   Snowflake account.
//! - Self-hosted servers use `OLLAMA_BASE_URL`, `VLLM_BASE_URL` and similar variables. Ollama
//!   also uses `OLLAMA_HOST`, in its own syntax.

use std::net::IpAddr;
use std::sync::Arc;

use throughline_core::{Credential, Provider, Wire};
use throughline_json::Name;
use url::Url;

use crate::endpoint::parse_base_url;
use crate::lookup::{EnvLookup, non_empty};
use crate::sigv4::{AwsKeys, region_from_host};

/// Credentials from environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvKey {
    /// A key, and the name of the variable that contains it.
    Key(Credential, Name),
    /// AWS keys from several variables.
    Aws(AwsKeys),
}

/// The variable that messages name as the source of AWS credentials, which span several variables.
pub const AWS_ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";

/// A provider's address from an environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvAddress {
    /// Base URL, to which the wire's paths are appended.
    pub base_url: Name,
    /// Name of the variable that contains the address.
    pub variable: Name,
}

/// Warning about an address variable with an unusable value. The value is omitted, because it may
/// contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is ignored: {problem}")]
pub struct EnvWarning {
    /// Name of the variable that is ignored.
    pub variable: Name,
    /// Description of the problem, without the value.
    pub problem: &'static str,
}

/// Returns the credentials for a catalog entry; `None` if its variables are not set.
pub fn key_from_env(row: &Provider, lookup: EnvLookup<'_>) -> Option<EnvKey> {
    let also = (*row.name == *"gemini").then_some("GOOGLE_API_KEY");
    let names: Vec<&str> = row.key_env.as_deref().into_iter().chain(also).collect();
    if let Some((key, name)) = first_non_empty(&names, lookup) {
        return Some(EnvKey::Key(Credential::new(key), Name::from(name)));
    }
    if row.wire != Wire::BEDROCK_CONVERSE {
        return None;
    }
    Some(EnvKey::Aws(AwsKeys {
        id: Name::from(non_empty(AWS_ACCESS_KEY_ID, lookup)?),
        secret: Credential::new(non_empty("AWS_SECRET_ACCESS_KEY", lookup)?),
        session_token: non_empty("AWS_SESSION_TOKEN", lookup).map(Credential::new),
        region: region(lookup).map(|(region, _)| Name::from(region)),
    }))
}

/// Returns the address of a self-hosted server, an Azure resource, a Snowflake account or an AWS
/// region. Other vendors' address variables are ignored: client libraries read them too, so their
/// values may point to this gateway.
pub fn address_from_env(
    row: &Provider,
    lookup: EnvLookup<'_>,
) -> Result<Option<EnvAddress>, EnvWarning> {
    let Some((address, variable)) = find_address(row, lookup) else { return Ok(None) };
    let warning = |problem| EnvWarning { variable: Arc::clone(&variable), problem };
    let address = address.ok_or_else(|| warning("it is not a region such as eu-west-1"))?;
    parse_base_url(&address).map_err(warning)?;
    Ok(Some(EnvAddress { base_url: Name::from(address), variable }))
}

/// Returns a catalog entry's base URL with its AWS region replaced by `region`. Returns `None` if
/// the URL contains no region or `region` is invalid.
pub fn in_region(row: &Provider, region: &str) -> Option<Name> {
    let is_there = row.base_url.contains(REGION) && region_from_host(region) == Some(region);
    is_there.then(|| Name::from(row.base_url.replace(REGION, region)))
}

/// Returns whether requests need a key. Entries for servers on the local machine need none.
pub fn needs_key(row: &Provider) -> bool {
    row.key_env.is_some() && !is_self_hosted(row)
}

/// Default region, as it appears in the base URLs of AWS catalog entries.
const REGION: &str = "us-east-1";

/// Returns the first value that is not empty, and the name of its variable.
fn first_non_empty<'n>(names: &[&'n str], lookup: EnvLookup<'_>) -> Option<(String, &'n str)> {
    names.iter().find_map(|name| Some((non_empty(name, lookup)?, *name)))
}

fn region(lookup: EnvLookup<'_>) -> Option<(String, &'static str)> {
    first_non_empty(&["AWS_REGION", "AWS_DEFAULT_REGION"], lookup)
}

/// Returns the provider's address and the name of the variable that contains it. The address is
/// `None` if the variable contains an invalid region.
fn find_address(row: &Provider, lookup: EnvLookup<'_>) -> Option<(Option<String>, Name)> {
    let address = &*row.base_url;
    let (address, variable) = if is_self_hosted(row) {
        let (address, variable) = self_hosted_address(row, lookup)?;
        return Some((Some(address), variable));
    } else if address.contains("{resource}") && row.wire == Wire::ANTHROPIC_MESSAGES {
        let variable = "ANTHROPIC_FOUNDRY_RESOURCE";
        (Some(address.replace("{resource}", &non_empty(variable, lookup)?)), variable)
    } else if address.contains("{resource}") {
        let variable = "AZURE_OPENAI_ENDPOINT";
        let endpoint = non_empty(variable, lookup)?;
        let endpoint = endpoint.trim_end_matches('/').trim_end_matches("/openai/v1");
        (Some([endpoint, "/openai/v1"].concat()), variable)
    } else if address.contains("{account}") {
        let variable = "SNOWFLAKE_ACCOUNT";
        (Some(address.replace("{account}", &non_empty(variable, lookup)?)), variable)
    } else if address.contains(REGION) {
        let (region, variable) = region(lookup)?;
        (in_region(row, &region).map(|address| address.to_string()), variable)
    } else {
        return None;
    };
    Some((address, Name::from(variable)))
}

/// Returns whether the base URL points to the local machine.
fn is_self_hosted(row: &Provider) -> bool {
    let url = Url::parse(&row.base_url).ok();
    url.as_ref().and_then(Url::host_str).is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Returns the address of a self-hosted server and the name of the variable that contains it. The
/// path (`/v1` or `/api`) comes from the catalog entry.
fn self_hosted_address(row: &Provider, lookup: EnvLookup<'_>) -> Option<(String, Name)> {
    let server = row.key_env.as_deref()?.strip_suffix("_API_KEY")?;
    let path = row.base_url.rsplit('/').next()?;
    let variable = [server, "_BASE_URL"].concat();
    let (host, variable) = match non_empty(&variable, lookup) {
        Some(address) => (address, Name::from(variable)),
        None if server == "OLLAMA" => {
            let variable = "OLLAMA_HOST";
            (ollama_host(&non_empty(variable, lookup)?), Name::from(variable))
        }
        None => return None,
    };
    let host = host.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/api");
    Some(([host, "/", path].concat(), variable))
}

/// Parses `OLLAMA_HOST` as Ollama does. Scheme, host and port are optional, and an unspecified
/// address such as `0.0.0.0` becomes loopback.
fn ollama_host(text: &str) -> String {
    let (scheme, rest, port) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest, None),
        None => ("http", text, Some("11434")),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // In a bare IPv6 address, a colon does not introduce a port; after brackets, it does.
    let is_bare = host.parse::<IpAddr>().is_ok();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, own)) if !is_bare && !own.ends_with(']') => (name, Some(own)),
        _ => (host, port),
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let name = match bare.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Err(_) if name.is_empty() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V4(_)) | Err(_) => name.to_owned(),
    };
    let port = port.map(|port| [":", port].concat()).unwrap_or_default();
    format!("{scheme}://{name}{port}/{path}")
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod environment_tests;
