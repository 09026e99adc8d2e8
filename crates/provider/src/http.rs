//! The HTTP client behind the port: what goes out, what comes back, and what the network's failures mean.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use jiff::Timestamp;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use rustls::ClientConfig;
use throughline_core::{
    Answer, Answering, Chunks, Name, Outgoing, Upstream, UpstreamError, Waiting,
};
use tokio::time::{Instant, sleep, timeout};

use crate::address::{self, Guarded, OutOfBounds};
use crate::auth::{insert_secret, is_credential};
use crate::breaker::Breaker;
use crate::endpoint::{Endpoint, InvalidEndpoint, Source};
use crate::retry::Tries;
use crate::sigv4::{self, AwsKeys, Signable};
use crate::tls;

/// Tells the time of day: signatures and dates in headers need it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Endpoints over HTTP.
pub struct Http {
    lines: HashMap<Name, Line>,
    clock: Clock,
    /// How many requests were sent again.
    retries: AtomicU64,
}

/// An endpoint with its connections, and how it has fared.
struct Line {
    endpoint: Endpoint,
    client: Client,
    breaker: Breaker,
}

/// A request that can be sent any number of times.
struct Prepared {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    proof: Source,
}

impl Http {
    /// A client for these endpoints.
    pub fn new(
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let tls = tls::config();
        let lines = endpoints.into_iter().map(|endpoint| match &tls {
            Ok(tls) => Line::new(endpoint, tls.clone(), Guarded::system()),
            Err(error) => Err(unusable(&endpoint.name, error)),
        });
        Self::of(lines, clock)
    }

    fn of(
        all: impl IntoIterator<Item = Result<Line, InvalidEndpoint>>,
        clock: Clock,
    ) -> Result<Self, InvalidEndpoint> {
        let mut lines = HashMap::new();
        for line in all {
            let line = line?;
            let name = Arc::clone(&line.endpoint.name);
            if lines.insert(Arc::clone(&name), line).is_some() {
                let problem = Name::from("there are two of that name");
                return Err(InvalidEndpoint { name, problem });
            }
        }
        Ok(Self { lines, clock, retries: AtomicU64::new(0) })
    }

    /// The endpoint of that name.
    pub fn endpoint(&self, name: &str) -> Option<&Endpoint> {
        self.lines.get(name).map(|line| &line.endpoint)
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("endpoints", &self.lines.keys()).finish_non_exhaustive()
    }
}

impl Upstream for Http {
    fn send(&self, outgoing: Outgoing) -> Answering<'_> {
        Box::pin(async move {
            let Some(line) = self.lines.get(&outgoing.endpoint) else {
                return Err(UpstreamError::UnknownEndpoint { endpoint: outgoing.endpoint });
            };
            line.send(&line.prepare(outgoing)?, &self.clock, &self.retries).await
        })
    }

    fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }
}

/// How long a connection is kept that nobody uses: less than the minute after which balancers close theirs.
const IDLE: Duration = Duration::from_secs(50);

/// How often a shared connection is asked whether it is still there, and how long that may take. Without it a dead one would be
/// noticed only when an answer has taken too long.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

