//! Reads records, including those shared through forks, and decrypts their content.

use bytes::Bytes;
use throughline_core::{Content, LogId, Record, StoreError, Tenant};

use crate::cipher::{self, SaltBytes};
use crate::journal::Journal;
use crate::query::Span;
use crate::rejection::{Result, corrupt, no_log};
use crate::row::{ErasureReason, Row};
use crate::sql::timestamp;

impl Journal {
    /// Returns the records of a log in `span`, including records that a fork inherits from its
    /// parents.
    pub(super) async fn rows(&self, tenant: &Tenant, log: &LogId, span: Span) -> Result<Vec<Row>> {
        // Numbers have no gaps, so the limit determines the last record. A pack counts as one row
        // in the database's limit.
        let end = span.after.saturating_add(span.limit.into());
        let span = Span { up_to: span.up_to.min(end), ..span };
        let own_rows = self.backend.rows(tenant, log, span).await?;
        if own_rows.first().is_some_and(|row| row.seq.checked_sub(1) == Some(span.after)) {
            return Ok(own_rows);
        }
        // The log does not own the first requested record: a parent does, or the record does not
        // exist.
        let mut lineage = self.lineage(tenant, log, span.after).await?;
        if lineage.len() == 1 {
            return Ok(own_rows);
        }
        let mut rows: Vec<Row> = Vec::new();
        while let Some((log, end)) = lineage.pop() {
            let read = u32::try_from(rows.len()).unwrap_or(u32::MAX);
            let after = rows.last().map_or(span.after, |row| row.seq);
            let (up_to, limit) = (span.up_to.min(end), span.limit.saturating_sub(read));
            if limit == 0 || after >= span.up_to {
                break;
            }
            rows.extend(self.backend.rows(tenant, &log, Span { after, up_to, limit }).await?);
        }
        Ok(rows)
    }

    /// Returns the log and each ancestor that shares records after `after` with it. Each log is
    /// paired with the number of its last record that is visible in the requested log.
    pub(super) async fn lineage(
        &self,
        tenant: &Tenant,
        log: &LogId,
        after: u64,
    ) -> Result<Vec<(LogId, u64)>> {
        let mut lineage = Vec::new();
        let mut next = Some((log.clone(), u64::MAX));
        while let Some((log, end)) = next {
            let head = self.backend.log(tenant, &log).await?.ok_or_else(|| no_log(&log))?;
            lineage.push((log, end));
            let fork = head.fork.filter(|fork| fork.at > after);
            next = fork.map(|fork| (fork.log, end.min(fork.at)));
        }
        Ok(lineage)
    }

    pub(super) async fn open_row(&self, tenant: &Tenant, log: &LogId, row: &Row) -> Result<Record> {
        let content = match self.content_or_erasure(tenant, log, row).await? {
            Ok((content, _)) => Content::Here(content),
            Err(erased) => Content::Gone(erased.to_elision_reason()),
        };
        let first = |last: u64| last.saturating_sub(row.events.into()).saturating_add(1);
        let events = row.last_event.map(|last| (first(last), last));
        let (seq, kind, at) = (row.seq, row.kind.clone(), timestamp(row.at));
        Ok(Record { seq, kind, at, events, content })
    }

    /// Returns the content and the salt of a row, or the reason for its erasure. Also detects an
    /// erasure by another process after the row was read.
    pub(super) async fn content_or_erasure(
        &self,
        tenant: &Tenant,
        log: &LogId,
        row: &Row,
    ) -> Result<Result<(Bytes, SaltBytes), ErasureReason>> {
        if let Some(erased) = row.erased {
            return Ok(Err(erased));
        }
        match self.content(tenant, row).await {
            Ok(content) => Ok(Ok(content)),
            Err(StoreError::Corrupt(problem)) => {
                let after = row.seq.saturating_sub(1);
                let span = Span { after, up_to: row.seq, limit: 1 };
                let rows = self.rows(tenant, log, span).await?;
                match rows.first().and_then(|row| row.erased) {
                    Some(erased) => Ok(Err(erased)),
                    None => Err(StoreError::Corrupt(problem)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the decrypted content and the salt of a row.
    pub(super) async fn content(&self, tenant: &Tenant, row: &Row) -> Result<(Bytes, SaltBytes)> {
        let missing = |part: &str| corrupt!("record {} has no {part}", row.seq);
        let salt = row.salt.as_ref().ok_or_else(|| missing("salt"))?;
        let sealed = row.content.as_ref().ok_or_else(|| missing("content"))?;
        let salt = self.keys.unwrap(salt)?;
        let opened = cipher::open(&salt, sealed)?;
        let Some(blob) = row.blob else { return Ok((opened, salt)) };
        let key = <[u8; 32]>::try_from(&*opened).map_err(|_| missing("key of its content"))?;
        let (name, blob) =
            self.backend.blob(tenant, blob).await?.ok_or_else(|| missing("large content"))?;
        let content = cipher::open_under(&cipher::Secret::new(key), &blob)?;
        // Otherwise a blob under the wrong name would later be reused as the content with that
        // name.
        if self.keys.blob(tenant, &content).0 != name {
            return Err(corrupt!("the name of a stored blob does not match its content"));
        }
        Ok((content, salt))
    }
}
