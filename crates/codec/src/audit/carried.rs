//! What earlier requests and answers carried: seals, thoughts, and what was said.

use std::collections::HashSet;

use throughline_core::{Body, Item, Role};

use crate::audit::Prior;
use crate::audit::likeness::{part_key, said_key};

/// What earlier requests and answers carried.
pub(super) struct Carried {
    /// The seals that requests carried: they were taken then.
    sent: HashSet<Vec<u8>>,
    /// The seals that were issued.
    issued: HashSet<Vec<u8>>,
    /// The thoughts that requests carried.
    recalled: HashSet<u64>,
    /// What the model said.
    said: HashSet<u64>,
}

impl Carried {
    pub(super) fn of(prior: &Prior) -> Self {
        let exchanges = || prior.exchanges().iter();
        let calls = || exchanges().filter_map(|e| e.call.as_ref()).flat_map(|call| &call.items);
        let replies = || exchanges().filter_map(|e| e.reply.as_ref()).flat_map(|r| &r.items);
        let models = calls().chain(replies()).filter(|item| item.role == Role::Assistant);
        Self {
            sent: calls().flat_map(seals).collect(),
            issued: replies().flat_map(seals).collect(),
            recalled: calls().filter(|item| is_thought(item)).filter_map(part_key).collect(),
            said: models.filter_map(said_key).collect(),
        }
    }

    /// Whether a seal was issued.
    pub(super) fn issued(&self, seal: &[u8]) -> bool {
        self.issued.contains(&normal(seal))
    }

    /// Whether a seal was issued, or sent before.
    pub(super) fn knows(&self, seal: &[u8]) -> bool {
        let seal = normal(seal);
        self.sent.contains(&seal) || self.issued.contains(&seal)
    }

    /// Whether an earlier request carried one of an Item's seals already, or the same thought without any.
    pub(super) fn was_sent(&self, item: &Item) -> bool {
        let is_plain = is_thought(item) && item.seals.is_empty();
        let thought = part_key(item).filter(|_| is_plain);
        thought.is_some_and(|thought| self.recalled.contains(&thought))
            || seals(item).any(|seal| self.sent.contains(&seal))
    }

    /// Whether the model said what has that key.
    pub(super) fn was_said(&self, key: u64) -> bool {
        self.said.contains(&key)
    }
}

fn is_thought(item: &Item) -> bool {
    matches!(item.body, Body::Thought(_))
}

fn seals(item: &Item) -> impl Iterator<Item = Vec<u8>> + '_ {
    item.seals.iter().map(|seal| normal(seal.reveal_to_tenant()))
}

/// A base64 text in one alphabet and without padding: two that are equal then stand for the same bytes.
pub(super) fn normal(text: &[u8]) -> Vec<u8> {
    let unpadded = text.iter().filter(|byte| !matches!(byte, b'='));
    unpadded
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect()
}
