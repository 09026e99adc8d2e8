//! Looking around: which threads and runs there are, and forking one.

use throughline_core::{
    Append, Batch, LogHead, LogId, LogKind, LogOpening, Receipt, Store, StoreError, Tenant,
};

use crate::backend::{Listing, Order, Stats};
use crate::journal::Journal;

/// Which logs to list.
#[derive(Clone, Debug)]
pub struct Page {
    /// Goes on after that log.
    pub after: Option<LogId>,
    /// At most so many.
    pub limit: u32,
    /// In which order.
    pub order: Order,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, limit: 50, order: Order::Newest }
    }
}

impl Journal {
    /// The tenant's threads.
    pub async fn threads(&self, tenant: &Tenant, page: Page) -> Result<Vec<LogHead>, StoreError> {
        self.backend.logs(tenant, page.listing(Some(LogKind::Thread))).await
    }

    /// The tenant's runs, of one thread or of all.
    pub async fn runs(
        &self,
        tenant: &Tenant,
        of: Option<&LogId>,
        page: Page,
    ) -> Result<Vec<LogHead>, StoreError> {
        let listing = Listing { of: of.cloned(), ..page.listing(Some(LogKind::Run)) };
        self.backend.logs(tenant, listing).await
    }

    /// All logs that are a run or a fork of one, their own runs and forks included.
    pub(crate) async fn family(&self, tenant: &Tenant, log: &LogId) -> Result<Family, StoreError> {
        let mut family = Family { runs: Vec::new(), forks: Vec::new() };
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let mut left = vec![log.clone()];
        while let Some(log) = left.pop() {
            let runs = self.runs(tenant, Some(&log), everything.clone()).await?;
            let listing =
                Listing { forks_of: Some(log.clone()), ..everything.clone().listing(None) };
            let forks = self.backend.logs(tenant, listing).await?;
            // What shares nothing has a family of its own.
            left.extend(forks.iter().filter(|fork| shares(fork)).map(|fork| fork.log.clone()));
            family.runs.extend(runs.into_iter().map(|run| (log.clone(), run)));
            family.forks.extend(forks);
        }
        Ok(family)
    }

    /// Begins a thread that shares another's history up to `at`, or all of it.
    pub async fn fork(
        &self,
        tenant: &Tenant,
        of: &LogId,
        at: Option<u64>,
        new: &LogId,
    ) -> Result<Receipt, StoreError> {
        let Some(head) = self.log(tenant, of).await? else {
            return Err(StoreError::NotFound { what: "thread", name: of.0.clone() });
        };
        if head.kind != LogKind::Thread {
            return Err(StoreError::invalid(format!("{of} is a run: only threads can be forked")));
        }
        let opening = LogOpening::fork(of.clone(), at.unwrap_or(head.last));
        self.commit(Batch::of(tenant.clone()).append(Append::to(new.clone()).opening(opening)))
            .await
    }

    /// Who has something here.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        self.backend.tenants().await
    }

    /// How much there is.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.backend.stats().await
    }
}

/// Whether a fork shares anything with what it was forked off.
pub(crate) fn shares(fork: &LogHead) -> bool {
    fork.fork.as_ref().is_some_and(|fork| fork.at > 0)
}

/// The runs and forks of a thread, all the way down.
pub(crate) struct Family {
    /// The runs, each with its thread.
    pub(crate) runs: Vec<(LogId, LogHead)>,
    pub(crate) forks: Vec<LogHead>,
}

impl Family {
    /// How many runs and forks of its own a thread of the family has.
    pub(crate) fn kin(&self, thread: &LogId) -> u64 {
        let runs = self.runs.iter().filter(|(of, _)| of == thread).count();
        let is_own = |fork: &&LogHead| fork.fork.as_ref().is_some_and(|fork| fork.log == *thread);
        let forks = self.forks.iter().filter(is_own).count();
        u64::try_from(runs + forks).unwrap_or(u64::MAX)
    }
}

impl Page {
    pub(crate) fn listing(self, kind: Option<LogKind>) -> Listing {
        let Page { after, limit, order } = self;
        Listing { kind, of: None, forks_of: None, order, after, limit }
    }
}
