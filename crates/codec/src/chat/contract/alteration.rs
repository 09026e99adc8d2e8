//! Determines the severity of changed reasoning. The severity depends on the vendor that issued the
//! reasoning.

use throughline_core::Vendor;

use crate::audit::{ChangeKind, Severity};

/// Returns the grammatical subject for the sentence that describes a change.
pub(super) fn subject(kind: ChangeKind) -> &'static str {
    if matches!(kind, ChangeKind::TextEdited { .. } | ChangeKind::Merged) {
        "the text of this block"
    } else if matches!(kind, ChangeKind::Reordered | ChangeKind::PartMoved) {
        "this block"
    } else {
        "the signature of this block"
    }
}

/// Returns whether a changed block is still at the position where it was issued.
pub(super) fn is_in_place(kind: ChangeKind) -> bool {
    !matches!(kind, ChangeKind::SealMoved | ChangeKind::PartMoved | ChangeKind::Duplicated)
}

/// Returns the severity of a change to a sealed detail; `None` if the vendor ignores the change.
/// `is_known` means that the message replays a known reply. If `is_known` is false, an unissued
/// block may come from an older, unknown reply.
pub(super) fn severity(
    kind: ChangeKind,
    vendor: Option<Vendor>,
    is_known: bool,
) -> Option<Severity> {
    use ChangeKind::{
        Duplicated, PartMoved, Reordered, SealAltered, SealMoved, SealReencoded, Unissued,
    };
    match (vendor, kind) {
        (Some(Vendor::Xai) | None, Unissued) => Some(Severity::Note),
        (Some(_), Unissued) => Some(if is_known { Severity::Refuse } else { Severity::Note }),
        // The signature covers the whole block, so every change breaks it.
        (Some(Vendor::Anthropic), _) => Some(Severity::Refuse),
        // Google checks the bytes but not their base64 alphabet, and accepted signatures at other
        // positions.
        (Some(Vendor::Google), _) => match kind {
            SealAltered { .. } => Some(Severity::Refuse),
            SealMoved | Duplicated | Reordered => Some(Severity::Note),
            _ => None,
        },
        // OpenAI checks the encrypted content; a summary is only for display. The effect of a
        // repeated item is not documented.
        (Some(Vendor::OpenAi), _) => match kind {
            SealAltered { .. } | SealReencoded => Some(Severity::Refuse),
            SealMoved | PartMoved | Reordered => Some(Severity::Degrade),
            Duplicated => Some(Severity::Note),
            _ => None,
        },
        (Some(Vendor::Xai) | None, _) => Some(Severity::Degrade),
    }
}
