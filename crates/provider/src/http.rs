//! HTTP implementation of the `Upstream` port: requests, responses and network errors.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use jiff::Timestamp;
use rustls::ClientConfig;
use throughline_core::{
    BlockedAddress, BodyStream, RestingEndpoint, TimeoutPhase, Upstream, UpstreamError,
    UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
use throughline_json::Name;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::address::{self, FilteredResolver};
use crate::auth::{insert_bearer, insert_secret, is_account_header, is_credential};
use crate::breaker::Breakers;
use crate::client::{self, Client, ConnectTimeout, is_unprocessed, root_cause};
use crate::credential::{DynamicCredential, FetchedSecret, Secret};
use crate::endpoint::{CredentialSource, Endpoint, InvalidEndpoint};
use crate::retry::RetryState;
use crate::sigv4::{self, AwsKeys, SignedParts};
use crate::tls;

/// Function that returns the current time, for signatures and date headers.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// HTTP client for a set of endpoints.
pub struct Http {
    connections: HashMap<Name, EndpointConn>,
    clock: Clock,
    /// Number of retries so far, over all requests.
    retries: AtomicU64,
}

/// An endpoint with its connection pool and circuit breakers.
struct EndpointConn {
    endpoint: Endpoint,
    client: Client,
    breakers: Breakers,
    /// Cache of the last path and its resolved URL, because most requests use the same path.
    last_url: Mutex<Option<(Name, EndpointUrl)>>,
}

/// A URL in the two representations that the client needs.
#[derive(Clone)]
struct EndpointUrl {
    url: Url,
    uri: Uri,
}

/// A request that can be sent repeatedly, for retries.
struct PreparedRequest {
    model: Option<Name>,
    method: Method,
    url: EndpointUrl,
    headers: HeaderMap,
    body: Bytes,
    proof: RequestProof,
}

/// How an attempt of a request is authenticated.
enum RequestProof {
    /// With the headers of the prepared request.
    Headers,
    /// With a signature, which each attempt creates.
    Aws(AwsKeys),
    /// With a secret that can be replaced.
    Dynamic(Arc<DynamicCredential>, Arc<FetchedSecret>),
}

impl Http {
    /// Creates a client for the given endpoints; `clock` is used for signatures and date headers.
    pub fn new(
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let tls = tls::config();
        let connections = endpoints.into_iter().map(|endpoint| match &tls {
            Ok(tls) => Ok(EndpointConn::new(endpoint, tls.clone(), FilteredResolver::system())),
            Err(error) => Err(invalid_endpoint(&endpoint.name, error)),
        });
        Self::from_connections(connections, clock)
    }

    fn from_connections(
        results: impl IntoIterator<Item = Result<EndpointConn, InvalidEndpoint>>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let mut connections = HashMap::new();
        for connection in results {
            let connection = connection?;
            let name = Arc::clone(&connection.endpoint.name);
            if connections.insert(Arc::clone(&name), connection).is_some() {
                let problem = Name::from("another endpoint has the same name");
                return Err(InvalidEndpoint { name, problem });
            }
        }
        Ok(Self { connections, clock, retries: AtomicU64::new(0) })
    }

    /// Returns the endpoint that requests select by `name`; `None` if it is not configured.
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.connections.get(name).map(|connection| &connection.endpoint)
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("endpoints", &self.connections.keys()).finish_non_exhaustive()
    }
}

impl Upstream for Http {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        Box::pin(async move {
            let Some(connection) = self.connections.get(&outgoing.endpoint) else {
                return Err(UpstreamError::UnknownEndpoint { endpoint: outgoing.endpoint });
            };
            let prepared = connection.prepare(outgoing, &self.clock).await?;
            connection.send(prepared, &self.clock, &self.retries).await
        })
    }

    fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    fn resting(&self) -> Vec<RestingEndpoint> {
        let resting = self.connections.iter().flat_map(|(name, connection)| {
            let endpoint = Arc::clone(name);
            let open = connection.breakers.open();
            open.into_iter()
                .map(move |model| RestingEndpoint { endpoint: Arc::clone(&endpoint), model })
        });
        let mut resting: Vec<RestingEndpoint> = resting.collect();
        resting.sort();
        resting
    }
}

/// Maximum number of immediate retries when the server reports that it did not process the request.
const MAX_UNPROCESSED_RETRIES: usize = 2;

/// Problem of a key that cannot be sent.
const INVALID_KEY: &str = "the API key contains characters that are not allowed in a header";

