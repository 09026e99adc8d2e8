//! Which turn of the Vault is which turn of a request.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use throughline_core::{
    Call, Did, Evidence, Fate, Found, Item, ItemId, NodeId, Origin, Role, StoreError, Target,
    Tenant, VaultKey, VaultTurn, Why,
};

use crate::replay::capture;
use crate::replay::chain::{self, ChainTurn};
use crate::replay::claim::Claims;
use crate::replay::judge::{self, Likeness};
use crate::replay::memo::Captured;
use crate::replay::splice::{self, Patch};
use crate::replay::unmask;
use crate::replay::vault::{Loaded, Vault};
use crate::replay::{CapturedSeals, Conversation, Finding, Parent, Problem, Replay, Restored};

/// How many turns are asked for at once, at most.
const MOST_TURNS: usize = 64;

/// Puts back what the client of a request has lost.
pub(super) async fn restore(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    mut call: Call,
) -> Result<Restored, StoreError> {
    let mut matches = find_turns(replay, (tenant, end_user), &call).await?;
    let turns = matches.conversation.chain.turns();
    let cleaned =
        unmask::clean(replay, (tenant, end_user), &call, turns, &matches.candidates).await?;
    let mut unmasked = Unmasked::default();
    if !cleaned.is_empty() {
        unmasked = Unmasked::remove(&mut call, turns, cleaned);
        matches = find_turns(replay, (tenant, end_user), &call).await?;
    }
    let Matches { mut conversation, patches, owners, mut findings, candidates } = matches;
    findings.extend(unmasked.findings);
    let issued = CapturedSeals(candidates.into_values().collect());
    for (range, captured) in owners {
        let items = call.items.get_mut(range).unwrap_or_default();
        splice::name_owner(items, &captured.items);
    }
    let mut marks = HashMap::new();
    splice::splice(&mut call, patches, &mut marks);
    let mut left = Claims::remove(&mut call, Why::Foreign);
    left.extend(unmasked.fates);
    if !conversation.open.is_empty() {
        let others = call.items.iter().rposition(|item| item.role != Role::Assistant);
        let start = others.map_or(0, |last| last + 1);
        conversation.open = call.items.get(start..).unwrap_or_default().to_vec();
    }
    Ok(Restored { call, conversation, findings, issued, marks, left })
}

/// What was found for the turns of a request.
struct Matches {
    conversation: Conversation,
    patches: Vec<Patch>,
    /// Turns that stay as they came, by their places in the request.
    owners: Vec<(Range<usize>, Arc<Captured>)>,
    findings: Vec<Finding>,
    /// The captured turns that the turns of the request are, or may be, by their numbers.
    candidates: HashMap<usize, Arc<Captured>>,
}

/// Finds the captured turn of each turn of a request, and decides what becomes of it.
async fn find_turns(
    replay: &Replay,
    (tenant, end_user): (&Tenant, Option<&str>),
    call: &Call,
) -> Result<Matches, StoreError> {
    let chain = replay.chains.of(call, tenant, end_user);
    let mut conversation = Conversation::behind(chain, call, end_user);
    let mut search = Search {
        vault: Vault::new(replay, tenant, end_user),
        maker: &call.target.origin,
        turns: conversation.chain.turns(),
        items: &call.items,
        at: 0,
        reach: 1,
        number: conversation.chain.visible_turns(),
        ancestor: None,
        findings: Vec::new(),
        candidates: HashMap::new(),
    };
    let (mut patches, mut owners, mut parent) = (Vec::new(), Vec::new(), None);
    for (at, turn) in conversation.chain.turns().iter().enumerate().rev() {
        let Some(matched) = search.look_for(at, turn).await? else { continue };
        // An answer that goes on with the last turn has the same parent as that turn.
        let goes_on = turn.items.end == call.items.len();
        if parent.is_none() && !goes_on {
            parent = Some(matched.parent);
        }
        let Some((captured, evidence)) = matched.captured else { continue };
        match search.decide(turn, &captured, &call.target) {
            Decision::Replace(items) => {
                let (range, node) = (turn.items.clone(), matched.node);
                patches.push(Patch { range, node, items, evidence });
            }
            Decision::Keep => owners.push((turn.items.clone(), captured)),
            Decision::Nothing => {}
        }
    }
    patches.reverse();
    let (era, findings, candidates) = (search.vault.era(), search.findings, search.candidates);
    conversation.era = era;
    conversation.parent = parent;
    Ok(Matches { conversation, patches, owners, findings, candidates })
}

