//! Writes generateContent responses: signed parts and usage.

use serde_json::{Value, json};
use throughline_core::StopReason;

use crate::keys::{SealClaims, SealFormat};
use crate::turn::{CONTINUATION, ReplyPart, ReplyPlan, ThoughtDisplay, Turn};
use crate::wires::gemini::continuation;
use crate::wires::gemini::read::signed;
use crate::wires::{Exchange, set};

pub(super) fn respond(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    let finish = match &plan.stop {
        StopReason::Length => "MAX_TOKENS",
        StopReason::Refused(_) => "SAFETY",
        StopReason::Done | StopReason::Tools | StopReason::Sequence(_) => "STOP",
        StopReason::Other(reason) if **reason == *CONTINUATION => CONTINUATION,
        StopReason::Paused | StopReason::Cut | StopReason::Other(_) => "OTHER",
    };
    let usage = &plan.usage;
    let mut counts = json!({
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output.saturating_sub(usage.thought),
        "totalTokenCount": usage.total(),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    });
    if usage.thought > 0 {
        set(&mut counts, "thoughtsTokenCount", usage.thought);
    }
    if usage.cached > 0 {
        set(&mut counts, "cachedContentTokenCount", usage.cached);
    }
    let content = json!({"parts": parts(exchange, turn, plan), "role": "model"});
    let mut candidate = json!({"content": content, "finishReason": finish, "index": 0});
    if let Some(token) = continuation::token(exchange, turn, plan) {
        set(&mut candidate, "continuationToken", token);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": exchange.request.model,
        "responseId": exchange.request.id("", "reply", 23),
    })
}

fn parts(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Vec<Value> {
    let request = exchange.request;
    // Before Gemini 3, only replies to requests with tools are signed.
    let signs_all = !turn.target.profile.levels.is_empty();
    let is_signing = turn.thinks && (signs_all || !turn.tools.is_empty());
    let first_call = plan.parts.iter().position(|part| matches!(part, ReplyPart::Call { .. }));
    let last_text = plan.parts.iter().rposition(|part| matches!(part, ReplyPart::Text(_)));
    // Sign the first call of a step, or its last text if it has no calls.
    let signed_at = first_call.or(last_text).filter(|_| is_signing);
    let mut parts = Vec::with_capacity(plan.parts.len());
    for (at, part) in plan.parts.iter().enumerate() {
        let (mut value, kind, text) = match part {
            ReplyPart::Thought { text, display } => {
                if turn.shows && *display == ThoughtDisplay::AsAsked {
                    exchange.record.record_thought(text);
                    parts.push(json!({"text": text, "thought": true}));
                }
                continue;
            }
            ReplyPart::Text(text) => {
                exchange.record.record_text(text);
                (json!({"text": text}), "text", text.as_str())
            }
            ReplyPart::Call { name, arguments } => {
                let id = request.id("", &format!("call {at}"), 8);
                exchange.record.call(&id);
                let call = json!({"name": name, "args": arguments, "id": id});
                (json!({"functionCall": call}), "functionCall", "")
            }
        };
        if signed_at == Some(at) {
            let claims = SealClaims { text: signed(text), ..exchange.claims(turn, kind) };
            let signature = exchange.seal(&request.row.name, SealFormat::Gemini, &claims);
            set(&mut value, "thoughtSignature", signature);
        }
        parts.push(value);
    }
    parts
}
