//! The Vault as one search sees it: what its keys find, how its turns stand, and what they hold.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Content, Era, Found, Name, Node, NodeId, Sight, StoreError, Tenant, Tree, VaultKey, VaultTurn,
    Why, kind, restore_items,
};

use crate::replay::Replay;
use crate::replay::capture::TURN;
use crate::replay::chain::Visible;
use crate::replay::memo::Captured;

/// The Vault as one search sees it.
pub(super) struct Vault<'r> {
    pub(super) replay: &'r Replay,
    pub(super) tenant: &'r Tenant,
    end_user: Option<&'r str>,
    /// What keys found.
    found: HashMap<VaultKey, Option<Found>>,
    /// How turns stand.
    stands: HashMap<NodeId, VaultTurn>,
    /// The era in which the store was last looked at.
    era: Option<Era>,
}

/// What a turn of the Vault is to this caller.
pub(super) enum Loaded {
    Here(Arc<Captured>),
    Gone(Why),
    /// Another end-user's.
    Anothers,
}

impl<'r> Vault<'r> {
    pub(super) fn new(replay: &'r Replay, tenant: &'r Tenant, end_user: Option<&'r str>) -> Self {
        Self { replay, tenant, end_user, found: HashMap::new(), stands: HashMap::new(), era: None }
    }

    /// The era in which the store was last looked at; the first one, where it was not.
    pub(super) fn era(&self) -> Era {
        self.era.unwrap_or_default()
    }

    /// Whether all of these keys were asked for.
    pub(super) fn knows(&self, keys: &[VaultKey]) -> bool {
        keys.iter().all(|key| self.found.contains_key(key))
    }

    /// What a key found when it was asked for.
    pub(super) fn found(&self, key: &VaultKey) -> Option<Found> {
        self.found.get(key).cloned().flatten()
    }

    /// Asks for these keys, all at once.
    pub(super) async fn ask(&mut self, mut keys: Vec<VaultKey>) -> Result<(), StoreError> {
        keys.retain(|key| !self.found.contains_key(key));
        let found = self.look(&keys).await?;
        self.found.extend(keys.into_iter().zip(found));
        Ok(())
    }

    /// How a turn stands in the store now. What stood in this era still does; else its ancestors, as far as they were read
    /// before, are asked for at once.
    pub(super) async fn standing(
        &mut self,
        node: &NodeId,
    ) -> Result<Option<VaultTurn>, StoreError> {
        if let Some(turn) = self.stands.get(node) {
            return Ok(Some(turn.clone()));
        }
        let stood = |era| self.replay.memo.standing(self.tenant, node, era);
        if let Some(turn) = self.era.and_then(stood) {
            return Ok(Some(turn));
        }
        let mut nodes = vec![node.clone()];
        nodes.extend(self.replay.memo.ancestors(self.tenant, node));
        let keys: Vec<_> = nodes.into_iter().map(|node| VaultKey::Claim(node.0)).collect();
        let turns = self.look(&keys).await?.into_iter().flatten().map(|found| found.turn);
        self.stands.extend(turns.map(|turn| (turn.id.clone(), turn)));
        Ok(self.stands.get(node).cloned())
    }

    /// Looks into the store. What is seen to stand there is remembered to have stood in this era.
    async fn look(&mut self, keys: &[VaultKey]) -> Result<Vec<Option<Found>>, StoreError> {
        let Sight { found, era } = self.replay.find(self.tenant, keys).await?;
        self.era = Some(era);
        let turns = found.iter().flatten().map(|found| &found.turn);
        self.replay.memo.stand(self.tenant, turns.filter(|turn| turn.gone.is_none()), era);
        Ok(found)
    }

    pub(super) async fn load(&self, turn: &VaultTurn) -> Result<Loaded, StoreError> {
        if let Some(why) = turn.gone {
            self.replay.memo.drop(self.tenant, &turn.id);
            return Ok(Loaded::Gone(why));
        }
        let captured = match self.replay.memo.get(self.tenant, &turn.id) {
            Some(captured) => captured,
            None => match self.read(turn).await? {
                Ok(captured) => {
                    let captured = Arc::new(captured);
                    // It was seen to stand before it was read.
                    self.replay.memo.put(self.tenant, turn, &captured, self.era());
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
        // Copies are no part of the turn, and may be gone without it.
        for record in records.into_iter().filter(|record| *record.kind != *kind::COPY) {
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
        Ok(Ok(Captured { end_user, number, items, visible, size }))
    }
}
