//! Which turn of the Vault is which turn of a request.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Call, Content, Evidence, Found, Item, ItemId, Name, Node, NodeId, Origin, Role, StoreError,
    Tenant, Tree, VaultKey, VaultTurn, Why, kind, restore_items,
};

use crate::replay::capture::{self, TURN};
use crate::replay::chain::{self, ChainTurn, Visible};
use crate::replay::claim::Claims;
use crate::replay::judge::{self, Likeness};
use crate::replay::memo::Captured;
use crate::replay::splice::{self, Patch};
use crate::replay::{Conversation, Finding, Parent, Problem, Replay, Restored};

/// Puts back what the client of a request has lost.
pub(super) async fn restore(
    replay: &Replay,
    tenant: &Tenant,
    end_user: Option<&str>,
    mut call: Call,
) -> Result<Restored, StoreError> {
    let mut conversation = Conversation::of(&call, tenant, end_user);
    let target = call.target.clone();
    let mut search = Search {
        replay,
        tenant,
        end_user,
        maker: &target.origin,
        stands: HashMap::new(),
        number: 0,
        ancestor: None,
        findings: Vec::new(),
    };
    let is_open = !conversation.open.is_empty();
    search.number = conversation.chain.visible_turns();
    let mut patches = Vec::new();
    for (back, turn) in conversation.chain.turns().iter().rev().enumerate() {
        search.number = search.number.saturating_sub(usize::from(turn.digest.is_some()));
        let Some(items) = call.items.get_mut(turn.items.clone()) else { continue };
        let Some(matched) = search.look_for(turn, items).await? else { continue };
        // An answer that goes on with the last turn has the same parent as that turn.
        if conversation.parent.is_none() && !(is_open && back == 0) {
            conversation.parent = Some(matched.parent);
        }
        let Some((captured, evidence)) = matched.captured else { continue };
        search.report_altered(items, &captured);
        let is_intact = judge::is_intact(items, &captured, &target);
        if is_intact || !judge::is_own(&captured, &target) {
            splice::name_owner(items, &captured.items);
            continue;
        }
        let issued = match judge::likeness(turn, &captured) {
            Likeness::Same => Some(captured.items.clone()),
            Likeness::Edited | Likeness::Other => judge::edited(items, &captured),
        };
        match issued {
            Some(items) => {
                let (range, node) = (turn.items.clone(), matched.node);
                patches.push(Patch { range, node, items, evidence });
            }
            None => search.report(items, Problem::Edited),
        }
    }
    patches.reverse();
    let findings = search.findings;
    let mut marks = HashMap::new();
    splice::splice(&mut call, patches, &mut marks);
    let left = Claims::remove(&mut call, Why::Foreign);
    if is_open {
        let others = call.items.iter().rposition(|item| item.role != Role::Assistant);
        let start = others.map_or(0, |last| last + 1);
        conversation.open = call.items.get(start..).unwrap_or_default().to_vec();
    }
    Ok(Restored { call, conversation, findings, marks, left })
}

/// A turn of the request that was captured.
struct Match {
    node: NodeId,
    parent: Parent,
    /// Its content, unless that is no more.
    captured: Option<(Arc<Captured>, Evidence)>,
}

/// What a turn of the Vault is to this caller.
enum Loaded {
    Here(Arc<Captured>),
    Gone(Why),
    /// Another end-user's.
    Anothers,
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
    replay: &'r Replay,
    tenant: &'r Tenant,
    end_user: Option<&'r str>,
    /// Whom the Call asks.
    maker: &'r Origin,
    /// Turns of which the store said in this search how they stand.
    stands: HashMap<NodeId, VaultTurn>,
    /// How many visible turns stand before the one that is looked for.
    number: usize,
    ancestor: Option<Ancestor>,
    findings: Vec<Finding>,
}

