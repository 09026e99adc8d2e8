//! Checks signatures: where one is required, and whether they come back as issued.

use std::collections::HashSet;

use throughline_core::{Body, Contract, Direction, ElisionReason, ReasoningFormat, Wire};
use throughline_json::{self as json, Json, Node};

use crate::gemini::contract::rules::{
    CACHE_PREFIX_BROKEN, FIRST_CALL_NEEDS_SIGNATURE, SIGNATURE_CORRUPTED, SIGNATURE_DROPPED,
    SIGNATURE_MOVED, SIGNED_TEXT_EDITED, STAND_IN_USED, THOUGHT_AS_TEXT,
};
use crate::gemini::contract::view::{GeminiPart, GeminiRequest};
use crate::gemini::wire::{self, GeminiPartKind};
use crate::{AuditContext, Change, ChangeKind, Edit, Finding, Findings, Fix, IssuedItem, Severity};

/// Start offsets of the parts that already have a finding.
pub(super) type ReportedParts = HashSet<usize>;

/// Checks every signature using only the request; returns the reported parts.
pub(super) fn check(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    findings: &mut Findings<'_>,
) -> ReportedParts {
    let mut reported = ReportedParts::new();
    let mut stand_ins = Vec::new();
    for part in view.parts() {
        let is_stand_in = part.is_signed() && wire::has_stand_in(part.node);
        if part.kind == GeminiPartKind::Thought || part.is_signed() {
            let is_sealed = part.is_signed() && !is_stand_in;
            findings.count(part.node, &ReasoningFormat::GoogleGeminiV1, is_sealed);
        }
        if is_stand_in {
            stand_ins.push(part);
        } else if let Some(signature) = part.signature.filter(|_| part.is_signed())
            && !is_base64(signature)
            && !case.is_issued(signature)
        {
            reported.insert(part.node.range().start);
            findings.add(malformed_finding(case, view, part, signature));
        }
    }
    if let [first, others @ ..] = stand_ins.as_slice() {
        reported.extend(stand_ins.iter().map(|part| part.node.range().start));
        findings.add(stand_in_finding(case, first, others.len()));
    }
    if case.profile().contract == Contract::RequiredWithTools {
        check_steps(case, view, findings, &mut reported);
    }
    reported
}

/// Checks that each step of the current turn has a signature on its first call.
fn check_steps(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    findings: &mut Findings<'_>,
    reported: &mut ReportedParts,
) {
    for content in view.contents.iter().skip(view.current).filter(|content| content.is_models) {
        let Some(call) =
            content.parts_of_kind(GeminiPartKind::Call).next().filter(|call| !call.is_signed())
        else {
            continue;
        };
        let name = call.function();
        let problem = if call.signature.is_some() { "an empty" } else { "no" };
        let message = format!(
            "the first function call of this step, `{name}`, has {problem} thought signature"
        );
        reported.insert(call.node.range().start);
        findings.add(
            Finding::at(&FIRST_CALL_NEEDS_SIGNATURE, call.node, message)
                .with_path(call.path())
                .with_provider_error(missing_signature_error(case, call, &name))
                .with_auto_fix(restore_signature(case, call)),
        );
    }
}

/// Returns the provider's error for a call without a signature.
fn missing_signature_error(case: &AuditContext<'_>, call: &GeminiPart<'_>, name: &str) -> String {
    if &*case.target().provider.name == "vertex" {
        let at = call.content;
        return format!(
            "Function call `{name}` in the `{at}.` content block is missing a `thought_signature`."
        );
    }
    let position = call.content + 1;
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
         correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
         call `default_api:{name}` , position {position}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )
}

/// Builds a fix that restores the issued signature of a call, or uses Google's documented stand-in.
fn restore_signature(case: &AuditContext<'_>, call: &GeminiPart<'_>) -> Option<Fix> {
    let place = call.node.range();
    let lost = case.comparison().and_then(|comparison| {
        let mut changes = comparison.changes.iter();
        let is_it = |change: &&Change<'_>| {
            change.kind == ChangeKind::SealDropped && change.part.as_ref() == Some(&place)
        };
        changes.find(is_it).and_then(|change| change.issued)
    });
    let own = lost.filter(|issued| is_accepted_by_target(case, *issued)).and_then(issued_signature);
    if let Some(signature) = own {
        let what = "restores the signature issued with the call";
        return Some(Fix::new(what, [with_signature(call, signature)]));
    }
    let stand_in = case.profile().stand_in.as_deref()?;
    let what = "uses the stand-in that Google documents for unsigned calls";
    Some(Fix::new(what, [with_signature(call, json::string(stand_in))]))
}

