//! Matches the turns in a request with captured turns.

mod successors;
mod uses;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use throughline_core::{
    Call, ElisionReason, Evidence, Fate, Item, ItemId, Origin, Role, StoreError, Tenant, TurnId,
    VaultKey, VaultMatch, VaultTurn,
};
use throughline_json::Name;

use crate::claim::Claims;
use crate::engine::capture;
use crate::engine::chain::{self, Chain, ChainTurn};
use crate::engine::compare::{self, Similarity};
use crate::engine::named_ids;
use crate::engine::restore::uses::TurnUses;
use crate::engine::splice::{self, Patch};
use crate::engine::step::Predecessor;
use crate::engine::turn_cache::Captured;
use crate::engine::unmask;
use crate::engine::vault::{LoadedTurn, VaultSearch};
use crate::engine::{CapturedSeals, Conversation, Replay, RestoredCall};
use crate::finding::{Finding, RestoreIssue};
use crate::turn::ParentTurn;

/// Maximum number of turns that are looked up in one Vault query.
const MOST_TURNS: usize = 64;

/// Restores the content that the client dropped or altered; see [`Replay::restore`].
pub(super) async fn restore(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    mut call: Call,
) -> Result<RestoredCall, StoreError> {
    let mut matches = find_turns(replay, (tenant, end_user), &call).await?;
    let turns = matches.conversation.chain.turns();
    let known = unmask::KnownTurns { captured: &matches.candidates, ids: &matches.ids };
    let cleaned = unmask::clean(replay, (tenant, end_user), &call, turns, known).await?;
    let mut unmasked = unmask::RemovedThoughts::default();
    if !cleaned.items.is_empty() {
        unmasked = unmask::RemovedThoughts::remove(&mut call, turns, cleaned.items);
        matches = find_turns(replay, (tenant, end_user), &call).await?;
        let predecessor = &mut matches.conversation.predecessor;
        *predecessor = predecessor.take().or(cleaned.last.map(Predecessor::Turn));
    }
    let TurnMatches {
        mut conversation, patches, owners, mut findings, omitted, candidates, ..
    } = matches;
    findings.extend(unmasked.findings);
    let issued = CapturedSeals(candidates.into_values().collect());
    for (range, captured) in owners {
        let items = call.items.get_mut(range).unwrap_or_default();
        splice::set_owner(items, &captured.items);
    }
    let mut marks = HashMap::new();
    splice::splice(&mut call, patches, &mut marks);
    let mut left = Claims::remove(&mut call, ElisionReason::Foreign);
    left.extend(unmasked.fates);
    left.extend(omitted);
    if !conversation.open.is_empty() {
        let last_other = call.items.iter().rposition(|item| item.role != Role::Assistant);
        let start = last_other.map_or(0, |last| last + 1);
        conversation.open = call.items.get(start..).unwrap_or_default().to_vec();
    }
    let has_foreign_token = false;
    Ok(RestoredCall { call, conversation, findings, issued, has_foreign_token, marks, left })
}

/// The captured turns that match turns in a request, and how each captured turn is used.
struct TurnMatches {
    conversation: Conversation,
    patches: Vec<Patch>,
    /// Matched turns that stay unchanged, with their Item ranges in the request.
    owners: Vec<(Range<usize>, Arc<Captured>)>,
    findings: Vec<Finding>,
    /// The Fates of Thoughts without a Seal that the client dropped and that are not restored.
    omitted: Vec<Fate>,
    /// The captured turns that match or may match, keyed by the index of the turn in the request.
    candidates: HashMap<usize, Arc<Captured>>,
    /// The ids of the matched turns, by the index of the turn in the request.
    ids: HashMap<usize, TurnId>,
}

