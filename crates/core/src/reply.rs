//! Model responses: final replies and streaming events.

use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Json, Name};

use crate::item::{Body, Item};
use crate::origin::Origin;

/// The final response of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The provider's response id.
    pub id: Option<Name>,
    /// The content.
    pub items: Vec<Item>,
    /// Why the response ended.
    pub stop: StopReason,
    /// Token usage.
    pub usage: Usage,
    /// The model and endpoint that answered.
    pub origin: Arc<Origin>,
    /// All other members of the response, verbatim and with their wire names.
    pub extras: Vec<(Name, Json)>,
}

/// Why a response ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The model finished.
    Done,
    /// The model waits for tool results.
    Tools,
    /// The token limit was reached.
    Length,
    /// A stop sequence was generated.
    Sequence(Option<Name>),
    /// The provider paused a long turn, which the client can continue.
    Paused,
    /// The model refused, for this reason.
    Refused(Name),
    /// The stream ended early; nothing in it can be replayed.
    Cut,
    /// Another reason, in the provider's terms.
    Other(Name),
}

/// Token usage of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens, including cached ones.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub written: u64,
    /// All output tokens, including reasoning.
    pub output: u64,
    /// Reasoning tokens.
    pub thought: u64,
}

impl Usage {
    /// Returns the input tokens that were neither read from nor written to a cache.
    pub fn uncached_input(&self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_sub(self.written)
    }

    /// Returns the sum of input and output tokens.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// An event of a streaming response.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The response started.
    Began {
        /// The response id, if the wire sends it at the start.
        id: Option<Name>,
        /// The model and endpoint that answer.
        origin: Arc<Origin>,
    },
    /// An Item started.
    Opened {
        /// The index of the Item in the response, from 0.
        index: u32,
        /// The wire's id of the part, if it is sent at the start. Parts of one message may share an
        /// id.
        id: Option<Name>,
        /// The content known so far: kind, names and ids.
        body: Body,
    },
    /// An Item grew.
    Delta {
        /// The index of the Item in the response.
        index: u32,
        /// The added content.
        delta: Delta,
    },
    /// An Item is complete. Seals appear only here.
    Closed {
        /// The index of the Item in the response.
        index: u32,
        /// The complete Item.
        item: Box<Item>,
    },
    /// Token usage so far.
    Usage(Usage),
    /// The response is complete.
    Ended(Box<Reply>),
    /// The provider reported an error.
    Failed(Failure),
    /// An unknown frame, verbatim.
    Alien(Json),
}

/// An addition to an Item.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text.
    Text(Arc<str>),
    /// Readable reasoning.
    Thought(Arc<str>),
    /// A fragment of the arguments' JSON text.
    Args(Arc<str>),
    /// A value at a path in the arguments.
    ArgsAt {
        /// The path as a `JSONPath`.
        path: Name,
        /// The value, or a fragment of a string.
        value: Json,
    },
}

/// An error that the provider reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status, if there is one.
    pub status: Option<u16>,
    /// The provider's error type.
    pub kind: Option<Name>,
    /// The provider's error message.
    pub message: Name,
    /// The response body, verbatim.
    pub body: Bytes,
}
