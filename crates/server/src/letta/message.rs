//! The message types of Letta.
//!
//! One Item becomes one message, and each thought keeps its own signature: thoughts are never
//! joined. Only tool calls of one answer share a message, as in Letta.

use jiff::Timestamp;
use throughline_core::{
    Body, Item, Json, LettaReasoning, Media, Name, Outcome, Part, Role, ToolCall, ToolResult, json,
};

use crate::letta::item_reader::StoredItem;

/// Prefix of every message id.
pub(crate) const MESSAGE: &str = "message-";

/// A message in Letta's format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LettaMessage {
    /// The message type, for example `reasoning_message`.
    pub(crate) kind: &'static str,
    /// The members that only this type has.
    fields: Vec<(&'static str, Json)>,
    pub(crate) id: Name,
    pub(crate) date: Timestamp,
    /// The name of the speaker or tool.
    pub(crate) name: Option<Name>,
    pub(crate) otid: Option<Name>,
    pub(crate) run: Option<Name>,
    pub(crate) step: Option<Name>,
}

impl LettaMessage {
    fn new(kind: &'static str, id: &str, date: Timestamp) -> Self {
        Self {
            kind,
            fields: Vec::new(),
            id: Name::from(format!("{MESSAGE}{id}")),
            date,
            name: None,
            otid: None,
            run: run_of(id),
            step: None,
        }
    }

    fn with(mut self, name: &'static str, value: Json) -> Self {
        self.fields.push((name, value));
        self
    }

    /// The message as JSON, with its sequence number if it is part of a stream.
    pub(crate) fn json(&self, seq_id: Option<u64>) -> Json {
        json::object(|o| {
            if !matches!(self.kind, STOP_TYPE | USAGE | ERROR_TYPE) {
                o.string("id", &self.id).string("date", &format_date(self.date));
                o.maybe_string("name", self.name.as_deref());
            }
            o.string("message_type", self.kind);
            o.maybe_string("otid", self.otid.as_deref());
            o.maybe_string("step_id", self.step.as_deref());
            if let Some(seq_id) = seq_id {
                o.number("seq_id", seq_id);
            }
            o.maybe_string("run_id", self.run.as_deref());
            for (name, value) in &self.fields {
                o.raw(name, value);
            }
        })
    }
}

pub(crate) const STOP_TYPE: &str = "stop_reason";
pub(crate) const USAGE: &str = "usage_statistics";
pub(crate) const ERROR_TYPE: &str = "error_message";

