//! Requests and responses, read.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Extra, Failure, Hosted, Item, ItemId, Json, Media, Name, Native, Node,
    Origin, Outcome, Part, Place, ReasoningFormat, Reply, Request, Role, Side, Stop, Thought,
    ThoughtKind, ToolCall, ToolResult, Tree, Wire, json,
};

use crate::calls::Calls;
use crate::gemini::path::Path;
use crate::gemini::tools;
use crate::gemini::wire::{self, Kind};
use crate::{Asked, CodecError, draft};

mod settings;

const WIRE: Wire = Wire::GEMINI;

/// The members that fields of the Call speak for.
const KNOWN: &[&str] = &["contents", "systemInstruction", "tools"];

/// Reads a request, whose body is `tree`.
pub(super) fn request(request: &Request, tree: &Tree, asked: &Asked) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let contents = root.get("contents").filter(|contents| contents.is_array());
    let contents = contents.ok_or_else(|| shape("contents", "must be a list of contents"))?;
    let mut reader = Reader::new(asked, Arc::clone(&asked.target.origin), Side::Request);
    let mut call = Call::new(asked.target.clone());
    call.items.reserve(2 * contents.elements().count());
    for (index, content) in contents.elements().enumerate() {
        if !content.is_object() {
            return Err(shape(&format!("contents[{index}]"), "must be an object"));
        }
        reader.content(index, content, &mut call.items);
    }
    let system = wire::present(root, "systemInstruction");
    call.system = system.map(|system| reader.system(system)).unwrap_or_default();
    call.tools = root.get("tools").map(tools::read).unwrap_or_default();
    call.stream = Path::parse(&request.path).is_some_and(|path| path.is_streamed());
    call.settings = settings::read(root);
    call.extras = extras(root);
    call.source = Some(draft::received(WIRE, request, &asked.target, tree, &call.settings));
    Ok(call)
}

/// What no field of the Call speaks for: of a name that stands twice, the last value, which is the one that counts.
fn extras(root: Node<'_>) -> Vec<Extra> {
    let members: Vec<_> = root.members().collect();
    let mut seen = HashSet::new();
    let mut extras = Vec::new();
    for (key, value) in members.into_iter().rev() {
        let key = key.name().unwrap_or_default();
        let is_known = KNOWN.iter().any(|known| wire::is_spelled(&key, known));
        let is_last = seen.insert(Name::clone(&key));
        if is_last && !is_known {
            let mut unsaid = settings::unsaid(key, value);
            unsaid.reverse();
            extras.extend(unsaid);
        }
    }
    extras.reverse();
    let extra =
        |(key, value): (Name, Node<'_>)| Extra { wire: Some(WIRE), key, value: value.json() };
    extras.into_iter().map(extra).collect()
}

/// Reads a whole response.
pub(super) fn reply(body: &Bytes, asked: &Asked) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if let Some(failure) = failure(root, body) {
        return Err(CodecError::Provider(Box::new(failure)));
    }
    let candidates = root.get("candidates").filter(|candidates| candidates.is_array());
    let feedback = wire::present(root, "promptFeedback");
    let usage = wire::present(root, "usageMetadata");
    if candidates.is_none() && feedback.is_none() && usage.is_none() {
        let problem = "must be a list of candidates";
        return Err(CodecError::shape(WIRE, "response", "candidates", problem));
    }
    let id = wire::name_of(root, "responseId");
    let origin = asked.origin(wire::name_of(root, "modelVersion").as_deref(), None);
    let mut reader = Reader::new(asked, Arc::clone(&origin), Side::Response);
    reader.prefix_ids_with(id.as_ref());
    let candidate = candidates.and_then(|candidates| candidates.elements().next());
    let parts = candidate.and_then(|candidate| candidate.at("/content/parts"));
    let mut items: Vec<Item> = parts
        .into_iter()
        .flat_map(Node::elements)
        .enumerate()
        .map(|(index, part)| reader.part(Place::new(0, index), Role::Assistant, part, None))
        .collect();
    let reason = candidate.and_then(|candidate| wire::name_of(candidate, "finishReason"));
    let blocked = feedback.and_then(|feedback| wire::name_of(feedback, "blockReason"));
    let stop = wire::stop(reason.as_deref(), blocked, has_calls(&items));
    if stop == Stop::Cut {
        items.iter_mut().for_each(Item::cut_off);
    }
    let usage = usage.map(wire::usage).unwrap_or_default();
    let extra = |(key, value): (Node<'_>, Node<'_>)| {
        let value = if key.is("candidates") { without_parts(value) } else { value.json() };
        (key.name().unwrap_or_default(), value)
    };
    let extras = root.members().map(extra).collect();
    Ok(Reply { id, items, stop, usage, origin, extras })
}

