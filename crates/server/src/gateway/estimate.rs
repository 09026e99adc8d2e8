//! Reserves the estimated usage of a call from the limits of its key.

use crate::error::GatewayResult;
use crate::gateway::exchange::Exchange;
use crate::routing::RouteTarget;
use crate::telemetry::estimate_usage;

impl Exchange<'_> {
    /// Reserves the estimated tokens and cost of a request with `sent` bytes. The reservation of an
    /// earlier attempt is returned first.
    pub(crate) async fn reserve_budget(
        &self,
        reached: &RouteTarget,
        sent: usize,
    ) -> GatewayResult<()> {
        let is_repeated = self.scope.release_budget();
        let estimate = || estimate_usage(sent, self.body.as_ref());
        let meter = &self.gateway.operations.meter;
        let reserved =
            meter.reserve(&self.caller.admission, reached, estimate, is_repeated).await?;
        self.scope.hold_budget(reserved);
        Ok(())
    }
}
