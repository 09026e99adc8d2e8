//! Google's `generateContent`, as the Gemini API and Vertex AI speak it.
//!
//! - Model and stream flag live in the path: `…/models/{model}:generateContent` or `:streamGenerateContent?alt=sse`.
//! - A `thoughtSignature` may stand on any part: on a call, on a text, on code, on a provider's own tool step, and on an
//!   empty text that ends a stream. It goes back on that part. A signed part is never joined with a neighbour.
//! - Of calls made at once only the first is signed, and its siblings stay unsigned.
//! - Gemini 3 refuses a model step whose first call is unsigned. History from elsewhere has no signature to show, so that
//!   call gets the stand-in that Google documents. Which calls get it depends on nothing that comes later.
//! - Parts with `thought: true` are summaries for the reader. Unsigned ones are not sent back: what the model needs of
//!   them is in the signatures, and they would be paid for as input.
//! - Names come in camelCase and in `snake_case`, at every level. Both are read, and stay as they were written.
//! - Calls often have no id; their answers are then found by name, in order.
//! - A stream is server-sent events, or one JSON array where `alt=sse` was not asked for. It has no closing mark: it is
//!   whole when a `finishReason` came. Arguments may come piece by piece, in `partialArgs`.

mod arguments;
mod contract;
#[cfg(test)]
mod contract_tests;
mod decode;
mod encode;
mod path;
mod stream;
#[cfg(test)]
#[path = "gemini_tests.rs"]
mod tests;
mod tools;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    Asked, Case, Codec, CodecError, Decoder, Document, Encoder, Findings, PathStyle, Rule,
};

/// Google's `generateContent`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl Codec for Gemini {
    fn wire(&self) -> Wire {
        Wire::GEMINI
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        wire::recognise(document)
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        path::Path::parse(&request.path).map(|path| Name::from(path.model))
    }

    fn path(&self, target: &Target, stream: bool) -> String {
        path::fresh(target, stream)
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
        &["systemInstruction", "system_instruction", "tools", "contents"]
    }
}
