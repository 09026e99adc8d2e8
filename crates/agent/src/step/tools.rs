//! Handles tool calls: checks, starts and settles them.

use std::time::Duration;

use throughline_core::{Body, ItemPosition, Outcome, ToolCall};
use throughline_json::{self as json, Json, Name, Number};
use throughline_spec::{
    EventError, HandoffEvent, PendingToolApproval, PendingUserQuestion, QuestionTool, RunEvent,
    ToolApprovalEvent, ToolApprovalEventStatus, ToolApprovalStatus, ToolCallEvent, ToolCallPhase,
    ToolExecution, ToolExecutionStatus, UserQuestionEvent, UserQuestionEventStatus,
    UserQuestionStatus,
};

use crate::action::{Action, HumanRequest, HumanRequestKind, Refusal, ToolRun};
use crate::config::UnknownOutcome;
use crate::input::{OpenCalls, ToolCompletion};
use crate::narrate::{OUTCOME, UNKNOWN};
use crate::plan::{self, MANAGE_TODO_LIST, PlanOutcome};
use crate::progress::{OpenCall, Phase, RunStatus, Stage};
use crate::question::{self, ASK_USER_QUESTION};
use crate::roster::GET_TOOL_RESPONSE;
use crate::step::{Step, StepResult};
use crate::tool::ToolAnswer;
use crate::window::{WindowItem, result_item};

/// Maximum number of archived results that the model may retrieve per run.
const MAX_RESTORED: u64 = 8;
/// Maximum length of a result in the tool history. For a longer result, the history contains the id
/// of the result's Thread Item.
const SHORT: usize = 256;

/// Key of the expiry time in a request's metadata.
pub(super) const EXPIRES_AT: &str = "expiresAt";

impl Step {
    /// Checks that the tool exists and that the arguments match the tool's schema. Requests
    /// approval if the call needs one.
    pub(super) fn check_call(&mut self, position: usize) {
        let Some(call) = self.call_at(position) else { return };
        if let Err(problem) = self.state.cast.check(&call.name, &call.args) {
            let tool = &call.name;
            let error = format!("The arguments of {tool} do not match its schema: {problem}");
            return self.settle_error(position, error);
        }
        match &*call.name {
            MANAGE_TODO_LIST => self.manage_plan(position, &call),
            ASK_USER_QUESTION => self.ask_person(position, &call),
            GET_TOOL_RESPONSE => self.restore_archived(position, &call),
            _ => self.check_declared_tool(position, &call),
        }
    }

    fn check_declared_tool(&mut self, position: usize, call: &ToolCall) {
        let part = self.state.current_agent();
        if let Some(to) = part.and_then(|part| part.handoff(&call.name)).cloned() {
            return self.hand_over(position, call, &to);
        }
        let Some(spec) = self.state.cast.tool(&call.name).cloned() else {
            let available = self.state.cast.casting.tools.iter().map(|spec| &*spec.name);
            let available = match available.collect::<Vec<_>>().join(", ") {
                names if names.is_empty() => "there are none".to_owned(),
                names => names,
            };
            let error = format!("There is no tool named {}: {available}.", call.name);
            return self.settle_error(position, error);
        };
        let limit = part.and_then(|part| part.limits.max_tool_calls);
        let by_rule = part.is_some_and(|part| part.needs_approval(&spec));
        if limit.is_some_and(|limit| self.state.progress.tool_calls >= limit) {
            return self.skip(position);
        }
        self.state.progress.tool_calls += 1;
        if by_rule || self.open_calls == OpenCalls::NeedApproval {
            self.ask_approval(position, call, false);
        } else if spec.client {
            self.ask_client(position, call);
        }
    }

    fn manage_plan(&mut self, position: usize, call: &ToolCall) {
        let tree = call.args.tree();
        let version = self.state.smart.plan_version.unwrap_or(0);
        let answer = match plan::manage(tree.root(), self.state.plan(), version, self.now()) {
            Ok(PlanOutcome { answer, plan, event }) => {
                if let Some(plan) = plan {
                    self.set("plan", plan.json());
                    self.set("planVersion", Json::from(plan.version));
                    self.state.smart.plan_version = Some(plan.version);
                    self.state.smart.plan = Some(json::Nullable::Value(plan));
                }
                self.emit(RunEvent::Plan(event));
                ToolAnswer::value(&answer)
            }
            Err(problem) => {
                let answer = json::object(|out| {
                    out.string("status", "error").string("message", problem);
                });
                ToolAnswer { outcome: Outcome::Error, ..ToolAnswer::value(&answer) }
            }
        };
        self.settle(position, &answer);
    }

