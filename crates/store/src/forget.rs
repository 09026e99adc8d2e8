//! Forgetting: contents are destroyed for good, and the journal says so.
//!
//! What is destroyed is the salt, without which nothing can be opened; the sealed bytes; and the large contents that nothing
//! else refers to. What stays is that there was something, so that the chain still holds. A fork shares its records
//! with its parent, so they are gone in both; checkpoints are destroyed too, because they hold what they were folded from,
//! and whoever folds on is told by a record in each log. So are copies, which repeat what other records of their thread say.
//!
//! Others go on writing meanwhile. What they add to a log before it is destroyed is destroyed with it; who begins a run or
//! a fork of it is a reason to look again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Append, Batch, Json, LogHead, LogId, LogKind, Name, NewRecord, Store, StoreError, Tenant, Tree,
    holds_siblings, json, kind, restore_items,
};

use crate::backend::{Erase, Erased, Row, Span};
use crate::backups::note;
use crate::journal::Journal;
use crate::listing::{Family, shares};

/// How long after a run is deleted its content is removed from files and key files. PostgreSQL rewrites whole tables for
/// that, so it does not happen for each run.
const FINISH_AFTER: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_mins(10) };

/// What was destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// The logs that lost something.
    pub logs: Vec<LogId>,
    /// How many records lost their content.
    pub records: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// Backups that could not be reached, and may still hold it.
    pub unreached: Vec<Name>,
    /// How many records were looked at and do not open: whether they held it is not known.
    pub damaged: u64,
}

/// What the record of a forgotten or expired content is about: how an Item of a thread is named in [`NewRecord::about`].
pub fn about_item(thread: &LogId, item: &str) -> Name {
    Name::from(format!("{thread}/{item}"))
}

/// The number of the message that a stored Item is a part of.
fn message_in(stored: &Json) -> Option<u64> {
    stored.tree().root().get("at")?.elements().next()?.u64()
}

impl Journal {
    /// Destroys the content of a thread, or of one Item of it, for good.
    pub async fn forget(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: Option<&str>,
    ) -> Result<Destroyed, StoreError> {
        // How often others may begin something on the thread while it is looked at.
        const TRIES: u32 = 16;
        // Who begins runs without a pause is stopped: what was seen is destroyed first, and then the rest.
        const HASTE: u32 = 4;
        let mut destroyed = Destroyed::default();
        let mut tries = 0;
        loop {
            let mut erases = match item {
                None => self.whole_thread(tenant, thread).await?,
                Some(item) => {
                    let found = self.one_item(tenant, thread, item).await;
                    // What was destroyed in haste is not found again.
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
                    erase.kin = None;
                }
            }
            match self.destroy(tenant, &erases, &[], kind::FORGOTTEN).await {
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                done => {
                    destroyed.add(done?);
                    if tries != HASTE {
                        break;
                    }
                }
            }
        }
        let mut finished = self.finish_destroying().await;
        if matches!(finished, Err(StoreError::Full)) {
            self.backend.make_room().await?;
            finished = self.finish_destroying().await;
        }
        destroyed.unreached = finished?;
        self.backend.keep_reserve().await?;
        Ok(destroyed)
    }

    /// Destroys what a run says. Files and key files of backups are finished later, in the background: that can take long, and
    /// the caller waits for this.
    pub(crate) async fn forget_run(&self, tenant: &Tenant, run: &LogId) -> Result<(), StoreError> {
        let head = self.log(tenant, run).await?;
        if head.is_none_or(|head| head.kind != LogKind::Run) {
            return Err(StoreError::NotFound { what: "run", name: run.0.clone() });
        }
        let erase = Erase::all(run.clone(), Erased::Forgotten);
        self.destroy(tenant, &[erase], &[], kind::FORGOTTEN).await?;
        self.finish_later();
        Ok(())
    }

    /// Removes from all files what was destroyed, after [`FINISH_AFTER`]: runs that are deleted until then are finished
    /// with it. If the process ends before, the next one that opens the store does it.
    fn finish_later(&self) {
        if self.finishes.swap(true, Ordering::AcqRel) {
            return;
        }
        // The store may be closed meanwhile.
        let backend = Arc::downgrade(&self.backend);
        let (keys, signer) = (Arc::clone(&self.keys), Arc::clone(&self.signer));
        let (finishes, url) = (Arc::clone(&self.finishes), self.url.clone());
        tokio::spawn(async move {
            tokio::time::sleep(FINISH_AFTER).await;
            finishes.store(false, Ordering::Release);
            let Some(backend) = backend.upgrade() else { return };
            let journal = Journal { backend, keys, signer, finishes, url };
            // What fails now is left to the next process that opens the store.
            drop(journal.finish_destroying().await);
        });
    }

