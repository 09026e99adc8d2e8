//! An answer becomes a turn of the Vault, in one commit.

use std::collections::HashSet;

use throughline_core::{
    Append, Batch, Digest, Item, Json, LogId, LogOpening, Name, NewRecord, NodeId, Receipt, Reply,
    Stop, StoreError, Tenant, VaultKey, VaultNode, VaultTurn, Wire, Written, json, kind,
    store_items,
};

use crate::objects;
use crate::replay::chain::Visible;
use crate::replay::memo::Captured;
use crate::replay::{Conversation, Replay, chain, judge};
use crate::stored;
use crate::story::{GoesOn, STORY, Story, Tail};

/// The kind of the record that says whose turn it is, and tells the story of its call.
pub(crate) const TURN: &str = "turn";

/// An answer that is to be kept.
#[derive(Clone, Debug)]
pub struct Turn<'a> {
    /// Its name, from [`Claims::fresh_node`](crate::Claims::fresh_node).
    pub node: NodeId,
    /// The conversation that it belongs to, from [`Restored`](crate::Restored).
    pub conversation: &'a Conversation,
    /// The answer, as the provider gave it.
    pub reply: &'a Reply,
    /// [`Encoded::prefix`](throughline_core::Encoded::prefix) of the request as it was sent.
    pub prefix: Option<Digest>,
    /// Further ids under which the client was shown it, that are no [claims](crate::Claims).
    pub ids: &'a [Name],
    /// The story of the call that was answered, to be kept with it.
    pub story: Option<&'a Story>,
    /// The response as its caller was shown it, where that is kept to be asked for.
    pub response: Option<&'a Json>,
}

impl Turn<'_> {
    /// Whether there is something to keep: an answer that came to its end, and said something.
    pub(crate) fn is_whole(&self) -> bool {
        self.reply.stop != Stop::Cut && !self.reply.items.is_empty()
    }
}

/// An answer that is to be kept, with all that its turn borrows.
pub(crate) struct Answered {
    pub(crate) story: Story,
    pub(crate) conversation: Conversation,
    pub(crate) reply: Reply,
    pub(crate) prefix: Option<Digest>,
    pub(crate) response: Option<Json>,
}

impl Answered {
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            node: self.story.node.clone(),
            conversation: &self.conversation,
            reply: &self.reply,
            prefix: self.prefix,
            ids: &[],
            story: Some(&self.story),
            response: self.response.as_ref(),
        }
    }

    /// How many bytes it holds, more or less.
    pub(crate) fn size(&self) -> usize {
        let items = self.reply.items.iter().chain(&self.conversation.open);
        self.story.texts.size() + items.map(size_of_item).sum::<usize>()
    }
}

/// A turn with what is made of it once, however often it is tried to keep it.
pub(super) struct Whole<'t> {
    turn: &'t Turn<'t>,
    marks: Marks,
    /// What the model had said before, where the answer goes on with it, and the answer.
    items: Vec<Item>,
}

