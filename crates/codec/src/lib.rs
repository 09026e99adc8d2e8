//! Translates between provider protocols and the types of `throughline-core`.
//!
//! A codec is pure and synchronous: no I/O, no clock, no state beyond one stream. It works in six
//! directions:
//!
//! | from | to | by |
//! |---|---|---|
//! | [`Call`] | request | [`Codec::encode`] |
//! | request | [`Call`] | [`Codec::decode_request`] |
//! | response | [`Reply`] | [`Codec::decode_reply`] |
//! | [`Reply`] | response | [`Codec::encode_reply`] |
//! | stream | [`Event`]s | a [`Framer`], then [`Codec::decoder`] |
//! | [`Event`]s | stream | [`Codec::encoder`], then a [`FrameWriter`] |
//!
//! To reproduce bytes exactly, each decoded value keeps its source text, and an unchanged value is
//! written as its source text. See `draft.rs` and `edit.rs`.
//!
//! [`CODECS`] is the registry. A codec from another crate implements [`Codec`] and can be passed
//! anywhere a built-in codec can.

#[macro_use]
mod codec_methods;
#[macro_use]
mod object;

mod anthropic;
mod audit;
mod call_ids;
mod catalog;
mod chat;
mod claude;
mod converse;
mod cross_wire;
mod decode_context;
mod detect;
mod draft;
mod edit;
mod effort;
mod empty_text;
mod error;
mod events;
mod find_seals;
mod frame;
mod gemini;
mod history;
mod item_reader;
mod known_models;
mod known_request;
mod message_groups;
mod native_parts;
mod percent;
mod prefix;
mod prefix_append;
mod prefix_freeze;
mod prepare;
mod repair;
mod report;
mod responses;
#[cfg(test)]
mod rule_checks;
mod seal_policy;

use bytes::Bytes;
use throughline_core::{Call, EncodedRequest, Event, Reply, Request, Target, Wire};
use throughline_json::{Name, Node, Tree};
use throughline_spec::{OpenRouterReasoningCodec, ReasoningCodec};

pub use crate::anthropic::AnthropicMessages;
pub use crate::audit::{
    Audit, AuditContext, Change, ChangeKind, Comparison, Edit, Example, Exchange, Finding,
    Findings, Fix, IssuedItem, IssuedSeals, PathStyle, PrefixChange, PriorExchanges,
    ReorderedElement, Rule, Severity, Source, SourceKind, Transcript, Verdict, ViolationKind,
    audit,
};
pub use crate::catalog::{
    Catalog, CatalogError, CatalogKey, CatalogProblem, CatalogSecret, CatalogUpdate,
    CatalogVersion, InvalidCatalogKey, InvalidCatalogSecret, InvalidVersion, SIMULATORS,
    SharedCatalog, SignatureError, is_provider_name, is_variable_name, sign_catalog,
    verify_catalog,
};
pub use crate::chat::OpenAiChat;
pub use crate::converse::BedrockConverse;
pub use crate::decode_context::DecodeContext;
pub use crate::detect::{Detection, detect};
pub use crate::error::{CodecError, error_message};
pub use crate::events::{StreamDecoder, StreamEncoder, events_from_reply};
pub use crate::frame::{Frame, FrameError, FrameWriter, Framer, Framing};
pub use crate::gemini::Gemini;
pub use crate::gemini::continuation::{
    continuation_seal, continuation_token, continued_body, join_replies,
};
pub use crate::history::{
    History, HistoryError, HistoryFormat, HistoryOwner, HistoryTurn, read_history,
};
pub use crate::known_models::KnownModel;
pub use crate::known_request::{KnownBeginning, KnownRequest};
pub use crate::prefix_append::{AppendPlan, AppendedMessage, SignedPrefix, add_beta};
pub use crate::prefix_freeze::{first_prefix_change, restore_prefix_bytes};
pub use crate::prepare::{AuditOutcome, Preparation, PreparedCall};
pub use crate::repair::{AppliedFix, Repair, RepairLevel, repair};
pub use crate::report::{
    applied_fixes_json, audit_json, describe, fates_json, put_evidence, shorten_opaque_words, size,
};
pub use crate::responses::{COMPACTION_TYPES, CallForms, OpenAiResponses};

/// The built-in codecs. [`detect()`] tries them in this order, so the wires that are easiest to
/// recognise come first.
pub static CODECS: &[&dyn Codec] = &[
    &anthropic::AnthropicMessages,
    &responses::OpenAiResponses,
    &gemini::Gemini,
    &converse::BedrockConverse,
    &chat::OpenAiChat,
];

