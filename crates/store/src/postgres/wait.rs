//! Waits for writes of other nodes. One connection listens for notifications and also sends those
//! of this node. They are batched and sent outside the writing transactions, because the server
//! commits only one transaction with notifications at a time.
//!
//! A listening node holds a shared lock and sends a greeting. A node that is alone therefore
//! detects this and sends no notifications. A notification is a hint: the waited-for logs are also
//! polled at intervals and when the connection is lost.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use throughline_core::{LogId, StoreError, Tenant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::postgres::Shared;
use crate::postgres::read::{field, number, text};
use crate::sync::lock;

const CHANNEL: &str = "throughline";
/// The payload that a node sends when it starts to listen.
const HELLO: &str = "hello";
/// The polling interval while no notifications arrive.
const POLL_WITHOUT_NOTIFICATIONS: Duration = Duration::from_millis(500);
/// The polling interval otherwise, because a node may end between writing and notifying.
const POLL_WITH_NOTIFICATIONS: Duration = Duration::from_secs(5);
/// The time for which notifications are collected.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);
/// The maximum size of a notification, with a margin.
const MOST_BYTES: usize = 7900;

/// The waiting tasks and pending notifications.
#[derive(Default)]
pub(super) struct WaitRegistry {
    slots: Mutex<HashMap<(Tenant, LogId), Arc<WaitSlot>>>,
    /// Numbers of logs that this node has written to and not announced yet.
    unannounced: Mutex<BTreeSet<i64>>,
    has_unannounced: Notify,
    closed: watch::Sender<bool>,
}

/// A log that a task waits for.
struct WaitSlot {
    /// The log's number, or 0 until it is known.
    id: AtomicI64,
    last: watch::Sender<u64>,
}

impl WaitRegistry {
    /// Records that this node wrote to a log.
    pub(super) fn wrote(&self, tenant: &Tenant, log: &LogId, id: i64, last: u64) {
        self.saw(&(tenant.clone(), log.clone()), id, last);
        lock(&self.unannounced).insert(id);
        self.has_unannounced.notify_one();
    }

    /// Wakes all waiting tasks, because the store was closed.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    fn saw(&self, key: &(Tenant, LogId), id: i64, last: u64) {
        if let Some(slot) = self.slots().get(key) {
            slot.id.store(id, Ordering::Release);
            slot.last.send_if_modified(|known| {
                let moved = *known < last;
                *known = last.max(*known);
                moved
            });
        }
    }

    /// Returns the logs to poll: those with these numbers or without a known number. `None` returns
    /// all.
    fn waited(&self, ids: Option<&BTreeSet<i64>>) -> (Vec<String>, Vec<String>) {
        let wanted = |slot: &WaitSlot| {
            let id = slot.id.load(Ordering::Acquire);
            ids.is_none_or(|ids| id == 0 || ids.contains(&id))
        };
        let slots = self.slots();
        let keys = slots.iter().filter(|(_, slot)| wanted(slot)).map(|(key, _)| key);
        keys.map(|(tenant, log)| (tenant.0.to_string(), log.0.to_string())).unzip()
    }

    /// Returns whether a task waits for the log.
    #[cfg(test)]
    pub(super) fn is_waited_for(&self, tenant: &Tenant, log: &LogId) -> bool {
        self.slots().contains_key(&(tenant.clone(), log.clone()))
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<(Tenant, LogId), Arc<WaitSlot>>> {
        lock(&self.slots)
    }
}

/// Waits until the log has a record after `after`. The log need not exist yet.
pub(super) async fn wait(
    shared: &Shared,
    tenant: Tenant,
    log: LogId,
    after: u64,
) -> Result<(), StoreError> {
    // The slot is registered before the log is read, so that no write is missed.
    let place = WaitGuard::register(&shared.waits, (tenant.clone(), log.clone()));
    let mut last = place.slot.last.subscribe();
    let mut closed = shared.waits.closed.subscribe();
    poll_logs(shared, vec![tenant.0.to_string()], vec![log.0.to_string()]).await?;
    tokio::select! {
        seen = last.wait_for(|last| *last > after) => seen.map(drop).map_err(|_| StoreError::Closed),
        _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
    }
}

/// The registration of a waiting task, removed on drop.
struct WaitGuard<'w> {
    waits: &'w WaitRegistry,
    key: (Tenant, LogId),
    slot: Arc<WaitSlot>,
}

impl<'w> WaitGuard<'w> {
    fn register(waits: &'w WaitRegistry, key: (Tenant, LogId)) -> Self {
        let fresh = || Arc::new(WaitSlot { id: AtomicI64::new(0), last: watch::Sender::new(0) });
        let slot = waits.slots().entry(key.clone()).or_insert_with(fresh).clone();
        Self { waits, key, slot }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut slots = self.waits.slots();
        // One reference is the map's, the other is this one.
        if Arc::strong_count(&self.slot) <= 2 {
            slots.remove(&self.key);
        }
    }
}

