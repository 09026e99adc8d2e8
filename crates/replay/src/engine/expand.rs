//! Replaces compaction items with the summaries that they stand for. Only the last item of a Call
//! is replaced; earlier items are part of its summary and are left out.
//!
//! | summary | target | sent as |
//! |---|---|---|
//! | written by a model at the gateway's request | any | a user message |
//! | the provider's own compaction | the provider that issued it | the compaction, verbatim |
//! | the provider's own compaction, readable | any other | a user message |
//! | the provider's own compaction, sent by the client | the provider's wire | unchanged |
//! | erased, or readable only by another provider | | nothing; the Fate states the reason |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, Evidence, Fate, Item, ItemId, Origin, Role, StoreError,
    Target, Tenant, VaultKey, Wire,
};
use throughline_json::{Name, Node};

use crate::claim::Claims;
use crate::engine::capture;
use crate::engine::compare;
use crate::engine::turn_cache::Captured;
use crate::engine::vault::{LoadedTurn, VaultSearch};
use crate::engine::{Conversation, LostParts, Replay};
use crate::finding::{Finding, RestoreIssue};
use crate::turn::ParentTurn;

/// The sentence before a summary in a user message.
const PREAMBLE: &str = "The conversation so far was replaced by this summary of it:";

/// The compaction items that were replaced in a Call, and the problems with the others.
#[derive(Debug, Default)]
pub struct Expansion {
    /// The compaction items that cannot be replaced.
    pub findings: Vec<Finding>,
    pub(super) marks: HashMap<ItemId, LostParts>,
    pub(super) left: Vec<Fate>,
    /// The turn of the last summary. The conversation continues from this turn.
    parent: Option<ParentTurn>,
}

impl Expansion {
    /// Returns whether the Call contained a compaction item that was not issued to this caller.
    pub fn has_foreign(&self) -> bool {
        self.findings.iter().any(|finding| finding.problem == RestoreIssue::ForeignClaim)
    }

    /// Returns whether the Call contained a compaction item that could not be replaced. Items that
    /// a later compaction item stands for do not count.
    pub fn has_losses(&self) -> bool {
        let covered = Disposition::Elided(ElisionReason::Covered);
        self.left.iter().any(|fate| fate.visible != covered)
    }

    /// Sets the parent of a conversation that starts with a summary. A later turn that was matched
    /// takes precedence.
    pub(super) fn set_parent(&mut self, conversation: &mut Conversation) {
        if conversation.parent.is_none() {
            conversation.parent = self.parent.take();
        }
    }

    /// Loads the turn of a Claim. Returns `None` and states the reason if the turn cannot be used.
    async fn load(
        &mut self,
        vault: &mut VaultSearch<'_>,
        claim: &Name,
        item: &Item,
    ) -> Result<Option<Arc<Captured>>, StoreError> {
        let Some(node) = vault.replay.claims.read(vault.tenant, claim) else {
            self.leave_out(item, ElisionReason::Foreign, RestoreIssue::ForeignClaim);
            return Ok(None);
        };
        let Some(turn) = vault.current_turn(&node).await? else {
            let reason = ElisionReason::Expired;
            self.leave_out(item, reason, RestoreIssue::Gone(reason));
            return Ok(None);
        };
        match vault.load(&turn).await? {
            LoadedTurn::Here(captured) => {
                self.parent = Some(ParentTurn { node: turn.id, log: turn.log, last: turn.last });
                return Ok(Some(captured));
            }
            LoadedTurn::Gone(reason) => {
                self.leave_out(item, reason, RestoreIssue::Gone(reason));
            }
            LoadedTurn::Anothers => {
                self.leave_out(item, ElisionReason::Foreign, RestoreIssue::ForeignClaim);
            }
        }
        Ok(None)
    }

    /// Marks a summary as restored. Returns `None` and states the reason if the target cannot read
    /// the summary.
    fn restored(
        &mut self,
        summary: Option<Item>,
        item: &Item,
        taken: &HashSet<ItemId>,
    ) -> Option<Item> {
        let Some(mut summary) = summary else {
            let reason = ElisionReason::Foreign;
            self.leave_out(item, reason, RestoreIssue::Gone(reason));
            self.parent = None;
            return None;
        };
        if summary.id != item.id && taken.contains(&summary.id) {
            let node = self.parent.as_ref().map_or("", |parent| &parent.node.0);
            summary.id = ItemId::from(format!("{node}.{}", summary.id));
        }
        summary.place = item.place;
        let seals = vec![true; summary.seals.len()];
        let mark = LostParts { evidence: Evidence::Claim, visible: true, seals };
        self.marks.insert(summary.id.clone(), mark);
        Some(summary)
    }

