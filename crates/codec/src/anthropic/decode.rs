//! Decodes requests and responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Direction, Envelope, Extra, Failure, HostedStep, Item, ItemId, ItemPosition, Media,
    Name, NativePart, NativeReasoning, Node, Origin, Outcome, OutputFormat, Part, ReasoningFormat,
    Reply, Request, Role, Settings, Thought, ThoughtKind, Tool, ToolCall, ToolChoice, ToolResult,
    Tree, Usage, Wire,
};

use crate::anthropic::wire::{self, AnthropicBlockKind};
use crate::call_ids::CallTracker;
use crate::{CodecError, DecodeContext, draft, find_seals};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// The members that fields of the Call represent.
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

/// Decodes a request whose body is `tree`.
pub(super) fn request(
    request: &Request,
    tree: &Tree,
    asked: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let messages = root.get("messages").filter(|messages| messages.is_array());
    let messages = messages.ok_or_else(|| shape("messages", "must be a list of messages"))?;
    let mut reader =
        AnthropicReader::new(asked, Arc::clone(&asked.target.origin), Direction::Request);
    let mut call = Call::new(asked.target.clone());
    call.items.reserve(2 * messages.elements().count());
    for (index, message) in messages.elements().enumerate() {
        if !message.is_object() {
            return Err(shape(&format!("messages.{index}"), "must be an object"));
        }
        reader.message(index, message, &mut call.items);
    }
    call.system = root.present("system").map(|system| reader.system(system)).unwrap_or_default();
    call.tools = root.get("tools").into_iter().flat_map(|tools| tools_of(tools)).collect();
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(false);
    call.settings = settings(root);
    let is_known = |key: Node<'_>| KNOWN.iter().any(|known| key.is(known));
    let extras = root.members().filter(|(key, _)| !is_known(*key));
    let extra =
        |(key, value): (Name, Node<'_>)| Extra { wire: Some(WIRE), key, value: value.json() };
    call.extras = draft::last_member_per_name(extras).into_iter().map(extra).collect();
    call.source = Some(draft::received_request(WIRE, request, &asked.target, tree, &call.settings));
    Ok(call)
}

/// Decodes a complete response.
pub(super) fn reply(body: &Bytes, asked: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if root.text_of("type").as_deref() == Some("error") || root.get("error").is_some() {
        return Err(CodecError::Provider(Box::new(failure(root, body))));
    }
    let content = root.get("content").filter(|content| content.is_array());
    let content = content.ok_or_else(|| {
        CodecError::shape(WIRE, "response", "content", "must be a list of blocks")
    })?;
    let origin = asked.origin(root.text_of("model").as_deref(), None);
    let id = root.name_of("id");
    let mut reader = AnthropicReader::new(asked, Arc::clone(&origin), Direction::Response);
    reader.prefix_ids_with(id.as_ref());
    let items = content
        .elements()
        .enumerate()
        .map(|(part, block)| reader.block(ItemPosition::new(0, part), Role::Assistant, block, None))
        .collect();
    let sequence = root.name_of("stop_sequence");
    let stop = wire::stop(root.text_of("stop_reason").as_deref(), sequence);
    let usage = root.get("usage").map(|usage| wire::usage(usage, Usage::default()));
    let extras = root.members().filter(|(key, _)| !key.is("content"));
    let extras =
        extras.map(|(key, value)| (key.name().unwrap_or_default(), value.json())).collect();
    Ok(Reply { id, items, stop, usage: usage.unwrap_or_default(), origin, extras })
}

/// Decodes an error response.
pub(super) fn failure(root: Node<'_>, body: &Bytes) -> Failure {
    let message = root.at("/error/message").and_then(Node::name);
    let message = message.or_else(|| root.name_of("message")).unwrap_or_default();
    let kind = root.at("/error/type").and_then(Node::name);
    Failure { status: None, kind, message, body: body.clone() }
}

/// Decodes blocks of requests and responses; only their Origin differs.
pub(super) struct AnthropicReader<'a> {
    asked: &'a DecodeContext,
    origin: Arc<Origin>,
    side: Direction,
    calls: CallTracker,
    reply: Name,
}

