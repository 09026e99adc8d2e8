//! Simulates Amazon Bedrock's Converse API, for Claude and for models that issue no signatures.
//!
//! Claude requests pass through Anthropic's checks, and Bedrock prefixes Anthropic's errors with
//! its own text. Converse itself rejects blank texts and calls without results.

mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::{BedrockConverse, Framing};

use crate::digest::Digest;
use crate::turn::Refusal;
use crate::wires::Endpoint;

const MODELS: [(&str, &str); 8] = [
    ("anthropic.claude-opus-5-5-v1:0", "Claude Opus 5.5"),
    ("anthropic.claude-fable-5-1-v1:0", "Claude Fable 5.1"),
    ("anthropic.claude-opus-4-6-v1", "Claude Opus 4.6"),
    ("anthropic.claude-sonnet-4-5-20250929-v1:0", "Claude Sonnet 4.5"),
    ("amazon.nova-2-lite-v1:0", "Nova 2 Lite"),
    ("deepseek.r1-v1:0", "DeepSeek-R1"),
    ("minimax.minimax-m2", "MiniMax M2"),
    ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
];

pub(crate) static ENDPOINT: Endpoint = Endpoint {
    codec: &BedrockConverse,
    read: read::read,
    respond: respond::respond,
    count: |tokens| json!({"inputTokens": tokens}),
    refuse: |_, refusal, _| json!({"message": refusal.message}),
    models: |_, _| Some(models()),
    request_id,
    framing: |_| Framing::EventStream,
    error_header: |refusal| Some(("x-amzn-errortype", error_type(refusal).to_owned())),
    decorate: |frames, _| frames,
};

fn models() -> Value {
    let models = MODELS.iter().map(|(id, name)| {
        json!({
            "modelArn": format!("arn:aws:bedrock:us-east-1::foundation-model/{id}"),
            "modelId": id,
            "modelName": name,
            "inputModalities": ["TEXT"],
            "outputModalities": ["TEXT"],
            "responseStreamingSupported": true,
        })
    });
    json!({"modelSummaries": models.collect::<Vec<_>>()})
}

fn request_id(nonce: Digest) -> (&'static str, String) {
    let hex = nonce.and("request").hex(32);
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let (start, end) = (part(0, 8), part(20, 32));
    let id = format!("{start}-{}-{}-{}-{end}", part(8, 12), part(12, 16), part(16, 20));
    ("x-amzn-requestid", id)
}

fn error_type(refusal: &Refusal) -> &str {
    refusal.kind_or(match refusal.status {
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        429 => "ThrottlingException",
        400..=499 => "ValidationException",
        503 | 529 => "ServiceUnavailableException",
        _ => "InternalServerException",
    })
}
