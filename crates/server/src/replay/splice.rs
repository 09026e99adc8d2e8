//! Captured Items take the place of what came, and what is ours leaves.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{
    Body, Call, CallId, Did, Evidence, Fate, Item, ItemId, Name, NodeId, Seal, Why,
};

use crate::replay::Mark;
use crate::replay::claim::Claims;
use crate::replay::judge;

/// A turn of a Call that is to be replaced.
pub(super) struct Patch {
    /// Its Items in the Call.
    pub(super) range: Range<usize>,
    /// The turn's name.
    pub(super) node: NodeId,
    /// What takes their place.
    pub(super) items: Vec<Item>,
    pub(super) evidence: Evidence,
}

/// Replaces turns. The patches are in the order of the Call.
pub(super) fn splice(call: &mut Call, patches: Vec<Patch>, marks: &mut HashMap<ItemId, Mark>) {
    if patches.is_empty() {
        return;
    }
    let came = std::mem::take(&mut call.items);
    let mut out = Spliced::of(&came, &patches);
    let mut next = 0;
    for patch in patches {
        out.keep(came.get(next..patch.range.start).unwrap_or_default());
        next = patch.range.end;
        let lost = came.get(patch.range.clone()).unwrap_or_default();
        out.replace(lost, patch, marks);
    }
    out.keep(came.get(next..).unwrap_or_default());
    call.items = out.items;
}

struct Spliced {
    items: Vec<Item>,
    /// How many messages there are so far.
    messages: u32,
    /// The ids that Items have.
    taken: HashSet<ItemId>,
    /// The ids that calls have.
    calls: HashSet<CallId>,
    /// The calls that the client knew by another id, with the id that they have now and the one of their wire.
    renamed: HashMap<CallId, (CallId, Option<Name>)>,
}

impl Spliced {
    fn of(came: &[Item], patches: &[Patch]) -> Self {
        let replaced: HashSet<usize> =
            patches.iter().flat_map(|patch| patch.range.clone()).collect();
        let kept = || came.iter().enumerate().filter(|(at, _)| !replaced.contains(at));
        let calls = came.iter().filter_map(Item::call).map(|call| call.id.clone());
        Self {
            items: Vec::with_capacity(came.len()),
            messages: 0,
            taken: kept().map(|(_, item)| item.id.clone()).collect(),
            calls: calls.collect(),
            renamed: HashMap::new(),
        }
    }

    /// Adds Items whose messages are counted on from the last one here.
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

    fn keep(&mut self, items: &[Item]) {
        let items: Vec<Item> = items.iter().map(|item| self.relinked(item)).collect();
        self.add(items);
    }

    /// The Item, with an answer to a renamed call linked to it.
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

    fn replace(&mut self, lost: &[Item], patch: Patch, marks: &mut HashMap<ItemId, Mark>) {
        let Patch { node, mut items, evidence, .. } = patch;
        self.name(&node, &mut items);
        let shown: Vec<_> = lost.iter().filter_map(Item::call).collect();
        let calls = items.iter_mut().filter_map(|item| match &mut item.body {
            Body::Call(call) => Some(call),
            _ => None,
        });
        for (shown, call) in shown.into_iter().zip(calls) {
            let is_ours = |id: &Name| Claims::is_ours(id.as_bytes());
            call.id = if shown.wire_id.as_ref().is_some_and(is_ours) {
                unused(&self.calls, &call.id, &node)
            } else {
                shown.id.clone()
            };
            // A call is known to the provider by the id that it was issued with, and so is the answer to it.
            if shown.wire_id.is_some() && shown.wire_id != call.wire_id {
                let now = (call.id.clone(), call.wire_id.clone());
                self.renamed.insert(shown.id.clone(), now);
            }
            self.calls.insert(call.id.clone());
        }
        for item in &items {
            marks.insert(item.id.clone(), mark(item, lost, &evidence));
        }
        self.add(items);
    }

    /// Gives Items whose ids are taken another one, and tells the Seals that lead them.
    fn name(&mut self, node: &NodeId, items: &mut [Item]) {
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

/// The id itself, or one that no other call has.
fn unused(taken: &HashSet<CallId>, id: &CallId, node: &NodeId) -> CallId {
    if taken.contains(id) { CallId::from(format!("{node}_{id}")) } else { id.clone() }
}

/// What the client had lost of an Item.
fn mark(item: &Item, lost: &[Item], evidence: &Evidence) -> Mark {
    let visible = match &item.body {
        Body::Thought(_) => !judge::has_thought(lost, item),
        Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            let kind = std::mem::discriminant(&item.body);
            !lost.iter().any(|other| std::mem::discriminant(&other.body) == kind)
        }
        // A turn is replaced only where these were visibly there.
        Body::Text(_) | Body::Media(_) | Body::Call(_) | Body::Result(_) | Body::Summary { .. } => {
            false
        }
    };
    let was_sent = |seal: &Seal| judge::seals(lost).any(|sent| judge::is_same(sent, seal));
    let seals = item.seals.iter().map(|seal| !was_sent(seal)).collect();
    Mark { evidence: evidence.clone(), visible, seals }
}

/// Tells a client's own Items, which stay as they came, who made them.
pub(super) fn name_owner(items: &mut [Item], captured: &[Item]) {
    let issued = || captured.iter().flat_map(|item| &item.seals);
    let maker = captured.iter().find_map(|item| item.origin.as_ref());
    for item in items {
        let is_makers = !item.seals.is_empty() || matches!(item.body, Body::Thought(_));
        if let (true, Some(maker)) = (is_makers, maker) {
            item.origin = Some(std::sync::Arc::clone(maker));
        }
        for seal in &mut item.seals {
            if let Some(known) = issued().find(|known| judge::is_same(seal, known)) {
                seal.owner = std::sync::Arc::clone(&known.owner);
                seal.bound = known.bound;
            }
        }
    }
}

/// Takes whatever is ours out of a Call: thoughts that carry a claim leave, and calls with an id of ours get another.
pub(super) fn remove_claims(call: &mut Call, why: Why) -> Vec<Fate> {
    let mut left = Vec::new();
    let mut renamed: HashMap<CallId, CallId> = HashMap::new();
    let is_ours = |seal: &Seal| Claims::is_ours(seal.reveal_to_tenant());
    call.items.retain_mut(|item| {
        if !item.seals.iter().any(is_ours) {
            return true;
        }
        if matches!(item.body, Body::Thought(_)) {
            let seals = vec![Did::Elided(why); item.seals.len()];
            left.push(Fate { item: item.id.clone(), visible: Did::Elided(why), seals });
            return false;
        }
        item.seals.clear();
        item.native = None;
        true
    });
    for item in &mut call.items {
        match &mut item.body {
            Body::Call(call) => {
                let Some(id) = call.wire_id.take_if(|id| Claims::is_ours(id.as_bytes())) else {
                    continue;
                };
                let neutral = neutral(&id);
                renamed.insert(std::mem::replace(&mut call.id, neutral.clone()), neutral);
                item.native = None;
            }
            Body::Result(result) => {
                let known = renamed.get(&result.call).cloned();
                let ours = result.wire_id.as_ref().filter(|id| Claims::is_ours(id.as_bytes()));
                if let Some(id) = known.or_else(|| ours.map(neutral)) {
                    result.call = id;
                    result.wire_id = None;
                    item.native = None;
                }
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => {}
        }
    }
    left
}

/// An id that stands for one of ours, the same in every request.
fn neutral(id: &Name) -> CallId {
    let digest = blake3::hash(id.as_bytes()).to_hex();
    CallId::from(format!("call_{}", digest.chars().take(24).collect::<String>()))
}
