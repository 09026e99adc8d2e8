//! A run begins, goes on elsewhere, asks another model from now on, or is stopped.

use std::sync::Arc;

use throughline_core::{
    Body, CancelledEvent, HandoffEvent, Item, ItemId, MessageEvent, Name, Outcome, Place, Role,
    RunEvent, TurnEvent, TurnPhase,
};

use crate::action::{Action, Refusal};
use crate::compact;
use crate::progress::{Phase, Purpose, RunStatus, Stage};
use crate::step::{Done, Step};
use crate::tool::ToolAnswer;

impl Step {
    fn must_begin(&self) -> Done {
        if self.state.progress.turn > 0 || self.state.progress.phase != Phase::Waiting {
            let run = &self.state.progress.run;
            return Err(Refusal::conflict(format!("run {run} has begun: begin another one")));
        }
        Ok(())
    }

    /// Somebody wants a summary of all that was said, and the run begins.
    pub(super) fn compact(&mut self) -> Done {
        self.must_begin()?;
        self.state.progress.since = self.now();
        self.state.progress.compacts = true;
        self.stand(RunStatus::Running, None);
        if compact::due(&self.state).is_some() {
            self.ask(Purpose::Summary);
        } else {
            self.end(RunStatus::Completed, "there is nothing to summarise");
        }
        Ok(())
    }

    /// Somebody spoke, and the run begins.
    pub(super) fn said(&mut self, bodies: Vec<Body>) -> Done {
        self.must_begin()?;
        if bodies.is_empty() && self.state.window.items.is_empty() {
            return Err(Refusal::invalid("nothing is said: give the run a message"));
        }
        self.state.progress.since = self.now();
        self.stand(RunStatus::Running, None);
        let message = self.state.window.next;
        let mut items = Vec::with_capacity(bodies.len());
        for (part, body) in (0..).zip(bodies) {
            let id = self.fresh("i");
            if let Body::Text(text) = &body {
                let mut event = MessageEvent::new("user".into(), Arc::clone(text));
                event.id = Some(id.clone());
                self.tell(RunEvent::Message(event));
            }
            items.push(Item::new(ItemId(id), Place { message, part }, Role::User, body));
        }
        self.keep(items);
        self.next();
        Ok(())
    }

    /// Whoever was at it is gone, and somebody else goes on.
    pub(super) fn interrupted(&mut self) {
        match self.state.progress.phase.clone() {
            Phase::Ended { .. } => self.act(Action::Rest),
            // Everybody knows already what it waits for.
            Phase::Waiting if self.only_waits() => self.act(Action::Rest),
            Phase::Asking { purpose } => {
                // Nothing of the partial answer was kept: discard it and call the model again.
                let mut event = TurnEvent::new(TurnPhase::Discarded, self.state.progress.turn);
                event.reason = Some("the process that received the answer exited".into());
                self.tell(RunEvent::Turn(event));
                self.start_attempt(purpose);
            }
            Phase::Working | Phase::Waiting => {
                for position in 0..self.state.progress.calls.len() {
                    self.recover(position);
                }
                self.go_on();
            }
        }
    }

    /// Whether nothing can be done before somebody decides.
    fn only_waits(&self) -> bool {
        let calls = &self.state.progress.calls;
        let is_settled = |stage: &Stage| *stage == Stage::Done || stage.pending().is_some();
        calls.iter().any(|call| call.stage.pending().is_some())
            && calls.iter().all(|call| is_settled(&call.stage))
    }

    /// A call that was begun: if running it again does no harm, it is run again. Otherwise nobody knows how it ended.
    fn recover(&mut self, position: usize) {
        let Some(call) = self.state.progress.calls.get(position).cloned() else { return };
        if call.stage != Stage::Begun {
            return;
        }
        if self.state.cast.tool(&call.tool).is_none_or(|spec| spec.idempotent) {
            self.run_again(position);
        } else {
            self.lose(position);
        }
    }

    /// From now on another model is asked.
    pub(super) fn switched(&mut self, model: Name, is_prefix_bound: bool) -> Done {
        self.must_be_open()?;
        if model.is_empty() {
            return Err(Refusal::invalid("the model has no name"));
        }
        let mut event = HandoffEvent::new("switch_model".into());
        event.from = Some(self.state.model());
        event.to = Some(model.clone());
        self.state.progress.prefix_bound = is_prefix_bound.then(|| model.clone());
        self.state.progress.model = Some(model);
        self.tell(RunEvent::Handoff(event));
        Ok(())
    }

    /// Somebody stops it.
    pub(super) fn cancelled(&mut self, reason: Option<Name>) -> Done {
        self.must_be_open()?;
        let stage = match &self.state.progress.phase {
            Phase::Asking { purpose } => purpose.as_str(),
            Phase::Working => "tools",
            Phase::Waiting | Phase::Ended { .. } => "waiting",
        };
        let mut event = CancelledEvent { stage: Some(stage.into()), ..CancelledEvent::default() };
        event.reason.clone_from(&reason);
        self.close_calls("The run was cancelled", "cancelled");
        self.tell(RunEvent::Cancelled(event));
        self.end(RunStatus::Cancelled, reason.unwrap_or_else(|| "cancelled".into()));
        Ok(())
    }

    /// The time of the run is up while somebody is at work, unless nobody but who tells it thinks so.
    pub(super) fn time_is_up(&mut self) -> Done {
        self.must_be_open()?;
        let is_at_work = self.state.progress.phase != Phase::Waiting;
        let over = self.breached().filter(|(limit, ..)| is_at_work && *limit == "maxWallClockMs");
        let Some((limit, allowed, actual)) = over else { return Ok(()) };
        if matches!(self.state.progress.phase, Phase::Asking { .. }) {
            let mut event = TurnEvent::new(TurnPhase::Discarded, self.state.progress.turn);
            event.reason = Some("the time of the run is up".into());
            self.tell(RunEvent::Turn(event));
        }
        self.close_calls("The time of the run was up", "the time of the run was up");
        self.breach(limit, allowed, actual);
        Ok(())
    }

    /// Every call is answered with why the run ends, so that the conversation can go on some day.
    fn close_calls(&mut self, why: &str, comment: &str) {
        for position in 0..self.state.progress.calls.len() {
            let Some(call) = self.state.progress.calls.get(position).cloned() else { continue };
            if let Some(id) = call.stage.pending() {
                self.act(Action::Take(id.clone()));
            }
            let (outcome, when) = match call.stage {
                Stage::Done => continue,
                Stage::Begun => (Outcome::Unknown, "while this tool was at work"),
                _ => (Outcome::Denied, "before this tool was run"),
            };
            let answer = ToolAnswer { outcome, ..ToolAnswer::error(format!("{why} {when}.")) };
            self.settle(position, &answer);
        }
        self.close_pending(comment);
        self.state.progress.calls.clear();
    }
}
