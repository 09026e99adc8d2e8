//! How grave it is that reasoning comes back otherwise than it was issued: a matter of whose it is.

use throughline_core::Vendor;

use crate::audit::{ChangeKind, Severity};

/// What is wrong with something that came back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Altered {
    /// Its seal has other bytes.
    Bytes,
    /// Its seal is written in another alphabet.
    Alphabet,
    /// It has another's seal.
    Swapped,
    /// It stands apart from the rest of its answer, or with another answer.
    Apart,
    /// Its text is another.
    Text,
    /// It stands in another order.
    Order,
    /// It stands there twice.
    Twice,
    /// Nobody issued it.
    Unissued,
}

impl Altered {
    /// What a change comes to, where something came back at all.
    pub(super) fn of(kind: ChangeKind) -> Option<Self> {
        match kind {
            ChangeKind::SealAltered { .. } => Some(Self::Bytes),
            ChangeKind::SealReencoded => Some(Self::Alphabet),
            ChangeKind::SealMoved => Some(Self::Swapped),
            ChangeKind::PartMoved => Some(Self::Apart),
            ChangeKind::TextEdited { .. } | ChangeKind::Merged => Some(Self::Text),
            ChangeKind::Reordered => Some(Self::Order),
            ChangeKind::Duplicated => Some(Self::Twice),
            ChangeKind::Unissued => Some(Self::Unissued),
            ChangeKind::SealDropped
            | ChangeKind::PartDropped
            | ChangeKind::Foreign(_)
            | ChangeKind::SaidAloud => None,
        }
    }

    /// What a sentence about it begins with.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Text => "the text of this block",
            Self::Order | Self::Apart => "this block",
            Self::Bytes | Self::Alphabet | Self::Swapped | Self::Twice | Self::Unissued => {
                "the signature of this block"
            }
        }
    }

    /// Whether the place where it stands is the one where it was issued.
    pub(super) fn is_in_place(self) -> bool {
        match self {
            Self::Swapped | Self::Apart | Self::Twice => false,
            Self::Bytes | Self::Alphabet | Self::Text | Self::Order | Self::Unissued => true,
        }
    }

    /// How grave it is for a sealed detail; nothing where the vendor does not mind. `is_known` says that the answer which
    /// the message was is known: otherwise what seems to come from nowhere may only be older than what is known.
    pub(super) fn gravity(self, vendor: Option<Vendor>, is_known: bool) -> Option<Severity> {
        if self == Self::Unissued {
            let is_checked =
                matches!(vendor, Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi));
            let is_certain = is_known && is_checked;
            return Some(if is_certain { Severity::Refuse } else { Severity::Note });
        }
        match vendor {
            // Every change of a block is one of what was signed.
            Some(Vendor::Anthropic) => Some(Severity::Refuse),
            Some(Vendor::Google) => self.for_gemini(),
            Some(Vendor::OpenAi) => self.for_openai(),
            Some(Vendor::Xai) | None => Some(Severity::Degrade),
        }
    }

    /// The bytes count, not their alphabet; and a signature in another place was taken.
    fn for_gemini(self) -> Option<Severity> {
        match self {
            Self::Bytes | Self::Unissued => Some(Severity::Refuse),
            Self::Swapped | Self::Twice | Self::Order => Some(Severity::Note),
            Self::Alphabet | Self::Apart | Self::Text => None,
        }
    }

    /// What is encrypted must be whole; a summary is for people, and nothing hangs on it.
    fn for_openai(self) -> Option<Severity> {
        match self {
            Self::Bytes | Self::Alphabet | Self::Unissued => Some(Severity::Refuse),
            Self::Swapped | Self::Apart | Self::Order => Some(Severity::Degrade),
            // Nothing tells what becomes of one that is sent twice.
            Self::Twice => Some(Severity::Note),
            Self::Text => None,
        }
    }
}
