//! How a request to a Claude is mended: what was issued is put back byte for byte, and what cannot go back is left out
//! with what depends on it.

use throughline_core::{Body, Item, Json, Mode, Reply, Side, json};

use crate::audit::{Change, ChangeKind, Edit, Mend};
use crate::claude::Inspection;
use crate::claude::view::{Block, Kind, Turn};

impl<'c> Inspection<'_, 'c, '_> {
    /// A thought as it was issued, in the words of a request, if this target may have it.
    pub(super) fn issued_block(&self, item: &Item) -> Option<Json> {
        let native = item.native_on(&self.book.signature_missing.wire)?;
        let is_open =
            |seal: &throughline_core::Seal| seal.open_for(self.case.target(), None).is_ok();
        let may_go = !item.seals.is_empty() && item.seals.iter().all(is_open);
        may_go.then(|| match native.side {
            Side::Response => (self.book.project)(&native.json),
            Side::Request => native.json.clone(),
        })
    }

    /// Puts a block back as it was issued, or takes it away.
    pub(super) fn restored_or_removed(&self, block: &Block<'c>, removed: &str) -> Option<Mend> {
        // Of a block that stands here a second time, the first is where it belongs.
        let change = self.change_of(block).filter(|c| c.kind != ChangeKind::Duplicated);
        self.restored(block, change).or_else(|| self.removed(&[block], removed))
    }

    /// Puts a block back as it was issued.
    pub(crate) fn restored(&self, block: &Block<'c>, change: Option<&Change<'_>>) -> Option<Mend> {
        let issued = self.issued_block(change?.issued?.item)?;
        let what = format!("puts the {} block back as it was issued", block.word());
        Some(Mend::new(what, [Edit::Replace(block.node.range(), issued)]))
    }

