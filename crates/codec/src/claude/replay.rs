//! Compares replayed content with the issued content.

use std::collections::HashSet;

use throughline_core::{Body, ElisionReason};
use throughline_json::Node;

use crate::audit::{
    Change, ChangeKind, Comparison, Finding, Fix, IssuedItem, PrefixChange, Severity,
};
use crate::claude::blocks::invalid_seal_error;
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker};
use crate::claude::{self, Inspection, ThinkingMode};

/// 2026-08-31T00:00:00Z. The provider always checks prefixes for accounts created since then.
const PREFIX_CHECK_START: i64 = 1_788_134_400;

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn check_replay(&mut self) {
        let Some(comparison) = self.case.comparison() else { return };
        let mut changes: Vec<&Change<'_>> = comparison.changes.iter().collect();
        changes.sort_by_key(|change| change_priority(change.kind));
        for change in changes {
            let block = change.part.as_ref().and_then(|part| self.view.block_at(part.start));
            let Some(block) = block.filter(|block| !self.has_finding(block)) else { continue };
            let finding = if change.kind == ChangeKind::SentAsText {
                self.leaked_thought_finding(block, change)
            } else if block.kind.is_thinking() {
                self.thinking_finding(block, change)
            } else {
                self.sealed_block_finding(block, change)
            };
            self.report(block, finding);
        }
        let missing = self.missing_thought_findings(comparison);
        self.extend(missing);
        if self.case.profile().bound.prefix {
            self.check_prefix(comparison);
        }
    }

    fn thinking_finding(&self, block: &ClaudeBlock<'c>, change: &'c Change<'c>) -> Option<Finding> {
        const INVALID: &str = "signature-invalid";
        const MODIFIED: &str = "thinking-modified";
        let (block_name, seal_name, kind) = (block.type_name(), block.seal_name(), change.kind);
        let phrase = kind.describe();
        let of_seal = || format!("this {seal_name} {phrase}");
        let of_block = || format!("this {block_name} block {phrase}");
        let removed = format!("removes the {block_name} block that differs from the issued one");
        let restored = || self.restore_fix(block, Some(change));
        let message_restored = || self.restore_message_fix(block.message, change.issued?.reply);
        let moved = || self.restore_both_messages_fix(block, change.issued?.reply);
        let deleted = || self.removal_fix(&[block], &removed);
        let (rule, message, fix) = match kind {
            ChangeKind::SealAltered { .. } | ChangeKind::SealReencoded => {
                (INVALID, of_seal(), restored())
            }
            ChangeKind::SealDropped => {
                let message = format!("the {seal_name} of this {block_name} block {phrase}");
                ("signature-missing", message, restored())
            }
            ChangeKind::TextEdited { .. } => {
                (MODIFIED, format!("this text {phrase}"), moved().or_else(restored))
            }
            ChangeKind::SealMoved | ChangeKind::Merged => {
                (MODIFIED, of_block(), message_restored().or_else(restored))
            }
            ChangeKind::Reordered => (MODIFIED, of_block(), message_restored().or_else(moved)),
            ChangeKind::Duplicated => (MODIFIED, of_block(), message_restored()),
            ChangeKind::PartMoved if self.is_in_turn_of_reply(block, change) => return None,
            ChangeKind::PartMoved => (MODIFIED, of_block(), moved()),
            ChangeKind::Unissued => (INVALID, of_seal(), None),
            ChangeKind::Foreign(why) => return self.foreign_finding(block, change, why),
            ChangeKind::PartDropped | ChangeKind::SentAsText => return None,
        };
        let error = if rule == MODIFIED && change.is_latest {
            modified_error(&block.path())
        } else {
            invalid_seal_error(block)
        };
        let text = block.text.filter(|_| matches!(kind, ChangeKind::TextEdited { .. }));
        let place = text.map(Node::range).or_else(|| change.seal.clone());
        let range = place.unwrap_or(block.node.range());
        let finding = self.finding(rule, range, message)?;
        let finding = finding.with_provider_error(self.provider_error(error));
        if kind == ChangeKind::Unissued && !change.is_placed {
            return Some(finding.with_severity(Severity::Note));
        }
        Some(finding.with_auto_fix(fix.or_else(deleted)))
    }

    /// Returns whether the block is in the same turn as another part of its response. The provider
    /// treats a turn as one message.
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

    fn foreign_finding(
        &self,
        block: &ClaudeBlock<'c>,
        change: &Change<'_>,
        why: ElisionReason,
    ) -> Option<Finding> {
        let block_name = block.type_name();
        let exchanges = self.case.prior().exchanges();
        let issuer = change.issued.and_then(|issued| exchanges.get(issued.exchange));
        let is_claudes = issuer.is_some_and(|issuer| claude::is_claude(&issuer.asked.target));
        let message = match issuer {
            Some(issuer) if why == ElisionReason::OtherModel => format!(
                "{} issued this block, and {} cannot read it",
                issuer.asked.target.profile.name,
                self.case.profile().name
            ),
            Some(_) | None => format!("this {block_name} block {}", change.kind.describe()),
        };
        let is_unread = matches!(why, ElisionReason::OtherAccount | ElisionReason::OtherModel);
        if is_unread || is_claudes {
            // Endpoints that serve Claude reportedly accept each other's signatures.
            let severity = if is_unread { Severity::Degrade } else { Severity::Note };
            let description = format!("removes the {block_name} block that the model cannot read");
            let fix = self.removal_fix(&[block], &description).filter(|_| is_unread);
            let finding = self.finding("block-unreadable", block.node.range(), message)?;
            return Some(finding.with_severity(severity).with_auto_fix(fix));
        }
        let error = invalid_seal_error(block);
        let description = format!("removes the {block_name} block that another provider issued");
        let finding = self.rejection("signature-invalid", block.node, message, error)?;
        Some(finding.with_auto_fix(self.removal_fix(&[block], &description)))
    }

    fn leaked_thought_finding(
        &self,
        block: &ClaudeBlock<'c>,
        change: &Change<'_>,
    ) -> Option<Finding> {
        let message = format!("this text {}", change.kind.describe());
        let turn = self.view.turn_of(block.message);
        let is_models = turn.is_some_and(|turn| turn.speaker == ClaudeSpeaker::Assistant);
        let fix = self.removal_fix(&[block], "removes the text that contains a thought");
        let finding = self.finding("thought-as-text", block.node.range(), message)?;
        Some(finding.with_auto_fix(fix.filter(|_| is_models)))
    }

    /// Reports changed Seals on blocks other than thinking: search results, citations and
    /// compactions.
    fn sealed_block_finding(
        &self,
        block: &ClaudeBlock<'c>,
        change: &Change<'_>,
    ) -> Option<Finding> {
        use ChangeKind::{SealAltered, SealDropped, SealMoved, SealReencoded};
        let is_compaction = block.kind == ClaudeBlockKind::Compaction;
        let is_text = matches!(change.kind, ChangeKind::TextEdited { .. });
        let is_seal = matches!(change.kind, SealAltered { .. } | SealReencoded | SealMoved);
        // Citations may be omitted from a text.
        let is_dropped = change.kind == SealDropped && block.kind != ClaudeBlockKind::Text;
        let is_changed = is_seal || is_dropped || (is_text && is_compaction);
        // A Seal from another wire or account cannot be restored.
        let is_own = change.issued.is_some_and(|issued| self.issued_block(issued.item).is_some());
        if !is_changed || !is_own {
            return None;
        }
        let part = if is_text { "content" } else { "seal" };
        let message = format!("the {part} of this block {}", change.kind.describe());
        let fix = self.restore_fix(block, Some(change)).map(|fix| Fix {
            what: "restores the sealed block as it was issued".to_owned(),
            ..fix
        });
        let text = block.text.filter(|_| is_text).map(Node::range);
        let range = text.or_else(|| change.seal.clone()).unwrap_or(block.node.range());
        let finding = self.finding("sealed-content-changed", range, message)?.with_auto_fix(fix);
        Some(match (is_compaction, is_text) {
            (true, true) => finding
                .with_severity(Severity::Refuse)
                .with_provider_error("compaction_content_mismatch"),
            (true, false) => finding.with_severity(Severity::Refuse),
            (false, _) => finding.with_severity(Severity::Note).without_provider_error(),
        })
    }

    /// Reports missing thoughts in the open tool loop. Thoughts in finished turns may be omitted.
    fn missing_thought_findings(&self, comparison: &'c Comparison<'c>) -> Vec<Finding> {
        let view = self.view;
        let mode = view.settings.thinking_mode();
        let Some(turn) = view.open_loop().filter(|_| mode.thinks(self.case.profile())) else {
            return Vec::new();
        };
        let begins_thinking =
            view.blocks_of_turn(turn).next().is_some_and(|block| block.kind.is_thinking());
        let mut reported = HashSet::new();
        let missing = missing_thoughts(comparison).filter(|(change, _)| change.is_current);
        let missing = missing.filter_map(|(change, issued)| {
            if self.issued_block(issued.item).is_none() || !reported.insert(issued.exchange) {
                return None;
            }
            let is_demanded = mode == ThinkingMode::Manual && change.is_latest;
            // Another rule already reports that the loop does not begin with thinking.
            if is_demanded && !begins_thinking {
                return None;
            }
            let message_number = self.message_of_reply(issued.reply)?;
            let message = view.messages.get(message_number)?;
            let place = format!("messages.{message_number}.content.{}", issued.index);
            let severity = if is_demanded { Severity::Refuse } else { Severity::Degrade };
            let later = issued.reply.items.get(issued.index + 1..).unwrap_or_default();
            let next =
                message.blocks.iter().find(|b| later.iter().any(|item| self.replays(b, item)));
            let (beside, sentence) = match (next, message.blocks.last()) {
                (Some(next), _) => {
                    (next.node, "a thinking block was issued before this one but is missing")
                }
                (None, Some(last)) => {
                    (last.node, "a thinking block was issued after this one but is missing")
                }
                (None, None) => (message.node, "a thinking block was issued here but is missing"),
            };
            let error = self.provider_error(modified_error(&place));
            let finding = self.finding("thinking-dropped", beside.range(), sentence)?;
            let finding = finding.with_path(place).with_severity(severity);
            let fix = self.restore_missing_fix(issued);
            Some(finding.with_rejection_error(error).with_auto_fix(fix))
        });
        missing.collect()
    }

    /// Checks that prefixes are unchanged, for models that bind thoughts to their prefix.
    fn check_prefix(&mut self, comparison: &'c Comparison<'c>) {
        if let Some(changed) = &comparison.prefix {
            // If the provider rejects the changed block itself, that finding is enough.
            let is_reported =
                changed.place.as_ref().is_some_and(|place| self.has_rejection_in(place));
            let block = self.view.block_at(changed.part.start);
            if let Some(block) = block.filter(|_| !is_reported) {
                self.report(block, self.changed_prefix_finding(block, changed, comparison));
            }
            return;
        }
        let found = missing_thoughts(comparison).find_map(|(_, issued)| {
            let later = issued.reply.items.iter().skip(issued.index + 1);
            let later: Vec<_> =
                later.filter(|item| matches!(item.body, Body::Thought(_))).collect();
            later.first()?;
            let is_later =
                |block: &&ClaudeBlock<'c>| later.iter().any(|item| self.replays(block, item));
            let block = self.view.assistant_blocks().find(is_later)?;
            (!self.has_finding(block)).then_some((block, issued))
        });
        if let Some((block, issued)) = found {
            let message = "the thinking block before this one in its response is missing";
            let restored = self.restore_missing_fix(issued);
            let sentence = Some(MISSING_BLOCK_ERROR);
            let finding = self.prefix_finding(MISSING, block, message, sentence, restored);
            self.report(block, finding);
        }
    }

    fn changed_prefix_finding(
        &self,
        block: &ClaudeBlock<'c>,
        changed: &PrefixChange<'_>,
        comparison: &'c Comparison<'c>,
    ) -> Option<Finding> {
        let element = &changed.element;
        let missing = missing_thoughts(comparison).find(|(_, issued)| {
            let message_number = self.message_of_reply(issued.reply);
            message_number
                .is_some_and(|message_number| *element == format!("messages.{message_number}"))
        });
        let message = match changed.place {
            Some(_) if missing.is_some() => {
                format!("`{element}` lost a thinking block that preceded this one")
            }
            Some(_) => format!("`{element}` changed after this block was issued"),
            None => format!("`{element}` preceded this block when it was issued but is missing"),
        };
        let (rule, sentence) = match &missing {
            Some(_) => (MISSING, Some(MISSING_BLOCK_ERROR)),
            None if element.starts_with("system") => (CHANGED, Some(SYSTEM_CHANGED_ERROR)),
            None => (CHANGED, None),
        };
        let restored = missing.and_then(|(_, issued)| self.restore_missing_fix(issued));
        self.prefix_finding(rule, block, message, sentence, restored)
    }

    fn prefix_finding(
        &self,
        rule: &str,
        block: &ClaudeBlock<'c>,
        message: impl Into<String>,
        sentence: Option<&str>,
        restored: Option<Fix>,
    ) -> Option<Finding> {
        let severity = self.mismatch_severity();
        let mut error = invalid_seal_error(block);
        error.push_str(
            ". The block is bound to a different conversation. Remove the block, or set \
             `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the \
             `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header.",
        );
        error.extend(sentence.into_iter().flat_map(|sentence| [" ", sentence]));
        // Blocks that the provider drops need no removal.
        let removed = || {
            let start = block.node.range().start;
            let thinking = self.view.assistant_blocks().filter(|block| block.kind.is_thinking());
            let later: Vec<_> = thinking.filter(|b| b.node.range().start >= start).collect();
            let description =
                "removes this thinking block and all later ones, which are no longer valid";
            self.removal_fix(&later, description).filter(|_| severity == Severity::Refuse)
        };
        let finding = self.finding(rule, block.node.range(), message)?;
        let finding = finding.with_severity(severity);
        let finding = finding.with_rejection_error(self.provider_error(error));
        Some(finding.with_auto_fix(restored.or_else(removed)))
    }

    /// Returns the severity of a changed prefix. The severity depends on the request's setting, or
    /// else on the model, or else on the account's creation date.
    fn mismatch_severity(&self) -> Severity {
        let behavior =
            self.view.settings.thinking.and_then(|thinking| {
                thinking.at("/block_binding/prefix_mismatch_behavior")?.text()
            });
        let enforced = self.case.profile().notes.get("prefix-enforced");
        let is_always_enforced = enforced.is_some_and(|enforced| enforced == "always");
        match (behavior.as_deref(), self.case.account_created()) {
            (Some("error"), _) => Severity::Refuse,
            (Some("drop_block"), _) => Severity::Degrade,
            (_, _) if is_always_enforced => Severity::Refuse,
            (_, None) => Severity::Degrade,
            (_, Some(created)) if created.as_second() >= PREFIX_CHECK_START => Severity::Refuse,
            (_, Some(_)) => Severity::Note,
        }
    }
}

