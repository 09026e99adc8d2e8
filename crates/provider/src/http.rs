//! The HTTP client behind the port: what goes out, what comes back, and what the network's failures mean.

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
    Answer, Answering, Chunks, Name, OutOfBounds, Outgoing, Upstream, UpstreamError, Waiting,
};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::address::{self, Guarded};
use crate::auth::{insert_secret, is_account, is_credential};
use crate::breaker::Breakers;
use crate::client::{self, Client, TooSlow, was_not_heard};
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
    breakers: Breakers,
    /// The path that was asked for last, and where it is: most requests go to the same one.
    place: Mutex<Option<(Name, Place)>>,
}

/// An address in both of its forms.
#[derive(Clone)]
struct Place {
    url: Url,
    uri: Uri,
}

/// A request that can be sent any number of times.
struct Prepared {
    model: Option<Name>,
    method: Method,
    place: Place,
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
            Ok(tls) => Ok(Line::new(endpoint, tls.clone(), Guarded::system())),
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

/// How often a request is sent again that was not heard.
const NOT_HEARD: usize = 2;

impl Line {
    fn new(endpoint: Endpoint, tls: ClientConfig, names: Guarded) -> Self {
        let client = Client::new(tls, names, endpoint.options.connect);
        let breakers = Breakers::new(endpoint.options.breaker);
        Self { endpoint, client, breakers, place: Mutex::default() }
    }

    fn prepare(&self, outgoing: Outgoing) -> Result<Prepared, UpstreamError> {
        let endpoint = &self.endpoint;
        let method = Method::from_bytes(outgoing.method.as_bytes());
        let method = method.map_err(|_| endpoint.invalid("its method is not one"))?;
        let place = self.place(&outgoing.path)?;
        let is_callers = outgoing.credential.is_some() && endpoint.takes_callers_key();
        let proof = endpoint.proof(outgoing.credential)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &outgoing.headers {
            let header = HeaderName::from_bytes(name.as_bytes());
            let (Ok(header), Ok(value)) = (header, HeaderValue::from_bytes(value.as_bytes()))
            else {
                return Err(endpoint.invalid(&format!("its header {name:?} is malformed")));
            };
            let is_ours = header == CONTENT_LENGTH || is_of_the_connection(&header);
            let is_foreign = is_credential(&header) || (!is_callers && is_account(&header));
            if !is_ours && !is_foreign {
                headers.append(header, value);
            }
        }
        if let Source::Key(key) = &proof {
            let added = endpoint.scheme.add(&mut headers, key);
            added.map_err(|_| endpoint.invalid("its key has characters that no key has"))?;
        }
        // Whoever says nothing takes anything.
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        if !outgoing.body.is_empty() {
            // What a codec wrote is JSON.
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        }
        let (model, body) = (outgoing.model, outgoing.body);
        Ok(Prepared { model, method, place, headers, body, proof })
    }

    /// Where a path of the endpoint is, if one may go there.
    fn place(&self, path: &Name) -> Result<Place, UpstreamError> {
        let mut last = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = last.as_ref().filter(|(known, _)| known == path) {
            return Ok(place.clone());
        }
        let url = self.endpoint.url(path)?;
        address::check(&url).map_err(|refused| self.refused(&refused))?;
        let uri = url.as_str().parse();
        let uri = uri.map_err(|_| self.endpoint.invalid("its path is not one"))?;
        let place = Place { url, uri };
        *last = Some((Name::clone(path), place.clone()));
        Ok(place)
    }