/// Sets a part's signature, in the spelling the part uses.
fn with_signature(part: &GeminiPart<'_>, signature: Json) -> Edit {
    let spelled = wire::member(part.node, "thoughtSignature");
    match spelled {
        Some((_, value)) => Edit::Replace(value.range(), signature),
        None => Edit::Set(part.node.range(), "thoughtSignature".to_owned(), signature),
    }
}

/// Returns whether the target may receive the issued Seal.
fn is_accepted_by_target(case: &AuditContext<'_>, issued: IssuedItem<'_>) -> bool {
    let seal = issued.seal.and_then(|seal| issued.item.seals.get(seal));
    seal.is_some_and(|seal| seal.open_for(case.target(), None).is_ok())
}

/// Returns the issued signature with its original bytes.
fn issued_signature(issued: IssuedItem<'_>) -> Option<Json> {
    let seal = issued.item.seals.get(issued.seal.unwrap_or_default())?;
    let native = issued.item.native_on(&Wire::GEMINI).filter(|n| n.side == Direction::Response)?;
    let tree = native.json.tree();
    tree.root().at(&seal.attached.at).map(Node::json)
}

/// Returns whether a signature is base64 in either alphabet, with or without padding.
fn is_base64(signature: Node<'_>) -> bool {
    let Some(text) = signature.text() else { return false };
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(&text);
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    text.len() % 4 != 1 && text.bytes().all(is_letter)
}

fn malformed_finding(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    part: &GeminiPart<'_>,
    signature: Node<'_>,
) -> Finding {
    let message = format!("the signature of this {} is not base64", part.name());
    let path = part.path();
    Finding::at(&SIGNATURE_CORRUPTED, signature, message)
        .with_path(format!("{path}.thoughtSignature"))
        .with_provider_error(format!(
            "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for …"
        ))
        .with_auto_fix(remove_signature(case, view, part, signature))
}

/// Builds a fix that removes an unreadable signature; uses the documented stand-in where a
/// signature is required.
fn remove_signature(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    part: &GeminiPart<'_>,
    signature: Node<'_>,
) -> Option<Fix> {
    let content = view.contents.get(part.content)?;
    let is_first = content
        .parts_of_kind(GeminiPartKind::Call)
        .next()
        .is_some_and(|call| call.index == part.index);
    let is_demanded = case.profile().contract == Contract::RequiredWithTools
        && part.content >= view.current
        && is_first;
    if is_demanded {
        let stand_in = case.profile().stand_in.as_deref()?;
        let edit = Edit::Replace(signature.range(), json::string(stand_in));
        return Some(Fix::new("uses the stand-in that Google documents instead", [edit]));
    }
    let is_step = |part: &GeminiPart<'_>| {
        matches!(
            part.kind,
            GeminiPartKind::HostedCall | GeminiPartKind::HostedResult | GeminiPartKind::Unknown
        )
    };
    if is_step(part) {
        // The provider cannot continue from a step of its own whose signature it cannot read.
        let is_all = content.parts.iter().all(is_step);
        let place = if is_all { content.node } else { part.node };
        let what = "removes the provider-run step whose signature the target cannot read";
        return Some(Fix::new(what, [Edit::Remove(place.range())]));
    }
    let is_nothing_else = part.kind == GeminiPartKind::Text && part.value.raw().len() <= 2;
    if is_nothing_else && content.parts.len() > 1 {
        let edit = Edit::Remove(part.node.range());
        return Some(Fix::new("removes the empty part that holds only the signature", [edit]));
    }
    let edit = Edit::Remove(signature.range());
    Some(Fix::new("removes the signature that the target cannot read", [edit]))
}

fn stand_in_finding(case: &AuditContext<'_>, first: &GeminiPart<'_>, others: usize) -> Finding {
    let more = match others {
        0 => String::new(),
        1 => ", and so does another part".to_owned(),
        several => format!(", and so do {several} other parts"),
    };
    let message = format!("this {} has a stand-in instead of a signature{more}", first.name());
    let restored = case
        .comparison()
        .and_then(|_| restore_signature(case, first).filter(|fix| fix.what.contains("issued")));
    let place = first.signature.unwrap_or(first.node);
    Finding::at(&STAND_IN_USED, place, message)
        .with_path(format!("{}.thoughtSignature", first.path()))
        .with_auto_fix(restored)
}

