//! Replay made right: what models answered is kept, and put back where a client has lost it.
//!
//! # Capture
//! Each answer is a turn of the Vault: its Items as they came, the turn before it, and the keys by which it is found again:
//! its own name, which a [claim](Claims) carries; the ids and Seals that the provider gave; the [`Chain`] of the visible conversation
//! up to it. An answer whose stream was cut is no turn.
//!
//! # Restore
//! The turns of a request are looked for, the last one first, each by the best evidence that there is:
//!
//! 1. our claim;
//! 2. an id or a Seal that names exactly one captured turn of the tenant, with equal calls;
//! 3. the complete chain: system prompt and every visible turn. Of turns that look alike the newest wins, and the others are counted.
//!
//! From a turn that was found, its ancestry is followed: so the branches of a conversation never mix. A turn must belong to the same
//! end-user, whatever the evidence. A turn that the client sent intact stays as it came; one that it did not is replaced whole by what
//! was issued, or with its text as the client edited it, where that is legal. Anything weaker restores nothing.
//!
//! | file | holds |
//! |---|---|
//! | `chain.rs` | digests of the visible conversation |
//! | `chains.rs` | chains of requests that were read before |
//! | `claim.rs` | handles that only we can make |
//! | `capture.rs` | an answer becomes a turn of the Vault |
//! | `behind.rs` | turns that are being kept while their answers have gone out |
//! | `restore.rs` | which turn of the Vault is which turn of a request |
//! | `judge.rs` | what a client lost or altered of a turn |
//! | `unmask.rs` | thoughts that a client sends back as text |
//! | `splice.rs` | captured Items take the place of what came |
//! | `vault.rs` | the Vault as one search sees it |
//! | `memo.rs` | captured turns that were read before |

mod behind;
mod capture;
mod chain;
mod chains;
mod claim;
mod judge;
mod memo;
mod restore;
mod splice;
mod unmask;
mod vault;

use std::collections::HashMap;
use std::sync::Arc;

use throughline_codec::IssuedSeals;
use throughline_core::{
    Call, Did, Encoded, Era, Evidence, Fate, Item, ItemId, LogId, Name, NodeId, Sight, Store,
    StoreError, Tenant, VaultKey, Why,
};

use crate::objects::OwnedIds;
use crate::replay::behind::Behind;
pub use crate::replay::capture::Turn;
pub(crate) use crate::replay::capture::{Answered, TURN};
use crate::replay::capture::{Marks, Whole};
pub use crate::replay::chain::{Chain, ChainTurn, Visible};
use crate::replay::chains::Chains;
pub use crate::replay::claim::{Claims, NoRandomness};
use crate::replay::memo::{Captured, Memo};
use crate::story::Stories;

/// The Vault, and what is needed to use it.
pub struct Replay {
    store: Arc<dyn Store>,
    claims: Claims,
    chains: Chains,
    memo: Memo,
    stories: Stories,
    /// Ids of objects that are known to be owned.
    pub(crate) owned: OwnedIds,
    /// Where answers do not wait until they are kept.
    behind: Option<Behind>,
}

impl Replay {
    /// Keeps turns in that store, and gives claims to them.
    pub fn new(store: Arc<dyn Store>, claims: Claims) -> Self {
        let stories = Stories::new(Arc::clone(&store));
        let (chains, memo) = (Chains::default(), Memo::default());
        Self { store, claims, chains, memo, stories, owned: OwnedIds::default(), behind: None }
    }

    /// The same, but no answer waits until it is kept: one that is out may be lost if the process ends in that moment.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { behind: Some(Behind::default()), ..self }
    }

    /// What makes and reads claims.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Where everything is.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The stories of calls.
    pub(crate) fn stories(&self) -> &Stories {
        &self.stories
    }

    /// What these keys find, all of it at one moment. Turns that are being kept are waited for.
    pub(crate) async fn find(
        &self,
        tenant: &Tenant,
        keys: &[VaultKey],
    ) -> Result<Sight, StoreError> {
        self.settled(tenant, keys).await;
        self.store.find(tenant, keys).await
    }

    /// Waits for turns with these keys that are being kept.
    pub(crate) async fn settled(&self, tenant: &Tenant, keys: &[VaultKey]) {
        if let Some(behind) = &self.behind {
            behind.settled(tenant, keys).await;
        }
    }

    /// Waits for all turns that are being kept.
    pub(crate) async fn all_settled(&self) {
        if let Some(behind) = &self.behind {
            behind.all_settled().await;
        }
    }

    /// Keeps an answer and tells what came of it: before this is over or, where answers do not wait for it, soon after.
    pub(crate) async fn keep(self: &Arc<Self>, answered: Box<Answered>, tell: impl Tell) {
        let Some(behind) = self.behind.as_ref().filter(|_| answered.turn().is_whole()) else {
            tell(self.capture(&answered.story.tenant, &answered.turn()).await);
            return;
        };
        let room = behind.room(answered.size()).await;
        let marks = Marks::of(&answered.turn());
        let coming = behind.begin(&answered.story.tenant, &marks.keys, room);
        let replay = Arc::clone(self);
        tokio::spawn(async move {
            tell(replay.capture_as(&answered.story.tenant, &answered.turn(), marks).await);
            drop(coming);
        });
    }

    /// Keeps an answer. Nothing is kept of one that was cut, or that says nothing.
    pub async fn capture(
        &self,
        tenant: &Tenant,
        turn: &Turn<'_>,
    ) -> Result<Option<NodeId>, StoreError> {
        if !turn.is_whole() {
            return Ok(None);
        }
        self.capture_as(tenant, turn, Marks::of(turn)).await
    }

    async fn capture_as(
        &self,
        tenant: &Tenant,
        turn: &Turn<'_>,
        marks: Marks,
    ) -> Result<Option<NodeId>, StoreError> {
        let whole = Whole::of(turn, marks);
        let Some(kept) = capture::capture(self, tenant, &whole).await? else { return Ok(None) };
        // The next request most likely goes on from here. That the era is one from before makes it only the surer.
        let captured = Arc::new(whole.remembered());
        self.memo.put(tenant, &kept, &captured, turn.conversation.era);
        Ok(Some(kept.id))
    }

    /// Puts back what the client of a request has lost. The Call was read from that request, for its target.
    pub async fn restore(
        &self,
        tenant: &Tenant,
        end_user: Option<&str>,
        call: Call,
    ) -> Result<Restored, StoreError> {
        restore::restore(self, tenant, end_user, call).await
    }
}

