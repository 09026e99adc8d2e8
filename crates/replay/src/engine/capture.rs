//! Stores a reply as a Vault turn, in one commit.

use std::collections::HashSet;

use throughline_codec::continuation_seal;
use throughline_core::{
    Append, Batch, Digest, Item, LogOpening, NewRecord, NewVaultTurn, Receipt, Reply, StopReason,
    StoreError, Tenant, TurnId, VaultKey, VaultTurn, Wire, WrittenRange, kind, store_items,
};
use throughline_json::{self as json, Json, Name};

use crate::call_record::{BaseLocation, CallRecord, DeltaBase};
use crate::engine::chain::VisibleDigests;
use crate::engine::turn_cache::Captured;
use crate::engine::{Conversation, Replay, chain, compare, step};
use crate::objects::{self, ObjectKind};
use crate::turn::{CALL_RECORD, TURN, conversation_log, response_log};

/// A reply to store as a turn.
#[derive(Clone, Debug)]
pub struct Turn<'a> {
    /// The turn's id, from [`Claims::new_turn_id`](crate::Claims::new_turn_id).
    pub node: TurnId,
    /// The conversation that the reply belongs to, from [`RestoredCall`](crate::RestoredCall).
    pub conversation: &'a Conversation,
    /// The reply as the provider sent it.
    pub reply: &'a Reply,
    /// [`EncodedRequest::prefix`](throughline_core::EncodedRequest::prefix) of the request as it
    /// was sent.
    pub prefix: Option<Digest>,
    /// Other ids that the client received for the reply, besides [Claims](crate::Claims).
    pub ids: &'a [Name],
    /// The call record to store with the turn, if any.
    pub record: Option<&'a CallRecord>,
    /// The response as sent to the caller, if the caller may retrieve it later.
    pub response: Option<&'a Json>,
}

impl Turn<'_> {
    /// Whether the reply can be captured: neither truncated nor empty.
    pub fn is_complete(&self) -> bool {
        self.reply.stop != StopReason::Cut && !self.reply.items.is_empty()
    }
}

/// The owned form of a [`Turn`], for storing a reply in another task.
pub struct OwnedTurn {
    /// The turn's id, from [`Claims::new_turn_id`](crate::Claims::new_turn_id).
    pub node: TurnId,
    /// The call record to store with the turn.
    pub record: CallRecord,
    /// The conversation that the reply belongs to.
    pub conversation: Conversation,
    /// The reply as the provider sent it.
    pub reply: Reply,
    /// The digest of the request prefix, if the model binds its Seals to the prefix.
    pub prefix: Option<Digest>,
    /// The response as sent to the caller, if the caller may retrieve it later.
    pub response: Option<Json>,
}

impl OwnedTurn {
    /// Returns the borrowed form, to be passed to [`Replay::capture`].
    pub fn turn(&self) -> Turn<'_> {
        Turn {
            node: self.node.clone(),
            conversation: &self.conversation,
            reply: &self.reply,
            prefix: self.prefix,
            ids: &[],
            record: Some(&self.record),
            response: self.response.as_ref(),
        }
    }

    /// Returns the approximate memory size in bytes, which counts towards the limit for pending
    /// writes.
    pub fn size(&self) -> usize {
        let items = self.reply.items.iter().chain(&self.conversation.open);
        self.record.texts.size() + items.map(size_of_item).sum::<usize>()
    }
}

/// A turn with its keys and Items, which are computed once even if the commit is retried.
pub(super) struct PreparedTurn<'t> {
    turn: &'t Turn<'t>,
    marks: TurnKeys,
    /// The Items of the model turn that the reply continues, if any, followed by the reply's Items.
    items: Vec<Item>,
}

impl<'t> PreparedTurn<'t> {
    pub(super) fn new(turn: &'t Turn<'t>, marks: TurnKeys) -> Self {
        let open = &turn.conversation.open;
        let mut items = Vec::with_capacity(open.len() + turn.reply.items.len());
        items.extend_from_slice(open);
        let next = items.last().map_or(0, |item: &Item| item.place.message + 1);
        items.extend(turn.reply.items.iter().cloned().map(|mut item| {
            item.place.message += next;
            item
        }));
        Self { turn, marks, items }
    }

