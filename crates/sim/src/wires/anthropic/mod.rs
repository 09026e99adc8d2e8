//! Simulates Anthropic's Messages API, and compatible APIs that do not sign.

mod models;
mod read;
mod respond;

use throughline_codec::{AnthropicMessages, Codec, Frame};
use throughline_core::Provider;
use throughline_json::{self as json, Json};

use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, Turn};
use crate::wires::{Endpoint, Exchange};

pub(crate) struct Anthropic;

impl Endpoint for Anthropic {
    fn codec(&self) -> &'static dyn Codec {
        &AnthropicMessages
    }

    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal> {
        read::read(exchange)
    }

    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
        respond::respond(exchange, turn, plan)
    }

    fn count(&self, turn: &Turn) -> Json {
        json::object(|o| {
            o.number("input_tokens", PromptCache::count(&turn.elements));
        })
    }

    fn refuse(&self, _: &Provider, refusal: &Refusal, request_id: &str) -> Json {
        let usual = match refusal.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        let kind = if refusal.kind.is_empty() { usual } else { &refusal.kind };
        json::object(|o| {
            o.string("type", "error");
            o.object("error", |o| {
                o.string("type", kind).string("message", &refusal.message);
            });
            o.string("request_id", request_id);
        })
    }

    fn models(&self, world: &SimState, model: Option<&str>) -> Option<Json> {
        models::models(world, model)
    }

    fn request_id(&self, nonce: Digest) -> (&'static str, String) {
        ("request-id", nonce.and("request").id("req_011", 21))
    }

    fn dress(&self, frames: Vec<Frame>, whole: &Json) -> Vec<Frame> {
        respond::dress(frames, whole)
    }
}
