//! Waits for new records from any process.
//!
//! After a commit, this process reports the last sequence numbers of the written logs. Commits of
//! other processes change the file's data version, which is polled while a task waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use throughline_core::{Receipt, Tenant};

use crate::rejection::Result;
use crate::sqlite::read::{self, Readers};
use crate::sqlite::schema::{Access, connect};
use crate::sync::blocking;
use crate::waits::{LogKey, WaitRegistry};

/// Interval at which the file is polled.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Waiters {
    path: PathBuf,
    pub(super) registry: WaitRegistry,
    watched: AtomicBool,
}

impl Waiters {
    pub(super) fn new(path: &Path) -> Self {
        let (registry, watched) = (WaitRegistry::default(), AtomicBool::new(false));
        Self { path: path.to_owned(), registry, watched }
    }

    /// Waits until the log has a record after `after`.
    pub(super) async fn wait(
        self: &Arc<Self>,
        readers: &Readers,
        key: LogKey,
        after: u64,
    ) -> Result<()> {
        let read = async {
            self.watch();
            let (tenant, log) = key.clone();
            let last = readers.read(move |db| read::last(db, &tenant, &log)).await?;
            self.registry.saw(&key, 0, last);
            Ok(())
        };
        self.registry.wait(key.clone(), after, read).await
    }

    /// Wakes the tasks that wait for the logs in this receipt.
    pub(super) fn wrote(&self, tenant: &Tenant, receipt: &Receipt) {
        if !self.registry.is_empty() {
            for written in &receipt.written {
                self.registry.saw(&(tenant.clone(), written.log.clone()), 0, written.last);
            }
        }
    }

    /// Starts a background task that polls the file while other tasks wait. Does nothing if it
    /// already runs.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let waiters = Arc::clone(self);
        tokio::spawn(async move {
            let (mut db, mut last_version) = (None, None);
            while !waiters.registry.is_closed() && !waiters.registry.is_empty() {
                let found = db.as_ref().and_then(version);
                // The first poll has no earlier version to compare with, and a failed poll returns
                // none.
                if found.is_none() || found != last_version {
                    (db, last_version) =
                        waiters.read_logs(db.filter(|_| found.is_some())).await.unzip();
                }
                tokio::time::sleep(LOOK).await;
            }
            waiters.watched.store(false, Ordering::Release);
            // A task may have started to wait while the polling ended.
            if !waiters.registry.is_closed() && !waiters.registry.is_empty() {
                waiters.watch();
            }
        });
    }

    /// Reads the last sequence numbers of the logs that tasks wait for. Returns the connection for
    /// the next poll, and the data version from before the read.
    async fn read_logs(self: &Arc<Self>, db: Option<Connection>) -> Option<(Connection, i64)> {
        let waiters = Arc::clone(self);
        let read = blocking(move || {
            let db = db.map_or_else(|| connect(&waiters.path, Access::Read), Ok);
            let Ok(db) = db else { return Ok(None) };
            let Some(version) = version(&db) else { return Ok(None) };
            for key in waiters.registry.waited(None) {
                let Ok(last) = read::last(&db, &key.0, &key.1) else { return Ok(None) };
                waiters.registry.saw(&key, 0, last);
            }
            Ok(Some((db, version)))
        });
        read.await.ok().flatten()
    }
}

/// Returns SQLite's data version, which changes with every commit on another connection.
fn version(db: &Connection) -> Option<i64> {
    db.query_row("PRAGMA data_version", [], |row| row.get(0)).ok()
}
