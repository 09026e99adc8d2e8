//! An endpoint: where it is, whose key it takes, and how patient we are with it.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::{Credential, Name, Provider, UpstreamError};
use url::Url;

use crate::auth::{Scheme, without_keys};
use crate::breaker::BreakerPolicy;
use crate::retry::RetryPolicy;
use crate::sigv4::AwsKeys;

/// A configured endpoint of a provider.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What requests call it.
    pub name: Name,
    /// The catalog's row for its kind.
    pub row: Arc<Provider>,
    /// Whose key it gets.
    pub credential: Source,
    /// Where it looks for a key.
    pub scheme: Scheme,
    /// How patient we are with it.
    pub options: EndpointOptions,
    pub(crate) base: Url,
}

/// Whose key an endpoint gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This one, whatever the caller has.
    Key(Credential),
    /// A signature with these keys, on Bedrock.
    Aws(AwsKeys),
    /// The caller's own, and no request goes out without one.
    Caller,
    /// The caller's own if there is one, else none: a server that asks for no key.
    Open,
    /// Its own, which is not there for this reason. No request goes out, whatever key the caller has.
    Missing(Name),
}

/// How patient we are with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointOptions {
    /// How long connecting may take.
    pub connect: Duration,
    /// How long the first byte of an answer may take. Without streaming that is all of the model's thinking.
    pub first_byte: Duration,
    /// How long the next byte may take.
    pub between_bytes: Duration,
    /// How many bytes an answer may have.
    pub largest_answer: u64,
    /// What is sent again.
    pub retry: RetryPolicy,
    /// When it is left alone.
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

/// Why an endpoint cannot be used. The address itself is not told, since it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint {name} cannot be used: {problem}")]
pub struct InvalidEndpoint {
    /// The endpoint.
    pub name: Name,
    /// What is wrong with it.
    pub problem: Name,
}

impl Endpoint {
    /// An endpoint of a row's kind at that address.
    pub fn new(
        name: impl Into<Name>,
        row: Arc<Provider>,
        base_url: &str,
        credential: Source,
    ) -> Result<Self, InvalidEndpoint> {
        let name = name.into();
        let base = match base(base_url) {
            Ok(base) => base,
            Err(problem) => return Err(InvalidEndpoint { name, problem: Name::from(problem) }),
        };
        let scheme = Scheme::of(&row, base.host_str().unwrap_or_default());
        Ok(Self { name, row, credential, scheme, options: EndpointOptions::default(), base })
    }

    /// The same with other patience.
    #[must_use]
    pub fn with(mut self, options: EndpointOptions) -> Self {
        self.options = options;
        self
    }

    /// Its address, up to the wire's own path.
    pub fn base_url(&self) -> &str {
        self.base.as_str()
    }

    /// The address of a path here. It never leads anywhere else, whatever the path says.
    pub(crate) fn url(&self, path: &str) -> Result<Url, UpstreamError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = match self.scheme {
            Scheme::Google => without_keys(query),
            Scheme::Anthropic | Scheme::Bearer | Scheme::Azure => query.to_owned(),
        };
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
        url.ok_or_else(|| self.invalid("its path does not lead to a place there"))
    }

    /// Whether a caller's own key goes out, if it brings one.
    pub(crate) fn takes_callers_key(&self) -> bool {
        match self.credential {
            Source::Caller | Source::Open => true,
            Source::Key(_) | Source::Aws(_) | Source::Missing(_) => false,
        }
    }

    /// Whose key a request gets.
    pub(crate) fn proof(&self, callers: Option<Credential>) -> Result<Source, UpstreamError> {
        let callers = callers.map(Source::Key);
        match &self.credential {
            Source::Key(_) | Source::Aws(_) => Ok(self.credential.clone()),
            Source::Open => Ok(callers.unwrap_or(Source::Open)),
            Source::Caller => callers.ok_or_else(|| UpstreamError::NoCredential {
                endpoint: Arc::clone(&self.name),
                variable: self.row.key_env.clone(),
            }),
            Source::Missing(reason) => Err(self.invalid(reason)),
        }
    }

    pub(crate) fn invalid(&self, problem: &str) -> UpstreamError {
        UpstreamError::Invalid { endpoint: Arc::clone(&self.name), problem: Name::from(problem) }
    }
}

/// An address that everything else is put behind.
pub(crate) fn base(address: &str) -> Result<Url, &'static str> {
    if address.is_empty() {
        return Err("it has no address");
    }
    if address.contains(['{', '}']) {
        return Err("a part of its address is left open");
    }
    let url = Url::parse(address).map_err(|_| "its address is not a URL")?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err("its address does not begin with http:// or https:// and a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its address holds a user or a password: give the key on its own");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("its address has a query or a fragment, and paths are put behind it");
    }
    Ok(url)
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod endpoint_tests;