/// Whether something asks for tools.
pub(super) fn has_calls(items: &[Item]) -> bool {
    items.iter().any(|item| matches!(item.body, Body::Call(_)))
}

/// The candidates with everything but the first one's parts, which are the Items.
fn without_parts(candidates: Node<'_>) -> Json {
    json::array(|a| {
        for (index, candidate) in candidates.elements().enumerate() {
            match candidate.get("content").filter(|content| index == 0 && content.is_object()) {
                Some(content) => {
                    let changes = [(Cow::Borrowed("parts"), None)];
                    let content = draft::edited(Some(&content.json()), &changes);
                    let changes = [(Cow::Borrowed("content"), Some(content))];
                    a.raw(&draft::edited(Some(&candidate.json()), &changes));
                }
                None => {
                    a.node(candidate);
                }
            }
        }
    })
}

/// The provider's account of a failure, which sometimes stands in a list.
pub(super) fn failure(root: Node<'_>, body: &Bytes) -> Option<Failure> {
    let root = if root.is_array() { root.elements().next()? } else { root };
    let error = wire::present(root, "error")?;
    let message = error.name_of("message").or_else(|| error.name()).unwrap_or_default();
    let status = error.get("code").and_then(Node::u64).and_then(|code| u16::try_from(code).ok());
    Some(Failure { status, kind: error.name_of("status"), message, body: body.clone() })
}

/// Reads parts. The same for both sides; only what is said of their origin differs.
pub(super) struct Reader<'a> {
    asked: &'a Asked,
    origin: Arc<Origin>,
    side: Side,
    calls: Calls,
    /// The ids that calls had on the wire. Some clients name their answers and not the calls.
    named: HashSet<Name>,
    reply: Name,
}

impl<'a> Reader<'a> {
    pub(super) fn new(asked: &'a Asked, origin: Arc<Origin>, side: Side) -> Self {
        let (calls, named, reply) = (Calls::default(), HashSet::new(), Name::default());
        Self { asked, origin, side, calls, named, reply }
    }

    /// Item ids of a reply begin with the reply's.
    pub(super) fn prefix_ids_with(&mut self, reply: Option<&Name>) {
        self.reply = reply.cloned().unwrap_or_else(|| Name::from("reply"));
    }

    fn content(&mut self, index: usize, content: Node<'_>, items: &mut Vec<Item>) {
        let role = match content.text_of("role").as_deref() {
            Some("model") => Role::Assistant,
            Some("function") => Role::Tool,
            Some(_) | None => Role::User,
        };
        let parts: Vec<_> = content.get("parts").into_iter().flat_map(Node::elements).collect();
        let envelope = Arc::new(Envelope { json: content.json(), parts: parts.len().max(1) });
        if parts.is_empty() {
            // An empty or odd content is kept, though it says nothing.
            let native = draft::heard(WIRE, self.side, content.json(), Some(&envelope));
            items.push(self.item(Place::new(index, 0), role, Body::Unknown, native));
            return;
        }
        for (at, part) in parts.into_iter().enumerate() {
            items.push(self.part(Place::new(index, at), role, part, Some(&envelope)));
        }
    }

    /// A content, or what some endpoints take as well: a bare string.
    fn system(&mut self, system: Node<'_>) -> Vec<Item> {
        let parts: Vec<_> = system.get("parts").into_iter().flat_map(Node::elements).collect();
        let envelope = Arc::new(Envelope { json: system.json(), parts: parts.len().max(1) });
        let mut items = Vec::with_capacity(parts.len());
        if parts.is_empty() {
            let body = system.name().map_or(Body::Unknown, Body::Text);
            let native = draft::heard(WIRE, self.side, system.json(), Some(&envelope));
            items.push(self.item(Place::default(), Role::System, body, native));
        }
        for (at, part) in parts.into_iter().enumerate() {
            items.push(self.part(Place::new(0, at), Role::System, part, Some(&envelope)));
        }
        for (at, item) in items.iter_mut().enumerate() {
            item.id = format!("system.{at}").into();
        }
        items
    }

