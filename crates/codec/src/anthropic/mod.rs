//! Codec for Anthropic's Messages API.
//!
//! - Thinking arrives as `thinking` blocks with a `signature`, or as `redacted_thinking` blocks
//!   with `data`. Both are replayed unmodified, in their message and at their position among texts
//!   and tool calls. The text of a `thinking` block may be empty while its signature is not.
//! - Other blocks contain opaque values too: `encrypted_content` of search results,
//!   `encrypted_index` of citations, the content of `compaction` blocks.
//! - In a stream, `thinking_delta`s are concatenated and the `signature_delta` is assigned. A block
//!   without its signature was truncated and is never replayed.
//! - The API rejects blocks that this endpoint did not sign, so foreign and unsigned thoughts are
//!   omitted. They are never turned into text, because the model treats that as an attempt to
//!   extract its reasoning.
//! - Newer families bind a signature to the whole prefix: see [`crate::prefix`].

mod contract;
mod decode;
mod encode;
mod stream;
#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, EncodedRequest, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    AuditContext, Codec, CodecError, DecodeContext, Decoder, Document, Encoder, Findings,
    PathStyle, Rule,
};

/// The codec of Anthropic's Messages API.
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

    fn encode(&self, call: &Call) -> Result<EncodedRequest, CodecError> {
        Ok(encode::encode(call))
    }

    fn decode_request(&self, request: &Request, asked: &DecodeContext) -> Result<Call, CodecError> {
        decode::request(request, &Tree::parse(request.body.clone())?, asked)
    }

    fn decode_parsed(
        &self,
        request: &Request,
        body: &Tree,
        asked: &DecodeContext,
    ) -> Result<Call, CodecError> {
        decode::request(request, body, asked)
    }

    fn decode_reply(&self, body: &Bytes, asked: &DecodeContext) -> Result<Reply, CodecError> {
        decode::reply(body, asked)
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        Ok(encode::reply(&without_empty_texts(reply, &self.wire())))
    }

    fn decoder(&self, asked: &DecodeContext) -> Box<dyn Decoder> {
        Box::new(stream::AnthropicDecoder::new(asked.clone()))
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(stream::AnthropicEncoder::default())
    }

    fn rules(&self) -> &'static [&'static Rule] {
        &contract::RULES
    }

    fn inspect(&self, case: &AuditContext<'_>, findings: &mut Findings<'_>) {
        contract::inspect(case, findings);
    }

    fn path_style(&self) -> PathStyle {
        PathStyle::Dots
    }

    fn prefix_members(&self) -> &'static [&'static str] {
        &["tools", "system", "messages"]
    }
}
