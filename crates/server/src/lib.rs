//! The gateway: official clients in, any provider out, reasoning always right.
//!
//! [`Replay`] is its heart. It keeps what models answered, and puts back into a request what its client has lost.

mod replay;

pub use crate::replay::{
    Chain, ChainTurn, Claims, Conversation, Finding, NoRandomness, Parent, Problem, Replay,
    Restored, Turn, Visible,
};
