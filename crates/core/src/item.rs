//! One part of one message. Flat: message borders are data on the Item, because signatures sit on parts.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::identity::Identity;
use crate::json::Json;
use crate::name::{CallId, Digest, ItemId, Label, Name, Wire};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::thought::Thought;

/// One part of one message. What it *is* is its place and id; its content may equal another's.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Identifies it within its Thread.
    pub id: ItemId,
    /// Which message, and which part of it.
    pub place: Place,
    /// Who speaks.
    pub role: Role,
    /// What it says.
    pub body: Body,
    /// What the provider sealed. Any kind of Item may carry any number of them.
    pub seals: Vec<Seal>,
    /// What the wire said, verbatim; nothing where we made the Item.
    pub native: Option<Native>,
    /// Who made it; nothing where the caller did.
    pub origin: Option<Arc<Origin>>,
    /// The agent whose model answered with it. A Thought has an identity of its own instead. Items that no agent's model
    /// produced have none, nor have those that were stored before authors were recorded.
    pub author: Option<Arc<Identity>>,
    /// Seen by the model and by every log, never kept in the Thread.
    pub ephemeral: bool,
}

impl Item {
    /// An Item that we or the caller made.
    pub fn new(id: impl Into<ItemId>, place: Place, role: Role, body: Body) -> Self {
        let (seals, native, origin, author) = (Vec::new(), None, None, None);
        Self { id: id.into(), place, role, body, seals, native, origin, author, ephemeral: false }
    }

    /// Says something else. What the wire said is then no longer what this Item is, and its Seals seal nothing.
    pub fn rewrite(&mut self, body: Body) {
        self.body = body;
        self.native = None;
        self.seals.clear();
    }

    /// Notes that the stream was cut: what came can be read, and can never be replayed.
    pub fn cut_off(&mut self) {
        if let Body::Thought(thought) = &mut self.body {
            thought.whole = false;
        }
        if !self.seals.is_empty() {
            self.seals.clear();
            self.native = None;
        }
    }

    /// The call that it is, if it is one.
    pub fn call(&self) -> Option<&ToolCall> {
        match &self.body {
            Body::Call(call) => Some(call),
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => None,
        }
    }

    /// What the given wire said, if this Item came from it.
    pub fn native_on(&self, wire: &Wire) -> Option<&Native> {
        self.native.as_ref().filter(|native| native.wire == *wire)
    }

    /// The readable text of a text, thought or summary.
    pub fn visible(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) | Body::Summary { text, .. } => Some(text),
            Body::Thought(thought) => Some(&thought.content),
            Body::Hosted(hosted) => Some(&hosted.visible),
            Body::Media(_) | Body::Call(_) | Body::Result(_) | Body::Compaction | Body::Unknown => {
                None
            }
        }
    }
}

/// Which message of a request or reply, and which part of that message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The message, counted from 0.
    pub message: u32,
    /// The part of the message, counted from 0.
    pub part: u32,
}

impl Place {
    /// That part of that message.
    pub fn new(message: usize, part: usize) -> Self {
        let narrow = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Self { message: narrow(message), part: narrow(part) }
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The system prompt.
    System,
    /// OpenAI's developer, between system and user.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// What an Item says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Plain text.
    Text(Arc<str>),
    /// A picture, a document, a sound.
    Media(Media),
    /// Reasoning.
    Thought(Thought),
    /// The model asks for a tool.
    Call(ToolCall),
    /// A tool's answer.
    Result(ToolResult),
    /// A step that the provider ran itself: a web search, code execution, a call to an MCP server.
    Hosted(Hosted),
    /// The provider's own compaction; its content is sealed.
    Compaction,
    /// Our summary of earlier Items.
    Summary {
        /// The summary.
        text: Arc<str>,
        /// The sequence numbers that it covers.
        covers: Range<u64>,
    },
    /// Something we do not know. `native` is all there is.
    Unknown,
}

impl Body {
    /// The same in memory of its own: of a longer text that it was cut from it holds nothing more.
    #[must_use]
    pub fn detached(&self) -> Self {
        match self {
            Body::Media(media) => Body::Media(media.detached()),
            Body::Call(ToolCall { id, wire_id, name, args, custom }) => Body::Call(ToolCall {
                id: id.clone(),
                wire_id: wire_id.clone(),
                name: Arc::clone(name),
                args: args.detached(),
                custom: *custom,
            }),
            Body::Result(ToolResult { call, wire_id, name, outcome, parts }) => {
                Body::Result(ToolResult {
                    call: call.clone(),
                    wire_id: wire_id.clone(),
                    name: name.clone(),
                    outcome: *outcome,
                    parts: parts.iter().map(Part::detached).collect(),
                })
            }
            Body::Thought(thought) => {
                let payload = thought.payload.as_ref().map(Json::detached);
                Body::Thought(Thought { payload, ..thought.clone() })
            }
            Body::Text(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => self.clone(),
        }
    }
}

/// The model asks for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Our own id, unique in the Thread.
    pub id: CallId,
    /// The id that the wire gave it, if any; not always unique.
    pub wire_id: Option<Name>,
    /// The tool.
    pub name: Name,
    /// The arguments: an object, or a string where `custom`.
    pub args: Json,
    /// Whether the arguments are free text instead of an object.
    pub custom: bool,
}

/// A tool's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The call that it answers.
    pub call: CallId,
    /// The id by which the wire names that call, if any.
    pub wire_id: Option<Name>,
    /// The tool, where the wire says it.
    pub name: Option<Name>,
    /// How it went.
    pub outcome: Outcome,
    /// What it says: texts, media and values.
    pub parts: Vec<Part>,
}

