//! Anthropic's Messages API.
//!
//! - Thinking comes as `thinking` blocks with a `signature`, or as `redacted_thinking` blocks with `data`. Either goes
//!   back unmodified, in its message, in its order, between texts and tool calls as it stood. The text of a
//!   `thinking` block may be empty while its signature is not.
//! - Other blocks carry opaque values too: `encrypted_content` of search results, `encrypted_index` of citations,
//!   the content of `compaction` blocks.
//! - In a stream, `thinking_delta`s are joined and the `signature_delta` is assigned. A block without its signature
//!   was cut and is never sent back.
//! - A block that this endpoint did not sign is refused, so foreign and unsigned thoughts are left out and never
//!   turned into text: the model would take it for an attempt to extract its reasoning.
//! - From some families on, a signature is bound to everything before it: see [`crate::prefix`].

mod contract;
mod decode;
mod encode;
mod stream;
#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    Asked, Case, Codec, CodecError, Decoder, Document, Encoder, Findings, PathStyle, Rule,
};

/// Anthropic's Messages API.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnthropicMessages;

impl Codec for AnthropicMessages {
    fn wire(&self) -> Wire {
        Wire::ANTHROPIC_MESSAGES
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
        Ok(encode::reply(&without_empty_texts(reply, &self.wire())))
    }

    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder> {
        Box::new(stream::MessageDecoder::new(asked.clone()))
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(stream::MessageEncoder::default())
    }

    fn rules(&self) -> &'static [&'static Rule] {
        contract::RULES
    }

    fn inspect(&self, case: &Case<'_>, findings: &mut Findings<'_>) {
        contract::inspect(case, findings);
    }

    fn path_style(&self) -> PathStyle {
        PathStyle::Dots
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "system", "messages"]
    }
}
