//! The engine: captures replies in the Vault and restores them into later requests.
//!
//! | file | contents |
//! |---|---|
//! | `chain.rs` | digests of the visible conversation |
//! | `chain_cache.rs` | cache of the chains of earlier requests |
//! | `capture.rs` | storing a reply as a turn of the Vault |
//! | `write_behind.rs` | write-behind of turns |
//! | `request.rs` | capture and restore around a program's own HTTP client |
//! | `restore.rs` | matching the turns of a request to captured turns |
//! | `compare.rs` | comparison of a client's turn with the captured one |
//! | `unmask.rs` | detection of thoughts that a client sends back as text |
//! | `splice.rs` | replacement of a client's Items by captured ones |
//! | `ownership.rs` | which tenant received which provider-held object |
//! | `vault.rs` | a view of the Vault for one search |
//! | `turn_cache.rs` | cache of captured turns |

mod capture;
mod chain;
mod chain_cache;
mod compare;
mod ownership;
mod request;
mod restore;
mod splice;
mod turn_cache;
mod unmask;
mod vault;
mod write_behind;

use std::collections::HashMap;
use std::sync::Arc;

use throughline_codec::IssuedSeals;
use throughline_core::{
    Call, Disposition, EncodedRequest, ErasureEpoch, Evidence, Fate, Item, ItemId, Store,
    StoreError, Tenant, TurnId, VaultKey, VaultLookup,
};
use throughline_json::Name;

use crate::call_record::CallLog;
use crate::claim::Claims;
pub use crate::engine::capture::{OwnedTurn, Turn};
use crate::engine::capture::{PreparedTurn, TurnKeys};
pub use crate::engine::chain::{Chain, ChainTurn, VisibleDigests};
use crate::engine::chain_cache::ChainCache;
pub use crate::engine::request::{ReplayError, RestoredRequest};
use crate::engine::turn_cache::{Captured, TurnCache};
use crate::engine::write_behind::PendingWrites;
use crate::finding::Finding;
use crate::objects::OwnedIds;
use crate::turn::ParentTurn;

/// Captures replies in the Vault and restores them into later requests.
pub struct Replay {
    store: Arc<dyn Store>,
    claims: Claims,
    chains: ChainCache,
    turns: TurnCache,
    calls: CallLog,
    /// Cache of object ids whose owner is known.
    owned: OwnedIds,
    /// Set if replies do not wait for their capture.
    pending: Option<PendingWrites>,
}

impl Replay {
    /// Stores turns in this store and issues Claims with these keys.
    pub fn new(store: Arc<dyn Store>, claims: Claims) -> Self {
        let calls = CallLog::new(Arc::clone(&store));
        let (chains, turns) = (ChainCache::default(), TurnCache::default());
        Self { store, claims, chains, turns, calls, owned: OwnedIds::default(), pending: None }
    }

    /// Enables write-behind: a reply no longer waits for its capture. A reply that was already sent
    /// is lost if the process dies before the write.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { pending: Some(PendingWrites::default()), ..self }
    }

    /// Issues and verifies Claims.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Returns the store that holds the Vault.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the records of calls.
    pub fn calls(&self) -> &CallLog {
        &self.calls
    }

    /// Looks up these keys in one snapshot of the store, after pending writes of turns with these
    /// keys.
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

    /// Stores a reply and passes the result to `on_stored`. With write-behind, this returns before
    /// the write.
    pub async fn keep(self: &Arc<Self>, answered: Box<OwnedTurn>, on_stored: impl OnStored) {
        let Some(pending) = self.pending.as_ref().filter(|_| answered.turn().is_complete()) else {
            on_stored(self.capture(&answered.record.tenant, &answered.turn()).await);
            return;
        };
        let room = pending.room(answered.size()).await;
        let marks = TurnKeys::new(&answered.turn());
        let coming = pending.register(&answered.record.tenant, &marks.keys, room);
        let replay = Arc::clone(self);
        tokio::spawn(async move {
            on_stored(replay.capture_as(&answered.record.tenant, &answered.turn(), marks).await);
            coming.complete();
        });
    }

    /// Stores a reply. Truncated and empty replies are not stored.
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
        let whole = PreparedTurn::new(turn, marks);
        let Some(stored) = capture::capture(self, tenant, &whole).await? else { return Ok(None) };
        // The next request probably continues this turn. An outdated epoch is safe: it only causes
        // a recheck.
        let captured = Arc::new(whole.remembered());
        self.turns.insert(tenant, &stored, &captured, turn.conversation.era);
        Ok(Some(stored.id))
    }

    /// Restores what the client of a request has lost. The Call must be decoded from that request
    /// for its target.
    pub async fn restore(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        call: Call,
    ) -> Result<RestoredCall, StoreError> {
        restore::restore(self, tenant, end_user, call).await
    }
}