    /// Leaves out a compaction item that a later one stands for. A Claim of another tenant is
    /// reported all the same.
    fn leave_out_covered(&mut self, vault: &VaultSearch<'_>, item: &Item, kind: &CompactionKind) {
        match kind {
            CompactionKind::Claimed(claim)
                if vault.replay.claims.read(vault.tenant, claim).is_none() =>
            {
                self.leave_out(item, ElisionReason::Foreign, RestoreIssue::ForeignClaim);
            }
            CompactionKind::Claimed(_) | CompactionKind::Readable(_) | CompactionKind::Own => {
                self.left.push(elided(item, ElisionReason::Covered));
            }
        }
    }

    fn leave_out(&mut self, item: &Item, reason: ElisionReason, problem: RestoreIssue) {
        self.left.push(elided(item, reason));
        self.findings.push(Finding { item: item.id.clone(), problem });
    }
}

fn elided(item: &Item, reason: ElisionReason) -> Fate {
    let elided = Disposition::Elided(reason);
    let seals = vec![elided.clone(); item.seals.len()];
    Fate { item: item.id.clone(), visible: elided, seals }
}

/// A compaction item whose content can be sent to the target.
#[derive(Debug, PartialEq)]
enum CompactionKind {
    /// The gateway issued the item with this Claim.
    Claimed(Name),
    /// Another provider issued the item, with this readable text.
    Readable(String),
    /// The item is in the target's own format.
    Own,
}

impl CompactionKind {
    /// Returns the kind of a compaction item; `None` for any other Item, and for an item that only
    /// another provider can read.
    fn of(item: &Item, target: &Target) -> Option<Self> {
        if item.body != Body::Compaction {
            return None;
        }
        if let Some(claim) = Claims::handles_in_item(item).next() {
            return Some(Self::Claimed(claim));
        }
        if item.native.as_ref()?.wire == target.origin.wire {
            return Some(Self::Own);
        }
        readable(item).map(Self::Readable)
    }
}

/// Returns whether a Call contains an item that [`expand`] replaces.
pub(super) fn has_compaction(call: &Call) -> bool {
    call.items.iter().any(|item| item.body == Body::Compaction)
}

/// Replaces the compaction items in a Call; see [`Replay::expand`]. The last one stands for the
/// conversation before it, so earlier ones are left out.
pub(super) async fn expand(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    call: &mut Call,
) -> Result<Expansion, StoreError> {
    let mut expansion = Expansion::default();
    let kinds: Vec<_> =
        call.items.iter().map(|item| CompactionKind::of(item, &call.target)).collect();
    if kinds.iter().flatten().all(|kind| *kind == CompactionKind::Own) {
        return Ok(expansion);
    }
    let last = kinds.iter().rposition(Option::is_some).unwrap_or_default();
    let ends_with_own = kinds.get(last) == Some(&Some(CompactionKind::Own));
    let mut vault = VaultSearch::new(replay, tenant, end_user);
    let received = std::mem::take(&mut call.items);
    let starts_with_input = starts_with_input(&received);
    let taken: HashSet<ItemId> = received.iter().map(|item| item.id.clone()).collect();
    let mut message = None;
    for (index, (item, kind)) in received.into_iter().zip(kinds).enumerate() {
        match kind {
            Some(kind) if index < last && !(ends_with_own && kind == CompactionKind::Own) => {
                expansion.leave_out_covered(&vault, &item, &kind);
            }
            None | Some(CompactionKind::Own) => call.items.push(item),
            Some(CompactionKind::Claimed(claim)) => {
                let captured = expansion.load(&mut vault, &claim, &item).await?;
                let summary = captured.and_then(|captured| {
                    let summary = summary(&captured, &call.target, &item, starts_with_input);
                    expansion.restored(summary, &item, &taken)
                });
                let Some(summary) = summary else { continue };
                let at = position(&summary, &call.items, &call.target);
                message = Some(summary.id.clone()).filter(|_| summary.role == Role::User);
                call.items.insert(at, summary);
            }
            Some(CompactionKind::Readable(text)) => {
                message = Some(item.id.clone());
                call.items.push(user_message(&item, &text));
            }
        }
    }
    renumber(&mut call.items, message.as_ref());
    Ok(expansion)
}

