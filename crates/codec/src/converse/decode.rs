//! Decodes requests and responses.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Extra, Failure, HostedStep, Item, ItemPosition, Media, NativeReasoning,
    Origin, OutputFormat, Part, ReasoningFormat, Reply, Request, Role, Settings, Thought,
    ThoughtKind, Tool, ToolChoice, Wire,
};
use throughline_json::{Json, Name, Node, Tree};

use crate::converse::wire::{self, ConverseBlockKind, ConversePath};
use crate::item_reader::{ItemReader, read_tools};
use crate::{CodecError, DecodeContext, claude, draft, effort};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// The members that fields of the Call represent. For an object, the inner members that they
/// represent: an object with others is also kept as an extra, so that no member is lost on another
/// wire.
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

/// Decodes a request whose body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    context: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let messages = root.get("messages").filter(|messages| messages.is_array());
    // A prompt stored at Bedrock contains its own messages.
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
        read_message(&mut reader, index, message, &mut call.items);
    }
    let system = root.present("system");
    call.system = system.map(|system| read_system(&mut reader, system)).unwrap_or_default();
    let tools = root.at("/toolConfig/tools");
    call.tools = tools.map(|list| read_tools(list, &WIRE, read_tool)).unwrap_or_default();
    call.stream = ConversePath::parse(&request.path).stream;
    call.settings = settings(root);
    call.extras = extras(root);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Returns the members that no field of the Call represents. The last of several members with one
/// name counts.
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

/// Decodes a complete response.
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
    let mut reader = ItemReader::for_reply(Cow::Borrowed(context), WIRE, &origin, None);
    let blocks = list.elements().enumerate();
    let items = blocks.map(|(part, block)| {
        read_block(&mut reader, ItemPosition::new(0, part), Role::Assistant, block, None)
    });
    let items = items.collect();
    let fields = root.get("additionalModelResponseFields");
    let stop = wire::stop(root.text_of("stopReason").as_deref(), fields);
    let usage = root.get("usage").map(wire::usage).unwrap_or_default();
    let extras = root.members().filter_map(|(key, value)| {
        let value = if key.is("output") { without_content(value)? } else { value.json() };
        Some((key.name().unwrap_or_default(), value))
    });
    Ok(Reply { id: None, items, stop, usage, extras: extras.collect(), origin })
}

/// Returns an `output` without its content, if it has more members than the role.
fn without_content(output: Node<'_>) -> Option<Json> {
    let message = output.get("message")?;
    let is_plain = output.members().count() == 1
        && message.members().all(|(key, _)| key.is("role") || key.is("content"));
    (!is_plain).then(|| {
        let message = draft::edit_object(Some(&message.json()), &[("content", None)]);
        draft::with_member(&output.json(), "message", message)
    })
}

/// Returns the provider's error message.
fn error_message(root: Node<'_>) -> Option<Name> {
    root.name_of("message").or_else(|| root.name_of("Message"))
}

/// Decodes an error response. Its kind is in a header, which a stream forwards, or in `__type`.
pub(super) fn decode_failure(root: Node<'_>, kind: Option<Name>, body: &Bytes) -> Failure {
    let named = || {
        let kind = root.text_of("__type")?;
        Some(Name::from(kind.rsplit('#').next().unwrap_or(&kind)))
    };
    let message = error_message(root).unwrap_or_default();
    Failure { status: None, kind: kind.or_else(named), message, body: body.clone() }
}

fn read_message(
    reader: &mut ItemReader<'_>,
    index: usize,
    message: Node<'_>,
    items: &mut Vec<Item>,
) {
    let is_assistant = message.get("role").is_some_and(|role| role.is("assistant"));
    let role = if is_assistant { Role::Assistant } else { Role::User };
    let blocks: Vec<_> = message.get("content").into_iter().flat_map(Node::elements).collect();
    let envelope = Arc::new(Envelope { json: message.json(), parts: blocks.len().max(1) });
    if blocks.is_empty() {
        // An empty or malformed message is kept as an unknown Item.
        let native = reader.native(message.json(), Some(&envelope));
        items.push(reader.item(ItemPosition::new(index, 0), role, Body::Unknown, native));
    }
    for (part, block) in blocks.into_iter().enumerate() {
        items.push(read_block(
            reader,
            ItemPosition::new(index, part),
            role,
            block,
            Some(&envelope),
        ));
    }
}

