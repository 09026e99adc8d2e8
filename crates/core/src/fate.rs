//! What a Call did with each Item and each Seal. Nothing else may vanish.

use crate::name::{ItemId, Name};

/// What one Call did with one Item's visible content, and separately with each of its Seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The Item.
    pub item: ItemId,
    /// What happened to what can be read.
    pub visible: Did,
    /// What happened to each Seal, in the Item's order.
    pub seals: Vec<Did>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// It was sent as it is.
    Kept,
    /// The client had lost it; it was found again.
    Restored(Evidence),
    /// It was sent in another shape.
    Reshaped(How),
    /// It was not sent. It stays in the Thread.
    Elided(Why),
}

impl Did {
    /// The word for it, as `kept`.
    pub fn word(&self) -> &'static str {
        match self {
            Did::Kept => "kept",
            Did::Restored(_) => "restored",
            Did::Reshaped(_) => "reshaped",
            Did::Elided(_) => "elided",
        }
    }
}

impl std::fmt::Display for Did {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Did::Kept => f.write_str("kept"),
            Did::Restored(evidence) => write!(f, "restored: {evidence}"),
            Did::Reshaped(how) => write!(f, "reshaped: {how}"),
            Did::Elided(why) => write!(f, "elided: {why}"),
        }
    }
}

/// On what grounds something was restored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// A handle that we gave out came back.
    Claim,
    /// An id named exactly one captured turn of this tenant.
    UniqueId,
    /// The whole visible conversation up to here is the same.
    Chain {
        /// How many other captured turns look the same.
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
                write!(f, "by the visible conversation ({siblings} alike)")
            }
        }
    }
}

/// In what way something was reshaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Said in another wire's words.
    OtherWire,
    /// A documented value stands in for it.
    StandIn,
    /// Its ids were left out, because what they pair with is gone.
    IdsDropped,
    /// Joined with its neighbour.
    Merged,
    /// Structure became text.
    Flattened,
    /// Sent as it was sent before, though it has changed since.
    Frozen,
    /// Put in the `<thought>` envelope.
    Enveloped,
    /// Put under the side-channel key of the request.
    SideChannel,
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            How::OtherWire => "said on another wire",
            How::StandIn => "a documented stand-in",
            How::IdsDropped => "ids dropped",
            How::Merged => "merged with its neighbour",
            How::Flattened => "flattened to text",
            How::Frozen => "sent as before",
            How::Enveloped => "in a thought envelope",
            How::SideChannel => "in the side channel",
        })
    }
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Another provider or endpoint issued it.
    Foreign,
    /// Another account's.
    OtherAccount,
    /// The target model cannot read that family's seals.
    OtherModel,
    /// What stood before it has changed.
    PrefixChanged,
    /// A thought without a seal, where the wire takes sealed ones only.
    Unsigned,
    /// The stream ended before it was whole.
    Cut,
    /// It is not what the provider issued.
    Altered,
    /// A summary stands for it.
    Covered,
    /// It was forgotten on request.
    Forgotten,
    /// It outlived its retention.
    Expired,
    /// The wire has no place for it.
    NotOnThisWire,
    /// The caller's policy says so.
    ByPolicy,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Why::Foreign => "foreign: another provider issued it",
            Why::OtherAccount => "another account's",
            Why::OtherModel => "the model cannot read it",
            Why::PrefixChanged => "what stood before it changed",
            Why::Unsigned => "unsigned",
            Why::Cut => "cut off in the stream",
            Why::Altered => "altered",
            Why::Covered => "covered by a summary",
            Why::Forgotten => "forgotten",
            Why::Expired => "expired",
            Why::NotOnThisWire => "no place on this wire",
            Why::ByPolicy => "by policy",
        })
    }
}

/// A setting of the Call that could not be carried, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The setting, as the source wire or our own type calls it.
    pub setting: Name,
    /// What became of it, as a sentence.
    pub message: Name,
}

impl Warning {
    /// A warning about that setting.
    pub fn new(setting: impl Into<Name>, message: impl Into<Name>) -> Self {
        Self { setting: setting.into(), message: message.into() }
    }
}
