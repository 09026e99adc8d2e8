//! The HTTP side of the gateway: a request comes in, an answer or a stream goes out.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use throughline_codec::Catalog;
use throughline_core::json::{Measure, SizeLimits, TooMany};
use throughline_core::{Credential, Json, Name, Provider, Request, Tenant, Tree, Upstream, Wire};

use crate::access::{self, Admission, Keyring};
use crate::compression;
use crate::console::assets;
use crate::dialect::{self, Door};
use crate::exchange::{Caller, Cut, Exchange, Problem};
use crate::forward::not_allowed;
use crate::letta::{self, AgentApi, Denied};
use crate::models;
use crate::objects::{METHODS, Passthrough};
use crate::operations::{LARGE, Operations, Ticket, whole_body};
use crate::own;
use crate::prefix::PrefixPolicy;
use crate::replay::Replay;

/// What the gateway does about what a provider would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayMode {
    /// Nothing: requests pass, and answers are not kept.
    Off,
    /// It says so, and passes the request on as it is.
    Observe,
    /// It restores what was lost and mends what would be refused.
    #[default]
    Repair,
    /// It restores what was lost, and refuses what the provider would refuse, with the rule and how to mend it.
    Enforce,
}

/// Whom a model's name reaches.
pub trait Directory: Send + Sync {
    /// Whom the name reaches, in the order in which they are tried; else a sentence that says what there is.
    fn reach(&self, model: &str) -> Result<Vec<Reached>, String>;

    /// Who answers what else is asked in a dialect.
    fn of_wire(&self, wire: &Wire) -> Option<Reached>;

    /// The names that can be asked for.
    fn models(&self) -> Vec<Name>;
}

/// A model at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The endpoint as [`Upstream`] knows it.
    pub endpoint: Name,
    /// The account of its seals.
    pub account: Name,
    /// Whether it is asked with the caller's own key, and so is the caller's own account.
    pub is_callers: bool,
    /// Its row.
    pub provider: Arc<Provider>,
    /// The model as it is called there.
    pub model: Name,
}

/// A gateway.
pub struct Gateway {
    /// The Vault.
    pub replay: Arc<Replay>,
    /// The providers.
    pub upstream: Arc<dyn Upstream>,
    /// Whom a model's name reaches.
    pub directory: Arc<dyn Directory>,
    /// The rows of models and endpoints.
    pub catalog: Arc<Catalog>,
    /// What it does about what a provider would refuse.
    pub mode: ReplayMode,
    /// What it does where what stands before bound seals changed.
    pub prefix: PrefixPolicy,
    /// Who may ask.
    pub keyring: Arc<dyn Keyring>,
    /// Whether it answers other machines although there are no keys.
    pub allow_open: bool,
    /// The names of hosts under which other machines may reach it without a key.
    pub hosts: Vec<Name>,
    /// The paths that are forwarded although the gateway does not know them.
    pub passthrough: Passthrough,
    /// The largest body that is read.
    pub body_limit: usize,
    /// The deepest nesting of its JSON.
    pub depth_limit: u32,
    /// What is counted, told and limited, whatever is asked.
    pub operations: Arc<Operations>,
    /// The agents, where there are any.
    pub agents: Option<Arc<AgentApi>>,
}

impl Gateway {
    /// The routes of the gateway.
    pub fn router(self) -> Router {
        if let Some(agents) = &self.agents {
            agents.charge_to(letta::Accounts {
                operations: Arc::clone(&self.operations),
                keyring: Arc::clone(&self.keyring),
                directory: Arc::clone(&self.directory),
            });
        }
        Router::new().fallback(answer).with_state(Arc::new(self))
    }
}

