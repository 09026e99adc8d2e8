//! Amazon Bedrock's Converse and `ConverseStream`.
//!
//! - The model and whether to stream are in the path. The body has one shape for every model family; what only one
//!   family knows is in `additionalModelRequestFields`, thinking included.
//! - Thinking comes as `reasoningContent` blocks: `reasoningText` with a `signature`, or `redactedContent`. Claude's goes
//!   back unmodified, in its order, and never without its signature. Other families sign nothing: theirs goes back to the
//!   same family only, and without a `signature` member, because an empty one is refused.
//! - Messages must alternate between user and assistant, so neighbours of one speaker are joined; messages that a client
//!   wrote side by side are left as they are. A blank text is refused, so none is written.
//! - In a stream, texts and thoughts have no `contentBlockStart`: their first delta opens them. A signature comes as a
//!   delta without text. `metadata` comes after `messageStop` and ends the answer; an answer whose `messageStop` came is
//!   whole without it.
//! - Frames carry the event's name in a header. Where the framing was taken away, the event is found wrapped in its name.

mod assemble;
mod contract;
mod decode;
mod encode;
#[cfg(test)]
mod encode_tests;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
#[path = "converse_tests.rs"]
mod tests;
mod wire;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Name, Node, Reply, Request, Target, Tree, Wire};

use crate::empty_text::without_empty_texts;
use crate::frame::Framing;
use crate::{
    Asked, Case, Codec, CodecError, Decoder, Document, Encoder, Findings, PathStyle, Rule,
};

/// Amazon Bedrock's Converse.
#[derive(Clone, Copy, Debug, Default)]
pub struct BedrockConverse;

impl Codec for BedrockConverse {
    fn wire(&self) -> Wire {
        Wire::BEDROCK_CONVERSE
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        wire::recognise(document)
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        // The clients' own records of a request have the model beside the messages.
        wire::Path::parse(&request.path)
            .model
            .map(Name::from)
            .or_else(|| Tree::parse(request.body.clone()).ok()?.root().name_of("modelId"))
    }

    fn path(&self, target: &Target, stream: bool) -> String {
        wire::Path::default().with(target.model(), stream)
    }

    fn framing(&self) -> Framing {
        Framing::EventStream
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
        Box::new(stream::ConverseDecoder::new(asked.clone()))
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(stream::ConverseEncoder::default())
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
        &["toolConfig.tools", "system", "messages"]
    }
}
