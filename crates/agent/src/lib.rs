//! Durable agents: a pure step function, and a runner that performs the effects that steps request.
//!
//! [`step`] takes the state of a run and one input, and returns the new state and a list of
//! actions. It does no I/O and reads no clock. The runner performs the actions and stores the state
//! with every step, so any process can resume any run at any point.

mod action;
mod call;
mod compact;
mod config;
mod gate;
mod input;
mod limits;
mod narrate;
mod permit;
mod plan;
mod ports;
mod progress;
mod question;
mod roster;
mod run;
mod snapshot;
mod state;
mod step;
mod tool;
mod window;

pub use crate::action::{Action, HumanRequest, HumanRequestKind, Refusal, RefusalKind, ToolRun};
pub use crate::config::{
    AgentConfig, AgentKind, Agents, AskUser, ContextPolicy, Handoff, HumanInTheLoop, InvalidConfig,
    OutputContract, UnknownOutcome,
};
pub use crate::gate::{BreakerConfig, Decision, Gate, GateRule};
pub use crate::input::{Input, ModelAnswer, OpenCalls, RunInput, ToolCompletion};
pub use crate::limits::{AgentLimits, RuntimeProfile};
pub use crate::narrate::{Narrator, narrate, sentence};
pub use crate::permit::{CallDenial, CallGrant, CallPermit, PermitFuture};
pub use crate::plan::MANAGE_TODO_LIST;
pub use crate::ports::Ports;
pub use crate::progress::{
    BreakerState, EphemeralMessage, GateAttempts, ModelUsage, OpenCall, Phase, PlacedMessage,
    Progress, Purpose, ReflectionState, RunStatus, Stage, UsageTotals,
};
pub use crate::question::ASK_USER_QUESTION;
pub use crate::roster::{GET_TOOL_RESPONSE, LengthTokenCounter, ResolvedRun, RunSpec};
pub use crate::run::{
    Listener, RUN, RunCommand, RunError, RunRequest, Runner, StartedRun, Watcher, is_inbox,
};
pub use crate::snapshot::{InvalidSnapshot, Snapshot, parse_snapshot};
pub use crate::state::State;
pub use crate::step::step;
pub use crate::tool::{
    FunctionTool, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec, function_tool, schema_of,
};
pub use crate::window::{Window, WindowItem};
