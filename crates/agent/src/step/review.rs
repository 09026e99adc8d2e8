//! Reviews the open calls of a restored run. The snapshot is untrusted, so a call keeps waiting
//! only if this run would have created an identical request. Every other open call is decided again
//! under the approval rules of the runner's own tools. If the runner does not know the snapshot's
//! agent, the agent's rules cannot be verified. Every open call then needs approval
//! ([`OpenCalls::NeedApproval`]).

use std::collections::HashSet;

use throughline_core::ToolCall;
use throughline_json::{Json, Name};
use throughline_spec::{
    PendingToolApproval, PendingUserQuestion, ToolApprovalStatus, UserQuestionStatus,
};

use crate::action::Refusal;
use crate::input::OpenCalls;
use crate::progress::{Phase, Stage};
use crate::question::ASK_USER_QUESTION;
use crate::roster::GET_TOOL_RESPONSE;
use crate::step::tools::args_hash;
use crate::step::{Step, StepResult};

impl Step {
    /// Decides every open call of a restored run again, except calls that wait for a valid request.
    pub(super) fn on_restored(&mut self, open_calls: OpenCalls) -> StepResult {
        self.open_calls = open_calls;
        match &self.state.progress.phase {
            Phase::Ended { .. } => {
                self.state.progress.calls.clear();
                self.retain_requests(&HashSet::new());
                self.mark_awaiting();
                return Ok(());
            }
            Phase::Asking { .. } if !self.state.progress.calls.is_empty() => {
                return Err(Refusal::invalid(
                    "progress.phase: a model call cannot be in progress while tool calls are open",
                ));
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting => {}
        }
        self.report_plan();
        let mut confirmed: HashSet<Name> = HashSet::new();
        let mut again = Vec::new();
        for position in 0..self.state.progress.calls.len() {
            let Some(call) = self.call_at(position) else { continue };
            let Some(open) = self.state.progress.calls.get_mut(position) else { continue };
            open.tool = call.name.clone();
            let stage = open.stage.clone();
            if stage == Stage::Done {
                continue;
            }
            match stage.pending().filter(|_| self.is_confirmed(&stage, &call)) {
                Some(id) if confirmed.insert(id.clone()) => {}
                _ => again.push((position, call, stage)),
            }
        }
        self.retain_requests(&confirmed);
        let is_unchanged = again.is_empty();
        // Handoffs are handled last, because the current agent's rules apply to all calls of its
        // answer.
        let (handoffs, others): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|(_, call, _)| self.is_handoff(call));
        for (position, call, stage) in others {
            self.decide_again(position, &call, &stage);
        }
        for (position, ..) in handoffs {
            self.reset(position);
            self.check_call(position);
        }
        self.mark_awaiting();
        if !is_unchanged {
            self.continue_calls();
        }
        Ok(())
    }

    fn decide_again(&mut self, position: usize, call: &ToolCall, stage: &Stage) {
        let spec = self.state.cast.tool(&call.name);
        let was_begun = matches!(stage, Stage::Begun | Stage::Approval { lost: true, .. });
        let fits = self.state.cast.check(&call.name, &call.args).is_ok();
        let may_be_lost = spec.is_some_and(|spec| !spec.idempotent && !spec.client);
        let is_lost = fits && was_begun && may_be_lost;
        let counts = spec.is_some();
        self.reset(position);
        if is_lost {
            return self.mark_lost(position);
        }
        // Undo the count from when the call was first decided, because it is about to be counted
        // again.
        let progress = &mut self.state.progress;
        if counts {
            progress.tool_calls = progress.tool_calls.saturating_sub(1);
        } else if &*call.name == GET_TOOL_RESPONSE {
            progress.brought_back = progress.brought_back.saturating_sub(1);
        }
        self.check_call(position);
    }

    /// Resets the stage, arguments and start time of a call, because these values come from an
    /// untrusted snapshot.
    fn reset(&mut self, position: usize) {
        if let Some(open) = self.state.progress.calls.get_mut(position) {
            (open.stage, open.args, open.began) = (Stage::Queued, None, None);
        }
    }

