//! Serves the gateway's own endpoints: health, metrics, usage and the console's token.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use throughline_json::{self as json, Json};

use crate::access::Admission;
use crate::access::Caller;
use crate::gateway::Gateway;
use crate::openapi;
use crate::response::plain;
use crate::telemetry::UsageAmount;

/// Serves endpoints that need no authentication: health, readiness and the docs of the agent API.
pub(crate) async fn health(gateway: &Gateway, has_agents: bool, path: &str) -> Option<Response> {
    let status = |status: &str| {
        json::object(|o| {
            o.string("status", status);
        })
    };
    match path {
        "/openapi.json" if has_agents => Some(plain(StatusCode::OK, &openapi::openapi())),
        "/docs" | "/docs/" if has_agents => {
            let mut response = Response::new(Body::from(openapi::html_page()));
            let kind = HeaderValue::from_static("text/html; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            // The page uses inline styles and loads nothing else.
            let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";
            let secured = [
                (header::CONTENT_SECURITY_POLICY, policy),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            for (name, value) in secured {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            Some(response)
        }
        "/healthz" => Some(plain(StatusCode::OK, &status("ok"))),
        "/readyz" => Some(match gateway.operations.check_ready().await {
            Ok(()) => plain(StatusCode::OK, &status("ok")),
            Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, &status(reason)),
        }),
        _ => None,
    }
}

/// Serves endpoints that require an authenticated caller.
pub(crate) async fn answer(
    gateway: &Gateway,
    caller: &Caller,
    method: &str,
    path: &str,
) -> Option<Response> {
    match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => Some(metrics(gateway)),
        ("GET", "/v1/throughline/usage") => Some(usage(gateway, caller).await),
        ("GET", "/v1/throughline/token") => Some(plain(
            StatusCode::OK,
            &json::object(|o| {
                o.string("token", gateway.operations.token());
            }),
        )),
        _ => None,
    }
}

fn metrics(gateway: &Gateway) -> Response {
    let text = gateway.operations.metrics.render(gateway.upstream.retries());
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Returns the usage and the limits of the caller's key.
async fn usage(gateway: &Gateway, caller: &Caller) -> Response {
    let meter = &gateway.operations.meter;
    if let Err(error) = meter.settle().await {
        let problem = json::object(|o| {
            o.string("error", &format!("the usage cannot be read: {error}"));
        });
        return plain(StatusCode::SERVICE_UNAVAILABLE, &problem);
    }
    let (key, allowance) = match &caller.admission {
        Admission::Key { id, allowance, .. } => (Some(id), *allowance),
        Admission::Open | Admission::Refused => (None, crate::access::Allowance::default()),
    };
    let lines = meter.rows(&caller.tenant, key);
    let mut sum = UsageAmount::default();
    for (_, used) in &lines {
        sum.add(used);
    }
    let answer = json::object(|o| {
        o.maybe_string("key", key.map(|key| &**key)).string("tenant", &caller.tenant.0);
        o.string("prices", meter.prices()).object("limits", |o| {
            let limits = [
                ("micro_usd", allowance.micro_usd),
                ("tokens", allowance.tokens),
                ("requests_per_minute", allowance.per_minute.map(u64::from)),
            ];
            for (name, limit) in limits {
                limit.map(|limit| o.number(name, limit));
            }
        });
        o.raw("used", &told(&sum, |_| {})).array("models", |a| {
            for (line, used) in &lines {
                a.raw(&told(used, |o| {
                    o.string("provider", &line.provider).string("model", &line.model);
                }));
            }
        });
    });
    plain(StatusCode::OK, &answer)
}

fn told(used: &UsageAmount, first: impl FnOnce(&mut json::Object<'_>)) -> Json {
    json::object(|o| {
        first(o);
        o.number("calls", used.calls).number("tokens", used.tokens.total());
        o.number("input", used.tokens.input).number("cached", used.tokens.cached);
        o.number("written", used.tokens.written).number("output", used.tokens.output);
        o.number("thought", used.tokens.thought).number("micro_usd", used.micro_usd());
        o.number("unpriced", used.unpriced);
    })
}
