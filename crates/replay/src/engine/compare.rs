//! Compares a client's turn with the captured turn and applies permitted edits.

use throughline_core::{Body, Item, Seal, Target, ToolCall, Wire};
use throughline_json::{self as json, Json, Node};

use crate::claim::Claims;
use crate::engine::chain::ChainTurn;
use crate::engine::turn_cache::Captured;

/// How similar a turn in a request is to a captured turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Similarity {
    /// All visible content is equal.
    Same,
    /// Only the text differs.
    Edited,
    /// The calls have the same ids, and their arguments differ only by additional members. The text
    /// may differ.
    Grown,
    /// The turns differ in another way.
    Other,
}

pub(super) fn likeness(turn: &ChainTurn, items: &[Item], captured: &Captured) -> Similarity {
    let (now, then) = (turn.visible, captured.visible);
    if now.acts != then.acts {
        if has_grown(items, captured) { Similarity::Grown } else { Similarity::Other }
    } else if now.text == then.text {
        Similarity::Same
    } else {
        Similarity::Edited
    }
}

/// Whether the client's calls equal the captured calls except for additional argument members, such
/// as defaults. If a Seal is bound to the prefix, no difference is permitted.
fn has_grown(items: &[Item], captured: &Captured) -> bool {
    let now: Vec<&ToolCall> = items.iter().filter_map(Item::call).collect();
    let then: Vec<&ToolCall> = captured.items.iter().filter_map(Item::call).collect();
    let has_media = |items: &[Item]| items.iter().any(|item| matches!(item.body, Body::Media(_)));
    !then.is_empty()
        && now.len() == then.len()
        && !has_media(items)
        && !has_media(&captured.items)
        && !is_prefix_bound(captured)
        && now.iter().zip(&then).all(|(now, then)| is_same_call(now, then))
}

/// Whether the captured turn has a Seal that is bound to the prefix.
fn is_prefix_bound(captured: &Captured) -> bool {
    captured.items.iter().flat_map(|item| &item.seals).any(|seal| seal.bound.prefix.is_some())
}

/// Whether a client's call has the id and tool of the captured call and contains all captured
/// arguments.
fn is_same_call(now: &ToolCall, then: &ToolCall) -> bool {
    let is_named = match (&now.wire_id, &then.wire_id) {
        (Some(now), Some(then)) => now == then || Claims::has_handle_format(now.as_bytes()),
        (Some(now), None) => Claims::has_handle_format(now.as_bytes()),
        (None, _) => false,
    };
    is_named && now.name == then.name && has_members_of(&now.args, &then.args)
}

/// Whether `now` contains every member of `then` with an equal value, at every depth.
fn has_members_of(now: &Json, then: &Json) -> bool {
    let (now, then) = (now.tree(), then.tree());
    let mut open = vec![(now.root(), then.root())];
    while let Some((now, then)) = open.pop() {
        if now.is_object() && then.is_object() {
            for (key, value) in then.members() {
                let Some(same) = now.get(&key.text().unwrap_or_default()) else { return false };
                open.push((same, value));
            }
        } else if now.is_array() && then.is_array() {
            if now.elements().count() != then.elements().count() {
                return false;
            }
            open.extend(now.elements().zip(then.elements()));
        } else if now.canonical() != then.canonical() {
            return false;
        }
    }
    true
}

/// Returns the captured call with the client's arguments.
fn with_arguments(item: &Item, now: &ToolCall) -> Item {
    let mut item = item.clone();
    let Body::Call(call) = &mut item.body else { return item };
    if call.args.is_equivalent_to(&now.args) {
        return item;
    }
    call.args = now.args.clone();
    let Some(native) = &mut item.native else { return item };
    let (pointers, is_text): (&[&str], bool) = match native.wire.as_str() {
        "anthropic-messages" => (&["/input"], false),
        "gemini" => (&["/functionCall/args", "/function_call/args"], false),
        "bedrock-converse" => (&["/toolUse/input"], false),
        "openai-chat" => (&["/function/arguments"], true),
        "openai-responses" => (&["/arguments"], true),
        _ => (&[], false),
    };
    let tree = native.json.tree();
    let span = pointers.iter().find_map(|pointer| tree.root().at(pointer)).map(Node::range);
    let written = if is_text { json::string(now.args.as_str()) } else { now.args.clone() };
    let text = native.json.bytes();
    let edited = span.and_then(|span| {
        let (before, after) = (text.get(..span.start)?, text.get(span.end..)?);
        Json::parse([before, written.bytes(), after].concat()).ok()
    });
    match edited {
        Some(json) => {
            native.json = json;
            native.envelope = None;
        }
        None => item.native = None,
    }
    item
}

