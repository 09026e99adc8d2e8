//! Reads logs, records, captured turns and pending requests, and decodes rows.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Digest, ErasureEpoch, LogHead, LogId, LogKind, PendingEntry, PendingStatus, Receipt, Rewind,
    StoreError, StoreFuture, Tenant, TurnId, VaultLookup, VaultMatch, VaultTurn,
};
use throughline_json::Name;
use tokio_postgres::types::{FromSql, ToSql};

use crate::backend::{LogBackend, VaultBackend};
use crate::postgres::{Postgres, wait};
use crate::query::{Listing, Span};
use crate::row::{ErasureReason, Row, Salt, fork_of};
use crate::sealed_batch::{KeyKind, SealedBatch, SealedKey};

/// A log's row, with the names of the logs that it refers to.
const LOG: &str = "SELECT l.name, l.kind, o.name, f.name, l.fork_at, l.rewinds, l.status, l.last, \
                   l.events, l.bytes, l.created, l.updated, l.gone FROM logs l \
                   LEFT JOIN logs o ON o.id = l.of AND o.tenant = l.tenant \
                   LEFT JOIN logs f ON f.id = l.fork AND f.tenant = l.tenant";

/// The columns of a record.
pub(super) const RECORD_COLUMNS: &str = "r.seq, r.kind, r.at, r.events, r.last_event, r.about, r.size, r.commitment, \
                      r.link, s.writer, r.position, r.blob, r.content, w.epoch, w.salt, r.erased";
pub(super) const FROM_RECORDS: &str = "FROM records r JOIN segments s ON s.id = r.segment AND s.tenant = r.tenant \
     LEFT JOIN salts w ON w.record = r.id AND w.tenant = r.tenant";

