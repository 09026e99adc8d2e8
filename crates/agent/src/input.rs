//! Inputs of a run. Only these inputs change the state of the run.

use jiff::Timestamp;
use throughline_core::{Body, Item, ModelError, Reply};
use throughline_json::Name;
use throughline_spec::{ReplayEvent, ToolApprovalResolution, UserQuestionResolution};

use crate::permit::CallDenial;
use crate::progress::Purpose;
use crate::tool::ToolAnswer;

/// A timestamped event that a step applies to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Time of the event according to the runner's clock.
    pub at: Timestamp,
    /// Kind and details of the event.
    pub event: RunInput,
}

/// An event that changes the state of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunInput {
    /// The run starts with a user message, which consists of these parts.
    Said(Vec<Body>),
    /// The run starts with an earlier conversation, which is added to the Thread, and a user
    /// message. The message may be empty if the conversation is not.
    Continued {
        /// Items of the earlier conversation, oldest first. Ephemeral texts are sent to the model
        /// in this run, but not stored in the Thread.
        history: Vec<Item>,
        /// Parts of the user message.
        said: Vec<Body>,
    },
    /// The run starts only to summarise the older conversation, and ends with the summary.
    Compact,
    /// A model returned a complete answer.
    Answered(Box<ModelAnswer>),
    /// A model call failed.
    Failed {
        /// Purpose of the failed call.
        purpose: Purpose,
        /// Error from the provider or the connection.
        error: ModelError,
        /// Whether listeners already received part of the answer.
        streamed: bool,
    },
    /// The call permit denied the next model call.
    Denied {
        /// Purpose of the denied call.
        purpose: Purpose,
        /// Details of the limit that denied the call.
        denial: CallDenial,
    },
    /// These tool calls are starting. Their ids are committed before the tools run.
    ToolsBegan(Vec<Name>),
    /// A tool returned its result, timed out or panicked.
    ToolEnded(ToolCompletion),
    /// A person decided on a tool approval.
    Decided(ToolApprovalResolution),
    /// A person answered or declined a question.
    Answer(UserQuestionResolution),
    /// The caller returned the results of its client-side tools.
    Returned(Vec<ToolCompletion>),
    /// A pending request expired before a decision arrived.
    Expired(Name),
    /// The process that drove the run stopped, and another process resumes the run.
    Interrupted,
    /// The run was restored from a snapshot. Snapshots are untrusted, so every open call is
    /// reviewed again.
    Restored(OpenCalls),
    /// The wall-clock limit may have been reached while calls are still running.
    TimeUp,
    /// The run switches to another model for later calls.
    Switched {
        /// Configured name of the new model.
        model: Name,
        /// Whether the new model's Seals are bound to the whole prefix sent before them.
        is_prefix_bound: bool,
    },
    /// The caller cancelled the run, optionally with a reason.
    Cancelled(Option<Name>),
}

/// Selects which open calls of a restored run need approval before they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCalls {
    /// Calls of tools that require approval, either by the tool's own specification or by a rule of
    /// the agent.
    ByRules,
    /// All open calls. Used if the snapshot's agent cannot be verified, because the approval rules
    /// then cannot be trusted.
    NeedApproval,
}

/// A complete answer from a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Purpose of the call that produced the answer.
    pub purpose: Purpose,
    /// Items, usage and stop reason of the answer.
    pub reply: Reply,
    /// Fates of the Thoughts and Seals of the Call; `None` if the Call had no Thoughts or Seals.
    pub replay: Option<ReplayEvent>,
    /// Whether listeners received deltas before the answer was complete.
    pub streamed: bool,
    /// Cost in US dollars; `None` if no price is known.
    pub cost: Option<f64>,
    /// Duration of the call in milliseconds.
    pub took_ms: u64,
}

/// Result of a finished tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCompletion {
    /// Id of the tool call that finished.
    pub call: Name,
    /// Result that the tool returned.
    pub answer: ToolAnswer,
}