    /// Returns whether a call waits for a request, and this run would create an identical request.
    fn is_confirmed(&self, stage: &Stage, call: &ToolCall) -> bool {
        let Some(part) = self.state.current_agent() else { return false };
        let spec = self.state.cast.tool(&call.name);
        match stage {
            Stage::Approval { id, .. } => {
                let entries = self.state.smart.pending_approvals.iter().flatten();
                let mut entries = entries.filter(|entry| entry.id == *id);
                spec.is_some()
                    && part.handoff(&call.name).is_none()
                    && self.is_own_id(id, 'a')
                    && self.state.cast.check(&call.name, &call.args).is_ok()
                    && entries.next().is_some_and(|entry| is_request_for(entry, call))
                    && entries.next().is_none()
            }
            Stage::Question { id } => {
                let entries = self.state.smart.pending_user_questions.iter().flatten();
                let mut entries = entries.filter(|entry| entry.id == *id);
                &*call.name == ASK_USER_QUESTION
                    && part.config.human_in_the_loop.ask_user.is_some()
                    && self.is_own_id(id, 'q')
                    && entries.next().is_some_and(|entry| is_question_for(entry, call))
                    && entries.next().is_none()
            }
            Stage::Client { id } => {
                spec.is_some_and(|spec| spec.client && !part.needs_approval(spec))
                    && self.is_own_id(id, 't')
                    && self.state.cast.check(&call.name, &call.args).is_ok()
            }
            Stage::Queued | Stage::Begun | Stage::Done => false,
        }
    }

    /// Returns whether this run generated the request id `id`. `kind` is the letter for the kind of
    /// request.
    fn is_own_id(&self, id: &str, kind: char) -> bool {
        let suffix = id.strip_prefix(&*self.state.progress.run);
        let suffix = suffix.and_then(|suffix| suffix.strip_prefix('.')?.strip_prefix(kind));
        let number = suffix.and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| (1..=self.state.progress.ids).contains(&number))
    }

    /// Keeps only requests whose ids are `confirmed` and decisions about calls that are no longer
    /// open.
    fn retain_requests(&mut self, confirmed: &HashSet<Name>) {
        let calls = self.state.progress.calls.iter().filter(|call| call.stage != Stage::Done);
        let open: HashSet<&Name> = calls.map(|call| &call.id).collect();
        let is_retained = |id: &Name, is_pending: bool, call: &Name| {
            confirmed.contains(id) || !is_pending && !open.contains(call)
        };
        if let Some(entries) = &mut self.state.smart.pending_approvals {
            entries.retain(|entry| {
                is_retained(
                    &entry.id,
                    entry.status == ToolApprovalStatus::Pending,
                    &entry.tool_call_id,
                )
            });
        }
        if let Some(entries) = &mut self.state.smart.pending_user_questions {
            entries.retain(|entry| {
                is_retained(
                    &entry.id,
                    entry.status == UserQuestionStatus::Pending,
                    &entry.tool_call_id,
                )
            });
        }
    }
}

/// Returns whether a pending approval describes exactly the tool call that the approval would
/// allow.
fn is_request_for(entry: &PendingToolApproval, call: &ToolCall) -> bool {
    let hash = entry.metadata.iter().flatten().find(|(name, _)| &**name == "argsHash");
    let hash = hash.and_then(|(_, hash)| Json::tree(hash).root().name());
    entry.status == ToolApprovalStatus::Pending
        && entry.tool_call_id == call.id.0
        && entry.tool_name == call.name
        && entry.args.bytes() == call.args.bytes()
        && hash.is_some_and(|hash| *hash == *args_hash(&call.args))
}

fn is_question_for(entry: &PendingUserQuestion, call: &ToolCall) -> bool {
    entry.status == UserQuestionStatus::Pending && entry.tool_call_id == call.id.0
}
