//! What a Claude refuses, or drops, because it does not come back as it was issued.

use std::collections::HashSet;

use throughline_core::{Body, Node, Reply, Why};

use crate::audit::{Change, ChangeKind, Comparison, Finding, Mend, PrefixChange, Severity};
use crate::claude::view::{Block, Kind, Speaker};
use crate::claude::{self, Asking, Inspection};

/// 2026-08-31T00:00:00Z: accounts made since then have their prefixes checked unasked.
const CHECKED_SINCE: i64 = 1_788_134_400;

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn look_at_what_was_issued(&mut self) {
        let Some(comparison) = self.case.comparison() else { return };
        let mut changes: Vec<&Change<'_>> = comparison.changes.iter().collect();
        changes.sort_by_key(|change| rank(change.kind));
        for change in changes {
            let block = change.part.as_ref().and_then(|part| self.view.block_at(part.start));
            if let Some(block) = block.copied()
                && !self.is_judged(block.node.range().start)
            {
                self.look_at_change(&block, change);
            }
        }
        self.look_at_the_lost(comparison);
        if self.case.profile().bound.prefix {
            self.look_at_prefix(comparison);
        }
    }

    fn look_at_change(&mut self, block: &Block<'c>, change: &'c Change<'c>) {
        if change.kind == ChangeKind::SaidAloud {
            self.said_aloud(block, change);
        } else if block.kind.is_thinking() {
            self.look_at_thinking(block, change);
        } else {
            self.look_at_sealed(block, change);
        }
    }

    fn look_at_thinking(&mut self, block: &Block<'c>, change: &'c Change<'c>) {
        let (word, phrase) = (block.word(), change.kind.phrase());
        let of_seal = || format!("this {} {phrase}", block.seal_word());
        let of_block = || format!("this {word} block {phrase}");
        let removed = format!("removes the {word} block that was not issued so");
        let restored = || self.restored(block, Some(change));
        let gone = || self.removed(&[block], &removed);
        let book = self.book;
        let (rule, message, mend) = match change.kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
                (book.signature_invalid, of_seal(), restored().or_else(gone))
            }
            ChangeKind::SealDropped => {
                let message = format!("the {} of this {word} block {phrase}", block.seal_word());
                (book.signature_missing, message, restored().or_else(gone))
            }
            ChangeKind::TextEdited { .. } => {
                let message = format!("this text {phrase}");
                (book.thinking_modified, message, restored().or_else(gone))
            }
            ChangeKind::SealMoved | ChangeKind::Merged => {
                let mend = self.reissued(block, change).or_else(restored).or_else(gone);
                (book.thinking_modified, of_block(), mend)
            }
            ChangeKind::Reordered => {
                let home = || self.moved_home(block, change);
                let mend = self.reissued(block, change).or_else(home).or_else(gone);
                (book.thinking_modified, of_block(), mend)
            }
            ChangeKind::Duplicated => {
                let mend = self.reissued(block, change).or_else(gone);
                (book.thinking_modified, of_block(), mend)
            }
            ChangeKind::PartMoved if self.is_beside_its_answer(block, change) => return,
            ChangeKind::PartMoved => {
                let mend = self.moved_home(block, change).or_else(gone);
                (book.thinking_modified, of_block(), mend)
            }
            ChangeKind::Unissued => {
                let finding = Finding::in_range(
                    book.signature_invalid,
                    change.seal.clone().unwrap_or(block.node.range()),
                    of_seal(),
                );
                let error = self.invalid(block);
                let (severity, mend) = if change.is_placed {
                    (Severity::Refuse, gone())
                } else {
                    (Severity::Note, None)
                };
                self.report(block, finding.as_grave_as(severity).answered(error).mended(mend));
                return;
            }
            ChangeKind::Foreign(why) => {
                self.foreign(block, change, why);
                return;
            }
            ChangeKind::PartDropped | ChangeKind::SaidAloud => return,
        };
        let error = if std::ptr::eq(rule, book.thinking_modified) && change.is_latest {
            self.modified(&block.place())
        } else {
            self.invalid(block)
        };
        let text = block.text.filter(|_| matches!(change.kind, ChangeKind::TextEdited { .. }));
        let place = text.map(Node::range).or_else(|| change.seal.clone());
        let range = place.unwrap_or(block.node.range());
        let finding = Finding::in_range(rule, range, message).answered(error).mended(mend);
        self.report(block, finding);
    }

    /// The provider's words for a changed block of the latest message.
    fn modified(&self, place: &str) -> String {
        self.says(format!(
            "{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
             These blocks must remain as they were in the original response."
        ))
    }

    /// Puts the whole message back as it was issued.
    fn reissued(&self, block: &Block<'c>, change: &Change<'_>) -> Option<Mend> {
        self.as_issued(block.message, change.issued?.reply)
    }

    /// Puts a block that strayed into another message back into its own.
    fn moved_home(&self, block: &Block<'c>, change: &Change<'_>) -> Option<Mend> {
        let reply = change.issued?.reply;
        let is_elsewhere = |other: &&Block<'c>| {
            other.message != block.message
                && reply.items.iter().any(|item| self.says_it(other, item))
        };
        let home = self.view.models_blocks().find(is_elsewhere)?.message;
        let mut mend = self.as_issued(home, reply)?;
        mend.edits.extend(self.without(&[block]));
        Some(mend)
    }

    /// Whether the rest of its answer stands in the same turn, which counts as one message.
    fn is_beside_its_answer(&self, block: &Block<'c>, change: &Change<'_>) -> bool {
        let (Some(issued), Some(turn)) = (change.issued, self.view.turn_of(block.message)) else {
            return false;
        };
        let is_other = |other: &Block<'c>| other.node.range() != block.node.range();
        let items = &issued.reply.items;
        self.view
            .said_in(turn)
            .any(|other| is_other(other) && items.iter().any(|item| self.says_it(other, item)))
    }

    fn foreign(&mut self, block: &Block<'c>, change: &Change<'_>, why: Why) {
        let word = block.word();
        let exchanges = self.case.prior().exchanges();
        let issuer = change.issued.and_then(|issued| exchanges.get(issued.exchange));
        let is_claudes = issuer.is_some_and(|issuer| claude::is_claude(&issuer.asked.target));
        let message = match issuer {
            Some(issuer) if why == Why::OtherModel => format!(
                "{} issued this block, and {} does not read it",
                issuer.asked.target.profile.name,
                self.case.profile().name
            ),
            Some(_) | None => format!("this {word} block {}", change.kind.phrase()),
        };
        let is_unread = match why {
            Why::OtherAccount | Why::OtherModel => true,
            Why::Foreign
            | Why::PrefixChanged
            | Why::Unsigned
            | Why::Cut
            | Why::Altered
            | Why::Covered
            | Why::Forgotten
            | Why::Expired
            | Why::NotOnThisWire
            | Why::ByPolicy => false,
        };
        if is_unread || is_claudes {
            // The endpoints of the Claudes are said to read each other's signatures.
            let severity = if is_unread { Severity::Degrade } else { Severity::Note };
            let what = format!("removes the {word} block that the model does not read");
            let mend = self.removed(&[block], &what).filter(|_| is_unread);
            let finding = Finding::at(self.book.block_unreadable, block.node, message);
            self.report(block, finding.as_grave_as(severity).mended(mend));
            return;
        }
        let error = self.invalid(block);
        let what = format!("removes the {word} block that another provider issued");
        let mend = self.removed(&[block], &what);
        let finding = Finding::at(self.book.signature_invalid, block.node, message);
        self.report(block, finding.answered(error).mended(mend));
    }

    fn said_aloud(&mut self, block: &Block<'c>, change: &Change<'_>) {
        let message = format!("this text {}", change.kind.phrase());
        let turn = self.view.turn_of(block.message);
        let is_models = turn.is_some_and(|turn| turn.speaker == Speaker::Assistant);
        let mend = self.removed(&[block], "removes the text that says a thought aloud");
        let finding = Finding::at(self.book.thought_as_text, block.node, message);
        self.report(block, finding.mended(mend.filter(|_| is_models)));
    }

    /// Other blocks carry seals too: search results, citations, compactions.
    fn look_at_sealed(&mut self, block: &Block<'c>, change: &Change<'_>) {
        let Some(rule) = self.book.sealed_content_changed else { return };
        let is_changed = match change.kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded | ChangeKind::SealMoved => {
                true
            }
            // Citations may be left out of a text.
            ChangeKind::SealDropped => block.kind != Kind::Text,
            ChangeKind::TextEdited { .. } => block.kind == Kind::Compaction,
            ChangeKind::PartDropped
            | ChangeKind::PartMoved
            | ChangeKind::Merged
            | ChangeKind::Reordered
            | ChangeKind::Duplicated
            | ChangeKind::Unissued
            | ChangeKind::Foreign(_)
            | ChangeKind::SaidAloud => false,
        };
        // What another wire or account sealed has no place here.
        let is_own = change.issued.is_some_and(|issued| self.issued_block(issued.item).is_some());
        if !is_changed || !is_own {
            return;
        }
        let severity =
            if block.kind == Kind::Compaction { Severity::Refuse } else { Severity::Note };
        let is_text = matches!(change.kind, ChangeKind::TextEdited { .. });
        let part = if is_text { "content" } else { "seal" };
        let message = format!("the {part} of this block {}", change.kind.phrase());
        let mend = self.restored(block, Some(change)).map(|mend| Mend {
            what: "puts the sealed block back as it was issued".to_owned(),
            ..mend
        });
        let text = block.text.filter(|_| is_text).map(Node::range);
        let range = text.or_else(|| change.seal.clone()).unwrap_or(block.node.range());
        let finding = Finding::in_range(rule, range, message).as_grave_as(severity).mended(mend);
        self.report(
            block,
            match severity {
                Severity::Refuse if is_text => finding.answered("compaction_content_mismatch"),
                Severity::Refuse => finding,
                Severity::Degrade | Severity::Note => finding.unanswered(),
            },
        );
    }

    /// Thoughts of the open tool loop that do not come back. Those of turns that are over may go.
    fn look_at_the_lost(&mut self, comparison: &'c Comparison<'c>) {
        let view = self.view;
        let asking = view.knobs.asking();
        let Some(turn) = view.open_loop().filter(|_| asking.thinks(self.case.profile())) else {
            return;
        };
        let begins_thinking =
            view.said_in(turn).next().is_some_and(|block| block.kind.is_thinking());
        let mut told = HashSet::new();
        for (change, reply) in lost_thoughts(comparison).filter(|(change, _)| change.is_current) {
            let Some(issued) = change.issued else { continue };
            if self.issued_block(issued.item).is_none() || !told.insert(issued.exchange) {
                continue;
            }
            let is_demanded = asking == Asking::Manual && change.is_latest;
            // That the loop does not begin with thinking is said already.
            if is_demanded && !begins_thinking {
                continue;
            }
            let Some(home) = self.home_of(reply) else { continue };
            let Some(message) = view.messages.get(home) else { continue };
            let place = format!("messages.{home}.content.{}", issued.index);
            let severity = if is_demanded { Severity::Refuse } else { Severity::Degrade };
            let later = reply.items.get(issued.index + 1..).unwrap_or_default();
            let next =
                message.blocks.iter().find(|b| later.iter().any(|item| self.says_it(b, item)));
            let (beside, said) = match (next, message.blocks.last()) {
                (Some(next), _) => {
                    (next.node, "a thinking block was issued before this, and is gone")
                }
                (None, Some(last)) => {
                    (last.node, "a thinking block was issued behind this, and is gone")
                }
                (None, None) => (message.node, "a thinking block was issued here, and is gone"),
            };
            let finding = Finding::at(self.book.thinking_dropped, beside, said)
                .under(place.clone())
                .as_grave_as(severity)
                .mended(self.put_back(change));
            self.add(if is_demanded {
                finding.answered(self.modified(&place))
            } else {
                finding.unanswered()
            });
        }
    }

    /// Models that bind a thought to what stood before it.
    fn look_at_prefix(&mut self, comparison: &'c Comparison<'c>) {
        if let Some(changed) = &comparison.prefix {
            // That a block is refused for what was changed in it covers what follows from that.
            let is_told = changed.place.as_ref().is_some_and(|place| self.refused_within(place));
            let block = self.view.block_at(changed.part.start).copied();
            if let Some(block) = block.filter(|_| !is_told) {
                self.prefix_changed(&block, changed, comparison);
            }
            return;
        }
        for (change, reply) in lost_thoughts(comparison) {
            let Some(issued) = change.issued else { continue };
            let later = reply.items.iter().skip(issued.index + 1);
            let later: Vec<_> =
                later.filter(|item| matches!(item.body, Body::Thought(_))).collect();
            if later.is_empty() {
                continue;
            }
            let is_later = |block: &&Block<'c>| later.iter().any(|item| self.says_it(block, item));
            let block = self.view.models_blocks().find(is_later).copied();
            if let Some(block) = block.filter(|b| !self.is_judged(b.node.range().start)) {
                self.report_prefix(
                    &block,
                    "the thinking block that came before this one in its answer is gone".to_owned(),
                    Some(MISSING),
                    self.put_back(change),
                );
                return;
            }
        }
    }

    fn prefix_changed(
        &mut self,
        block: &Block<'c>,
        changed: &PrefixChange<'_>,
        comparison: &'c Comparison<'c>,
    ) {
        let element = &changed.element;
        let lost = lost_thoughts(comparison).find(|(_, reply)| {
            self.home_of(reply).is_some_and(|home| *element == format!("messages.{home}"))
        });
        let message = match changed.place {
            Some(_) => {
                format!("`{element}` is not what it was when this block was issued")
            }
            None => format!("`{element}` stood before this block when it was issued, and is gone"),
        };
        let sentence = match &lost {
            Some(_) => Some(MISSING),
            None if element.starts_with("system") => Some(SYSTEM_DIFFERS),
            None => None,
        };
        let restored = lost.and_then(|(change, _)| self.put_back(change));
        self.report_prefix(block, message, sentence, restored);
    }

    fn report_prefix(
        &mut self,
        block: &Block<'c>,
        message: String,
        sentence: Option<&str>,
        restored: Option<Mend>,
    ) {
        let severity = self.mismatch_severity();
        let mut error = format!(
            "{}: Invalid `{}` in `{}` block. The block is bound to a different conversation. Remove the block, or set \
             `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the \
             `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header.",
            block.place(),
            block.seal_word(),
            block.word(),
        );
        if let Some(sentence) = sentence {
            error.push(' ');
            error.push_str(sentence);
        }
        // What is only dropped need not be taken away.
        let removed = || {
            let edits = self.without(&self.thinking_from(block));
            let what = "removes this thinking block and those behind it, which no longer fit the conversation";
            (severity == Severity::Refuse && !edits.is_empty()).then(|| Mend::new(what, edits))
        };
        let mend: Option<Mend> = restored.or_else(removed);
        let finding = Finding::at(self.book.prefix_changed, block.node, message)
            .as_grave_as(severity)
            .mended(mend);
        self.report(
            block,
            match severity {
                Severity::Refuse => finding.answered(self.says(error)),
                Severity::Degrade | Severity::Note => finding.unanswered(),
            },
        );
    }

    fn thinking_from(&self, first: &Block<'c>) -> Vec<&Block<'c>> {
        let start = first.node.range().start;
        let blocks = self.view.models_blocks().filter(|block| block.kind.is_thinking());
        blocks.filter(|block| block.node.range().start >= start).collect()
    }

    /// What happens to blocks whose prefix changed: as the request says, else by the age of the account.
    fn mismatch_severity(&self) -> Severity {
        let word = self.view.knobs.mismatch_behavior().and_then(Node::text);
        match (word.as_deref(), self.case.account_created()) {
            (Some("error"), _) => Severity::Refuse,
            (Some("drop_block"), _) | (_, None) => Severity::Degrade,
            (_, Some(made)) if made.as_second() >= CHECKED_SINCE => Severity::Refuse,
            (_, Some(_)) => Severity::Note,
        }
    }
}

