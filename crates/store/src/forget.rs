//! Forgetting, and letting expire: contents are destroyed for good, and the journal says so.
//!
//! What is destroyed is the salt, without which nothing can be opened; the sealed bytes; and the large contents that nothing
//! else refers to. What stays is that there was something, so that the chain still holds. A fork shares its records
//! with its parent, so they are gone in both; checkpoints that were made later are destroyed too, because they hold what
//! they were folded from.

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, Json, LogHead, LogId, LogKind, Name, NewRecord, Store, StoreError, Tenant, Tree,
    holds_siblings, json, kind, restore_items,
};

use crate::backend::{Erase, Erased, Order, Progress, Span};
use crate::journal::Journal;
use crate::listing::Page;

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
}

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Threads that nobody has written to for longer expire.
    pub older_than: Option<std::time::Duration>,
    /// The oldest threads expire until the contents of the rest have at most so many bytes.
    pub at_most_bytes: Option<u64>,
}

/// What the record of a forgotten or expired content is about: how an Item of a thread is named in [`NewRecord::about`].
pub fn about_item(thread: &LogId, item: &str) -> Name {
    Name::from(format!("{thread}/{item}"))
}

impl Journal {
    /// Destroys the content of a thread, or of one Item of it, for good.
    pub async fn forget(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: Option<&str>,
    ) -> Result<Destroyed, StoreError> {
        let erases = match item {
            None => self.whole_thread(tenant, thread, Erased::Forgotten).await?,
            Some(item) => self.one_item(tenant, thread, item).await?,
        };
        let destroyed = self.destroy(tenant, &erases, kind::FORGOTTEN).await?;
        self.scrub(tenant, &erases, kind::FORGOTTEN, destroyed).await
    }

    /// Destroys the content of threads whose time is up.
    pub async fn prune(
        &self,
        tenant: &Tenant,
        retention: Retention,
        now: Timestamp,
        progress: Progress<'_>,
    ) -> Result<Destroyed, StoreError> {
        let expiring = self.expiring(tenant, retention, now).await?;
        let (mut destroyed, mut all) = (Destroyed::default(), Vec::new());
        let count = expiring.len().max(1);
        for (done, (thread, _)) in expiring.iter().enumerate() {
            let erases = self.whole_thread(tenant, &thread.log, Erased::Expired).await?;
            destroyed.add(self.destroy(tenant, &erases, kind::EXPIRED).await?);
            all.extend(erases);
            #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
            progress((done + 1) as f64 / count as f64);
        }
        self.scrub(tenant, &all, kind::EXPIRED, destroyed).await
    }