    /// Returns the turn as a read from the Vault would return it.
    pub(super) fn remembered(self) -> Captured {
        let Self { turn, marks, items } = self;
        Captured {
            end_user: turn.conversation.end_user.clone(),
            number: turns_before(turn),
            visible: marks.visible.unwrap_or_else(|| VisibleDigests::of(&items)),
            size: items.iter().map(size_of_item).sum(),
            items,
        }
    }
}

/// Stores a reply. Starts a branch if another reply to the same request was stored first.
pub(super) async fn capture(
    replay: &Replay,
    tenant: &Tenant,
    prepared: &PreparedTurn<'_>,
) -> Result<Option<VaultTurn>, StoreError> {
    let turn = prepared.turn;
    let own_log = conversation_log(&turn.node);
    let begin = || Append::new(own_log.clone()).opening(LogOpening::thread());
    let (first, location) = match &turn.conversation.parent {
        Some(parent) => {
            (Append::new(parent.log.clone()).expect_last(parent.last), BaseLocation::Here)
        }
        None => (begin(), BaseLocation::Nowhere),
    };
    let mut outcome = commit(replay, tenant, prepared, first, location).await;
    if let (Err(StoreError::Conflict { .. }), Some(parent)) = (&outcome, &turn.conversation.parent)
    {
        // Another reply to the same request was stored first, so this reply becomes a branch.
        let fork = LogOpening::fork(parent.log.clone(), parent.last);
        let fork = Append::new(own_log.clone()).opening(fork);
        outcome = commit(replay, tenant, prepared, fork, BaseLocation::Here).await;
    }
    if let Err(StoreError::NotFound { .. } | StoreError::Invalid(_)) = &outcome
        && turn.conversation.parent.is_some()
    {
        // The parent was erased in the meantime, so the reply starts a new conversation.
        outcome = commit(replay, tenant, prepared, begin(), BaseLocation::Nowhere).await;
    }
    outcome
        .map(|receipt| receipt.written.into_iter().next().map(|written| stored_turn(turn, written)))
}

async fn commit(
    replay: &Replay,
    tenant: &Tenant,
    prepared: &PreparedTurn<'_>,
    append: Append,
    location: BaseLocation<'_>,
) -> Result<Receipt, StoreError> {
    let turn = prepared.turn;
    let (batch, tail) = batch(tenant, prepared, append, location);
    let receipt = replay.store.commit(batch).await?;
    if let (Some(record), Some(tail), Some(written)) = (turn.record, tail, receipt.written.first())
    {
        replay.calls.remember(&turn.node, record, tail, written.last, turn.conversation.era);
    }
    Ok(receipt)
}

fn batch(
    tenant: &Tenant,
    PreparedTurn { turn, marks, items }: &PreparedTurn<'_>,
    mut append: Append,
    location: BaseLocation<'_>,
) -> (Batch, Option<DeltaBase>) {
    let log = append.log.clone();
    let header = json::object(|out| {
        out.number("v", 1).put("turn", turns_before(turn)).string("call", &turn.node.0);
        out.maybe("user", turn.conversation.end_user.as_ref());
        out.maybe(CALL_RECORD, turn.record.map(CallRecord::account).as_ref());
    });
    append.records.push(NewRecord::new(TURN, header.bytes().clone()));
    // Each Item has its own record, so that it can be forgotten without the others.
    for stored in store_items(items) {
        append.records.push(NewRecord::new(kind::ITEM, stored.json.bytes().clone()));
    }
    // The bodies come last, because a continuation finds them in the turn's last record.
    let (bodies, tail) = turn.record.map(|record| record.bodies_record(&log, location)).unzip();
    append.records.extend(bodies);
    let mut batch = Batch::new(tenant.clone()).append(append);
    if let Some(response) = turn.response {
        let run = Append::new(response_log(&turn.node)).opening(LogOpening::run(log.clone()));
        batch = batch.append(run.record(NewRecord::copy(&log, response.bytes().clone())));
    }
    batch.vault.push(NewVaultTurn {
        id: turn.node.clone(),
        parent: turn.conversation.parent.as_ref().map(|parent| parent.node.clone()),
        keys: marks.keys.clone(),
        log,
        prefix: turn.prefix,
    });
    (batch, tail)
}