/// Thoughts that came as text and were removed from a Call.
#[derive(Default)]
struct Unmasked {
    findings: Vec<Finding>,
    fates: Vec<Fate>,
}

impl Unmasked {
    fn remove(
        call: &mut Call,
        turns: &[ChainTurn],
        mut cleaned: HashMap<usize, unmask::Cleaned>,
    ) -> Self {
        let mut removed = Self::default();
        let came = std::mem::take(&mut call.items);
        let mut next = 0;
        for (at, turn) in turns.iter().enumerate() {
            let Some(without) = cleaned.remove(&at) else { continue };
            call.items.extend_from_slice(came.get(next..turn.items.start).unwrap_or_default());
            next = turn.items.end;
            let items = came.get(turn.items.clone()).unwrap_or_default();
            for (was, now) in items.iter().zip(without) {
                if now.as_ref() != Some(was) {
                    let item = was.id.clone();
                    removed.findings.push(Finding { item, problem: Problem::ThoughtAsText });
                }
                match now {
                    Some(item) => call.items.push(item),
                    None => {
                        let (item, visible) = (was.id.clone(), Did::Elided(Why::Foreign));
                        removed.fates.push(Fate { item, visible, seals: Vec::new() });
                    }
                }
            }
        }
        call.items.extend_from_slice(came.get(next..).unwrap_or_default());
        removed
    }
}

/// What becomes of a turn that was found.
enum Decision {
    /// These Items take its place.
    Replace(Vec<Item>),
    /// It stays as it came.
    Keep,
    /// It was edited where it cannot be.
    Nothing,
}

/// A turn of the request that was captured.
struct Match {
    node: NodeId,
    parent: Parent,
    /// Its content, unless that is no more.
    captured: Option<(Arc<Captured>, Evidence)>,
}

/// The turn before the last one that was found.
#[derive(Clone)]
struct Ancestor {
    node: NodeId,
    /// The evidence for the one that was found.
    evidence: Evidence,
    /// How many turns at the beginning the client no longer sends.
    dropped: usize,
}

struct Search<'r> {
    vault: Vault<'r>,
    /// Whom the Call asks.
    maker: &'r Origin,
    /// The turns of the request, and all Items.
    turns: &'r [ChainTurn],
    items: &'r [Item],
    /// Which of the turns is looked for.
    at: usize,
    /// How many turns are asked for at once, if this one is not known.
    reach: usize,
    /// How many visible turns stand before the one that is looked for.
    number: usize,
    ancestor: Option<Ancestor>,
    findings: Vec<Finding>,
    candidates: HashMap<usize, Arc<Captured>>,
}

