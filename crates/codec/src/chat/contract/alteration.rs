//! Severity of reasoning that comes back changed, which depends on the vendor that issued it.

use throughline_core::Vendor;

use crate::audit::{ChangeKind, Severity};

/// Returns the subject of the message about a changed block.
pub(super) fn subject(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::TextEdited { .. } | ChangeKind::Merged => "the text of this block",
        ChangeKind::Reordered | ChangeKind::PartMoved => "this block",
        _ => "the signature of this block",
    }
}

/// Returns whether a changed block is at the position where it was issued.
pub(super) fn is_in_place(kind: ChangeKind) -> bool {
    !matches!(kind, ChangeKind::SealMoved | ChangeKind::PartMoved | ChangeKind::Duplicated)
}

/// Returns the severity of a change to a sealed detail; `None` if the vendor ignores the change.
/// `is_known` states that the reply which became this message is known. If not, an unissued block
/// may just be older than the known replies.
pub(super) fn severity(
    kind: ChangeKind,
    vendor: Option<Vendor>,
    is_known: bool,
) -> Option<Severity> {
    use ChangeKind::{Duplicated, PartMoved, Reordered, SealAltered, SealMoved, SealReencoded};
    Some(match (vendor, kind) {
        (Some(Vendor::Xai) | None, ChangeKind::Unissued) => Severity::Note,
        (_, ChangeKind::Unissued) if !is_known => Severity::Note,
        (_, ChangeKind::Unissued) => Severity::Refuse,
        // The signature covers the whole block, so every change breaks it.
        (Some(Vendor::Anthropic), _) => Severity::Refuse,
        // Google checks the bytes but not their alphabet, and accepted signatures in other
        // positions.
        (Some(Vendor::Google), SealAltered { .. }) => Severity::Refuse,
        (Some(Vendor::Google), SealMoved | Duplicated | Reordered) => Severity::Note,
        (Some(Vendor::Google), _) => return None,
        // OpenAI checks the encrypted content; a summary is only for display. The effect of a
        // repeated item is not documented.
        (Some(Vendor::OpenAi), SealAltered { .. } | SealReencoded) => Severity::Refuse,
        (Some(Vendor::OpenAi), SealMoved | PartMoved | Reordered) => Severity::Degrade,
        (Some(Vendor::OpenAi), Duplicated) => Severity::Note,
        (Some(Vendor::OpenAi), _) => return None,
        (Some(Vendor::Xai) | None, _) => Severity::Degrade,
    })
}
