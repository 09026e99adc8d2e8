//! Writing an answer of Converse.

use serde_json::{Value, json as value};
use throughline_core::{Json, Stop};

use crate::digest::said;
use crate::ledger::Record;
use crate::turn::{Asking, Part, Plan, Telling, Turn};
use crate::wires::claude::seals::{Sealed, seal};
use crate::wires::claude::settings::BINDING_BETA;
use crate::wires::claude::{Block, is_claude};
use crate::world::World;

/// Writes a whole answer.
pub(super) fn say(
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    world: &World,
    record: &mut Record,
) -> Json {
    let mut content: Vec<Value> = Vec::new();
    let mut blocks: Vec<Option<Block>> = Vec::new();
    for (number, part) in plan.parts.iter().enumerate() {
        let (written, block) = match part {
            Part::Thought { .. } => (Value::Null, None),
            Part::Text(text) => (value!({"text": text}), Some(Block::Text(text.clone()))),
            Part::Call { name, arguments } => {
                let id = asking.id("tooluse_", &format!("call {number}"), 22);
                record.call(&id);
                let input = said(Json::from(arguments).tree().root());
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
            "inputTokens": usage.fresh(),
            "outputTokens": usage.output,
            "totalTokens": usage.total(),
            "cacheReadInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.written,
        },
    });
    let fields = own_fields(asking, turn, plan);
    if let (Some(answer), Some(fields)) = (answer.as_object_mut(), fields) {
        answer.insert("additionalModelResponseFields".to_owned(), fields);
    }
    Json::from(&answer)
}

fn sealed_block(sealed: Sealed) -> Value {
    match sealed {
        Sealed::Thinking { text, signature } => {
            value!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
        }
        Sealed::Redacted { data } => value!({"reasoningContent": {"redactedContent": data}}),
    }
}

/// The thought of a model that signs nothing. What is not shown there is not told at all.
fn unsealed_block(part: &Part) -> Option<Value> {
    match part {
        Part::Thought { text, telling: Telling::AsAsked } => {
            Some(value!({"reasoningContent": {"reasoningText": {"text": text}}}))
        }
        Part::Thought { .. } => Some(value!({"reasoningContent": {"reasoningText": {"text": ""}}})),
        Part::Text(_) | Part::Call { .. } => None,
    }
}

/// What the model says besides, in its own words.
fn own_fields(asking: &Asking, turn: &Turn, plan: &Plan) -> Option<Value> {
    let mut fields = serde_json::Map::new();
    let body = asking.body.root();
    let betas = body.at("/additionalModelRequestFields/anthropic_beta");
    let mut betas = betas.into_iter().flat_map(throughline_core::Node::elements);
    if betas.any(|beta| beta.is(BINDING_BETA)) {
        fields.insert("input_transformations".to_owned(), Value::Array(turn.notices.clone()));
    }
    if let Stop::Refused(category) = &plan.stop {
        let details = value!({"type": "refusal", "category": &**category});
        fields.insert("stop_reason".to_owned(), value!("refusal"));
        fields.insert("stop_details".to_owned(), details);
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Converse has no word for a refusal but this.
fn stop_reason(stop: &Stop) -> &str {
    match stop {
        Stop::Done | Stop::Cut | Stop::Paused => "end_turn",
        Stop::Tools => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Sequence(_) => "stop_sequence",
        Stop::Refused(_) => "content_filtered",
        Stop::Other(word) => word,
    }
}
