//! Port to the models: sends a [`Call`] and returns a stream of [`Event`]s.
//!
//! A model combines a codec and an endpoint, so that callers need to know neither. The Fates are
//! final before the request is sent. The last event is [`Event::Ended`] with the whole Reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use jiff::Timestamp;
use throughline_json::{Name, StringEnum as _, words};

use crate::call::Call;
use crate::fate::{Fate, Warning};
use crate::origin::Target;
use crate::reply::{Event, Usage};

/// The events of a streaming reply.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, ModelError>> + Send>>;

/// A model call in progress, which completes when the model starts to respond.
pub type ModelFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ModelStream, ModelError>> + Send + 'a>>;

/// A model that accepts Calls.
pub trait Model: Send + Sync {
    /// Returns the model and endpoint. Every Call passed to `send` must have this target.
    fn target(&self) -> &Target;

    /// Sends the Call and waits until the model starts to respond. Dropping the future or the
    /// stream cancels the request.
    fn send(&self, call: Call) -> ModelFuture<'_>;
}

/// Looks up models by their configured names.
pub trait ModelRegistry: Send + Sync {
    /// Returns the model with this name; fails if the name is not configured.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;
}

/// A streaming reply, with the Fates and warnings of the request.
pub struct ModelStream {
    /// The Fate of every Item and Seal of the Call.
    pub fates: Vec<Fate>,
    /// One warning for each setting that could not be sent unchanged.
    pub warnings: Vec<Warning>,
    /// The events of the reply; the last event is [`Event::Ended`].
    pub events: EventStream,
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStream").field("fates", &self.fates.len()).finish_non_exhaustive()
    }
}

/// An error that ended a model call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure, which determines whether a retry can help.
    pub kind: ModelErrorKind,
    /// The error message, without keys or Seals.
    pub message: Name,
    /// Whether the provider may have processed the request, and may therefore charge for it.
    pub may_be_charged: bool,
}

impl ModelError {
    /// Creates an error of a request that the provider did not process. `message` must not contain
    /// keys or Seals.
    pub fn new(kind: ModelErrorKind, message: impl Into<Name>) -> Self {
        Self { kind, message: message.into(), may_be_charged: false }
    }

    /// Marks the error as one after which the provider may charge for the request.
    #[must_use]
    pub fn with_possible_charge(self) -> Self {
        Self { may_be_charged: true, ..self }
    }
}

words! {
    /// The kind of failure of a model call.
    ModelErrorKind {
        /// A temporary provider failure: a 5xx, a broken connection, or a timeout.
        Transient = "5xx-transient",
        /// The provider's rate limit was exceeded.
        RateLimit = "rate-limit",
        /// The circuit breaker is open after repeated failures.
        CircuitOpen = "circuit-open",
        /// The response does not match the required schema.
        Schema = "schema-fail",
        /// The provider refuses the request, or the model does not exist; a retry cannot help.
        Other = "unknown",
    }
}

impl ModelErrorKind {
    /// Parses a name such as `rate-limit`; `None` if the name is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

/// A source of wall-clock time.
pub trait Clock: Send + Sync {
    /// Returns the current wall-clock time.
    fn now(&self) -> Timestamp;
}

/// A source of unique ids.
pub trait IdGenerator: Send + Sync {
    /// Returns a new id that starts with `prefix`, such as `run_…`.
    fn generate(&self, prefix: &str) -> Name;
}

/// Estimates the cost of a response in US dollars. The library contains no prices; the caller
/// supplies them.
pub trait CostEstimator: Send + Sync {
    /// Returns the cost in US dollars; `None` if the model has no price.
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64>;
}
