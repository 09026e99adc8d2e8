//! A Messages request as the rules of the Claudes see it.

use throughline_core::Node;

use crate::anthropic::wire::Block as Wire;
use crate::audit::Case;
use crate::claude::view::{Block, Kind, Knobs, Message, Speaker, View};

pub(super) fn of<'c>(case: &Case<'c>) -> View<'c> {
    let body = case.body();
    let mut knobs = knobs(case);
    let mut messages = Vec::new();
    for (index, node) in body.get("messages").into_iter().flat_map(Node::elements).enumerate() {
        let message = message(index, node);
        if message.speaker == Speaker::System {
            knobs.efforts.extend(node.at("/output_config/effort").filter(|e| e.is_string()));
        }
        messages.push(message);
    }
    let mut view = View::new(messages, knobs, true);
    view.is_partial = body.present("thread").is_some();
    view
}

fn message(index: usize, node: Node<'_>) -> Message<'_> {
    let speaker = match node.get("role") {
        Some(role) if role.is("assistant") => Speaker::Assistant,
        Some(role) if role.is("system") => Speaker::System,
        Some(_) | None => Speaker::User,
    };
    let content = node.get("content");
    let blocks = match content {
        Some(text) if text.is_string() => {
            vec![Block { text: Some(text), ..Block::new(text, Kind::Text, index, None) }]
        }
        Some(list) => {
            list.elements().enumerate().map(|(part, node)| block(index, part, node)).collect()
        }
        None => Vec::new(),
    };
    Message { node, speaker, content, blocks }
}

fn block(message: usize, part: usize, node: Node<'_>) -> Block<'_> {
    let kind = node.text_of("type").unwrap_or_default();
    let plain = |kind: Kind| Block::new(node, kind, message, Some(part));
    match Wire::of(&kind) {
        Wire::Text => Block { text: node.get("text"), ..plain(Kind::Text) },
        Wire::Thinking => Block {
            text: node.get("thinking"),
            seal: node.present("signature"),
            ..plain(Kind::Thinking)
        },
        Wire::RedactedThinking => Block { seal: node.present("data"), ..plain(Kind::Redacted) },
        Wire::ToolUse => Block { id: node.get("id"), ..plain(Kind::Call) },
        Wire::ToolResult => Block { id: node.get("tool_use_id"), ..plain(Kind::Answer) },
        Wire::HostedCall => Block { id: node.get("id"), ..plain(Kind::HostedCall) },
        Wire::HostedResult => Block { id: node.get("tool_use_id"), ..plain(Kind::HostedAnswer) },
        Wire::Compaction => Block { text: node.get("content"), ..plain(Kind::Compaction) },
        Wire::Image | Wire::Document | Wire::Unknown => plain(Kind::Other),
    }
}

fn knobs<'c>(case: &Case<'c>) -> Knobs<'c> {
    let body = case.body();
    let output_config = body.present("output_config");
    let effort = output_config.and_then(|config| config.present("effort"));
    let sampling = ["temperature", "top_p", "top_k"];
    let choice = body.present("tool_choice");
    let kind = choice.and_then(|choice| choice.get("type"));
    Knobs {
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

/// The betas that are asked for: in the header, or in the body where another host passes it on.
fn betas(case: &Case<'_>) -> Option<String> {
    let header = case.header("anthropic-beta").map(str::to_owned);
    let member = case.body().present("anthropic_beta");
    let listed = member.map(|list| {
        let names = list.elements().filter_map(Node::text);
        names.collect::<Vec<_>>().join(",")
    });
    let nothing = || case.knows_headers().then(String::new);
    header.or(listed).or_else(nothing)
}
