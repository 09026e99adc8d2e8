//! HTTP client for identity services.
//!
//! In contrast to requests to providers, these requests may go to the link-local addresses of
//! metadata services: the addresses are constants or set by the operator, never by a client.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use throughline_core::Credential;
use tokio::time::timeout;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::address::FilteredResolver;
use crate::auth::insert_secret;
use crate::client::Client;
use crate::credential::{FetchedSecret, Secret, after};
use crate::redact::redact;
use crate::tls;

/// Timeout of a request. An address of a metadata service does not answer on other machines.
const LIMIT: Duration = Duration::from_secs(10);

/// Timeout for connecting. Metadata services are on the same machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Maximum size of a response in bytes.
const LARGEST_ANSWER: usize = 1 << 20;

/// Maximum length of a service's own error text in a message.
const LONGEST_REASON: usize = 300;

#[derive(Default)]
pub(crate) struct TokenClient(OnceLock<Result<Client, String>>);

/// A request to an identity service.
pub(crate) struct TokenRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl TokenRequest {
    pub(crate) fn get(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|_| "the address of the service is not a URL")?;
        Ok(Self { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() })
    }

    /// Creates a request with form fields.
    pub(crate) fn form(url: &str, fields: &[(&str, &str)]) -> Result<Self, String> {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        Ok(Self::get(url)?.with_body(kind, body))
    }

    /// Creates a request with a JSON body.
    pub(super) fn json(url: &str, body: &serde_json::Value) -> Result<Self, String> {
        let kind = HeaderValue::from_static("application/json");
        Ok(Self::get(url)?.with_body(kind, body.to_string()))
    }

    fn with_body(mut self, kind: HeaderValue, body: String) -> Self {
        self.method = Method::POST;
        self.headers.insert(CONTENT_TYPE, kind);
        self.body = Bytes::from(body);
        self
    }

    /// Adds parameters to the query.
    pub(super) fn query(mut self, fields: &[(&str, &str)]) -> Self {
        self.url.query_pairs_mut().extend_pairs(fields);
        self
    }

    /// Adds a header, whose value is treated as a secret.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Result<Self, String> {
        let invalid = || format!("the header {name:?} or its value is invalid");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        insert_secret(&mut self.headers, header, value).map_err(|_| invalid())?;
        Ok(self)
    }

    pub(super) fn bearer(self, token: &Credential) -> Result<Self, String> {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {}", token.reveal()))
    }
}

impl TokenClient {
    /// Sends a request and parses the JSON in the response.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        request: TokenRequest,
    ) -> Result<T, String> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let body = self.fetch_bytes(request).await?;
        // The parser's message may contain a part of the token.
        serde_json::from_slice(&body)
            .map_err(|_| format!("the response of {host} does not have the expected JSON fields"))
    }

    /// Sends a request and returns the body of a successful response.
    pub(super) async fn fetch_bytes(&self, request: TokenRequest) -> Result<Bytes, String> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let response = timeout(LIMIT, self.send(request)).await;
        let (status, body) = response
            .map_err(|_| format!("{host} did not respond within {} s", LIMIT.as_secs()))??;
        if status.is_success() {
            return Ok(body);
        }
        Err(format!("{host} responded with status {}{}", status.as_u16(), reason(&body)))
    }

    async fn send(&self, request: TokenRequest) -> Result<(StatusCode, Bytes), String> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let create = || match tls::config() {
            Ok(tls) => Ok(Client::new(tls, FilteredResolver::system(), CONNECT_LIMIT)),
            Err(error) => Err(format!("cannot configure TLS: {error}")),
        };
        let client = self.0.get_or_init(create).as_ref().map_err(String::clone)?;
        let mut outgoing = Request::new(Full::new(request.body));
        *outgoing.method_mut() = request.method;
        let uri = request.url.as_str().parse();
        *outgoing.uri_mut() = uri.map_err(|_| format!("the address of {host} is invalid"))?;
        *outgoing.headers_mut() = request.headers;
        // Outer errors contain the address, whose query may contain secrets.
        let response = client.send(outgoing).await.map_err(|error| {
            format!("cannot reach {host}: {}", crate::client::root_cause(&error))
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| format!("the response of {host} broke: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}

/// Response of a token endpoint. Some services write numbers as strings.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    access_token: String,
    expires_in: Option<Seconds>,
    /// Seconds since 1970.
    expires_on: Option<Seconds>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(i64),
    Text(String),
}

impl Seconds {
    fn count(&self) -> Option<i64> {
        match self {
            Self::Number(count) => Some(*count),
            Self::Text(text) => text.trim().parse().ok(),
        }
    }
}

/// Lifetime of a token whose response does not state it. It is shorter than the usual hour.
const UNSTATED_LIFETIME: SignedDuration = SignedDuration::from_mins(30);

impl TokenResponse {
    pub(super) fn into_secret(self, now: Timestamp) -> FetchedSecret {
        let relative = self.expires_in.as_ref().and_then(Seconds::count);
        let absolute = self.expires_on.as_ref().and_then(Seconds::count);
        let expires_at = match (relative, absolute) {
            (Some(seconds), _) => after(now, SignedDuration::from_secs(seconds)),
            (None, Some(time)) => Timestamp::from_second(time).unwrap_or(now),
            (None, None) => after(now, UNSTATED_LIFETIME),
        };
        let token = Secret::Token(Credential::new(self.access_token));
        FetchedSecret::expiring(token, now, expires_at)
    }
}

/// Error body of OAuth 2 (`error`, `error_description`) or of Google (`error.message`).
#[derive(Deserialize)]
struct ErrorResponse {
    error: ErrorField,
    error_description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorField {
    Code(String),
    Detail { message: String },
}

/// Returns the service's own description of an error, without words that may be secrets.
fn reason(body: &[u8]) -> String {
    let Ok(response) = serde_json::from_slice::<ErrorResponse>(body) else { return String::new() };
    let text = match (response.error, response.error_description) {
        (ErrorField::Code(code), Some(description)) => format!("{code}: {description}"),
        (ErrorField::Code(text) | ErrorField::Detail { message: text }, _) => text,
    };
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(LONGEST_REASON).collect();
    format!(": {}", redact(&short))
}
