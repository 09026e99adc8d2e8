//! The HTTP router: fixed paths, and one fallback that classifies every other path.
//!
//! The fallback handles the paths that a router cannot distinguish: Gemini's `{model}:verb`, ids
//! that contain slashes, and the paths that two dialects share.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Request as HttpRequest, State};
use axum::http::header::{ACCEPT, CONTENT_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Version};
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use hyper_util::service::TowerToHyperService;
use throughline_core::{Request, Wire};
use throughline_json::{Name, Tree};

use crate::access::{self, Caller, Keyring, Permission};
use crate::api::{Accounts, AgentApi, ApiError, ApiRequest, ApiResult};
use crate::console::assets;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::models::{ModelDiscovery, ModelFormat};
use crate::gateway::websocket::{Dispatch, SocketOptions};
use crate::gateway::{
    CloudRequest, Exchange, FIXED_PATHS, Gateway, GatewayRoute, METHODS, authenticate, classify,
    error_wire, forwarded_headers, method_not_allowed, models, receive, websocket, with_key_format,
    without_key,
};
use crate::openapi::openapi;
use crate::redact::redact_response;
use crate::response::{GatewayResponse, ResponseBody};
use crate::routes::{Op, RouteMatch, perform};
use crate::sign_in::SignInKeyring;
use crate::{health, routes, sign_in};

/// The gateway and the optional agent API, served on one port.
pub struct Server {
    pub(crate) gateway: Gateway,
    pub(crate) agents: Option<Arc<AgentApi>>,
    discovery: ModelDiscovery,
    /// The slot that holds this server or its successor. Empty if the server is not served.
    slot: OnceLock<Weak<ServerSlot>>,
}

type ServerSlot = RwLock<Arc<Server>>;

/// A handle to the server that handles new requests. Each request uses the server that was current
/// when the request arrived, so a replaced server stays in memory until its last request ends.
#[derive(Clone)]
pub struct ServerHandle(Arc<ServerSlot>);

impl ServerHandle {
    /// Creates a handle. This server handles requests until it is replaced.
    pub fn new(server: Server) -> Self {
        let server = Arc::new(server);
        let handle = Self(Arc::new(RwLock::new(Arc::clone(&server))));
        server.slot.get_or_init(|| Arc::downgrade(&handle.0));
        handle
    }

    /// Replaces the server for new requests. Requests in progress keep the previous server. The new
    /// server must have the same telemetry and the same agent API as the previous one.
    pub fn replace(&self, server: Server) {
        server.slot.get_or_init(|| Arc::downgrade(&self.0));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(server);
    }

    /// Returns the server that handles new requests.
    pub(crate) fn current(&self) -> Arc<Server> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<Server> for ServerHandle {
    fn from(server: Server) -> Self {
        Self::new(server)
    }
}

impl FromRef<ServerHandle> for Arc<Server> {
    fn from_ref(handle: &ServerHandle) -> Self {
        handle.current()
    }
}

impl Server {
    /// Combines a gateway with the agent API. The gateway redacts its call records with the agent
    /// API's policy, unless the gateway has its own policy.
    pub fn new(mut gateway: Gateway, agents: Option<Arc<AgentApi>>) -> Self {
        if let Some(agents) = &agents {
            gateway.redaction = gateway.redaction.or_else(|| agents.policy.clone());
            let keyring: Arc<dyn Keyring> = match &gateway.sign_in {
                Some(sign_in) => Arc::new(SignInKeyring {
                    keyring: Arc::clone(&gateway.keyring),
                    sign_in: Arc::clone(sign_in),
                }),
                None => Arc::clone(&gateway.keyring),
            };
            agents.drives.charge_to(Accounts {
                operations: Arc::clone(&gateway.operations),
                keyring,
                directory: Arc::clone(&gateway.directory),
            });
        }
        Self { gateway, agents, discovery: ModelDiscovery::default(), slot: OnceLock::new() }
    }

