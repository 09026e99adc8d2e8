//! Retention: destroys expired Threads, except Threads that are written to during the call.
//!
//! A fork shares its parent's records, so a Thread counts as used while one of its forks is used.
//! Forks expire before their parents. The expired Threads are selected from one read of all
//! Threads. Each Thread is read again before its erasure, and the database rejects the erasure if
//! the Thread was written to in the meantime.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use throughline_core::{LogHead, LogId, Store, StoreError, Tenant};

use crate::journal::Journal;
use crate::journal::forget::{ErasureReport, family_erases};
use crate::journal::listing::Page;
use crate::query::{Order, Progress, share};
use crate::rejection::Result;
use crate::row::ErasureReason;

/// Decides which Threads never expire.
pub type IsPermanent<'f> = &'f (dyn Fn(&LogId) -> bool + Sync);

/// Limits on the age and total size of Threads. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Threads expire when they have not been written to for longer than this.
    pub older_than: Option<std::time::Duration>,
    /// The oldest Threads expire until the remaining content has at most this many bytes.
    pub at_most_bytes: Option<u64>,
}

/// A Thread with its age and size, taken from one read of all Threads.
struct ExpiredThread {
    thread: LogHead,
    /// Content bytes of the Thread and its runs.
    bytes: u64,
    /// Time of the last write to the Thread, its runs or its forks.
    used: Timestamp,
    /// Number of Threads from the root Thread to this one, including both.
    depth: usize,
}

