//! Captured turns that were read before. What is no more is never taken from here: a turn stands only in an era in which the
//! store said so, or in which it was kept, and each search asks the store which era it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throughline_core::{Era, Item, Name, NodeId, Tenant, VaultTurn};

use crate::recent::Recent;
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

/// Captured turns that were read before.
pub(super) struct Memo(Mutex<Recent<Key, Known>>);

/// A turn, and the era in which it stood.
struct Known {
    turn: VaultTurn,
    era: Era,
    captured: Arc<Captured>,
}

impl Default for Memo {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(MOST_BYTES)))
    }
}

impl Memo {
    fn recent(&self) -> MutexGuard<'_, Recent<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, tenant: &Tenant, node: &NodeId) -> Option<Arc<Captured>> {
        let recent = self.recent();
        let known = recent.get(&(tenant.clone(), node.clone()));
        known.map(|known| Arc::clone(&known.captured))
    }

    /// The turn, if it stood in that era.
    pub(super) fn standing(&self, tenant: &Tenant, node: &NodeId, era: Era) -> Option<VaultTurn> {
        let recent = self.recent();
        let known = recent.get(&(tenant.clone(), node.clone()));
        known.filter(|known| known.era == era).map(|known| known.turn.clone())
    }

    /// Those of these turns that are remembered stand in that era.
    pub(super) fn stand<'t>(
        &self,
        tenant: &Tenant,
        turns: impl Iterator<Item = &'t VaultTurn>,
        era: Era,
    ) {
        let mut recent = self.recent();
        for turn in turns {
            if let Some(known) = recent.get_mut(&(tenant.clone(), turn.id.clone())) {
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
        let known = Known { turn: turn.clone(), era, captured: Arc::clone(captured) };
        self.recent().put((tenant.clone(), turn.id.clone()), known, captured.size);
    }

    /// Lets a turn go that is no more.
    pub(super) fn drop(&self, tenant: &Tenant, node: &NodeId) {
        drop(self.recent().take(&(tenant.clone(), node.clone())));
    }

    /// The turns before that one, as far as they are remembered, the nearest first.
    pub(super) fn ancestors(&self, tenant: &Tenant, node: &NodeId) -> Vec<NodeId> {
        let recent = self.recent();
        let mut key = (tenant.clone(), node.clone());
        let mut ancestors = Vec::new();
        while let Some(parent) = recent.get(&key).and_then(|known| known.turn.parent.clone()) {
            if ancestors.len() > recent.len() {
                break;
            }
            ancestors.push(parent.clone());
            key.1 = parent;
        }
        ancestors
    }
}