/// Returns the turn as a Vault lookup would return it.
fn stored_turn(turn: &Turn<'_>, written: WrittenRange) -> VaultTurn {
    VaultTurn {
        id: turn.node.clone(),
        parent: turn.conversation.parent.as_ref().map(|parent| parent.node.clone()),
        log: written.log,
        first: written.first,
        last: written.last,
        prefix: turn.prefix,
        gone: None,
    }
}

fn size_of_item(item: &Item) -> usize {
    item.native.as_ref().map_or(0, |native| native.json.bytes().len()) + size_of::<Item>()
}

/// Returns the number of visible turns before this one.
fn turns_before(turn: &Turn<'_>) -> usize {
    let chain = &turn.conversation.chain;
    chain.visible_turns().saturating_sub(usize::from(chain.ends_with_model_turn()))
}

/// The lookup keys and visible content of a turn.
pub(super) struct TurnKeys {
    pub(super) keys: Vec<VaultKey>,
    /// Digests of the visible content; `None` if they must be computed from the Items.
    visible: Option<VisibleDigests>,
}

impl TurnKeys {
    pub(super) fn new(turn: &Turn<'_>) -> Self {
        // The turn's own id is a key, by which Claims and later turns find it.
        let mut keys = vec![VaultKey::Claim(turn.node.0.clone())];
        let names_thread = turn.record.is_some_and(|record| record.names_thread);
        // Only Responses API requests and message threads refer to a whole reply by its id.
        let objects = objects::ids_of_reply(turn.reply, names_thread);
        let is_named = turn.reply.origin.wire == Wire::OPENAI_RESPONSES
            || objects.iter().any(|object| object.kind == ObjectKind::Thread);
        let reply_id = turn.reply.id.iter().filter(|_| is_named).cloned();
        let ids = reply_id.chain(ids_in(&turn.reply.items));
        let token = continuation_seal(turn.reply);
        let ids = ids.chain(token.map(|token| seal_id(token.reveal_to_tenant())));
        keys.extend(ids.chain(turn.ids.iter().cloned()).map(VaultKey::Id));
        keys.extend(objects::owner_keys(&turn.reply.origin, &objects));
        let chain = &turn.conversation.chain;
        let after = chain.turn_after(&turn.reply.items);
        if let Some((digest, visible)) = after {
            keys.push(VaultKey::Chain(digest));
            keys.push(VaultKey::Chain(chain::provider_digest(&digest, &turn.reply.origin)));
            // A turn with unique call ids has a step too, because clients can rewrite the ids.
            keys.extend(step::step_of(turn.conversation, &visible).map(VaultKey::Chain));
        }
        let mut seen = HashSet::with_capacity(keys.len());
        keys.retain(|key| seen.insert(key.clone()));
        // A reply that continues a turn also shows the earlier part of that turn.
        let is_continuation = chain.ends_with_model_turn() || !turn.conversation.open.is_empty();
        let visible = after.map(|(_, visible)| visible).filter(|_| !is_continuation);
        Self { keys, visible }
    }
}

/// Returns the values that can identify a turn within a tenant: Seals, part ids and call ids. Ids
/// that are only counters are omitted.
pub(super) fn ids_in(items: &[Item]) -> Vec<Name> {
    let mut ids = Vec::new();
    for item in items {
        let call = item.call();
        let tool = call.map_or("", |call| &*call.name);
        let call = call.and_then(|call| call.wire_id.as_ref());
        let part = item.native.as_ref().and_then(|native| native.id.as_ref());
        let candidates = call.into_iter().chain(part);
        ids.extend(candidates.filter(|id| is_globally_unique_id(id, tool)).cloned());
        ids.extend(item.seals.iter().map(|seal| seal_id(seal.reveal_to_tenant())));
    }
    ids
}

/// Returns the value by which a Seal identifies its turn.
pub(super) fn seal_id(seal: &[u8]) -> Name {
    let digest = compare::with_normalized_base64(seal, blake3::hash);
    Name::from(format!("seal:{}", digest.to_hex()))
}

/// Whether an id can be globally unique. Ids such as `call_0` and `functions.weather:0` are
/// counters that restart with every reply.
pub(super) fn is_globally_unique_id(id: &str, tool: &str) -> bool {
    let rest = if tool.is_empty() { id.to_owned() } else { id.replace(tool, "/") };
    rest.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        word.len() >= 8 && digits > 0 && digits < word.len()
    })
}
