//! Checks the blocks of a request on their own, without earlier exchanges.

use throughline_json::Node;

use crate::audit::{ChangeKind, Finding, Severity};
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker, ClaudeTurn};
use crate::claude::{Inspection, ThinkingMode};

/// Prefixes of opaque values from other vendors: OpenAI's ciphertext and two documented Gemini
/// placeholders.
const FOREIGN_PREFIXES: &[&str] =
    &["gAAAA", "skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// Tags that clients put around a thought that they send as text.
const TAGS: &[&str] = &["<think>", "<thinking>"];

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn check_blocks(&mut self) {
        let view = self.view;
        for block in view.assistant_blocks() {
            if block.kind.is_thinking() {
                self.check_seal(block);
            } else if block.kind == ClaudeBlockKind::Text {
                self.check_tags(block);
            }
        }
        if !view.is_partial {
            self.check_open_loop();
        }
    }

    /// Runs last, because a problem inside a block is more specific than its position.
    pub(super) fn check_message_ends(&mut self) {
        let view = self.view;
        for (number, turn) in view.turns.iter().enumerate() {
            if turn.speaker == ClaudeSpeaker::Assistant {
                self.check_message_end(turn, number + 1 == view.turns.len());
            }
        }
    }

    fn check_seal(&mut self, block: &ClaudeBlock<'c>) {
        let (word, seal_word, place) = (block.type_name(), block.seal_name(), block.path());
        let Some(seal) = block.seal else {
            let removed = format!("removes the {word} block without a {seal_word}");
            let finding = Finding::at(
                self.book.signature_missing,
                block.node,
                format!("`{seal_word}` is missing"),
            );
            let error = self.provider_error(format!("{place}.{word}.{seal_word}: Field required"));
            let fix = self.restore_or_remove(block, &removed);
            self.report(block, finding.with_provider_error(error).with_auto_fix(fix));
            return;
        };
        let Some(problem) = seal_problem(seal).filter(|_| !self.case.is_issued(seal)) else {
            return;
        };
        let removed = format!("removes the {word} block whose {seal_word} {problem}");
        let message = format!("this {seal_word} {problem}");
        let error = self.invalid_seal_error(block);
        let fix = self.restore_or_remove(block, &removed);
        let finding = Finding::at(self.book.signature_invalid, seal, message);
        self.report(block, finding.with_provider_error(error).with_auto_fix(fix));
    }

    /// Returns the provider's error for a Seal that does not verify.
    pub(super) fn invalid_seal_error(&self, block: &ClaudeBlock<'c>) -> String {
        let (place, seal, word) = (block.path(), block.seal_name(), block.type_name());
        self.provider_error(format!("{place}: Invalid `{seal}` in `{word}` block"))
    }

    fn check_tags(&mut self, block: &ClaudeBlock<'c>) {
        let Some(text) = block.text else { return };
        // A relevant tag is at the start, so most texts need no further check.
        let head = text.raw().get(..64).unwrap_or(text.raw());
        if memchr::memmem::find(head, b"think").is_none() {
            return;
        }
        let said = text.text().unwrap_or_default();
        let said = said.trim_start();
        if let Some(tag) = TAGS.iter().find(|tag| said.starts_with(**tag)) {
            let message = format!("this text starts with `{tag}`: it is a thought, not an answer");
            let fix = self.removal_fix(&[block], "removes the text that contains a thought");
            let finding = Finding::at(self.book.thought_as_text, text, message).with_auto_fix(fix);
            self.report(block, finding);
        }
    }

    /// With a manual budget, an open tool loop must begin with thinking.
    fn check_open_loop(&mut self) {
        let view = self.view;
        let Some(turn) = view.open_loop() else { return };
        let Some(first) = view.blocks_of_turn(turn).next() else { return };
        if view.knobs.thinking_mode() != ThinkingMode::Manual || first.kind.is_thinking() {
            return;
        }
        let found = block_type_name(first);
        let error = self.provider_error(format!(
            "{}.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a \
             final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` \
             and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this \
             requirement, disable `thinking`.",
            first.path()
        ));
        let message = format!(
            "thinking has a budget, so a thinking block must precede this {}",
            block_noun(first.kind)
        );
        let changes = self.case.comparison().into_iter().flat_map(|c| &c.changes);
        let mut lost =
            changes.filter(|change| change.is_latest && change.kind != ChangeKind::SaidAloud);
        let restored =
            lost.find_map(|change| self.restore_message_fix(first.message, change.issued?.reply));
        let fix = restored.or_else(|| self.disable_thinking_fix(turn));
        let finding = Finding::at(self.book.tool_loop_needs_thinking, first.node, message);
        self.report(first, finding.with_provider_error(error).with_auto_fix(fix));
    }

    /// An assistant message must not end with thinking. Some models also reject an assistant
    /// message at the end of a request.
    fn check_message_end(&mut self, turn: &ClaudeTurn, is_last: bool) {
        let view = self.view;
        let blocks: Vec<_> = view.blocks_of_turn(turn).collect();
        let Some(last) = blocks.last() else { return };
        let has = |kind: ClaudeBlockKind| blocks.iter().any(|block| block.kind == kind);
        // A message with pending tool calls, or one that Anthropic paused, is not a prefill.
        let is_prefill =
            is_last && !has(ClaudeBlockKind::Call) && !has(ClaudeBlockKind::HostedCall);
        let notes = &self.case.profile().notes;
        let refuses_prefill = notes.get("prefill").is_some_and(|prefill| prefill == "refused");
        if is_prefill && refuses_prefill {
            let Some(message) = view.messages.get(last.message) else { return };
            let error = self.provider_error(
                "This model does not support assistant message prefill. The conversation must end with a user \
                 message.",
            );
            let fix = self.removal_fix(&blocks, "removes the last assistant message");
            let finding = Finding::at(
                self.book.prefill_refused,
                message.node.get("role").unwrap_or(message.node),
                format!(
                    "{} does not continue a trailing assistant message",
                    self.case.profile().name
                ),
            );
            let path = format!("messages.{}", last.message);
            self.add(finding.with_path(path).with_provider_error(error).with_auto_fix(fix));
            return;
        }
        if !last.kind.is_thinking() {
            return;
        }
        let word = last.type_name();
        let error = format!(
            "messages.{}: The final block in an assistant message cannot be `{word}`.",
            last.message
        );
        let error = self.provider_error(error);
        let finding = Finding::at(
            self.book.ends_in_thinking,
            last.node,
            "no text or tool call follows this block",
        );
        // It is not certain that the rule applies to messages before the last one.
        let severity = if is_last { Severity::Refuse } else { Severity::Note };
        let trailing = blocks.iter().rev().take_while(|block| block.kind.is_thinking()).count();
        let trailing = blocks.split_at(blocks.len() - trailing).1;
        let fix = self.removal_fix(trailing, "removes the trailing thinking");
        let fix = fix.filter(|_| is_last);
        if !self.has_finding(last.node.range().start) {
            self.report(
                last,
                finding.with_severity(severity).with_provider_error(error).with_auto_fix(fix),
            );
        }
    }
}

