//! A new master key, while the store is in use.

use throughline_core::StoreError;

use crate::backend::{Progress, SaltRow};
use crate::journal::Journal;
use crate::keys::MasterKey;

/// What became of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// How many salts were wrapped anew.
    pub wrapped: u64,
    /// Whether something is wrapped under another master key still, because somebody wrote meanwhile who was not given the
    /// new one. Whoever did must be started again with it, and the store be rotated once more.
    pub is_behind: bool,
}

impl Journal {
    /// Wraps everything under that master key. Other processes must be given it too, and the one before as retired, until
    /// all of them have been started again.
    pub async fn rotate(
        &self,
        to: &MasterKey,
        progress: Progress<'_>,
    ) -> Result<Rotated, StoreError> {
        const PAGE: u32 = 500;
        let epoch = self.keys.begin_epoch(&*self.backend, to).await?;
        // What comes from now on is wrapped under the new key by whoever has it. Nobody runs after the others.
        let last = self.backend.last_record().await?;
        let total = self.backend.stats().await?.records.max(1);
        let mut wrapped = 0_u64;
        let mut after = i64::MIN;
        loop {
            let salts = self.backend.salts_not_of(epoch, after, last, PAGE).await?;
            let Some(end) = salts.last() else { break };
            after = end.record;
            wrapped += u64::try_from(salts.len()).unwrap_or(0);
            let anew = salts.into_iter().map(|SaltRow { record, salt }| {
                let salt = self.keys.wrap(&self.keys.unwrap(&salt)?)?;
                Ok(SaltRow { record, salt })
            });
            self.backend.rewrap(anew.collect::<Result<_, StoreError>>()?).await?;
            #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
            progress((wrapped as f64 / total as f64).min(1.0));
        }
        // The old salts are no more to be found in any file.
        self.backend.scrub().await?;
        let behind = self.backend.salts_not_of(epoch, i64::MIN, i64::MAX, 1).await?;
        Ok(Rotated { wrapped, is_behind: !behind.is_empty() })
    }
}