impl<'t> Whole<'t> {
    pub(super) fn of(turn: &'t Turn<'t>, marks: Marks) -> Self {
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

    /// The turn as reading it from the Vault would give it.
    pub(super) fn remembered(self) -> Captured {
        let Self { turn, marks, items } = self;
        Captured {
            end_user: turn.conversation.end_user.clone(),
            number: turns_before(turn),
            visible: marks.visible.unwrap_or_else(|| Visible::of(&items)),
            size: items.iter().map(size_of_item).sum(),
            items,
        }
    }
}

/// Keeps an answer: the turn as it is kept.
pub(super) async fn capture(
    replay: &Replay,
    tenant: &Tenant,
    whole: &Whole<'_>,
) -> Result<Option<VaultTurn>, StoreError> {
    let turn = whole.turn;
    let own = LogId::from(format!("conversation-{}", turn.node));
    let begin = || Append::to(own.clone()).opening(LogOpening::thread());
    let (first, goes_on) = match &turn.conversation.parent {
        Some(parent) => (Append::to(parent.log.clone()).expecting(parent.last), GoesOn::Here),
        None => (begin(), GoesOn::Nowhere),
    };
    let mut done = commit(replay, tenant, whole, first, goes_on).await;
    if let (Err(StoreError::Conflict { .. }), Some(parent)) = (&done, &turn.conversation.parent) {
        // Another answer to the same was kept before: this one is a branch.
        let fork = LogOpening::fork(parent.log.clone(), parent.last);
        let fork = Append::to(own.clone()).opening(fork);
        done = commit(replay, tenant, whole, fork, GoesOn::Here).await;
    }
    if let Err(StoreError::NotFound { .. } | StoreError::Invalid(_)) = &done
        && turn.conversation.parent.is_some()
    {
        // What it goes on from was forgotten meanwhile.
        done = commit(replay, tenant, whole, begin(), GoesOn::Nowhere).await;
    }
    done.map(|receipt| receipt.written.into_iter().next().map(|written| kept(turn, written)))
}

async fn commit(
    replay: &Replay,
    tenant: &Tenant,
    whole: &Whole<'_>,
    append: Append,
    goes_on: GoesOn<'_>,
) -> Result<Receipt, StoreError> {
    let turn = whole.turn;
    let (batch, tail) = batch(tenant, whole, append, goes_on);
    let receipt = replay.store.commit(batch).await?;
    if let (Some(story), Some(tail), Some(written)) = (turn.story, tail, receipt.written.first()) {
        replay.stories.remember(story, tail, written.last, turn.conversation.era);
    }
    Ok(receipt)
}

fn batch(
    tenant: &Tenant,
    Whole { turn, marks, items }: &Whole<'_>,
    mut append: Append,
    goes_on: GoesOn<'_>,
) -> (Batch, Option<Tail>) {
    let log = append.log.clone();
    let whose = json::object(|o| {
        o.number("v", 1);
        o.number("turn", turns_before(turn) as u64).string("call", &turn.node.0);
        o.maybe_string("user", turn.conversation.end_user.as_deref());
        if let Some(story) = turn.story {
            o.raw(STORY, &story.account());
        }
    });
    append.records.push(NewRecord::new(TURN, whose.bytes().clone()));
    // An Item that is to be forgotten is looked for by what the records of its thread say.
    for stored in store_items(items) {
        append.records.push(NewRecord::new(kind::ITEM, stored.json.bytes().clone()));
    }
    // The texts come last: whoever goes on from them finds them by the turn's last record.
    let (said, tail) = turn.story.map(|story| story.said(&log, goes_on)).unzip();
    append.records.extend(said);
    let mut batch = Batch::of(tenant.clone()).append(append);
    if let Some(response) = turn.response {
        let run = Append::to(stored::log_of(&turn.node)).opening(LogOpening::run(log.clone()));
        batch = batch.append(run.record(NewRecord::copy(&log, response.bytes().clone())));
    }
    batch.vault.push(VaultNode {
        id: turn.node.clone(),
        parent: turn.conversation.parent.as_ref().map(|parent| parent.node.clone()),
        keys: marks.keys.clone(),
        log,
        prefix: turn.prefix,
    });
    (batch, tail)
}

/// The turn as the Vault would tell of it.
fn kept(turn: &Turn<'_>, written: Written) -> VaultTurn {
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

/// How many visible turns stand before it.
fn turns_before(turn: &Turn<'_>) -> usize {
    let chain = &turn.conversation.chain;
    chain.visible_turns().saturating_sub(usize::from(chain.goes_on()))
}

/// What is told of a turn from the outside.
pub(super) struct Marks {
    /// What it is found by.
    pub(super) keys: Vec<VaultKey>,
    /// What can be seen of it, where it is known from its chain.
    visible: Option<Visible>,
}

impl Marks {
    pub(super) fn of(turn: &Turn<'_>) -> Self {
        // A turn's own name is a key, by which claims and later turns find it.
        let mut keys = vec![VaultKey::Claim(turn.node.0.clone())];
        // Only responses are asked for by the id of the whole answer.
        let is_asked_for = turn.reply.origin.wire == Wire::OPENAI_RESPONSES;
        let whole = turn.reply.id.iter().filter(|_| is_asked_for).cloned();
        let ids = whole.chain(ids_in(&turn.reply.items));
        keys.extend(ids.chain(turn.ids.iter().cloned()).map(VaultKey::Id));
        keys.extend(objects::keys_of_reply(turn.reply, turn.story.map(|story| &story.texts.came)));
        let chain = &turn.conversation.chain;
        let after = chain.turn_after(&turn.reply.items);
        if let Some((digest, _)) = after {
            keys.push(VaultKey::Chain(digest));
            keys.push(VaultKey::Chain(chain::made_by(&digest, &turn.reply.origin)));
        }
        let mut seen = HashSet::with_capacity(keys.len());
        keys.retain(|key| seen.insert(key.clone()));
        // One that goes on shows what was said before, too.
        let goes_on = chain.goes_on() || !turn.conversation.open.is_empty();
        let visible = after.map(|(_, visible)| visible).filter(|_| !goes_on);
        Self { keys, visible }
    }
}

/// What may name a turn among all of a tenant's: ids of parts and calls that are no mere counters, and Seals.
pub(super) fn ids_in(items: &[Item]) -> Vec<Name> {
    let mut ids = Vec::new();
    for item in items {
        let call = item.call();
        let tool = call.map_or("", |call| &*call.name);
        let call = call.and_then(|call| call.wire_id.as_ref());
        let part = item.native.as_ref().and_then(|native| native.id.as_ref());
        ids.extend(call.into_iter().chain(part).filter(|id| is_telling(id, tool)).cloned());
        ids.extend(item.seals.iter().map(|seal| {
            let digest = judge::with_plain(seal.reveal_to_tenant(), blake3::hash);
            Name::from(format!("seal:{}", digest.to_hex()))
        }));
    }
    ids
}

/// Whether an id can name one thing in the world. `call_0` and `functions.weather:0` are counted anew by each answer.
fn is_telling(id: &str, tool: &str) -> bool {
    let rest = if tool.is_empty() { id.to_owned() } else { id.replace(tool, "/") };
    rest.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        word.len() >= 8 && digits > 0 && digits < word.len()
    })
}
