//! Reasoning: readable text or a summary of it, or nothing readable at all.

use std::sync::Arc;

use jiff::Timestamp;

use crate::format::ReasoningFormat;
use crate::identity::Identity;
use crate::json::Json;
use crate::name::Name;

/// The tag of a thought that every model may read.
pub const PLAIN_TEXT: &str = "plain-text";

/// Reasoning. It is the body of an [`Item`](crate::Item), which carries its id, its Seals and its Origin.
///
/// A thought that a provider issued never becomes visible text. A thought that the caller made (no Origin) and
/// that has no payload is plain: it reaches any model inside the `<thought>` envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Thought {
    /// What can be read of it; empty where everything is sealed.
    pub content: Arc<str>,
    /// What kind of reasoning it is.
    pub kind: ThoughtKind,
    /// Whether it arrived to its end. One that was cut off can never be replayed.
    pub whole: bool,
    /// Whose shape it has.
    pub format: ReasoningFormat,
    /// Its position among the reasoning of its turn, where the wire numbers it.
    pub index: Option<u64>,
    /// Whether a reasoning model produced it, or it was asked for by prompting.
    pub source: ReasoningSource,
    /// Which agent had it.
    pub identity: Identity,
    /// What only one provider understands: any JSON value, verbatim. Demands `replay_compatibility`.
    pub payload: Option<Json>,
    /// Which wire shape it can be replayed into.
    pub replay_compatibility: Option<Name>,
    /// When it was recorded, and in whose context; nothing for a thought fresh from a wire.
    pub record: Option<Box<ThoughtRecord>>,
}

impl Thought {
    /// A thought that a provider issued.
    pub fn issued(
        content: impl Into<Arc<str>>,
        kind: ThoughtKind,
        format: ReasoningFormat,
    ) -> Self {
        Self {
            content: content.into(),
            kind,
            whole: true,
            format,
            index: None,
            source: ReasoningSource::ReasonerModel,
            identity: Identity::default(),
            payload: None,
            replay_compatibility: None,
            record: None,
        }
    }

    /// Whether a model other than the one it was made by may read it as text.
    pub fn is_plain(&self) -> bool {
        self.payload.is_none()
            && self.replay_compatibility.as_deref().is_none_or(|tag| tag == PLAIN_TEXT)
    }

    /// Notes when it was recorded, unless that is known.
    pub fn record_at(&mut self, now: Timestamp) {
        let fresh = || ThoughtRecord { created_at: now, updated_at: now, ..Default::default() };
        self.record.get_or_insert_with(|| Box::new(fresh()));
    }

    /// How many tokens its readable content has, by the counter's reckoning.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> u64 {
        counter.count(&self.content)
    }
}

/// Counts tokens. The provider's own usage is the truth; this is for estimates before a Call.
pub trait TokenCounter: Send + Sync {
    /// How many tokens the text has.
    fn count(&self, text: &str) -> u64;
}

/// What kind of reasoning a thought is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThoughtKind {
    /// The reasoning itself.
    Text,
    /// The provider's summary of it.
    Summary,
    /// Nothing readable.
    Encrypted,
}

/// Whether reasoning came natively from a reasoning model or was asked for by prompting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReasoningSource {
    /// Natively.
    ReasonerModel,
    /// By prompting.
    #[default]
    NonReasonerModel,
}

impl ReasoningSource {
    /// The documented word.
    pub fn as_str(self) -> &'static str {
        match self {
            ReasoningSource::ReasonerModel => "reasoner_model",
            ReasoningSource::NonReasonerModel => "non_reasoner_model",
        }
    }
}

/// When a thought was recorded, and in whose context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThoughtRecord {
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The name of the sender.
    pub name: Option<Name>,
    /// The id of the sender.
    pub sender_id: Option<Name>,
    /// The client's own id for the message, by which retries are recognised.
    pub otid: Option<Name>,
    /// The run it belongs to.
    pub run_id: Option<Name>,
    /// The step of the run.
    pub step_id: Option<Name>,
    /// Its number in the run's stream of events.
    pub seq_id: Option<i64>,
    /// Whether it belongs to a step that failed.
    pub is_err: Option<bool>,
    /// Members of the document that it was read from and that no field speaks for, verbatim.
    pub extras: Vec<(Name, Json)>,
}
