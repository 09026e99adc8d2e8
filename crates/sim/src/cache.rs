//! The prompt cache: what a request begins with, and whether that was seen before.
//!
//! Requests of one account to one model share a cache. It knows beginnings: the tools, then the system prompt, then the
//! messages, each as it was written. So a member that moved, or a tool that came earlier, costs everything behind it.
//! Every request writes what it said, whether or not it marks a place with `cache_control`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use throughline_core::{Node, Usage};

use crate::digest::{self, Mark};

#[cfg(test)]
#[path = "cache_tests.rs"]
mod cache_tests;

/// One element of a request, in the order in which the provider renders them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    mark: Mark,
    /// What it says, however it is written; nothing for a setting.
    said: Option<Mark>,
    tokens: u64,
}

impl Element {
    /// A tool, a block of the system prompt, a message.
    pub(crate) fn of(node: Node<'_>) -> Self {
        let written = digest::written(node);
        Self {
            mark: Mark::of("throughline-sim cache", &written),
            said: Some(Mark::of("throughline-sim cached meaning", digest::said(node))),
            tokens: tokens(written.len()),
        }
    }

    /// A setting that is rendered into the prompt where it stands: changing it costs everything behind it.
    pub(crate) fn of_setting(setting: &str) -> Self {
        Self { mark: Mark::of("throughline-sim setting", setting), said: None, tokens: 0 }
    }
}

/// A beginning of a request without its settings: what it says, and how that was written.
struct Asked {
    said: Mark,
    written: Mark,
}

impl Asked {
    fn by(owner: Mark) -> Self {
        Self { said: owner.and("said"), written: owner.and("written") }
    }

    fn add(&mut self, element: &Element) {
        if let Some(said) = element.said {
            self.said = self.said.and(said.bytes());
            self.written = self.written.and(element.mark.bytes());
        }
    }
}

/// About how many tokens some bytes are. Nobody's tokenizer, but always the same.
pub(crate) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// How many tokens at the end of a request are never written to a cache.
const FRESH: u64 = 3;

/// The beginnings that were seen.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    known: Mutex<HashSet<Mark>>,
}

impl Cache {
    /// Reads the longest beginning that is known, and writes all the others. `owner` tells accounts and models apart.
    pub(crate) fn read_and_write(&self, owner: Mark, elements: &[Element]) -> Usage {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage = Usage::default();
        let (mut beginning, mut asked) = (owner, Asked::by(owner));
        let mut is_known = true;
        for element in elements {
            beginning = beginning.and(element.mark.bytes());
            asked.add(element);
            known.extend([asked.said, asked.written]);
            usage.input += element.tokens;
            is_known = !known.insert(beginning) && is_known;
            if is_known {
                usage.cached += element.tokens;
            } else {
                usage.written += element.tokens;
            }
        }
        // The last few tokens are always new: nobody caches the very end.
        usage.written = usage.written.saturating_sub(FRESH);
        usage
    }

    /// How many tokens say what was said before, and are not read because they or others before them are written otherwise.
    /// What says something else, or is said under another setting, is no loss of this kind.
    pub(crate) fn missed(&self, owner: Mark, elements: &[Element]) -> u64 {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = Asked::by(owner);
        let mut missed = 0;
        for element in elements {
            asked.add(element);
            if !known.contains(&asked.said) {
                break;
            }
            if !known.contains(&asked.written) {
                missed += element.tokens;
            }
        }
        missed
    }

    /// What the elements cost, without reading or writing anything.
    pub(crate) fn count(elements: &[Element]) -> u64 {
        elements.iter().map(|element| element.tokens).sum()
    }
}