/// Looks up the built-in codec for `wire`; `None` if no built-in codec supports it.
pub fn codec(wire: &Wire) -> Option<&'static dyn Codec> {
    CODECS.iter().copied().find(|codec| codec.wire() == *wire)
}

/// Translates one provider protocol in both directions.
pub trait Codec: Send + Sync {
    /// Returns the name of the wire that this codec translates.
    fn wire(&self) -> Wire;

    /// Classifies a document of this wire; `None` if the document does not look like this wire.
    fn recognise(&self, document: Node<'_>) -> Option<Document>;

    /// Returns the model named in the request. By default, this is the body's `model` member.
    fn model_of(&self, request: &Request) -> Option<Name> {
        Tree::parse(request.body.clone()).ok()?.root().name_of("model")
    }

    /// Returns the path of a request to `target`, relative to the provider's base URL.
    fn path(&self, target: &Target, stream: bool) -> String;

    /// Returns the framing that this wire normally uses for streams.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// Encodes a Call. The result has a Fate for every Item and Seal, and a warning for every
    /// setting that the wire cannot express.
    fn encode(&self, call: &Call) -> Result<EncodedRequest, CodecError>;

    /// Decodes a request addressed to `context.target`. Model output that the request replays is
    /// attributed to `context.target`.
    fn decode_request(
        &self,
        request: &Request,
        context: &DecodeContext,
    ) -> Result<Call, CodecError>;

    /// Decodes a request whose body is already parsed. The default implementation ignores the
    /// parsed body and calls [`Codec::decode_request`].
    fn decode_parsed(
        &self,
        request: &Request,
        _body: &Tree,
        context: &DecodeContext,
    ) -> Result<Call, CodecError> {
        self.decode_request(request, context)
    }

    /// Decodes a complete response to a request that was sent to `context.target`.
    fn decode_reply(&self, body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError>;

    /// Decodes a complete response, but may leave out its Items. Every other field equals that of
    /// [`Codec::decode_reply`].
    fn decode_reply_summary(
        &self,
        body: &Bytes,
        context: &DecodeContext,
    ) -> Result<Reply, CodecError> {
        self.decode_reply(body, context)
    }

    /// Encodes a complete, non-streamed response.
    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError>;

    /// Returns a decoder for one streamed response.
    fn decoder(&self, context: &DecodeContext) -> Box<dyn Decoder>;

    /// Returns an encoder for one streamed response.
    fn encoder(&self) -> Box<dyn Encoder>;

    /// Returns the translator between this wire's native reasoning and typed reasoning elements.
    /// The default reads and writes `reasoning_details`.
    fn reasoning(&self) -> &dyn ReasoningCodec {
        &OpenRouterReasoningCodec
    }

    /// Returns the rules that this wire's providers enforce.
    fn rules(&self) -> &'static [&'static Rule] {
        &[]
    }

    /// Reports each violation of this wire's rules to `findings`.
    fn inspect(&self, _case: &AuditContext<'_>, _findings: &mut Findings<'_>) {}

    /// Returns the path notation that this wire's providers use in errors.
    fn path_style(&self) -> PathStyle {
        PathStyle::Dots
    }

    /// Returns the request members that Seals can be bound to, in the order in which the model
    /// reads them.
    fn prefix_members(&self) -> &'static [&'static str] {
        &[]
    }

    /// Keeps the system prompt and tools of an earlier request, and expresses the changes since
    /// then as messages inside the conversation. `encoded` is the request as `call` would otherwise
    /// be sent. Returns `None` if the wire, the endpoint or the model does not document this form
    /// of the change.
    fn append_changes(
        &self,
        _call: &Call,
        _encoded: &EncodedRequest,
        _signed: &SignedPrefix<'_>,
    ) -> Option<AppendPlan> {
        None
    }
}

/// The part of an exchange that a document represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The request that a client sends to a provider.
    Request,
    /// The complete response to a request, or an error body.
    Response,
    /// One event of a streamed response.
    Event,
}

/// Decodes one streamed response.
pub trait Decoder: Send {
    /// Decodes the next frame and returns the resulting events, possibly none.
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError>;

    /// Ends the stream. If the wire's end marker is missing, the Reply has
    /// [`StopReason::Cut`](throughline_core::StopReason::Cut) and its unfinished Items cannot be
    /// replayed.
    fn finish(&mut self) -> Result<Vec<Event>, CodecError>;
}

/// Encodes one streamed response for a client.
pub trait Encoder: Send {
    /// Encodes one event as zero or more frames.
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError>;
}
