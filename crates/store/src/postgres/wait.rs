//! Waits for writes of other nodes. One connection listens for notifications and also sends this
//! node's notifications. Notifications are batched and sent outside the writing transactions,
//! because the server commits only one transaction with notifications at a time.
//!
//! Each listening node holds a shared lock and sends a greeting when it starts. A node can
//! therefore detect that it is alone, and then sends no notifications. Notifications are only
//! hints: logs that tasks wait for are also polled, at intervals and after a lost connection.
//!
//! A pooler such as PgBouncer in transaction mode delivers no notifications. A node that has only a
//! pooler polls at shorter intervals, and still notifies the nodes that listen.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::postgres::Shared;
use crate::postgres::connect::Server;
use crate::postgres::values::field;
use crate::rejection::Result;
use crate::sync::lock;
use crate::waits::LogKey;

const CHANNEL: &str = "throughline";
/// The payload that a node sends when it starts listening.
const HELLO: &str = "hello";
/// Polling interval while the node has no connection for notifications.
const POLL_WITHOUT_NOTIFICATIONS: Duration = Duration::from_millis(500);
/// Polling interval while connected. Polling is still needed, because a node may end after it wrote
/// and before it sent a notification.
const POLL_WITH_NOTIFICATIONS: Duration = Duration::from_secs(5);
/// Minimum time between two notifications, during which written logs are collected.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum size of a notification in bytes, below the server's limit. If the ids take more space,
/// an empty notification is sent, and receivers then poll all logs.
const MOST_BYTES: usize = 7900;

/// Counts the nodes that listen: each holds a shared lock.
const LISTENERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
    AND classid = 1414025804 AND objid = 3 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// Ids of the logs that this node wrote to since its last notification.
#[derive(Default)]
pub(super) struct Announcements {
    logs: Mutex<BTreeSet<i64>>,
    added: Notify,
}

impl Shared {
    /// Wakes this node's waiting tasks, and schedules a notification for the other nodes.
    pub(super) fn wrote(&self, key: &LogKey, id: i64, last: u64) {
        self.waits.saw(key, id, last);
        lock(&self.announcements.logs).insert(id);
        self.announcements.added.notify_one();
    }
}

/// Reads the last sequence numbers of these logs and wakes the tasks that wait for later records.
pub(super) async fn poll_logs(shared: &Shared, logs: Vec<LogKey>) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let name = |(tenant, log): LogKey| (tenant.0.to_string(), log.0.to_string());
    let (tenants, logs): (Vec<_>, Vec<_>) = logs.into_iter().map(name).unzip();
    let sql = "SELECT t.name, l.name, l.id, l.last FROM unnest($1::text[], $2::text[]) w(tenant, log) \
               JOIN tenants t ON t.name = w.tenant JOIN logs l ON l.tenant = t.id AND l.name = w.log";
    for row in shared.server.query(sql, &[&tenants, &logs]).await? {
        shared.waits.saw(&(row.get(0)?, row.get(1)?), row.get(2)?, row.get(3)?);
    }
    Ok(())
}

/// Listens, notifies and polls until the store is closed.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some(notifier) = shared.notifier() else { return poll(&shared).await };
    loop {
        if let Ok((client, received, own_pid)) = connect(notifier).await {
            // Ignore errors, because the loop reconnects after any of them.
            drop(listen(&shared, &client, received, own_pid).await);
        }
        // Ignore errors, because the next iteration polls again.
        drop(poll_logs(&shared, shared.waits.waited(None)).await);
        sleep(POLL_WITHOUT_NOTIFICATIONS).await;
    }
}

/// Polls until the store is closed, and notifies the nodes that listen.
async fn poll(shared: &Shared) {
    let mut polling = interval(POLL_WITHOUT_NOTIFICATIONS);
    polling.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counting = interval(POLL_WITH_NOTIFICATIONS);
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut listeners, mut notify_at) = (0, Instant::now());
    loop {
        // Ignore errors, because each of these steps is repeated later.
        tokio::select! {
            () = shared.announcements.added.notified() => {
                sleep_until(notify_at).await;
                let payload = shared.announcements.payload().filter(|_| listeners > 0);
                if let Some(payload) = payload {
                    drop(shared.server.query(NOTIFY, &[&CHANNEL, &payload]).await);
                }
                notify_at = Instant::now() + NOTIFY_INTERVAL;
            }
            _ = polling.tick() => drop(poll_logs(shared, shared.waits.waited(None)).await),
            _ = counting.tick() => {
                let counted = shared.server.query_one(LISTENERS, &[]).await;
                listeners = counted.and_then(|row| row.get::<i64>(0)).unwrap_or(listeners);
            }
        }
    }
}