    /// A thread that exists.
    async fn whole_thread(
        &self,
        tenant: &Tenant,
        thread: &LogId,
    ) -> Result<Vec<Erase>, StoreError> {
        let Some(head) = self.log(tenant, thread).await? else {
            return Err(StoreError::NotFound { what: "thread", name: thread.0.clone() });
        };
        if head.kind != LogKind::Thread {
            let problem = format!("{thread} is a run: forget its thread, or one item of it");
            return Err(StoreError::invalid(problem));
        }
        let family = self.family(tenant, thread).await?;
        Ok(family_erases(&head, &family, Erased::Forgotten))
    }

    /// Every record about the Item, wherever it is; and the checkpoints after it. With it comes how many records are
    /// damaged, of which nobody knows what they are about.
    async fn one_item(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: &str,
    ) -> Result<(Vec<Erase>, u64), StoreError> {
        let why = Erased::Forgotten;
        let (mut erases, mut damaged) = (Vec::new(), 0);
        let mut place = Some((thread.clone(), u64::MAX));
        // The Item may be one that a fork shares with its parent; and both may have said it.
        while let Some((log, end)) = place {
            let Some(head) = self.log(tenant, &log).await? else {
                return Err(StoreError::NotFound { what: "thread", name: log.0 });
            };
            let found = self.records_about(tenant, &log, end, item, &mut damaged).await?;
            for (place, seq) in &found {
                add(&mut erases, place, *seq, why);
                if let Some(holder) = self.holder_before(tenant, place, *seq).await? {
                    add(&mut erases, place, holder, why);
                }
            }
            if !found.is_empty() {
                let family = self.family(tenant, &log).await?;
                for (place, seq) in self.copies(tenant, &log, &family).await? {
                    add(&mut erases, &place, seq, why);
                }
                add_checkpoints(&mut erases, &log, &family, why);
            }
            place = head.fork.map(|fork| (fork.log, end.min(fork.at)));
        }
        match (erases.is_empty(), damaged) {
            (false, _) => Ok((erases, damaged)),
            (true, 0) => Err(StoreError::NotFound { what: "item", name: Name::from(item) }),
            (true, _) => {
                let problem = format!("{item} was not found, and {damaged} records do not open");
                Err(StoreError::Corrupt(problem.into()))
            }
        }
    }

