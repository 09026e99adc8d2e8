//! Caches request bodies with their index and their Items, so that only the new part of a growing
//! conversation is parsed and decoded.
//!
//! A fingerprint of the body's beginning selects an earlier body. The bytes of both bodies are then
//! compared, so a wrong selection costs time, but does not change the result. A body replaces the
//! earlier body that it continues.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use foldhash::fast::RandomState;
use throughline_codec::{KnownBeginning, KnownRequest};
use throughline_core::{Call, Target, Tenant, Wire};
use throughline_json::{SharedBeginning, Tree};

use crate::byte_lru::ByteLru;

/// Minimum size in bytes of a cached body. Shorter bodies are parsed faster than they are found.
const SHORTEST: usize = 16 << 10;
/// The distance in bytes between the ends of the fingerprinted beginnings.
const BLOCK: usize = 4 << 10;
/// The members that contain the conversation, which grows from request to request.
const CONVERSATION_MEMBERS: [&str; 3] = ["messages", "input", "contents"];
/// Number of bytes before the new part of a body that are searched again. Longer than every text
/// that the search finds.
const OVERLAP: usize = 256;

/// Recent request bodies, by tenant and by the fingerprint of their beginning.
pub struct BodyCache {
    bodies: Mutex<ByteLru<(Tenant, u64), CachedBody>>,
    hasher: RandomState,
}

/// A parsed request body.
pub struct ParsedBody {
    /// The body with its index.
    pub tree: Tree,
    /// What is known about the body from earlier requests.
    pub known: KnownFacts,
}

impl ParsedBody {
    /// Creates a body about which nothing is known.
    pub fn new(tree: Tree) -> Self {
        Self { tree, known: KnownFacts::default() }
    }
}

/// What is known about a request body from earlier requests.
#[derive(Default)]
pub struct KnownFacts {
    /// Whether the body is known to contain no text because of which it must be decoded.
    pub is_plain: bool,
    /// The part that an earlier decoded request has in common with the body.
    beginning: Mutex<Option<KnownBeginning>>,
    /// Takes the decoded request, for the requests that continue it; `None` if the body is not
    /// cached.
    decoded: Option<DecodedSlot>,
}

type DecodedSlot = Arc<OnceLock<Arc<KnownRequest>>>;

impl KnownFacts {
    /// Takes the part that an earlier decoded request has in common with the body. It keeps the
    /// earlier body in memory, so it is used at most once.
    pub fn take_beginning(&self) -> Option<KnownBeginning> {
        self.beginning.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the Call that was decoded from the body, unless its Items take more memory than the
    /// body. `target` is the target for which it was decoded.
    pub fn keep(&self, wire: &Wire, body: &Tree, target: &Target, call: &Call) {
        let Some(decoded) = &self.decoded else { return };
        if KnownRequest::items_size(call) <= body.bytes().len() {
            decoded.get_or_init(|| {
                let (wire, body, target) = (wire.clone(), body.clone(), target.clone());
                Arc::new(KnownRequest::new(wire, body, target, call))
            });
        }
    }
}

#[derive(Clone)]
struct CachedBody {
    tree: Tree,
    is_plain: bool,
    decoded: DecodedSlot,
    /// The number of leading bytes that the next request of the conversation probably repeats.
    stable: usize,
}

/// A cached body that begins like a new body.
struct Match {
    fingerprint: u64,
    body: CachedBody,
    /// The number of bytes that both bodies have in common at the start.
    shared: usize,
}

impl BodyCache {
    /// Creates an empty cache with a size limit in bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { bodies: Mutex::new(ByteLru::new(most)), hasher: RandomState::default() }
    }

