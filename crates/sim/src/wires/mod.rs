//! The five wires: request checks, Seals and response formats of each provider.
//!
//! A wire reads the raw JSON of a request strictly, verifies its Seals with the simulator's keys,
//! and writes whole responses. `stream.rs` converts these into streams. Request checks never use a
//! codec, so simulator and codec verify each other independently.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod claude;
pub(crate) mod converse;
pub(crate) mod gemini;
pub(crate) mod openai;
pub(crate) mod responses;

use throughline_codec::{Codec, Frame, Framing};
use throughline_core::{Provider, Wire};
use throughline_json::Json;

use crate::digest::Digest;
use crate::ledger::EntryBuilder;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, SimRequest, Turn};

/// One request, the simulator that receives it, and its entry in the ledger.
pub(crate) struct Exchange<'a> {
    pub(crate) asking: &'a SimRequest,
    pub(crate) world: &'a SimState,
    pub(crate) record: &'a mut EntryBuilder,
}

/// Simulates the providers of one wire.
pub(crate) trait Endpoint: Sync {
    /// Returns the codec that encodes the streams; it never checks requests.
    fn codec(&self) -> &'static dyn Codec;

    /// Reads a request or rejects it, with the provider's checks in the provider's order. Records
    /// every Seal of the request with its verdict.
    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal>;

    /// Writes the whole, sealed response. Records every issued Seal, readable thought and call id.
    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json;

    /// Writes the response to a request for the number of tokens.
    fn count(&self, turn: &Turn) -> Json;

    /// Writes the body of an error response.
    fn refuse(&self, row: &Provider, refusal: &Refusal, request_id: &str) -> Json;

    /// Returns the list of models or one model; `None` if the model is unknown.
    fn models(&self, world: &SimState, model: Option<&str>) -> Option<Json>;

    /// Returns the name of the request id header and an id in the provider's format.
    fn request_id(&self, nonce: Digest) -> (&'static str, String);

    /// Returns the framing of the stream for a request.
    fn framing(&self, _: &SimRequest) -> Framing {
        self.codec().framing()
    }

    /// Returns additional headers of an error response.
    fn refusal_headers(&self, _: &Refusal) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Adds provider-specific members that the codec's events do not contain. `whole` is the
    /// response that `respond` wrote.
    fn dress(&self, frames: Vec<Frame>, _whole: &Json) -> Vec<Frame> {
        frames
    }
}

static ENDPOINTS: [&dyn Endpoint; 5] = [
    &anthropic::Anthropic,
    &responses::Responses,
    &gemini::Gemini,
    &converse::Converse,
    &chat::Chat,
];

/// Returns the simulator of a wire.
pub(crate) fn endpoint(wire: &Wire) -> Option<&'static dyn Endpoint> {
    ENDPOINTS.into_iter().find(|endpoint| endpoint.codec().wire() == *wire)
}
