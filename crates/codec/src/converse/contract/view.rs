//! A Converse request as the rules of the Claudes see it.

use throughline_core::Node;

use crate::audit::Case;
use crate::claude::view::{Block, Kind, Knobs, Message, Speaker, View};
use crate::converse::wire::Block as Wire;

pub(super) fn of<'c>(case: &Case<'c>) -> View<'c> {
    let messages = case.body().get("messages").into_iter().flat_map(Node::elements).enumerate();
    let messages = messages.map(|(index, node)| message(index, node)).collect();
    View::new(messages, knobs(case.body()), false)
}

fn message(index: usize, node: Node<'_>) -> Message<'_> {
    let is_assistant = node.get("role").is_some_and(|role| role.is("assistant"));
    let speaker = if is_assistant { Speaker::Assistant } else { Speaker::User };
    let content = node.get("content");
    let blocks = content.into_iter().flat_map(Node::elements).enumerate();
    let blocks = blocks.map(|(part, node)| block(index, part, node)).collect();
    Message { node, speaker, content, blocks }
}

fn block(message: usize, part: usize, node: Node<'_>) -> Block<'_> {
    let kind = Wire::of(node);
    let inner = kind.key().and_then(|key| node.get(key)).unwrap_or(node);
    let plain = |kind: Kind| Block::new(node, kind, message, Some(part));
    let paired = |kind: Kind| Block { id: inner.get("toolUseId"), ..plain(kind) };
    match kind {
        Wire::Text => Block { text: Some(inner), ..plain(Kind::Text) },
        Wire::Reasoning => match (inner.present("reasoningText"), inner.present("redactedContent"))
        {
            (None, Some(data)) => Block { seal: Some(data), ..plain(Kind::Redacted) },
            (text, _) => Block {
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

fn knobs(body: Node<'_>) -> Knobs<'_> {
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
    Knobs {
        thinking: field("thinking"),
        output_config,
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
