//! Decides whether the Thoughts without a Seal that a client dropped, or replaced by a Claim, are
//! restored.
//!
//! A provider reads a Seal or rejects it. Reasoning without a Seal is plain text, and models treat
//! it differently: some providers demand it, some models read it only in the current tool loop, and
//! some ignore it. The model's profile states which applies, and the provider's setting
//! `replay_plain` overrides the profile. Models of other families never receive it.

use throughline_core::{
    Body, Contract, ElisionReason, Item, PlainReasoning, PlainReplay, Role, Target, ThoughtKind,
    Wire,
};

use crate::claim::Claims;
use crate::engine::compare;
use crate::engine::turn_cache::Captured;

/// What happens to the plain Thoughts of a captured turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainThoughts {
    /// The turn has no plain Thought, or the client sent its Thoughts back.
    Complete,
    /// The client dropped Thoughts that the model uses or the provider demands.
    Restore,
    /// The client dropped Thoughts that are not restored, for this reason.
    Omit(ElisionReason),
}

impl PlainThoughts {
    /// Compares the client's `items` with the captured turn. `is_current` returns whether the turn
    /// belongs to the current tool loop, and `follows_calls` whether it is the answer after calls.
    pub(super) fn of(
        items: &[Item],
        captured: &Captured,
        target: &Target,
        is_current: impl FnOnce() -> bool,
        follows_calls: impl FnOnce() -> bool,
    ) -> Self {
        let thoughts = || captured.items.iter().filter(|item| is_plain(item, target));
        let Some(first) = thoughts().next() else { return Self::Complete };
        let (setting, plain) = (target.provider.replay_plain, target.profile.plain());
        let is_sealed =
            |item: &Item| matches!(item.body, Body::Thought(_)) && !item.seals.is_empty();
        if setting == PlainReplay::Auto && captured.items.iter().any(is_sealed) {
            // The plain Thoughts belong to the sealed ones, and are restored together with them.
            return Self::Complete;
        }
        let is_demanded = plain == PlainReasoning::Demanded;
        // A client may shorten Thoughts that the provider does not demand.
        let is_complete = if is_demanded && setting == PlainReplay::Auto {
            thoughts().all(|thought| compare::has_thought(items, thought))
        } else {
            items.iter().any(is_readable_thought)
        };
        if is_complete {
            return Self::Complete;
        }
        if setting == PlainReplay::Never {
            return Self::Omit(ElisionReason::ByPolicy);
        }
        // A model's Thought is never sent as text to another model.
        if first.origin.as_ref().is_none_or(|from| from.family != target.origin.family) {
            return Self::Omit(ElisionReason::OtherModel);
        }
        if setting == PlainReplay::Always {
            return Self::Restore;
        }
        let used = |is_used: bool| {
            if is_used { Self::Restore } else { Self::Omit(ElisionReason::EarlierTurn) }
        };
        match plain {
            // DeepSeek's guide demands the reasoning of all replies between two user messages, if
            // one of the replies calls tools. Some reports limit this to the replies with calls.
            // The other reasoning is ignored at worst, so it is sent.
            PlainReasoning::Demanded => {
                let is_required = captured.visible.acts.is_some()
                    || target.profile.contract == Contract::AlwaysRequired
                    || follows_calls();
                if is_required { Self::Restore } else { Self::Omit(ElisionReason::Unused) }
            }
            PlainReasoning::UsedAcrossTurns => used(true),
            PlainReasoning::UsedInToolLoop => used(is_current()),
            PlainReasoning::Unknown if is_chat(target) => used(is_current()),
            PlainReasoning::Unknown | PlainReasoning::Ignored => Self::Omit(ElisionReason::Unused),
        }
    }
}

/// Returns the captured plain Thoughts that the client did not send back.
pub(super) fn dropped<'c>(
    items: &'c [Item],
    captured: &'c [Item],
    target: &'c Target,
) -> impl Iterator<Item = &'c Item> {
    let plain = captured.iter().filter(|item| is_plain(item, target));
    plain.filter(|thought| !compare::has_thought(items, thought))
}

/// Whether an Item is a Thought without a Seal. On wires other than chat, summaries do not count,
/// because these wires show summaries only to users.
pub(super) fn is_plain(item: &Item, target: &Target) -> bool {
    let Body::Thought(thought) = &item.body else { return false };
    item.seals.is_empty()
        && !thought.content.is_empty()
        && (thought.kind == ThoughtKind::Text || is_chat(target))
}

fn is_chat(target: &Target) -> bool {
    target.provider.wire == Wire::OPENAI_CHAT
}

/// Whether the client sent a Thought with text of its own. A Claim only identifies the captured
/// turn, so a Thought with a Claim counts as dropped.
fn is_readable_thought(item: &Item) -> bool {
    let Body::Thought(thought) = &item.body else { return false };
    !thought.content.trim().is_empty() && Claims::handles_in_item(item).next().is_none()
}

/// Returns the index of the first Item of the current tool loop: the Item after the last user
/// message that contains no tool result.
pub(super) fn start_of_tool_loop(items: &[Item]) -> usize {
    let mut end = items.len();
    while let Some(last) = items.get(..end).and_then(<[Item]>::last) {
        let before = items.get(..end).unwrap_or_default();
        let other = before.iter().rposition(|item| item.place.message != last.place.message);
        let start = other.map_or(0, |at| at + 1);
        if before.get(start..).is_some_and(is_user_message) {
            return end;
        }
        end = start;
    }
    0
}

/// Whether the model called tools between the last user message and the turn that starts at the
/// index `start`.
pub(super) fn follows_calls(items: &[Item], start: usize) -> bool {
    let before = items.get(..start).unwrap_or_default();
    let same_loop = before.get(start_of_tool_loop(before)..).unwrap_or_default();
    same_loop.iter().any(|item| item.call().is_some())
}

/// Whether these Items are a message from the user. A message with tool results continues the
/// loop, and so does an approval, which is an unknown element.
fn is_user_message(items: &[Item]) -> bool {
    let speaks = |item: &Item| item.role == Role::User && !matches!(item.body, Body::Unknown);
    items.iter().any(speaks) && !items.iter().any(|item| matches!(item.body, Body::Result(_)))
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod plain_tests;
