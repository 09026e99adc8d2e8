//! The gateway: official clients in, any provider out, reasoning always right.
//!
//! A [`Gateway`] answers in four dialects on one port, and asks whomever the [`Directory`] says over the port `Upstream`.
//! [`Replay`] is its heart: it keeps what models answered, and puts back into a request what its client has lost.
//! An [`AgentApi`] beside it serves durable agents, in Letta's shapes.

mod access;
mod answer;
mod claimed;
mod compression;
mod console;
mod count;
mod dialect;
mod exchange;
mod forward;
mod gateway;
mod keeper;
mod letta;
mod listen;
mod model_name;
mod models;
mod objects;
mod operations;
mod own;
mod prefix;
mod prepare;
mod recent;
mod references;
mod replay;
mod resumed;
mod stored;
mod story;
mod stream;
mod telling;

pub use crate::access::{Admission, Keyring};
pub use crate::console::RunTraces;
pub use crate::gateway::{Directory, Gateway, Reached, ReplayMode};
pub use crate::letta::{AgentApi, Route, RunCaps, openapi, routes};
pub use crate::listen::serve;
pub use crate::objects::{InvalidPattern, Passthrough, object_members, object_routes};
pub use crate::operations::{
    Allowance, Level, Limits, Log, OnStoreFailure, Operations, Price, Prices, Silent, StorePolicy,
    Traces, Unpriced, UsageRow, Used, UsedFor, usage_log,
};
pub use crate::prefix::PrefixPolicy;
pub use crate::replay::{
    Chain, ChainTurn, Claims, Conversation, Finding, NoRandomness, Parent, Problem, Replay,
    Restored, Turn, Visible,
};
pub use crate::story::Story;
