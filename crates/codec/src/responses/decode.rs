//! Decodes requests and whole responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Failure, HostedStep, Item, ItemId, ItemPosition, Media, Origin, Part,
    Reply, Request, Role, Seal, Thought, ThoughtKind, ToolCall,
};
use throughline_json::{self as json, Json, Label, Name, Node, Tree};

use crate::cross_wire::{ADDITIONAL_TOOLS, CONFIGURATION_UPDATE};
use crate::item_reader::{ItemReader, ReusedMessages, named_member, read_tools};
use crate::responses::WIRE;
use crate::responses::wire::{self, CONTENT, ResponsesElementKind as Kind, StopSignals};
use crate::{CodecError, DecodeContext, draft};

mod settings;

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    context: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    if !root.is_object() {
        return Err(shape("", "must be an object"));
    }
    let input = root.present("input");
    // A request that refers to a stored prompt, conversation or response may omit the input.
    let stored = ["prompt", "conversation", "previous_response_id"];
    let may_be_silent = stored.iter().any(|key| root.present(key).is_some());
    if input.map_or(!may_be_silent, |input| !input.is_string() && !input.is_array()) {
        return Err(shape("input", "must be a string or a list"));
    }
    let mut call = Call::new(context.target.clone());
    let mut reader = ResponsesReader::new(ItemReader::for_request(context, WIRE));
    if let Some(text) = input.filter(|input| input.is_string()) {
        call.items.push(reader.whole_value_item(Role::User, text));
    }
    let elements: Vec<_> = input.into_iter().flat_map(Node::elements).collect();
    let last = elements.len().saturating_sub(1);
    call.items.reserve(elements.len());
    let known = input.map_or(0, |input| {
        let named = ("input", input);
        reader.base.reuse_items(tree, named, ReusedMessages::AllButLast, &mut call.items)
    });
    restore_called_names(&mut call.items, &elements);
    for (index, element) in elements.into_iter().enumerate().skip(known) {
        reader.element(index, element, index < last, &mut call.items);
    }
    if let Some(instructions) = root.present("instructions") {
        let mut item = reader.whole_value_item(Role::System, instructions);
        item.id = ItemId::from("system.0");
        call.system.push(item);
    }
    call.tools = read_tools(root.get("tools"), &WIRE, settings::tool);
    settings::add_tools(&mut call.tools, root.get("tools"), input);
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(false);
    call.settings = settings::settings(root);
    settings::apply_updates(&mut call.settings, input);
    settings::complete_tool_names(&mut call);
    call.resumes = root.name_of("previous_response_id");
    call.extras = settings::extras(root);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Restores the names of called tools in reused Items. They may have been completed with the tools
/// of the earlier request.
fn restore_called_names(items: &mut [Item], elements: &[Node<'_>]) {
    for item in items {
        let element = elements.get(item.place.message as usize);
        if let (Body::Call(call), Some(element)) = (&mut item.body, element) {
            call.name = wire::called_tool(*element).unwrap_or_default();
        }
    }
}

pub(super) fn decode_reply(body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if root.present("error").is_some() {
        return Err(CodecError::Provider(Box::new(decode_failure(root, body))));
    }
    let output = root.get("output").filter(|output| output.is_array());
    let output = output.ok_or_else(|| {
        CodecError::shape(WIRE, "response", "output", "must be a list of output items")
    })?;
    let origin = context.origin(root.text_of("model").as_deref(), None);
    let id = root.name_of("id");
    let reader = ItemReader::for_reply(context, WIRE, &origin, id.as_ref());
    let mut reader = ResponsesReader::new(reader);
    let mut items = Vec::new();
    for (index, element) in output.elements().enumerate() {
        reader.output(index, element, &mut items);
    }
    Ok(Reply {
        id,
        items,
        stop: wire::decode_stop(root, reader.signals),
        usage: root.get("usage").map(wire::usage).unwrap_or_default(),
        origin,
        extras: reply_extras(root),
    })
}

/// Returns all members of a response except its output.
pub(super) fn reply_extras(response: Node<'_>) -> Vec<(Name, Json)> {
    let members = response.members().filter(|(key, _)| !key.is("output"));
    members.map(named_member).collect()
}

/// Reads a provider's error from an error body, an `error` event or a failed response.
pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Failure {
    let error = root.present("error").filter(|error| error.is_object()).unwrap_or(root);
    let text = |key: &str| error.present(key).and_then(Node::name);
    let message = text("message").or_else(|| root.name_of("error")).unwrap_or_default();
    // Ignore the type of an `error` event, which is not the kind of failure.
    let kind = text("type").filter(|kind| **kind != *"error");
    let kind = text("code").filter(|_| kind.is_none()).or(kind);
    Failure { status: None, kind, message, body: body.clone() }
}

/// Decodes the elements of requests and responses, which have the same format.
pub(super) struct ResponsesReader<'a> {
    pub(super) base: ItemReader<'a>,
    /// The properties of the decoded elements that determine the stop reason.
    pub(super) signals: StopSignals,
}

