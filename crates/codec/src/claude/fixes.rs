//! Builds fixes for requests to Claude models. Issued content is restored byte for byte. Content
//! that cannot be restored is removed together with the parts that depend on it.

use throughline_core::{Body, Direction, Item, Mode, Reply};
use throughline_json::{self as json, Json};

use crate::audit::{Change, ChangeKind, Edit, Fix, IssuedItem, opens_all};
use crate::claude::Inspection;
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker, ClaudeTurn};

impl<'c> Inspection<'_, 'c, '_> {
    /// Returns an issued thought in the form that a request uses; `None` if the target does not
    /// accept the thought's Seals.
    pub(super) fn issued_block(&self, item: &Item) -> Option<Json> {
        let native = item.native_on(&self.book.wire)?;
        let may_go = !item.seals.is_empty() && opens_all(item, self.case.target());
        may_go.then(|| match native.side {
            Direction::Response => (self.book.project)(&native.json),
            Direction::Request => native.json.clone(),
        })
    }

    /// Builds a fix that restores a block as issued, or else removes it.
    pub(super) fn restore_or_remove(&self, block: &ClaudeBlock<'c>, removed: &str) -> Option<Fix> {
        // Remove a duplicate, because the first copy is already at the right position.
        let change = self.change_of(block).filter(|c| c.kind != ChangeKind::Duplicated);
        self.restore_fix(block, change).or_else(|| self.removal_fix(&[block], removed))
    }

    /// Builds a fix that restores a block as issued; `None` if that is impossible.
    pub(crate) fn restore_fix(
        &self,
        block: &ClaudeBlock<'c>,
        change: Option<&Change<'_>>,
    ) -> Option<Fix> {
        let issued = self.issued_block(change?.issued?.item)?;
        let description = format!("restores the {} block as it was issued", block.type_name());
        Some(Fix::replacement(block.node, issued, description))
    }

    pub(crate) fn removal_fix(
        &self,
        blocks: &[&ClaudeBlock<'c>],
        description: &str,
    ) -> Option<Fix> {
        let edits = self.removal_edits(blocks);
        (!edits.is_empty()).then(|| Fix::new(description, edits))
    }

    /// Builds edits that remove blocks, in request order. A message whose blocks are all removed is
    /// removed too.
    pub(super) fn removal_edits(&self, blocks: &[&ClaudeBlock<'c>]) -> Vec<Edit> {
        let mut edits = Vec::new();
        for removed in blocks.chunk_by(|a, b| a.message == b.message) {
            let Some(first) = removed.first() else { continue };
            let Some(message) = self.view.messages.get(first.message) else { continue };
            if removed.len() == message.blocks.len() {
                edits.extend(self.message_removal_edits(first.message));
            } else {
                edits.extend(removed.iter().map(|block| Edit::Remove(block.node.range())));
            }
        }
        edits
    }

    /// Builds edits that remove a message. If speakers must alternate, the adjacent messages are
    /// merged.
    fn message_removal_edits(&self, index: usize) -> Vec<Edit> {
        let messages = &self.view.messages;
        let Some(message) = messages.get(index).filter(|_| messages.len() > 1) else {
            return Vec::new();
        };
        let mut edits = vec![Edit::Remove(message.node.range())];
        let before = index.checked_sub(1).and_then(|before| messages.get(before));
        if let (false, Some(before), Some(after)) =
            (self.view.joins, before, messages.get(index + 1))
            && before.speaker == after.speaker
            && let Some(last) = before.blocks.last()
        {
            let moved = after.blocks.iter().map(|block| block.node.json()).collect();
            edits.push(Edit::InsertAfter(last.node.range(), moved));
            edits.push(Edit::Remove(after.node.range()));
        }
        edits
    }

    /// Builds a fix that restores the thoughts of a message as issued and keeps its other blocks.
    /// Returns `None` if the message has blocks that the response did not contain.
    pub(super) fn restore_message_fix(&self, message: usize, reply: &Reply) -> Option<Fix> {
        let message = self.view.messages.get(message)?;
        let content = message.content.filter(|content| content.is_array())?;
        let others = message.blocks.iter().filter(|block| !block.kind.is_thinking());
        let mut others: Vec<Option<&ClaudeBlock<'c>>> = others.map(Some).collect();
        let mut parts = Vec::new();
        for item in &reply.items {
            if matches!(item.body, Body::Thought(_)) {
                parts.push(self.issued_block(item)?);
                continue;
            }
            let is_it = |block: &&mut Option<&ClaudeBlock<'c>>| {
                block.is_some_and(|b| self.replays(b, item))
            };
            let found = others.iter_mut().find(is_it).and_then(Option::take);
            parts.extend(found.map(|block| block.node.json()));
        }
        let description = "restores the thinking blocks of this message as they were issued";
        let is_complete = others.iter().all(Option::is_none);
        is_complete.then(|| Fix::replacement(content, json::array_of(&parts), description))
    }

    /// Builds a fix that inserts a missing thought next to the remaining parts of its response.
    pub(super) fn restore_missing_fix(&self, issued: IssuedItem<'_>) -> Option<Fix> {
        let message_number = self.message_of_reply(issued.reply)?;
        if let Some(fix) = self.restore_message_fix(message_number, issued.reply) {
            return Some(fix);
        }
        let blocks = &self.view.messages.get(message_number)?.blocks;
        let block = self.issued_block(issued.item)?;
        let standing = |item: &Item| blocks.iter().find(|block| self.replays(block, item));
        let behind = issued.reply.items.iter().skip(issued.index + 1).find_map(standing);
        let mut earlier = issued.reply.items.iter().take(issued.index).rev();
        let edit = match behind {
            Some(behind) => Edit::InsertBefore(behind.node.range(), vec![block]),
            None => Edit::InsertAfter(earlier.find_map(standing)?.node.range(), vec![block]),
        };
        Some(Fix::new("restores the missing thinking block", [edit]))
    }

    /// Returns the assistant message that replays the most parts of a response.
    pub(crate) fn message_of_reply(&self, reply: &Reply) -> Option<usize> {
        let numbers = 0..self.view.messages.len();
        let scored =
            numbers.filter_map(|number| Some((self.replayed_parts(number, reply)?, number)));
        scored.max().map(|(_, number)| number)
    }

    /// Returns the response of which an assistant message replays the most parts.
    fn reply_of_message(&self, message: usize) -> Option<&'c Reply> {
        let exchanges = self.case.prior().exchanges().iter();
        let replies = exchanges.filter_map(|exchange| exchange.reply.as_ref());
        let scored =
            replies.filter_map(|reply| Some((self.replayed_parts(message, reply)?, reply)));
        scored.max_by_key(|(parts, _)| *parts).map(|(_, reply)| reply)
    }

