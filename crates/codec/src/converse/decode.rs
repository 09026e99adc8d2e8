//! Decodes requests and whole responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Extra, Failure, HostedStep, Item, ItemPosition, Media, NativeReasoning,
    Origin, OutputFormat, Part, ReasoningFormat, Reply, Request, Role, Settings, Thought,
    ThoughtKind, Tool, ToolChoice,
};
use throughline_json::{Json, Name, Node, Tree};

use crate::converse::WIRE;
use crate::converse::wire::{self, ConverseBlockKind as Kind, ConversePath};
use crate::item_reader::{ItemReader, number_system_items, read_tools};
use crate::{CodecError, DecodeContext, claude, draft, effort};

/// The request members that are decoded into fields of the Call; for objects, also the decoded
/// inner members. An object with other inner members is also kept as an extra, so that no member is
/// lost.
const KNOWN: &[(&str, &[&str])] = &[
    ("modelId", &[]),
    ("messages", &[]),
    ("system", &[]),
    ("inferenceConfig", &["maxTokens", "temperature", "topP", "stopSequences"]),
    ("toolConfig", &["tools", "toolChoice"]),
    ("outputConfig", &["textFormat"]),
    (
        "additionalModelRequestFields",
        &["thinking", "output_config", "top_k", "reasoningConfig", "reasoning_effort"],
    ),
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
    // A request that uses a prompt stored at Bedrock may omit the messages.
    if messages.is_none()
        && (root.get("messages").is_some() || root.get("promptVariables").is_none())
    {
        return Err(shape("messages", "must be a list of messages"));
    }
    let mut reader = ItemReader::for_request(context, WIRE);
    let mut call = Call::new(context.target.clone());
    for (index, message) in messages.into_iter().flat_map(Node::elements).enumerate() {
        if !message.is_object() {
            return Err(shape(&format!("messages.{index}"), "must be an object"));
        }
        let is_assistant = message.get("role").is_some_and(|role| role.is("assistant"));
        let role = if is_assistant { Role::Assistant } else { Role::User };
        let blocks = message.get("content").filter(|blocks| blocks.is_array());
        call.items.extend(reader.message_items(index, role, message, blocks, read_block));
    }
    let system = root.present("system");
    call.system = system.map(|system| read_system(&mut reader, system)).unwrap_or_default();
    call.tools = read_tools(root.at("/toolConfig/tools"), &WIRE, read_tool);
    call.stream = ConversePath::parse(&request.path).stream;
    call.settings = settings(root);
    call.extras = extras(root);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Collects the members that are not decoded into a field of the Call. If a name is repeated, its
/// last value counts.
fn extras(root: Node<'_>) -> Vec<Extra> {
    let is_extra = |(key, value): &(Name, Node<'_>)| {
        let known = KNOWN.iter().find(|(name, _)| **key == **name);
        let is_inside = |inside: &[&str]| {
            value.members().all(|(key, _)| inside.iter().any(|name| key.is(name)))
        };
        !known.is_some_and(|(_, inside)| inside.is_empty() || is_inside(inside))
    };
    let members = draft::last_member_per_name(root.members());
    draft::extras(members.into_iter().filter(is_extra), &WIRE)
}

pub(super) fn decode_reply(body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    let list = root.at("/output/message/content").filter(|list| list.is_array());
    let Some(list) = list else {
        if root.get("output").is_none() && error_message(root).is_some() {
            return Err(CodecError::Provider(Box::new(decode_failure(root, None, body))));
        }
        let (path, problem) = ("output.message.content", "must be a list of blocks");
        return Err(CodecError::shape(WIRE, "response", path, problem));
    };
    let origin = context.origin(None, None);
    let mut reader = ItemReader::for_reply(context, WIRE, &origin, None);
    let items = reader.reply_items(Some(list), read_block);
    let fields = root.get("additionalModelResponseFields");
    let stop = wire::stop(root.text_of("stopReason").as_deref(), fields);
    let usage = root.get("usage").map(wire::usage).unwrap_or_default();
    let extras = root.members().filter_map(|(key, value)| {
        let value = if key.is("output") { without_content(value)? } else { value.json() };
        Some((key.name().unwrap_or_default(), value))
    });
    Ok(Reply { id: None, items, stop, usage, extras: extras.collect(), origin })
}

/// Returns `output` without the message content; `None` if only the message's role would remain.
fn without_content(output: Node<'_>) -> Option<Json> {
    let message = output.get("message")?;
    let is_plain = output.members().count() == 1
        && message.members().all(|(key, _)| key.is("role") || key.is("content"));
    (!is_plain).then(|| {
        let message = draft::edit_object(Some(&message.json()), &[("content", None)]);
        draft::with_member(&output.json(), "message", message)
    })
}

/// Returns the error message, which is spelled `message` or `Message`.
fn error_message(root: Node<'_>) -> Option<Name> {
    root.name_of("message").or_else(|| root.name_of("Message"))
}

/// Decodes an error response. `kind` is the error kind from the frame or the wrapping object; if
/// `None`, the kind is read from `__type` in the body.
pub(super) fn decode_failure(root: Node<'_>, kind: Option<Name>, body: &Bytes) -> Failure {
    let named = || {
        let kind = root.text_of("__type")?;
        Some(Name::from(kind.rsplit('#').next().unwrap_or(&kind)))
    };
    let message = error_message(root).unwrap_or_default();
    Failure { status: None, kind: kind.or_else(named), message, body: body.clone() }
}

fn read_system(reader: &mut ItemReader<'_>, system: Node<'_>) -> Vec<Item> {
    let blocks: Vec<_> = if system.is_array() { system.elements().collect() } else { vec![system] };
    let envelope = Arc::new(Envelope { json: system.json(), parts: blocks.len() });
    let item = |(at, block)| {
        read_block(reader, ItemPosition::new(0, at), Role::System, block, Some(&envelope))
    };
    number_system_items(blocks.into_iter().enumerate().map(item).collect())
}

pub(super) fn read_block(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    role: Role,
    block: Node<'_>,
    envelope: Option<&Arc<Envelope>>,
) -> Item {
    let kind = Kind::from_node(block);
    let inner = kind.key().and_then(|key| block.get(key)).unwrap_or(block);
    let body = read_body(reader, place, kind, inner);
    let mut native = reader.native(block.json(), envelope);
    native.id = inner.name_of("toolUseId");
    let mut item = reader.item(place, role, body, native);
    if kind.can_hold_seal() {
        item.seals = reader.seals(block, |key| kind.seal_format(key));
    }
    item
}

fn read_body(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    kind: Kind,
    inner: Node<'_>,
) -> Body {
    match kind {
        Kind::Text => inner.name().map_or(Body::Unknown, Body::Text),
        Kind::Reasoning => {
            let text = inner.at("/reasoningText/text").and_then(Node::name).unwrap_or_default();
            let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
            let is_claude = claude::is_claude(&reader.context.target);
            let claude = is_claude.then_some(ReasoningFormat::AnthropicClaudeV1);
            let format = claude.unwrap_or_else(ReasoningFormat::unknown);
            Body::Thought(Thought::issued(text, kind, format))
        }
        Kind::Image | Kind::Document | Kind::Video | Kind::Audio => {
            media(kind, inner, &reader.origin).map_or(Body::Unknown, Body::Media)
        }
        Kind::ToolUse => {
            let (id, name) = (inner.name_of("toolUseId"), inner.name_of("name"));
            reader.tool_call(place, id, name, inner.get("input"))
        }
        Kind::ToolResult => {
            let is_error = inner.get("status").is_some_and(|status| status.is("error"));
            let content = inner.get("content").into_iter().flat_map(Node::elements);
            let parts = content.map(|block| part(block, &reader.origin)).collect();
            reader.tool_result(inner.name_of("toolUseId"), is_error, parts)
        }
        Kind::HostedCall | Kind::HostedResult => {
            let is_result = kind == Kind::HostedResult;
            let name = inner.name_of(if is_result { "type" } else { "name" });
            let (name, pairs) = (name.unwrap_or_default(), inner.name_of("toolUseId"));
            Body::Hosted(HostedStep { name, pairs, is_result, visible: Name::default() })
        }
        Kind::GuardContent => {
            let text = inner.at("/text/text").and_then(Node::name);
            text.map_or(Body::Unknown, Body::Text)
        }
        Kind::Citations => {
            let pieces = inner.get("content").into_iter().flat_map(Node::elements);
            let text: String = pieces.filter_map(|piece| piece.text_of("text")).collect();
            Body::Text(Name::from(text))
        }
        Kind::CachePoint | Kind::SearchResult | Kind::Unknown => Body::Unknown,
    }
}

fn media(kind: Kind, inner: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let format = inner.text_of("format");
    let mime = format.and_then(|format| {
        let unlisted = || Some(Name::from(format!("{}/{format}", kind.key()?)));
        wire::mime_of(kind, &format).or_else(unlisted)
    });
    let source = inner.get("source")?;
    if let Some(base64) = source.get("bytes").and_then(Node::text_bytes) {
        return Some(Media::Inline { mime: mime?, base64 });
    }
    let uri = source.at("/s3Location/uri")?.name()?;
    Some(Media::Remote { mime, uri, owner: Some(Arc::clone(origin)) })
}

fn part(block: Node<'_>, origin: &Arc<Origin>) -> Part {
    let kind = Kind::from_node(block);
    let inner = kind.key().and_then(|key| block.get(key));
    let known = match kind {
        Kind::Text => inner.and_then(Node::name).map(Part::Text),
        Kind::Image | Kind::Document | Kind::Video => {
            inner.and_then(|inner| media(kind, inner, origin)).map(Part::Media)
        }
        Kind::Unknown => block.get("json").map(|value| Part::Value(value.json())),
        _ => None,
    };
    known.unwrap_or_else(|| Part::Unknown(WIRE, block.json()))
}

fn read_tool(node: Node<'_>) -> Tool {
    // Bedrock's own tools, and cache markers among the tools, exist only on this wire.
    let Some(spec) = node.present("toolSpec") else {
        let key = node.members().next().and_then(|(key, _)| key.name());
        let name = node.at("/systemTool/name").and_then(Node::name).or(key).unwrap_or_default();
        return Tool { name, description: None, schema: None, hosted: true, native: None };
    };
    Tool {
        name: spec.name_of("name").unwrap_or_default(),
        description: spec.name_of("description"),
        schema: spec.at("/inputSchema/json").map(Node::json),
        hosted: false,
        native: None,
    }
}

fn settings(root: Node<'_>) -> Settings {
    let at = |pointer: &str| root.at(pointer).filter(|value| !value.is_null());
    let raw = |pointer: &str| at(pointer).map(Node::json);
    let stop = at("/inferenceConfig/stopSequences").into_iter().flat_map(Node::elements);
    let schema = at("/outputConfig/textFormat/structure/jsonSchema");
    Settings {
        max_tokens: at("/inferenceConfig/maxTokens").and_then(Node::u64),
        temperature: raw("/inferenceConfig/temperature"),
        top_p: raw("/inferenceConfig/topP"),
        top_k: raw("/additionalModelRequestFields/top_k")
            .or_else(|| raw("/additionalModelRequestFields/inferenceConfig/topK")),
        stop: stop.filter_map(Node::name).collect(),
        choice: at("/toolConfig/toolChoice").map(|choice| {
            let (auto, any) = (choice.present("auto"), choice.present("any"));
            match (auto, any, choice.at("/tool/name").and_then(Node::name)) {
                (Some(_), None, None) => ToolChoice::Auto,
                (None, Some(_), None) => ToolChoice::Any,
                (None, None, Some(name)) => ToolChoice::Tool(name),
                (_, _, _) => ToolChoice::Other(choice.json()),
            }
        }),
        parallel: None,
        reasoning: at("/additionalModelRequestFields").and_then(reasoning),
        // The schema is JSON text inside a string.
        output: schema.and_then(|schema| {
            let text = schema.text_of("schema")?.into_owned();
            let (name, schema) = (schema.name_of("name"), Json::parse(text).ok()?);
            Some(OutputFormat::Schema { name, schema, strict: None })
        }),
    }
}

fn reasoning(fields: Node<'_>) -> Option<NativeReasoning> {
    let thinking = fields.present("thinking");
    let config = fields.present("reasoningConfig");
    let effort = fields.at("/output_config/effort").and_then(Node::name);
    let effort = effort.or_else(|| config.and_then(|config| config.name_of("maxReasoningEffort")));
    let effort = effort.or_else(|| fields.name_of("reasoning_effort"));
    effort::read_thinking(thinking, thinking.or(config), effort)
}