/// Finds the captured turn for each turn in a request, and decides how to use the captured turn.
async fn find_turns(
    replay: &Replay,
    (tenant, end_user): (&Tenant, Option<&str>),
    call: &Call,
) -> Result<TurnMatches, StoreError> {
    let chain = replay.chains.of(call, tenant, end_user);
    let mut conversation = Conversation::with_chain(chain, call, end_user);
    let vault = VaultSearch::new(replay, tenant, end_user);
    let mut search = TurnSearch::new(vault, call, &conversation.chain);
    let mut uses = TurnUses::default();
    for (at, turn) in conversation.chain.turns().iter().enumerate().rev() {
        if let Some(matched) = search.find_turn(at, turn).await? {
            search.ids.insert(at, matched.node.clone());
            uses.add(&mut search, call, at, matched);
        }
    }
    for (at, matched) in search.find_successors().await? {
        uses.add(&mut search, call, at, matched);
    }
    let TurnUses { mut patches, owners, parent, signed } = uses;
    let (mut parent, signed) = (parent.map(|(_, turn)| turn), signed.map(|(_, turn)| turn));
    if conversation.chain.turns().is_empty() {
        parent = search.continued_turn(call).await?;
    }
    patches.sort_by_key(|patch| patch.range.start);
    let predecessor = search.predecessor(parent.as_ref());
    let era = search.vault.era();
    let TurnSearch { findings, omitted, candidates, ids, .. } = search;
    conversation.era = era;
    (conversation.parent, conversation.signed) = (parent, signed);
    conversation.predecessor = predecessor;
    Ok(TurnMatches { conversation, patches, owners, findings, omitted, candidates, ids })
}

/// Returns the Origin of the newest captured turn in a request that the target's endpoint produced;
/// see [`Replay::last_origin`].
pub(super) async fn last_origin(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    call: &Call,
) -> Result<Option<Arc<Origin>>, StoreError> {
    let chain = replay.chains.of(call, tenant, end_user);
    let vault = VaultSearch::new(replay, tenant, end_user);
    let mut search = TurnSearch::new(vault, call, &chain);
    let from_target = |matched: TurnMatch| {
        let (captured, _) = matched.captured?;
        compare::is_from_target(&captured, &call.target).then_some(captured)
    };
    let mut newest = None;
    for (at, turn) in chain.turns().iter().enumerate().rev() {
        let Some(matched) = search.find_turn(at, turn).await? else { continue };
        search.ids.insert(at, matched.node.clone());
        newest = from_target(matched).map(|captured| (at, captured));
        if newest.is_some() {
            break;
        }
    }
    // Newer turns may have only a step.
    for (at, matched) in search.find_successors().await? {
        let is_newer = newest.as_ref().is_none_or(|(known, _)| at > *known);
        if let Some(captured) = from_target(matched).filter(|_| is_newer) {
            newest = Some((at, captured));
        }
    }
    let (_, captured) = newest.unzip();
    Ok(captured.and_then(|captured| captured.items.iter().find_map(|item| item.origin.clone())))
}

/// The captured turn that matches a turn in the request.
struct TurnMatch {
    node: TurnId,
    parent: ParentTurn,
    /// The turn's content and the evidence for the match; `None` if the content was erased.
    captured: Option<(Arc<Captured>, Evidence)>,
}

/// The parent of the last matched turn, which is the first candidate for the next match. The search
/// runs from the newest turn to the oldest.
#[derive(Clone)]
struct Ancestor {
    node: TurnId,
    /// The evidence that identified the matched turn, which is the child of `node`.
    evidence: Evidence,
    /// Number of turns that the client dropped from the start of the conversation.
    dropped: usize,
}

struct TurnSearch<'r> {
    vault: VaultSearch<'r>,
    /// The Origin of the Call's target.
    maker: &'r Origin,
    turns: &'r [ChainTurn],
    items: &'r [Item],
    /// The index of the current turn in `turns`.
    at: usize,
    /// The number of turns to look up in the next Vault query.
    reach: usize,
    /// Number of visible turns before the current turn.
    number: usize,
    ancestor: Option<Ancestor>,
    findings: Vec<Finding>,
    omitted: Vec<Fate>,
    candidates: HashMap<usize, Arc<Captured>>,
    /// The ids of the matched turns, by the index of the turn in the request.
    ids: HashMap<usize, TurnId>,
    /// The index of the first Item of the current tool loop, computed on first use.
    loop_start: OnceCell<usize>,
}

