//! Letta's message types.
//!
//! One Item becomes one message, and each Thought keeps its own signature: Thoughts are never
//! joined. Only the tool calls of one model reply share a message, as in Letta.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json as json_value};
use throughline_core::{
    Body, Identifier, Identity, Item, Media, Outcome, Part, ReasoningSource, Role, Thought,
    ThoughtRecord, ToolCall, ToolResult,
};
use throughline_json::{self as json, Json, Name};
use throughline_spec::{
    LettaReasoning, ReflectionEvent, ToolApprovalEvent, ToolApprovalEventStatus,
};

use crate::api::{AnyValue, RunNote, schema_ref};
use crate::letta::item_reader::StoredItem;
use crate::object::{object, put_members, to_json};

/// Status of a failed tool call.
const ERROR: &str = "error";

/// Prefix of every message id.
pub(crate) const MESSAGE: &str = "message-";

/// A message in Letta's format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LettaMessage {
    pub(crate) head: MessageHead,
    pub(crate) place: MessagePlace,
    pub(crate) content: Box<MessageContent>,
}

/// The members that identify a message. The last frames of a stream lack them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MessageHead {
    pub(crate) id: Name,
    date: String,
    /// The name of the sender: the user, the agent or the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Name>,
}

/// The place of a message in its run and in a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MessagePlace {
    /// The client's id for a message that it sent; otherwise derived from the message's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otid: Option<Name>,
    /// The id of the agent that wrote the message, or the id that the client sent with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_id: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step_id: Option<Name>,
    /// Whether the message reports a failure, such as the result of a failed tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_err: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<Name>,
}

/// The type of a message and the members that only this type has. Signatures are [`Json`], so that
/// debug output does not show them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "message_type", rename_all = "snake_case")]
pub(crate) enum MessageContent {
    UserMessage {
        #[schemars(with = "AnyValue")]
        content: Json,
    },
    SystemMessage {
        content: Name,
    },
    AssistantMessage {
        content: Name,
    },
    ReasoningMessage {
        source: &'static str,
        reasoning: Name,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        signature: Option<Json>,
    },
    HiddenReasoningMessage {
        state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        hidden_reasoning: Option<Json>,
    },
    ToolCallMessage(ToolCalls),
    ApprovalRequestMessage(ToolCalls),
    ApprovalResponseMessage {
        approvals: [ApprovalEntry; 1],
        approve: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Name>,
    },
    ToolReturnMessage {
        tool_return: Name,
        status: &'static str,
        tool_call_id: Name,
        tool_returns: [ReturnEntry; 1],
    },
    SummaryMessage {
        summary: Name,
    },
    Ping,
    ErrorMessage {
        error_type: Name,
        message: Name,
    },
    StopReason {
        stop_reason: &'static str,
    },
    UsageStatistics(UsageTotals),
}

/// The tool calls of one answer. The first one also has a member of its own, as in Letta.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ToolCalls {
    tool_call: CalledTool,
    tool_calls: Vec<CalledTool>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ToolCall")]
struct CalledTool {
    name: Name,
    /// The arguments, as JSON in a string.
    arguments: Name,
    tool_call_id: Name,
}

/// A decision about a tool call, as an entry of its message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "approval")]
#[schemars(inline)]
pub(crate) struct ApprovalEntry {
    tool_call_id: Name,
    approve: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Name>,
}

/// A tool result, as an entry of its message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "tool")]
#[schemars(inline)]
pub(crate) struct ReturnEntry {
    tool_call_id: Name,
    status: &'static str,
    tool_return: Name,
}

/// The usage of a run so far.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct UsageTotals {
    pub(crate) completion_tokens: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) total_tokens: u64,
    pub(crate) step_count: u64,
    pub(crate) run_ids: [Name; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_tokens: Option<u64>,
}

impl LettaMessage {
    fn new(content: MessageContent, id: &str, date: Timestamp) -> Self {
        let head = MessageHead {
            id: Name::from(format!("{MESSAGE}{id}")),
            date: format_date(date),
            name: None,
        };
        let is_err = Some(content.is_error()).filter(|_| !content.is_frame());
        let place = MessagePlace { run_id: run_of(id), is_err, ..MessagePlace::default() };
        Self { head, place, content: Box::new(content) }
    }

