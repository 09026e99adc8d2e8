//! Signatures: where one is demanded, and whether those that come back are those that were issued.

use std::collections::HashSet;

use throughline_core::{Body, Contract, Json, Node, ReasoningFormat, Side, Why, Wire, json};

use crate::gemini::contract::rules::{
    CACHE_PREFIX_BROKEN, FIRST_CALL_NEEDS_SIGNATURE, SIGNATURE_CORRUPTED, SIGNATURE_DROPPED,
    SIGNATURE_MOVED, SIGNED_TEXT_EDITED, STAND_IN_USED, THOUGHT_AS_TEXT,
};
use crate::gemini::contract::view::{Part, View};
use crate::gemini::wire::{self, Kind};
use crate::{Case, Change, ChangeKind, Edit, Finding, Findings, Issued, Mend, Severity};

/// The parts that were reported already, by where they begin.
pub(super) type Reported = HashSet<usize>;

/// Looks at every signature, with nothing but the request known; and says what it reported.
pub(super) fn look(case: &Case<'_>, view: &View<'_>, findings: &mut Findings<'_>) -> Reported {
    let mut reported = Reported::new();
    let mut stand_ins = Vec::new();
    for part in view.parts() {
        let is_stand_in = part.is_signed() && wire::has_stand_in(part.node);
        if part.kind == Kind::Thought || part.is_signed() {
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
            findings.add(malformed(case, view, part, signature));
        }
    }
    if let [first, others @ ..] = stand_ins.as_slice() {
        reported.extend(stand_ins.iter().map(|part| part.node.range().start));
        findings.add(stood_in(case, first, others.len()));
    }
    if case.profile().contract == Contract::RequiredWithTools {
        look_at_steps(case, view, findings, &mut reported);
    }
    reported
}

/// Each step of the current turn must sign its first call.
fn look_at_steps(
    case: &Case<'_>,
    view: &View<'_>,
    findings: &mut Findings<'_>,
    reported: &mut Reported,
) {
    for content in view.contents.iter().skip(view.current).filter(|content| content.is_models) {
        let Some(call) = content.of_kind(Kind::Call).next().filter(|call| !call.is_signed()) else {
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
                .under(call.path())
                .answered(missing(case, call, &name))
                .mended(signed_again(case, call)),
        );
    }
}

/// The provider's words for a call without a signature.
fn missing(case: &Case<'_>, call: &Part<'_>, name: &str) -> String {
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

/// Puts the signature back that was issued for this call, or else what Google documents in its place.
fn signed_again(case: &Case<'_>, call: &Part<'_>) -> Option<Mend> {
    let place = call.node.range();
    let lost = case.comparison().and_then(|comparison| {
        let mut changes = comparison.changes.iter();
        let is_it = |change: &&Change<'_>| {
            change.kind == ChangeKind::SealDropped && change.part.as_ref() == Some(&place)
        };
        changes.find(is_it).and_then(|change| change.issued)
    });
    let own = lost.filter(|issued| opens(case, *issued)).and_then(issued_signature);
    if let Some(signature) = own {
        let what = "puts the signature back that was issued with the call";
        return Some(Mend::new(what, [with_signature(call, signature)]));
    }
    let stand_in = case.profile().stand_in.as_deref()?;
    let what =
        "shows the stand-in that Google documents for calls without a signature of their own";
    Some(Mend::new(what, [with_signature(call, json::string(stand_in))]))
}

/// Gives a part a signature, in the spelling that it has.
fn with_signature(part: &Part<'_>, signature: Json) -> Edit {
    let spelled = wire::member(part.node, "thoughtSignature");
    match spelled {
        Some((_, value)) => Edit::Replace(value.range(), signature),
        None => Edit::Set(part.node.range(), "thoughtSignature".to_owned(), signature),
    }
}

/// Whether the target may have what was issued.
fn opens(case: &Case<'_>, issued: Issued<'_>) -> bool {
    let seal = issued.seal.and_then(|seal| issued.item.seals.get(seal));
    seal.is_some_and(|seal| seal.open_for(case.target(), None).is_ok())
}

