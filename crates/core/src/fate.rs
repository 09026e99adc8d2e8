//! The outcome of a Call for each Item and each Seal. No content is dropped without a report.

use throughline_json::{Name, words};

use crate::name::ItemId;

/// The outcome of one Call for an Item's visible content and for each of its Seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The id of the Item that this Fate describes.
    pub item: ItemId,
    /// The outcome for the Item's readable content.
    pub visible: Disposition,
    /// One outcome per Seal, in the order of [`Item::seals`](crate::Item::seals).
    pub seals: Vec<Disposition>,
}

/// The outcome for an Item's readable content or for one Seal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// The content was sent unchanged.
    Kept,
    /// The client had dropped the content, and the gateway restored it.
    Restored(Evidence),
    /// The content was sent in another form.
    Reshaped(ReshapeKind),
    /// The content was not sent. It stays in the Thread.
    Elided(ElisionReason),
}

impl Disposition {
    /// Returns the outcome as a single word, such as `kept`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Disposition::Kept => "kept",
            Disposition::Restored(_) => "restored",
            Disposition::Reshaped(_) => "reshaped",
            Disposition::Elided(_) => "elided",
        }
    }
}

impl std::fmt::Display for Disposition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Disposition::Kept => f.write_str("kept"),
            Disposition::Restored(evidence) => write!(f, "restored: {evidence}"),
            Disposition::Reshaped(kind) => write!(f, "reshaped: {kind}"),
            Disposition::Elided(reason) => write!(f, "elided: {reason}"),
        }
    }
}

/// The evidence that justifies restoring content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The client sent back a Claim that the gateway had issued.
    Claim,
    /// An id matched exactly one captured turn of this tenant.
    UniqueId,
    /// The visible conversation up to this turn equals the conversation of a captured turn,
    /// completely or since a captured turn that was found before.
    Chain {
        /// The number of other captured turns with the same visible content.
        siblings: u32,
    },
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Evidence::Claim => f.write_str("by claim"),
            Evidence::UniqueId => f.write_str("by unique id"),
            Evidence::Chain { siblings: 0 } => f.write_str("by the visible conversation"),
            Evidence::Chain { siblings } => {
                write!(f, "by the visible conversation ({siblings} other matches)")
            }
        }
    }
}

words! {
    /// How content was changed before it was sent.
    ReshapeKind {
        /// Encoded for another wire.
        OtherWire = "encoded for another wire",
        /// Replaced by a documented placeholder.
        StandIn = "replaced by a documented placeholder",
        /// Sent without ids, because the items that the ids are paired with are missing.
        IdsDropped = "ids dropped",
        /// Joined with the neighbouring Item.
        Merged = "merged with its neighbour",
        /// Structured content was converted to plain text.
        Flattened = "flattened to text",
        /// Sent as in an earlier request, although the content has changed since.
        Frozen = "sent as before",
        /// Sent in a system message inside the conversation, so that the content before earlier
        /// Seals stays unchanged.
        Appended = "appended as a system message",
        /// Wrapped in the `<thought>` envelope.
        Enveloped = "in a thought envelope",
        /// Placed under the side-channel key of the request.
        SideChannel = "in the side channel",
    }

    /// The reason why content was not sent.
    ElisionReason {
        /// Another provider or endpoint issued the Seal.
        Foreign = "foreign: another provider issued it",
        /// Another account owns the Seal.
        OtherAccount = "owned by another account",
        /// The target model cannot read Seals of that family.
        OtherModel = "the model cannot read it",
        /// The content before the Seal has changed.
        PrefixChanged = "the content before it changed",
        /// The Thought has no Seal, and the wire accepts only sealed Thoughts.
        Unsigned = "unsigned",
        /// The stream ended before the content was complete.
        Cut = "truncated stream",
        /// The content differs from what the provider issued.
        Altered = "altered",
        /// A summary replaces the Item.
        Covered = "covered by a summary",
        /// The content was erased on request.
        Forgotten = "forgotten",
        /// The retention period has passed.
        Expired = "expired",
        /// The wire cannot express the content.
        NotOnThisWire = "not supported by this wire",
        /// The caller's policy excludes the content.
        ByPolicy = "by policy",
        /// The Thought has no Seal, and the model does not use such Thoughts.
        Unused = "the model does not use it",
        /// The Thought has no Seal, and the model uses such Thoughts only in the current tool loop.
        EarlierTurn = "the model uses it only in the current tool loop",
        /// The content was sent, and the provider reported that it dropped the content.
        ByProvider = "dropped by the provider",
    }
}

/// A setting of the Call that could not be sent unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The setting's name, as in the source request or in [`Settings`](crate::Settings).
    pub setting: Name,
    /// A sentence that describes what happened to the setting.
    pub message: Name,
}

impl Warning {
    /// Creates a warning; `message` is a complete sentence for the user.
    pub fn new(setting: impl Into<Name>, message: impl Into<Name>) -> Self {
        Self { setting: setting.into(), message: message.into() }
    }
}
