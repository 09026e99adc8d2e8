//! What a Claude refuses in the blocks themselves, whatever came before.

use throughline_core::Node;

use crate::audit::{ChangeKind, Finding, Severity};
use crate::claude::view::{Block, Kind, Speaker, Turn};
use crate::claude::{Asking, Inspection};

/// How opaque values begin that other vendors issue or document: OpenAI's ciphertext, and the two stand-ins for Gemini.
const FOREIGN: &[&str] =
    &["gAAAA", "skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// The tags that clients put around a thought that they say aloud.
const TAGS: &[&str] = &["<think>", "<thinking>"];

impl<'c> Inspection<'_, 'c, '_> {
    pub(super) fn look_at_blocks(&mut self) {
        let view = self.view;
        for block in view.models_blocks() {
            match block.kind {
                Kind::Thinking | Kind::Redacted => self.look_at_seal(block),
                Kind::Text => self.look_at_tags(block),
                Kind::Call
                | Kind::Answer
                | Kind::HostedCall
                | Kind::HostedAnswer
                | Kind::Compaction
                | Kind::Other => {}
            }
        }
        if !view.is_partial {
            self.look_at_loop();
        }
    }

    /// Comes last: what is wrong with a block by itself says more than that it stands at an end.
    pub(super) fn look_at_ends(&mut self) {
        let view = self.view;
        for (number, turn) in view.turns.iter().enumerate() {
            if turn.speaker == Speaker::Assistant {
                self.look_at_end(turn, number + 1 == view.turns.len());
            }
        }
    }

    fn look_at_seal(&mut self, block: &Block<'c>) {
        let (word, seal_word, place) = (block.word(), block.seal_word(), block.place());
        let Some(seal) = block.seal else {
            let removed = format!("removes the {word} block that has no {seal_word}");
            let finding = Finding::at(
                self.book.signature_missing,
                block.node,
                format!("`{seal_word}` is missing"),
            );
            let error = self.says(format!("{place}.{word}.{seal_word}: Field required"));
            let mend = self.restored_or_removed(block, &removed);
            self.report(block, finding.answered(error).mended(mend));
            return;
        };
        let Some(problem) = problem_of(seal).filter(|_| !self.case.is_issued(seal)) else { return };
        let removed = format!("removes the {word} block whose {seal_word} {problem}");
        let message = format!("this {seal_word} {problem}");
        let error = self.invalid(block);
        let mend = self.restored_or_removed(block, &removed);
        let finding = Finding::at(self.book.signature_invalid, seal, message);
        self.report(block, finding.answered(error).mended(mend));
    }

    /// The provider's words for a seal that does not verify.
    pub(super) fn invalid(&self, block: &Block<'c>) -> String {
        let (place, seal, word) = (block.place(), block.seal_word(), block.word());
        self.says(format!("{place}: Invalid `{seal}` in `{word}` block"))
    }

    fn look_at_tags(&mut self, block: &Block<'c>) {
        let Some(text) = block.text else { return };
        // A tag that matters stands at the very start, so most texts need no second look.
        let head = text.raw().get(..64).unwrap_or(text.raw());
        if memchr::memmem::find(head, b"think").is_none() {
            return;
        }
        let said = text.text().unwrap_or_default();
        let said = said.trim_start();
        if let Some(tag) = TAGS.iter().find(|tag| said.starts_with(**tag)) {
            let message = format!("this text opens with `{tag}`: it is a thought, not an answer");
            let mend = self.removed(&[block], "removes the text that says a thought aloud");
            let finding = Finding::at(self.book.thought_as_text, text, message).mended(mend);
            self.report(block, finding);
        }
    }

    /// Under a manual budget, an open tool loop must begin with thinking.
    fn look_at_loop(&mut self) {
        let view = self.view;
        let Some(turn) = view.open_loop() else { return };
        let Some(first) = view.said_in(turn).next() else { return };
        if view.knobs.asking() != Asking::Manual || first.kind.is_thinking() {
            return;
        }
        let found = word_of(first);
        let error = self.says(format!(
            "{}.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a \
             final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` \
             and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this \
             requirement, disable `thinking`.",
            first.place()
        ));
        let message = format!(
            "thinking has a budget, so a thinking block must stand before this {}",
            noun_of(first.kind)
        );
        let changes = self.case.comparison().into_iter().flat_map(|c| &c.changes);
        let mut lost =
            changes.filter(|change| change.is_latest && change.kind != ChangeKind::SaidAloud);
        let restored = lost.find_map(|change| self.as_issued(first.message, change.issued?.reply));
        let mend = restored.or_else(|| self.without_thinking(turn));
        let finding = Finding::at(self.book.tool_loop_needs_thinking, first.node, message);
        self.report(first, finding.answered(error).mended(mend));
    }

    /// A message of the model's cannot end in thinking, and with some models a request cannot end in one of them.
    fn look_at_end(&mut self, turn: &Turn, is_last: bool) {
        let view = self.view;
        let blocks: Vec<_> = view.said_in(turn).collect();
        let Some(last) = blocks.last() else { return };
        let has = |kind: Kind| blocks.iter().any(|block| block.kind == kind);
        // What calls a tool waits for its answer, and what Anthropic paused goes on: neither is a prefill.
        let is_prefill = is_last && !has(Kind::Call) && !has(Kind::HostedCall);
        let notes = &self.case.profile().notes;
        let refuses_prefill = notes.get("prefill").is_some_and(|prefill| prefill == "refused");
        if is_prefill && refuses_prefill {
            let Some(message) = view.messages.get(last.message) else { return };
            let error = self.says(
                "This model does not support assistant message prefill. The conversation must end with a user \
                 message.",
            );
            let mend =
                self.removed(&blocks, "removes the assistant message that the request ends with");
            let finding = Finding::at(
                self.book.prefill_refused,
                message.node.get("role").unwrap_or(message.node),
                format!(
                    "{} does not go on with what an assistant message begins",
                    self.case.profile().name
                ),
            );
            let path = format!("messages.{}", last.message);
            self.add(finding.under(path).answered(error).mended(mend));
            return;
        }
        if !last.kind.is_thinking() {
            return;
        }
        let word = last.word();
        let error = format!(
            "messages.{}: The final block in an assistant message cannot be `{word}`.",
            last.message
        );
        let error = self.says(error);
        let finding = Finding::at(
            self.book.ends_in_thinking,
            last.node,
            "nothing that was said or called follows this block",
        );
        // That the rule holds for messages in the middle too is not sure.
        let severity = if is_last { Severity::Refuse } else { Severity::Note };
        let trailing = blocks.iter().rev().take_while(|block| block.kind.is_thinking()).count();
        let trailing = blocks.split_at(blocks.len() - trailing).1;
        let mend = self.removed(trailing, "removes the thinking that the message ends with");
        let mend = mend.filter(|_| is_last);
        if !self.is_judged(last.node.range().start) {
            self.report(last, finding.as_grave_as(severity).answered(error).mended(mend));
        }
    }
}

/// What is plainly wrong with a seal, as the end of a sentence.
fn problem_of(seal: Node<'_>) -> Option<&'static str> {
    let Some(text) = seal.text() else { return Some("is not a string") };
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    if text.is_empty() {
        Some("is empty")
    } else if FOREIGN.iter().any(|mark| text.starts_with(mark)) {
        Some("is another provider's")
    } else if !text.bytes().all(is_base64) {
        Some("is not base64")
    } else {
        None
    }
}

/// Our word for a block that stands where thinking should.
fn noun_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Call | Kind::HostedCall => "tool call",
        Kind::Thinking
        | Kind::Redacted
        | Kind::Answer
        | Kind::HostedAnswer
        | Kind::Compaction
        | Kind::Other => "block",
    }
}

/// The provider's word for a block that stands where thinking should.
fn word_of<'c>(block: &Block<'c>) -> std::borrow::Cow<'c, str> {
    let word = match block.kind {
        Kind::Text => "text",
        Kind::Thinking | Kind::Redacted => block.word(),
        Kind::Call => "tool_use",
        Kind::Answer => "tool_result",
        Kind::HostedCall => "server_tool_use",
        Kind::Compaction => "compaction",
        Kind::HostedAnswer | Kind::Other => {
            return block.node.text_of("type").unwrap_or("text".into());
        }
    };
    word.into()
}
