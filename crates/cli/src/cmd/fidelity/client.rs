//! The HTTP client of the benchmark. It sends each request once and reads the whole response.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use throughline_codec::Catalog;
use throughline_core::{Credential, Upstream as _, UpstreamError, UpstreamRequest};
use throughline_json::Name;
use throughline_provider::{
    BreakerPolicy, CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy,
};

use super::dialect::Dialect;
use super::setup::{WIRES, WireTarget};
use crate::print::failure::{Failure, Result};

/// Maximum time to wait for the next bytes of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// The gateway's response to a request of the benchmark.
pub(super) struct GatewayResponse {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

pub(super) struct FidelityClient {
    http: Http,
    url: String,
}

impl FidelityClient {
    /// Creates a client for the gateway at `url`, which authenticates with `key`.
    pub(super) fn new(url: &str, key: &str) -> Result<Self> {
        let options = EndpointOptions {
            first_byte: RESPONSE_TIMEOUT,
            between_bytes: RESPONSE_TIMEOUT,
            retry: RetryPolicy { retries: 0, ..RetryPolicy::default() },
            breaker: BreakerPolicy { failures: 0, ..BreakerPolicy::default() },
            ..EndpointOptions::default()
        };
        let url = url.trim_end_matches('/');
        let invalid = |problem: &str| {
            let hint = "write it as http://HOST:PORT or https://HOST";
            Failure::Usage(format!("--gateway {url} is not valid: {problem}; {hint}"))
        };
        let mut endpoints = Vec::new();
        for wire in WIRES {
            // The catalog entry selects the header in which the client sends its key.
            let row = Catalog::builtin().default_provider(&wire.dialect.wire());
            let row = row.ok_or_else(|| invalid("the catalog has no provider for a wire"))?;
            let source = CredentialSource::Key(Credential::new(key));
            let endpoint = Endpoint::new(wire.name, row, url, source);
            let endpoint = endpoint.map_err(|error| invalid(&error.problem))?;
            endpoints.push(endpoint.with_options(options));
        }
        let http = Http::new(endpoints, Arc::new(crate::clock::now));
        let http = http.map_err(|error| invalid(&error.problem))?;
        Ok(Self { http, url: url.to_owned() })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Posts a request and reads the whole response.
    pub(super) async fn post(
        &self,
        target: &WireTarget,
        model: &str,
        extra_headers: &[(&str, &str)],
        is_streamed: bool,
        body: String,
    ) -> Result<GatewayResponse, UpstreamError> {
        let dialect = target.wire.dialect;
        let own = if model == target.model { &target.headers } else { &target.other_headers };
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let version = (dialect == Dialect::Messages).then_some(("anthropic-version", "2023-06-01"));
        let headers = [("content-type", "application/json")].into_iter().chain(version).chain(own);
        let headers = headers.chain(extra_headers.iter().copied());
        let path = format!("{}{}", target.path, dialect.path(model, is_streamed));
        let request = UpstreamRequest {
            endpoint: Name::from(target.wire.name),
            model: None,
            method: Name::from("POST"),
            path: Name::from(path),
            headers: headers.map(|(name, value)| (Name::from(name), Name::from(value))).collect(),
            body: body.into(),
            credential: None,
        };
        let mut response = self.http.send(request).await?;
        let content_type = response.header("content-type").unwrap_or_default().to_owned();
        let mut body = Vec::new();
        while let Some(chunk) = response.body.next().await {
            body.extend_from_slice(&chunk?);
        }
        Ok(GatewayResponse { status: response.status, content_type, body })
    }
}
