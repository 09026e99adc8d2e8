//! Durable agents: the loop, as a pure step and a runner of its effects.
//!
//! [`step`] takes what is known of a run and something that happened, and gives what is known then and what is to be done.
//! It asks nobody and knows no clock. A runner does what is to be done, and keeps the state before and after in a store, so
//! that any process can go on with any run at any point.

mod action;
mod call;
mod cast;
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
mod run;
mod snapshot;
mod state;
mod step;
mod tool;
mod window;

pub use crate::action::{Action, Asking, AskingKind, Refusal, RefusalKind, ToolRun};
pub use crate::cast::{ByLength, Cast, Casting, GET_TOOL_RESPONSE};
pub use crate::config::{
    AgentConfig, AgentKind, Agents, AskUser, ContextPolicy, Handoff, HumanInTheLoop, InvalidConfig,
    OutputContract, UnknownOutcome,
};
pub use crate::gate::{BreakerConfig, Decision, Gate, GateRule};
pub use crate::input::{Counted, Ended, Heard, Input, OpenCalls, Replayed, Span, What};
pub use crate::limits::{AgentLimits, RuntimeProfile};
pub use crate::narrate::{Narrator, narrate, sentence};
pub use crate::permit::{CallDenial, CallPermit, Permitting};
pub use crate::plan::MANAGE_TODO_LIST;
pub use crate::ports::Ports;
pub use crate::progress::{
    BreakerState, Ephemeral, ModelSpent, OpenCall, Phase, Progress, Purpose, Reflected, RunStatus,
    Spent, Stage, Trial,
};
pub use crate::question::ASK_USER_QUESTION;
pub use crate::run::{Begun, Listener, RUN, RunError, Runner, Start, Watcher, Word, is_inbox};
pub use crate::snapshot::{InvalidSnapshot, Snapshot, parse_snapshot};
pub use crate::state::State;
pub use crate::step::step;
pub use crate::tool::{
    FunctionTool, Tool, ToolAnswer, ToolContext, ToolSpec, Working, function_tool, schema_of,
};
pub use crate::window::{Kept, Window};