    /// Takes blocks away.
    pub(crate) fn removed(&self, blocks: &[&Block<'c>], what: &str) -> Option<Mend> {
        let edits = self.without(blocks);
        (!edits.is_empty()).then(|| Mend::new(what, edits))
    }

    /// The edits that take blocks away, in the order of the request: with its last block a message goes too.
    pub(super) fn without(&self, blocks: &[&Block<'c>]) -> Vec<Edit> {
        let mut edits = Vec::new();
        for gone in blocks.chunk_by(|a, b| a.message == b.message) {
            let Some(first) = gone.first() else { continue };
            let Some(message) = self.view.messages.get(first.message) else { continue };
            if gone.len() == message.blocks.len() {
                edits.extend(self.without_message(first.message));
            } else {
                edits.extend(gone.iter().map(|block| Edit::Remove(block.node.range())));
            }
        }
        edits
    }

    /// The edits that take a message away. Where speakers must alternate, its neighbours become one.
    pub(super) fn without_message(&self, index: usize) -> Vec<Edit> {
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

    /// Puts the thoughts of a message back as they were issued, among what the client says of it now. Nothing where the
    /// message says what the answer did not.
    pub(super) fn as_issued(&self, message: usize, reply: &Reply) -> Option<Mend> {
        let message = self.view.messages.get(message)?;
        let content = message.content.filter(|content| content.is_array())?;
        let others = message.blocks.iter().filter(|block| !block.kind.is_thinking());
        let mut others: Vec<Option<&Block<'c>>> = others.map(Some).collect();
        let mut parts = Vec::new();
        for item in &reply.items {
            if matches!(item.body, Body::Thought(_)) {
                parts.push(self.issued_block(item)?);
                continue;
            }
            let is_it =
                |block: &&mut Option<&Block<'c>>| block.is_some_and(|b| self.says_it(b, item));
            let found = others.iter_mut().find(is_it).and_then(Option::take);
            parts.extend(found.map(|block| block.node.json()));
        }
        let what = "puts the thinking blocks of this message back as they were issued";
        others
            .iter()
            .all(Option::is_none)
            .then(|| Mend::new(what, [Edit::Replace(content.range(), json::array_of(&parts))]))
    }

    /// Puts one thought that is gone back beside what is still there of its answer.
    pub(super) fn put_back(&self, change: &Change<'_>) -> Option<Mend> {
        let issued = change.issued?;
        let home = self.home_of(issued.reply)?;
        if let Some(mend) = self.as_issued(home, issued.reply) {
            return Some(mend);
        }
        let blocks = &self.view.messages.get(home)?.blocks;
        let block = self.issued_block(issued.item)?;
        let standing = |item: &Item| blocks.iter().find(|block| self.says_it(block, item));
        let behind = issued.reply.items.iter().skip(issued.index + 1).find_map(standing);
        let mut earlier = issued.reply.items.iter().take(issued.index).rev();
        let edit = match behind {
            Some(behind) => Edit::InsertBefore(behind.node.range(), vec![block]),
            None => Edit::InsertAfter(earlier.find_map(standing)?.node.range(), vec![block]),
        };
        Some(Mend::new("puts the thinking block back where it was issued", [edit]))
    }

    /// The message that holds what is left of an answer. A text may be said twice, so ids and seals count first.
    pub(super) fn home_of(&self, reply: &Reply) -> Option<usize> {
        let last = |is_text: bool| {
            let items =
                reply.items.iter().filter(|item| matches!(item.body, Body::Text(_)) == is_text);
            let items: Vec<&Item> = items.collect();
            let said = |block: &&Block<'c>| items.iter().any(|item| self.says_it(block, item));
            self.view.models_blocks().filter(said).last().map(|block| block.message)
        };
        last(false).or_else(|| last(true))
    }

    /// Whether a block is what an Item became.
    pub(super) fn says_it(&self, block: &Block<'_>, item: &Item) -> bool {
        let has_id = |id: Option<&str>| id.is_some_and(|id| block.id.is_some_and(|own| own.is(id)));
        let is_native = || {
            let native = item.native_on(&self.book.signature_missing.wire);
            let is_known = !matches!(block.kind, Kind::Other | Kind::Compaction);
            !is_known
                && native.is_some_and(|native| {
                    (self.book.project)(&native.json).says_the_same_as(&block.node.json())
                })
        };
        match &item.body {
            Body::Thought(_) => item.seals.iter().any(|seal| {
                let text = std::str::from_utf8(seal.reveal_to_tenant()).unwrap_or_default();
                block.seal.is_some_and(|own| own.is(text))
            }),
            Body::Text(text) if block.kind == Kind::Text => {
                block.text.is_some_and(|own| own.is(text))
            }
            Body::Call(call) => block.kind == Kind::Call && has_id(call.wire_id.as_deref()),
            Body::Hosted(hosted) => {
                let kind = if hosted.is_result { Kind::HostedAnswer } else { Kind::HostedCall };
                block.kind == kind && has_id(hosted.pairs.as_deref())
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => is_native(),
        }
    }

    /// Switches thinking off for a tool loop whose own thinking is lost, as the provider advises.
    pub(super) fn without_thinking(&self, turn: &Turn) -> Option<Mend> {
        let thinking = self.view.knobs.thinking?;
        let profile = self.case.profile();
        let off = if profile.takes(Mode::Disabled) {
            Edit::Replace(thinking.range(), kind_of_thinking("disabled"))
        } else if profile.thinks_by_default {
            return None;
        } else {
            Edit::Remove(thinking.range())
        };
        let rest: Vec<_> = self.view.said_in(turn).filter(|b| b.kind.is_thinking()).collect();
        let mut edits = vec![off];
        edits.extend(self.without(&rest));
        Some(Mend::new("switches thinking off until this tool loop ends", edits))
    }
}

/// A `thinking` object that says no more than its kind.
pub(super) fn kind_of_thinking(kind: &str) -> Json {
    json::object(|o| {
        o.string("type", kind);
    })
}
