//! Problems found while restoring a request.

use throughline_core::{ElisionReason, ItemId};

/// A problem with one turn in a request, reported to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The affected Item; for a problem with a whole turn, the first Item of the turn.
    pub item: ItemId,
    /// What is wrong with the Item or turn.
    pub problem: RestoreIssue,
}

/// An alteration by the client, or the reason why a turn cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreIssue {
    /// A Seal or sealed Thought differs from what the provider issued.
    #[error("this value differs from the value that the provider issued in this turn")]
    Altered,
    /// A Claim is forged, truncated, or belongs to another caller.
    #[error("this Claim was not issued to this caller")]
    ForeignClaim,
    /// The client edited text that Seals cover, so no content of the turn was restored.
    #[error("the client edited text that Seals cover; nothing in this turn was restored")]
    Edited,
    /// The captured turn was forgotten or has expired.
    #[error("the turn cannot be restored: {0}")]
    Gone(ElisionReason),
    /// A text equals a Thought captured in this turn and was removed from the request.
    #[error(
        "this text repeats a Thought of this conversation; the text was removed because Thoughts \
         are never sent as text"
    )]
    ThoughtAsText,
}