    /// Parses a body with `parse`, which receives the beginning that an earlier body also has, and
    /// returns `None` if the body is not JSON. A body that is cached is also searched with
    /// `must_be_decoded`, except for the beginning of which the result is known.
    pub fn parse<E>(
        &self,
        tenant: &Tenant,
        body: &Bytes,
        parse: impl FnOnce(Option<SharedBeginning<'_>>) -> Result<Option<Tree>, E>,
        must_be_decoded: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<ParsedBody>, E> {
        if body.len() < SHORTEST {
            return Ok(parse(None)?.map(ParsedBody::new));
        }
        let fingerprints = self.fingerprints(body);
        let found = self.find(tenant, &fingerprints);
        let beginning = found.as_ref().map(|(_, known)| SharedBeginning::of(&known.tree, body));
        let shared = beginning.as_ref().map_or(0, SharedBeginning::length);
        let Some(tree) = parse(beginning)? else { return Ok(None) };
        let found = found.map(|(fingerprint, body)| Match { fingerprint, body, shared });
        let searched = match &found {
            Some(found) if found.body.is_plain => shared.saturating_sub(OVERLAP),
            Some(_) | None => 0,
        };
        let is_plain = !must_be_decoded(body.get(searched..).unwrap_or(body));
        let beginning = found.as_ref().and_then(|found| {
            Some(KnownBeginning::new(Arc::clone(found.body.decoded.get()?), shared))
        });
        let cached = CachedBody {
            is_plain,
            decoded: DecodedSlot::default(),
            stable: stable_bytes(&tree),
            tree: tree.clone(),
        };
        let decoded = self.insert(tenant, cached, &fingerprints, found);
        let beginning = Mutex::new(beginning);
        Ok(Some(ParsedBody { tree, known: KnownFacts { is_plain, beginning, decoded } }))
    }

    /// Finds the body with the longest equal fingerprint.
    fn find(&self, tenant: &Tenant, fingerprints: &[u64]) -> Option<(u64, CachedBody)> {
        let (mut key, bodies) = ((tenant.clone(), 0), self.lock());
        fingerprints.iter().rev().find_map(|fingerprint| {
            key.1 = *fingerprint;
            Some((*fingerprint, bodies.get(&key)?.clone()))
        })
    }

    /// Inserts a body in place of the body that it continues. Returns the slot for its decoded
    /// request if the body is long enough for a fingerprint.
    fn insert(
        &self,
        tenant: &Tenant,
        cached: CachedBody,
        fingerprints: &[u64],
        found: Option<Match>,
    ) -> Option<DecodedSlot> {
        let last_stable = (cached.stable / BLOCK).checked_sub(1)?;
        let key = (tenant.clone(), *fingerprints.get(last_stable)?);
        let decoded = Arc::clone(&cached.decoded);
        // The Items and their texts take at most as much memory as the body each.
        let size = cached.tree.size() + 2 * cached.tree.bytes().len();
        let continued = found.filter(|found| found.shared >= found.body.stable);
        let mut bodies = self.lock();
        let before = continued.and_then(|found| bodies.take(&(tenant.clone(), found.fingerprint)));
        let evicted = bodies.replace(key, cached, size);
        drop(bodies);
        // Large values are freed after the lock.
        drop((before, evicted));
        Some(decoded)
    }

    fn lock(&self) -> MutexGuard<'_, ByteLru<(Tenant, u64), CachedBody>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fingerprints of a body's beginnings, each one block longer than the one before.
    fn fingerprints(&self, body: &[u8]) -> Vec<u64> {
        let mut hasher = self.hasher.build_hasher();
        let blocks = body.chunks_exact(BLOCK).map(|block| {
            hasher.write(block);
            hasher.finish()
        });
        blocks.collect()
    }
}

/// Returns the end of the first three quarters of the conversation. Clients change the end of the
/// conversation, for example when they move a cache marker.
fn stable_bytes(tree: &Tree) -> usize {
    let root = tree.root();
    let mut members = CONVERSATION_MEMBERS.iter().filter_map(|member| root.get(member));
    let range = members.find(|member| member.is_array()).unwrap_or(root).range();
    range.start + range.len() / 4 * 3
}

#[cfg(test)]
#[path = "body_cache_tests.rs"]
mod body_cache_tests;
