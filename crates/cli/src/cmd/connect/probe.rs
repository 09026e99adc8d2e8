//! Checks that a gateway answers and accepts the key, before a client starts. Clients repeat a
//! failed request for minutes without a message.

use std::sync::Arc;
use std::time::Duration;

use throughline_codec::Catalog;
use throughline_core::{Credential, Upstream as _, UpstreamError, UpstreamRequest, Wire};
use throughline_json::Name;
use throughline_provider::{
    BreakerPolicy, CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy,
};
use tokio::runtime::Builder;

use crate::clock;
use crate::config::environment::readable_variable;
use crate::print::failure::{Failure, Result};
use crate::store::runtime;

use super::target::{ConnectTarget, GatewayKey, KEY_VARIABLE};

/// Path of the request. The gateway lists the models that the key may use.
const PATH: &str = "/v1/models";
/// Time limit for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the response. The gateway may request model lists from its providers first.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a client can use the gateway. The texts state the problem and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GatewayStatus {
    Ready,
    /// The gateway does not answer, or not as a gateway.
    Unavailable(String),
    /// The gateway refuses the key.
    KeyRefused(String),
}

/// Requests the model list with the key of the client.
pub(crate) fn probe(target: &ConnectTarget) -> Result<GatewayStatus> {
    if uses_proxy(&target.url) {
        // Only the client knows how to reach the gateway through the proxy.
        return Ok(GatewayStatus::Ready);
    }
    let http = client(target)?;
    let request = UpstreamRequest {
        endpoint: Name::from("gateway"),
        model: None,
        method: Name::from("GET"),
        path: Name::from(PATH),
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        credential: None,
    };
    let response = runtime(Builder::new_current_thread())?.block_on(http.send(request));
    let url = &target.url;
    Ok(match response {
        // 402 and 429: the key is valid, and its budget or rate limit is used up.
        Ok(response) if matches!(response.status, 200..=299 | 402 | 429) => GatewayStatus::Ready,
        Ok(response) if matches!(response.status, 401 | 403) => {
            GatewayStatus::KeyRefused(key_problem(target))
        }
        Ok(response) => GatewayStatus::Unavailable(format!(
            "{url}{PATH} returned status {}, so {url} is not a working gateway: check --url and \
             the gateway's log",
            response.status
        )),
        Err(error) => GatewayStatus::Unavailable(format!(
            "no gateway answers at {url} ({}): start it in another terminal with `throughline \
             serve`, or name its address with --url",
            cause(&error)
        )),
    })
}

fn client(target: &ConnectTarget) -> Result<Http> {
    let invalid = |problem: &str| Failure::Usage(format!("{} is not valid: {problem}", target.url));
    let row = Catalog::builtin().default_provider(&Wire::OPENAI_CHAT);
    let row = row.ok_or_else(|| invalid("the catalog has no provider for Chat Completions"))?;
    let source = CredentialSource::Key(Credential::new(target.key.secret()));
    let endpoint = Endpoint::new("gateway", row, &target.url, source);
    let endpoint = endpoint.map_err(|error| invalid(&error.problem))?;
    let endpoint = endpoint.with_options(EndpointOptions {
        connect: CONNECT_TIMEOUT,
        first_byte: RESPONSE_TIMEOUT,
        between_bytes: RESPONSE_TIMEOUT,
        retry: RetryPolicy { retries: 0, ..RetryPolicy::default() },
        breaker: BreakerPolicy { failures: 0, ..BreakerPolicy::default() },
        ..EndpointOptions::default()
    });
    Http::new([endpoint], Arc::new(clock::now)).map_err(|error| invalid(&error.problem))
}

fn key_problem(target: &ConnectTarget) -> String {
    let url = &target.url;
    let create = "create one with `throughline keys create`";
    match &target.key {
        GatewayKey::None => format!(
            "the gateway at {url} requires an API key: {create}, export it as {KEY_VARIABLE}, and \
             run this command again"
        ),
        GatewayKey::Variable(_) => format!(
            "the gateway at {url} refuses the key in {KEY_VARIABLE}: export one of its keys (see \
             `throughline keys list`), or {create}"
        ),
        GatewayKey::Value(_) => format!(
            "the gateway at {url} refuses the key in --key: use one of its keys (see `throughline \
             keys list`), or {create}"
        ),
    }
}

/// Returns the network error without the name of the endpoint, which the user does not know.
fn cause(error: &UpstreamError) -> String {
    match error {
        UpstreamError::Unreachable { cause, .. } | UpstreamError::Cut { cause, .. } => {
            cause.to_string()
        }
        UpstreamError::TimedOut { waiting, limit, .. } => {
            format!("it took more than {} s {waiting}", limit.as_secs())
        }
        other => other.to_string(),
    }
}

/// Returns whether clients reach the address through a proxy that the environment names.
fn uses_proxy(url: &str) -> bool {
    let names = match url.split_once("://") {
        Some(("https", _)) => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        Some(_) | None => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let is_local = ["localhost", "127.", "[::1]"]
        .iter()
        .any(|host| url.split_once("://").is_some_and(|(_, rest)| rest.starts_with(host)));
    !is_local && names.iter().any(|name| readable_variable(name).is_some())
}