    /// Returns the server that handles new requests: this server or its successor.
    fn latest(self: &Arc<Self>) -> Arc<Self> {
        let slot = self.slot.get().and_then(Weak::upgrade);
        slot.map_or_else(|| Arc::clone(self), |slot| ServerHandle(slot).current())
    }

    /// Builds the router that serves all paths.
    pub fn router(self) -> Router {
        ServerHandle::new(self).router()
    }
}

impl ServerHandle {
    /// Builds the service of a listening socket.
    pub(crate) fn service(&self) -> HttpService {
        HttpService { router: self.router(), handle: self.clone() }
    }

    /// Builds the router that serves all paths with the current server.
    pub fn router(&self) -> Router {
        let mut router = Router::new()
            .route("/healthz", page(|_| async { health::alive() }))
            .route("/readyz", page(|server| async move { health::ready(&server.gateway).await }));
        for (path, wire, route) in &FIXED_PATHS {
            let serve = move |State(server): SharedServer, request: HttpRequest| async move {
                let is_post = request.method() == Method::POST;
                let classified = is_post.then(|| (wire.clone(), route.clone()));
                serve_gateway(&server, request, classified).await
            };
            router = router.route(path, any(serve));
        }
        if self.current().agents.is_some() {
            for path in assets::paths() {
                router = router.route(&path, any(serve_console));
            }
            for path in sign_in::PATHS {
                router = router.route(path, any(serve_sign_in));
            }
            router = router
                .route("/openapi.json", page(|_| async { GatewayResponse::json(200, &openapi()) }))
                .route("/docs", page(|_| async { health::api_page() }))
                .route("/docs/", page(|_| async { health::api_page() }));
            router = routes::add_paths(router, |path| {
                any(move |State(server): SharedServer, request: HttpRequest| {
                    serve_agent_api(server, path, request)
                })
            });
        }
        router.fallback(serve_any).with_state(self.clone())
    }
}

/// Serves the requests of a connection. The paths of model calls are matched here, because the
/// layers of the router take several microseconds per request.
#[derive(Clone)]
pub(crate) struct HttpService {
    handle: ServerHandle,
    router: Router,
}

impl HyperService<HttpRequest<Incoming>> for HttpService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: HttpRequest<Incoming>) -> Self::Future {
        let is_fixed = |fixed: &&(&str, Wire, GatewayRoute)| fixed.0 == request.uri().path();
        let fixed = FIXED_PATHS.iter().find(is_fixed).filter(|_| request.method() == Method::POST);
        let Some((_, wire, route)) = fixed else {
            return Box::pin(TowerToHyperService::new(self.router.clone()).call(request));
        };
        let server = self.handle.current();
        Box::pin(async move {
            let classified = Some((wire.clone(), route.clone()));
            Ok(serve_gateway(&server, request.map(Body::new), classified).await)
        })
    }
}

type SharedServer = State<Arc<Server>>;

