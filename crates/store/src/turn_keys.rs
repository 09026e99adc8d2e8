//! The keys of a captured turn, as they are stored in the turn's own row.
//!
//! PostgreSQL adds them to the table `turn_keys` in the same transaction. See
//! `sqlite/turn_index.rs` for when SQLite adds them.

use crate::row_mac::{RowKey, Sum, TURN_KEYS, fields};
use crate::sealed_batch::{Hash16, KeyKind, SealedKey};

/// Name of the internal value that holds the watermark: the id of the last turn whose keys are in
/// the table `turn_keys`.
pub(crate) const WATERMARK: &str = "indexed turns";

/// Length of an encoded key: its kind and its hash.
const KEY_BYTES: usize = 1 + size_of::<Hash16>();

/// Encodes the keys of a turn. A key that occurs twice is encoded once.
pub(crate) fn encode(keys: &[SealedKey]) -> Vec<u8> {
    let mut out = Vec::with_capacity(keys.len() * KEY_BYTES);
    for (index, key) in keys.iter().enumerate() {
        if !keys.iter().take(index).any(|earlier| earlier == key) {
            out.push(key.kind.byte());
            out.extend_from_slice(&key.hash);
        }
    }
    out
}

/// Decodes the keys of a turn; `None` if the bytes are invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<SealedKey>> {
    let (keys, rest) = bytes.as_chunks::<KEY_BYTES>();
    let key = |[kind, hash @ ..]: &[u8; KEY_BYTES]| {
        Some(SealedKey { kind: KeyKind::from_byte(*kind)?, hash: *hash })
    };
    rest.is_empty().then(|| keys.iter().map(key).collect()).flatten()
}

/// Returns the MAC of the keys in a turn's row. The sum of the table `turn_keys` contains this MAC
/// instead of the MACs of the single keys.
pub(crate) fn mac(key: &RowKey, tenant: i64, turn: i64, keys: &[u8]) -> Sum {
    key.row(&TURN_KEYS, &fields![tenant, keys, turn])
}

/// Returns the MAC of one row of the table `turn_keys`.
pub(crate) fn row_mac(key: &RowKey, tenant: i64, turn: i64, entry: &SealedKey) -> Sum {
    let SealedKey { kind, hash } = entry;
    key.row(&TURN_KEYS, &fields![tenant, kind.number(), hash.as_slice(), turn])
}
