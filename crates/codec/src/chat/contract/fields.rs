//! Reasoning that stands in a message as one string: where it is demanded, where it is forbidden, where nobody reads it.

use throughline_core::{Channel, Node, ReasoningFormat, json};

use crate::audit::{Edit, Finding, Mend, Severity};
use crate::chat::contract::past::Past;
use crate::chat::contract::rules::{
    KIMI_REASONING_MISSING, REASONING_CONTENT_FORBIDDEN, REASONING_CONTENT_IGNORED,
    REASONING_CONTENT_MISSING, REASONING_SENT,
};
use crate::chat::contract::view::{Report, Said, View, name_of, says};
use crate::chat::decode::message::THINKING_CHUNK;
use crate::chat::{contract, slot};

const KEY: &str = "reasoning_content";

/// Counts the reasoning of the request: details, else the string that stands for them, chunks, and signatures on calls.
pub(super) fn count(view: &View<'_>, report: &mut Report<'_, '_>) {
    for (_, said) in view.answers() {
        for detail in &said.details {
            report.count(detail.node, &detail.format, detail.seal.is_some());
        }
        let field = said.fields.iter().find(|(_, value)| says(*value));
        if let Some((field, value)) = field.filter(|_| said.details.is_empty()) {
            report.count(*value, &ReasoningFormat::new(field), false);
        }
        for chunk in said.content.into_iter().flat_map(Node::elements) {
            if chunk.get("type").is_some_and(|kind| kind.is("thinking")) {
                let is_signed = chunk.get("signature").is_some_and(says);
                report.count(chunk, &ReasoningFormat::new(THINKING_CHUNK), is_signed);
            }
        }
        for call in said.calls.iter().filter(|call| Said::signs_call(**call)) {
            report.count(*call, &ReasoningFormat::GoogleGeminiV1, true);
        }
    }
}

pub(super) fn check(view: &View<'_>, past: &Past<'_>, report: &mut Report<'_, '_>) {
    let target = view.case.target();
    if contract::demands_reasoning(target) && view.thinks {
        demanded(view, past, report);
    }
    match target.provider.dialect.channel {
        Channel::Chunks => forbidden(view, report),
        Channel::None => unwanted(view, report),
        Channel::Reasoning => unread(view, report),
        Channel::AsEmitted
        | Channel::Details
        | Channel::ReasoningContent
        | Channel::Thinking
        | Channel::Tags => {}
    }
}

/// Messages with tool calls that lack the reasoning which led to them.
fn demanded(view: &View<'_>, past: &Past<'_>, report: &mut Report<'_, '_>) {
    let dialect = &view.case.target().provider.dialect;
    let stand_in = dialect.stand_in.as_deref().unwrap_or_default();
    for (number, said) in view.answers().filter(|(_, said)| !said.calls.is_empty()) {
        let there = said.field(KEY);
        if there.is_some_and(|there| stand_in.is_empty() || says(there)) {
            continue;
        }
        let restored = past.field(number, KEY);
        let (what, value) = match restored {
            Some(issued) => ("puts back the reasoning that was issued with this message", issued),
            None => {
                ("writes the stand-in where the reasoning is not known", json::string(stand_in))
            }
        };
        let mend = Mend::new(what, [Edit::Set(said.node.range(), KEY.to_owned(), value)]);
        let message = "`reasoning_content` is missing";
        let is_v3 = view.case.profile().name.starts_with("deepseek-v3");
        let finding = if stand_in.is_empty() {
            let finding = Finding::at(&REASONING_CONTENT_MISSING, said.node, message);
            if is_v3 {
                finding.answered(format!(
                    "Missing `reasoning_content` field in the assistant message at message index {number}. For more \
                     information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
                ))
            } else {
                finding
            }
        } else {
            Finding::at(&KIMI_REASONING_MISSING, said.node, message).answered(format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {number}"
            ))
        };
        let finding = match there {
            // Some models were seen to take an empty text for none, and others not.
            Some(there) => Finding {
                range: there.range(),
                message: "this is empty, which some models take for missing".to_owned(),
                ..finding
            }
            .as_grave_as(Severity::Note),
            None => finding.under(format!("messages[{number}].{KEY}")),
        };
        let sign = if there.is_none() { said.node.get("role") } else { None };
        report.add_at(sign, finding.mended(Some(mend)));
    }
}

/// Members with reasoning in a message whose schema knows none.
fn forbidden(view: &View<'_>, report: &mut Report<'_, '_>) {
    for (number, said) in view.answers() {
        for (key, value) in reasoning_members(said) {
            let message = format!("Mistral's messages have no `{key}`");
            let answer = format!(
                "{{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"messages\",{number},\"assistant\",\"{key}\"],\
                 \"msg\":\"Extra inputs are not permitted\"}}"
            );
            let mend = Mend::new(format!("removes `{key}`"), [Edit::Remove(value.range())]);
            let finding = Finding::at(&REASONING_CONTENT_FORBIDDEN, value, message)
                .under(format!("messages[{number}].{key}"))
                .answered(answer)
                .mended(Some(mend));
            report.add_at(name_of(said.node, key), finding);
        }
    }
}

/// Members with reasoning in a message of an endpoint that has no such members.
fn unwanted(view: &View<'_>, report: &mut Report<'_, '_>) {
    for (number, said) in view.answers() {
        for (key, value) in reasoning_members(said).filter(|(_, value)| !value.is_null()) {
            let message = "nobody reads this member";
            let mend = Mend::new(format!("removes `{key}`"), [Edit::Remove(value.range())]);
            let finding = Finding::at(&REASONING_SENT, value, message)
                .under(format!("messages[{number}].{key}"))
                .mended(Some(mend));
            report.add_at(name_of(said.node, key), finding);
        }
    }
}

/// `reasoning_content` alone, where the server reads `reasoning`.
fn unread(view: &View<'_>, report: &mut Report<'_, '_>) {
    for (number, said) in view.answers().filter(|(_, said)| said.field("reasoning").is_none()) {
        let Some(value) = said.field(KEY).filter(|value| says(*value)) else { continue };
        let message = "the server reads `reasoning`, and may drop this in silence";
        let mend = Mend::new(
            "sends the reasoning as `reasoning`",
            [
                Edit::Remove(value.range()),
                Edit::Set(said.node.range(), "reasoning".to_owned(), value.json()),
            ],
        );
        let finding = Finding::at(&REASONING_CONTENT_IGNORED, value, message)
            .under(format!("messages[{number}].{KEY}"))
            .mended(Some(mend));
        report.add_at(name_of(said.node, KEY), finding);
    }
}

fn reasoning_members<'s, 'c>(
    said: &'s Said<'c>,
) -> impl Iterator<Item = (&'static str, Node<'c>)> + 's {
    let details = said.list.map(|list| (slot::DETAILS, list));
    said.fields.iter().copied().chain(details)
}
