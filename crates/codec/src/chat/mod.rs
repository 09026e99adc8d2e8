//! OpenAI's Chat Completions API, with all its dialects.
//!
//! - A message has several slots: `content` (a string or a list of parts), the fields in which an endpoint writes
//!   reasoning, `tool_calls`. Items are cut in the order thought, content, calls, and an Item remembers its slot.
//! - Where reasoning sits is a matter of dialect, and dialects are rows of data: `reasoning_details` (`OpenRouter`),
//!   `reasoning_content`, `reasoning`, Ollama's own `thinking`, Mistral's `thinking` chunks inside `content`, inline
//!   `<think>` tags, or nothing at all. An endpoint gets its own reasoning back in the slots in which it emitted it.
//! - A detail is a Thought of its own, and the flat string that repeats the details is not another one. Fragments of
//!   a streamed detail are joined by type and index; the signature often comes in a last fragment without text.
//!   `signature: ""` is no signature. An encrypted detail that has a tool call's id leads that call.
//! - Reasoning without a Seal is replayed to the endpoint that issued it and to no other, and never becomes text.
//! - Where an endpoint demands reasoning on messages with tool calls, the key is there even if nothing can be said:
//!   with the dialect's stand-in.
//! - A stream has ended when a `finish_reason` came; without one it was cut, whatever else came.
//! - Ollama's native API is the same conversation in another body: `message` instead of `choices`, arguments as
//!   objects, results by tool name, a stream of JSON lines.

mod contract;
mod decode;
mod encode;
#[cfg(test)]
#[path = "move_tests.rs"]
mod move_tests;
mod slot;
mod stream;
mod tags;
#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    Asked, Case, Codec, CodecError, Decoder, Document, Encoder, Findings, PathStyle, Rule,
};

/// OpenAI's Chat Completions API, with all its dialects.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

impl Codec for OpenAiChat {
    fn wire(&self) -> Wire {
        Wire::OPENAI_CHAT
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        wire::recognise(document)
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        Tree::parse(request.body.clone()).ok()?.root().name_of("model")
    }

    fn path(&self, target: &Target, _: bool) -> String {
        encode::path(target).to_owned()
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn encode(&self, call: &Call) -> Result<Encoded, CodecError> {
        Ok(encode::encode(call))
    }

    fn decode_request(&self, request: &Request, asked: &Asked) -> Result<Call, CodecError> {
        decode::request(request, &Tree::parse(request.body.clone())?, asked)
    }

    fn decode_parsed(
        &self,
        request: &Request,
        body: &Tree,
        asked: &Asked,
    ) -> Result<Call, CodecError> {
        decode::request(request, body, asked)
    }

    fn decode_reply(&self, body: &Bytes, asked: &Asked) -> Result<Reply, CodecError> {
        decode::reply(body, asked)
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        Ok(encode::reply::whole(&without_empty_texts(reply, &self.wire())))
    }

    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder> {
        Box::new(stream::ChunkDecoder::new(asked.clone()))
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(stream::write::ChunkEncoder::default())
    }

    fn rules(&self) -> &'static [&'static Rule] {
        contract::RULES
    }

    fn inspect(&self, case: &Case<'_>, findings: &mut Findings<'_>) {
        contract::inspect(case, findings);
    }

    fn path_style(&self) -> PathStyle {
        PathStyle::Brackets
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "messages"]
    }
}
