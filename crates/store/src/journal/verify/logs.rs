//! Verifies that each log's row matches its records, and that all destroyed content has an erasure
//! record.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use throughline_core::{LogHead, Rewind, Tenant, kind};
use throughline_json::{Node, Tree};

use crate::chain::nature;
use crate::journal::Journal;
use crate::journal::listing::Page;
use crate::journal::verify::{Ledger, VerifyError, fail};
use crate::query::{Order, Span};
use crate::row::{ErasureReason, Row};

/// The state of a log, computed from its records.
#[derive(Default)]
pub(super) struct LogSummary {
    /// Kind and lineage from the log's row. Each record's link confirms them.
    pub(super) nature: String,
    /// Number of the last record that was added.
    last: u64,
    events: u64,
    bytes: u64,
    /// Numbers of the rewind records, with their targets. A target is `None` if the record's
    /// content was destroyed.
    rewinds: Vec<(u64, Option<u64>)>,
    /// Records whose destroyed content must be covered by an erasure record.
    missing: Vec<MissingContent>,
    erasures: RecordedErasures,
}

struct MissingContent {
    seq: u64,
    reason: ErasureReason,
    is_checkpoint: bool,
}

/// The content that a log's erasure records cover: single records, or all records or checkpoints
/// before an erasure record.
#[derive(Default)]
struct RecordedErasures {
    /// For each reason, the number of the last erasure record that destroyed all content before it.
    all_before: HashMap<ErasureReason, u64>,
    checkpoints_before: HashMap<ErasureReason, u64>,
    seqs: HashSet<(u64, ErasureReason)>,
    /// Number of the last erasure record.
    last: u64,
}

impl LogSummary {
    /// Creates the summary of a log, before any of its own records are added.
    pub(super) fn before(head: &LogHead) -> Self {
        Self {
            nature: nature(head.kind, head.of.as_ref(), head.fork.as_ref()),
            last: head.fork.as_ref().map_or(0, |fork| fork.at),
            ..Self::default()
        }
    }

    /// Adds the next record's metadata. [`Self::apply_content`] and [`Self::lose`] handle its
    /// content.
    pub(super) fn add(&mut self, row: &Row) -> Result<(), String> {
        if row.seq != self.last + 1 {
            return Err(format!("is in the position of record {}", self.last + 1));
        }
        self.last = row.seq;
        self.events = row.last_event.unwrap_or(self.events);
        self.bytes += row.size;
        Ok(())
    }

    /// Notes that the content of a record was destroyed.
    pub(super) fn lose(&mut self, row: &Row, reason: ErasureReason) {
        self.bytes = self.bytes.saturating_sub(row.size);
        let is_checkpoint = *row.kind == *kind::CHECKPOINT;
        self.missing.push(MissingContent { seq: row.seq, reason, is_checkpoint });
        if *row.kind == *kind::REWIND {
            self.rewinds.push((row.seq, None));
        }
    }

    /// Applies the content of a rewind or erasure record. Other kinds of records have no effect.
    pub(super) fn apply_content(&mut self, row: &Row, content: &Bytes) {
        if *row.kind == *kind::REWIND {
            let entry = Tree::parse(content.clone()).ok();
            let to = entry.and_then(|entry| entry.root().present("to").and_then(Node::u64));
            self.rewinds.push((row.seq, to));
        } else if let Some(reason) = ErasureReason::from_kind(&row.kind) {
            self.erasures.add(row.seq, reason, content);
        }
    }

    /// Returns the number of a record whose content was destroyed without a matching erasure
    /// record.
    fn unexplained(&self, erasures: &RecordedErasures) -> Option<u64> {
        self.missing.iter().find(|missing| !erasures.covers(missing)).map(|missing| missing.seq)
    }

    /// Describes the first difference between the log's row and its records, if any.
    fn differs(&self, head: &LogHead, parent: Option<&LogHead>) -> Option<String> {
        for (label, found, stated) in [
            ("ends at", self.last, head.last),
            ("has as last event", self.events, head.events),
            ("has in bytes", self.bytes, head.bytes),
        ] {
            if found != stated {
                return Some(format!("{label} {found}, but its row states {stated}"));
            }
        }
        let before = head.fork.as_ref().map_or(0, |fork| fork.at);
        let (shared, own): (Vec<Rewind>, Vec<Rewind>) =
            head.rewinds.iter().partition(|rewind| rewind.at <= before);
        let inherited = parent.map(|parent| parent.rewinds.as_slice()).unwrap_or_default();
        let inherited = inherited.iter().filter(|rewind| rewind.at <= before);
        let is_same = |(rewind, (at, to)): (&Rewind, &(u64, Option<u64>))| {
            rewind.at == *at && to.is_none_or(|to| rewind.to == to)
        };
        if !shared.iter().eq(inherited)
            || own.len() != self.rewinds.len()
            || !own.iter().zip(&self.rewinds).all(is_same)
        {
            return Some("has rewinds that differ from its row".to_owned());
        }
        // The row holds the reason of the latest erasure.
        let latest = self.erasures.all_before.iter().max_by_key(|(_, before)| **before);
        if head.gone != latest.map(|(reason, _)| reason.to_elision_reason()) {
            return Some("has an erasure state that differs from its row".to_owned());
        }
        None
    }
}