impl<'r> TurnSearch<'r> {
    fn new(vault: VaultSearch<'r>, call: &'r Call, chain: &'r Chain) -> Self {
        Self {
            vault,
            maker: &call.target.origin,
            turns: chain.turns(),
            items: &call.items,
            at: 0,
            reach: 1,
            number: chain.visible_turns(),
            ancestor: None,
            findings: Vec::new(),
            omitted: Vec::new(),
            candidates: HashMap::new(),
            ids: HashMap::new(),
            loop_start: OnceCell::new(),
        }
    }

    fn report(&mut self, items: &[Item], problem: RestoreIssue) {
        if let Some(item) = items.first() {
            self.report_on(&item.id, problem);
        }
    }

    fn report_on(&mut self, item: &ItemId, problem: RestoreIssue) {
        self.findings.push(Finding { item: item.clone(), problem });
    }

    /// Finds the captured turn for a turn in the request. The candidates are the parent of the last
    /// matched turn, and the turns that Claims, ids or chain keys identify.
    async fn find_turn(
        &mut self,
        at: usize,
        turn: &ChainTurn,
    ) -> Result<Option<TurnMatch>, StoreError> {
        self.at = at;
        self.number = self.number.saturating_sub(usize::from(turn.digest.is_some()));
        let items = self.items.get(turn.items.clone()).unwrap_or_default();
        if !is_from_model(items) {
            return Ok(None);
        }
        let claims = self.claims_in(items);
        if !self.names_another_turn(items, &claims).await?
            && let Some(matched) = self.by_ancestry(turn, items).await?
        {
            return Ok(Some(matched));
        }
        if let Some(matched) = self.by_claim(turn, items, &claims).await? {
            return Ok(Some(matched));
        }
        if let Some(matched) = self.by_id(turn, items).await? {
            return Ok(Some(matched));
        }
        if let Some(matched) = self.by_named_id(turn, items).await? {
            return Ok(Some(matched));
        }
        self.by_chain(turn, items).await
    }

    /// Returns whether the client's Claims or ids identify a turn other than the parent of the last
    /// matched turn.
    async fn names_another_turn(
        &mut self,
        items: &[Item],
        claims: &[TurnId],
    ) -> Result<bool, StoreError> {
        let Some(Ancestor { node: ancestor, .. }) = self.ancestor.clone() else { return Ok(false) };
        if !claims.is_empty() {
            return Ok(!claims.contains(&ancestor));
        }
        let Some(stored) = self.vault.current_turn(&ancestor).await? else { return Ok(false) };
        let LoadedTurn::Here(captured) = self.vault.load(&stored).await? else {
            return Ok(false);
        };
        if compare::altered(items, &captured).next().is_none() {
            return Ok(false);
        }
        let named = self.turn_of_ids(items).await?;
        Ok(named.is_some_and(|named| named.id != ancestor))
    }

    /// Returns the turns that the client's Claims identify. Invalid Claims and other tenants'
    /// Claims are reported.
    fn claims_in(&mut self, items: &[Item]) -> Vec<TurnId> {
        let mut nodes = Vec::new();
        for item in items {
            for text in Claims::handles_in_item(item) {
                match self.vault.replay.claims.read(self.vault.tenant, &text) {
                    Some(node) if nodes.contains(&node) => {}
                    Some(node) => nodes.push(node),
                    None => self.report_on(&item.id, RestoreIssue::ForeignClaim),
                }
            }
        }
        nodes
    }

