//! Keeps decoded requests, whose Items later requests of the conversation reuse: see
//! `item_reader/reuse.rs`.

use std::sync::Arc;

use throughline_core::{Body, Call, Item, Seal, Target, Wire};
use throughline_json::Tree;

/// Approximate memory size in bytes of the ids, labels and envelope of an Item.
const SMALL_TEXTS: usize = 128;

/// A decoded request, whose Items later requests of the conversation can reuse.
pub struct KnownRequest {
    pub(crate) wire: Wire,
    pub(crate) body: Tree,
    target: Target,
    pub(crate) items: Vec<Item>,
}

impl KnownRequest {
    /// Keeps the Items of a Call that was decoded from `body` for `target`.
    pub fn new(wire: Wire, body: Tree, target: Target, call: &Call) -> Self {
        Self { wire, body, target, items: call.items.clone() }
    }

    /// Returns the approximate memory size of the Items in bytes, without their texts.
    pub fn items_size(call: &Call) -> usize {
        let size = |item: &Item| {
            let parts = match &item.body {
                Body::Result(result) => size_of_val(result.parts.as_slice()),
                _ => 0,
            };
            let seals = item.seals.len() * (size_of::<Seal>() + SMALL_TEXTS);
            size_of::<Item>() + SMALL_TEXTS + parts + seals
        };
        call.items.iter().map(size).sum()
    }

    pub(crate) fn has_target(&self, target: &Target) -> bool {
        Arc::ptr_eq(&self.target.provider, &target.provider)
            && Arc::ptr_eq(&self.target.profile, &target.profile)
            && self.target.origin == target.origin
    }
}

/// The beginning of a request that an earlier request also had.
#[derive(Clone)]
pub struct KnownBeginning {
    pub(crate) request: Arc<KnownRequest>,
    pub(crate) shared: usize,
}

impl KnownBeginning {
    /// Creates a beginning of `shared` bytes, which both requests must have in common.
    pub fn new(request: Arc<KnownRequest>, shared: usize) -> Self {
        Self { request, shared }
    }
}

impl std::fmt::Debug for KnownBeginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownBeginning({} B)", self.shared)
    }
}