/// The signature as it was issued, byte for byte.
fn issued_signature(issued: Issued<'_>) -> Option<Json> {
    let seal = issued.item.seals.get(issued.seal.unwrap_or_default())?;
    let native = issued.item.native_on(&Wire::GEMINI).filter(|n| n.side == Side::Response)?;
    let tree = native.json.tree();
    tree.root().at(&seal.attached.at).map(Node::json)
}

/// Whether a signature is base64, in either alphabet, with or without padding.
fn is_base64(signature: Node<'_>) -> bool {
    let Some(text) = signature.text() else { return false };
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(&text);
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    text.len() % 4 != 1 && text.bytes().all(is_letter)
}

fn malformed(case: &Case<'_>, view: &View<'_>, part: &Part<'_>, signature: Node<'_>) -> Finding {
    let message = format!("the signature of this {} is no base64", part.name());
    let path = part.path();
    Finding::at(&SIGNATURE_CORRUPTED, signature, message)
        .under(format!("{path}.thoughtSignature"))
        .answered(format!(
            "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for …"
        ))
        .mended(unsigned(case, view, part, signature))
}

/// Takes a signature away that nobody here can read; where one is demanded, the documented stand-in takes its place.
fn unsigned(
    case: &Case<'_>,
    view: &View<'_>,
    part: &Part<'_>,
    signature: Node<'_>,
) -> Option<Mend> {
    let content = view.contents.get(part.content)?;
    let is_first = content.of_kind(Kind::Call).next().is_some_and(|call| call.index == part.index);
    let is_demanded = case.profile().contract == Contract::RequiredWithTools
        && part.content >= view.current
        && is_first;
    if is_demanded {
        let stand_in = case.profile().stand_in.as_deref()?;
        let edit = Edit::Replace(signature.range(), json::string(stand_in));
        return Some(Mend::new("shows the stand-in that Google documents instead", [edit]));
    }
    let is_step = |part: &Part<'_>| {
        matches!(part.kind, Kind::HostedCall | Kind::HostedResult | Kind::Unknown)
    };
    if is_step(part) {
        // The provider cannot go on from a step of its own whose signature it cannot read.
        let is_all = content.parts.iter().all(is_step);
        let place = if is_all { content.node } else { part.node };
        let what = "removes the provider's own step whose signature nobody here can read";
        return Some(Mend::new(what, [Edit::Remove(place.range())]));
    }
    let is_nothing_else = part.kind == Kind::Text && part.value.raw().len() <= 2;
    if is_nothing_else && content.parts.len() > 1 {
        let edit = Edit::Remove(part.node.range());
        return Some(Mend::new("removes the empty part that only carried the signature", [edit]));
    }
    let edit = Edit::Remove(signature.range());
    Some(Mend::new("removes the signature that nobody here can read", [edit]))
}

fn stood_in(case: &Case<'_>, first: &Part<'_>, others: usize) -> Finding {
    let more = match others {
        0 => String::new(),
        1 => ", and so does another part".to_owned(),
        several => format!(", and so do {several} other parts"),
    };
    let message = format!("this {} shows a stand-in instead of a signature{more}", first.name());
    let restored = case
        .comparison()
        .and_then(|_| signed_again(case, first).filter(|mend| mend.what.contains("issued")));
    let place = first.signature.unwrap_or(first.node);
    Finding::at(&STAND_IN_USED, place, message)
        .under(format!("{}.thoughtSignature", first.path()))
        .mended(restored)
}

/// Reports what differs from what was issued.
pub(super) fn compare(
    case: &Case<'_>,
    view: &View<'_>,
    reported: &Reported,
    findings: &mut Findings<'_>,
) {
    let Some(comparison) = case.comparison() else { return };
    for change in &comparison.changes {
        match &change.part {
            Some(place) => {
                if let Some(part) = view.part_at(place)
                    && !reported.contains(&part.node.range().start)
                {
                    changed(case, view, change, part, findings);
                }
            }
            None => gone(case, view, change, findings),
        }
    }
    if let Some(finding) = comparison.broken_cache(&CACHE_PREFIX_BROKEN) {
        findings.add(finding);
    }
}

