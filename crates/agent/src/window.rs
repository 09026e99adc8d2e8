//! The part of a Thread that the model is shown: its latest Items, behind a summary of what is older.
//!
//! A Thread only grows. Answers of tools are written as they come; in the conversation they stand in the order of their calls,
//! which is their [`Place`]. A summary is written behind what it covers, and stands before what it does not.

use std::collections::{BTreeSet, HashMap};

use throughline_core::{Body, CallId, Item, ItemId, Name, Part, Place, Role, ToolResult, work};

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
        self.next = self.next.max(place.message + 1);
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

    /// The Items as an agent of that name is shown them: thoughts of another agent, in an exchange that this one took no part
    /// in, are a peer's. They can be read, and are nobody's own.
    pub fn shown_to(&self, agent: &str) -> Vec<Item> {
        let starts = self.exchanges();
        let mut shown: Vec<Item> = self.summary.iter().map(|kept| kept.item.clone()).collect();
        let bounds = std::iter::once(0).chain(starts.iter().copied());
        let ends = starts.iter().copied().chain([self.items.len()]);
        let last = starts.len();
        for (number, (start, end)) in bounds.zip(ends).enumerate() {
            let exchange = self.items.get(start..end).unwrap_or_default();
            let takes_part = number == last || participants(exchange).contains(agent);
            for Kept { item, .. } in exchange {
                match &item.body {
                    Body::Thought(thought)
                        if !takes_part && thought.identity.representation != agent =>
                    {
                        shown.extend(of_peer(item));
                    }
                    _ => shown.push(item.clone()),
                }
            }
        }
        renumber(&mut shown);
        shown
    }
}

fn is_said(item: &Item) -> bool {
    item.role == Role::User && !matches!(item.body, Body::Result(_) | Body::Summary { .. })
}

/// The agents that took part in an exchange: those that thought in it, and those that it was handed to.
fn participants(exchange: &[Kept]) -> BTreeSet<&str> {
    exchange
        .iter()
        .filter_map(|kept| match &kept.item.body {
            Body::Thought(thought) => Some(&*thought.identity.representation),
            Body::Call(call) => call.name.strip_prefix("transfer_to_"),
            Body::Text(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => None,
        })
        .collect()
}

/// A peer's thought, as it is told to others: its words, if it has any, and none of its seals.
fn of_peer(item: &Item) -> Option<Item> {
    let Body::Thought(thought) = &item.body else { return None };
    if thought.content.is_empty() {
        return None;
    }
    let mut thought = thought.clone();
    thought.payload = None;
    thought.replay_compatibility = None;
    let mut told = Item::new(item.id.clone(), item.place, item.role, Body::Thought(thought));
    told.ephemeral = item.ephemeral;
    Some(told)
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
