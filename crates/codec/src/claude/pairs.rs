//! Every call of a tool is answered in the next message, and nothing else is.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::audit::Finding;
use crate::claude::Inspection;
use crate::claude::view::{Block, Kind, Speaker, Turn};

impl<'a, 'c> Inspection<'a, 'c, '_> {
    pub(super) fn look_at_pairs(&mut self) {
        let view = self.view;
        if view.is_partial {
            return;
        }
        for (number, turn) in view.turns.iter().enumerate() {
            let of = |number: Option<usize>, speaker: Speaker| {
                let turn = number.and_then(|number| view.turns.get(number));
                turn.filter(|turn| turn.speaker == speaker)
            };
            match turn.speaker {
                Speaker::Assistant => {
                    let answers = of(number.checked_add(1), Speaker::User);
                    self.look_for_answers(turn, answers);
                }
                Speaker::User => {
                    let calls = of(number.checked_sub(1), Speaker::Assistant);
                    self.look_for_calls(turn, calls);
                }
                Speaker::System => {}
            }
        }
    }

    fn look_for_answers(&mut self, turn: &Turn, answers: Option<&Turn>) {
        let view = self.view;
        let mut calls = view.said_in(turn).filter(|block| block.kind == Kind::Call).peekable();
        if calls.peek().is_none() {
            return;
        }
        let answered = self.ids(answers, Kind::Answer);
        let waiting: Vec<_> =
            calls.filter(|call| !id_of(call).is_some_and(|id| answered.contains(&id))).collect();
        let Some(first) = waiting.first() else { return };
        let names: Vec<_> = waiting.iter().filter_map(|call| id_of(call)).collect();
        let names = names.join(", ");
        let message = match waiting.len() {
            1 => format!("the next message has no result for `{names}`"),
            _ => format!("the next message has no results for {names}"),
        };
        let error = (self.book.unanswered)(first.message, &names);
        let gone = self.with_idle_thinking(&waiting);
        let mend = self.removed(&gone, "removes the call that nothing answers");
        let finding = Finding::at(self.book.tool_call_unanswered, first.node, message)
            .answered(error)
            .mended(mend);
        self.report(first, finding);
    }

    /// The calls, and the thinking of their messages where nothing else would be left of them.
    fn with_idle_thinking(&self, calls: &[&'a Block<'c>]) -> Vec<&'a Block<'c>> {
        let mut gone = Vec::new();
        for here in calls.chunk_by(|one, next| one.message == next.message) {
            let message = here.first().and_then(|call| self.view.messages.get(call.message));
            let Some(message) = message else { continue };
            let start = |block: &Block<'c>| block.node.range().start;
            let is_gone = |block: &Block<'c>| {
                here.binary_search_by_key(&start(block), |call| start(call)).is_ok()
            };
            let is_idle = message.blocks.iter().all(|b| b.kind.is_thinking() || is_gone(b));
            gone.extend(message.blocks.iter().filter(|block| is_idle || is_gone(block)));
        }
        gone
    }

    fn look_for_calls(&mut self, turn: &Turn, calls: Option<&Turn>) {
        let view = self.view;
        let mut answers = view.said_in(turn).filter(|block| block.kind == Kind::Answer).peekable();
        if answers.peek().is_none() {
            return;
        }
        let asked = self.ids(calls, Kind::Call);
        let unasked: Vec<_> =
            answers.filter(|answer| !id_of(answer).is_some_and(|id| asked.contains(&id))).collect();
        let Some(first) = unasked.first() else { return };
        let id = id_of(first).unwrap_or_default();
        let message = format!("this result answers `{id}`, which the message before does not call");
        let error = (self.book.unasked)(first, &id);
        let mend = self.removed(&unasked, "removes the result that nothing called for");
        let finding = Finding::at(self.book.tool_call_unanswered, first.node, message)
            .answered(error)
            .mended(mend);
        self.report(first, finding);
    }

    fn ids(&self, turn: Option<&Turn>, kind: Kind) -> HashSet<Cow<'c, str>> {
        let view = self.view;
        let blocks = turn.into_iter().flat_map(|turn| view.said_in(turn));
        blocks.filter(|block| block.kind == kind).filter_map(id_of).collect()
    }
}

fn id_of<'c>(block: &Block<'c>) -> Option<Cow<'c, str>> {
    block.id?.text()
}
