//! Decodes requests and whole responses.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Direction, Envelope, Extra, Failure, HostedStep, Item, ItemId, ItemPosition, Json,
    Media, Name, NativePart, Node, Origin, Outcome, Part, ReasoningFormat, Reply, Request, Role,
    StopReason, Thought, ThoughtKind, ToolCall, ToolResult, Tree, Wire, json,
};

use crate::call_ids::CallTracker;
use crate::gemini::path::GeminiPath;
use crate::gemini::tools;
use crate::gemini::wire::{self, GeminiPartKind};
use crate::{CodecError, DecodeContext, draft};

mod settings;

const WIRE: Wire = Wire::GEMINI;

/// Members that fields of the Call represent.
const KNOWN: &[&str] = &["contents", "systemInstruction", "tools"];

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    asked: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let contents = root.get("contents").filter(|contents| contents.is_array());
    let contents = contents.ok_or_else(|| shape("contents", "must be a list of contents"))?;
    let mut reader = GeminiReader::new(asked, Arc::clone(&asked.target.origin), Direction::Request);
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
    call.tools = root.get("tools").map(tools::decode_tools).unwrap_or_default();
    call.stream = GeminiPath::parse(&request.path).is_some_and(|path| path.is_streamed());
    call.settings = settings::decode_settings(root);
    call.extras = request_extras(root);
    call.source = Some(draft::received_request(WIRE, request, &asked.target, tree, &call.settings));
    Ok(call)
}

