//! Waits for new records from any process.
//!
//! A commit of this process wakes the tasks that wait for its logs. A commit of another process
//! changes the file's data version, which is polled while a task waits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use throughline_core::{LogId, StoreError, Tenant};
use tokio::sync::Notify;

use crate::sqlite::read::{self, Readers};
use crate::sqlite::schema::{Access, connect};
use crate::sync::lock;

/// The polling interval of the file.
const LOOK: Duration = Duration::from_millis(20);

/// The waiting tasks.
pub(super) struct Waiters {
    path: PathBuf,
    waiting: Mutex<HashMap<(Tenant, LogId), Arc<Notify>>>,
    watched: AtomicBool,
    closed: AtomicBool,
}

impl Waiters {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            waiting: Mutex::default(),
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Waits until the log has a record after `after`.
    pub(super) async fn wait(
        self: &Arc<Self>,
        readers: &Readers,
        key: (Tenant, LogId),
        after: u64,
    ) -> Result<(), StoreError> {
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(StoreError::Closed);
            }
            let notify = Arc::clone(lock(&self.waiting).entry(key.clone()).or_default());
            // Registers before the read, so that a write between the read and the wait still wakes
            // this task.
            let notified = notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            // A close before the registration does not wake this task.
            if self.closed.load(Ordering::Acquire) {
                return Err(StoreError::Closed);
            }
            self.watch();
            let (tenant, log) = key.clone();
            let last = readers.read(move |db| read::last(db, &tenant, &log)).await?;
            if last > after {
                let mut waiting = lock(&self.waiting);
                // One reference is the map's, the other is this one.
                if Arc::strong_count(&notify) <= 2 {
                    waiting.remove(&key);
                }
                return Ok(());
            }
            notified.await;
        }
    }

    /// Wakes the tasks that wait for these logs.
    pub(super) fn wake<'l>(&self, tenant: &Tenant, logs: impl Iterator<Item = &'l LogId>) {
        let waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return;
        }
        for log in logs {
            if let Some(notify) = waiting.get(&(tenant.clone(), log.clone())) {
                notify.notify_waiters();
            }
        }
    }

    /// Closes and wakes all tasks.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        lock(&self.waiting).values().for_each(|notify| notify.notify_waiters());
    }

    /// Removes cancelled tasks. Returns whether any task still waits.
    fn has_waiters(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|_, notify| Arc::strong_count(notify) > 1);
        !waiting.is_empty()
    }

    /// Polls the file while a task waits.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let waiters = Arc::clone(self);
        tokio::spawn(async move {
            let (mut db, mut seen) = (None, None);
            while !waiters.closed.load(Ordering::Acquire) {
                if db.is_none() {
                    let path = waiters.path.clone();
                    let opened = tokio::task::spawn_blocking(move || connect(&path, Access::Read));
                    db = opened.await.ok().and_then(Result::ok);
                }
                let found = db.as_ref().and_then(version);
                // The first poll has no baseline, and a failed poll has no result. Wake all tasks
                // in both cases.
                if found.is_none() || found != seen {
                    waiters.wake_all();
                }
                if found.is_none() {
                    db = None;
                }
                seen = found;
                if !waiters.has_waiters() {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
            waiters.watched.store(false, Ordering::Release);
            // A task may have registered while the polling ended.
            if waiters.has_waiters() && !waiters.closed.load(Ordering::Acquire) {
                waiters.wake_all();
            }
        });
    }
}

/// Returns the data version, which changes with every commit of another connection.
fn version(db: &Connection) -> Option<i64> {
    db.query_row("PRAGMA data_version", [], |row| row.get(0)).ok()
}
