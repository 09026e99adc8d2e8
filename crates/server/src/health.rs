//! Serves the gateway's own endpoints: health, metrics, usage and the console's token.

use throughline_core::{BudgetPeriod, KeyRole, Usage};
use throughline_json::Json;

use crate::access::{Admission, Allowance, Caller};
use crate::console::keys::budget_json;
use crate::gateway::Gateway;
use crate::object::object;
use crate::openapi;
use crate::response::GatewayResponse;
use crate::telemetry::{MetricsFormat, UsageAmount, UsageKey};

/// Content security policy of the API documentation, which uses inline styles and loads nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Reports that the process is running.
pub(crate) fn alive() -> GatewayResponse {
    GatewayResponse::json(200, &object! { "status": "ok" })
}

/// Reports whether the gateway can serve requests, or returns 503 with the reason.
pub(crate) async fn ready(gateway: &Gateway) -> GatewayResponse {
    let checked = gateway.operations.check_ready().await;
    match checked.and_then(|()| gateway.directory.outage().map_or(Ok(()), Err)) {
        Ok(()) => alive(),
        Err(reason) => GatewayResponse::json(503, &object! { "status": reason }),
    }
}

/// Returns the documentation of the API as an HTML page.
pub(crate) fn api_page() -> GatewayResponse {
    GatewayResponse::text("text/html; charset=utf-8", openapi::html_page())
        .with_header("content-security-policy", POLICY)
        .with_header("x-content-type-options", "nosniff")
        .with_header("referrer-policy", "no-referrer")
}

/// Serves endpoints that require an authenticated caller.
pub(crate) async fn private_endpoint(
    gateway: &Gateway,
    caller: &Caller,
    method: &str,
    path: &str,
    accept: Option<&str>,
) -> Option<GatewayResponse> {
    // The server sends the response to `HEAD` without its body.
    let method = if method == "HEAD" { "GET" } else { method };
    match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => {
            let operations = &gateway.operations;
            let (retries, sockets) = (gateway.upstream.retries(), operations.open_sockets());
            let format = MetricsFormat::for_accept(accept);
            let text = operations.metrics.render(format, retries, sockets);
            Some(GatewayResponse::text(format.content_type(), text))
        }
        ("GET", "/v1/throughline/usage") => Some(usage(gateway, caller).await),
        ("GET", "/v1/throughline/token") => {
            let token = caller.page_token.as_deref().unwrap_or(gateway.operations.token());
            let token = object! { "token": token };
            Some(GatewayResponse::json(200, &token))
        }
        _ => None,
    }
}

/// Returns the usage and the limits of the caller's key.
async fn usage(gateway: &Gateway, caller: &Caller) -> GatewayResponse {
    let meter = &gateway.operations.meter;
    if let Err(error) = meter.settle().await {
        let problem = object! { "error": format!("cannot read the usage: {error}") };
        return GatewayResponse::json(503, &problem);
    }
    let (key, allowance) = match &caller.admission {
        Admission::Key { id, allowance, .. } => (Some(id), *allowance),
        Admission::Open | Admission::Refused => (None, Allowance::default()),
    };
    let rows = meter.rows(&caller.tenant, key);
    let mut sum = UsageAmount::default();
    for (_, used) in &rows {
        sum.add(used);
    }
    let limits = object! {
        "micro_usd"? allowance.micro_usd, "tokens"? allowance.tokens,
        "requests_per_minute"? allowance.per_minute,
        "tokens_per_minute"? allowance.tokens_per_minute,
        "period"? allowance.period.map(BudgetPeriod::as_str),
        "soft_limit_percent"? allowance.soft_percent,
    };
    let budgets = match key {
        Some(key) => meter.budget_status(&caller.tenant, key, &allowance).await,
        None => Ok(Vec::new()),
    };
    let now = meter.now();
    let budgets = match budgets {
        Ok(budgets) => budgets,
        Err(error) => {
            let problem = object! { "error": format!("cannot read the budgets: {error}") };
            return GatewayResponse::json(503, &problem);
        }
    };
    let budgets: Vec<Json> =
        budgets.iter().map(|(limit, amounts)| budget_json(limit, *amounts, now)).collect();
    let models: Vec<Json> = rows.iter().map(|(row, used)| usage_json(Some(row), used)).collect();
    let body = object! {
        "key"? key, "tenant": caller.tenant.0, "role"? caller.admission.role().map(KeyRole::as_str),
        "permissions": caller.admission.permissions(), "prices": meter.prices(), "limits": limits,
        "used": usage_json(None, &sum), "models": models, "budgets": budgets,
    };
    GatewayResponse::json(200, &body)
}

fn usage_json(row: Option<&UsageKey>, used: &UsageAmount) -> Json {
    let Usage { input, cached, written, output, thought } = used.tokens;
    object! {
        "provider"? row.map(|row| &row.provider), "model"? row.map(|row| &row.model),
        "calls": used.calls, "tokens": used.tokens.total(), "input": input, "cached": cached,
        "written": written, "output": output, "thought": thought,
        "micro_usd": used.micro_usd(), "unpriced": used.unpriced,
    }
}
