//! Decodes requests and whole responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Failure, HostedStep, Item, ItemPosition, Media, Origin, OutputFormat,
    Part, ReasoningFormat, Reply, Request, Role, Settings, Thought, ThoughtKind, Tool, ToolChoice,
    Usage,
};
use throughline_json::{Name, Node, Tree};

use crate::anthropic::WIRE;
use crate::anthropic::wire::{self, AnthropicBlockKind as Kind};
use crate::item_reader::{
    ItemReader, ReusedMessages, named_member, number_system_items, read_tools,
};
use crate::{CodecError, DecodeContext, draft, effort};

/// The request members that are decoded into fields of the Call.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "stream",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "tool_choice",
    "thinking",
    "output_config",
];

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    context: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let messages = root.get("messages").filter(|messages| messages.is_array());
    let messages = messages.ok_or_else(|| shape("messages", "must be a list of messages"))?;
    let mut reader = ItemReader::for_request(context, WIRE);
    let mut call = Call::new(context.target.clone());
    call.items.reserve(2 * messages.elements().count());
    let list = ("messages", messages);
    let known = reader.reuse_items(tree, list, ReusedMessages::All, &mut call.items);
    for (index, message) in messages.elements().enumerate().skip(known) {
        if !message.is_object() {
            return Err(shape(&format!("messages.{index}"), "must be an object"));
        }
        let role = match message.text_of("role").as_deref() {
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            Some(_) | None => Role::User,
        };
        let blocks = message.get("content");
        call.items.extend(reader.message_items(index, role, message, blocks, read_block));
    }
    call.system = system_items(&mut reader, root.get("system"));
    call.tools = tools(root.get("tools"));
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(false);
    call.settings = settings(root);
    let is_known = |key: Node<'_>| KNOWN.iter().any(|known| key.is(known));
    let extras = root.members().filter(|(key, _)| !is_known(*key));
    call.extras = draft::extras(draft::last_member_per_name(extras), &WIRE);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Reads the top-level system prompt, which is a text or a list of blocks.
pub(super) fn system_items(reader: &mut ItemReader<'_>, system: Option<Node<'_>>) -> Vec<Item> {
    let is_filled = |system: &Node<'_>| system.is_string() || system.elements().next().is_some();
    let Some(system) = system.filter(is_filled) else { return Vec::new() };
    number_system_items(reader.message_items(0, Role::System, system, Some(system), read_block))
}

pub(super) fn tools(tools: Option<Node<'_>>) -> Vec<Tool> {
    read_tools(tools, &WIRE, |node| Tool {
        name: node.name_of("name").unwrap_or_default(),
        description: node.name_of("description"),
        schema: node.get("input_schema").map(Node::json),
        hosted: node.get("input_schema").is_none(),
        native: None,
    })
}

pub(super) fn decode_reply(body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
    decode_reply_with(body, context, |reader, list| reader.reply_items(Some(list), read_block))
}

/// Decodes a response without its Items. The stop reason of this wire does not depend on them.
pub(super) fn decode_reply_summary(
    body: &Bytes,
    context: &DecodeContext,
) -> Result<Reply, CodecError> {
    decode_reply_with(body, context, |_, _| Vec::new())
}

fn decode_reply_with(
    body: &Bytes,
    context: &DecodeContext,
    items: impl FnOnce(&mut ItemReader<'_>, Node<'_>) -> Vec<Item>,
) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if root.text_of("type").as_deref() == Some("error") || root.get("error").is_some() {
        return Err(CodecError::Provider(Box::new(decode_failure(root, body))));
    }
    let list = root.get("content").filter(|list| list.is_array());
    let list = list.ok_or_else(|| {
        CodecError::shape(WIRE, "response", "content", "must be a list of blocks")
    })?;
    let origin = context.origin(root.text_of("model").as_deref(), None);
    let id = root.name_of("id");
    let mut reader = ItemReader::for_reply(context, WIRE, &origin, id.as_ref());
    let items = items(&mut reader, list);
    let sequence = root.name_of("stop_sequence");
    let stop = wire::stop(root.text_of("stop_reason").as_deref(), sequence);
    let usage = root.get("usage").map(|usage| wire::usage(usage, Usage::default()));
    let extras = root.members().filter(|(key, _)| !key.is("content"));
    let extras = extras.map(named_member).collect();
    Ok(Reply { id, items, stop, usage: usage.unwrap_or_default(), origin, extras })
}

pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Failure {
    let message = root.at("/error/message").and_then(Node::name);
    let message = message.or_else(|| root.name_of("message")).unwrap_or_default();
    let kind = root.at("/error/type").and_then(Node::name);
    Failure { status: None, kind, message, body: body.clone() }
}