impl EndpointConn {
    fn new(endpoint: Endpoint, tls: ClientConfig, names: FilteredResolver) -> Self {
        let client = Client::new(tls, names, endpoint.options.connect);
        let breakers = Breakers::new(endpoint.options.breaker);
        Self { endpoint, client, breakers, last_url: Mutex::default() }
    }

    async fn prepare(
        &self,
        outgoing: UpstreamRequest,
        clock: &Clock,
    ) -> Result<PreparedRequest, UpstreamError> {
        let endpoint = &self.endpoint;
        let method = Method::from_bytes(outgoing.method.as_bytes());
        let method = method.map_err(|_| endpoint.invalid_request("the HTTP method is invalid"))?;
        let url = self.resolve_path(&outgoing.path)?;
        let is_callers = outgoing.credential.is_some() && endpoint.accepts_client_key();
        let credential = endpoint.credentials(outgoing.credential)?;
        // The client's headers, and up to four of our own.
        let mut headers = HeaderMap::with_capacity(outgoing.headers.len() + 4);
        for (name, value) in &outgoing.headers {
            let header = HeaderName::from_bytes(name.as_bytes());
            let (Ok(header), Ok(value)) = (header, HeaderValue::from_bytes(value.as_bytes()))
            else {
                return Err(endpoint.invalid_request(&format!("the header {name:?} is malformed")));
            };
            let is_ours = header == CONTENT_LENGTH || is_hop_by_hop(&header);
            let is_foreign = is_credential(&header) || (!is_callers && is_account_header(&header));
            if !is_ours && !is_foreign {
                headers.append(header, value);
            }
        }
        // A request without an `accept` header accepts any type.
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        if !outgoing.body.is_empty() {
            // Bodies written by a codec are JSON.
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        }
        let proof = match credential {
            CredentialSource::Key(key) => {
                let added = endpoint.scheme.add(&mut headers, &key);
                added.map_err(|_| endpoint.invalid_request(INVALID_KEY))?;
                RequestProof::Headers
            }
            CredentialSource::Aws(keys) => RequestProof::Aws(keys),
            CredentialSource::Dynamic(credential) => {
                let secret = credential.current(clock()).await;
                let secret = secret.map_err(|error| UpstreamError::CredentialUnavailable {
                    endpoint: Arc::clone(&endpoint.name),
                    problem: Name::from(error.to_string()),
                })?;
                self.add_secret(&mut headers, &secret)?;
                RequestProof::Dynamic(credential, secret)
            }
            CredentialSource::Caller | CredentialSource::Open | CredentialSource::Missing(_) => {
                RequestProof::Headers
            }
        };
        let (model, body) = (outgoing.model, outgoing.body);
        Ok(PreparedRequest { model, method, url, headers, body, proof })
    }

    /// Adds a fetched secret to the headers. AWS keys sign each attempt instead.
    fn add_secret(
        &self,
        headers: &mut HeaderMap,
        secret: &FetchedSecret,
    ) -> Result<(), UpstreamError> {
        let added = match &secret.secret {
            Secret::Key(key) => self.endpoint.scheme.add(headers, key),
            Secret::Token(token) => insert_bearer(headers, token.reveal()),
            Secret::Aws(_) => Ok(()),
        };
        added.map_err(|_| self.endpoint.invalid_request(INVALID_KEY))
    }

    /// Replaces the secret of a request that the provider rejected. Returns whether the request has
    /// another secret now.
    async fn replace_secret(
        &self,
        prepared: &mut PreparedRequest,
        status: u16,
        now: Timestamp,
    ) -> bool {
        let RequestProof::Dynamic(credential, rejected) = &prepared.proof else { return false };
        let Some(secret) = credential.replace(rejected, status, now).await else { return false };
        let is_added = self.add_secret(&mut prepared.headers, &secret).is_ok();
        prepared.proof = RequestProof::Dynamic(Arc::clone(credential), secret);
        is_added
    }

