//! Decodes requests and whole responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Direction, Envelope, Extra, Failure, HostedStep, Item, ItemPosition, Media, Origin,
    Outcome, Part, ReasoningFormat, Reply, Request, Role, StopReason, Thought, ThoughtKind,
    ToolCall, ToolResult,
};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::gemini::path::GeminiPath;
use crate::gemini::wire::{self, GeminiPartKind as Kind};
use crate::gemini::{WIRE, tools};
use crate::item_reader::{ItemReader, number_system_items};
use crate::{CodecError, DecodeContext, draft};

mod settings;

/// The request members that are decoded into fields of the Call, besides the settings.
const KNOWN: &[&str] = &["contents", "systemInstruction", "tools"];

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    context: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let contents = root.get("contents").filter(|contents| contents.is_array());
    let contents = contents.ok_or_else(|| shape("contents", "must be a list of contents"))?;
    let mut reader = ItemReader::for_request(context, WIRE);
    let mut call = Call::new(context.target.clone());
    call.items.reserve(2 * contents.elements().count());
    for (index, content) in contents.elements().enumerate() {
        if !content.is_object() {
            return Err(shape(&format!("contents[{index}]"), "must be an object"));
        }
        let role = match content.text_of("role").as_deref() {
            Some("model") => Role::Assistant,
            Some("function") => Role::Tool,
            Some(_) | None => Role::User,
        };
        let parts = list_of_parts(content);
        call.items.extend(reader.message_items(index, role, content, parts, read_part));
    }
    if let Some(system) = wire::present(root, "systemInstruction") {
        // Some endpoints also accept a plain string.
        let parts = if system.is_string() { Some(system) } else { list_of_parts(system) };
        let items = reader.message_items(0, Role::System, system, parts, read_part);
        call.system = number_system_items(items);
    }
    call.tools = root
        .get("tools")
        .into_iter()
        .flat_map(Node::elements)
        .flat_map(tools::declared_tools)
        .collect();
    call.stream = GeminiPath::parse(&request.path).is_some_and(|path| path.is_streamed());
    call.settings = settings::decode_settings(root);
    call.extras = request_extras(root);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Collects the members that are not decoded into a field of the Call. If a member name is
/// repeated, the last value is used.
fn request_extras(root: Node<'_>) -> Vec<Extra> {
    let is_known = |key: &str| KNOWN.iter().any(|known| wire::is_spelled(key, known));
    let members = draft::last_member_per_name(root.members()).into_iter();
    let extras = members.filter(|(key, _)| !is_known(key));
    let extras = extras.flat_map(|(key, value)| settings::unrepresented_members(key, value));
    draft::extras(extras, &WIRE)
}