impl LogBackend for Postgres {
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(self.commit(batch))
    }

    fn log(&self, tenant: &Tenant, log: &LogId) -> StoreFuture<'_, Option<LogHead>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(None) };
            let sql = format!("{LOG} WHERE l.tenant = $1 AND l.name = $2");
            let row = self.shared.server.query_opt(&sql, &[&tenant, &&*log.0]).await?;
            row.map(|row| log_head(&row)).transpose()
        })
    }

    fn logs(&self, tenant: &Tenant, listing: Listing) -> StoreFuture<'_, Vec<LogHead>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(Vec::new()) };
            let Listing { kind, of, forks_of, order, after, limit } = listing;
            let kind = kind.map(kind_number);
            let name = |log: Option<LogId>| log.map(|log| log.0.to_string());
            let [of, forks_of, after] = [of, forks_of, after].map(name);
            let (comparison, direction) = order.sql();
            let mut sql = format!("{LOG} WHERE l.tenant = $1");
            let mut values: Vec<&(dyn ToSql + Sync)> = vec![&tenant];
            let mut filter = |condition: &str, value, end: &str| {
                values.push(value);
                sql += &[" AND ", condition, " $", &values.len().to_string(), end].concat();
            };
            if kind.is_some() {
                filter("l.kind =", &kind, "");
            }
            if of.is_some() {
                filter("l.of = (SELECT id FROM logs WHERE tenant = $1 AND name =", &of, ")");
            }
            if forks_of.is_some() {
                let condition = "l.fork = (SELECT id FROM logs WHERE tenant = $1 AND name =";
                filter(condition, &forks_of, ")");
            }
            if after.is_some() {
                let condition = format!(
                    "(l.hour, l.updated, l.id) {comparison} \
                     (SELECT hour, updated, id FROM logs WHERE tenant = $1 AND name ="
                );
                filter(&condition, &after, ")");
            }
            let limit = i64::from(limit);
            values.push(&limit);
            let sql = format!(
                "{sql} ORDER BY l.hour {direction}, l.updated {direction}, l.id {direction} LIMIT ${}",
                values.len()
            );
            self.shared.server.query(&sql, &values).await?.iter().map(log_head).collect()
        })
    }

    fn rows(&self, tenant: &Tenant, log: &LogId, span: Span) -> StoreFuture<'_, Vec<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(Vec::new()) };
            let sql = format!(
                "SELECT {RECORD_COLUMNS} {FROM_RECORDS} WHERE r.tenant = $1 \
                 AND r.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2) \
                 AND r.seq > $3 AND r.seq <= $4 ORDER BY r.seq LIMIT $5"
            );
            let Span { after, up_to, limit } = span;
            let (after, up_to, limit) = (signed(after), signed(up_to), i64::from(limit));
            let values: [&(dyn ToSql + Sync); 5] = [&tenant, &&*log.0, &after, &up_to, &limit];
            self.shared.server.query(&sql, &values).await?.iter().map(record).collect()
        })
    }

    fn place_of_event(&self, tenant: &Tenant, log: &LogId, event: u64) -> StoreFuture<'_, u64> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(0) };
            // Events are numbered in record order, so the first record with a higher event ends the
            // range.
            let sql = "SELECT coalesce((SELECT r.seq - 1 FROM records r WHERE r.tenant = $1 AND r.log = l.id \
                       AND r.last_event > $3 ORDER BY r.last_event LIMIT 1), l.last) \
                       FROM logs l WHERE l.tenant = $1 AND l.name = $2";
            let values: [&(dyn ToSql + Sync); 3] = [&tenant, &&*log.0, &signed(event)];
            let row = self.shared.server.query_opt(sql, &values).await?;
            row.map_or(Ok(0), |row| number(&row, 0))
        })
    }

    fn checkpoint(
        &self,
        tenant: &Tenant,
        log: &LogId,
        at_most: u64,
    ) -> StoreFuture<'_, Option<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(None) };
            let sql = format!(
                "SELECT {RECORD_COLUMNS} {FROM_RECORDS} WHERE r.tenant = $1 \
                 AND r.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2) \
                 AND r.kind = 'checkpoint' AND r.seq <= $3 AND r.erased IS NULL ORDER BY r.seq DESC LIMIT 1"
            );
            let values: [&(dyn ToSql + Sync); 3] = [&tenant, &&*log.0, &signed(at_most)];
            let row = self.shared.server.query_opt(&sql, &values).await?;
            row.map(|row| record(&row)).transpose()
        })
    }

    fn about(&self, tenant: &Tenant, about: i64) -> StoreFuture<'_, Vec<(LogId, u64)>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(Vec::new()) };
            let sql = "SELECT l.name, r.seq FROM records r JOIN logs l ON l.id = r.log \
                       WHERE r.tenant = $1 AND r.about = $2 ORDER BY r.id";
            let rows = self.shared.server.query(sql, &[&tenant, &about]).await?;
            rows.iter().map(|row| Ok((LogId(text(row, 0)?), number(row, 1)?))).collect()
        })
    }

    fn blob(&self, tenant: &Tenant, blob: i64) -> StoreFuture<'_, Option<(Digest, Bytes)>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(None) };
            let sql = "SELECT hash, content FROM blobs WHERE id = $2 AND tenant = $1";
            let row = self.shared.server.query_opt(sql, &[&tenant, &blob]).await?;
            row.map(|row| Ok((digest(&row, 0)?, bytes(&row, 1)?))).transpose()
        })
    }

    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(wait::wait(&self.shared, tenant, log, after))
    }

    /// Includes expired requests.
    fn pending(&self, tenant: &Tenant, log: Option<&LogId>) -> StoreFuture<'_, Vec<PendingEntry>> {
        let (tenant, log) = (tenant.clone(), log.cloned());
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(Vec::new()) };
            let sql = "SELECT p.id, p.kind, l.name, p.seq, p.opened, p.expires, p.expires <= throughline_now() \
                       FROM pending p JOIN logs l ON l.id = p.log WHERE p.tenant = $1 AND p.taken IS NULL \
                       AND ($2::text IS NULL OR p.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2)) \
                       ORDER BY p.opened, p.id";
            let log = log.as_ref().map(|log| &*log.0);
            let rows = self.shared.server.query(sql, &[&tenant, &log]).await?;
            let entry = |row| {
                let is_expired = field::<Option<bool>>(row, 6)? == Some(true);
                Ok(PendingEntry {
                    id: text(row, 0)?,
                    kind: text(row, 1)?,
                    log: LogId(text(row, 2)?),
                    seq: number(row, 3)?,
                    opened: time(field(row, 4)?)?,
                    expires: field::<Option<i64>>(row, 5)?.map(time).transpose()?,
                    status: if is_expired { PendingStatus::Expired } else { PendingStatus::Open },
                })
            };
            rows.iter().map(entry).collect()
        })
    }
}

