//! `reasoning_details` as a router takes them: each block whole and signed, by somebody whom the model reads.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use throughline_core::{Channel, Json, Node, Vendor, json};

use crate::audit::{Edit, Finding, Mend, Severity};
use crate::chat::contract::past::Past;
use crate::chat::contract::rules::{
    DETAILS_FRAGMENTED, FIRST_CALL_NEEDS_SIGNATURE, FOREIGN_DETAILS, SIGNATURE_INVALID,
    SIGNATURE_MISSING,
};
use crate::chat::contract::view::{Detail, Kind, Report, Said, View};

pub(super) fn check(view: &View<'_>, past: &Past<'_>, report: &mut Report<'_, '_>) {
    let target = view.case.target();
    if target.provider.dialect.channel != Channel::Details || target.profile.name == "unknown" {
        return;
    }
    for (number, said) in view.answers() {
        if report.applies(&DETAILS_FRAGMENTED) {
            fragments(number, said, past, report);
        }
        for detail in &said.details {
            foreign(view, detail, report);
            unsigned(view, number, detail, past, report);
            illegible(view, number, detail, past, report);
        }
    }
    if report.applies(&FIRST_CALL_NEEDS_SIGNATURE) {
        let current = view.answers().filter(|(number, _)| *number >= view.current);
        for (number, said) in current {
            first_call(view, number, said, past, report);
        }
    }
}

/// Takes an entry out of its list.
fn without(detail: &Detail<'_>, what: &str) -> Mend {
    Mend::new(what, [Edit::Remove(detail.node.range())])
}

/// Texts of one block as a stream cut them. Together they are the block; apart, the signature fits none of them.
fn fragments(number: usize, said: &Said<'_>, past: &Past<'_>, report: &mut Report<'_, '_>) {
    let mut rest = said.details.as_slice();
    while let [first, behind @ ..] = rest {
        let belongs = |detail: &&Detail<'_>| {
            is_claudes_text(detail) && detail.index.is_some() && detail.index == first.index
        };
        let more = behind.iter().take_while(belongs).count();
        let (pieces, others) = rest.split_at(if is_claudes_text(first) { more + 1 } else { 1 });
        rest = others;
        let [whole @ .., last] = pieces else { continue };
        // Blocks that all carry their signature are blocks, whatever their numbers.
        let is_cut = !whole.is_empty() && whole.iter().any(|piece| piece.seal.is_none());
        if !is_cut || pieces.iter().all(|piece| piece.seal.is_none()) {
            continue;
        }
        for piece in pieces {
            report.cover(&piece.node.range());
        }
        let message = format!("these are {} pieces of one block", pieces.len());
        let mend = past.restore(number, said).unwrap_or_else(|| {
            let removed = pieces.iter().skip(1).map(|piece| Edit::Remove(piece.node.range()));
            let joined = Edit::Replace(first.node.range(), joined(pieces));
            Mend::new("joins the pieces of the block", removed.chain([joined]).collect::<Vec<_>>())
        });
        let answer = invalid_signature(number);
        report.add(
            Finding::in_range(
                &DETAILS_FRAGMENTED,
                first.node.range().start..last.node.range().end,
                message,
            )
            .under(format!("messages[{number}].reasoning_details"))
            .answered(answer)
            .mended(Some(mend)),
        );
    }
}

fn is_claudes_text(detail: &Detail<'_>) -> bool {
    detail.kind == Kind::Text && detail.vendor == Some(Vendor::Anthropic)
}