/// One piece of a tool's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Plain text.
    Text(Arc<str>),
    /// A JSON value, where the wire has structured results.
    Value(Json),
    /// A picture or document.
    Media(Media),
    /// Something we do not know, with the wire that wrote it.
    Unknown(Wire, Json),
}

impl Part {
    fn detached(&self) -> Self {
        match self {
            Part::Text(_) => self.clone(),
            Part::Value(json) => Part::Value(json.detached()),
            Part::Media(media) => Part::Media(media.detached()),
            Part::Unknown(wire, json) => Part::Unknown(wire.clone(), json.detached()),
        }
    }
}

/// How a tool call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It worked.
    Ok,
    /// It failed and says why.
    Error,
    /// A crash hid how it ended.
    Unknown,
    /// A person or a policy said no.
    Denied,
}

/// A step that the provider ran itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// The tool, as `web_search`.
    pub name: Name,
    /// The id that joins the step and its result.
    pub pairs: Option<Name>,
    /// Whether this is the result of the step.
    pub is_result: bool,
    /// What can be read of it.
    pub visible: Arc<str>,
}

/// A picture, a document, a sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// The bytes themselves, in the base64 text that the wire used.
    Inline {
        /// The media type, as `image/png`.
        mime: Name,
        /// The base64 text.
        base64: Bytes,
    },
    /// Somewhere else: a web address, or a file at one provider.
    Remote {
        /// The media type, where it was said.
        mime: Option<Name>,
        /// The address or file id.
        uri: Name,
        /// The provider whose file it is; nothing for a web address.
        owner: Option<Arc<Origin>>,
    },
}

impl Media {
    fn detached(&self) -> Self {
        match self {
            Media::Inline { mime, base64 } => {
                let base64 = Bytes::copy_from_slice(base64);
                Media::Inline { mime: Arc::clone(mime), base64 }
            }
            Media::Remote { .. } => self.clone(),
        }
    }

    /// A digest of what it shows, for comparing without the bytes.
    pub fn digest(&self) -> Digest {
        match self {
            Media::Inline { base64, .. } => *blake3::hash(base64).as_bytes(),
            Media::Remote { uri, .. } => *blake3::hash(uri.as_bytes()).as_bytes(),
        }
    }
}

/// What the wire said.
#[derive(Clone, Debug, PartialEq)]
pub struct Native {
    /// The wire.
    pub wire: Wire,
    /// Whether it was said to a model or by one.
    pub side: Side,
    /// The id that the wire gave the part, if any.
    pub id: Option<Name>,
    /// The part itself.
    pub json: Json,
    /// Whether we wrote `json` once from the fragments of a stream.
    pub assembled: bool,
    /// Where in its message it stood, on wires whose messages have more than one list of parts.
    pub slot: Label,
    /// The message that it was cut from.
    pub envelope: Option<Arc<Envelope>>,
}

impl Native {
    /// A part that came whole.
    pub fn new(wire: Wire, side: Side, json: Json) -> Self {
        let slot = Label::Borrowed("");
        Self { wire, side, id: None, json, assembled: false, slot, envelope: None }
    }
}

/// Whether something was said to a model or by one. What a model said must pass the wire's input projection
/// before it can be said back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// To a model.
    Request,
    /// By a model.
    Response,
}

/// A message as it came, shared by the Items that were cut from it. While all of them are there and none has
/// changed, the message goes out as these bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The whole message.
    pub json: Json,
    /// How many Items were cut from it.
    pub parts: usize,
}
