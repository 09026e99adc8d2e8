//! Severity of reasoning that comes back changed, which depends on the vendor that issued it.

use throughline_core::Vendor;

use crate::audit::{ChangeKind, Severity};

/// A difference between a block and its issued form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alteration {
    /// The Seal has different bytes.
    Bytes,
    /// The Seal uses another base64 alphabet.
    Alphabet,
    /// The block has the Seal of another block.
    Swapped,
    /// The block is separated from the rest of its reply, or is part of another reply.
    Apart,
    /// The text differs.
    Text,
    /// The blocks are in a different order.
    Order,
    /// The block is repeated.
    Twice,
    /// No known reply contains the block.
    Unissued,
}

impl Alteration {
    /// Maps a change to the difference; `None` if nothing came back.
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

    /// Returns the subject of the finding's message.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Text => "the text of this block",
            Self::Order | Self::Apart => "this block",
            Self::Bytes | Self::Alphabet | Self::Swapped | Self::Twice | Self::Unissued => {
                "the signature of this block"
            }
        }
    }

    /// Returns whether the block is at the position where it was issued.
    pub(super) fn is_in_place(self) -> bool {
        !matches!(self, Self::Swapped | Self::Apart | Self::Twice)
    }

    /// Returns the severity for a sealed detail; `None` if the vendor ignores the difference.
    /// `is_known` states that the reply which became this message is known. If not, an unissued
    /// block may just be older than the known replies.
    pub(super) fn severity(self, vendor: Option<Vendor>, is_known: bool) -> Option<Severity> {
        if self == Self::Unissued {
            let is_checked =
                matches!(vendor, Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi));
            let is_certain = is_known && is_checked;
            return Some(if is_certain { Severity::Refuse } else { Severity::Note });
        }
        match vendor {
            // The signature covers the whole block, so every change breaks it.
            Some(Vendor::Anthropic) => Some(Severity::Refuse),
            Some(Vendor::Google) => self.gemini_severity(),
            Some(Vendor::OpenAi) => self.openai_severity(),
            Some(Vendor::Xai) | None => Some(Severity::Degrade),
        }
    }

    /// Google checks the bytes but not their alphabet, and accepted signatures in other positions.
    fn gemini_severity(self) -> Option<Severity> {
        match self {
            Self::Bytes | Self::Unissued => Some(Severity::Refuse),
            Self::Swapped | Self::Twice | Self::Order => Some(Severity::Note),
            Self::Alphabet | Self::Apart | Self::Text => None,
        }
    }

    /// OpenAI checks the encrypted content; a summary is only for display.
    fn openai_severity(self) -> Option<Severity> {
        match self {
            Self::Bytes | Self::Alphabet | Self::Unissued => Some(Severity::Refuse),
            Self::Swapped | Self::Apart | Self::Order => Some(Severity::Degrade),
            // The effect of a repeated item is not documented.
            Self::Twice => Some(Severity::Note),
            Self::Text => None,
        }
    }
}
