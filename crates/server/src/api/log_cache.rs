//! Caches data that is computed from the records of a log. A process reads each record once. After
//! any of the tenant's data was erased, it reads a log again, because the cached data may contain
//! erased text. Data without text is reused if its log is unchanged.

use std::sync::{Arc, Mutex};

use hashlink::LruCache;
use throughline_core::{ElisionReason, ErasureEpoch, LogHead, LogId, Record, Store, Tenant};

use crate::records::{RecordPages, StoreResult};
use crate::sync::lock;

/// Caches a value for each log, by tenant and log.
pub(crate) struct DerivedLogCache<T> {
    logs: Mutex<LruCache<(Tenant, LogId), CachedLog<T>>>,
    /// Whether the values contain no stored text. They are then valid until their own log changes;
    /// other values only until any of the tenant's data is erased.
    has_no_text: bool,
}

/// A value, and the records from which it was computed.
struct CachedLog<T> {
    /// Sequence number of the last record read.
    read: u64,
    /// The erasure epoch of the tenant before the records were read.
    era: ErasureEpoch,
    /// The size of the log and whether it was erased, which change if its content is erased.
    bytes: u64,
    gone: Option<ElisionReason>,
    value: Arc<T>,
}

impl<T: Clone + Default> DerivedLogCache<T> {
    /// Creates a cache for the `most` last used logs.
    pub(crate) fn new(most: usize) -> Self {
        Self { logs: Mutex::new(LruCache::new(most)), has_no_text: false }
    }

    /// Creates a cache whose values contain no stored text.
    pub(crate) fn without_text(most: usize) -> Self {
        Self { has_no_text: true, ..Self::new(most) }
    }

    /// Returns the value of a log, as of this erasure epoch, if all its records were read.
    pub(crate) fn cached(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
    ) -> Option<Arc<T>> {
        let mut logs = lock(&self.logs);
        let known = logs.get(&(tenant.clone(), head.log.clone()))?;
        let is_unerased = known.era == era
            || self.has_no_text && (known.bytes, known.gone) == (head.bytes, head.gone);
        (known.read >= head.last && is_unerased).then(|| Arc::clone(&known.value))
    }

    /// Returns the value of a log, as of this erasure epoch. `add` adds each new record to the
    /// value.
    pub(crate) async fn get(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
        add: impl Fn(&mut T, &Record),
    ) -> StoreResult<Arc<T>> {
        if let Some(value) = self.cached(tenant, head, era) {
            return Ok(value);
        }
        let key = (tenant.clone(), head.log.clone());
        let known = lock(&self.logs)
            .get(&key)
            .filter(|known| known.era == era)
            .map(|known| (known.read, Arc::clone(&known.value)));
        let (read, mut value) =
            known.map_or_else(Default::default, |(read, value)| (read, T::clone(&value)));
        let mut pages = RecordPages::new(store, tenant, &head.log, read);
        while pages.after < head.last
            && let Some(records) = pages.next().await?
        {
            for record in &records {
                add(&mut value, record);
            }
        }
        let (value, read) = (Arc::new(value), pages.after.max(head.last));
        let (bytes, gone) = (head.bytes, head.gone);
        let cached = CachedLog { read, era, bytes, gone, value: Arc::clone(&value) };
        lock(&self.logs).insert(key, cached);
        Ok(value)
    }
}
