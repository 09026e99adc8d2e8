//! Where a captured turn is stored: its place in the Journal, and the kinds of its records.

use std::ops::RangeInclusive;

use throughline_core::{LogId, Record, Store, StoreError, Tenant, TurnId};

/// Kind of the record that contains a turn's header and the record of its call.
pub const TURN: &str = "turn";

/// Kind of the record that describes a call without a reply.
pub const CALL_RECORD: &str = "story";

/// Returns the log of a stored response.
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

/// Reads the records of a log with these sequence numbers.
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
