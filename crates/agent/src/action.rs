//! The effects that a step requests from the runner.

use std::time::Duration;

use throughline_core::Item;
use throughline_json::{Json, Name, words};
use throughline_spec::{RunEvent, StateChange};

use crate::progress::{Purpose, RunStatus};

/// An effect of a step. The runner commits the first group together with the state, in one batch;
/// it performs the second group after that commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Append these Items to the Thread.
    Keep(Vec<Item>),
    /// Change members of the documented state of the Thread.
    Change(StateChange),
    /// Emit an event to listeners.
    Tell(RunEvent),
    /// Request a decision from a person, or a result from the caller.
    Ask(HumanRequest),
    /// Resolve a pending request, so that it cannot be decided again.
    Take(Name),
    /// Record the status of the run.
    Stand(RunStatus),

    /// Call a model with the request that [`State::call`](crate::State::call) builds.
    Call(Purpose),
    /// Record that these tools are about to start. The runner commits this before it runs them.
    Begin(Vec<Name>),
    /// Run a tool.
    Run(ToolRun),
    /// Stop driving until the next command arrives.
    Rest,

    /// Reject the input. The state is unchanged.
    Refuse(Refusal),
}

/// A request to a person or to the caller that the run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HumanRequest {
    /// Id that the decision must quote.
    pub id: Name,
    /// Kind of decision or result that the run needs.
    pub kind: HumanRequestKind,
    /// Time until the request expires; `None` never expires.
    pub expires_in: Option<Duration>,
}

words! {
    /// Kind of a pending request, with its stored name.
    HumanRequestKind {
        /// Approval of a tool call.
        Approval = "approval",
        /// Question from the model to a person.
        Question = "question",
        /// Result of a tool that the caller runs.
        Client = "client_tool",
    }
}

/// A tool call that is ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    /// Id of the tool call.
    pub call: Name,
    /// Name under which the runner finds the tool.
    pub tool: Name,
    /// Agent that makes the call.
    pub agent: Name,
    /// Arguments of the model, or those that an approval set instead.
    pub args: Json,
    /// Time after which the call is stopped.
    pub timeout: Option<Duration>,
}

/// Reason why an input is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Category that callers map to a status code.
    pub kind: RefusalKind,
    /// Problem and remedy, as one sentence.
    pub message: Name,
}

words! {
    /// Category of a refusal with its stored name. Callers map it to a status code.
    RefusalKind {
        /// The named run, call or request does not exist.
        NotFound = "not-found",
        /// The request was decided before, has expired, or does not fit the current phase of the
        /// run.
        Conflict = "conflict",
        /// The input is malformed or violates its schema.
        Invalid = "invalid",
    }
}

impl Refusal {
    pub(crate) fn not_found(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::NotFound, message: message.into() }
    }

    pub(crate) fn conflict(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::Conflict, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<Name>) -> Self {
        Self { kind: RefusalKind::Invalid, message: message.into() }
    }
}