async fn answer(State(gateway): State<Arc<Gateway>>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let path = without_key(parts.uri.path_and_query().map_or("/", |path| path.as_str()));
    if !METHODS.contains(&parts.method.as_str()) {
        return refuse_method(&gateway, &parts, path);
    }
    if let Some(answered) = own::health(&gateway, &path).await {
        return answered;
    }
    let method = parts.method.as_str().to_owned();
    if gateway.agents.is_some()
        && let Some(file) = assets::answer(&method, &path, &parts.headers)
    {
        return file;
    }
    if let Some(agents) = gateway.agents.clone()
        && let Some(found) = letta::find(&method, &path)
    {
        let caller = admitted(&gateway, &method, &parts.headers, &parts.uri).await;
        return Box::pin(agents_answer(&gateway, &agents, caller, found, body)).await;
    }
    if parts.version == Version::HTTP_2 {
        // Who shares a connection leaves without closing it, and is a newcomer each time.
        gateway.replay.stories().left().put_away().await;
    }
    let headers = passed_on(&parts.headers);
    let mut request = Request { path, headers, body: Bytes::new() };
    let door = dialect::door(&method, &request);
    let wire = door.wire();
    let caller = match admitted(&gateway, &method, &parts.headers, &parts.uri).await {
        Ok(caller) => caller,
        Err(problem) if door == Door::NoAgentPath => {
            gateway.operations.turn_away(&wire, &problem);
            return Denied::from(problem).told().into_response();
        }
        Err(problem) => return turned_away(&gateway, &wire, &problem),
    };
    if let Some(answered) = own::answer(&gateway, &caller, &method, &request.path).await {
        return answered;
    }
    match door {
        Door::Models(wire) => return models::list(&gateway, &caller, &wire).into_response(),
        Door::Model(_, name) => {
            return match models::one(&gateway, &caller, &wire, &name) {
                Ok(answered) => answered.into_response(),
                Err(problem) => turned_away(&gateway, &wire, &problem),
            };
        }
        Door::Nowhere(_) => {
            let message = format!("there is nothing at {}: see docs/gateway.md", parts.uri.path());
            return turned_away(&gateway, &wire, &Problem::new(404, message));
        }
        Door::NoAgentPath => {
            let path = parts.uri.path();
            let message = format!("the agent API has no {method} {path}: see docs/agent-api.md");
            let problem = Problem::new(404, message);
            gateway.operations.turn_away(&wire, &problem);
            return Denied::from(problem).told().into_response();
        }
        Door::Call(_) | Door::Count(_) | Door::Story(_) | Door::Response(..) | Door::Other(_) => {}
    }
    let ticket = match gateway.operations.enter(&caller, &wire).await {
        Ok(ticket) => ticket,
        Err(problem) => return turned_away(&gateway, &wire, &problem),
    };
    ticket.trace(&mut request.headers);
    let answered = async {
        let (bytes, json) = Box::pin(receive(&gateway, &caller, &ticket, body)).await?;
        request.body = bytes;
        let exchange = Exchange::of(&gateway, caller, wire.clone(), Arc::clone(&ticket), json);
        // Calls are what most ask for, and thousands at once: what all else needs is held only where it is asked for.
        match door {
            Door::Call(_) => exchange.call(request).await,
            Door::Count(_) => Box::pin(exchange.count(request)).await,
            Door::Story(call) => Box::pin(exchange.story(call)).await,
            Door::Response(id, wanted) => {
                Box::pin(exchange.response(&id, wanted, &method, request)).await
            }
            Door::Models(_)
            | Door::Model(..)
            | Door::Other(_)
            | Door::Nowhere(_)
            | Door::NoAgentPath => Box::pin(exchange.other(&method, request)).await,
        }
    };
    match answered.await {
        Ok(answered) => {
            ticket.note(|facts| facts.status = answered.status);
            answered.into_response()
        }
        Err(problem) => {
            ticket.note_problem(&problem);
            refused(&wire, &problem)
        }
    }
}

/// The answer to a method that is never forwarded.
fn refuse_method(gateway: &Gateway, parts: &Parts, path: Name) -> Response {
    let request = Request { path, headers: passed_on(&parts.headers), body: Bytes::new() };
    let wire = dialect::door("GET", &request).wire();
    gateway.operations.turn_away(&wire, &Problem::new(405, "method not allowed"));
    not_allowed(&wire, parts.method.as_str(), &METHODS).into_response()
}

/// Receives a body within the limits, and parses it once, for all who read it; no tree where it is not JSON.
async fn receive(
    gateway: &Gateway,
    caller: &Caller,
    ticket: &Ticket,
    body: Body,
) -> Result<(Bytes, Option<Tree>), Problem> {
    let operations = &gateway.operations;
    let mut room = operations.room(caller);
    let body = whole_body(body, gateway.body_limit, operations.limits.body, &mut room).await?;
    let parsing = async { limited_tree(&body, gateway.depth_limit, &operations.limits.sizes) };
    let tree = operations.heavy.run(caller, body.len(), parsing).await??;
    room.reserve_entries(tree.as_ref().map_or(0, Tree::entries)).await?;
    ticket.hold(room);
    Ok((body, tree))
}