    /// The threads whose time is up, each with the bytes that it and its runs have: what [`Journal::prune`] destroys.
    pub async fn expiring(
        &self,
        tenant: &Tenant,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Vec<(LogHead, u64)>, StoreError> {
        let everything = Page { limit: u32::MAX >> 1, order: Order::Oldest, after: None };
        let mut families = Vec::new();
        for thread in self.threads(tenant, everything).await? {
            if thread.gone.is_none() {
                let (updated, bytes) = self.family_size(tenant, &thread).await?;
                families.push((updated, bytes, thread));
            }
        }
        families.sort_by_key(|(updated, ..)| *updated);
        let mut kept: u64 = families.iter().map(|(_, bytes, _)| bytes).sum();
        let oldest = retention.older_than.and_then(|age| {
            let age = jiff::SignedDuration::try_from(age).ok()?;
            now.checked_sub(age).ok()
        });
        families.retain(|(updated, bytes, _)| {
            let old = oldest.is_some_and(|oldest| *updated < oldest);
            // One that has nothing of its own makes no room.
            let much = *bytes > 0 && retention.at_most_bytes.is_some_and(|most| kept > most);
            if old || much {
                kept = kept.saturating_sub(*bytes);
            }
            old || much
        });
        Ok(families.into_iter().map(|(_, bytes, thread)| (thread, bytes)).collect())
    }

    /// When a thread or one of its runs was last written to, and how many bytes they have.
    async fn family_size(
        &self,
        tenant: &Tenant,
        thread: &LogHead,
    ) -> Result<(Timestamp, u64), StoreError> {
        let everything = Page { limit: u32::MAX >> 1, ..Page::default() };
        let runs = self.runs(tenant, Some(&thread.log), everything).await?;
        let updated = runs.iter().map(|run| run.updated).fold(thread.updated, Timestamp::max);
        Ok((updated, thread.bytes + runs.iter().map(|run| run.bytes).sum::<u64>()))
    }

    /// All own records of a thread and of its runs; the checkpoints of its forks.
    async fn whole_thread(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        why: Erased,
    ) -> Result<Vec<Erase>, StoreError> {
        let Some(head) = self.log(tenant, thread).await? else {
            return Err(StoreError::NotFound { what: "thread", name: thread.0.clone() });
        };
        if head.kind != LogKind::Thread {
            let problem = format!("{thread} is a run: forget its thread, or one item of it");
            return Err(StoreError::invalid(problem));
        }
        let family = self.family(tenant, thread).await?;
        let own_runs = family.runs.iter().filter(|(of, _)| of == thread).map(|(_, run)| run);
        let whole = std::iter::once(&head).chain(own_runs);
        let mut erases: Vec<Erase> =
            whole.map(|head| Erase { log: head.log.clone(), seqs: None, why }).collect();
        self.checkpoints_of_forks(tenant, &family.forks, why, &mut erases).await?;
        Ok(erases)
    }

    /// Every record about the Item, wherever it is; and the checkpoints after it.
    async fn one_item(
        &self,
        tenant: &Tenant,
        thread: &LogId,
        item: &str,
    ) -> Result<Vec<Erase>, StoreError> {
        let mut place = Some(thread.clone());
        // The Item may be one that a fork shares with its parent.
        while let Some(log) = place {
            let Some(head) = self.log(tenant, &log).await? else {
                return Err(StoreError::NotFound { what: "thread", name: log.0 });
            };
            let found = self.records_about(tenant, &log, item).await?;
            if !found.is_empty() {
                let why = Erased::Forgotten;
                let mut erases: Vec<Erase> = Vec::new();
                for (place, seq) in &found {
                    add(&mut erases, place, *seq, why);
                    if let Some(holder) = self.holder_before(tenant, place, *seq).await? {
                        add(&mut erases, place, holder, why);
                    }
                }
                for seq in self.checkpoints(tenant, &log).await? {
                    add(&mut erases, &log, seq, why);
                }
                let forks = self.family(tenant, &log).await?.forks;
                self.checkpoints_of_forks(tenant, &forks, why, &mut erases).await?;
                return Ok(erases);
            }
            place = head.fork.map(|fork| fork.log);
        }
        Err(StoreError::NotFound { what: "item", name: Name::from(item) })
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
        let before = rows.iter().rev().skip_while(|row| row.seq >= seq);
        for row in before.take_while(|row| *row.kind == *kind::ITEM) {
            let Ok(Ok((content, _))) = self.content_or_gone(tenant, log, row).await else {
                continue;
            };
            let Ok(stored) = Json::parse(content) else { continue };
            if holds_siblings(&stored) {
                return Ok(Some(row.seq));
            }
        }
        Ok(None)
    }

    /// The records that are about the Item. One that was imported, or that nobody said what it is about, is looked for
    /// by what it says.
    async fn records_about(
        &self,
        tenant: &Tenant,
        log: &LogId,
        item: &str,
    ) -> Result<Vec<(LogId, u64)>, StoreError> {
        const PAGE: u32 = 256;
        let about = self.keys.about(tenant, &about_item(log, item));
        let mut found = self.backend.about(tenant, about).await?;
        let mut after = 0;
        while found.is_empty() {
            let span = Span { after, up_to: u64::MAX, limit: PAGE };
            let rows = self.backend.rows(tenant, log, span).await?;
            let Some(last) = rows.last() else { break };
            after = last.seq;
            for row in rows.iter().filter(|row| row.erased.is_none() && *row.kind == *kind::ITEM) {
                let (content, _) = self.content(tenant, row).await?;
                let stored = restore_items([Some(content.clone())]).ok();
                let stored = stored.and_then(|items| Some(items.first()?.id.0.clone()));
                let said = || Tree::parse(content).ok()?.root().name_of("id");
                if stored.or_else(said).as_deref() != Some(item) {
                    continue;
                }
                found.push((log.clone(), row.seq));
                if let Some(about) = row.about {
                    found.extend(self.backend.about(tenant, about).await?);
                }
            }
        }
        Ok(found)
    }

    async fn checkpoints_of_forks(
        &self,
        tenant: &Tenant,
        forks: &[LogHead],
        why: Erased,
        erases: &mut Vec<Erase>,
    ) -> Result<(), StoreError> {
        for fork in forks {
            for seq in self.checkpoints(tenant, &fork.log).await? {
                add(erases, &fork.log, seq, why);
            }
        }
        Ok(())
    }

    /// The log's own checkpoints that are still there.
    async fn checkpoints(&self, tenant: &Tenant, log: &LogId) -> Result<Vec<u64>, StoreError> {
        let mut seqs = Vec::new();
        let mut at_most = u64::MAX;
        while let Some(row) = self.backend.checkpoint(tenant, log, at_most).await? {
            seqs.push(row.seq);
            at_most = row.seq.saturating_sub(1);
        }
        Ok(seqs)
    }

    /// Destroys, and says so in each log that lost something.
    async fn destroy(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
        kind: &str,
    ) -> Result<Destroyed, StoreError> {
        let mut destroyed = Destroyed::default();
        let mut batch = Batch::of(tenant.clone());
        for erase in erases {
            let (records, bytes) = self.measure(tenant, erase).await?;
            destroyed.logs.push(erase.log.clone());
            destroyed.records += records;
            destroyed.bytes += bytes;
            batch = batch.append(Append::to(erase.log.clone()).record(notice(erase, kind)));
        }
        self.commit_act(batch, erases.to_vec()).await?;
        Ok(destroyed)
    }

    /// Sees to it that no file and no backup holds what was destroyed.
    async fn scrub(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
        kind: &str,
        mut destroyed: Destroyed,
    ) -> Result<Destroyed, StoreError> {
        if !erases.is_empty() {
            self.backend.scrub().await?;
            destroyed.unreached = self.erase_in_backups(tenant, erases, kind).await?;
        }
        Ok(destroyed)
    }

    /// How many records lose their content, and how many bytes that is.
    async fn measure(&self, tenant: &Tenant, erase: &Erase) -> Result<(u64, u64), StoreError> {
        const PAGE: u32 = 1024;
        let (mut records, mut bytes, mut after) = (0, 0, 0);
        loop {
            let span = Span { after, up_to: u64::MAX, limit: PAGE };
            let rows = self.backend.rows(tenant, &erase.log, span).await?;
            let Some(last) = rows.last() else { return Ok((records, bytes)) };
            after = last.seq;
            let chosen = |seq: u64| erase.seqs.as_ref().is_none_or(|seqs| seqs.contains(&seq));
            let notice = |kind: &str| kind == kind::FORGOTTEN || kind == kind::EXPIRED;
            for row in rows
                .iter()
                .filter(|row| row.erased.is_none() && chosen(row.seq) && !notice(&row.kind))
            {
                records += 1;
                bytes += row.size;
            }
        }
    }
}

/// The record that says what was destroyed.
pub(crate) fn notice(erase: &Erase, kind: &str) -> NewRecord {
    let entry = json::object(|entry| match &erase.seqs {
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
    });
    NewRecord::new(kind, entry.bytes().clone())
}

impl Destroyed {
    fn add(&mut self, other: Destroyed) {
        self.logs.extend(other.logs);
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

fn add(erases: &mut Vec<Erase>, log: &LogId, seq: u64, why: Erased) {
    match erases.iter_mut().find(|erase| erase.log == *log) {
        Some(erase) => {
            if let Some(seqs) = &mut erase.seqs
                && !seqs.contains(&seq)
            {
                seqs.push(seq);
            }
        }
        None => erases.push(Erase { log: log.clone(), seqs: Some(vec![seq]), why }),
    }
}
