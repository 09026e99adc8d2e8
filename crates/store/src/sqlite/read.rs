//! Reads on separate connections. A read sees the state at its start. It neither blocks writers nor
//! waits for them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, params};
use throughline_core::{LogId, StoreError, StoreFuture, Tenant};
use tokio::sync::Semaphore;

use crate::sqlite::commit::unsigned;
use crate::sqlite::schema::{Access, connect, failure, wait_for};
use crate::sqlite::statements::{query_first, take_steps};
use crate::sync::{blocking, lock};

/// A connection pool for reads.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    count: u32,
    patience: Duration,
    pub(super) access: Access,
    /// Steps of SQLite's virtual machine in all reads.
    steps: Arc<AtomicU64>,
}

impl Readers {
    pub(super) fn new(path: &Path, count: usize, patience: Duration, access: Access) -> Self {
        let count = u32::try_from(count.clamp(1, 1024)).unwrap_or(1024);
        let permits = Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        let (path, idle, steps) = (path.to_owned(), Arc::default(), Arc::default());
        Self { path, idle, permits, count, patience, access, steps }
    }

    /// Returns how many steps SQLite's virtual machine executed for all reads so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Reads on the current thread. This costs less than a blocking task if the read needs only a
    /// few pages. Falls back to [`read`](Self::read) if no connection is idle or the read fails,
    /// for example because the file is locked.
    pub(super) fn read_inline<T: Send + 'static>(
        &self,
        read: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
            let idle = lock(&self.idle).pop();
            if let Some(db) = idle {
                wait_for(Duration::ZERO);
                // Drop a connection that failed instead of returning it to the pool.
                take_steps();
                if let Ok(value) = read(&db) {
                    self.steps.fetch_add(take_steps(), Ordering::Relaxed);
                    lock(&self.idle).push(db);
                    return Ok(value);
                }
            }
            drop(permit);
            self.read(read).await
        })
    }

    /// Reads on the next free connection, in a blocking task.
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.clone().acquire_owned().await;
            let permit = permit.map_err(|_| StoreError::Closed)?;
            let (path, idle) = (self.path.clone(), self.idle.clone());
            let (patience, access, steps) = (self.patience, self.access, Arc::clone(&self.steps));
            blocking(move || {
                let _permit = permit;
                wait_for(patience);
                let failed = |error| failure(error, &path);
                let db = lock(&idle).pop();
                let db = db.map_or_else(|| connect(&path, access), Ok).map_err(failed)?;
                // Drop a connection that failed instead of returning it to the pool.
                take_steps();
                let value = read(&db).map_err(failed)?;
                steps.fetch_add(take_steps(), Ordering::Relaxed);
                lock(&idle).push(db);
                Ok(value)
            })
            .await
        })
    }

    /// Closes the connections that are not in use.
    pub(super) fn close_idle(&self) {
        lock(&self.idle).clear();
    }

    /// Waits for all reads to finish and rejects new ones.
    pub(super) async fn close(&self) {
        // Acquiring fails only if the readers were already closed.
        drop(self.permits.acquire_many(self.count).await);
        self.permits.close();
        lock(&self.idle).clear();
    }
}

/// Returns the log's last sequence number, or 0 if the log does not exist.
pub(super) fn last(db: &Connection, tenant: &Tenant, log: &LogId) -> rusqlite::Result<u64> {
    let find = "SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                WHERE t.name = ?1 AND l.name = ?2";
    let last = query_first(db, find, params![tenant.0, log.0], |row| row.get(0))?;
    Ok(last.map_or(0, unsigned))
}
