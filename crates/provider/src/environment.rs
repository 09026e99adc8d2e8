//! What the usual variables say of a row: where it is, and which key it gets.
//!
//! The variables are looked up by a function that is passed in, since only the binary reads the environment.
//!
//! - A row's key is in its `key-env`; that of `gemini` also in `GOOGLE_API_KEY`.
//! - `bedrock` also takes the keys of an account: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, with `AWS_SESSION_TOKEN`
//!   where there is one. `AWS_REGION` or `AWS_DEFAULT_REGION` takes the place of the region in its address.
//! - `AZURE_OPENAI_ENDPOINT` is the address of an Azure resource, `SNOWFLAKE_ACCOUNT` the account.
//! - A server that one runs oneself is where `OLLAMA_BASE_URL`, `VLLM_BASE_URL` and their like say; Ollama also where
//!   `OLLAMA_HOST` does, written as Ollama itself reads it.

use std::net::IpAddr;
use std::sync::Arc;

use throughline_core::{Credential, Name, Provider, Wire};
use url::Url;

use crate::endpoint::base;
use crate::sigv4::{AwsKeys, region_of};

/// Looks a variable up.
pub type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

/// The key that the usual variables hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsualKey {
    /// A key, and the variable that it came from.
    Key(Credential, Name),
    /// The keys of an AWS account.
    Aws(AwsKeys),
}

/// The variable of an AWS account's keys that is named for all of them.
pub const AWS_ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";

/// Where the usual variables put a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsualAddress {
    /// The address, up to the wire's own path.
    pub base_url: Name,
    /// The variable that says so.
    pub variable: Name,
}

/// A variable that should say where a row is, and does not. What it says is not told, since it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is not heard: {problem}")]
pub struct Unheard {
    /// The variable.
    pub variable: Name,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The key of a row, if a variable holds it.
pub fn usual_key(row: &Provider, lookup: Lookup<'_>) -> Option<UsualKey> {
    let also = (*row.name == *"gemini").then_some("GOOGLE_API_KEY");
    let names: Vec<&str> = row.key_env.as_deref().into_iter().chain(also).collect();
    if let Some((key, name)) = first(&names, lookup) {
        return Some(UsualKey::Key(Credential::new(key), Name::from(name)));
    }
    if row.wire != Wire::BEDROCK_CONVERSE {
        return None;
    }
    Some(UsualKey::Aws(AwsKeys {
        id: Name::from(set(AWS_ACCESS_KEY_ID, lookup)?),
        secret: Credential::new(set("AWS_SECRET_ACCESS_KEY", lookup)?),
        session_token: set("AWS_SESSION_TOKEN", lookup).map(Credential::new),
        region: region(lookup).map(|(region, _)| Name::from(region)),
    }))
}

/// Where a row is, if a variable says so. Vendors' rows have no such variable: the ones that their clients read may point
/// those clients at us.
pub fn usual_address(row: &Provider, lookup: Lookup<'_>) -> Result<Option<UsualAddress>, Unheard> {
    let Some((address, variable)) = said_address(row, lookup) else { return Ok(None) };
    let unheard = |problem| Unheard { variable: Arc::clone(&variable), problem };
    let address = address.ok_or_else(|| unheard("it names no region, as eu-west-1 is one"))?;
    base(&address).map_err(unheard)?;
    Ok(Some(UsualAddress { base_url: Name::from(address), variable }))
}

/// The address of a row in another region of AWS; none where it is in no region, or that is none.
pub fn in_region(row: &Provider, region: &str) -> Option<Name> {
    let is_there = row.base_url.contains(REGION) && region_of(region) == Some(region);
    is_there.then(|| Name::from(row.base_url.replace(REGION, region)))
}

/// Whether nothing can be asked there without a key. A server of this machine is rather open.
pub fn needs_key(row: &Provider) -> bool {
    row.key_env.is_some() && !is_own_server(row)
}

/// The region that addresses of rows are in.
const REGION: &str = "us-east-1";

/// A variable that says something.
fn set(name: &str, lookup: Lookup<'_>) -> Option<String> {
    let value = lookup(name)?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}

/// The first of these variables that says something.
fn first<'n>(names: &[&'n str], lookup: Lookup<'_>) -> Option<(String, &'n str)> {
    names.iter().find_map(|name| Some((set(name, lookup)?, *name)))
}

fn region(lookup: Lookup<'_>) -> Option<(String, &'static str)> {
    first(&["AWS_REGION", "AWS_DEFAULT_REGION"], lookup)
}

/// Where a variable says that a row is, and which one does; no address where what it says has no place in one.
fn said_address(row: &Provider, lookup: Lookup<'_>) -> Option<(Option<String>, Name)> {
    let address = &*row.base_url;
    if is_own_server(row) {
        let (address, variable) = own_server(row, lookup)?;
        return Some((Some(address), variable));
    }
    if address.contains("{resource}") {
        let variable = "AZURE_OPENAI_ENDPOINT";
        let endpoint = set(variable, lookup)?;
        let endpoint = endpoint.trim_end_matches('/').trim_end_matches("/openai/v1");
        return Some((Some([endpoint, "/openai/v1"].concat()), Name::from(variable)));
    }
    if address.contains("{account}") {
        let variable = "SNOWFLAKE_ACCOUNT";
        let account = set(variable, lookup)?;
        return Some((Some(address.replace("{account}", &account)), Name::from(variable)));
    }
    if address.contains(REGION) {
        let (region, variable) = region(lookup)?;
        let address = in_region(row, &region).map(|address| address.to_string());
        return Some((address, Name::from(variable)));
    }
    None
}

/// Whether a row is of a server that one runs oneself.
fn is_own_server(row: &Provider) -> bool {
    let url = Url::parse(&row.base_url).ok();
    url.as_ref().and_then(Url::host_str).is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Where such a server was put. The variable says where the server is; `/v1` or `/api` is a matter of the row.
fn own_server(row: &Provider, lookup: Lookup<'_>) -> Option<(String, Name)> {
    let server = row.key_env.as_deref()?.strip_suffix("_API_KEY")?;
    let path = row.base_url.rsplit('/').next()?;
    let variable = [server, "_BASE_URL"].concat();
    let (host, variable) = match set(&variable, lookup) {
        Some(address) => (address, Name::from(variable)),
        None if server == "OLLAMA" => {
            let variable = "OLLAMA_HOST";
            (ollama_host(&set(variable, lookup)?), Name::from(variable))
        }
        None => return None,
    };
    let host = host.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/api");
    Some(([host, "/", path].concat(), variable))
}

/// The address that Ollama makes of its variable: the scheme and the port may be left out, and so may the host. A server that
/// listens everywhere is asked here.
fn ollama_host(text: &str) -> String {
    let (scheme, rest, port) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest, None),
        None => ("http", text, Some("11434")),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // The colons of an address of IPv6 are no port's unless it stands in brackets.
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
