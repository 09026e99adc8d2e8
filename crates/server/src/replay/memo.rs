//! Captured turns that were read before. What is no more is never taken from here: the store is asked each time whether
//! a turn still stands, and only its content is remembered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Item, Name, NodeId, Tenant};

use crate::replay::chain::Visible;

/// How many bytes of turns are remembered.
const MOST_BYTES: usize = 16 << 20;

/// The content of a captured turn.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) parent: Option<NodeId>,
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
    turns: HashMap<Key, Arc<Captured>>,
    order: VecDeque<Key>,
    bytes: usize,
}

impl Memo {
    pub(super) fn get(&self, tenant: &Tenant, node: &NodeId) -> Option<Arc<Captured>> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.turns.get(&(tenant.clone(), node.clone())).map(Arc::clone)
    }

    pub(super) fn put(&self, tenant: &Tenant, node: &NodeId, captured: &Arc<Captured>) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), node.clone());
        if remembered.turns.insert(key.clone(), Arc::clone(captured)).is_some() {
            return;
        }
        remembered.order.push_back(key);
        remembered.bytes += captured.size;
        while remembered.bytes > MOST_BYTES
            && let Some(oldest) = remembered.order.pop_front()
        {
            let size = remembered.turns.remove(&oldest).map_or(0, |captured| captured.size);
            remembered.bytes = remembered.bytes.saturating_sub(size);
        }
    }

    /// Lets a turn go that is no more.
    pub(super) fn drop(&self, tenant: &Tenant, node: &NodeId) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), node.clone());
        if let Some(captured) = remembered.turns.remove(&key) {
            remembered.order.retain(|known| *known != key);
            remembered.bytes = remembered.bytes.saturating_sub(captured.size);
        }
    }

    /// The turns before that one, as far as they are remembered, the nearest first.
    pub(super) fn ancestors(&self, tenant: &Tenant, node: &NodeId) -> Vec<NodeId> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (tenant.clone(), node.clone());
        let mut ancestors = Vec::new();
        while let Some(parent) = remembered.turns.get(&key).and_then(|turn| turn.parent.clone()) {
            if ancestors.len() > remembered.turns.len() {
                break;
            }
            ancestors.push(parent.clone());
            key.1 = parent;
        }
        ancestors
    }
}
