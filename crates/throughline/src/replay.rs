//! Captures and restores reasoning around your own HTTP client, without the gateway.
//!
//! Before a request is sent, [`Replay::restore_request`] restores the reasoning that the request
//! has lost. [`Replay::capture_response`] stores the reasoning in the response. Restored reasoning
//! is byte-identical to what the provider issued. `examples/replay.rs` uses both functions.

use std::sync::Arc;

use throughline_store::Journal;

pub use throughline_replay::Finding as RestoreFinding;
pub use throughline_replay::{
    CallLog, CallRecord, CapturedSeals, Chain, ChainTurn, ClaimRewriter, Claims, CompactedInput,
    Conversation, Expansion, ParentTurn, RandomnessError, Replay, ReplayError, RestoreIssue,
    RestoredCall, RestoredRequest, Turn, VisibleDigests,
};

/// Creates a replay engine over a store. A gateway on the same store can restore reasoning that
/// this engine captured, and vice versa.
pub fn engine(store: &Journal) -> Replay {
    Replay::new(Arc::new(store.clone()), Claims::new(store.derived_key("claims")))
}
