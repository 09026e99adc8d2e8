//! Seals: opaque bytes issued by a provider, which only the issuer and the owning tenant may read.

use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Label, Opaque};

use crate::fate::ElisionReason;
use crate::name::{Digest, ItemId};
use crate::origin::{Origin, Target};

/// Opaque bytes from a provider: a signature, encrypted reasoning, redacted data or a fingerprint.
/// A Seal is never parsed, edited or logged. Only the issuing endpoint and the tenant that owns the
/// Thread can read the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Seal {
    bytes: Bytes,
    /// The kind of opaque value, such as `anthropic.signature`.
    pub format: Label,
    /// The Origin that issued the Seal.
    pub owner: Arc<Origin>,
    /// The Seal's position in its Item, and the Item that must follow.
    pub attached: Attachment,
    /// Restrictions on the use of the Seal, in addition to its binding to the issuing endpoint.
    pub bound: SealBinding,
}

/// The position of a Seal in its Item, and the Item that must follow directly after that Item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// A JSON pointer to the Seal's position in the Item's native JSON.
    pub at: Label,
    /// The Item that must follow the Seal's Item directly; `None` if the wire does not pair Items.
    pub leads: Option<ItemId>,
}

/// Restrictions on the use of a Seal, in addition to its binding to the issuing endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealBinding {
    /// Only models whose profile accepts Seals of the issuing family can read the Seal.
    pub model: bool,
    /// Only the issuing account can read the Seal.
    pub account: bool,
    /// The digest of the content before the Seal. If that content changes, the Seal becomes
    /// invalid.
    pub prefix: Option<Digest>,
}

impl Seal {
    /// Creates an unbound Seal at the JSON pointer `at` in its Item's native JSON.
    pub fn new(
        bytes: Bytes,
        format: impl Into<Label>,
        owner: Arc<Origin>,
        at: impl Into<Label>,
    ) -> Self {
        let attached = Attachment { at: at.into(), leads: None };
        Self { bytes, format: format.into(), owner, attached, bound: SealBinding::default() }
    }

    /// Adds restrictions on the use of the Seal. Without restrictions, the Seal is bound only to
    /// the issuing endpoint.
    #[must_use]
    pub fn bound_to(mut self, bound: SealBinding) -> Self {
        self.bound = bound;
        self
    }

    /// Requires `item` to directly follow the Item that contains the Seal.
    #[must_use]
    pub fn preceding(mut self, item: ItemId) -> Self {
        self.attached.leads = Some(item);
        self
    }

    /// Returns the bytes if they may be sent to `to`, otherwise the reason why not. `prefix` is the
    /// digest of the current content before the Seal; `None` skips the comparison with the bound
    /// prefix.
    pub fn open_for(&self, to: &Target, prefix: Option<&Digest>) -> Result<&Bytes, ElisionReason> {
        let (owner, reader) = (&self.owner, &to.origin);
        if owner.provider != reader.provider || owner.endpoint != reader.endpoint {
            return Err(ElisionReason::Foreign);
        }
        if self.bound.account && owner.account != reader.account {
            return Err(ElisionReason::OtherAccount);
        }
        if self.bound.model && !to.profile.reads_seals_of(&owner.family) {
            return Err(ElisionReason::OtherModel);
        }
        match (&self.bound.prefix, prefix) {
            (Some(bound), Some(now)) if bound != now => Err(ElisionReason::PrefixChanged),
            (Some(_) | None, _) => Ok(&self.bytes),
        }
    }

    /// Returns the bytes for storage and for the owning tenant's replies, views and exports. To
    /// send a Seal to a provider, use [`Seal::open_for`] instead.
    pub fn reveal_to_tenant(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes, to be replaced by equal bytes in other memory.
    pub(crate) fn bytes_mut(&mut self) -> &mut Bytes {
        &mut self.bytes
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the Seal as text for a JSON document; `None` if the Seal is empty or not UTF-8.
    pub fn to_opaque(&self) -> Option<Opaque> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (!text.is_empty()).then(|| Opaque::from(text))
    }

    /// Whether the Seal has no bytes. An empty Seal is treated as missing.
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
