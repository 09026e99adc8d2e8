//! The trace of a run: the document that sinks get. The gateway knows no sink, so who makes it is a port.

use throughline_core::{Boxed, Json, LogId, RedactionPolicy, Tenant};

use crate::gateway::Answered;
use crate::letta::runs::is_run;
use crate::letta::{Asked, Denied, Told};

/// Who makes the trace of a run.
pub trait RunTraces: Send + Sync {
    /// The trace as one document, as far as the run has come, without what the policy leaves out.
    fn trace<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: &'a LogId,
        policy: RedactionPolicy,
    ) -> Boxed<'a, Json>;
}

/// The trace of the run that the path names.
pub(crate) async fn one(asked: &Asked<'_>) -> Told {
    let (tenant, run) = (&asked.caller.tenant, LogId(asked.id(0)));
    let head = asked.api.store().log(tenant, &run).await?.filter(is_run);
    head.ok_or_else(|| Denied::missing("run", &run.0))?;
    let traces = asked.api.traces.as_deref();
    let traces = traces.ok_or_else(|| Denied::new(501, "nobody makes traces here"))?;
    Ok(Answered::json(200, &traces.trace(tenant, &run, asked.policy()).await?))
}
