//! What became of every thought, counted: in the store, and by the simulators' own ledger.

use throughline_agent::is_inbox;
use throughline_core::{Body, Json, LogId, Record, RunEvent, Store as _, kind, restore_items};
use throughline_sim::{Entry, Ledger, Verdict};

use super::naive::Naive;
use crate::agent::{House, events_of};
use crate::failure::Failure;

/// How many records are read at a time.
const PAGE: u32 = 512;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) thoughts: Counts,
    pub(super) seals: Counts,
    /// Why something was left out of a request, with how often.
    pub(super) why: Vec<(String, u64)>,
    /// How many requests Throughline made.
    pub(super) calls: usize,
    /// How many of them were refused.
    pub(super) refused: usize,
    /// How many seals the simulators issued to it.
    pub(super) issued: usize,
    /// How many came back to them, and were taken as they were.
    pub(super) accepted: usize,
    /// How many they missed.
    pub(super) lost: usize,
    /// How many requests the naive client made.
    pub(super) naive: usize,
    /// How many of them were refused.
    pub(super) naive_refused: usize,
    /// How many were answered by a model that had lost its thoughts, without a word of that.
    pub(super) naive_duller: usize,
}

/// What became of thoughts, or of seals.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) captured: u64,
    pub(super) replayed: u64,
    pub(super) restored: u64,
    pub(super) elided: u64,
}

impl Totals {
    /// Whether the story went as it should: nothing of Throughline's was refused or missed, something was put back, and no
    /// request of the naive client did what it was to do.
    pub(super) fn is_content(&self) -> bool {
        self.refused == 0
            && self.lost == 0
            && self.seals.restored > 0
            && self.thoughts.replayed > 0
            && self.naive > 0
            && self.naive_refused + self.naive_duller == self.naive
    }
}

pub(super) async fn count(
    house: &House,
    thread: &str,
    ledger: &Ledger,
    naive: &Naive,
) -> Result<Totals, Failure> {
    let mut totals = Totals::default();
    let thread = LogId::from(thread);
    totals.captured(&records_of(house, &thread).await?)?;
    for run in runs_of(house, &thread).await? {
        for record in records_of(house, &run).await? {
            for event in events_of(&record) {
                totals.replayed(&event);
            }
        }
    }
    totals.thoughts.restored += naive.restored.thoughts;
    totals.seals.restored += naive.restored.seals;
    totals.ledger(ledger, naive);
    Ok(totals)
}

/// The runs of a thread, the newest first.
pub(super) async fn runs_of(house: &House, thread: &LogId) -> Result<Vec<LogId>, Failure> {
    let runs = house.journal.runs_of(&house.tenant, thread, None, PAGE).await;
    let runs = runs.map_err(|error| house.failed(error.into()))?.into_iter();
    Ok(runs.map(|run| run.log).filter(|run| !is_inbox(run)).collect())
}

/// All records of a log.
pub(super) async fn records_of(house: &House, log: &LogId) -> Result<Vec<Record>, Failure> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(0, |record| record.seq);
        let page = house.journal.read(&house.tenant, log, after, PAGE).await;
        let page = page.map_err(|error| house.failed(error.into()))?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

impl Totals {
    /// What the thread holds.
    fn captured(&mut self, records: &[Record]) -> Result<(), Failure> {
        let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
        let items = restore_items(items.map(|record| record.content.bytes().cloned()));
        let items = items.map_err(|error| Failure::BadData(error.to_string()))?;
        let thoughts = items.iter().filter(|item| matches!(item.body, Body::Thought(_)));
        self.thoughts.captured = number(thoughts.count());
        self.seals.captured = number(items.iter().map(|item| item.seals.len()).sum());
        Ok(())
    }

    /// What the agent's requests did with thoughts and seals.
    fn replayed(&mut self, event: &RunEvent) {
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

    /// What the simulators saw.
    fn ledger(&mut self, ledger: &Ledger, naive: &Naive) {
        let is_naive = |entry: &&Entry| naive.requests.contains(&entry.request);
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
