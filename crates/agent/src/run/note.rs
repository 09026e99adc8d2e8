//! Notes beside a run: what whoever spoke with it wants to find again, under names of their own.
//!
//! They lie in the run's inbox, where nobody takes them for words.

use throughline_core::{Append, Batch, Json, LogId, Name, NewRecord, Receipt, StoreError, Tenant};

use crate::run::{RunError, Runner, inbox};

/// The kind of the record that keeps a note.
const NOTE: &str = "note";

impl Runner {
    /// Keeps a note beside a run, unless there is one of these names.
    pub async fn note(
        &self,
        tenant: &Tenant,
        run: &LogId,
        names: &[Name],
        note: &Json,
    ) -> Result<(), RunError> {
        let record = NewRecord::new(NOTE, note.bytes().clone());
        let mut batch = Batch::of(tenant.clone()).append(Append::to(inbox(run)).record(record));
        batch.once = names.to_vec();
        self.store.commit(batch).await?;
        Ok(())
    }

    /// The note of these names, and the run that it lies beside.
    pub async fn noted(
        &self,
        tenant: &Tenant,
        names: &[Name],
    ) -> Result<Option<(LogId, Json)>, RunError> {
        let Some(receipt) = self.kept_under(tenant, names).await? else { return Ok(None) };
        let Some(written) = receipt.written.first() else { return Ok(None) };
        let Some(run) = written.log.0.strip_suffix(".inbox").map(LogId::from) else {
            return Ok(None);
        };
        let records = self.store.read(tenant, &written.log, written.first - 1, 1).await?;
        let record = records.first().filter(|record| &*record.kind == NOTE);
        let note = record.and_then(|record| Json::parse(record.content.bytes()?.clone()).ok());
        Ok(note.map(|note| (run, note)))
    }

    /// What was kept under these names.
    pub(crate) async fn kept_under(
        &self,
        tenant: &Tenant,
        names: &[Name],
    ) -> Result<Option<Receipt>, StoreError> {
        if names.is_empty() {
            return Ok(None);
        }
        // Nothing can be expected of a log that is not there, so this is kept by nobody and only finds what was.
        let nowhere = Append::to(self.ids.fresh("nowhere").to_string()).expecting(u64::MAX);
        let mut batch = Batch::of(tenant.clone()).append(nowhere);
        batch.once = names.to_vec();
        match self.store.commit(batch).await {
            Ok(receipt) => Ok(Some(receipt)),
            Err(
                StoreError::Conflict { .. }
                | StoreError::NotFound { .. }
                | StoreError::MixedOnce { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