/// Whether the target produced the turn and can therefore read its Seals.
pub(super) fn is_from_target(captured: &Captured, target: &Target) -> bool {
    let origin = captured.items.iter().find_map(|item| item.origin.as_ref());
    origin.is_some_and(|origin| {
        origin.provider == target.origin.provider && origin.endpoint == target.origin.endpoint
    })
}

/// Whether the target produced the turn, and the turn's request has the prefix that the target's
/// Seals are bound to. At the same endpoint, a model without bound Seals may have had another
/// prefix.
pub(super) fn has_signed_prefix(captured: &Captured, target: &Target) -> bool {
    let mut origins = captured.items.iter().filter_map(|item| item.origin.as_ref());
    let mut is_of_family = || origins.any(|origin| origin.family == target.origin.family);
    is_from_target(captured, target) && (is_of_family() || is_prefix_bound(captured))
}

/// Returns the Seals that the client sent, other than Claims.
pub(super) fn seals(items: &[Item]) -> impl Iterator<Item = &Seal> {
    let seals = items.iter().flat_map(|item| &item.seals);
    seals.filter(|seal| !Claims::has_handle_format(seal.reveal_to_tenant()))
}

/// Whether the client's Seal equals the Seal that the provider issued. For Gemini, the decoded
/// bytes are compared, because Google's own clients change the base64 alphabet.
pub(super) fn is_same(sent: &Seal, issued: &Seal) -> bool {
    let (now, then) = (sent.reveal_to_tenant(), issued.reveal_to_tenant());
    now == then || issued.owner.wire == Wire::GEMINI && plain(now).eq(plain(then))
}

/// Normalises base64 text to one alphabet without padding.
pub(super) fn plain(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().filter(|byte| **byte != b'=').map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    })
}

/// Passes normalised base64 text to `make`. Copies the text only if it is not normalised.
pub(super) fn with_normalized_base64<T>(text: &[u8], make: impl FnOnce(&[u8]) -> T) -> T {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let inner = text.get(..text.len() - padding).unwrap_or_default();
    match memchr::memchr3(b'=', b'-', b'_', inner) {
        None => make(inner),
        Some(_) => make(&plain(inner).collect::<Vec<u8>>()),
    }
}

/// Whether the client returned all Seals and tool listings as the provider issued them, and no
/// Claims.
pub(super) fn is_intact(items: &[Item], captured: &Captured) -> bool {
    let has_claims = items.iter().any(|item| Claims::handles_in_item(item).next().is_some());
    let (mut sent, mut issued) = (seals(items), captured.items.iter().flat_map(|item| &item.seals));
    let is_all = loop {
        match (sent.next(), issued.next()) {
            (Some(sent), Some(issued)) if is_same(sent, issued) => {}
            (None, None) => break true,
            (Some(_) | None, _) => break false,
        }
    };
    !has_claims
        && is_all
        && tool_listings(&captured.items)
            .all(|issued| tool_listings(items).any(|sent| sent.is_equivalent_to(issued)))
}

/// Returns Anthropic's listings of the tools of MCP servers, which must go back unchanged.
fn tool_listings(items: &[Item]) -> impl Iterator<Item = &Json> {
    let unknown = items.iter().filter(|item| matches!(item.body, Body::Unknown));
    let natives = unknown.filter_map(|item| Some(&item.native.as_ref()?.json));
    natives.filter(|json| {
        json.tree().root().get("type").is_some_and(|kind| kind.is("mcp_tool_listing"))
    })
}

/// Whether `items` contains a Thought with the same content as `thought` and without a Claim.
pub(super) fn has_thought(items: &[Item], thought: &Item) -> bool {
    let is_same = |item: &Item| match (&item.body, &thought.body) {
        (Body::Thought(now), Body::Thought(then)) => now.content == then.content,
        _ => false,
    };
    items.iter().any(|item| is_same(item) && Claims::handles_in_item(item).next().is_none())
}

/// Returns the client's Items with altered reasoning: the provider did not issue their Seal, or
/// issued it for a different Thought.
pub(super) fn altered<'i>(
    items: &'i [Item],
    captured: &'i Captured,
) -> impl Iterator<Item = &'i Item> {
    items.iter().filter(|item| {
        seals(std::slice::from_ref(*item)).any(|seal| {
            let holds = |issued: &&Item| issued.seals.iter().any(|known| is_same(seal, known));
            let issuer = captured.items.iter().find(holds);
            issuer.is_none_or(|issued| match (&item.body, &issued.body) {
                (Body::Thought(now), Body::Thought(then)) => now.content != then.content,
                _ => false,
            })
        })
    })
}