    /// Matches the parent of the last matched turn, if it was captured at the same position in the
    /// conversation. The position matters, because equal texts can occur several times.
    async fn by_ancestry(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<TurnMatch>, StoreError> {
        if turn.digest.is_none() {
            return Ok(None);
        }
        while let Some(Ancestor { node, evidence, dropped }) = self.ancestor.clone() {
            let Some(stored) = self.vault.current_turn(&node).await? else { break };
            let captured = match self.vault.load(&stored).await? {
                LoadedTurn::Here(captured) => captured,
                LoadedTurn::Gone(reason) => {
                    self.report(items, RestoreIssue::Gone(reason));
                    self.follow(&stored, &evidence, dropped);
                    return Ok(Some(TurnMatch::from_turn(stored)));
                }
                LoadedTurn::Anothers => break,
            };
            let number_in_request = captured.number.checked_sub(dropped);
            if number_in_request < Some(self.number) {
                return Ok(None);
            }
            if number_in_request == Some(self.number) {
                let fits = is_same_turn(compare::likeness(turn, items, &captured), turn);
                self.candidates.insert(self.at, Arc::clone(&captured));
                self.follow(&stored, &evidence, dropped);
                let captured = Some((captured, evidence));
                return Ok(fits.then(|| TurnMatch { captured, ..TurnMatch::from_turn(stored) }));
            }
            self.follow(&stored, &evidence, dropped);
        }
        self.ancestor = None;
        Ok(None)
    }

    async fn by_claim(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
        claims: &[TurnId],
    ) -> Result<Option<TurnMatch>, StoreError> {
        let [node] = claims else { return Ok(None) };
        let Some(stored) = self.vault.current_turn(node).await? else { return Ok(None) };
        let fits = |likeness| likeness != Similarity::Other;
        self.accept(stored, Evidence::Claim, turn, items, fits).await
    }

    /// Returns the chain keys of a turn. The first key matches only turns from the provider of the
    /// Call's target; the second key matches turns from any provider.
    fn chain_keys(&self, turn: &ChainTurn) -> Vec<VaultKey> {
        let keys = turn.digest.map(|digest| [chain::provider_digest(&digest, self.maker), digest]);
        keys.into_iter().flatten().map(VaultKey::Chain).collect()
    }

    /// Looks up the current turn's ids or chain keys. The first query of a request looks up only
    /// these, because an id usually identifies the turn, and its parent the turn before it. Each
    /// further query also looks up earlier turns, twice as many as the query before, up to
    /// [`MOST_TURNS`].
    async fn find(&mut self, keys: &[VaultKey]) -> Result<Vec<VaultMatch>, StoreError> {
        if !self.vault.has_looked_up(keys) {
            let first = (self.at + 1).saturating_sub(self.reach);
            let mut lookup_keys = keys.to_vec();
            if self.reach > 1 {
                let chain = self.turns.get(self.at).map(|turn| self.chain_keys(turn));
                let chain = chain.unwrap_or_default().into_iter();
                lookup_keys.extend(chain.filter(|key| !keys.contains(key)));
            }
            for turn in self.turns.get(first..self.at).unwrap_or_default() {
                let items = self.items.get(turn.items.clone()).unwrap_or_default();
                lookup_keys.extend(capture::ids_in(items).into_iter().map(VaultKey::Id));
                lookup_keys.extend(self.chain_keys(turn));
            }
            self.vault.look_up(lookup_keys).await?;
            self.reach = (2 * self.reach).min(MOST_TURNS);
        }
        Ok(keys.iter().filter_map(|key| self.vault.result(key)).collect())
    }

    /// Returns the turn that the client's ids and Seals identify; `None` if they identify no turn
    /// or several turns.
    async fn turn_of_ids(&mut self, items: &[Item]) -> Result<Option<VaultTurn>, StoreError> {
        self.turn_named(capture::ids_in(items)).await
    }

    /// Returns the turn that these ids identify; `None` if they identify no turn or several turns.
    async fn turn_named(&mut self, ids: Vec<Name>) -> Result<Option<VaultTurn>, StoreError> {
        if ids.is_empty() {
            return Ok(None);
        }
        let keys: Vec<_> = ids.into_iter().map(VaultKey::Id).collect();
        let found = self.find(&keys).await?;
        let mut turns = found.into_iter().map(|found| found.turn);
        let first = turns.next();
        let is_unique = turns.all(|other| first.as_ref().is_some_and(|first| other.id == first.id));
        Ok(first.filter(|_| is_unique))
    }

    async fn by_id(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<TurnMatch>, StoreError> {
        let Some(stored) = self.turn_of_ids(items).await? else { return Ok(None) };
        let fits = |likeness| is_same_turn(likeness, turn);
        self.accept(stored, Evidence::UniqueId, turn, items, fits).await
    }

    /// Matches the turn whose ids the caller's next Items name, such as the id of an approval
    /// request.
    async fn by_named_id(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<TurnMatch>, StoreError> {
        let next = self.items.get(turn.items.end..).unwrap_or_default();
        let mut named = named_ids::ids_named_after(next);
        if !named.is_empty() {
            let own: HashSet<Name> = capture::ids_in(items).into_iter().collect();
            named.retain(|id| !own.contains(id));
        }
        let Some(stored) = self.turn_named(named).await? else { return Ok(None) };
        let fits = |likeness| is_same_turn(likeness, turn);
        self.accept(stored, Evidence::UniqueId, turn, items, fits).await
    }

    /// Returns the captured turn that a request without model turns continues: the message that the
    /// request names, or the turn whose calls the request answers.
    async fn continued_turn(&mut self, call: &Call) -> Result<Option<ParentTurn>, StoreError> {
        let previous = named_ids::previous_message(call);
        let ids = previous.map_or_else(|| named_ids::ids_named_after(self.items), |id| vec![id]);
        let Some(stored) = self.turn_named(ids).await? else { return Ok(None) };
        Ok(match self.vault.load(&stored).await? {
            LoadedTurn::Here(_) | LoadedTurn::Gone(_) => Some(TurnMatch::from_turn(stored).parent),
            LoadedTurn::Anothers => None,
        })
    }

    async fn by_chain(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<TurnMatch>, StoreError> {
        let found = self.find(&self.chain_keys(turn)).await?.into_iter().next();
        let Some(VaultMatch { turn: stored, siblings }) = found else { return Ok(None) };
        let fits = |likeness| likeness == Similarity::Same;
        self.accept(stored, Evidence::Chain { siblings }, turn, items, fits).await
    }

    /// Matches the captured turn that the evidence identifies. Returns `None` if the content of
    /// that turn does not fit, or if the turn belongs to another end user.
    async fn accept(
        &mut self,
        stored: VaultTurn,
        evidence: Evidence,
        turn: &ChainTurn,
        items: &[Item],
        fits: impl FnOnce(Similarity) -> bool,
    ) -> Result<Option<TurnMatch>, StoreError> {
        match self.vault.load(&stored).await? {
            LoadedTurn::Here(captured) => {
                if !fits(compare::likeness(turn, items, &captured)) {
                    return Ok(None);
                }
                self.candidates.insert(self.at, Arc::clone(&captured));
                match captured.number.checked_sub(self.number) {
                    Some(dropped) => self.follow(&stored, &evidence, dropped),
                    None => self.ancestor = None,
                }
                let captured = Some((captured, evidence));
                Ok(Some(TurnMatch { captured, ..TurnMatch::from_turn(stored) }))
            }
            LoadedTurn::Gone(why) => {
                self.report(items, RestoreIssue::Gone(why));
                // Only a matching chain proves that the client still sends all earlier turns.
                match evidence {
                    Evidence::Chain { .. } => self.follow(&stored, &evidence, 0),
                    Evidence::Claim | Evidence::UniqueId => self.ancestor = None,
                }
                Ok(Some(TurnMatch::from_turn(stored)))
            }
            LoadedTurn::Anothers => {
                if evidence == Evidence::Claim {
                    self.report(items, RestoreIssue::ForeignClaim);
                }
                Ok(None)
            }
        }
    }

    fn follow(&mut self, turn: &VaultTurn, evidence: &Evidence, dropped: usize) {
        let ancestor = |node| Ancestor { node, evidence: evidence.clone(), dropped };
        self.ancestor = turn.parent.clone().map(ancestor);
    }
}

/// Whether a turn in a request can come from a model. The turn can also contain Items with other
/// roles and without visible content, which no captured turn may replace.
fn is_from_model(items: &[Item]) -> bool {
    items.iter().all(|item| item.role == Role::Assistant)
}

/// Whether the visible content is similar enough to identify the captured turn.
fn is_same_turn(likeness: Similarity, turn: &ChainTurn) -> bool {
    match likeness {
        Similarity::Same | Similarity::Grown => true,
        Similarity::Edited => turn.visible.acts.is_some(),
        Similarity::Other => false,
    }
}

impl TurnMatch {
    fn from_turn(turn: VaultTurn) -> Self {
        let VaultTurn { id, log, last, .. } = turn;
        Self { node: id.clone(), parent: ParentTurn { node: id, log, last }, captured: None }
    }
}