const MISSING: &str =
    "The `thinking` block that preceded this one when it was created is missing from this request.";

const SYSTEM_DIFFERS: &str =
    "The `system` prompt differs from the one this block was created with.";

/// The thoughts that were issued and are gone, with the answers that they were part of.
fn lost_thoughts<'c>(
    comparison: &'c Comparison<'c>,
) -> impl Iterator<Item = (&'c Change<'c>, &'c Reply)> {
    comparison.changes.iter().filter_map(|change| {
        let issued = change.issued?;
        let is_thought = matches!(issued.item.body, Body::Thought(_));
        (change.kind == ChangeKind::PartDropped && is_thought).then_some((change, issued.reply))
    })
}

/// In which order a block is judged: first whether its seal is good for what it says, then whether the model would read it,
/// and last where it stands. What is not read is dropped wherever it stands.
fn rank(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::SealAltered { .. }
        | ChangeKind::SealReencoded
        | ChangeKind::SealDropped
        | ChangeKind::SealMoved
        | ChangeKind::TextEdited { .. }
        | ChangeKind::Merged
        | ChangeKind::Unissued => 0,
        ChangeKind::Foreign(_) => 1,
        ChangeKind::PartDropped
        | ChangeKind::PartMoved
        | ChangeKind::Reordered
        | ChangeKind::Duplicated
        | ChangeKind::SaidAloud => 2,
    }
}