impl Search<'_> {
    /// Whether the turn that is looked for is the captured one, as far as it can be seen.
    fn fits(&self, turn: &ChainTurn, captured: &Captured) -> bool {
        let items = self.items.get(turn.items.clone()).unwrap_or_default();
        match judge::likeness(turn, items, captured) {
            Likeness::Same | Likeness::Grown => true,
            Likeness::Edited => turn.visible.acts.is_some(),
            Likeness::Other => false,
        }
    }

    fn report(&mut self, items: &[Item], problem: Problem) {
        if let Some(item) = items.first() {
            self.report_on(&item.id, problem);
        }
    }

    fn report_on(&mut self, item: &ItemId, problem: Problem) {
        self.findings.push(Finding { item: item.clone(), problem });
    }

    /// What becomes of a turn that was found. What its client did to it is reported.
    fn decide(&mut self, turn: &ChainTurn, captured: &Captured, target: &Target) -> Decision {
        let items = self.items.get(turn.items.clone()).unwrap_or_default();
        for item in judge::altered(items, captured) {
            self.report_on(&item.id, Problem::Altered);
        }
        if judge::is_intact(items, captured, target) || !judge::is_own(captured, target) {
            return Decision::Keep;
        }
        let issued = match judge::likeness(turn, items, captured) {
            Likeness::Same => Some(captured.items.clone()),
            Likeness::Edited | Likeness::Grown | Likeness::Other => {
                judge::edited(turn, items, captured)
            }
        };
        match issued {
            Some(items) => Decision::Replace(items),
            None => {
                self.report(items, Problem::Edited);
                Decision::Nothing
            }
        }
    }

    /// The captured turn that a turn of the request is: the ancestor of the one behind it, or one of its own evidence.
    async fn look_for(&mut self, at: usize, turn: &ChainTurn) -> Result<Option<Match>, StoreError> {
        self.at = at;
        self.number = self.number.saturating_sub(usize::from(turn.digest.is_some()));
        let items = self.items.get(turn.items.clone()).unwrap_or_default();
        // What nobody but the model could have said between is not the model's turn.
        if items.iter().any(|item| item.role != Role::Assistant) {
            return Ok(None);
        }
        let claims = self.claims_in(items);
        if !self.says_otherwise(items, &claims).await?
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
        self.by_chain(turn, items).await
    }

    /// Whether the client's own handles name another turn than the ancestor: one that looks the same.
    async fn says_otherwise(
        &mut self,
        items: &[Item],
        claims: &[NodeId],
    ) -> Result<bool, StoreError> {
        let Some(Ancestor { node: ancestor, .. }) = self.ancestor.clone() else { return Ok(false) };
        if !claims.is_empty() {
            return Ok(!claims.contains(&ancestor));
        }
        let Some(standing) = self.vault.standing(&ancestor).await? else { return Ok(false) };
        let Loaded::Here(captured) = self.vault.load(&standing).await? else { return Ok(false) };
        if judge::altered(items, &captured).next().is_none() {
            return Ok(false);
        }
        let named = self.named_by_ids(items).await?;
        Ok(named.is_some_and(|named| named.id != ancestor))
    }

    /// The turns that the client's claims name. A claim that is not this tenant's is reported.
    fn claims_in(&mut self, items: &[Item]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for item in items {
            for text in Claims::in_item(item) {
                match self.vault.replay.claims.read(self.vault.tenant, &text) {
                    Some(node) if nodes.contains(&node) => {}
                    Some(node) => nodes.push(node),
                    None => self.report_on(&item.id, Problem::ForeignClaim),
                }
            }
        }
        nodes
    }

    /// The ancestor of the turn behind, if it was captured at this place: a conversation says the same thing more than once.
    async fn by_ancestry(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<Match>, StoreError> {
        if turn.digest.is_none() {
            return Ok(None);
        }
        while let Some(Ancestor { node, evidence, dropped }) = self.ancestor.clone() {
            let Some(standing) = self.vault.standing(&node).await? else { break };
            let captured = match self.vault.load(&standing).await? {
                Loaded::Here(captured) => captured,
                Loaded::Gone(why) => {
                    self.report(items, Problem::Gone(why));
                    self.follow(&standing, &evidence, dropped);
                    return Ok(Some(Match::of(standing)));
                }
                Loaded::Anothers => break,
            };
            let place = captured.number.checked_sub(dropped);
            if place < Some(self.number) {
                return Ok(None);
            }
            if place == Some(self.number) {
                let fits = self.fits(turn, &captured);
                self.candidates.insert(self.at, Arc::clone(&captured));
                self.follow(&standing, &evidence, dropped);
                let captured = Some((captured, evidence));
                return Ok(fits.then(|| Match { captured, ..Match::of(standing) }));
            }
            self.follow(&standing, &evidence, dropped);
        }
        self.ancestor = None;
        Ok(None)
    }

    async fn by_claim(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
        claims: &[NodeId],
    ) -> Result<Option<Match>, StoreError> {
        let [node] = claims else { return Ok(None) };
        let Some(standing) = self.vault.standing(node).await? else { return Ok(None) };
        match self.vault.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = judge::likeness(turn, items, &captured) != Likeness::Other;
                Ok(fits.then(|| self.matched(standing, captured, Evidence::Claim)))
            }
            Loaded::Gone(why) => Ok(Some(self.gone(standing, items, why, &Evidence::Claim))),
            Loaded::Anothers => {
                self.report(items, Problem::ForeignClaim);
                Ok(None)
            }
        }
    }

    /// The keys of a turn's chain: the target's own turn is meant, if it has one that looks like this.
    fn chain_keys(&self, turn: &ChainTurn) -> Vec<VaultKey> {
        let keys = turn.digest.map(|digest| [chain::made_by(&digest, self.maker), digest]);
        keys.into_iter().flatten().map(VaultKey::Chain).collect()
    }

    /// What these keys of the turn find: its ids, or its chain once its ids were asked for. The longer nothing is found, the more of
    /// the turns before are asked for along.
    async fn find(&mut self, keys: &[VaultKey]) -> Result<Vec<Found>, StoreError> {
        if !self.vault.knows(keys) {
            let first = (self.at + 1).saturating_sub(self.reach);
            let mut wanted = keys.to_vec();
            let chain = self.turns.get(self.at).map(|turn| self.chain_keys(turn));
            wanted.extend(chain.unwrap_or_default().into_iter().filter(|key| !keys.contains(key)));
            for turn in self.turns.get(first..self.at).unwrap_or_default() {
                let items = self.items.get(turn.items.clone()).unwrap_or_default();
                wanted.extend(capture::ids_in(items).into_iter().map(VaultKey::Id));
                wanted.extend(self.chain_keys(turn));
            }
            self.vault.ask(wanted).await?;
            self.reach = (2 * self.reach).min(MOST_TURNS);
        }
        Ok(keys.iter().filter_map(|key| self.vault.found(key)).collect())
    }

    /// The one turn that the client's ids and Seals name: all that name any must name the same.
    async fn named_by_ids(&mut self, items: &[Item]) -> Result<Option<VaultTurn>, StoreError> {
        let keys: Vec<_> = capture::ids_in(items).into_iter().map(VaultKey::Id).collect();
        let found = self.find(&keys).await?;
        let mut turns = found.into_iter().map(|found| found.turn);
        let first = turns.next();
        let is_one = turns.all(|other| first.as_ref().is_some_and(|first| other.id == first.id));
        Ok(first.filter(|_| is_one))
    }

    async fn by_id(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<Match>, StoreError> {
        let Some(standing) = self.named_by_ids(items).await? else { return Ok(None) };
        match self.vault.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = self.fits(turn, &captured);
                Ok(fits.then(|| self.matched(standing, captured, Evidence::UniqueId)))
            }
            Loaded::Gone(why) => Ok(Some(self.gone(standing, items, why, &Evidence::UniqueId))),
            Loaded::Anothers => Ok(None),
        }
    }

    async fn by_chain(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<Match>, StoreError> {
        let found = self.find(&self.chain_keys(turn)).await?;
        let Some(Found { turn: standing, siblings }) = found.into_iter().next() else {
            return Ok(None);
        };
        let evidence = Evidence::Chain { siblings };
        match self.vault.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = judge::likeness(turn, items, &captured) == Likeness::Same;
                Ok(fits.then(|| self.matched(standing, captured, evidence)))
            }
            Loaded::Gone(why) => Ok(Some(self.gone(standing, items, why, &evidence))),
            Loaded::Anothers => Ok(None),
        }
    }

    fn matched(&mut self, turn: VaultTurn, captured: Arc<Captured>, evidence: Evidence) -> Match {
        self.candidates.insert(self.at, Arc::clone(&captured));
        match captured.number.checked_sub(self.number) {
            Some(dropped) => self.follow(&turn, &evidence, dropped),
            None => self.ancestor = None,
        }
        Match { captured: Some((captured, evidence)), ..Match::of(turn) }
    }

    fn gone(&mut self, turn: VaultTurn, items: &[Item], why: Why, evidence: &Evidence) -> Match {
        self.report(items, Problem::Gone(why));
        // Only behind a complete chain is it known that the client dropped none of the earlier turns.
        match evidence {
            Evidence::Chain { .. } => self.follow(&turn, evidence, 0),
            Evidence::Claim | Evidence::UniqueId => self.ancestor = None,
        }
        Match::of(turn)
    }

    fn follow(&mut self, turn: &VaultTurn, evidence: &Evidence, dropped: usize) {
        let ancestor = |node| Ancestor { node, evidence: evidence.clone(), dropped };
        self.ancestor = turn.parent.clone().map(ancestor);
    }
}

impl Match {
    fn of(turn: VaultTurn) -> Self {
        let VaultTurn { id, log, last, .. } = turn;
        Self { node: id.clone(), parent: Parent { node: id, log, last }, captured: None }
    }
}