/// The conversation that a provider's own compaction item replaces.
#[derive(Debug)]
pub struct CompactedInput {
    /// The provider that issued the item.
    pub origin: Arc<Origin>,
    /// The body of the request that the item answers, in the caller's dialect.
    pub request: Bytes,
}

/// Finds the conversation behind a compaction item; see [`Replay::compacted_input`].
pub(super) async fn compacted_input(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    seal: &[u8],
) -> Result<Option<CompactedInput>, StoreError> {
    let mut vault = VaultSearch::new(replay, tenant, end_user);
    let key = VaultKey::Id(capture::seal_id(seal));
    vault.look_up(vec![key.clone()]).await?;
    let Some(turn) = vault.result(&key).map(|found| found.turn) else { return Ok(None) };
    let LoadedTurn::Here(captured) = vault.load(&turn).await? else { return Ok(None) };
    let is_compaction = |item: &&Item| {
        let mut seals = item.seals.iter().map(|own| &**own.reveal_to_tenant());
        item.body == Body::Compaction && seals.any(|own| own == seal)
    };
    let Some(origin) = captured.items.iter().find(is_compaction).and_then(|it| it.origin.clone())
    else {
        return Ok(None);
    };
    let parent = ParentTurn { node: turn.id, log: turn.log, last: turn.last };
    let Some(bodies) = replay.calls.tail(tenant, &parent, Some(vault.era())).await else {
        return Ok(None);
    };
    Ok(Some(CompactedInput { origin, request: bodies.texts.expanded.clone() }))
}

/// Whether the first message other than a compaction comes from the user or from a tool. The answer
/// stays the same while the conversation grows.
fn starts_with_input(items: &[Item]) -> bool {
    let mut others = items.iter().filter(|item| {
        item.body != Body::Compaction && !matches!(item.role, Role::System | Role::Developer)
    });
    others.next().is_some_and(|item| item.role != Role::Assistant)
}

/// Returns the Item that replaces a compaction item; `None` if the summary is not readable for the
/// target. Anthropic requires input after its own compaction. In a conversation that does not start
/// with input, the text of the compaction is the input.
fn summary(
    captured: &Captured,
    target: &Target,
    item: &Item,
    starts_with_input: bool,
) -> Option<Item> {
    let own = captured.items.iter().rfind(|item| item.body == Body::Compaction);
    let is_kept = |own: &Item| {
        compare::is_from_target(captured, target)
            && own.seals.iter().all(|seal| seal.open_for(target, None).is_ok())
            && (starts_with_input || target.origin.wire != Wire::ANTHROPIC_MESSAGES)
    };
    let text = match own {
        Some(own) if is_kept(own) => return Some(own.clone()),
        Some(own) => readable(own)?,
        None => {
            let texts = captured.items.iter().filter_map(|item| match &item.body {
                Body::Text(text) => Some(text.trim()).filter(|text| !text.is_empty()),
                _ => None,
            });
            texts.collect::<Vec<_>>().join("\n\n")
        }
    };
    (!text.is_empty()).then(|| user_message(item, &text))
}

/// Returns the user message that replaces a compaction item.
fn user_message(item: &Item, summary: &str) -> Item {
    let text: Arc<str> = Arc::from(format!("{PREAMBLE}\n\n{summary}"));
    Item::new(item.id.clone(), item.place, Role::User, Body::Text(text))
}

/// Returns the text of a provider's own compaction, if the provider returned it in readable form.
fn readable(compaction: &Item) -> Option<String> {
    let native = compaction.native.as_ref()?;
    let tree = native.json.tree();
    let text = tree.root().present("content").and_then(Node::text)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the position of a summary. Anthropic accepts its own compaction only at the start of the
/// conversation.
fn position(summary: &Item, before: &[Item], target: &Target) -> usize {
    if summary.body != Body::Compaction || target.origin.wire != Wire::ANTHROPIC_MESSAGES {
        return before.len();
    }
    let is_message = |item: &Item| !matches!(item.role, Role::System | Role::Developer);
    before.iter().position(is_message).unwrap_or(before.len())
}

/// Numbers the messages again, because an Item may have moved to another position. `alone` is a
/// message of its own, even inside a message of the model.
fn renumber(items: &mut [Item], alone: Option<&ItemId>) {
    let (mut message, mut last) = (0, None);
    for item in items {
        let key = (item.place.message, Some(&item.id) == alone);
        if last.is_some_and(|last| last != key) {
            message += 1;
        }
        last = Some(key);
        item.place.message = message;
    }
}