/// One entry from the pieces of it: all of the text, and the members that only one of them has.
fn joined(pieces: &[Detail<'_>]) -> Json {
    let text: String = pieces.iter().filter_map(|piece| piece.text?.text()).collect();
    let mut members: Vec<(String, Json)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (key, value) in pieces.iter().flat_map(|piece| piece.node.members()) {
        let key = key.text().unwrap_or_default().into_owned();
        let value = if key == "text" { json::string(&text) } else { value.json() };
        match places.get(&key).and_then(|place| members.get_mut(*place)) {
            // A signature comes once, behind all text; an empty one before it is none.
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

/// A block that Claude signs, without its signature.
fn unsigned(
    view: &View<'_>,
    number: usize,
    detail: &Detail<'_>,
    past: &Past<'_>,
    report: &mut Report<'_, '_>,
) {
    let is_signed_kind = matches!(detail.kind, Kind::Text | Kind::Encrypted);
    let is_claudes = view.vendor == Some(Vendor::Anthropic) && detail.vendor == view.vendor;
    if !is_claudes || !is_signed_kind || detail.seal.is_some() {
        return;
    }
    if report.is_covered(&detail.node.range()) {
        return;
    }
    let what = "removes the thinking block that has no signature";
    let mend = view.messages.get(number).and_then(|said| past.restore(number, said));
    let is_current = number >= view.current;
    let message = match detail.kind {
        Kind::Encrypted => "`data` is missing",
        Kind::Text | Kind::Summary | Kind::Other => "`signature` is missing",
    };
    report.add(
        Finding::at(&SIGNATURE_MISSING, detail.node, message)
            // What finished turns send back unsigned is not known to be looked at.
            .as_grave_as(if is_current { Severity::Refuse } else { Severity::Note })
            .answered(invalid_signature(number))
            .mended(Some(mend.unwrap_or_else(|| without(detail, what)))),
    );
}

/// A seal that cannot be one of its vendor's, whoever looks at it.
fn illegible(
    view: &View<'_>,
    number: usize,
    detail: &Detail<'_>,
    past: &Past<'_>,
    report: &mut Report<'_, '_>,
) {
    let Some(seal) = detail.seal.filter(|_| detail.vendor.is_some()) else { return };
    if detail.vendor != view.vendor || report.is_covered(&detail.node.range()) {
        return;
    }
    let text = seal.text().unwrap_or_default();
    // OpenAI's are Fernet tokens, and nobody else's are.
    let is_openais = text.starts_with("gAAAA");
    let is_misplaced = is_openais && view.vendor != Some(Vendor::OpenAi);
    // Only of these vendors it is known that they refuse another alphabet.
    let is_checked = matches!(view.vendor, Some(Vendor::Anthropic | Vendor::Google));
    let is_legible = !is_checked || is_base64(&text);
    if view.is_stand_in(seal) || is_legible && !is_misplaced || view.case.is_issued(seal) {
        return;
    }
    let message = if is_misplaced {
        "this value was encrypted by OpenAI, and stands where another's signature belongs"
    } else {
        "this signature is not base64, so nobody issued it like that"
    };
    let said = view.messages.get(number);
    let mend = said.and_then(|said| past.restore(number, said));
    let mend =
        mend.unwrap_or_else(|| without(detail, "removes the block whose signature is broken"));
    report.cover(&detail.node.range());
    report.add(
        Finding::at(&SIGNATURE_INVALID, seal, message)
            .answered(refusal(view, number, detail))
            .mended(Some(mend)),
    );
}

/// Whether a text can be base64, in either alphabet. One that was cut short still can; that only its owner notices.
fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=').as_bytes();
    let is_letter =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    letters.iter().all(is_letter) && letters.len() % 4 != 1
}

/// A seal of another vendor's than the model's.
fn foreign(view: &View<'_>, detail: &Detail<'_>, report: &mut Report<'_, '_>) {
    let is_plain = detail.kind == Kind::Text && detail.seal.is_none();
    if is_plain && view.vendor == Some(Vendor::Anthropic) && detail.vendor != view.vendor {
        // Two reports disagree on whether the router passes such texts on.
        let message = "this text was not thought by a Claude, and may reach it as a block without a signature";
        let mend = without(detail, "removes the reasoning of another model");
        report.add(
            Finding::at(&FOREIGN_DETAILS, detail.node, message)
                .as_grave_as(Severity::Note)
                .unanswered()
                .mended(Some(mend)),
        );
        return;
    }
    if detail.seal.is_none() || detail.vendor.is_none() || detail.vendor == view.vendor {
        return;
    }
    let (model, format) = (view.case.target().model(), detail.format.as_str());
    let message = format!("{model} cannot read the format {format}");
    // What xAI does with another's seal is nowhere said, and who seals nothing verifies nothing.
    let is_checked =
        matches!(view.vendor, Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi));
    let severity = if is_checked { Severity::Refuse } else { Severity::Degrade };
    let mend = without(detail, "removes the block that another vendor's model sealed");
    let number = view.message_at(&detail.node.range()).unwrap_or_default();
    let finding = Finding::at(&FOREIGN_DETAILS, detail.node, message)
        .as_grave_as(severity)
        .mended(Some(mend));
    report.add(if is_checked {
        finding.answered(refusal(view, number, detail))
    } else {
        finding.unanswered()
    });
}

/// The first call of a step, where Gemini wants its signature.
fn first_call(
    view: &View<'_>,
    number: usize,
    said: &Said<'_>,
    past: &Past<'_>,
    report: &mut Report<'_, '_>,
) {
    let Some(call) = said.calls.first().copied() else { return };
    let id = call.get("id").filter(|id| id.is_string());
    let first = call.text_of("id");
    let called: HashSet<Cow<'_, str>> =
        said.calls.iter().filter_map(|call| call.text_of("id")).collect();
    let attaches = |detail: &Detail<'_>| {
        let own = detail.id.and_then(Node::text);
        let is_anothers = own.as_ref().is_some_and(|own| called.contains(own)) && own != first;
        detail.seal.is_some() && !is_anothers
    };
    if said.details.iter().any(attaches) || Said::signs_call(call) {
        return;
    }
    let name = call.at("/function/name").and_then(Node::text).unwrap_or_default();
    let message =
        format!("the call of `{name}` has no `reasoning.encrypted` detail with its signature");
    let mend = past.restore(number, said).or_else(|| {
        let stand_in = view.case.profile().stand_in.as_deref()?;
        let handle = json::object(|out| {
            out.string("type", "reasoning.encrypted").string("data", stand_in);
            if let Some(id) = id {
                out.node("id", id);
            }
            out.string("format", "google-gemini-v1").number("index", 0);
        });
        // Whatever is there without a signature is not what the model signed.
        let kept = said.details.iter().filter(|detail| detail.kind != Kind::Encrypted);
        let kept = kept.map(|detail| detail.node.json()).chain([handle]).collect::<Vec<_>>();
        let list = json::array_of(&kept);
        let edit = Edit::Set(said.node.range(), "reasoning_details".to_owned(), list);
        Some(Mend::new("puts the documented stand-in where the signature is not known", [edit]))
    });
    for detail in said.details.iter().filter(|detail| detail.kind == Kind::Encrypted) {
        report.cover(&detail.node.range());
    }
    report.cover(&said.node.range());
    report.add(
        Finding::at(&FIRST_CALL_NEEDS_SIGNATURE, call, message)
            .answered(missing_signature(&name, number))
            .mended(mend),
    );
}

/// What the upstream says of a block that it did not sign like that.
pub(super) fn refusal(view: &View<'_>, number: usize, detail: &Detail<'_>) -> String {
    match view.vendor {
        Some(Vendor::Google) => "Corrupted thought signature.".to_owned(),
        Some(Vendor::OpenAi | Vendor::Xai) => {
            let id = detail.id.and_then(Node::text).unwrap_or_default();
            format!("The encrypted content for item {id} could not be verified.")
        }
        Some(Vendor::Anthropic) | None => invalid_signature(number),
    }
}

fn invalid_signature(number: usize) -> String {
    format!("messages.{number}.content.0: Invalid `signature` in `thinking` block")
}

fn missing_signature(name: &str, number: usize) -> String {
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
