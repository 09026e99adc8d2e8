//! Simulates Amazon Bedrock's Converse API for Claude and for models that do not sign.
//!
//! Claude requests pass Anthropic's checks; Bedrock prefixes the resulting errors with its own
//! text. Converse itself checks that no text is blank and that calls have results.

mod read;
mod respond;

use serde_json::{Value, json as value};
use throughline_codec::{BedrockConverse, Codec};
use throughline_core::Provider;
use throughline_json::{self as json, Json};

use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, Turn};
use crate::wires::{Endpoint, Exchange};

/// Model id and name.
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

pub(crate) struct Converse;

impl Endpoint for Converse {
    fn codec(&self) -> &'static dyn Codec {
        &BedrockConverse
    }

    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal> {
        read::read(exchange)
    }

    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
        respond::respond(exchange, turn, plan)
    }

    fn count(&self, turn: &Turn) -> Json {
        json::object(|o| {
            o.number("inputTokens", PromptCache::count(&turn.elements));
        })
    }

    fn refuse(&self, _: &Provider, refusal: &Refusal, _: &str) -> Json {
        json::object(|o| {
            o.string("message", &refusal.message);
        })
    }

    fn models(&self, _: &SimState, _: Option<&str>) -> Option<Json> {
        let models: Vec<Value> = MODELS
            .iter()
            .map(|(id, name)| {
                value!({
                    "modelArn": format!("arn:aws:bedrock:us-east-1::foundation-model/{id}"),
                    "modelId": id,
                    "modelName": name,
                    "inputModalities": ["TEXT"],
                    "outputModalities": ["TEXT"],
                    "responseStreamingSupported": true,
                })
            })
            .collect();
        Some(Json::from(&value!({"modelSummaries": models})))
    }

    fn request_id(&self, nonce: Digest) -> (&'static str, String) {
        let hex = nonce.and("request").hex(32);
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        let (start, end) = (part(0, 8), part(20, 32));
        let id = format!("{start}-{}-{}-{}-{end}", part(8, 12), part(12, 16), part(16, 20));
        ("x-amzn-requestid", id)
    }

    fn refusal_headers(&self, refusal: &Refusal) -> Vec<(&'static str, String)> {
        let usual = match refusal.status {
            403 => "AccessDeniedException",
            404 => "ResourceNotFoundException",
            429 => "ThrottlingException",
            400..=499 => "ValidationException",
            503 | 529 => "ServiceUnavailableException",
            _ => "InternalServerException",
        };
        let kind = if refusal.kind.is_empty() { usual } else { &refusal.kind };
        vec![("x-amzn-errortype", kind.to_owned())]
    }
}
