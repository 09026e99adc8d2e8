//! The part of a Thread that the model sees: a summary of the older Items, then the latest Items.
//!
//! A Thread is append-only. Tool results are written as they arrive, but their
//! [`ItemPosition`](throughline_core::ItemPosition) places them in the order of their calls. A
//! summary is written after the Items that it covers, but shown before the remaining Items.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Identity, Item, ItemId, ItemPosition, Origin, Part, Role, TokenCounter, ToolCall,
    ToolResult, Wire,
};
use throughline_json::{Name, work};

/// An Item in the window, with its token count and its position in the Thread.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowItem {
    /// The Item as stored in the Thread.
    pub item: Item,
    /// Estimated number of tokens in the Item.
    pub tokens: u64,
    /// Sequence number in the Thread; 0 until the Item is written.
    pub seq: u64,
}

/// The part of a Thread that the model sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Summary of all Items before `items`; `None` before the first compaction.
    pub summary: Option<WindowItem>,
    /// The Items after the summary, in conversation order.
    pub items: Vec<WindowItem>,
    /// Number of the next message.
    pub next: u32,
    tokens: u64,
}

impl Window {
    /// Builds a window from pairs of sequence number and Item. Unwritten Items have sequence number
    /// 0.
    pub(crate) fn from_items(
        items: impl IntoIterator<Item = (u64, Item)>,
        counter: &dyn TokenCounter,
    ) -> Self {
        let mut window = Self::default();
        for (seq, item) in items {
            let tokens = match &item.body {
                Body::Thought(thought) => thought.tokens(counter),
                _ => counter.count(&readable_text(&item)),
            };
            window.push(WindowItem { item, tokens, seq });
        }
        window
    }

    /// Adds an Item that was read from the Thread or is about to be written.
    pub fn push(&mut self, entry: WindowItem) {
        self.tokens += entry.tokens;
        if matches!(entry.item.body, Body::Summary { .. }) {
            // A later summary replaces the earlier one.
            let earlier = self.summary.replace(entry);
            self.tokens -= earlier.map_or(0, |summary| summary.tokens);
            return;
        }
        let place = entry.item.place;
        self.next = self.next.max(place.message.saturating_add(1));
        let after = self.items.iter().rposition(|other| other.item.place <= place);
        self.items.insert(after.map_or(0, |position| position + 1), entry);
    }

    /// Sets the sequence numbers of newly written Items. `ids` lists the Items in the order in
    /// which they were pushed, and `first` is the sequence number of the first Item.
    pub fn record_positions(&mut self, ids: &[Name], first: u64) {
        let mut written: HashMap<&Name, u64> = ids.iter().zip(first..).collect();
        // New Items are usually at the end, so search backwards and stop when all are found.
        for entry in self.items.iter_mut().rev().chain(self.summary.iter_mut()) {
            if written.is_empty() {
                break;
            }
            work::step();
            if let Some(seq) = written.remove(&entry.item.id.0) {
                entry.seq = seq;
            }
        }
    }

    /// Returns the estimated number of tokens of the summary and all Items.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the Items in the order in which the model sees them.
    pub fn visible_items(&self) -> impl Iterator<Item = &Item> {
        self.summary.iter().chain(&self.items).map(|entry| &entry.item)
    }

    /// Returns the start index of each exchange in [`Window::items`]. A user message starts an
    /// exchange.
    pub fn exchanges(&self) -> Vec<usize> {
        let opens = |position: usize| {
            let item = self.items.get(position).map(|entry| &entry.item);
            let before = position.checked_sub(1).and_then(|before| self.items.get(before));
            let is_new = before.is_none_or(|before| !is_user_message(&before.item));
            item.is_some_and(is_user_message) && is_new
        };
        (0..self.items.len()).filter(|position| opens(*position)).collect()
    }

    /// Removes and returns all Items before index `before`. A new summary covers the removed Items.
    pub fn take_covered(&mut self, before: usize) -> Vec<WindowItem> {
        let covered: Vec<WindowItem> = self.items.drain(..before.min(self.items.len())).collect();
        self.tokens -= covered.iter().map(|entry| entry.tokens).sum::<u64>();
        covered
    }

    /// Returns the tool call with this id; `None` if a summary covers the call.
    pub fn call(&self, id: &str) -> Option<&ToolCall> {
        self.items.iter().rev().filter_map(|entry| entry.item.call()).find(|call| *call.id.0 == *id)
    }

    /// Iterates over the ids of all tool calls in the window.
    pub fn calls(&self) -> impl Iterator<Item = &CallId> {
        self.items.iter().filter_map(|entry| entry.item.call()).map(|call| &call.id)
    }