    /// The copies of what a thread and its forks say, wherever they are. Those that were imported are known by their kind.
    async fn copies(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        family: &Family,
    ) -> Result<Vec<(LogId, u64)>, StoreError> {
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

    /// The record before that one which holds its whole message: some wires write messages that cannot be cut, and then
    /// the first Item's text has all of them. What it says of itself goes with them.
    async fn holder_before(
        &self,
        tenant: &Tenant,
        log: &LogId,
        seq: u64,
    ) -> Result<Option<u64>, StoreError> {
        const MOST: u32 = 256;
        let span = Span { after: seq.saturating_sub(u64::from(MOST)), up_to: seq, limit: MOST };
        let rows = self.backend.rows(tenant, log, span).await?;
        let Some(own) = rows.iter().find(|row| row.seq == seq) else { return Ok(None) };
        let Some(message) = self.message_of(tenant, log, own).await else { return Ok(None) };
        let before = rows.iter().rev().skip_while(|row| row.seq >= seq);
        for row in before.take_while(|row| *row.kind == *kind::ITEM) {
            let Ok(Ok((content, _))) = self.content_or_gone(tenant, log, row).await else {
                continue;
            };
            let Ok(stored) = Json::parse(content) else { continue };
            if message_in(&stored) != Some(message) {
                return Ok(None);
            }
            if holds_siblings(&stored) {
                return Ok(Some(row.seq));
            }
        }
        Ok(None)
    }

    /// The message that a stored Item is a part of.
    async fn message_of(&self, tenant: &Tenant, log: &LogId, row: &Row) -> Option<u64> {
        let Ok(Ok((content, _))) = self.content_or_gone(tenant, log, row).await else {
            return None;
        };
        message_in(&Json::parse(content).ok()?)
    }

    /// The records that are about the Item. One that was imported, or that nobody said what it is about, is looked for
    /// by what it says. What a parent wrote after `end` is none of its fork's.
    async fn records_about(
        &self,
        tenant: &Tenant,
        log: &LogId,
        end: u64,
        item: &str,
        damaged: &mut u64,
    ) -> Result<Vec<(LogId, u64)>, StoreError> {
        const PAGE: u32 = 256;
        let about = self.keys.about(tenant, &about_item(log, item));
        let mut found = self.backend.about(tenant, about).await?;
        let mut own =
            found.iter().filter(|(place, _)| place == log).map(|(_, seq)| *seq).peekable();
        if own.peek().is_some() && !own.any(|seq| seq <= end) {
            // Another Item, of the same name.
            found.clear();
        }
        let mut next = Some(Span { after: 0, up_to: end, limit: PAGE });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, log, span).await?;
            for row in rows.iter().filter(|row| *row.kind == *kind::ITEM) {
                let content = match self.content_or_gone(tenant, log, row).await {
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

    /// Destroys, and says so in each log. Each of `expects` must still have the end that the caller read. On a full disk
    /// it uses the space that is held in reserve, and does it piece by piece if that is too little for all of it at once.
    pub(crate) async fn destroy(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
        expects: &[(LogId, u64)],
        kind: &str,
    ) -> Result<Destroyed, StoreError> {
        let mut destroyed = Destroyed::default();
        let mut done = self.destroy_at_once(tenant, erases, expects, kind).await;
        if matches!(done, Err(StoreError::Full)) {
            self.backend.make_room().await?;
            done = self.destroy_at_once(tenant, erases, expects, kind).await;
        }
        if matches!(done, Err(StoreError::Full)) && expects.is_empty() {
            for erase in erases {
                for piece in self.pieces(tenant, erase).await? {
                    self.backend.make_room().await?;
                    let done = self.destroy_at_once(tenant, &[piece], &[], kind).await?;
                    destroyed.add(done);
                }
            }
            self.backend.make_room().await?;
            done = self.destroy_at_once(tenant, erases, expects, kind).await;
        }
        destroyed.add(done?);
        Ok(destroyed)
    }

    /// The same in parts, each of which changes a few pages of the database.
    async fn pieces(&self, tenant: &Tenant, erase: &Erase) -> Result<Vec<Erase>, StoreError> {
        const RECORDS: usize = 16;
        const BYTES: u64 = 32 << 10;
        let mut pieces = Vec::new();
        let (mut seqs, mut bytes) = (Vec::new(), 0);
        let mut next = Some(Span { after: 0, up_to: u64::MAX, limit: 256 });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, &erase.log, span).await?;
            for row in rows.iter().filter(|row| is_chosen(erase, row)) {
                if seqs.len() >= RECORDS || bytes + row.size > BYTES {
                    let seqs = std::mem::take(&mut seqs);
                    pieces.push(Erase::records(erase.log.clone(), seqs, erase.why));
                    bytes = 0;
                }
                seqs.push(row.seq);
                bytes += row.size;
            }
            next = span.following(&rows);
        }
        pieces.push(Erase::records(erase.log.clone(), seqs, erase.why));
        pieces.retain(|piece| piece.seqs.as_ref().is_some_and(|seqs| !seqs.is_empty()));
        Ok(pieces)
    }

    async fn destroy_at_once(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
        expects: &[(LogId, u64)],
        kind: &str,
    ) -> Result<Destroyed, StoreError> {
        let mut destroyed = Destroyed::default();
        let mut batch = Batch::of(tenant.clone());
        for erase in erases {
            let (records, bytes) = self.measure(tenant, erase).await?;
            if records > 0 || erase.seqs.is_none() {
                destroyed.logs.push(erase.log.clone());
            }
            destroyed.records += records;
            destroyed.bytes += bytes;
            let mut append = Append::to(erase.log.clone()).record(notice(erase, kind));
            append.expect =
                expects.iter().find(|(log, _)| *log == erase.log).map(|(_, last)| *last);
            batch = batch.append(append);
        }
        let mut noted = erases.to_vec();
        if let Some(first) = noted.first_mut() {
            first.note = Some(note(tenant, erases, kind)?);
        }
        self.commit_act(batch, noted).await?;
        Ok(destroyed)
    }

    /// How many records lose their content, and how many bytes that is.
    async fn measure(&self, tenant: &Tenant, erase: &Erase) -> Result<(u64, u64), StoreError> {
        const PAGE: u32 = 1024;
        let (mut records, mut bytes) = (0, 0);
        let mut next = Some(Span { after: 0, up_to: u64::MAX, limit: PAGE });
        while let Some(span) = next {
            let rows = self.backend.rows(tenant, &erase.log, span).await?;
            for row in rows.iter().filter(|row| is_chosen(erase, row)) {
                records += 1;
                bytes += row.size;
            }
            next = span.following(&rows);
        }
        Ok((records, bytes))
    }
}

/// Whether a record loses its content: it has one, and is none that says what was destroyed.
fn is_chosen(erase: &Erase, row: &Row) -> bool {
    let is_meant = erase.seqs.as_ref().is_none_or(|seqs| seqs.contains(&row.seq))
        || (erase.checkpoints && *row.kind == *kind::CHECKPOINT);
    let is_notice = *row.kind == *kind::FORGOTTEN || *row.kind == *kind::EXPIRED;
    row.erased.is_none() && is_meant && !is_notice
}

/// Whether a record's content is the Item with that name.
fn is_item(content: &Bytes, item: &str) -> bool {
    let stored = restore_items([Some(content.clone())]).ok();
    let stored = stored.and_then(|items| Some(items.first()?.id.0.clone()));
    let said = || Tree::parse(content.clone()).ok()?.root().name_of("id");
    stored.or_else(said).as_deref() == Some(item)
}

/// All own records of a thread and of its runs; the checkpoints of its forks.
pub(crate) fn family_erases(thread: &LogHead, family: &Family, why: Erased) -> Vec<Erase> {
    let mut erases = vec![Erase::all(thread.log.clone(), why)];
    let own_runs = family.runs.iter().filter(|(of, _)| *of == thread.log);
    erases.extend(own_runs.map(|(_, run)| Erase::all(run.log.clone(), why)));
    add_checkpoints(&mut erases, &thread.log, family, why);
    erases
}

/// The checkpoints of a thread and of its forks, which may have been folded from what is destroyed; and that no run and no
/// fork may begin meanwhile.
fn add_checkpoints(erases: &mut Vec<Erase>, thread: &LogId, family: &Family, why: Erased) {
    let forks = family.forks.iter().filter(|fork| fork.gone.is_none() && shares(fork));
    for log in std::iter::once(thread).chain(forks.map(|fork| &fork.log)) {
        in_log(erases, log, why, |erase| erase.kin = Some(family.kin(log)));
    }
    // A run that loses something may have folded it too; where everything is destroyed, checkpoints are.
    for erase in erases.iter_mut() {
        erase.checkpoints |= erase.seqs.is_some();
    }
}

/// Looks for what is destroyed in that log, and changes it; nothing was so far, where it was not named yet.
fn in_log(erases: &mut Vec<Erase>, log: &LogId, why: Erased, change: impl FnOnce(&mut Erase)) {
    match erases.iter_mut().find(|erase| erase.log == *log) {
        Some(erase) => change(erase),
        None => {
            let mut erase = Erase::records(log.clone(), Vec::new(), why);
            change(&mut erase);
            erases.push(erase);
        }
    }
}

/// The record that says what was destroyed.
pub(crate) fn notice(erase: &Erase, kind: &str) -> NewRecord {
    let entry = json::object(|entry| put_erase(entry, erase));
    NewRecord::new(kind, entry.bytes().clone())
}

/// What is destroyed of a log.
pub(crate) fn put_erase(entry: &mut json::Object<'_>, erase: &Erase) {
    match &erase.seqs {
        None => {
            entry.bool("all", true);
        }
        Some(seqs) => {
            entry.array("seqs", |list| {
                for seq in seqs {
                    list.number(*seq);
                }
            });
        }
    }
    if erase.checkpoints {
        entry.bool("checkpoints", true);
    }
}

impl Destroyed {
    pub(crate) fn add(&mut self, other: Destroyed) {
        for log in other.logs {
            if !self.logs.contains(&log) {
                self.logs.push(log);
            }
        }
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

fn add(erases: &mut Vec<Erase>, log: &LogId, seq: u64, why: Erased) {
    in_log(erases, log, why, |erase| {
        if let Some(seqs) = &mut erase.seqs
            && !seqs.contains(&seq)
        {
            seqs.push(seq);
        }
    });
}

#[cfg(test)]
#[path = "forget_tests.rs"]
mod forget_tests;
