//! Codec for OpenAI's Chat Completions API and its dialects.
//!
//! - A message has several slots: `content` (a string or a list of parts), the fields that hold
//!   reasoning, and `tool_calls`. Decoding splits a message into Items in this order: thoughts,
//!   content, calls. Each Item records its slot.
//! - The endpoint's dialect determines where reasoning appears: in `reasoning_details`
//!   (`OpenRouter`), `reasoning_content`, `reasoning`, Ollama's `thinking`, Mistral's `thinking`
//!   chunks inside `content`, inline `<think>` tags, or nowhere. An endpoint gets its reasoning
//!   back in the slots where it emitted that reasoning.
//! - Each detail is one Thought. A flat string that repeats the details is not a second Thought.
//!   Fragments of a streamed detail are joined by type and index, and the signature often arrives
//!   in a last fragment without text. `signature: ""` means no signature. An encrypted detail that
//!   has a tool call's id precedes that call.
//! - Reasoning without a Seal is replayed only to the endpoint that issued it, and never becomes
//!   text.
//! - If an endpoint requires reasoning on messages with tool calls, the reasoning field is always
//!   sent. If the reasoning is unknown, the field holds the dialect's stand-in.
//! - A stream is complete only if a `finish_reason` arrived; otherwise it was cut.
//! - Ollama's native API carries the same conversation in another body: `message` instead of
//!   `choices`, arguments as objects, results by tool name, and a stream of JSON lines.

mod contract;
mod decode;
mod encode;
#[cfg(test)]
#[path = "move_tests.rs"]
mod move_tests;
mod reasoning_items;
mod slot;
mod stream;
mod tags;
#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
mod wire;

pub(crate) use self::decode::message::THINKING_CHUNK;
pub(crate) use self::reasoning_items::EXTRA_CONTENT_SIGNATURE;
pub(crate) use self::slot::is_known_member;

use crate::codec_methods::prelude::*;

const WIRE: Wire = Wire::OPENAI_CHAT;

/// Codec for OpenAI's Chat Completions API and its dialects.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

impl Codec for OpenAiChat {
    fn path(&self, target: &Target, _: bool) -> String {
        encode::path(target).to_owned()
    }

    codec_methods!(WIRE, stream::ChatDecoder, stream::write::ChatEncoder);

    fn path_style(&self) -> PathStyle {
        PathStyle::Brackets
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "messages"]
    }
}
