//! An endpoint: its address, credentials and limits.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::{Credential, Provider, UpstreamError};
use throughline_json::Name;
use url::Url;

use crate::auth::{Scheme, strip_query_keys};
use crate::breaker::BreakerPolicy;
use crate::credential::DynamicCredential;
use crate::retry::RetryPolicy;
use crate::sigv4::AwsKeys;

/// A configured endpoint of a provider.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Name by which requests select the endpoint.
    pub name: Name,
    /// Catalog entry that specifies the provider's wire and dialect.
    pub row: Arc<Provider>,
    /// Policy that selects the key to send with each request.
    pub credential: CredentialSource,
    /// Header in which the key is sent.
    pub scheme: Scheme,
    /// Timeouts, limits, retries and circuit breaker.
    pub options: EndpointOptions,
    pub(crate) base: Url,
}

/// Where the credentials for requests to an endpoint come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The operator's key, even if the client sends a key.
    Key(Credential),
    /// AWS keys that sign requests to Bedrock.
    Aws(AwsKeys),
    /// The operator's credential from a source that replaces it while the process runs.
    Dynamic(Arc<DynamicCredential>),
    /// The client's key; a request without a key is rejected.
    Caller,
    /// The client's key if the request has one, otherwise no key. For servers that do not require a
    /// key.
    Open,
    /// A configured key is missing. Contains the reason. All requests are rejected, even requests
    /// with a client's key.
    Missing(Name),
}

/// Timeouts, limits, retries and circuit breaker of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Timeout for DNS, TCP and TLS together.
    pub connect: Duration,
    /// Timeout until the first byte of the response. Without streaming, this time includes all of
    /// the model's reasoning.
    pub first_byte: Duration,
    /// Timeout between two chunks of the response body.
    pub between_bytes: Duration,
    /// Maximum size of a response in bytes.
    pub largest_answer: u64,
    /// When and how often failed requests are retried.
    pub retry: RetryPolicy,
    /// When requests to a failing endpoint are rejected.
    pub breaker: BreakerPolicy,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(10),
            between_bytes: Duration::from_mins(5),
            largest_answer: 256 << 20,
            retry: RetryPolicy::default(),
            breaker: BreakerPolicy::default(),
        }
    }
}

/// Reason why an endpoint cannot be used. The address is omitted, because it may contain a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use endpoint {name}: {problem}")]
pub struct InvalidEndpoint {
    /// Name of the invalid endpoint.
    pub name: Name,
    /// What is wrong with the base URL.
    pub problem: Name,
}

impl Endpoint {
    /// Creates an endpoint at `base_url` for a catalog entry, with default options.
    pub fn new(
        name: impl Into<Name>,
        row: Arc<Provider>,
        base_url: &str,
        credential: CredentialSource,
    ) -> Result<Self, InvalidEndpoint> {
        let name = name.into();
        let invalid =
            |problem| InvalidEndpoint { name: Arc::clone(&name), problem: Name::from(problem) };
        let base = parse_base_url(base_url).map_err(invalid)?;
        let scheme = Scheme::for_row(&row, base.host_str().unwrap_or_default());
        Ok(Self { name, row, credential, scheme, options: EndpointOptions::default(), base })
    }

    /// Sets the timeouts, limits, retries and circuit breaker.
    #[must_use]
    pub fn with_options(mut self, options: EndpointOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the base URL, to which the wire's paths are appended.
    pub fn base_url(&self) -> &str {
        self.base.as_str()
    }

    /// Resolves a path against the base URL. Fails if the result leaves the endpoint, for example
    /// through `..` segments.
    pub(crate) fn url(&self, path: &str) -> Result<Url, UpstreamError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let is_google = self.scheme == Scheme::Google;
        let query = if is_google { strip_query_keys(query) } else { query.to_owned() };
        let mut text = [self.base.as_str().trim_end_matches('/'), path].concat();
        if !query.is_empty() {
            text.push_str(&["?", &query].concat());
        }
        let inside = |url: &Url| {
            let base = self.base.path().trim_end_matches('/');
            let rest = url.path().strip_prefix(base);
            url.origin() == self.base.origin() && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let url = Url::parse(&text).ok().filter(|url| path.starts_with('/') && inside(url));
        url.ok_or_else(|| self.invalid_request("the path leads outside the endpoint's base URL"))
    }

    /// Returns whether a client's key is forwarded to the endpoint.
    pub(crate) fn accepts_client_key(&self) -> bool {
        matches!(self.credential, CredentialSource::Caller | CredentialSource::Open)
    }

    /// Selects the credentials for a request. `callers` is the client's key, if the client sent
    /// one.
    pub(crate) fn credentials(
        &self,
        callers: Option<Credential>,
    ) -> Result<CredentialSource, UpstreamError> {
        let callers = callers.map(CredentialSource::Key);
        match &self.credential {
            CredentialSource::Key(_) | CredentialSource::Aws(_) | CredentialSource::Dynamic(_) => {
                Ok(self.credential.clone())
            }
            CredentialSource::Open => Ok(callers.unwrap_or(CredentialSource::Open)),
            CredentialSource::Caller => callers.ok_or_else(|| UpstreamError::NoCredential {
                endpoint: Arc::clone(&self.name),
                variable: self.row.key_env.clone(),
            }),
            CredentialSource::Missing(reason) => Err(self.invalid_request(reason)),
        }
    }

    pub(crate) fn invalid_request(&self, problem: &str) -> UpstreamError {
        UpstreamError::Invalid { endpoint: Arc::clone(&self.name), problem: Name::from(problem) }
    }
}

/// Parses and checks a base URL; the error describes the problem.
pub(crate) fn parse_base_url(address: &str) -> Result<Url, &'static str> {
    if address.is_empty() {
        return Err("the base URL is empty");
    }
    if address.contains(['{', '}']) {
        return Err("the base URL contains a placeholder in braces; replace it with a value");
    }
    let url = Url::parse(address).map_err(|_| "the base URL is malformed")?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err("the base URL must start with http:// or https://, followed by a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the base URL contains a user name or a password; configure the API key separately",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "the base URL must not have a query or a fragment, because request paths are appended \
             to the base URL",
        );
    }
    Ok(url)
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod endpoint_tests;
