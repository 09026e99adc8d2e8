//! The inputs of a run: the only events that change its state.

use jiff::Timestamp;
use throughline_core::{Body, ModelError, Reply};
use throughline_json::Name;
use throughline_spec::{ReplayEvent, ToolApprovalResolution, UserQuestionResolution};

use crate::permit::CallDenial;
use crate::progress::Purpose;
use crate::tool::ToolAnswer;

/// An event that happened to a run, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Time of the event, as read from the runner's clock.
    pub at: Timestamp,
    /// What happened.
    pub what: RunInput,
}

/// An event that changes the state of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunInput {
    /// The run starts with a user message. Each body is one part of that message.
    Said(Vec<Body>),
    /// The run starts only to summarise the older conversation, and ends with the summary.
    Compact,
    /// A model returned a complete answer.
    Answered(Box<ModelAnswer>),
    /// A model call failed.
    Failed {
        /// Purpose of the failed call.
        purpose: Purpose,
        /// Error of the provider or of the connection.
        error: ModelError,
        /// Whether listeners already received a part of the answer.
        streamed: bool,
    },
    /// The call permit denied the next model call.
    Denied {
        /// Purpose of the denied call.
        purpose: Purpose,
        /// Limit that denied the call.
        denial: CallDenial,
    },
    /// These tool calls start now.
    ToolsBegan(Vec<Name>),
    /// A tool finished.
    ToolEnded(ToolCompletion),
    /// A person decided on a tool approval.
    Decided(ToolApprovalResolution),
    /// A person answered or declined a question.
    Answer(UserQuestionResolution),
    /// The caller returned the results of its client-side tools.
    Returned(Vec<ToolCompletion>),
    /// A pending request expired before a decision arrived.
    Expired(Name),
    /// The process that ran the run stopped, and another one resumes it.
    Interrupted,
    /// The run was restored from a snapshot. Snapshots are untrusted, so every open call is decided
    /// again.
    Restored(OpenCalls),
    /// The wall-clock limit may be reached while calls are still running.
    TimeUp,
    /// Later calls use another model.
    Switched {
        /// Name of the new model.
        model: Name,
        /// Whether the new model's Seals are bound to the whole prefix that was sent before them.
        is_prefix_bound: bool,
    },
    /// The caller cancels the run, optionally with a reason.
    Cancelled(Option<Name>),
}

/// Selects the open calls of a restored run that need an approval before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCalls {
    /// Calls whose tool requires approval, by its own specification or by a rule of the agent.
    ByRules,
    /// All open calls: for documents whose agent, and therefore whose rules, cannot be verified.
    NeedApproval,
}

/// A complete answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Purpose of the call that the model answers.
    pub purpose: Purpose,
    /// Items, usage and stop reason of the answer.
    pub reply: Reply,
    /// Fates of the Thoughts and Seals that were sent; `None` if there were none.
    pub replay: Option<ReplayEvent>,
    /// Whether listeners received parts before the answer was complete.
    pub streamed: bool,
    /// Cost in US dollars; `None` if no price is known.
    pub cost: Option<f64>,
    /// Duration of the call in milliseconds.
    pub took_ms: u64,
}

/// Result of a finished tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCompletion {
    /// Id of the tool call.
    pub call: Name,
    /// Result that the tool returned.
    pub answer: ToolAnswer,
}
