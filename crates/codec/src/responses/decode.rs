//! Requests and responses, read.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Failure, Hosted, Item, ItemId, Json, Label, Media, Name, Native, Node,
    Origin, Outcome, Part, Place, Reply, Request, Role, Side, Thought, ThoughtKind, ToolCall,
    ToolResult, Tree, Wire, json,
};

use crate::calls::Calls;
use crate::responses::wire::{self, CONTENT, Kind, Signs};
use crate::{Asked, CodecError, draft, sealed};

mod settings;

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Reads a request, whose body is `tree`.
pub(super) fn request(request: &Request, tree: &Tree, asked: &Asked) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    if !root.is_object() {
        return Err(shape("", "must be an object"));
    }
    let input = root.present("input");
    // A stored prompt, conversation or answer may be gone on with in silence.
    let may_be_silent = ["prompt", "conversation", "previous_response_id"]
        .iter()
        .any(|k| root.present(k).is_some());
    let is_input = |input: Node<'_>| input.is_string() || input.is_array();
    if input.map_or(!may_be_silent, |input| !is_input(input)) {
        return Err(shape("input", "must be a string or a list"));
    }
    let mut call = Call::new(asked.target.clone());
    let origin = Arc::clone(&asked.target.origin);
    let mut reader = Reader::new(asked.clone(), origin, Side::Request);
    if let Some(text) = input.filter(|input| input.is_string()) {
        let body = Body::Text(text.name().unwrap_or_default());
        call.items.push(reader.bare(Place::default(), Role::User, body, text));
    }
    let elements: Vec<_> = input.into_iter().flat_map(Node::elements).collect();
    let last = elements.len().saturating_sub(1);
    call.items.reserve(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        reader.element(index, element, index < last, &mut call.items);
    }
    if let Some(instructions) = root.present("instructions") {
        let body = instructions.name().map_or(Body::Unknown, Body::Text);
        let mut item = reader.bare(Place::default(), Role::System, body, instructions);
        item.id = ItemId::from("system.0");
        call.system.push(item);
    }
    call.tools = root.get("tools").map(settings::tools).unwrap_or_default();
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(false);
    call.settings = settings::settings(root);
    call.resumes = root.name_of("previous_response_id");
    call.extras = settings::extras(root);
    call.source = Some(draft::received(WIRE, request, &asked.target, tree, &call.settings));
    Ok(call)
}

/// Reads a whole response.
pub(super) fn reply(body: &Bytes, asked: &Asked) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if root.present("error").is_some() {
        return Err(CodecError::Provider(Box::new(failure(root, body))));
    }
    let output = root.get("output").filter(|output| output.is_array());
    let output = output.ok_or_else(|| {
        CodecError::shape(WIRE, "response", "output", "must be a list of elements")
    })?;
    let origin = asked.origin(root.text_of("model").as_deref(), None);
    let id = root.name_of("id");
    let mut reader = Reader::new(asked.clone(), Arc::clone(&origin), Side::Response);
    reader.prefix_ids_with(id.as_ref());
    let mut items = Vec::new();
    for (index, element) in output.elements().enumerate() {
        reader.output(index, element, &mut items);
    }
    Ok(Reply {
        id,
        items,
        stop: wire::stop(root, reader.signs),
        usage: root.get("usage").map(wire::usage).unwrap_or_default(),
        origin,
        extras: extras_of(root),
    })
}

/// Everything that a response says besides its Items.
pub(super) fn extras_of(response: Node<'_>) -> Vec<(Name, Json)> {
    let members = response.members().filter(|(key, _)| !key.is("output"));
    members.map(|(key, value)| (key.name().unwrap_or_default(), value.json())).collect()
}

/// Reads the provider's account of a failure: an error body, an `error` event, or a failed response.
pub(super) fn failure(root: Node<'_>, body: &Bytes) -> Failure {
    let error = root.present("error").filter(|error| error.is_object()).unwrap_or(root);
    let text = |key: &str| error.present(key).and_then(Node::name);
    let message = text("message").or_else(|| root.name_of("error")).unwrap_or_default();
    // An event's own type is not the kind of failure.
    let kind = text("type").filter(|kind| **kind != *"error");
    let kind = text("code").filter(|_| kind.is_none()).or(kind);
    Failure { status: None, kind, message, body: body.clone() }
}

/// Reads elements. The same for both sides; only what is said of their origin differs.
pub(super) struct Reader {
    asked: Asked,
    origin: Arc<Origin>,
    side: Side,
    calls: Calls,
    reply: Name,
    /// What the elements said, as far as why the response ended depends on it.
    pub(super) signs: Signs,
}

impl Reader {
    pub(super) fn new(asked: Asked, origin: Arc<Origin>, side: Side) -> Self {
        let (calls, signs) = (Calls::default(), Signs::default());
        Self { asked, origin, side, calls, reply: Name::default(), signs }
    }

    /// Item ids of a reply begin with the reply's.
    pub(super) fn prefix_ids_with(&mut self, reply: Option<&Name>) {
        self.reply = reply.cloned().unwrap_or_else(|| Name::from("reply"));
    }

    fn id_of(&self, place: Place) -> ItemId {
        ItemId::at(&self.reply, place)
    }

    /// Reads an element of a response. Reasoning leads to whatever stands next, which a stream tells only later.
    pub(super) fn output(&mut self, index: usize, element: Node<'_>, items: &mut Vec<Item>) {
        self.element(index, element, true, items);
    }

