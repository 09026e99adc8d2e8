//! Expiry: destroys data of one class that was last used before a given time.
//!
//! Logs are read in pages, oldest first, and each Thread or run is destroyed in its own commit, so
//! the work never holds the database for long. A Thread counts as used while one of its runs or
//! forks is used. The database rejects the erasure of a log that was written to in the meantime.
//!
//! Requests that continue a conversation repeat its whole history, and the store contains their
//! bodies as differences from earlier bodies. The bodies of a conversation therefore expire
//! together.

use std::collections::HashSet;

use jiff::Timestamp;
use throughline_core::{LogHead, LogId, LogKind, Store as _, StoreError, Tenant, kind};
use throughline_json::{Name, words};

use crate::journal::Journal;
use crate::journal::forget::ErasureReport;
use crate::journal::listing::{Page, shares};
use crate::query::{IdleLogs, Listing, LogContent, Order, Span};
use crate::rejection::Result;
use crate::row::ErasureReason;
use crate::sealed_batch::Erasure;

/// Number of logs that are read at a time.
const PAGE: u32 = 100;
/// Maximum number of records that one commit destroys in a log that is kept.
const MOST_RECORDS: usize = 1000;

words! {
    /// A class of stored data with its own retention time.
    RetentionClass {
        /// Calls through the gateway: their records, bodies, captured replies and responses.
        Requests = "requests",
        /// The bodies of calls. The rest of the calls is kept.
        Bodies = "bodies",
        /// The Threads of agents, with their runs.
        Threads = "threads",
        /// The runs of agents that have ended. Their Threads are kept.
        Runs = "runs",
    }
}

impl RetentionClass {
    /// Returns the kinds of logs that contain data of this class. A failed call that continues a
    /// conversation is a run of that conversation.
    fn log_kinds(self) -> &'static [LogKind] {
        match self {
            Self::Requests | Self::Threads => &[LogKind::Thread],
            Self::Bodies => &[LogKind::Thread, LogKind::Run],
            Self::Runs => &[LogKind::Run],
        }
    }

    fn content(self) -> LogContent {
        match self {
            Self::Requests | Self::Threads => LogContent::Any,
            Self::Bodies => LogContent::NotEmptied,
            Self::Runs => LogContent::EndedRun,
        }
    }
}

/// Decides which class a log belongs to.
pub trait LogClassifier: Send + Sync {
    /// Returns whether the log with this name contains calls through the gateway.
    fn is_call(&self, log: &LogId) -> bool;

    /// Returns whether the Thread with this name never expires.
    fn is_permanent(&self, log: &LogId) -> bool;
}

/// The expired data of a class: logs that were not used after a time.
#[derive(Clone, Copy)]
pub struct ExpiredData<'c> {
    /// The class of the data.
    pub class: RetentionClass,
    /// The time of the last use. Data that was used later is kept.
    pub until: Timestamp,
    /// Decides which logs belong to the class.
    pub classifier: &'c dyn LogClassifier,
}

/// Number and size of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataCount {
    /// Number of logs: Threads, and runs with the logs of their commands.
    pub logs: u64,
    /// Number of records with content.
    pub records: u64,
    /// Size of the content in bytes, before encryption.
    pub bytes: u64,
}

/// The stored data of a class, and the part that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Number of logs with data of the class, without the runs of Threads.
    pub logs: u64,
    /// When the oldest of them was created.
    pub since: Option<Timestamp>,
    /// The part that the next pass deletes.
    pub expired: DataCount,
}

impl DataCount {
    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.logs += other.logs;
        self.records += other.records;
        self.bytes += other.bytes;
    }

    fn of(erased: &ErasureReport) -> Self {
        let logs = u64::try_from(erased.logs.len()).unwrap_or(u64::MAX);
        Self { logs, records: erased.records, bytes: erased.bytes }
    }
}

impl ExpiredData<'_> {
    /// Returns whether the log can contain data of the class.
    fn includes(&self, head: &LogHead) -> bool {
        let is_call = self.classifier.is_call(&head.log);
        match self.class {
            RetentionClass::Requests | RetentionClass::Bodies => is_call,
            RetentionClass::Threads => !is_call && !self.classifier.is_permanent(&head.log),
            RetentionClass::Runs => true,
        }
    }
}

