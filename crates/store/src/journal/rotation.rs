//! Rotates the master key while the store is in use.

use throughline_core::StoreError;

use crate::journal::Journal;
use crate::master_key::MasterKey;
use crate::query::{Progress, share};
use crate::row::SaltRow;

/// The result of a master key rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationReport {
    /// Number of salts that were re-wrapped with the new master key.
    pub wrapped: u64,
    /// Whether some salts are still wrapped with another master key, because a process without the
    /// new key wrote during the rotation. Restart that process with the new key and rotate again.
    pub is_behind: bool,
}

impl Journal {
    /// Re-wraps all salts with the master key `to`. If the store already has a master key, restart
    /// all other processes before the rotation, with the new key as the master key and the previous
    /// key as a retired key.
    pub async fn rotate(
        &self,
        to: &MasterKey,
        progress: Progress<'_>,
    ) -> Result<RotationReport, StoreError> {
        const PAGE: u32 = 500;
        let epoch = self.keys.begin_epoch(&*self.backend, to).await?;
        // Processes that have the new key use it for all later records, so the loop stops at the
        // last record. Records of processes without the new key are detected at the end.
        let last = self.backend.last_record().await?;
        let total = self.backend.stats().await?.records;
        let mut wrapped = 0_u64;
        let mut after = i64::MIN;
        loop {
            let salts = self.backend.salts_not_of(epoch, after, last, PAGE).await?;
            let Some(end) = salts.last() else { break };
            after = end.record;
            wrapped += u64::try_from(salts.len()).unwrap_or(0);
            let rewrapped = salts.into_iter().map(|SaltRow { record, salt }| {
                let salt = self.keys.wrap(&self.keys.unwrap(&salt)?)?;
                Ok(SaltRow { record, salt })
            });
            self.backend.rewrap(rewrapped.collect::<Result<_, StoreError>>()?).await?;
            progress(share(wrapped, total));
        }
        // Remove the old salts from the database files.
        self.backend.scrub().await?;
        let behind = self.backend.salts_not_of(epoch, i64::MIN, i64::MAX, 1).await?;
        Ok(RotationReport { wrapped, is_behind: !behind.is_empty() })
    }
}
