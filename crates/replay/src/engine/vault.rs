//! Vault access for one request: looks up turns, and reads their status and content.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Content, ElisionReason, ErasureEpoch, StoreError, Tenant, TurnId, VaultKey, VaultLookup,
    VaultMatch, VaultTurn, kind, restore_items,
};
use throughline_json::{Name, Node, Tree};

use crate::engine::Replay;
use crate::engine::chain::VisibleDigests;
use crate::engine::turn_cache::Captured;
use crate::turn::{TURN, read_range};

/// Gives one request access to the Vault. Caches lookups and the status of turns.
pub(super) struct VaultSearch<'r> {
    pub(super) replay: &'r Replay,
    pub(super) tenant: &'r Tenant,
    end_user: Option<&'r str>,
    /// The results of earlier lookups; `None` for keys without a match.
    found: HashMap<VaultKey, Option<VaultMatch>>,
    /// Turns whose status was read during this request.
    checked: HashMap<TurnId, VaultTurn>,
    /// The epoch of the last store lookup.
    era: Option<ErasureEpoch>,
}

/// The content of a Vault turn, if the caller may use the turn.
pub(super) enum LoadedTurn {
    Here(Arc<Captured>),
    Gone(ElisionReason),
    /// The turn belongs to another end user.
    Anothers,
}

impl<'r> VaultSearch<'r> {
    pub(super) fn new(replay: &'r Replay, tenant: &'r Tenant, end_user: Option<&'r str>) -> Self {
        Self { replay, tenant, end_user, found: HashMap::new(), checked: HashMap::new(), era: None }
    }

    /// Returns the end user whose turns can be loaded.
    pub(super) fn end_user(&self) -> Option<&'r str> {
        self.end_user
    }

    /// Returns the epoch of the last store lookup, or the first epoch if there was no lookup.
    pub(super) fn era(&self) -> ErasureEpoch {
        self.era.unwrap_or_default()
    }

    /// Whether all of these keys were looked up.
    pub(super) fn has_looked_up(&self, keys: &[VaultKey]) -> bool {
        keys.iter().all(|key| self.found.contains_key(key))
    }

    /// Returns the result of an earlier lookup; `None` if the key has no match.
    pub(super) fn result(&self, key: &VaultKey) -> Option<VaultMatch> {
        self.found.get(key).cloned().flatten()
    }

    /// Looks up these keys in one query. Keys that were already looked up are skipped.
    pub(super) async fn look_up(&mut self, mut keys: Vec<VaultKey>) -> Result<(), StoreError> {
        keys.retain(|key| !self.found.contains_key(key));
        let found = self.query_store(&keys).await?;
        self.found.extend(keys.into_iter().zip(found));
        Ok(())
    }

    /// Returns the newest turns with a key that was looked up, newest first and at most `limit`.
    pub(super) async fn newest(
        &self,
        key: &VaultKey,
        limit: u32,
    ) -> Result<Vec<VaultTurn>, StoreError> {
        match self.result(key) {
            Some(VaultMatch { turn, siblings: 0 }) => Ok(vec![turn]),
            Some(_) => self.replay.store.find_newest(self.tenant, key, limit).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the current status of a turn. A cached status is used if its epoch is current.
    /// Otherwise the turn and its cached ancestors are looked up in one query.
    pub(super) async fn current_turn(
        &mut self,
        node: &TurnId,
    ) -> Result<Option<VaultTurn>, StoreError> {
        if let Some(turn) = self.checked.get(node) {
            return Ok(Some(turn.clone()));
        }
        let cached = |era| self.replay.turns.get_valid(self.tenant, node, era);
        if let Some(turn) = self.era.and_then(cached) {
            return Ok(Some(turn));
        }
        let mut nodes = vec![node.clone()];
        nodes.extend(self.replay.turns.ancestors(self.tenant, node));
        let keys: Vec<_> = nodes.into_iter().map(|node| VaultKey::Claim(node.0)).collect();
        let turns = self.query_store(&keys).await?.into_iter().flatten().map(|found| found.turn);
        self.checked.extend(turns.map(|turn| (turn.id.clone(), turn)));
        Ok(self.checked.get(node).cloned())
    }

    /// Queries the store and marks the existing turns as valid in the current epoch.
    async fn query_store(
        &mut self,
        keys: &[VaultKey],
    ) -> Result<Vec<Option<VaultMatch>>, StoreError> {
        let VaultLookup { found, era } = self.replay.find(self.tenant, keys).await?;
        self.era = Some(era);
        let turns = found.iter().flatten().map(|found| &found.turn);
        self.replay.turns.mark_valid(self.tenant, turns.filter(|turn| turn.gone.is_none()), era);
        Ok(found)
    }

    pub(super) async fn load(&self, turn: &VaultTurn) -> Result<LoadedTurn, StoreError> {
        if let Some(why) = turn.gone {
            self.replay.turns.drop(self.tenant, &turn.id);
            return Ok(LoadedTurn::Gone(why));
        }
        let captured = match self.replay.turns.get(self.tenant, &turn.id) {
            Some(captured) => captured,
            None => match self.read(turn).await? {
                Ok(captured) => {
                    let captured = Arc::new(captured);
                    self.replay.issuers.add(self.tenant, &captured.items);
                    // The lookup in this epoch preceded the read, so an erasure after the lookup
                    // changes the epoch.
                    self.replay.turns.insert(self.tenant, turn, &captured, self.era());
                    captured
                }
                Err(why) => return Ok(LoadedTurn::Gone(why)),
            },
        };
        if captured.end_user.as_deref() != self.end_user {
            return Ok(LoadedTurn::Anothers);
        }
        Ok(LoadedTurn::Here(captured))
    }

    /// Reads a turn's content from its records. If the content was erased, returns the reason.
    async fn read(&self, turn: &VaultTurn) -> Result<Result<Captured, ElisionReason>, StoreError> {
        let (store, range) = (&*self.replay.store, turn.first..=turn.last);
        let records = read_range(store, self.tenant, &turn.log, range).await?;
        let damaged = |problem: String| StoreError::Corrupt(Name::from(problem));
        let (mut end_user, mut number, mut texts, mut size) = (None, None, Vec::new(), 0);
        // Copies are not part of the turn and may be erased separately.
        for record in records.into_iter().filter(|record| *record.kind != *kind::COPY) {
            let content = match record.content {
                Content::Here(content) => content,
                Content::Gone(why) => return Ok(Err(why)),
            };
            size += content.len();
            match &*record.kind {
                TURN => {
                    let tree = Tree::parse(content).map_err(|error| {
                        damaged(format!("turn {} has an unreadable header: {error}", turn.id))
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
        let visible = VisibleDigests::of(&items);
        let number = usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX);
        Ok(Ok(Captured { end_user, number, items, visible, size }))
    }
}