fn read_system(reader: &mut ItemReader<'_>, system: Node<'_>) -> Vec<Item> {
    let is_list = system.is_array();
    let blocks: Vec<_> = if is_list { system.elements().collect() } else { vec![system] };
    let envelope = Arc::new(Envelope { json: system.json(), parts: blocks.len() });
    let blocks = blocks.into_iter().enumerate();
    let item = |(part, block)| {
        let place = ItemPosition::new(0, part);
        let mut item = read_block(reader, place, Role::System, block, Some(&envelope));
        item.id = format!("system.{part}").into();
        item
    };
    blocks.map(item).collect()
}

pub(super) fn read_block(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    role: Role,
    block: Node<'_>,
    envelope: Option<&Arc<Envelope>>,
) -> Item {
    let kind = ConverseBlockKind::from_node(block);
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
    kind: ConverseBlockKind,
    inner: Node<'_>,
) -> Body {
    match kind {
        ConverseBlockKind::Text => inner.name().map_or(Body::Unknown, Body::Text),
        ConverseBlockKind::Reasoning => {
            let text = inner.at("/reasoningText/text").and_then(Node::name).unwrap_or_default();
            let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
            let format = if claude::is_claude(&reader.context.target) {
                ReasoningFormat::AnthropicClaudeV1
            } else {
                ReasoningFormat::unknown()
            };
            Body::Thought(Thought::issued(text, kind, format))
        }
        ConverseBlockKind::Image
        | ConverseBlockKind::Document
        | ConverseBlockKind::Video
        | ConverseBlockKind::Audio => {
            media(kind, inner, &reader.origin).map_or(Body::Unknown, Body::Media)
        }
        ConverseBlockKind::ToolUse => {
            let (id, name) = (inner.name_of("toolUseId"), inner.name_of("name"));
            reader.tool_call(place, id, name, inner.get("input"))
        }
        ConverseBlockKind::ToolResult => {
            let is_error = inner.get("status").is_some_and(|status| status.is("error"));
            let content = inner.get("content").into_iter().flat_map(Node::elements);
            let parts = content.map(|block| part(block, &reader.origin)).collect();
            reader.tool_result(inner.name_of("toolUseId"), is_error, parts)
        }
        ConverseBlockKind::HostedCall | ConverseBlockKind::HostedResult => {
            let is_result = kind == ConverseBlockKind::HostedResult;
            let name = inner.name_of(if is_result { "type" } else { "name" });
            Body::Hosted(HostedStep {
                name: name.unwrap_or_default(),
                pairs: inner.name_of("toolUseId"),
                is_result,
                visible: Name::from(""),
            })
        }
        ConverseBlockKind::GuardContent => {
            let text = inner.at("/text/text").and_then(Node::name);
            text.map_or(Body::Unknown, Body::Text)
        }
        ConverseBlockKind::Citations => {
            let pieces = inner.get("content").into_iter().flat_map(Node::elements);
            let text: String = pieces.filter_map(|piece| piece.text_of("text")).collect();
            Body::Text(Name::from(text))
        }
        ConverseBlockKind::CachePoint
        | ConverseBlockKind::SearchResult
        | ConverseBlockKind::Unknown => Body::Unknown,
    }
}

fn media(kind: ConverseBlockKind, inner: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
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
    let kind = ConverseBlockKind::from_node(block);
    let inner = kind.key().and_then(|key| block.get(key));
    let known = match kind {
        ConverseBlockKind::Text => inner.and_then(Node::name).map(Part::Text),
        ConverseBlockKind::Image | ConverseBlockKind::Document | ConverseBlockKind::Video => {
            inner.and_then(|inner| media(kind, inner, origin)).map(Part::Media)
        }
        ConverseBlockKind::Reasoning
        | ConverseBlockKind::Audio
        | ConverseBlockKind::ToolUse
        | ConverseBlockKind::ToolResult
        | ConverseBlockKind::HostedCall
        | ConverseBlockKind::HostedResult
        | ConverseBlockKind::GuardContent
        | ConverseBlockKind::Citations
        | ConverseBlockKind::CachePoint
        | ConverseBlockKind::SearchResult => None,
        ConverseBlockKind::Unknown => block.get("json").map(|value| Part::Value(value.json())),
    };
    known.unwrap_or_else(|| Part::Unknown(WIRE, block.json()))
}

fn read_tool(node: Node<'_>) -> Tool {
    // A Bedrock tool, or a marker among the tools, exists only on this wire.
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
        // The schema is JSON inside a string.
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
