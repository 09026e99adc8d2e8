//! The five wires, each in its provider's own words: what is refused, what is sealed, and how an answer looks.
//!
//! A wire reads the raw JSON of a request strictly, verifies the seals in it with the simulator's own keys, and writes
//! whole answers. Streams are made from whole answers, in `stream.rs`. Nothing here asks a codec whether a request is
//! good: a codec and a simulator that agree have come to it separately.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod claude;
pub(crate) mod converse;
pub(crate) mod gemini;
pub(crate) mod openai;
pub(crate) mod responses;

use throughline_codec::{Codec, Frame, Framing};
use throughline_core::{Json, Provider, Wire};

use crate::digest::Mark;
use crate::ledger::Record;
use crate::turn::{Asking, Plan, Refusal, Turn};
use crate::world::World;

/// The stand-in for the providers of one wire.
pub(crate) trait Endpoint: Sync {
    /// The codec that frames its streams. It is never asked about requests.
    fn codec(&self) -> &'static dyn Codec;

    /// Reads a request, or refuses it: the provider's checks in the provider's order. Every seal that is found is noted in
    /// the record with its verdict.
    fn read(&self, asking: &Asking, world: &World, record: &mut Record) -> Result<Turn, Refusal>;

    /// Writes the whole answer, sealed. Every seal that is issued is noted in the record, and so are readable thoughts and
    /// the ids of calls.
    fn say(
        &self,
        asking: &Asking,
        turn: &Turn,
        plan: &Plan,
        world: &World,
        record: &mut Record,
    ) -> Json;

    /// The answer to a request for the number of tokens.
    fn count(&self, turn: &Turn) -> Json;

    /// The body of a refusal.
    fn refuse(&self, row: &Provider, refusal: &Refusal, request_id: &str) -> Json;

    /// The list of models, or what is known of the one asked for; nothing where there is no such model.
    fn models(&self, world: &World, model: Option<&str>) -> Option<Json>;

    /// The header in which the request's id is told, and an id of its form.
    fn request_id(&self, nonce: Mark) -> (&'static str, String);

    /// How a stream that is asked for like this is framed.
    fn framing(&self, _: &Asking) -> Framing {
        self.codec().framing()
    }

    /// What more is to be told by headers when a request is refused.
    fn refusal_headers(&self, _: &Refusal) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Mends the frames of a stream where the provider tells more than the codec's events hold. `whole` is the same answer
    /// as `say` wrote it.
    fn dress(&self, frames: Vec<Frame>, _whole: &Json) -> Vec<Frame> {
        frames
    }
}

/// The stand-ins of all wires.
static ENDPOINTS: [&dyn Endpoint; 5] = [
    &anthropic::Anthropic,
    &responses::Responses,
    &gemini::Gemini,
    &converse::Converse,
    &chat::Chat,
];

/// The stand-in of a wire.
pub(crate) fn endpoint(wire: &Wire) -> Option<&'static dyn Endpoint> {
    ENDPOINTS.into_iter().find(|endpoint| endpoint.codec().wire() == *wire)
}
