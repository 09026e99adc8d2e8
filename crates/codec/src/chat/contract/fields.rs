//! Checks reasoning in string members: where it is required, rejected or ignored.

use throughline_core::{ReasoningChannel, ReasoningFormat};
use throughline_json::{self as json, Node};

use crate::audit::{Edit, Finding, Findings, Severity};
use crate::chat::contract::rules;
use crate::chat::contract::view::{ChatMessage, ChatRequest, is_non_empty_string, member_key};
use crate::chat::decode::message::THINKING_CHUNK;
use crate::chat::{contract, slot};

const KEY: &str = "reasoning_content";

impl ChatRequest<'_> {
    /// Counts the reasoning elements of the request: details (or the reasoning string if there are
    /// none), chunks, and signatures on calls.
    pub(super) fn count_reasoning(&self, findings: &mut Findings<'_>) {
        for (_, msg) in self.assistant_messages() {
            for detail in &msg.details {
                findings.count(detail.node, &detail.format, detail.seal.is_some());
            }
            let field = msg.fields.iter().find(|(_, value)| is_non_empty_string(*value));
            if let Some((field, value)) = field.filter(|_| msg.details.is_empty()) {
                findings.count(*value, &ReasoningFormat::new(field), false);
            }
            for chunk in msg.content.into_iter().flat_map(Node::elements) {
                if chunk.get("type").is_some_and(|kind| kind.is("thinking")) {
                    let is_signed = chunk.get("signature").is_some_and(is_non_empty_string);
                    findings.count(chunk, &ReasoningFormat::new(THINKING_CHUNK), is_signed);
                }
            }
            for call in msg.calls.iter().filter(|call| ChatMessage::is_signed_call(**call)) {
                findings.count(*call, &ReasoningFormat::GoogleGeminiV1, true);
            }
        }
    }

    pub(super) fn check_fields(&self, findings: &mut Findings<'_>) {
        use ReasoningChannel::{AsEmitted, Details, ReasoningContent, Tags, Thinking};
        if contract::requires_reasoning(self.case.target()) && self.thinks {
            self.check_required(findings);
        }
        match self.channel {
            ReasoningChannel::Chunks | ReasoningChannel::None => self.check_unaccepted(findings),
            ReasoningChannel::Reasoning => self.check_old_name(findings),
            AsEmitted | Details | ReasoningContent | Thinking | Tags => {}
        }
    }

    /// Reports messages with tool calls that lack the required reasoning.
    fn check_required(&self, findings: &mut Findings<'_>) {
        let stand_in = self.case.target().provider.dialect.stand_in.as_deref().unwrap_or_default();
        let is_v3 = self.case.profile().name.starts_with("deepseek-v3");
        for (number, msg) in self.assistant_messages().filter(|(_, msg)| !msg.calls.is_empty()) {
            let there = msg.field(KEY);
            if there.is_some_and(|there| stand_in.is_empty() || is_non_empty_string(there)) {
                continue;
            }
            let (description, value) = match self.issued_field(number, KEY) {
                Some(issued) => ("restores the reasoning issued with this message", issued),
                None => ("uses the stand-in for the unknown reasoning", json::string(stand_in)),
            };
            let edit = Edit::Set(msg.node.range(), KEY.to_owned(), value);
            let rule = if stand_in.is_empty() {
                &rules::REASONING_CONTENT_MISSING
            } else {
                &rules::KIMI_REASONING_MISSING
            };
            let (node, message) = match there {
                // Some models treat an empty text as missing, and others do not.
                Some(there) => (there, "this is empty, which some models treat as missing"),
                None => (msg.node, "`reasoning_content` is missing"),
            };
            let mut finding = Finding::at(rule, node, message).fixed_by(description, [edit]);
            if !stand_in.is_empty() {
                finding = finding.with_provider_error(format!(
                    "thinking is enabled but reasoning_content is missing in assistant tool call message at index {number}"
                ));
            } else if is_v3 {
                finding = finding.with_provider_error(format!(
                    "Missing `reasoning_content` field in the assistant message at message index {number}. For more \
                     information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
                ));
            }
            if there.is_some() {
                findings.add(finding.with_severity(Severity::Note));
            } else {
                let finding = finding.with_path(format!("messages[{number}].{KEY}"));
                findings.add_at(msg.node.get("role"), finding);
            }
        }
    }

    /// Reports reasoning members that the endpoint rejects or ignores.
    fn check_unaccepted(&self, findings: &mut Findings<'_>) {
        let is_rejected = self.channel == ReasoningChannel::Chunks;
        for (number, msg) in self.assistant_messages() {
            let members = reasoning_members(msg);
            for (key, value) in members.filter(|(_, value)| is_rejected || !value.is_null()) {
                let finding = if is_rejected {
                    let message = format!("Mistral's messages have no `{key}`");
                    Finding::at(&rules::REASONING_CONTENT_FORBIDDEN, value, message).with_provider_error(format!(
                        "{{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"messages\",{number},\"assistant\",\"{key}\"],\
                         \"msg\":\"Extra inputs are not permitted\"}}"
                    ))
                } else {
                    Finding::at(&rules::REASONING_SENT, value, "this endpoint ignores this member")
                };
                let finding = finding.fixed_by_removing(value, format!("removes `{key}`"));
                add_at_key(findings, (number, msg), key, finding);
            }
        }
    }

    /// Reports messages that have only `reasoning_content` when the server reads `reasoning`
    /// instead.
    fn check_old_name(&self, findings: &mut Findings<'_>) {
        let messages = self.assistant_messages();
        for (number, msg) in messages.filter(|(_, msg)| msg.field("reasoning").is_none()) {
            let value = msg.field(KEY).filter(|value| is_non_empty_string(*value));
            let Some(value) = value else { continue };
            let message = "the server reads `reasoning` and may drop this silently";
            let edits = [
                Edit::Remove(value.range()),
                Edit::Set(msg.node.range(), "reasoning".to_owned(), value.json()),
            ];
            let finding = Finding::at(&rules::REASONING_CONTENT_IGNORED, value, message)
                .fixed_by("sends the reasoning as `reasoning`", edits);
            add_at_key(findings, (number, msg), KEY, finding);
        }
    }
}

/// Adds a finding for a message member, reported at the member's key.
fn add_at_key(
    findings: &mut Findings<'_>,
    (number, msg): (usize, &ChatMessage<'_>),
    key: &str,
    finding: Finding,
) {
    let finding = finding.with_path(format!("messages[{number}].{key}"));
    findings.add_at(member_key(msg.node, key), finding);
}

fn reasoning_members<'s, 'c>(
    msg: &'s ChatMessage<'c>,
) -> impl Iterator<Item = (&'static str, Node<'c>)> + 's {
    let details = msg.list.map(|list| (slot::DETAILS, list));
    msg.fields.iter().copied().chain(details)
}
