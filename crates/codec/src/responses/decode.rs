//! Decodes requests and whole responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Direction, Envelope, Failure, HostedStep, Item, ItemId, ItemPosition, Json, Label,
    Media, Name, NativePart, Node, Origin, Outcome, Part, Reply, Request, Role, Thought,
    ThoughtKind, ToolCall, ToolResult, Tree, Wire, json,
};

use crate::call_ids::CallTracker;
use crate::responses::wire::{self, CONTENT, ResponsesElementKind, StopSignals};
use crate::{CodecError, DecodeContext, draft, find_seals};

mod settings;

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    asked: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    if !root.is_object() {
        return Err(shape("", "must be an object"));
    }
    let input = root.present("input");
    // A request that continues a stored prompt, conversation or response may have no input.
    let may_be_silent = ["prompt", "conversation", "previous_response_id"]
        .iter()
        .any(|k| root.present(k).is_some());
    let is_input = |input: Node<'_>| input.is_string() || input.is_array();
    if input.map_or(!may_be_silent, |input| !is_input(input)) {
        return Err(shape("input", "must be a string or a list"));
    }
    let mut call = Call::new(asked.target.clone());
    let origin = Arc::clone(&asked.target.origin);
    let mut reader = ResponsesReader::new(asked.clone(), origin, Direction::Request);
    if let Some(text) = input.filter(|input| input.is_string()) {
        let body = Body::Text(text.name().unwrap_or_default());
        call.items.push(reader.whole_value_item(ItemPosition::default(), Role::User, body, text));
    }
    let elements: Vec<_> = input.into_iter().flat_map(Node::elements).collect();
    let last = elements.len().saturating_sub(1);
    call.items.reserve(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        reader.element(index, element, index < last, &mut call.items);
    }
    if let Some(instructions) = root.present("instructions") {
        let body = instructions.name().map_or(Body::Unknown, Body::Text);
        let mut item =
            reader.whole_value_item(ItemPosition::default(), Role::System, body, instructions);
        item.id = ItemId::from("system.0");
        call.system.push(item);
    }
    call.tools = root.get("tools").map(settings::tools).unwrap_or_default();
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(false);
    call.settings = settings::settings(root);
    call.resumes = root.name_of("previous_response_id");
    call.extras = settings::extras(root);
    call.source = Some(draft::received_request(WIRE, request, &asked.target, tree, &call.settings));
    Ok(call)
}

/// Decodes a whole response.
pub(super) fn decode_reply(body: &Bytes, asked: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if root.present("error").is_some() {
        return Err(CodecError::Provider(Box::new(decode_failure(root, body))));
    }
    let output = root.get("output").filter(|output| output.is_array());
    let output = output.ok_or_else(|| {
        CodecError::shape(WIRE, "response", "output", "must be a list of elements")
    })?;
    let origin = asked.origin(root.text_of("model").as_deref(), None);
    let id = root.name_of("id");
    let mut reader = ResponsesReader::new(asked.clone(), Arc::clone(&origin), Direction::Response);
    reader.prefix_ids_with(id.as_ref());
    let mut items = Vec::new();
    for (index, element) in output.elements().enumerate() {
        reader.output(index, element, &mut items);
    }
    Ok(Reply {
        id,
        items,
        stop: wire::decode_stop(root, reader.signs),
        usage: root.get("usage").map(wire::usage).unwrap_or_default(),
        origin,
        extras: reply_extras(root),
    })
}

/// Returns every member of a response except its output.
pub(super) fn reply_extras(response: Node<'_>) -> Vec<(Name, Json)> {
    let members = response.members().filter(|(key, _)| !key.is("output"));
    members.map(|(key, value)| (key.name().unwrap_or_default(), value.json())).collect()
}

/// Reads a provider's error: an error body, an `error` event, or a failed response.
pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Failure {
    let error = root.present("error").filter(|error| error.is_object()).unwrap_or(root);
    let text = |key: &str| error.present(key).and_then(Node::name);
    let message = text("message").or_else(|| root.name_of("error")).unwrap_or_default();
    // An event's own type is not the kind of failure.
    let kind = text("type").filter(|kind| **kind != *"error");
    let kind = text("code").filter(|_| kind.is_none()).or(kind);
    Failure { status: None, kind, message, body: body.clone() }
}

/// Decodes elements of requests and responses; only the origin differs.
pub(super) struct ResponsesReader {
    asked: DecodeContext,
    origin: Arc<Origin>,
    side: Direction,
    calls: CallTracker,
    reply: Name,
    /// Facts about the elements that determine the stop reason.
    pub(super) signs: StopSignals,
}

impl ResponsesReader {
    pub(super) fn new(asked: DecodeContext, origin: Arc<Origin>, side: Direction) -> Self {
        let (calls, signs) = (CallTracker::default(), StopSignals::default());
        Self { asked, origin, side, calls, reply: Name::default(), signs }
    }

