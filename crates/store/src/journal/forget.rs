//! Forgets content: destroys it permanently and records the erasure in the Journal.
//!
//! An erasure deletes the sealed bytes, the salt that is needed to decrypt them, and blobs without
//! further references. The record itself stays, so the chain remains valid. A fork shares records
//! with its parent, so they are destroyed in both. Checkpoints are destroyed too, because they
//! contain the folded content. Copies that repeat other records of the Thread are also destroyed.
//! An erasure record in each log informs readers that fold the log incrementally.
//!
//! Other processes keep writing. Records that they add to a log before its erasure are destroyed
//! with the log. If they start a run or fork of the log, the erasure reads the log again and
//! retries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Append, Batch, LogHead, LogId, LogKind, Store, StoreError, Tenant, holds_siblings, kind,
    restore_items,
};
use throughline_json::{Json, Name, Tree};

use crate::journal::Journal;
use crate::journal::erasure_note::{note, notice};
use crate::journal::listing::{Family, shares};
use crate::query::Span;
use crate::rejection::{Result, corrupt, invalid, no_thread};
use crate::row::{ErasureReason, Row};
use crate::sealed_batch::Erasure;

/// Delay between deleting a run and removing its content from files and key files. PostgreSQL
/// rewrites whole tables for this removal, so several deleted runs share one cleanup.
const CLEANUP_DELAY: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_mins(10) };

/// What an erasure destroyed, and what it could not reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErasureReport {
    /// The logs whose content was destroyed.
    pub logs: Vec<LogId>,
    /// Number of records whose content was destroyed.
    pub records: u64,
    /// Number of content bytes that were destroyed.
    pub bytes: u64,
    /// Backups that could not be reached and may still contain the destroyed content.
    pub unreached: Vec<Name>,
    /// Number of searched records that cannot be decrypted and may therefore still contain the
    /// Item.
    pub damaged: u64,
}

/// Returns the value of [`NewRecord::about`](throughline_core::NewRecord::about) that identifies an
/// Item of a Thread.
pub fn about_item(thread: &LogId, item: &str) -> Name {
    Name::from(format!("{thread}/{item}"))
}

/// Returns the number of the message that a stored Item belongs to.
fn message_in(stored: &Json) -> Option<u64> {
    stored.tree().root().get("at")?.elements().next()?.u64()
}

impl Journal {
    /// Destroys the content of a Thread, or of one of its Items, permanently.
    pub async fn forget(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: Option<&str>,
    ) -> Result<ErasureReport> {
        // Maximum number of retries after another process started a run or fork of the Thread.
        const TRIES: u32 = 16;
        // After this many retries, destroy the content found so far and then the rest, so that a
        // client that keeps starting runs cannot block the erasure.
        const HASTE: u32 = 4;
        let mut destroyed = ErasureReport::default();
        let mut tries = 0;
        loop {
            let mut erases = match item {
                None => self.thread_erasures(tenant, thread).await?,
                Some(item) => {
                    let found = self.item_erasures(tenant, thread, item).await;
                    // Content that an earlier attempt destroyed is not found again.
                    let is_done = tries > 0 && matches!(found, Err(StoreError::NotFound { .. }));
                    if is_done && destroyed.records > 0 {
                        break;
                    }
                    let (erases, damaged) = found?;
                    destroyed.damaged = damaged;
                    erases
                }
            };
            tries += 1;
            if tries == HASTE {
                for erase in &mut erases {
                    erase.child_count = None;
                }
            }
            match self.destroy(tenant, &erases, &[]).await {
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                done => {
                    destroyed.add(done?);
                    if tries != HASTE {
                        break;
                    }
                }
            }
        }
        let mut finished = self.complete_erasures().await;
        if matches!(finished, Err(StoreError::Full)) {
            self.backend.make_room().await?;
            finished = self.complete_erasures().await;
        }
        destroyed.unreached = finished?;
        self.backend.keep_reserve().await?;
        Ok(destroyed)
    }