/// Told what came of keeping an answer.
pub(crate) trait Tell: FnOnce(Result<Option<NodeId>, StoreError>) + Send + 'static {}

impl<F: FnOnce(Result<Option<NodeId>, StoreError>) + Send + 'static> Tell for F {}

/// A Call with what its client had lost, and an account of it.
#[derive(Debug)]
pub struct Restored {
    /// The Call to send. None of our claims is in it.
    pub call: Call,
    /// What the answer to it is kept with.
    pub conversation: Conversation,
    /// What its client did to what it was given, and what can no longer be put back.
    pub findings: Vec<Finding>,
    /// The Seals of the captured turns that were found. Their providers issued them, bit for bit.
    pub(crate) issued: CapturedSeals,
    marks: HashMap<ItemId, Mark>,
    left: Vec<Fate>,
}

/// The Seals of captured turns.
#[derive(Debug, Default)]
pub(crate) struct CapturedSeals(Vec<Arc<Captured>>);

impl IssuedSeals for CapturedSeals {
    fn contains(&self, seal: &[u8]) -> bool {
        let mut items = self.0.iter().flat_map(|captured| &captured.items);
        items.any(|item| item.seals.iter().any(|issued| **issued.reveal_to_tenant() == *seal))
    }
}

/// What was found again of one Item.
#[derive(Clone, Debug)]
struct Mark {
    evidence: Evidence,
    /// Whether what can be read was lost.
    visible: bool,
    /// Which of its Seals were lost.
    seals: Vec<bool>,
}

impl Restored {
    /// Tells in the Fates of the encoded Call what was restored, and what of the client's was left out for it.
    pub fn account(&self, encoded: &mut Encoded) {
        for fate in &mut encoded.fates {
            let Some(mark) = self.marks.get(&fate.item) else { continue };
            let restored = |did: &mut Did| {
                if *did == Did::Kept {
                    *did = Did::Restored(mark.evidence.clone());
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

/// Where an answer belongs: everything that capturing it needs to know of its request.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The caller's end-user.
    pub end_user: Option<Name>,
    /// The visible conversation, as the client showed it.
    pub chain: Chain,
    /// The captured turn that it goes on from.
    pub parent: Option<Parent>,
    /// The model's last turn, where nobody spoke since: the answer goes on with it.
    pub open: Vec<Item>,
    /// The era in which its turns were looked for; the first one, where none was.
    pub era: Era,
}

impl Conversation {
    /// The conversation of a Call of which nothing was looked for.
    pub fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Self {
        Self::behind(Chain::of(call, tenant, end_user), call, end_user)
    }

    /// The conversation of a Call of that chain.
    fn behind(chain: Chain, call: &Call, end_user: Option<&str>) -> Self {
        let last = chain.turns().last().filter(|turn| turn.items.end == call.items.len());
        let open = last.and_then(|turn| call.items.get(turn.items.clone())).unwrap_or_default();
        let open = open.to_vec();
        Self { end_user: end_user.map(Name::from), chain, parent: None, open, era: Era::default() }
    }
}

/// The captured turn that a request goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The turn.
    pub node: NodeId,
    /// Where its contents are.
    pub log: LogId,
    /// Its last record.
    pub last: u64,
}

/// Something about a turn of a request that its caller should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The Item of the request, or the first one of the turn.
    pub item: ItemId,
    /// What it is.
    pub problem: Problem,
}

/// What a client did to what it was given, or why it cannot be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A Seal, or the thought that it seals, is not what was issued in this turn.
    Altered,
    /// A claim is forged, cut, or somebody else's.
    ForeignClaim,
    /// The text was edited where it cannot be, so nothing of the turn was restored.
    Edited,
    /// The turn was captured and is no more: forgotten or expired.
    Gone(Why),
    /// The text is a thought that was captured in this turn, so it is not sent as text.
    ThoughtAsText,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Altered => f.write_str("this is not what was issued in this turn"),
            Problem::ForeignClaim => {
                f.write_str("this claim is not one that this caller was given")
            }
            Problem::Edited => {
                f.write_str("the text was edited where its seals forbid it; nothing was restored")
            }
            Problem::Gone(why) => write!(f, "the turn cannot be restored: {why}"),
            Problem::ThoughtAsText => f.write_str(
                "this text is a thought of this conversation; it was removed, because a thought is not sent as text",
            ),
        }
    }
}
