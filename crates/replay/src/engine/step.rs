//! Digests of single steps of a conversation: the turn before a model turn, the caller's Items in
//! between, and the model turn's own visible content.
//!
//! Some clients change the system prompt with the model, so the chain of the whole conversation
//! matches no captured turn. A turn with a unique id is still found, and the step finds the turn
//! after it. If the client edits the turn before or an Item in between, the step differs.

use std::sync::LazyLock;

use throughline_core::{Digest, TurnId};

use crate::engine::Conversation;
use crate::engine::chain::{VisibleDigests, hash_field};

/// What directly precedes the caller's Items of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Predecessor {
    /// The start of the conversation.
    Start,
    /// A captured turn.
    Turn(TurnId),
}

impl Predecessor {
    /// Returns the digest of a step. `input` is `Chain::input_digest` before the model turn.
    /// The Vault separates tenants, so the digest covers only the end user.
    pub(super) fn step(
        &self,
        end_user: Option<&str>,
        input: &Digest,
        visible: &VisibleDigests,
    ) -> Digest {
        static CONTEXT: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("throughline 2026-11 step v1"));
        let mut hasher = CONTEXT.clone();
        match end_user {
            Some(user) => hash_field(&mut hasher, b'U', user.as_bytes()),
            None => hash_field(&mut hasher, b'-', b""),
        }
        match self {
            Self::Start => hash_field(&mut hasher, b'0', b""),
            Self::Turn(node) => hash_field(&mut hasher, b'P', node.0.as_bytes()),
        }
        hash_field(&mut hasher, b'I', input);
        visible.absorb(&mut hasher);
        *hasher.finalize().as_bytes()
    }
}

/// Returns the step of a reply with this visible content. Returns `None` if the preceding turn was
/// not found, or if the reply continues a turn.
pub(super) fn step_of(conversation: &Conversation, visible: &VisibleDigests) -> Option<Digest> {
    let predecessor = conversation.predecessor.as_ref()?;
    let input = conversation.chain.input_digest()?;
    Some(predecessor.step(conversation.end_user.as_deref(), &input, visible))
}