    /// Destroys the content of a run. A background task removes the content from files and key
    /// files later, because this cleanup can take a long time.
    pub(super) async fn forget_run(&self, tenant: &Tenant, run: &LogId) -> Result<()> {
        let head = self.log(tenant, run).await?;
        if head.is_none_or(|head| head.kind != LogKind::Run) {
            return Err(StoreError::NotFound { what: "run", name: run.0.clone() });
        }
        let erase = Erasure::all(run.clone(), ErasureReason::Forgotten);
        self.destroy(tenant, &[erase], &[]).await?;
        self.schedule_cleanup();
        Ok(())
    }

    /// After [`CLEANUP_DELAY`], removes the content of all runs that were deleted by then from all
    /// files. If this process ends first, the next process that opens the store does the cleanup.
    fn schedule_cleanup(&self) {
        if self.finishes.swap(true, Ordering::AcqRel) {
            return;
        }
        // Hold only a weak reference, because the store may be closed before the cleanup starts.
        let backend = Arc::downgrade(&self.backend);
        let (keys, signer) = (Arc::clone(&self.keys), Arc::clone(&self.signer));
        let (finishes, url) = (Arc::clone(&self.finishes), self.url.clone());
        let limits = Arc::clone(&self.limits);
        tokio::spawn(async move {
            tokio::time::sleep(CLEANUP_DELAY).await;
            finishes.store(false, Ordering::Release);
            let Some(backend) = backend.upgrade() else { return };
            let journal = Journal { backend, keys, signer, finishes, limits, url };
            // A failed cleanup is left to the next process that opens the store.
            drop(journal.complete_erasures().await);
        });
    }

    /// Builds the erasures for a whole Thread. Fails if the Thread does not exist.
    async fn thread_erasures(&self, tenant: &Tenant, thread: &LogId) -> Result<Vec<Erasure>> {
        let head = self.log(tenant, thread).await?.ok_or_else(|| no_thread(thread))?;
        if head.kind != LogKind::Thread {
            return Err(invalid!("{thread} is a run; forget its thread or a single item instead"));
        }
        let family = self.family(tenant, thread).await?;
        Ok(family_erases(&head, &family, ErasureReason::Forgotten))
    }

    /// Builds the erasures for all records about the Item in any log, and for the checkpoints after
    /// the Item. Also returns the number of damaged records, which may or may not be about the
    /// Item.
    async fn item_erasures(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: &str,
    ) -> Result<(Vec<Erasure>, u64)> {
        let reason = ErasureReason::Forgotten;
        let (mut erases, mut damaged) = (Vec::new(), 0);
        let mut next = Some((thread.clone(), u64::MAX));
        // A fork may share the Item with its parent, so search both.
        while let Some((log, end)) = next {
            let head = self.log(tenant, &log).await?.ok_or_else(|| no_thread(&log))?;
            let found = self.records_about(tenant, &log, end, item, &mut damaged).await?;
            for (found_log, seq) in &found {
                add(&mut erases, found_log, *seq, reason);
                if let Some(holder) = self.find_message_holder(tenant, found_log, *seq).await? {
                    add(&mut erases, found_log, holder, reason);
                }
            }
            if !found.is_empty() {
                let family = self.family(tenant, &log).await?;
                for (found_log, seq) in self.copies(tenant, &log, &family).await? {
                    add(&mut erases, &found_log, seq, reason);
                }
                add_checkpoints(&mut erases, &log, &family, reason);
            }
            next = head.fork.map(|fork| (fork.log, end.min(fork.at)));
        }
        match (erases.is_empty(), damaged) {
            (false, _) => Ok((erases, damaged)),
            (true, 0) => Err(StoreError::NotFound { what: "item", name: Name::from(item) }),
            (true, _) => Err(corrupt!(
                "item {item} was not found; damaged records that could not be searched: {damaged}"
            )),
        }
    }

