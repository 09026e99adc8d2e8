//! Handles approvals, answers to questions, and expired requests.

use throughline_json::{self as json, Json, Name};
use throughline_spec::{
    PendingToolApproval, PendingUserQuestion, RunEvent, ToolApprovalEvent, ToolApprovalEventStatus,
    ToolApprovalResolution, ToolApprovalStatus, UserQuestionEvent, UserQuestionEventStatus,
    UserQuestionResolution, UserQuestionStatus,
};

use crate::action::{Action, Refusal};
use crate::progress::{RunStatus, Stage};
use crate::question;
use crate::step::tools::{args_hash, check_arguments, lost_answer};
use crate::step::{Step, StepResult};
use crate::tool::ToolAnswer;

impl Step {
    /// Applies a decision on a tool call.
    pub(super) fn on_approval_resolved(
        &mut self,
        resolution: &ToolApprovalResolution,
    ) -> StepResult {
        self.check_open()?;
        let id = &resolution.id;
        let approvals = self.state.smart.pending_approvals.as_deref().unwrap_or_default();
        let is_open = |a: &&PendingToolApproval| a.status == ToolApprovalStatus::Pending;
        let meant = || approvals.iter().rev().filter(|approval| resolution.is_for(approval));
        let Some(approval) = meant().find(is_open).or_else(|| meant().next()).cloned() else {
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
        let spec = self.state.cast.tool(&approval.tool_name).cloned();
        if let (Some(args), Some(spec)) = (&resolution.approved_args, &spec) {
            check_arguments(self, spec, args).map_err(|problem| {
                Refusal::invalid(format!("approvedArgs do not fit the schema: {problem}"))
            })?;
        }
        self.apply_decision(position, &approval, resolution);
        self.resume_after_decision();
        Ok(())
    }

    fn apply_decision(
        &mut self,
        position: usize,
        approval: &PendingToolApproval,
        resolution: &ToolApprovalResolution,
    ) {
        let lost = matches!(
            self.open_call(position).map(|open| &open.stage),
            Some(Stage::Approval { lost: true, .. })
        );
        let now = self.now();
        let is_client = self.state.cast.tool(&approval.tool_name).is_some_and(|spec| spec.client);
        let status = if resolution.approved {
            ToolApprovalStatus::Approved
        } else {
            ToolApprovalStatus::Executed
        };
        self.change_approval(&approval.id, |entry| {
            entry.status = status;
            entry.decided_at = Some(now.clone());
            entry.decided_by.clone_from(&resolution.decided_by);
            entry.comment.clone_from(&resolution.comment);
            entry.approved_args.clone_from(&resolution.approved_args);
            entry.resolved_at = (!resolution.approved).then(|| now.clone());
        });
        self.act(Action::Take(approval.id.clone()));
        let word = if resolution.approved {
            ToolApprovalEventStatus::Approved
        } else {
            ToolApprovalEventStatus::Rejected
        };
        let mut event =
            ToolApprovalEvent::new(word, approval.id.clone(), approval.tool_name.clone());
        event.tool_call_id = Some(approval.tool_call_id.clone());
        event.args = resolution.approved_args.clone().or_else(|| Some(approval.args.clone()));
        event.decided_by.clone_from(&resolution.decided_by);
        event.comment.clone_from(&resolution.comment);
        self.emit(RunEvent::ToolApproval(event));
        if !resolution.approved {
            let answer = if lost {
                lost_answer(resolution.comment.as_deref())
            } else {
                let comment =
                    resolution.comment.as_deref().unwrap_or("Tool call rejected by reviewer.");
                let text = format!("Tool call rejected: {comment}");
                ToolAnswer::denied(text)
            };
            return self.settle(position, &answer);
        }
        if let Some(open) = self.state.progress.calls.get_mut(position) {
            open.args.clone_from(&resolution.approved_args);
            open.stage = Stage::Queued;
        }
        let call = self.call_at(position).filter(|_| is_client);
        if let Some(call) = call {
            self.ask_client(position, &call);
        }
    }

    /// Applies an answer to a question, or its refusal.
    pub(super) fn on_question_resolved(
        &mut self,
        resolution: &UserQuestionResolution,
    ) -> StepResult {
        self.check_open()?;
        let id = &resolution.id;
        let questions = self.state.smart.pending_user_questions.as_deref().unwrap_or_default();
        let is_open = |q: &&PendingUserQuestion| q.status == UserQuestionStatus::Pending;
        let meant = || questions.iter().rev().filter(|question| resolution.is_for(question));
        let Some(asked) = meant().find(is_open).or_else(|| meant().next()).cloned() else {
            return Err(Refusal::not_found(format!(
                "Pending user question not found for id: {id}"
            )));
        };
        if asked.status != UserQuestionStatus::Pending {
            let problem =
                format!("User question {id} already resolved (status: {}).", asked.status);
            return Err(Refusal::conflict(problem));
        }
        self.check_not_expired(asked.metadata.as_deref(), id)?;
        let position = self.waiting_position(&asked.id)?;
        let is_cancelled = resolution.cancelled == Some(true);
        let answers = if is_cancelled {
            throughline_spec::UserQuestionAnswerSet::default()
        } else {
            question::answers(&asked, resolution).map_err(Refusal::invalid)?
        };
        let (status, word) = if is_cancelled {
            (UserQuestionStatus::Cancelled, UserQuestionEventStatus::Cancelled)
        } else {
            (UserQuestionStatus::Answered, UserQuestionEventStatus::Answered)
        };
        let now = self.now();
        self.change_question(&asked.id, |entry| {
            // The model receives the answer now, so its status is `executed`; a refusal keeps its
            // status.
            entry.status = if is_cancelled { status } else { UserQuestionStatus::Executed };
            entry.was_returned_by = Some(now);
            entry.answered_by.clone_from(&resolution.answered_by);
            entry.answers = (!is_cancelled).then(|| answers.clone());
            entry.cancelled = is_cancelled.then_some(true);
            entry.notes.clone_from(&resolution.notes);
        });
        self.act(Action::Take(asked.id.clone()));
        let mut event = UserQuestionEvent::new(word, asked.id.clone(), asked.tool_call_id.clone());
        event.answers = (!is_cancelled).then(|| answers.clone());
        event.answered_by.clone_from(&resolution.answered_by);
        event.allow_free_text = asked.allow_free_text;
        self.emit(RunEvent::UserQuestion(event));
        let answer = ToolAnswer::value(&question::tool_result(status, &answers, resolution));
        self.settle(position, &answer);
        self.resume_after_decision();
        Ok(())
    }

    /// Applies the expiry of a request.
    pub(super) fn on_request_expired(&mut self, id: &Name) -> StepResult {
        self.check_open()?;
        let position = self.waiting_position(id)?;
        let stage = self.open_call(position).map(|open| open.stage.clone());
        let now = self.now();
        match stage {
            Some(Stage::Approval { lost, .. }) => {
                self.change_approval(id, |entry| {
                    entry.status = ToolApprovalStatus::Executed;
                    entry.resolved_at = Some(now);
                    entry.comment = Some("expired".into());
                });
                let answer = if lost {
                    lost_answer(None)
                } else {
                    let text = "Tool call rejected: no decision was made in time.";
                    ToolAnswer::denied(text)
                };
                self.settle(position, &answer);
            }
            Some(Stage::Question { .. }) => {
                self.change_question(id, |entry| {
                    entry.status = UserQuestionStatus::Cancelled;
                    entry.cancelled = Some(true);
                    entry.notes = Some("expired".into());
                });
                let answer = json::object(|out| {
                    out.string("status", "cancelled");
                    out.string("notes", "no answer arrived in time");
                });
                self.settle(position, &ToolAnswer::value(&answer));
            }
            _ => return Err(Refusal::conflict(format!("{id} does not expire"))),
        }
        self.resume_after_decision();
        Ok(())
    }

    /// Continues the run after a decision.
    pub(super) fn resume_after_decision(&mut self) {
        self.exclude_wait_time();
        let waits = self.state.progress.calls.iter().any(|call| call.stage.pending().is_some());
        self.mark_awaiting();
        if !waits {
            self.set_status(RunStatus::Running, None);
        }
        self.continue_calls();
    }

    /// Excludes the time spent waiting for a person.
    fn exclude_wait_time(&mut self) {
        let Some(waited) = self.state.progress.waits_since.take() else { return };
        let (since, waited) = (self.state.progress.since.parse(), waited.parse());
        if let (Ok(since), Ok(waited)) = (since, waited) {
            let (since, waited): (jiff::Timestamp, jiff::Timestamp) = (since, waited);
            let later = since.checked_add(self.at.duration_since(waited)).unwrap_or(self.at);
            self.state.progress.since = Name::from(later.to_string());
        }
    }

    /// Keeps the ids of the first pending approval and question in `ctx` while they are pending.
    pub(super) fn mark_awaiting(&mut self) {
        let calls = &self.state.progress.calls;
        let waits = |id: &Name| calls.iter().any(|call| call.stage.pending() == Some(id));
        let approvals = self.state.smart.pending_approvals.iter().flatten();
        let approval = approvals.into_iter().find(|entry| waits(&entry.id)).map(|entry| {
            json::object(|out| {
                out.string("approvalId", &entry.id);
                out.string("toolCallId", &entry.tool_call_id);
                out.string("toolName", &entry.tool_name);
                out.string("requestedAt", &entry.requested_at);
            })
        });
        let questions = self.state.smart.pending_user_questions.iter().flatten();
        let question = questions.into_iter().find(|entry| waits(&entry.id)).map(|entry| {
            json::object(|out| {
                out.string("questionId", &entry.id);
                out.string("toolCallId", &entry.tool_call_id);
                out.string("requestedAt", &entry.requested_at);
            })
        });
        self.set_context("__awaitingApproval", approval);
        self.set_context("__awaitingUserQuestion", question);
    }

    /// Resolves all requests that are still pending.
    pub(super) fn close_pending(&mut self, why: &str) {
        let comment = Name::from(why);
        let approvals = self.state.smart.pending_approvals.iter().flatten();
        let open = approvals.filter(|entry| entry.status == ToolApprovalStatus::Pending);
        for id in open.map(|entry| entry.id.clone()).collect::<Vec<_>>() {
            self.change_approval(&id, |entry| {
                entry.status = ToolApprovalStatus::Executed;
                entry.comment = Some(comment.clone());
            });
        }
        let questions = self.state.smart.pending_user_questions.iter().flatten();
        let open = questions.filter(|entry| entry.status == UserQuestionStatus::Pending);
        for id in open.map(|entry| entry.id.clone()).collect::<Vec<_>>() {
            self.change_question(&id, |entry| {
                entry.status = UserQuestionStatus::Cancelled;
                entry.cancelled = Some(true);
                entry.notes = Some(comment.clone());
            });
        }
        self.set_context("__awaitingApproval", None);
        self.set_context("__awaitingUserQuestion", None);
    }

    fn check_not_expired(&self, metadata: Option<&[(Name, Json)]>, id: &Name) -> StepResult {
        let expires = metadata.into_iter().flatten().find(|(name, _)| &**name == "expiresAt");
        let expires = expires.and_then(|(_, at)| at.tree().root().text()?.parse().ok());
        if expires.is_some_and(|expires: jiff::Timestamp| expires <= self.at) {
            return Err(Refusal::conflict(format!("{id} has expired")));
        }
        Ok(())
    }

    /// Returns the position of the call that waits for this request.
    fn waiting_position(&self, id: &Name) -> Result<usize, Refusal> {
        let calls = &self.state.progress.calls;
        let found = calls.iter().position(|call| call.stage.pending() == Some(id));
        found.ok_or_else(|| Refusal::conflict(format!("{id} is no longer pending")))
    }

    fn change_approval(&mut self, id: &Name, change: impl FnOnce(&mut PendingToolApproval)) {
        let entries = self.state.smart.pending_approvals.iter_mut().flatten();
        if let Some(entry) = entries.into_iter().find(|entry| entry.id == *id) {
            change(entry);
        }
        self.write_approvals();
    }

    fn change_question(&mut self, id: &Name, change: impl FnOnce(&mut PendingUserQuestion)) {
        let entries = self.state.smart.pending_user_questions.iter_mut().flatten();
        if let Some(entry) = entries.into_iter().find(|entry| entry.id == *id) {
            change(entry);
        }
        self.write_questions();
    }

    /// Writes the list of approvals, without settled entries of other runs.
    pub(super) fn write_approvals(&mut self) {
        let run = format!("{}.", self.state.progress.run);
        let list = self.state.smart.pending_approvals.get_or_insert_default();
        list.retain(|entry| {
            entry.id.starts_with(&run) || entry.status == ToolApprovalStatus::Pending
        });
        let list = json::array_of(&list.iter().map(PendingToolApproval::json).collect::<Vec<_>>());
        self.set("pendingApprovals", list);
    }

    pub(super) fn write_questions(&mut self) {
        let run = format!("{}.", self.state.progress.run);
        let list = self.state.smart.pending_user_questions.get_or_insert_default();
        list.retain(|entry| {
            entry.id.starts_with(&run) || entry.status == UserQuestionStatus::Pending
        });
        let list = json::array_of(&list.iter().map(PendingUserQuestion::json).collect::<Vec<_>>());
        self.set("pendingUserQuestions", list);
    }
}
