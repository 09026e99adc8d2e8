//! Reads logs, records, captured turns, pending requests and chains.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Digest, ErasureEpoch, LogHead, LogId, LogKind, Name, PendingEntry, PendingStatus, Rewind,
    StaleRun, StoreError, Tenant, TurnId, VaultLookup, VaultMatch, VaultTurn,
};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::{FromSql, ToSql};

use crate::chain::Head;
use crate::manifest::Manifest;
use crate::postgres::Shared;
use crate::query::{Listing, Order, Span};
use crate::row::{ChainRow, ErasureReason, Row, Salt, fork_of};
use crate::sealed_batch::{KeyKind, SealedKey};

/// A log's row, with the names of the logs that it refers to.
const LOG: &str = "SELECT l.name, l.kind, o.name, f.name, l.fork_at, l.rewinds, l.status, l.last, \
                   l.events, l.bytes, l.created, l.updated, l.gone FROM logs l \
                   LEFT JOIN logs o ON o.id = l.of AND o.tenant = l.tenant \
                   LEFT JOIN logs f ON f.id = l.fork AND f.tenant = l.tenant";

/// The columns of a record.
const RECORD_COLUMNS: &str = "r.seq, r.kind, r.at, r.events, r.last_event, r.about, r.size, r.commitment, \
                      r.link, s.writer, r.position, r.blob, r.content, w.epoch, w.salt, r.erased";
const FROM_RECORDS: &str = "FROM records r JOIN segments s ON s.id = r.segment AND s.tenant = r.tenant \
     LEFT JOIN salts w ON w.record = r.id AND w.tenant = r.tenant";

pub(super) async fn log(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
) -> Result<Option<LogHead>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(None) };
    let sql = format!("{LOG} WHERE l.tenant = $1 AND l.name = $2");
    let row = shared.server.query_opt(&sql, &[&tenant, &&*log.0]).await?;
    row.map(|row| head(&row)).transpose()
}

pub(super) async fn logs(
    shared: &Shared,
    tenant: &Tenant,
    listing: Listing,
) -> Result<Vec<LogHead>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(Vec::new()) };
    let kind = listing.kind.map(kind_number);
    let name = |log: &Option<LogId>| log.as_ref().map(|log| log.0.to_string());
    let (of, forks_of, after) = (name(&listing.of), name(&listing.forks_of), name(&listing.after));
    let (comparison, direction) = match listing.order {
        Order::Newest => ("<", "DESC"),
        Order::Oldest => (">", "ASC"),
    };
    let mut conditions = vec!["l.tenant = $1".to_owned()];
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&tenant];
    if let Some(kind) = &kind {
        params.push(kind);
        conditions.push(format!("l.kind = ${}", params.len()));
    }
    let named = "(SELECT id FROM logs WHERE tenant = $1 AND name =";
    if let Some(of) = &of {
        params.push(of);
        conditions.push(format!("l.of = {named} ${})", params.len()));
    }
    if let Some(forks_of) = &forks_of {
        params.push(forks_of);
        conditions.push(format!("l.fork = {named} ${})", params.len()));
    }
    if let Some(after) = &after {
        params.push(after);
        conditions.push(format!(
            "(l.hour, l.updated, l.id) {comparison} \
             (SELECT hour, updated, id FROM logs WHERE tenant = $1 AND name = ${})",
            params.len()
        ));
    }
    let (limit, conditions) = (i64::from(listing.limit), conditions.join(" AND "));
    params.push(&limit);
    let sql = format!(
        "{LOG} WHERE {conditions} \
         ORDER BY l.hour {direction}, l.updated {direction}, l.id {direction} LIMIT ${}",
        params.len()
    );
    shared.server.query(&sql, &params).await?.iter().map(head).collect()
}

pub(super) async fn rows(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    span: Span,
) -> Result<Vec<Row>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT {RECORD_COLUMNS} {FROM_RECORDS} WHERE r.tenant = $1 \
         AND r.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2) \
         AND r.seq > $3 AND r.seq <= $4 ORDER BY r.seq LIMIT $5"
    );
    let (after, up_to, limit) = (signed(span.after), signed(span.up_to), i64::from(span.limit));
    let rows = shared.server.query(&sql, &[&tenant, &&*log.0, &after, &up_to, &limit]).await?;
    rows.iter().map(|row| record(row, 0)).collect()
}

