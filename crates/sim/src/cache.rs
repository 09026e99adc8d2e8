//! Simulates a prompt cache: detects the longest prefix that a request shares with earlier
//! requests.
//!
//! Requests from one account to one model share a cache. The cache compares prefixes as written:
//! the tools, then the system prompt, then the messages. A moved JSON member or a reordered tool
//! therefore invalidates the cached prefix from that point on. Every request writes to the cache,
//! with or without `cache_control`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use throughline_core::Usage;
use throughline_json::Node;

use crate::digest::{self, Digest};

#[cfg(test)]
#[path = "cache_tests.rs"]
mod cache_tests;

/// An element of the prompt, such as a tool, a system block or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptElement {
    written: Digest,
    /// Digest of the content, independent of JSON member order; `None` for a setting.
    content: Option<Digest>,
    tokens: u64,
}

impl PromptElement {
    /// Creates an element from a tool, a system block or a message.
    pub(crate) fn new(node: Node<'_>) -> Self {
        let bytes = digest::written_bytes(node);
        Self {
            written: Digest::new("throughline-sim cache", &bytes),
            content: Some(Digest::new(
                "throughline-sim cached meaning",
                digest::canonical_bytes(node),
            )),
            tokens: tokens(bytes.len()),
        }
    }

    /// Creates an element from a setting that is rendered into the prompt at this position. If the
    /// setting changes, all later elements miss the cache.
    pub(crate) fn from_setting(setting: &str) -> Self {
        Self { written: Digest::new("throughline-sim setting", setting), content: None, tokens: 0 }
    }
}

/// Digests of the elements of a prompt prefix, without settings: in canonical form and as written.
struct PrefixDigests {
    content: Digest,
    written: Digest,
}

impl PrefixDigests {
    fn new(owner: Digest) -> Self {
        Self { content: owner.and("said"), written: owner.and("written") }
    }

    fn add(&mut self, element: &PromptElement) {
        if let Some(content) = element.content {
            self.content = self.content.and(content.bytes());
            self.written = self.written.and(element.written.bytes());
        }
    }
}

/// Estimates the number of tokens in `bytes` as one per four bytes. Real tokenizers differ.
pub(crate) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Number of tokens at the end of a request that are not written to the cache.
const UNCACHED_TAIL_TOKENS: u64 = 3;

/// The digests of all prefixes seen so far.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    prefixes: Mutex<HashSet<Digest>>,
}

impl PromptCache {
    /// Looks up the longest cached prefix and caches all longer prefixes. `owner` identifies the
    /// account, provider and model.
    pub(crate) fn read_and_write(&self, owner: Digest, elements: &[PromptElement]) -> Usage {
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage = Usage::default();
        let (mut beginning, mut prefix) = (owner, PrefixDigests::new(owner));
        let mut is_known = true;
        for element in elements {
            beginning = beginning.and(element.written.bytes());
            prefix.add(element);
            prefixes.extend([prefix.content, prefix.written]);
            usage.input += element.tokens;
            is_known = !prefixes.insert(beginning) && is_known;
            if is_known {
                usage.cached += element.tokens;
            } else {
                usage.written += element.tokens;
            }
        }
        // Providers never cache the last few tokens.
        usage.written = usage.written.saturating_sub(UNCACHED_TAIL_TOKENS);
        usage
    }

    /// Counts the tokens that repeat earlier content but miss the cache, because their element or
    /// an earlier element is written differently. Changed content and changed settings are not
    /// counted.
    pub(crate) fn missed(&self, owner: Digest, elements: &[PromptElement]) -> u64 {
        let prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut prefix = PrefixDigests::new(owner);
        let mut missed = 0;
        for element in elements {
            prefix.add(element);
            if !prefixes.contains(&prefix.content) {
                break;
            }
            if !prefixes.contains(&prefix.written) {
                missed += element.tokens;
            }
        }
        missed
    }

    /// Counts the tokens of all elements without reading or writing the cache.
    pub(crate) fn count(elements: &[PromptElement]) -> u64 {
        elements.iter().map(|element| element.tokens).sum()
    }
}