/// Collects the members that no field of the Call represents. If a name is repeated, the last value
/// counts.
fn request_extras(root: Node<'_>) -> Vec<Extra> {
    let members: Vec<_> = root.members().collect();
    let mut seen = HashSet::new();
    let mut extras = Vec::new();
    for (key, value) in members.into_iter().rev() {
        let key = key.name().unwrap_or_default();
        let is_known = KNOWN.iter().any(|known| wire::is_spelled(&key, known));
        let is_last = seen.insert(Name::clone(&key));
        if is_last && !is_known {
            let mut unsaid = settings::unrepresented_members(key, value);
            unsaid.reverse();
            extras.extend(unsaid);
        }
    }
    extras.reverse();
    let extra =
        |(key, value): (Name, Node<'_>)| Extra { wire: Some(WIRE), key, value: value.json() };
    extras.into_iter().map(extra).collect()
}

/// Decodes a whole response.
pub(super) fn decode_reply(body: &Bytes, asked: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    if let Some(failure) = decode_failure(root, body) {
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
    let mut reader = GeminiReader::new(asked, Arc::clone(&origin), Direction::Response);
    reader.prefix_ids_with(id.as_ref());
    let candidate = candidates.and_then(|candidates| candidates.elements().next());
    let parts = candidate.and_then(|candidate| candidate.at("/content/parts"));
    let mut items: Vec<Item> = parts
        .into_iter()
        .flat_map(Node::elements)
        .enumerate()
        .map(|(index, part)| reader.part(ItemPosition::new(0, index), Role::Assistant, part, None))
        .collect();
    let reason = candidate.and_then(|candidate| wire::name_of(candidate, "finishReason"));
    let blocked = feedback.and_then(|feedback| wire::name_of(feedback, "blockReason"));
    let stop = wire::decode_stop(reason.as_deref(), blocked, has_calls(&items));
    if stop == StopReason::Cut {
        items.iter_mut().for_each(Item::mark_truncated);
    }
    let usage = usage.map(wire::usage).unwrap_or_default();
    let extra = |(key, value): (Node<'_>, Node<'_>)| {
        let value = if key.is("candidates") { without_parts(value) } else { value.json() };
        (key.name().unwrap_or_default(), value)
    };
    let extras = root.members().map(extra).collect();
    Ok(Reply { id, items, stop, usage, origin, extras })
}

/// Returns whether any Item calls a tool.
pub(super) fn has_calls(items: &[Item]) -> bool {
    items.iter().any(|item| matches!(item.body, Body::Call(_)))
}

/// Returns the candidates without the parts of the first one, which become Items.
fn without_parts(candidates: Node<'_>) -> Json {
    json::array(|a| {
        for (index, candidate) in candidates.elements().enumerate() {
            match candidate.get("content").filter(|content| index == 0 && content.is_object()) {
                Some(content) => {
                    let changes = [(Cow::Borrowed("parts"), None)];
                    let content = draft::edit_object(Some(&content.json()), &changes);
                    let changes = [(Cow::Borrowed("content"), Some(content))];
                    a.raw(&draft::edit_object(Some(&candidate.json()), &changes));
                }
                None => {
                    a.node(candidate);
                }
            }
        }
    })
}

/// Reads a provider's error, which may be wrapped in a list.
pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Option<Failure> {
    let root = if root.is_array() { root.elements().next()? } else { root };
    let error = wire::present(root, "error")?;
    let message = error.name_of("message").or_else(|| error.name()).unwrap_or_default();
    let status = error.get("code").and_then(Node::u64).and_then(|code| u16::try_from(code).ok());
    Some(Failure { status, kind: error.name_of("status"), message, body: body.clone() })
}

/// Decodes parts of requests and responses; only the origin differs.
pub(super) struct GeminiReader<'a> {
    asked: &'a DecodeContext,
    origin: Arc<Origin>,
    side: Direction,
    calls: CallTracker,
    /// Wire ids of calls. Some clients give ids to responses but not to calls.
    named: HashSet<Name>,
    reply: Name,
}

impl<'a> GeminiReader<'a> {
    pub(super) fn new(asked: &'a DecodeContext, origin: Arc<Origin>, side: Direction) -> Self {
        let (calls, named, reply) = (CallTracker::default(), HashSet::new(), Name::default());
        Self { asked, origin, side, calls, named, reply }
    }

    /// Sets the reply id that prefixes all Item ids.
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
            // An empty or malformed content is kept as one unknown Item.
            let native = draft::native_part(WIRE, self.side, content.json(), Some(&envelope));
            items.push(self.item(ItemPosition::new(index, 0), role, Body::Unknown, native));
            return;
        }
        for (at, part) in parts.into_iter().enumerate() {
            items.push(self.part(ItemPosition::new(index, at), role, part, Some(&envelope)));
        }
    }

    /// Decodes the system instruction: a content, or a bare string, which some endpoints accept
    /// too.
    fn system(&mut self, system: Node<'_>) -> Vec<Item> {
        let parts: Vec<_> = system.get("parts").into_iter().flat_map(Node::elements).collect();
        let envelope = Arc::new(Envelope { json: system.json(), parts: parts.len().max(1) });
        let mut items = Vec::with_capacity(parts.len());
        if parts.is_empty() {
            let body = system.name().map_or(Body::Unknown, Body::Text);
            let native = draft::native_part(WIRE, self.side, system.json(), Some(&envelope));
            items.push(self.item(ItemPosition::default(), Role::System, body, native));
        }
        for (at, part) in parts.into_iter().enumerate() {
            items.push(self.part(ItemPosition::new(0, at), Role::System, part, Some(&envelope)));
        }
        for (at, item) in items.iter_mut().enumerate() {
            item.id = format!("system.{at}").into();
        }
        items
    }

    fn item(&self, place: ItemPosition, role: Role, body: Body, native: NativePart) -> Item {
        let mut item = Item::new(self.id_at(place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    fn id_at(&self, place: ItemPosition) -> ItemId {
        ItemId::from_position(&self.reply, place)
    }

    pub(super) fn part(
        &mut self,
        place: ItemPosition,
        role: Role,
        part: Node<'_>,
        envelope: Option<&Arc<Envelope>>,
    ) -> Item {
        let (kind, content) = GeminiPartKind::from_part(part);
        let body = self.body(place, kind, content);
        let mut native = draft::native_part(WIRE, self.side, part.json(), envelope);
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

    fn body(&mut self, place: ItemPosition, kind: GeminiPartKind, content: Node<'_>) -> Body {
        match kind {
            GeminiPartKind::Text => Body::Text(content.name().unwrap_or_default()),
            GeminiPartKind::Thought => {
                let text = content.name().unwrap_or_default();
                let is_empty = text.is_empty();
                let kind = if is_empty { ThoughtKind::Encrypted } else { ThoughtKind::Summary };
                Body::Thought(Thought::issued(text, kind, ReasoningFormat::GoogleGeminiV1))
            }
            GeminiPartKind::Call => Body::Call(self.call(place, content)),
            GeminiPartKind::Answer => Body::Result(self.function_response(content)),
            GeminiPartKind::Inline => inline(content).map_or(Body::Unknown, Body::Media),
            GeminiPartKind::File => file(content, &self.origin).map_or(Body::Unknown, Body::Media),
            GeminiPartKind::Code => hosted(content, "code_execution", false, "code"),
            GeminiPartKind::CodeResult => hosted(content, "code_execution", true, "output"),
            GeminiPartKind::HostedCall | GeminiPartKind::HostedResult => {
                let name = wire::name_of(content, "toolType").unwrap_or_default();
                hosted(
                    content,
                    &name.to_ascii_lowercase(),
                    kind == GeminiPartKind::HostedResult,
                    "",
                )
            }
            GeminiPartKind::Unknown => Body::Unknown,
        }
    }

    fn call(&mut self, place: ItemPosition, call: Node<'_>) -> ToolCall {
        let wire_id = call.name_of("id").filter(|id| !id.is_empty());
        let name = call.name_of("name").unwrap_or_default();
        self.named.extend(wire_id.clone());
        // Places in a reply start at 0, so calls without an id get one derived from the reply id.
        let made = match self.side {
            Direction::Request => None,
            Direction::Response => Some(self.id_at(place).0),
        };
        let id = self.calls.open(wire_id.as_ref().or(made.as_ref()), &name, place);
        let args = call.get("args").filter(|args| !args.is_null());
        let args = args.map_or_else(|| json::object(|_| {}), Node::json);
        ToolCall { id, wire_id, name, args, custom: false }
    }

    fn function_response(&mut self, answer: Node<'_>) -> ToolResult {
        let wire_id = answer.name_of("id").filter(|id| !id.is_empty());
        let name = answer.name_of("name");
        let known = wire_id.as_ref().filter(|id| name.is_none() || self.named.contains(*id));
        let call = self.calls.answer(known.map(|id| &**id), name.as_deref());
        let (outcome, mut parts) = match answer.get("response") {
            Some(response) => tool_output(response),
            None => (Outcome::Ok, Vec::new()),
        };
        for part in answer.get("parts").into_iter().flat_map(Node::elements) {
            let media = match GeminiPartKind::from_part(part) {
                (GeminiPartKind::Inline, content) => inline(content),
                (GeminiPartKind::File, content) => file(content, &self.origin),
                _ => None,
            };
            parts.push(media.map_or_else(|| Part::Unknown(WIRE, part.json()), Part::Media));
        }
        ToolResult { call, wire_id, name, outcome, parts }
    }
}

/// Reads a tool's output. The wire documents `output` and `error`, and clients also send `result`;
/// any other object is the output itself.
fn tool_output(response: Node<'_>) -> (Outcome, Vec<Part>) {
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
    Body::Hosted(HostedStep {
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
    // Uploaded files and buckets are readable only by Google; all other URIs are public.
    let is_kept = uri.starts_with("gs://") || uri.contains("generativelanguage.googleapis.com/");
    let owner = is_kept.then(|| Arc::clone(origin));
    Some(Media::Remote { mime: wire::name_of(content, "mimeType"), uri, owner })
}
