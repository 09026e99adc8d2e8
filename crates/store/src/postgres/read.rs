//! Looks up captured turns in the Vault.

use throughline_core::{ErasureEpoch, StoreError, Tenant, VaultLookup, VaultMatch, VaultTurn};

use crate::backend::decode::vault_turn;
use crate::postgres::Shared;
use crate::sealed_batch::{KeyKind, SealedKey};

/// Looks up captured turns by key: see [`Driver::find`](crate::backend::Driver::find).
pub(super) async fn find(
    shared: &Shared,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> Result<VaultLookup, StoreError> {
    let mut lookup = VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() };
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(lookup) };
    let kinds: Vec<i16> = keys.iter().map(|key| key.kind.number()).collect();
    let hashes: Vec<&[u8]> = keys.iter().map(|key| key.hash.as_slice()).collect();
    // The outer join returns a row with the erasure epoch even without a match, from the same
    // snapshot.
    let sql = "SELECT coalesce(k.n, 0), coalesce(c.n, 0), t.name, t.parent, l.name, t.first, t.last, t.prefix, \
               (SELECT min(r.erased) FROM records r WHERE r.tenant = $1 AND r.log = t.log \
                AND r.seq BETWEEN t.first AND t.last AND r.erased IS NOT NULL AND r.kind <> 'copy'), \
               e.era \
               FROM tenants e LEFT JOIN (unnest($2::smallint[], $3::bytea[]) WITH ORDINALITY k(kind, hash, n) \
               CROSS JOIN LATERAL (SELECT max(turn) AS turn, count(*) AS n FROM turn_keys \
                WHERE tenant = $1 AND kind = k.kind AND hash = k.hash) c \
               JOIN turns t ON t.id = c.turn JOIN logs l ON l.id = t.log) ON true WHERE e.id = $1";
    for row in shared.server.query(sql, &[&tenant, &kinds, &hashes]).await? {
        lookup.era = ErasureEpoch(row.get(9)?);
        // Keys are numbered from 1; a row with 0 contains only the erasure epoch.
        let place = usize::try_from(row.get::<i64>(0)?).unwrap_or(0).wrapping_sub(1);
        let (Some(key), Some(found)) = (keys.get(place), lookup.found.get_mut(place)) else {
            continue;
        };
        let siblings = row.get::<u32>(1)?.saturating_sub(1);
        // A claim or id that matches several turns is ambiguous, so it matches none.
        if siblings > 0 && key.kind != KeyKind::Chain {
            continue;
        }
        let turn = vault_turn(&row, 2)?;
        *found = Some(VaultMatch { turn, siblings });
    }
    Ok(lookup)
}

/// Returns the newest turns with a key: see
/// [`Driver::find_newest`](crate::backend::Driver::find_newest).
pub(super) async fn find_newest(
    shared: &Shared,
    tenant: &Tenant,
    key: &SealedKey,
    limit: u32,
) -> Result<Vec<VaultTurn>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(Vec::new()) };
    let sql = "SELECT t.name, t.parent, l.name, t.first, t.last, t.prefix, \
               (SELECT min(r.erased) FROM records r WHERE r.tenant = $1 AND r.log = t.log \
                AND r.seq BETWEEN t.first AND t.last AND r.erased IS NOT NULL AND r.kind <> 'copy') \
               FROM turn_keys k JOIN turns t ON t.id = k.turn JOIN logs l ON l.id = t.log \
               WHERE k.tenant = $1 AND k.kind = $2 AND k.hash = $3 ORDER BY k.turn DESC LIMIT $4";
    let (kind, hash) = (key.kind.number(), key.hash.as_slice());
    let rows = shared.server.query(sql, &[&tenant, &kind, &hash, &i64::from(limit)]).await?;
    rows.iter().map(|row| vault_turn(row, 0)).collect()
}
