//! A run was restored from a snapshot. The document is untrusted, so nothing that it says about calls is taken over without a
//! check: a call that waits keeps waiting only if its request is exactly what this run would have asked; every other open call
//! is decided again, with the approvals that the runner's own tools demand. If the agent of the document is unknown here, its
//! rules cannot be checked, and every open call needs an approval ([`OpenCalls::NeedApproval`]).

use std::collections::HashSet;

use throughline_core::{
    Json, Name, PendingToolApproval, PendingUserQuestion, ToolApprovalStatus, ToolCall,
    UserQuestionStatus,
};

use crate::action::Refusal;
use crate::cast::GET_TOOL_RESPONSE;
use crate::input::OpenCalls;
use crate::progress::{Phase, Stage};
use crate::question::ASK_USER_QUESTION;
use crate::step::tools::args_hash;
use crate::step::{Done, Step};

impl Step {
    /// Decides every open call of a restored run again, unless it waits for a valid request.
    pub(super) fn review(&mut self, open_calls: OpenCalls) -> Done {
        self.open_calls = open_calls;
        match &self.state.progress.phase {
            Phase::Ended { .. } => {
                self.state.progress.calls.clear();
                self.keep_requests(&HashSet::new());
                self.mark_awaiting();
                return Ok(());
            }
            Phase::Asking { .. } if !self.state.progress.calls.is_empty() => {
                let problem = "progress.phase: a model is asked while calls of tools are open";
                return Err(Refusal::invalid(problem));
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting => {}
        }
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
        self.keep_requests(&confirmed);
        let is_unchanged = again.is_empty();
        // An agent hands over last, because its own rules judge all that it calls.
        let part = self.state.part();
        let is_handoff =
            |call: &ToolCall| part.is_some_and(|part| part.handoff(&call.name).is_some());
        let (handoffs, others): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|(_, call, _)| is_handoff(call));
        for (position, call, stage) in others {
            self.decide_again(position, &call, &stage);
        }
        for (position, ..) in handoffs {
            self.reset(position);
            self.consider(position);
        }
        self.mark_awaiting();
        if !is_unchanged {
            self.go_on();
        }
        Ok(())
    }

    fn decide_again(&mut self, position: usize, call: &ToolCall, stage: &Stage) {
        let spec = self.state.cast.tool(&call.name);
        let was_begun = matches!(stage, Stage::Begun | Stage::Approval { lost: true, .. });
        let fits = self.state.cast.check(&call.name, &call.args).is_ok();
        let is_lost =
            fits && was_begun && spec.is_some_and(|spec| !spec.idempotent && !spec.client);
        let counts = spec.is_some();
        self.reset(position);
        if is_lost {
            self.lose(position);
            return;
        }
        // It was counted when it was decided first.
        let progress = &mut self.state.progress;
        if counts {
            progress.tool_calls = progress.tool_calls.saturating_sub(1);
        } else if &*call.name == GET_TOOL_RESPONSE {
            progress.brought_back = progress.brought_back.saturating_sub(1);
        }
        self.consider(position);
    }

    /// Takes away what the document says about a call: its stage, its arguments, its time.
    fn reset(&mut self, position: usize) {
        if let Some(open) = self.state.progress.calls.get_mut(position) {
            (open.stage, open.args, open.began) = (Stage::Queued, None, None);
        }
    }

    /// Whether a call waits for a request that this run would have made itself, word for word.
    fn is_confirmed(&self, stage: &Stage, call: &ToolCall) -> bool {
        let Some(part) = self.state.part() else { return false };
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

    /// Whether an id is one that this run has made up.
    fn is_own_id(&self, id: &str, kind: char) -> bool {
        let rest = id.strip_prefix(&*self.state.progress.run);
        let rest = rest.and_then(|rest| rest.strip_prefix('.')?.strip_prefix(kind));
        let number = rest.and_then(|number| number.parse::<u64>().ok());
        number.is_some_and(|number| (1..=self.state.progress.ids).contains(&number))
    }

    /// Drops the requests of open calls that are not confirmed. What was decided about settled calls stays.
    fn keep_requests(&mut self, confirmed: &HashSet<Name>) {
        let open: HashSet<Name> = self
            .state
            .progress
            .calls
            .iter()
            .filter(|call| call.stage != Stage::Done)
            .map(|call| call.id.clone())
            .collect();
        if let Some(entries) = &mut self.state.smart.pending_approvals {
            let is_decided = |entry: &PendingToolApproval| {
                entry.status != ToolApprovalStatus::Pending && !open.contains(&entry.tool_call_id)
            };
            entries.retain(|entry| confirmed.contains(&entry.id) || is_decided(entry));
        }
        if let Some(entries) = &mut self.state.smart.pending_user_questions {
            let is_decided = |entry: &PendingUserQuestion| {
                entry.status != UserQuestionStatus::Pending && !open.contains(&entry.tool_call_id)
            };
            entries.retain(|entry| confirmed.contains(&entry.id) || is_decided(entry));
        }
    }
}

/// Whether a pending approval shows a person exactly the call that runs when it is given.
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
