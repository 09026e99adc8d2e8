//! The HTTP server: reads requests, sends whole and streamed responses.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures_util::stream;
use throughline_codec::{CodecError, Framing};
use throughline_core::{ReasoningChannel, Wire};
use throughline_json::{Json, Tree};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::account;
use crate::digest::Digest;
use crate::faults::{BodyStep, Fault, FaultKind, spoiled};
use crate::ledger::{EntryBuilder, Ledger, LedgerEntry, ReplySource};
use crate::options::Options;
use crate::route::{self, Route, route};
use crate::state::SimState;
use crate::turn::{Operation, Refusal, SimRequest, Turn};
use crate::wires::{Endpoint, Exchange, endpoint};
use crate::{planner, stream as streams};

/// Maximum body size in bytes, equal to the largest limit of any provider.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Maximum time to wait for open responses during shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A running simulator. Dropping it stops it.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    world: Arc<SimState>,
    stop: watch::Sender<bool>,
    serving: JoinSet<io::Result<()>>,
}

/// Starts a simulator. It accepts requests as soon as this returns.
pub async fn start(options: Options) -> io::Result<Simulator> {
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    // A stream consists of many small writes; with Nagle's algorithm each would wait for an
    // acknowledgement. A failure to disable it only costs speed.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let world = Arc::new(SimState::new(options));
    let (stop, stopped) = watch::channel(false);
    let state = ServerState { world: Arc::clone(&world), stopped: stopped.clone() };
    let router = Router::new().fallback(answer).with_state(state);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(until(stopped)).await
    });
    Ok(Simulator { address, world, stop, serving })
}

impl Simulator {
    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its base URL without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a copy of the ledger.
    pub fn ledger(&self) -> Ledger {
        self.world.book.read()
    }

    /// Returns the entry of the last request without copying the ledger.
    pub fn last_entry(&self) -> Option<LedgerEntry> {
        self.world.book.last()
    }

