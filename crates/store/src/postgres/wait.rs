//! Waiting for what other nodes write. One connection listens, and tells the others what was written here: once for all
//! that was written meanwhile, and outside the transactions that write, because the server lets only one transaction with
//! notifications commit at a time.
//!
//! A node that listens holds a lock that others can share, and greets them: so a node that is alone knows it, and tells
//! nobody. A notification is a hint. Where the connection is lost, and now and then anyway, the logs that somebody waits for are
//! looked at.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::{LogId, StoreError, Tenant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::postgres::Shared;
use crate::postgres::read::{field, number, text};

const CHANNEL: &str = "throughline";
/// What a node says when it begins to listen.
const HELLO: &str = "hello";
/// How often logs are looked at while nobody tells us.
const ALONE: Duration = Duration::from_millis(500);
/// How often they are looked at while somebody does: a node may end between writing and telling.
const ANYWAY: Duration = Duration::from_secs(5);
/// How long what is to be told may gather.
const GATHER: Duration = Duration::from_millis(5);
/// What a notification can carry, with room to spare.
const MOST_BYTES: usize = 7900;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Waits {
    slots: Mutex<HashMap<(Tenant, LogId), Arc<Slot>>>,
    /// The numbers of logs that were written to here, and that the others were not told of.
    untold: Mutex<BTreeSet<i64>>,
    bell: Notify,
    closed: watch::Sender<bool>,
}

/// A log that somebody waits for.
struct Slot {
    /// Its number; 0 until it is known.
    id: AtomicI64,
    last: watch::Sender<u64>,
}

impl Waits {
    /// A log was written to by this node.
    pub(super) fn wrote(&self, tenant: &Tenant, log: &LogId, id: i64, last: u64) {
        self.saw(&(tenant.clone(), log.clone()), id, last);
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.insert(id);
        self.bell.notify_one();
    }

    /// Everybody who waits hears that the store was closed.
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

    /// The logs to look at: those with these numbers, or with none yet; all of them without numbers.
    fn waited(&self, ids: Option<&BTreeSet<i64>>) -> (Vec<String>, Vec<String>) {
        let wanted = |slot: &Slot| {
            let id = slot.id.load(Ordering::Acquire);
            ids.is_none_or(|ids| id == 0 || ids.contains(&id))
        };
        let slots = self.slots();
        let keys = slots.iter().filter(|(_, slot)| wanted(slot)).map(|(key, _)| key);
        keys.map(|(tenant, log)| (tenant.0.to_string(), log.0.to_string())).unzip()
    }

    /// Whether somebody waits for the log.
    #[cfg(test)]
    pub(super) fn is_waited_for(&self, tenant: &Tenant, log: &LogId) -> bool {
        self.slots().contains_key(&(tenant.clone(), log.clone()))
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<(Tenant, LogId), Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the log has a record after that one. A log that does not exist yet may be waited for.
pub(super) async fn wait(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    after: u64,
) -> Result<(), StoreError> {
    // The place is taken before the log is looked at, so that nothing falls in between.
    let place = Place::take(&shared.waits, tenant, log);
    let mut last = place.slot.last.subscribe();
    let mut closed = shared.waits.closed.subscribe();
    look(shared, vec![tenant.0.to_string()], vec![log.0.to_string()]).await?;
    tokio::select! {
        seen = last.wait_for(|last| *last > after) => seen.map(drop).map_err(|_| StoreError::Closed),
        _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
    }
}

/// Somebody's place among those who wait; given up when it is dropped.
struct Place<'w> {
    waits: &'w Waits,
    key: (Tenant, LogId),
    slot: Arc<Slot>,
}

impl<'w> Place<'w> {
    fn take(waits: &'w Waits, tenant: &Tenant, log: &LogId) -> Self {
        let key = (tenant.clone(), log.clone());
        let fresh = || Arc::new(Slot { id: AtomicI64::new(0), last: watch::Sender::new(0) });
        let slot = waits.slots().entry(key.clone()).or_insert_with(fresh).clone();
        Self { waits, key, slot }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut slots = self.waits.slots();
        // The map's own and this one.
        if Arc::strong_count(&self.slot) <= 2 {
            slots.remove(&self.key);
        }
    }
}

/// Looks how far these logs go, and tells who waits for them.
async fn look(shared: &Shared, tenants: Vec<String>, logs: Vec<String>) -> Result<(), StoreError> {
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

/// Listens, tells and looks, as long as the store is open.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Ok((client, heard, own)) = connect(&shared).await {
            // Whatever ends it, it begins anew.
            drop(listen(&shared, &client, heard, own).await);
        }
        let (tenants, logs) = shared.waits.waited(None);
        // What cannot be seen now is looked at again.
        drop(look(&shared, tenants, logs).await);
        sleep(ALONE).await;
    }
}

