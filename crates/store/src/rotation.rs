//! A new master key, while the store is in use.

use throughline_core::StoreError;

use crate::backend::{Progress, SaltRow};
use crate::journal::Journal;
use crate::keys::MasterKey;

impl Journal {
    /// Wraps everything under that master key. Other processes must be given it too, and the one before as retired, until
    /// all of them have been started again. Gives the number of salts that were wrapped anew.
    pub async fn rotate(&self, to: &MasterKey, progress: Progress<'_>) -> Result<u64, StoreError> {
        const PAGE: u32 = 500;
        let epoch = self.keys.begin_epoch(&*self.backend, to).await?;
        let total = self.backend.stats().await?.records.max(1);
        let mut count = 0_u64;
        loop {
            let salts = self.backend.salts_not_of(epoch, PAGE).await?;
            if salts.is_empty() {
                // The old salts are no more to be found in any file.
                self.backend.scrub().await?;
                return Ok(count);
            }
            count += u64::try_from(salts.len()).unwrap_or(0);
            let wrapped = salts.into_iter().map(|SaltRow { record, salt }| {
                let salt = self.keys.wrap(&self.keys.unwrap(&salt)?)?;
                Ok(SaltRow { record, salt })
            });
            self.backend.rewrap(wrapped.collect::<Result<_, StoreError>>()?).await?;
            #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
            progress((count as f64 / total as f64).min(1.0));
        }
    }
}
