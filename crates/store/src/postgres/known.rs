//! What this process knows of the store, and the check that a server still contains it.
//!
//! A process caches the numeric ids of tenants. After a failover that lost writes, or if the
//! address leads to another store, an id can belong to another tenant. Every new connection is
//! therefore checked before it is used:
//!
//! | check | fails if |
//! |---|---|
//! | time at which the tables were created | the database contains another store |
//! | number of this writer's last durable group | the server lost writes of this process |
//! | ids of the cached tenants | the server lost a tenant, or gave its id to another tenant |
//!
//! A pooler replaces its connections to the server without notice. Each transaction through a
//! pooler therefore requires the server process that was checked: see `pooler.rs`.
//!
//! If the check fails, the process refuses to use the server. Other caches of the process may be
//! wrong as well, so the caches are not repaired: the process must be restarted.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use throughline_core::Tenant;
use throughline_json::Name;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use crate::postgres::values::Parameter;
use crate::sync::lock;

/// Time after which other writers may delete the row of a writer without writes, less a day.
const ROW_LIFETIME: Duration = Duration::from_hours(29 * 24);

/// Returns the time at which the tables were created, in microseconds since 1970.
const IDENTITY: &str = "SELECT (extract(epoch FROM applied) * 1000000)::bigint \
                        FROM throughline_schema ORDER BY version LIMIT 1";

/// Returns the start time of the server process in microseconds since 1970, for SQL expressions.
pub(super) const STARTED: &str =
    "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

const OTHER_STORE: &str = "the database contains another store than the one that this process \
                           opened; connect to the former store, or restart this process";
const LOST_WRITES: &str = "the server does not contain all writes that this process has committed; \
                           after a failover that lost writes, restart this process; if the server \
                           is a replica, wait until it has caught up";

/// What this process knows of the store.
#[derive(Default)]
pub(super) struct KnownStore {
    /// When the tables were created; unset until the store is open.
    identity: OnceLock<i64>,
    writer: OnceLock<Name>,
    /// The number of this writer's last durable group, and when it was written.
    durable: Mutex<Option<(i64, Instant)>>,
    tenants: Mutex<HashMap<Tenant, i64>>,
    /// The start time of the server process that was checked last.
    checked: Mutex<Option<i64>>,
    /// Why the last check failed.
    problem: Mutex<Option<Name>>,
}

/// The reason why a connection cannot be used.
pub(super) enum UnusableStore {
    /// The check could not be made.
    Failed(Error),
    /// The server does not contain what this process knows of the store.
    Replaced(Name),
}

impl KnownStore {
    /// Remembers the store that was opened.
    pub(super) async fn remember(&self, client: &Client, writer: &Name) -> Result<(), Error> {
        let rows = client.query_typed(IDENTITY, &[]).await?;
        if let Some(row) = rows.first() {
            self.identity.get_or_init(|| row.get(0));
            self.writer.get_or_init(|| writer.clone());
        }
        Ok(())
    }

    /// Returns the cached id of a tenant.
    pub(super) fn tenant(&self, tenant: &Tenant) -> Option<i64> {
        lock(&self.tenants).get(tenant).copied()
    }

    pub(super) fn add_tenant(&self, tenant: &Tenant, id: i64) {
        lock(&self.tenants).insert(tenant.clone(), id);
    }

    /// Remembers that this writer's groups up to this number are durable.
    pub(super) fn add_durable(&self, number: i64) {
        *lock(&self.durable) = Some((number, Instant::now()));
    }

    /// Ends the check of this writer's groups, because the writer is about to delete its row.
    pub(super) fn end_writer(&self) {
        *lock(&self.durable) = None;
    }

    /// Returns the start time of the server process that was checked last; `None` before the first
    /// check.
    pub(super) fn checked(&self) -> Option<i64> {
        *lock(&self.checked)
    }

    /// Returns why the last check failed; `None` if it passed.
    pub(super) fn problem(&self) -> Option<Name> {
        lock(&self.problem).clone()
    }

    /// Checks that the server contains what this process knows of the store.
    pub(super) async fn check(&self, client: &Client) -> Result<(), UnusableStore> {
        let Some(identity) = self.identity.get() else { return Ok(()) };
        // Read before the query, because both only grow.
        let durable = *lock(&self.durable);
        let (names, ids): (Vec<String>, Vec<i64>) =
            lock(&self.tenants).iter().map(|(tenant, id)| (tenant.0.to_string(), *id)).unzip();
        // A process that only reads may have no permission to read `writers`.
        let number = match durable {
            Some(_) => "SELECT number FROM writers WHERE writer = $1",
            None => "SELECT NULL::bigint WHERE $1 = ''",
        };
        let sql = format!(
            "SELECT ({IDENTITY}), ({number}), \
             (SELECT count(*) FROM unnest($2::text[], $3::bigint[]) known(name, id) \
              JOIN tenants t ON t.id = known.id AND t.name = known.name), {STARTED}"
        );
        let writer = self.writer.get().map(|writer| &**writer).unwrap_or_default();
        let params: [(Parameter<'_>, Type); 3] =
            [(&writer, Type::TEXT), (&names, Type::TEXT_ARRAY), (&ids, Type::INT8_ARRAY)];
        let rows = match client.query_typed(&sql, &params).await {
            Ok(rows) => rows,
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Vec::new(),
            Err(error) => return Err(UnusableStore::Failed(error)),
        };
        // The writer may have ended and deleted its row since.
        let durable = durable.filter(|_| lock(&self.durable).is_some());
        let problem = match rows.first() {
            Some(row) => difference(row, *identity, durable, ids.len())?,
            None => Some(OTHER_STORE),
        };
        *lock(&self.problem) = problem.map(Name::from);
        if let Some(problem) = problem {
            return Err(UnusableStore::Replaced(problem.into()));
        }
        if let Some(row) = rows.first() {
            *lock(&self.checked) = Some(row.try_get(3)?);
        }
        Ok(())
    }
}

/// Compares the result of the check with what this process knows. Returns the difference.
fn difference(
    row: &Row,
    identity: i64,
    durable: Option<(i64, Instant)>,
    tenants: usize,
) -> Result<Option<&'static str>, Error> {
    if row.try_get::<_, Option<i64>>(0)? != Some(identity) {
        return Ok(Some(OTHER_STORE));
    }
    let number: Option<i64> = row.try_get(1)?;
    let has_lost_groups = durable.is_some_and(|(last, at)| match number {
        Some(number) => number < last,
        None => at.elapsed() < ROW_LIFETIME,
    });
    let has_lost_tenants = row.try_get::<_, i64>(2)? < i64::try_from(tenants).unwrap_or(i64::MAX);
    Ok((has_lost_groups || has_lost_tenants).then_some(LOST_WRITES))
}

impl From<Error> for UnusableStore {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