    /// Sets the agent that wrote the message.
    pub(crate) fn sent_by(mut self, sender: &Identity) -> Self {
        self.head.name = Some(Name::from(&*sender.representation));
        self.place.sender_id = match &sender.identifier {
            Identifier::Text(text) => Some(Name::from(&**text)),
            Identifier::Number(number) => Some(Name::from(number.as_str())),
        };
        self
    }

    /// Sets the members that the client sent with a user message.
    pub(crate) fn sent_with(mut self, note: &RunNote, part: usize) -> Self {
        let member = |list: &[Option<Name>]| list.get(part).cloned().flatten();
        self.place.otid = member(&note.otids);
        self.head.name = member(&note.names);
        self.place.sender_id = member(&note.senders);
        self
    }

    /// Creates a message about a run as a whole.
    pub(crate) fn of_run(content: MessageContent, run: &str, date: Timestamp) -> Self {
        let mut letter = Self::new(content, run, date);
        letter.place.run_id = Some(Name::from(run));
        letter
    }

    /// Returns the message as JSON, including its sequence number if it is part of a stream.
    pub(crate) fn json(&self, seq_id: Option<u64>) -> Json {
        let head = to_json(&self.head).tree();
        let mut place = MessagePlace { seq_id, ..self.place.clone() };
        if !self.content.is_frame() {
            place.otid.get_or_insert_with(|| derive_otid(&self.head.id));
        }
        let place = to_json(&place).tree();
        let content = to_json(&self.content).tree();
        let head = head.root().members().filter(|_| !self.content.is_frame());
        // The first member of the content is the type, which precedes the members of the position.
        let (kind, own) = (content.root().members().take(1), content.root().members().skip(1));
        json::object(|o| put_members(o, head.chain(kind).chain(place.root().members()).chain(own)))
    }
}

impl MessageContent {
    /// Returns whether the message has one of these types; an empty list matches all types.
    pub(crate) fn is_one_of(&self, types: &[Name]) -> bool {
        let content = (!types.is_empty()).then(|| to_json(self).tree());
        let kind = content.as_ref().and_then(|content| content.root().name_of("message_type"));
        kind.is_none_or(|kind| types.contains(&kind))
    }

    fn is_error(&self) -> bool {
        matches!(self, Self::ToolReturnMessage { status, .. } if *status == ERROR)
    }

    /// Returns whether this is one of the frames that end a stream.
    pub(crate) fn is_frame(&self) -> bool {
        matches!(
            self,
            Self::ErrorMessage { .. } | Self::StopReason { .. } | Self::UsageStatistics(_)
        )
    }
}

/// Each message type has a schema under its own name.
impl JsonSchema for LettaMessage {
    fn schema_name() -> Cow<'static, str> {
        "Message".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        const FRAMES: [&str; 3] = ["error_message", "stop_reason", "usage_statistics"];
        let place = generator.subschema_for::<MessagePlace>();
        let shared = [generator.subschema_for::<MessageHead>(), place.clone()];
        let mut content = MessageContent::json_schema(generator);
        let mut all = Vec::new();
        let types = content.get_mut("oneOf").and_then(Value::as_array_mut);
        for mut schema in types.map(std::mem::take).unwrap_or_default() {
            let kind = schema.pointer("/properties/message_type/const");
            let kind = kind.and_then(Value::as_str).unwrap_or_default().to_owned();
            let is_frame = FRAMES.contains(&&*kind);
            let shared = if is_frame { json_value!([place]) } else { json_value!(shared) };
            schema.as_object_mut().map(|schema| schema.insert("allOf".to_owned(), shared));
            all.push(schema_ref(&kind));
            generator.definitions_mut().insert(kind, schema);
        }
        json_schema!({ "oneOf": all, "discriminator": { "propertyName": "message_type" } })
    }
}