impl Journal {
    /// Destroys the content of expired Threads. A Thread that is written to during the call is
    /// kept.
    pub async fn prune(
        &self,
        tenant: &Tenant,
        (retention, is_permanent): (Retention, IsPermanent<'_>),
        now: Timestamp,
        progress: Progress<'_>,
    ) -> Result<ErasureReport> {
        let mut destroyed = ErasureReport::default();
        let expiring = self.aged(tenant, (retention, is_permanent), now).await?;
        for (number, aged) in (1..).zip(&expiring) {
            destroyed.add(self.expire_unused(tenant, &aged.thread.log, aged.used).await?);
            progress(share(number, expiring.len() as u64));
        }
        destroyed.unreached = self.complete_erasures().await?;
        Ok(destroyed)
    }

    /// Returns the expired Threads that [`Journal::prune`] would destroy, each with the content
    /// bytes of the Thread and its runs.
    pub async fn expiring(
        &self,
        tenant: &Tenant,
        (retention, is_permanent): (Retention, IsPermanent<'_>),
        now: Timestamp,
    ) -> Result<Vec<(LogHead, u64)>> {
        let expiring = self.aged(tenant, (retention, is_permanent), now).await?;
        Ok(expiring.into_iter().map(|aged| (aged.thread, aged.bytes)).collect())
    }

    async fn aged(
        &self,
        tenant: &Tenant,
        (retention, is_permanent): (Retention, IsPermanent<'_>),
        now: Timestamp,
    ) -> Result<Vec<ExpiredThread>> {
        let everything = Page { order: Order::Oldest, ..Page::everything() };
        let threads = self.threads(tenant, everything.clone()).await?;
        let runs = self.runs(tenant, None, everything).await?;
        let mut ages = ages(threads, &runs);
        ages.retain(|aged| !is_permanent(&aged.thread.log));
        Ok(chosen(ages, retention, now))
    }

    /// Destroys a Thread's content, unless the Thread was used after `until`.
    pub(super) async fn expire_unused(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        until: Timestamp,
    ) -> Result<ErasureReport> {
        let nothing = ErasureReport::default();
        let Some(head) = self.log(tenant, thread).await? else { return Ok(nothing) };
        let family = self.family(tenant, &head.log).await?;
        let runs: Vec<LogHead> = family.runs.iter().map(|(_, run)| run.clone()).collect();
        let threads = std::iter::once(head.clone()).chain(family.forks.iter().cloned()).collect();
        let now = ages(threads, &runs).into_iter().find(|now| now.thread.log == head.log);
        if now.is_none_or(|now| now.used > until) {
            return Ok(nothing);
        }
        let own_runs = family.runs.iter().filter(|(of, _)| *of == head.log).map(|(_, run)| run);
        let expects: Vec<(LogId, u64)> = std::iter::once(&head)
            .chain(own_runs)
            .map(|head| (head.log.clone(), head.last))
            .collect();
        let mut erases = family_erases(&head, &family, ErasureReason::Expired);
        // Runs that were erased before have no content.
        let gone: HashSet<&LogId> =
            runs.iter().filter(|run| run.gone.is_some()).map(|run| &run.log).collect();
        erases.retain(|erase| !gone.contains(&erase.log));
        match self.destroy(tenant, &erases, &expects).await {
            // The Thread was used since it was selected.
            Err(StoreError::Conflict { .. }) => Ok(nothing),
            done => done,
        }
    }
}

/// Returns the Threads that still have content, sorted by last use with the oldest first, and forks
/// before their parents.
fn ages(threads: Vec<LogHead>, runs: &[LogHead]) -> Vec<ExpiredThread> {
    let mut usage: HashMap<LogId, (Timestamp, u64)> = HashMap::new();
    for head in threads.iter().chain(runs).filter(|head| head.gone.is_none()) {
        let thread = head.of.as_ref().unwrap_or(&head.log);
        let (used, bytes) = usage.entry(thread.clone()).or_insert((Timestamp::MIN, 0));
        (*used, *bytes) = ((*used).max(head.updated), *bytes + head.bytes);
    }
    let parents = parents(&threads);
    let mut used: HashMap<LogId, Timestamp> = HashMap::new();
    for thread in threads.iter().filter(|thread| thread.gone.is_none()) {
        let time = usage.get(&thread.log).map_or(thread.updated, |(used, _)| *used);
        for log in lineage(&parents, &thread.log) {
            let latest = used.entry(log).or_insert(time);
            *latest = time.max(*latest);
        }
    }
    let mut ages: Vec<ExpiredThread> = threads
        .into_iter()
        .filter(|thread| thread.gone.is_none())
        .map(|thread| ExpiredThread {
            bytes: usage.get(&thread.log).map_or(0, |(_, bytes)| *bytes),
            used: used.get(&thread.log).copied().unwrap_or(thread.updated),
            depth: lineage(&parents, &thread.log).len(),
            thread,
        })
        .collect();
    ages.sort_by_key(|aged| (aged.used, Reverse(aged.depth)));
    ages
}

/// Maps each fork to its parent, if the fork shares records with the parent.
fn parents(threads: &[LogHead]) -> HashMap<LogId, LogId> {
    let shares = |head: &LogHead| head.fork.clone().filter(|fork| fork.at > 0);
    let pair = |head: &LogHead| Some((head.log.clone(), shares(head)?.log));
    threads.iter().filter_map(pair).collect()
}

/// Returns a Thread followed by its ancestors.
fn lineage(parents: &HashMap<LogId, LogId>, thread: &LogId) -> Vec<LogId> {
    let next = |log: &LogId| parents.get(log).cloned();
    std::iter::successors(Some(thread.clone()), next).collect()
}

fn chosen(
    mut ages: Vec<ExpiredThread>,
    retention: Retention,
    now: Timestamp,
) -> Vec<ExpiredThread> {
    let mut remaining: u64 = ages.iter().map(|aged| aged.bytes).sum();
    let oldest = retention.older_than.and_then(|age| {
        let age = jiff::SignedDuration::try_from(age).ok()?;
        now.checked_sub(age).ok()
    });
    let mut expired: HashSet<LogId> = HashSet::new();
    for ExpiredThread { thread, bytes, used, .. } in &ages {
        let is_old = oldest.is_some_and(|oldest| *used < oldest);
        // Expiring a Thread without content of its own frees no space.
        let is_over_limit =
            *bytes > 0 && retention.at_most_bytes.is_some_and(|most| remaining > most);
        if is_old || is_over_limit {
            remaining = remaining.saturating_sub(*bytes);
            expired.insert(thread.log.clone());
        }
    }
    // A fork without content of its own expires with its parent.
    let heads: Vec<LogHead> = ages.iter().map(|aged| aged.thread.clone()).collect();
    let parents = parents(&heads);
    ages.retain(|aged| lineage(&parents, &aged.thread.log).iter().any(|log| expired.contains(log)));
    ages
}