pub(super) fn read_block(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    role: Role,
    block: Node<'_>,
    envelope: Option<&Arc<Envelope>>,
) -> Item {
    let kind = Kind::from_type(&block.text_of("type").unwrap_or_default());
    let body = read_body(reader, place, kind, block);
    let mut native = reader.native(block.json(), envelope);
    native.id = block.name_of("id");
    let mut item = reader.item(place, role, body, native);
    if kind.can_hold_seal() {
        item.seals = reader.seals(block, |key| kind.seal_format(key));
    }
    if kind == Kind::Compaction {
        // A compaction replaces the content before it, so the content cannot bind its Seals.
        item.seals.iter_mut().for_each(|seal| seal.bound.prefix = None);
    }
    item
}

fn read_body(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    kind: Kind,
    block: Node<'_>,
) -> Body {
    let thought = |text: Name, kind| {
        Body::Thought(Thought::issued(text, kind, ReasoningFormat::AnthropicClaudeV1))
    };
    match kind {
        Kind::Text => Body::Text(block.name_of("text").unwrap_or_default()),
        Kind::Thinking => {
            let text = block.name_of("thinking").unwrap_or_default();
            let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
            thought(text, kind)
        }
        Kind::RedactedThinking => thought(Name::from(""), ThoughtKind::Encrypted),
        Kind::Image | Kind::Document => {
            media(block, &reader.origin).map_or(Body::Unknown, Body::Media)
        }
        Kind::ToolUse => {
            let (id, name) = (block.name_of("id"), block.name_of("name"));
            reader.tool_call(place, id, name, block.get("input"))
        }
        Kind::ToolResult => {
            let is_error = block.get("is_error").and_then(Node::bool).unwrap_or(false);
            let parts = block.get("content").map(|c| parts(c, &reader.origin)).unwrap_or_default();
            reader.tool_result(block.name_of("tool_use_id"), is_error, parts)
        }
        Kind::HostedCall => {
            let (name, pairs) = (block.name_of("name").unwrap_or_default(), block.name_of("id"));
            Body::Hosted(HostedStep { name, pairs, is_result: false, visible: Name::default() })
        }
        Kind::HostedResult => {
            let kind = block.text_of("type").unwrap_or_default();
            let name = Name::from(kind.trim_end_matches("_tool_result"));
            let pairs = block.name_of("tool_use_id");
            Body::Hosted(HostedStep { name, pairs, is_result: true, visible: Name::default() })
        }
        Kind::Compaction => Body::Compaction,
        Kind::Unknown => Body::Unknown,
    }
}

fn media(block: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let source = block.get("source")?;
    let mime = source.name_of("media_type");
    match &*source.text_of("type")? {
        "base64" => Some(Media::Inline { mime: mime?, base64: source.get("data")?.text_bytes()? }),
        "url" => Some(Media::Remote { mime, uri: source.name_of("url")?, owner: None }),
        "file" => {
            let owner = Some(Arc::clone(origin));
            Some(Media::Remote { mime, uri: source.name_of("file_id")?, owner })
        }
        _ => None,
    }
}

fn parts(content: Node<'_>, origin: &Arc<Origin>) -> Vec<Part> {
    if let Some(text) = content.name() {
        return vec![Part::Text(text)];
    }
    let part = |block: Node<'_>| match &*block.text_of("type").unwrap_or_default() {
        "text" => Part::Text(block.name_of("text").unwrap_or_default()),
        "image" | "document" => {
            media(block, origin).map_or_else(|| Part::Unknown(WIRE, block.json()), Part::Media)
        }
        _ => Part::Unknown(WIRE, block.json()),
    };
    content.elements().map(part).collect()
}

fn settings(root: Node<'_>) -> Settings {
    let raw = |key: &str| root.present(key).map(Node::json);
    let stop = root.get("stop_sequences").into_iter().flat_map(Node::elements);
    let thinking = root.present("thinking");
    let effort = root.at("/output_config/effort").and_then(Node::name);
    let choice = root.present("tool_choice");
    let no_parallel = choice.and_then(|c| c.get("disable_parallel_tool_use")).and_then(Node::bool);
    Settings {
        max_tokens: root.get("max_tokens").and_then(Node::u64),
        temperature: raw("temperature"),
        top_p: raw("top_p"),
        top_k: raw("top_k"),
        stop: stop.filter_map(Node::name).collect(),
        choice: choice.map(|choice| match choice.text_of("type").as_deref() {
            Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("any") => ToolChoice::Any,
            Some("tool") => ToolChoice::Tool(choice.name_of("name").unwrap_or_default()),
            Some(_) | None => ToolChoice::Other(choice.json()),
        }),
        parallel: no_parallel.map(|no| !no),
        reasoning: effort::read_thinking(thinking, thinking, effort),
        output: root.at("/output_config/format/schema").map(|schema| OutputFormat::Schema {
            name: None,
            schema: schema.json(),
            strict: None,
        }),
    }
}
