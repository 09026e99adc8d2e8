//! The gateway: official clients in, any provider out, reasoning always right.
//!
//! A [`Gateway`] answers in four dialects on one port, and asks whomever the [`Directory`] says over the port `Upstream`.
//! [`Replay`] is its heart: it keeps what models answered, and puts back into a request what its client has lost.

mod access;
mod claimed;
mod compression;
mod dialect;
mod exchange;
mod gateway;
mod replay;
mod stream;

pub use crate::access::{Admission, Keyring};
pub use crate::gateway::{Directory, Gateway, Reached, ReplayMode};
pub use crate::replay::{
    Chain, ChainTurn, Claims, Conversation, Finding, NoRandomness, Parent, Problem, Replay,
    Restored, Turn, Visible,
};