/// Returns a route that serves a page to every caller.
fn page<F: Future<Output = GatewayResponse> + Send>(
    render: impl Fn(Arc<Server>) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter<ServerHandle> {
    any(move |State(server): SharedServer, request: HttpRequest| async move {
        if websocket::is_requested(request.headers()) {
            return serve_gateway(&server, request, None).await;
        }
        render(server).await.into_response()
    })
}

/// Serves a path that no route covers.
async fn serve_any(State(server): SharedServer, request: HttpRequest) -> Response {
    serve_gateway(&server, request, None).await
}

/// Serves a file of the console.
async fn serve_console(State(server): SharedServer, request: HttpRequest) -> Response {
    let is_upgrade = websocket::is_requested(request.headers());
    let file = assets::serve(request.method().as_str(), request.uri().path(), request.headers());
    match file.filter(|_| !is_upgrade) {
        Some(file) => file.into_response(),
        None => serve_gateway(&server, request, None).await,
    }
}

/// Serves a route for people who sign in to the console.
async fn serve_sign_in(State(server): SharedServer, request: HttpRequest) -> Response {
    if websocket::is_requested(request.headers()) {
        return serve_gateway(&server, request, None).await;
    }
    let (gateway, (parts, _)) = (&server.gateway, request.into_parts());
    let answered = sign_in::serve(gateway.sign_in.as_deref(), &gateway.operations, &parts);
    answered.await.into_response()
}

/// Serves a path of the agent API, or passes the request to the gateway if another dialect has the
/// same path.
async fn serve_agent_api(
    server: Arc<Server>,
    route: &'static str,
    request: HttpRequest,
) -> Response {
    let is_upgrade = websocket::is_requested(request.headers());
    let found = routes::find(route, request.method().as_str(), &target_of(&request));
    let (Some(found), Some(agents)) = (found.filter(|_| !is_upgrade), &server.agents) else {
        return serve_gateway(&server, request, None).await;
    };
    let (gateway, (parts, body)) = (&server.gateway, request.into_parts());
    let caller = authenticate(gateway, parts.method.as_str(), &parts.headers, &parts.uri).await;
    let body = (&parts.headers, body);
    let is_own = route.starts_with("/v1/throughline/");
    let dialect = Wire::borrowed(if is_own { "throughline" } else { "letta" });
    handle_agent_request(gateway, agents, (caller, &dialect), found, body).await.into_response()
}

/// Returns the path and query of a request, with any key removed from the query.
fn target_of(request: &HttpRequest) -> Name {
    without_key(request.uri().path_and_query().map_or("/", |target| target.as_str()))
}

/// Serves a request to the gateway. `classified` is the request's wire and operation, if the router
/// determined them.
async fn serve_gateway(
    server: &Arc<Server>,
    request: HttpRequest,
    classified: Option<(Wire, GatewayRoute)>,
) -> Response {
    let (target, (parts, body)) = (target_of(&request), request.into_parts());
    if is_socket_request(&parts) {
        return Box::pin(serve_socket(server, target, parts)).await;
    }
    if websocket::is_requested(&parts.headers) {
        return refuse_upgrade(&server.gateway, &parts, target).into_response();
    }
    respond(server, &parts, target, body, classified).await.into_response()
}

/// Returns whether a request opens a WebSocket of the Responses API.
fn is_socket_request(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.uri.path() == websocket::PATH
        && websocket::is_requested(&parts.headers)
}

async fn serve_socket(server: &Arc<Server>, target: Name, parts: Parts) -> Response {
    let (gateway, wire) = (&server.gateway, Wire::OPENAI_RESPONSES);
    let caller = match authenticate(gateway, "GET", &parts.headers, &parts.uri).await {
        Ok(caller) => caller,
        Err(problem) => return reject(gateway, &wire, &problem).into_response(),
    };
    let opened = open_socket(server, target, parts, caller.clone()).await;
    opened
        .unwrap_or_else(|problem| reject_caller(gateway, &wire, &caller, &problem).into_response())
}

/// Opens a WebSocket. Each of its responses is handled like a streamed `POST` request.
async fn open_socket(
    server: &Arc<Server>,
    target: Name,
    parts: Parts,
    caller: Caller,
) -> GatewayResult<Response> {
    let gateway = &server.gateway;
    // Browsers do not restrict the WebSockets of other sites' pages, which send no key of ours.
    if !caller.admission.is_key()
        && access::has_foreign_origin(&parts.headers, parts.uri.authority())
    {
        let message = "this gateway has no keys, so it does not serve pages of other sites";
        return Err(GatewayError::new(403, message));
    }
    caller.require(Permission::Use)?;
    let place = gateway.operations.admit_socket(&caller).await?;
    let (server, head) = (Arc::clone(server), Arc::new(websocket::request_parts(&parts)));
    let dispatch: Dispatch = Arc::new(move |body, route| {
        // A WebSocket may outlive its server, and each of its responses is a new request.
        let (server, head, target) = (server.latest(), Arc::clone(&head), target.clone());
        Box::pin(async move {
            let classified = Some((Wire::OPENAI_RESPONSES, route));
            respond(&server, &head, target, Body::from(body), classified).await
        })
    });
    let options = SocketOptions {
        caller,
        dispatch,
        operations: Arc::clone(&gateway.operations),
        body_limit: gateway.body_limit,
        depth_limit: gateway.depth_limit,
    };
    websocket::accept(parts, options, place)
}

async fn respond(
    server: &Server,
    parts: &Parts,
    path: Name,
    body: Body,
    classified: Option<(Wire, GatewayRoute)>,
) -> GatewayResponse {
    use GatewayRoute::{Call, CallRecord, Count, Other, WarmUp};
    let gateway = &server.gateway;
    let method = parts.method.as_str();
    if !METHODS.contains(&method) {
        return refuse_method(gateway, parts, path);
    }
    if parts.version == Version::HTTP_2 {
        // HTTP/2 clients can cancel a request without closing the connection, so the delay after
        // disconnects applies to each request.
        gateway.replay.calls().disconnects().wait_until_drained().await;
    }
    let headers = forwarded_headers(&parts.headers);
    let mut request = Request { path, headers, body: Bytes::new() };
    let cloud = CloudRequest::parse(method, &request.path);
    let classified = classified.or_else(|| cloud.as_ref().map(CloudRequest::classify));
    let classified = classified.unwrap_or_else(|| classify(method, &request));
    let (mut wire, route) = with_key_format(classified, &parts.headers);
    let error_wire = match &cloud {
        Some(cloud) => cloud.error_wire(),
        None => error_wire((&wire, &route), &request.path, &parts.headers),
    };
    let caller = match authenticate(gateway, method, &parts.headers, &parts.uri).await {
        Ok(caller) => caller,
        Err(problem) if let Some(cloud) = &cloud => {
            let problem = cloud.explain_refusal(&parts.headers, problem);
            return reject(gateway, &error_wire, &problem);
        }
        Err(problem) if route == GatewayRoute::NoAgentPath => {
            return reject_agent_request(gateway, &wire, problem);
        }
        Err(problem) => return reject(gateway, &error_wire, &problem),
    };
    let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let private = health::private_endpoint(gateway, &caller, method, &request.path, accept);
    if let Some(response) = private.await {
        return response;
    }
    if let Err(problem) = caller.require(route.permission()) {
        return reject_caller(gateway, &error_wire, &caller, &problem);
    }
    let path = parts.uri.path();
    match &route {
        GatewayRoute::Models(format) => {
            return serve_models(server, parts, &caller, *format, None).await;
        }
        GatewayRoute::Model(format, name) => {
            return serve_models(server, parts, &caller, *format, Some(name)).await;
        }
        GatewayRoute::Nowhere => {
            let message = format!("the gateway has no {method} {path}; see docs/gateway.md");
            return reject(gateway, &error_wire, &GatewayError::new(404, message));
        }
        GatewayRoute::NoAgentPath => {
            let message = format!("the agent API has no {method} {path}; see docs/agent-api.md");
            return reject_agent_request(gateway, &wire, GatewayError::new(404, message));
        }
        Call | WarmUp | Count | CallRecord(_) | GatewayRoute::Response(..) | Other => {}
    }
    let scope = match gateway.operations.begin_request(&caller, &wire).await {
        Ok(scope) => scope,
        Err(problem) => return reject_caller(gateway, &error_wire, &caller, &problem),
    };
    scope.start_span(&mut request.headers);
    let answered = async {
        let encoding = content_encoding(&parts.headers)?;
        let received = receive(gateway, &caller, &scope, encoding, body, matches!(route, Call));
        let (bytes, mut body) = Box::pin(received).await?;
        request.body = bytes;
        request.headers.retain(|(name, _)| **name != *CONTENT_ENCODING.as_str());
        if let Some(cloud) = &cloud {
            let length = request.body.len();
            let unwrapping = async { cloud.unwrap(gateway, request, body) };
            let unwrapped = gateway.operations.heavy.run(&caller, length, unwrapping).await??;
            (wire, request, body) = (unwrapped.wire, unwrapped.request, unwrapped.body);
        }
        let exchange = Exchange::new(gateway, caller, &wire, &scope, &request, body);
        perform_route(exchange, route, method, request).await
    };
    let response = match answered.await {
        Ok(response) => {
            scope.record().status = Some(response.status);
            response
        }
        Err(problem) => {
            scope.record_error(&problem);
            problem.to_response(&error_wire)
        }
    };
    scope.end();
    match &cloud {
        Some(cloud) => cloud.wrap(response),
        None => response,
    }
}

/// Performs the operation of a route.
///
/// Most requests are model calls, and thousands run at once. The other futures are boxed, so they
/// do not enlarge the future of a model call.
async fn perform_route(
    exchange: Exchange<'_>,
    route: GatewayRoute,
    method: &str,
    request: Request,
) -> GatewayResult<GatewayResponse> {
    match route {
        GatewayRoute::Call => exchange.call(request).await,
        GatewayRoute::WarmUp => Box::pin(exchange.warm_up(&request)).await,
        GatewayRoute::Count => Box::pin(exchange.count(request)).await,
        GatewayRoute::CallRecord(call) => Box::pin(exchange.call_record(call)).await,
        GatewayRoute::Response(id, op) => {
            Box::pin(exchange.serve_response_op(&id, op, method, request)).await
        }
        GatewayRoute::Models(_)
        | GatewayRoute::Model(..)
        | GatewayRoute::Other
        | GatewayRoute::Nowhere
        | GatewayRoute::NoAgentPath => Box::pin(exchange.forward_other(method, request)).await,
    }
}

/// Serves the list of models, or the model with this name. The request counts towards the rate
/// limit of the caller's key.
async fn serve_models(
    server: &Server,
    parts: &Parts,
    caller: &Caller,
    format: ModelFormat,
    name: Option<&Name>,
) -> GatewayResponse {
    let Server { gateway, discovery, .. } = server;
    if let Err(problem) = gateway.operations.meter.count_request(&caller.admission) {
        return reject_caller(gateway, &format.wire(), caller, &problem);
    }
    let answered = match name {
        Some(name) => Box::pin(models::one(gateway, discovery, caller, format, name)).await,
        None => {
            let query = parts.uri.query().unwrap_or_default();
            Box::pin(models::list(gateway, discovery, caller, format, query)).await
        }
    };
    answered.unwrap_or_else(|problem| reject(gateway, &format.wire(), &problem))
}

/// Returns the `content-encoding` of a request. A body that was encoded several times is refused.
fn content_encoding(headers: &HeaderMap) -> GatewayResult<Option<&str>> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(value) if values.next().is_none() && !value.contains(',') => Ok(Some(value)),
        _ => {
            let message = "the header content-encoding must name one encoding: zstd, gzip, deflate \
                           or br";
            Err(GatewayError::new(415, message))
        }
    }
}

