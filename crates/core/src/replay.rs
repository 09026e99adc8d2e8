//! Decides which Thoughts a Call may contain and in which form the caller's own Thoughts are sent.

use throughline_json::{Label, Name};

use crate::identity::Identity;
use crate::item::Item;
use crate::name::ItemId;
use crate::thought::{PLAIN_TEXT, Thought};

/// Controls which Thoughts a Call may contain.
#[derive(Clone, Debug)]
pub struct ReplayPolicy {
    /// Tags that the target accepts in addition to its wire's own tags. Payloads with these tags
    /// are sent under [`SIDE_CHANNEL`] if the wire has no typed member for them.
    pub takes: Vec<Name>,
    /// Whether the caller's plain Thoughts are sent in the `<thought>` envelope.
    pub plain: bool,
    /// The calling agent. Thoughts by other agents are marked as a peer's reasoning.
    pub me: Identity,
    /// The Thread's secret, from which envelope nonces are derived. Without a secret, each nonce is
    /// a digest of its Thought, which the Thought cannot contain.
    pub secret: Option<ThreadSecret>,
}

/// The request member for payloads whose tag is in `takes` but that have no typed member on the
/// wire. Its value is a list of `{"id", "replayCompatibility", "payload"}`.
pub const SIDE_CHANNEL: &str = "throughline_thoughts";

impl Default for ReplayPolicy {
    fn default() -> Self {
        Self { takes: Vec::new(), plain: true, me: Identity::default(), secret: None }
    }
}

impl ReplayPolicy {
    /// Whether `takes` contains the tag.
    pub fn accepts_tag(&self, tag: &str) -> bool {
        self.takes.iter().any(|accepted| **accepted == *tag)
    }

    /// Renders a plain Thought in the `<thought>` envelope, which separates the Thought from the
    /// model's own output. The text of the Thought cannot close the envelope, because the text
    /// cannot contain the nonce in the closing tag.
    pub fn envelope(&self, id: &ItemId, thought: &Thought) -> String {
        let content = thought.plain_text().unwrap_or_default();
        let nonce = match &self.secret {
            Some(secret) => secret.nonce(id),
            None => content_nonce(id, &content),
        };
        let is_mine = thought.identity.is_same(&self.me);
        let kind = if is_mine { "self-reasoning" } else { "peer-reasoning" };
        let when = thought.record.as_deref().map(|record| record.created_at);
        let when = when.map_or_else(String::new, |time| format!(" createdAt=\"{time}\""));
        let from = attribute(&thought.identity.representation);
        let inner = format!(
            "<thought_{nonce} kind=\"{kind}\" from=\"{from}\"{when}>\n{content}\n</thought_{nonce}>"
        );
        if is_mine {
            return inner;
        }
        format!(
            "<peer_agent_output_{nonce} from=\"{from}\">\n{inner}\n</peer_agent_output_{nonce}>"
        )
    }

    /// Decides how to send a Thought that the caller created. Codecs handle Thoughts that a
    /// provider issued. `native_tags` are the tags of the wire, and `endpoint_tags` are the
    /// additional tags that the endpoint accepts.
    pub fn replay_form(
        &self,
        item: &Item,
        thought: &Thought,
        native_tags: &[&str],
        endpoint_tags: &[String],
    ) -> ReplayForm {
        let tag = thought.replay_compatibility.as_deref();
        let is_accepted = |tag: &str| {
            let is_endpoints = endpoint_tags.iter().any(|accepted| accepted == tag);
            native_tags.contains(&tag) || is_endpoints || self.accepts_tag(tag)
        };
        let declared = tag.is_some_and(is_accepted);
        let has_text = thought.plain_text().is_some();
        let may_envelope = self.plain && item.origin.is_none() && has_text;
        match (&thought.payload, tag) {
            (Some(_), Some(tag)) if native_tags.contains(&tag) => ReplayForm::Typed,
            (Some(_), Some(PLAIN_TEXT)) if may_envelope => ReplayForm::Envelope,
            (Some(_), Some(_)) if declared => ReplayForm::SideChannel,
            (None, _) if (thought.is_plain() || declared) && may_envelope => ReplayForm::Envelope,
            (Some(_) | None, _) => ReplayForm::Keep,
        }
    }
}

/// How to send a Thought that the caller created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayForm {
    /// The payload is sent as a typed part of the target's wire.
    Typed,
    /// The payload is sent under [`SIDE_CHANNEL`].
    SideChannel,
    /// The text is sent in the `<thought>` envelope.
    Envelope,
    /// The Thought is not sent; it stays in the Thread for later Calls.
    Keep,
}

/// A Thread's secret, which the `Debug` output omits.
#[derive(Clone)]
pub struct ThreadSecret([u8; 32]);

impl ThreadSecret {
    /// Wraps 32 secret bytes, which are used to derive nonces.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives the nonce for an Item. The nonce is unguessable without the secret and identical in
    /// every request.
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

/// Derives a nonce from a Thought's id and text. A text that contains its own nonce would have to
/// be found by trying about 2^64 texts.
fn content_nonce(id: &ItemId, content: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("throughline thought envelope v1");
    hasher.update(&(id.0.len() as u64).to_le_bytes()).update(id.0.as_bytes());
    let hash = hasher.update(content.as_bytes()).finalize();
    hash.to_hex().chars().take(16).collect()
}

fn attribute(text: &Label) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}
