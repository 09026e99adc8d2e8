//! Reads chains and manifests for verification, and adds up the MACs of index rows: for
//! verification, and once for a store without sums.

use std::sync::Arc;

use throughline_core::{LogId, StoreError, StoreFuture, Tenant};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Column, IsolationLevel, Row, SimpleQueryMessage, Transaction};

use crate::backend::ProofBackend;
use crate::chain::{GENESIS, Head};
use crate::manifest::{Manifest, Signer};
use crate::postgres::admin::{KEY, api_key, check};
use crate::postgres::connect::Server;
use crate::postgres::read::{
    FROM_RECORDS, RECORD_COLUMNS, bytes, damaged, digest, field, number, record, text,
};
use crate::postgres::{Postgres, Shared, schema};
use crate::protection::{MIGRATION_WRITER, Protection, SECRET, Upgrade, report_migration};
use crate::row::ChainRow;
use crate::row_mac::{
    Field, RowKey, RowSnapshot, RowState, STORE_TABLES, SegmentRow, SegmentSums, TALLY_NAME,
    TENANT_TABLES, Tally,
};

/// Number of rows fetched at a time.
const PAGE: i32 = 1000;

const SEGMENTS: &str = "SELECT id, tenant, writer, position, link, changes, sums, mac FROM segments \
                        WHERE $1::bigint IS NULL OR tenant = $1 ORDER BY id";

const FIND_TALLY: &str = "SELECT value FROM kept WHERE name = $1";

impl ProofBackend for Postgres {
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            protect(&self.shared, &protection).await?;
            // The next opener supplies the same key.
            drop(self.shared.key.set(protection.key));
            Ok(())
        })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        // The first signer stays.
        drop(self.shared.signer.set(signer));
    }

    fn last_record(&self) -> StoreFuture<'_, i64> {
        Box::pin(settled(&self.shared, "records"))
    }

    fn chain(
        &self,
        of: Option<&Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChainRow>> {
        let of = of.map(|tenant| tenant.0.to_string());
        Box::pin(async move {
            // The sum prevents an index by tenant, which would sort all records of the tenant for
            // each page.
            let scope = match of {
                None => "$4::text IS NULL",
                Some(_) => "r.tenant + 0 = (SELECT id FROM tenants WHERE name = $4)",
            };
            let sql = format!(
                "SELECT {RECORD_COLUMNS}, r.id, t.name, l.name {FROM_RECORDS} \
                 JOIN tenants t ON t.id = r.tenant JOIN logs l ON l.id = r.log \
                 WHERE r.id > $1 AND r.id <= $2 AND {scope} ORDER BY r.id LIMIT $3"
            );
            let values: [&(dyn ToSql + Sync); 4] = [&after, &up_to, &i64::from(limit), &of];
            let rows = self.shared.server.query(&sql, &values).await?;
            let chain_row = |row| {
                let (tenant, log) = (Tenant(text(row, 17)?), LogId(text(row, 18)?));
                Ok(ChainRow { id: field(row, 16)?, tenant, log, row: record(row)? })
            };
            rows.iter().map(chain_row).collect()
        })
    }

    fn heads(&self, of: Option<&Tenant>) -> StoreFuture<'_, Vec<Head>> {
        let of = of.map(|tenant| tenant.0.to_string());
        Box::pin(async move {
            let sql = "SELECT t.name, s.writer, s.position, s.link FROM segments s \
                       JOIN tenants t ON t.id = s.tenant WHERE s.position > 0 \
                       AND ($1::text IS NULL OR t.name = $1) ORDER BY s.id";
            let rows = self.shared.server.query(sql, &[&of]).await?;
            let head = |row| {
                let (tenant, writer) = (Tenant(text(row, 0)?), text(row, 1)?);
                Ok(Head { tenant, writer, position: number(row, 2)?, link: digest(row, 3)? })
            };
            rows.iter().map(head).collect()
        })
    }

    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>> {
        Box::pin(async move {
            let up_to = settled(&self.shared, "manifests").await?;
            let sql = "SELECT id, body, signature FROM manifests WHERE id > $1 AND id <= $2 \
                       ORDER BY id LIMIT $3";
            let values: [&(dyn ToSql + Sync); 3] = [&after, &up_to, &i64::from(limit)];
            let rows = self.shared.server.query(sql, &values).await?;
            let manifest = |row| {
                let signature = field::<&[u8]>(row, 2)?.try_into();
                let signature = signature.map_err(|_| damaged("a manifest's signature"))?;
                Ok((field(row, 0)?, Manifest { body: field(row, 1)?, signature }))
            };
            rows.iter().map(manifest).collect()
        })
    }

    fn read_rows(&self, key: RowKey, of: Option<&Tenant>) -> StoreFuture<'_, RowSnapshot> {
        let of = of.cloned();
        Box::pin(async move { read(&self.shared, &key, of.as_ref()).await })
    }

    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>> {
        Box::pin(async move {
            let sql = "SELECT t.name, s.writer, s.changes, s.sums FROM segments s \
                       JOIN tenants t ON t.id = s.tenant ORDER BY s.id";
            let mut states = Vec::new();
            for row in self.shared.server.query(sql, &[]).await? {
                let segment = Some((Tenant(text(&row, 0)?), text(&row, 1)?));
                states.push(RowState::new(segment, field(&row, 2)?, field(&row, 3)?));
            }
            let tally = self.shared.server.query_opt(FIND_TALLY, &[&TALLY_NAME]).await?;
            let tally = tally.map(|row| bytes(&row, 0)).transpose()?;
            states.extend(tally.and_then(|stored| RowState::of_store(&stored)));
            Ok(states)
        })
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn check(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(check(&self.shared))
    }
}

