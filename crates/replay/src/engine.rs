//! The replay engine, which captures replies in the Vault and restores lost reasoning into later
//! requests.
//!
//! | file | contents |
//! |---|---|
//! | `chain.rs` | digests of the visible conversation |
//! | `chain_cache.rs` | cache of the chains of earlier requests |
//! | `capture.rs` | storing a reply as a turn of the Vault |
//! | `continuation.rs` | replies that continue an interrupted turn |
//! | `write_behind.rs` | write-behind of turns |
//! | `request.rs` | capture and restore around a program's own HTTP client |
//! | `expand.rs` | replacement of compaction items by the summaries they stand for |
//! | `restore.rs` | matching the turns of a request to captured turns |
//! | `step.rs` | digests of a turn, the turn before it and the caller's Items in between |
//! | `compare.rs` | comparison of a client's turn with the captured one |
//! | `named_ids.rs` | ids of a turn that the caller's other Items name |
//! | `plain.rs` | whether dropped reasoning without a Seal is restored |
//! | `unmask.rs` | detection of thoughts that a client sends back as text |
//! | `splice.rs` | replacement of a client's Items by captured ones |
//! | `issuers.rs` | cache of the issuers of recent reasoning, for outages of the store |
//! | `ownership.rs` | which tenant received which provider-held object |
//! | `vault.rs` | a view of the Vault for one search |
//! | `turn_cache.rs` | cache of captured turns |

mod capture;
mod chain;
mod chain_cache;
mod compare;
mod continuation;
mod expand;
mod issuers;
mod named_ids;
mod ownership;
mod plain;
mod request;
mod restore;
mod splice;
mod step;
mod turn_cache;
mod unmask;
mod vault;
mod write_behind;

use std::collections::HashMap;
use std::sync::Arc;

use throughline_codec::{IssuedSeals, continuation_token};
use throughline_core::{
    Call, Disposition, EncodedRequest, ErasureEpoch, Evidence, Fate, Item, ItemId, Origin, Stage,
    Store, StoreError, Tenant, TurnId, VaultKey, VaultLookup,
};
use throughline_json::Name;

use crate::body_cache::BodyCache;
use crate::call_record::CallLog;
use crate::claim::Claims;
pub use crate::engine::capture::{OwnedTurn, Turn};
use crate::engine::capture::{PreparedTurn, TurnKeys};
pub use crate::engine::chain::{Chain, ChainTurn, VisibleDigests};
use crate::engine::chain_cache::ChainCache;
pub use crate::engine::expand::{CompactedInput, Expansion};
use crate::engine::issuers::IssuerCache;
pub use crate::engine::request::{ReplayError, RestoredRequest};
use crate::engine::step::Predecessor;
use crate::engine::turn_cache::{Captured, TurnCache};
use crate::engine::write_behind::PendingWrites;
use crate::finding::Finding;
use crate::objects::OwnedIds;
use crate::turn::ParentTurn;

/// The default memory limit of all caches in bytes.
pub const DEFAULT_CACHE_SIZE: usize = 160 << 20;

/// Captures replies in the Vault and restores lost reasoning into later requests.
pub struct Replay {
    store: Arc<dyn Store>,
    claims: Claims,
    chains: ChainCache,
    turns: TurnCache,
    issuers: IssuerCache,
    calls: CallLog,
    bodies: BodyCache,
    /// Caches object ids whose owner is known.
    owned: OwnedIds,
    /// The turns being written; `None` unless write-behind is enabled.
    pending: Option<PendingWrites>,
}

impl Replay {
    /// Creates an engine that stores turns in `store` and issues Claims with `claims`.
    pub fn new(store: Arc<dyn Store>, claims: Claims) -> Self {
        Self::with_cache_size(store, claims, DEFAULT_CACHE_SIZE)
    }

