//! Caches data that is computed from the records of a log. A process reads each record once. It
//! reads a log again after any of the tenant's data was erased, because the cached data may contain
//! erased text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use throughline_core::{ErasureEpoch, LogHead, LogId, Record, Store, Tenant};

use crate::records::{RecordPages, StoreResult};
use crate::sync::lock;

/// Caches a value for each log, by tenant and log.
pub(crate) struct DerivedLogCache<T> {
    logs: Mutex<HashMap<(Tenant, LogId), CachedLog<T>>>,
    /// Maximum number of logs. A full cache is emptied.
    most: usize,
}

/// A value, and the records from which it was computed.
struct CachedLog<T> {
    /// Sequence number of the last record read, and the erasure epoch at that time.
    read: u64,
    era: ErasureEpoch,
    value: Arc<T>,
}

impl<T: Clone + Default> DerivedLogCache<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { logs: Mutex::default(), most }
    }

    /// Returns the value of a log, as of this erasure epoch, if all its records were read.
    pub(crate) fn cached(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
    ) -> Option<Arc<T>> {
        let logs = lock(&self.logs);
        let known = logs.get(&(tenant.clone(), head.log.clone()))?;
        (known.era == era && known.read >= head.last).then(|| Arc::clone(&known.value))
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
        let key = (tenant.clone(), head.log.clone());
        let known = {
            let logs = lock(&self.logs);
            let known = logs.get(&key).filter(|known| known.era == era);
            known.map(|known| (known.read, Arc::clone(&known.value)))
        };
        let (read, mut value) = match known {
            Some((read, value)) if read >= head.last => return Ok(value),
            Some((read, value)) => (read, T::clone(&value)),
            None => (0, T::default()),
        };
        let mut pages = RecordPages::new(store, tenant, &head.log, read);
        while let Some(records) = pages.next().await? {
            for record in &records {
                add(&mut value, record);
            }
        }
        let value = Arc::new(value);
        let cached = CachedLog { read: pages.after, era, value: Arc::clone(&value) };
        let mut all = lock(&self.logs);
        if all.len() >= self.most {
            all.clear();
        }
        all.insert(key, cached);
        Ok(value)
    }
}