/// Returns the highest number in a table below which all rows are committed. Numbers are assigned
/// before rows are visible, so a lower one may appear after a higher one. No node writes while the
/// store's lock is held exclusively, which is brief.
async fn settled(shared: &Shared, table: &str) -> Result<i64, StoreError> {
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

/// Reads the index rows and the stored sums of one tenant or all tenants, in one snapshot.
async fn read(
    shared: &Shared,
    key: &RowKey,
    of: Option<&Tenant>,
) -> Result<RowSnapshot, StoreError> {
    let server = &shared.server;
    let error = |error| server.error(error);
    let mut client = server.client().await?;
    let snapshot = client.build_transaction().read_only(true);
    let snapshot = snapshot.isolation_level(IsolationLevel::RepeatableRead);
    let snapshot = snapshot.start().await.map_err(error)?;
    let of: Option<i64> = match of {
        None => None,
        Some(name) => {
            let sql = "SELECT id FROM tenants WHERE name = $1";
            match snapshot.query_opt(sql, &[&&*name.0]).await.map_err(error)? {
                None => return Ok(RowSnapshot::default()),
                Some(row) => Some(field(&row, 0)?),
            }
        }
    };
    let mut read = count(server, &snapshot, key, of).await?;
    for row in snapshot.query(SEGMENTS, &[&of]).await.map_err(error)? {
        read.segments.push(segment(&row)?.into_snapshot(key, field(&row, 7)?));
    }
    if of.is_none() {
        let tally = snapshot.query_opt(FIND_TALLY, &[&TALLY_NAME]).await.map_err(error)?;
        let tally = tally.map(|row| bytes(&row, 0)).transpose()?;
        read.tally = tally.and_then(|stored| Tally::parse(key, &stored));
    }
    Ok(read)
}

/// Adds up the MACs of all index rows, or of one tenant's rows.
async fn count(
    server: &Server,
    snapshot: &Transaction<'_>,
    key: &RowKey,
    of: Option<i64>,
) -> Result<RowSnapshot, StoreError> {
    let error = |error| server.error(error);
    let mut read = RowSnapshot::default();
    let of_store = STORE_TABLES.iter().filter(|_| of.is_none());
    for table in TENANT_TABLES.iter().chain(of_store) {
        let (name, columns) = (table.name, table.columns);
        let scope = match of {
            None if name == "kept" => "$1::bigint IS NULL AND name <> 'tally'",
            None => "$1::bigint IS NULL",
            Some(_) => "tenant = $1",
        };
        let sql = format!("SELECT {columns} FROM {name} WHERE {scope}");
        let statement = snapshot.prepare(&sql).await.map_err(error)?;
        let portal = snapshot.bind(&statement, &[&of]).await.map_err(error)?;
        loop {
            let rows = snapshot.query_portal(&portal, PAGE).await.map_err(error)?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let tenant = table.tenant.map(|place| field(row, place)).transpose()?;
                read.count(table, tenant, key.row(table, &fields(row)?));
            }
        }
    }
    let sql = "SELECT id, name FROM tenants WHERE $1::bigint IS NULL OR id = $1";
    for row in snapshot.query(sql, &[&of]).await.map_err(error)? {
        read.names.insert(field(&row, 0)?, Tenant(text(&row, 1)?));
    }
    Ok(read)
}

