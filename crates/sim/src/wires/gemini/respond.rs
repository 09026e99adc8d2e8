//! Writes responses: parts with their signatures, and usage.

use serde_json::{Value, json};
use throughline_core::StopReason;
use throughline_json::Json;

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::EntryBuilder;
use crate::state::SimState;
use crate::turn::{ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
use crate::wires::Exchange;
use crate::wires::gemini::read::signed;
use crate::wires::openai;

/// Writes a whole response.
pub(super) fn respond(exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
    let Exchange { asking, world, record } = exchange;
    let parts = parts(asking, turn, plan, world, record);
    let finish = match &plan.stop {
        StopReason::Length => "MAX_TOKENS",
        StopReason::Refused(_) => "SAFETY",
        StopReason::Done | StopReason::Tools | StopReason::Sequence(_) => "STOP",
        StopReason::Paused | StopReason::Cut | StopReason::Other(_) => "OTHER",
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
        openai::set_member(&mut counts, "thoughtsTokenCount", json!(usage.thought));
    }
    if usage.cached > 0 {
        openai::set_member(&mut counts, "cachedContentTokenCount", json!(usage.cached));
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
    asking: &SimRequest,
    turn: &Turn,
    plan: &ReplyPlan,
    world: &SimState,
    record: &mut EntryBuilder,
) -> Vec<Value> {
    // Before Gemini 3, only replies to requests with tools are signed.
    let signs_all = !turn.target.profile.levels.is_empty();
    let is_signing = turn.thinks && (signs_all || !turn.tools.is_empty());
    let first_call = plan.parts.iter().position(|part| matches!(part, ReplyPart::Call { .. }));
    let last_text = plan.parts.iter().rposition(|part| matches!(part, ReplyPart::Text(_)));
    // The signature is on the first call of a step, or on its last text if there are no calls.
    let signed_at = first_call.or(last_text).filter(|_| is_signing);
    let mut parts = Vec::with_capacity(plan.parts.len());
    for (at, part) in plan.parts.iter().enumerate() {
        let (mut written, kind, text) = match part {
            ReplyPart::Thought { text, telling } => {
                if turn.shows && *telling == ThoughtDisplay::AsAsked {
                    record.think(text);
                    parts.push(json!({"text": text, "thought": true}));
                }
                continue;
            }
            ReplyPart::Text(text) => {
                record.record_text(text);
                (json!({"text": text}), "text", text.as_str())
            }
            ReplyPart::Call { name, arguments } => {
                let id = asking.id("", &format!("call {at}"), 8);
                record.call(&id);
                let call = json!({"name": name, "args": arguments, "id": id});
                (json!({"functionCall": call}), "functionCall", "")
            }
        };
        if signed_at == Some(at) {
            let claims = SealClaims {
                kind: kind.to_owned(),
                row: asking.row.name.to_string(),
                family: turn.target.profile.name.clone(),
                account: asking.account,
                reply: asking.nonce,
                ordinal: 0,
                count: 1,
                text: signed(text),
                hidden: false,
                beside: None::<Digest>,
                is_behind: false,
                prefix: None,
            };
            let signature = world.keys.seal(&asking.row.name, SealFormat::Gemini, &claims);
            record.issue(&signature, kind);
            openai::set_member(&mut written, "thoughtSignature", json!(signature));
        }
        parts.push(written);
    }
    parts
}