    /// Returns the Items as the agent `me` sees them. In messages from another agent, provider
    /// Thoughts and Seals get a foreign owner. No Call sends these Thoughts and Seals, and their
    /// Fates state the reason. Plain-text Thoughts supplied by a caller are passed on as a peer's
    /// Thoughts.
    /// A message belongs to a peer if the author of any of its Items is a peer. Older Items have no
    /// recorded author. A message of older Items belongs to a peer if a peer wrote one of its
    /// Thoughts.
    pub fn visible_to(&self, me: &Identity) -> Vec<Item> {
        let is_peers = |item: &Item| author(item).is_some_and(|author| !author.is_same(me));
        let items = self.items.iter().map(|entry| &entry.item);
        let by_peers = items.clone().filter(|item| is_peers(item));
        let peers: BTreeSet<u32> = by_peers.map(|item| item.place.message).collect();
        let shown = items.map(|item| {
            if peers.contains(&item.place.message) && item.role == Role::Assistant {
                as_peer_item(item)
            } else {
                item.clone()
            }
        });
        let summary = self.summary.iter().map(|entry| entry.item.clone());
        let mut shown: Vec<Item> = summary.chain(shown).collect();
        renumber(&mut shown);
        shown
    }
}

/// Provider name in the Origin of another agent's answers. No endpoint has this name, so Seals with
/// this owner are never sent.
const PEER: &str = "another agent";

/// Returns whether [`Window::visible_to`] marked the Item as written by another agent.
pub(crate) fn is_peer_item(item: &Item) -> bool {
    item.origin.as_ref().is_some_and(|origin| &*origin.provider == PEER)
}

/// Returns the agent whose model wrote the Item; `None` if no author was recorded.
fn author(item: &Item) -> Option<&Identity> {
    match &item.body {
        Body::Thought(thought) => Some(&thought.identity),
        _ => item.author.as_deref(),
    }
}

fn is_user_message(item: &Item) -> bool {
    item.role == Role::User && !matches!(item.body, Body::Result(_) | Body::Summary { .. })
}

/// Copies an Item from a peer's message and marks its Thoughts and Seals as foreign.
fn as_peer_item(item: &Item) -> Item {
    let is_callers = item.origin.is_none() && item.seals.is_empty();
    if is_callers && may_be_quoted(item) {
        return item.clone();
    }
    let foreign = |origin: Option<&Origin>| {
        let peer = Name::from(PEER);
        let (provider, endpoint) = (peer.clone(), peer.clone());
        Arc::new(match origin.cloned() {
            Some(origin) => Origin { provider, endpoint, ..origin },
            None => {
                let (account, asked, answered) = (peer.clone(), peer.clone(), peer.clone());
                let (wire, family, routed) = (Wire::borrowed(PEER), peer, None);
                Origin { provider, endpoint, account, wire, asked, answered, family, routed }
            }
        })
    };
    let mut shown = item.clone();
    if let Body::Thought(thought) = &mut shown.body {
        (thought.payload, thought.replay_compatibility) = (None, None);
    }
    shown.origin = Some(foreign(item.origin.as_deref()));
    for seal in &mut shown.seals {
        seal.owner = foreign(Some(&*seal.owner));
    }
    shown
}

/// Renumbers the messages from 0 without gaps.
pub(crate) fn renumber(items: &mut [Item]) {
    let mut last: Option<u32> = None;
    let mut number = 0_u32;
    for item in items {
        if last.is_some_and(|last| last != item.place.message) {
            number += 1;
        }
        last = Some(item.place.message);
        item.place.message = number;
    }
}

/// Builds the Thread Item for a tool result.
pub(crate) fn result_item(
    id: Name,
    place: ItemPosition,
    call: &ToolCall,
    answer: &crate::tool::ToolAnswer,
) -> Item {
    let body = Body::Result(ToolResult {
        call: call.id.clone(),
        wire_id: call.wire_id.clone(),
        name: Some(call.name.clone()),
        outcome: answer.outcome,
        parts: answer.parts.clone(),
    });
    Item::new(ItemId(id), place, Role::Tool, body)
}

/// Returns whether the Item's text may be quoted to a model. A provider Thought is never quoted: it
/// is either replayed exactly or left out.
pub(crate) fn may_be_quoted(item: &Item) -> bool {
    match &item.body {
        Body::Thought(thought) => {
            thought.is_plain() && item.origin.is_none() && item.seals.is_empty()
        }
        _ => true,
    }
}

/// Returns the readable text of an Item, for token counts and summaries.
pub(crate) fn readable_text(item: &Item) -> String {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => text.to_string(),
        Body::Thought(thought) => thought.content.to_string(),
        Body::Call(call) => format!("{} {}", call.name, call.args.as_str()),
        Body::Result(result) => {
            let texts = result.parts.iter().map(|part| match part {
                Part::Text(text) => text.to_string(),
                Part::Value(value) | Part::Unknown(_, value) => value.as_str().to_owned(),
                Part::Media(_) => "[media]".to_owned(),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Body::Hosted(hosted) => format!("{}: {}", hosted.name, hosted.visible),
        Body::Media(_) => "[media]".to_owned(),
        Body::Compaction | Body::Unknown => String::new(),
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod window_tests;
