//! The port behind which the models lie: a [`Call`] goes in, and what the model says comes out.
//!
//! A model is a wire's translator and an endpoint together, so whoever asks one needs to know neither. What is said to it is
//! decided before anything is sent, and accounted for; what it says comes as [`Event`]s, the last of which is
//! [`Event::Ended`] with the whole Reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use jiff::Timestamp;

use crate::call::Call;
use crate::fate::{Fate, Warning};
use crate::name::Name;
use crate::origin::Target;
use crate::reply::{Event, Usage};

/// What a model is saying.
pub type Events = Pin<Box<dyn Stream<Item = Result<Event, ModelError>> + Send>>;

/// A question on its way.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<Saying, ModelError>> + Send + 'a>>;

/// A model that can be asked.
pub trait Model: Send + Sync {
    /// Who it is: a Call is made for this target.
    fn target(&self) -> &Target;

    /// Asks, and waits until the model begins to answer. Dropping what it gives ends the request.
    fn ask(&self, call: Call) -> Asking<'_>;
}

/// The models, by the names that people give them.
pub trait Models: Send + Sync {
    /// The model of that name.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;
}

/// A model that answers.
pub struct Saying {
    /// What became of every Item and every Seal of the Call.
    pub fates: Vec<Fate>,
    /// What became of every setting that could not be carried as it was.
    pub warnings: Vec<Warning>,
    /// What it says.
    pub events: Events,
}

impl std::fmt::Debug for Saying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saying").field("fates", &self.fates.len()).finish_non_exhaustive()
    }
}

/// Why a model did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure it is, by which is decided whether to ask again.
    pub kind: Trouble,
    /// What went wrong, in words that hold no key and no seal.
    pub message: Name,
}

impl ModelError {
    /// A failure of that kind.
    pub fn new(kind: Trouble, message: impl Into<Name>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// What kind of failure a model's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// It is the provider's, and may pass: a 5xx, a broken connection, a time that was up.
    Transient,
    /// Too much was asked in too short a time.
    RateLimit,
    /// It failed again and again, and is left alone for a while.
    CircuitOpen,
    /// Its answer is not what it had to be.
    Schema,
    /// The provider refuses the request, or there is no such model: asking again changes nothing.
    Other,
}

impl Trouble {
    /// The documented word.
    pub fn as_str(self) -> &'static str {
        match self {
            Trouble::Transient => "5xx-transient",
            Trouble::RateLimit => "rate-limit",
            Trouble::CircuitOpen => "circuit-open",
            Trouble::Schema => "schema-fail",
            Trouble::Other => "unknown",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Trouble::Transient,
            Trouble::RateLimit,
            Trouble::CircuitOpen,
            Trouble::Schema,
            Trouble::Other,
        ];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Says what time it is.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Makes up ids that nobody else makes up.
pub trait Ids: Send + Sync {
    /// A new one, after that prefix, as `run_…`.
    fn fresh(&self, prefix: &str) -> Name;
}

/// Says what an answer cost, in US dollars. There is no table of prices in the library: whoever asks brings one.
pub trait CostEstimator: Send + Sync {
    /// What it cost; nothing where the model has no price.
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64>;
}
