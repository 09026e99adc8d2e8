//! Caches the issuers of recent Seals and Thoughts. While the store cannot be read, the gateway
//! sends reasoning only if its issuer is in this cache.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use throughline_core::{Body, Call, Item, Origin, Role, Seal, SealBinding, Target, Tenant};

use crate::byte_lru::ByteLru;
use crate::engine::{compare, unmask};

#[cfg(test)]
#[path = "issuers_tests.rs"]
mod tests;

/// Caches issuers by tenant and by the digest of what they issued.
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
    /// Creates an empty cache with a size limit in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(Mutex::new(ByteLru::new(most)))
    }

    /// Adds the issuers of a captured turn, by Seal, by the text of a Thought and by the id of a
    /// Thought.
    pub(super) fn add(&self, tenant: &Tenant, items: &[Item]) {
        let mut entries = Vec::new();
        for seal in items.iter().flat_map(|item| &item.seals) {
            let issuer = Issuer { origin: Arc::clone(&seal.owner), bound: seal.bound };
            entries.push((digest(seal.reveal_to_tenant()), issuer));
        }
        let mut thoughts = items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        if let Some(origin) = thoughts.clone().find_map(|item| item.origin.as_ref()) {
            let texts = unmask::thoughts_of(items);
            let ids = thoughts.by_ref().filter_map(native_id);
            let all = texts.iter().map(String::as_str).chain(ids);
            entries.extend(all.map(|text| {
                let issuer = Issuer { origin: Arc::clone(origin), bound: SealBinding::default() };
                (digest(text.as_bytes()), issuer)
            }));
        }
        if entries.is_empty() {
            return;
        }
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (digest, issuer) in entries {
            cache.put((tenant.clone(), digest), issuer, ENTRY_SIZE);
        }
    }

    /// Sets the issuers of the client's reasoning, so that encoding omits reasoning of other
    /// issuers. Returns `false` if the Call must not be sent: the issuer of some reasoning is not
    /// known, a text is a Thought of another endpoint, or the target cannot read a compaction item,
    /// which stands for a part of the conversation.
    pub(super) fn set_issuers(&self, tenant: &Tenant, call: &mut Call) -> bool {
        let target = call.target.clone();
        let mut items = call.system.iter_mut().chain(&mut call.items);
        items.all(|item| self.set_issuer(tenant, item, &target))
    }

    fn set_issuer(&self, tenant: &Tenant, item: &mut Item, target: &Target) -> bool {
        if let (Body::Text(text), Role::Assistant) = (&item.body, item.role)
            && !self.may_send_text(tenant, text, target)
        {
            return false;
        }
        // Encoding omits reasoning in another dialect: it never belonged to this target.
        let is_of_wire = |origin: &Arc<Origin>| origin.wire == target.origin.wire;
        let has_known_dialect = item.origin.as_ref().map_or(item.native.is_some(), is_of_wire);
        if let Some(thought) = plain_thought(item).filter(|_| has_known_dialect) {
            let Some(issuer) = self.issuer(tenant, thought) else { return false };
            item.origin = Some(issuer.origin);
        }
        for seal in &mut item.seals {
            if !is_of_wire(&seal.owner) || is_stand_in(seal, target) {
                continue;
            }
            let Some(issuer) = self.issuer(tenant, seal.reveal_to_tenant()) else { return false };
            item.origin = Some(Arc::clone(&issuer.origin));
            seal.owner = issuer.origin;
            seal.bound = issuer.bound;
        }
        let is_readable =
            item.seals.iter().all(|seal| seal.open_for(target, seal.bound.prefix.as_ref()).is_ok());
        is_readable || !matches!(item.body, Body::Compaction)
    }

    /// Whether a text of the model is no Thought of another endpoint. Clients send Thoughts as
    /// plain or tagged text.
    fn may_send_text(&self, tenant: &Tenant, text: &str, target: &Target) -> bool {
        let is_targets = |issuer: Issuer| is_same_endpoint(&issuer.origin, target);
        let issuer = |text: &str| self.issuer(tenant, text.trim().as_bytes());
        if issuer(text).is_some_and(|issuer| !is_targets(issuer)) {
            return false;
        }
        let mut rest = text;
        while let Some((inner, after)) = unmask::tagged(rest) {
            if !issuer(inner).is_some_and(is_targets) {
                return false;
            }
            rest = after;
        }
        true
    }

    /// Returns the issuer of the last reasoning in a Call that the endpoint of the target issued,
    /// from any account; `None` if it is not known.
    pub(super) fn last_origin(&self, tenant: &Tenant, call: &Call) -> Option<Arc<Origin>> {
        call.items.iter().rev().find_map(|item| {
            let sealed = item.seals.iter().map(|seal| &**seal.reveal_to_tenant());
            let mut issuers = sealed.chain(plain_thought(item)).filter_map(|issued| {
                let issuer = self.issuer(tenant, issued)?;
                is_same_endpoint(&issuer.origin, &call.target).then_some(issuer.origin)
            });
            issuers.next()
        })
    }

    fn issuer(&self, tenant: &Tenant, issued: &[u8]) -> Option<Issuer> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(&(tenant.clone(), digest(issued))).cloned()
    }
}

fn is_same_endpoint(origin: &Origin, target: &Target) -> bool {
    origin.provider == target.origin.provider && origin.endpoint == target.origin.endpoint
}

/// Returns the text, or else the id, of a Thought without a Seal.
fn plain_thought(item: &Item) -> Option<&[u8]> {
    let Body::Thought(thought) = &item.body else { return None };
    let text = thought.content.trim();
    let plain = if text.is_empty() { native_id(item)? } else { text };
    item.seals.is_empty().then_some(plain.as_bytes())
}

/// Returns the provider's id of an Item.
fn native_id(item: &Item) -> Option<&str> {
    item.native.as_ref()?.id.as_deref()
}

/// Whether a Seal is the placeholder that the vendor documents for a missing Seal.
fn is_stand_in(seal: &Seal, target: &Target) -> bool {
    target.profile.stand_in.as_deref().is_some_and(|known| {
        let sent = &**seal.reveal_to_tenant();
        sent == known.as_bytes() || sent == STANDARD.encode(known).as_bytes()
    })
}

/// Returns the digest of a Seal, text or id. Clients may change the base64 alphabet of a Seal.
fn digest(issued: &[u8]) -> [u8; 32] {
    compare::with_normalized_base64(issued, blake3::hash).into()
}
