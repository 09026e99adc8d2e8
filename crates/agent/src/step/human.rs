//! Handles approvals, answers to questions, and expired requests.

use jiff::Timestamp;
use throughline_json::{self as json, Json, Name};
use throughline_spec::{
    PendingToolApproval, PendingUserQuestion, RunEvent, ToolApprovalEvent, ToolApprovalEventStatus,
    ToolApprovalResolution, ToolApprovalStatus, UserQuestionEvent, UserQuestionEventStatus,
    UserQuestionResolution, UserQuestionStatus,
};

use crate::action::{Action, Refusal};
use crate::progress::{RunStatus, Stage};
use crate::question;
use crate::step::tools::{EXPIRES_AT, args_hash, lost_answer};
use crate::step::{Step, StepResult};
use crate::tool::ToolAnswer;

impl Step {
    /// Applies a person's decision on a tool call.
    pub(super) fn on_approval_resolved(
        &mut self,
        resolution: &ToolApprovalResolution,
    ) -> StepResult {
        self.check_open()?;
        let id = &resolution.id;
        let approvals = self.state.smart.pending_approvals.as_deref().unwrap_or_default();
        let is_open = |a: &&PendingToolApproval| a.status == ToolApprovalStatus::Pending;
        let candidates = || approvals.iter().rev().filter(|approval| resolution.is_for(approval));
        let Some(approval) = candidates().find(is_open).or_else(|| candidates().next()).cloned()
        else {
            return Err(Refusal::not_found(format!("Pending approval not found for id: {id}")));
        };
        if approval.status != ToolApprovalStatus::Pending {
            let status = approval.status;
            let problem = format!("Tool approval {id} was already decided (status: {status}).");
            return Err(Refusal::conflict(problem));
        }
        self.check_not_expired(approval.metadata.as_deref(), id)?;
        let bound = resolution.extras.iter().find(|(name, _)| &**name == "argsHash");
        let bound = bound.and_then(|(_, hash)| hash.tree().root().name());
        if bound.is_some_and(|hash| *hash != *args_hash(&approval.args)) {
            let problem = format!("Tool approval {id} is for other arguments; review it again.");
            return Err(Refusal::conflict(problem));
        }
        let position = self.waiting_position(&approval.id)?;
        if let Some(args) = &resolution.approved_args {
            self.check_approved_args(&approval.tool_name, args)?;
        }
        self.apply_decision(position, &approval, resolution);
        self.resume_after_decision();
        Ok(())
    }

    /// Validates edited arguments from an approval.
    fn check_approved_args(&self, tool: &Name, args: &Json) -> StepResult {
        let checked = match self.state.cast.tool(tool) {
            Some(_) if !args.tree().root().is_object() => {
                Err("the arguments must be an object".to_owned())
            }
            Some(_) => self.state.cast.check(tool, args),
            None => Ok(()),
        };
        checked.map_err(|problem| {
            Refusal::invalid(format!("approvedArgs do not match the schema of {tool}: {problem}"))
        })
    }

    fn apply_decision(
        &mut self,
        position: usize,
        approval: &PendingToolApproval,
        resolution: &ToolApprovalResolution,
    ) {
        let ToolApprovalResolution { approved, approved_args, decided_by, .. } = resolution;
        let (comment, stage, now) = (&resolution.comment, self.stage_of(position), self.now());
        let (status, event_status) = if *approved {
            (ToolApprovalStatus::Approved, ToolApprovalEventStatus::Approved)
        } else {
            (ToolApprovalStatus::Executed, ToolApprovalEventStatus::Rejected)
        };
        self.change_approval(&approval.id, |entry| {
            entry.status = status;
            entry.decided_at = Some(now.clone());
            entry.decided_by.clone_from(decided_by);
            entry.comment.clone_from(comment);
            entry.approved_args.clone_from(approved_args);
            entry.resolved_at = (!approved).then_some(now);
        });
        self.act(Action::Take(approval.id.clone()));
        let (id, tool) = (approval.id.clone(), approval.tool_name.clone());
        let mut event = ToolApprovalEvent::new(event_status, id, tool);
        event.tool_call_id = Some(approval.tool_call_id.clone());
        event.args = approved_args.clone().or_else(|| Some(approval.args.clone()));
        event.decided_by.clone_from(decided_by);
        event.comment.clone_from(comment);
        self.emit(RunEvent::ToolApproval(event));
        if !approved {
            let answer = if matches!(stage, Some(Stage::Approval { lost: true, .. })) {
                lost_answer(comment.as_deref())
            } else {
                let comment = comment.as_deref().unwrap_or("Tool call rejected by reviewer.");
                ToolAnswer::denied(format!("Tool call rejected: {comment}"))
            };
            return self.settle(position, &answer);
        }
        if let Some(open) = self.state.progress.calls.get_mut(position) {
            (open.args, open.stage) = (approved_args.clone(), Stage::Queued);
        }
        let is_client = self.state.cast.tool(&approval.tool_name).is_some_and(|spec| spec.client);
        if let Some(call) = self.call_at(position).filter(|_| is_client) {
            self.ask_client(position, &call);
        }
    }

