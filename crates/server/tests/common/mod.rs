//! What the tests of replay share: targets, a store of their own, and one conversation after another with it.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

pub(crate) mod said;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use throughline_codec::{Asked, Catalog, Codec, Framing, StreamDecoder, codec};
use throughline_core::{
    Body, Call, Encoded, Event, Item, Name, NodeId, Provider, Reply, Request, Target, Tenant, Wire,
};
use throughline_server::{Claims, Replay, Restored, Turn};
use throughline_store::{Durability, Journal, Options, open};
use throughline_testkit::{Exchange, Folder, Recording};

pub(crate) const KEY: [u8; 32] = [7; 32];

/// The codec of a wire by its name.
pub(crate) fn codec_of(wire: &str) -> &'static dyn Codec {
    codec(&Wire::new(wire.to_owned())).unwrap_or_else(|| panic!("no codec for {wire}"))
}

/// The provider's own row on that wire, or the generic one.
pub(crate) fn target(provider: &str, wire: &str, model: &str) -> Target {
    let catalog = Catalog::builtin();
    let wire = Wire::new(wire.to_owned());
    let row = catalog.provider_on(provider, &wire).unwrap_or_else(|| {
        let is_chat = wire == Wire::OPENAI_CHAT;
        let generic = if is_chat { catalog.provider("compatible") } else { None };
        let generic = generic.or_else(|| catalog.default_provider(&wire)).unwrap();
        Arc::new(Provider { name: Name::from(provider), ..Provider::clone(&generic) })
    });
    catalog.target(&row, model, "test")
}

