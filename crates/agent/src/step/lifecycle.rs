//! Handles the start, recovery and cancellation of a run, and model switches.

use throughline_core::{Body, Item, ItemId, ItemPosition, Outcome, Role};
use throughline_json::Name;
use throughline_spec::{CancelledEvent, HandoffEvent, RunEvent};

use crate::action::{Action, Refusal};
use crate::compact;
use crate::plan::continued_plan_event;
use crate::progress::{Phase, Purpose, RunStatus, Stage};
use crate::step::{Step, StepResult};
use crate::tool::ToolAnswer;

impl Step {
    pub(super) fn check_not_started(&self) -> StepResult {
        if self.state.progress.turn > 0 || self.state.progress.phase != Phase::Waiting {
            let run = &self.state.progress.run;
            let problem = format!("run {run} has already started; start another run");
            return Err(Refusal::conflict(problem));
        }
        Ok(())
    }

    /// Starts a run that only summarises the Thread.
    pub(super) fn on_compact(&mut self) -> StepResult {
        self.check_not_started()?;
        self.state.progress.since = self.now();
        self.state.progress.compacts = true;
        self.set_status(RunStatus::Running, None);
        if compact::covered_end(&self.state).is_some() {
            self.call_model(Purpose::Summary);
        } else {
            self.end(RunStatus::Completed, "there is nothing to summarise");
        }
        Ok(())
    }

    /// Starts a run with a user message. The message may be empty if the Thread has Items.
    pub(super) fn on_user_message(&mut self, bodies: Vec<Body>) -> StepResult {
        self.check_not_started()?;
        if bodies.is_empty() && self.state.window.items.is_empty() {
            return Err(Refusal::invalid("the message is empty; start the run with a message"));
        }
        self.state.progress.since = self.now();
        self.set_status(RunStatus::Running, None);
        self.report_plan();
        let message = self.state.window.next;
        let mut items = Vec::with_capacity(bodies.len());
        for (part, body) in (0..).zip(bodies) {
            let id = ItemId(self.fresh_id("i"));
            if let Body::Text(text) = &body {
                self.emit_message("user", text, Some(&id));
            }
            items.push(Item::new(id, ItemPosition { message, part }, Role::User, body));
        }
        self.append_items(items);
        self.next();
        Ok(())
    }

    /// Emits the plan that the run continues, so that listeners of this run know it before the
    /// model changes it.
    pub(super) fn report_plan(&mut self) {
        let plan = self.state.plan().filter(|plan| !plan.steps.is_empty());
        let event = plan.map(continued_plan_event);
        self.actions.extend(event.map(|event| Action::Tell(RunEvent::Plan(event))));
    }

    /// Recovers a run after the process that drove the run stopped.
    pub(super) fn on_interrupted(&mut self) {
        match self.state.progress.phase.clone() {
            Phase::Ended { .. } => self.act(Action::Rest),
            // The pending requests are already stored.
            Phase::Waiting if self.is_only_waiting() => self.act(Action::Rest),
            Phase::Asking { purpose } => {
                // The partial answer was not stored. Discard it and call the model again.
                self.discard_turn("the process that received the answer exited");
                self.start_attempt(purpose);
            }
            Phase::Working | Phase::Waiting => {
                for position in 0..self.state.progress.calls.len() {
                    self.recover_call(position);
                }
                self.continue_calls();
            }
        }
    }

    /// Returns whether every open call is waiting for a decision.
    fn is_only_waiting(&self) -> bool {
        let open = self.state.progress.calls.iter().filter(|call| call.stage != Stage::Done);
        self.has_pending_call() && open.into_iter().all(|call| call.stage.pending().is_some())
    }

    /// Recovers a call that had started: runs an idempotent tool again, and marks any other call's
    /// outcome as unknown.
    fn recover_call(&mut self, position: usize) {
        let call = self.open_call(position).filter(|call| call.stage == Stage::Begun);
        let Some(call) = call else { return };
        if self.state.cast.tool(&call.tool).is_none_or(|spec| spec.idempotent) {
            self.run_again(position);
        } else {
            self.mark_lost(position);
        }
    }

    pub(super) fn on_model_switched(&mut self, model: Name, is_prefix_bound: bool) -> StepResult {
        self.check_open()?;
        if model.is_empty() {
            return Err(Refusal::invalid("the model name is empty"));
        }
        let mut event = HandoffEvent::new("switch_model".into());
        event.from = Some(self.state.model());
        event.to = Some(model.clone());
        self.state.progress.prefix_bound = is_prefix_bound.then(|| model.clone());
        self.state.progress.model = Some(model);
        self.emit(RunEvent::Handoff(event));
        Ok(())
    }

    pub(super) fn on_cancelled(&mut self, reason: Option<Name>) -> StepResult {
        self.check_open()?;
        let stage = match &self.state.progress.phase {
            Phase::Asking { purpose } => purpose.as_str(),
            Phase::Working => "tools",
            Phase::Waiting | Phase::Ended { .. } => "waiting",
        };
        let mut event = CancelledEvent { stage: Some(stage.into()), ..CancelledEvent::default() };
        event.reason.clone_from(&reason);
        self.close_calls("The run was cancelled", "cancelled");
        self.emit(RunEvent::Cancelled(event));
        self.end(RunStatus::Cancelled, reason.unwrap_or_else(|| "cancelled".into()));
        Ok(())
    }

    /// Ends the run if the wall-clock limit is exceeded while calls are running.
    pub(super) fn on_time_limit(&mut self) -> StepResult {
        self.check_open()?;
        let exceeded = match self.state.progress.phase {
            Phase::Waiting => None,
            Phase::Asking { .. } | Phase::Working | Phase::Ended { .. } => {
                self.exceeded_limit().filter(|(limit, ..)| *limit == "maxWallClockMs")
            }
        };
        let Some((limit, allowed, actual)) = exceeded else { return Ok(()) };
        if matches!(self.state.progress.phase, Phase::Asking { .. }) {
            self.discard_turn("the run reached its time limit");
        }
        self.close_calls("The run reached its time limit", "the run reached its time limit");
        self.report_limit(limit, allowed, actual);
        Ok(())
    }

    /// Gives every open call a result that states why the run ended, so that a later run can
    /// continue the conversation.
    fn close_calls(&mut self, reason: &str, comment: &str) {
        for position in 0..self.state.progress.calls.len() {
            let Some(stage) = self.stage_of(position) else { continue };
            if let Some(id) = stage.pending() {
                self.act(Action::Take(id.clone()));
            }
            let (outcome, when) = match stage {
                Stage::Done => continue,
                Stage::Begun => (Outcome::Unknown, "while this tool was running"),
                _ => (Outcome::Denied, "before this tool was run"),
            };
            let answer = ToolAnswer { outcome, ..ToolAnswer::error(format!("{reason} {when}.")) };
            self.settle(position, &answer);
        }
        self.close_pending(comment);
        self.state.progress.calls.clear();
    }
}
