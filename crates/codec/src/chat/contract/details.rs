//! Checks `reasoning_details`: each block must be complete, signed, and readable by the model's
//! vendor.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use throughline_core::{ReasoningChannel, Vendor};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Edit, Finding, Fix, Severity};
use crate::chat::contract::replay_history::ChatReplayHistory;
use crate::chat::contract::rules::{
    DETAILS_FRAGMENTED, FIRST_CALL_NEEDS_SIGNATURE, FOREIGN_DETAILS, SIGNATURE_INVALID,
    SIGNATURE_MISSING,
};
use crate::chat::contract::view::{
    ChatDetail, ChatDetailKind, ChatFindings, ChatMessage, ChatRequest,
};

pub(super) fn check(
    view: &ChatRequest<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let target = view.case.target();
    if target.provider.dialect.channel != ReasoningChannel::Details
        || target.profile.name == "unknown"
    {
        return;
    }
    for (number, said) in view.assistant_messages() {
        if report.applies(&DETAILS_FRAGMENTED) {
            check_fragments(number, said, past, report);
        }
        for detail in &said.details {
            check_foreign(view, detail, report);
            check_unsigned(view, number, detail, past, report);
            check_malformed_seal(view, number, detail, past, report);
        }
    }
    if report.applies(&FIRST_CALL_NEEDS_SIGNATURE) {
        let current = view.assistant_messages().filter(|(number, _)| *number >= view.current);
        for (number, said) in current {
            check_first_call(view, number, said, past, report);
        }
    }
}

/// Builds a fix that removes an entry from its list.
fn removal(detail: &ChatDetail<'_>, what: &str) -> Fix {
    Fix::new(what, [Edit::Remove(detail.node.range())])
}

/// Reports the fragments of one streamed block that were not joined; the signature matches none of
/// the fragments.
fn check_fragments(
    number: usize,
    said: &ChatMessage<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let mut rest = said.details.as_slice();
    while let [first, behind @ ..] = rest {
        let belongs = |detail: &&ChatDetail<'_>| {
            is_claude_text(detail) && detail.index.is_some() && detail.index == first.index
        };
        let more = behind.iter().take_while(belongs).count();
        let (pieces, others) = rest.split_at(if is_claude_text(first) { more + 1 } else { 1 });
        rest = others;
        let [whole @ .., last] = pieces else { continue };
        // Blocks that are all signed are complete, even with the same index.
        let is_cut = !whole.is_empty() && whole.iter().any(|piece| piece.seal.is_none());
        if !is_cut || pieces.iter().all(|piece| piece.seal.is_none()) {
            continue;
        }
        for piece in pieces {
            report.cover(&piece.node.range());
        }
        let message = format!("these are {} fragments of one block", pieces.len());
        let fix = past.restore(number, said).unwrap_or_else(|| {
            let removed = pieces.iter().skip(1).map(|piece| Edit::Remove(piece.node.range()));
            let joined = Edit::Replace(first.node.range(), join_fragments(pieces));
            Fix::new(
                "joins the fragments of the block",
                removed.chain([joined]).collect::<Vec<_>>(),
            )
        });
        let answer = invalid_signature_error(number);
        report.add(
            Finding::in_range(
                &DETAILS_FRAGMENTED,
                first.node.range().start..last.node.range().end,
                message,
            )
            .with_path(format!("messages[{number}].reasoning_details"))
            .with_provider_error(answer)
            .with_auto_fix(fix),
        );
    }
}

fn is_claude_text(detail: &ChatDetail<'_>) -> bool {
    detail.kind == ChatDetailKind::Text && detail.vendor == Some(Vendor::Anthropic)
}

