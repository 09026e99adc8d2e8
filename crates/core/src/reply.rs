//! What a model answered: finally, and while it is answering.

use std::sync::Arc;

use bytes::Bytes;

use crate::item::{Body, Item};
use crate::json::Json;
use crate::name::Name;
use crate::origin::Origin;

/// What a model finally answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The answer's id.
    pub id: Option<Name>,
    /// What it said.
    pub items: Vec<Item>,
    /// Why it ended.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
    /// Who answered.
    pub origin: Arc<Origin>,
    /// What else the response said, verbatim, by the wire's own names: everything but the Items.
    pub extras: Vec<(Name, Json)>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The model had said all.
    Done,
    /// It waits for tools.
    Tools,
    /// It reached the limit of tokens.
    Length,
    /// It met a stop sequence.
    Sequence(Option<Name>),
    /// The provider paused a long turn, to be gone on with.
    Paused,
    /// It refused, for this reason.
    Refused(Name),
    /// The stream ended early: nothing in it can be replayed.
    Cut,
    /// Something else, in the provider's word.
    Other(Name),
}

/// What an answer cost, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input, cached or not.
    pub input: u64,
    /// Input that was read from a cache.
    pub cached: u64,
    /// Input that was written to a cache.
    pub written: u64,
    /// All output, thoughts included.
    pub output: u64,
    /// Output that was thought.
    pub thought: u64,
}

impl Usage {
    /// Input that no cache knew.
    pub fn fresh(&self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_sub(self.written)
    }

    /// Everything together.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Something that happened while a model was answering.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The answer began.
    Began {
        /// Its id, where the wire tells it early.
        id: Option<Name>,
        /// Who answers.
        origin: Arc<Origin>,
    },
    /// An Item began.
    Opened {
        /// Its number in the answer, counted from 0.
        index: u32,
        /// The id that the wire gave the part, where it tells one this early: parts of one message may share it.
        id: Option<Name>,
        /// What is known of it: its kind, names and ids.
        body: Body,
    },
    /// An Item went on.
    Delta {
        /// Its number in the answer.
        index: u32,
        /// What was added.
        delta: Delta,
    },
    /// An Item is whole. Seals appear here and nowhere earlier.
    Closed {
        /// Its number in the answer.
        index: u32,
        /// The Item.
        item: Box<Item>,
    },
    /// What it cost so far.
    Usage(Usage),
    /// The answer is whole.
    Ended(Box<Reply>),
    /// The provider says that it failed.
    Failed(Failure),
    /// A frame that we do not know, verbatim.
    Alien(Json),
}

/// What was added to an Item.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text.
    Text(Arc<str>),
    /// Readable thought.
    Thought(Arc<str>),
    /// A piece of the arguments' JSON text.
    Args(Arc<str>),
    /// A value at a place in the arguments.
    ArgsAt {
        /// The place, as a `JSONPath`.
        path: Name,
        /// The value, or a piece of a string.
        value: Json,
    },
}

/// A provider's own account of why it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status, where one came.
    pub status: Option<u16>,
    /// The provider's word for the kind of failure.
    pub kind: Option<Name>,
    /// The provider's sentence.
    pub message: Name,
    /// The whole body, verbatim.
    pub body: Bytes,
}