    /// Applies a person's response to a question: an answer, or a refusal to answer.
    pub(super) fn on_question_resolved(
        &mut self,
        resolution: &UserQuestionResolution,
    ) -> StepResult {
        self.check_open()?;
        let id = &resolution.id;
        let questions = self.state.smart.pending_user_questions.as_deref().unwrap_or_default();
        let is_open = |q: &&PendingUserQuestion| q.status == UserQuestionStatus::Pending;
        let candidates = || questions.iter().rev().filter(|question| resolution.is_for(question));
        let Some(question) = candidates().find(is_open).or_else(|| candidates().next()).cloned()
        else {
            let problem = format!("Pending user question not found for id: {id}");
            return Err(Refusal::not_found(problem));
        };
        if question.status != UserQuestionStatus::Pending {
            let status = question.status;
            let problem = format!("User question {id} already resolved (status: {status}).");
            return Err(Refusal::conflict(problem));
        }
        self.check_not_expired(question.metadata.as_deref(), id)?;
        let position = self.waiting_position(&question.id)?;
        let answers = match resolution.cancelled {
            Some(true) => None,
            Some(false) | None => {
                Some(question::answers(&question, resolution).map_err(Refusal::invalid)?)
            }
        };
        let now = self.now();
        self.change_question(&question.id, |entry| {
            // The status becomes `executed` when the model has replied to the answer.
            entry.status = match answers {
                Some(_) => UserQuestionStatus::Answered,
                None => UserQuestionStatus::Cancelled,
            };
            entry.was_returned_by = Some(now);
            entry.answered_by.clone_from(&resolution.answered_by);
            entry.answers.clone_from(&answers);
            entry.cancelled = answers.is_none().then_some(true);
            entry.notes.clone_from(&resolution.notes);
        });
        let (id, call) = (question.id, question.tool_call_id);
        self.act(Action::Take(id.clone()));
        let event_status = match answers {
            Some(_) => UserQuestionEventStatus::Answered,
            None => UserQuestionEventStatus::Cancelled,
        };
        let mut event = UserQuestionEvent::new(event_status, id, call);
        event.answers.clone_from(&answers);
        event.answered_by.clone_from(&resolution.answered_by);
        event.allow_free_text = question.allow_free_text;
        self.emit(RunEvent::UserQuestion(event));
        let answer = question::tool_result(event_status, answers.as_ref(), resolution);
        self.settle(position, &ToolAnswer::value(&answer));
        self.resume_after_decision();
        Ok(())
    }

    /// Settles the call that waits for an expired request.
    pub(super) fn on_request_expired(&mut self, id: &Name) -> StepResult {
        self.check_open()?;
        let position = self.waiting_position(id)?;
        let now = self.now();
        let answer = match self.stage_of(position) {
            Some(Stage::Approval { lost, .. }) => {
                self.change_approval(id, |entry| {
                    entry.status = ToolApprovalStatus::Executed;
                    entry.resolved_at = Some(now);
                    entry.comment = Some("expired".into());
                });
                let text = "Tool call rejected: no decision was made in time.";
                if lost { lost_answer(None) } else { ToolAnswer::denied(text) }
            }
            Some(Stage::Question { .. }) => {
                self.cancel_question(id, "expired");
                ToolAnswer::value(&json::object(|out| {
                    out.string("status", "cancelled").string("notes", "no answer arrived in time");
                }))
            }
            _ => {
                return Err(Refusal::conflict(format!(
                    "cannot expire request {id}: it has no time limit"
                )));
            }
        };
        self.settle(position, &answer);
        self.resume_after_decision();
        Ok(())
    }

    /// Continues the run after a decision, unless other calls are still waiting.
    pub(super) fn resume_after_decision(&mut self) {
        self.exclude_wait_time();
        self.mark_awaiting();
        if !self.has_pending_call() {
            self.set_status(RunStatus::Running, None);
        }
        self.continue_calls();
    }

    /// Moves the start of the running time forward by the duration of the wait for a person, so
    /// that the wait is not counted.
    fn exclude_wait_time(&mut self) {
        let Some(waited) = self.state.progress.waits_since.take() else { return };
        let since = self.state.progress.since.parse::<Timestamp>();
        if let (Ok(since), Ok(waited)) = (since, waited.parse()) {
            let later = since.checked_add(self.at.duration_since(waited)).unwrap_or(self.at);
            self.state.progress.since = Name::from(later.to_string());
        }
    }

    /// Stores the first pending approval and the first pending question in `ctx`, and removes each
    /// from `ctx` once it is resolved.
    pub(super) fn mark_awaiting(&mut self) {
        let calls = &self.state.progress.calls;
        let is_waiting = |id: &Name| calls.iter().any(|call| call.stage.pending() == Some(id));
        let mut approvals = self.state.smart.pending_approvals.iter().flatten();
        let approval = approvals.find(|entry| is_waiting(&entry.id)).map(|entry| {
            json::object(|out| {
                out.string("approvalId", &entry.id).string("toolCallId", &entry.tool_call_id);
                out.string("toolName", &entry.tool_name);
                out.string("requestedAt", &entry.requested_at);
            })
        });
        let mut questions = self.state.smart.pending_user_questions.iter().flatten();
        let question = questions.find(|entry| is_waiting(&entry.id)).map(|entry| {
            json::object(|out| {
                out.string("questionId", &entry.id).string("toolCallId", &entry.tool_call_id);
                out.string("requestedAt", &entry.requested_at);
            })
        });
        self.set_context("__awaitingApproval", approval);
        self.set_context("__awaitingUserQuestion", question);
    }

