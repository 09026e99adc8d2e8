//! Extends conversations with results for open calls and with thoughts created by the caller.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_core::{
    Body, Call, CallId, Item, ItemPosition, Outcome, Part, ReasoningFormat, ReasoningSource, Role,
    Thought, ThoughtKind, ThreadSecret, ToolResult,
};

pub(crate) fn user_text(text: &str) -> Item {
    Item::new("said", ItemPosition::default(), Role::User, Body::Text(Arc::from(text)))
}

/// Builds a caller's thought with plain text, at the position `place`.
pub(crate) fn plain_thought(number: usize, place: ItemPosition) -> Item {
    let content = format!("A caller's own thought, number {number}.");
    let mut thought = Thought::issued(content, ThoughtKind::Text, ReasoningFormat::unknown());
    thought.source = ReasoningSource::NonReasonerModel;
    Item::new(format!("plain-{number}").as_str(), place, Role::Assistant, Body::Thought(thought))
}

/// Sets the secret from which the nonces of plain thoughts are derived.
pub(crate) fn with_secret(mut call: Call) -> Call {
    call.replay.secret = Some(ThreadSecret::new([7; 32]));
    call
}

/// Inserts a plain thought between each call and a directly following call or result.
pub(crate) fn with_thoughts(items: &[Item]) -> Vec<Item> {
    let mut mixed = Vec::with_capacity(items.len() + 8);
    for (at, item) in items.iter().enumerate() {
        mixed.push(item.clone());
        let is_call = matches!(item.body, Body::Call(_));
        let next = items.get(at + 1).map(|next| &next.body);
        if is_call && matches!(next, Some(Body::Call(_) | Body::Result(_))) {
            mixed.push(plain_thought(at, item.place));
        }
    }
    mixed
}

pub(crate) fn open_calls(items: &[Item]) -> Vec<&Item> {
    let mut open: Vec<&Item> = Vec::new();
    for item in items {
        match &item.body {
            Body::Call(_) => open.push(item),
            Body::Result(result) => open.retain(|item| !is_call(item, &result.call)),
            _ => {}
        }
    }
    open
}

fn is_call(item: &Item, id: &CallId) -> bool {
    matches!(&item.body, Body::Call(call) if call.id == *id)
}

/// Builds results for the open calls.
pub(crate) fn answers(items: &[Item]) -> Vec<Item> {
    let answer = |(at, item): (usize, &&Item)| {
        let Body::Call(call) = &item.body else { return None };
        let result = ToolResult {
            call: call.id.clone(),
            wire_id: call.wire_id.clone(),
            name: Some(call.name.clone()),
            outcome: Outcome::Ok,
            parts: vec![Part::Text(Arc::from("It is done."))],
        };
        let place = ItemPosition::new(0, at);
        Some(Item::new(format!("answer-{at}").as_str(), place, Role::Tool, Body::Result(result)))
    };
    open_calls(items).iter().enumerate().filter_map(answer).collect()
}

/// Returns whether providers accept the conversation. It must start with the user and have no empty
/// message. Each call must have exactly one result directly after it; only the last calls may be
/// open.
pub(crate) fn is_sound(items: &[Item]) -> bool {
    let mut open: Vec<&CallId> = Vec::new();
    let mut seen: HashSet<&CallId> = HashSet::new();
    let mut answering = false;
    let mut turns: Vec<(Role, bool)> = Vec::new();
    let turn = |item: &&Item| !matches!(item.role, Role::System | Role::Developer);
    if items.iter().find(turn).is_none_or(|item| item.role == Role::Assistant) {
        return false;
    }
    for item in items {
        let speaks = match &item.body {
            Body::Text(text) | Body::Summary { text, .. } => !text.trim().is_empty(),
            Body::Unknown => false,
            _ => true,
        };
        match turns.last_mut() {
            Some((role, spoken)) if *role == item.role => *spoken |= speaks,
            _ => turns.push((item.role, speaks)),
        }
        // Results from the legacy function API have no ids.
        if item.role == Role::Tool && !matches!(item.body, Body::Result(_)) {
            return false;
        }
        match &item.body {
            Body::Call(call) => {
                let is_again = !seen.insert(&call.id);
                if is_again || (answering && !open.is_empty()) || call.name.is_empty() {
                    return false;
                }
                answering = false;
                open.push(&call.id);
            }
            Body::Result(result) => {
                let Some(at) = open.iter().position(|id| **id == result.call) else { return false };
                open.remove(at);
                answering = true;
            }
            _ if !open.is_empty() && (answering || item.role != Role::Assistant) => return false,
            _ => {}
        }
    }
    turns.iter().all(|(_, speaks)| *speaks) && (open.is_empty() || !answering)
}
