//! Checks `reasoning_details`: each block must be complete, signed, and readable by the model's
//! vendor.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use throughline_core::{ReasoningChannel, Vendor};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Edit, Finding, Findings, Fix, Severity};
use crate::chat::contract::rules;
use crate::chat::contract::view::{ChatDetail, ChatDetailKind, ChatMessage, ChatRequest};

impl ChatRequest<'_> {
    pub(super) fn check_details(&self, findings: &mut Findings<'_>) {
        if self.channel != ReasoningChannel::Details || self.case.profile().name == "unknown" {
            return;
        }
        for (number, msg) in self.assistant_messages() {
            if findings.applies(&rules::DETAILS_FRAGMENTED) {
                self.check_fragments(number, msg, findings);
            }
            for detail in &msg.details {
                let place = detail.node.range();
                findings.extend(self.foreign_finding(number, detail));
                if !findings.is_covered(&place) {
                    findings.extend(self.unsigned_finding(number, detail));
                }
                if !findings.is_covered(&place)
                    && let Some(finding) = self.malformed_finding(number, detail)
                {
                    findings.cover(place.clone());
                    findings.add(finding);
                }
            }
        }
        if !findings.applies(&rules::FIRST_CALL_NEEDS_SIGNATURE) {
            return;
        }
        for (number, msg) in self.assistant_messages().filter(|(at, _)| *at >= self.current) {
            if let Some(finding) = self.first_call_finding(number, msg) {
                let is_encrypted = |d: &&ChatDetail<'_>| d.kind == ChatDetailKind::Encrypted;
                for detail in msg.details.iter().filter(is_encrypted) {
                    findings.cover(detail.node.range());
                }
                findings.cover(msg.node.range());
                findings.add(finding);
            }
        }
    }

    /// Reports fragments of one streamed block that were not joined. The signature covers the whole
    /// block and matches no single fragment.
    fn check_fragments(&self, number: usize, msg: &ChatMessage<'_>, findings: &mut Findings<'_>) {
        // Only Claude text details with the same index can be fragments of one block.
        let index = |detail: &ChatDetail<'_>| {
            let is_claude_text =
                detail.kind == ChatDetailKind::Text && detail.vendor == Some(Vendor::Anthropic);
            detail.node.get("index").and_then(Node::u64).filter(|_| is_claude_text)
        };
        let is_same = |one: &ChatDetail<'_>, next: &ChatDetail<'_>| {
            index(one).is_some() && index(one) == index(next)
        };
        for pieces in msg.details.chunk_by(is_same) {
            let [first, .., last] = pieces else { continue };
            // Details that are all signed are complete blocks, even if they share an index.
            let is_cut = pieces.iter().rev().skip(1).any(|piece| piece.seal.is_none());
            if !is_cut || pieces.iter().all(|piece| piece.seal.is_none()) {
                continue;
            }
            for piece in pieces {
                findings.cover(piece.node.range());
            }
            let message = format!("these are {} fragments of one block", pieces.len());
            let fix = self.restore(number).unwrap_or_else(|| {
                let removed = pieces.iter().skip(1).map(|piece| Edit::Remove(piece.node.range()));
                let joined = Edit::Replace(first.node.range(), join_fragments(pieces));
                let edits: Vec<_> = removed.chain([joined]).collect();
                Fix::new("joins the fragments of the block", edits)
            });
            let range = first.node.range().start..last.node.range().end;
            findings.add(
                Finding::in_range(&rules::DETAILS_FRAGMENTED, range, message)
                    .with_path(format!("messages[{number}].reasoning_details"))
                    .with_provider_error(invalid_signature_error(number))
                    .with_auto_fix(fix),
            );
        }
    }

    /// Builds a fix that restores the message's reasoning as issued, or else removes the detail.
    fn restore_or_remove(&self, number: usize, detail: &ChatDetail<'_>, description: &str) -> Fix {
        self.restore(number).unwrap_or_else(|| Fix::removal(detail.node, description))
    }

    /// Reports a Claude block without its signature.
    fn unsigned_finding(&self, number: usize, detail: &ChatDetail<'_>) -> Option<Finding> {
        let message = match detail.kind {
            ChatDetailKind::Encrypted => "`data` is missing",
            ChatDetailKind::Text => "`signature` is missing",
            ChatDetailKind::Summary | ChatDetailKind::Other => return None,
        };
        let is_claudes = self.vendor == Some(Vendor::Anthropic) && detail.vendor == self.vendor;
        if !is_claudes || detail.seal.is_some() {
            return None;
        }
        // No provider is known to check unsigned blocks of finished turns.
        let severity = if number >= self.current { Severity::Refuse } else { Severity::Note };
        let description = "removes the thinking block without a signature";
        let finding = Finding::at(&rules::SIGNATURE_MISSING, detail.node, message)
            .with_severity(severity)
            .with_provider_error(invalid_signature_error(number));
        Some(finding.with_auto_fix(self.restore_or_remove(number, detail, description)))
    }

    /// Reports a Seal whose form shows that the model's vendor did not issue the Seal.
    fn malformed_finding(&self, number: usize, detail: &ChatDetail<'_>) -> Option<Finding> {
        let seal = detail.seal.filter(|_| detail.vendor.is_some())?;
        if detail.vendor != self.vendor {
            return None;
        }
        let text = seal.text().unwrap_or_default();
        // Only values issued by OpenAI are Fernet tokens, which start with `gAAAA`.
        let is_openais = text.starts_with("gAAAA");
        let is_misplaced = is_openais && self.vendor != Some(Vendor::OpenAi);
        // Only these vendors are known to reject values that are not base64.
        let is_checked = matches!(self.vendor, Some(Vendor::Anthropic | Vendor::Google));
        let is_legible = !is_checked || is_base64(&text);
        if self.is_stand_in(seal) || is_legible && !is_misplaced || self.case.is_issued(seal) {
            return None;
        }
        let message = if is_misplaced {
            "OpenAI encrypted this value, but another vendor's signature is expected here"
        } else {
            "this signature is not base64, so no provider issued it in this form"
        };
        let description = "removes the block with the invalid signature";
        let finding = Finding::at(&rules::SIGNATURE_INVALID, seal, message)
            .with_provider_error(self.upstream_error(number, detail));
        let finding = finding.with_auto_fix(self.restore_or_remove(number, detail, description));
        Some(self.with_router_severity(finding))
    }

    /// Reports a Seal that a vendor other than the model's vendor issued.
    fn foreign_finding(&self, number: usize, detail: &ChatDetail<'_>) -> Option<Finding> {
        let is_plain = detail.kind == ChatDetailKind::Text && detail.seal.is_none();
        if is_plain && self.vendor == Some(Vendor::Anthropic) && detail.vendor != self.vendor {
            // Two bug reports disagree on whether the router forwards unsigned texts.
            let message =
                "this reasoning is not Claude's and may reach Claude as an unsigned block";
            let finding = Finding::at(&rules::FOREIGN_DETAILS, detail.node, message)
                .with_severity(Severity::Note)
                .without_provider_error();
            let description = "removes the reasoning of another model";
            return Some(finding.fixed_by_removing(detail.node, description));
        }
        if detail.seal.is_none() || detail.vendor.is_none() || detail.vendor == self.vendor {
            return None;
        }
        let (model, format) = (self.case.target().model(), detail.format.as_str());
        let message = format!("{model} cannot read the format {format}");
        // xAI does not document how it treats foreign Seals, and vendors that do not issue Seals
        // verify none.
        let is_checked =
            matches!(self.vendor, Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi));
        let severity = if is_checked { Severity::Refuse } else { Severity::Degrade };
        let finding = Finding::at(&rules::FOREIGN_DETAILS, detail.node, message)
            .with_severity(severity)
            .with_rejection_error(self.upstream_error(number, detail));
        let description = "removes the block sealed by another vendor's model";
        Some(self.with_router_severity(finding.fixed_by_removing(detail.node, description)))
    }

    /// Reports the first call of a step if it lacks the signature that Gemini requires.
    fn first_call_finding(&self, number: usize, msg: &ChatMessage<'_>) -> Option<Finding> {
        let call = *msg.calls.first()?;
        let first = call.text_of("id");
        let called: HashSet<Cow<'_, str>> =
            msg.calls.iter().filter_map(|call| call.text_of("id")).collect();
        let attaches = |detail: &ChatDetail<'_>| {
            let own = detail.id.and_then(Node::text);
            let is_anothers = own.as_ref().is_some_and(|own| called.contains(own)) && own != first;
            detail.seal.is_some() && !is_anothers
        };
        if msg.details.iter().any(attaches) || ChatMessage::is_signed_call(call) {
            return None;
        }
        let name = call.at("/function/name").and_then(Node::text).unwrap_or_default();
        let message =
            format!("the call to `{name}` has no `reasoning.encrypted` detail with its signature");
        let fix = self.restore(number).or_else(|| {
            let stand_in = self.case.profile().stand_in.as_deref()?;
            let handle = object! {
                "type": "reasoning.encrypted", "data": stand_in,
                "id": call.get("id").filter(|id| id.is_string()),
                "format": "google-gemini-v1", "index": 0_u64,
            };
            // Drop encrypted details, because none of them is the signature of this call.
            let kept = msg.details.iter().filter(|d| d.kind != ChatDetailKind::Encrypted);
            let kept: Vec<_> = kept.map(|detail| detail.node.json()).chain([handle]).collect();
            let list = json::array_of(&kept);
            let edit = Edit::Set(msg.node.range(), "reasoning_details".to_owned(), list);
            Some(Fix::new("uses the documented stand-in for the unknown signature", [edit]))
        });
        let finding = Finding::at(&rules::FIRST_CALL_NEEDS_SIGNATURE, call, message);
        let error = missing_signature_error(&name, number);
        Some(finding.with_provider_error(error).with_auto_fix(fix))
    }

    /// Returns the upstream's error for a block whose signature does not verify.
    pub(super) fn upstream_error(&self, number: usize, detail: &ChatDetail<'_>) -> String {
        match self.vendor {
            Some(Vendor::Google) => "Corrupted thought signature.".to_owned(),
            Some(Vendor::OpenAi | Vendor::Xai) => {
                let id = detail.id.and_then(Node::text).unwrap_or_default();
                format!("The encrypted content for item {id} could not be verified.")
            }
            Some(Vendor::Anthropic) | None => invalid_signature_error(number),
        }
    }
}

/// Joins fragments into one detail: the whole text, the last non-empty signature, and the first
/// value of each other member.
fn join_fragments(pieces: &[ChatDetail<'_>]) -> Json {
    let texts = pieces.iter().filter_map(|piece| piece.node.text_of("text"));
    let text: String = texts.collect();
    let mut members: Vec<(String, Json)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (key, value) in pieces.iter().flat_map(|piece| piece.node.members()) {
        let key = key.text().unwrap_or_default().into_owned();
        let value = if key == "text" { json::string(&text) } else { value.json() };
        match places.get(&key).and_then(|place| members.get_mut(*place)) {
            // The signature arrives after all text, and an empty signature before it is ignored.
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

/// Returns whether a text is plausible base64 in either alphabet. Truncated base64 passes, because
/// only the issuer can detect truncation.
fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=').as_bytes();
    let is_letter =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    letters.iter().all(is_letter) && letters.len() % 4 != 1
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
