//! Builds the view of a Messages request for the Claude rules.

use throughline_json::Node;

use crate::anthropic::wire::AnthropicBlockKind as Wire;
use crate::audit::AuditContext;
use crate::claude::view::{
    ClaudeBlock, ClaudeBlockKind, ClaudeMessage, ClaudeRequest, ClaudeSettings, ClaudeSpeaker,
};

pub(super) fn build<'c>(case: &AuditContext<'c>) -> ClaudeRequest<'c> {
    let body = case.body();
    let mut knobs = settings(case);
    let mut messages = Vec::new();
    for (index, node) in body.get("messages").into_iter().flat_map(Node::elements).enumerate() {
        let message = message(index, node);
        if message.speaker == ClaudeSpeaker::System {
            knobs.efforts.extend(node.at("/output_config/effort").filter(|e| e.is_string()));
        }
        messages.push(message);
    }
    let mut view = ClaudeRequest::new(messages, knobs, true);
    view.is_partial = body.present("thread").is_some();
    view
}

fn message(index: usize, node: Node<'_>) -> ClaudeMessage<'_> {
    let speaker = match node.get("role") {
        Some(role) if role.is("assistant") => ClaudeSpeaker::Assistant,
        Some(role) if role.is("system") => ClaudeSpeaker::System,
        Some(_) | None => ClaudeSpeaker::User,
    };
    let content = node.get("content");
    let blocks = match content {
        Some(text) if text.is_string() => {
            vec![ClaudeBlock {
                text: Some(text),
                ..ClaudeBlock::new(text, ClaudeBlockKind::Text, index, None)
            }]
        }
        Some(list) => {
            list.elements().enumerate().map(|(part, node)| block(index, part, node)).collect()
        }
        None => Vec::new(),
    };
    ClaudeMessage { node, speaker, content, blocks }
}

fn block(message: usize, part: usize, node: Node<'_>) -> ClaudeBlock<'_> {
    let kind = node.text_of("type").unwrap_or_default();
    let plain = |kind: ClaudeBlockKind| ClaudeBlock::new(node, kind, message, Some(part));
    match Wire::from_type(&kind) {
        Wire::Text => ClaudeBlock { text: node.get("text"), ..plain(ClaudeBlockKind::Text) },
        Wire::Thinking => ClaudeBlock {
            text: node.get("thinking"),
            seal: node.present("signature"),
            ..plain(ClaudeBlockKind::Thinking)
        },
        Wire::RedactedThinking => {
            ClaudeBlock { seal: node.present("data"), ..plain(ClaudeBlockKind::Redacted) }
        }
        Wire::ToolUse => ClaudeBlock { id: node.get("id"), ..plain(ClaudeBlockKind::Call) },
        Wire::ToolResult => {
            ClaudeBlock { id: node.get("tool_use_id"), ..plain(ClaudeBlockKind::Answer) }
        }
        Wire::HostedCall => {
            ClaudeBlock { id: node.get("id"), ..plain(ClaudeBlockKind::HostedCall) }
        }
        Wire::HostedResult => {
            ClaudeBlock { id: node.get("tool_use_id"), ..plain(ClaudeBlockKind::HostedAnswer) }
        }
        Wire::Compaction => {
            ClaudeBlock { text: node.get("content"), ..plain(ClaudeBlockKind::Compaction) }
        }
        Wire::Image | Wire::Document | Wire::Unknown => plain(ClaudeBlockKind::Other),
    }
}

fn settings<'c>(case: &AuditContext<'c>) -> ClaudeSettings<'c> {
    let body = case.body();
    let output_config = body.present("output_config");
    let effort = output_config.and_then(|config| config.present("effort"));
    let sampling = ["temperature", "top_p", "top_k"];
    let choice = body.present("tool_choice");
    let kind = choice.and_then(|choice| choice.get("type"));
    ClaudeSettings {
        thinking: body.present("thinking"),
        output_config,
        efforts: effort.into_iter().collect(),
        sampling: sampling.iter().filter_map(|key| Some((*key, body.present(key)?))).collect(),
        max_tokens: body.present("max_tokens"),
        choice,
        is_forced: kind.is_some_and(|kind| kind.is("any") || kind.is("tool")),
        has_tools: body.get("tools").is_some_and(|tools| tools.elements().next().is_some()),
        betas: betas(case),
    }
}

/// Returns the requested betas from the header, or from the body if another host forwards them
/// there.
fn betas(case: &AuditContext<'_>) -> Option<String> {
    let header = case.header("anthropic-beta").map(str::to_owned);
    let member = case.body().present("anthropic_beta");
    let listed = member.map(|list| {
        let names = list.elements().filter_map(Node::text);
        names.collect::<Vec<_>>().join(",")
    });
    let nothing = || case.has_all_headers().then(String::new);
    header.or(listed).or_else(nothing)
}
