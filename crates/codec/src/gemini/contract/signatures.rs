//! Checks where signatures are required, and whether they are replayed as issued.

use std::collections::HashSet;

use throughline_core::{Body, Contract, Direction, ElisionReason, ReasoningFormat, Wire};
use throughline_json::{self as json, Json, Node};

use crate::gemini::contract::rules;
use crate::gemini::contract::view::{GeminiContent, GeminiPart, GeminiRequest};
use crate::gemini::wire::{self, GeminiPartKind};
use crate::{Change, ChangeKind, Edit, Finding, Findings, Fix, IssuedItem, Severity};

impl GeminiRequest<'_> {
    /// Checks each signature on its own, then compares the request parts with the parts that the
    /// model issued.
    pub(super) fn check_signatures(&self, findings: &mut Findings<'_>) {
        // Start offsets of the parts that already have a finding.
        let mut reported = HashSet::new();
        let mut stand_ins = Vec::new();
        for part in self.parts() {
            let is_stand_in = part.is_signed() && wire::has_stand_in(part.node);
            if part.kind == GeminiPartKind::Thought || part.is_signed() {
                let is_sealed = part.is_signed() && !is_stand_in;
                findings.count(part.node, &ReasoningFormat::GoogleGeminiV1, is_sealed);
            }
            if is_stand_in {
                stand_ins.push(part);
            } else if let Some(signature) = part.signature.filter(|_| part.is_signed())
                && !is_base64(signature)
                && !self.case.is_issued(signature)
            {
                reported.insert(part.node.range().start);
                findings.add(self.malformed_finding(part, signature));
            }
        }
        if let [first, others @ ..] = stand_ins.as_slice() {
            reported.extend(stand_ins.iter().map(|part| part.node.range().start));
            findings.add(self.stand_in_finding(first, others.len()));
        }
        if self.requires_signatures() {
            let steps = self.contents.iter().skip(self.current).filter(|step| step.is_models);
            for call in steps.filter_map(first_call).filter(|call| !call.is_signed()) {
                reported.insert(call.node.range().start);
                findings.add(self.unsigned_finding(call));
            }
        }
        let Some(comparison) = self.case.comparison() else { return };
        for change in &comparison.changes {
            let Some(place) = &change.part else {
                findings.extend(self.report_missing_part(change));
                continue;
            };
            let part = self.part_at(place);
            let part = part.filter(|part| !reported.contains(&part.node.range().start));
            findings.extend(part.and_then(|part| self.report_change(change, part)));
        }
        findings.extend(comparison.cache_finding(&rules::CACHE_PREFIX_BROKEN));
    }

    /// Returns whether the first call of each step in the current turn needs a signature.
    fn requires_signatures(&self) -> bool {
        self.case.profile().contract == Contract::RequiredWithTools
    }

    /// Reports that the first call of a step lacks a signature.
    fn unsigned_finding(&self, call: &GeminiPart<'_>) -> Finding {
        let name = call.function();
        let problem = if call.signature.is_some() { "an empty" } else { "no" };
        let message = format!(
            "the first function call of this step, `{name}`, has {problem} thought signature"
        );
        let (at, position) = (call.content, call.content + 1);
        let error = if &*self.case.target().provider.name == "vertex" {
            format!(
                "Function call `{name}` in the `{at}.` content block is missing a `thought_signature`."
            )
        } else {
            format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
                 correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
                 call `default_api:{name}` , position {position}. Please refer to \
                 https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
        };
        let fix = self.issued_signature_fix(call).or_else(|| {
            let stand_in = self.case.profile().stand_in.as_deref()?;
            let description = "uses the stand-in that Google documents for unsigned calls";
            Some(Fix::new(description, [with_signature(call, json::string(stand_in))]))
        });
        let finding = Finding::at(&rules::FIRST_CALL_NEEDS_SIGNATURE, call.node, message);
        finding.with_provider_error(error).with_auto_fix(fix)
    }

    /// Builds a fix that restores the signature that the model issued for a part.
    fn issued_signature_fix(&self, part: &GeminiPart<'_>) -> Option<Fix> {
        let place = part.node.range();
        let dropped = self.case.comparison()?.changes.iter().find(|change| {
            change.kind == ChangeKind::SealDropped && change.part.as_ref() == Some(&place)
        })?;
        let signature = self.acceptable_signature(dropped.issued?)?;
        let description = "restores the signature issued with the call";
        Some(Fix::new(description, [with_signature(part, signature)]))
    }

    /// Returns whether the Seal of an issued part may be sent to the target.
    fn is_accepted(&self, issued: IssuedItem<'_>) -> bool {
        let seal = issued.seal.and_then(|seal| issued.item.seals.get(seal));
        seal.is_some_and(|seal| seal.open_for(self.case.target(), None).is_ok())
    }

    /// Returns the issued signature if it may be sent to the target.
    fn acceptable_signature(&self, issued: IssuedItem<'_>) -> Option<Json> {
        issued.seal_json(&Wire::GEMINI).filter(|_| self.is_accepted(issued))
    }

    fn malformed_finding(&self, part: &GeminiPart<'_>, signature: Node<'_>) -> Finding {
        let message = format!("the signature of this {} is not base64", part.name());
        let path = part.path();
        Finding::at(&rules::SIGNATURE_CORRUPTED, signature, message)
            .with_path(format!("{path}.thoughtSignature"))
            .with_provider_error(format!(
                "Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed for …"
            ))
            .with_auto_fix(self.remove_signature(part, signature))
    }

    /// Builds a fix that removes an unreadable signature. If the part requires a signature,
    /// replaces the signature with Google's documented stand-in.
    fn remove_signature(&self, part: &GeminiPart<'_>, signature: Node<'_>) -> Option<Fix> {
        let content = self.contents.get(part.content)?;
        let is_first = first_call(content).is_some_and(|call| call.index == part.index);
        if self.requires_signatures() && part.content >= self.current && is_first {
            let stand_in = json::string(self.case.profile().stand_in.as_deref()?);
            let description = "uses the stand-in that Google documents instead";
            return Some(Fix::replacement(signature, stand_in, description));
        }
        let is_step = |part: &GeminiPart<'_>| {
            use GeminiPartKind::{HostedCall, HostedResult, Unknown};
            matches!(part.kind, HostedCall | HostedResult | Unknown)
        };
        let is_empty_text = part.kind == GeminiPartKind::Text && part.value.raw().len() <= 2;
        Some(if is_step(part) {
            // The provider cannot continue from one of its own steps if it cannot read the step's
            // signature.
            let is_all = content.parts.iter().all(is_step);
            let description =
                "removes the provider-run step whose signature the target cannot read";
            Fix::removal(if is_all { content.node } else { part.node }, description)
        } else if is_empty_text && content.parts.len() > 1 {
            Fix::removal(part.node, "removes the empty part that holds only the signature")
        } else {
            Fix::removal(signature, "removes the signature that the target cannot read")
        })
    }

    fn stand_in_finding(&self, first: &GeminiPart<'_>, others: usize) -> Finding {
        let more = match others {
            0 => String::new(),
            1 => ", and so does another part".to_owned(),
            several => format!(", and so do {several} other parts"),
        };
        let message = format!("this {} has a stand-in instead of a signature{more}", first.name());
        Finding::at(&rules::STAND_IN_USED, first.signature.unwrap_or(first.node), message)
            .with_path(format!("{}.thoughtSignature", first.path()))
            .with_auto_fix(self.issued_signature_fix(first))
    }

    /// Reports a part that differs from the part that the model issued.
    fn report_change(&self, change: &Change<'_>, part: &GeminiPart<'_>) -> Option<Finding> {
        let (phrase, name) = (change.kind.describe(), part.name());
        let at = |rule, message: String| {
            Finding::at(rule, part.signature.unwrap_or(part.node), message).with_path(part.path())
        };
        let as_issued = || {
            let edit = with_signature(part, self.acceptable_signature(change.issued?)?);
            Some(Fix::new("restores the issued signature", [edit]))
        };
        let message = format!("the signature of this {name} {phrase}");
        match change.kind {
            ChangeKind::SealAltered { .. } => {
                Some(at(&rules::SIGNATURE_CORRUPTED, message).with_auto_fix(as_issued()))
            }
            ChangeKind::Foreign(_) | ChangeKind::Unissued => {
                let severity = match change.kind {
                    // Gemini models are not known to reject each other's signatures.
                    ChangeKind::Foreign(ElisionReason::OtherModel) => Severity::Degrade,
                    ChangeKind::Unissued if !change.is_placed => Severity::Note,
                    _ => Severity::Refuse,
                };
                let fix = part.signature.and_then(|seal| self.remove_signature(part, seal));
                let finding = at(&rules::SIGNATURE_CORRUPTED, message).with_severity(severity);
                Some(finding.with_auto_fix(fix))
            }
            ChangeKind::SealDropped => {
                // Do not report a missing signature that the target could not read anyway.
                change.issued.filter(|issued| self.is_accepted(*issued))?;
                Some(at(&rules::SIGNATURE_DROPPED, message).with_auto_fix(as_issued()))
            }
            ChangeKind::SealMoved | ChangeKind::Duplicated | ChangeKind::PartMoved => {
                part.is_signed().then(|| at(&rules::SIGNATURE_MOVED, message))
            }
            ChangeKind::TextEdited { .. } | ChangeKind::Merged => {
                let issued = change.issued.filter(|issued| !issued.item.seals.is_empty())?;
                let native = issued.item.native_on(&Wire::GEMINI);
                let native = native.filter(|native| native.side == Direction::Response);
                let fix = native.map(|native| {
                    let issued = wire::to_request_part(&native.json);
                    Fix::replacement(part.node, issued, "restores the issued signed part")
                });
                let message = format!("this {name} is signed, and its text {phrase}");
                Some(at(&rules::SIGNED_TEXT_EDITED, message).with_auto_fix(fix))
            }
            ChangeKind::SentAsText => {
                Some(at(&rules::THOUGHT_AS_TEXT, format!("this text {phrase}")))
            }
            // The field holds bytes, so the base64 alphabet does not matter. Parts may also be
            // reordered.
            ChangeKind::SealReencoded | ChangeKind::Reordered | ChangeKind::PartDropped => None,
        }
    }

    /// Reports a signed part that is missing from the request.
    fn report_missing_part(&self, change: &Change<'_>) -> Option<Finding> {
        use Body::{Compaction, Hosted, Media, Result, Summary, Unknown};
        // The target could not read parts that another endpoint signed, so they may be omitted.
        let issued = change.issued.filter(|issued| self.is_accepted(*issued))?;
        let part_name = match &issued.item.body {
            // `ANSWERS_DO_NOT_MATCH` covers missing calls.
            Body::Call(_) => return None,
            Body::Thought(_) => "a thought",
            Body::Text(text) if text.is_empty() => "an empty text",
            Body::Text(_) => "a text",
            Media(_) | Result(_) | Hosted(_) | Compaction | Summary { .. } | Unknown => "a part",
        };
        let message = format!(
            "{part_name} of an earlier response was issued with a signature and is missing"
        );
        let place = self.contents.iter().rfind(|content| content.is_models)?;
        let advice = "Send every part of a response back, including empty parts with a signature.";
        Some(Finding::at(&rules::SIGNATURE_DROPPED, place.node, message).with_fix(advice))
    }
}

fn first_call<'p, 'c>(content: &'p GeminiContent<'c>) -> Option<&'p GeminiPart<'c>> {
    content.parts_of_kind(GeminiPartKind::Call).next()
}

/// Builds an edit that sets the signature of a part. An existing member keeps the spelling of its
/// name.
fn with_signature(part: &GeminiPart<'_>, signature: Json) -> Edit {
    match wire::get(part.node, "thoughtSignature") {
        Some(value) => Edit::Replace(value.range(), signature),
        None => Edit::Set(part.node.range(), "thoughtSignature".to_owned(), signature),
    }
}

/// Returns whether a signature is base64 in either alphabet, with or without padding.
fn is_base64(signature: Node<'_>) -> bool {
    let Some(text) = signature.text() else { return false };
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(&text);
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    text.len() % 4 != 1 && text.bytes().all(is_letter)
}
