//! One part of one message. Conversations are flat Item lists, because providers sign individual
//! parts. Each Item stores the index of its message.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Json, Label, Name, words};

use crate::identity::Identity;
use crate::name::{CallId, Digest, ItemId, Wire};
use crate::origin::Origin;
use crate::seal::Seal;
use crate::thought::Thought;

/// One part of one message. Items are identified by id and position, never by content, because two
/// Items may have equal content.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The id, unique within the Thread.
    pub id: ItemId,
    /// The position as message index and part index.
    pub place: ItemPosition,
    /// The role that the Item is sent with, such as user or assistant.
    pub role: Role,
    /// The kind of Item and its content.
    pub body: Body,
    /// The Seals issued by the provider. Any kind of Item may carry any number of Seals.
    pub seals: Vec<Seal>,
    /// The part as received, verbatim; `None` if Throughline created the Item.
    pub native: Option<NativePart>,
    /// The model that produced the Item; `None` if the caller supplied it.
    pub origin: Option<Arc<Origin>>,
    /// The agent whose model produced the Item. `None` for Thoughts, which have their own identity.
    /// Also `None` for Items that no agent produced or that were stored before authors were
    /// recorded.
    pub author: Option<Arc<Identity>>,
    /// Whether the Item is ephemeral: sent to the model and logged, but not stored in the Thread.
    pub ephemeral: bool,
}

impl Item {
    /// Creates an Item that was not decoded from a wire: no native part, Seals, origin or author.
    pub fn new(id: impl Into<ItemId>, place: ItemPosition, role: Role, body: Body) -> Self {
        let (seals, native, origin, author) = (Vec::new(), None, None, None);
        Self { id: id.into(), place, role, body, seals, native, origin, author, ephemeral: false }
    }

    /// Replaces the content and removes the received part and the Seals, which no longer match it.
    pub fn replace_body(&mut self, body: Body) {
        self.body = body;
        self.native = None;
        self.seals.clear();
    }

    /// Marks the Item as truncated by an interrupted stream. It stays readable but is never
    /// replayed.
    pub fn mark_truncated(&mut self) {
        if let Body::Thought(thought) = &mut self.body {
            thought.whole = false;
        }
        if !self.seals.is_empty() {
            self.seals.clear();
            self.native = None;
        }
    }

    /// Calls `change` with every text of the Item that may be a slice of a larger buffer, except
    /// its envelope, which several Items share.
    pub fn for_each_slice(&mut self, change: &mut dyn FnMut(&mut Bytes)) {
        self.body.for_each_slice(change);
        if let Some(native) = &mut self.native {
            change_json(&mut native.json, change);
        }
        for seal in &mut self.seals {
            change(seal.bytes_mut());
        }
    }

    /// Returns the tool call; `None` for every other kind of Item.
    pub fn call(&self) -> Option<&ToolCall> {
        if let Body::Call(call) = &self.body { Some(call) } else { None }
    }

    /// Returns the part as received, if the Item came from the given wire.
    pub fn native_on(&self, wire: &Wire) -> Option<&NativePart> {
        self.native.as_ref().filter(|native| native.wire == *wire)
    }

    /// Returns the readable text of a text, Thought, summary or provider-run step; `None` for other
    /// Items.
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

/// Calls `change` with the text of a JSON value.
fn change_json(json: &mut Json, change: &mut dyn FnMut(&mut Bytes)) {
    let mut bytes = json.bytes().clone();
    change(&mut bytes);
    *json = Json::from_trusted(bytes);
}

/// The position of an Item in a request or reply: its message, and its part within that message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemPosition {
    /// The message index, from 0.
    pub message: u32,
    /// The part index within the message, from 0.
    pub part: u32,
}

impl ItemPosition {
    /// Creates a position. Indexes above `u32::MAX` saturate.
    pub fn new(message: usize, part: usize) -> Self {
        let narrow = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Self { message: narrow(message), part: narrow(part) }
    }
}

words! {
    /// The role that a message is sent with.
    Role {
        /// System instructions.
        System = "system",
        /// OpenAI's developer role, ranked between system and user.
        Developer = "developer",
        /// Input from the user.
        User = "user",
        /// Output from the model.
        Assistant = "assistant",
        /// The result of a tool call, to be sent to the model.
        Tool = "tool",
    }

    /// The outcome of a tool call.
    Outcome {
        /// The call succeeded.
        Ok = "ok",
        /// The call failed with an error message.
        Error = "error",
        /// The outcome was lost in a crash.
        Unknown = "unknown",
        /// A person or a policy denied the call.
        Denied = "denied",
    }
}

/// The kind of an Item and its content.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Plain text.
    Text(Arc<str>),
    /// An image, document or audio clip.
    Media(Media),
    /// The model's reasoning.
    Thought(Thought),
    /// A tool call that the model requested.
    Call(ToolCall),
    /// The result of a tool call, to be sent to the model.
    Result(ToolResult),
    /// A step that the provider ran: a web search, code execution, or an MCP call.
    Hosted(HostedStep),
    /// The provider's own compaction; its content is sealed.
    Compaction,
    /// A summary of earlier Items, created by Throughline.
    Summary {
        /// The summary as sent to the model.
        text: Arc<str>,
        /// The sequence numbers of the summarized Items.
        covers: Range<u64>,
    },
    /// Content of an unknown kind; only `native` describes it.
    Unknown,
}

