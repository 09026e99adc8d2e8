//! The chains of requests that were read before: a conversation that grows is digested only where it is new.
//!
//! What could be seen of a request is remembered with its chain. A later request that shows all of that again, letter by
//! letter, goes on from there. The texts themselves are compared: a fingerprint only says where it is worth to do so.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use throughline_core::{Body, Call, Item, Media, Name, Part, Role, Tenant};

use crate::recent::Recent;
use crate::replay::chain::{self, Chain};

/// How many bytes of conversations are remembered.
const MOST_BYTES: usize = 16 << 20;
/// The longest conversation that is remembered, in Items. To remember one takes as much memory as to read it.
const MOST_ITEMS: usize = 8_192;
/// How many bytes at either end of a text its fingerprint has.
const ENDS: usize = 32;

/// The chains of the last requests, by the fingerprints of these.
pub(super) struct Chains(Mutex<Recent<u64, Known>>);

/// A request as it was seen.
struct Known {
    tenant: Tenant,
    end_user: Option<Name>,
    system: Vec<Shown>,
    items: Vec<Shown>,
    chain: Chain,
    /// About how many bytes what it shows takes.
    shown: usize,
}

/// What a chain sees of an Item.
struct Shown {
    role: Role,
    /// What it says; nothing where nothing of that can be seen.
    body: Option<Body>,
}

impl Default for Chains {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(MOST_BYTES)))
    }
}

impl Chains {
    /// The visible conversation of a Call: as [`Chain::of`] would tell it, and sooner.
    pub(super) fn of(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Chain {
        if call.items.len() > MOST_ITEMS {
            return Chain::of(call, tenant, end_user);
        }
        let marks = fingerprints(call, tenant, end_user);
        let Some(last) = marks.last() else { return Chain::of(call, tenant, end_user) };
        // Conversations seldom branch, so whoever goes on from a request takes it.
        let before = match self.take(&marks) {
            Some((mark, known)) if known.begins(call, tenant, end_user) => Some((mark, known)),
            Some((mark, another)) => {
                self.put(mark, another);
                None
            }
            None => None,
        };
        // Nothing goes on from where the model speaks, nor where more can be seen than is compared here.
        let seen = before.as_ref().map_or(0, |(_, known)| known.items.len());
        let new = call.items.get(seen..).unwrap_or_default();
        let shown = if chain::is_settled(&call.items) { Shown::all(new) } else { None };
        let known = match (before, shown) {
            (Some((_, mut known)), Some(shown)) => {
                known.chain.extend(&call.items, seen);
                known.add(shown);
                known
            }
            (Some((mark, known)), None) => {
                let mut chain = known.chain.clone();
                chain.extend(&call.items, seen);
                self.put(mark, known);
                return chain;
            }
            (None, shown) => {
                let chain = Chain::of(call, tenant, end_user);
                let Some((items, system)) = shown.zip(Shown::all(&call.system)) else {
                    return chain;
                };
                let mut known = Known::new(tenant, end_user, system, chain);
                known.add(items);
                known
            }
        };
        let chain = known.chain.clone();
        self.put(*last, known);
        chain
    }

    /// Takes out the longest beginning that was seen before.
    fn take(&self, marks: &[u64]) -> Option<(u64, Known)> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.iter().rev().find_map(|mark| Some((*mark, recent.take(mark)?)))
    }

    fn put(&self, mark: u64, known: Known) {
        let size = known.size();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(mark, known, size);
    }
}

impl Known {
    fn new(tenant: &Tenant, end_user: Option<&str>, system: Vec<Shown>, chain: Chain) -> Self {
        let (tenant, end_user) = (tenant.clone(), end_user.map(Name::from));
        let shown = system.iter().map(Shown::size).sum();
        Self { tenant, end_user, system, items: Vec::new(), chain, shown }
    }

    fn add(&mut self, items: Vec<Shown>) {
        self.shown += items.iter().map(Shown::size).sum::<usize>();
        self.items.extend(items);
    }

    /// About how many bytes it takes.
    fn size(&self) -> usize {
        let whose = self.tenant.0.len() + self.end_user.as_ref().map_or(0, |user| user.len());
        size_of::<Self>() + whose + self.shown + self.chain.size()
    }

    /// Whether a Call begins with all of this.
    fn begins(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> bool {
        let is_same = |known: &[Shown], items: &[Item]| {
            known.len() == items.len() && known.iter().zip(items).all(|(known, now)| known.is(now))
        };
        self.tenant == *tenant
            && self.end_user.as_deref() == end_user
            && is_same(&self.system, &call.system)
            && is_same(&self.items, call.items.get(..self.items.len()).unwrap_or_default())
    }
}

impl Shown {
    /// What a chain sees of these Items; nothing where that is more than is compared here.
    fn all(items: &[Item]) -> Option<Vec<Self>> {
        items.iter().map(Self::of).collect()
    }

    fn of(item: &Item) -> Option<Self> {
        let body = match &item.body {
            Body::Thought(_) | Body::Hosted(_) => None,
            Body::Text(_)
            | Body::Summary { .. }
            | Body::Media(_)
            | Body::Call(_)
            | Body::Result(_) => Some(item.body.detached()),
            // Seals and the wire's own words tell these apart. They are seldom.
            Body::Compaction | Body::Unknown => return None,
        };
        Some(Self { role: item.role, body })
    }

    /// About how many bytes it takes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.body.as_ref().map_or(0, size_of_body)
    }

    /// Whether that Item shows the same.
    fn is(&self, item: &Item) -> bool {
        let says_the_same = match (&self.body, &item.body) {
            (None, body) => matches!(body, Body::Thought(_) | Body::Hosted(_)),
            (Some(known), body) => known == body,
        };
        self.role == item.role && says_the_same
    }
}

/// About how many bytes a body holds elsewhere.
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

/// What most likely tells each beginning of a Call from others: one for each Item.
fn fingerprints(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    (&tenant.0, end_user, call.system.len()).hash(&mut hasher);
    let marks = call.system.iter().chain(&call.items).map(|item| {
        let text = text(item).as_bytes();
        let (head, tail) = (text.get(..ENDS), text.len().checked_sub(ENDS));
        hasher.write_usize(text.len());
        hasher.write(head.unwrap_or(text));
        hasher.write(tail.and_then(|tail| text.get(tail..)).unwrap_or_default());
        hasher.finish()
    });
    marks.collect::<Vec<_>>().split_off(call.system.len())
}

/// A text that an Item most likely shares with no other.
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
#[path = "chains_tests.rs"]
mod chains_tests;
