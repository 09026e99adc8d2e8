//! Answers, written: parts with their signatures, and what they cost.

use serde_json::{Value, json};
use throughline_core::{Json, Stop};

use crate::digest::Mark;
use crate::keys::{Claims, Form};
use crate::ledger::Record;
use crate::turn::{Asking, Part, Plan, Telling, Turn};
use crate::wires::gemini::read::signed;
use crate::wires::openai;
use crate::world::World;

/// Writes a whole answer.
pub(super) fn say(
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    world: &World,
    record: &mut Record,
) -> Json {
    let parts = parts(asking, turn, plan, world, record);
    let finish = match &plan.stop {
        Stop::Length => "MAX_TOKENS",
        Stop::Refused(_) => "SAFETY",
        Stop::Done | Stop::Tools | Stop::Sequence(_) => "STOP",
        Stop::Paused | Stop::Cut | Stop::Other(_) => "OTHER",
    };
    let usage = &plan.usage;
    let said = usage.output.saturating_sub(usage.thought);
    let mut counts = json!({
        "promptTokenCount": usage.input,
        "candidatesTokenCount": said,
        "totalTokenCount": usage.total(),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    });
    if usage.thought > 0 {
        openai::put(&mut counts, "thoughtsTokenCount", json!(usage.thought));
    }
    if usage.cached > 0 {
        openai::put(&mut counts, "cachedContentTokenCount", json!(usage.cached));
    }
    let content = json!({"parts": parts, "role": "model"});
    let candidate = json!({"content": content, "finishReason": finish, "index": 0});
    openai::json(&json!({
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": asking.model,
        "responseId": asking.id("", "reply", 23),
    }))
}

fn parts(
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    world: &World,
    record: &mut Record,
) -> Vec<Value> {
    // Before Gemini 3 only answers that may call functions are signed.
    let signs_all = !turn.target.profile.levels.is_empty();
    let is_signing = turn.thinks && (signs_all || !turn.tools.is_empty());
    let first_call = plan.parts.iter().position(|part| matches!(part, Part::Call { .. }));
    let last_text = plan.parts.iter().rposition(|part| matches!(part, Part::Text(_)));
    // A step that calls is signed on its first call; one that only speaks, at its end.
    let signed_at = first_call.or(last_text).filter(|_| is_signing);
    let mut parts = Vec::with_capacity(plan.parts.len());
    for (at, part) in plan.parts.iter().enumerate() {
        let (mut written, kind, text) = match part {
            Part::Thought { text, telling } => {
                if turn.shows && *telling == Telling::AsAsked {
                    record.think(text);
                    parts.push(json!({"text": text, "thought": true}));
                }
                continue;
            }
            Part::Text(text) => {
                record.say(text);
                (json!({"text": text}), "text", text.as_str())
            }
            Part::Call { name, arguments } => {
                let id = asking.id("", &format!("call {at}"), 8);
                record.call(&id);
                let call = json!({"name": name, "args": arguments, "id": id});
                (json!({"functionCall": call}), "functionCall", "")
            }
        };
        if signed_at == Some(at) {
            let claims = Claims {
                kind: kind.to_owned(),
                row: asking.row.name.to_string(),
                family: turn.target.profile.name.clone(),
                account: asking.account,
                reply: asking.nonce,
                ordinal: 0,
                count: 1,
                text: signed(text),
                hidden: false,
                beside: None::<Mark>,
                is_behind: false,
                prefix: None,
            };
            let signature = world.keys.seal(&asking.row.name, Form::Gemini, &claims);
            record.issue(&signature, kind);
            openai::put(&mut written, "thoughtSignature", json!(signature));
        }
        parts.push(written);
    }
    parts
}