/// Converts an Item to a message. Returns `None` for tool calls, which [`call_messages`] groups.
pub(crate) fn from_item(stored: &StoredItem) -> Option<LettaMessage> {
    let StoredItem { item, at, .. } = stored;
    let content = match &item.body {
        Body::Thought(_) => thought(item)?,
        Body::Text(text) => match item.role {
            // Gemini signs the end of an answer in an empty text. That text is kept for replay
            // only.
            Role::Assistant if text.is_empty() => return None,
            Role::Assistant => MessageContent::AssistantMessage { content: text.clone() },
            Role::User => MessageContent::UserMessage { content: json::string(text) },
            Role::System | Role::Developer => {
                MessageContent::SystemMessage { content: text.clone() }
            }
            Role::Tool => return None,
        },
        Body::Media(media) => MessageContent::UserMessage { content: images(media) },
        Body::Result(result) => returned(result),
        Body::Hosted(hosted) if !hosted.visible.is_empty() => {
            MessageContent::AssistantMessage { content: Name::from(&*hosted.visible) }
        }
        Body::Summary { text, .. } => {
            MessageContent::SummaryMessage { summary: Name::from(&**text) }
        }
        Body::Call(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => return None,
    };
    let mut letter = LettaMessage::new(content, &item.id.0, *at);
    if let Some(sender) = sender(item) {
        letter = letter.sent_by(sender);
    }
    letter.place.step_id = step_of(item);
    match &item.body {
        Body::Result(result) => letter.head.name.clone_from(&result.name),
        // A Thought that was imported keeps the members of its own message.
        Body::Thought(Thought { record: Some(record), .. }) => {
            let ThoughtRecord { name, sender_id, otid, is_err, .. } = &**record;
            letter.head.name = name.clone().or(letter.head.name);
            letter.place.sender_id = sender_id.clone().or(letter.place.sender_id);
            letter.place.otid.clone_from(otid);
            letter.place.is_err = is_err.or(letter.place.is_err);
        }
        _ => {}
    }
    Some(letter)
}

/// Returns the agent that wrote an Item; `None` if no agent wrote it.
fn sender(item: &Item) -> Option<&Identity> {
    match &item.body {
        Body::Thought(thought) => Some(&thought.identity),
        _ => item.author.as_deref().filter(|_| item.role == Role::Assistant),
    }
}

/// Creates the message for a reflection, which is reasoning that a prompt requested.
pub(crate) fn reflection(event: &ReflectionEvent, at: Timestamp) -> LettaMessage {
    let source = ReasoningSource::NonReasonerModel.as_str();
    let (reasoning, signature) = (event.text.clone(), None);
    LettaMessage::new(
        MessageContent::ReasoningMessage { source, reasoning, signature },
        &event.id,
        at,
    )
}

/// Converts a Thought to a readable or hidden reasoning message, as specification document 002
/// defines.
fn thought(item: &Item) -> Option<MessageContent> {
    Some(match LettaReasoning::from_item(item)? {
        LettaReasoning::Shown(message) => MessageContent::ReasoningMessage {
            source: message.source.as_str(),
            reasoning: Name::from(&*message.reasoning),
            signature: message.signature.map(|seal| json::string(seal.reveal_to_tenant())),
        },
        LettaReasoning::Hidden(message) => MessageContent::HiddenReasoningMessage {
            state: message.state.as_str(),
            hidden_reasoning: message
                .hidden_reasoning
                .map(|seal| json::string(seal.reveal_to_tenant())),
        },
    })
}

/// Returns a message with empty text and only the signature, for a Thought whose text was already
/// streamed.
pub(crate) fn signature_message(stored: &StoredItem) -> Option<LettaMessage> {
    let mut letter = from_item(stored)?;
    if let MessageContent::ReasoningMessage { reasoning, signature, .. } = &mut *letter.content {
        *reasoning = Name::default();
        signature.as_ref()?;
    }
    Some(letter)
}

/// Creates a partial message that contains a delta of a Thought with this source, or of a text.
pub(crate) fn piece(
    thought: Option<ReasoningSource>,
    id: &str,
    at: Timestamp,
    text: &str,
) -> LettaMessage {
    let text = Name::from(text);
    let content = match thought {
        Some(source) => MessageContent::ReasoningMessage {
            source: source.as_str(),
            reasoning: text,
            signature: None,
        },
        None => MessageContent::AssistantMessage { content: text },
    };
    LettaMessage::new(content, id, at)
}

/// Returns the messages for the tool calls of one model reply: the calls that run immediately, then
/// a message that requests decisions on the other calls.
pub(crate) fn call_messages<'i>(
    items: &(impl Iterator<Item = &'i StoredItem> + Clone),
    needs_decision: impl Fn(&ToolCall) -> bool,
) -> Vec<LettaMessage> {
    let message = |asks: bool| {
        let calls = items.clone().filter_map(|stored| Some((stored, stored.item.call()?)));
        let calls = calls.filter(|(_, call)| needs_decision(call) == asks);
        let (first, _) = calls.clone().next()?;
        let called_tool = |(_, call): (&StoredItem, &ToolCall)| CalledTool {
            name: call.name.clone(),
            arguments: Name::from(call.args.as_str()),
            tool_call_id: call.id.0.clone(),
        };
        let tool_calls: Vec<CalledTool> = calls.map(called_tool).collect();
        let calls = ToolCalls { tool_call: tool_calls.first().cloned()?, tool_calls };
        let content = if asks {
            MessageContent::ApprovalRequestMessage(calls)
        } else {
            MessageContent::ToolCallMessage(calls)
        };
        let mut letter = LettaMessage::new(content, &first.item.id.0, first.at);
        if let Some(sender) = sender(&first.item) {
            letter = letter.sent_by(sender);
        }
        letter.place.step_id = step_of(&first.item);
        Some(letter)
    };
    [message(false), message(true)].into_iter().flatten().collect()
}

/// Returns the text of a tool result, with one line per part.
pub(crate) fn result_text(result: &ToolResult) -> String {
    let texts = result.parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Value(value) | Part::Unknown(_, value) => value.as_str().to_owned(),
        Part::Media(_) => "[media]".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn returned(result: &ToolResult) -> MessageContent {
    let status = if result.outcome == Outcome::Ok { "success" } else { ERROR };
    let tool_return = Name::from(result_text(result));
    let tool_call_id = result.call.0.clone();
    MessageContent::ToolReturnMessage {
        tool_return: tool_return.clone(),
        status,
        tool_call_id: tool_call_id.clone(),
        tool_returns: [ReturnEntry { tool_call_id, status, tool_return }],
    }
}

/// Returns the content of a message with one image.
fn images(media: &Media) -> Json {
    let source = match media {
        Media::Inline { mime, base64 } => object! {
            "type": "base64", "media_type": mime, "data": String::from_utf8_lossy(base64),
        },
        Media::Remote { uri, .. } => object! { "type": "url", "url": uri },
    };
    to_json(&[object! { "type": "image", "source": source }])
}

/// Returns the message that records a decision about a tool call; `None` while the decision is
/// pending.
pub(crate) fn approval_response(event: &ToolApprovalEvent, at: Timestamp) -> Option<LettaMessage> {
    let approve = match event.status {
        ToolApprovalEventStatus::Pending => return None,
        ToolApprovalEventStatus::Approved => true,
        ToolApprovalEventStatus::Rejected => false,
    };
    let tool_call_id = event.tool_call_id.clone().unwrap_or_default();
    let reason = event.comment.clone();
    let content = MessageContent::ApprovalResponseMessage {
        approvals: [ApprovalEntry { tool_call_id, approve, reason: reason.clone() }],
        approve,
        reason,
    };
    let mut letter = LettaMessage::new(content, &event.id, at);
    letter.head.name.clone_from(&event.decided_by);
    Some(letter)
}

/// Creates a ping frame, which keeps an idle stream open.
pub(crate) fn ping_frame(run: &str, at: Timestamp) -> Json {
    let mut letter = LettaMessage::of_run(MessageContent::Ping, run, at);
    letter.head.id = Name::from(format!("{MESSAGE}ping-{run}"));
    letter.json(None)
}

/// Derives the otid of a message that no client sent. Equal ids have equal otids, in every process,
/// so all pieces of a streamed message have the same otid.
fn derive_otid(id: &str) -> Name {
    let digest = blake3::derive_key("throughline letta otid", id.as_bytes());
    let digest = blake3::Hash::from(digest).to_hex();
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default();
    let parts = [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)];
    Name::from(parts.join("-"))
}

/// Formats a date as Letta does: UTC, precise to the second.
pub(crate) fn format_date(at: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at).to_string();
    seconds.strip_suffix('Z').map_or_else(|| seconds.clone(), |bare| format!("{bare}+00:00"))
}

/// Returns the id of the run that produced an Item. The run's id is the prefix of the Item's id.
pub(crate) fn run_of(id: &str) -> Option<Name> {
    id.rsplit_once('.').map(|(run, _)| Name::from(run))
}

/// Returns the step that an Item belongs to. A step is a model reply with the results of its tool
/// calls.
pub(crate) fn step_of(item: &Item) -> Option<Name> {
    let run = run_of(&item.id.0)?;
    let message = match (&item.body, item.role) {
        (Body::Result(_), _) => item.place.message.checked_sub(1)?,
        (_, Role::Assistant) => item.place.message,
        _ => return None,
    };
    Some(step_id(&run, message))
}

pub(crate) fn step_id(run: &str, message: u32) -> Name {
    Name::from(format!("step-{run}-{message}"))
}
