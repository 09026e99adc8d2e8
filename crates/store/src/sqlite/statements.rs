//! Prepared statements that are needed for every captured turn. The writer keeps them while it
//! runs, because looking up a statement by its SQL text costs as much as running a small statement.

use std::cell::Cell;

use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Params, Row, Statement, StatementStatus,
};

thread_local! {
    /// Steps of SQLite's virtual machine on this thread since the last call of [`take_steps`].
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Adds the steps of a statement that has ended to those of this thread.
pub(super) fn count_steps(statement: &Statement<'_>) {
    let steps = statement.reset_status(StatementStatus::VmStep);
    STEPS.set(STEPS.get().wrapping_add(u64::try_from(steps).unwrap_or(0)));
}

/// Returns the counted steps of this thread, and starts again from zero.
pub(super) fn take_steps() -> u64 {
    STEPS.take()
}

/// Declares the struct [`Statements`], with one field per statement, and a constructor.
macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Prepared statements, named after their subject or effect.
        pub(super) struct Statements<'db> {
            pub(super) db: &'db Connection,
            $(pub(super) $name: CachedStatement<'db>,)*
        }

        impl<'db> Statements<'db> {
            pub(super) fn prepare(db: &'db Connection) -> rusqlite::Result<Self> {
                Ok(Self { db, $($name: db.prepare_cached($sql)?,)* })
            }
        }
    };
}

statements! {
    begin: "BEGIN IMMEDIATE",
    commit: "COMMIT",
    find_log: "SELECT l.id, l.fork, l.fork_at, l.of, l.status, l.last, l.events,
        coalesce(l.rewinds, ''), l.gone, l.kind, o.name, f.name FROM logs l
        LEFT JOIN logs o ON o.id = l.of LEFT JOIN logs f ON f.id = l.fork
        WHERE l.tenant = ?1 AND l.name = ?2",
    find_lease: "SELECT owner, fence, until FROM leases WHERE tenant = ?1 AND log = ?2",
    find_turn: "SELECT 1 FROM turns WHERE tenant = ?1 AND name = ?2",
    add_log: "INSERT INTO logs (tenant, name, kind, of, fork, fork_at, last, events, bytes,
        created, updated, rewinds, status)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    find_log_id: "SELECT id FROM logs WHERE tenant = ?1 AND name = ?2",
    add_record: "INSERT INTO records (id, tenant, log, seq, kind, at, events, last_event, about,
        size, segment, position, commitment, link, blob, content, span)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    last_record: "SELECT coalesce(max(id), 0) FROM records",
    add_salt: "INSERT INTO salts VALUES (?1, ?2, ?3, ?4)",
    update_log: "UPDATE logs SET last = ?2, events = ?3, bytes = bytes + ?4,
        updated = max(updated, ?5), rewinds = ?6, status = coalesce(?7, status)
        WHERE id = ?1",
    extend_log: "UPDATE logs SET last = ?2, events = ?3, bytes = bytes + ?4,
        updated = max(updated, ?5) WHERE id = ?1",
    add_turn: "INSERT INTO turns (tenant, name, parent, log, first, last, prefix, keys)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    find_era: "SELECT era FROM tenants WHERE id = ?1",
    move_head: "UPDATE segments SET position = ?2, link = ?3, changes = ?4, sums = ?5, mac = ?6
        WHERE id = ?1",
    now: NOW,
    version: "PRAGMA data_version",
}

impl Statements<'_> {
    /// Returns SQLite's time in milliseconds since 1970.
    pub(super) fn now(&mut self) -> rusqlite::Result<i64> {
        self.now.query_row([], |row| row.get(0))
    }

    /// Returns SQLite's data version, which changes when another connection writes to the file.
    pub(super) fn version(&mut self) -> rusqlite::Result<i64> {
        self.version.query_row([], |row| row.get(0))
    }
}

const NOW: &str = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Returns SQLite's time in milliseconds since 1970, for callers without [`Statements`].
pub(super) fn now(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached(NOW)?.query_row([], |row| row.get(0))
}

/// Runs a query and decodes all its rows.
pub(super) fn query_all<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    decode: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(values, decode)?.collect();
    count_steps(&statement);
    rows
}

/// Runs a query and decodes its first row, if there is one.
pub(super) fn query_first<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    decode: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let row = statement.query_row(values, decode).optional();
    count_steps(&statement);
    row
}
