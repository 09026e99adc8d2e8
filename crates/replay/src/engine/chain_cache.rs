//! Caches the chains of earlier requests, so that only the new part of a growing conversation is
//! digested.
//!
//! Each entry contains the visible content of a request and its chain. If a later request starts
//! with exactly the same content, the cached chain is extended. A fingerprint selects candidates,
//! whose content is then compared in full.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use throughline_core::{Body, Call, Item, Media, Part, Role, Tenant};
use throughline_json::Name;

use crate::byte_lru::ByteLru;
use crate::engine::chain::{self, Chain};

/// Maximum number of Items in a cached conversation. A cache entry takes as much memory as the
/// decoded conversation.
const MAX_ITEMS: usize = 8_192;
/// Number of bytes that a fingerprint covers at each end of a text.
const FINGERPRINT_END_BYTES: usize = 32;

/// The chains of recent requests, by fingerprint.
pub(super) struct ChainCache(Mutex<ByteLru<u64, CachedChain>>);

/// The visible content of a request with its chain.
struct CachedChain {
    tenant: Tenant,
    end_user: Option<Name>,
    system: Vec<VisibleItem>,
    items: Vec<VisibleItem>,
    chain: Chain,
    /// Approximate size of the visible content in bytes.
    shown: usize,
}

/// The part of an Item that the chain covers.
struct VisibleItem {
    role: Role,
    /// The content; `None` if it is not visible.
    body: Option<Body>,
}

impl ChainCache {
    /// Creates an empty cache with a size limit in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(Mutex::new(ByteLru::new(most)))
    }

    /// Returns the same chain as [`Chain::of`], but extends a cached chain if possible.
    pub(super) fn of(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Chain {
        if call.items.len() > MAX_ITEMS {
            return Chain::of(call, tenant, end_user);
        }
        let marks = fingerprints(call, tenant, end_user);
        let Some(last) = marks.last() else { return Chain::of(call, tenant, end_user) };
        // Conversations rarely branch, so the entry is taken out and replaced by its continuation.
        let before = match self.take_longest_prefix(&marks) {
            Some((mark, known)) if known.begins(call, tenant, end_user) => Some((mark, known)),
            Some((mark, another)) => {
                self.insert(mark, another);
                None
            }
            None => None,
        };
        // A request is cached only if it does not end with a model turn and all its Items can be
        // compared.
        let seen = before.as_ref().map_or(0, |(_, known)| known.items.len());
        let new = call.items.get(seen..).unwrap_or_default();
        let shown = if chain::is_settled(&call.items) { VisibleItem::all(new) } else { None };
        let known = match (before, shown) {
            (Some((_, mut known)), Some(shown)) => {
                known.chain.extend(&call.items, seen);
                known.add(shown);
                known
            }
            (Some((mark, known)), None) => {
                let mut chain = known.chain.clone();
                chain.extend(&call.items, seen);
                self.insert(mark, known);
                return chain;
            }
            (None, shown) => {
                let chain = Chain::of(call, tenant, end_user);
                let Some((items, system)) = shown.zip(VisibleItem::all(&call.system)) else {
                    return chain;
                };
                let mut known = CachedChain::new(tenant, end_user, system, chain);
                known.add(items);
                known
            }
        };
        let chain = known.chain.clone();
        self.insert(*last, known);
        chain
    }

    fn take_longest_prefix(&self, marks: &[u64]) -> Option<(u64, CachedChain)> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.iter().rev().find_map(|mark| Some((*mark, recent.take(mark)?)))
    }

    fn insert(&self, mark: u64, known: CachedChain) {
        let size = known.size();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(mark, known, size);
    }
}

impl CachedChain {
    fn new(
        tenant: &Tenant,
        end_user: Option<&str>,
        system: Vec<VisibleItem>,
        chain: Chain,
    ) -> Self {
        let (tenant, end_user) = (tenant.clone(), end_user.map(Name::from));
        let shown = system.iter().map(VisibleItem::size).sum();
        Self { tenant, end_user, system, items: Vec::new(), chain, shown }
    }

    fn add(&mut self, items: Vec<VisibleItem>) {
        self.shown += items.iter().map(VisibleItem::size).sum::<usize>();
        self.items.extend(items);
    }

