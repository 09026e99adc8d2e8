//! The effects that a step requests from the runner.

use std::time::Duration;

use throughline_core::Item;
use throughline_json::{Json, Name, words};
use throughline_spec::{RunEvent, StateChange};

use crate::progress::{Purpose, RunStatus};

/// An effect requested by a step. The runner commits the actions `Keep` through `Stand` together
/// with the state, and performs the remaining actions after that commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Append these Items to the Thread.
    Keep(Vec<Item>),
    /// Change fields of the Thread's documented state (`SmartState`), such as the plan or the tool
    /// history.
    Change(StateChange),
    /// Emit an event to listeners.
    Tell(RunEvent),
    /// Ask a person for a decision, or the caller for a tool result.
    Ask(HumanRequest),
    /// Mark a pending request as resolved, so that it cannot be decided twice.
    Take(Name),
    /// Store this status as the run's current status.
    Stand(RunStatus),

    /// Call a model with the request that [`State::call`](crate::State::call) builds.
    Call(Purpose),
    /// Record that these tools are about to start. The runner commits this record before it runs
    /// the tools.
    Begin(Vec<Name>),
    /// Execute a tool call. The start of the call is already committed.
    Run(ToolRun),
    /// Stop driving the run until the next command arrives.
    Rest,

    /// Reject the input. The state is unchanged.
    Refuse(Refusal),
}

/// A pending request. The run waits until a person or the caller responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HumanRequest {
    /// Id by which a decision refers to this request.
    pub id: Name,
    /// Kind of decision or result that the run needs.
    pub kind: HumanRequestKind,
    /// Time until the request expires; `None` if it never expires.
    pub expires_in: Option<Duration>,
}

words! {
    /// Kind of a pending request. Each string is the kind's name in the store.
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
    /// Id of the tool call. The tool result refers to the call by this id.
    pub call: Name,
    /// Name under which the tool is registered with the runner.
    pub tool: Name,
    /// Name of the agent that makes the call.
    pub agent: Name,
    /// Arguments from the model, or the edited arguments from an approval.
    pub args: Json,
    /// Time after which the runner aborts the call; `None` means no timeout.
    pub timeout: Option<Duration>,
}

/// Error for an input that a step rejects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Category that callers map to a status code.
    pub kind: RefusalKind,
    /// One sentence that describes the problem and the fix.
    pub message: Name,
}

words! {
    /// Category of a refusal, which callers map to a status code. Each string is the category's
    /// name in the store.
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