    fn item(&self, place: Place, role: Role, body: Body, native: Native) -> Item {
        let mut item = Item::new(self.id_at(place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    fn id_at(&self, place: Place) -> ItemId {
        ItemId::at(&self.reply, place)
    }

    pub(super) fn part(
        &mut self,
        place: Place,
        role: Role,
        part: Node<'_>,
        envelope: Option<&Arc<Envelope>>,
    ) -> Item {
        let (kind, content) = Kind::of(part);
        let body = self.body(place, kind, content);
        let mut native = draft::heard(WIRE, self.side, part.json(), envelope);
        native.id = content.name_of("id");
        let mut item = self.item(place, role, body, native);
        item.seals = wire::signatures(part)
            .into_iter()
            .map(|(at, value)| {
                let bytes = value.text_bytes().unwrap_or_default();
                self.asked.seal(bytes, wire::SIGNATURE, &self.origin, at)
            })
            .collect();
        item
    }

    fn body(&mut self, place: Place, kind: Kind, content: Node<'_>) -> Body {
        match kind {
            Kind::Text => Body::Text(content.name().unwrap_or_default()),
            Kind::Thought => {
                let text = content.name().unwrap_or_default();
                let is_empty = text.is_empty();
                let kind = if is_empty { ThoughtKind::Encrypted } else { ThoughtKind::Summary };
                Body::Thought(Thought::issued(text, kind, ReasoningFormat::GoogleGeminiV1))
            }
            Kind::Call => Body::Call(self.call(place, content)),
            Kind::Answer => Body::Result(self.answer(content)),
            Kind::Inline => inline(content).map_or(Body::Unknown, Body::Media),
            Kind::File => file(content, &self.origin).map_or(Body::Unknown, Body::Media),
            Kind::Code => hosted(content, "code_execution", false, "code"),
            Kind::CodeResult => hosted(content, "code_execution", true, "output"),
            Kind::HostedCall | Kind::HostedResult => {
                let name = wire::name_of(content, "toolType").unwrap_or_default();
                hosted(content, &name.to_ascii_lowercase(), kind == Kind::HostedResult, "")
            }
            Kind::Unknown => Body::Unknown,
        }
    }

    fn call(&mut self, place: Place, call: Node<'_>) -> ToolCall {
        let wire_id = call.name_of("id").filter(|id| !id.is_empty());
        let name = call.name_of("name").unwrap_or_default();
        self.named.extend(wire_id.clone());
        // A reply's places all begin at 0, so that its nameless calls are named after it.
        let made = match self.side {
            Side::Request => None,
            Side::Response => Some(self.id_at(place).0),
        };
        let id = self.calls.open(wire_id.as_ref().or(made.as_ref()), &name, place);
        let args = call.get("args").filter(|args| !args.is_null());
        let args = args.map_or_else(|| json::object(|_| {}), Node::json);
        ToolCall { id, wire_id, name, args, custom: false }
    }

    fn answer(&mut self, answer: Node<'_>) -> ToolResult {
        let wire_id = answer.name_of("id").filter(|id| !id.is_empty());
        let name = answer.name_of("name");
        let known = wire_id.as_ref().filter(|id| name.is_none() || self.named.contains(*id));
        let call = self.calls.answer(known.map(|id| &**id), name.as_deref());
        let (outcome, mut parts) = match answer.get("response") {
            Some(response) => said(response),
            None => (Outcome::Ok, Vec::new()),
        };
        for part in answer.get("parts").into_iter().flat_map(Node::elements) {
            let media = match Kind::of(part) {
                (Kind::Inline, content) => inline(content),
                (Kind::File, content) => file(content, &self.origin),
                _ => None,
            };
            parts.push(media.map_or_else(|| Part::Unknown(WIRE, part.json()), Part::Media));
        }
        ToolResult { call, wire_id, name, outcome, parts }
    }
}

/// What a tool said. The wire documents `output` and `error`, and clients write `result` too; any other object is the
/// answer itself.
fn said(response: Node<'_>) -> (Outcome, Vec<Part>) {
    let mut members = response.members();
    let only = members.next().filter(|_| members.next().is_none());
    let (outcome, value) = match only {
        Some((key, value)) if key.is("error") => (Outcome::Error, value),
        Some((key, value)) if key.is("output") || key.is("result") => (Outcome::Ok, value),
        Some(_) | None => (Outcome::Ok, response),
    };
    let part = value.name().map_or_else(|| Part::Value(value.json()), Part::Text);
    (outcome, vec![part])
}

fn hosted(content: Node<'_>, name: &str, is_result: bool, visible: &str) -> Body {
    Body::Hosted(Hosted {
        name: Name::from(name),
        pairs: content.name_of("id"),
        is_result,
        visible: content.name_of(visible).unwrap_or_default(),
    })
}

fn inline(content: Node<'_>) -> Option<Media> {
    let base64 = content.get("data")?.text_bytes()?;
    Some(Media::Inline { mime: wire::name_of(content, "mimeType")?, base64 })
}

fn file(content: Node<'_>, origin: &Arc<Origin>) -> Option<Media> {
    let uri = wire::name_of(content, "fileUri")?;
    // Uploaded files and buckets are for Google's eyes only; anything else is on the web.
    let is_kept = uri.starts_with("gs://") || uri.contains("generativelanguage.googleapis.com/");
    let owner = is_kept.then(|| Arc::clone(origin));
    Some(Media::Remote { mime: wire::name_of(content, "mimeType"), uri, owner })
}