/// One target of every wire, each at a provider and model of its own.
pub(crate) fn targets() -> Vec<(&'static dyn Codec, Target)> {
    let rows = [
        ("anthropic", "anthropic-messages", "claude-sonnet-4-5"),
        ("openai", "openai-responses", "gpt-5.2"),
        ("openrouter", "openai-chat", "anthropic/claude-sonnet-4.5"),
        ("gemini", "gemini", "gemini-3-pro-preview"),
        ("bedrock", "bedrock-converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ];
    rows.iter().map(|(name, wire, model)| (codec_of(wire), target(name, wire, model))).collect()
}

pub(crate) fn request(path: &str, body: impl Into<Bytes>) -> Request {
    Request { path: Name::from(path), headers: Vec::new(), body: body.into() }
}

/// A request in a wire's own words, read for that target.
pub(crate) fn call_of(codec: &dyn Codec, target: &Target, body: &Value) -> Call {
    let request = request(&codec.path(target, false), body.to_string());
    codec.decode_request(&request, &Asked::of(target.clone())).unwrap()
}

/// A whole answer in a wire's own words.
pub(crate) fn reply_of(codec: &dyn Codec, target: &Target, body: &Value) -> Reply {
    codec.decode_reply(&Bytes::from(body.to_string()), &Asked::of(target.clone())).unwrap()
}

/// The recorded answer of an exchange.
pub(crate) fn recorded_reply(exchange: &Exchange, asked: &Asked) -> Reply {
    let codec = codec_of(&exchange.wire);
    if !exchange.stream {
        return codec.decode_reply(&Bytes::from(exchange.response.clone()), asked).unwrap();
    }
    let framing = exchange.content_type.as_deref().and_then(Framing::of_content_type);
    let mut decoder = StreamDecoder::framed(codec, asked, framing.unwrap_or(codec.framing()));
    let mut events = decoder.push(&exchange.response).unwrap();
    events.extend(decoder.finish().unwrap());
    let ended = events.into_iter().find_map(|event| match event {
        Event::Ended(reply) => Some(*reply),
        _ => None,
    });
    ended.expect("a stream ends in a reply")
}

/// A gateway's heart on a store of its own.
pub(crate) struct House {
    pub(crate) replay: Replay,
    pub(crate) journal: Journal,
    url: String,
    folder: Folder,
}

impl House {
    pub(crate) async fn new() -> Self {
        let folder = Folder::new("server");
        let options = Options { durability: Durability::Relaxed, ..Options::default() };
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = open(&url, &options).await.unwrap();
        let replay = Replay::new(Arc::new(journal.clone()), Claims::new(KEY));
        Self { replay, journal, url, folder }
    }

    /// The same store, as another process opens it.
    pub(crate) async fn another(&self) -> Journal {
        open(&self.url, &Options::default()).await.unwrap()
    }

    /// The same store, with nothing remembered.
    pub(crate) fn forgetful(&self) -> Replay {
        Replay::new(Arc::new(self.journal.clone()), Claims::new(KEY))
    }

    pub(crate) async fn capture(
        &self,
        tenant: &Tenant,
        restored: &Restored,
        reply: &Reply,
        encoded: &Encoded,
    ) -> Option<NodeId> {
        let node = Claims::fresh_node().unwrap();
        self.capture_as(node, tenant, restored, reply, encoded).await
    }

    pub(crate) async fn capture_as(
        &self,
        node: NodeId,
        tenant: &Tenant,
        restored: &Restored,
        reply: &Reply,
        encoded: &Encoded,
    ) -> Option<NodeId> {
        let conversation = &restored.conversation;
        let turn = Turn {
            node,
            conversation,
            reply,
            prefix: encoded.prefix,
            ids: &[],
            story: None,
            response: None,
        };
        self.replay.capture(tenant, &turn).await.unwrap()
    }
}

/// The opaque values of these Items, each with what it stands on.
pub(crate) fn sealed(items: &[Item]) -> Vec<(Bytes, String)> {
    let seals = items.iter().flat_map(|item| item.seals.iter().map(move |seal| (item, seal)));
    seals.map(|(item, seal)| (seal.reveal_to_tenant().clone(), kind_of(item))).collect()
}

pub(crate) fn kind_of(item: &Item) -> String {
    match &item.body {
        Body::Text(text) => format!("text {text}"),
        Body::Thought(thought) => format!("thought {}", thought.content),
        Body::Call(call) => format!("call {}", call.name),
        Body::Hosted(hosted) => format!("hosted {}", hosted.name),
        Body::Media(_)
        | Body::Result(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => "other".to_owned(),
    }
}

/// A request's body with all reasoning taken out, as a client that knows of none would send it.
pub(crate) fn stripped(wire: &str, body: &str) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap();
    for list in ["messages", "input", "contents"] {
        let Some(messages) = body.get_mut(list).and_then(Value::as_array_mut) else { continue };
        if wire == "openai-responses" {
            messages.retain(|item| item["type"] != "reasoning");
            for item in messages.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("id");
            }
            continue;
        }
        for message in messages.iter_mut() {
            for key in ["content", "parts", "tool_calls"] {
                if let Some(parts) = message.get_mut(key).and_then(Value::as_array_mut) {
                    parts.retain_mut(keep_part);
                }
            }
            if let Some(message) = message.as_object_mut() {
                for key in REASONING {
                    message.remove(*key);
                }
            }
        }
        messages.retain(|message| !says_nothing(message));
    }
    body.to_string()
}

const REASONING: &[&str] = &[
    "reasoning_details",
    "reasoning_content",
    "reasoning",
    "thinking",
    "extra_content",
    "reasoning_opaque",
    "reasoning_text",
];

fn keep_part(part: &mut Value) -> bool {
    let kind = part["type"].as_str().unwrap_or_default();
    if matches!(kind, "thinking" | "redacted_thinking") || part["thought"] == true {
        return false;
    }
    let Some(part) = part.as_object_mut() else { return true };
    if part.contains_key("reasoningContent") {
        return false;
    }
    for key in ["thoughtSignature", "thought_signature", "extra_content"] {
        part.remove(key);
    }
    !(part.is_empty() || part.len() == 1 && part.get("text").is_some_and(|text| text == ""))
}

/// Whether a client would not send such a message.
fn says_nothing(message: &Value) -> bool {
    let is_empty =
        |key: &str| message.get(key).is_some_and(|list| list.as_array().is_some_and(Vec::is_empty));
    (is_empty("content") && message.get("tool_calls").is_none()) || is_empty("parts")
}

/// A recording in which requests and responses can be compared: where its recorder replaced typographic characters in one of
/// them, they are replaced in all.
pub(crate) fn comparable(recording: &Recording) -> Recording {
    let mut recording = recording.clone();
    if recording.exchanges.iter().all(|e| e.request_exact && e.response_exact) {
        return recording;
    }
    for exchange in &mut recording.exchanges {
        exchange.request = flat(&exchange.request);
        if let Ok(text) = String::from_utf8(exchange.response.clone()) {
            exchange.response = flat(&text).into_bytes();
        }
    }
    recording
}

fn flat(text: &str) -> String {
    let pairs = [
        ('\u{2018}', "'"),
        ('\u{2019}', "'"),
        ('\u{201c}', "\\\""),
        ('\u{201d}', "\\\""),
        ('\u{2011}', "-"),
        ('\u{2013}', "-"),
        ('\u{2014}', "--"),
        ('\u{2026}', "..."),
        ('\u{202f}', " "),
        ('\u{a0}', " "),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        let escape = format!("\\u{:04x}", u32::from(*from));
        text.replace(*from, to).replace(&escape, to)
    })
}
