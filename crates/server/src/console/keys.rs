//! Lists and manages the keys of the caller's tenant.

use jiff::Timestamp;
use throughline_json::{self as json, Json, Name, Node};
use throughline_spec::KeyManager;

use crate::access::Admission;
use crate::api::{ApiError, ApiRequest, ApiResult, json_response};
use crate::console::archive;
use crate::object::object;
use crate::telemetry::{BudgetLimit, BudgetUnit, reset_budget};

/// Label of a key that is created without a label.
const UNNAMED: &str = "unnamed";

/// Lists the tenant's keys with their limits.
pub(crate) async fn list(request: &ApiRequest<'_>) -> ApiResult {
    let keys = archive(request)?.keys(&request.caller.tenant).await?;
    let rows = keys.iter().map(|key| {
        object! {
            "id": key.id, "label": key.label, "limits": key.limits,
            "created": key.created.to_string(), "revoked"? key.revoked.map(|at| at.to_string()),
        }
    });
    Ok(json_response(&object! { "keys": rows.collect::<Vec<_>>() }))
}

/// Lists the budgets of the tenant's active keys, with the amounts that are spent and reserved in
/// the current period.
pub(crate) async fn budgets(request: &ApiRequest<'_>) -> ApiResult {
    let (gateway, tenant) = (request.gateway, &request.caller.tenant);
    let meter = &gateway.operations.meter;
    meter.settle().await?;
    let keys = archive(request)?.keys(tenant).await?;
    let (mut rows, now) = (Vec::new(), meter.now());
    for key in keys.iter().filter(|key| key.revoked.is_none()) {
        let admission = gateway.keyring.admit_id(tenant, &key.id).await?;
        let Admission::Key { allowance, .. } = admission else { continue };
        if !allowance.is_budget() {
            continue;
        }
        let budgets = meter.budget_status(tenant, &key.id, &allowance).await?;
        let budgets: Vec<Json> =
            budgets.iter().map(|(limit, amounts)| budget_json(limit, *amounts, now)).collect();
        rows.push(object! {
            "key": key.id, "label": key.label, "soft_limit_percent"? allowance.soft_percent,
            "budgets": budgets,
        });
    }
    Ok(json_response(&object! { "keys": rows }))
}

/// Describes a limit and its current window. Amounts in dollars are in millionths.
pub(crate) fn budget_json(
    limit: &BudgetLimit,
    (used, reserved): (u64, u64),
    now: Timestamp,
) -> Json {
    let (unit, divisor) = match limit.unit {
        BudgetUnit::PicoUsd => ("micro_usd", 1_000_000),
        BudgetUnit::Tokens | BudgetUnit::Requests => (limit.unit.as_str(), 1),
    };
    let window = limit.period.window(now);
    object! {
        "unit": unit, "period": limit.period.as_str(), "limit": limit.most / divisor,
        "used": used / divisor, "reserved": reserved / divisor,
        "window_start": window.start, "window_end"? window.end,
    }
}

/// Creates a key. Only this response contains the key itself.
pub(crate) async fn create(request: &ApiRequest<'_>) -> ApiResult {
    let (manager, tenant) = (unlimited(request)?, &request.caller.tenant);
    let root = request.body.root();
    let label = match root.present("label") {
        None => Name::from(UNNAMED),
        Some(label) => {
            let label = label.name().filter(|label| !label.trim().is_empty());
            label.ok_or_else(|| ApiError::new(422, "`label` must be a text that is not empty"))?
        }
    };
    let created = manager.create(tenant, &label, &limits(root)).await?;
    Ok(json_response(&object! {
        "id": created.id, "tenant": tenant.0, "label": label, "limits": created.limits,
        "key": created.secret,
    }))
}

/// Changes the limits of a key, including its role. A member that is null removes its limit.
pub(crate) async fn update(request: &ApiRequest<'_>) -> ApiResult {
    let (manager, id) = (unlimited(request)?, key_id(request));
    let changes = limits(request.body.root());
    let limits = manager.change_limits(&request.caller.tenant, id, &changes).await?;
    let limits = limits.ok_or_else(unknown_key)?;
    Ok(json_response(&object! { "id": id, "limits": limits }))
}

/// Revokes a key.
pub(crate) async fn revoke(request: &ApiRequest<'_>) -> ApiResult {
    let (manager, id) = (manager(request)?, key_id(request));
    if !manager.revoke(&request.caller.tenant, id).await? {
        return Err(unknown_key());
    }
    Ok(json_response(&object! { "revoked": id }))
}

/// Lets the budgets of a key count from zero.
pub(crate) async fn reset(request: &ApiRequest<'_>) -> ApiResult {
    unlimited(request)?;
    let (id, tenant) = (key_id(request), &request.caller.tenant);
    let keys = archive(request)?.keys(tenant).await?;
    if !keys.iter().any(|key| *key.id == *id && key.revoked.is_none()) {
        return Err(unknown_key());
    }
    reset_budget(request.api.store(), tenant, id).await?;
    Ok(json_response(&object! { "reset": id }))
}

/// Returns the port for the management of keys. The first key ends the access of all callers
/// without a key, and belongs to the operator. On a gateway without keys, every local process can
/// send requests, so the first key cannot be created over HTTP.
fn manager<'a>(request: &'a ApiRequest<'_>) -> ApiResult<&'a dyn KeyManager> {
    if matches!(request.caller.admission, Admission::Open) {
        let message = "this gateway has no keys, so it cannot identify its operator; create the \
                       first key with `throughline keys create --role operator`";
        return Err(ApiError::new(403, message));
    }
    let unavailable = || ApiError::new(501, "this server does not manage keys");
    request.api.keys.as_deref().ok_or_else(unavailable)
}

/// Returns the port for changes to limits. An operator whose own key has limits could otherwise
/// remove them or create a key without them.
fn unlimited<'a>(request: &'a ApiRequest<'_>) -> ApiResult<&'a dyn KeyManager> {
    if request.caller.admission.is_limited() {
        let message = "this key has limits, so it may list and revoke keys, but not create keys or \
                       change limits; use an operator key without limits";
        return Err(ApiError::new(403, message));
    }
    manager(request)
}

fn key_id<'a>(request: &'a ApiRequest<'_>) -> &'a str {
    request.ids.first().map_or("", |id| &**id)
}

/// Returns the members of a request that are limits.
fn limits(root: Node<'_>) -> Json {
    json::object(|o| {
        for (name, value) in root.members() {
            if let Some(name) = name.text().filter(|name| name != "label") {
                o.node(&name, value);
            }
        }
    })
}

/// The path may contain the key itself instead of its id, so the message does not repeat it.
fn unknown_key() -> ApiError {
    ApiError::new(404, "your tenant has no valid key with this id; see GET /v1/throughline/keys")
}
