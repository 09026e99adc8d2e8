//! Problems with the captured turns of a request.

use throughline_core::{ElisionReason, ItemId};

/// A problem with a turn of a request, for the caller's information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The affected Item, or the first Item of the turn.
    pub item: ItemId,
    /// The kind of problem.
    pub problem: RestoreIssue,
}

/// An alteration by the client, or the reason that a turn cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreIssue {
    /// A Seal or its thought differs from the issued one.
    #[error("this differs from what was issued in this turn")]
    Altered,
    /// A Claim is forged, truncated, or belongs to another caller.
    #[error("this claim was not issued to this caller")]
    ForeignClaim,
    /// The text was edited where its Seals forbid it, so nothing of the turn was restored.
    #[error("the text was edited although seals cover it; nothing was restored")]
    Edited,
    /// The captured turn was forgotten or has expired.
    #[error("the turn cannot be restored: {0}")]
    Gone(ElisionReason),
    /// The text equals a thought captured in this turn, so it is not sent as text.
    #[error(
        "this text is a thought of this conversation; it was removed, because thoughts are never sent as text"
    )]
    ThoughtAsText,
}
