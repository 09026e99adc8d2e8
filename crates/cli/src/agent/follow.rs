//! A run goes on, here or in another process, and is watched while it does.

use std::time::Duration;

use anyhow::Context as _;
use throughline_agent::{RunError, RunStatus};
use throughline_core::{Json, LogId, Record, RunEvent, Store as _, StoreError, unpack};
use tokio::time::sleep;

use super::House;
use super::live::Live;
use crate::failure::Failure;
use crate::store::Signals;

/// How many records are read at a time.
const PAGE: u32 = 256;

/// Why nobody goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The run stands so.
    At(RunStatus),
    /// Somebody asked to stop.
    Stopped,
}

/// Goes on with a run until it rests, and shows what it tells. `seen` is the last record that was shown.
pub(crate) async fn follow(
    house: &House,
    run: &LogId,
    seen: &mut u64,
    live: &mut Live,
) -> Result<Rest, Failure> {
    let mut signals = Signals::new().context("signals cannot be waited for")?;
    loop {
        let outcome = {
            let mut driving = std::pin::pin!(house.runner.drive(&house.tenant, run));
            loop {
                tokio::select! {
                    told = next(house, run, *seen) => show(told?, seen, live)?,
                    outcome = &mut driving => break Some(outcome),
                    () = signals.asked_to_stop() => break None,
                }
            }
        };
        let Some(outcome) = outcome else {
            free(house, run).await;
            live.end()?;
            return Ok(Rest::Stopped);
        };
        show_rest(house, run, seen, live).await?;
        match outcome {
            Ok(status) => {
                live.end()?;
                return Ok(Rest::At(status));
            }
            // Another process is at it: it is watched, and taken over when that one is gone.
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                let time = sleep(Duration::from_millis(left_ms.max(50)));
                let mut time = std::pin::pin!(time);
                loop {
                    let status = house.runner.status(&house.tenant, run).await;
                    let status = status.map_err(|error| house.failed(error))?;
                    if status != RunStatus::Running {
                        show_rest(house, run, seen, live).await?;
                        live.end()?;
                        return Ok(Rest::At(status));
                    }
                    tokio::select! {
                        told = next(house, run, *seen) => show(told?, seen, live)?,
                        () = &mut time => break,
                        () = signals.asked_to_stop() => {
                            live.end()?;
                            return Ok(Rest::Stopped);
                        }
                    }
                }
            }
            Err(error) => return Err(house.failed(error)),
        }
    }
}

/// The records behind that one, as soon as there are any.
async fn next(house: &House, run: &LogId, seen: u64) -> Result<Vec<Record>, Failure> {
    let store = &house.journal;
    let read = async {
        store.wait(&house.tenant, run, seen).await?;
        store.read(&house.tenant, run, seen, PAGE).await
    };
    read.await.map_err(|error| house.failed(error.into()))
}

async fn show_rest(
    house: &House,
    run: &LogId,
    seen: &mut u64,
    live: &mut Live,
) -> Result<(), Failure> {
    loop {
        let rest = house.journal.read(&house.tenant, run, *seen, PAGE).await;
        let rest = rest.map_err(|error| house.failed(error.into()))?;
        if rest.is_empty() {
            return Ok(());
        }
        show(rest, seen, live)?;
    }
}

fn show(records: Vec<Record>, seen: &mut u64, live: &mut Live) -> Result<(), Failure> {
    for record in records {
        *seen = record.seq;
        for event in events_of(&record) {
            live.tell(&event)?;
        }
    }
    Ok(())
}

/// The last event of that kind that a run told.
pub(crate) async fn last_event(
    house: &House,
    run: &LogId,
    is_it: impl Fn(&RunEvent) -> bool,
) -> Result<Option<RunEvent>, Failure> {
    let (mut found, mut seen) = (None, 0);
    loop {
        let records = house.journal.read(&house.tenant, run, seen, PAGE).await;
        let records = records.map_err(|error| house.failed(error.into()))?;
        let Some(last) = records.last() else { return Ok(found) };
        seen = last.seq;
        found = records.iter().flat_map(events_of).filter(&is_it).last().or(found);
    }
}

/// The events that a record holds, as far as they can be read.
pub(crate) fn events_of(record: &Record) -> Vec<RunEvent> {
    let events = unpack(record).unwrap_or_default().into_iter();
    let events = events.filter_map(|(_, event)| Json::parse(event).ok());
    events.filter_map(|event| RunEvent::parse(&event).ok()).collect()
}

/// Gives back the run that was dropped in the middle, so that nobody has to wait for it.
async fn free(house: &House, run: &LogId) {
    let (store, runner) = (&house.journal, &house.runner);
    let lease = store.lease(&house.tenant, run, &runner.owner, runner.lease).await;
    if let Ok(lease) = lease {
        drop(store.release(&house.tenant, run, lease.fence).await);
    }
}
