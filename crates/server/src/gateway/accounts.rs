//! Chooses the accounts of a provider's pool that a request tries.
//!
//! | request | accounts |
//! |---|---|
//! | refers to objects that an account stores | only that account |
//! | continues a conversation | the account that answered last, then the others |
//! | starts a conversation | in the order of the pool |
//!
//! If Seals are bound to the account, another account cannot read them. Such a conversation moves
//! only if the gateway may leave out the Seals, and only if the pool allows it. Each Seal then has
//! the Fate [`OtherAccount`](throughline_core::ElisionReason::OtherAccount). If the account that
//! issued the Seals is unknown, the request is sent only to the account that its start selects.

use std::sync::Arc;
use std::time::Duration;

use throughline_core::{Digest, Request, Role, UpstreamError, UpstreamResponse, Wire};
use tokio::time::{Instant, timeout};

use crate::account_pool::{AccountPool, AccountQuery, conversation_start, rejects_account};
use crate::error::GatewayResult;
use crate::gateway::ReplayMode;
use crate::gateway::exchange::Exchange;
use crate::gateway::objects::{ObjectRef, object_ids};
use crate::gateway::prepare::DecodedRequest;
use crate::gateway::previous::PreviousResponse;
use crate::routing::RouteTarget;
use crate::telemetry::store_timeout;
use throughline_replay::{Family, ObjectId, ObjectKind, account_of};

/// Time limit for reading the account of a conversation from the store.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// What determines the account of a conversation.
struct ConversationAccount {
    /// A digest of the start of the conversation.
    start: Digest,
    /// The index of the account that answered last.
    current: Option<usize>,
    /// Whether the request contains Seals of this wire, so that the account that issued them must
    /// get the request.
    has_seals: bool,
    /// Whether the store knows the account that answered last, even if the pool no longer has it.
    is_recorded: bool,
}