    /// Returns all copies, in any log, of records from a Thread and its forks. Imported copies are
    /// identified by their record kind.
    async fn copies(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        family: &Family,
    ) -> Result<Vec<(LogId, u64)>> {
        const PAGE: u32 = 256;
        let mut copies = Vec::new();
        let forks = family.forks.iter().filter(|fork| fork.gone.is_none() && shares(fork));
        for log in std::iter::once(thread).chain(forks.map(|fork| &fork.log)) {
            let mut abouts = vec![self.keys.about(tenant, &about_item(log, ""))];
            let mut next = Some(Span { after: 0, up_to: u64::MAX, limit: PAGE });
            while let Some(span) = next {
                let rows = self.backend.rows(tenant, log, span).await?;
                for row in rows.iter().filter(|row| *row.kind == *kind::COPY) {
                    copies.push((log.clone(), row.seq));
                    abouts.extend(row.about.filter(|about| !abouts.contains(about)));
                }
                next = span.following(&rows);
            }
            for about in abouts {
                copies.extend(self.backend.about(tenant, about).await?);
            }
        }
        Ok(copies)
    }

    /// Finds the earlier record that contains the whole message of record `seq`. On some wires,
    /// messages cannot be split. The first Item of such a message contains the text of all its
    /// Items, so its record must be destroyed together with any of them.
    async fn find_message_holder(
        &self,
        tenant: &Tenant,
        log: &LogId,
        seq: u64,
    ) -> Result<Option<u64>> {
        const MOST: u32 = 256;
        let span = Span { after: seq.saturating_sub(u64::from(MOST)), up_to: seq, limit: MOST };
        let rows = self.backend.rows(tenant, log, span).await?;
        let Some(own) = rows.iter().find(|row| row.seq == seq) else { return Ok(None) };
        let item = self.stored_item(tenant, log, own).await;
        let Some(message) = item.as_ref().and_then(message_in) else { return Ok(None) };
        let before = rows.iter().rev().skip_while(|row| row.seq >= seq);
        for row in before.take_while(|row| *row.kind == *kind::ITEM) {
            let Some(stored) = self.stored_item(tenant, log, row).await else { continue };
            if message_in(&stored) != Some(message) {
                return Ok(None);
            }
            if holds_siblings(&stored) {
                return Ok(Some(row.seq));
            }
        }
        Ok(None)
    }

    /// Returns the content of an Item's record, or `None` if it is erased or damaged.
    async fn stored_item(&self, tenant: &Tenant, log: &LogId, row: &Row) -> Option<Json> {
        let (content, _) = self.content_or_erasure(tenant, log, row).await.ok()?.ok()?;
        Json::parse(content).ok()
    }

    /// Returns the records about the Item. Imported records, and records without `about`, are
    /// matched by content. If `log` is the parent of a fork, records after `end` are ignored,
    /// because the fork does not share them.
    async fn records_about(
        &self,
        tenant: &Tenant,
        log: &LogId,
        end: u64,
        item: &str,
        damaged: &mut u64,
    ) -> Result<Vec<(LogId, u64)>> {
        const PAGE: u32 = 256;
        let about = self.keys.about(tenant, &about_item(log, item));
        let mut found = self.backend.about(tenant, about).await?;
        let mut own_seqs =
            found.iter().filter(|(found_log, _)| found_log == log).map(|(_, seq)| *seq).peekable();
        if own_seqs.peek().is_some() && !own_seqs.any(|seq| seq <= end) {
            // The match is a different Item with the same name.
            found.clear();
        }
        let mut next = Some(Span { after: 0, up_to: end, limit: PAGE });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, log, span).await?;
            for row in rows.iter().filter(|row| *row.kind == *kind::ITEM) {
                let content = match self.content_or_erasure(tenant, log, row).await {
                    Ok(Ok((content, _))) => content,
                    Ok(Err(_)) => continue,
                    Err(StoreError::Corrupt(_)) => {
                        *damaged += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if !is_item(&content, item) {
                    continue;
                }
                found.push((log.clone(), row.seq));
                if let Some(about) = row.about {
                    found.extend(self.backend.about(tenant, about).await?);
                }
            }
            next = span.following(&rows);
        }
        Ok(found)
    }