impl Journal {
    /// Destroys the expired data of a tenant, one log per commit. The content is gone from all
    /// files after [`Journal::complete_expiry`].
    pub async fn expire(&self, tenant: &Tenant, data: &ExpiredData<'_>) -> Result<DataCount> {
        let mut total = DataCount::default();
        for kind in data.class.log_kinds() {
            let mut after = None;
            loop {
                let page = self.idle_logs(tenant, data, Some(data.until), *kind, after.clone());
                let page = page.await?;
                let is_last = page.len() < PAGE as usize;
                let mut erased_logs: HashSet<LogId> = HashSet::new();
                for head in page {
                    if erased_logs.contains(&head.log) {
                        continue;
                    }
                    let erased = if data.includes(&head) {
                        self.expire_log(tenant, data, &head).await?
                    } else {
                        ErasureReport::default()
                    };
                    total.add(DataCount::of(&erased));
                    // An erased log is no longer listed, so the next page starts after the last
                    // log that is kept.
                    let is_kept = data.class == RetentionClass::Bodies || erased.logs.is_empty();
                    erased_logs.extend(erased.logs);
                    if is_kept {
                        after = Some(head.log);
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Removes destroyed content from all files and backups. Returns the key files and backups that
    /// could not be reached.
    pub async fn complete_expiry(&self) -> Result<Vec<Name>> {
        let unreached = self.complete_erasures().await?;
        self.backend.keep_reserve().await?;
        Ok(unreached)
    }

    /// Counts the stored data of a class, and the part that has expired. Nothing expires if `until`
    /// is `None`.
    pub async fn class_stats(
        &self,
        tenant: &Tenant,
        class: RetentionClass,
        until: Option<Timestamp>,
        classifier: &dyn LogClassifier,
    ) -> Result<ClassStats> {
        let mut stats = ClassStats::default();
        let data = ExpiredData { class, until: until.unwrap_or(Timestamp::MIN), classifier };
        for kind in class.log_kinds() {
            let mut after = None;
            loop {
                let page = self.idle_logs(tenant, &data, None, *kind, after).await?;
                let is_full = page.len() == PAGE as usize;
                after = page.last().filter(|_| is_full).map(|head| head.log.clone());
                for head in page.into_iter().filter(|head| data.includes(head)) {
                    stats.logs += 1;
                    stats.since = stats.since.into_iter().chain([head.created]).min();
                    if head.updated <= data.until {
                        stats.expired.add(self.expired_in(tenant, &data, &head).await?);
                    }
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(stats)
    }

    /// Returns one page of the logs that can contain data of the class and were not written after
    /// `until`, oldest first.
    async fn idle_logs(
        &self,
        tenant: &Tenant,
        data: &ExpiredData<'_>,
        until: Option<Timestamp>,
        kind: LogKind,
        after: Option<LogId>,
    ) -> Result<Vec<LogHead>> {
        let page = Page { after, limit: PAGE, order: Order::Oldest };
        let until = until.map_or(i64::MAX, Timestamp::as_millisecond);
        let idle = Some(IdleLogs { until, content: data.class.content() });
        self.backend.logs(tenant, Listing { idle, ..page.listing(Some(kind)) }).await
    }

    /// Destroys the expired data of a log, unless the log is in use.
    async fn expire_log(
        &self,
        tenant: &Tenant,
        data: &ExpiredData<'_>,
        head: &LogHead,
    ) -> Result<ErasureReport> {
        match data.class {
            RetentionClass::Requests | RetentionClass::Threads => {
                self.expire_with_forks(tenant, head, data.until).await
            }
            RetentionClass::Bodies => {
                if self.is_in_use(tenant, head, data.until).await? {
                    return Ok(ErasureReport::default());
                }
                self.expire_bodies(tenant, head).await
            }
            RetentionClass::Runs => {
                let expects = [(head.log.clone(), head.last)];
                let erases = self.run_erasures(tenant, head).await?;
                self.destroy_unused(tenant, &erases, &expects).await
            }
        }
    }

    /// Counts the expired data of a log without destroying the data.
    async fn expired_in(
        &self,
        tenant: &Tenant,
        data: &ExpiredData<'_>,
        head: &LogHead,
    ) -> Result<DataCount> {
        let mut count = DataCount::default();
        if self.is_in_use(tenant, head, data.until).await? {
            return Ok(count);
        }
        let erases = match data.class {
            RetentionClass::Runs => self.run_erasures(tenant, head).await?,
            RetentionClass::Bodies => {
                let seqs = self.body_records(tenant, head).await?;
                vec![Erasure::records(head.log.clone(), seqs, ErasureReason::Expired)]
            }
            RetentionClass::Requests | RetentionClass::Threads => {
                let runs = self.runs(tenant, Some(&head.log), Page::everything()).await?;
                let runs = runs.into_iter().filter(|run| run.gone.is_none());
                let logs = std::iter::once(head.log.clone()).chain(runs.map(|run| run.log));
                logs.map(|log| Erasure::all(log, ErasureReason::Expired)).collect()
            }
        };
        for erase in &erases {
            let records = self.erased_records(tenant, erase).await?;
            let is_counted = !records.is_empty() || erase.seqs.is_none();
            count.logs += u64::from(is_counted);
            count.records += u64::try_from(records.len()).unwrap_or(u64::MAX);
            count.bytes += records.iter().map(|(_, size)| size).sum::<u64>();
        }
        Ok(count)
    }

    /// Destroys a Thread that nothing has used after `until`, and its forks first. A fork that
    /// shares the erased records would otherwise get an erasure record, and count as used.
    async fn expire_with_forks(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        until: Timestamp,
    ) -> Result<ErasureReport> {
        let mut destroyed = ErasureReport::default();
        if self.is_in_use(tenant, head, until).await? {
            return Ok(destroyed);
        }
        let forks = self.family(tenant, &head.log).await?.forks;
        let forks = forks.iter().rev().filter(|fork| fork.gone.is_none() && shares(fork));
        for log in forks.map(|fork| &fork.log).chain([&head.log]) {
            destroyed.add(self.expire_unused(tenant, log, until).await?);
        }
        Ok(destroyed)
    }

    /// Returns whether the Thread, one of its runs or one of its forks was written to after
    /// `until`. A run is in use only if the run itself was written to.
    async fn is_in_use(&self, tenant: &Tenant, head: &LogHead, until: Timestamp) -> Result<bool> {
        if head.kind == LogKind::Run {
            return Ok(head.updated > until);
        }
        let family = self.family(tenant, &head.log).await?;
        let forks = family.forks.iter().filter(|fork| shares(fork));
        let mut logs =
            std::iter::once(head).chain(forks).chain(family.runs.iter().map(|(_, run)| run));
        Ok(logs.any(|log| log.gone.is_none() && log.updated > until))
    }

    /// Destroys the bodies in a log. The erasure records have the time of the log's last write, so
    /// that the erasure does not count as a use of the conversation.
    async fn expire_bodies(&self, tenant: &Tenant, head: &LogHead) -> Result<ErasureReport> {
        let mut destroyed = ErasureReport::default();
        let seqs = self.body_records(tenant, head).await?;
        for (number, seqs) in (0..).zip(seqs.chunks(MOST_RECORDS)) {
            let expects = [(head.log.clone(), head.last + number)];
            let erase = Erasure::records(head.log.clone(), seqs.to_vec(), ErasureReason::Expired);
            let erase = Erasure { noted_at: Some(head.updated), ..erase };
            let erased = self.destroy_unused(tenant, &[erase], &expects).await?;
            if erased.records == 0 {
                break;
            }
            destroyed.add(erased);
        }
        Ok(destroyed)
    }

    /// Returns the numbers of the records in a log that contain bodies of calls.
    async fn body_records(&self, tenant: &Tenant, head: &LogHead) -> Result<Vec<u64>> {
        const ROWS: u32 = 256;
        let mut seqs = Vec::new();
        let mut next = Some(Span { after: 0, up_to: u64::MAX, limit: ROWS });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, &head.log, span).await?;
            let bodies = rows.iter().filter(|row| *row.kind == *kind::COPY && row.erased.is_none());
            seqs.extend(bodies.map(|row| row.seq));
            next = span.following(&rows);
        }
        Ok(seqs)
    }

    /// Builds the erasures for a run and for the log that receives its commands.
    async fn run_erasures(&self, tenant: &Tenant, head: &LogHead) -> Result<Vec<Erasure>> {
        let mut erases = vec![Erasure::all(head.log.clone(), ErasureReason::Expired)];
        let inbox = LogId::from(format!("{}.inbox", head.log));
        let inbox = self.log(tenant, &inbox).await?;
        let inbox = inbox.filter(|inbox| inbox.of == head.of && inbox.gone.is_none());
        erases.extend(inbox.map(|inbox| Erasure::all(inbox.log, ErasureReason::Expired)));
        Ok(erases)
    }

    /// Destroys content, unless a log in `expects` was written to in the meantime.
    async fn destroy_unused(
        &self,
        tenant: &Tenant,
        erases: &[Erasure],
        expects: &[(LogId, u64)],
    ) -> Result<ErasureReport> {
        match self.destroy(tenant, erases, expects).await {
            Err(StoreError::Conflict { .. }) => Ok(ErasureReport::default()),
            done => done,
        }
    }
}
