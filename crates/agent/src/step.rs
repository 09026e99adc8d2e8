//! One step of a run: applies an input to the state and returns the resulting actions.
//!
//! `step` is pure, total and deterministic: it does no I/O, reads no clock, and derives ids from a
//! counter. Every input in every state yields a state and a list of actions, which may be a
//! refusal. Each kind of input has its own file:
//!
//! | input | file |
//! |---|---|
//! | the run starts, switches models, is cancelled or interrupted | `lifecycle.rs` |
//! | the run starts with an earlier conversation | `history.rs` |
//! | a model answered | `answer.rs` |
//! | a model call failed, or its answer is invalid | `retry.rs` |
//! | a tool started or finished | `tools.rs` |
//! | a person decided, or a request expired | `human.rs` |
//! | a reflection was written | `reflect.rs` |
//! | a snapshot was restored | `review.rs` |
//!
//! `next.rs` decides how the run continues after an input.

mod answer;
mod history;
mod human;
mod lifecycle;
mod next;
mod reflect;
mod retry;
mod review;
mod tools;

pub(crate) use crate::step::human::expiry;

use jiff::Timestamp;
use throughline_core::{Body, Item, ItemId, ItemPosition, Role};
use throughline_json::{Json, Name};
use throughline_spec::{MessageEvent, RunEvent, RunStatusEvent, StateChange, TurnEvent, TurnPhase};

use crate::action::{Action, Refusal};
use crate::input::{Input, OpenCalls, RunInput};
use crate::progress::{Phase, RunStatus};
use crate::state::State;
use crate::window::{WindowItem, readable_text};

/// Applies one input and returns the new state and the resulting actions.
pub fn step(state: State, input: Input) -> (State, Vec<Action>) {
    let (at, actions, open_calls) = (input.at, Vec::new(), OpenCalls::ByRules);
    let mut step = Step { state, at, actions, open_calls };
    let result = match input.event {
        RunInput::Said(bodies) => step.on_user_message(bodies),
        RunInput::Continued { history, said } => step.on_history(history, said),
        RunInput::Compact => step.on_compact(),
        RunInput::Answered(answer) => step.on_model_answered(*answer),
        RunInput::Failed { purpose, error, streamed } => {
            step.on_model_failed(purpose, &error, streamed)
        }
        RunInput::Denied { purpose, denial } => step.on_call_denied(purpose, &denial),
        RunInput::ToolsBegan(calls) => step.on_tools_started(&calls),
        RunInput::ToolEnded(completion) => step.on_tool_completed(&completion),
        RunInput::Decided(resolution) => step.on_approval_resolved(&resolution),
        RunInput::Answer(resolution) => step.on_question_resolved(&resolution),
        RunInput::Returned(completions) => step.on_client_tools_returned(&completions),
        RunInput::Expired(id) => step.on_request_expired(&id),
        RunInput::Interrupted => {
            step.on_interrupted();
            Ok(())
        }
        RunInput::Restored(open_calls) => step.on_restored(open_calls),
        RunInput::TimeUp => step.on_time_limit(),
        RunInput::Switched { model, is_prefix_bound } => {
            step.on_model_switched(model, is_prefix_bound)
        }
        RunInput::Cancelled(reason) => step.on_cancelled(reason),
    };
    match result {
        Ok(()) => (step.state, step.actions),
        // Inputs are validated before the state changes, so a refusal leaves the state intact.
        Err(refusal) => (step.state, vec![Action::Refuse(refusal)]),
    }
}

/// State and collected actions of the step in progress.
struct Step {
    state: State,
    at: Timestamp,
    actions: Vec<Action>,
    /// Selects the open calls that need approval. Only restored runs use a value other than
    /// `ByRules`.
    open_calls: OpenCalls,
}

type StepResult = Result<(), Refusal>;

impl Step {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn emit(&mut self, event: RunEvent) {
        self.act(Action::Tell(event));
    }

    /// Emits a message event. `item` is the Thread Item that contains the text, if there is one.
    fn emit_message(&mut self, role: &str, text: &Name, item: Option<&ItemId>) {
        let mut event = MessageEvent::new(role.into(), text.clone());
        event.id = item.map(|item| item.0.clone());
        self.emit(RunEvent::Message(event));
    }

    fn now(&self) -> Name {
        Name::from(self.at.to_string())
    }

    /// Derives a new id from the run's id counter.
    fn fresh_id(&mut self, prefix: &str) -> Name {
        self.state.progress.ids += 1;
        Name::from(format!("{}.{prefix}{}", self.state.progress.run, self.state.progress.ids))
    }

    /// Appends Items to the window, and requests that the runner stores them in the Thread.
    fn append_items(&mut self, items: Vec<Item>) {
        for item in &items {
            let tokens = self.state.cast.tokens(&readable_text(item));
            self.state.window.push(WindowItem { item: item.clone(), tokens, seq: 0 });
        }
        self.act(Action::Keep(items));
    }

    /// Appends a value to a list in the documented state.
    fn add(&mut self, list: &str, value: Json) {
        self.act(Action::Change(StateChange::new().add(list, value)));
    }

    /// Replaces a field of the documented state.
    fn set(&mut self, member: &str, value: Json) {
        self.act(Action::Change(StateChange::new().set(member, value)));
    }

    fn set_context(&mut self, key: &str, value: Option<Json>) {
        let change = self.state.set_context(key, value);
        self.actions.extend(change.map(Action::Change));
    }

    /// Requests that the runner stores the status, and emits a status event.
    fn set_status(&mut self, status: RunStatus, reason: Option<Name>) {
        self.act(Action::Stand(status));
        let mut event = RunStatusEvent::new(Name::from(status.as_str()));
        event.run_id = Some(self.state.progress.run.clone());
        event.agent = Some(self.state.progress.agent.clone());
        event.reason = reason;
        self.emit(RunEvent::Run(event));
    }

    /// Ends the run with a final status and discards its record of failed attempts.
    fn end(&mut self, status: RunStatus, reason: impl Into<Name>) {
        let reason = reason.into();
        self.state.progress.phase = Phase::Ended { status, reason: reason.clone() };
        self.state.progress.gate = None;
        self.set_status(status, Some(reason));
        self.act(Action::Rest);
    }

    /// Emits the event that discards the current turn's partial answer.
    fn discard_turn(&mut self, reason: impl Into<Name>) {
        self.state.progress.discarded += 1;
        let mut event = TurnEvent::new(TurnPhase::Discarded, self.state.progress.turn);
        event.reason = Some(reason.into());
        self.emit(RunEvent::Turn(event));
    }

    /// Creates a text Item for the next message.
    fn text_item(&mut self, role: Role, text: &str) -> Item {
        let id = ItemId(self.fresh_id("i"));
        let place = ItemPosition { message: self.state.window.next, part: 0 };
        Item::new(id, place, role, Body::Text(text.into()))
    }

    fn check_open(&self) -> StepResult {
        let Phase::Ended { status, .. } = &self.state.progress.phase else { return Ok(()) };
        let outcome = match status {
            RunStatus::Completed => "completed",
            RunStatus::Cancelled => "been cancelled",
            RunStatus::Failed | RunStatus::Running | RunStatus::Waiting => "failed",
        };
        let run = &self.state.progress.run;
        Err(Refusal::conflict(format!("run {run} has already {outcome}")))
    }
}
