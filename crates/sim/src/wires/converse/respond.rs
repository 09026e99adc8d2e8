//! Writes Converse responses.

use serde_json::{Value, json};
use throughline_core::StopReason;

use crate::turn::{ReplyPlan, ThoughtDisplay, Turn};
use crate::wires::claude::seals::SealedThought;
use crate::wires::claude::settings::BINDING_BETA;
use crate::wires::claude::{self, BlockFormat};
use crate::wires::{Exchange, list, set};

const BLOCKS: BlockFormat = BlockFormat {
    call_prefix: "tooluse_",
    text: |text| json!({"text": text}),
    call: |id, name, input| json!({"toolUse": {"toolUseId": id, "name": name, "input": input}}),
    thought: |thought| match thought {
        SealedThought::Thinking { text, signature } => {
            json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
        }
        SealedThought::Redacted { data } => json!({"reasoningContent": {"redactedContent": data}}),
    },
    fallback: None,
    // A hidden thought has an empty text.
    unsigned: |_, text, display| {
        let text = if display == ThoughtDisplay::AsAsked { text } else { "" };
        json!({"reasoningContent": {"reasoningText": {"text": text}}})
    },
};

pub(super) fn respond(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    let content = claude::content(exchange, turn, plan, &BLOCKS);
    let usage = &plan.usage;
    let mut response = json!({
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
    let mut fields = json!({});
    let extra = exchange.request.body.root().get("additionalModelRequestFields");
    let mut betas = extra.into_iter().flat_map(|extra| list(extra, "anthropic_beta"));
    if betas.any(|beta| beta.is(BINDING_BETA)) {
        set(&mut fields, "input_transformations", turn.notices.clone());
    }
    if let StopReason::Refused(category) = &plan.stop {
        set(&mut fields, "stop_reason", "refusal");
        set(&mut fields, "stop_details", json!({"type": "refusal", "category": &**category}));
    }
    if fields != json!({}) {
        set(&mut response, "additionalModelResponseFields", fields);
    }
    response
}

/// Maps a stop reason to Converse's name. Converse has no separate stop reason for a refusal.
fn stop_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done | StopReason::Cut | StopReason::Paused => "end_turn",
        StopReason::Tools => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::Refused(_) => "content_filtered",
        StopReason::Other(reason) => reason,
    }
}
