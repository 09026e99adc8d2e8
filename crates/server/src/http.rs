//! The HTTP router: fixed paths, and one fallback that classifies every other path.
//!
//! The fallback handles the paths that a router cannot distinguish: Gemini's `{model}:verb`, ids
//! that contain slashes, and the paths that two dialects share.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::request::Parts;
use axum::http::{Method, Version};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use throughline_core::{Request, Wire};
use throughline_json::{Name, Tree};

use crate::access::Caller;
use crate::api::{Accounts, AgentApi, ApiError, ApiRequest, ApiResult};
use crate::console::assets;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::{
    Exchange, FIXED_PATHS, Gateway, GatewayRoute, METHODS, authenticate, classify,
    forwarded_headers, method_not_allowed, models, receive, without_key,
};
use crate::openapi::openapi;
use crate::redact::redact_response;
use crate::response::{GatewayResponse, ResponseBody};
use crate::routes::{Op, RouteMatch, perform};
use crate::{health, routes};

/// The gateway and the optional agent API, served on one port.
pub struct Server {
    pub(crate) gateway: Gateway,
    pub(crate) agents: Option<Arc<AgentApi>>,
}

impl Server {
    /// Combines a gateway with the agent API. The gateway redacts its call records with the agent
    /// API's policy, unless the gateway has its own policy.
    pub fn new(mut gateway: Gateway, agents: Option<Arc<AgentApi>>) -> Self {
        if let Some(agents) = &agents {
            gateway.redaction = gateway.redaction.or_else(|| agents.policy.clone());
            agents.drives.charge_to(Accounts {
                operations: Arc::clone(&gateway.operations),
                keyring: Arc::clone(&gateway.keyring),
                directory: Arc::clone(&gateway.directory),
            });
        }
        Self { gateway, agents }
    }

    /// Builds the router that serves all paths.
    pub fn router(self) -> Router {
        let mut router =
            Router::new().route("/healthz", any(async || health::alive().into_response())).route(
                "/readyz",
                any(async |State(server): SharedServer| {
                    health::ready(&server.gateway).await.into_response()
                }),
            );
        for (path, wire, route) in &FIXED_PATHS {
            let serve = move |State(server): SharedServer, request: HttpRequest| async move {
                let is_post = request.method() == Method::POST;
                let classified = is_post.then(|| (wire.clone(), route.clone()));
                serve_gateway(&server, request, classified).await
            };
            router = router.route(path, any(serve));
        }
        if let Some(agents) = &self.agents {
            for path in assets::paths() {
                router = router.route(&path, any(serve_console));
            }
            router = router
                .route(
                    "/openapi.json",
                    any(async || GatewayResponse::json(200, &openapi()).into_response()),
                )
                .route("/docs", any(async || health::api_page().into_response()))
                .route("/docs/", any(async || health::api_page().into_response()));
            router = routes::add_paths(router, |path| {
                let agents = Arc::clone(agents);
                any(move |State(server): SharedServer, request: HttpRequest| {
                    serve_agent_api(server, agents, path, request)
                })
            });
        }
        router.fallback(serve_any).with_state(Arc::new(self))
    }
}

type SharedServer = State<Arc<Server>>;

/// Serves a path that no route covers.
async fn serve_any(State(server): SharedServer, request: HttpRequest) -> Response {
    serve_gateway(&server, request, None).await
}

/// Serves a file of the console.
async fn serve_console(State(server): SharedServer, request: HttpRequest) -> Response {
    match assets::serve(request.method().as_str(), request.uri().path(), request.headers()) {
        Some(file) => file.into_response(),
        None => serve_gateway(&server, request, None).await,
    }
}

/// Serves a path of the agent API, or passes the request to the gateway if another dialect has the
/// same path.
async fn serve_agent_api(
    server: Arc<Server>,
    agents: Arc<AgentApi>,
    route: &'static str,
    request: HttpRequest,
) -> Response {
    let found = routes::find(route, request.method().as_str(), &target_of(&request));
    let Some(found) = found else {
        return serve_gateway(&server, request, None).await;
    };
    let (gateway, (parts, body)) = (&server.gateway, request.into_parts());
    let caller = authenticate(gateway, parts.method.as_str(), &parts.headers, &parts.uri).await;
    handle_agent_request(gateway, &agents, caller, found, body).await.into_response()
}

/// Returns the path and query of a request, with any key removed from the query.
fn target_of(request: &HttpRequest) -> Name {
    without_key(request.uri().path_and_query().map_or("/", |target| target.as_str()))
}

/// Serves a request to the gateway. `classified` is the request's wire and operation, if the router
/// determined them.
async fn serve_gateway(
    server: &Server,
    request: HttpRequest,
    classified: Option<(Wire, GatewayRoute)>,
) -> Response {
    let (target, (parts, body)) = (target_of(&request), request.into_parts());
    respond(&server.gateway, &parts, target, body, classified).await.into_response()
}