/// The bytes that each item has on average, in a request with many items.
const ITEM: usize = 192;

/// The limits for a body of that length. An item takes about the same memory however short it is, so a quarter of the
/// items may be short, and more need some text each.
fn fitting(sizes: &SizeLimits, length: usize) -> SizeLimits {
    let items = sizes.items.min((sizes.items / 4).max(length / ITEM));
    SizeLimits { items, ..*sizes }
}

/// The index of a body, if it is JSON. A large body is measured first: one that holds too much gets no index.
pub(crate) fn limited_tree(
    body: &Bytes,
    deepest: u32,
    sizes: &SizeLimits,
) -> Result<Option<Tree>, Problem> {
    let most = sizes.items;
    let sizes = &fitting(sizes, body.len());
    let too_many = |error: TooMany| {
        let is_short = matches!(error, TooMany::Items(limit) if limit < most);
        let hint = is_short
            .then(|| format!("; up to {most} are accepted if they have {ITEM} bytes on average"));
        Problem::new(413, format!("{error}{}: send less at once", hint.unwrap_or_default()))
    };
    let measured = (body.len() >= LARGE).then(|| Measure::of(body, sizes));
    let measured = measured.transpose().map_err(too_many)?;
    let tree = Tree::parse_measured(deepest, measured.map(|it| it.entries), body.clone());
    let tree = match tree {
        Err(error) if error.is_too_deep() => {
            let message =
                format!("the body is nested deeper than {deepest}: no request needs that");
            return Err(Problem::new(400, message));
        }
        parsed => parsed.ok(),
    };
    // There are at most as many items and tools as entries: most small bodies need no second look.
    let entries = tree.as_ref().map_or(0, Tree::entries);
    if measured.is_none() && entries > sizes.items.min(sizes.tools).min(sizes.entries) {
        Measure::of(body, sizes).map_err(too_many)?;
    }
    Ok(tree)
}

/// The answer of the agents.
async fn agents_answer(
    gateway: &Gateway,
    agents: &AgentApi,
    caller: Result<Caller, Problem>,
    found: letta::Found,
    body: Body,
) -> Response {
    let answered = async {
        let caller = caller?;
        let ticket = gateway.operations.enter(&caller, &Wire::borrowed("letta")).await?;
        let body = receive(gateway, &caller, &ticket, body).await?;
        let answered = letta::answer(gateway, agents, &caller, found, body).await;
        let status = answered.as_ref().map_or_else(|denied| denied.status, |said| said.status);
        ticket.note(|facts| facts.status = status);
        answered.map(|answered| answered.holding(ticket))
    };
    match answered.await {
        Ok(answered) => answered.into_response(),
        Err(denied) => denied.told().into_response(),
    }
}

/// The header in which a caller says whom it asks for.
const END_USER: &str = "x-throughline-user";

/// Who asks, if that is somebody who may.
async fn admitted(
    gateway: &Gateway,
    method: &str,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<Caller, Problem> {
    let (key, credential) = credentials(headers, uri.query());
    let shown = key.as_ref().map(Credential::reveal);
    let admission = gateway.operations.admit(&*gateway.keyring, shown).await?;
    let refused = |status, message: &str| Err(Problem::new(status, message));
    let has_token = || {
        let token = headers.get(TOKEN).and_then(|token| token.to_str().ok());
        token.is_some_and(|token| gateway.operations.is_token(token))
    };
    let end_user = headers.get(END_USER).and_then(|user| Some(Name::from(user.to_str().ok()?)));
    let address = access::address(headers, uri.authority());
    match &admission {
        Admission::Refused if key.is_some() => {
            refused(401, "this key is not known here, or was revoked: see `throughline keys list`")
        }
        Admission::Refused => {
            refused(401, "this gateway needs a key: make one with `throughline keys create`")
        }
        Admission::Open if !gateway.allow_open && !access::is_local(headers, uri.authority()) => {
            refused(
                403,
                "this gateway has no keys, so it answers this machine only: ask it as localhost, \
             or make a key with `throughline keys create`",
            )
        }
        Admission::Open
            if gateway.allow_open
                && !access::is_known_host(headers, uri.authority(), &gateway.hosts) =>
        {
            refused(
                403,
                "this gateway has no keys, and this name of it is not listed: list it in `hosts` of \
                 [server], ask by its IP address, or make a key with `throughline keys create`",
            )
        }
        Admission::Open if access::is_from_other_site(headers) => {
            refused(403, "this gateway has no keys, so it does not answer pages of other sites")
        }
        Admission::Open if access::is_change_by_page(method, headers) && !has_token() => refused(
            403,
            "a page that changes something shows the token of GET /v1/throughline/token in the \
             header x-throughline-token",
        ),
        Admission::Key { tenant, .. } => {
            let tenant = tenant.clone();
            Ok(Caller { tenant, end_user, credential, admission, address })
        }
        Admission::Open => {
            let tenant = Tenant::from("default");
            Ok(Caller { tenant, end_user, credential, admission, address })
        }
    }
}

/// An answer on its way to the caller.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(Name, Name)>,
    pub(crate) body: Outgoing,
}