    /// Counts the parts of a response that an assistant message replays: parts with an id, all
    /// parts, parts with a Seal. Ids come first, because texts and opaque blocks may repeat, and a
    /// Seal may have been moved. Returns `None` if the message replays no part.
    fn replayed_parts(&self, message: usize, reply: &Reply) -> Option<(usize, usize, usize)> {
        let message = self.view.messages.get(message)?;
        if message.speaker != ClaudeSpeaker::Assistant {
            return None;
        }
        let is_replayed =
            |item: &&Item| message.blocks.iter().any(|block| self.replays(block, item));
        let replayed: Vec<&Item> = reply.items.iter().filter(is_replayed).collect();
        let count =
            |is_counted: fn(&Item) -> bool| replayed.iter().filter(|item| is_counted(item)).count();
        let ids = count(|item| matches!(item.body, Body::Call(_) | Body::Hosted(_)));
        let seals = count(|item| !item.seals.is_empty());
        (!replayed.is_empty()).then_some((ids, replayed.len(), seals))
    }

    /// Builds a fix for a thought that is in the message of another response: restores the thoughts
    /// of both messages as issued. If the other response is unknown, the thought is removed from
    /// its message.
    pub(super) fn restore_both_messages_fix(
        &self,
        block: &ClaudeBlock<'c>,
        reply: &Reply,
    ) -> Option<Fix> {
        let home = self.message_of_reply(reply).filter(|home| *home != block.message)?;
        let mut fix = self.restore_message_fix(home, reply)?;
        let other = self.reply_of_message(block.message);
        match other.and_then(|other| self.restore_message_fix(block.message, other)) {
            Some(other) => fix.edits.extend(other.edits),
            None => fix.edits.extend(self.removal_edits(&[block])),
        }
        Some(fix)
    }

    /// Returns whether a block is a replay of an Item.
    pub(crate) fn replays(&self, block: &ClaudeBlock<'_>, item: &Item) -> bool {
        use Body::{Compaction, Media, Result, Summary, Text, Unknown};
        let has_id = |id: Option<&str>| id.is_some_and(|id| block.id.is_some_and(|own| own.is(id)));
        let is_native = || {
            let is_opaque =
                matches!(block.kind, ClaudeBlockKind::Other | ClaudeBlockKind::Compaction);
            let native = item.native_on(&self.book.wire).filter(|_| is_opaque);
            native.is_some_and(|native| {
                (self.book.project)(&native.json).is_equivalent_to(&block.node.json())
            })
        };
        match &item.body {
            Body::Thought(_) => item.seals.iter().any(|seal| {
                let text = std::str::from_utf8(seal.reveal_to_tenant()).unwrap_or_default();
                block.seal.is_some_and(|own| own.is(text))
            }),
            Body::Text(text) if block.kind == ClaudeBlockKind::Text => {
                block.text.is_some_and(|own| own.is(text))
            }
            Body::Call(call) => {
                block.kind == ClaudeBlockKind::Call && has_id(call.wire_id.as_deref())
            }
            Body::Hosted(hosted) => {
                let (call, answer) = (ClaudeBlockKind::HostedCall, ClaudeBlockKind::HostedAnswer);
                let kind = if hosted.is_result { answer } else { call };
                block.kind == kind && has_id(hosted.pairs.as_deref())
            }
            Text(_) | Media(_) | Result(_) | Compaction | Summary { .. } | Unknown => is_native(),
        }
    }

    /// Builds a fix that disables thinking for a tool loop whose thinking is lost, as the provider
    /// recommends.
    pub(super) fn disable_thinking_fix(&self, turn: &ClaudeTurn) -> Option<Fix> {
        let thinking = self.view.settings.thinking?;
        let profile = self.case.profile();
        let off = if profile.supports_mode(Mode::Disabled) {
            Edit::Replace(thinking.range(), thinking_object("disabled"))
        } else if profile.thinks_by_default {
            return None;
        } else {
            Edit::Remove(thinking.range())
        };
        let blocks = self.view.blocks_of_turn(turn);
        let rest: Vec<_> = blocks.filter(|block| block.kind.is_thinking()).collect();
        let mut edits = vec![off];
        edits.extend(self.removal_edits(&rest));
        Some(Fix::new("disables thinking until this tool loop ends", edits))
    }
}

/// Returns a `thinking` object that has only the member `type`.
pub(super) fn thinking_object(kind: &str) -> Json {
    object! { "type": kind }
}