    fn element(&mut self, index: usize, element: Node<'_>, leads: bool, items: &mut Vec<Item>) {
        let kind = Kind::of(element);
        self.signs.waits |= wire::waits(kind, element);
        let role = role(kind, element);
        if kind == Kind::Message && self.message(index, role, element, items) {
            return;
        }
        let place = Place::new(index, 0);
        let body = self.body(place, kind, element);
        let envelope = Arc::new(Envelope { json: element.json(), parts: 1 });
        let mut native = draft::heard(WIRE, self.side, element.json(), Some(&envelope));
        native.id = element.name_of("id");
        let mut item = self.item(place, role, body, native);
        item.seals = self.seals(role, kind, element);
        if kind == Kind::Reasoning && leads {
            let next = self.id_of(Place::new(index.saturating_add(1), 0));
            for seal in &mut item.seals {
                seal.attached.leads = Some(next.clone());
            }
        }
        items.push(item);
    }

    /// Reads the parts of a message; false where none can be cut from it.
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
            let mut native = draft::heard(WIRE, self.side, part.json(), Some(&envelope));
            native.id.clone_from(&id);
            native.slot = Label::Borrowed(CONTENT);
            let mut item = self.item(Place::new(index, at), role, body, native);
            item.seals = self.seals(role, Kind::Message, part);
            items.push(item);
        }
        !parts.is_empty()
    }

    /// A value that is a whole message: the `input` of a short request, or its `instructions`.
    fn bare(&self, place: Place, role: Role, body: Body, value: Node<'_>) -> Item {
        let envelope = Arc::new(Envelope { json: value.json(), parts: 1 });
        let mut native = draft::heard(WIRE, self.side, value.json(), Some(&envelope));
        native.slot = Label::Borrowed(CONTENT);
        self.item(place, role, body, native)
    }

    fn item(&self, place: Place, role: Role, body: Body, native: Native) -> Item {
        let mut item = Item::new(self.id_of(place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    /// The opaque values of what the model said. What a client said is its own.
    fn seals(&self, role: Role, kind: Kind, part: Node<'_>) -> Vec<throughline_core::Seal> {
        if role != Role::Assistant || !kind.holds_seals() {
            return Vec::new();
        }
        let format = |key: &str| kind.is_sealed(key).then(|| wire::seal_format(key));
        sealed::seals(part, &self.asked, &self.origin, format)
    }

    fn body(&mut self, place: Place, kind: Kind, element: Node<'_>) -> Body {
        match kind {
            Kind::Reasoning => Body::Thought(thought(element, &self.origin)),
            Kind::Call | Kind::CustomCall => {
                let wire_id = element.name_of("call_id");
                let name = element.name_of("name").unwrap_or_default();
                let id = self.calls.open(wire_id.as_ref(), &name, place);
                let custom = kind == Kind::CustomCall;
                let said = element.get(if custom { "input" } else { "arguments" });
                let parsed = said.filter(|_| !custom).and_then(Node::text_bytes);
                let args = parsed.and_then(|text| Json::parse(text).ok()).unwrap_or_else(|| {
                    json::string(&said.and_then(Node::text).unwrap_or_default())
                });
                Body::Call(ToolCall { id, wire_id, name, args, custom })
            }
            Kind::Result | Kind::CustomResult => {
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
            Kind::HostedCall | Kind::HostedResult => Body::Hosted(hosted(kind, element)),
            Kind::Compaction => Body::Compaction,
            Kind::Message | Kind::Unknown => Body::Unknown,
        }
    }
}

/// Who says an element.
pub(super) fn role(kind: Kind, element: Node<'_>) -> Role {
    let said = match element.text_of("role").as_deref() {
        Some("assistant") => Some(Role::Assistant),
        Some("system") => Some(Role::System),
        Some("developer") => Some(Role::Developer),
        Some("tool") => Some(Role::Tool),
        Some(_) => Some(Role::User),
        None => None,
    };
    let ours = match kind {
        Kind::Message => Role::User,
        Kind::Result | Kind::CustomResult => Role::Tool,
        // What the provider ran itself is its own; a client's answer to it is a tool's.
        Kind::HostedResult => {
            let kind = element.text_of("type").unwrap_or_default();
            let by_client = element.get("execution").is_some_and(|e| e.is("client"));
            if kind.ends_with("_call_output") || by_client { Role::Tool } else { Role::Assistant }
        }
        Kind::Reasoning | Kind::Call | Kind::CustomCall | Kind::HostedCall | Kind::Compaction => {
            return Role::Assistant;
        }
        Kind::Unknown if element.get("type").is_some_and(|t| t.is("mcp_approval_response")) => {
            Role::User
        }
        Kind::Unknown => Role::Assistant,
    };
    said.unwrap_or(ours)
}

/// Summary, content and ciphertext are one thought. The reasoning itself says more than a summary of it.
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

fn hosted(kind: Kind, element: Node<'_>) -> Hosted {
    let name = element.text_of("type").unwrap_or_default();
    let name = name.trim_end_matches("_output").trim_end_matches("_call");
    let readable = ["/code", "/action/query", "/output", "/arguments"];
    let visible = readable.iter().find_map(|pointer| element.at(pointer)?.name());
    Hosted {
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
    // A file at an address is a document; the address of anything else is a picture's.
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
    // Base64 without a media type says too little for any other wire.
    let is_address = part.present("file_data").is_none();
    is_address.then(|| said.name()).flatten().map(|uri| remote(uri, None))
}

/// `data:image/png;base64,…`
fn data_uri(uri: &Bytes) -> Option<Media> {
    let rest = uri.strip_prefix(b"data:".as_slice())?;
    let mark = memchr::memmem::find(rest, b";base64,")?;
    let mime = std::str::from_utf8(rest.get(..mark)?).ok()?;
    let base64 = uri.slice(b"data:".len() + mark + b";base64,".len()..);
    Some(Media::Inline { mime: Name::from(mime), base64 })
}
