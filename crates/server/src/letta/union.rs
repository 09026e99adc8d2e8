//! Letta's messages, one by one.
//!
//! One Item is one message, and a thought keeps its own signature: thoughts are never joined. Only calls of tools that were made
//! together are one message, as in Letta.

use jiff::Timestamp;
use throughline_core::{
    Body, Item, Json, LettaReasoning, Media, Name, Outcome, Part, Role, ToolCall, ToolResult, json,
};

use crate::letta::reader::Seen;

/// What a message's own id begins with.
pub(crate) const MESSAGE: &str = "message-";

/// A message of Letta's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Letter {
    /// Its type, as `reasoning_message`.
    pub(crate) kind: &'static str,
    /// Everything but what every message has.
    fields: Vec<(&'static str, Json)>,
    pub(crate) id: Name,
    pub(crate) date: Timestamp,
    /// Who speaks, and under which name the caller knows it.
    pub(crate) name: Option<Name>,
    pub(crate) otid: Option<Name>,
    pub(crate) run: Option<Name>,
    pub(crate) step: Option<Name>,
}

impl Letter {
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

    /// The document, with its number in a stream where it has one.
    pub(crate) fn json(&self, seq_id: Option<u64>) -> Json {
        json::object(|o| {
            if !matches!(self.kind, STOP | USAGE | ERROR) {
                o.string("id", &self.id).string("date", &date(self.date));
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

pub(crate) const STOP: &str = "stop_reason";
pub(crate) const USAGE: &str = "usage_statistics";
pub(crate) const ERROR: &str = "error_message";

/// The messages that an Item is, but for calls, which are looked at together. `step` is the message that they belong to.
pub(crate) fn of_item(seen: &Seen) -> Option<Letter> {
    let Seen { item, at, .. } = seen;
    let letter = match &item.body {
        Body::Thought(_) => thought(item, *at)?,
        Body::Text(text) => match item.role {
            // Gemini signs the end of an answer in a text without words. It is kept for replay only.
            Role::Assistant if text.is_empty() => return None,
            Role::Assistant => text_of("assistant_message", item, *at, text),
            Role::User => text_of("user_message", item, *at, text),
            Role::System | Role::Developer => text_of("system_message", item, *at, text),
            Role::Tool => return None,
        },
        Body::Media(media) => {
            let content = json::array(|list| {
                list.raw(&image(media));
            });
            Letter::new("user_message", &item.id.0, *at).with("content", content)
        }
        Body::Result(result) => returned(item, *at, result),
        Body::Hosted(hosted) if !hosted.visible.is_empty() => {
            text_of("assistant_message", item, *at, &hosted.visible)
        }
        Body::Summary { text, .. } => {
            Letter::new("summary_message", &item.id.0, *at).with("summary", json::string(text))
        }
        Body::Call(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => return None,
    };
    Some(Letter { step: step_of(item), ..letter })
}

fn text_of(kind: &'static str, item: &Item, at: Timestamp, text: &str) -> Letter {
    Letter::new(kind, &item.id.0, at).with("content", json::string(text))
}

/// A thought, shown or hidden, as document 002 has it.
fn thought(item: &Item, at: Timestamp) -> Option<Letter> {
    let (kind, fields) = match LettaReasoning::of(item)? {
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
    let mut letter = Letter::new(kind, &item.id.0, at);
    for (name, value) in fields {
        letter.fields.extend(value.map(|value| (name, value)));
    }
    Some(letter)
}

/// What is left to say of a thought whose words were told piece by piece: its signature.
pub(crate) fn signature_of(seen: &Seen) -> Option<Letter> {
    let whole = of_item(seen)?;
    let has_signature = whole.fields.iter().any(|(name, _)| *name == "signature");
    if whole.kind != "reasoning_message" {
        return Some(whole);
    }
    let mut letter = Letter { fields: Vec::new(), ..whole.clone() };
    for (name, value) in whole.fields {
        let value = if name == "reasoning" { json::string("") } else { value };
        letter.fields.push((name, value));
    }
    has_signature.then_some(letter)
}

/// A piece of a thought or a text.
pub(crate) fn piece(is_thought: bool, id: &str, at: Timestamp, text: &str) -> Letter {
    if is_thought {
        Letter::new("reasoning_message", id, at)
            .with("source", json::string("reasoner_model"))
            .with("reasoning", json::string(text))
    } else {
        Letter::new("assistant_message", id, at).with("content", json::string(text))
    }
}

/// Calls of one message: as they are, or as a request that somebody decides on or runs them.
pub(crate) fn calls(calls: &[(&Seen, &ToolCall)], asks: bool) -> Option<Letter> {
    let (first, _) = calls.first()?;
    let kind = if asks { "approval_request_message" } else { "tool_call_message" };
    let list: Vec<Json> = calls.iter().map(|(_, call)| tool_call(call)).collect();
    let letter = Letter::new(kind, &first.item.id.0, first.at)
        .with("tool_call", list.first().cloned()?)
        .with("tool_calls", json::array_of(&list));
    Some(Letter { step: step_of(&first.item), ..letter })
}

fn tool_call(call: &ToolCall) -> Json {
    json::object(|o| {
        o.string("name", &call.name).string("arguments", call.args.as_str());
        o.string("tool_call_id", &call.id.0);
    })
}

fn returned(item: &Item, at: Timestamp, result: &ToolResult) -> Letter {
    let status = json::string(if result.outcome == Outcome::Ok { "success" } else { "error" });
    let text = json::string(&said(result));
    let entry = json::object(|o| {
        o.string("type", "tool").string("tool_call_id", &result.call.0);
        o.raw("status", &status).raw("tool_return", &text);
    });
    let letter = Letter::new("tool_return_message", &item.id.0, at)
        .with("tool_return", text)
        .with("status", status)
        .with("tool_call_id", json::string(&result.call.0))
        .with("tool_returns", json::array_of(&[entry]));
    Letter { name: result.name.clone(), ..letter }
}

fn said(result: &ToolResult) -> String {
    let texts = result.parts.iter().map(|part| match part {
        Part::Text(text) => text.to_string(),
        Part::Value(value) | Part::Unknown(_, value) => value.as_str().to_owned(),
        Part::Media(_) => "[media]".to_owned(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn image(media: &Media) -> Json {
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

/// What somebody decided about a call.
pub(crate) struct Decided<'a> {
    pub(crate) approval: &'a str,
    pub(crate) call: &'a str,
    pub(crate) approve: bool,
    pub(crate) reason: Option<&'a str>,
}

/// The message in which somebody decided.
pub(crate) fn decided(decided: &Decided<'_>, at: Timestamp) -> Letter {
    let entry = json::object(|o| {
        o.string("type", "approval").string("tool_call_id", decided.call);
        o.bool("approve", decided.approve).maybe_string("reason", decided.reason);
    });
    let mut letter = Letter::new("approval_response_message", decided.approval, at)
        .with("approvals", json::array_of(&[entry]))
        .with("approve", bool_json(decided.approve));
    letter.fields.extend(decided.reason.map(|reason| ("reason", json::string(reason))));
    letter
}

/// Why a run stopped.
pub(crate) fn stopped(run: &str, at: Timestamp, reason: &'static str) -> Letter {
    let letter = Letter::new(STOP, run, at).with("stop_reason", json::string(reason));
    Letter { run: Some(Name::from(run)), ..letter }
}

/// What went wrong.
pub(crate) fn failed(run: &str, at: Timestamp, kind: &str, message: &str) -> Letter {
    let letter = Letter::new(ERROR, run, at)
        .with("error_type", json::string(kind))
        .with("message", json::string(message));
    Letter { run: Some(Name::from(run)), ..letter }
}

/// What a run used.
pub(crate) fn used(run: &str, at: Timestamp, usage: &Json) -> Letter {
    let tree = usage.tree();
    let mut letter = Letter::new(USAGE, run, at);
    letter.run = Some(Name::from(run));
    for (name, value) in tree.root().members() {
        let known = USED.iter().find(|known| name.is(known));
        letter.fields.extend(known.map(|known| (*known, value.json())));
    }
    letter
}

/// The members of what a run used.
const USED: [&str; 7] = [
    "completion_tokens",
    "prompt_tokens",
    "total_tokens",
    "step_count",
    "run_ids",
    "cached_input_tokens",
    "reasoning_tokens",
];

/// A sign of life.
pub(crate) fn ping(run: &str, at: Timestamp) -> Json {
    let letter = Letter::new("ping", &format!("ping-{run}"), at);
    Letter { run: Some(Name::from(run)), ..letter }.json(None)
}

fn bool_json(value: bool) -> Json {
    Json::from(&serde_json::Value::Bool(value))
}

/// A date as Letta writes it: to the second, in UTC.
pub(crate) fn date(at: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at).to_string();
    seconds.strip_suffix('Z').map_or_else(|| seconds.clone(), |bare| format!("{bare}+00:00"))
}

/// The run that made an Item: its id begins with it.
pub(crate) fn run_of(id: &str) -> Option<Name> {
    id.rsplit_once('.').map(|(run, _)| Name::from(run))
}

/// The step that an Item belongs to: a model's answer, and what came of its calls.
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
