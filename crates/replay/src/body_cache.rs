//! Caches request bodies with their index and their Items, so that only the new part of a growing
//! conversation is parsed and decoded.
//!
//! A fingerprint of the body's beginning selects an earlier body. The bytes of both bodies are then
//! compared, so a wrong selection costs time, but does not change the result. A body replaces the
//! earlier body that it continues.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use foldhash::fast::RandomState;
use throughline_codec::{KnownBeginning, KnownRequest};
use throughline_core::{Call, Target, Tenant, Wire};
use throughline_json::{Node, SharedBeginning, Tree};

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
    bodies: Mutex<ByteLru<u64, CachedBody>>,
    hasher: RandomState,
}

/// A parsed request body.
pub struct ParsedBody {
    /// The body with its index.
    pub tree: Tree,
    /// The facts about the body that later steps need not compute again.
    pub known: KnownFacts,
}

/// What is known about a request body from earlier requests.
#[derive(Default)]
pub struct KnownFacts {
    /// Whether a search of the body found nothing. `false` if the body was not searched.
    pub is_plain: bool,
    /// The part that an earlier decoded request has in common with the body.
    pub beginning: Option<KnownBeginning>,
    /// Takes the decoded request, for the requests that continue it; `None` if the body is not
    /// cached.
    decoded: Option<DecodedSlot>,
}

type DecodedSlot = Arc<OnceLock<Arc<KnownRequest>>>;

impl KnownFacts {
    /// Keeps the Call that was decoded from the body, unless its Items take much more memory than
    /// the body. `target` is the target for which it was decoded.
    pub fn keep(&self, wire: &Wire, body: &Tree, target: &Target, call: &Call) {
        let Some(decoded) = &self.decoded else { return };
        if KnownRequest::items_size(call) <= body.bytes().len() / 2 {
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

impl BodyCache {
    /// Creates an empty cache with a size limit in bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { bodies: Mutex::new(ByteLru::new(most)), hasher: RandomState::default() }
    }

    /// Parses a body with `parse`, which receives the beginning that an earlier body also has, and
    /// returns `None` if the body is not JSON. A body that is cached is also searched with `finds`,
    /// except for the beginning of which the result is known.
    pub fn parse<E>(
        &self,
        tenant: &Tenant,
        body: &Bytes,
        parse: impl FnOnce(Option<SharedBeginning<'_>>) -> Result<Option<Tree>, E>,
        finds: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<ParsedBody>, E> {
        if body.len() < SHORTEST {
            let tree = parse(None)?;
            return Ok(tree.map(|tree| ParsedBody { tree, known: KnownFacts::default() }));
        }
        let fingerprints = self.fingerprints(tenant, body);
        let known = self.find(&fingerprints);
        let beginning = known.as_ref().map(|(_, known)| SharedBeginning::of(&known.tree, body));
        let shared = beginning.as_ref().map_or(0, SharedBeginning::length);
        let Some(tree) = parse(beginning)? else { return Ok(None) };
        let searched = match &known {
            Some((_, known)) if known.is_plain => shared.saturating_sub(OVERLAP),
            Some(_) | None => 0,
        };
        let is_plain = !finds(body.get(searched..).unwrap_or(body));
        let beginning = known.as_ref().and_then(|(_, known)| {
            Some(KnownBeginning::new(Arc::clone(known.decoded.get()?), shared))
        });
        let continued = known.filter(|(_, known)| shared >= known.stable);
        let (decoded, stable) = (DecodedSlot::default(), stable_bytes(&tree));
        let last_stable = (stable / BLOCK).checked_sub(1);
        let mut cache = self.lock();
        if let Some((fingerprint, _)) = continued {
            drop(cache.take(&fingerprint));
        }
        if let Some(fingerprint) = last_stable.and_then(|block| fingerprints.get(block)) {
            // The texts of the Items take at most as much memory as the body, and the Items half as
            // much.
            let size = tree.size() + body.len() + body.len() / 2;
            let decoded = Arc::clone(&decoded);
            let cached = CachedBody { tree: tree.clone(), is_plain, decoded, stable };
            cache.put(*fingerprint, cached, size);
        }
        drop(cache);
        let known = KnownFacts { is_plain, beginning, decoded: Some(decoded) };
        Ok(Some(ParsedBody { tree, known }))
    }

    /// Finds the body with the longest equal fingerprint.
    fn find(&self, fingerprints: &[u64]) -> Option<(u64, CachedBody)> {
        let cache = self.lock();
        let longest_first = fingerprints.iter().rev();
        longest_first.copied().find_map(|mark| Some((mark, cache.get(&mark)?.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, ByteLru<u64, CachedBody>> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the fingerprints of a body's beginnings, each one block longer than the one before.
    fn fingerprints(&self, tenant: &Tenant, body: &[u8]) -> Vec<u64> {
        let mut hasher = self.hasher.build_hasher();
        tenant.hash(&mut hasher);
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
    let range = members.find(|member| member.is_array()).unwrap_or(root);
    let range = Node::range(range);
    range.start + range.len() / 4 * 3
}

#[cfg(test)]
#[path = "body_cache_tests.rs"]
mod body_cache_tests;
