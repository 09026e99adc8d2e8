//! Thoughts: reasoning as full text, as a summary, or encrypted.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_json::{Json, Name, words};

use crate::format::ReasoningFormat;
use crate::identity::Identity;

/// The tag of a Thought that every model may read.
pub const PLAIN_TEXT: &str = "plain-text";

/// Reasoning, as the body of an [`Item`](crate::Item). The Item contains the id, Seals and Origin.
///
/// A Thought issued by a provider never becomes visible text. A Thought is plain if the caller
/// created it (no Origin) and it has no payload. Every model can receive plain Thoughts in the
/// `<thought>` envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Thought {
    /// The readable content; empty if all reasoning is sealed.
    pub content: Arc<str>,
    /// Whether the content is the full reasoning, a summary, or absent because the reasoning is
    /// encrypted.
    pub kind: ThoughtKind,
    /// Whether the Thought arrived completely. A truncated Thought can never be replayed.
    pub whole: bool,
    /// The provider's format for the reasoning.
    pub format: ReasoningFormat,
    /// The Thought's position among the Thoughts of its turn; `None` if the wire does not number
    /// Thoughts.
    pub index: Option<u64>,
    /// Whether the Thought is a reasoning model's native reasoning or text that a prompt requested.
    pub source: ReasoningSource,
    /// The agent that produced the Thought.
    pub identity: Identity,
    /// Provider-specific JSON, verbatim. Requires `replay_compatibility`.
    pub payload: Option<Json>,
    /// The tag of the wire format in which the Thought can be replayed.
    pub replay_compatibility: Option<Name>,
    /// When and in which context the Thought was recorded; `None` for a Thought that was just
    /// decoded from a wire.
    pub record: Option<Box<ThoughtRecord>>,
}

impl Thought {
    /// Creates a Thought issued by a provider.
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

    /// Whether every model may read the Thought: no payload, and no tag other than [`PLAIN_TEXT`].
    pub fn is_plain(&self) -> bool {
        self.payload.is_none()
            && self.replay_compatibility.as_deref().is_none_or(|tag| tag == PLAIN_TEXT)
    }

    /// Returns the text that every model may read. A payload takes precedence over the content:
    /// with the tag [`PLAIN_TEXT`], a payload that is a JSON string is this text. Any other payload
    /// has no such text.
    pub fn plain_text(&self) -> Option<Arc<str>> {
        match &self.payload {
            None => Some(Arc::clone(&self.content)),
            Some(payload) => {
                let is_plain = self.replay_compatibility.as_deref() == Some(PLAIN_TEXT);
                payload.tree().root().name().filter(|_| is_plain)
            }
        }
    }

    /// Sets the creation and update times to `now`, unless the Thought already has a record.
    pub fn set_recorded_at(&mut self, now: Timestamp) {
        let fresh = || ThoughtRecord { created_at: now, updated_at: now, ..Default::default() };
        self.record.get_or_insert_with(|| Box::new(fresh()));
    }

    /// Estimates the number of tokens in the readable content.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> u64 {
        counter.count(&self.content)
    }
}

/// Estimates token counts before a Call. After the Call, the usage that the provider reports is
/// authoritative.
pub trait TokenCounter: Send + Sync {
    /// Returns the estimated number of tokens in the text.
    fn count(&self, text: &str) -> u64;
}

words! {
    /// Whether a Thought's content is the full reasoning, a summary, or absent because the
    /// reasoning is encrypted.
    ThoughtKind {
        /// The content is the reasoning itself.
        Text = "text",
        /// The content is the provider's summary of the reasoning.
        Summary = "summary",
        /// The reasoning is encrypted and has no readable content.
        Encrypted = "encrypted",
    }

    /// Whether reasoning is native to the model or was requested by a prompt.
    #[derive(Default)]
    ReasoningSource {
        /// A reasoning model produced the reasoning natively.
        ReasonerModel = "reasoner_model",
        /// A model without native reasoning wrote the reasoning because a prompt requested it.
        #[default]
        NonReasonerModel = "non_reasoner_model",
    }
}

/// When and in which context a Thought was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThoughtRecord {
    /// When the Thought was recorded.
    pub created_at: Timestamp,
    /// When the Thought last changed.
    pub updated_at: Timestamp,
    /// The sender's name in the message.
    pub name: Option<Name>,
    /// The sender's id in the message.
    pub sender_id: Option<Name>,
    /// The client's id for the message, used to recognize retries.
    pub otid: Option<Name>,
    /// The run that the Thought belongs to.
    pub run_id: Option<Name>,
    /// The step within that run.
    pub step_id: Option<Name>,
    /// The Thought's sequence number in the run's event stream.
    pub seq_id: Option<i64>,
    /// Whether the Thought belongs to a failed step.
    pub is_err: Option<bool>,
    /// Undeclared members of the source document, verbatim.
    pub extras: Vec<(Name, Json)>,
}
