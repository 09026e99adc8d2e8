//! Serves the ledger of the built-in simulators.

use crate::access::Admission;
use crate::api::{ApiError, ApiRequest, ApiResult, json_response};

/// Returns the ledger entries after the request number in the query. The ledger covers the requests
/// of all tenants, so only a gateway without keys that serves this machine alone returns it.
pub(crate) fn ledger(request: &ApiRequest<'_>) -> ApiResult {
    let is_private = request.caller.admission == Admission::Open && !request.gateway.allow_open;
    if !is_private {
        return Err(ApiError::new(
            403,
            "the simulators' ledger covers all tenants, so only a gateway without keys for this \
             machine returns it; start `throughline sim` and read its /sim/ledger instead",
        ));
    }
    let simulators = request.api.simulators.as_ref();
    let simulators =
        simulators.ok_or_else(|| ApiError::new(501, "this server has no built-in simulators"))?;
    let after = match request.query.get("after") {
        None => 0,
        Some(value) => value.parse().map_err(|_| {
            let message =
                format!("`after` is `{value}`; use the number of a ledger entry, such as after=0");
            ApiError::new(400, message)
        })?,
    };
    Ok(json_response(&simulators.ledger(after)))
}