    fn ask_person(&mut self, position: usize, call: &ToolCall) {
        let part = self.state.current_agent();
        let Some(settings) = part.and_then(|part| part.config.human_in_the_loop.ask_user.clone())
        else {
            return self.settle_error(position, "This agent cannot ask questions.");
        };
        let (id, call_id, now) = (self.fresh_id("q"), call.id.0.clone(), self.now());
        let items = match question::parse_questions(&call.args, settings.allow_free_text) {
            Ok(items) => items,
            Err(problem) => return self.settle_error(position, problem),
        };
        let status = UserQuestionEventStatus::Pending;
        let mut event = UserQuestionEvent::new(status, id.clone(), call_id.clone());
        event.questions = Some(items.clone());
        event.allow_free_text = Some(settings.allow_free_text);
        let (tool, status) = (QuestionTool::AskUserQuestion, UserQuestionStatus::Pending);
        let mut question = PendingUserQuestion::new(id.clone(), call_id, tool, items, status, now);
        question.allow_free_text = Some(settings.allow_free_text);
        let expires_in = settings.expires_ms.map(Duration::from_millis);
        let metadata = settings.metadata.into_iter().filter(|(name, _)| &**name != EXPIRES_AT);
        let metadata = metadata.chain(self.metadata(expires_in).into_iter().flatten());
        question.metadata =
            Some(metadata.collect()).filter(|metadata: &Vec<_>| !metadata.is_empty());
        self.state.smart.pending_user_questions.get_or_insert_default().push(question);
        self.write_questions();
        let kind = HumanRequestKind::Question;
        self.await_request(position, Stage::Question { id }, kind, expires_in);
        self.emit(RunEvent::UserQuestion(event));
    }

    /// Requests approval for a call. If the call is `lost`, requests a decision about the outcome
    /// of the call.
    pub(super) fn ask_approval(&mut self, position: usize, call: &ToolCall, lost: bool) {
        let id = self.fresh_id("a");
        let part = self.state.current_agent();
        let expires_in = part.and_then(|part| part.config.human_in_the_loop.approval_expires_ms);
        let expires_in = expires_in.map(Duration::from_millis);
        let (call_id, tool, args) = (call.id.0.clone(), call.name.clone(), call.args.clone());
        let (status, now) = (ToolApprovalStatus::Pending, self.now());
        let mut approval = PendingToolApproval::new(id.clone(), call_id, tool, args, status, now);
        let mut metadata = self.metadata(expires_in).unwrap_or_default();
        metadata.push(("argsHash".into(), json::string(&args_hash(&call.args))));
        if lost {
            metadata.push(("outcome".into(), json::string("unknown")));
        }
        approval.metadata = Some(metadata);
        let status = ToolApprovalEventStatus::Pending;
        let mut event = ToolApprovalEvent::new(status, id.clone(), call.name.clone());
        event.tool_call_id = Some(call.id.0.clone());
        event.args = Some(call.args.clone());
        self.state.smart.pending_approvals.get_or_insert_default().push(approval);
        self.write_approvals();
        let kind = HumanRequestKind::Approval;
        self.await_request(position, Stage::Approval { id, lost }, kind, expires_in);
        self.emit(RunEvent::ToolApproval(event));
    }

    /// Requests the result of a tool that the caller executes.
    pub(super) fn ask_client(&mut self, position: usize, call: &ToolCall) {
        let stage = Stage::Client { id: self.fresh_id("t") };
        self.await_request(position, stage, HumanRequestKind::Client, None);
        self.emit(RunEvent::ToolCall(self.tool_call_event(call, ToolCallPhase::Start)));
    }

    /// Moves a call to a stage that waits for a request, and creates this request.
    fn await_request(
        &mut self,
        position: usize,
        stage: Stage,
        kind: HumanRequestKind,
        expires_in: Option<Duration>,
    ) {
        let id = stage.pending().cloned().unwrap_or_default();
        self.stage(position, stage);
        self.mark_awaiting();
        self.act(Action::Ask(HumanRequest { id, kind, expires_in }));
    }

