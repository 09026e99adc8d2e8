//! Counts the fates of all thoughts and seals, from the store and from the simulators' ledger.

use throughline_agent::is_inbox;
use throughline_core::{Body, LogId, Record, Store as _, kind, restore_items};
use throughline_json::Json;
use throughline_sim::{Ledger, LedgerEntry, Verdict};
use throughline_spec::RunEvent;

use super::naive::LossyClient;
use crate::agent::{AgentContext, events_of};
use crate::print::failure::Failure;

/// Number of records per read.
const PAGE: u32 = 512;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) thoughts: Counts,
    pub(super) seals: Counts,
    /// Reasons for elisions, with their number.
    pub(super) why: Vec<(String, u64)>,
    /// Requests made by Throughline.
    pub(super) calls: usize,
    /// Refused requests of Throughline.
    pub(super) refused: usize,
    /// Seals that the simulators issued to Throughline.
    pub(super) issued: usize,
    /// Seals that came back unchanged and were accepted.
    pub(super) accepted: usize,
    /// Seals that the simulators missed.
    pub(super) lost: usize,
    /// Requests made by the lossy client.
    pub(super) naive: usize,
    /// Refused requests of the lossy client.
    pub(super) naive_refused: usize,
    /// Accepted requests of the lossy client in which the model had lost its thoughts.
    pub(super) naive_duller: usize,
}

/// Counts of thoughts or of seals by fate.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) captured: u64,
    pub(super) replayed: u64,
    pub(super) restored: u64,
    pub(super) elided: u64,
}

impl Totals {
    /// Returns whether the demo succeeded: no request of Throughline was refused or lacked a seal,
    /// something was restored, and every request of the lossy client failed or lost reasoning.
    pub(super) fn is_success(&self) -> bool {
        self.refused == 0
            && self.lost == 0
            && self.seals.restored > 0
            && self.thoughts.replayed > 0
            && self.naive > 0
            && self.naive_refused + self.naive_duller == self.naive
    }
}

pub(super) async fn count(
    house: &AgentContext,
    thread: &str,
    ledger: &Ledger,
    naive: &LossyClient,
) -> Result<Totals, Failure> {
    let mut totals = Totals::default();
    let thread = LogId::from(thread);
    totals.count_captured(&records_of(house, &thread).await?)?;
    for run in runs_of(house, &thread).await? {
        for record in records_of(house, &run).await? {
            for event in events_of(&record) {
                totals.count_replayed(&event);
            }
        }
    }
    totals.thoughts.restored += naive.restored.thoughts;
    totals.seals.restored += naive.restored.seals;
    totals.count_ledger(ledger, naive);
    Ok(totals)
}

/// Returns the runs of a thread, newest first.
pub(super) async fn runs_of(house: &AgentContext, thread: &LogId) -> Result<Vec<LogId>, Failure> {
    let runs = house.journal.runs_of(&house.tenant, thread, None, PAGE).await;
    let runs = runs.map_err(|error| house.to_failure(error.into()))?.into_iter();
    Ok(runs.map(|run| run.log).filter(|run| !is_inbox(run)).collect())
}

/// Returns all records of a log.
pub(super) async fn records_of(house: &AgentContext, log: &LogId) -> Result<Vec<Record>, Failure> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(0, |record| record.seq);
        let page = house.journal.read(&house.tenant, log, after, PAGE).await;
        let page = page.map_err(|error| house.to_failure(error.into()))?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

impl Totals {
    /// Counts the thoughts and seals in the thread.
    fn count_captured(&mut self, records: &[Record]) -> Result<(), Failure> {
        let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
        let items = restore_items(items.map(|record| record.content.bytes().cloned()));
        let items = items.map_err(|error| Failure::BadData(error.to_string()))?;
        let thoughts = items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        self.thoughts.captured = number(thoughts.count());
        self.seals.captured = number(items.iter().map(|item| item.seals.len()).sum());
        Ok(())
    }

    /// Adds the fates that one replay event reports.
    fn count_replayed(&mut self, event: &RunEvent) {
        let RunEvent::Replay(event) = event else { return };
        self.thoughts.replayed += event.kept.unwrap_or(0) + event.reshaped.unwrap_or(0);
        self.thoughts.restored += event.restored.unwrap_or(0);
        self.thoughts.elided += event.elided.unwrap_or(0);
        let whole = |value: &Json| value.tree().root().u64().unwrap_or(0);
        for (what, count) in event.seals.iter().flatten() {
            let place = match &**what {
                "kept" | "reshaped" => &mut self.seals.replayed,
                "restored" => &mut self.seals.restored,
                "elided" => &mut self.seals.elided,
                _ => continue,
            };
            *place += whole(count);
        }
        for (why, count) in event.why.iter().flatten() {
            match self.why.iter_mut().find(|(known, _)| **known == **why) {
                Some((_, known)) => *known += whole(count),
                None => self.why.push((why.to_string(), whole(count))),
            }
        }
    }

    /// Adds the figures of the simulators' ledger.
    fn count_ledger(&mut self, ledger: &Ledger, naive: &LossyClient) {
        let is_naive = |entry: &&LedgerEntry| naive.requests.contains(&entry.request);
        for entry in ledger.entries.iter().filter(|entry| !is_naive(entry)) {
            self.calls += 1;
            self.refused += usize::from(entry.status >= 400);
            self.issued += entry.issued.len();
            let taken = entry.returned.iter().filter(|back| back.verdict == Verdict::Accepted);
            self.accepted += taken.count();
            self.lost += entry.lost;
        }
        for entry in ledger.entries.iter().filter(is_naive) {
            let is_refused = entry.status >= 400;
            self.naive += 1;
            self.naive_refused += usize::from(is_refused);
            self.naive_duller += usize::from(!is_refused && entry.lost > 0);
        }
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
