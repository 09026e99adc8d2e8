//! What we ask a model, as a value and as a request.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::fate::{Fate, Warning};
use crate::item::{Item, Native};
use crate::json::Json;
use crate::name::{Digest, Name, Wire};
use crate::origin::Target;
use crate::replay::ReplayPolicy;
use crate::settings::Settings;

/// What we ask a model.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whom we ask.
    pub target: Target,
    /// The system prompt, where the wire keeps it apart from the messages.
    pub system: Vec<Item>,
    /// What the model may use.
    pub tools: Vec<Tool>,
    /// The conversation.
    pub items: Vec<Item>,
    /// Whether the answer should be streamed.
    pub stream: bool,
    /// How to answer.
    pub settings: Settings,
    /// Members of the request that no field above speaks for, verbatim, with the wire that knows them.
    pub extras: Vec<Extra>,
    /// The answer that this Call goes on from, where the provider keeps it (`previous_response_id`).
    pub resumes: Option<Name>,
    /// Which thoughts may be sent, and how.
    pub replay: ReplayPolicy,
    /// The request that the Call was read from. What has not changed since goes out as it came.
    pub source: Option<Arc<Received>>,
}

impl Call {
    /// A Call with nothing in it yet.
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

    /// Adds what was answered, or what is said next: the Items' messages are counted on from the last one here.
    pub fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        let next = self.items.last().map_or(0, |item| item.place.message + 1);
        self.items.extend(items.into_iter().map(|mut item| {
            item.place.message += next;
            item
        }));
    }

    /// The request that it was read from, if that was on this wire.
    pub fn source_on(&self, wire: &Wire) -> Option<&Received> {
        self.source.as_deref().filter(|source| source.wire == *wire)
    }
}

/// A member of a request that only its own wire understands.
#[derive(Clone, Debug, PartialEq)]
pub struct Extra {
    /// The wire that knows it; nothing where the caller added it for whatever wire is used.
    pub wire: Option<Wire>,
    /// The member's name.
    pub key: Name,
    /// Its value.
    pub value: Json,
}

/// What the model may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: Name,
    /// What it does.
    pub description: Option<Name>,
    /// The JSON Schema of its arguments.
    pub schema: Option<Json>,
    /// Whether the provider runs it.
    pub hosted: bool,
    /// What the wire said.
    pub native: Option<Native>,
}

impl Tool {
    /// What the given wire said, if this tool came from it.
    pub fn native_on(&self, wire: &Wire) -> Option<&Native> {
        self.native.as_ref().filter(|native| native.wire == *wire)
    }
}

/// A request: codecs read and write this and never a bare body, because model, stream flag and betas may
/// live in the path and the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The path and query.
    pub path: Name,
    /// The headers that say something about the request: never credentials.
    pub headers: Vec<(Name, Name)>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// The value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }
}

/// A request as it was received, with the places of its body's members.
#[derive(Clone, Debug)]
pub struct Received {
    /// The wire that it was read on.
    pub wire: Wire,
    /// Whom it was meant for.
    pub target: Target,
    /// The request.
    pub request: Request,
    /// The body's members, in order: name and place of the value.
    pub members: Vec<(Name, Range<usize>)>,
    /// What its settings said.
    pub settings: Settings,
}

/// A request made from a Call, with an account of everything that went into it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The request.
    pub request: Request,
    /// What became of every Item and every Seal: the system's, then the conversation's.
    pub fates: Vec<Fate>,
    /// What became of every setting that could not be carried as it was.
    pub warnings: Vec<Warning>,
    /// A digest of everything that the answer will stand behind, where the model binds its seals to it.
    pub prefix: Option<Digest>,
}