impl Line {
    fn new(endpoint: Endpoint, tls: ClientConfig, names: Guarded) -> Result<Self, InvalidEndpoint> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(names))
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would be found in the environment, and would look names up itself.
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE)
            .http2_keep_alive_interval(SIGN_OF_LIFE)
            .http2_keep_alive_timeout(SIGN_OF_LIFE)
            .connect_timeout(endpoint.options.connect)
            .build()
            .map_err(|error| unusable(&endpoint.name, &error))?;
        let breaker = Breaker::new(endpoint.options.breaker);
        Ok(Self { endpoint, client, breaker })
    }

    fn prepare(&self, outgoing: Outgoing) -> Result<Prepared, UpstreamError> {
        let endpoint = &self.endpoint;
        let method = Method::from_bytes(outgoing.method.as_bytes());
        let method = method.map_err(|_| endpoint.invalid("its method is not one"))?;
        let url = endpoint.url(&outgoing.path)?;
        address::check(&url).map_err(|refused| self.refused(&refused))?;
        let proof = endpoint.proof(outgoing.credential)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &outgoing.headers {
            let header = HeaderName::from_bytes(name.as_bytes());
            let (Ok(header), Ok(value)) = (header, HeaderValue::from_bytes(value.as_bytes()))
            else {
                return Err(endpoint.invalid(&format!("its header {name:?} is malformed")));
            };
            let is_ours = header == CONTENT_LENGTH || is_of_the_connection(&header);
            if !is_ours && !is_credential(&header) {
                headers.append(header, value);
            }
        }
        if let Source::Key(key) = &proof {
            let added = endpoint.scheme.add(&mut headers, key);
            added.map_err(|_| endpoint.invalid("its key has characters that no key has"))?;
        }
        Ok(Prepared { method, url, headers, body: outgoing.body, proof })
    }

    /// Sends it until it is answered, or until it is not worth it any more. The last outcome is passed on as it is.
    async fn send(
        &self,
        prepared: &Prepared,
        clock: &Clock,
        retries: &AtomicU64,
    ) -> Result<Answer, UpstreamError> {
        let mut tries = Tries::new(self.endpoint.options.retry);
        loop {
            let permit = self.breaker.admit(Instant::now()).map_err(|left| {
                UpstreamError::Resting { endpoint: Arc::clone(&self.endpoint.name), left }
            })?;
            let outcome = self.attempt(prepared, clock()).await;
            if let Some(failed) = has_failed(&outcome) {
                permit.settle(failed, Instant::now());
            }
            if self.breaker.is_open() {
                return outcome;
            }
            let Some(wait) = tries.wait_after(&outcome, clock()) else { return outcome };
            drop(outcome);
            retries.fetch_add(1, Ordering::Relaxed);
            sleep(wait).await;
        }
    }

    async fn attempt(&self, prepared: &Prepared, now: Timestamp) -> Result<Answer, UpstreamError> {
        let request = self.request(prepared, now)?;
        let limit = self.endpoint.options.first_byte;
        match timeout(limit, self.client.execute(request)).await {
            Ok(Ok(response)) => Ok(self.answer(response)),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err(self.timed_out(Waiting::FirstByte, limit)),
        }
    }

    fn request(&self, prepared: &Prepared, now: Timestamp) -> Result<Request, UpstreamError> {
        let mut request = Request::new(prepared.method.clone(), prepared.url.clone());
        request.headers_mut().clone_from(&prepared.headers);
        if let Source::Aws(keys) = &prepared.proof {
            let signed = sign(request.headers_mut(), keys, prepared, now);
            signed
                .map_err(|_| self.endpoint.invalid("its keys have characters that no key has"))?;
        }
        if !prepared.body.is_empty() {
            *request.body_mut() = Some(prepared.body.clone().into());
        }
        Ok(request)
    }

    fn answer(&self, response: Response) -> Answer {
        let told = response.headers().iter().filter(|(name, _)| !is_of_the_connection(name));
        let headers = told.map(|(name, value)| {
            (Name::from(name.as_str()), Name::from(String::from_utf8_lossy(value.as_bytes())))
        });
        Answer {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: chunks(Reading::new(&self.endpoint, response)),
        }
    }

    /// What a failure of the network means. The causes are told, and addresses are not.
    fn explain(&self, error: &reqwest::Error) -> UpstreamError {
        let endpoint = Arc::clone(&self.endpoint.name);
        if let Some(refused) = out_of_bounds(error) {
            return self.refused(refused);
        }
        if error.is_connect() && error.is_timeout() {
            return self.timed_out(Waiting::Connecting, self.endpoint.options.connect);
        }
        let cause = Name::from(root_cause(error));
        if error.is_connect() {
            UpstreamError::Unreachable { endpoint, cause }
        } else {
            UpstreamError::Cut { endpoint, cause }
        }
    }

    fn refused(&self, OutOfBounds(address): &OutOfBounds) -> UpstreamError {
        let endpoint = Arc::clone(&self.endpoint.name);
        UpstreamError::Refused { endpoint, address: Name::from(address.as_str()) }
    }

    fn timed_out(&self, waiting: Waiting, limit: Duration) -> UpstreamError {
        UpstreamError::TimedOut { endpoint: Arc::clone(&self.endpoint.name), waiting, limit }
    }
}

