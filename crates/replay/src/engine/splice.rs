//! Replaces turns in a Call with captured Items, and removes Claims.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{
    Body, Call, CallId, Disposition, ElisionReason, Evidence, Fate, Item, ItemId, Seal, TurnId,
};
use throughline_json::Name;

use crate::claim::Claims;
use crate::engine::LostParts;
use crate::engine::compare;

/// The captured Items that replace one turn in a Call.
pub(super) struct Patch {
    /// The index range of the turn's Items in the Call.
    pub(super) range: Range<usize>,
    pub(super) node: TurnId,
    pub(super) items: Vec<Item>,
    pub(super) evidence: Evidence,
}

/// Applies the patches, which must be in the same order as the turns in the Call. Records in
/// `marks` which parts the client had dropped.
pub(super) fn splice(call: &mut Call, patches: Vec<Patch>, marks: &mut HashMap<ItemId, LostParts>) {
    if patches.is_empty() {
        return;
    }
    let received = std::mem::take(&mut call.items);
    let mut out = Splicer::new(&received, &patches);
    let mut next = 0;
    for patch in patches {
        out.copy(received.get(next..patch.range.start).unwrap_or_default());
        next = patch.range.end;
        let lost = received.get(patch.range.clone()).unwrap_or_default();
        out.replace(lost, patch, marks);
    }
    out.copy(received.get(next..).unwrap_or_default());
    call.items = out.items;
}

struct Splicer {
    items: Vec<Item>,
    /// Number of messages added so far.
    messages: u32,
    taken: HashSet<ItemId>,
    calls: HashSet<CallId>,
    /// Maps the client's id of a renamed tool call to the captured call's Throughline id and wire
    /// id.
    renamed: HashMap<CallId, (CallId, Option<Name>)>,
}

impl Splicer {
    fn new(received: &[Item], patches: &[Patch]) -> Self {
        let replaced = patches.iter().flat_map(|patch| patch.range.clone());
        let replaced: HashSet<usize> = replaced.collect();
        let unreplaced = received.iter().enumerate().filter(|(at, _)| !replaced.contains(at));
        let taken = unreplaced.map(|(_, item)| item.id.clone()).collect();
        let calls = received.iter().filter_map(Item::call).map(|call| call.id.clone()).collect();
        let (items, renamed) = (Vec::with_capacity(received.len()), HashMap::new());
        Self { items, messages: 0, taken, calls, renamed }
    }

    /// Appends Items, and renumbers their messages to follow the messages that were added before.
    fn add(&mut self, items: impl IntoIterator<Item = Item>) {
        let mut last = None;
        for mut item in items {
            if last.is_some_and(|last| last != item.place.message) {
                self.messages += 1;
            }
            last = Some(item.place.message);
            item.place.message = self.messages;
            self.items.push(item);
        }
        if last.is_some() {
            self.messages += 1;
        }
    }

    fn copy(&mut self, items: &[Item]) {
        let items: Vec<Item> = items.iter().map(|item| self.relinked(item)).collect();
        self.add(items);
    }

    /// Returns a copy of the Item. If the Item is the result of a renamed tool call, the copy
    /// refers to the new call id.
    fn relinked(&self, item: &Item) -> Item {
        let mut item = item.clone();
        if let Body::Result(result) = &mut item.body
            && let Some((id, wire_id)) = self.renamed.get(&result.call)
        {
            result.call = id.clone();
            result.wire_id.clone_from(wire_id);
            item.native = None;
        }
        item
    }

    fn replace(&mut self, lost: &[Item], patch: Patch, marks: &mut HashMap<ItemId, LostParts>) {
        let Patch { node, mut items, evidence, .. } = patch;
        self.name(&node, &mut items);
        let sent_calls: Vec<_> = lost.iter().filter_map(Item::call).collect();
        let calls = items.iter_mut().filter_map(|item| {
            if let Body::Call(call) = &mut item.body { Some(call) } else { None }
        });
        for (sent_call, call) in sent_calls.into_iter().zip(calls) {
            let is_ours = |id: &Name| Claims::has_handle_format(id.as_bytes());
            call.id = if sent_call.wire_id.as_ref().is_some_and(is_ours) {
                unused(&self.calls, &call.id, &node)
            } else {
                sent_call.id.clone()
            };
            // The provider identifies a call, and its result, by the id it issued.
            if sent_call.wire_id.is_some() && sent_call.wire_id != call.wire_id {
                let now = (call.id.clone(), call.wire_id.clone());
                self.renamed.insert(sent_call.id.clone(), now);
            }
            self.calls.insert(call.id.clone());
        }
        for item in &items {
            marks.insert(item.id.clone(), mark(item, lost, &evidence));
        }
        self.add(items);
    }

