//! Writes Messages API responses. Also adds the members that the codec does not write to streams.

use serde_json::{Value, json};
use throughline_codec::Frame;
use throughline_core::StopReason;

use crate::turn::{ReplyPlan, Turn};
use crate::wires::anthropic::compaction;
use crate::wires::claude::seals::SealedThought;
use crate::wires::claude::settings::BINDING_BETA;
use crate::wires::claude::{self, BlockFormat};
use crate::wires::{Exchange, edit_frame, set};

const BLOCKS: BlockFormat = BlockFormat {
    call_prefix: "toolu_01",
    text: |text| json!({"type": "text", "text": text}),
    call: |id, name, input| {
        let caller = json!({"type": "direct"});
        json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": caller})
    },
    thought: |thought| match thought {
        SealedThought::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        SealedThought::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
    },
    fallback: Some(|model| {
        let (from, to) = (json!({"model": "claude-fable-5"}), json!({"model": model}));
        json!({"type": "fallback", "from": from, "to": to})
    }),
    // Compatible APIs send an arbitrary id as the signature, and never verify it.
    unsigned: |request, text, _| {
        let signature = request.nonce.and("unsigned").hex(32);
        json!({"type": "thinking", "thinking": text, "signature": signature})
    },
};

pub(super) fn respond(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    let request = exchange.request;
    let usage = &plan.usage;
    let (content, stop_reason) = if turn.compacts {
        (vec![compaction::block(exchange, turn, plan)], "compaction")
    } else if turn.compacts_first && compaction::pauses(request.body.root()) {
        (vec![compaction::edit_block(turn)], "compaction")
    } else if turn.compacts_first {
        let content = claude::content(exchange, turn, plan, &BLOCKS);
        let content = [compaction::edit_block(turn)].into_iter().chain(content).collect();
        (content, stop_reason(&plan.stop))
    } else {
        (claude::content(exchange, turn, plan, &BLOCKS), stop_reason(&plan.stop))
    };
    let mut message = json!({
        "id": request.id("msg_01", "reply", 22),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.uncached_input(),
            "cache_creation_input_tokens": usage.written,
            "cache_read_input_tokens": usage.cached,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.written, "ephemeral_1h_input_tokens": 0
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"thinking_tokens": usage.thought},
            "service_tier": "standard",
        },
    });
    if let StopReason::Refused(category) = &plan.stop {
        let details = json!({
            "type": "refusal",
            "category": &**category,
            "explanation": "The request shows the model its own reasoning as text.",
        });
        set(&mut message, "stop_details", details);
    }
    let betas = request.headers.get_all("anthropic-beta").iter();
    let mut betas = betas.filter_map(|value| value.to_str().ok());
    if betas.any(|list| list.contains(BINDING_BETA)) {
        set(&mut message, "input_transformations", turn.notices.clone());
    }
    message
}

fn stop_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done | StopReason::Cut => "end_turn",
        StopReason::Tools => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::Paused => "pause_turn",
        StopReason::Refused(_) => "refusal",
        StopReason::Other(reason) => reason,
    }
}

/// Adds the input usage, notices about the request, and the refusal reason to a stream.
pub(super) fn decorate(frames: Vec<Frame>, message: &Value) -> Vec<Frame> {
    let mut decorated = Vec::with_capacity(frames.len() + 1);
    for frame in frames {
        match frame.event.as_deref() {
            Some("message_start") => {
                decorated.push(edit_frame(frame, |event| add_usage(event, message)));
                decorated.push(Frame {
                    event: Some("ping".into()),
                    data: json!({"type": "ping"}).to_string().into(),
                    exception: false,
                });
            }
            Some("message_delta") => {
                decorated.push(edit_frame(frame, |event| add_end(event, message)));
            }
            _ => decorated.push(frame),
        }
    }
    decorated
}

fn add_usage(event: &mut Value, message: &Value) -> Option<()> {
    let started = event.get_mut("message")?;
    let mut usage = message.get("usage").cloned().unwrap_or_default();
    set(&mut usage, "output_tokens", 1);
    if let Some(usage) = usage.as_object_mut() {
        usage.remove("output_tokens_details");
    }
    set(started, "usage", usage);
    if let Some(notices) = message.get("input_transformations") {
        set(started, "input_transformations", notices.clone());
    }
    Some(())
}

fn add_end(event: &mut Value, message: &Value) -> Option<()> {
    if let (Some(delta), Some(details)) = (event.get_mut("delta"), message.get("stop_details")) {
        set(delta, "stop_details", details.clone());
    }
    set(event, "usage", message.get("usage")?.clone());
    Some(())
}
