//! Codec for Amazon Bedrock's Converse and `ConverseStream`.
//!
//! - The path contains the model and the streaming mode. The body has the same format for all model
//!   families. Family-specific settings, including thinking, are in `additionalModelRequestFields`.
//! - Thinking arrives as `reasoningContent` blocks: `reasoningText` with a `signature`, or
//!   `redactedContent`. Claude's blocks are replayed unmodified, in order, and never without the
//!   signature. Models of other families do not sign their blocks. Those blocks are replayed only
//!   to the same family and without a `signature` member, because an empty `signature` is rejected.
//! - Messages must alternate between user and assistant. Adjacent messages by one speaker are
//!   therefore joined, unless both are copied unchanged from the client's request. Blank texts are
//!   rejected and therefore never written.
//! - In a stream, texts and thoughts have no `contentBlockStart`: their first delta opens them. A
//!   signature arrives as a delta without text. `metadata` follows `messageStop` and ends the
//!   response. If `metadata` is missing, the response is still complete after `messageStop`.
//! - A frame carries the event name in a header. Without the binary framing, each event is wrapped
//!   in an object with one member, whose key is the event name.

mod assemble;
mod contract;
mod decode;
mod encode;
#[cfg(test)]
mod encode_tests;
mod reasoning_items;
mod stream;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
#[path = "converse_tests.rs"]
mod tests;
mod wire;

pub(crate) use self::reasoning_items::UNSIGNED as UNSIGNED_REASONING;

use crate::codec_methods::prelude::*;

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// The codec of Amazon Bedrock's Converse API.
#[derive(Clone, Copy, Debug, Default)]
pub struct BedrockConverse;

impl Codec for BedrockConverse {
    fn model_of(&self, request: &Request) -> Option<Name> {
        // Some clients record the model in the body.
        wire::ConversePath::parse(&request.path)
            .model
            .map(Name::from)
            .or_else(|| Tree::parse(request.body.clone()).ok()?.root().name_of("modelId"))
    }

    fn path(&self, target: &Target, stream: bool) -> String {
        wire::ConversePath::default().with_model(target.model(), stream)
    }

    fn framing(&self) -> Framing {
        Framing::EventStream
    }

    codec_methods!(WIRE, stream::ConverseDecoder, stream::ConverseEncoder);

    fn prefix_members(&self) -> &'static [&'static str] {
        &["toolConfig.tools", "system", "messages"]
    }
}
