//! The HTTP server: receives requests and sends complete or streamed responses.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use throughline_codec::{CodecError, Framing};
use throughline_core::{Provider, ReasoningChannel, Wire};
use throughline_json::Tree;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::account;
use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::faults::{BodyStep, Fault, FaultKind, apply_fault};
use crate::ledger::{EntryBuilder, Ledger, LedgerEntry, ReplySource};
use crate::options::Options;
use crate::route::{self, Route, route};
use crate::script::Script;
use crate::state::SimState;
use crate::turn::{Operation, Refusal, SimRequest, Turn};
use crate::wires::{Endpoint, Exchange, endpoint};
use crate::{planner, stream as streams, websocket};

/// Maximum body size in bytes: the highest limit of any provider.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Maximum time to wait for open responses on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A running simulator. Dropping it stops the server.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    state: Arc<SimState>,
    stop: watch::Sender<bool>,
    serving: JoinSet<io::Result<()>>,
}

/// Starts a simulator. The simulator accepts requests as soon as this function returns.
pub async fn start(options: Options) -> io::Result<Simulator> {
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    // A stream consists of many small writes, each of which Nagle's algorithm would delay. Failing
    // to disable it only costs speed.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let state = Arc::new(SimState::new(options));
    let (stop, stopped) = watch::channel(false);
    let server = ServerState { state: Arc::clone(&state), stopped: stopped.clone() };
    let router = Router::new().fallback(handle_request).with_state(server);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(until(stopped)).await
    });
    Ok(Simulator { address, state, stop, serving })
}

impl Simulator {
    /// Returns the address that the simulator listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the simulator's base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a copy of the ledger with all requests received so far.
    pub fn ledger(&self) -> Ledger {
        self.state.ledger.read()
    }

    /// Replaces the script. The new script starts at its first turn.
    pub fn set_script(&self, script: Script) {
        self.state.script.replace(script);
    }

    /// Returns a reader of the ledger that can outlive this handle.
    pub fn ledger_reader(&self) -> LedgerReader {
        LedgerReader(Arc::clone(&self.state))
    }

    /// Returns the ledger entry of the last request, without copying the whole ledger.
    pub fn last_entry(&self) -> Option<LedgerEntry> {
        self.state.ledger.last()
    }

    /// Returns the body of a request as received, by the number of its ledger entry. Returns `None`
    /// unless [`Options::keep_bodies`] is set.
    pub fn request_body(&self, request: u64) -> Option<Bytes> {
        self.state.body(request)
    }

    /// Waits up to five seconds for open requests to finish, then stops the server.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let drain = async { while self.serving.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_TIMEOUT, drain).await.is_err() {
            self.serving.shutdown().await;
        }
    }

    /// Waits until the server ends, and returns its error if it failed.
    pub async fn serve(mut self) -> io::Result<()> {
        match self.serving.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Ok(()),
        }
    }
}

/// Reads the ledger of a simulator.
#[derive(Clone, Debug)]
pub struct LedgerReader(Arc<SimState>);