/// Rejects a request to the agent API with an error in Letta's format.
fn reject_agent_request(gateway: &Gateway, wire: &Wire, problem: GatewayError) -> GatewayResponse {
    gateway.operations.record_rejection(wire, None, &problem);
    ApiError::from(problem).to_response()
}

/// Rejects an upgrade at a path that has no WebSocket.
fn refuse_upgrade(gateway: &Gateway, parts: &Parts, path: Name) -> GatewayResponse {
    let request = Request { path, headers: forwarded_headers(&parts.headers), body: Bytes::new() };
    let (wire, route) = classify(parts.method.as_str(), &request);
    let wire = error_wire((&wire, &route), &request.path, &parts.headers);
    let message = "the only WebSocket is at GET /v1/responses; send this request over HTTP";
    reject(gateway, &wire, &GatewayError::new(426, message))
}

/// Rejects a method that the gateway never forwards.
fn refuse_method(gateway: &Gateway, parts: &Parts, path: Name) -> GatewayResponse {
    let request = Request { path, headers: forwarded_headers(&parts.headers), body: Bytes::new() };
    let (wire, _) = classify("GET", &request);
    let problem = GatewayError::new(405, "method not allowed");
    gateway.operations.record_rejection(&wire, None, &problem);
    method_not_allowed(&wire, parts.method.as_str(), &METHODS)
}

