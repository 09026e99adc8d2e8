//! Which thoughts a Call may carry, and how a plain one reaches a model.

use crate::identity::Identity;
use crate::item::Item;
use crate::name::{ItemId, Label, Name};
use crate::thought::Thought;

/// Which thoughts a Call may carry.
#[derive(Clone, Debug)]
pub struct ReplayPolicy {
    /// Tags that the target takes besides those of its own wire. Their payloads go under
    /// [`SIDE_CHANNEL`] where the wire has no typed place for them.
    pub takes: Vec<Name>,
    /// Whether the caller's plain thoughts are sent, in the `<thought>` envelope.
    pub plain: bool,
    /// Which agent is asking: everybody else's thoughts are a peer's.
    pub me: Identity,
    /// The Thread's secret, from which envelope nonces are made. Without one no envelope can be made that a reader could
    /// not forge, and plain thoughts stay behind.
    pub secret: Option<ThreadSecret>,
}

/// The member of a request body that carries declared payloads where the wire has no typed place for them:
/// a list of `{"id", "replayCompatibility", "payload"}`.
pub const SIDE_CHANNEL: &str = "throughline_thoughts";

impl Default for ReplayPolicy {
    fn default() -> Self {
        Self { takes: Vec::new(), plain: true, me: Identity::default(), secret: None }
    }
}

impl ReplayPolicy {
    /// Whether the tag was declared.
    pub fn takes(&self, tag: &str) -> bool {
        self.takes.iter().any(|taken| **taken == *tag)
    }

    /// The text in which a plain thought reaches a model: it cannot be mistaken for the model's own output, nor
    /// closed by anything that the thought says.
    pub fn envelope(&self, id: &ItemId, thought: &Thought) -> Option<String> {
        let nonce = self.secret.as_ref()?.nonce(id);
        let who = &thought.identity.representation;
        let is_mine = thought.identity.is_same(&self.me);
        let kind = if is_mine { "self-reasoning" } else { "peer-reasoning" };
        let when = thought
            .record
            .as_deref()
            .map_or_else(String::new, |record| format!(" createdAt=\"{}\"", record.created_at));
        let from = attribute(who);
        let content = &thought.content;
        let inner = format!(
            "<thought_{nonce} kind=\"{kind}\" from=\"{from}\"{when}>\n{content}\n</thought_{nonce}>"
        );
        if is_mine {
            return Some(inner);
        }
        Some(format!(
            "<peer_agent_output_{nonce} from=\"{from}\">\n{inner}\n</peer_agent_output_{nonce}>"
        ))
    }

    /// What to do with a thought that the caller made. Thoughts with an Origin are the wires' own business.
    pub fn judge(&self, item: &Item, thought: &Thought, native_tags: &[&str]) -> Judgement {
        let tag = thought.replay_compatibility.as_deref();
        let declared = tag.is_some_and(|tag| native_tags.contains(&tag) || self.takes(tag));
        match (&thought.payload, tag) {
            (Some(_), Some(tag)) if native_tags.contains(&tag) => Judgement::Typed,
            (Some(_), Some(_)) if declared => Judgement::SideChannel,
            (None, _) if thought.is_plain() || declared => {
                if self.plain && self.secret.is_some() && item.origin.is_none() {
                    Judgement::Envelope
                } else {
                    Judgement::Keep
                }
            }
            (Some(_) | None, _) => Judgement::Keep,
        }
    }
}

/// What to do with a thought that the caller made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Its payload is a part of this wire and goes there.
    Typed,
    /// Its payload goes under [`SIDE_CHANNEL`].
    SideChannel,
    /// Its text goes in the `<thought>` envelope.
    Envelope,
    /// It stays in the Thread for another Call.
    Keep,
}

/// A secret of one Thread. Never printed.
#[derive(Clone)]
pub struct ThreadSecret([u8; 32]);

impl ThreadSecret {
    /// A secret of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Unguessable for whoever lacks the secret, yet the same in every request.
    pub fn nonce(&self, id: &ItemId) -> String {
        let hash = blake3::keyed_hash(&self.0, id.0.as_bytes());
        hash.to_hex().chars().take(16).collect()
    }
}

impl std::fmt::Debug for ThreadSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ThreadSecret")
    }
}

fn attribute(text: &Label) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}