/// Reports the differences from the issued parts.
pub(super) fn report_changes(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    reported: &ReportedParts,
    findings: &mut Findings<'_>,
) {
    let Some(comparison) = case.comparison() else { return };
    for change in &comparison.changes {
        match &change.part {
            Some(place) => {
                if let Some(part) = view.part_at(place)
                    && !reported.contains(&part.node.range().start)
                {
                    report_change(case, view, change, part, findings);
                }
            }
            None => report_missing_part(case, view, change, findings),
        }
    }
    if let Some(finding) = comparison.cache_finding(&CACHE_PREFIX_BROKEN) {
        findings.add(finding);
    }
}

/// Reports an issued part that came back changed.
fn report_change(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    change: &Change<'_>,
    part: &GeminiPart<'_>,
    findings: &mut Findings<'_>,
) {
    let phrase = change.kind.describe();
    let name = part.name();
    let at = |rule, message: String| {
        Finding::at(rule, part.signature.unwrap_or(part.node), message).with_path(part.path())
    };
    let own = change
        .issued
        .filter(|issued| is_accepted_by_target(case, *issued))
        .and_then(issued_signature);
    let as_issued = own.map(|signature| {
        let what = "restores the issued signature";
        Fix::new(what, [with_signature(part, signature)])
    });
    let message = format!("the signature of this {name} {phrase}");
    match change.kind {
        ChangeKind::SealAltered { .. } => {
            findings.add(at(&SIGNATURE_CORRUPTED, message).with_auto_fix(as_issued));
        }
        ChangeKind::Foreign(_) | ChangeKind::Unissued => {
            let severity = if change.kind == ChangeKind::Foreign(ElisionReason::OtherModel) {
                // No rejection is known between Gemini models.
                Severity::Degrade
            } else if change.kind == ChangeKind::Unissued && !change.is_placed {
                Severity::Note
            } else {
                Severity::Refuse
            };
            let fix = part.signature.and_then(|seal| remove_signature(case, view, part, seal));
            findings
                .add(at(&SIGNATURE_CORRUPTED, message).with_severity(severity).with_auto_fix(fix));
        }
        // A signature that the target cannot read is not lost.
        ChangeKind::SealDropped
            if !change.issued.is_some_and(|issued| is_accepted_by_target(case, issued)) => {}
        ChangeKind::SealDropped => {
            findings.add(at(&SIGNATURE_DROPPED, message).with_auto_fix(as_issued));
        }
        ChangeKind::SealMoved | ChangeKind::Duplicated | ChangeKind::PartMoved => {
            if part.is_signed() {
                findings.add(at(&SIGNATURE_MOVED, message));
            }
        }
        ChangeKind::TextEdited { .. } | ChangeKind::Merged => {
            if change.issued.is_some_and(|issued| !issued.item.seals.is_empty()) {
                let fix = change.issued.and_then(|issued| restore_part(part, issued));
                let message = format!("this {name} is signed, and its text {phrase}");
                findings.add(at(&SIGNED_TEXT_EDITED, message).with_auto_fix(fix));
            }
        }
        ChangeKind::SaidAloud => {
            findings.add(at(&THOUGHT_AS_TEXT, format!("this text {phrase}")));
        }
        // The field holds bytes, so the alphabet does not matter. The order of parts may change
        // too.
        ChangeKind::SealReencoded | ChangeKind::Reordered | ChangeKind::PartDropped => {}
    }
}

/// Builds a fix that restores a signed part.
fn restore_part(part: &GeminiPart<'_>, issued: IssuedItem<'_>) -> Option<Fix> {
    let native = issued.item.native_on(&Wire::GEMINI).filter(|n| n.side == Direction::Response)?;
    let edit = Edit::Replace(part.node.range(), wire::to_request_part(&native.json));
    Some(Fix::new("restores the issued signed part", [edit]))
}

/// Reports a signed part that is missing.
fn report_missing_part(
    case: &AuditContext<'_>,
    view: &GeminiRequest<'_>,
    change: &Change<'_>,
    findings: &mut Findings<'_>,
) {
    // The target could not have received parts that another endpoint signed.
    let Some(issued) = change.issued.filter(|issued| is_accepted_by_target(case, *issued)) else {
        return;
    };
    let what = match &issued.item.body {
        // `ANSWERS_DO_NOT_MATCH` covers missing calls.
        Body::Call(_) => return,
        Body::Thought(_) => "a thought",
        Body::Text(text) if text.is_empty() => "an empty text",
        Body::Text(_) => "a text",
        Body::Media(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => "a part",
    };
    let Some(place) = view.contents.iter().rfind(|content| content.is_models) else { return };
    let message =
        format!("{what} of an earlier response was issued with a signature and is missing");
    findings.add(
        Finding::at(&SIGNATURE_DROPPED, place.node, message).with_path(place.path()).with_fix(
            "Send every part of a response back, including empty parts with a signature.",
        ),
    );
}