pub(super) async fn place_of_event(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    event: u64,
) -> Result<u64, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(0) };
    // Events are numbered in record order, so the first record with a higher event ends the range.
    let sql = "SELECT coalesce((SELECT r.seq - 1 FROM records r WHERE r.tenant = $1 AND r.log = l.id \
               AND r.last_event > $3 ORDER BY r.last_event LIMIT 1), l.last) \
               FROM logs l WHERE l.tenant = $1 AND l.name = $2";
    let row = shared.server.query_opt(sql, &[&tenant, &&*log.0, &signed(event)]).await?;
    row.map_or(Ok(0), |row| number(&row, 0))
}

pub(super) async fn checkpoint(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    at_most: u64,
) -> Result<Option<Row>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(None) };
    let sql = format!(
        "SELECT {RECORD_COLUMNS} {FROM_RECORDS} WHERE r.tenant = $1 \
         AND r.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2) \
         AND r.kind = 'checkpoint' AND r.seq <= $3 AND r.erased IS NULL ORDER BY r.seq DESC LIMIT 1"
    );
    let row = shared.server.query_opt(&sql, &[&tenant, &&*log.0, &signed(at_most)]).await?;
    row.map(|row| record(&row, 0)).transpose()
}

pub(super) async fn about(
    shared: &Shared,
    tenant: &Tenant,
    about: i64,
) -> Result<Vec<(LogId, u64)>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(Vec::new()) };
    let sql = "SELECT l.name, r.seq FROM records r JOIN logs l ON l.id = r.log \
               WHERE r.tenant = $1 AND r.about = $2 ORDER BY r.id";
    let rows = shared.server.query(sql, &[&tenant, &about]).await?;
    rows.iter().map(|row| Ok((LogId(text(row, 0)?), number(row, 1)?))).collect()
}

pub(super) async fn blob(
    shared: &Shared,
    tenant: &Tenant,
    blob: i64,
) -> Result<Option<(Digest, Bytes)>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(None) };
    let sql = "SELECT hash, content FROM blobs WHERE id = $2 AND tenant = $1";
    let row = shared.server.query_opt(sql, &[&tenant, &blob]).await?;
    row.map(|row| Ok((digest(&row, 0)?, bytes(&row, 1)?))).transpose()
}

pub(super) async fn find(
    shared: &Shared,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> Result<VaultLookup, StoreError> {
    let mut sight = VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() };
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(sight) };
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
    for row in shared.server.query(sql, &[&tenant, &kinds, &hashes]).await? {
        sight.era = ErasureEpoch(number(&row, 9)?);
        let place = usize::try_from(number(&row, 0)?).ok().and_then(|place| place.checked_sub(1));
        let Some(place) = place else { continue };
        let (Some(key), Some(answer)) = (keys.get(place), sight.found.get_mut(place)) else {
            continue;
        };
        let siblings = u32::try_from(number(&row, 1)?.saturating_sub(1)).unwrap_or(u32::MAX);
        match key.kind {
            // A claim or id that matches two turns is ambiguous and matches none.
            KeyKind::Claim | KeyKind::Id if siblings > 0 => continue,
            KeyKind::Claim | KeyKind::Id | KeyKind::Chain => {}
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
        *answer = Some(VaultMatch { turn, siblings });
    }
    Ok(sight)
}