/// Joins fragments to one entry: the whole text, and the first value of each other member.
fn join_fragments(pieces: &[ChatDetail<'_>]) -> Json {
    let text: String = pieces.iter().filter_map(|piece| piece.text?.text()).collect();
    let mut members: Vec<(String, Json)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (key, value) in pieces.iter().flat_map(|piece| piece.node.members()) {
        let key = key.text().unwrap_or_default().into_owned();
        let value = if key == "text" { json::string(&text) } else { value.json() };
        match places.get(&key).and_then(|place| members.get_mut(*place)) {
            // The signature follows all text; an empty one before it does not count.
            Some((_, known)) if key == "signature" && value.as_str().len() > 2 => *known = value,
            Some(_) => {}
            None => {
                places.insert(key.clone(), members.len());
                members.push((key, value));
            }
        }
    }
    json::object_of(members.iter().map(|(key, value)| (key.as_str(), value)))
}

/// Reports a Claude block without its signature.
fn check_unsigned(
    view: &ChatRequest<'_>,
    number: usize,
    detail: &ChatDetail<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let is_signed_kind = matches!(detail.kind, ChatDetailKind::Text | ChatDetailKind::Encrypted);
    let is_claudes = view.vendor == Some(Vendor::Anthropic) && detail.vendor == view.vendor;
    if !is_claudes || !is_signed_kind || detail.seal.is_some() {
        return;
    }
    if report.is_covered(&detail.node.range()) {
        return;
    }
    let what = "removes the thinking block without a signature";
    let fix = view.messages.get(number).and_then(|said| past.restore(number, said));
    let is_current = number >= view.current;
    let message = match detail.kind {
        ChatDetailKind::Encrypted => "`data` is missing",
        ChatDetailKind::Text | ChatDetailKind::Summary | ChatDetailKind::Other => {
            "`signature` is missing"
        }
    };
    report.add(
        Finding::at(&SIGNATURE_MISSING, detail.node, message)
            // Providers are not known to check unsigned blocks of finished turns.
            .with_severity(if is_current { Severity::Refuse } else { Severity::Note })
            .with_provider_error(invalid_signature_error(number))
            .with_auto_fix(fix.unwrap_or_else(|| removal(detail, what))),
    );
}

/// Reports a Seal that the vendor cannot have issued in this form.
fn check_malformed_seal(
    view: &ChatRequest<'_>,
    number: usize,
    detail: &ChatDetail<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let Some(seal) = detail.seal.filter(|_| detail.vendor.is_some()) else { return };
    if detail.vendor != view.vendor || report.is_covered(&detail.node.range()) {
        return;
    }
    let text = seal.text().unwrap_or_default();
    // Only OpenAI's values are Fernet tokens.
    let is_openais = text.starts_with("gAAAA");
    let is_misplaced = is_openais && view.vendor != Some(Vendor::OpenAi);
    // Only these vendors are known to reject another alphabet.
    let is_checked = matches!(view.vendor, Some(Vendor::Anthropic | Vendor::Google));
    let is_legible = !is_checked || is_base64(&text);
    if view.is_stand_in(seal) || is_legible && !is_misplaced || view.case.is_issued(seal) {
        return;
    }
    let message = if is_misplaced {
        "OpenAI encrypted this value, but another vendor's signature is expected here"
    } else {
        "this signature is not base64, so no provider issued it in this form"
    };
    let said = view.messages.get(number);
    let fix = said.and_then(|said| past.restore(number, said));
    let fix =
        fix.unwrap_or_else(|| removal(detail, "removes the block with the invalid signature"));
    report.cover(&detail.node.range());
    report.add(
        Finding::at(&SIGNATURE_INVALID, seal, message)
            .with_provider_error(upstream_error(view, number, detail))
            .with_auto_fix(fix),
    );
}

/// Returns whether a text can be base64 in either alphabet. Truncated base64 passes; only its
/// issuer can detect that.
fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=').as_bytes();
    let is_letter =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    letters.iter().all(is_letter) && letters.len() % 4 != 1
}

/// Reports a Seal of another vendor than the model's.
fn check_foreign(
    view: &ChatRequest<'_>,
    detail: &ChatDetail<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let is_plain = detail.kind == ChatDetailKind::Text && detail.seal.is_none();
    if is_plain && view.vendor == Some(Vendor::Anthropic) && detail.vendor != view.vendor {
        // Two reports disagree on whether the router passes such texts on.
        let message = "this reasoning is not Claude's and may reach Claude as an unsigned block";
        let fix = removal(detail, "removes the reasoning of another model");
        report.add(
            Finding::at(&FOREIGN_DETAILS, detail.node, message)
                .with_severity(Severity::Note)
                .without_provider_error()
                .with_auto_fix(fix),
        );
        return;
    }
    if detail.seal.is_none() || detail.vendor.is_none() || detail.vendor == view.vendor {
        return;
    }
    let (model, format) = (view.case.target().model(), detail.format.as_str());
    let message = format!("{model} cannot read the format {format}");
    // xAI does not document what it does with foreign Seals, and vendors without Seals verify
    // nothing.
    let is_checked =
        matches!(view.vendor, Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi));
    let severity = if is_checked { Severity::Refuse } else { Severity::Degrade };
    let fix = removal(detail, "removes the block sealed by another vendor's model");
    let number = view.message_at(&detail.node.range()).unwrap_or_default();
    let finding = Finding::at(&FOREIGN_DETAILS, detail.node, message)
        .with_severity(severity)
        .with_auto_fix(fix);
    report.add(if is_checked {
        finding.with_provider_error(upstream_error(view, number, detail))
    } else {
        finding.without_provider_error()
    });
}