impl Search<'_> {
    fn report(&mut self, items: &[Item], problem: Problem) {
        if let Some(item) = items.first() {
            self.report_on(&item.id, problem);
        }
    }

    fn report_on(&mut self, item: &ItemId, problem: Problem) {
        self.findings.push(Finding { item: item.clone(), problem });
    }

    fn report_altered(&mut self, items: &[Item], captured: &Captured) {
        for item in judge::altered(items, captured) {
            self.report_on(&item.id, Problem::Altered);
        }
    }

    /// The captured turn that a turn of the request is: the ancestor of the one behind it, or one of its own evidence.
    async fn look_for(
        &mut self,
        turn: &ChainTurn,
        items: &[Item],
    ) -> Result<Option<Match>, StoreError> {
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
        let Some(standing) = self.standing(&ancestor).await? else { return Ok(false) };
        let Loaded::Here(captured) = self.load(&standing).await? else { return Ok(false) };
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
                match self.replay.claims.read(self.tenant, &text) {
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
            let Some(standing) = self.standing(&node).await? else { break };
            let captured = match self.load(&standing).await? {
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
                let fits = match judge::likeness(turn, &captured) {
                    Likeness::Same => true,
                    Likeness::Edited => turn.visible.acts.is_some(),
                    Likeness::Other => false,
                };
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
        let Some(standing) = self.standing(node).await? else { return Ok(None) };
        match self.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = judge::likeness(turn, &captured) != Likeness::Other;
                Ok(fits.then(|| self.matched(standing, captured, Evidence::Claim)))
            }
            Loaded::Gone(why) => Ok(Some(self.gone(standing, items, why, &Evidence::Claim))),
            Loaded::Anothers => {
                self.report(items, Problem::ForeignClaim);
                Ok(None)
            }
        }
    }

    /// The one turn that the client's ids and Seals name: all that name any must name the same.
    async fn named_by_ids(&self, items: &[Item]) -> Result<Option<VaultTurn>, StoreError> {
        let keys: Vec<_> = capture::ids_in(items).into_iter().map(VaultKey::Id).collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let found = self.replay.store.find(self.tenant, &keys).await?;
        let mut turns = found.into_iter().flatten().map(|found| found.turn);
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
        match self.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = match judge::likeness(turn, &captured) {
                    Likeness::Same => true,
                    Likeness::Edited => turn.visible.acts.is_some(),
                    Likeness::Other => false,
                };
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
        let Some(digest) = turn.digest else { return Ok(None) };
        // The target's own turn is meant, if it has one that looks like this.
        let keys = [chain::made_by(&digest, self.maker), digest].map(VaultKey::Chain);
        let found = self.replay.store.find(self.tenant, &keys).await?;
        let Some(Found { turn: standing, siblings }) = found.into_iter().flatten().next() else {
            return Ok(None);
        };
        let evidence = Evidence::Chain { siblings };
        match self.load(&standing).await? {
            Loaded::Here(captured) => {
                let fits = judge::likeness(turn, &captured) == Likeness::Same;
                Ok(fits.then(|| self.matched(standing, captured, evidence)))
            }
            Loaded::Gone(why) => Ok(Some(self.gone(standing, items, why, &evidence))),
            Loaded::Anothers => Ok(None),
        }
    }

    fn matched(&mut self, turn: VaultTurn, captured: Arc<Captured>, evidence: Evidence) -> Match {
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

    /// How a turn stands in the store now. Its ancestors, as far as they were read before, are asked for at once.
    async fn standing(&mut self, node: &NodeId) -> Result<Option<VaultTurn>, StoreError> {
        if !self.stands.contains_key(node) {
            let mut nodes = vec![node.clone()];
            nodes.extend(self.replay.memo.ancestors(self.tenant, node));
            let keys: Vec<_> = nodes.into_iter().map(|node| VaultKey::Claim(node.0)).collect();
            let found = self.replay.store.find(self.tenant, &keys).await?;
            let turns = found.into_iter().flatten().map(|found| found.turn);
            self.stands.extend(turns.map(|turn| (turn.id.clone(), turn)));
        }
        Ok(self.stands.get(node).cloned())
    }

    async fn load(&self, turn: &VaultTurn) -> Result<Loaded, StoreError> {
        if let Some(why) = turn.gone {
            self.replay.memo.drop(self.tenant, &turn.id);
            return Ok(Loaded::Gone(why));
        }
        let captured = match self.replay.memo.get(self.tenant, &turn.id) {
            Some(captured) => captured,
            None => match self.read(turn).await? {
                Ok(captured) => {
                    let captured = Arc::new(captured);
                    self.replay.memo.put(self.tenant, &turn.id, &captured);
                    captured
                }
                Err(why) => return Ok(Loaded::Gone(why)),
            },
        };
        if captured.end_user.as_deref() != self.end_user {
            return Ok(Loaded::Anothers);
        }
        Ok(Loaded::Here(captured))
    }

    /// Reads a turn's records: its content, or why it is no more.
    async fn read(&self, turn: &VaultTurn) -> Result<Result<Captured, Why>, StoreError> {
        let (after, count) =
            (turn.first.saturating_sub(1), turn.last.saturating_sub(turn.first) + 1);
        let limit = u32::try_from(count).unwrap_or(u32::MAX);
        let records = self.replay.store.read(self.tenant, &turn.log, after, limit).await?;
        let damaged = |problem: String| StoreError::Corrupt(Name::from(problem));
        let (mut end_user, mut number, mut texts, mut size) = (None, None, Vec::new(), 0);
        for record in records {
            let content = match record.content {
                Content::Here(content) => content,
                Content::Gone(why) => return Ok(Err(why)),
            };
            size += content.len();
            match &*record.kind {
                TURN => {
                    let tree = Tree::parse(content).map_err(|error| {
                        damaged(format!("turn {} does not say whose it is: {error}", turn.id))
                    })?;
                    end_user = tree.root().name_of("user");
                    number = tree.root().get("turn").and_then(Node::u64);
                }
                kind::ITEM => texts.push(Some(content)),
                _ => {}
            }
        }
        let items = restore_items(texts)
            .map_err(|error| damaged(format!("turn {} cannot be read: {error}", turn.id)))?;
        let visible = Visible::of(&items);
        let number = usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX);
        Ok(Ok(Captured { parent: turn.parent.clone(), end_user, number, items, visible, size }))
    }
}

impl Match {
    fn of(turn: VaultTurn) -> Self {
        let VaultTurn { id, log, last, .. } = turn;
        Self { node: id.clone(), parent: Parent { node: id, log, last }, captured: None }
    }
}
