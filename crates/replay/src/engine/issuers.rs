//! Caches the issuers of recent Seals and Thoughts. While the store cannot be read, the gateway
//! sends reasoning only if its issuer is in this cache.

use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Body, Call, Item, Origin, SealBinding, Target, Tenant};

use crate::byte_lru::ByteLru;
use crate::engine::compare;

/// Caches issuers by tenant and by the digest of what they issued.
#[derive(Default)]
pub(super) struct IssuerCache(Mutex<ByteLru<(Tenant, [u8; 32]), Issuer>>);

/// The endpoint that issued a Seal or a Thought, and the restrictions on its use.
#[derive(Clone)]
struct Issuer {
    origin: Arc<Origin>,
    bound: SealBinding,
}

/// Approximate size of an entry in bytes.
const ENTRY_SIZE: usize = 256;

impl IssuerCache {
    /// Adds the issuers of a captured turn.
    pub(super) fn add(&self, tenant: &Tenant, items: &[Item]) {
        let sealed = items.iter().flat_map(|item| &item.seals).map(|seal| {
            let issuer = Issuer { origin: Arc::clone(&seal.owner), bound: seal.bound };
            (digest(seal.reveal_to_tenant()), issuer)
        });
        let plain = items.iter().filter_map(|item| {
            let (text, origin) = (plain_thought(item)?, item.origin.as_ref()?);
            let issuer = Issuer { origin: Arc::clone(origin), bound: SealBinding::default() };
            Some((digest(text), issuer))
        });
        let all: Vec<_> = sealed.chain(plain).collect();
        if all.is_empty() {
            return;
        }
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (digest, issuer) in all {
            cache.put((tenant.clone(), digest), issuer, ENTRY_SIZE);
        }
    }

    /// Sets the issuers of the client's reasoning, so that encoding omits reasoning of other
    /// issuers. Returns whether all issuers are known, and the target can read every compaction
    /// item, which stands for a part of the conversation.
    pub(super) fn set_issuers(&self, tenant: &Tenant, call: &mut Call) -> bool {
        let target = call.target.clone();
        call.items.iter_mut().all(|item| self.set_issuer(tenant, item, &target))
    }

    fn set_issuer(&self, tenant: &Tenant, item: &mut Item, target: &Target) -> bool {
        // Encoding omits reasoning in another dialect: it never belonged to this target.
        let is_of_wire = |origin: &Arc<Origin>| origin.wire == target.origin.wire;
        if let Some(text) = plain_thought(item)
            && item.origin.as_ref().is_some_and(is_of_wire)
        {
            let Some(issuer) = self.issuer(tenant, text) else { return false };
            item.origin = Some(issuer.origin);
        }
        for seal in item.seals.iter_mut().filter(|seal| is_of_wire(&seal.owner)) {
            let Some(issuer) = self.issuer(tenant, seal.reveal_to_tenant()) else { return false };
            item.origin = Some(Arc::clone(&issuer.origin));
            seal.owner = issuer.origin;
            seal.bound = issuer.bound;
        }
        let is_readable =
            item.seals.iter().all(|seal| seal.open_for(target, seal.bound.prefix.as_ref()).is_ok());
        is_readable || !matches!(item.body, Body::Compaction)
    }

    /// Returns the issuer of the last reasoning in a Call; `None` if it is not known.
    pub(super) fn last_origin(&self, tenant: &Tenant, call: &Call) -> Option<Arc<Origin>> {
        let last = call.items.iter().rev().find_map(|item| {
            let sealed = item.seals.last().map(|seal| &**seal.reveal_to_tenant());
            sealed.or_else(|| plain_thought(item))
        });
        Some(self.issuer(tenant, last?)?.origin)
    }

    fn issuer(&self, tenant: &Tenant, issued: &[u8]) -> Option<Issuer> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(&(tenant.clone(), digest(issued))).cloned()
    }
}

/// Returns the text of a Thought that a model issued without a Seal.
fn plain_thought(item: &Item) -> Option<&[u8]> {
    match &item.body {
        Body::Thought(thought) if item.seals.is_empty() && !thought.content.is_empty() => {
            Some(thought.content.as_bytes())
        }
        _ => None,
    }
}

/// Returns the digest of a Seal or a Thought. Clients may change the base64 alphabet of a Seal.
fn digest(issued: &[u8]) -> [u8; 32] {
    compare::with_normalized_base64(issued, blake3::hash).into()
}