impl VaultBackend for Postgres {
    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup> {
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        Box::pin(async move {
            let mut lookup =
                VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() };
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(lookup) };
            let kinds: Vec<i16> = keys.iter().map(|key| key.kind.number()).collect();
            let hashes: Vec<&[u8]> = keys.iter().map(|key| key.hash.as_slice()).collect();
            // Without a match, one row still returns the erasure epoch, from the same snapshot.
            let sql = "SELECT coalesce(k.n, 0), coalesce(c.n, 0), t.name, t.parent, l.name, t.first, t.last, t.prefix, \
                       (SELECT min(r.erased) FROM records r WHERE r.tenant = $1 AND r.log = t.log \
                        AND r.seq BETWEEN t.first AND t.last AND r.erased IS NOT NULL AND r.kind <> 'copy'), \
                       e.era \
                       FROM tenants e LEFT JOIN (unnest($2::smallint[], $3::bytea[]) WITH ORDINALITY k(kind, hash, n) \
                       CROSS JOIN LATERAL (SELECT max(turn) AS turn, count(*) AS n FROM turn_keys \
                        WHERE tenant = $1 AND kind = k.kind AND hash = k.hash) c \
                       JOIN turns t ON t.id = c.turn JOIN logs l ON l.id = t.log) ON true WHERE e.id = $1";
            for row in self.shared.server.query(sql, &[&tenant, &kinds, &hashes]).await? {
                lookup.era = ErasureEpoch(number(&row, 9)?);
                // Keys are numbered from 1, and 0 means that none matched.
                let place = usize::try_from(number(&row, 0)?).unwrap_or(0).wrapping_sub(1);
                let (Some(key), Some(found)) = (keys.get(place), lookup.found.get_mut(place))
                else {
                    continue;
                };
                let siblings =
                    u32::try_from(number(&row, 1)?.saturating_sub(1)).unwrap_or(u32::MAX);
                // A claim or id that matches two turns is ambiguous and matches none.
                if siblings > 0 && key.kind != KeyKind::Chain {
                    continue;
                }
                let turn = VaultTurn {
                    id: TurnId(text(&row, 2)?),
                    parent: text_or_none(&row, 3)?.map(TurnId),
                    log: LogId(text(&row, 4)?),
                    first: number(&row, 5)?,
                    last: number(&row, 6)?,
                    prefix: digest_or_none(&row, 7)?,
                    gone: erased(&row, 8)?.map(ErasureReason::to_elision_reason),
                };
                *found = Some(VaultMatch { turn, siblings });
            }
            Ok(lookup)
        })
    }
}

fn log_head(row: &tokio_postgres::Row) -> Result<LogHead, StoreError> {
    let rewinds: Option<&str> = field(row, 5)?;
    let rewinds = rewinds.unwrap_or_default().split_ascii_whitespace().map(|pair| {
        let (at, to) = pair.split_once(':').ok_or_else(|| damaged("a rewind"))?;
        let number = |text: &str| text.parse().map_err(|_| damaged("a rewind"));
        Ok(Rewind { at: number(at)?, to: number(to)? })
    });
    Ok(LogHead {
        log: LogId(text(row, 0)?),
        kind: match field::<i16>(row, 1)? {
            1 => LogKind::Thread,
            2 => LogKind::Run,
            _ => return Err(damaged("a log's kind")),
        },
        of: text_or_none(row, 2)?.map(LogId),
        fork: fork_of(
            text_or_none(row, 3)?.map(LogId),
            field::<Option<i64>>(row, 4)?.map(unsigned).transpose()?,
        ),
        rewinds: rewinds.collect::<Result<_, StoreError>>()?,
        status: text_or_none(row, 6)?,
        last: number(row, 7)?,
        events: number(row, 8)?,
        bytes: number(row, 9)?,
        created: time(field(row, 10)?)?,
        updated: time(field(row, 11)?)?,
        gone: erased(row, 12)?.map(ErasureReason::to_elision_reason),
    })
}