impl RecordedErasures {
    fn add(&mut self, at: u64, reason: ErasureReason, content: &Bytes) {
        self.last = at;
        let Ok(entry) = Tree::parse(content.clone()) else { return };
        if entry.root().present("all").and_then(Node::bool) == Some(true) {
            self.all_before.insert(reason, at);
        }
        if entry.root().present("checkpoints").and_then(Node::bool) == Some(true) {
            self.checkpoints_before.insert(reason, at);
        }
        if let Some(seqs) = entry.root().present("seqs") {
            self.seqs.extend(seqs.elements().filter_map(Node::u64).map(|seq| (seq, reason)));
        }
    }

    fn covers(&self, MissingContent { seq, reason, is_checkpoint }: &MissingContent) -> bool {
        let before = |erased_before: &HashMap<ErasureReason, u64>| {
            erased_before.get(reason).is_some_and(|position| seq < position)
        };
        before(&self.all_before)
            || (*is_checkpoint && before(&self.checkpoints_before))
            || self.seqs.contains(&(*seq, *reason))
    }
}

/// Maximum number of times that a log is read again while concurrent erasures change it.
const MAX_READS: u32 = 8;

impl Journal {
    /// Verifies that all missing content is covered by an erasure record.
    pub(super) async fn verify_missing(&self, ledger: &Ledger) -> Result<(), VerifyError> {
        let logs = ledger.logs.iter();
        let mut unexplained: Vec<_> =
            logs.filter(|(_, log)| log.unexplained(&log.erasures).is_some()).collect();
        unexplained.sort_by_key(|(key, _)| *key);
        for ((tenant, log), summary) in unexplained {
            // The erasure may have happened after the verification started, so its record is
            // outside the verified range.
            let erasures = match self.backend.log(tenant, log).await? {
                Some(head) => self.current_summary(tenant, &head).await?.erasures,
                None => RecordedErasures::default(),
            };
            if let Some(seq) = summary.unexplained(&erasures) {
                let place = format!("record {seq} of {log} (tenant {tenant})");
                return fail(place, "has no content and no record of its destruction");
            }
        }
        Ok(())
    }

    /// Verifies that every log's row matches its records, and runs the database's own checks.
    pub(super) async fn verify_logs(&self, ledger: &Ledger) -> Result<(), VerifyError> {
        let mut verified = 0;
        let mut tenants = self.backend.tenants().await?;
        tenants.retain(|tenant| ledger.concerns(tenant));
        for tenant in tenants {
            let everything = Page { order: Order::Oldest, ..Page::everything() }.listing(None);
            for head in self.backend.logs(&tenant, everything).await? {
                let key = (tenant.clone(), head.log.clone());
                let proven = ledger.logs.get(&key);
                verified += usize::from(proven.is_some());
                self.verify_log(&tenant, head, proven).await?;
            }
        }
        if verified != ledger.logs.len() {
            return fail("some log", "has records but no row");
        }
        // Only the operator sees problems inside the database; a tenant does not.
        if ledger.scope.is_some() {
            return Ok(());
        }
        let problems = self.backend.check().await?;
        problems.first().map_or(Ok(()), |problem| fail("the database:", problem))
    }

    /// Verifies that a log's row matches its records, including records that were added during the
    /// verification.
    async fn verify_log(
        &self,
        tenant: &Tenant,
        mut head: LogHead,
        proven: Option<&LogSummary>,
    ) -> Result<(), VerifyError> {
        let parent = match &head.fork {
            None => None,
            Some(fork) => self.backend.log(tenant, &fork.log).await?,
        };
        let place = format!("{} (tenant {tenant})", head.log);
        let nothing = LogSummary::before(&head);
        let proven = proven.unwrap_or(&nothing);
        if head.last <= proven.last {
            let problem = proven.differs(&head, parent.as_ref());
            return problem.map_or(Ok(()), |problem| fail(place, problem));
        }
        // The log changed since: other processes wrote to it or destroyed verified content.
        let mut summary = self.current_summary(tenant, &head).await?;
        for _ in 0..MAX_READS {
            let Some(problem) = summary.differs(&head, parent.as_ref()) else { return Ok(()) };
            let Some(now) = self.backend.log(tenant, &head.log).await? else {
                return fail(place, problem);
            };
            // Only an erasure between the two reads explains the difference. Its record then
            // follows the end in the row.
            let current = self.current_summary(tenant, &now).await?;
            if current.erasures.last <= head.last {
                return fail(place, problem);
            }
            (head, summary) = (now, current);
        }
        // Another process erases continuously; the next verification covers this log.
        Ok(())
    }

    /// Summarises the log's own records, up to the last record according to `head`.
    async fn current_summary(
        &self,
        tenant: &Tenant,
        head: &LogHead,
    ) -> Result<LogSummary, VerifyError> {
        const PAGE: u32 = 500;
        let mut summary = LogSummary::before(head);
        loop {
            let span = Span { after: summary.last, up_to: head.last, limit: PAGE };
            let rows = self.backend.rows(tenant, &head.log, span).await?;
            if rows.is_empty() {
                return Ok(summary);
            }
            for row in &rows {
                let place = || format!("record {} of {} (tenant {tenant})", row.seq, head.log);
                summary.add(row).or_else(|problem| fail(place(), problem))?;
                let has_effect =
                    *row.kind == *kind::REWIND || ErasureReason::from_kind(&row.kind).is_some();
                match row.erased {
                    Some(reason) => summary.lose(row, reason),
                    None if !has_effect => {}
                    None => match self.content_or_erasure(tenant, &head.log, row).await? {
                        Ok((content, _)) => summary.apply_content(row, &content),
                        Err(reason) => summary.lose(row, reason),
                    },
                }
            }
        }
    }
}
