//! Checks reasoning sent as one string: where it is required, rejected, or ignored.

use throughline_core::{ReasoningChannel, ReasoningFormat};
use throughline_json::{self as json, Node};

use crate::audit::{Edit, Finding, Fix, Severity};
use crate::chat::contract::replay_history::ChatReplayHistory;
use crate::chat::contract::rules::{
    KIMI_REASONING_MISSING, REASONING_CONTENT_FORBIDDEN, REASONING_CONTENT_IGNORED,
    REASONING_CONTENT_MISSING, REASONING_SENT,
};
use crate::chat::contract::view::{
    ChatFindings, ChatMessage, ChatRequest, is_non_empty_string, member_key,
};
use crate::chat::decode::message::THINKING_CHUNK;
use crate::chat::{contract, slot};

const KEY: &str = "reasoning_content";

/// Counts the reasoning of the request: details or the string that repeats them, chunks, and
/// signatures on calls.
pub(super) fn count_reasoning(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    for (_, said) in view.assistant_messages() {
        for detail in &said.details {
            report.count(detail.node, &detail.format, detail.seal.is_some());
        }
        let field = said.fields.iter().find(|(_, value)| is_non_empty_string(*value));
        if let Some((field, value)) = field.filter(|_| said.details.is_empty()) {
            report.count(*value, &ReasoningFormat::new(field), false);
        }
        for chunk in said.content.into_iter().flat_map(Node::elements) {
            if chunk.get("type").is_some_and(|kind| kind.is("thinking")) {
                let is_signed = chunk.get("signature").is_some_and(is_non_empty_string);
                report.count(chunk, &ReasoningFormat::new(THINKING_CHUNK), is_signed);
            }
        }
        for call in said.calls.iter().filter(|call| ChatMessage::is_signed_call(**call)) {
            report.count(*call, &ReasoningFormat::GoogleGeminiV1, true);
        }
    }
}

pub(super) fn check(
    view: &ChatRequest<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let target = view.case.target();
    if contract::requires_reasoning(target) && view.thinks {
        check_required(view, past, report);
    }
    match target.provider.dialect.channel {
        ReasoningChannel::Chunks => check_forbidden(view, report),
        ReasoningChannel::None => check_unused(view, report),
        ReasoningChannel::Reasoning => check_old_name(view, report),
        ReasoningChannel::AsEmitted
        | ReasoningChannel::Details
        | ReasoningChannel::ReasoningContent
        | ReasoningChannel::Thinking
        | ReasoningChannel::Tags => {}
    }
}

/// Reports messages with tool calls that lack their reasoning.
fn check_required(
    view: &ChatRequest<'_>,
    past: &ChatReplayHistory<'_>,
    report: &mut ChatFindings<'_, '_>,
) {
    let dialect = &view.case.target().provider.dialect;
    let stand_in = dialect.stand_in.as_deref().unwrap_or_default();
    for (number, said) in view.assistant_messages().filter(|(_, said)| !said.calls.is_empty()) {
        let there = said.field(KEY);
        if there.is_some_and(|there| stand_in.is_empty() || is_non_empty_string(there)) {
            continue;
        }
        let restored = past.field(number, KEY);
        let (what, value) = match restored {
            Some(issued) => ("restores the reasoning issued with this message", issued),
            None => ("uses the stand-in for the unknown reasoning", json::string(stand_in)),
        };
        let fix = Fix::new(what, [Edit::Set(said.node.range(), KEY.to_owned(), value)]);
        let message = "`reasoning_content` is missing";
        let is_v3 = view.case.profile().name.starts_with("deepseek-v3");
        let finding = if stand_in.is_empty() {
            let finding = Finding::at(&REASONING_CONTENT_MISSING, said.node, message);
            if is_v3 {
                finding.with_provider_error(format!(
                    "Missing `reasoning_content` field in the assistant message at message index {number}. For more \
                     information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
                ))
            } else {
                finding
            }
        } else {
            Finding::at(&KIMI_REASONING_MISSING, said.node, message).with_provider_error(format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {number}"
            ))
        };
        let finding = match there {
            // Some models treat an empty text as missing, and others do not.
            Some(there) => Finding {
                range: there.range(),
                message: "this is empty, which some models treat as missing".to_owned(),
                ..finding
            }
            .with_severity(Severity::Note),
            None => finding.with_path(format!("messages[{number}].{KEY}")),
        };
        let sign = if there.is_none() { said.node.get("role") } else { None };
        report.add_at(sign, finding.with_auto_fix(fix));
    }
}

/// Reports reasoning members in messages whose schema has none.
fn check_forbidden(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    for (number, said) in view.assistant_messages() {
        for (key, value) in reasoning_members(said) {
            let message = format!("Mistral's messages have no `{key}`");
            let answer = format!(
                "{{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"messages\",{number},\"assistant\",\"{key}\"],\
                 \"msg\":\"Extra inputs are not permitted\"}}"
            );
            let fix = Fix::new(format!("removes `{key}`"), [Edit::Remove(value.range())]);
            let finding = Finding::at(&REASONING_CONTENT_FORBIDDEN, value, message)
                .with_path(format!("messages[{number}].{key}"))
                .with_provider_error(answer)
                .with_auto_fix(fix);
            report.add_at(member_key(said.node, key), finding);
        }
    }
}

/// Reports reasoning members sent to an endpoint that ignores them.
fn check_unused(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    for (number, said) in view.assistant_messages() {
        for (key, value) in reasoning_members(said).filter(|(_, value)| !value.is_null()) {
            let message = "this endpoint ignores this member";
            let fix = Fix::new(format!("removes `{key}`"), [Edit::Remove(value.range())]);
            let finding = Finding::at(&REASONING_SENT, value, message)
                .with_path(format!("messages[{number}].{key}"))
                .with_auto_fix(fix);
            report.add_at(member_key(said.node, key), finding);
        }
    }
}

/// Reports `reasoning_content` alone where the server reads `reasoning`.
fn check_old_name(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    for (number, said) in
        view.assistant_messages().filter(|(_, said)| said.field("reasoning").is_none())
    {
        let Some(value) = said.field(KEY).filter(|value| is_non_empty_string(*value)) else {
            continue;
        };
        let message = "the server reads `reasoning` and may drop this silently";
        let fix = Fix::new(
            "sends the reasoning as `reasoning`",
            [
                Edit::Remove(value.range()),
                Edit::Set(said.node.range(), "reasoning".to_owned(), value.json()),
            ],
        );
        let finding = Finding::at(&REASONING_CONTENT_IGNORED, value, message)
            .with_path(format!("messages[{number}].{KEY}"))
            .with_auto_fix(fix);
        report.add_at(member_key(said.node, KEY), finding);
    }
}

fn reasoning_members<'s, 'c>(
    said: &'s ChatMessage<'c>,
) -> impl Iterator<Item = (&'static str, Node<'c>)> + 's {
    let details = said.list.map(|list| (slot::DETAILS, list));
    said.fields.iter().copied().chain(details)
}