    /// Creates an engine like [`Replay::new`]. `cache_size` is the maximum memory of its caches in
    /// bytes. Parsed bodies take up to half of it. The caches of chains, captured turns, issuers
    /// and the bodies of calls take up to an eighth each.
    pub fn with_cache_size(store: Arc<dyn Store>, claims: Claims, cache_size: usize) -> Self {
        let most = cache_size / 8;
        let calls = CallLog::new(Arc::clone(&store), most);
        Self {
            store,
            claims,
            chains: ChainCache::new(most),
            turns: TurnCache::new(most),
            issuers: IssuerCache::new(most),
            calls,
            bodies: BodyCache::new(cache_size / 2),
            owned: OwnedIds::default(),
            pending: None,
        }
    }

    /// Enables write-behind: the reply is sent before its turn is stored. If the process exits
    /// before the turn is stored, the turn is lost.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { pending: Some(PendingWrites::default()), ..self }
    }

    /// Returns the issuer of Claims, which also verifies them.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Returns the store that contains the Vault.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the cache of parsed request bodies.
    pub fn bodies(&self) -> &BodyCache {
        &self.bodies
    }

    /// Returns the log of call records.
    pub fn calls(&self) -> &CallLog {
        &self.calls
    }

    /// Waits for pending writes of turns with these keys, then looks up the keys in one snapshot of
    /// the store.
    pub async fn find(
        &self,
        tenant: &Tenant,
        keys: &[VaultKey],
    ) -> Result<VaultLookup, StoreError> {
        self.settled(tenant, keys).await;
        self.store.find(tenant, keys).await
    }

    /// Waits for pending writes of turns with these keys.
    pub async fn settled(&self, tenant: &Tenant, keys: &[VaultKey]) {
        if let Some(pending) = &self.pending {
            pending.settled(tenant, keys).await;
        }
    }

    /// Waits for all pending writes.
    pub async fn all_settled(&self) {
        if let Some(pending) = &self.pending {
            pending.all_settled().await;
        }
    }

    /// Stores a reply and passes the result to `on_stored`. With write-behind, returns before the
    /// reply is stored.
    pub async fn keep(self: &Arc<Self>, answered: Box<OwnedTurn>, on_stored: impl OnStored) {
        let Some(pending) = self.pending.as_ref().filter(|_| answered.turn().is_complete()) else {
            on_stored(self.capture(&answered.record.tenant, &answered.turn()).await);
            return;
        };
        let permit = pending.reserve(answered.size()).await;
        let marks = Stage::Capture.run(|| TurnKeys::new(&answered.turn()));
        let pending_write = pending.register(&answered.record.tenant, &marks.keys, permit);
        let replay = Arc::clone(self);
        tokio::spawn(async move {
            on_stored(replay.capture_as(&answered.record.tenant, &answered.turn(), marks).await);
            pending_write.complete();
        });
    }

    /// Stores a reply and returns the new turn's id; `None` for truncated and empty replies, which
    /// are not stored.
    pub async fn capture(
        &self,
        tenant: &Tenant,
        turn: &Turn<'_>,
    ) -> Result<Option<TurnId>, StoreError> {
        if !turn.is_complete() {
            return Ok(None);
        }
        self.capture_as(tenant, turn, TurnKeys::new(turn)).await
    }

    async fn capture_as(
        &self,
        tenant: &Tenant,
        turn: &Turn<'_>,
        marks: TurnKeys,
    ) -> Result<Option<TurnId>, StoreError> {
        // The client can return the reply's reasoning even if the store does not accept the turn.
        self.issuers.add(tenant, &turn.reply.items);
        let prepared = Stage::Capture.run(|| PreparedTurn::new(turn, marks));
        let capturing = Stage::Capture.run_async(capture::capture(self, tenant, &prepared));
        let Some(stored) = capturing.await? else {
            return Ok(None);
        };
        // Cache the turn, because the next request probably continues it. An outdated epoch is
        // safe: it only causes another check.
        let captured = Arc::new(prepared.remembered());
        self.turns.insert(tenant, &stored, &captured, turn.conversation.era);
        Ok(Some(stored.id))
    }

    /// Restores the content that the client dropped or altered. `call` must be decoded from the
    /// client's request, and `call.target` must be the endpoint that the request will be sent to.
    pub async fn restore(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        mut call: Call,
    ) -> Result<RestoredCall, StoreError> {
        let expansion = self.expand(tenant, end_user, &mut call).await?;
        let token = continuation_token(&call);
        let mut restored = restore::restore(self, tenant, end_user, call).await?;
        if let Some(token) = token {
            let RestoredCall { call, conversation, .. } = &mut restored;
            let user = (tenant, end_user);
            let is_known = continuation::resume_turn(self, user, call, &token, conversation);
            restored.has_foreign_token = !is_known.await?;
        }
        Ok(restored.with_expansion(expansion))
    }

    /// Returns the Origin of the conversation's newest captured turn that the endpoint of
    /// `call.target` produced, from any account; `None` if no such turn was captured for this
    /// caller. The account of this Origin can read the Seals of that turn.
    pub async fn last_origin(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        call: &Call,
    ) -> Result<Option<Arc<Origin>>, StoreError> {
        restore::last_origin(self, tenant, end_user, call).await
    }

    /// Sets the issuers of the reasoning in a Call without reading the store. Encoding then omits
    /// the reasoning of other endpoints. Returns `false` if this process does not know the issuer
    /// of all reasoning, or if the target cannot read a compaction item; the Call must then not be
    /// sent.
    pub fn set_known_issuers(&self, tenant: &Tenant, call: &mut Call) -> bool {
        self.issuers.set_issuers(tenant, call)
    }

    /// Returns the issuer of the last reasoning in a Call without reading the store; `None` if this
    /// process does not know it.
    pub fn last_known_origin(&self, tenant: &Tenant, call: &Call) -> Option<Arc<Origin>> {
        self.issuers.last_origin(tenant, call)
    }

    /// Replaces the compaction items in a Call with the summaries that they stand for.
    /// [`Replay::restore`] does the same; call `expand` only for a Call that is not restored, or
    /// to inspect the problems first.
    pub async fn expand(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        call: &mut Call,
    ) -> Result<Expansion, StoreError> {
        if !expand::has_compaction(call) {
            return Ok(Expansion::default());
        }
        // Boxed, because few requests contain a compaction item, and the future is large.
        Box::pin(expand::expand(self, tenant, end_user, call)).await
    }

    /// Returns the conversation that a provider's own compaction item replaces; `None` if the item
    /// was not captured for this caller, or if the conversation was erased. `seal` is the item's
    /// encrypted content, which only that provider can read.
    pub async fn compacted_input(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        seal: &[u8],
    ) -> Result<Option<CompactedInput>, StoreError> {
        expand::compacted_input(self, tenant, end_user, seal).await
    }
}