impl Exchange<'_> {
    /// Replaces each target that has a pool with the accounts to try, in order.
    pub(crate) async fn with_accounts(
        &self,
        targets: Vec<RouteTarget>,
        request: &Request,
        previous: &PreviousResponse,
    ) -> GatewayResult<Vec<RouteTarget>> {
        let mut all = Vec::with_capacity(targets.len());
        for target in targets {
            match self.gateway.directory.pool(&target) {
                Some(pool) => {
                    let accounts = self.pool_accounts(&pool, &target, request, previous);
                    all.extend(Box::pin(accounts).await?);
                }
                None => all.push(target),
            }
        }
        Ok(all)
    }

    async fn pool_accounts(
        &self,
        pool: &AccountPool,
        target: &RouteTarget,
        request: &Request,
        previous: &PreviousResponse,
    ) -> GatewayResult<Vec<RouteTarget>> {
        let accounts = target.at_accounts(pool);
        let refs = self.referenced_objects(&target.provider.wire);
        // The gateway can send stored responses and items itself, to any account.
        let is_movable = |object: &ObjectRef| match object.object.kind {
            ObjectKind::Response => matches!(previous, PreviousResponse::From(..)),
            kind => kind == ObjectKind::Item,
        };
        let (movable, fixed): (Vec<_>, Vec<_>) = refs.into_iter().partition(is_movable);
        if !fixed.is_empty() {
            return Ok(vec![self.owner_or_first(&accounts, target, &fixed).await?]);
        }
        let length = request.body.len();
        let finding = self.conversation_account(&accounts, target, request, previous);
        let found =
            self.gateway.operations.heavy.run(&self.caller, length, Box::pin(finding)).await?;
        let ConversationAccount { start, mut current, has_seals, is_recorded } = found;
        if current.is_none() && !movable.is_empty() {
            current = self.owner_of(&accounts, &movable).await?;
        }
        let is_bound = self.target(target).0.profile.bound.account;
        let is_kept = is_bound && target.provider.wire == self.wire;
        let only_first = || pool.ranking(&start).into_iter().take(1).collect();
        let order = match (self.gateway.mode, current) {
            // The gateway does not know which account answered, so it must never change.
            (ReplayMode::Off, _) if is_kept => only_first(),
            // The request is forwarded as received, with all Seals.
            (ReplayMode::Observe, Some(current)) if is_kept => vec![current],
            (ReplayMode::Observe, None) if is_kept && has_seals => only_first(),
            // Seals of an unknown account are sent as received. They must not reach several
            // accounts, of which at most one can read them.
            (ReplayMode::Repair | ReplayMode::Enforce, None)
                if is_kept && has_seals && !is_recorded =>
            {
                only_first()
            }
            (_, current) => {
                let query = AccountQuery { start: &start, model: &target.model, current, is_bound };
                pool.order(query, Instant::now())
            }
        };
        Ok(order.into_iter().filter_map(|index| accounts.get(index).cloned()).collect())
    }

    /// Returns the objects that the body references, if a provider of this wire may store them. All
    /// accounts can refer to objects in Google Cloud Storage.
    fn referenced_objects(&self, wire: &Wire) -> Vec<ObjectRef> {
        let family = Family::of(&self.wire).filter(|family| Family::of(wire) == Some(*family));
        let found = family.zip(self.body.as_ref());
        let mut refs = found.map(|(family, body)| object_ids(family, body)).unwrap_or_default();
        refs.retain(|named| !named.is_in_cloud_storage());
        refs
    }

    /// Returns the start of the conversation, and the account that answered last. While the store
    /// cannot be read, the account is known only if this process cached it.
    async fn conversation_account(
        &self,
        accounts: &[RouteTarget],
        target: &RouteTarget,
        request: &Request,
        previous: &PreviousResponse,
    ) -> ConversationAccount {
        let index_of = |label: &str| accounts.iter().position(|one| *one.account == *label);
        let (own, tenant) = self.target(target);
        let end_user = self.end_user.as_deref();
        if let PreviousResponse::From(stored, _) = previous {
            let start = conversation_start(&tenant, end_user, None);
            let label = stored.account_at(&own);
            let current = label.as_deref().and_then(index_of);
            // The gateway sends the stored conversation, whose Seals have known accounts.
            return ConversationAccount { start, current, has_seals: true, is_recorded: true };
        }
        // The request is decoded again for its account, which reports the errors.
        let Ok(DecodedRequest { call, tenant, .. }) = self.decode(request, target) else {
            return ConversationAccount {
                start: conversation_start(&tenant, end_user, None),
                current: None,
                has_seals: false,
                is_recorded: false,
            };
        };
        let start = conversation_start(&tenant, end_user, Some(&call));
        let is_continued = call.items.iter().any(|item| item.role == Role::Assistant);
        let (replay, operations) = (&self.gateway.replay, &self.gateway.operations);
        let mut origin = None;
        if is_continued && self.gateway.mode != ReplayMode::Off {
            let found = if operations.is_read_failing() {
                Err(store_timeout())
            } else {
                let finding = replay.last_origin(&tenant, end_user, &call);
                let found = timeout(ACCOUNT_TIMEOUT, finding).await;
                let found = found.unwrap_or_else(|_| Err(store_timeout()));
                // While reads fail, `prepare` does not wait for the store again.
                operations.record_cached_read(found.as_ref().err());
                found
            };
            origin = found.unwrap_or_else(|_| replay.last_known_origin(&tenant, &call));
        }
        let current = origin.as_ref().and_then(|origin| index_of(&origin.account));
        let has_seals = call.items.iter().any(|item| !item.seals.is_empty());
        ConversationAccount { start, current, has_seals, is_recorded: origin.is_some() }
    }

    /// Returns the account of a request that is not a model call. Objects stay at the account that
    /// returned them. All new objects of a tenant are created at one account, for all end users, so
    /// that requests can combine them. `is_stored` is set if the request creates or lists objects.
    pub(crate) async fn object_account(
        &self,
        reached: RouteTarget,
        refs: &[ObjectRef],
        is_stored: bool,
    ) -> GatewayResult<RouteTarget> {
        let Some(pool) = self.gateway.directory.pool(&reached) else { return Ok(reached) };
        let accounts = reached.at_accounts(&pool);
        if !refs.is_empty() {
            return self.owner_or_first(&accounts, &reached, refs).await;
        }
        let start = conversation_start(&self.target(&reached).1, None, None);
        let order = if is_stored {
            pool.ranking(&start)
        } else {
            let (model, current) = (&reached.model, None);
            let query = AccountQuery { start: &start, model, current, is_bound: false };
            pool.order(query, Instant::now())
        };
        let first = order.first().and_then(|index| accounts.get(*index));
        Ok(first.cloned().unwrap_or(reached))
    }

    /// Returns the account that owns most of these objects. Objects without a recorded owner, such
    /// as objects that existed before the pool, belong to the first account.
    async fn owner_or_first(
        &self,
        accounts: &[RouteTarget],
        target: &RouteTarget,
        refs: &[ObjectRef],
    ) -> GatewayResult<RouteTarget> {
        let owner = self.owner_of(accounts, refs).await?.unwrap_or_default();
        Ok(accounts.get(owner).unwrap_or(target).clone())
    }

    /// Returns the index of the account that owns most of these objects; `None` if no account owns
    /// any of them.
    async fn owner_of(
        &self,
        accounts: &[RouteTarget],
        refs: &[ObjectRef],
    ) -> GatewayResult<Option<usize>> {
        let objects: Vec<&ObjectId> = refs.iter().map(|named| &named.object).collect();
        let (mut most, mut found) = (0, None);
        for (index, account) in accounts.iter().enumerate() {
            let (target, tenant) = self.target(account);
            let key = account_of(&target.origin);
            let owned = self.gateway.replay.owns(&tenant, key, &objects).await?;
            let count = owned.into_iter().filter(|owned| *owned).count();
            if count > most {
                (most, found) = (count, Some(index));
            }
        }
        Ok(found)
    }

    /// Counts a request as open at its account until the call ends or another account is tried.
    pub(crate) fn open_at_account(&self, reached: &RouteTarget) {
        let open = self.pool_of(reached).map(|(pool, index)| pool.open_request(index));
        self.scope.hold_account(open);
    }

    /// Records what a response shows about the account that received the request.
    pub(crate) fn record_account(
        &self,
        reached: &RouteTarget,
        answer: &Result<UpstreamResponse, UpstreamError>,
    ) {
        if let Some((pool, index)) = self.pool_of(reached)
            && pool.record(index, &reached.model, answer, Instant::now())
        {
            let account = reached.account_name().unwrap_or_default();
            let provider = reached.charged_provider();
            self.gateway.operations.record_cooldown(&provider, account, &reached.model);
        }
    }

    fn pool_of(&self, reached: &RouteTarget) -> Option<(Arc<AccountPool>, usize)> {
        let name = reached.account_name()?;
        let pool = self.gateway.directory.pool(reached)?;
        let index = pool.index_of(name)?;
        Some((pool, index))
    }
}

/// Returns whether the request is tried at `next`, the target after the one that responded with
/// this status.
pub(crate) fn is_for_next(status: u16, reached: &RouteTarget, next: &RouteTarget) -> bool {
    let is_same_pool =
        reached.account_name().is_some() && reached.endpoint_name() == next.endpoint_name();
    matches!(status, 408 | 429 | 500..=599) || is_same_pool && rejects_account(status)
}
