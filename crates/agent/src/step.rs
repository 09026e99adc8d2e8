//! One step of a run: something happened, and this is what is to be done about it.
//!
//! `step` is pure, total and deterministic: it asks nobody, knows no clock, and makes up ids by counting. Whatever happens in
//! whatever state gives a state and a list of actions, if only one that refuses. One file for each kind of input:
//!
//! | what happened | file |
//! |---|---|
//! | somebody spoke, somebody stops it, whoever ran it is gone | `course.rs` |
//! | a model answered | `answer.rs` |
//! | a model did not, or not as it had to | `trial.rs` |
//! | a tool began or ended | `tools.rs` |
//! | a person decided, or nobody did in time | `person.rs` |
//! | a note was made | `reflect.rs` |
//! | a snapshot was restored | `review.rs` |
//!
//! and `next.rs` decides what comes next, once all of that is settled.

mod answer;
mod course;
mod next;
mod person;
mod reflect;
mod review;
mod tools;
mod trial;

use jiff::Timestamp;
use throughline_core::{Item, Json, Name, RunEvent, StateChange};

use crate::action::{Action, Refusal};
use crate::input::{Input, OpenCalls, What};
use crate::progress::{Phase, RunStatus};
use crate::state::State;
use crate::window::{Kept, readable};

/// One step: what is known after it, and what is to be done.
pub fn step(state: State, input: Input) -> (State, Vec<Action>) {
    let mut step =
        Step { state, at: input.at, actions: Vec::new(), open_calls: OpenCalls::ByRules };
    let done = match input.what {
        What::Said(bodies) => step.said(bodies),
        What::Compact => step.compact(),
        What::Answered(heard) => step.answered(*heard),
        What::Failed { purpose, error, streamed } => step.failed(purpose, &error, streamed),
        What::Denied { purpose, denial } => step.denied(purpose, &denial),
        What::ToolsBegan(calls) => step.began(&calls),
        What::ToolEnded(ended) => step.ended(&ended),
        What::Decided(resolution) => step.decided(&resolution),
        What::Answer(resolution) => step.replied(&resolution),
        What::Returned(ended) => step.returned(&ended),
        What::Expired(id) => step.expired(&id),
        What::Interrupted => {
            step.interrupted();
            Ok(())
        }
        What::Restored(open_calls) => step.review(open_calls),
        What::TimeUp => step.time_is_up(),
        What::Switched { model, is_prefix_bound } => step.switched(model, is_prefix_bound),
        What::Cancelled(reason) => step.cancelled(reason),
    };
    match done {
        Ok(()) => (step.state, step.actions),
        // Every kind of input is checked before anything is changed.
        Err(refusal) => (step.state, vec![Action::Refuse(refusal)]),
    }
}

/// A step that is being made.
struct Step {
    state: State,
    at: Timestamp,
    actions: Vec<Action>,
    /// Which calls need an approval. Only a restored run asks for more than its rules do.
    open_calls: OpenCalls,
}

type Done = Result<(), Refusal>;

impl Step {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn tell(&mut self, event: RunEvent) {
        self.act(Action::Tell(event));
    }

    fn now(&self) -> Name {
        Name::from(self.at.to_string())
    }

    /// An id that nobody else makes up: of this run, counted on.
    fn fresh(&mut self, what: &str) -> Name {
        self.state.progress.ids += 1;
        Name::from(format!("{}.{what}{}", self.state.progress.run, self.state.progress.ids))
    }

    /// The Thread has these from now on.
    fn keep(&mut self, items: Vec<Item>) {
        for item in &items {
            let tokens = self.state.cast.tokens(&readable(item));
            self.state.window.push(Kept { item: item.clone(), tokens, seq: 0 });
        }
        self.act(Action::Keep(items));
    }

    /// A list of the documented state grows.
    fn add(&mut self, list: &str, value: Json) {
        self.act(Action::Change(StateChange::new().add(list, value)));
    }

    /// A member of the documented state is replaced.
    fn set(&mut self, member: &str, value: Json) {
        self.act(Action::Change(StateChange::new().set(member, value)));
    }

    /// A member of `ctx` is replaced, or taken away.
    fn set_context(&mut self, key: &str, value: Option<Json>) {
        let ctx = self.state.smart.ctx.get_or_insert_default();
        let before = ctx.clone();
        ctx.retain(|(name, _)| **name != *key);
        ctx.extend(value.map(|value| (Name::from(key), value)));
        if *ctx != before {
            let ctx =
                throughline_core::json::object_of(ctx.iter().map(|(name, value)| (&**name, value)));
            self.set("ctx", ctx);
        }
    }

    /// How the run stands, for everybody.
    fn stand(&mut self, status: RunStatus, reason: Option<Name>) {
        self.act(Action::Stand(status));
        let mut event = throughline_core::RunStatusEvent::new(Name::from(status.as_str()));
        event.run_id = Some(self.state.progress.run.clone());
        event.agent = Some(self.state.progress.agent.clone());
        event.reason = reason;
        self.tell(RunEvent::Run(event));
    }

    /// The run is over.
    fn end(&mut self, status: RunStatus, reason: impl Into<Name>) {
        let reason = reason.into();
        self.state.progress.phase = Phase::Ended { status, reason: reason.clone() };
        self.state.progress.gate = None;
        self.stand(status, Some(reason));
        self.act(Action::Rest);
    }

    fn must_be_open(&self) -> Done {
        match &self.state.progress.phase {
            Phase::Ended { status, .. } => {
                let run = &self.state.progress.run;
                Err(Refusal::conflict(format!("run {run} is over: it {}", ended(*status))))
            }
            Phase::Asking { .. } | Phase::Working | Phase::Waiting => Ok(()),
        }
    }
}

fn ended(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "was completed",
        RunStatus::Cancelled => "was cancelled",
        RunStatus::Failed | RunStatus::Running | RunStatus::Waiting => "failed",
    }
}