/// A callback for the result of storing a reply.
pub trait OnStored: FnOnce(Result<Option<TurnId>, StoreError>) + Send + 'static {}

impl<F: FnOnce(Result<Option<TurnId>, StoreError>) + Send + 'static> OnStored for F {}

/// A Call with its lost content restored, and a report of the changes.
#[derive(Debug)]
pub struct RestoredCall {
    /// The Call to send. It contains no Claims.
    pub call: Call,
    /// The context for capturing the reply.
    pub conversation: Conversation,
    /// What the client altered, and which turns can no longer be restored.
    pub findings: Vec<Finding>,
    /// The Seals in the matched turns, exactly as their providers issued them.
    pub issued: CapturedSeals,
    /// Whether the Call continues an interrupted reply that was not captured for this caller.
    pub has_foreign_token: bool,
    marks: HashMap<ItemId, LostParts>,
    left: Vec<Fate>,
}

/// The Seals in the captured turns that match a request.
#[derive(Debug, Default)]
pub struct CapturedSeals(Vec<Arc<Captured>>);

impl IssuedSeals for CapturedSeals {
    fn contains(&self, seal: &[u8]) -> bool {
        let mut items = self.0.iter().flat_map(|captured| &captured.items);
        items.any(|item| item.seals.iter().any(|issued| **issued.reveal_to_tenant() == *seal))
    }
}

