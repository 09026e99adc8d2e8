//! Checks that each tool call has one result in the next message, and that each result has a call.

use std::collections::HashSet;

use throughline_json::Node;

use crate::claude::Inspection;
use crate::claude::view::{ClaudeBlock, ClaudeBlockKind, ClaudeSpeaker, ClaudeTurn};

const RULE: &str = "tool-call-unanswered";

impl<'a, 'c> Inspection<'a, 'c, '_> {
    pub(super) fn check_tool_pairs(&mut self) {
        let view = self.view;
        if view.is_partial {
            return;
        }
        for (number, turn) in view.turns.iter().enumerate() {
            let next = view.turns.get(number + 1);
            let last = number.checked_sub(1).and_then(|number| view.turns.get(number));
            match turn.speaker {
                ClaudeSpeaker::Assistant => {
                    let answers = next.filter(|next| next.speaker == ClaudeSpeaker::User);
                    self.check_calls_answered(turn, answers);
                }
                ClaudeSpeaker::User => {
                    let calls = last.filter(|last| last.speaker == ClaudeSpeaker::Assistant);
                    self.check_results_called(turn, calls);
                    self.check_results_repeated(turn, calls);
                }
                ClaudeSpeaker::System => {}
            }
        }
    }

    fn check_calls_answered(&mut self, turn: &ClaudeTurn, answers: Option<&ClaudeTurn>) {
        let waiting =
            self.unpaired((turn, ClaudeBlockKind::Call), (answers, ClaudeBlockKind::Answer));
        let Some(first) = waiting.first() else { return };
        let names: Vec<_> = waiting.iter().filter_map(|call| call.id?.text()).collect();
        let names = names.join(", ");
        let message = match waiting.len() {
            1 => format!("the next message has no result for `{names}`"),
            _ => format!("the next message has no results for {names}"),
        };
        let error = (self.book.unanswered)(first.message, &names);
        let removed = self.with_orphaned_thinking(&waiting);
        let fix = self.removal_fix(&removed, "removes the unanswered call");
        let finding = self.finding(RULE, first.node.range(), message);
        self.report(first, finding.map(|f| f.with_provider_error(error).with_auto_fix(fix)));
    }

    /// Returns the blocks to remove: the calls, and the thinking of a message if nothing else would
    /// remain in the message.
    fn with_orphaned_thinking(&self, calls: &[&'a ClaudeBlock<'c>]) -> Vec<&'a ClaudeBlock<'c>> {
        let mut removed = Vec::new();
        for here in calls.chunk_by(|one, next| one.message == next.message) {
            let message = here.first().and_then(|call| self.view.messages.get(call.message));
            let Some(message) = message else { continue };
            let start = |block: &ClaudeBlock<'c>| block.node.range().start;
            let is_removed = |block: &ClaudeBlock<'c>| {
                here.binary_search_by_key(&start(block), |call| start(call)).is_ok()
            };
            let is_idle = message.blocks.iter().all(|b| b.kind.is_thinking() || is_removed(b));
            removed.extend(message.blocks.iter().filter(|block| is_idle || is_removed(block)));
        }
        removed
    }

    fn check_results_called(&mut self, turn: &ClaudeTurn, calls: Option<&ClaudeTurn>) {
        let unasked =
            self.unpaired((turn, ClaudeBlockKind::Answer), (calls, ClaudeBlockKind::Call));
        let Some(first) = unasked.first() else { return };
        let id = first.id.and_then(Node::text).unwrap_or_default();
        let message =
            format!("this result answers `{id}`, but the previous message has no such call");
        let error = (self.book.unasked)(first, &id);
        let fix = self.removal_fix(&unasked, "removes the tool result, which has no matching call");
        let finding = self.finding(RULE, first.node.range(), message);
        self.report(first, finding.map(|f| f.with_provider_error(error).with_auto_fix(fix)));
    }

    fn check_results_repeated(&mut self, turn: &ClaudeTurn, calls: Option<&ClaudeTurn>) {
        let view = self.view;
        let unasked =
            self.unpaired((turn, ClaudeBlockKind::Answer), (calls, ClaudeBlockKind::Call));
        let start = |block: &ClaudeBlock<'c>| block.node.range().start;
        let is_called = |block: &&ClaudeBlock<'c>| {
            unasked.binary_search_by_key(&start(block), |unasked| start(unasked)).is_err()
        };
        let results =
            view.blocks_of_turn(turn).filter(|block| block.kind == ClaudeBlockKind::Answer);
        let mut answered = HashSet::new();
        let is_repeated = |block: &&ClaudeBlock<'c>| {
            block.id.and_then(Node::text).is_some_and(|id| !answered.insert(id))
        };
        let repeated: Vec<_> = results.filter(is_called).filter(is_repeated).collect();
        let Some(first) = repeated.first() else { return };
        let id = first.id.and_then(Node::text).unwrap_or_default();
        let message = format!("`{id}` already has a result in this message");
        let error = (self.book.repeated)(first, &id);
        let fix = self.removal_fix(&repeated, "removes the repeated tool result");
        let finding = self.finding(RULE, first.node.range(), message);
        self.report(first, finding.map(|f| f.with_provider_error(error).with_auto_fix(fix)));
    }

    /// Returns the blocks of `kind` in a turn for which the partner turn has no `partner_kind`
    /// block with the same id.
    fn unpaired(
        &self,
        (turn, kind): (&ClaudeTurn, ClaudeBlockKind),
        (partner, partner_kind): (Option<&ClaudeTurn>, ClaudeBlockKind),
    ) -> Vec<&'a ClaudeBlock<'c>> {
        let view = self.view;
        let mut blocks = view.blocks_of_turn(turn).filter(|block| block.kind == kind).peekable();
        if blocks.peek().is_none() {
            return Vec::new();
        }
        let partners = partner.into_iter().flat_map(|turn| view.blocks_of_turn(turn));
        let partners = partners.filter(|block| block.kind == partner_kind);
        // Most turns have few blocks, for which sorting is cheaper than hashing.
        let mut ids: Vec<_> = partners.filter_map(|block| block.id?.text()).collect();
        ids.sort_unstable();
        let is_unpaired = |block: &&ClaudeBlock<'c>| {
            block.id.and_then(Node::text).is_none_or(|id| ids.binary_search(&id).is_err())
        };
        blocks.filter(is_unpaired).collect()
    }
}