impl<'a> ResponsesReader<'a> {
    pub(super) fn new(base: ItemReader<'a>) -> Self {
        Self { base, signals: StopSignals::default() }
    }

    /// Decodes an element of a response. A reasoning element is linked to the next element by
    /// position, because a stream delivers the next element later.
    pub(super) fn output(&mut self, index: usize, element: Node<'_>, items: &mut Vec<Item>) {
        self.element(index, element, true, items);
    }

    fn element(&mut self, index: usize, element: Node<'_>, leads: bool, items: &mut Vec<Item>) {
        let kind = Kind::from_element(element);
        self.signals.waits |= wire::waits_for_client(kind, element);
        let role = role(kind, element);
        if kind == Kind::Message && self.message(index, role, element, items) {
            return;
        }
        let place = ItemPosition::new(index, 0);
        let body = self.body(place, kind, element);
        let envelope = Arc::new(Envelope { json: element.json(), parts: 1 });
        let mut native = self.base.native(element.json(), Some(&envelope));
        native.id = element.name_of("id");
        let mut item = self.base.item(place, role, body, native);
        item.seals = self.seals(role, kind, element);
        if kind == Kind::Reasoning && leads {
            let next = self.base.id_at(ItemPosition::new(index.saturating_add(1), 0));
            for seal in &mut item.seals {
                seal.attached.leads = Some(next.clone());
            }
        }
        items.push(item);
    }

    /// Decodes the parts of a message; returns `false` if the message has no parts.
    fn message(
        &mut self,
        index: usize,
        role: Role,
        message: Node<'_>,
        items: &mut Vec<Item>,
    ) -> bool {
        let Some(content) = message.get(CONTENT) else { return false };
        let parts: Vec<_> =
            if content.is_string() { vec![content] } else { content.elements().collect() };
        let envelope = Arc::new(Envelope { json: message.json(), parts: parts.len() });
        let id = message.name_of("id");
        for (at, part) in parts.iter().copied().enumerate() {
            self.signals.refused |= part.get("type").is_some_and(|kind| kind.is("refusal"));
            let body =
                part.name().map_or_else(|| content_body(part, &self.base.origin), Body::Text);
            let mut native = self.base.native(part.json(), Some(&envelope));
            native.id.clone_from(&id);
            native.slot = Label::Borrowed(CONTENT);
            let mut item = self.base.item(ItemPosition::new(index, at), role, body, native);
            item.seals = self.seals(role, Kind::Message, part);
            items.push(item);
        }
        !parts.is_empty()
    }

    /// Builds the Item for a value that stands for a whole message: the `instructions`, or an
    /// `input` that is a string.
    fn whole_value_item(&self, role: Role, value: Node<'_>) -> Item {
        let body = value.name().map_or(Body::Unknown, Body::Text);
        let envelope = Arc::new(Envelope { json: value.json(), parts: 1 });
        let mut native = self.base.native(value.json(), Some(&envelope));
        native.slot = Label::Borrowed(CONTENT);
        self.base.item(ItemPosition::default(), role, body, native)
    }

    /// Returns the Seals of a part. Only assistant output has Seals.
    fn seals(&self, role: Role, kind: Kind, part: Node<'_>) -> Vec<Seal> {
        if role != Role::Assistant || !kind.holds_seals() {
            return Vec::new();
        }
        self.base.seals(part, |key| kind.is_sealed(key).then(|| wire::seal_format(key)))
    }

    fn body(&mut self, place: ItemPosition, kind: Kind, element: Node<'_>) -> Body {
        match kind {
            Kind::Reasoning => Body::Thought(thought(element, &self.base.origin)),
            Kind::Call | Kind::CustomCall => {
                let wire_id = element.name_of("call_id");
                let name = wire::called_tool(element).unwrap_or_default();
                let id = self.base.calls.open(wire_id.as_ref(), &name, place);
                let custom = kind == Kind::CustomCall;
                let value = element.get(if custom { "input" } else { "arguments" });
                let parsed = value.filter(|_| !custom).and_then(Node::text_bytes);
                let args = parsed.and_then(|text| Json::parse(text).ok()).unwrap_or_else(|| {
                    json::string(&value.and_then(Node::text).unwrap_or_default())
                });
                Body::Call(ToolCall { id, wire_id, name, args, custom })
            }
            Kind::Result | Kind::CustomResult => {
                let output = element.get("output");
                let parts = output.map(|o| parts(o, &self.base.origin)).unwrap_or_default();
                self.base.tool_result(element.name_of("call_id"), false, parts)
            }
            Kind::HostedCall | Kind::HostedResult => Body::Hosted(hosted(kind, element)),
            Kind::Compaction => Body::Compaction,
            Kind::Message | Kind::Unknown => Body::Unknown,
        }
    }
}

