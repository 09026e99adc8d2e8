//! What a client lost or altered of a turn, and whether its edits can stand.

use throughline_core::{Body, Contract, Item, Seal, Target, Wire};

use crate::replay::chain::ChainTurn;
use crate::replay::claim::Claims;
use crate::replay::memo::Captured;

/// How a turn of a request looks beside a captured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// Everything visible is equal.
    Same,
    /// Only its text differs.
    Edited,
    /// It is another turn.
    Other,
}

pub(super) fn likeness(turn: &ChainTurn, captured: &Captured) -> Likeness {
    let (now, then) = (turn.visible, captured.visible);
    if now.acts != then.acts {
        Likeness::Other
    } else if now.text == then.text {
        Likeness::Same
    } else {
        Likeness::Edited
    }
}

/// Whether the target made the turn, so that it reads what was sealed then.
pub(super) fn is_own(captured: &Captured, target: &Target) -> bool {
    let origin = captured.items.iter().find_map(|item| item.origin.as_ref());
    origin.is_some_and(|origin| {
        origin.provider == target.origin.provider && origin.endpoint == target.origin.endpoint
    })
}

/// The client's Seals of a turn that are none of our claims.
pub(super) fn seals(items: &[Item]) -> impl Iterator<Item = &Seal> {
    let seals = items.iter().flat_map(|item| &item.seals);
    seals.filter(|seal| !Claims::is_ours(seal.reveal_to_tenant()))
}

/// Whether a Seal that came back is the one that was issued. To Google the bytes count, not the alphabet of their base64, and
/// its own clients change that.
pub(super) fn is_same(sent: &Seal, issued: &Seal) -> bool {
    let (now, then) = (sent.reveal_to_tenant(), issued.reveal_to_tenant());
    now == then || issued.owner.wire == Wire::GEMINI && plain(now).eq(plain(then))
}

/// A base64 text in one alphabet and without padding.
pub(super) fn plain(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().filter(|byte| **byte != b'=').map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    })
}

/// What is made of a base64 text in one alphabet and without padding. Most are in it already.
pub(super) fn with_plain<T>(text: &[u8], make: impl FnOnce(&[u8]) -> T) -> T {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let inner = text.get(..text.len() - padding).unwrap_or_default();
    match memchr::memchr3(b'=', b'-', b'_', inner) {
        None => make(inner),
        Some(_) => make(&plain(inner).collect::<Vec<u8>>()),
    }
}

/// Whether the client sent everything back that the target reads.
pub(super) fn is_intact(items: &[Item], captured: &Captured, target: &Target) -> bool {
    let has_claims = items.iter().any(|item| Claims::in_item(item).next().is_some());
    let (mut sent, mut issued) = (seals(items), captured.items.iter().flat_map(|item| &item.seals));
    let is_all = loop {
        match (sent.next(), issued.next()) {
            (Some(sent), Some(issued)) if is_same(sent, issued) => {}
            (None, None) => break true,
            (Some(_) | None, _) => break false,
        }
    };
    !has_claims && is_all && !lacks_demanded_thought(items, captured, target)
}

/// Whether reasoning that has no Seal is missing, and the target demands it.
fn lacks_demanded_thought(items: &[Item], captured: &Captured, target: &Target) -> bool {
    let demands = match target.profile.contract {
        Contract::Stateless => false,
        Contract::RequiredWithTools => captured.visible.acts.is_some(),
        Contract::AlwaysRequired => true,
    };
    let is_unsealed = |item: &&Item| matches!(item.body, Body::Thought(_)) && item.seals.is_empty();
    demands
        && target.provider.wire == Wire::OPENAI_CHAT
        && captured.items.iter().filter(is_unsealed).any(|thought| !has_thought(items, thought))
}

/// Whether the client sent that thought.
pub(super) fn has_thought(items: &[Item], thought: &Item) -> bool {
    let is_same = |item: &Item| match (&item.body, &thought.body) {
        (Body::Thought(now), Body::Thought(then)) => now.content == then.content,
        _ => false,
    };
    items.iter().any(|item| is_same(item) && Claims::in_item(item).next().is_none())
}

/// The client's Items whose Seals, or sealed thoughts, are not what was issued.
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

/// The captured Items with the text as the client edited it; nothing where a Seal stands on the text or before it, or where
/// it cannot be told which text is which.
pub(super) fn edited(items: &[Item], captured: &Captured) -> Option<Vec<Item>> {
    let is_text = |item: &&Item| matches!(&item.body, Body::Text(text) | Body::Summary { text, .. } if !text.trim().is_empty());
    let texts: Vec<&Item> = captured.items.iter().filter(is_text).collect();
    let leads = |item: &Item| {
        let mut leading = captured.items.iter().flat_map(|other| &other.seals);
        leading.any(|seal| seal.attached.leads.as_ref() == Some(&item.id))
    };
    if texts.iter().any(|item| !item.seals.is_empty() || leads(item)) {
        return None;
    }
    let now: Vec<&Item> = items.iter().filter(is_text).collect();
    if !now.is_empty() && now.len() != texts.len() {
        return None;
    }
    let mut now = now.into_iter();
    let items = captured.items.iter().filter_map(|item| {
        if !is_text(&item) {
            return Some(item.clone());
        }
        let text = now.next()?;
        let mut item = item.clone();
        if text.visible() != item.visible() {
            item.rewrite(text.body.clone());
        }
        Some(item)
    });
    Some(items.collect())
}
