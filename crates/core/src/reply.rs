//! Model responses: final replies and streaming events.

use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Json, Name};

use crate::item::{Body, Item};
use crate::origin::Origin;

/// A model's complete response.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The provider's response id.
    pub id: Option<Name>,
    /// The Items of the response, in order.
    pub items: Vec<Item>,
    /// The reason why the response ended.
    pub stop: StopReason,
    /// The token usage of the whole response.
    pub usage: Usage,
    /// The model and endpoint that produced the response.
    pub origin: Arc<Origin>,
    /// All other members of the response, verbatim and with their wire names.
    pub extras: Vec<(Name, Json)>,
}

/// The reason why a response ended.
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
    /// The model refused to answer. Contains the reason.
    Refused(Name),
    /// The stream ended before the response was complete. Its content cannot be replayed.
    Cut,
    /// Any other reason, with the provider's name for it.
    Other(Name),
}

/// The token usage of one response, as reported by the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input tokens, including cached tokens.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub written: u64,
    /// All output tokens, including reasoning.
    pub output: u64,
    /// Output tokens that were spent on reasoning.
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
    /// The model started to respond.
    Began {
        /// The response id, if the wire sends it at the start.
        id: Option<Name>,
        /// The model and endpoint that produce the response.
        origin: Arc<Origin>,
    },
    /// A new Item started in the response.
    Opened {
        /// The Item's index in the response, from 0.
        index: u32,
        /// The wire's id for the part that became the Item, if the id is sent at the start. Parts
        /// of one message may share an id.
        id: Option<Name>,
        /// The Item's body as known at the start: its kind, names and ids.
        body: Body,
    },
    /// Content was added to an Item.
    Delta {
        /// The Item's index in the response, from 0.
        index: u32,
        /// The content to append.
        delta: Delta,
    },
    /// An Item is complete. No earlier event contains the Item's Seals.
    Closed {
        /// The Item's index in the response, from 0.
        index: u32,
        /// The complete Item, with its Seals.
        item: Box<Item>,
    },
    /// The token usage so far. It replaces the usage in earlier events.
    Usage(Usage),
    /// The response is complete.
    Ended(Box<Reply>),
    /// The provider reported an error.
    Failed(Failure),
    /// A stream frame of an unknown kind, verbatim.
    Alien(Json),
}

/// Content to append to an Item.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text of a text Item.
    Text(Arc<str>),
    /// Readable text of a Thought.
    Thought(Arc<str>),
    /// A fragment of the JSON text of a tool call's arguments.
    Args(Arc<str>),
    /// A value to insert at a path in a tool call's arguments.
    ArgsAt {
        /// The path as a `JSONPath`.
        path: Name,
        /// The value at the path, or the next fragment of a string value.
        value: Json,
    },
}

/// An error that the provider reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status, if the error includes one.
    pub status: Option<u16>,
    /// The provider's error type.
    pub kind: Option<Name>,
    /// The provider's error message.
    pub message: Name,
    /// The response body, verbatim.
    pub body: Bytes,
}
