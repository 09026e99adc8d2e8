//! Writes Converse responses.

use serde_json::{Value, json as value};
use throughline_core::StopReason;
use throughline_json::Json;

use crate::digest::canonical_bytes;
use crate::turn::{ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
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
            ReplyPart::Text(text) => (value!({"text": text}), Some(Block::Text(text.clone()))),
            ReplyPart::Call { name, arguments } => {
                let id = asking.id("tooluse_", &format!("call {number}"), 22);
                record.call(&id);
                let input = canonical_bytes(Json::from(arguments).tree().root());
                let said = [id.as_bytes(), name.as_bytes(), &input].join(&0);
                let block = Block::Call { id: id.clone(), name: name.clone(), said };
                let call = value!({
                    "toolUse": {"toolUseId": id, "name": name, "input": arguments}
                });
                (call, Some(block))
            }
        };
        content.push(written);
        blocks.push(block);
    }
    let mut thoughts = if is_claude(&turn.target.profile) {
        let sealed = seal(&plan.parts, &blocks, asking, turn, world, record);
        sealed.into_iter().map(sealed_block).collect::<Vec<_>>()
    } else {
        plan.parts.iter().filter_map(unsealed_block).collect()
    }
    .into_iter();
    for block in &mut content {
        if block.is_null()
            && let Some(thought) = thoughts.next()
        {
            *block = thought;
        }
    }
    let usage = &plan.usage;
    let mut answer = value!({
        "metrics": {"latencyMs": 50 + usage.output},
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop_reason(&plan.stop),
        "usage": {
            "inputTokens": usage.uncached_input(),
            "outputTokens": usage.output,
            "totalTokens": usage.total(),
            "cacheReadInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.written,
        },
    });
    let fields = model_fields(asking, turn, plan);
    if let (Some(answer), Some(fields)) = (answer.as_object_mut(), fields) {
        answer.insert("additionalModelResponseFields".to_owned(), fields);
    }
    Json::from(&answer)
}

fn sealed_block(sealed: SealedThought) -> Value {
    match sealed {
        SealedThought::Thinking { text, signature } => {
            value!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
        }
        SealedThought::Redacted { data } => value!({"reasoningContent": {"redactedContent": data}}),
    }
}

/// Builds the block of a thought without a signature. A hidden thought has an empty text.
fn unsealed_block(part: &ReplyPart) -> Option<Value> {
    match part {
        ReplyPart::Thought { text, telling: ThoughtDisplay::AsAsked } => {
            Some(value!({"reasoningContent": {"reasoningText": {"text": text}}}))
        }
        ReplyPart::Thought { .. } => {
            Some(value!({"reasoningContent": {"reasoningText": {"text": ""}}}))
        }
        ReplyPart::Text(_) | ReplyPart::Call { .. } => None,
    }
}

/// Returns the model-specific response fields.
fn model_fields(asking: &SimRequest, turn: &Turn, plan: &ReplyPlan) -> Option<Value> {
    let mut fields = serde_json::Map::new();
    let body = asking.body.root();
    let betas = body.at("/additionalModelRequestFields/anthropic_beta");
    let mut betas = betas.into_iter().flat_map(throughline_json::Node::elements);
    if betas.any(|beta| beta.is(BINDING_BETA)) {
        fields.insert("input_transformations".to_owned(), Value::Array(turn.notices.clone()));
    }
    if let StopReason::Refused(category) = &plan.stop {
        let details = value!({"type": "refusal", "category": &**category});
        fields.insert("stop_reason".to_owned(), value!("refusal"));
        fields.insert("stop_details".to_owned(), details);
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Converse has no other stop reason for a refusal.
fn stop_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done | StopReason::Cut | StopReason::Paused => "end_turn",
        StopReason::Tools => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::Refused(_) => "content_filtered",
        StopReason::Other(word) => word,
    }
}