impl<'a> AnthropicReader<'a> {
    pub(super) fn new(asked: &'a DecodeContext, origin: Arc<Origin>, side: Direction) -> Self {
        Self { asked, origin, side, calls: CallTracker::default(), reply: Name::default() }
    }

    /// Prefixes the Item ids with the id of the reply.
    pub(super) fn prefix_ids_with(&mut self, reply: Option<&Name>) {
        self.reply = reply.cloned().unwrap_or_else(|| Name::from("reply"));
    }

    fn message(&mut self, index: usize, message: Node<'_>, items: &mut Vec<Item>) {
        let role = match message.text_of("role").as_deref() {
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            Some(_) | None => Role::User,
        };
        let content = message.get("content");
        let blocks: Vec<_> = content.into_iter().flat_map(Node::elements).collect();
        let parts = blocks.len().max(1);
        let envelope = Arc::new(Envelope { json: message.json(), parts });
        let place = |part| ItemPosition::new(index, part);
        if blocks.is_empty() {
            // A plain string is one text. An empty or malformed message is kept as an unknown Item.
            let (body, json) = match content.filter(|content| content.is_string()) {
                Some(text) => (Body::Text(text.name().unwrap_or_default()), text.json()),
                None => (Body::Unknown, message.json()),
            };
            let native = draft::native_part(WIRE, self.side, json, Some(&envelope));
            items.push(self.item(place(0), role, body, native));
            return;
        }
        for (part, block) in blocks.into_iter().enumerate() {
            items.push(self.block(place(part), role, block, Some(&envelope)));
        }
    }

    fn system(&mut self, system: Node<'_>) -> Vec<Item> {
        let blocks: Vec<_> = system.elements().collect();
        let envelope = Arc::new(Envelope { json: system.json(), parts: blocks.len().max(1) });
        let mut items: Vec<Item> = match system.name() {
            Some(text) => {
                let native = draft::native_part(WIRE, self.side, system.json(), Some(&envelope));
                vec![self.item(ItemPosition::default(), Role::System, Body::Text(text), native)]
            }
            None => blocks
                .into_iter()
                .enumerate()
                .map(|(part, block)| {
                    self.block(ItemPosition::new(0, part), Role::System, block, Some(&envelope))
                })
                .collect(),
        };
        for (part, item) in items.iter_mut().enumerate() {
            item.id = format!("system.{part}").into();
        }
        items
    }

