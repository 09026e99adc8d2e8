//! Translators between the providers' protocols and the nouns of `throughline-core`.
//!
//! A codec is pure and synchronous: no I/O, no clock, no state beyond one stream. It works in six directions:
//!
//! | from | to | by |
//! |---|---|---|
//! | [`Call`] | request | [`Codec::encode`] |
//! | request | [`Call`] | [`Codec::decode_request`] |
//! | response | [`Reply`] | [`Codec::decode_reply`] |
//! | [`Reply`] | response | [`Codec::encode_reply`] |
//! | stream | [`Event`]s | [`Codec::decoder`] behind a [`Framer`] |
//! | [`Event`]s | stream | [`Codec::encoder`] before a [`FrameWriter`] |
//!
//! One mechanism keeps bytes exact: whatever was read keeps the text it was cut from, and whatever has not
//! changed since is written as that text: `draft.rs` and `edit.rs` hold it.
//!
//! [`CODECS`] is the registry. A codec from another crate implements [`Codec`] and is passed wherever these are.

mod anthropic;
mod asked;
mod audit;
mod calls;
mod catalog;
mod chat;
mod claude;
mod converse;
mod crossing;
mod draft;
mod edit;
mod effort;
mod empty_text;
mod error;
mod events;
mod frame;
mod frozen;
mod gate;
mod gemini;
mod group;
mod guess;
mod prefix;
mod repair;
mod responses;
#[cfg(test)]
mod rule_checks;
mod sealed;
mod told;

use bytes::Bytes;
use throughline_core::{Call, Encoded, Event, Name, Node, Reply, Request, Target, Tree, Wire};

pub use crate::anthropic::AnthropicMessages;
pub use crate::asked::Asked;
pub use crate::audit::{
    Audit, Breach, Case, Change, ChangeKind, Comparison, Edit, Example, Exchange, Finding,
    Findings, Issued, IssuedSeals, Mend, PathStyle, PrefixChange, Prior, Reordered, Rule, Severity,
    Source, SourceKind, Transcript, Verdict, audit,
};
pub use crate::catalog::{Catalog, CatalogError};
pub use crate::chat::OpenAiChat;
pub use crate::converse::BedrockConverse;
pub use crate::error::CodecError;
pub use crate::events::{StreamDecoder, StreamEncoder, events_of};
pub use crate::frame::{Frame, FrameError, FrameWriter, Framer, Framing};
pub use crate::frozen::{first_change, frozen};
pub use crate::gemini::Gemini;
pub use crate::guess::{Guess, guess};
pub use crate::repair::{Mended, Reach, Repair, recount, repair};
pub use crate::responses::OpenAiResponses;
pub use crate::told::{
    audit_json, describe, fates_json, mended_json, put_evidence, size, without_long_words,
};

/// The wires that are built in, the most telling first: the order in which a document's wire is guessed.
pub static CODECS: &[&dyn Codec] = &[
    &anthropic::AnthropicMessages,
    &responses::OpenAiResponses,
    &gemini::Gemini,
    &converse::BedrockConverse,
    &chat::OpenAiChat,
];

/// The built-in codec of that wire.
pub fn codec(wire: &Wire) -> Option<&'static dyn Codec> {
    CODECS.iter().copied().find(|codec| codec.wire() == *wire)
}

/// A provider protocol's translator.
pub trait Codec: Send + Sync {
    /// The protocol's name.
    fn wire(&self) -> Wire;

    /// Whether a JSON document looks like this wire's, and which part of an exchange it is.
    fn recognise(&self, document: Node<'_>) -> Option<Document>;

    /// The model that a request asks for.
    fn model_of(&self, request: &Request) -> Option<Name>;

    /// Where a request to this target goes, behind the provider's base URL.
    fn path(&self, target: &Target, stream: bool) -> String;

    /// How this wire usually frames its streams.
    fn framing(&self) -> Framing;

    /// Writes a Call, and accounts for every Item, Seal and setting of it.
    fn encode(&self, call: &Call) -> Result<Encoded, CodecError>;

    /// Reads a request that was meant for `asked.target`: what it sends back is taken to be that target's own.
    fn decode_request(&self, request: &Request, asked: &Asked) -> Result<Call, CodecError>;

    /// The same of a request whose body was parsed before.
    fn decode_parsed(
        &self,
        request: &Request,
        _body: &Tree,
        asked: &Asked,
    ) -> Result<Call, CodecError> {
        self.decode_request(request, asked)
    }

    /// Reads a whole response to a request that was sent to `asked.target`.
    fn decode_reply(&self, body: &Bytes, asked: &Asked) -> Result<Reply, CodecError>;

    /// Writes a whole response.
    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError>;

    /// Reads a streamed response, frame by frame.
    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder>;

    /// Writes a streamed response, event by event.
    fn encoder(&self) -> Box<dyn Encoder>;

    /// What this wire's providers refuse, rule by rule.
    fn rules(&self) -> &'static [&'static Rule] {
        &[]
    }

    /// Looks for what a request's provider would refuse, and reports it.
    fn inspect(&self, _case: &Case<'_>, _findings: &mut Findings<'_>) {}

    /// How this wire's providers write the place of a value in their errors.
    fn path_style(&self) -> PathStyle {
        PathStyle::Dots
    }

    /// The members of a request that stand before an answer, in the order in which the model reads them.
    fn prefix_members(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Which part of an exchange a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// A request.
    Request,
    /// A whole response.
    Response,
    /// One event of a streamed response.
    Event,
}

/// Reads one streamed response.
pub trait Decoder: Send {
    /// Reads the next frame.
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError>;

    /// The stream has ended. Without the wire's own ending, the Reply is [`Stop::Cut`](throughline_core::Stop::Cut) and nothing in it that was
    /// still open can be replayed.
    fn finish(&mut self) -> Result<Vec<Event>, CodecError>;
}

/// Writes one streamed response.
pub trait Encoder: Send {
    /// Writes what the event says, as any number of frames.
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError>;
}
