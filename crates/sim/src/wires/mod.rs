//! The five wires, each with its request checks, Seals and response format.
//!
//! A wire strictly parses the raw JSON of a request, verifies its Seals with the simulator's keys,
//! and writes complete responses. `stream.rs` converts complete responses into streams. Request
//! checks never use a codec, so tests of a codec against the simulator compare independent
//! implementations.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod claude;
pub(crate) mod converse;
pub(crate) mod gemini;
pub(crate) mod openai;
pub(crate) mod responses;

use std::borrow::Cow;

use serde_json::{Value, json};
use throughline_codec::{Codec, Frame, Framing};
use throughline_core::{Provider, Wire};
use throughline_json::Node;

use crate::digest::Digest;
use crate::keys::{SealClaims, SealFormat};
use crate::ledger::EntryBuilder;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, SimRequest, Turn};

/// A request, the state of the simulator, and the request's ledger entry.
pub(crate) struct Exchange<'a> {
    pub(crate) request: &'a SimRequest,
    pub(crate) state: &'a SimState,
    pub(crate) record: &'a mut EntryBuilder,
}

impl Exchange<'_> {
    fn new_turn(&self) -> Turn {
        let SimRequest { row, model, account, .. } = self.request;
        Turn::new(self.state.catalog.current().target(row, model, &account.hex(8)))
    }

    /// Creates the claims for a Seal in the reply to this request.
    fn claims(&self, turn: &Turn, kind: &str) -> SealClaims {
        SealClaims {
            kind: kind.to_owned(),
            row: self.request.row.name.to_string(),
            family: turn.target.profile.name.clone(),
            account: self.request.account,
            reply: self.request.nonce,
            count: 1,
            ..SealClaims::default()
        }
    }

    /// Creates a Seal and records it as issued.
    fn seal(&mut self, signer: &str, format: SealFormat, claims: &SealClaims) -> String {
        let seal = self.state.keys.seal(signer, format, claims);
        self.record.issue(&seal, &claims.kind);
        seal
    }
}

/// Simulates all providers of one wire.
pub(crate) struct Endpoint {
    /// Codec that encodes streams. Request checks do not use the codec.
    pub(crate) codec: &'static dyn Codec,
    /// Reads or rejects a request. Runs the provider's checks in the order in which the provider
    /// runs them. Records the verdict on every Seal in the request.
    pub(crate) read: fn(&mut Exchange<'_>) -> Result<Turn, Refusal>,
    /// Writes the complete response. Records all issued Seals, readable thoughts and call ids.
    pub(crate) respond: fn(&mut Exchange<'_>, &Turn, &ReplyPlan) -> Value,
    /// Writes the response with the number of input tokens.
    pub(crate) count: fn(u64) -> Value,
    /// Writes the body of an error response; the last argument is the request id.
    pub(crate) refuse: fn(&Provider, &Refusal, &str) -> Value,
    /// Returns the list of models, or a single model; `None` if the model is unknown.
    pub(crate) models: fn(&SimState, Option<&str>) -> Option<Value>,
    /// Returns the name of the request id header, and an id in the provider's format.
    pub(crate) request_id: fn(Digest) -> (&'static str, String),
    /// Returns the stream framing for the response to a request.
    pub(crate) framing: fn(&SimRequest) -> Framing,
    /// Returns an additional header for an error response, if the provider sends one.
    pub(crate) error_header: fn(&Refusal) -> Option<(&'static str, String)>,
    /// Adds provider-specific members that the codec does not write to stream events. The complete
    /// response supplies the values.
    pub(crate) decorate: fn(Vec<Frame>, &Value) -> Vec<Frame>,
}

static ENDPOINTS: [&Endpoint; 5] = [
    &anthropic::ENDPOINT,
    &responses::ENDPOINT,
    &gemini::ENDPOINT,
    &converse::ENDPOINT,
    &chat::ENDPOINT,
];

pub(crate) fn endpoint(wire: &Wire) -> Option<&'static Endpoint> {
    ENDPOINTS.into_iter().find(|endpoint| endpoint.codec.wire() == *wire)
}

/// Iterates over the elements of an array member; empty if the member is missing.
fn list<'t>(node: Node<'t>, key: &str) -> impl Iterator<Item = Node<'t>> + use<'t> {
    node.get(key).into_iter().flat_map(Node::elements)
}

fn string(node: Node<'_>, key: &str) -> Option<String> {
    node.text_of(key).map(Cow::into_owned)
}

/// Returns whether the member `key` equals the string `value`.
fn member_is(node: Node<'_>, key: &str, value: &str) -> bool {
    node.get(key).is_some_and(|member| member.is(value))
}

fn is_true(node: Node<'_>, key: &str) -> bool {
    node.get(key).and_then(Node::bool) == Some(true)
}

/// Converts a node to a JSON value; `None` if the node is nested too deeply.
fn parsed(node: Node<'_>) -> Option<Value> {
    serde_json::from_slice(node.raw()).ok()
}

/// Converts a node to a JSON value; `null` if the node is nested too deeply.
fn value(node: Node<'_>) -> Value {
    parsed(node).unwrap_or_default()
}

/// Returns the schema of a tool without parameters.
fn empty_schema() -> Value {
    json!({"type": "object", "properties": {}})
}

fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value.into());
    }
}

/// Edits the JSON of a frame. The frame stays byte-identical if it is not JSON or if `edit` returns
/// `None`.
fn edit_frame(frame: Frame, edit: impl FnOnce(&mut Value) -> Option<()>) -> Frame {
    let Ok(mut event) = serde_json::from_slice::<Value>(&frame.data) else { return frame };
    if edit(&mut event).is_none() {
        return frame;
    }
    Frame { data: event.to_string().into(), ..frame }
}