    fn metadata(&self, expires_in: Option<Duration>) -> Option<Vec<(Name, Json)>> {
        let expires = self.at.checked_add(expires_in?).ok()?;
        Some(vec![(EXPIRES_AT.into(), json::string(&expires.to_string()))])
    }

    /// Requests that the runner reads an archived result from the Thread.
    fn restore_archived(&mut self, position: usize, call: &ToolCall) {
        self.state.progress.brought_back += 1;
        if self.state.progress.brought_back > MAX_RESTORED {
            let limit = format!("at most {MAX_RESTORED} archived tool results");
            self.settle_error(position, format!("A run can retrieve {limit}."));
        } else if self.state.archive_id(&call.args).is_none() {
            let execution_id = call.args.tree().root().name_of("executionId").unwrap_or_default();
            let error = format!("No archived tool result has the executionId {execution_id}.");
            self.settle_error(position, error);
        }
    }

    fn hand_over(&mut self, position: usize, call: &ToolCall, to: &Name) {
        let mut event = HandoffEvent::new(call.name.clone());
        event.from = Some(self.state.progress.agent.clone());
        event.to = Some(to.clone());
        self.emit(RunEvent::Handoff(event));
        self.state.progress.agent = to.clone();
        // The new agent uses its own model, so a model switch no longer applies.
        self.state.progress.model = None;
        let answer = json::object(|out| {
            out.string("status", "handed over").string("agent", to);
        });
        self.settle_as(position, &ToolAnswer::value(&answer), ToolExecutionStatus::Handoff);
    }

    /// Marks calls as started and requests that their tools run.
    pub(super) fn on_tools_started(&mut self, calls: &[Name]) -> StepResult {
        self.check_open()?;
        for id in calls {
            let (position, now) = (self.position(id)?, self.now());
            let open = self.state.progress.calls.get_mut(position);
            let Some(open) = open.filter(|open| open.stage == Stage::Queued) else { continue };
            (open.stage, open.began) = (Stage::Begun, Some(now));
            if let Some(call) = self.call_at(position) {
                self.emit(RunEvent::ToolCall(self.tool_call_event(&call, ToolCallPhase::Start)));
            }
            self.run_again(position);
        }
        self.state.progress.phase = Phase::Working;
        Ok(())
    }

    /// Runs a started call. Edited arguments from an approval replace the model's arguments.
    pub(super) fn run_again(&mut self, position: usize) {
        let Some(call) = self.call_at(position) else { return };
        let args = self.open_call(position).and_then(|open| open.args.clone());
        let timeout = self.state.cast.tool(&call.name).and_then(|spec| spec.timeout_ms);
        self.act(Action::Run(ToolRun {
            call: call.id.0.clone(),
            tool: call.name.clone(),
            agent: self.state.progress.agent.clone(),
            args: args.unwrap_or(call.args),
            timeout: timeout.map(Duration::from_millis),
        }));
    }

    /// Handles a started call with an unknown outcome, according to the agent's policy. The call
    /// runs again only if a person approves a second execution.
    pub(super) fn mark_lost(&mut self, position: usize) {
        let Some(call) = self.call_at(position) else { return };
        let policy = self.state.current_agent().map(|part| part.config.unknown_outcome);
        match policy.unwrap_or_default() {
            UnknownOutcome::Ask => self.ask_approval(position, &call, true),
            UnknownOutcome::Report => self.settle(position, &lost_answer(None)),
        }
    }

    pub(super) fn on_tool_completed(&mut self, completion: &ToolCompletion) -> StepResult {
        let position = self.position(&completion.call)?;
        if self.stage_of(position) != Some(Stage::Begun) {
            return Err(Refusal::conflict(format!("tool call {} is not running", completion.call)));
        }
        self.settle(position, &completion.answer);
        self.continue_calls();
        Ok(())
    }