pub(super) fn record(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    let salt = match field::<Option<i32>>(row, 13)? {
        Some(epoch) => Some(salt(epoch, bytes(row, 14)?)?),
        None => None,
    };
    Ok(Row {
        seq: number(row, 0)?,
        kind: text(row, 1)?,
        at: field(row, 2)?,
        events: u32::try_from(field::<i32>(row, 3)?).map_err(|_| damaged("a record"))?,
        last_event: field::<Option<i64>>(row, 4)?.map(unsigned).transpose()?,
        about: field(row, 5)?,
        size: number(row, 6)?,
        commitment: digest(row, 7)?,
        link: digest(row, 8)?,
        writer: text(row, 9)?,
        position: number(row, 10)?,
        blob: field(row, 11)?,
        content: field::<Option<&[u8]>>(row, 12)?.map(Bytes::copy_from_slice),
        salt,
        erased: erased(row, 15)?,
    })
}

pub(super) fn salt(epoch: i32, bytes: Bytes) -> Result<Salt, StoreError> {
    Ok(Salt { epoch: u32::try_from(epoch).map_err(|_| damaged("a salt"))?, bytes })
}

/// Returns the reason for an erasure. An unknown number means that the row was modified.
fn erased(row: &tokio_postgres::Row, column: usize) -> Result<Option<ErasureReason>, StoreError> {
    let Some(number) = field::<Option<i16>>(row, column)? else { return Ok(None) };
    let reason = ErasureReason::from_number(number);
    reason.map(Some).ok_or_else(|| damaged("why a content is gone"))
}

/// Returns the stored number of a log kind.
pub(super) fn kind_number(kind: LogKind) -> i16 {
    match kind {
        LogKind::Thread => 1,
        LogKind::Run => 2,
    }
}

/// Returns a column's value.
pub(super) fn field<'r, T: FromSql<'r>>(
    row: &'r tokio_postgres::Row,
    column: usize,
) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| StoreError::Database(std::sync::Arc::new(error)))
}

pub(super) fn text(row: &tokio_postgres::Row, column: usize) -> Result<Name, StoreError> {
    field::<&str>(row, column).map(Name::from)
}

fn text_or_none(row: &tokio_postgres::Row, column: usize) -> Result<Option<Name>, StoreError> {
    field::<Option<&str>>(row, column).map(|text| text.map(Name::from))
}

pub(super) fn bytes(row: &tokio_postgres::Row, column: usize) -> Result<Bytes, StoreError> {
    field::<&[u8]>(row, column).map(Bytes::copy_from_slice)
}

pub(super) fn digest(row: &tokio_postgres::Row, column: usize) -> Result<Digest, StoreError> {
    field::<&[u8]>(row, column)?.try_into().map_err(|_| damaged("a digest"))
}

pub(super) fn digest_or_none(
    row: &tokio_postgres::Row,
    column: usize,
) -> Result<Option<Digest>, StoreError> {
    let digest = field::<Option<&[u8]>>(row, column)?.map(TryInto::try_into).transpose();
    digest.map_err(|_| damaged("a digest"))
}

pub(super) fn number(row: &tokio_postgres::Row, column: usize) -> Result<u64, StoreError> {
    unsigned(field(row, column)?)
}

pub(super) fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| damaged("a number"))
}

/// Clamps to the maximum of the database's integer type, which exceeds all stored values.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn time(milliseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millisecond(milliseconds).map_err(|_| damaged("a time"))
}

pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Corrupt(format!("{what} cannot be read").into())
}