    /// Returns the approximate memory size in bytes.
    fn size(&self) -> usize {
        let owner = self.tenant.0.len() + self.end_user.as_ref().map_or(0, |user| user.len());
        size_of::<Self>() + owner + self.shown + self.chain.size()
    }

    /// Whether the Call has the same tenant and end user and starts with the cached content.
    fn begins(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> bool {
        let is_same = |known: &[VisibleItem], items: &[Item]| {
            known.len() == items.len()
                && known.iter().zip(items).all(|(known, now)| known.matches(now))
        };
        self.tenant == *tenant
            && self.end_user.as_deref() == end_user
            && is_same(&self.system, &call.system)
            && is_same(&self.items, call.items.get(..self.items.len()).unwrap_or_default())
    }
}

impl VisibleItem {
    /// Returns the comparable content of the Items; `None` if an Item cannot be compared.
    fn all(items: &[Item]) -> Option<Vec<Self>> {
        items.iter().map(Self::from_item).collect()
    }

    fn from_item(item: &Item) -> Option<Self> {
        use Body::{Call, Media, Result, Summary, Text};
        let body = match &item.body {
            Body::Thought(_) | Body::Hosted(_) => None,
            Text(_) | Summary { .. } | Media(_) | Call(_) | Result(_) => Some(item.body.detached()),
            // These rare Items differ only in Seals and native JSON, which are not compared here.
            Body::Compaction | Body::Unknown => return None,
        };
        Some(Self { role: item.role, body })
    }

    /// Returns the approximate memory size in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.body.as_ref().map_or(0, size_of_body)
    }

    /// Whether an Item has the same content.
    fn matches(&self, item: &Item) -> bool {
        let says_the_same = match (&self.body, &item.body) {
            (None, body) => matches!(body, Body::Thought(_) | Body::Hosted(_)),
            (Some(known), body) => known == body,
        };
        self.role == item.role && says_the_same
    }
}

/// Returns the approximate heap size of a body in bytes.
fn size_of_body(body: &Body) -> usize {
    let name = |name: &Option<Name>| name.as_ref().map_or(0, |name| name.len());
    match body {
        Body::Text(text) | Body::Summary { text, .. } => text.len(),
        Body::Media(media) => size_of_media(media),
        Body::Call(call) => {
            call.id.0.len() + name(&call.wire_id) + call.name.len() + call.args.bytes().len()
        }
        Body::Result(result) => {
            let parts = result.parts.iter().map(|part| size_of::<Part>() + size_of_part(part));
            let names = result.call.0.len() + name(&result.wire_id) + name(&result.name);
            names + parts.sum::<usize>()
        }
        Body::Thought(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => 0,
    }
}

fn size_of_part(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Value(json) | Part::Unknown(_, json) => json.bytes().len(),
        Part::Media(media) => size_of_media(media),
    }
}

fn size_of_media(media: &Media) -> usize {
    match media {
        Media::Inline { mime, base64 } => mime.len() + base64.len(),
        Media::Remote { mime, uri, .. } => uri.len() + mime.as_ref().map_or(0, |mime| mime.len()),
    }
}

/// Returns a fingerprint of each prefix of a Call, one per Item. Collisions are possible.
fn fingerprints(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    (&tenant.0, end_user, call.system.len()).hash(&mut hasher);
    let marks = call.system.iter().chain(&call.items).map(|item| {
        let text = text(item).as_bytes();
        let (head, tail) =
            (text.get(..FINGERPRINT_END_BYTES), text.len().checked_sub(FINGERPRINT_END_BYTES));
        hasher.write_usize(text.len());
        hasher.write(head.unwrap_or(text));
        hasher.write(tail.and_then(|tail| text.get(tail..)).unwrap_or_default());
        hasher.finish()
    });
    marks.collect::<Vec<_>>().split_off(call.system.len())
}

/// Returns the text that represents an Item in its fingerprint.
fn text(item: &Item) -> &str {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => text,
        Body::Call(call) => &call.id.0,
        Body::Result(result) => match result.parts.first() {
            Some(Part::Text(text)) => text,
            Some(Part::Value(_) | Part::Media(_) | Part::Unknown(..)) | None => &result.call.0,
        },
        Body::Media(_) | Body::Thought(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            ""
        }
    }
}

#[cfg(test)]
#[path = "chain_cache_tests.rs"]
mod chain_cache_tests;
