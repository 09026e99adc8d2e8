//! Opaque bytes that a provider issued, and who may see them.

use std::sync::Arc;

use bytes::Bytes;

use crate::fate::Why;
use crate::name::{Digest, ItemId, Label};
use crate::origin::{Origin, Target};

/// A signature, an encrypted thought, redacted data or a fingerprint. Never parsed, never edited, never printed;
/// it opens for its owner only, and for the tenant whose Thread it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Seal {
    bytes: Bytes,
    /// What kind of opaque value it is, as `anthropic.signature`.
    pub format: Label,
    /// Who issued it.
    pub owner: Arc<Origin>,
    /// Where it sits.
    pub attached: Attachment,
    /// What it is bound to, besides its owner's endpoint.
    pub bound: Bound,
}

/// Where a Seal sits: a pointer inside its own Item's native JSON, and the Item it must stand right before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// A JSON pointer into the Item's native JSON.
    pub at: Label,
    /// The Item that it must stand right before, where the wire pairs them.
    pub leads: Option<ItemId>,
}

/// What a Seal is bound to, besides its owner's endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// It is read by some model families only.
    pub model: bool,
    /// It is read in its own account only.
    pub account: bool,
    /// It is read only behind the exact prefix of this digest.
    pub prefix: Option<Digest>,
}

impl Seal {
    /// A Seal at `at` inside its Item's native JSON.
    pub fn new(
        bytes: Bytes,
        format: impl Into<Label>,
        owner: Arc<Origin>,
        at: impl Into<Label>,
    ) -> Self {
        let attached = Attachment { at: at.into(), leads: None };
        Self { bytes, format: format.into(), owner, attached, bound: Bound::default() }
    }

    /// The same Seal, bound.
    #[must_use]
    pub fn bound_to(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    /// The same Seal, which must stand right before `item`.
    #[must_use]
    pub fn leading(mut self, item: ItemId) -> Self {
        self.attached.leads = Some(item);
        self
    }

    /// The bytes, if a Call to `to` behind a prefix of this digest may carry them; else why not. Without a
    /// digest the prefix is taken to be the one that the Seal was issued behind.
    pub fn open_for(&self, to: &Target, prefix: Option<&Digest>) -> Result<&Bytes, Why> {
        let (owner, reader) = (&self.owner, &to.origin);
        if owner.provider != reader.provider || owner.endpoint != reader.endpoint {
            return Err(Why::Foreign);
        }
        if self.bound.account && owner.account != reader.account {
            return Err(Why::OtherAccount);
        }
        if self.bound.model && !to.profile.reads_seals_of(&owner.family) {
            return Err(Why::OtherModel);
        }
        match (&self.bound.prefix, prefix) {
            (Some(bound), Some(now)) if bound != now => Err(Why::PrefixChanged),
            (Some(_) | None, _) => Ok(&self.bytes),
        }
    }

    /// The bytes, for the tenant whose Thread it is: replies, views, exports and the store. Never for a Call.
    pub fn reveal_to_tenant(&self) -> &Bytes {
        &self.bytes
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has none, in which case it seals nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({self})")
    }
}

impl std::fmt::Display for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} B, {}, {}", self.len(), self.format, self.owner.provider)
    }
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod seal_tests;
