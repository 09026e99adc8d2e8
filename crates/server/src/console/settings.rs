//! Returns the configuration in effect, and the health of providers and of the store.

use throughline_json::Json;
use tokio::time::Instant;

use crate::api::{ApiRequest, ApiResult, SettingsReport, json_response};
use crate::gateway::Gateway;
use crate::object::object;

/// Returns the configuration and the health of the gateway. All tenants share both, so the response
/// contains no data of a tenant.
pub(crate) async fn show(request: &ApiRequest<'_>) -> ApiResult {
    let gateway = request.gateway;
    let config = request.api.settings.as_deref().map(SettingsReport::settings);
    let store = gateway.operations.check_ready().await;
    let store = object! { "ok": store.is_ok(), "problem"? store.err() };
    let directory = gateway.directory.outage();
    let health = object! {
        "store": store, "problem"? directory, "resting": resting(gateway),
        "cooling": cooling(gateway),
    };
    Ok(json_response(&object! { "config"? config, "health": health }))
}

/// Returns the providers, and models of providers, whose requests are rejected because earlier
/// requests failed.
fn resting(gateway: &Gateway) -> Vec<Json> {
    let resting = gateway.upstream.resting().into_iter();
    resting.map(|it| object! { "provider": it.endpoint, "model"? it.model }).collect()
}

/// Returns the accounts of pools that are cooling down.
fn cooling(gateway: &Gateway) -> Vec<Json> {
    let now = Instant::now();
    let pools = gateway.directory.pools();
    let rows = pools.iter().flat_map(|pool| {
        pool.cooling(now).into_iter().map(move |(account, model, left)| {
            object! {
                "provider": pool.provider(), "account": account, "model"? model,
                "seconds": left.as_secs().max(1),
            }
        })
    });
    rows.collect()
}