/// Returns the values of a row.
pub(super) fn fields(row: &Row) -> Result<Vec<Field<'_>>, StoreError> {
    let value = |(place, column): (usize, &Column)| {
        Ok(match *column.type_() {
            Type::INT8 => field::<Option<i64>>(row, place)?.into(),
            Type::INT4 => field::<Option<i32>>(row, place)?.map(i64::from).into(),
            Type::INT2 => field::<Option<i16>>(row, place)?.map(i64::from).into(),
            Type::TEXT => field::<Option<&str>>(row, place)?.into(),
            Type::BYTEA => field::<Option<&[u8]>>(row, place)?.into(),
            _ => return Err(damaged("a column")),
        })
    };
    row.columns().iter().enumerate().map(value).collect()
}

fn segment(row: &Row) -> Result<SegmentRow, StoreError> {
    Ok(SegmentRow {
        id: field(row, 0)?,
        tenant: field(row, 1)?,
        writer: text(row, 2)?,
        position: field(row, 3)?,
        link: digest(row, 4)?,
        changes: field(row, 5)?,
        sums: field(row, 6)?,
    })
}

/// Adds MACs and sums to a new store or a store of version 1.
async fn protect(shared: &Shared, protection: &Protection) -> Result<(), StoreError> {
    let Protection { key, api_keys, is_marked, marked } = protection;
    let server = &shared.server;
    let error = |error| server.error(error);
    let mut client = server.client().await?;
    // A process that changes nothing needs no write permission and no lock.
    if *is_marked && schema::version(server, &client).await? > 1 {
        return Ok(());
    }
    let change = client.transaction().await.map_err(error)?;
    change.batch_execute(schema::LOCK).await.map_err(error)?;
    change.batch_execute("SELECT pg_advisory_xact_lock(1414025804, 0)").await.map_err(error)?;
    let version = schema::version(server, change.client()).await?;
    let is_counted =
        version > 1 && change.query_opt(FIND_TALLY, &[&TALLY_NAME]).await.map_err(error)?.is_some();
    match protection.upgrade(version > 1, is_counted)? {
        Upgrade::None => return Ok(()),
        Upgrade::Mark(secret) => {
            let sql = "SELECT throughline_replace($1, $2, $3)";
            change.query(sql, &[&key.bytes(), &SECRET, &secret]).await.map_err(error)?;
            return change.commit().await.map_err(error);
        }
        Upgrade::AddSums => {}
    }
    if version < 2 {
        let records = change.query_one("SELECT count(*) FROM records", &[]).await.map_err(error)?;
        report_migration(server.name(), Some(field(&records, 0)?));
        schema::upgrade(server, &change).await?;
    }
    if let Some(marked) = marked {
        let sql = "UPDATE kept SET value = $2 WHERE name = $1";
        change.execute(sql, &[&SECRET, &&**marked]).await.map_err(error)?;
    }
    for row in change.query(KEY, &[]).await.map_err(error)? {
        let row = api_key(&row)?;
        let sql = "UPDATE api_keys SET mac = $3 WHERE id = $2 \
                   AND tenant = (SELECT id FROM tenants WHERE name = $1)";
        let mac = api_keys.mac(&row);
        let values: [&(dyn ToSql + Sync); 3] = [&&*row.tenant.0, &&*row.id, &mac.as_slice()];
        change.execute(sql, &values).await.map_err(error)?;
    }
    let read = count(server, &change, key, None).await?;
    for (tenant, sums) in &read.tenants {
        let sql = "INSERT INTO segments (tenant, writer, position, link, sums) \
                   VALUES ($1, $2, 0, $3, $4)";
        let values: [&(dyn ToSql + Sync); 4] =
            [tenant, &MIGRATION_WRITER, &GENESIS.as_slice(), &sums.print()];
        change.execute(sql, &values).await.map_err(error)?;
    }
    let none = SegmentSums::default().print();
    let sql = "UPDATE segments SET sums = $1 WHERE sums = ''";
    change.execute(sql, &[&none]).await.map_err(error)?;
    for row in change.query(SEGMENTS, &[&None::<i64>]).await.map_err(error)? {
        let segment = segment(&row)?;
        let sql = "UPDATE segments SET mac = $2 WHERE id = $1";
        let mac = key.segment(&segment);
        change.execute(sql, &[&segment.id, &mac.as_slice()]).await.map_err(error)?;
    }
    let tally = Tally { changes: 1, sums: read.store }.print(key);
    let sql = "INSERT INTO kept (name, value) VALUES ($1, $2)";
    change.execute(sql, &[&TALLY_NAME, &tally.as_bytes()]).await.map_err(error)?;
    change.commit().await.map_err(error)?;
    if version < 2 {
        report_migration(server.name(), None);
    }
    Ok(())
}
