//! Account pools for the calls of agents: the order in which a call tries the accounts, and what
//! the responses show about them.
//!
//! The rules are those of the gateway. The Items of a Call name the account that produced them, so
//! no store is read to find the account of a conversation.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use throughline_core::{
    ACCOUNT_SEPARATOR, Call, Model as _, RestingEndpoint, Role, Tenant, Upstream, UpstreamFuture,
    UpstreamRequest, UpstreamResponse,
};
use throughline_json::Name;
use throughline_provider::EndpointModel;
use throughline_server::{AccountPool, AccountQuery, OpenRequest, Telemetry, conversation_start};
use tokio::time::Instant;

use crate::clock;
use crate::router::ConfigRouter;

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod accounts_tests;

/// Returns the indices of the models that a Call tries, in order. The accounts of a pool take the
/// place of its first account; all other models keep their places.
pub(super) fn account_order(
    router: &ConfigRouter,
    call: &Call,
    models: &[EndpointModel],
) -> Vec<usize> {
    let mut order = Vec::with_capacity(models.len());
    let mut pools: Vec<PoolModels> = Vec::new();
    for (index, model) in models.iter().enumerate() {
        let Some((pool, account)) = router.pool_account(model.endpoint()) else {
            order.push(Place::Model(index));
            continue;
        };
        let name = Name::from(model.target().model());
        let is_same = |known: &&mut PoolModels| {
            Arc::ptr_eq(&known.pool, &pool)
                && known.name == name
                && !known.accounts.iter().any(|(known, _)| *known == account)
        };
        match pools.iter_mut().find(is_same) {
            Some(known) => known.accounts.push((account, index)),
            None => {
                order.push(Place::Pool(pools.len()));
                pools.push(PoolModels { pool, name, accounts: vec![(account, index)] });
            }
        }
    }
    let indices = order.into_iter().flat_map(|place| match place {
        Place::Model(index) => vec![index],
        Place::Pool(index) => {
            pools.get(index).map(|pool| pool.order(call, models)).unwrap_or_default()
        }
    });
    indices.collect()
}

/// A place in the order.
enum Place {
    Model(usize),
    /// All models of a pool.
    Pool(usize),
}

/// The models at the accounts of a pool.
struct PoolModels {
    pool: Arc<AccountPool>,
    /// The provider's name for the model.
    name: Name,
    /// The index of each account in the pool, and of its model.
    accounts: Vec<(usize, usize)>,
}

impl PoolModels {
    /// Returns the indices of the models to try, in order.
    fn order(&self, call: &Call, models: &[EndpointModel]) -> Vec<usize> {
        let model_at = |account: usize| {
            let found = self.accounts.iter().find(|(known, _)| *known == account);
            found.map(|(_, index)| *index)
        };
        // A Call does not name its tenant, so equal conversations of all tenants start at the same
        // account.
        let start = conversation_start(&Tenant::from(""), None, Some(call));
        let is_bound = self.accounts.first().and_then(|(_, index)| models.get(*index));
        let is_bound = is_bound.is_some_and(|model| model.target().profile.bound.account);
        let current = self.current(call, models);
        let query = AccountQuery { start: &start, model: &self.name, current, is_bound };
        let order = self.pool.order(query, Instant::from_std(clock::instant()));
        order.into_iter().filter_map(model_at).collect()
    }

    /// Returns the account that answered the conversation last.
    fn current(&self, call: &Call, models: &[EndpointModel]) -> Option<usize> {
        let replies = call.items.iter().rev().filter(|item| item.role == Role::Assistant);
        let mut origins = replies.filter_map(|item| item.origin.as_ref());
        origins.find_map(|origin| {
            let found = self.accounts.iter().find(|(_, index)| {
                let model = models.get(*index);
                model.is_some_and(|model| model.target().origin.account == origin.account)
            });
            found.map(|(account, _)| *account)
        })
    }
}

/// Sends the requests of agents, counts the open requests of each account, and records how the
/// accounts respond.
pub(super) struct PooledUpstream {
    upstream: Arc<dyn Upstream>,
    router: Arc<ConfigRouter>,
    /// Counts and logs cooldowns; `None` outside of a server.
    telemetry: Option<Arc<Telemetry>>,
}

impl PooledUpstream {
    pub(super) fn new(
        upstream: Arc<dyn Upstream>,
        router: Arc<ConfigRouter>,
        telemetry: Option<Arc<Telemetry>>,
    ) -> Self {
        Self { upstream, router, telemetry }
    }
}

impl Upstream for PooledUpstream {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        let Some((pool, account)) = self.router.pool_account(&outgoing.endpoint) else {
            return self.upstream.send(outgoing);
        };
        let endpoint = outgoing.endpoint.clone();
        let model = outgoing.model.clone().unwrap_or_default();
        Box::pin(async move {
            let open = pool.open_request(account);
            let answer = self.upstream.send(outgoing).await;
            let now = Instant::from_std(clock::instant());
            if pool.record(account, &model, &answer, now)
                && let Some(telemetry) = &self.telemetry
                && let Some((provider, name)) = endpoint.split_once(ACCOUNT_SEPARATOR)
            {
                telemetry.record_cooldown(&Name::from(provider), name, &model);
            }
            answer.map(|answer| hold(answer, open))
        })
    }

    fn retries(&self) -> u64 {
        self.upstream.retries()
    }

    fn resting(&self) -> Vec<RestingEndpoint> {
        self.upstream.resting()
    }
}

/// Counts the request as open until the body is dropped.
fn hold(answer: UpstreamResponse, open: OpenRequest) -> UpstreamResponse {
    let UpstreamResponse { status, headers, body } = answer;
    let body = stream::unfold((body, open), |(mut body, open)| async move {
        let chunk = body.next().await?;
        Some((chunk, (body, open)))
    });
    UpstreamResponse { status, headers, body: Box::pin(body) }
}
