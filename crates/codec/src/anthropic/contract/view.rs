//! Converts a Messages request to the wire-independent form that the Claude rules check.

use throughline_json::Node;

use crate::anthropic::wire::AnthropicBlockKind as Wire;
use crate::audit::AuditContext;
use crate::claude::view::{
    ClaudeBlock, ClaudeBlockKind as Kind, ClaudeMessage, ClaudeRequest, ClaudeSettings,
    ClaudeSpeaker,
};

pub(super) fn build<'c>(case: &AuditContext<'c>) -> ClaudeRequest<'c> {
    let body = case.body();
    let mut settings = settings(case);
    let mut messages = Vec::new();
    for (index, node) in body.get("messages").into_iter().flat_map(Node::elements).enumerate() {
        let message = message(index, node);
        if message.speaker == ClaudeSpeaker::System {
            let effort = node.at("/output_config/effort").filter(|effort| effort.is_string());
            settings.efforts.extend(effort);
            settings.message_efforts.extend(effort.map(|effort| (index, effort)));
        }
        messages.push(message);
    }
    let mut view = ClaudeRequest::new(messages, settings, true);
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
    let plain = content.filter(|content| content.is_string()).map(|text| ClaudeBlock {
        text: Some(text),
        ..ClaudeBlock::new(text, Kind::Text, index, None)
    });
    let list = content.into_iter().flat_map(Node::elements).enumerate();
    let blocks = list.map(|(part, node)| block(index, part, node));
    ClaudeMessage { node, speaker, content, blocks: plain.into_iter().chain(blocks).collect() }
}

fn block(message: usize, part: usize, node: Node<'_>) -> ClaudeBlock<'_> {
    let (kind, text, seal, id) = match Wire::from_type(&node.text_of("type").unwrap_or_default()) {
        Wire::Text => (Kind::Text, Some("text"), None, None),
        Wire::Thinking => (Kind::Thinking, Some("thinking"), Some("signature"), None),
        Wire::RedactedThinking => (Kind::Redacted, None, Some("data"), None),
        Wire::ToolUse => (Kind::Call, None, None, Some("id")),
        Wire::ToolResult => (Kind::Answer, None, None, Some("tool_use_id")),
        Wire::HostedCall => (Kind::HostedCall, None, None, Some("id")),
        Wire::HostedResult => (Kind::HostedAnswer, None, None, Some("tool_use_id")),
        Wire::Compaction => (Kind::Compaction, Some("content"), None, None),
        Wire::Image | Wire::Document | Wire::Unknown => (Kind::Other, None, None, None),
    };
    ClaudeBlock {
        text: text.and_then(|member| node.get(member)),
        seal: seal.and_then(|member| node.present(member)),
        id: id.and_then(|member| node.get(member)),
        ..ClaudeBlock::new(node, kind, message, Some(part))
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
        message_efforts: Vec::new(),
        sampling: sampling.iter().filter_map(|key| Some((*key, body.present(key)?))).collect(),
        max_tokens: body.present("max_tokens"),
        choice,
        is_forced: kind.is_some_and(|kind| kind.is("any") || kind.is("tool")),
        has_tools: body.get("tools").is_some_and(|tools| tools.elements().next().is_some()),
        betas: betas(case),
    }
}

/// Returns the requested beta features from the header, or else from the body, where some hosts
/// expect the features.
fn betas(case: &AuditContext<'_>) -> Option<String> {
    let header = case.header("anthropic-beta").map(str::to_owned);
    let listed = || {
        let names = case.body().present("anthropic_beta")?.elements().filter_map(Node::text);
        Some(names.collect::<Vec<_>>().join(","))
    };
    header.or_else(listed).or_else(|| case.has_all_headers().then(String::new))
}