/// The parts of one Item that were missing and have been restored.
#[derive(Clone, Debug)]
struct LostParts {
    evidence: Evidence,
    /// Whether the readable content was missing.
    visible: bool,
    /// One flag per Seal: whether the Seal was missing.
    seals: Vec<bool>,
}

impl RestoredCall {
    /// Adds the results of an earlier [`Replay::expand`] to the report.
    #[must_use]
    pub fn with_expansion(mut self, mut expansion: Expansion) -> Self {
        expansion.set_parent(&mut self.conversation);
        self.marks.extend(expansion.marks);
        self.left.extend(expansion.left);
        self.findings.extend(expansion.findings);
        self
    }

    /// Updates the Fates of the encoded Call: marks restored content as restored, and adds the
    /// Fates of content that was removed.
    pub fn account(&self, encoded: &mut EncodedRequest) {
        account(&self.marks, &self.left, encoded);
    }
}

impl Expansion {
    /// Updates the Fates of the encoded Call like [`RestoredCall::account`], for a Call that was
    /// not restored.
    pub fn account(&self, encoded: &mut EncodedRequest) {
        account(&self.marks, &self.left, encoded);
    }
}

fn account(marks: &HashMap<ItemId, LostParts>, left: &[Fate], encoded: &mut EncodedRequest) {
    for fate in &mut encoded.fates {
        let Some(mark) = marks.get(&fate.item) else { continue };
        let restored = |disposition: &mut Disposition| {
            if *disposition == Disposition::Kept {
                *disposition = Disposition::Restored(mark.evidence.clone());
            }
        };
        if mark.visible {
            restored(&mut fate.visible);
        }
        let lost = fate.seals.iter_mut().zip(&mark.seals).filter(|(_, lost)| **lost);
        lost.for_each(|(disposition, _)| restored(disposition));
    }
    encoded.fates.extend(left.iter().cloned());
}

/// The information about a request that is needed to capture its reply.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The end user that the caller's request names, if any.
    pub end_user: Option<Name>,
    /// The visible conversation as the client sent it.
    pub chain: Chain,
    /// The captured turn that the request continues; `None` if no turn was found.
    pub parent: Option<ParentTurn>,
    /// What directly precedes the caller's last Items; `None` if the last model turn was not found.
    predecessor: Option<Predecessor>,
    /// The newest captured turn whose request has the prefix that the target's Seals are bound to.
    /// Another endpoint may have produced the turns after it.
    pub signed: Option<ParentTurn>,
    /// The Items of the last model turn, if the request ends with that turn. The reply then
    /// continues the turn.
    pub open: Vec<Item>,
    /// The epoch of the Vault lookup, or the first epoch if there was no lookup.
    pub era: ErasureEpoch,
}

impl Conversation {
    /// Returns the conversation of a Call without a Vault lookup. The parent is therefore `None`.
    pub fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Self {
        Self::with_chain(Chain::of(call, tenant, end_user), call, end_user)
    }

    /// Returns the conversation of a Call whose chain is already computed.
    fn with_chain(chain: Chain, call: &Call, end_user: Option<&str>) -> Self {
        let last = chain.turns().last().filter(|turn| turn.items.end == call.items.len());
        let open = last.and_then(|turn| call.items.get(turn.items.clone()));
        let (end_user, open) = (end_user.map(Name::from), open.unwrap_or_default().to_vec());
        let (parent, predecessor, signed) = (None, None, None);
        let era = ErasureEpoch::default();
        Self { end_user, chain, parent, predecessor, signed, open, era }
    }
}