/// Returns an obvious problem of a Seal; completes a sentence.
fn seal_problem(seal: Node<'_>) -> Option<&'static str> {
    let Some(text) = seal.text() else { return Some("is not a string") };
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    if text.is_empty() {
        Some("is empty")
    } else if FOREIGN_PREFIXES.iter().any(|mark| text.starts_with(mark)) {
        Some("belongs to another provider")
    } else if !text.bytes().all(is_base64) {
        Some("is not base64")
    } else {
        None
    }
}

/// Returns our term for the block at the position where thinking is required.
fn block_noun(kind: ClaudeBlockKind) -> &'static str {
    match kind {
        ClaudeBlockKind::Text => "text",
        ClaudeBlockKind::Call | ClaudeBlockKind::HostedCall => "tool call",
        ClaudeBlockKind::Thinking
        | ClaudeBlockKind::Redacted
        | ClaudeBlockKind::Answer
        | ClaudeBlockKind::HostedAnswer
        | ClaudeBlockKind::Compaction
        | ClaudeBlockKind::Other => "block",
    }
}

/// Returns the provider's term for the block at the position where thinking is required.
fn block_type_name<'c>(block: &ClaudeBlock<'c>) -> std::borrow::Cow<'c, str> {
    let word = match block.kind {
        ClaudeBlockKind::Text => "text",
        ClaudeBlockKind::Thinking | ClaudeBlockKind::Redacted => block.type_name(),
        ClaudeBlockKind::Call => "tool_use",
        ClaudeBlockKind::Answer => "tool_result",
        ClaudeBlockKind::HostedCall => "server_tool_use",
        ClaudeBlockKind::Compaction => "compaction",
        ClaudeBlockKind::HostedAnswer | ClaudeBlockKind::Other => {
            return block.node.text_of("type").unwrap_or("text".into());
        }
    };
    word.into()
}