/// Returns the captured Items with the client's text and arguments. Returns `None` if a Seal
/// forbids the edit or the client's texts do not correspond to the captured texts.
pub(super) fn edited(turn: &ChainTurn, items: &[Item], captured: &Captured) -> Option<Vec<Item>> {
    let mut calls = items.iter().filter_map(Item::call);
    let mut as_sent = |item: &Item| match item.call().and_then(|_| calls.next()) {
        Some(now) => with_arguments(item, now),
        None => item.clone(),
    };
    if turn.visible.text == captured.visible.text {
        return Some(captured.items.iter().map(as_sent).collect());
    }
    if let Some(merged) = with_extra_text(items, captured) {
        return Some(merged);
    }
    let texts: Vec<&Item> = captured.items.iter().filter(|item| is_text(item)).collect();
    let leads = |item: &Item| {
        let mut leading = captured.items.iter().flat_map(|other| &other.seals);
        leading.any(|seal| seal.attached.leads.as_ref() == Some(&item.id))
    };
    if texts.iter().any(|item| !item.seals.is_empty() || leads(item)) {
        return None;
    }
    let now: Vec<&Item> = items.iter().filter(|item| is_text(item)).collect();
    if !now.is_empty() && now.len() != texts.len() {
        return None;
    }
    let mut now = now.into_iter();
    let items = captured.items.iter().filter_map(|item| {
        if !is_text(item) {
            return Some(as_sent(item));
        }
        let text = now.next()?;
        let mut item = item.clone();
        if text.visible() != item.visible() {
            item.replace_body(text.body.clone());
        }
        Some(item)
    });
    Some(items.collect())
}

fn is_text(item: &Item) -> bool {
    let (Body::Text(text) | Body::Summary { text, .. }) = &item.body else { return false };
    !text.trim().is_empty()
}

/// Whether an Item is visible in every dialect.
fn is_visible(item: &Item) -> bool {
    is_text(item) || matches!(item.body, Body::Call(_) | Body::Media(_))
}

/// Returns the captured Items with texts that the client inserted; `None` if the client changed
/// anything else or a Seal is bound to the prefix.
fn with_extra_text(items: &[Item], captured: &Captured) -> Option<Vec<Item>> {
    if is_prefix_bound(captured) {
        return None;
    }
    let mut seals = captured.items.iter().flat_map(|item| &item.seals);
    let is_led = seals.any(|seal| seal.attached.leads.is_some());
    let mut issued = captured.items.iter().peekable();
    let mut merged: Vec<Item> = Vec::with_capacity(captured.items.len() + 1);
    for item in items.iter().filter(|item| is_visible(item)) {
        let next = issued.clone().find(|then| is_visible(then));
        if next.is_some_and(|then| is_counterpart(item, then)) {
            for then in issued.by_ref() {
                let is_match = is_visible(then);
                let now = item.call().filter(|_| is_match);
                merged.push(now.map_or_else(|| then.clone(), |now| with_arguments(then, now)));
                if is_match {
                    break;
                }
            }
        } else if is_text(item) {
            // Thoughts precede the inserted text, unless a Seal requires the next Item to follow
            // directly.
            while let Some(then) = issued.next_if(|then| !is_led && !is_visible(then)) {
                merged.push(then.clone());
            }
            let mut extra = item.clone();
            let neighbour = merged.last().or(captured.items.first());
            extra.place.message = neighbour.map_or(0, |item| item.place.message);
            merged.push(extra);
        } else {
            return None;
        }
    }
    if issued.clone().any(is_visible) {
        return None;
    }
    merged.extend(issued.cloned());
    Some(merged)
}

/// Whether a client's Item corresponds to the captured Item: equal text, or the same call.
fn is_counterpart(now: &Item, then: &Item) -> bool {
    let letters = |item: &Item| -> String {
        let text = item.visible().unwrap_or_default();
        text.chars().filter(|letter| !letter.is_whitespace()).collect()
    };
    match (now.call(), then.call()) {
        (Some(now), Some(then)) => now.name == then.name && has_members_of(&now.args, &then.args),
        (None, None) => is_text(now) && is_text(then) && letters(now) == letters(then),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod compare_tests;