impl LedgerReader {
    /// Returns a copy of the ledger with all requests received so far.
    pub fn read(&self) -> Ledger {
        self.0.ledger.read()
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // Dropping the simulator closes the channel, which also ends this wait.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

#[derive(Clone)]
struct ServerState {
    state: Arc<SimState>,
    stopped: watch::Receiver<bool>,
}

async fn handle_request(
    State(server): State<ServerState>,
    request: Request,
) -> Result<Response, Infallible> {
    let (mut parts, body) = request.into_parts();
    let state = &*server.state;
    let catalog = state.catalog.current();
    Ok(match route(parts.uri.path(), &catalog) {
        Route::Ledger => match after(parts.uri.query().unwrap_or_default()) {
            Ok(after) => {
                let ledger = state.ledger.read().after(after);
                let ledger = serde_json::to_vec_pretty(&ledger).unwrap_or_default();
                plain(StatusCode::OK, "application/json", ledger)
            }
            Err(message) => {
                let message = format!("{message}\n").into_bytes();
                plain(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", message)
            }
        },
        Route::Script => replace_script(&parts, body, state).await,
        Route::UnknownRow(name) => {
            let names: Vec<&str> = catalog.providers().iter().map(|row| &*row.name).collect();
            let message = format!("no provider named `{name}`; known: {}\n", names.join(", "));
            plain(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", message.into_bytes())
        }
        Route::Unknown => not_found(&parts, state),
        Route::Models { wire, model } => list(&parts, wire, model.as_deref(), state),
        Route::Model { wire, verb, model, row } => {
            let Some(endpoint) = endpoint(&wire) else { return Ok(not_found(&parts, state)) };
            let is_responses = wire == Wire::OPENAI_RESPONSES && verb == Operation::Answer;
            if is_responses && websocket::is_requested(&parts) {
                let opened = open_socket(&mut parts, endpoint, row, &server);
                return Ok(opened.unwrap_or_else(|| not_found(&parts, &server.state)));
            }
            let read = to_bytes(body, MAX_BODY_BYTES).await;
            let call = ModelCall { endpoint, wire, verb, model, row, parts: &parts };
            handle_model_call(&call, read.ok(), &server)
        }
    })
}

/// Returns the request number in the query member `after`; 0 if it is missing.
fn after(query: &str) -> Result<u64, String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(0) };
    value.parse().map_err(|_| {
        format!("`after` is `{value}`; use the number of a ledger entry, such as after=0")
    })
}

/// Replaces the script with the one in the body.
async fn replace_script(parts: &Parts, body: Body, state: &SimState) -> Response {
    let text = |status, message: String| {
        plain(status, "text/plain; charset=utf-8", format!("{message}\n").into_bytes())
    };
    if parts.method != Method::PUT {
        let message = "send the script with PUT".to_owned();
        return text(StatusCode::METHOD_NOT_ALLOWED, message);
    }
    let Ok(bytes) = to_bytes(body, MAX_BODY_BYTES).await else {
        let message = format!("the script is larger than {MAX_BODY_BYTES} bytes");
        return text(StatusCode::PAYLOAD_TOO_LARGE, message);
    };
    match String::from_utf8_lossy(&bytes).parse::<Script>() {
        Ok(script) => {
            state.script.replace(script);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// Opens a WebSocket. Its events are answered like requests over HTTP with the same headers.
fn open_socket(
    parts: &mut Parts,
    endpoint: &'static Endpoint,
    row: Option<Arc<Provider>>,
    server: &ServerState,
) -> Option<Response> {
    let (mut head, ()) = axum::http::Request::new(()).into_parts();
    head.method = Method::POST;
    (head.uri, head.headers) = (parts.uri.clone(), parts.headers.clone());
    let (stopped, server) = (until(server.stopped.clone()), server.clone());
    let respond = move |body: Bytes| {
        let (wire, verb) = (Wire::OPENAI_RESPONSES, Operation::Answer);
        let row = row.clone();
        let call = ModelCall { endpoint, wire, verb, model: None, row, parts: &head };
        handle_model_call(&call, Some(body), &server)
    };
    websocket::accept(parts, respond, stopped)
}

/// A model request whose body has not been read yet.
struct ModelCall<'r> {
    endpoint: &'static Endpoint,
    wire: Wire,
    verb: Operation,
    model: Option<String>,
    row: Option<Arc<Provider>>,
    parts: &'r Parts,
}

fn handle_model_call(call: &ModelCall<'_>, body: Option<Bytes>, server: &ServerState) -> Response {
    let (state, endpoint) = (&*server.state, call.endpoint);
    let mut record = EntryBuilder::default();
    record.entry.request = state.next_request();
    state.keep_body(record.entry.request, body.as_ref());
    call.wire.as_str().clone_into(&mut record.entry.wire);
    let (request, fault) = match prepare(call, body, record.entry.request, state) {
        Ok(prepared) => prepared,
        Err(unprepared) => {
            let (row, refusal) = *unprepared;
            record.entry.provider = row.name.to_string();
            return refuse(endpoint, &row, &refusal, Digest::default(), record, state);
        }
    };
    record.entry.provider = request.row.name.to_string();
    record.entry.model.clone_from(&request.model);
    record.entry.account = request.account.hex(8);
    let reply = match &fault {
        Some(FaultKind::Status(status, wait)) => {
            let refusal = Refusal::new(*status, fault_message(*status));
            Err(Refusal { retry_after: *wait, ..refusal })
        }
        Some(_) | None => {
            reply_chunks(endpoint, &mut Exchange { request: &request, state, record: &mut record })
        }
    };
    let (kind, chunks) = match reply {
        Ok(reply) => reply,
        Err(refusal) => {
            return refuse(endpoint, &request.row, &refusal, request.nonce, record, state);
        }
    };
    record.entry.status = 200;
    state.ledger.enter(record);
    match chunks {
        Ok(chunks) => {
            let id = (endpoint.request_id)(request.nonce);
            respond(kind, chunks, fault.as_ref(), server, id)
        }
        Err(error) => {
            plain(StatusCode::NOT_IMPLEMENTED, "text/plain", error.to_string().into_bytes())
        }
    }
}

/// Content type and body chunks of a successful response.
type ReplyChunks = (&'static str, Result<Vec<Vec<u8>>, CodecError>);

/// Handles a request and builds its response: a token count, a complete reply or a stream.
fn reply_chunks(endpoint: &Endpoint, exchange: &mut Exchange<'_>) -> Result<ReplyChunks, Refusal> {
    let (request, state) = (exchange.request, exchange.state);
    let json_reply = |body: &Value| ("application/json", Ok(vec![body.to_string().into_bytes()]));
    let turn = (endpoint.read)(exchange)?;
    if request.verb == Operation::Count {
        return Ok(json_reply(&(endpoint.count)(PromptCache::count(&turn.elements))));
    }
    exchange.record.entry.missed = state.cache.missed(planner::owner(request), &turn.elements);
    let plan = planner::plan(request, &turn, state)?;
    record_lost_seals(exchange, &turn);
    let body = (endpoint.respond)(exchange, &turn, &plan);
    let entry = &mut exchange.record.entry;
    entry.input = plan.usage.input;
    entry.cached = plan.usage.cached;
    entry.stop = Some(planner::stop_word(&plan.stop).to_owned());
    if !turn.stream {
        return Ok(json_reply(&body));
    }
    let chunks = streams::chunks(endpoint, request, &turn, &body);
    Ok((content_type((endpoint.framing)(request)), chunks))
}

/// Records the number of Seals of earlier replies that are missing from the request. Also records
/// the family, account and thinking configuration of this reply.
fn record_lost_seals(exchange: &mut Exchange<'_>, turn: &Turn) {
    let Exchange { request, state, record } = exchange;
    let profile = &turn.target.profile;
    // A router calls the upstream provider under its own account, regardless of the caller's
    // account.
    let is_routed = request.row.dialect.channel == ReasoningChannel::Details;
    let catalog = state.catalog.current();
    let is_read = |source: &ReplySource| {
        let mut families = catalog.profiles().iter();
        let is_bound = families.any(|row| row.name == source.family && row.bound.account);
        let is_own = is_routed || !is_bound || source.account == request.account;
        is_own && profile.reads_seals_of(&source.family)
    };
    record.entry.lost = state.ledger.lost(&turn.expected_replies, &record.entry.returned, is_read);
    let is_other =
        |source: &ReplySource| source.family == profile.name && source.config != turn.config;
    let mut replies = turn.expected_replies.iter().flat_map(|key| state.ledger.replies(key));
    record.entry.reconfigured =
        turn.config.is_some() && replies.any(|reply| is_other(&reply.source));
    let (family, account) = (profile.name.clone(), request.account);
    record.source = ReplySource { family, account, config: turn.config };
}

type PrepareError = Box<(Arc<Provider>, Refusal)>;

fn prepare(
    call: &ModelCall<'_>,
    body: Option<Bytes>,
    number: u64,
    state: &SimState,
) -> Result<(SimRequest, Option<FaultKind>), PrepareError> {
    let Parts { uri, headers, method, .. } = call.parts;
    let query = uri.query().unwrap_or_default();
    let row = |model: &str| {
        let named = call.row.clone();
        named.unwrap_or_else(|| route::row(&state.catalog.current(), &call.wire, model, uri.path()))
    };
    let reject = |refusal: Refusal| Box::new((row(""), refusal));
    let invalid = |message: String| reject(Refusal::invalid(message));
    if method != Method::POST {
        return Err(reject(Refusal::new(405, "Method Not Allowed")));
    }
    let body = body.ok_or_else(|| reject(Refusal::new(413, "Request exceeds the maximum size")))?;
    let body = Tree::parse(body)
        .map_err(|error| invalid(format!("The request body is not valid JSON: {error}")))?;
    let in_body = || body.root().text_of("model").map(Cow::into_owned);
    let model = call.model.clone().or_else(in_body).unwrap_or_default();
    let account = account::account(headers, query);
    let created = account::created(headers).map_err(invalid)?;
    let fault = fault(headers, number, state).map_err(invalid)?;
    let row = row(&model);
    let nonce = state.nonce(request_digest(&row, &model, call.verb, account, &body));
    let request = SimRequest {
        row,
        model,
        verb: call.verb,
        query: query.to_owned(),
        headers: headers.clone(),
        body,
        account,
        account_created: created.unwrap_or(state.options.account_created),
        nonce,
    };
    Ok((request, fault))
}

/// Computes a digest of the provider, model, account and body. The `stream` setting is ignored,
/// because it does not change the reply.
fn request_digest(
    row: &Provider,
    model: &str,
    verb: Operation,
    account: Digest,
    body: &Tree,
) -> Digest {
    let counts = [u8::from(verb == Operation::Count)];
    let account = account.bytes();
    let mut pieces: Vec<&[u8]> = vec![row.name.as_bytes(), model.as_bytes(), &counts, &account];
    let members = body.root().members();
    for (name, value) in
        members.filter(|(name, _)| !name.is("stream") && !name.is("stream_options"))
    {
        pieces.extend([name.raw(), value.raw()]);
    }
    Digest::from_pieces("throughline-sim request", pieces)
}

/// Returns the fault from the `x-sim-fault` header, or the first configured fault that applies to
/// this request.
fn fault(headers: &HeaderMap, number: u64, state: &SimState) -> Result<Option<FaultKind>, String> {
    if let Some(value) = headers.get("x-sim-fault") {
        let text = value.to_str().unwrap_or_default();
        let fault: Fault = text.parse().map_err(|error: crate::InvalidFault| error.to_string())?;
        return Ok(Some(fault.kind).filter(|_| fault.only.is_none_or(|only| only == number)));
    }
    let mut set = state.options.faults.iter();
    let fault = set.find(|fault| fault.only.is_none_or(|only| only == number));
    Ok(fault.map(|fault| fault.kind.clone()))
}

fn fault_message(status: u16) -> &'static str {
    match status {
        429 => {
            "This request would exceed the rate limit for your organization. Please try again later."
        }
        503 => "The model is overloaded. Please try again later.",
        529 => "Overloaded",
        _ => "Internal server error",
    }
}

fn refuse(
    endpoint: &Endpoint,
    row: &Provider,
    refusal: &Refusal,
    nonce: Digest,
    mut record: EntryBuilder,
    state: &SimState,
) -> Response {
    record.entry.status = refusal.status;
    record.entry.refused = Some(refusal.message.clone());
    state.ledger.enter(record);
    let (id_header, id) = (endpoint.request_id)(nonce);
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = json_response(status, &(endpoint.refuse)(row, refusal, &id));
    set_header(&mut response, id_header, &id);
    if let Some(wait) = refusal.retry_after {
        set_header(&mut response, "retry-after", &wait.to_string());
    }
    if let Some((name, value)) = (endpoint.error_header)(refusal) {
        set_header(&mut response, name, &value);
    }
    response
}

fn list(parts: &Parts, wire: Option<Wire>, model: Option<&str>, state: &SimState) -> Response {
    let is_anthropic = parts.headers.contains_key("anthropic-version");
    let is_google = parts.headers.contains_key("x-goog-api-key");
    let usual = match (is_anthropic, is_google) {
        (true, _) => Wire::ANTHROPIC_MESSAGES,
        (false, true) => Wire::GEMINI,
        (false, false) => Wire::OPENAI_RESPONSES,
    };
    let Some(endpoint) = endpoint(&wire.unwrap_or(usual)) else { return not_found(parts, state) };
    match (endpoint.models)(state, model) {
        Some(models) => json_response(StatusCode::OK, &models),
        None => not_found(parts, state),
    }
}

/// Returns the 404 response in the format that the client appears to expect.
fn not_found(parts: &Parts, state: &SimState) -> Response {
    let path = parts.uri.path();
    let wire = if parts.headers.contains_key("anthropic-version") {
        Wire::ANTHROPIC_MESSAGES
    } else if path.starts_with("/v1beta/") || parts.headers.contains_key("x-goog-api-key") {
        Wire::GEMINI
    } else if path.starts_with("/model/") {
        Wire::BEDROCK_CONVERSE
    } else {
        Wire::OPENAI_RESPONSES
    };
    let row = route::row(&state.catalog.current(), &wire, "", path);
    let message = if wire == Wire::OPENAI_RESPONSES {
        format!("Invalid URL ({} {path})", parts.method)
    } else {
        "Not found".to_owned()
    };
    let refusal = Refusal::new(404, message);
    let endpoint = endpoint(&wire);
    let body = endpoint.map(|endpoint| (endpoint.refuse)(&row, &refusal, "req_unknown"));
    json_response(StatusCode::NOT_FOUND, &body.unwrap_or_default())
}

fn content_type(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "text/event-stream; charset=utf-8",
        Framing::JsonLines => "application/x-ndjson",
        Framing::JsonArray => "application/json",
        Framing::EventStream => "application/vnd.amazon.eventstream",
    }
}

fn respond(
    content_type: &'static str,
    chunks: Vec<Vec<u8>>,
    fault: Option<&FaultKind>,
    server: &ServerState,
    (id_header, id): (&'static str, String),
) -> Response {
    let is_whole = chunks.len() < 2 && fault.is_none();
    let mut response = if is_whole {
        plain(StatusCode::OK, content_type, chunks.concat())
    } else {
        let is_slow = fault == Some(&FaultKind::Drip);
        let pieces = apply_fault(chunks, fault).into_iter();
        let stopped = server.stopped.clone();
        let body = stream::unfold((pieces, stopped), move |(mut pieces, stopped)| async move {
            let piece = pieces.next()?;
            if is_slow || piece == BodyStep::Break {
                // Yield, so that the bytes so far are sent.
                tokio::task::yield_now().await;
            }
            let result = match piece {
                BodyStep::Bytes(bytes) => Ok(Bytes::from(bytes)),
                BodyStep::Break => Err(io::Error::other("the connection was cut on request")),
                BodyStep::Silence => {
                    until(stopped.clone()).await;
                    return None;
                }
            };
            Some((result, (pieces, stopped)))
        });
        ([(header::CONTENT_TYPE, content_type)], Body::from_stream(body)).into_response()
    };
    set_header(&mut response, id_header, &id);
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    plain(status, "application/json", body.to_string().into_bytes())
}

fn plain(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// Sets a response header. Ignores values that are not valid in a header.
fn set_header(response: &mut Response, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
