//! The part of a Thread that the model is shown: its latest Items, behind a summary of what is older.
//!
//! A Thread only grows. Answers of tools are written as they come; in the conversation they stand in the order of their calls,
//! which is their [`Place`]. A summary is written behind what it covers, and stands before what it does not.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Identity, Item, ItemId, Name, Origin, Part, Place, Role, ToolResult, Wire, work,
};

/// An Item of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The Item.
    pub item: Item,
    /// How many tokens it has, roughly.
    pub tokens: u64,
    /// Its number in the Thread; 0 until it is written.
    pub seq: u64,
}

/// The part of a Thread that the model is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// What stands for everything older.
    pub summary: Option<Kept>,
    /// The latest Items, in the order of the conversation.
    pub items: Vec<Kept>,
    /// The number of the next message.
    pub next: u32,
    tokens: u64,
}

impl Window {
    /// Adds an Item that was read from the Thread or is to be written to it.
    pub fn push(&mut self, kept: Kept) {
        if matches!(kept.item.body, Body::Summary { .. }) {
            // The later summary stands for the earlier one, too.
            self.tokens -= self.summary.as_ref().map_or(0, |summary| summary.tokens);
            self.tokens += kept.tokens;
            self.summary = Some(kept);
            return;
        }
        self.tokens += kept.tokens;
        let place = kept.item.place;
        self.next = self.next.max(place.message.saturating_add(1));
        let after = self.items.iter().rposition(|other| other.item.place <= place);
        self.items.insert(after.map_or(0, |position| position + 1), kept);
    }

    /// Notes where Items were written, that had not been before: in the order in which they were pushed.
    pub fn written(&mut self, ids: &[Name], first: u64) {
        let mut written: HashMap<&Name, u64> = ids.iter().zip(first..).collect();
        // What was written last is mostly at the end: the search stops when all were found.
        for kept in self.items.iter_mut().rev().chain(self.summary.iter_mut()) {
            if written.is_empty() {
                break;
            }
            work::step();
            if let Some(seq) = written.remove(&kept.item.id.0) {
                kept.seq = seq;
            }
        }
    }

    /// How many tokens it has, roughly.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The Items as the model is shown them.
    pub fn shown(&self) -> impl Iterator<Item = &Item> {
        self.summary.iter().chain(&self.items).map(|kept| &kept.item)
    }

    /// Where the exchanges begin, each of which a user's message opens: places in [`Window::items`].
    pub fn exchanges(&self) -> Vec<usize> {
        let opens = |position: usize| {
            let item = self.items.get(position).map(|kept| &kept.item);
            let before = position.checked_sub(1).and_then(|before| self.items.get(before));
            let is_new = before.is_none_or(|before| !is_said(&before.item));
            item.is_some_and(is_said) && is_new
        };
        (0..self.items.len()).filter(|position| opens(*position)).collect()
    }

    /// Takes everything before that place out, because a summary covers it: what was there.
    pub fn cover(&mut self, before: usize) -> Vec<Kept> {
        let covered: Vec<Kept> = self.items.drain(..before.min(self.items.len())).collect();
        self.tokens -= covered.iter().map(|kept| kept.tokens).sum::<u64>();
        covered
    }

    /// The arguments and the wire's id of a call.
    pub fn call(&self, id: &str) -> Option<&throughline_core::ToolCall> {
        self.items.iter().rev().filter_map(|kept| kept.item.call()).find(|call| *call.id.0 == *id)
    }

    /// The ids of the calls in it.
    pub fn calls(&self) -> impl Iterator<Item = &CallId> {
        self.items.iter().filter_map(|kept| kept.item.call()).map(|call| &call.id)
    }

    /// The Items as an agent is shown them. What another agent's model answered is never the agent's own: of such a message
    /// a provider's thoughts and seals get a foreign owner, so no Call carries them and each has a Fate that says so. A
    /// thought that a caller made in plain words goes along as a peer's.
    ///
    /// A message is a peer's if the author of any of its Items is. Items that were stored before authors were recorded have
    /// none: such a message is a peer's if one of its thoughts is.
    pub fn shown_to(&self, me: &Identity) -> Vec<Item> {
        let is_peers = |item: &Item| author_of(item).is_some_and(|author| !author.is_same(me));
        let items = self.items.iter().map(|kept| &kept.item);
        let by_peers = items.clone().filter(|item| is_peers(item));
        let peers: BTreeSet<u32> = by_peers.map(|item| item.place.message).collect();
        let shown = items.map(|item| {
            if peers.contains(&item.place.message) && item.role == Role::Assistant {
                of_peer(item)
            } else {
                item.clone()
            }
        });
        let summary = self.summary.iter().map(|kept| kept.item.clone());
        let mut shown: Vec<Item> = summary.chain(shown).collect();
        renumber(&mut shown);
        shown
    }
}

/// The provider that stands in the origin of what another agent's model answered. No endpoint has that name, so nothing that
/// it owns is sent anywhere.
const PEER: &str = "another agent";

/// Whether an Item is another agent's, as [`Window::shown_to`] gives it.
pub(crate) fn is_peers(item: &Item) -> bool {
    item.origin.as_ref().is_some_and(|origin| &*origin.provider == PEER)
}

/// The agent whose model answered with an Item, as far as it is recorded.
fn author_of(item: &Item) -> Option<&Identity> {
    match &item.body {
        Body::Thought(thought) => Some(&thought.identity),
        _ => item.author.as_deref(),
    }
}

fn is_said(item: &Item) -> bool {
    item.role == Role::User && !matches!(item.body, Body::Result(_) | Body::Summary { .. })
}

/// An Item of a message that another agent's model answered, or that a caller put there for another agent.
fn of_peer(item: &Item) -> Item {
    let is_callers = item.origin.is_none() && item.seals.is_empty();
    if is_callers && may_be_quoted(item) {
        return item.clone();
    }
    let unknown = || Origin {
        provider: Name::from(PEER),
        endpoint: Name::from(PEER),
        account: Name::from(PEER),
        wire: Wire::borrowed(PEER),
        asked: Name::from(PEER),
        answered: Name::from(PEER),
        family: Name::from(PEER),
        routed: None,
    };
    let foreign = |origin: Option<&Origin>| match origin {
        Some(origin) => Arc::new(Origin {
            provider: Name::from(PEER),
            endpoint: Name::from(PEER),
            ..origin.clone()
        }),
        None => Arc::new(unknown()),
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

/// Numbers the messages from 0 without a gap.
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

/// The answer to a call, as an Item.
pub(crate) fn result_item(
    id: Name,
    place: Place,
    call: &throughline_core::ToolCall,
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

/// Whether a model may be shown an Item's words as text. What a provider thought goes back to it as it came, or not at all.
pub(crate) fn may_be_quoted(item: &Item) -> bool {
    match &item.body {
        Body::Thought(thought) => {
            thought.is_plain() && item.origin.is_none() && item.seals.is_empty()
        }
        _ => true,
    }
}

/// What can be read of an Item, for counting tokens and for summaries.
pub(crate) fn readable(item: &Item) -> String {
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