    /// Handles results of tools that the caller executes.
    pub(super) fn on_client_tools_returned(&mut self, returned: &[ToolCompletion]) -> StepResult {
        use Stage::{Approval, Begun, Client, Question, Queued};
        self.check_open()?;
        let mut positions = Vec::with_capacity(returned.len());
        for completion in returned {
            let position = self.position(&completion.call)?;
            let problem = match self.stage_of(position) {
                Some(Stage::Client { id }) if !positions.contains(&position) => {
                    self.act(Action::Take(id));
                    positions.push(position);
                    continue;
                }
                Some(Stage::Done) => "already has a result",
                Some(Client { .. } | Queued | Approval { .. } | Question { .. } | Begun) | None => {
                    "does not wait for a result from the caller"
                }
            };
            return Err(Refusal::conflict(format!("call {} {problem}", completion.call)));
        }
        for (position, completion) in positions.into_iter().zip(returned) {
            self.settle(position, &completion.answer);
        }
        self.resume_after_decision();
        Ok(())
    }

    /// Starts further calls up to the parallelism limit. Continues the run when all calls have
    /// results.
    pub(super) fn continue_calls(&mut self) {
        let calls = &self.state.progress.calls;
        let running = calls.iter().filter(|call| call.stage == Stage::Begun).count();
        let limit = self.state.current_agent().and_then(|part| part.limits.max_parallel_tools);
        let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let queued = calls.iter().filter(|call| call.stage == Stage::Queued);
        let next = queued.take(limit.saturating_sub(running)).map(|call| call.id.clone());
        let next: Vec<Name> = next.collect();
        if !next.is_empty() {
            self.state.progress.phase = Phase::Working;
            self.act(Action::Begin(next));
        } else if running > 0 {
            self.state.progress.phase = Phase::Working;
        } else if self.has_pending_call() {
            self.state.progress.phase = Phase::Waiting;
            self.state.progress.waits_since = Some(self.now());
            self.set_status(RunStatus::Waiting, Some(self.wait_reason()));
            self.act(Action::Rest);
        } else {
            self.state.progress.calls.clear();
            self.after_tools();
        }
    }

    fn wait_reason(&self) -> Name {
        let stages = self.state.progress.calls.iter().map(|call| match call.stage {
            Stage::Approval { .. } => "an approval",
            Stage::Question { .. } => "an answer",
            _ => "the caller's tools",
        });
        let mut reasons: Vec<&str> = stages.collect();
        reasons.dedup();
        format!("waits for {}", reasons.join(" and ")).into()
    }

    pub(super) fn settle(&mut self, position: usize, answer: &ToolAnswer) {
        let status = match answer.outcome {
            Outcome::Ok => ToolExecutionStatus::Success,
            Outcome::Error => ToolExecutionStatus::Error,
            Outcome::Unknown => ToolExecutionStatus::Unknown,
            Outcome::Denied => ToolExecutionStatus::Rejected,
        };
        self.settle_as(position, answer, status);
    }

    fn settle_error(&mut self, position: usize, error: impl Into<Name>) {
        self.settle(position, &ToolAnswer::error(error));
    }

    /// Settles a call as skipped, because the tool-call limit is reached.
    pub(super) fn skip(&mut self, position: usize) {
        let answer = ToolAnswer::denied("Skipped: the tool-call limit was reached.");
        self.settle_as(position, &answer, ToolExecutionStatus::Skipped);
    }

    fn settle_as(&mut self, position: usize, answer: &ToolAnswer, status: ToolExecutionStatus) {
        let Some(call) = self.call_at(position) else { return };
        let began = self.open_call(position).and_then(|open| open.began.clone());
        self.stage(position, Stage::Done);
        let (id, now) = (self.fresh_id("i"), self.now());
        let part = u32::try_from(position).unwrap_or(u32::MAX);
        let place = ItemPosition { message: self.state.progress.answers_at, part };
        let item = result_item(id.clone(), place, &call, answer);
        // The end of the call was not observed, so the elapsed time is not the tool's duration.
        let is_unknown = answer.outcome == Outcome::Unknown;
        let took = began.as_ref().filter(|_| !is_unknown).and_then(|began| {
            let began: jiff::Timestamp = began.parse().ok()?;
            u64::try_from(self.at.duration_since(began).as_millis()).ok()
        });
        let text = answer.to_text();
        let short: Name = text.get(..text.floor_char_boundary(500)).unwrap_or_default().into();
        let phase = match status {
            ToolExecutionStatus::Success | ToolExecutionStatus::Handoff => ToolCallPhase::Success,
            ToolExecutionStatus::Skipped => ToolCallPhase::Skipped,
            _ => ToolCallPhase::Error,
        };
        let mut event = self.tool_call_event(&call, phase);
        let args = event.args.clone().unwrap_or(call.args);
        let mut execution = ToolExecution::new(call.id.0.clone(), call.name, args);
        execution.output = (text.len() <= SHORT).then(|| json::string(&text));
        execution.timestamp = Some(now.clone());
        execution.message_id = Some(id);
        execution.tool_call_id = Some(call.id.0);
        execution.status = Some(status);
        execution.started_at = began;
        execution.ended_at = Some(now);
        execution.duration_ms = took.map(Number::from);
        execution.error = (answer.outcome == Outcome::Error).then(|| short.clone());
        self.add("toolHistory", execution.json());
        self.state.smart.tool_history.get_or_insert_default().push(execution);
        self.append_items(vec![item]);
        event.result = Some(json::string(&text));
        event.error = (phase == ToolCallPhase::Error).then(|| EventError::new(short));
        event.duration_ms = took.map(Number::from);
        if is_unknown {
            event.extras.push((OUTCOME.into(), json::string(UNKNOWN)));
        }
        self.emit(RunEvent::ToolCall(event));
    }