async fn respond(
    gateway: &Gateway,
    parts: &Parts,
    path: Name,
    body: Body,
    classified: Option<(Wire, GatewayRoute)>,
) -> GatewayResponse {
    use GatewayRoute::{Call, CallRecord, Count, Model, Models, NoAgentPath, Nowhere, Other};
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
    let (wire, route) = classified.unwrap_or_else(|| classify(method, &request));
    let caller = match authenticate(gateway, method, &parts.headers, &parts.uri).await {
        Ok(caller) => caller,
        Err(problem) if route == GatewayRoute::NoAgentPath => {
            return reject_agent_request(gateway, &wire, problem);
        }
        Err(problem) => return reject(gateway, &wire, &problem),
    };
    if let Some(response) = health::private_endpoint(gateway, &caller, method, &request.path).await
    {
        return response;
    }
    let path = parts.uri.path();
    match &route {
        GatewayRoute::Models => return models::list(gateway, &caller, &wire),
        GatewayRoute::Model(name) => {
            return models::one(gateway, &caller, &wire, name)
                .unwrap_or_else(|problem| reject(gateway, &wire, &problem));
        }
        GatewayRoute::Nowhere => {
            let message = format!("no endpoint at {path}; see docs/gateway.md");
            return reject(gateway, &wire, &GatewayError::new(404, message));
        }
        GatewayRoute::NoAgentPath => {
            let message = format!("the agent API has no {method} {path}; see docs/agent-api.md");
            return reject_agent_request(gateway, &wire, GatewayError::new(404, message));
        }
        Call | Count | CallRecord(_) | GatewayRoute::Response(..) | Other => {}
    }
    let scope = match gateway.operations.begin_request(&caller, &wire).await {
        Ok(scope) => scope,
        Err(problem) => return reject(gateway, &wire, &problem),
    };
    scope.start_span(&mut request.headers);
    let answered = async {
        let (bytes, body) = Box::pin(receive(gateway, &caller, &scope, body)).await?;
        request.body = bytes;
        let exchange = Exchange::new(gateway, caller, &wire, &scope, &request, body);
        // Most requests are model calls, and thousands run at once. The other futures are boxed, so
        // they do not enlarge the future of a model call.
        match route {
            GatewayRoute::Call => exchange.call(request).await,
            GatewayRoute::Count => Box::pin(exchange.count(request)).await,
            GatewayRoute::CallRecord(call) => Box::pin(exchange.call_record(call)).await,
            GatewayRoute::Response(id, op) => {
                Box::pin(exchange.serve_response_op(&id, op, method, request)).await
            }
            Models | Model(_) | Other | Nowhere | NoAgentPath => {
                Box::pin(exchange.forward_other(method, request)).await
            }
        }
    };
    let response = match answered.await {
        Ok(response) => {
            scope.record().status = Some(response.status);
            response
        }
        Err(problem) => {
            scope.record_error(&problem);
            problem.to_response(&wire)
        }
    };
    scope.end();
    response
}

/// Rejects a request to the agent API with an error in Letta's format.
fn reject_agent_request(gateway: &Gateway, wire: &Wire, problem: GatewayError) -> GatewayResponse {
    gateway.operations.record_rejection(wire, &problem);
    ApiError::from(problem).to_response()
}

/// Rejects a method that the gateway never forwards.
fn refuse_method(gateway: &Gateway, parts: &Parts, path: Name) -> GatewayResponse {
    let request = Request { path, headers: forwarded_headers(&parts.headers), body: Bytes::new() };
    let (wire, _) = classify("GET", &request);
    gateway.operations.record_rejection(&wire, &GatewayError::new(405, "method not allowed"));
    method_not_allowed(&wire, parts.method.as_str(), &METHODS)
}

async fn handle_agent_request(
    gateway: &Gateway,
    agents: &AgentApi,
    caller: GatewayResult<Caller>,
    found: RouteMatch,
    body: Body,
) -> GatewayResponse {
    let answered = async {
        let caller = caller?;
        let scope = gateway.operations.begin_request(&caller, &Wire::borrowed("letta")).await?;
        let body = receive(gateway, &caller, &scope, body).await?;
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
    gateway.operations.record_rejection(wire, problem);
    problem.to_response(wire)
}

/// Runs the handler of an agent API route and redacts the response.
async fn dispatch(
    gateway: &Gateway,
    api: &AgentApi,
    caller: &Caller,
    found: RouteMatch,
    (body, parsed): (Bytes, Option<Tree>),
) -> ApiResult {
    let body = match parsed {
        Some(tree) => tree,
        None => {
            let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
            Tree::parse(body)
                .map_err(|error| ApiError::new(422, format!("the body is not JSON: {error}")))?
        }
    };
    let RouteMatch { op, ids, query } = found;
    let request = ApiRequest { api, gateway, caller, ids, query, body };
    let response = perform(&request, op).await?;
    Ok(match &api.policy {
        // A snapshot must return to each provider exactly what that provider issued.
        Some(policy) if op != Op::Snapshot => redact_response(policy, response),
        Some(_) | None => response,
    })
}