/// The rest of an answer.
struct Reading {
    endpoint: Name,
    response: Response,
    between_bytes: Duration,
    limit: u64,
    left: u64,
}

impl Reading {
    fn new(endpoint: &Endpoint, response: Response) -> Self {
        let limit = endpoint.options.largest_answer;
        let between_bytes = endpoint.options.between_bytes;
        Self { endpoint: Arc::clone(&endpoint.name), response, between_bytes, limit, left: limit }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let endpoint = Arc::clone(&self.endpoint);
        let chunk = match timeout(self.between_bytes, self.response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => {
                return Err(UpstreamError::Cut { endpoint, cause: root_cause(&error).into() });
            }
            Err(_) => {
                let (waiting, limit) = (Waiting::NextByte, self.between_bytes);
                return Err(UpstreamError::TimedOut { endpoint, waiting, limit });
            }
        };
        let length = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let left = self.left.checked_sub(length);
        self.left = left.ok_or(UpstreamError::TooLarge { endpoint, limit: self.limit })?;
        Ok(chunk)
    }
}

/// Nothing comes after an error. Dropping the stream drops the response, which ends the request at the provider.
fn chunks(reading: Reading) -> Chunks {
    Box::pin(stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        match reading.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(reading))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}

/// The name under which Bedrock checks signatures.
const SERVICE: &str = "bedrock";

/// Where neither a host nor the keys say anything about the region.
const REGION: &str = "us-east-1";

/// Signs a request anew: a signature holds for minutes only.
fn sign(
    headers: &mut HeaderMap,
    keys: &AwsKeys,
    prepared: &Prepared,
    now: Timestamp,
) -> Result<(), reqwest::header::InvalidHeaderValue> {
    let url = &prepared.url;
    let name = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    let is_signed = |name: &str| name == "content-type" || name.starts_with("x-amz");
    let signed = prepared.headers.iter().filter(|(name, _)| is_signed(name.as_str()));
    let signed = signed.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable = Signable {
        method: prepared.method.as_str(),
        path: url.path(),
        query: url.query().unwrap_or_default(),
        headers: signed.chain([("host", host.as_str())]).collect(),
        body: &prepared.body,
    };
    let region = sigv4::region_of(name).or(keys.region.as_deref()).unwrap_or(REGION);
    for (name, value) in sigv4::sign(keys, region, SERVICE, now, &signable) {
        insert_secret(headers, HeaderName::from_static(name), &value)?;
    }
    Ok(())
}

/// Whether an outcome speaks against the endpoint, if it says anything about it.
fn has_failed(outcome: &Result<Answer, UpstreamError>) -> Option<bool> {
    match outcome {
        Ok(answer) => Some(answer.status >= 500),
        Err(
            UpstreamError::Unreachable { .. }
            | UpstreamError::TimedOut { .. }
            | UpstreamError::Cut { .. },
        ) => Some(true),
        Err(
            UpstreamError::UnknownEndpoint { .. }
            | UpstreamError::NoCredential { .. }
            | UpstreamError::Refused { .. }
            | UpstreamError::Invalid { .. }
            | UpstreamError::Resting { .. }
            | UpstreamError::TooLarge { .. },
        ) => None,
    }
}

/// Headers that speak of one connection, and not of what goes over it.
fn is_of_the_connection(name: &HeaderName) -> bool {
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

/// Whether a name was looked up and found to be out of bounds.
fn out_of_bounds(error: &reqwest::Error) -> Option<&OutOfBounds> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn unusable(name: &Name, error: &dyn Error) -> InvalidEndpoint {
    InvalidEndpoint { name: Arc::clone(name), problem: Name::from(root_cause(error)) }
}

/// What it all came down to. The errors above it name addresses, which may hold keys.
fn root_cause(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root.to_string()
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod http_tests;
