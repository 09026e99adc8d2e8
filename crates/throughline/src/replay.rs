//! Capture and restore around your own HTTP client, without the gateway.
//!
//! [`Replay::restore_request`] restores the reasoning that a request has lost, before it is sent.
//! [`Replay::capture_response`] stores the reasoning of the response. Restored reasoning has the
//! bytes that the provider issued. `examples/replay.rs` shows both.

use std::sync::Arc;

use throughline_store::Journal;

pub use throughline_replay::Finding as RestoreFinding;
pub use throughline_replay::{
    CallLog, CallRecord, CapturedSeals, Chain, ChainTurn, ClaimRewriter, Claims, Conversation,
    ParentTurn, RandomnessError, Replay, ReplayError, RestoreIssue, RestoredCall, RestoredRequest,
    Turn, VisibleDigests,
};

/// Creates a replay engine over a store. A gateway that uses the same store restores what this
/// engine captured, and the other way round.
pub fn engine(store: &Journal) -> Replay {
    Replay::new(Arc::new(store.clone()), Claims::new(store.derived_key("claims")))
}