    /// Sets the reply id that prefixes all Item ids.
    pub(super) fn prefix_ids_with(&mut self, reply: Option<&Name>) {
        self.reply = reply.cloned().unwrap_or_else(|| Name::from("reply"));
    }

    fn id_of(&self, place: ItemPosition) -> ItemId {
        ItemId::from_position(&self.reply, place)
    }

    /// Decodes an element of a response. Reasoning leads to the next element, which a stream
    /// reveals later.
    pub(super) fn output(&mut self, index: usize, element: Node<'_>, items: &mut Vec<Item>) {
        self.element(index, element, true, items);
    }

    fn element(&mut self, index: usize, element: Node<'_>, leads: bool, items: &mut Vec<Item>) {
        let kind = ResponsesElementKind::from_element(element);
        self.signs.waits |= wire::waits_for_client(kind, element);
        let role = role(kind, element);
        if kind == ResponsesElementKind::Message && self.message(index, role, element, items) {
            return;
        }
        let place = ItemPosition::new(index, 0);
        let body = self.body(place, kind, element);
        let envelope = Arc::new(Envelope { json: element.json(), parts: 1 });
        let mut native = draft::native_part(WIRE, self.side, element.json(), Some(&envelope));
        native.id = element.name_of("id");
        let mut item = self.item(place, role, body, native);
        item.seals = self.seals(role, kind, element);
        if kind == ResponsesElementKind::Reasoning && leads {
            let next = self.id_of(ItemPosition::new(index.saturating_add(1), 0));
            for seal in &mut item.seals {
                seal.attached.leads = Some(next.clone());
            }
        }
        items.push(item);
    }

