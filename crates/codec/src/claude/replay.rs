//! Checks replayed content against the content that was issued.

use std::collections::HashSet;

use throughline_core::{Body, ElisionReason, Reply};
use throughline_json::Node;

use crate::audit::{Change, ChangeKind, Comparison, Finding, Fix, PrefixChange, Severity};
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker};
use crate::claude::{self, Inspection, ThinkingMode};

/// 2026-08-31T00:00:00Z: accounts created since then always have their prefixes checked.
const PREFIX_CHECK_START: i64 = 1_788_134_400;

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn check_replay(&mut self) {
        let Some(comparison) = self.case.comparison() else { return };
        let mut changes: Vec<&Change<'_>> = comparison.changes.iter().collect();
        changes.sort_by_key(|change| change_priority(change.kind));
        for change in changes {
            let block = change.part.as_ref().and_then(|part| self.view.block_at(part.start));
            if let Some(block) = block.copied()
                && !self.has_finding(block.node.range().start)
            {
                self.check_change(&block, change);
            }
        }
        self.check_missing_thoughts(comparison);
        if self.case.profile().bound.prefix {
            self.check_prefix(comparison);
        }
    }

    fn check_change(&mut self, block: &ClaudeBlock<'c>, change: &'c Change<'c>) {
        if change.kind == ChangeKind::SaidAloud {
            self.check_thought_as_text(block, change);
        } else if block.kind.is_thinking() {
            self.check_thinking(block, change);
        } else {
            self.check_sealed_block(block, change);
        }
    }

    fn check_thinking(&mut self, block: &ClaudeBlock<'c>, change: &'c Change<'c>) {
        let (word, phrase) = (block.type_name(), change.kind.describe());
        let of_seal = || format!("this {} {phrase}", block.seal_name());
        let of_block = || format!("this {word} block {phrase}");
        let removed = format!("removes the {word} block that differs from the issued one");
        let restored = || self.restore_fix(block, Some(change));
        let gone = || self.removal_fix(&[block], &removed);
        let book = self.book;
        let (rule, message, fix) = match change.kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
                (book.signature_invalid, of_seal(), restored().or_else(gone))
            }
            ChangeKind::SealDropped => {
                let message = format!("the {} of this {word} block {phrase}", block.seal_name());
                (book.signature_missing, message, restored().or_else(gone))
            }
            ChangeKind::TextEdited { .. } => {
                let message = format!("this text {phrase}");
                (book.thinking_modified, message, restored().or_else(gone))
            }
            ChangeKind::SealMoved | ChangeKind::Merged => {
                let fix = self.restore_whole_message(block, change).or_else(restored).or_else(gone);
                (book.thinking_modified, of_block(), fix)
            }
            ChangeKind::Reordered => {
                let home = || self.move_to_own_message(block, change);
                let fix = self.restore_whole_message(block, change).or_else(home).or_else(gone);
                (book.thinking_modified, of_block(), fix)
            }
            ChangeKind::Duplicated => {
                let fix = self.restore_whole_message(block, change).or_else(gone);
                (book.thinking_modified, of_block(), fix)
            }
            ChangeKind::PartMoved if self.is_in_turn_of_reply(block, change) => return,
            ChangeKind::PartMoved => {
                let fix = self.move_to_own_message(block, change).or_else(gone);
                (book.thinking_modified, of_block(), fix)
            }
            ChangeKind::Unissued => {
                let finding = Finding::in_range(
                    book.signature_invalid,
                    change.seal.clone().unwrap_or(block.node.range()),
                    of_seal(),
                );
                let error = self.invalid_seal_error(block);
                let (severity, fix) = if change.is_placed {
                    (Severity::Refuse, gone())
                } else {
                    (Severity::Note, None)
                };
                self.report(
                    block,
                    finding.with_severity(severity).with_provider_error(error).with_auto_fix(fix),
                );
                return;
            }
            ChangeKind::Foreign(why) => {
                self.check_foreign(block, change, why);
                return;
            }
            ChangeKind::PartDropped | ChangeKind::SaidAloud => return,
        };
        let error = if std::ptr::eq(rule, book.thinking_modified) && change.is_latest {
            self.modified_error(&block.path())
        } else {
            self.invalid_seal_error(block)
        };
        let text = block.text.filter(|_| matches!(change.kind, ChangeKind::TextEdited { .. }));
        let place = text.map(Node::range).or_else(|| change.seal.clone());
        let range = place.unwrap_or(block.node.range());
        let finding =
            Finding::in_range(rule, range, message).with_provider_error(error).with_auto_fix(fix);
        self.report(block, finding);
    }

    /// Returns the provider's error for a changed block in the latest message.
    fn modified_error(&self, place: &str) -> String {
        self.provider_error(format!(
            "{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
             These blocks must remain as they were in the original response."
        ))
    }

    /// Restores the whole message as issued.
    fn restore_whole_message(&self, block: &ClaudeBlock<'c>, change: &Change<'_>) -> Option<Fix> {
        self.restore_message_fix(block.message, change.issued?.reply)
    }

    /// Moves a block back into the message it was issued in.
    fn move_to_own_message(&self, block: &ClaudeBlock<'c>, change: &Change<'_>) -> Option<Fix> {
        let reply = change.issued?.reply;
        let is_elsewhere = |other: &&ClaudeBlock<'c>| {
            other.message != block.message
                && reply.items.iter().any(|item| self.replays(other, item))
        };
        let home = self.view.assistant_blocks().find(is_elsewhere)?.message;
        let mut fix = self.restore_message_fix(home, reply)?;
        fix.edits.extend(self.removal_edits(&[block]));
        Some(fix)
    }

    /// Returns whether the rest of the response is in the same turn, which counts as one message.
    fn is_in_turn_of_reply(&self, block: &ClaudeBlock<'c>, change: &Change<'_>) -> bool {
        let (Some(issued), Some(turn)) = (change.issued, self.view.turn_of(block.message)) else {
            return false;
        };
        let is_other = |other: &ClaudeBlock<'c>| other.node.range() != block.node.range();
        let items = &issued.reply.items;
        self.view
            .blocks_of_turn(turn)
            .any(|other| is_other(other) && items.iter().any(|item| self.replays(other, item)))
    }

    fn check_foreign(&mut self, block: &ClaudeBlock<'c>, change: &Change<'_>, why: ElisionReason) {
        let word = block.type_name();
        let exchanges = self.case.prior().exchanges();
        let issuer = change.issued.and_then(|issued| exchanges.get(issued.exchange));
        let is_claudes = issuer.is_some_and(|issuer| claude::is_claude(&issuer.asked.target));
        let message = match issuer {
            Some(issuer) if why == ElisionReason::OtherModel => format!(
                "{} issued this block, and {} cannot read it",
                issuer.asked.target.profile.name,
                self.case.profile().name
            ),
            Some(_) | None => format!("this {word} block {}", change.kind.describe()),
        };
        let is_unread = matches!(why, ElisionReason::OtherAccount | ElisionReason::OtherModel);
        if is_unread || is_claudes {
            // The endpoints that serve Claude are reported to accept each other's signatures.
            let severity = if is_unread { Severity::Degrade } else { Severity::Note };
            let what = format!("removes the {word} block that the model cannot read");
            let fix = self.removal_fix(&[block], &what).filter(|_| is_unread);
            let finding = Finding::at(self.book.block_unreadable, block.node, message);
            self.report(block, finding.with_severity(severity).with_auto_fix(fix));
            return;
        }
        let error = self.invalid_seal_error(block);
        let what = format!("removes the {word} block that another provider issued");
        let fix = self.removal_fix(&[block], &what);
        let finding = Finding::at(self.book.signature_invalid, block.node, message);
        self.report(block, finding.with_provider_error(error).with_auto_fix(fix));
    }

    fn check_thought_as_text(&mut self, block: &ClaudeBlock<'c>, change: &Change<'_>) {
        let message = format!("this text {}", change.kind.describe());
        let turn = self.view.turn_of(block.message);
        let is_models = turn.is_some_and(|turn| turn.speaker == ClaudeSpeaker::Assistant);
        let fix = self.removal_fix(&[block], "removes the text that contains a thought");
        let finding = Finding::at(self.book.thought_as_text, block.node, message);
        self.report(block, finding.with_auto_fix(fix.filter(|_| is_models)));
    }

    /// Other blocks carry Seals too: search results, citations, compactions.
    fn check_sealed_block(&mut self, block: &ClaudeBlock<'c>, change: &Change<'_>) {
        let Some(rule) = self.book.sealed_content_changed else { return };
        let is_changed = match change.kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded | ChangeKind::SealMoved => {
                true
            }
            // Citations may be omitted from a text.
            ChangeKind::SealDropped => block.kind != ClaudeBlockKind::Text,
            ChangeKind::TextEdited { .. } => block.kind == ClaudeBlockKind::Compaction,
            ChangeKind::PartDropped
            | ChangeKind::PartMoved
            | ChangeKind::Merged
            | ChangeKind::Reordered
            | ChangeKind::Duplicated
            | ChangeKind::Unissued
            | ChangeKind::Foreign(_)
            | ChangeKind::SaidAloud => false,
        };
        // A Seal of another wire or account cannot be restored here.
        let is_own = change.issued.is_some_and(|issued| self.issued_block(issued.item).is_some());
        if !is_changed || !is_own {
            return;
        }
        let severity = if block.kind == ClaudeBlockKind::Compaction {
            Severity::Refuse
        } else {
            Severity::Note
        };
        let is_text = matches!(change.kind, ChangeKind::TextEdited { .. });
        let part = if is_text { "content" } else { "seal" };
        let message = format!("the {part} of this block {}", change.kind.describe());
        let fix = self.restore_fix(block, Some(change)).map(|fix| Fix {
            what: "restores the sealed block as it was issued".to_owned(),
            ..fix
        });
        let text = block.text.filter(|_| is_text).map(Node::range);
        let range = text.or_else(|| change.seal.clone()).unwrap_or(block.node.range());
        let finding =
            Finding::in_range(rule, range, message).with_severity(severity).with_auto_fix(fix);
        self.report(
            block,
            match severity {
                Severity::Refuse if is_text => {
                    finding.with_provider_error("compaction_content_mismatch")
                }
                Severity::Refuse => finding,
                Severity::Degrade | Severity::Note => finding.without_provider_error(),
            },
        );
    }

    /// Reports missing thoughts of the open tool loop. Thoughts of finished turns may be omitted.
    fn check_missing_thoughts(&mut self, comparison: &'c Comparison<'c>) {
        let view = self.view;
        let asking = view.knobs.thinking_mode();
        let Some(turn) = view.open_loop().filter(|_| asking.thinks(self.case.profile())) else {
            return;
        };
        let begins_thinking =
            view.blocks_of_turn(turn).next().is_some_and(|block| block.kind.is_thinking());
        let mut told = HashSet::new();
        for (change, reply) in missing_thoughts(comparison).filter(|(change, _)| change.is_current)
        {
            let Some(issued) = change.issued else { continue };
            if self.issued_block(issued.item).is_none() || !told.insert(issued.exchange) {
                continue;
            }
            let is_demanded = asking == ThinkingMode::Manual && change.is_latest;
            // Another rule already reports that the loop does not begin with thinking.
            if is_demanded && !begins_thinking {
                continue;
            }
            let Some(home) = self.message_of_reply(reply) else { continue };
            let Some(message) = view.messages.get(home) else { continue };
            let place = format!("messages.{home}.content.{}", issued.index);
            let severity = if is_demanded { Severity::Refuse } else { Severity::Degrade };
            let later = reply.items.get(issued.index + 1..).unwrap_or_default();
            let next =
                message.blocks.iter().find(|b| later.iter().any(|item| self.replays(b, item)));
            let (beside, said) = match (next, message.blocks.last()) {
                (Some(next), _) => {
                    (next.node, "a thinking block was issued before this one but is missing")
                }
                (None, Some(last)) => {
                    (last.node, "a thinking block was issued after this one but is missing")
                }
                (None, None) => (message.node, "a thinking block was issued here but is missing"),
            };
            let finding = Finding::at(self.book.thinking_dropped, beside, said)
                .with_path(place.clone())
                .with_severity(severity)
                .with_auto_fix(self.restore_missing_fix(change));
            self.add(if is_demanded {
                finding.with_provider_error(self.modified_error(&place))
            } else {
                finding.without_provider_error()
            });
        }
    }

    /// Checks the prefix of thoughts, for models that bind thoughts to it.
    fn check_prefix(&mut self, comparison: &'c Comparison<'c>) {
        if let Some(changed) = &comparison.prefix {
            // If the changed block itself is rejected, that finding is enough.
            let is_told = changed.place.as_ref().is_some_and(|place| self.has_rejection_in(place));
            let block = self.view.block_at(changed.part.start).copied();
            if let Some(block) = block.filter(|_| !is_told) {
                self.report_changed_prefix(&block, changed, comparison);
            }
            return;
        }
        for (change, reply) in missing_thoughts(comparison) {
            let Some(issued) = change.issued else { continue };
            let later = reply.items.iter().skip(issued.index + 1);
            let later: Vec<_> =
                later.filter(|item| matches!(item.body, Body::Thought(_))).collect();
            if later.is_empty() {
                continue;
            }
            let is_later =
                |block: &&ClaudeBlock<'c>| later.iter().any(|item| self.replays(block, item));
            let block = self.view.assistant_blocks().find(is_later).copied();
            if let Some(block) = block.filter(|b| !self.has_finding(b.node.range().start)) {
                self.report_prefix(
                    &block,
                    "the thinking block before this one in its response is missing".to_owned(),
                    Some(MISSING_BLOCK_ERROR),
                    self.restore_missing_fix(change),
                );
                return;
            }
        }
    }

    fn report_changed_prefix(
        &mut self,
        block: &ClaudeBlock<'c>,
        changed: &PrefixChange<'_>,
        comparison: &'c Comparison<'c>,
    ) {
        let element = &changed.element;
        let lost = missing_thoughts(comparison).find(|(_, reply)| {
            self.message_of_reply(reply).is_some_and(|home| *element == format!("messages.{home}"))
        });
        let message = match changed.place {
            Some(_) => {
                format!("`{element}` changed after this block was issued")
            }
            None => format!("`{element}` preceded this block when it was issued but is missing"),
        };
        let sentence = match &lost {
            Some(_) => Some(MISSING_BLOCK_ERROR),
            None if element.starts_with("system") => Some(SYSTEM_CHANGED_ERROR),
            None => None,
        };
        let restored = lost.and_then(|(change, _)| self.restore_missing_fix(change));
        self.report_prefix(block, message, sentence, restored);
    }

    fn report_prefix(
        &mut self,
        block: &ClaudeBlock<'c>,
        message: String,
        sentence: Option<&str>,
        restored: Option<Fix>,
    ) {
        let severity = self.mismatch_severity();
        let mut error = format!(
            "{}: Invalid `{}` in `{}` block. The block is bound to a different conversation. Remove the block, or set \
             `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the \
             `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header.",
            block.path(),
            block.seal_name(),
            block.type_name(),
        );
        if let Some(sentence) = sentence {
            error.push(' ');
            error.push_str(sentence);
        }
        // Blocks that the provider drops need not be removed.
        let removed = || {
            let start = block.node.range().start;
            let thinking = self.view.assistant_blocks().filter(|block| block.kind.is_thinking());
            let later: Vec<_> = thinking.filter(|b| b.node.range().start >= start).collect();
            let edits = self.removal_edits(&later);
            let what = "removes this thinking block and all later ones, which are no longer valid";
            (severity == Severity::Refuse && !edits.is_empty()).then(|| Fix::new(what, edits))
        };
        let fix: Option<Fix> = restored.or_else(removed);
        let finding = Finding::at(self.book.prefix_changed, block.node, message)
            .with_severity(severity)
            .with_auto_fix(fix);
        self.report(
            block,
            match severity {
                Severity::Refuse => finding.with_provider_error(self.provider_error(error)),
                Severity::Degrade | Severity::Note => finding.without_provider_error(),
            },
        );
    }

    /// Returns the effect of a changed prefix: as the request specifies, else by the age of the
    /// account.
    fn mismatch_severity(&self) -> Severity {
        let word = self.view.knobs.mismatch_behavior().and_then(Node::text);
        match (word.as_deref(), self.case.account_created()) {
            (Some("error"), _) => Severity::Refuse,
            (Some("drop_block"), _) | (_, None) => Severity::Degrade,
            (_, Some(made)) if made.as_second() >= PREFIX_CHECK_START => Severity::Refuse,
            (_, Some(_)) => Severity::Note,
        }
    }
}

const MISSING_BLOCK_ERROR: &str =
    "The `thinking` block that preceded this one when it was created is missing from this request.";

const SYSTEM_CHANGED_ERROR: &str =
    "The `system` prompt differs from the one this block was created with.";

/// Returns the missing thoughts with the replies that contained them.
fn missing_thoughts<'c>(
    comparison: &'c Comparison<'c>,
) -> impl Iterator<Item = (&'c Change<'c>, &'c Reply)> {
    comparison.changes.iter().filter_map(|change| {
        let issued = change.issued?;
        let is_thought = matches!(issued.item.body, Body::Thought(_));
        (change.kind == ChangeKind::PartDropped && is_thought).then_some((change, issued.reply))
    })
}

/// Returns the priority of a change: first the validity of the Seal, then whether the model can
/// read the block, last its position. A block that the model cannot read is dropped at any
/// position.
fn change_priority(kind: ChangeKind) -> u8 {
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