    /// Resolves a path to a URL at the endpoint. Fails if the URL's host is a blocked address.
    fn resolve_path(&self, path: &Name) -> Result<EndpointUrl, UpstreamError> {
        let mut last = self.last_url.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, resolved)) = last.as_ref().filter(|(known, _)| known == path) {
            return Ok(resolved.clone());
        }
        let url = self.endpoint.url(path)?;
        address::check(&url).map_err(|refused| self.refused(&refused))?;
        let uri = url.as_str().parse();
        let uri = uri.map_err(|_| self.endpoint.invalid_request("the path is invalid"))?;
        let resolved = EndpointUrl { url, uri };
        *last = Some((Name::clone(path), resolved.clone()));
        Ok(resolved)
    }

    /// Sends a request with retries, and returns the outcome of the last attempt.
    async fn send(
        &self,
        mut prepared: PreparedRequest,
        clock: &Clock,
        retries: &AtomicU64,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let mut tries = RetryState::new(self.endpoint.options.retry);
        let (endpoint, model) =
            (self.breakers.endpoint(), self.breakers.model(prepared.model.as_ref()));
        let resting =
            |left| UpstreamError::Resting { endpoint: Arc::clone(&self.endpoint.name), left };
        let mut is_replaced = false;
        loop {
            let endpoint_permit = endpoint.admit(Instant::now()).map_err(resting)?;
            let model_permit = model.admit(Instant::now()).map_err(resting)?;
            let outcome = self.attempt(&prepared, clock()).await;
            // Dropping a permit without settling it records no outcome.
            match failure_of(&outcome) {
                Some(FailedPart::Connecting) => endpoint_permit.settle(true, Instant::now()),
                Some(part) => {
                    endpoint_permit.settle(false, Instant::now());
                    model_permit.settle(part == FailedPart::Answering, Instant::now());
                }
                None => {}
            }
            if let Ok(UpstreamResponse { status: status @ (401 | 403), .. }) = &outcome
                && let RequestProof::Dynamic(credential, _) = &prepared.proof
            {
                // Nothing was forwarded yet, and the provider did not process the request.
                if is_replaced {
                    credential.ignore_rejections(*status, clock());
                } else if self.replace_secret(&mut prepared, *status, clock()).await {
                    is_replaced = true;
                    retries.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            if endpoint.is_open() || model.is_open() {
                return outcome;
            }
            let Some(wait) = tries.wait_after(&outcome, clock()) else { return outcome };
            drop(outcome);
            retries.fetch_add(1, Ordering::Relaxed);
            sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        prepared: &PreparedRequest,
        now: Timestamp,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let limit = self.endpoint.options.first_byte;
        let response = async {
            let mut retries_left = MAX_UNPROCESSED_RETRIES;
            loop {
                match self.client.send(self.request(prepared, now)?).await {
                    Ok(response) => return Ok(self.to_upstream_response(response)),
                    Err(error) if retries_left > 0 && is_unprocessed(&error) => retries_left -= 1,
                    Err(error) => return Err(self.network_error(&error)),
                }
            }
        };
        timeout(limit, response)
            .await
            .unwrap_or_else(|_| Err(self.timed_out(TimeoutPhase::FirstByte, limit)))
    }

    fn request(
        &self,
        prepared: &PreparedRequest,
        now: Timestamp,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let mut request = Request::new(Full::new(prepared.body.clone()));
        request.method_mut().clone_from(&prepared.method);
        request.uri_mut().clone_from(&prepared.url.uri);
        request.headers_mut().clone_from(&prepared.headers);
        let keys = match &prepared.proof {
            RequestProof::Aws(keys) => Some(keys),
            RequestProof::Dynamic(_, secret) => match &secret.secret {
                Secret::Aws(keys) => Some(keys),
                Secret::Key(_) | Secret::Token(_) => None,
            },
            RequestProof::Headers => None,
        };
        if let Some(keys) = keys {
            let problem = "the AWS keys contain characters that are not allowed in a header";
            let signed = sign(request.headers_mut(), keys, prepared, now);
            signed.map_err(|_| self.endpoint.invalid_request(problem))?;
        }
        Ok(request)
    }

    fn to_upstream_response(&self, response: Response<Incoming>) -> UpstreamResponse {
        let forwarded = response.headers().iter().filter(|(name, _)| !is_hop_by_hop(name));
        let headers = forwarded.map(|(name, value)| {
            (Name::from(name.as_str()), Name::from(String::from_utf8_lossy(value.as_bytes())))
        });
        UpstreamResponse {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: chunks(BodyReader::new(&self.endpoint, response.into_body())),
        }
    }

    /// Classifies a network error. The message contains the root cause but no addresses, because
    /// addresses may contain keys.
    fn network_error(&self, error: &legacy::Error) -> UpstreamError {
        let endpoint = Arc::clone(&self.endpoint.name);
        if let Some(refused) = client::cause::<BlockedAddress>(error) {
            return self.refused(refused);
        }
        if client::cause::<ConnectTimeout>(error).is_some() {
            return self.timed_out(TimeoutPhase::Connecting, self.endpoint.options.connect);
        }
        let cause = Name::from(root_cause(error));
        if error.is_connect() {
            return UpstreamError::Unreachable { endpoint, cause };
        }
        UpstreamError::Cut { endpoint, cause }
    }

    fn refused(&self, BlockedAddress(address): &BlockedAddress) -> UpstreamError {
        let endpoint = Arc::clone(&self.endpoint.name);
        UpstreamError::Refused { endpoint, address: Name::from(address.as_str()) }
    }

    fn timed_out(&self, waiting: TimeoutPhase, limit: Duration) -> UpstreamError {
        UpstreamError::TimedOut { endpoint: Arc::clone(&self.endpoint.name), waiting, limit }
    }
}

/// Reads the body of a response and enforces the size limit and the timeout between chunks.
struct BodyReader {
    endpoint: Name,
    body: Incoming,
    between_bytes: Duration,
    limit: u64,
    remaining: u64,
}

impl BodyReader {
    fn new(endpoint: &Endpoint, body: Incoming) -> Self {
        let limit = endpoint.options.largest_answer;
        let between_bytes = endpoint.options.between_bytes;
        Self { endpoint: Arc::clone(&endpoint.name), body, between_bytes, limit, remaining: limit }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let endpoint = Arc::clone(&self.endpoint);
        let chunk = match timeout(self.between_bytes, data(&mut self.body)).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => {
                return Err(UpstreamError::Cut { endpoint, cause: root_cause(&error).into() });
            }
            Err(_) => {
                let (waiting, limit) = (TimeoutPhase::NextByte, self.between_bytes);
                return Err(UpstreamError::TimedOut { endpoint, waiting, limit });
            }
        };
        let length = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let remaining = self.remaining.checked_sub(length);
        self.remaining =
            remaining.ok_or(UpstreamError::TooLarge { endpoint, limit: self.limit })?;
        Ok(chunk)
    }
}

/// Returns the next data frame of a body; trailers are ignored.
async fn data(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Converts a body to a stream that ends after the first error. Dropping the stream cancels the
/// request at the provider.
fn chunks(reader: BodyReader) -> BodyStream {
    Box::pin(stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}

/// Service name in AWS signatures for Bedrock.
const SERVICE: &str = "bedrock";

/// Region for signatures if neither the host nor the keys specify a region.
const REGION: &str = "us-east-1";

/// Signs one attempt of a request. Retries are signed again, because a signature is valid for only
/// a few minutes.
fn sign(
    headers: &mut HeaderMap,
    keys: &AwsKeys,
    prepared: &PreparedRequest,
    now: Timestamp,
) -> Result<(), http::header::InvalidHeaderValue> {
    let url = &prepared.url.url;
    let name = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    let is_signed = |name: &str| name == "content-type" || name.starts_with("x-amz");
    let signed = prepared.headers.iter().filter(|(name, _)| is_signed(name.as_str()));
    let signed = signed.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable = SignedParts {
        method: prepared.method.as_str(),
        path: url.path(),
        query: url.query().unwrap_or_default(),
        headers: signed.chain([("host", host.as_str())]).collect(),
        body: &prepared.body,
    };
    let region = sigv4::region_from_host(name).or(keys.region.as_deref()).unwrap_or(REGION);
    for (name, value) in sigv4::sign(keys, region, SERVICE, now, &signable) {
        insert_secret(headers, HeaderName::from_static(name), &value)?;
    }
    Ok(())
}

/// The phase in which a request failed, if it failed.
#[derive(PartialEq)]
enum FailedPart {
    /// Connecting to the endpoint.
    Connecting,
    /// Receiving the model's response.
    Answering,
    Nothing,
}

/// Classifies an outcome for the circuit breakers; `None` if the outcome does not show whether the
/// endpoint works.
fn failure_of(outcome: &Result<UpstreamResponse, UpstreamError>) -> Option<FailedPart> {
    match outcome {
        Ok(response) if response.status >= 500 => Some(FailedPart::Answering),
        Ok(_) => Some(FailedPart::Nothing),
        Err(
            UpstreamError::Unreachable { .. }
            | UpstreamError::TimedOut { waiting: TimeoutPhase::Connecting, .. },
        ) => Some(FailedPart::Connecting),
        Err(UpstreamError::TimedOut { .. } | UpstreamError::Cut { .. }) => {
            Some(FailedPart::Answering)
        }
        Err(_) => None,
    }
}

/// Returns whether a header is hop-by-hop and must not be forwarded.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    const CONNECTION: [&str; 10] = [
        "connection",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    CONNECTION.contains(&name.as_str())
}

fn invalid_endpoint(name: &Name, error: &dyn Error) -> InvalidEndpoint {
    InvalidEndpoint { name: Arc::clone(name), problem: Name::from(root_cause(error)) }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod http_tests;