    /// Decodes the parts of a message; returns `false` if it has no parts.
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
            self.signs.refused |= part.get("type").is_some_and(|kind| kind.is("refusal"));
            let body = part.name().map_or_else(|| content_body(part, &self.origin), Body::Text);
            let mut native = draft::native_part(WIRE, self.side, part.json(), Some(&envelope));
            native.id.clone_from(&id);
            native.slot = Label::Borrowed(CONTENT);
            let mut item = self.item(ItemPosition::new(index, at), role, body, native);
            item.seals = self.seals(role, ResponsesElementKind::Message, part);
            items.push(item);
        }
        !parts.is_empty()
    }

    /// Builds the Item of a value that is a whole message: a string `input`, or the `instructions`.
    fn whole_value_item(
        &self,
        place: ItemPosition,
        role: Role,
        body: Body,
        value: Node<'_>,
    ) -> Item {
        let envelope = Arc::new(Envelope { json: value.json(), parts: 1 });
        let mut native = draft::native_part(WIRE, self.side, value.json(), Some(&envelope));
        native.slot = Label::Borrowed(CONTENT);
        self.item(place, role, body, native)
    }

    fn item(&self, place: ItemPosition, role: Role, body: Body, native: NativePart) -> Item {
        let mut item = Item::new(self.id_of(place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    /// Returns the Seals of an Item. Only assistant Items have Seals.
    fn seals(
        &self,
        role: Role,
        kind: ResponsesElementKind,
        part: Node<'_>,
    ) -> Vec<throughline_core::Seal> {
        if role != Role::Assistant || !kind.holds_seals() {
            return Vec::new();
        }
        let format = |key: &str| kind.is_sealed(key).then(|| wire::seal_format(key));
        find_seals::seals(part, &self.asked, &self.origin, format)
    }

    fn body(&mut self, place: ItemPosition, kind: ResponsesElementKind, element: Node<'_>) -> Body {
        match kind {
            ResponsesElementKind::Reasoning => Body::Thought(thought(element, &self.origin)),
            ResponsesElementKind::Call | ResponsesElementKind::CustomCall => {
                let wire_id = element.name_of("call_id");
                let name = element.name_of("name").unwrap_or_default();
                let id = self.calls.open(wire_id.as_ref(), &name, place);
                let custom = kind == ResponsesElementKind::CustomCall;
                let said = element.get(if custom { "input" } else { "arguments" });
                let parsed = said.filter(|_| !custom).and_then(Node::text_bytes);
                let args = parsed.and_then(|text| Json::parse(text).ok()).unwrap_or_else(|| {
                    json::string(&said.and_then(Node::text).unwrap_or_default())
                });
                Body::Call(ToolCall { id, wire_id, name, args, custom })
            }
            ResponsesElementKind::Result | ResponsesElementKind::CustomResult => {
                let wire_id = element.name_of("call_id");
                let output = element.get("output");
                Body::Result(ToolResult {
                    call: self.calls.answer(wire_id.as_deref(), None),
                    wire_id,
                    name: None,
                    outcome: Outcome::Ok,
                    parts: output.map(|o| parts(o, &self.origin)).unwrap_or_default(),
                })
            }
            ResponsesElementKind::HostedCall | ResponsesElementKind::HostedResult => {
                Body::Hosted(hosted(kind, element))
            }
            ResponsesElementKind::Compaction => Body::Compaction,
            ResponsesElementKind::Message | ResponsesElementKind::Unknown => Body::Unknown,
        }
    }
}

/// Returns the role of an element.
pub(super) fn role(kind: ResponsesElementKind, element: Node<'_>) -> Role {
    let said = match element.text_of("role").as_deref() {
        Some("assistant") => Some(Role::Assistant),
        Some("system") => Some(Role::System),
        Some("developer") => Some(Role::Developer),
        Some("tool") => Some(Role::Tool),
        Some(_) => Some(Role::User),
        None => None,
    };
    let ours = match kind {
        ResponsesElementKind::Message => Role::User,
        ResponsesElementKind::Result | ResponsesElementKind::CustomResult => Role::Tool,
        // A step that the provider ran belongs to the assistant; a client's result for it belongs
        // to the tool role.
        ResponsesElementKind::HostedResult => {
            let kind = element.text_of("type").unwrap_or_default();
            let by_client = element.get("execution").is_some_and(|e| e.is("client"));
            if kind.ends_with("_call_output") || by_client { Role::Tool } else { Role::Assistant }
        }
        ResponsesElementKind::Reasoning
        | ResponsesElementKind::Call
        | ResponsesElementKind::CustomCall
        | ResponsesElementKind::HostedCall
        | ResponsesElementKind::Compaction => {
            return Role::Assistant;
        }
        ResponsesElementKind::Unknown
            if element.get("type").is_some_and(|t| t.is("mcp_approval_response")) =>
        {
            Role::User
        }
        ResponsesElementKind::Unknown => Role::Assistant,
    };
    said.unwrap_or(ours)
}

/// Builds one Thought from summary, content and ciphertext. The full reasoning takes precedence
/// over its summary.
fn thought(element: Node<'_>, origin: &Origin) -> Thought {
    let text = |key: &str| {
        let parts = element.get(key).into_iter().flat_map(Node::elements);
        let mut texts = parts.filter_map(|part| part.get("text")).filter(|text| text.is_string());
        match (texts.next(), texts.clone().next()) {
            (None, _) => Name::default(),
            (Some(one), None) => one.name().unwrap_or_default(),
            (Some(first), Some(_)) => {
                let texts: Vec<_> =
                    [first].into_iter().chain(texts).filter_map(Node::text).collect();
                Name::from(texts.join("\n\n"))
            }
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

fn hosted(kind: ResponsesElementKind, element: Node<'_>) -> HostedStep {
    let name = element.text_of("type").unwrap_or_default();
    let name = name.trim_end_matches("_output").trim_end_matches("_call");
    let readable = ["/code", "/action/query", "/output", "/arguments"];
    let visible = readable.iter().find_map(|pointer| element.at(pointer)?.name());
    HostedStep {
        name: Name::from(name),
        pairs: element.name_of("call_id").or_else(|| element.name_of("id")),
        is_result: kind == ResponsesElementKind::HostedResult,
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
        Body::Thought(_)
        | Body::Call(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => Part::Unknown(WIRE, part.json()),
    };
    output.elements().map(part).collect()
}

fn media(part: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let kind = part.text_of("type")?;
    if !matches!(&*kind, "input_image" | "input_file" | "input_audio") {
        return None;
    }
    // A file URL is a document; all other URLs are images.
    let mime = (kind == "input_file").then(|| Name::from("application/pdf"));
    let remote = |uri, owner| Media::Remote { mime, uri, owner };
    if let Some(id) = part.present("file_id").and_then(Node::name) {
        return Some(remote(id, Some(Arc::clone(origin))));
    }
    if let Some(audio) = part.get("input_audio") {
        let mime = Name::from(format!("audio/{}", audio.text_of("format")?));
        return Some(Media::Inline { mime, base64: audio.get("data")?.text_bytes()? });
    }
    let said = ["image_url", "file_data", "file_url"].iter().find_map(|key| part.present(key))?;
    if let Some(inline) = said.text_bytes().and_then(|uri| data_uri(&uri)) {
        return Some(inline);
    }
    // Base64 without a media type cannot be sent on other wires.
    let is_address = part.present("file_data").is_none();
    is_address.then(|| said.name()).flatten().map(|uri| remote(uri, None))
}

/// Parses `data:image/png;base64,…`.
fn data_uri(uri: &Bytes) -> Option<Media> {
    let rest = uri.strip_prefix(b"data:".as_slice())?;
    let mark = memchr::memmem::find(rest, b";base64,")?;
    let mime = std::str::from_utf8(rest.get(..mark)?).ok()?;
    let base64 = uri.slice(b"data:".len() + mark + b";base64,".len()..);
    Some(Media::Inline { mime: Name::from(mime), base64 })
}