/// Something that was issued came back different.
fn changed(
    case: &Case<'_>,
    view: &View<'_>,
    change: &Change<'_>,
    part: &Part<'_>,
    findings: &mut Findings<'_>,
) {
    let phrase = change.kind.phrase();
    let name = part.name();
    let at = |rule, message: String| {
        Finding::at(rule, part.signature.unwrap_or(part.node), message).under(part.path())
    };
    let own = change.issued.filter(|issued| opens(case, *issued)).and_then(issued_signature);
    let as_issued = own.map(|signature| {
        let what = "puts the signature back as it was issued";
        Mend::new(what, [with_signature(part, signature)])
    });
    match change.kind {
        ChangeKind::SealAltered { .. } => {
            let message = format!("the signature of this {name} {phrase}");
            findings.add(at(&SIGNATURE_CORRUPTED, message).mended(as_issued));
        }
        ChangeKind::Foreign(why) => {
            // Between Gemini models nothing certain is known, so nothing is refused.
            let is_model = why == Why::OtherModel;
            let severity = if is_model { Severity::Degrade } else { Severity::Refuse };
            let mend = part.signature.and_then(|seal| unsigned(case, view, part, seal));
            let message = format!("the signature of this {name} {phrase}");
            findings.add(at(&SIGNATURE_CORRUPTED, message).as_grave_as(severity).mended(mend));
        }
        ChangeKind::Unissued => {
            let severity = if change.is_placed { Severity::Refuse } else { Severity::Note };
            let mend = part.signature.and_then(|seal| unsigned(case, view, part, seal));
            let message = format!("the signature of this {name} {phrase}");
            findings.add(at(&SIGNATURE_CORRUPTED, message).as_grave_as(severity).mended(mend));
        }
        // What could not have been read is not lost.
        ChangeKind::SealDropped if !change.issued.is_some_and(|issued| opens(case, issued)) => {}
        ChangeKind::SealDropped => {
            let message = format!("the signature of this {name} {phrase}");
            findings.add(at(&SIGNATURE_DROPPED, message).mended(as_issued));
        }
        ChangeKind::SealMoved | ChangeKind::Duplicated | ChangeKind::PartMoved => {
            if part.is_signed() {
                let message = format!("the signature of this {name} {phrase}");
                findings.add(at(&SIGNATURE_MOVED, message));
            }
        }
        ChangeKind::TextEdited { .. } | ChangeKind::Merged => {
            if change.issued.is_some_and(|issued| !issued.item.seals.is_empty()) {
                let mend = change.issued.and_then(|issued| said_again(part, issued));
                let message = format!("this {name} is signed, and its text {phrase}");
                findings.add(at(&SIGNED_TEXT_EDITED, message).mended(mend));
            }
        }
        ChangeKind::SaidAloud => {
            findings.add(at(&THOUGHT_AS_TEXT, format!("this text {phrase}")));
        }
        // The field is bytes: another alphabet says the same. And parts may stand in another order.
        ChangeKind::SealReencoded | ChangeKind::Reordered | ChangeKind::PartDropped => {}
    }
}

/// Puts a signed part back as it was issued.
fn said_again(part: &Part<'_>, issued: Issued<'_>) -> Option<Mend> {
    let native = issued.item.native_on(&Wire::GEMINI).filter(|n| n.side == Side::Response)?;
    let edit = Edit::Replace(part.node.range(), wire::project(&native.json));
    Some(Mend::new("puts the signed part back as it was issued", [edit]))
}

/// A signed part is gone.
fn gone(case: &Case<'_>, view: &View<'_>, change: &Change<'_>, findings: &mut Findings<'_>) {
    // What somebody else signed could not have come back.
    let Some(issued) = change.issued.filter(|issued| opens(case, *issued)) else { return };
    let what = match &issued.item.body {
        // The calls that are left are counted against their answers.
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
    let message = format!("{what} of an earlier answer was issued with a signature, and is gone");
    findings.add(
        Finding::at(&SIGNATURE_DROPPED, place.node, message).under(place.path()).advised(
            "Send every part of an answer back, the empty ones that carry a signature too.",
        ),
    );
}