/// Lists pending requests that were not resolved, including expired ones.
pub(super) async fn pending(
    shared: &Shared,
    tenant: &Tenant,
    log: Option<&LogId>,
) -> Result<Vec<PendingEntry>, StoreError> {
    let Some(tenant) = shared.tenant(tenant).await? else { return Ok(Vec::new()) };
    let sql = "SELECT p.id, p.kind, l.name, p.seq, p.opened, p.expires, p.expires <= throughline_now() \
               FROM pending p JOIN logs l ON l.id = p.log WHERE p.tenant = $1 AND p.taken IS NULL \
               AND ($2::text IS NULL OR p.log = (SELECT id FROM logs WHERE tenant = $1 AND name = $2)) \
               ORDER BY p.opened, p.id";
    let log = log.map(|log| &*log.0);
    let rows = shared.server.query(sql, &[&tenant, &log]).await?;
    rows.iter()
        .map(|row| {
            let expired: Option<bool> = field(row, 6)?;
            Ok(PendingEntry {
                id: text(row, 0)?,
                kind: text(row, 1)?,
                log: LogId(text(row, 2)?),
                seq: number(row, 3)?,
                opened: time(field(row, 4)?)?,
                expires: field::<Option<i64>>(row, 5)?.map(time).transpose()?,
                status: match expired {
                    Some(true) => PendingStatus::Expired,
                    Some(false) | None => PendingStatus::Open,
                },
            })
        })
        .collect()
}

/// Lists runs of all tenants without a lease that are marked running and were not written to for
/// `idle`, or that wait for a request that has expired since their last write.
pub(super) async fn unattended(
    shared: &Shared,
    idle: Duration,
    after: u64,
    limit: u32,
) -> Result<Vec<StaleRun>, StoreError> {
    let sql = "SELECT t.name, l.name, l.id FROM logs l JOIN tenants t ON t.id = l.tenant \
               LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name \
               WHERE l.status = 'running' AND l.id > $1 AND l.kind = 2 AND l.gone IS NULL \
               AND l.updated <= throughline_now() - $2 \
               AND (h.until IS NULL OR h.until <= throughline_now()) \
               UNION \
               SELECT t.name, l.name, l.id FROM pending p JOIN logs l ON l.id = p.log \
               JOIN tenants t ON t.id = l.tenant \
               LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name \
               WHERE p.taken IS NULL AND p.expires IS NOT NULL AND p.expires <= throughline_now() \
               AND p.expires > l.updated AND l.status = 'waiting' AND l.id > $1 AND l.kind = 2 \
               AND l.gone IS NULL AND (h.until IS NULL OR h.until <= throughline_now()) \
               ORDER BY 3 LIMIT $3";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    let rows = shared.server.query(sql, &[&after, &idle, &i64::from(limit)]).await?;
    let unattended = |row: &tokio_postgres::Row| {
        let (tenant, run) = (Tenant(text(row, 0)?), LogId(text(row, 1)?));
        Ok(StaleRun { tenant, run, place: number(row, 2)? })
    };
    rows.iter().map(unattended).collect()
}

pub(super) async fn chain(
    shared: &Shared,
    of: Option<&Tenant>,
    after: i64,
    up_to: i64,
    limit: u32,
) -> Result<Vec<ChainRow>, StoreError> {
    // The sum prevents an index by tenant, which would sort all records of the tenant for each
    // page.
    let scope = match of {
        None => "$4::text IS NULL",
        Some(_) => "r.tenant + 0 = (SELECT id FROM tenants WHERE name = $4)",
    };
    let of = of.map(|tenant| &*tenant.0);
    let sql = format!(
        "SELECT {RECORD_COLUMNS}, r.id, t.name, l.name {FROM_RECORDS} \
         JOIN tenants t ON t.id = r.tenant JOIN logs l ON l.id = r.log \
         WHERE r.id > $1 AND r.id <= $2 AND {scope} ORDER BY r.id LIMIT $3"
    );
    let rows = shared.server.query(&sql, &[&after, &up_to, &i64::from(limit), &of]).await?;
    rows.iter()
        .map(|row| {
            let (tenant, log) = (Tenant(text(row, 17)?), LogId(text(row, 18)?));
            Ok(ChainRow { id: field(row, 16)?, tenant, log, row: record(row, 0)? })
        })
        .collect()
}