    /// Destroys content and records the erasure in each log. Fails if a log in `expects` no longer
    /// ends at the given record. On a full disk, uses the reserved space. If the reserved space is
    /// not enough for the whole erasure, erases in pieces.
    pub(super) async fn destroy(
        &self,
        tenant: &Tenant,
        erases: &[Erasure],
        expects: &[(LogId, u64)],
    ) -> Result<ErasureReport> {
        let mut destroyed = ErasureReport::default();
        let mut outcome = self.destroy_in_one_batch(tenant, erases, expects).await;
        if matches!(outcome, Err(StoreError::Full)) {
            self.backend.make_room().await?;
            outcome = self.destroy_in_one_batch(tenant, erases, expects).await;
        }
        if matches!(outcome, Err(StoreError::Full)) && expects.is_empty() {
            for erase in erases {
                for piece in self.pieces(tenant, erase).await? {
                    self.backend.make_room().await?;
                    destroyed.add(self.destroy_in_one_batch(tenant, &[piece], &[]).await?);
                }
            }
            self.backend.make_room().await?;
            outcome = self.destroy_in_one_batch(tenant, erases, expects).await;
        }
        destroyed.add(outcome?);
        Ok(destroyed)
    }

    /// Splits an erasure into parts that each change only a few pages of the database.
    async fn pieces(&self, tenant: &Tenant, erase: &Erasure) -> Result<Vec<Erasure>> {
        const RECORDS: usize = 16;
        const BYTES: u64 = 32 << 10;
        let mut pieces = Vec::new();
        let (mut seqs, mut bytes) = (Vec::new(), 0);
        for (seq, size) in self.erased_records(tenant, erase).await? {
            if seqs.len() >= RECORDS || bytes + size > BYTES {
                pieces.push(std::mem::take(&mut seqs));
                bytes = 0;
            }
            seqs.push(seq);
            bytes += size;
        }
        pieces.push(seqs);
        let pieces = pieces.into_iter().filter(|seqs| !seqs.is_empty());
        Ok(pieces.map(|seqs| Erasure::records(erase.log.clone(), seqs, erase.reason)).collect())
    }

    async fn destroy_in_one_batch(
        &self,
        tenant: &Tenant,
        erases: &[Erasure],
        expects: &[(LogId, u64)],
    ) -> Result<ErasureReport> {
        let mut destroyed = ErasureReport::default();
        let mut batch = Batch::new(tenant.clone());
        for erase in erases {
            let records = self.erased_records(tenant, erase).await?;
            if !records.is_empty() || erase.seqs.is_none() {
                destroyed.logs.push(erase.log.clone());
            }
            destroyed.records += u64::try_from(records.len()).unwrap_or(u64::MAX);
            destroyed.bytes += records.iter().map(|(_, size)| size).sum::<u64>();
            let mut append = Append::new(erase.log.clone()).record(notice(erase));
            append.expect =
                expects.iter().find(|(log, _)| *log == erase.log).map(|(_, last)| *last);
            batch = batch.append(append);
        }
        let mut noted = erases.to_vec();
        if let Some(first) = noted.first_mut() {
            first.note = Some(note(tenant, erases)?);
        }
        self.commit_as_operator(batch, noted).await?;
        Ok(destroyed)
    }