/// Reads the ends of these logs and wakes the waiting tasks.
async fn poll_logs(
    shared: &Shared,
    tenants: Vec<String>,
    logs: Vec<String>,
) -> Result<(), StoreError> {
    if logs.is_empty() {
        return Ok(());
    }
    let sql = "SELECT t.name, l.name, l.id, l.last FROM unnest($1::text[], $2::text[]) w(tenant, log) \
               JOIN tenants t ON t.name = w.tenant JOIN logs l ON l.tenant = t.id AND l.name = w.log";
    for row in shared.server.query(sql, &[&tenants, &logs]).await? {
        let key = (Tenant(text(&row, 0)?), LogId(text(&row, 1)?));
        shared.waits.saw(&key, field(&row, 2)?, number(&row, 3)?);
    }
    Ok(())
}

/// Listens, notifies and polls until the store is closed.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Ok((client, received, own)) = connect(&shared).await {
            // The loop reconnects after any error.
            drop(listen(&shared, &client, received, own).await);
        }
        let (tenants, logs) = shared.waits.waited(None);
        // A failed poll is repeated.
        drop(poll_logs(&shared, tenants, logs).await);
        sleep(POLL_WITHOUT_NOTIFICATIONS).await;
    }
}

async fn connect(
    shared: &Shared,
) -> Result<(Client, mpsc::UnboundedReceiver<Notification>, i32), StoreError> {
    let (client, mut connection) = shared.server.connect().await?;
    let (notifications, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && notifications.send(notification).is_err()
            {
                return;
            }
        }
    });
    let error = |error| shared.server.error(error);
    // Notifications are hints and need no durability.
    let begin = format!(
        "SET synchronous_commit = off; SELECT pg_advisory_lock_shared(1414025804, 3); \
         LISTEN {CHANNEL}; NOTIFY {CHANNEL}, '{HELLO}'"
    );
    client.batch_execute(&begin).await.map_err(error)?;
    let own = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(error)?;
    let own = field(&own, 0)?;
    Ok((client, received, own))
}

async fn listen(
    shared: &Shared,
    client: &Client,
    mut received: mpsc::UnboundedReceiver<Notification>,
    own: i32,
) -> Result<(), StoreError> {
    let mut anyway = interval(POLL_WITH_NOTIFICATIONS);
    anyway.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut notify_at = Instant::now();
    let mut alone = is_alone(shared, client).await?;
    loop {
        tokio::select! {
            notification = received.recv() => {
                let Some(mut notification) = notification else { return Ok(()) };
                let mut ids = Some(BTreeSet::new());
                // One poll covers all notifications that arrived.
                loop {
                    if notification.process_id() != own {
                        alone = false;
                        ids = ids.and_then(|ids| parse_notification(ids, notification.payload()));
                    }
                    match received.try_recv() {
                        Ok(next) => notification = next,
                        Err(_) => break,
                    }
                }
                if ids.as_ref().is_none_or(|ids| !ids.is_empty()) {
                    let (tenants, logs) = shared.waits.waited(ids.as_ref());
                    poll_logs(shared, tenants, logs).await?;
                }
            }
            () = shared.waits.has_unannounced.notified() => {
                sleep_until(notify_at).await;
                send_notifications(shared, client, alone).await?;
                notify_at = Instant::now() + NOTIFY_INTERVAL;
            }
            _ = anyway.tick() => {
                alone = is_alone(shared, client).await?;
                let (tenants, logs) = shared.waits.waited(None);
                poll_logs(shared, tenants, logs).await?;
            }
        }
    }
}

/// Returns the log numbers in a notification, or `None` if all logs must be polled.
fn parse_notification(mut ids: BTreeSet<i64>, payload: &str) -> Option<BTreeSet<i64>> {
    if payload.is_empty() {
        return None;
    }
    // A greeting contains no numbers.
    ids.extend(payload.split(' ').filter_map(|id| id.parse::<i64>().ok()));
    Some(ids)
}

/// Returns whether no other node listens.
async fn is_alone(shared: &Shared, client: &Client) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) < 2 FROM pg_locks WHERE locktype = 'advisory' AND granted \
               AND classid = 1414025804 AND objid = 3 \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let row = client.query_one(sql, &[]).await.map_err(|error| shared.server.error(error))?;
    field(&row, 0)
}

async fn send_notifications(
    shared: &Shared,
    client: &Client,
    alone: bool,
) -> Result<(), StoreError> {
    let logs = std::mem::take(&mut *lock(&shared.waits.unannounced));
    if alone || logs.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = logs.iter().map(ToString::to_string).collect();
    let mut payload = ids.join(" ");
    if payload.len() > MOST_BYTES {
        payload.clear();
    }
    let sent = client.query("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await;
    sent.map(drop).map_err(|error| shared.server.error(error))
}
