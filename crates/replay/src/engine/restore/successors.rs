//! Finds turns by the turn before them, for clients that change the system prompt.

use std::collections::HashMap;
use std::slice;

use throughline_core::{Evidence, StoreError, VaultKey, VaultMatch};

use crate::engine::chain;
use crate::engine::compare::Similarity;
use crate::engine::restore::{MOST_TURNS, TurnMatch, TurnSearch, is_from_model};
use crate::engine::step::Predecessor;
use crate::turn::ParentTurn;

impl TurnSearch<'_> {
    /// Matches turns that directly follow a matched turn: the caller's Items in between and the
    /// visible content of the turn must be equal. Returns the matches, oldest first.
    pub(super) async fn find_successors(&mut self) -> Result<Vec<(usize, TurnMatch)>, StoreError> {
        let mut keys: HashMap<usize, VaultKey> = HashMap::new();
        let unmatched = (0..self.turns.len()).rev();
        let with_key = unmatched.filter_map(|at| Some((at, self.step_key(at)?)));
        keys.extend(with_key.take(MOST_TURNS));
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.vault.look_up(keys.values().cloned().collect()).await?;
        let (mut matches, mut queries) = (Vec::new(), 0);
        let first = keys.keys().min().copied().unwrap_or_default();
        for at in first..self.turns.len() {
            // A turn that was just matched can be the predecessor of the next turn.
            let Some(key) = keys.remove(&at).or_else(|| self.step_key(at)) else { continue };
            if !self.vault.has_looked_up(slice::from_ref(&key)) {
                queries += 1;
                if queries > MOST_TURNS {
                    break;
                }
                self.vault.look_up(vec![key.clone()]).await?;
            }
            if let Some(matched) = self.by_step(at, &key).await? {
                self.ids.insert(at, matched.node.clone());
                matches.push((at, matched));
            }
        }
        Ok(matches)
    }

    /// Returns the key of an unmatched turn of a model that directly follows a matched turn.
    fn step_key(&self, at: usize) -> Option<VaultKey> {
        if self.ids.contains_key(&at) {
            return None;
        }
        let turn = self.turns.get(at).filter(|turn| turn.digest.is_some())?;
        if !is_from_model(self.items.get(turn.items.clone())?) {
            return None;
        }
        let before = self.turns.get(..at)?.iter().rposition(|turn| turn.digest.is_some())?;
        let predecessor = Predecessor::Turn(self.ids.get(&before)?.clone());
        let before = self.turns.get(before)?.items.clone();
        let input = self.items.get(before.end..turn.items.start)?;
        let input = chain::input_between(self.items.get(before)?, input)?;
        let end_user = self.vault.end_user();
        Some(VaultKey::Chain(predecessor.step(end_user, &input, &turn.visible)))
    }

    async fn by_step(
        &mut self,
        at: usize,
        key: &VaultKey,
    ) -> Result<Option<TurnMatch>, StoreError> {
        let Some(VaultMatch { turn: stored, siblings }) = self.vault.result(key) else {
            return Ok(None);
        };
        // Turns with the same step may belong to conversations that differ before the predecessor.
        if siblings > 0 {
            return Ok(None);
        }
        let (turns, items) = (self.turns, self.items);
        let Some(turn) = turns.get(at) else { return Ok(None) };
        self.at = at;
        let before = turns.iter().take(at);
        self.number = before.filter(|turn| turn.digest.is_some()).count();
        let items = items.get(turn.items.clone()).unwrap_or_default();
        let fits = |likeness| likeness == Similarity::Same;
        self.accept(stored, Evidence::Chain { siblings }, turn, items, fits).await
    }

    /// Returns what directly precedes the caller's last Items; `None` if the last model turn was
    /// not matched.
    pub(super) fn predecessor(&self, parent: Option<&ParentTurn>) -> Option<Predecessor> {
        match self.turns.iter().rposition(|turn| turn.digest.is_some()) {
            Some(last) => self.ids.get(&last).cloned().map(Predecessor::Turn),
            None => Some(
                parent.map_or(Predecessor::Start, |parent| Predecessor::Turn(parent.node.clone())),
            ),
        }
    }
}