    /// Finishes open requests, for at most five seconds, and stops.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.serving.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
            self.serving.shutdown().await;
        }
    }

    /// Serves until the server ends.
    pub async fn serve(mut self) -> io::Result<()> {
        match self.serving.join_next().await {
            Some(Ok(served)) => served,
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Ok(()),
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // Dropping the simulator closes the channel, which also ends the wait.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

#[derive(Clone)]
struct ServerState {
    world: Arc<SimState>,
    stopped: watch::Receiver<bool>,
}

async fn answer(
    State(served): State<ServerState>,
    request: Request,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let world = &*served.world;
    Ok(match route(path, &world.catalog) {
        Route::Ledger => {
            let ledger = serde_json::to_vec_pretty(&world.book.read()).unwrap_or_default();
            plain(StatusCode::OK, "application/json", ledger)
        }
        Route::UnknownRow(name) => {
            let known: Vec<&str> = world.catalog.providers().iter().map(|row| &*row.name).collect();
            let message = format!("no provider named `{name}`; known: {}\n", known.join(", "));
            plain(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", message.into_bytes())
        }
        Route::Unknown => not_found(&parts, world),
        Route::Models { wire, model } => list(&parts, wire, model.as_deref(), world),
        Route::Model { wire, verb, model, row } => {
            let Some(endpoint) = endpoint(&wire) else { return Ok(not_found(&parts, world)) };
            let read = to_bytes(body, MAX_BODY_BYTES).await;
            let asked = ModelRequest { endpoint, wire, verb, model, row, parts: &parts };
            handle_model_request(&asked, read.ok(), &served)
        }
    })
}

/// A request to a model, before its body is read.
struct ModelRequest<'r> {
    endpoint: &'static dyn Endpoint,
    wire: Wire,
    verb: Operation,
    model: Option<String>,
    row: Option<Arc<throughline_core::Provider>>,
    parts: &'r axum::http::request::Parts,
}

fn handle_model_request(
    asked: &ModelRequest<'_>,
    body: Option<Bytes>,
    served: &ServerState,
) -> Response {
    let world = &*served.world;
    let endpoint = asked.endpoint;
    let mut record = EntryBuilder::default();
    record.entry.request = world.next_request();
    asked.wire.as_str().clone_into(&mut record.entry.wire);
    let (asking, fault) = match prepare(asked, body, record.entry.request, world) {
        Ok(prepared) => prepared,
        Err(unprepared) => {
            let (row, refusal) = *unprepared;
            record.entry.provider = row.name.to_string();
            return refuse(endpoint, &row, &refusal, Digest::default(), record, world);
        }
    };
    record.entry.provider = asking.row.name.to_string();
    record.entry.model.clone_from(&asking.model);
    record.entry.account = asking.account.hex(8);
    let reply = match &fault {
        Some(FaultKind::Status(status, wait)) => {
            let refusal = Refusal::new(*status, fault_message(*status));
            Err(Refusal { retry_after: *wait, ..refusal })
        }
        Some(_) | None => reply_chunks(endpoint, &asking, world, &mut record),
    };
    let (kind, chunks) = match reply {
        Ok(reply) => reply,
        Err(refusal) => {
            return refuse(endpoint, &asking.row, &refusal, asking.nonce, record, world);
        }
    };
    record.entry.status = 200;
    world.book.enter(record);
    match chunks {
        Ok(chunks) => {
            respond(kind, chunks, fault.as_ref(), served, endpoint.request_id(asking.nonce))
        }
        Err(error) => {
            plain(StatusCode::NOT_IMPLEMENTED, "text/plain", error.to_string().into_bytes())
        }
    }
}

/// The content type and the chunks of a successful response.
type ReplyChunks = (&'static str, Result<Vec<Vec<u8>>, CodecError>);

/// Reads a request and writes the response: a number of tokens, a whole response, or a stream.
fn reply_chunks(
    endpoint: &dyn Endpoint,
    asking: &SimRequest,
    world: &SimState,
    record: &mut EntryBuilder,
) -> Result<ReplyChunks, Refusal> {
    let whole = |body: Json| ("application/json", Ok(vec![body.bytes().to_vec()]));
    let turn = endpoint.read(Exchange { asking, world, record })?;
    if asking.verb == Operation::Count {
        return Ok(whole(endpoint.count(&turn)));
    }
    record.entry.missed = world.cache.missed(planner::owner(asking), &turn.elements);
    let plan = planner::plan(asking, &turn, world)?;
    record_lost_seals(asking, &turn, world, record);
    let body = endpoint.respond(Exchange { asking, world, record }, &turn, &plan);
    record.entry.input = plan.usage.input;
    record.entry.cached = plan.usage.cached;
    record.entry.stop = Some(planner::stop_word(&plan.stop).to_owned());
    if !turn.stream {
        return Ok(whole(body));
    }
    let framing = endpoint.framing(asking);
    let chunks = streams::chunks(endpoint, &body, &turn.target, framing, asking.nonce);
    Ok((content_type(framing), chunks))
}

/// Records the Seals of earlier replies that did not come back, and the source of this reply.
fn record_lost_seals(
    asking: &SimRequest,
    turn: &Turn,
    world: &SimState,
    record: &mut EntryBuilder,
) {
    let profile = &turn.target.profile;
    // A router calls its upstreams with its own account, regardless of the caller.
    let is_routed = asking.row.dialect.channel == ReasoningChannel::Details;
    let is_read = |giver: &ReplySource| {
        let mut families = world.catalog.profiles().iter();
        let is_bound = families.any(|row| row.name == giver.family && row.bound.account);
        let is_own = is_routed || !is_bound || giver.account == asking.account;
        is_own && profile.reads_seals_of(&giver.family)
    };
    record.entry.lost = world.book.lost(&turn.owed, &record.entry.returned, is_read);
    let is_other =
        |giver: &ReplySource| giver.family == profile.name && giver.config != turn.config;
    let mut answers = turn.owed.iter().flat_map(|owed| world.book.answers(owed));
    record.entry.reconfigured =
        turn.config.is_some() && answers.any(|given| is_other(&given.giver));
    let (family, account) = (profile.name.clone(), asking.account);
    record.giver = ReplySource { family, account, config: turn.config };
}

type PrepareError = Box<(Arc<throughline_core::Provider>, Refusal)>;

fn prepare(
    asked: &ModelRequest<'_>,
    body: Option<Bytes>,
    number: u64,
    world: &SimState,
) -> Result<(SimRequest, Option<FaultKind>), PrepareError> {
    let path = asked.parts.uri.path();
    let query = asked.parts.uri.query().unwrap_or_default();
    let headers = &asked.parts.headers;
    let row = |model: &str| {
        let named = asked.row.clone();
        named.unwrap_or_else(|| route::row(&world.catalog, &asked.wire, model, path))
    };
    let refused = |refusal: Refusal| Box::new((row(""), refusal));
    if asked.parts.method != Method::POST {
        return Err(refused(Refusal::new(405, "Method Not Allowed")));
    }
    let Some(body) = body else {
        return Err(refused(Refusal::new(413, "Request exceeds the maximum size")));
    };
    let tree = Tree::parse(body.clone()).map_err(|error| {
        refused(Refusal::invalid(format!("The request body is not valid JSON: {error}")))
    })?;
    let in_body = || tree.root().text_of("model").map(std::borrow::Cow::into_owned);
    let model = asked.model.clone().or_else(in_body).unwrap_or_default();
    let account = account::account(headers, query);
    let created = account::created(headers).map_err(|error| refused(Refusal::invalid(error)))?;
    let fault = fault(headers, number, world).map_err(|error| refused(Refusal::invalid(error)))?;
    let row = row(&model);
    let nonce = world.nonce(request_digest(&row, &model, asked.verb, account, &tree));
    let asking = SimRequest {
        row,
        model,
        verb: asked.verb,
        query: query.to_owned(),
        headers: headers.clone(),
        body: tree,
        account,
        account_created: created.unwrap_or(world.options.account_created),
        nonce,
    };
    Ok((asking, fault))
}

/// Identifies a request by row, model, account and body. Streaming is ignored, because the reply is
/// the same either way.
fn request_digest(
    row: &throughline_core::Provider,
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

/// Returns the fault in the request header, or else the first configured fault that applies.
fn fault(
    headers: &axum::http::HeaderMap,
    number: u64,
    world: &SimState,
) -> Result<Option<FaultKind>, String> {
    if let Some(value) = headers.get("x-sim-fault") {
        let text = value.to_str().unwrap_or_default();
        let fault: Fault = text.parse().map_err(|error: crate::InvalidFault| error.to_string())?;
        return Ok(Some(fault.kind).filter(|_| fault.only.is_none_or(|only| only == number)));
    }
    let mut set = world.options.faults.iter();
    let found = set.find(|fault| fault.only.is_none_or(|only| only == number));
    Ok(found.map(|fault| fault.kind.clone()))
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
    endpoint: &dyn Endpoint,
    row: &throughline_core::Provider,
    refusal: &Refusal,
    nonce: Digest,
    mut record: EntryBuilder,
    world: &SimState,
) -> Response {
    record.entry.status = refusal.status;
    record.entry.refused = Some(refusal.message.clone());
    world.book.enter(record);
    let (id_header, id) = endpoint.request_id(nonce);
    let body = endpoint.refuse(row, refusal, &id);
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = plain(status, "application/json", body.bytes().to_vec());
    set_header(&mut response, id_header, &id);
    if let Some(wait) = refusal.retry_after {
        set_header(&mut response, "retry-after", &wait.to_string());
    }
    for (name, value) in endpoint.refusal_headers(refusal) {
        set_header(&mut response, name, &value);
    }
    response
}

fn list(
    parts: &axum::http::request::Parts,
    wire: Option<Wire>,
    model: Option<&str>,
    world: &SimState,
) -> Response {
    let is_anthropic = parts.headers.contains_key("anthropic-version");
    let is_google = parts.headers.contains_key("x-goog-api-key");
    let usual = match (is_anthropic, is_google) {
        (true, _) => Wire::ANTHROPIC_MESSAGES,
        (false, true) => Wire::GEMINI,
        (false, false) => Wire::OPENAI_RESPONSES,
    };
    let Some(endpoint) = endpoint(&wire.unwrap_or(usual)) else { return not_found(parts, world) };
    match endpoint.models(world, model) {
        Some(models) => plain(StatusCode::OK, "application/json", models.bytes().to_vec()),
        None => not_found(parts, world),
    }
}

/// Responds to an unknown path in the format of the provider that the client appears to expect.
fn not_found(parts: &axum::http::request::Parts, world: &SimState) -> Response {
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
    let row = route::row(&world.catalog, &wire, "", path);
    let message = if wire == Wire::OPENAI_RESPONSES {
        format!("Invalid URL ({} {path})", parts.method)
    } else {
        "Not found".to_owned()
    };
    let refusal = Refusal::new(404, message);
    let body = endpoint(&wire)
        .map_or_else(Json::null, |endpoint| endpoint.refuse(&row, &refusal, "req_unknown"));
    plain(StatusCode::NOT_FOUND, "application/json", body.bytes().to_vec())
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
    served: &ServerState,
    (id_header, id): (&'static str, String),
) -> Response {
    let is_whole = chunks.len() < 2 && fault.is_none();
    let mut response = if is_whole {
        plain(StatusCode::OK, content_type, chunks.concat())
    } else {
        let is_slow = fault == Some(&FaultKind::Drip);
        let pieces = spoiled(chunks, fault).into_iter();
        let stopped = served.stopped.clone();
        let body = stream::unfold((pieces, stopped), move |(mut pieces, stopped)| async move {
            let piece = pieces.next()?;
            if is_slow || piece == BodyStep::Break {
                // Flush the bytes sent so far.
                tokio::task::yield_now().await;
            }
            let said = match piece {
                BodyStep::Bytes(bytes) => Ok(Bytes::from(bytes)),
                BodyStep::Break => Err(io::Error::other("the connection was cut on request")),
                BodyStep::Silence => {
                    until(stopped.clone()).await;
                    return None;
                }
            };
            Some((said, (pieces, stopped)))
        });
        let mut response = Response::new(Body::from_stream(body));
        set_header(&mut response, header::CONTENT_TYPE.as_str(), content_type);
        response
    };
    set_header(&mut response, id_header, &id);
    response
}

fn plain(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    set_header(&mut response, header::CONTENT_TYPE.as_str(), content_type);
    response
}

/// Sets a header; skips values that are not valid in a header.
fn set_header(response: &mut Response, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
