//! Checks the blocks of a request without comparing them with earlier exchanges.

use std::borrow::Cow;

use throughline_json::Node;

use crate::audit::{ChangeKind, Finding, Severity};
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker, ClaudeTurn};
use crate::claude::{Inspection, ThinkingMode};

/// Prefixes that identify opaque values from other vendors: OpenAI's ciphertext and two documented
/// Gemini placeholders.
const FOREIGN_PREFIXES: &[&str] =
    &["gAAAA", "skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// The tags that clients put around a thought when they send it as text.
const TAGS: &[&str] = &["<think>", "<thinking>"];

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn check_blocks(&mut self) {
        let view = self.view;
        for block in view.assistant_blocks() {
            if block.kind.is_thinking() {
                let finding = self.empty_finding(block).or_else(|| self.seal_finding(block));
                self.report(block, finding);
            } else if block.kind == ClaudeBlockKind::Text {
                self.report(block, self.tag_finding(block));
            }
        }
        // With a manual budget, an open tool loop must begin with thinking.
        if !view.is_partial
            && view.settings.thinking_mode() == ThinkingMode::Manual
            && let Some(turn) = view.open_loop()
            && let Some(first) = view.blocks_of_turn(turn).find(|block| !is_tool_listing(block))
            && !first.kind.is_thinking()
        {
            self.report(first, self.open_loop_finding(turn, first));
        }
    }

    /// Checks the last block of each assistant turn. Runs last, because findings about a block
    /// itself are more specific.
    pub(super) fn check_message_ends(&mut self) {
        let view = self.view;
        for (number, turn) in view.turns.iter().enumerate() {
            if turn.speaker == ClaudeSpeaker::Assistant {
                self.check_message_end(turn, number + 1 == view.turns.len());
            }
        }
    }

    /// Reports a block with neither a text nor a signature. A block with one of them is checked by
    /// other rules.
    fn empty_finding(&self, block: &ClaudeBlock<'c>) -> Option<Finding> {
        let text = block.text.filter(|text| text.is(""))?;
        if block.kind != ClaudeBlockKind::Thinking || block.seal.is_some_and(|seal| !seal.is("")) {
            return None;
        }
        let error = format!("{}.thinking: each thinking block must contain thinking", block.path());
        let message = "this block has neither a text nor a signature";
        let finding = self.rejection("thinking-empty", text, message, error)?;
        let fix = self.restore_or_remove(block, "removes the empty thinking block");
        Some(finding.with_auto_fix(fix))
    }

    fn seal_finding(&self, block: &ClaudeBlock<'c>) -> Option<Finding> {
        let (block_name, seal_name, place) = (block.type_name(), block.seal_name(), block.path());
        let Some(seal) = block.seal else {
            let removed = format!("removes the {block_name} block without a {seal_name}");
            let message = format!("`{seal_name}` is missing");
            let error = format!("{place}.{block_name}.{seal_name}: Field required");
            let finding = self.rejection("signature-missing", block.node, message, error)?;
            return Some(finding.with_auto_fix(self.restore_or_remove(block, &removed)));
        };
        let problem = seal_problem(seal).filter(|_| !self.case.is_issued(seal))?;
        let removed = format!("removes the {block_name} block whose {seal_name} {problem}");
        let message = format!("this {seal_name} {problem}");
        let error = invalid_seal_error(block);
        let finding = self.rejection("signature-invalid", seal, message, error)?;
        Some(finding.with_auto_fix(self.restore_or_remove(block, &removed)))
    }

    fn tag_finding(&self, block: &ClaudeBlock<'c>) -> Option<Finding> {
        let text = block.text?;
        // Only a tag at the start matters, so a search in the first bytes rules out most texts.
        let head = text.raw().get(..64).unwrap_or(text.raw());
        memchr::memmem::find(head, b"think")?;
        let content = text.text().unwrap_or_default();
        let tag = TAGS.iter().find(|tag| content.trim_start().starts_with(**tag))?;
        let message = format!("this text starts with `{tag}`: it is a thought, not an answer");
        let fix = self.removal_fix(&[block], "removes the text that contains a thought");
        Some(self.finding("thought-as-text", text.range(), message)?.with_auto_fix(fix))
    }

    fn open_loop_finding(&self, turn: &ClaudeTurn, first: &ClaudeBlock<'c>) -> Option<Finding> {
        let (place, found) = (first.path(), block_type_name(first));
        let error = format!(
            "{place}.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a \
             final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` \
             and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this \
             requirement, disable `thinking`."
        );
        let is_call = matches!(first.kind, ClaudeBlockKind::Call | ClaudeBlockKind::HostedCall);
        let is_text = first.kind == ClaudeBlockKind::Text;
        let noun = if is_call {
            "tool call"
        } else if is_text {
            "text"
        } else {
            "block"
        };
        let message =
            format!("thinking has a budget, so a thinking block must precede this {noun}");
        let changes = self.case.comparison().into_iter().flat_map(|c| &c.changes);
        let mut candidates =
            changes.filter(|change| change.is_latest && change.kind != ChangeKind::SentAsText);
        let restored = candidates
            .find_map(|change| self.restore_message_fix(first.message, change.issued?.reply));
        let fix = restored.or_else(|| self.disable_thinking_fix(turn));
        let finding = self.rejection("tool-loop-needs-thinking", first.node, message, error)?;
        Some(finding.with_auto_fix(fix))
    }

    /// Checks that an assistant turn does not end with thinking. Also checks that the request does
    /// not end with an assistant turn, if the model rejects such requests.
    fn check_message_end(&mut self, turn: &ClaudeTurn, is_last: bool) {
        let blocks: Vec<_> = self.view.blocks_of_turn(turn).collect();
        let Some(last) = blocks.last() else { return };
        let has = |kind: ClaudeBlockKind| blocks.iter().any(|block| block.kind == kind);
        // A message with pending tool calls, or a message that Anthropic paused, is not a prefill.
        // Neither is the end of a conversation that Anthropic compacts, because the model does not
        // continue the message.
        let is_prefill = is_last
            && !has(ClaudeBlockKind::Call)
            && !has(ClaudeBlockKind::HostedCall)
            && self.case.body().present("compaction").is_none();
        let notes = &self.case.profile().notes;
        let refuses_prefill = notes.get("prefill").is_some_and(|prefill| prefill == "refused");
        if is_prefill && refuses_prefill {
            self.extend(self.prefill_finding(&blocks, last.message));
        } else if last.kind.is_thinking() && !self.has_finding(last) {
            self.report(last, self.trailing_thinking_finding(&blocks, last, is_last));
        }
    }

    fn prefill_finding(&self, blocks: &[&ClaudeBlock<'c>], number: usize) -> Option<Finding> {
        let message = self.view.messages.get(number)?;
        let finding = self.rejection(
            "prefill-refused",
            message.node.get("role").unwrap_or(message.node),
            format!("{} does not support a trailing assistant message", self.case.profile().name),
            "This model does not support assistant message prefill. The conversation must end with a user \
             message.",
        )?;
        let fix = self.removal_fix(blocks, "removes the last assistant message");
        Some(finding.with_path(format!("messages.{number}")).with_auto_fix(fix))
    }

    fn trailing_thinking_finding(
        &self,
        blocks: &[&ClaudeBlock<'c>],
        last: &ClaudeBlock<'c>,
        is_last: bool,
    ) -> Option<Finding> {
        let (number, block_name) = (last.message, last.type_name());
        let error = format!(
            "messages.{number}: The final block in an assistant message cannot be `{block_name}`."
        );
        let message = "no text or tool call follows this block";
        let trailing = blocks.iter().rev().take_while(|block| block.kind.is_thinking()).count();
        let (_, trailing) = blocks.split_at(blocks.len() - trailing);
        let fix = self.removal_fix(trailing, "removes the trailing thinking");
        // The provider may not apply the rule to messages before the last one.
        let severity = if is_last { Severity::Refuse } else { Severity::Note };
        let finding = self.rejection("ends-in-thinking", last.node, message, error)?;
        Some(finding.with_severity(severity).with_auto_fix(fix.filter(|_| is_last)))
    }
}

/// Returns whether a block lists the tools of an MCP server. Anthropic puts the block before the
/// thinking, and requires it back unchanged.
fn is_tool_listing(block: &ClaudeBlock<'_>) -> bool {
    block.node.get("type").is_some_and(|kind| kind.is("mcp_tool_listing"))
}

/// Returns the model's error for a Seal that does not verify.
pub(super) fn invalid_seal_error(block: &ClaudeBlock<'_>) -> String {
    let (place, seal, block_name) = (block.path(), block.seal_name(), block.type_name());
    format!("{place}: Invalid `{seal}` in `{block_name}` block")
}

/// Describes an obvious defect of a Seal, worded to follow "the Seal" in a sentence.
fn seal_problem(seal: Node<'_>) -> Option<&'static str> {
    let Some(text) = seal.text() else { return Some("is not a string") };
    // Seals are long and usually valid, and a fold without early exit can be vectorised.
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    if text.is_empty() {
        Some("is empty")
    } else if FOREIGN_PREFIXES.iter().any(|mark| text.starts_with(mark)) {
        Some("belongs to another provider")
    } else if !text.bytes().fold(true, |is_valid, byte| is_valid & is_base64(byte)) {
        Some("is not base64")
    } else {
        None
    }
}

/// Returns the provider's name for the type of a block, as used in error messages.
fn block_type_name<'c>(block: &ClaudeBlock<'c>) -> Cow<'c, str> {
    match block.kind {
        ClaudeBlockKind::Text => "text".into(),
        ClaudeBlockKind::Thinking | ClaudeBlockKind::Redacted => block.type_name().into(),
        ClaudeBlockKind::Call => "tool_use".into(),
        ClaudeBlockKind::Answer => "tool_result".into(),
        ClaudeBlockKind::HostedCall => "server_tool_use".into(),
        ClaudeBlockKind::Compaction => "compaction".into(),
        ClaudeBlockKind::HostedAnswer | ClaudeBlockKind::Other => {
            block.node.text_of("type").unwrap_or("text".into())
        }
    }
}