/// The names of the rules for changed prefixes.
const CHANGED: &str = "prefix-changed";
const MISSING: &str = "earlier-thinking-missing";

const MISSING_BLOCK_ERROR: &str =
    "The `thinking` block that preceded this one when it was created is missing from this request.";

const SYSTEM_CHANGED_ERROR: &str =
    "The `system` prompt differs from the one this block was created with.";

/// Returns the model's error for a changed thinking block in the latest assistant message.
fn modified_error(place: &str) -> String {
    format!(
        "{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
         These blocks must remain as they were in the original response."
    )
}

/// Returns the changes that report missing thoughts, each with the issued thought.
fn missing_thoughts<'c>(
    comparison: &'c Comparison<'c>,
) -> impl Iterator<Item = (&'c Change<'c>, IssuedItem<'c>)> {
    let missing = comparison.changes.iter().filter(|c| c.kind == ChangeKind::PartDropped);
    let issued = missing.filter_map(|change| Some((change, change.issued?)));
    issued.filter(|(_, issued)| matches!(issued.item.body, Body::Thought(_)))
}

/// Returns the sort key of a change: 0 for changed Seals or texts, 1 for Seals that the model
/// cannot read, 2 for parts that are missing, moved, reordered, duplicated or sent as text. Changed
/// positions come last, because the provider drops an unreadable block at any position.
fn change_priority(kind: ChangeKind) -> u8 {
    use ChangeKind::{Duplicated, PartDropped, PartMoved, Reordered, SentAsText};
    let is_position = matches!(kind, PartDropped | PartMoved | Reordered | Duplicated | SentAsText);
    if is_position { 2 } else { u8::from(matches!(kind, ChangeKind::Foreign(_))) }
}
