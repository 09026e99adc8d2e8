//! Captured turns that were read before. What is no more is never taken from here: a turn stands only in an era in which the
//! store said so, or in which it was kept, and each search asks the store which era it is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Era, Item, Name, NodeId, Tenant, VaultTurn};

use crate::replay::chain::Visible;

/// How many bytes of turns are remembered.
const MOST_BYTES: usize = 16 << 20;

/// The content of a captured turn.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) end_user: Option<Name>,
    /// How many visible turns stood before it.
    pub(super) number: usize,
    pub(super) items: Vec<Item>,
    pub(super) visible: Visible,
    /// How many bytes its records have.
    pub(super) size: usize,
}

type Key = (Tenant, NodeId);

/// Captured turns that were read before, the oldest of which are let go.
#[derive(Default)]
pub(super) struct Memo(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    turns: HashMap<Key, Known>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// A turn, and the era in which it stood.
struct Known {
    turn: VaultTurn,
    era: Era,
    captured: Arc<Captured>,
}

impl Memo {
    pub(super) fn get(&self, tenant: &Tenant, node: &NodeId) -> Option<Arc<Captured>> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.turns.get(&(tenant.clone(), node.clone()));
        known.map(|known| Arc::clone(&known.captured))
    }

    /// The turn, if it stood in that era.
    pub(super) fn standing(&self, tenant: &Tenant, node: &NodeId, era: Era) -> Option<VaultTurn> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.turns.get(&(tenant.clone(), node.clone()));
        known.filter(|known| known.era == era).map(|known| known.turn.clone())
    }

    /// Those of these turns that are remembered stand in that era.
    pub(super) fn stand<'t>(
        &self,
        tenant: &Tenant,
        turns: impl Iterator<Item = &'t VaultTurn>,
        era: Era,
    ) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for turn in turns {
            if let Some(known) = remembered.turns.get_mut(&(tenant.clone(), turn.id.clone())) {
                known.era = era;
            }
        }
    }

    /// Remembers a turn that stood in that era.
    pub(super) fn put(
        &self,
        tenant: &Tenant,
        turn: &VaultTurn,
        captured: &Arc<Captured>,
        era: Era,
    ) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), turn.id.clone());
        let known = Known { turn: turn.clone(), era, captured: Arc::clone(captured) };
        if remembered.turns.insert(key.clone(), known).is_some() {
            return;
        }
        remembered.order.push_back(key);
        remembered.bytes += captured.size;
        while remembered.bytes > MOST_BYTES
            && let Some(oldest) = remembered.order.pop_front()
        {
            let size = remembered.turns.remove(&oldest).map_or(0, |known| known.captured.size);
            remembered.bytes = remembered.bytes.saturating_sub(size);
        }
    }

    /// Lets a turn go that is no more.
    pub(super) fn drop(&self, tenant: &Tenant, node: &NodeId) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), node.clone());
        if let Some(Known { captured, .. }) = remembered.turns.remove(&key) {
            remembered.order.retain(|known| *known != key);
            remembered.bytes = remembered.bytes.saturating_sub(captured.size);
        }
    }

    /// The turns before that one, as far as they are remembered, the nearest first.
    pub(super) fn ancestors(&self, tenant: &Tenant, node: &NodeId) -> Vec<NodeId> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (tenant.clone(), node.clone());
        let mut ancestors = Vec::new();
        while let Some(parent) =
            remembered.turns.get(&key).and_then(|known| known.turn.parent.clone())
        {
            if ancestors.len() > remembered.turns.len() {
                break;
            }
            ancestors.push(parent.clone());
            key.1 = parent;
        }
        ancestors
    }
}
