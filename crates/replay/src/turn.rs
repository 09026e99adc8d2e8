//! Where a captured turn is stored: its place in the Journal, and the kinds of its records.

use throughline_core::{LogId, TurnId};

/// Kind of the record that contains a turn's header and the record of its call.
pub const TURN: &str = "turn";

/// Kind of the record that describes a call without a reply.
pub const CALL_RECORD: &str = "story";

/// The log of a stored response.
pub fn response_log(node: &TurnId) -> LogId {
    LogId::from(format!("response-{node}"))
}

/// The captured turn that a request continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentTurn {
    /// The id of the turn.
    pub node: TurnId,
    /// The log that contains the turn.
    pub log: LogId,
    /// The last record of the turn.
    pub last: u64,
}