/// The message for an Item. Tool calls return `None`: [`calls`] groups them.
pub(crate) fn from_item(seen: &StoredItem) -> Option<LettaMessage> {
    let StoredItem { item, at, .. } = seen;
    let letter = match &item.body {
        Body::Thought(_) => thought(item, *at)?,
        Body::Text(text) => match item.role {
            // Gemini signs the end of an answer in an empty text. That text is kept for replay
            // only.
            Role::Assistant if text.is_empty() => return None,
            Role::Assistant => text_of("assistant_message", item, *at, text),
            Role::User => text_of("user_message", item, *at, text),
            Role::System | Role::Developer => text_of("system_message", item, *at, text),
            Role::Tool => return None,
        },
        Body::Media(media) => {
            let content = json::array(|list| {
                list.raw(&image_json(media));
            });
            LettaMessage::new("user_message", &item.id.0, *at).with("content", content)
        }
        Body::Result(result) => returned(item, *at, result),
        Body::Hosted(hosted) if !hosted.visible.is_empty() => {
            text_of("assistant_message", item, *at, &hosted.visible)
        }
        Body::Summary { text, .. } => LettaMessage::new("summary_message", &item.id.0, *at)
            .with("summary", json::string(text)),
        Body::Call(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => return None,
    };
    Some(LettaMessage { step: step_of(item), ..letter })
}

fn text_of(kind: &'static str, item: &Item, at: Timestamp, text: &str) -> LettaMessage {
    LettaMessage::new(kind, &item.id.0, at).with("content", json::string(text))
}

/// A readable or hidden thought, as document 002 specifies.
fn thought(item: &Item, at: Timestamp) -> Option<LettaMessage> {
    let (kind, fields) = match LettaReasoning::from_item(item)? {
        LettaReasoning::Shown(message) => {
            let signature =
                message.signature.as_ref().map(|seal| json::string(seal.reveal_to_tenant()));
            let fields = [
                ("source", Some(json::string(message.source.as_str()))),
                ("reasoning", Some(json::string(&message.reasoning))),
                ("signature", signature),
            ];
            ("reasoning_message", fields)
        }
        LettaReasoning::Hidden(message) => {
            let hidden = message.hidden_reasoning.as_ref();
            let hidden = hidden.map(|seal| json::string(seal.reveal_to_tenant()));
            let fields = [
                ("state", Some(json::string(message.state.as_str()))),
                ("hidden_reasoning", hidden),
                ("", None),
            ];
            ("hidden_reasoning_message", fields)
        }
    };
    let mut letter = LettaMessage::new(kind, &item.id.0, at);
    for (name, value) in fields {
        letter.fields.extend(value.map(|value| (name, value)));
    }
    Some(letter)
}

/// The rest of a thought whose text was streamed: the signature with empty text.
pub(crate) fn signature_message(seen: &StoredItem) -> Option<LettaMessage> {
    let whole = from_item(seen)?;
    let has_signature = whole.fields.iter().any(|(name, _)| *name == "signature");
    if whole.kind != "reasoning_message" {
        return Some(whole);
    }
    let mut letter = LettaMessage { fields: Vec::new(), ..whole.clone() };
    for (name, value) in whole.fields {
        let value = if name == "reasoning" { json::string("") } else { value };
        letter.fields.push((name, value));
    }
    has_signature.then_some(letter)
}

/// A partial message: a delta of a thought or a text.
pub(crate) fn piece(is_thought: bool, id: &str, at: Timestamp, text: &str) -> LettaMessage {
    if is_thought {
        LettaMessage::new("reasoning_message", id, at)
            .with("source", json::string("reasoner_model"))
            .with("reasoning", json::string(text))
    } else {
        LettaMessage::new("assistant_message", id, at).with("content", json::string(text))
    }
}

/// The tool calls of one answer, as plain calls or as an approval request.
pub(crate) fn calls(calls: &[(&StoredItem, &ToolCall)], asks: bool) -> Option<LettaMessage> {
    let (first, _) = calls.first()?;
    let kind = if asks { "approval_request_message" } else { "tool_call_message" };
    let list: Vec<Json> = calls.iter().map(|(_, call)| tool_call(call)).collect();
    let letter = LettaMessage::new(kind, &first.item.id.0, first.at)
        .with("tool_call", list.first().cloned()?)
        .with("tool_calls", json::array_of(&list));
    Some(LettaMessage { step: step_of(&first.item), ..letter })
}

fn tool_call(call: &ToolCall) -> Json {
    json::object(|o| {
        o.string("name", &call.name).string("arguments", call.args.as_str());
        o.string("tool_call_id", &call.id.0);
    })
}

fn returned(item: &Item, at: Timestamp, result: &ToolResult) -> LettaMessage {
    let status = json::string(if result.outcome == Outcome::Ok { "success" } else { "error" });
    let text = json::string(&said(result));
    let entry = json::object(|o| {
        o.string("type", "tool").string("tool_call_id", &result.call.0);
        o.raw("status", &status).raw("tool_return", &text);
    });
    let letter = LettaMessage::new("tool_return_message", &item.id.0, at)
        .with("tool_return", text)
        .with("status", status)
        .with("tool_call_id", json::string(&result.call.0))
        .with("tool_returns", json::array_of(&[entry]));
    LettaMessage { name: result.name.clone(), ..letter }
}

fn said(result: &ToolResult) -> String {
    let texts = result.parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Value(value) | Part::Unknown(_, value) => value.as_str().to_owned(),
        Part::Media(_) => "[media]".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn image_json(media: &Media) -> Json {
    json::object(|o| {
        o.string("type", "image").object("source", |o| match media {
            Media::Inline { mime, base64 } => {
                o.string("type", "base64").string("media_type", mime);
                o.string("data", &String::from_utf8_lossy(base64));
            }
            Media::Remote { uri, .. } => {
                o.string("type", "url").string("url", uri);
            }
        });
    })
}

/// A decision about a tool call.
pub(crate) struct ApprovalDecision<'a> {
    pub(crate) approval: &'a str,
    pub(crate) call: &'a str,
    pub(crate) approve: bool,
    pub(crate) reason: Option<&'a str>,
}

/// The message that records a decision.
pub(crate) fn approval_response(decided: &ApprovalDecision<'_>, at: Timestamp) -> LettaMessage {
    let entry = json::object(|o| {
        o.string("type", "approval").string("tool_call_id", decided.call);
        o.bool("approve", decided.approve).maybe_string("reason", decided.reason);
    });
    let mut letter = LettaMessage::new("approval_response_message", decided.approval, at)
        .with("approvals", json::array_of(&[entry]))
        .with("approve", bool_json(decided.approve));
    letter.fields.extend(decided.reason.map(|reason| ("reason", json::string(reason))));
    letter
}

/// The frame with the stop reason of a run.
pub(crate) fn stopped(run: &str, at: Timestamp, reason: &'static str) -> LettaMessage {
    let letter = LettaMessage::new(STOP_TYPE, run, at).with("stop_reason", json::string(reason));
    LettaMessage { run: Some(Name::from(run)), ..letter }
}

/// The frame with the error of a failed run.
pub(crate) fn failed(run: &str, at: Timestamp, kind: &str, message: &str) -> LettaMessage {
    let letter = LettaMessage::new(ERROR_TYPE, run, at)
        .with("error_type", json::string(kind))
        .with("message", json::string(message));
    LettaMessage { run: Some(Name::from(run)), ..letter }
}

/// The frame with the usage of a run.
pub(crate) fn used(run: &str, at: Timestamp, usage: &Json) -> LettaMessage {
    let tree = usage.tree();
    let mut letter = LettaMessage::new(USAGE, run, at);
    letter.run = Some(Name::from(run));
    for (name, value) in tree.root().members() {
        let known = USED.iter().find(|known| name.is(known));
        letter.fields.extend(known.map(|known| (*known, value.json())));
    }
    letter
}

/// The members of a usage frame.
const USED: [&str; 7] = [
    "completion_tokens",
    "prompt_tokens",
    "total_tokens",
    "step_count",
    "run_ids",
    "cached_input_tokens",
    "reasoning_tokens",
];

/// A ping frame, which keeps an idle stream open.
pub(crate) fn ping_frame(run: &str, at: Timestamp) -> Json {
    let letter = LettaMessage::new("ping", &format!("ping-{run}"), at);
    LettaMessage { run: Some(Name::from(run)), ..letter }.json(None)
}

fn bool_json(value: bool) -> Json {
    Json::from(&serde_json::Value::Bool(value))
}

/// A date in Letta's format: UTC, precise to the second.
pub(crate) fn format_date(at: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at).to_string();
    seconds.strip_suffix('Z').map_or_else(|| seconds.clone(), |bare| format!("{bare}+00:00"))
}

/// The run that produced an Item, taken from the prefix of its id.
pub(crate) fn run_of(id: &str) -> Option<Name> {
    id.rsplit_once('.').map(|(run, _)| Name::from(run))
}

/// The step of an Item: a model's answer together with the results of its calls.
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