async fn handle_agent_request(
    gateway: &Gateway,
    agents: &AgentApi,
    (caller, dialect): (GatewayResult<Caller>, &Wire),
    found: RouteMatch,
    (headers, body): (&HeaderMap, Body),
) -> GatewayResponse {
    let refuse = |key: Option<&Name>, problem: GatewayError| {
        gateway.operations.record_rejection(dialect, key, &problem);
        problem
    };
    let answered = async {
        let caller = caller.map_err(|problem| refuse(None, problem))?;
        let key = caller.admission.key_id();
        caller.require(found.permission).map_err(|problem| refuse(key, problem))?;
        let scope = gateway.operations.begin_request(&caller, dialect).await;
        let scope = scope.map_err(|problem| refuse(key, problem))?;
        let encoding = content_encoding(headers)?;
        let body = receive(gateway, &caller, &scope, encoding, body, false).await?;
        let answered = dispatch(gateway, agents, &caller, found, body).await;
        let status = answered.as_ref().map_or_else(|error| error.status, |answer| answer.status);
        scope.record().status = Some(status);
        match answered {
            Ok(GatewayResponse { status, headers, body: ResponseBody::Stream(stream) }) => {
                scope.record_stream();
                let stream = ResponseBody::Stream(Box::pin(scope.end_after(stream)));
                Ok(GatewayResponse { status, headers, body: stream })
            }
            answered => {
                scope.end();
                answered
            }
        }
    };
    answered.await.unwrap_or_else(|error: ApiError| error.to_response())
}