    /// Renames Items whose ids are already used, and updates the Seals that refer to these Items.
    fn name(&mut self, node: &TurnId, items: &mut [Item]) {
        let mut named: HashMap<ItemId, ItemId> = HashMap::new();
        for item in items.iter_mut() {
            if !self.taken.insert(item.id.clone()) {
                let id = ItemId::from(format!("{node}.{}", item.id));
                self.taken.insert(id.clone());
                named.insert(std::mem::replace(&mut item.id, id.clone()), id);
            }
        }
        for seal in items.iter_mut().flat_map(|item| &mut item.seals) {
            if let Some(now) = seal.attached.leads.as_ref().and_then(|led| named.get(led)) {
                seal.attached.leads = Some(now.clone());
            }
        }
    }
}

/// Returns the id if it is unused, otherwise an unused id derived from it.
fn unused(taken: &HashSet<CallId>, id: &CallId, node: &TurnId) -> CallId {
    if taken.contains(id) { CallId::from(format!("{node}_{id}")) } else { id.clone() }
}

/// Determines which parts of an Item the client had dropped.
fn mark(item: &Item, lost: &[Item], evidence: &Evidence) -> LostParts {
    let visible = match &item.body {
        Body::Thought(_) => !compare::has_thought(lost, item),
        Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            let kind = std::mem::discriminant(&item.body);
            !lost.iter().any(|other| std::mem::discriminant(&other.body) == kind)
        }
        // A turn is replaced only if the client sent these visible parts.
        Body::Text(_) | Body::Media(_) | Body::Call(_) | Body::Result(_) | Body::Summary { .. } => {
            false
        }
    };
    let was_sent = |seal: &Seal| compare::seals(lost).any(|sent| compare::is_same(sent, seal));
    let seals = item.seals.iter().map(|seal| !was_sent(seal)).collect();
    LostParts { evidence: evidence.clone(), visible, seals }
}

/// Sets the origin and the Seal owner of the client's Items that stay unchanged.
pub(super) fn set_owner(items: &mut [Item], captured: &[Item]) {
    let issued = || captured.iter().flat_map(|item| &item.seals);
    let maker = captured.iter().find_map(|item| item.origin.as_ref());
    for item in items {
        let is_makers = !item.seals.is_empty() || matches!(item.body, Body::Thought(_));
        if let (true, Some(maker)) = (is_makers, maker) {
            item.origin = Some(std::sync::Arc::clone(maker));
        }
        for seal in &mut item.seals {
            if let Some(known) = issued().find(|known| compare::is_same(seal, known)) {
                seal.owner = std::sync::Arc::clone(&known.owner);
                seal.bound = known.bound;
            }
        }
    }
}

/// Returns a replacement for a gateway id. The replacement is derived from a hash of the id, so
/// that every request gets the same replacement.
fn neutral(id: &Name) -> CallId {
    let digest = blake3::hash(id.as_bytes()).to_hex();
    CallId::from(format!("call_{}", digest.chars().take(24).collect::<String>()))
}

impl Claims {
    /// Removes all Claims and gateway ids from a Call, so that no provider receives them. Thoughts
    /// that only carried a Claim are dropped, and their Fates are returned.
    pub fn remove(call: &mut Call, reason: ElisionReason) -> Vec<Fate> {
        let mut left = Vec::new();
        let mut renamed: HashMap<CallId, CallId> = HashMap::new();
        let is_ours = |seal: &Seal| Claims::has_handle_format(seal.reveal_to_tenant());
        call.items.retain_mut(|item| {
            if !item.seals.iter().any(is_ours) {
                return true;
            }
            if matches!(item.body, Body::Thought(_)) {
                let seals = vec![Disposition::Elided(reason); item.seals.len()];
                left.push(Fate {
                    item: item.id.clone(),
                    visible: Disposition::Elided(reason),
                    seals,
                });
                return false;
            }
            item.seals.clear();
            item.native = None;
            true
        });
        let is_ours = |id: &Name| Claims::has_handle_format(id.as_bytes());
        for item in &mut call.items {
            if let Body::Call(call) = &mut item.body
                && let Some(id) = call.wire_id.take_if(|id| is_ours(id))
            {
                let neutral = neutral(&id);
                renamed.insert(std::mem::replace(&mut call.id, neutral.clone()), neutral);
                item.native = None;
            } else if let Body::Result(result) = &mut item.body {
                let gateway_id = result.wire_id.as_ref().filter(|id| is_ours(id));
                let renamed = renamed.get(&result.call).cloned();
                if let Some(id) = renamed.or_else(|| gateway_id.map(neutral)) {
                    result.call = id;
                    result.wire_id = None;
                    item.native = None;
                }
            }
        }
        left
    }
}
