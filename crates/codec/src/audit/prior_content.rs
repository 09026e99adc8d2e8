//! An index of the Seals, thoughts and model output in earlier requests and responses.

use std::collections::HashSet;

use throughline_core::{Body, Item, Role};

use crate::audit::PriorExchanges;
use crate::audit::match_criteria::{output_key, part_key};

/// Sets for looking up the content of earlier requests and responses.
pub(super) struct PriorContent {
    /// Seals in earlier requests. The provider accepted those requests.
    sent: HashSet<Vec<u8>>,
    /// Seals in earlier responses.
    issued: HashSet<Vec<u8>>,
    /// Content hashes of the thoughts in earlier requests.
    thoughts: HashSet<u64>,
    /// Content hashes of all other model output.
    outputs: HashSet<u64>,
}

impl PriorContent {
    pub(super) fn of(prior: &PriorExchanges) -> Self {
        let exchanges = || prior.exchanges().iter();
        let calls = || exchanges().filter_map(|e| e.call.as_ref()).flat_map(|call| &call.items);
        let replies = || exchanges().filter_map(|e| e.reply.as_ref()).flat_map(|r| &r.items);
        let models = calls().chain(replies()).filter(|item| item.role == Role::Assistant);
        Self {
            sent: calls().flat_map(seals).collect(),
            issued: replies().flat_map(seals).collect(),
            thoughts: calls().filter(|item| is_thought(item)).filter_map(part_key).collect(),
            outputs: models.filter_map(output_key).collect(),
        }
    }

    /// Returns whether an earlier response contained the Seal.
    pub(super) fn issued(&self, seal: &[u8]) -> bool {
        self.issued.contains(&normal(seal))
    }

    /// Returns whether an earlier request or response contained the Seal.
    pub(super) fn contains_seal(&self, seal: &[u8]) -> bool {
        let seal = normal(seal);
        self.sent.contains(&seal) || self.issued.contains(&seal)
    }

    /// Returns whether an earlier request contained one of the Item's Seals. An unsealed thought is
    /// looked up by its text.
    pub(super) fn was_sent(&self, item: &Item) -> bool {
        let is_plain = is_thought(item) && item.seals.is_empty();
        let thought = part_key(item).filter(|_| is_plain);
        thought.is_some_and(|thought| self.thoughts.contains(&thought))
            || seals(item).any(|seal| self.sent.contains(&seal))
    }

    /// Returns whether earlier model output has this key; see `output_key`.
    pub(super) fn has_output(&self, key: u64) -> bool {
        self.outputs.contains(&key)
    }
}

fn is_thought(item: &Item) -> bool {
    matches!(item.body, Body::Thought(_))
}

fn seals(item: &Item) -> impl Iterator<Item = Vec<u8>> + '_ {
    item.seals.iter().map(|seal| normal(seal.reveal_to_tenant()))
}

/// Normalises base64 to one alphabet without padding, so that equal bytes compare equal.
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
