//! Adds up the MACs of index rows: for verification, and once for a store without sums.

use throughline_core::{Name, StoreError, Tenant};
use tokio_postgres::types::Type;
use tokio_postgres::{IsolationLevel, Row, Transaction};

use crate::chain::GENESIS;
use crate::postgres::admin::{KEY, api_key};
use crate::postgres::connect::Server;
use crate::postgres::read::{bytes, damaged, digest, field, text};
use crate::postgres::{Shared, schema};
use crate::protection::Protection;
use crate::protection::SECRET;
use crate::protection::{MIGRATION_WRITER, report_migration};
use crate::row_mac::{
    Field, RowKey, RowState, STORE_TABLES, SegmentRow, SegmentSums, TALLY_NAME, TENANT_TABLES,
    Tally,
};
use crate::row_mac::{RowSnapshot, SegmentSnapshot};

/// Number of rows fetched at a time.
const PAGE: i32 = 1000;

const SEGMENTS: &str = "SELECT id, tenant, writer, position, link, changes, sums, mac FROM segments \
                        WHERE $1::bigint IS NULL OR tenant = $1 ORDER BY id";

const FIND_TALLY: &str = "SELECT value FROM kept WHERE name = $1";

/// Reads the index rows and the stored sums of one tenant or all tenants, in one snapshot.
pub(super) async fn read(
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
        let segment = segment(&row)?;
        let stored = field::<Option<&[u8]>>(&row, 7)?;
        let holds = stored.is_some_and(|mac| mac == segment.mac(key));
        read.segments.push(SegmentSnapshot {
            tenant: segment.tenant,
            changes: segment.changes,
            sums: SegmentSums::parse(&segment.sums).filter(|_| holds),
            writer: segment.writer,
        });
    }
    if of.is_some() {
        return Ok(read);
    }
    let tally = snapshot.query_opt(FIND_TALLY, &[&TALLY_NAME]).await.map_err(error)?;
    let tally = tally.map(|row| bytes(&row, 0)).transpose()?;
    read.tally = tally.and_then(|stored| Tally::parse(key, &stored));
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

fn fields(row: &Row) -> Result<Vec<Field<'_>>, StoreError> {
    let value = |(place, column): (usize, &tokio_postgres::Column)| {
        let kind = column.type_();
        Ok(if *kind == Type::INT8 {
            field::<Option<i64>>(row, place)?.into()
        } else if *kind == Type::INT4 {
            field::<Option<i32>>(row, place)?.map(i64::from).into()
        } else if *kind == Type::INT2 {
            field::<Option<i16>>(row, place)?.map(i64::from).into()
        } else if *kind == Type::TEXT {
            field::<Option<&str>>(row, place)?.into()
        } else if *kind == Type::BYTEA {
            field::<Option<&[u8]>>(row, place)?.into()
        } else {
            return Err(damaged("a column"));
        })
    };
    row.columns().iter().enumerate().map(value).collect()
}

/// The row of a segment.
struct SegmentFields {
    id: i64,
    tenant: i64,
    writer: Name,
    position: i64,
    link: throughline_core::Digest,
    changes: i64,
    sums: String,
}

impl SegmentFields {
    fn mac(&self, key: &RowKey) -> throughline_core::Digest {
        key.segment(&SegmentRow {
            id: self.id,
            tenant: self.tenant,
            writer: &self.writer,
            position: self.position,
            link: &self.link,
            changes: self.changes,
            sums: &self.sums,
        })
    }
}

fn segment(row: &Row) -> Result<SegmentFields, StoreError> {
    Ok(SegmentFields {
        id: field(row, 0)?,
        tenant: field(row, 1)?,
        writer: text(row, 2)?,
        position: field(row, 3)?,
        link: digest(row, 4)?,
        changes: field(row, 5)?,
        sums: field(row, 6)?,
    })
}

/// Returns the current sums for a manifest.
pub(super) async fn states(shared: &Shared) -> Result<Vec<RowState>, StoreError> {
    let sql = "SELECT t.name, s.writer, s.changes, s.sums FROM segments s \
               JOIN tenants t ON t.id = s.tenant ORDER BY s.id";
    let mut states = Vec::new();
    for row in shared.server.query(sql, &[]).await? {
        let segment = Some((Tenant(text(&row, 0)?), text(&row, 1)?));
        states.push(RowState::new(segment, field(&row, 2)?, field(&row, 3)?));
    }
    let tally = shared.server.query_opt(FIND_TALLY, &[&TALLY_NAME]).await?;
    let tally = tally.map(|row| bytes(&row, 0)).transpose()?;
    states.extend(tally.and_then(|stored| RowState::of_store(&stored)));
    Ok(states)
}

/// Adds MACs and sums to a new store or a store of version 1.
pub(super) async fn protect(shared: &Shared, protection: &Protection) -> Result<(), StoreError> {
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
    match (version > 1, is_counted, marked) {
        (false, ..) if *is_marked => {
            let problem = "the MACs of the store's rows were removed: restore a backup";
            return Err(StoreError::Corrupt(problem.into()));
        }
        // Another process created the store after this one had read the secret.
        (true, true, Some(marked)) if !is_marked => {
            let sql = "SELECT throughline_replace($1, $2, $3)";
            change.query(sql, &[&key.bytes(), &SECRET, &&**marked]).await.map_err(error)?;
            return change.commit().await.map_err(error);
        }
        // Missing sums are not recomputed; verification reports them.
        (true, true, _) | (true, false, None) => return Ok(()),
        (true, false, Some(_)) if *is_marked => return Ok(()),
        (true, false, Some(_)) | (false, _, _) => {}
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
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&&*row.tenant.0, &&*row.id, &mac.as_slice()];
        change.execute(sql, &values).await.map_err(error)?;
    }
    let read = count(server, &change, key, None).await?;
    for (tenant, sums) in &read.tenants {
        let sql = "INSERT INTO segments (tenant, writer, position, link, sums) \
                   VALUES ($1, $2, 0, $3, $4)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [tenant, &MIGRATION_WRITER, &GENESIS.as_slice(), &sums.print()];
        change.execute(sql, &values).await.map_err(error)?;
    }
    let none = SegmentSums::default().print();
    let sql = "UPDATE segments SET sums = $1 WHERE sums = ''";
    change.execute(sql, &[&none]).await.map_err(error)?;
    for row in change.query(SEGMENTS, &[&None::<i64>]).await.map_err(error)? {
        let segment = segment(&row)?;
        let sql = "UPDATE segments SET mac = $2 WHERE id = $1";
        let mac = segment.mac(key);
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
