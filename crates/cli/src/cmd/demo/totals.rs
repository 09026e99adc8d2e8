//! Counts the Fates of all thoughts and Seals, from the store and from the simulators' ledger.

use anyhow::Context as _;
use throughline_agent::is_inbox;
use throughline_core::{Body, Item, LogId, Store as _, kind, restore_items};
use throughline_json::Json;
use throughline_sim::{Ledger, LedgerEntry, Verdict};
use throughline_spec::RunEvent;

use super::lossy::LossyClient;
use crate::agent::{AgentContext, events_of};
use crate::print::failure::Result;

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) thoughts: Counts,
    pub(super) seals: Counts,
    /// Elision reasons, each with the number of elided thoughts and Seals.
    pub(super) reasons: Vec<(String, usize)>,
    pub(super) calls: usize,
    pub(super) refused: usize,
    /// Seals that the simulators issued to Throughline.
    pub(super) issued: usize,
    /// Seals that were sent back unchanged and accepted.
    pub(super) accepted: usize,
    /// Seals that the simulators found missing from a request.
    pub(super) lost: usize,
    /// Requests that the lossy client sent.
    pub(super) lossy_calls: usize,
    /// Requests from the lossy client that the simulators refused.
    pub(super) lossy_refused: usize,
    /// Requests from the lossy client that were accepted although reasoning was missing.
    pub(super) lossy_degraded: usize,
}

/// Number of thoughts or Seals by Fate.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) captured: usize,
    pub(super) replayed: usize,
    pub(super) restored: usize,
    pub(super) elided: usize,
}

impl Totals {
    /// Returns whether the demo succeeded. No Throughline request may be refused or lack a Seal. At
    /// least one Seal must be restored, and at least one thought sent back. Every request from the
    /// lossy client must be refused or lose reasoning.
    pub(super) fn is_success(&self) -> bool {
        self.refused == 0
            && self.lost == 0
            && self.seals.restored > 0
            && self.thoughts.replayed > 0
            && self.lossy_calls > 0
            && self.lossy_refused + self.lossy_degraded == self.lossy_calls
    }
}

pub(super) async fn count(
    context: &AgentContext,
    thread: &str,
    ledger: &Ledger,
    lossy: &LossyClient,
) -> Result<Totals> {
    let mut totals = Totals::default();
    let thread = LogId::from(thread);
    totals.count_captured(&items_of(context, &thread).await?);
    for run in runs_of(context, &thread).await? {
        let records = context.records(&run).await?;
        records.iter().flat_map(events_of).for_each(|event| totals.count_replayed(&event));
    }
    totals.thoughts.restored += lossy.restored.thoughts;
    totals.seals.restored += lossy.restored.seals;
    totals.count_ledger(ledger, lossy);
    Ok(totals)
}

/// Returns the ids of the runs on a thread, newest first.
pub(super) async fn runs_of(context: &AgentContext, thread: &LogId) -> Result<Vec<LogId>> {
    let runs = context.journal.runs_of(&context.tenant, thread, None, 512);
    let runs = context.run(runs).await?.into_iter();
    Ok(runs.map(|run| run.log).filter(|run| !is_inbox(run)).collect())
}

pub(super) async fn items_of(context: &AgentContext, thread: &LogId) -> Result<Vec<Item>> {
    let records = context.records(thread).await?;
    let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
    let items = restore_items(items.map(|record| record.content.bytes().cloned()));
    Ok(items.with_context(|| format!("cannot read the thread {thread}"))?)
}

impl Totals {
    fn count_captured(&mut self, items: &[Item]) {
        let is_thought = |item: &&Item| matches!(item.body, Body::Thought(_));
        self.thoughts.captured = items.iter().filter(is_thought).count();
        self.seals.captured = items.iter().map(|item| item.seals.len()).sum();
    }

    /// Adds the numbers of Fates in a replay event to the totals.
    fn count_replayed(&mut self, event: &RunEvent) {
        let RunEvent::Replay(event) = event else { return };
        let number = |count: Option<u64>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        self.thoughts.replayed += number(event.kept) + number(event.reshaped);
        self.thoughts.restored += number(event.restored);
        self.thoughts.elided += number(event.elided);
        let integer = |value: &Json| number(value.tree().root().u64());
        for (fate, count) in event.seals.iter().flatten() {
            let counter = match &**fate {
                "kept" | "reshaped" => &mut self.seals.replayed,
                "restored" => &mut self.seals.restored,
                "elided" => &mut self.seals.elided,
                _ => continue,
            };
            *counter += integer(count);
        }
        for (why, count) in event.why.iter().flatten() {
            match self.reasons.iter_mut().find(|(known, _)| **known == **why) {
                Some((_, known)) => *known += integer(count),
                None => self.reasons.push((why.to_string(), integer(count))),
            }
        }
    }

    /// Adds the simulators' counts to the totals. Requests from the lossy client are counted
    /// separately.
    fn count_ledger(&mut self, ledger: &Ledger, lossy: &LossyClient) {
        let is_lossy = |entry: &&LedgerEntry| lossy.requests.contains(&entry.request);
        for entry in ledger.entries.iter().filter(|entry| !is_lossy(entry)) {
            self.calls += 1;
            self.refused += usize::from(entry.status >= 400);
            self.issued += entry.issued.len();
            let accepted = entry.returned.iter().filter(|back| back.verdict == Verdict::Accepted);
            self.accepted += accepted.count();
            self.lost += entry.lost;
        }
        for entry in ledger.entries.iter().filter(is_lossy) {
            let is_refused = entry.status >= 400;
            self.lossy_calls += 1;
            self.lossy_refused += usize::from(is_refused);
            self.lossy_degraded += usize::from(!is_refused && entry.lost > 0);
        }
    }
}