/// Returns the highest number in a table below which all rows are committed. Numbers are assigned
/// before rows are visible, so a lower one may appear after a higher one. No node writes while the
/// store's lock is held exclusively, which is brief.
pub(super) async fn settled(shared: &Shared, table: &str) -> Result<i64, StoreError> {
    let sql = format!(
        "SELECT pg_advisory_xact_lock(1414025804, 0); SELECT coalesce(max(id), 0) FROM {table}"
    );
    let client = shared.server.pooled().await?;
    let answer = client.simple_query(&sql).await.map_err(|error| shared.server.error(error))?;
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
        _ => None,
    });
    rows.last().and_then(|id| id.parse().ok()).ok_or_else(|| damaged("the last number of a table"))
}

pub(super) async fn heads(shared: &Shared, of: Option<&Tenant>) -> Result<Vec<Head>, StoreError> {
    let sql = "SELECT t.name, s.writer, s.position, s.link FROM segments s \
               JOIN tenants t ON t.id = s.tenant WHERE s.position > 0 \
               AND ($1::text IS NULL OR t.name = $1) ORDER BY s.id";
    let rows = shared.server.query(sql, &[&of.map(|tenant| &*tenant.0)]).await?;
    rows.iter()
        .map(|row| {
            let (tenant, writer) = (Tenant(text(row, 0)?), text(row, 1)?);
            Ok(Head { tenant, writer, position: number(row, 2)?, link: digest(row, 3)? })
        })
        .collect()
}

pub(super) async fn manifests(
    shared: &Shared,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Manifest)>, StoreError> {
    let up_to = settled(shared, "manifests").await?;
    let sql =
        "SELECT id, body, signature FROM manifests WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
    let rows = shared.server.query(sql, &[&after, &up_to, &i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            let signature = field::<&[u8]>(row, 2)?.try_into();
            let signature = signature.map_err(|_| damaged("a manifest's signature"))?;
            Ok((field(row, 0)?, Manifest { body: field(row, 1)?, signature }))
        })
        .collect()
}

/// Lists tenants that have a log or an API key. A tenant whose first batch was rejected has only a
/// number.
pub(super) async fn tenants(shared: &Shared) -> Result<Vec<Tenant>, StoreError> {
    let sql = "SELECT name FROM tenants t WHERE EXISTS (SELECT FROM logs WHERE tenant = t.id) \
               OR EXISTS (SELECT FROM api_keys WHERE tenant = t.id) ORDER BY name";
    let rows = shared.server.query(sql, &[]).await?;
    rows.iter().map(|row| text(row, 0).map(Tenant)).collect()
}

fn head(row: &tokio_postgres::Row) -> Result<LogHead, StoreError> {
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

fn record(row: &tokio_postgres::Row, from: usize) -> Result<Row, StoreError> {
    let epoch: Option<i32> = field(row, from + 13)?;
    let salt = match epoch {
        Some(epoch) => Some(Salt {
            epoch: u32::try_from(epoch).map_err(|_| damaged("a salt"))?,
            bytes: bytes(row, from + 14)?,
        }),
        None => None,
    };
    Ok(Row {
        seq: number(row, from)?,
        kind: text(row, from + 1)?,
        at: field(row, from + 2)?,
        events: u32::try_from(field::<i32>(row, from + 3)?).map_err(|_| damaged("a record"))?,
        last_event: field::<Option<i64>>(row, from + 4)?.map(unsigned).transpose()?,
        about: field(row, from + 5)?,
        size: number(row, from + 6)?,
        commitment: digest(row, from + 7)?,
        link: digest(row, from + 8)?,
        writer: text(row, from + 9)?,
        position: number(row, from + 10)?,
        blob: field(row, from + 11)?,
        content: field::<Option<&[u8]>>(row, from + 12)?.map(Bytes::copy_from_slice),
        salt,
        erased: erased(row, from + 15)?,
    })
}

/// Returns the reason for an erasure. An unknown number means that the row was modified.
fn erased(row: &tokio_postgres::Row, column: usize) -> Result<Option<ErasureReason>, StoreError> {
    let number: Option<i16> = field(row, column)?;
    match (number, ErasureReason::from_number(number)) {
        (Some(_), None) => Err(damaged("why a content is gone")),
        (_, erased) => Ok(erased),
    }
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
    let digest = field::<Option<&[u8]>>(row, column)?;
    digest.map(|digest| digest.try_into().map_err(|_| damaged("a digest"))).transpose()
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
