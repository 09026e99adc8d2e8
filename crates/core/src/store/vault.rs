//! Captured turns, linked to their parents, and their lookup keys.

use throughline_json::Name;

use crate::fate::ElisionReason;
use crate::name::Digest;
use crate::store::LogId;

/// The id of a captured turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub Name);

crate::name::text_id!(TurnId);

/// A captured turn to store. Its contents are the records that the same batch adds to `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVaultTurn {
    /// The id of the turn.
    pub id: TurnId,
    /// The previous turn. Restoring follows this link, so branches are never mixed.
    pub parent: Option<TurnId>,
    /// The lookup keys.
    pub keys: Vec<VaultKey>,
    /// The log that contains the turn.
    pub log: LogId,
    /// The digest of the prefix, exactly as it was sent.
    pub prefix: Option<Digest>,
}

/// A lookup key of a captured turn. Only its keyed digest is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VaultKey {
    /// A Claim that was issued with the turn.
    Claim(Name),
    /// A provider's id of the turn or one of its parts. Ids are not unique, so a lookup succeeds
    /// only if exactly one turn of the tenant has the id.
    Id(Name),
    /// The digest of the visible conversation up to the turn. A lookup returns the newest such turn
    /// and the number of the others.
    Chain(Digest),
}

/// A stored captured turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultTurn {
    /// The id of the turn.
    pub id: TurnId,
    /// The previous turn.
    pub parent: Option<TurnId>,
    /// The log that contains the turn.
    pub log: LogId,
    /// The first record of the turn.
    pub first: u64,
    /// The last record of the turn.
    pub last: u64,
    /// The digest of the prefix, exactly as it was sent.
    pub prefix: Option<Digest>,
    /// Why some of the content was erased, if it was.
    pub gone: Option<ElisionReason>,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultMatch {
    /// The turn.
    pub turn: VaultTurn,
    /// The number of other turns with the same key.
    pub siblings: u32,
}

/// Counts the erasures of a tenant's data by all processes. While the epoch is unchanged nothing
/// was erased, so cached turns stay valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErasureEpoch(pub u64);

/// The results of a lookup at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultLookup {
    /// One result per key.
    pub found: Vec<Option<VaultMatch>>,
    /// The epoch at that time.
    pub era: ErasureEpoch,
}
