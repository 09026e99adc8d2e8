//! Captured turns that point to their parents, and how they are found again.

use crate::fate::Why;
use crate::name::{Digest, Name};
use crate::store::LogId;

/// The name of a captured turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub Name);

crate::name::text_id!(NodeId);

/// A captured turn that is to be kept. Its contents are the records that the same batch adds to `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultNode {
    /// Its name.
    pub id: NodeId,
    /// The turn before it. Restoring follows it, so branches are never mixed.
    pub parent: Option<NodeId>,
    /// By what it can be found.
    pub keys: Vec<VaultKey>,
    /// Where its contents are.
    pub log: LogId,
    /// The digest of what stood before it, exactly as it was sent.
    pub prefix: Option<Digest>,
}

/// By what a captured turn can be found. Only keyed digests of it are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VaultKey {
    /// A handle that we gave out with the turn.
    Claim(Name),
    /// An id that the provider gave the turn or one of its parts. Ids are not unique: it finds a turn only if it
    /// names no other of the tenant.
    Id(Name),
    /// The digest of the visible conversation up to the turn. The newest turn with it is found, and the others are
    /// counted.
    Chain(Digest),
}

/// A captured turn that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultTurn {
    /// Its name.
    pub id: NodeId,
    /// The turn before it.
    pub parent: Option<NodeId>,
    /// Where its contents are.
    pub log: LogId,
    /// The first record of it.
    pub first: u64,
    /// The last record of it.
    pub last: u64,
    /// The digest of what stood before it, exactly as it was sent.
    pub prefix: Option<Digest>,
    /// Whether some of its content is no more, and why.
    pub gone: Option<Why>,
}

/// What a key found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The turn.
    pub turn: VaultTurn,
    /// How many other turns have the same key.
    pub siblings: u32,
}

/// A count of how often something of a tenant was destroyed, by whichever process. In one era nothing is: a turn that stood
/// once in it stands as long as it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Era(pub u64);

/// What keys found, all of it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// One answer for each key.
    pub found: Vec<Option<Found>>,
    /// The era of that moment.
    pub era: Era,
}