async fn connect(server: &Server) -> Result<(Client, mpsc::UnboundedReceiver<Notification>, i32)> {
    let (client, mut connection) = server.connect().await?;
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
    let error = |error| server.error(error);
    // Notifications are hints and need no durability.
    let begin = format!(
        "SET synchronous_commit = off; SELECT pg_advisory_lock_shared(1414025804, 3); \
         LISTEN {CHANNEL}; NOTIFY {CHANNEL}, '{HELLO}'"
    );
    client.batch_execute(&begin).await.map_err(error)?;
    let own_pid = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(error)?;
    let own_pid = field(&own_pid, 0)?;
    Ok((client, received, own_pid))
}

async fn listen(
    shared: &Shared,
    client: &Client,
    mut received: mpsc::UnboundedReceiver<Notification>,
    own_pid: i32,
) -> Result<()> {
    let mut anyway = interval(POLL_WITH_NOTIFICATIONS);
    anyway.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut notify_at = Instant::now();
    let mut alone = is_alone(shared, client).await?;
    loop {
        tokio::select! {
            notification = received.recv() => {
                let Some(mut notification) = notification else { return Ok(()) };
                let mut ids = Some(BTreeSet::new());
                // Collect all notifications that have arrived, so that one poll covers them.
                loop {
                    if notification.process_id() != own_pid {
                        alone = false;
                        ids = ids.and_then(|ids| parse_notification(ids, notification.payload()));
                    }
                    match received.try_recv() {
                        Ok(next) => notification = next,
                        Err(_) => break,
                    }
                }
                if ids.as_ref().is_none_or(|ids| !ids.is_empty()) {
                    poll_logs(shared, shared.waits.waited(ids.as_ref())).await?;
                }
            }
            () = shared.announcements.added.notified() => {
                sleep_until(notify_at).await;
                send_notifications(shared, client, alone).await?;
                notify_at = Instant::now() + NOTIFY_INTERVAL;
            }
            _ = anyway.tick() => {
                alone = is_alone(shared, client).await?;
                poll_logs(shared, shared.waits.waited(None)).await?;
            }
        }
    }
}

/// Adds the log ids in a notification to `ids`. Returns `None` if all logs must be polled.
fn parse_notification(mut ids: BTreeSet<i64>, payload: &str) -> Option<BTreeSet<i64>> {
    if payload.is_empty() {
        return None;
    }
    // A greeting contains no ids.
    ids.extend(payload.split(' ').filter_map(|id| id.parse::<i64>().ok()));
    Some(ids)
}

/// Returns whether no other node listens.
async fn is_alone(shared: &Shared, client: &Client) -> Result<bool> {
    let row = client.query_one(LISTENERS, &[]).await.map_err(|error| shared.server.error(error))?;
    Ok(field::<i64>(&row, 0)? < 2)
}

async fn send_notifications(shared: &Shared, client: &Client, alone: bool) -> Result<()> {
    let Some(payload) = shared.announcements.payload().filter(|_| !alone) else { return Ok(()) };
    let sent = client.query(NOTIFY, &[&CHANNEL, &payload]).await;
    sent.map(drop).map_err(|error| shared.server.error(error))
}

impl Announcements {
    /// Returns the payload of the next notification, or `None` if no log was written to.
    fn payload(&self) -> Option<String> {
        let logs = std::mem::take(&mut *lock(&self.logs));
        let ids: Vec<String> = logs.iter().map(ToString::to_string).collect();
        let payload = ids.join(" ");
        let has_logs = !payload.is_empty();
        has_logs.then(|| if payload.len() > MOST_BYTES { String::new() } else { payload })
    }
}
