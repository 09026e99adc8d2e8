//! Annotations: data that callers attach to a run under keys of their choice.
//!
//! Annotations are stored in the run's inbox under a separate record kind, so they are never
//! handled as commands.

use throughline_core::{Append, Batch, LogId, NewRecord, Tenant};
use throughline_json::{Json, Name};

use crate::run::{RunResult, Runner, inbox};

/// Record kind for annotations.
const NOTE: &str = "note";

impl Runner {
    /// Attaches an annotation to a run, unless an annotation with these keys already exists.
    pub async fn annotate(
        &self,
        tenant: &Tenant,
        run: &LogId,
        names: &[Name],
        note: &Json,
    ) -> RunResult<()> {
        let record = NewRecord::new(NOTE, note.bytes().clone());
        let mut batch = Batch::new(tenant.clone()).append(Append::new(inbox(run)).record(record));
        batch.once = names.to_vec();
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Returns the annotation with these keys, and the id of the run that the annotation is
    /// attached to.
    pub async fn find_annotation(
        &self,
        tenant: &Tenant,
        names: &[Name],
    ) -> RunResult<Option<(LogId, Json)>> {
        let Some(receipt) = self.find_record(tenant, names).await? else { return Ok(None) };
        let Some(written) = receipt.written.first() else { return Ok(None) };
        let Some(run) = written.log.0.strip_suffix(".inbox").map(LogId::from) else {
            return Ok(None);
        };
        let records = self.store.read(tenant, &written.log, written.first - 1, 1).await?;
        let record = records.first().filter(|record| &*record.kind == NOTE);
        let note = record.and_then(|record| Json::parse(record.content.bytes()?.clone()).ok());
        Ok(note.map(|note| (run, note)))
    }
}
