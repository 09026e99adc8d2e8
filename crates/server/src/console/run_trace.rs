//! Serves the trace of a run, as sinks receive it. The gateway has no sinks, so a port creates the
//! trace.

use throughline_core::LogId;

use crate::api::{ApiError, ApiRequest, ApiResult};
use crate::letta::runs::is_run;
use crate::response::GatewayResponse;

/// Returns the trace of the run that the path names.
pub(crate) async fn one(asked: &ApiRequest<'_>) -> ApiResult {
    let (tenant, run) = (&asked.caller.tenant, LogId(asked.id(0)));
    let head = asked.api.store().log(tenant, &run).await?.filter(is_run);
    head.ok_or_else(|| ApiError::not_found("run", &run.0))?;
    let traces = asked.api.traces.as_deref();
    let traces = traces.ok_or_else(|| ApiError::new(501, "this server creates no traces"))?;
    Ok(GatewayResponse::json(200, &traces.trace(tenant, &run, asked.policy()).await?))
}
