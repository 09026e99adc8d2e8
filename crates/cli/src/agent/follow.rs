//! Drives a run in this process, or follows it in another one, and prints its events.

use std::time::Duration;

use anyhow::Context as _;
use throughline_agent::{RunError, RunStatus};
use throughline_core::{LogId, Record, Store as _, StoreError, unpack_events};
use throughline_json::Json;
use throughline_spec::RunEvent;
use tokio::time::sleep;

use super::AgentContext;
use super::event_printer::EventPrinter;
use crate::print::failure::Failure;
use crate::store::Signals;

/// Number of records per read.
const PAGE: u32 = 256;

/// The reason why a followed run is no longer driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    /// The run has this status.
    At(RunStatus),
    /// The user interrupted the command.
    Stopped,
}

/// Drives a run until it pauses or ends, and prints its events. `seen` is the last printed record.
pub(crate) async fn follow(
    house: &AgentContext,
    run: &LogId,
    seen: &mut u64,
    live: &mut EventPrinter,
) -> Result<FollowOutcome, Failure> {
    let mut signals = Signals::new().context("signal handlers cannot be installed")?;
    loop {
        let outcome = {
            let mut driving = std::pin::pin!(house.runner.drive(&house.tenant, run));
            loop {
                tokio::select! {
                    told = next_records(house, run, *seen) => show(told?, seen, live)?,
                    outcome = &mut driving => break Some(outcome),
                    () = signals.wait_for_stop() => break None,
                }
            }
        };
        let Some(outcome) = outcome else {
            release_lease(house, run).await;
            live.end()?;
            return Ok(FollowOutcome::Stopped);
        };
        show_rest(house, run, seen, live).await?;
        match outcome {
            Ok(status) => {
                live.end()?;
                return Ok(FollowOutcome::At(status));
            }
            // Another process owns the run: follow it, and take over when its lease expires.
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                let time = sleep(Duration::from_millis(left_ms.max(50)));
                let mut time = std::pin::pin!(time);
                loop {
                    let status = house.runner.status(&house.tenant, run).await;
                    let status = status.map_err(|error| house.to_failure(error))?;
                    if status != RunStatus::Running {
                        show_rest(house, run, seen, live).await?;
                        live.end()?;
                        return Ok(FollowOutcome::At(status));
                    }
                    tokio::select! {
                        told = next_records(house, run, *seen) => show(told?, seen, live)?,
                        () = &mut time => break,
                        () = signals.wait_for_stop() => {
                            live.end()?;
                            return Ok(FollowOutcome::Stopped);
                        }
                    }
                }
            }
            Err(error) => return Err(house.to_failure(error)),
        }
    }
}

/// Waits for records after `seen` and returns them.
async fn next_records(
    house: &AgentContext,
    run: &LogId,
    seen: u64,
) -> Result<Vec<Record>, Failure> {
    let store = &house.journal;
    let read = async {
        store.wait(&house.tenant, run, seen).await?;
        store.read(&house.tenant, run, seen, PAGE).await
    };
    read.await.map_err(|error| house.to_failure(error.into()))
}

async fn show_rest(
    house: &AgentContext,
    run: &LogId,
    seen: &mut u64,
    live: &mut EventPrinter,
) -> Result<(), Failure> {
    loop {
        let rest = house.journal.read(&house.tenant, run, *seen, PAGE).await;
        let rest = rest.map_err(|error| house.to_failure(error.into()))?;
        if rest.is_empty() {
            return Ok(());
        }
        show(rest, seen, live)?;
    }
}

fn show(records: Vec<Record>, seen: &mut u64, live: &mut EventPrinter) -> Result<(), Failure> {
    for record in records {
        *seen = record.seq;
        for event in events_of(&record) {
            live.tell(&event)?;
        }
    }
    Ok(())
}

/// Returns the last event of a run that matches.
pub(crate) async fn last_event(
    house: &AgentContext,
    run: &LogId,
    is_it: impl Fn(&RunEvent) -> bool,
) -> Result<Option<RunEvent>, Failure> {
    let (mut found, mut seen) = (None, 0);
    loop {
        let records = house.journal.read(&house.tenant, run, seen, PAGE).await;
        let records = records.map_err(|error| house.to_failure(error.into()))?;
        let Some(last) = records.last() else { return Ok(found) };
        seen = last.seq;
        found = records.iter().flat_map(events_of).filter(&is_it).last().or(found);
    }
}

/// Decodes the events of a record and skips unreadable ones.
pub(crate) fn events_of(record: &Record) -> Vec<RunEvent> {
    let events = unpack_events(record).unwrap_or_default().into_iter();
    let events = events.filter_map(|(_, event)| Json::parse(event).ok());
    events.filter_map(|event| RunEvent::parse(&event).ok()).collect()
}

/// Releases the lease of a run that was dropped midway, so that other processes need not wait.
async fn release_lease(house: &AgentContext, run: &LogId) {
    let (store, runner) = (&house.journal, &house.runner);
    let lease = store.lease(&house.tenant, run, &runner.owner, runner.lease).await;
    if let Ok(lease) = lease {
        drop(store.release(&house.tenant, run, lease.fence).await);
    }
}
