//! Letting expire: threads whose time is up are destroyed, unless somebody uses them after all.
//!
//! A fork shares its parent's records, so a thread is in use for as long as one of its forks is; and forks expire before
//! what they were forked off. What is to expire is decided from one look at all threads; before each of them is
//! destroyed it is looked at again, and the database refuses if it was written to since.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use throughline_core::{LogHead, LogId, Store, StoreError, Tenant, kind};

use crate::backend::{Erased, Order, Progress};
use crate::forget::{Destroyed, family_erases};
use crate::journal::Journal;
use crate::listing::Page;

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Threads that nobody has written to for longer expire.
    pub older_than: Option<std::time::Duration>,
    /// The oldest threads expire until the contents of the rest have at most so many bytes.
    pub at_most_bytes: Option<u64>,
}

/// A thread as it was when it was read.
struct Aged {
    thread: LogHead,
    /// How many bytes it and its runs have.
    bytes: u64,
    /// When it, one of its runs or one of its forks was last written to.
    used: Timestamp,
    /// How many forks lie between it and the thread that is no fork.
    depth: usize,
}

impl Journal {
    /// Destroys the content of threads whose time is up. One that somebody uses meanwhile stays.
    pub async fn prune(
        &self,
        tenant: &Tenant,
        retention: Retention,
        now: Timestamp,
        progress: Progress<'_>,
    ) -> Result<Destroyed, StoreError> {
        let mut destroyed = Destroyed::default();
        let expiring = self.aged(tenant, retention, now).await?;
        let count = expiring.len().max(1);
        for (done, aged) in expiring.iter().enumerate() {
            destroyed.add(self.expire(tenant, aged).await?);
            #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
            progress((done + 1) as f64 / count as f64);
        }
        destroyed.unreached = self.finish_destroying().await?;
        Ok(destroyed)
    }

    /// The threads whose time is up, each with the bytes that it and its runs have: what [`Journal::prune`] destroys.
    pub async fn expiring(
        &self,
        tenant: &Tenant,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Vec<(LogHead, u64)>, StoreError> {
        let expiring = self.aged(tenant, retention, now).await?;
        Ok(expiring.into_iter().map(|aged| (aged.thread, aged.bytes)).collect())
    }

    async fn aged(
        &self,
        tenant: &Tenant,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Vec<Aged>, StoreError> {
        let everything = Page { limit: u32::MAX >> 1, order: Order::Oldest, after: None };
        let threads = self.threads(tenant, everything.clone()).await?;
        let runs = self.runs(tenant, None, everything).await?;
        Ok(chosen(ages(threads, &runs), retention, now))
    }

    /// Destroys a thread that nobody has used since.
    async fn expire(&self, tenant: &Tenant, aged: &Aged) -> Result<Destroyed, StoreError> {
        let nothing = Destroyed::default();
        let Some(head) = self.log(tenant, &aged.thread.log).await? else { return Ok(nothing) };
        let family = self.family(tenant, &head.log).await?;
        let runs: Vec<LogHead> = family.runs.iter().map(|(_, run)| run.clone()).collect();
        let threads = std::iter::once(head.clone()).chain(family.forks.iter().cloned()).collect();
        let now = ages(threads, &runs).into_iter().find(|now| now.thread.log == head.log);
        if now.is_none_or(|now| now.used > aged.used) {
            return Ok(nothing);
        }
        let own_runs = family.runs.iter().filter(|(of, _)| *of == head.log).map(|(_, run)| run);
        let expects: Vec<(LogId, u64)> = std::iter::once(&head)
            .chain(own_runs)
            .map(|head| (head.log.clone(), head.last))
            .collect();
        let erases = family_erases(&head, &family, Erased::Expired);
        match self.destroy(tenant, &erases, &expects, kind::EXPIRED).await {
            // Somebody used it after all.
            Err(StoreError::Conflict { .. }) => Ok(nothing),
            done => done,
        }
    }
}

/// The threads that are not gone, the one first that was not used for longest, and forks before what they share.
fn ages(threads: Vec<LogHead>, runs: &[LogHead]) -> Vec<Aged> {
    let mut own: HashMap<LogId, (Timestamp, u64)> = HashMap::new();
    for head in threads.iter().chain(runs).filter(|head| head.gone.is_none()) {
        let thread = head.of.as_ref().unwrap_or(&head.log);
        let (used, bytes) = own.entry(thread.clone()).or_insert((Timestamp::MIN, 0));
        (*used, *bytes) = ((*used).max(head.updated), *bytes + head.bytes);
    }
    let parents = parents(&threads);
    let mut used: HashMap<LogId, Timestamp> = HashMap::new();
    let mut depths: HashMap<LogId, usize> = HashMap::new();
    for thread in threads.iter().filter(|thread| thread.gone.is_none()) {
        let time = own.get(&thread.log).map_or(thread.updated, |(used, _)| *used);
        let line = line(&parents, &thread.log);
        depths.insert(thread.log.clone(), line.len());
        for log in line {
            let latest = used.entry(log).or_insert(time);
            *latest = time.max(*latest);
        }
    }
    let mut ages: Vec<Aged> = threads
        .into_iter()
        .filter(|thread| thread.gone.is_none())
        .map(|thread| Aged {
            bytes: own.get(&thread.log).map_or(0, |(_, bytes)| *bytes),
            used: used.get(&thread.log).copied().unwrap_or(thread.updated),
            depth: depths.get(&thread.log).copied().unwrap_or_default(),
            thread,
        })
        .collect();
    ages.sort_by_key(|aged| (aged.used, Reverse(aged.depth)));
    ages
}

/// What each fork shares something with.
fn parents(threads: &[LogHead]) -> HashMap<LogId, LogId> {
    let shares = |head: &LogHead| head.fork.clone().filter(|fork| fork.at > 0);
    let pair = |head: &LogHead| Some((head.log.clone(), shares(head)?.log));
    threads.iter().filter_map(pair).collect()
}

/// A thread, what it was forked off, and so on.
fn line(parents: &HashMap<LogId, LogId>, thread: &LogId) -> Vec<LogId> {
    let next = |log: &LogId| parents.get(log).cloned();
    std::iter::successors(Some(thread.clone()), next).collect()
}

/// Those whose time is up.
fn chosen(mut ages: Vec<Aged>, retention: Retention, now: Timestamp) -> Vec<Aged> {
    let mut kept: u64 = ages.iter().map(|aged| aged.bytes).sum();
    let oldest = retention.older_than.and_then(|age| {
        let age = jiff::SignedDuration::try_from(age).ok()?;
        now.checked_sub(age).ok()
    });
    let mut up: HashSet<LogId> = HashSet::new();
    for Aged { thread, bytes, used, .. } in &ages {
        let old = oldest.is_some_and(|oldest| *used < oldest);
        // One that has nothing of its own makes no room.
        let much = *bytes > 0 && retention.at_most_bytes.is_some_and(|most| kept > most);
        if old || much {
            kept = kept.saturating_sub(*bytes);
            up.insert(thread.log.clone());
        }
    }
    // A fork that has nothing of its own goes with what it shares.
    let heads: Vec<LogHead> = ages.iter().map(|aged| aged.thread.clone()).collect();
    let parents = parents(&heads);
    ages.retain(|aged| line(&parents, &aged.thread.log).iter().any(|log| up.contains(log)));
    ages
}
