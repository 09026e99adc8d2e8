//! Captured turns and the keys for looking them up. Each turn links to the previous turn.

use throughline_json::Name;

use crate::fate::ElisionReason;
use crate::name::Digest;
use crate::store::LogId;

/// The id of a captured turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub Name);

crate::name::text_id!(TurnId);

/// A captured turn to store. Its content consists of the records that the same batch adds to `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVaultTurn {
    /// The turn's id. Claims for the turn contain the same id.
    pub id: TurnId,
    /// The previous turn. Reasoning is restored only along these links, so branches are never
    /// mixed.
    pub parent: Option<TurnId>,
    /// The keys for finding the turn.
    pub keys: Vec<VaultKey>,
    /// The log that contains the turn.
    pub log: LogId,
    /// The digest of everything that was sent before the reply; `None` if the model does not bind
    /// Seals to their prefix.
    pub prefix: Option<Digest>,
}

/// A key for finding a captured turn. Only its keyed digest is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VaultKey {
    /// A Claim that was issued with the turn.
    Claim(Name),
    /// A provider's id for the turn or for one of its parts. Ids are not unique, so a lookup
    /// succeeds only if exactly one of the tenant's turns has the id.
    Id(Name),
    /// The digest of the visible conversation up to the turn. A lookup returns the newest turn with
    /// the digest, and the number of other turns with the same digest.
    Chain(Digest),
}

/// A captured turn as the store returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultTurn {
    /// The turn's id. Claims for the turn contain the same id.
    pub id: TurnId,
    /// The previous turn; `None` for the first turn of a conversation.
    pub parent: Option<TurnId>,
    /// The log that contains the turn.
    pub log: LogId,
    /// The sequence number of the turn's first record.
    pub first: u64,
    /// The sequence number of the turn's last record.
    pub last: u64,
    /// The digest of everything that was sent before the reply; `None` if the model does not bind
    /// Seals to their prefix.
    pub prefix: Option<Digest>,
    /// Why part of the turn's content was erased; `None` if the content is complete.
    pub gone: Option<ElisionReason>,
}

/// A captured turn that matches a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultMatch {
    /// The matching turn. If several turns match, this is the newest.
    pub turn: VaultTurn,
    /// The number of other turns with the same key.
    pub siblings: u32,
}

/// The number of erasures of a tenant's data by all processes. While this number is unchanged,
/// cached turns stay valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ErasureEpoch(pub u64);

/// The results of one [`Store::find`](crate::Store::find) call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultLookup {
    /// One result per key, in the order of the keys; `None` if no turn matches.
    pub found: Vec<Option<VaultMatch>>,
    /// The tenant's erasure epoch at the time of the lookup.
    pub era: ErasureEpoch,
}