    /// Sends it until it is answered, or until it is not worth it any more. The last outcome is passed on as it is.
    async fn send(
        &self,
        prepared: &Prepared,
        clock: &Clock,
        retries: &AtomicU64,
    ) -> Result<Answer, UpstreamError> {
        let mut tries = Tries::new(self.endpoint.options.retry);
        let (endpoint, model) =
            (self.breakers.endpoint(), self.breakers.model(prepared.model.as_ref()));
        let resting =
            |left| UpstreamError::Resting { endpoint: Arc::clone(&self.endpoint.name), left };
        loop {
            let connects = endpoint.admit(Instant::now()).map_err(resting)?;
            let answers = model.admit(Instant::now()).map_err(resting)?;
            let outcome = self.attempt(prepared, clock()).await;
            // A permit that is dropped unsettled says nothing.
            match failure_of(&outcome) {
                Some(Failed::Connecting) => connects.settle(true, Instant::now()),
                Some(Failed::Answering) => {
                    connects.settle(false, Instant::now());
                    answers.settle(true, Instant::now());
                }
                Some(Failed::Nothing) => {
                    connects.settle(false, Instant::now());
                    answers.settle(false, Instant::now());
                }
                None => {}
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

    async fn attempt(&self, prepared: &Prepared, now: Timestamp) -> Result<Answer, UpstreamError> {
        let limit = self.endpoint.options.first_byte;
        let heard = async {
            let mut left = NOT_HEARD;
            loop {
                match self.client.send(self.request(prepared, now)?).await {
                    Ok(response) => return Ok(self.answer(response)),
                    Err(error) if left > 0 && was_not_heard(&error) => left -= 1,
                    Err(error) => return Err(self.explain(&error)),
                }
            }
        };
        timeout(limit, heard)
            .await
            .unwrap_or_else(|_| Err(self.timed_out(Waiting::FirstByte, limit)))
    }

    fn request(
        &self,
        prepared: &Prepared,
        now: Timestamp,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let mut request = Request::new(Full::new(prepared.body.clone()));
        request.method_mut().clone_from(&prepared.method);
        request.uri_mut().clone_from(&prepared.place.uri);
        request.headers_mut().clone_from(&prepared.headers);
        if let Source::Aws(keys) = &prepared.proof {
            let signed = sign(request.headers_mut(), keys, prepared, now);
            signed
                .map_err(|_| self.endpoint.invalid("its keys have characters that no key has"))?;
        }
        Ok(request)
    }

    fn answer(&self, response: Response<Incoming>) -> Answer {
        let told = response.headers().iter().filter(|(name, _)| !is_of_the_connection(name));
        let headers = told.map(|(name, value)| {
            (Name::from(name.as_str()), Name::from(String::from_utf8_lossy(value.as_bytes())))
        });
        Answer {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: chunks(Reading::new(&self.endpoint, response.into_body())),
        }
    }

    /// What a failure of the network means. The causes are told, and addresses are not.
    fn explain(&self, error: &legacy::Error) -> UpstreamError {
        let endpoint = Arc::clone(&self.endpoint.name);
        if let Some(refused) = client::cause::<OutOfBounds>(error) {
            return self.refused(refused);
        }
        if client::cause::<TooSlow>(error).is_some() {
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
    body: Incoming,
    between_bytes: Duration,
    limit: u64,
    left: u64,
}

impl Reading {
    fn new(endpoint: &Endpoint, body: Incoming) -> Self {
        let limit = endpoint.options.largest_answer;
        let between_bytes = endpoint.options.between_bytes;
        Self { endpoint: Arc::clone(&endpoint.name), body, between_bytes, limit, left: limit }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let endpoint = Arc::clone(&self.endpoint);
        let chunk = match timeout(self.between_bytes, data(&mut self.body)).await {
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

/// The next bytes of a body. What stands behind it is nothing that anybody reads.
async fn data(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
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
) -> Result<(), http::header::InvalidHeaderValue> {
    let url = &prepared.place.url;
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

/// What failed in a request that was sent.
enum Failed {
    /// The connection to the endpoint.
    Connecting,
    /// The answer for this model.
    Answering,
    Nothing,
}

/// What an outcome says about the endpoint and the model, if it says anything.
fn failure_of(outcome: &Result<Answer, UpstreamError>) -> Option<Failed> {
    match outcome {
        Ok(answer) if answer.status >= 500 => Some(Failed::Answering),
        Ok(_) => Some(Failed::Nothing),
        Err(
            UpstreamError::Unreachable { .. }
            | UpstreamError::TimedOut { waiting: Waiting::Connecting, .. },
        ) => Some(Failed::Connecting),
        Err(
            UpstreamError::TimedOut { waiting: Waiting::FirstByte | Waiting::NextByte, .. }
            | UpstreamError::Cut { .. },
        ) => Some(Failed::Answering),
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