impl Body {
    /// Returns a copy that owns its memory. The original may be a slice that keeps a whole request
    /// body allocated.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut body = self.clone();
        body.for_each_slice(&mut |slice| *slice = Bytes::copy_from_slice(slice));
        body
    }

    /// Calls `change` with every text that may be a slice of a larger buffer.
    fn for_each_slice(&mut self, change: &mut dyn FnMut(&mut Bytes)) {
        use Body::{Compaction, Hosted, Summary, Text, Unknown};
        match self {
            Body::Media(media) => media.for_each_slice(change),
            Body::Call(call) => change_json(&mut call.args, change),
            Body::Result(result) => {
                result.parts.iter_mut().for_each(|part| part.for_each_slice(change));
            }
            Body::Thought(thought) => {
                if let Some(payload) = &mut thought.payload {
                    change_json(payload, change);
                }
            }
            Text(_) | Hosted(_) | Compaction | Summary { .. } | Unknown => {}
        }
    }
}

/// A tool call that the model requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Throughline's id, unique in the Thread.
    pub id: CallId,
    /// The wire's id for the call, if any; not always unique.
    pub wire_id: Option<Name>,
    /// The name of the tool that the model called.
    pub name: Name,
    /// The arguments: an object, or a string if `custom` is set.
    pub args: Json,
    /// Whether the arguments are free text instead of an object.
    pub custom: bool,
}

/// The result of a tool call, to be sent to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the call that produced the result.
    pub call: CallId,
    /// The wire's id for that call, if any.
    pub wire_id: Option<Name>,
    /// The tool name, if the wire includes it.
    pub name: Option<Name>,
    /// Whether the call succeeded, failed, was denied, or has an unknown outcome.
    pub outcome: Outcome,
    /// The output of the tool, in order.
    pub parts: Vec<Part>,
}

/// One part of a tool result.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Plain text.
    Text(Arc<str>),
    /// A JSON value, for wires with structured results.
    Value(Json),
    /// An image or document.
    Media(Media),
    /// Content of an unknown kind, with the wire that defines it.
    Unknown(Wire, Json),
}

impl Part {
    fn for_each_slice(&mut self, change: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Part::Text(_) => {}
            Part::Value(json) | Part::Unknown(_, json) => change_json(json, change),
            Part::Media(media) => media.for_each_slice(change),
        }
    }
}

/// A step that the provider ran itself, such as a web search, or the result of such a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedStep {
    /// The tool name, such as `web_search`.
    pub name: Name,
    /// The wire id that a step and its result share.
    pub pairs: Option<Name>,
    /// Whether this Item is the result of the step.
    pub is_result: bool,
    /// The readable text of the step; may be empty.
    pub visible: Arc<str>,
}

/// An image, document or audio clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// Inline content, as the base64 text from the wire.
    Inline {
        /// The media type, such as `image/png`.
        mime: Name,
        /// The base64 text, without decoding.
        base64: Bytes,
    },
    /// Remote content: a web address, or a file stored at one provider.
    Remote {
        /// The media type, if it was specified.
        mime: Option<Name>,
        /// The address or file id.
        uri: Name,
        /// The provider that stores the file; `None` for a web address.
        owner: Option<Arc<Origin>>,
    },
}

impl Media {
    fn for_each_slice(&mut self, change: &mut dyn FnMut(&mut Bytes)) {
        if let Media::Inline { base64, .. } = self {
            change(base64);
        }
    }

    /// Returns the digest of the base64 text or the address, for comparing media without storing
    /// it.
    pub fn digest(&self) -> Digest {
        match self {
            Media::Inline { base64, .. } => *blake3::hash(base64).as_bytes(),
            Media::Remote { uri, .. } => *blake3::hash(uri.as_bytes()).as_bytes(),
        }
    }
}

/// A message part exactly as received on a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct NativePart {
    /// The wire that defines the format of `json`.
    pub wire: Wire,
    /// Whether the part came from a request or from a response.
    pub side: Direction,
    /// The wire's id for the part, if any.
    pub id: Option<Name>,
    /// The JSON of the part, verbatim.
    pub json: Json,
    /// Whether `json` was assembled from stream fragments.
    pub assembled: bool,
    /// The member of the message that contained the part, on wires whose messages have several part
    /// lists.
    pub slot: Label,
    /// The message that contained the part, if it is known.
    pub envelope: Option<Arc<Envelope>>,
}

impl NativePart {
    /// Creates a part that was received whole, without id, slot or envelope.
    pub fn new(wire: Wire, side: Direction, json: Json) -> Self {
        let slot = Label::Borrowed("");
        Self { wire, side, id: None, json, assembled: false, slot, envelope: None }
    }
}

/// Whether a part was sent to a model or by a model. A response part must be converted to its
/// request form before it can be part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The part was in a request to a model.
    Request,
    /// The part was in a model's response.
    Response,
}

/// A message as received, shared by the Items decoded from it. If all these Items are present and
/// unchanged, the message is sent verbatim.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The JSON of the message, verbatim.
    pub json: Json,
    /// The number of Items decoded from the message.
    pub parts: usize,
}

impl ItemId {
    /// Builds an id from a position: `2.0` in a request, or `REPLY.2.0` if `reply` is the id of the
    /// reply that contains the Item.
    pub fn from_position(reply: &str, place: ItemPosition) -> Self {
        let ItemPosition { message, part } = place;
        let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (message, part) = (first.format(message), second.format(part));
        if !reply.is_empty() {
            return Self::from([reply, ".", message, ".", part].concat());
        }
        // Every Item of every request needs an id, so the id is joined on the stack. Two 32-bit
        // numbers and a dot always fit into 24 bytes.
        let (mut text, mut length) = ([0; 24], 0);
        for piece in [message, ".", part] {
            if let Some(place) = text.get_mut(length..length + piece.len()) {
                place.copy_from_slice(piece.as_bytes());
                length += piece.len();
            }
        }
        let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
        Self(Name::from(text.unwrap_or_default()))
    }
}