    /// Resolves all pending approvals and questions when the run ends.
    pub(super) fn close_pending(&mut self, reason: &str) {
        let approvals = self.state.smart.pending_approvals.iter().flatten();
        let open = approvals.filter(|entry| entry.status == ToolApprovalStatus::Pending);
        for id in open.map(|entry| entry.id.clone()).collect::<Vec<_>>() {
            self.change_approval(&id, |entry| {
                entry.status = ToolApprovalStatus::Executed;
                entry.comment = Some(reason.into());
            });
        }
        let questions = self.state.smart.pending_user_questions.iter().flatten();
        let open = questions.filter(|entry| entry.status == UserQuestionStatus::Pending);
        for id in open.map(|entry| entry.id.clone()).collect::<Vec<_>>() {
            self.cancel_question(&id, reason);
        }
        self.set_context("__awaitingApproval", None);
        self.set_context("__awaitingUserQuestion", None);
    }

    fn check_not_expired(&self, metadata: Option<&[(Name, Json)]>, id: &Name) -> StepResult {
        match expiry(metadata) {
            Some(expiry) if expiry <= self.at => {
                Err(Refusal::conflict(format!("request {id} has expired")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the index of the call that waits for this request.
    fn waiting_position(&self, id: &Name) -> Result<usize, Refusal> {
        let calls = &self.state.progress.calls;
        let found = calls.iter().position(|call| call.stage.pending() == Some(id));
        found.ok_or_else(|| Refusal::conflict(format!("request {id} is no longer pending")))
    }

    fn change_approval(&mut self, id: &Name, change: impl FnOnce(&mut PendingToolApproval)) {
        let mut entries = self.state.smart.pending_approvals.iter_mut().flatten();
        if let Some(entry) = entries.find(|entry| entry.id == *id) {
            change(entry);
        }
        self.write_approvals();
    }

    fn change_question(&mut self, id: &Name, change: impl FnOnce(&mut PendingUserQuestion)) {
        let mut entries = self.state.smart.pending_user_questions.iter_mut().flatten();
        if let Some(entry) = entries.find(|entry| entry.id == *id) {
            change(entry);
        }
        self.write_questions();
    }

    /// Marks all answered questions as executed, because the model has their answers. In a restored
    /// run, answered questions have the ids of the original run.
    pub(super) fn mark_answers_delivered(&mut self) {
        let questions = self.state.smart.pending_user_questions.iter_mut().flatten();
        let mut is_changed = false;
        for entry in questions.filter(|entry| entry.status == UserQuestionStatus::Answered) {
            entry.status = UserQuestionStatus::Executed;
            is_changed = true;
        }
        if is_changed {
            self.set_questions();
        }
    }

    fn cancel_question(&mut self, id: &Name, reason: &str) {
        self.change_question(id, |entry| {
            entry.status = UserQuestionStatus::Cancelled;
            entry.cancelled = Some(true);
            entry.notes = Some(reason.into());
        });
    }

    /// Removes settled approvals of other runs from the list of approvals, and writes the list to
    /// the documented state.
    pub(super) fn write_approvals(&mut self) {
        let run = format!("{}.", self.state.progress.run);
        let list = self.state.smart.pending_approvals.get_or_insert_default();
        list.retain(|entry| {
            entry.id.starts_with(&run) || entry.status == ToolApprovalStatus::Pending
        });
        let list = json::array_of(&list.iter().map(PendingToolApproval::json).collect::<Vec<_>>());
        self.set("pendingApprovals", list);
    }

    /// Removes settled questions of other runs from the list of questions, and writes the list to
    /// the documented state.
    pub(super) fn write_questions(&mut self) {
        let run = format!("{}.", self.state.progress.run);
        let list = self.state.smart.pending_user_questions.get_or_insert_default();
        list.retain(|entry| match entry.status {
            UserQuestionStatus::Pending | UserQuestionStatus::Answered => true,
            UserQuestionStatus::Cancelled | UserQuestionStatus::Executed => {
                entry.id.starts_with(&run)
            }
        });
        self.set_questions();
    }

    fn set_questions(&mut self) {
        let list = self.state.smart.pending_user_questions.as_deref().unwrap_or_default();
        let list = json::array_of(&list.iter().map(PendingUserQuestion::json).collect::<Vec<_>>());
        self.set("pendingUserQuestions", list);
    }
}

/// Returns the expiry time in a request's metadata.
pub(crate) fn expiry(metadata: Option<&[(Name, Json)]>) -> Option<Timestamp> {
    let (_, at) = metadata?.iter().find(|(name, _)| &**name == EXPIRES_AT)?;
    at.tree().root().text()?.parse().ok()
}