async fn connect(
    shared: &Shared,
) -> Result<(Client, mpsc::UnboundedReceiver<Notification>, i32), StoreError> {
    let (client, mut connection) = shared.server.connect().await?;
    let (tell, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && tell.send(notification).is_err()
            {
                return;
            }
        }
    });
    let error = |error| shared.server.error(error);
    // Telling needs no durability: it is a hint.
    let begin = format!(
        "SET synchronous_commit = off; SELECT pg_advisory_lock_shared(1414025804, 3); \
         LISTEN {CHANNEL}; NOTIFY {CHANNEL}, '{HELLO}'"
    );
    client.batch_execute(&begin).await.map_err(error)?;
    let own = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(error)?;
    let own = field(&own, 0)?;
    Ok((client, heard, own))
}

async fn listen(
    shared: &Shared,
    client: &Client,
    mut heard: mpsc::UnboundedReceiver<Notification>,
    own: i32,
) -> Result<(), StoreError> {
    let mut anyway = interval(ANYWAY);
    anyway.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tell_at = Instant::now();
    let mut alone = is_alone(shared, client).await?;
    loop {
        tokio::select! {
            notification = heard.recv() => {
                let Some(mut notification) = notification else { return Ok(()) };
                let mut ids = Some(BTreeSet::new());
                // Whatever else has come is seen with one look.
                loop {
                    if notification.process_id() != own {
                        alone = false;
                        ids = ids.and_then(|ids| told(ids, notification.payload()));
                    }
                    match heard.try_recv() {
                        Ok(next) => notification = next,
                        Err(_) => break,
                    }
                }
                if ids.as_ref().is_none_or(|ids| !ids.is_empty()) {
                    let (tenants, logs) = shared.waits.waited(ids.as_ref());
                    look(shared, tenants, logs).await?;
                }
            }
            () = shared.waits.bell.notified() => {
                sleep_until(tell_at).await;
                tell(shared, client, alone).await?;
                tell_at = Instant::now() + GATHER;
            }
            _ = anyway.tick() => {
                alone = is_alone(shared, client).await?;
                let (tenants, logs) = shared.waits.waited(None);
                look(shared, tenants, logs).await?;
            }
        }
    }
}

/// The numbers of a notification; nothing where it says to look for oneself.
fn told(mut ids: BTreeSet<i64>, payload: &str) -> Option<BTreeSet<i64>> {
    if payload.is_empty() {
        return None;
    }
    // A greeting has no numbers.
    ids.extend(payload.split(' ').filter_map(|id| id.parse::<i64>().ok()));
    Some(ids)
}

/// Whether no other node listens.
async fn is_alone(shared: &Shared, client: &Client) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) < 2 FROM pg_locks WHERE locktype = 'advisory' AND granted \
               AND classid = 1414025804 AND objid = 3 \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let row = client.query_one(sql, &[]).await.map_err(|error| shared.server.error(error))?;
    field(&row, 0)
}

async fn tell(shared: &Shared, client: &Client, alone: bool) -> Result<(), StoreError> {
    let untold = {
        let mut untold = shared.waits.untold.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *untold)
    };
    if alone || untold.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = untold.iter().map(ToString::to_string).collect();
    let mut payload = ids.join(" ");
    if payload.len() > MOST_BYTES {
        payload.clear();
    }
    let told = client.query("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await;
    told.map(drop).map_err(|error| shared.server.error(error))
}
