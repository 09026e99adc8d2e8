//! Anthropic's Messages API, and the clones of it that sign nothing.

mod models;
mod read;
mod say;

use throughline_codec::{AnthropicMessages, Codec, Frame};
use throughline_core::{Json, Provider, json};

use crate::cache::Cache;
use crate::digest::Mark;
use crate::ledger::Record;
use crate::turn::{Asking, Plan, Refusal, Turn};
use crate::wires::Endpoint;
use crate::world::World;

pub(crate) struct Anthropic;

impl Endpoint for Anthropic {
    fn codec(&self) -> &'static dyn Codec {
        &AnthropicMessages
    }

    fn read(&self, asking: &Asking, world: &World, record: &mut Record) -> Result<Turn, Refusal> {
        read::read(asking, world, record)
    }

    fn say(
        &self,
        asking: &Asking,
        turn: &Turn,
        plan: &Plan,
        world: &World,
        record: &mut Record,
    ) -> Json {
        say::say(asking, turn, plan, world, record)
    }

    fn count(&self, turn: &Turn) -> Json {
        json::object(|o| {
            o.number("input_tokens", Cache::count(&turn.elements));
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

    fn models(&self, world: &World, model: Option<&str>) -> Option<Json> {
        models::models(world, model)
    }

    fn request_id(&self, nonce: Mark) -> (&'static str, String) {
        ("request-id", nonce.and("request").id("req_011", 21))
    }

    fn dress(&self, frames: Vec<Frame>, whole: &Json) -> Vec<Frame> {
        say::dress(frames, whole)
    }
}