pub(super) fn decode_reply(body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
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
    let origin = context.origin(wire::name_of(root, "modelVersion").as_deref(), None);
    let mut reader = ItemReader::for_reply(context, WIRE, &origin, id.as_ref());
    let candidate = candidates.and_then(|candidates| candidates.elements().next());
    let parts = candidate.and_then(|candidate| candidate.at("/content/parts"));
    let mut items = reader.reply_items(parts, read_part);
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

pub(super) fn has_calls(items: &[Item]) -> bool {
    items.iter().any(|item| matches!(item.body, Body::Call(_)))
}

/// Returns the candidates without the parts of the first candidate, because those parts become
/// Items.
fn without_parts(candidates: Node<'_>) -> Json {
    json::array(|a| {
        for (index, candidate) in candidates.elements().enumerate() {
            match candidate.get("content").filter(|content| index == 0 && content.is_object()) {
                Some(content) => {
                    let content = draft::edit_object(Some(&content.json()), &[("parts", None)]);
                    a.raw(&draft::with_member(&candidate.json(), "content", content))
                }
                None => a.node(candidate),
            };
        }
    })
}

/// Reads a provider's error body, which may be wrapped in an array.
pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Option<Failure> {
    let root = if root.is_array() { root.elements().next()? } else { root };
    let error = wire::present(root, "error")?;
    let message = error.name_of("message").or_else(|| error.name()).unwrap_or_default();
    let status = error.get("code").and_then(Node::u64).and_then(|code| u16::try_from(code).ok());
    Some(Failure { status, kind: error.name_of("status"), message, body: body.clone() })
}

fn list_of_parts(content: Node<'_>) -> Option<Node<'_>> {
    content.get("parts").filter(|parts| parts.is_array())
}

pub(super) fn read_part(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    role: Role,
    part: Node<'_>,
    envelope: Option<&Arc<Envelope>>,
) -> Item {
    let (kind, content) = Kind::from_part(part);
    let body = read_body(reader, place, kind, content);
    let mut native = reader.native(part.json(), envelope);
    native.id = content.name_of("id");
    let mut item = reader.item(place, role, body, native);
    let seal = |(at, value): (&'static str, Node<'_>)| {
        let bytes = value.text_bytes().unwrap_or_default();
        reader.context.seal(bytes, wire::SIGNATURE, &reader.origin, at)
    };
    item.seals = wire::signatures(part).into_iter().map(seal).collect();
    item
}

fn read_body(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    kind: Kind,
    content: Node<'_>,
) -> Body {
    match kind {
        Kind::Text => Body::Text(content.name().unwrap_or_default()),
        Kind::Thought => {
            let text = content.name().unwrap_or_default();
            let is_empty = text.is_empty();
            let kind = if is_empty { ThoughtKind::Encrypted } else { ThoughtKind::Summary };
            Body::Thought(Thought::issued(text, kind, ReasoningFormat::GoogleGeminiV1))
        }
        Kind::Call => Body::Call(read_call(reader, place, content)),
        Kind::Answer => Body::Result(read_function_response(reader, content)),
        Kind::Inline => inline(content).map_or(Body::Unknown, Body::Media),
        Kind::File => file(content, &reader.origin).map_or(Body::Unknown, Body::Media),
        Kind::Code => hosted(content, "code_execution", false, "code"),
        Kind::CodeResult => hosted(content, "code_execution", true, "output"),
        Kind::HostedCall | Kind::HostedResult => {
            let name = wire::name_of(content, "toolType").unwrap_or_default().to_ascii_lowercase();
            hosted(content, &name, kind == Kind::HostedResult, "")
        }
        Kind::Unknown => Body::Unknown,
    }
}

fn read_call(reader: &mut ItemReader<'_>, place: ItemPosition, call: Node<'_>) -> ToolCall {
    let wire_id = call.name_of("id").filter(|id| !id.is_empty());
    let name = call.name_of("name").unwrap_or_default();
    // Positions start at 0 in every reply, so calls without an id get an id derived from the reply
    // id.
    let generated_id = (reader.side == Direction::Response).then(|| reader.id_at(place).0);
    let id = reader.calls.open(wire_id.as_ref().or(generated_id.as_ref()), &name, place);
    let args = call.get("args").filter(|args| !args.is_null());
    let args = args.map_or_else(|| object! {}, Node::json);
    ToolCall { id, wire_id, name, args, custom: false }
}

fn read_function_response(reader: &mut ItemReader<'_>, answer: Node<'_>) -> ToolResult {
    let wire_id = answer.name_of("id").filter(|id| !id.is_empty());
    let name = answer.name_of("name");
    // Some clients set ids on responses but not on calls.
    let known_id = wire_id.as_deref().filter(|id| name.is_none() || reader.calls.has_id(id));
    let call = reader.calls.answer(known_id, name.as_deref());
    let (outcome, mut parts) = match answer.get("response") {
        Some(response) => tool_output(response),
        None => (Outcome::Ok, Vec::new()),
    };
    for part in answer.get("parts").into_iter().flat_map(Node::elements) {
        let media = match Kind::from_part(part) {
            (Kind::Inline, content) => inline(content),
            (Kind::File, content) => file(content, &reader.origin),
            _ => None,
        };
        parts.push(media.map_or_else(|| Part::Unknown(WIRE, part.json()), Part::Media));
    }
    ToolResult { call, wire_id, name, outcome, parts }
}

/// Reads a tool's output. The wire documents the members `output` and `error`, and clients also
/// send `result`. Any other object is the output itself.
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
    // Only Google can read uploaded files and storage buckets; all other URIs are public.
    let is_kept = uri.starts_with("gs://") || uri.contains("generativelanguage.googleapis.com/");
    let owner = is_kept.then(|| Arc::clone(origin));
    Some(Media::Remote { mime: wire::name_of(content, "mimeType"), uri, owner })
}
