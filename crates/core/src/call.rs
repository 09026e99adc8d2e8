//! A model request, as a value and as an HTTP request.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Json, Name};

use crate::fate::{Fate, Warning};
use crate::item::{Item, NativePart};
use crate::name::{Digest, Wire};
use crate::origin::Target;
use crate::replay::ReplayPolicy;
use crate::settings::Settings;

/// A model request, independent of any wire. A codec encodes it as an HTTP request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The model and endpoint to call.
    pub target: Target,
    /// The system prompt, if the wire separates the system prompt from the messages.
    pub system: Vec<Item>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// The Items of the conversation, oldest first.
    pub items: Vec<Item>,
    /// Whether to stream the response.
    pub stream: bool,
    /// Sampling, reasoning and output settings.
    pub settings: Settings,
    /// Request members that have no field of their own, verbatim, with the wire that defines them.
    pub extras: Vec<Extra>,
    /// The id of the stored response that this Call continues (`previous_response_id`).
    pub resumes: Option<Name>,
    /// Which Thoughts may be sent, and in which form.
    pub replay: ReplayPolicy,
    /// The request that the Call was decoded from. Unchanged parts are sent verbatim.
    pub source: Option<Arc<ReceivedRequest>>,
}

impl Call {
    /// Creates a Call without Items, tools or settings, which does not stream.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            system: Vec::new(),
            tools: Vec::new(),
            items: Vec::new(),
            stream: false,
            settings: Settings::default(),
            extras: Vec::new(),
            resumes: None,
            replay: ReplayPolicy::default(),
            source: None,
        }
    }

    /// Appends Items. Their message numbers continue after the last message of the Call.
    pub fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        let next = self.items.last().map_or(0, |item| item.place.message + 1);
        self.items.extend(items.into_iter().map(|mut item| {
            item.place.message += next;
            item
        }));
    }

    /// Returns the request that the Call was decoded from, if it used this wire.
    pub fn source_on(&self, wire: &Wire) -> Option<&ReceivedRequest> {
        self.source.as_deref().filter(|source| source.wire == *wire)
    }
}

/// A request member that only one wire defines.
#[derive(Clone, Debug, PartialEq)]
pub struct Extra {
    /// The wire that defines the member; `None` if the caller added it for any wire.
    pub wire: Option<Wire>,
    /// The member name in the JSON request body.
    pub key: Name,
    /// The member value, verbatim.
    pub value: Json,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The name that the model uses to call the tool.
    pub name: Name,
    /// The description shown to the model.
    pub description: Option<Name>,
    /// The JSON Schema for the arguments; `None` for tools without a schema, such as hosted tools.
    pub schema: Option<Json>,
    /// Whether the provider runs the tool itself, as it does for its web search.
    pub hosted: bool,
    /// The verbatim tool definition; `None` if the caller built the tool from the other fields.
    pub native: Option<NativePart>,
}

impl Tool {
    /// Returns the definition as received, if the tool came from the given wire.
    pub fn native_on(&self, wire: &Wire) -> Option<&NativePart> {
        self.native.as_ref().filter(|native| native.wire == *wire)
    }
}

/// An HTTP request to a model API. Codecs need the path and headers as well as the body, because
/// some wires put the model, the stream flag or beta flags there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The URL path and query, without scheme and host.
    pub path: Name,
    /// The headers that affect how the provider processes the request; never credentials.
    pub headers: Vec<(Name, Name)>,
    /// The request body, usually JSON.
    pub body: Bytes,
}

impl Request {
    /// Returns the value of a header; the name is case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }
}

/// A received request, with the byte ranges of its body members.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The wire on which the request was received.
    pub wire: Wire,
    /// The model and endpoint that the client requested.
    pub target: Target,
    /// The request as received, with its original body bytes.
    pub request: Request,
    /// The body members in order: name and byte range of the value.
    pub members: Vec<(Name, Range<usize>)>,
    /// The settings that were decoded from the request.
    pub settings: Settings,
}

/// A request encoded from a Call, with a report on each Item, Seal and changed setting.
#[derive(Clone, Debug)]
pub struct EncodedRequest {
    /// The HTTP request, ready to be sent.
    pub request: Request,
    /// The Fate of every Item and Seal: first the system prompt, then the conversation.
    pub fates: Vec<Fate>,
    /// One warning for each setting that could not be sent unchanged.
    pub warnings: Vec<Warning>,
    /// The digest of everything that precedes the reply; `None` if the model does not bind Seals to
    /// their prefix.
    pub prefix: Option<Digest>,
}