/// Receives the result of storing a reply.
pub trait OnStored: FnOnce(Result<Option<TurnId>, StoreError>) + Send + 'static {}

impl<F: FnOnce(Result<Option<TurnId>, StoreError>) + Send + 'static> OnStored for F {}

/// A Call with the lost content restored, and a report of the changes.
#[derive(Debug)]
pub struct RestoredCall {
    /// The Call to send. It contains no Claims.
    pub call: Call,
    /// The context for capturing the reply.
    pub conversation: Conversation,
    /// Alterations by the client and turns that can no longer be restored.
    pub findings: Vec<Finding>,
    /// The Seals of the matched turns, exactly as their providers issued them.
    pub issued: CapturedSeals,
    marks: HashMap<ItemId, LostParts>,
    left: Vec<Fate>,
}

/// The Seals of captured turns.
#[derive(Debug, Default)]
pub struct CapturedSeals(Vec<Arc<Captured>>);

impl IssuedSeals for CapturedSeals {
    fn contains(&self, seal: &[u8]) -> bool {
        let mut items = self.0.iter().flat_map(|captured| &captured.items);
        items.any(|item| item.seals.iter().any(|issued| **issued.reveal_to_tenant() == *seal))
    }
}

/// The restored content of one Item.
#[derive(Clone, Debug)]
struct LostParts {
    evidence: Evidence,
    /// Whether the readable content was missing.
    visible: bool,
    /// For each Seal, whether it was missing.
    seals: Vec<bool>,
}

impl RestoredCall {
    /// Records in the Fates of the encoded Call what was restored and what was removed from the
    /// request.
    pub fn account(&self, encoded: &mut EncodedRequest) {
        for fate in &mut encoded.fates {
            let Some(mark) = self.marks.get(&fate.item) else { continue };
            let restored = |did: &mut Disposition| {
                if *did == Disposition::Kept {
                    *did = Disposition::Restored(mark.evidence.clone());
                }
            };
            if mark.visible {
                restored(&mut fate.visible);
            }
            let lost = fate.seals.iter_mut().zip(&mark.seals).filter(|(_, lost)| **lost);
            lost.for_each(|(did, _)| restored(did));
        }
        encoded.fates.extend(self.left.iter().cloned());
    }
}

/// The context of a reply: everything about the request that capturing the reply needs.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The end-user that the caller named.
    pub end_user: Option<Name>,
    /// The visible conversation as the client sent it.
    pub chain: Chain,
    /// The captured turn that the request continues.
    pub parent: Option<ParentTurn>,
    /// The model's last turn if the request ends with it: the reply continues that turn.
    pub open: Vec<Item>,
    /// The epoch of the Vault lookup; the first epoch if there was none.
    pub era: ErasureEpoch,
}

impl Conversation {
    /// Returns the conversation of a Call for which nothing was looked up.
    pub fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Self {
        Self::with_chain(Chain::of(call, tenant, end_user), call, end_user)
    }

    /// Returns the conversation of a Call with this chain.
    fn with_chain(chain: Chain, call: &Call, end_user: Option<&str>) -> Self {
        let last = chain.turns().last().filter(|turn| turn.items.end == call.items.len());
        let open = last.and_then(|turn| call.items.get(turn.items.clone()));
        let (end_user, open) = (end_user.map(Name::from), open.unwrap_or_default().to_vec());
        Self { end_user, chain, parent: None, open, era: ErasureEpoch::default() }
    }
}
