//! OpenAI's Responses API, and its clones at Azure, xAI, DeepSeek and Bedrock.
//!
//! - A request's `input` is a string or a list of elements, a response's `output` a list of the same. Each element is one
//!   message here: a `message` holds parts, anything else is one part by itself.
//! - Reasoning is a `reasoning` element: summary, readable content and `encrypted_content` are one Thought with one Seal.
//!   `compaction` elements are sealed the same way, and a `program` carries a `fingerprint`.
//! - In a stream the Seal is taken from `response.output_item.done`. What `.added` shows before is another ciphertext, and
//!   what `response.completed` repeats may be a third.
//! - Where the endpoint stores what it answered, ids pair elements: a reasoning element must stand right before what it
//!   led to, and what it led to needs it back. When a pair is broken, the reasoning and the ids of what followed it go
//!   together. Without storing, ids pair nothing and are left out.
//! - A reasoning element without a Seal goes back by its id where the endpoint stores, or as readable content where the
//!   endpoint writes it openly. It never goes to anybody else.
//! - `status` is the response's own word and is refused or ignored on calls and reasoning, so it stays behind; `phase`,
//!   `namespace` and `caller` go back, and `summary` must be there even when it is empty.

mod contract;
#[cfg(test)]
mod contract_tests;
mod decode;
mod encode;
#[cfg(test)]
mod move_tests;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
#[path = "responses_tests.rs"]
mod tests;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    Asked, Case, Codec, CodecError, Decoder, Document, Encoder, Findings, PathStyle, Rule,
};

/// OpenAI's Responses API.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl Codec for OpenAiResponses {
    fn wire(&self) -> Wire {
        Wire::OPENAI_RESPONSES
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        wire::recognise(document)
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        Tree::parse(request.body.clone()).ok()?.root().name_of("model")
    }

    fn path(&self, _: &Target, _: bool) -> String {
        encode::PATH.to_owned()
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
        Ok(encode::reply(&without_empty_texts(reply, &self.wire())).bytes().clone())
    }

    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder> {
        Box::new(stream::ResponseDecoder::new(asked.clone()))
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(stream::ResponseEncoder::default())
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
        &["instructions", "tools", "input"]
    }
}
