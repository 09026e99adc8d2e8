//! Lists Threads and runs, and forks Threads.

use throughline_core::{
    Append, Batch, LogHead, LogId, LogKind, LogOpening, Receipt, Store, Tenant,
};

use crate::journal::Journal;
use crate::query::{Listing, Order, Stats};
use crate::rejection::{Result, invalid, no_thread};

/// Selects one page of a log listing.
#[derive(Clone, Debug)]
pub struct Page {
    /// The last log of the previous page; `None` for the first page.
    pub after: Option<LogId>,
    /// Maximum number of logs in the page.
    pub limit: u32,
    /// Sort order of the listing.
    pub order: Order,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, limit: 50, order: Order::Newest }
    }
}

impl Journal {
    /// Returns one page of the tenant's Threads.
    pub async fn threads(&self, tenant: &Tenant, page: Page) -> Result<Vec<LogHead>> {
        self.backend.logs(tenant, page.listing(Some(LogKind::Thread))).await
    }

    /// Returns one page of the tenant's runs. If `of` is set, returns only the runs of that Thread.
    pub async fn runs(
        &self,
        tenant: &Tenant,
        of: Option<&LogId>,
        page: Page,
    ) -> Result<Vec<LogHead>> {
        let listing = Listing { of: of.cloned(), ..page.listing(Some(LogKind::Run)) };
        self.backend.logs(tenant, listing).await
    }

    /// Returns all runs and forks of a log, recursively.
    pub(super) async fn family(&self, tenant: &Tenant, log: &LogId) -> Result<Family> {
        let mut family = Family { runs: Vec::new(), forks: Vec::new() };
        let mut left = vec![log.clone()];
        while let Some(log) = left.pop() {
            let runs = self.runs(tenant, Some(&log), Page::everything()).await?;
            let forks_of = Some(log.clone());
            let listing = Listing { forks_of, ..Page::everything().listing(None) };
            let forks = self.backend.logs(tenant, listing).await?;
            // A fork that shares no records is not part of the family.
            left.extend(forks.iter().filter(|fork| shares(fork)).map(|fork| fork.log.clone()));
            family.runs.extend(runs.into_iter().map(|run| (log.clone(), run)));
            family.forks.extend(forks);
        }
        Ok(family)
    }

    /// Creates a Thread that shares the history of `of` up to record `at`. If `at` is `None`, the
    /// new Thread shares the whole history.
    pub async fn fork(
        &self,
        tenant: &Tenant,
        of: &LogId,
        at: Option<u64>,
        new: &LogId,
    ) -> Result<Receipt> {
        let head = self.log(tenant, of).await?.ok_or_else(|| no_thread(of))?;
        if head.kind != LogKind::Thread {
            return Err(invalid!("{of} is a run; only threads can be forked"));
        }
        let opening = LogOpening::fork(of.clone(), at.unwrap_or(head.last));
        self.commit(Batch::new(tenant.clone()).append(Append::new(new.clone()).opening(opening)))
            .await
    }

    /// Returns all tenants that the store contains.
    pub async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.backend.tenants().await
    }

    /// Returns the number and size of stored rows.
    pub async fn stats(&self) -> Result<Stats> {
        self.backend.stats().await
    }
}

/// Returns whether a fork shares records with its parent.
pub(super) fn shares(fork: &LogHead) -> bool {
    fork.fork.as_ref().is_some_and(|fork| fork.at > 0)
}

/// All runs and forks of a Thread, including those of its forks.
pub(super) struct Family {
    /// All runs, each with the name of its Thread.
    pub(super) runs: Vec<(LogId, LogHead)>,
    pub(super) forks: Vec<LogHead>,
}

impl Family {
    /// Returns how many runs and forks in the family belong directly to the given Thread.
    pub(super) fn child_count(&self, thread: &LogId) -> u64 {
        let runs = self.runs.iter().filter(|(of, _)| of == thread).count();
        let is_own = |fork: &&LogHead| fork.fork.as_ref().is_some_and(|fork| fork.log == *thread);
        let forks = self.forks.iter().filter(is_own).count();
        u64::try_from(runs + forks).unwrap_or(u64::MAX)
    }
}

impl Page {
    /// Returns an unlimited page, so that a single query reads all logs in one consistent state.
    pub(super) fn everything() -> Self {
        Self { limit: u32::MAX >> 1, ..Self::default() }
    }

    pub(super) fn listing(self, kind: Option<LogKind>) -> Listing {
        let Page { after, limit, order } = self;
        Listing { kind, of: None, forks_of: None, order, after, limit, idle: None }
    }
}
