//! Writes Messages API responses, and adds provider-specific members to streams.

use serde_json::{Value, json as value};
use throughline_codec::Frame;
use throughline_core::{StopReason, Usage};
use throughline_json::{self as json, Json};

use crate::turn::{ReplyPart, ReplyPlan, SimRequest, Turn};
use crate::wires::Exchange;
use crate::wires::claude::seals::{SealedThought, seal};
use crate::wires::claude::settings::BINDING_BETA;
use crate::wires::claude::{Block, is_claude};

/// Writes a whole response.
pub(super) fn respond(exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
    let Exchange { asking, world, record } = exchange;
    let mut content: Vec<Value> = Vec::new();
    let mut blocks: Vec<Option<Block>> = Vec::new();
    for (number, part) in plan.parts.iter().enumerate() {
        let (written, block) = match part {
            ReplyPart::Thought { .. } => (Value::Null, None),
            ReplyPart::Text(text) => {
                (value!({"type": "text", "text": text}), Some(Block::Text(text.clone())))
            }
            ReplyPart::Call { name, arguments } => {
                let id = asking.id("toolu_01", &format!("call {number}"), 22);
                record.call(&id);
                let block = call_block(&id, name, arguments);
                let caller = value!({"type": "direct"});
                let input = arguments.clone();
                let call = value!({
                    "type": "tool_use", "id": id, "name": name, "input": input, "caller": caller
                });
                (call, Some(block))
            }
        };
        content.push(written);
        blocks.push(block);
    }
    let mut thoughts = if is_claude(&turn.target.profile) {
        seal(&plan.parts, &blocks, asking, turn, world, record)
    } else {
        unsealed(asking, &plan.parts)
    }
    .into_iter();
    for block in &mut content {
        if block.is_null()
            && let Some(thought) = thoughts.next()
        {
            *block = match thought {
                SealedThought::Thinking { text, signature } => {
                    value!({"type": "thinking", "thinking": text, "signature": signature})
                }
                SealedThought::Redacted { data } => {
                    value!({"type": "redacted_thinking", "data": data})
                }
            };
        }
    }
    let mut message = value!({
        "id": asking.id("msg_01", "reply", 22),
        "type": "message",
        "role": "assistant",
        "model": asking.model,
        "content": content,
        "stop_reason": stop_reason(&plan.stop),
        "stop_sequence": null,
        "usage": usage(&plan.usage),
    });
    if let (StopReason::Refused(category), Some(message)) = (&plan.stop, message.as_object_mut()) {
        let details = value!({
            "type": "refusal",
            "category": &**category,
            "explanation": "The request shows the model its own reasoning as text.",
        });
        message.insert("stop_details".to_owned(), details);
    }
    let betas = asking.headers.get_all("anthropic-beta").iter();
    let mut betas = betas.filter_map(|value| value.to_str().ok());
    if betas.any(|list| list.contains(BINDING_BETA))
        && let Some(message) = message.as_object_mut()
    {
        let notices = Value::Array(turn.notices.clone());
        message.insert("input_transformations".to_owned(), notices);
    }
    Json::from(&message)
}

/// Builds the call block that the preceding thoughts are bound to.
fn call_block(id: &str, name: &str, arguments: &Value) -> Block {
    let input = Json::from(arguments);
    let input = crate::digest::canonical_bytes(input.tree().root());
    let said = [id.as_bytes(), name.as_bytes(), &input].join(&0);
    Block::Call { id: id.to_owned(), name: name.to_owned(), said }
}

/// Returns the thoughts of a compatible API, which adds an id as signature and never verifies it.
fn unsealed(asking: &SimRequest, parts: &[ReplyPart]) -> Vec<SealedThought> {
    let thoughts = parts.iter().filter_map(|part| match part {
        ReplyPart::Thought { text, .. } => Some(text.clone()),
        ReplyPart::Text(_) | ReplyPart::Call { .. } => None,
    });
    thoughts
        .map(|text| SealedThought::Thinking {
            text,
            signature: asking.nonce.and("unsigned").hex(32),
        })
        .collect()
}

fn stop_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done | StopReason::Cut => "end_turn",
        StopReason::Tools => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::Paused => "pause_turn",
        StopReason::Refused(_) => "refusal",
        StopReason::Other(word) => word,
    }
}

fn usage(usage: &Usage) -> Value {
    value!({
        "input_tokens": usage.uncached_input(),
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written, "ephemeral_1h_input_tokens": 0
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.thought},
        "service_tier": "standard",
    })
}

/// Adds to a stream: input usage at its start, notices about the request, and the refusal reason.
pub(super) fn dress(frames: Vec<Frame>, whole: &Json) -> Vec<Frame> {
    let message: Value = serde_json::from_slice(whole.bytes()).unwrap_or_default();
    let mut dressed = Vec::with_capacity(frames.len() + 1);
    for frame in frames {
        match frame.event.as_deref() {
            Some("message_start") => {
                dressed.push(with(&frame, |event| start(event, &message)));
                dressed.push(Frame {
                    event: Some("ping".into()),
                    data: json::object(|o| {
                        o.string("type", "ping");
                    })
                    .bytes()
                    .clone(),
                    exception: false,
                });
            }
            Some("message_delta") => dressed.push(with(&frame, |event| end(event, &message))),
            _ => dressed.push(frame),
        }
    }
    dressed
}

fn start(event: &mut Value, message: &Value) {
    if let Some(started) = event.get_mut("message").and_then(Value::as_object_mut) {
        let mut usage = message.get("usage").cloned().unwrap_or_default();
        if let Some(usage) = usage.as_object_mut() {
            usage.insert("output_tokens".to_owned(), value!(1));
            usage.remove("output_tokens_details");
        }
        started.insert("usage".to_owned(), usage);
        if let Some(notices) = message.get("input_transformations") {
            started.insert("input_transformations".to_owned(), notices.clone());
        }
    }
}

fn end(event: &mut Value, message: &Value) {
    if let (Some(delta), Some(details)) =
        (event.get_mut("delta").and_then(Value::as_object_mut), message.get("stop_details"))
    {
        delta.insert("stop_details".to_owned(), details.clone());
    }
    if let (Some(event), Some(usage)) = (event.as_object_mut(), message.get("usage")) {
        event.insert("usage".to_owned(), usage.clone());
    }
}

fn with(frame: &Frame, change: impl FnOnce(&mut Value)) -> Frame {
    let Ok(mut event) = serde_json::from_slice::<Value>(&frame.data) else { return frame.clone() };
    change(&mut event);
    Frame { data: Json::from(&event).bytes().clone(), ..frame.clone() }
}