    /// Returns the numbers of the records whose content would be destroyed, each with its content
    /// size in bytes.
    pub(super) async fn erased_records(
        &self,
        tenant: &Tenant,
        erase: &Erasure,
    ) -> Result<Vec<(u64, u64)>> {
        const PAGE: u32 = 1024;
        let mut records = Vec::new();
        let mut next = Some(Span { after: 0, up_to: u64::MAX, limit: PAGE });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, &erase.log, span).await?;
            let erased = rows.iter().filter(|row| is_erased_by(erase, row));
            records.extend(erased.map(|row| (row.seq, row.size)));
            next = span.following(&rows);
        }
        Ok(records)
    }
}

/// Returns whether the erasure destroys a record's content. Erasure records keep their content.
fn is_erased_by(erase: &Erasure, row: &Row) -> bool {
    let is_meant = erase.seqs.as_ref().is_none_or(|seqs| seqs.contains(&row.seq))
        || (erase.checkpoints && *row.kind == *kind::CHECKPOINT);
    let is_notice = ErasureReason::from_kind(&row.kind).is_some();
    row.erased.is_none() && is_meant && !is_notice
}

/// Returns whether a record's content is the Item with this id.
fn is_item(content: &Bytes, item: &str) -> bool {
    let stored = restore_items([Some(content.clone())]).ok();
    let stored = stored.and_then(|items| Some(items.first()?.id.0.clone()));
    let id = || Tree::parse(content.clone()).ok()?.root().name_of("id");
    stored.or_else(id).as_deref() == Some(item)
}

/// Builds the erasures for a whole Thread: all records of the Thread and of its runs, and the
/// checkpoints of its forks.
pub(super) fn family_erases(
    thread: &LogHead,
    family: &Family,
    reason: ErasureReason,
) -> Vec<Erasure> {
    let mut erases = vec![Erasure::all(thread.log.clone(), reason)];
    let own_runs = family.runs.iter().filter(|(of, _)| *of == thread.log);
    erases.extend(own_runs.map(|(_, run)| Erasure::all(run.log.clone(), reason)));
    add_checkpoints(&mut erases, &thread.log, family, reason);
    erases
}

/// Adds the checkpoints of a Thread and its forks, which may contain destroyed content. Also makes
/// the commit fail if a run or fork is started before the commit.
fn add_checkpoints(
    erases: &mut Vec<Erasure>,
    thread: &LogId,
    family: &Family,
    reason: ErasureReason,
) {
    let forks = family.forks.iter().filter(|fork| fork.gone.is_none() && shares(fork));
    for log in std::iter::once(thread).chain(forks.map(|fork| &fork.log)) {
        if let Some(erase) = erasure_of(erases, log, reason) {
            erase.child_count = Some(family.child_count(log));
        }
    }
    // A run that loses records may have folded them into checkpoints. An erasure of all records
    // already includes the checkpoints.
    for erase in erases.iter_mut() {
        erase.checkpoints |= erase.seqs.is_some();
    }
}

/// Returns the erasure for a log, and adds an empty erasure if the log has none.
fn erasure_of<'e>(
    erases: &'e mut Vec<Erasure>,
    log: &LogId,
    reason: ErasureReason,
) -> Option<&'e mut Erasure> {
    let index = erases.iter().position(|erase| erase.log == *log).unwrap_or(erases.len());
    if index == erases.len() {
        erases.push(Erasure::records(log.clone(), Vec::new(), reason));
    }
    erases.get_mut(index)
}

impl ErasureReport {
    pub(super) fn add(&mut self, other: ErasureReport) {
        for log in other.logs {
            if !self.logs.contains(&log) {
                self.logs.push(log);
            }
        }
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

fn add(erases: &mut Vec<Erasure>, log: &LogId, seq: u64, reason: ErasureReason) {
    let seqs = erasure_of(erases, log, reason).and_then(|erase| erase.seqs.as_mut());
    if let Some(seqs) = seqs.filter(|seqs| !seqs.contains(&seq)) {
        seqs.push(seq);
    }
}

#[cfg(test)]
#[path = "forget_tests.rs"]
mod forget_tests;