/// Reports the first call of a step without the signature that Gemini requires.
fn check_first_call(
    view: &ChatRequest<'_>,
    number: usize,
    said: &ChatMessage<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let Some(call) = said.calls.first().copied() else { return };
    let id = call.get("id").filter(|id| id.is_string());
    let first = call.text_of("id");
    let called: HashSet<Cow<'_, str>> =
        said.calls.iter().filter_map(|call| call.text_of("id")).collect();
    let attaches = |detail: &ChatDetail<'_>| {
        let own = detail.id.and_then(Node::text);
        let is_anothers = own.as_ref().is_some_and(|own| called.contains(own)) && own != first;
        detail.seal.is_some() && !is_anothers
    };
    if said.details.iter().any(attaches) || ChatMessage::is_signed_call(call) {
        return;
    }
    let name = call.at("/function/name").and_then(Node::text).unwrap_or_default();
    let message =
        format!("the call to `{name}` has no `reasoning.encrypted` detail with its signature");
    let fix = past.restore(number, said).or_else(|| {
        let stand_in = view.case.profile().stand_in.as_deref()?;
        let handle = json::object(|out| {
            out.string("type", "reasoning.encrypted").string("data", stand_in);
            if let Some(id) = id {
                out.node("id", id);
            }
            out.string("format", "google-gemini-v1").number("index", 0);
        });
        // Encrypted details without a signature are not what the model signed.
        let kept = said.details.iter().filter(|detail| detail.kind != ChatDetailKind::Encrypted);
        let kept = kept.map(|detail| detail.node.json()).chain([handle]).collect::<Vec<_>>();
        let list = json::array_of(&kept);
        let edit = Edit::Set(said.node.range(), "reasoning_details".to_owned(), list);
        Some(Fix::new("uses the documented stand-in for the unknown signature", [edit]))
    });
    for detail in said.details.iter().filter(|detail| detail.kind == ChatDetailKind::Encrypted) {
        report.cover(&detail.node.range());
    }
    report.cover(&said.node.range());
    report.add(
        Finding::at(&FIRST_CALL_NEEDS_SIGNATURE, call, message)
            .with_provider_error(missing_signature_error(&name, number))
            .with_auto_fix(fix),
    );
}

/// Returns the upstream's error for a block that it did not sign in this form.
pub(super) fn upstream_error(
    view: &ChatRequest<'_>,
    number: usize,
    detail: &ChatDetail<'_>,
) -> String {
    match view.vendor {
        Some(Vendor::Google) => "Corrupted thought signature.".to_owned(),
        Some(Vendor::OpenAi | Vendor::Xai) => {
            let id = detail.id.and_then(Node::text).unwrap_or_default();
            format!("The encrypted content for item {id} could not be verified.")
        }
        Some(Vendor::Anthropic) | None => invalid_signature_error(number),
    }
}

fn invalid_signature_error(number: usize) -> String {
    format!("messages.{number}.content.0: Invalid `signature` in `thinking` block")
}

fn missing_signature_error(name: &str, number: usize) -> String {
    format!(
        "Gemini models require OpenRouter reasoning details to be preserved in each request. Please refer to our docs: \
         https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks. Upstream error: \
         {{\"error\":{{\"code\":400,\"message\":\"Function call is missing a thought_signature in functionCall parts. This \
         is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. \
         Additional data, function call `default_api:{name}` , position {}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details.\",\"status\":\"INVALID_ARGUMENT\"}}}}",
        number + 1
    )
}
