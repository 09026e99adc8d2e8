//! What a caller asks of the gateway itself: the story of one of its calls.

use throughline_core::{Name, NodeId, StoreError, Tenant, VaultKey};

use crate::exchange::{Exchange, Problem};
use crate::gateway::Answered;
use crate::letta::redact;
use crate::operations::RETRY_STORE;
use crate::story;

impl Exchange<'_> {
    /// The record of one call of the caller's tenant, redacted where the configuration has a policy.
    pub(crate) async fn story(&self, call: Name) -> Result<Answered, Problem> {
        let node = NodeId(call);
        for tenant in self.tenants() {
            let replay = &self.gateway.replay;
            replay.settled(&tenant, &[VaultKey::Claim(node.0.clone())]).await;
            let found = replay.stories().find(&tenant, &node).await;
            if let Some(found) = found.map_err(|error| unreadable(&error))? {
                let told = story::tell(&node, &found);
                let policy = self.gateway.agents.as_ref().and_then(|api| api.policy.as_deref());
                return Ok(Answered::json(200, &redact::shown(policy, told)));
            }
        }
        Err(Problem::new(404, format!("there is no call {node}")))
    }

    /// The tenants whose calls the caller may read. A gateway key has one tenant. Without a key, the calls that the caller made
    /// with its own provider key belong to a tenant of that key.
    pub(crate) fn tenants(&self) -> Vec<Tenant> {
        let claims = self.gateway.replay.claims();
        let own = self.caller.credential.as_ref().filter(|_| !self.caller.admission.is_key());
        let own = own.map(|key| Tenant(claims.name_of_caller(key.reveal())));
        std::iter::once(self.caller.tenant.clone()).chain(own).collect()
    }
}

pub(crate) fn unreadable(error: &StoreError) -> Problem {
    let problem = Problem::new(503, format!("the store cannot be read: {error}"));
    Problem { is_of_store: true, ..problem.after(RETRY_STORE) }
}
