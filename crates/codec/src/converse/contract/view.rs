//! Converts a Converse request to the wire-independent form that the Claude rules check.

use throughline_json::Node;

use crate::audit::AuditContext;
use crate::claude::view::{
    ClaudeBlock, ClaudeBlockKind as Kind, ClaudeMessage, ClaudeRequest, ClaudeSettings,
    ClaudeSpeaker,
};
use crate::converse::wire::ConverseBlockKind as Wire;

pub(super) fn build<'c>(case: &AuditContext<'c>) -> ClaudeRequest<'c> {
    let messages = case.body().get("messages").into_iter().flat_map(Node::elements).enumerate();
    let messages = messages.map(|(index, node)| message(index, node)).collect();
    ClaudeRequest::new(messages, settings(case.body()), false)
}

fn message(index: usize, node: Node<'_>) -> ClaudeMessage<'_> {
    let is_assistant = node.get("role").is_some_and(|role| role.is("assistant"));
    let speaker = if is_assistant { ClaudeSpeaker::Assistant } else { ClaudeSpeaker::User };
    let content = node.get("content");
    let blocks = content.into_iter().flat_map(Node::elements).enumerate();
    let blocks = blocks.map(|(part, node)| block(index, part, node)).collect();
    ClaudeMessage { node, speaker, content, blocks }
}

fn block(message: usize, part: usize, node: Node<'_>) -> ClaudeBlock<'_> {
    let kind = Wire::from_node(node);
    let inner = kind.key().and_then(|key| node.get(key)).unwrap_or(node);
    let plain = |kind: Kind| ClaudeBlock::new(node, kind, message, Some(part));
    let paired = |kind: Kind| ClaudeBlock { id: inner.get("toolUseId"), ..plain(kind) };
    match kind {
        Wire::Text => ClaudeBlock { text: Some(inner), ..plain(Kind::Text) },
        Wire::Reasoning => match (inner.present("reasoningText"), inner.present("redactedContent"))
        {
            (None, Some(data)) => ClaudeBlock { seal: Some(data), ..plain(Kind::Redacted) },
            (text, _) => ClaudeBlock {
                text: text.and_then(|text| text.get("text")),
                seal: text.and_then(|text| text.present("signature")),
                ..plain(Kind::Thinking)
            },
        },
        Wire::ToolUse => paired(Kind::Call),
        Wire::ToolResult => paired(Kind::Answer),
        Wire::HostedCall => paired(Kind::HostedCall),
        Wire::HostedResult => paired(Kind::HostedAnswer),
        Wire::Image
        | Wire::Document
        | Wire::Video
        | Wire::Audio
        | Wire::GuardContent
        | Wire::Citations
        | Wire::CachePoint
        | Wire::SearchResult
        | Wire::Unknown => plain(Kind::Other),
    }
}

fn settings(body: Node<'_>) -> ClaudeSettings<'_> {
    let fields = body.present("additionalModelRequestFields");
    let field = |key: &str| fields.and_then(|fields| fields.present(key));
    let at = |pointer: &str| body.at(pointer).filter(|value| !value.is_null());
    let output_config = field("output_config");
    let effort = output_config.and_then(|config| config.present("effort"));
    let sampling = [
        ("temperature", at("/inferenceConfig/temperature")),
        ("top_p", at("/inferenceConfig/topP")),
        ("top_k", field("top_k")),
    ];
    let choice = at("/toolConfig/toolChoice");
    let betas = field("anthropic_beta").into_iter().flat_map(Node::elements).filter_map(Node::text);
    ClaudeSettings {
        thinking: field("thinking"),
        output_config,
        message_efforts: Vec::new(),
        efforts: effort.into_iter().collect(),
        sampling: sampling.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
        max_tokens: at("/inferenceConfig/maxTokens"),
        choice,
        is_forced: choice
            .is_some_and(|choice| choice.get("any").is_some() || choice.get("tool").is_some()),
        has_tools: at("/toolConfig/tools").is_some_and(|tools| tools.elements().next().is_some()),
        betas: Some(betas.collect::<Vec<_>>().join(",")),
    }
}
