//! The gateway route that returns the record of one call.

use throughline_core::{Tenant, TurnId, VaultKey};
use throughline_json::Name;

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::exchange::Exchange;
use crate::redact::redact_json;
use crate::response::GatewayResponse;

impl Exchange<'_> {
    /// Returns one of the tenant's call records, redacted if a policy is configured.
    pub(crate) async fn call_record(&self, call: Name) -> GatewayResult {
        let node = TurnId(call);
        for tenant in self.readable_tenants() {
            let replay = &self.gateway.replay;
            replay.settled(&tenant, &[VaultKey::Claim(node.0.clone())]).await;
            if let Some(found) = replay.calls().find(&tenant, &node).await? {
                let record = throughline_replay::call_json(&node, &found);
                let policy = self.gateway.redaction.as_deref();
                let redacted = policy.map(|policy| redact_json(policy, &record));
                return Ok(GatewayResponse::json(200, &redacted.unwrap_or(record)));
            }
        }
        Err(GatewayError::new(404, format!("there is no call {node}")))
    }

    /// Returns the tenants whose calls the caller may read.
    ///
    /// A gateway key has one tenant. Calls made without a gateway key, but with the caller's own
    /// provider key, belong to a tenant derived from the provider key.
    pub(crate) fn readable_tenants(&self) -> Vec<Tenant> {
        let claims = self.gateway.replay.claims();
        let own = self.caller.credential.as_ref().filter(|_| !self.caller.admission.is_key());
        let own = own.map(|key| Tenant(claims.caller_tenant(key.reveal())));
        std::iter::once(self.caller.tenant.clone()).chain(own).collect()
    }
}
