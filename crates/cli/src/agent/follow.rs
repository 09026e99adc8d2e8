//! Drives a run in this process, or follows a run that another process drives. Prints the run's
//! events in both cases.

use std::pin::pin;
use std::time::Duration;

use throughline_agent::{RunError, RunStatus};
use throughline_core::{LogId, Record, Store as _, StoreError, unpack_events};
use throughline_json::Json;
use throughline_spec::RunEvent;
use tokio::time::sleep;

use super::AgentContext;
use super::event_printer::EventPrinter;
use crate::clock::instant;
use crate::print::failure::Result;
use crate::store::Signals;

/// A run whose events are printed.
pub(crate) struct FollowedRun<'c> {
    pub(crate) context: &'c AgentContext,
    pub(crate) run: LogId,
    pub(crate) seen: u64,
    pub(crate) printer: EventPrinter,
}

impl FollowedRun<'_> {
    /// Drives the run until it pauses or ends, and prints its events. Returns the run status, or
    /// `None` if the user interrupted the command.
    pub(crate) async fn follow(&mut self) -> Result<Option<RunStatus>> {
        let status = self.drive().await?;
        self.printer.end()?;
        Ok(status)
    }

    async fn drive(&mut self) -> Result<Option<RunStatus>> {
        let AgentContext { runner, tenant, .. } = self.context;
        let run = self.run.clone();
        let mut signals = Signals::new()?;
        loop {
            let outcome = {
                let mut driving = pin!(runner.drive(tenant, &run));
                loop {
                    tokio::select! {
                        records = self.next_records() => self.print(records?)?,
                        outcome = &mut driving => break Some(outcome),
                        () = self.printer.next_frame() => self.printer.show_running(),
                        () = signals.wait_for_stop() => break None,
                    }
                }
            };
            let Some(outcome) = outcome else {
                self.release_lease().await;
                return Ok(None);
            };
            self.print_rest().await?;
            let left_ms = match outcome {
                // Another process owns the run: print its events, and take over when its lease
                // expires.
                Err(RunError::Store(StoreError::Held { left_ms, .. })) => left_ms.max(50),
                outcome => return self.context.run(async { outcome }).await.map(Some),
            };
            let lease = Duration::from_millis(left_ms);
            let held = instant();
            let mut expiry = pin!(sleep(lease));
            loop {
                let status = self.context.run(runner.status(tenant, &run)).await?;
                if status != RunStatus::Running {
                    self.print_rest().await?;
                    return Ok(Some(status));
                }
                tokio::select! {
                    records = self.next_records() => self.print(records?)?,
                    () = &mut expiry => break,
                    () = self.printer.next_frame() => {
                        self.printer.show_lease(lease.saturating_sub(held.elapsed()));
                    }
                    () = signals.wait_for_stop() => return Ok(None),
                }
            }
        }
    }

    /// Waits until the log has records that are not printed yet, and returns these records.
    async fn next_records(&self) -> Result<Vec<Record>> {
        let context = self.context;
        context.run(context.journal.wait(&context.tenant, &self.run, self.seen)).await?;
        context.records_after(&self.run, self.seen).await
    }

    async fn print_rest(&mut self) -> Result<()> {
        loop {
            let rest = self.context.records_after(&self.run, self.seen).await?;
            if rest.is_empty() {
                return Ok(());
            }
            self.print(rest)?;
        }
    }

    fn print(&mut self, records: Vec<Record>) -> Result<()> {
        for record in records {
            self.seen = record.seq;
            events_of(&record).iter().try_for_each(|event| self.printer.print(event))?;
        }
        Ok(())
    }

    /// Releases the lease after driving was interrupted, so that other processes need not wait
    /// until the lease expires.
    async fn release_lease(&self) {
        let AgentContext { journal, runner, tenant, .. } = self.context;
        let lease = journal.lease(tenant, &self.run, &runner.owner, runner.lease).await;
        if let Ok(lease) = lease {
            drop(journal.release(tenant, &self.run, lease.fence).await);
        }
    }
}

/// Returns the last event in a run's log that satisfies a predicate.
pub(crate) async fn last_event(
    context: &AgentContext,
    run: &LogId,
    matches: impl Fn(&RunEvent) -> bool,
) -> Result<Option<RunEvent>> {
    let records = context.records(run).await?;
    Ok(records.iter().rev().find_map(|record| events_of(record).into_iter().rfind(&matches)))
}

/// Decodes the events in a record, and skips events that cannot be decoded.
pub(crate) fn events_of(record: &Record) -> Vec<RunEvent> {
    let events = unpack_events(record).unwrap_or_default().into_iter();
    let events = events.filter_map(|(_, event)| Json::parse(event).ok());
    events.filter_map(|event| RunEvent::parse(&event).ok()).collect()
}
