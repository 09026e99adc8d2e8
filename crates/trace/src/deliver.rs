//! A parcel is handed to all sinks, with patience. Who fails makes the trace partial, and all others are told so.

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod deliver_tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::Name;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::session::Parcel;
use crate::sink::{Again, Sink, SinkError};

/// What the run's own span is told to be part of: a trace that stands so.
const STATUS: &str = "throughline.trace.status";

/// How often something is tried.
const TRIES: u32 = 4;
/// The waits between tries: somewhere between nothing and this, doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);
/// The longest that a sink may ask us to wait.
const LONGEST_ASKED: Duration = Duration::from_secs(30);
/// How long a sink may take for one parcel, whatever it is made of.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a trace stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The run is not over.
    #[default]
    Running,
    /// It ended well, and everybody was told.
    Success,
    /// It failed, or was stopped.
    Error,
    /// It ended well, and not everybody was told all of it.
    Partial,
}

impl Status {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Success => "success",
            Status::Error => "error",
            Status::Partial => "partial",
        }
    }

    /// The same, where not everybody was told.
    pub(crate) fn degraded(self) -> Self {
        match self {
            Status::Success => Status::Partial,
            Status::Running | Status::Error | Status::Partial => self,
        }
    }
}

/// What came of telling a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The session.
    pub session: Name,
    /// How the trace ended.
    pub status: Status,
    /// Which sinks failed, and how.
    pub errors: Vec<Name>,
    /// How many spans some sink was not told.
    pub dropped: u64,
}

/// Tells the last word of a trace, or all of it. Where somebody failed to hear it, those who did hear that it is partial.
/// No sink is waited for longer than that.
pub async fn send(sinks: &[Arc<dyn Sink>], mut parcel: Parcel, patience: Duration) -> Delivered {
    mark(&mut parcel);
    let failed = deliver(sinks, &parcel, patience, &BTreeSet::new()).await;
    let dropped = parcel.spans.len() as u64 * failed.len() as u64;
    if !failed.is_empty() {
        for (_, error) in &failed {
            if !parcel.errors.contains(error) {
                parcel.errors.push(error.clone());
            }
        }
        (parcel.status, parcel.is_again) = (parcel.status.degraded(), true);
        mark(&mut parcel);
        let deaf = failed.iter().map(|(place, _)| *place).collect();
        drop(deliver(sinks, &parcel, patience, &deaf).await);
    }
    let Parcel { session, status, errors, .. } = parcel;
    Delivered { session: session.id.clone(), status, errors, dropped }
}

/// The run's own span says how its trace stands.
fn mark(parcel: &mut Parcel) {
    let status = parcel.status.as_str();
    let Some(agent) = &mut parcel.agent else { return };
    agent.attributes.retain(|(key, _)| *key != STATUS);
    agent.add(STATUS, status);
}

/// Hands a parcel to all sinks at once, but for those at some places: which of them failed, by their places, and how.
pub(crate) async fn deliver(
    sinks: &[Arc<dyn Sink>],
    parcel: &Parcel,
    patience: Duration,
    deaf: &BTreeSet<usize>,
) -> Vec<(usize, Name)> {
    let parcel = Arc::new(parcel.clone());
    let mut work = JoinSet::new();
    for (place, sink) in sinks.iter().enumerate().filter(|(place, _)| !deaf.contains(place)) {
        let (sink, parcel) = (Arc::clone(sink), Arc::clone(&parcel));
        work.spawn(async move {
            // A sink that panics is one that failed.
            let name = sink.name().to_owned();
            let taking = async move { patiently(|| sink.take(&parcel)).await };
            let taking = tokio::spawn(timeout(patience, taking));
            let taken = match taking.await {
                Ok(Ok(taken)) => taken,
                Ok(Err(_)) => Err(SinkError::lasting("it took too long")),
                Err(_) => Err(SinkError::lasting("it panicked")),
            };
            taken.err().map(|error| (place, Name::from(format!("{name}: {error}"))))
        });
    }
    let mut errors: Vec<(usize, Name)> = Vec::new();
    while let Some(done) = work.join_next().await {
        errors.extend(done.ok().flatten());
    }
    errors.sort();
    errors
}

/// Tries until it is taken, cannot be, or was tried often enough.
pub(crate) async fn patiently<T>(take: impl Fn() -> T) -> Result<(), SinkError>
where
    T: Future<Output = Result<(), SinkError>>,
{
    let mut wait = FIRST_WAIT;
    let mut tried = 1;
    loop {
        let taken = timeout(PATIENCE, take()).await;
        let error = match taken {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => SinkError::passing("it took too long"),
        };
        let pause = match error.again {
            Again::Never => return Err(error),
            Again::Soon => jittered(wait),
            Again::After(asked) => asked.min(LONGEST_ASKED) + jittered(FIRST_WAIT),
        };
        if tried == TRIES {
            return Err(error);
        }
        sleep(pause).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        tried += 1;
    }
}

/// Somewhere between nothing and that, so that not everybody comes back at once.
fn jittered(most: Duration) -> Duration {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        return most;
    }
    most.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