pub(super) fn role(kind: Kind, element: Node<'_>) -> Role {
    let explicit = match element.text_of("role").as_deref() {
        Some("assistant") => Some(Role::Assistant),
        Some("system") => Some(Role::System),
        Some("developer") => Some(Role::Developer),
        Some("tool") => Some(Role::Tool),
        Some(_) => Some(Role::User),
        None => None,
    };
    let default = match kind {
        Kind::Message => Role::User,
        Kind::Result | Kind::CustomResult => Role::Tool,
        // A provider-run step belongs to the assistant. A client's result for such a step has the
        // tool role.
        Kind::HostedResult => {
            let kind = element.text_of("type").unwrap_or_default();
            let by_client = element.get("execution").is_some_and(|e| e.is("client"));
            if kind.ends_with("_call_output") || by_client { Role::Tool } else { Role::Assistant }
        }
        Kind::Reasoning | Kind::Call | Kind::CustomCall | Kind::HostedCall | Kind::Compaction => {
            return Role::Assistant;
        }
        Kind::Unknown => match element.text_of("type").as_deref() {
            Some("mcp_approval_response" | wire::COMPACTION_TRIGGER) => Role::User,
            Some(CONFIGURATION_UPDATE | ADDITIONAL_TOOLS) => Role::Developer,
            Some(_) | None => Role::Assistant,
        },
    };
    explicit.unwrap_or(default)
}

/// Builds one Thought from the summary, content and ciphertext of a reasoning element. The full
/// text takes precedence over the summary.
fn thought(element: Node<'_>, origin: &Origin) -> Thought {
    let text = |key: &str| {
        let parts = element.get(key).into_iter().flat_map(Node::elements);
        let texts: Vec<Name> = parts.filter_map(|part| part.name_of("text")).collect();
        match texts.as_slice() {
            [] => Name::default(),
            [one] => Name::clone(one),
            several => Name::from(several.join("\n\n")),
        }
    };
    let (content, summary) = (text(CONTENT), text("summary"));
    let (text, kind) = match (content.is_empty(), summary.is_empty()) {
        (false, _) => (content, ThoughtKind::Text),
        (true, false) => (summary, ThoughtKind::Summary),
        (true, true) => (summary, ThoughtKind::Encrypted),
    };
    Thought::issued(text, kind, wire::reasoning_format(&origin.provider))
}

fn hosted(kind: Kind, element: Node<'_>) -> HostedStep {
    let name = element.text_of("type").unwrap_or_default();
    let name = name.trim_end_matches("_output").trim_end_matches("_call");
    let readable = ["/code", "/action/query", "/output", "/arguments"];
    let visible = readable.iter().find_map(|pointer| element.at(pointer)?.name());
    HostedStep {
        name: Name::from(name),
        pairs: element.name_of("call_id").or_else(|| element.name_of("id")),
        is_result: kind == Kind::HostedResult,
        visible: visible.unwrap_or_default(),
    }
}

fn content_body(part: Node<'_>, origin: &Arc<Origin>) -> Body {
    match &*part.text_of("type").unwrap_or_default() {
        "input_text" | "output_text" | "text" => {
            Body::Text(part.name_of("text").unwrap_or_default())
        }
        "refusal" => Body::Text(part.name_of("refusal").unwrap_or_default()),
        _ => media(part, origin).map_or(Body::Unknown, Body::Media),
    }
}

fn parts(output: Node<'_>, origin: &Arc<Origin>) -> Vec<Part> {
    if let Some(text) = output.name() {
        return vec![Part::Text(text)];
    }
    if !output.is_array() {
        return vec![Part::Value(output.json())];
    }
    let part = |part: Node<'_>| match content_body(part, origin) {
        Body::Text(text) => Part::Text(text),
        Body::Media(media) => Part::Media(media),
        _ => Part::Unknown(WIRE, part.json()),
    };
    output.elements().map(part).collect()
}

fn media(part: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let kind = part.text_of("type")?;
    if !matches!(&*kind, "input_image" | "input_file" | "input_audio") {
        return None;
    }
    // A file URL is a document; any other URL is an image.
    let mime = (kind == "input_file").then(|| Name::from("application/pdf"));
    let remote = |uri, owner| Media::Remote { mime, uri, owner };
    if let Some(id) = part.present("file_id").and_then(Node::name) {
        return Some(remote(id, Some(Arc::clone(origin))));
    }
    if let Some(audio) = part.get("input_audio") {
        let mime = Name::from(format!("audio/{}", audio.text_of("format")?));
        return Some(Media::Inline { mime, base64: audio.get("data")?.text_bytes()? });
    }
    let value = ["image_url", "file_data", "file_url"].iter().find_map(|key| part.present(key))?;
    if let Some(inline) = value.text_bytes().and_then(|uri| data_uri(&uri)) {
        return Some(inline);
    }
    // Base64 without a media type cannot be sent on other wires.
    let address = if part.present("file_data").is_none() { value.name() } else { None };
    address.map(|uri| remote(uri, None))
}

/// Parses a data URI such as `data:image/png;base64,…`.
fn data_uri(uri: &Bytes) -> Option<Media> {
    let rest = uri.strip_prefix(b"data:".as_slice())?;
    let mark = memchr::memmem::find(rest, b";base64,")?;
    let mime = std::str::from_utf8(rest.get(..mark)?).ok()?;
    let base64 = uri.slice(b"data:".len() + mark + b";base64,".len()..);
    Some(Media::Inline { mime: Name::from(mime), base64 })
}