    /// Builds a tool call event with the arguments that are actually used. An approval may have
    /// edited the model's arguments.
    fn tool_call_event(&self, call: &ToolCall, phase: ToolCallPhase) -> ToolCallEvent {
        let open = self.state.progress.calls.iter().find(|open| open.id == call.id.0);
        let args = open.and_then(|open| open.args.clone()).unwrap_or_else(|| call.args.clone());
        let mut event = ToolCallEvent::new(phase, call.name.clone());
        (event.id, event.args) = (Some(call.id.0.clone()), Some(args));
        event
    }

    /// Marks the results of summarised calls as archived. The results themselves stay in the
    /// Thread.
    pub(super) fn archive(&mut self, covered: &[WindowItem]) {
        let history = self.state.smart.tool_history.get_or_insert_default();
        let mut archived = Vec::new();
        for entry in covered {
            let Body::Result(result) = &entry.item.body else { continue };
            let call = Some(&result.call.0);
            let is_same_call = |execution: &ToolExecution| execution.tool_call_id.as_ref() == call;
            if let Some(position) = history.iter().position(is_same_call) {
                let mut execution = history.remove(position);
                execution.archive_id = Some(entry.seq.to_string().into());
                archived.push(execution);
            }
        }
        if archived.is_empty() {
            return;
        }
        let remaining =
            json::array_of(&history.iter().map(ToolExecution::json).collect::<Vec<_>>());
        self.set("toolHistory", remaining);
        for execution in archived {
            self.add("toolHistoryArchived", execution.json());
            self.state.smart.tool_history_archived.get_or_insert_default().push(execution);
        }
    }

    pub(super) fn open_call(&self, position: usize) -> Option<&OpenCall> {
        self.state.progress.calls.get(position)
    }

    pub(super) fn stage_of(&self, position: usize) -> Option<Stage> {
        self.open_call(position).map(|open| open.stage.clone())
    }

    /// Returns whether any call waits for a person or the caller.
    pub(super) fn has_pending_call(&self) -> bool {
        self.state.progress.calls.iter().any(|call| call.stage.pending().is_some())
    }

    pub(super) fn stage(&mut self, position: usize, stage: Stage) {
        if let Some(open) = self.state.progress.calls.get_mut(position) {
            open.stage = stage;
        }
    }

    pub(super) fn call_at(&self, position: usize) -> Option<ToolCall> {
        self.state.window.call(&self.open_call(position)?.id).cloned()
    }

    fn position(&self, call: &str) -> Result<usize, Refusal> {
        let found = self.state.progress.calls.iter().position(|open| *open.id == *call);
        found
            .ok_or_else(|| Refusal::not_found(format!("there is no open tool call with id {call}")))
    }
}

/// Builds the result that reports an unknown outcome to the model.
pub(super) fn lost_answer(comment: Option<&str>) -> ToolAnswer {
    let comment = comment.map_or_else(String::new, |comment| format!(" A person adds: {comment}"));
    let text = format!(
        "The process that ran this tool stopped before the result was stored. It is unknown whether \
         the tool took effect; check before you call it again.{comment}"
    );
    ToolAnswer::unknown(text)
}

/// Returns the digest of the exact arguments. An approval is valid only for this digest.
pub(crate) fn args_hash(args: &Json) -> String {
    blake3::hash(args.bytes()).to_hex().to_string()
}