/// The body of an answer.
pub(crate) enum Outgoing {
    Whole(Bytes),
    Stream(std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, Cut>> + Send>>),
}

impl Answered {
    pub(crate) fn json(status: u16, said: &Json) -> Self {
        let headers = vec![(Name::from("content-type"), Name::from("application/json"))];
        Self { status, headers, body: Outgoing::Whole(said.bytes().clone()) }
    }

    /// The same: if it is a stream, the ticket goes with it to its end.
    fn holding(self, ticket: Arc<Ticket>) -> Self {
        let Outgoing::Stream(stream) = self.body else { return self };
        ticket.note_stream();
        // Whoever holds the stream holds the ticket.
        let stream = stream.inspect(move |_| ticket.note(|facts| facts.is_stream = true));
        Self { body: Outgoing::Stream(Box::pin(stream)), ..self }
    }

    fn into_response(self) -> Response {
        let body = match self.body {
            Outgoing::Whole(bytes) => Body::from(bytes),
            Outgoing::Stream(stream) => Body::from_stream(stream),
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// The answer to a request that is not let in.
fn turned_away(gateway: &Gateway, wire: &Wire, problem: &Problem) -> Response {
    gateway.operations.turn_away(wire, problem);
    refused(wire, problem)
}

fn refused(wire: &Wire, problem: &Problem) -> Response {
    problem.told(wire).into_response()
}

pub(crate) fn plain(status: StatusCode, said: &Json) -> Response {
    let mut response = Response::new(Body::from(said.bytes().clone()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
    response
}

/// The headers that belong to the connection, to the way to us, or to a key. None of them is forwarded.
const OWN: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-authorization",
    "proxy-connection",
    "expect",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "cookie",
    "forwarded",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    END_USER,
    TOKEN,
];

/// What the names of headers begin with that proxies add. None of them is forwarded.
const PROXIES: &str = "x-forwarded-";

/// The header in which a page of our own shows that it is one.
const TOKEN: &str = "x-throughline-token";

fn passed_on(headers: &HeaderMap) -> Vec<(Name, Name)> {
    // A header that `Connection` names belongs to this connection.
    let connection: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let is_ours = |name: &str| {
        OWN.contains(&name) || name.starts_with(PROXIES) || connection.iter().any(|own| own == name)
    };
    let passed = headers.iter().filter(|(name, _)| !is_ours(name.as_str()));
    passed
        .filter_map(|(name, value)| {
            let (name, value) = (name.as_str(), value.to_str().ok()?);
            if name == "accept-encoding" {
                return Some((Name::from(name), compression::readable(value)?));
            }
            Some((Name::from(name), Name::from(value)))
        })
        .collect()
}

/// A path without the key that Gemini's callers may put into its query.
fn without_key(path: &str) -> Name {
    let Some((bare, query)) = path.split_once('?') else { return Name::from(path) };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("key=")).collect();
    if kept.is_empty() { Name::from(bare) } else { format!("{bare}?{}", kept.join("&")).into() }
}

/// The keys that a caller brings: ours, and a provider's. Each dialect has a place of its own for one.
fn credentials(
    headers: &HeaderMap,
    query: Option<&str>,
) -> (Option<Credential>, Option<Credential>) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let query = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("key="));
    let keys = [text("x-api-key"), text("x-goog-api-key"), text("api-key"), bearer, query];
    let find = |is_ours: bool| {
        let mut keys = keys.iter().flatten();
        keys.find(|key| key.starts_with(access::KEY) == is_ours).map(|key| Credential::new(*key))
    };
    (find(true), find(false))
}
