//! Counts the Fates of all thoughts and Seals, from the store and from the simulators' ledger.

use anyhow::Context as _;
use throughline_agent::is_inbox;
use throughline_core::{Body, Item, LogId, Store as _, kind, restore_items};
use throughline_json::Json;
use throughline_sim::{Ledger, LedgerEntry, Verdict};
use throughline_spec::{RunEvent, RunFold};

use super::lossy::{LossyClient, MISTAKES};
use crate::agent::{AgentContext, events_of};
use crate::print::failure::Result;

#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Thoughts and Seals of the agent's Thread, from the store.
    pub(super) thoughts: Counts,
    pub(super) seals: Counts,
    /// Elision reasons, each with the number of elided thoughts and Seals.
    pub(super) reasons: Vec<(String, usize)>,
    /// Attempts of the agent whose incomplete answer was discarded. A discarded answer contains at
    /// most one Seal.
    pub(super) discarded: usize,
    /// Seals that the gateway restored for the lossy client.
    pub(super) restored: usize,
    /// The ledger's counts of the lossy client's direct requests.
    pub(super) direct: LedgerCounts,
    /// The ledger's counts of the requests that the gateway sent for the lossy client.
    pub(super) gateway: LedgerCounts,
    /// The ledger's counts of the agent's requests.
    pub(super) agent: LedgerCounts,
}

/// Number of thoughts or Seals by Fate.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) captured: usize,
    pub(super) replayed: usize,
    pub(super) elided: usize,
}

/// Counts of the requests of one client, from the simulators' ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LedgerCounts {
    pub(super) requests: usize,
    pub(super) refused: usize,
    /// Requests that were accepted although reasoning was missing.
    pub(super) degraded: usize,
    /// Seals that the simulators issued.
    pub(super) issued: usize,
    /// Seals that were sent back unchanged and accepted.
    pub(super) accepted: usize,
}

impl LedgerCounts {
    fn add(&mut self, entry: &LedgerEntry) {
        let is_refused = entry.status >= 400;
        let accepted = entry.returned.iter().filter(|back| back.verdict == Verdict::Accepted);
        *self = self.plus(Self {
            requests: 1,
            refused: usize::from(is_refused),
            degraded: usize::from(!is_refused && entry.lost > 0),
            issued: entry.issued.len(),
            accepted: accepted.count(),
        });
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            refused: self.refused + other.refused,
            degraded: self.degraded + other.degraded,
            issued: self.issued + other.issued,
            accepted: self.accepted + other.accepted,
        }
    }
}

impl Totals {
    /// Returns the ledger's counts of all requests that Throughline sent.
    pub(super) fn with_throughline(&self) -> LedgerCounts {
        self.gateway.plus(self.agent)
    }

    /// Returns whether the demo succeeded. No Throughline request may be refused or lack a Seal,
    /// and every mistake of the lossy client must be refused or lose reasoning. The store must
    /// contain every Seal that the agent received, except those of discarded answers.
    pub(super) fn is_success(&self) -> bool {
        let own = self.with_throughline();
        own.refused + own.degraded == 0
            && self.restored == MISTAKES.len()
            && self.thoughts.replayed > 0
            && self.direct.refused + self.direct.degraded == MISTAKES.len()
            && (self.seals.captured..=self.seals.captured + self.discarded)
                .contains(&self.agent.issued)
    }

    /// Returns the number of Seals that the agent received in discarded answers.
    pub(super) fn discarded_seals(&self) -> usize {
        self.agent.issued.saturating_sub(self.seals.captured)
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
        let mut fold = RunFold::default();
        for record in &records {
            for event in events_of(record) {
                fold.push(record.at, &event);
                totals.count_replayed(&event);
            }
        }
        totals.discarded += usize::try_from(fold.counts().discarded).unwrap_or(0);
    }
    totals.restored = lossy.results.iter().map(|result| result.gateway.seals).sum();
    totals.count_ledger(ledger, lossy);
    Ok(totals)
}

/// Returns the ids of the runs on a thread, newest first.
async fn runs_of(context: &AgentContext, thread: &LogId) -> Result<Vec<LogId>> {
    let runs = context.journal.runs_of(&context.tenant, thread, None, 512);
    let runs = context.run(runs).await?.into_iter();
    Ok(runs.map(|run| run.log).filter(|run| !is_inbox(run)).collect())
}

async fn items_of(context: &AgentContext, thread: &LogId) -> Result<Vec<Item>> {
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
        self.thoughts.elided += number(event.elided);
        let integer = |value: &Json| number(value.tree().root().u64());
        for (fate, count) in event.seals.iter().flatten() {
            let counter = match &**fate {
                "kept" | "reshaped" => &mut self.seals.replayed,
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

    /// Counts the ledger's entries by client.
    fn count_ledger(&mut self, ledger: &Ledger, lossy: &LossyClient) {
        for entry in &ledger.entries {
            let counts = if lossy.direct.contains(&entry.request) {
                &mut self.direct
            } else if lossy.gateway.contains(&entry.request) {
                &mut self.gateway
            } else {
                &mut self.agent
            };
            counts.add(entry);
        }
    }
}