/// Counts and logs a request that was not admitted, and returns its error.
fn reject(gateway: &Gateway, wire: &Wire, problem: &GatewayError) -> GatewayResponse {
    gateway.operations.record_rejection(wire, None, problem);
    problem.to_response(wire)
}

/// Counts and logs a request of an authenticated caller that was not admitted, and returns its
/// error.
fn reject_caller(
    gateway: &Gateway,
    wire: &Wire,
    caller: &Caller,
    problem: &GatewayError,
) -> GatewayResponse {
    gateway.operations.record_rejection(wire, caller.admission.key_id(), problem);
    problem.to_response(wire)
}

/// Runs the handler of an agent API route and redacts the response.
async fn dispatch(
    gateway: &Gateway,
    api: &AgentApi,
    caller: &Caller,
    found: RouteMatch,
    (body, parsed): (Bytes, Option<throughline_replay::ParsedBody>),
) -> ApiResult {
    let body = match parsed {
        Some(parsed) => parsed.tree,
        None => {
            let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
            Tree::parse(body)
                .map_err(|error| ApiError::new(422, format!("the body is not JSON: {error}")))?
        }
    };
    let RouteMatch { op, ids, query, .. } = found;
    let request = ApiRequest { api, gateway, caller, ids, query, body };
    let response = perform(&request, op).await?;
    Ok(match &api.policy {
        // A snapshot must return to each provider exactly what that provider issued, and a new key
        // is returned only once.
        Some(policy) if !matches!(op, Op::Snapshot | Op::CreateKey) => {
            redact_response(policy, response)
        }
        Some(_) | None => response,
    })
}