    fn item(&self, place: ItemPosition, role: Role, body: Body, native: NativePart) -> Item {
        let mut item = Item::new(ItemId::from_position(&self.reply, place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    pub(super) fn block(
        &mut self,
        place: ItemPosition,
        role: Role,
        block: Node<'_>,
        envelope: Option<&Arc<Envelope>>,
    ) -> Item {
        let kind = block.text_of("type").unwrap_or_default();
        let kind = AnthropicBlockKind::from_type(&kind);
        let body = self.body(place, kind, block);
        let mut native = draft::native_part(WIRE, self.side, block.json(), envelope);
        native.id = block.name_of("id");
        let mut item = self.item(place, role, body, native);
        if kind.can_hold_seal() {
            item.seals =
                find_seals::seals(block, self.asked, &self.origin, |key| kind.seal_format(key));
        }
        item
    }

    fn body(&mut self, place: ItemPosition, kind: AnthropicBlockKind, block: Node<'_>) -> Body {
        let thought = |text: Name, kind| {
            Body::Thought(Thought::issued(text, kind, ReasoningFormat::AnthropicClaudeV1))
        };
        match kind {
            AnthropicBlockKind::Text => Body::Text(block.name_of("text").unwrap_or_default()),
            AnthropicBlockKind::Thinking => {
                let text = block.name_of("thinking").unwrap_or_default();
                let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
                thought(text, kind)
            }
            AnthropicBlockKind::RedactedThinking => thought(Name::from(""), ThoughtKind::Encrypted),
            AnthropicBlockKind::Image | AnthropicBlockKind::Document => {
                media(block, &self.origin).map_or(Body::Unknown, Body::Media)
            }
            AnthropicBlockKind::ToolUse => {
                let wire_id = block.name_of("id");
                let name = block.name_of("name").unwrap_or_default();
                let id = self.calls.open(wire_id.as_ref(), &name, place);
                let args = block.get("input").map_or_else(throughline_core::Json::null, Node::json);
                Body::Call(ToolCall { id, wire_id, name, args, custom: false })
            }
            AnthropicBlockKind::ToolResult => {
                let wire_id = block.name_of("tool_use_id");
                let is_error = block.get("is_error").and_then(Node::bool).unwrap_or(false);
                Body::Result(ToolResult {
                    call: self.calls.answer(wire_id.as_deref(), None),
                    wire_id,
                    name: None,
                    outcome: if is_error { Outcome::Error } else { Outcome::Ok },
                    parts: block.get("content").map(|c| parts(c, &self.origin)).unwrap_or_default(),
                })
            }
            AnthropicBlockKind::HostedCall => Body::Hosted(HostedStep {
                name: block.name_of("name").unwrap_or_default(),
                pairs: block.name_of("id"),
                is_result: false,
                visible: Name::from(""),
            }),
            AnthropicBlockKind::HostedResult => {
                let kind = block.text_of("type").unwrap_or_default();
                Body::Hosted(HostedStep {
                    name: Name::from(kind.trim_end_matches("_tool_result")),
                    pairs: block.name_of("tool_use_id"),
                    is_result: true,
                    visible: Name::from(""),
                })
            }
            AnthropicBlockKind::Compaction => Body::Compaction,
            AnthropicBlockKind::Unknown => Body::Unknown,
        }
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

fn tools_of(tools: Node<'_>) -> Vec<Tool> {
    let elements: Vec<_> = tools.elements().collect();
    let envelope = Arc::new(Envelope { json: tools.json(), parts: elements.len() });
    let tool = |node: Node<'_>| Tool {
        name: node.name_of("name").unwrap_or_default(),
        description: node.name_of("description"),
        schema: node.get("input_schema").map(Node::json),
        hosted: node.get("input_schema").is_none(),
        native: Some(draft::native_part(WIRE, Direction::Request, node.json(), Some(&envelope))),
    };
    elements.into_iter().map(tool).collect()
}

fn settings(root: Node<'_>) -> Settings {
    let raw = |key: &str| root.present(key).map(Node::json);
    let choice = root.present("tool_choice");
    let no_parallel = choice.and_then(|c| c.get("disable_parallel_tool_use")).and_then(Node::bool);
    Settings {
        max_tokens: root.get("max_tokens").and_then(Node::u64),
        temperature: raw("temperature"),
        top_p: raw("top_p"),
        top_k: raw("top_k"),
        stop: root
            .get("stop_sequences")
            .into_iter()
            .flat_map(Node::elements)
            .filter_map(Node::name)
            .collect(),
        choice: choice.map(|choice| match choice.text_of("type").as_deref() {
            Some("auto") => ToolChoice::Auto,
            Some("none") => ToolChoice::None,
            Some("any") => ToolChoice::Any,
            Some("tool") => ToolChoice::Tool(choice.name_of("name").unwrap_or_default()),
            Some(_) | None => ToolChoice::Other(choice.json()),
        }),
        parallel: no_parallel.map(|no| !no),
        reasoning: reasoning(root),
        output: root.at("/output_config/format/schema").map(|schema| OutputFormat::Schema {
            name: None,
            schema: schema.json(),
            strict: None,
        }),
    }
}

fn reasoning(root: Node<'_>) -> Option<NativeReasoning> {
    let thinking = root.present("thinking");
    let effort = root.at("/output_config/effort").and_then(Node::name);
    if thinking.is_none() && effort.is_none() {
        return None;
    }
    let kind = thinking.and_then(|thinking| thinking.text_of("type"));
    let display = thinking.and_then(|thinking| thinking.text_of("display"));
    Some(NativeReasoning {
        enabled: match kind.as_deref() {
            Some("disabled") => Some(false),
            Some(_) => Some(true),
            None => None,
        },
        effort,
        budget_tokens: thinking.and_then(|t| t.get("budget_tokens")).and_then(Node::u64),
        include_thoughts: match display.as_deref() {
            Some("omitted") => Some(false),
            Some(_) => Some(true),
            None => None,
        },
        provider_extras: Vec::new(),
    })
}
