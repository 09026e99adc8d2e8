//! The position of a captured turn in the Journal, and the kinds of its records.

use std::ops::RangeInclusive;

use throughline_core::{LogId, Record, Store, StoreError, Tenant, TurnId};

/// The kind of records that contain a turn's header and its call record.
pub const TURN: &str = "turn";

/// The kind of records that describe a call without a reply.
pub const CALL_RECORD: &str = "story";

/// Name prefix of a conversation's Thread, followed by the id of the first turn.
pub const CONVERSATION_PREFIX: &str = "conversation-";

/// Name prefix of the log for a call without a reply, followed by the id of the call.
pub const UNANSWERED_PREFIX: &str = "call-";

/// Returns whether a log with this name contains a client's gateway conversation, or a call without
/// a reply.
pub fn is_conversation(log: &str) -> bool {
    log.starts_with(CONVERSATION_PREFIX) || log.starts_with(UNANSWERED_PREFIX)
}

/// Returns the id of the Thread of a conversation that starts with this turn.
pub(crate) fn conversation_log(node: &TurnId) -> LogId {
    LogId::from(format!("{CONVERSATION_PREFIX}{node}"))
}

/// Returns the id of the log that stores a call without a reply.
pub(crate) fn unanswered_log(node: &TurnId) -> LogId {
    LogId::from(format!("{UNANSWERED_PREFIX}{node}"))
}

/// Returns the id of the log that stores the response of a turn.
pub fn response_log(node: &TurnId) -> LogId {
    LogId::from(format!("response-{node}"))
}

/// The captured turn that a request continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentTurn {
    /// The id of the captured turn.
    pub node: TurnId,
    /// The log that contains the turn.
    pub log: LogId,
    /// The sequence number of the turn's last record.
    pub last: u64,
}

/// Reads the records of a log in a range of sequence numbers.
pub(crate) async fn read_range(
    store: &dyn Store,
    tenant: &Tenant,
    log: &LogId,
    range: RangeInclusive<u64>,
) -> Result<Vec<Record>, StoreError> {
    let (first, last) = range.into_inner();
    let count = u32::try_from(last.saturating_sub(first) + 1).unwrap_or(u32::MAX);
    store.read(tenant, log, first.saturating_sub(1), count).await
}
