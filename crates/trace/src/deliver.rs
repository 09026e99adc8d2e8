//! Delivers batches to all sinks, with retries. If a sink fails, the trace is marked as partial and
//! the other sinks receive the new status.

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod deliver_tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use throughline_json::Name;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::session::{Status, TraceBatch};
use crate::sink::{Retry, Sink, SinkError};

/// Attribute of the run's own span that contains the trace status.
const STATUS: &str = "throughline.trace.status";

const TRIES: u32 = 4;
/// Upper bound of the delay before the first retry. The bound doubles with each retry, and the
/// actual delay is a random value below it.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(4);
/// Maximum delay that a sink may request before a retry.
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

/// Outcome of delivering a trace to all sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryReport {
    /// Id of the delivered session.
    pub session: Name,
    /// Final status of the run and of the delivery.
    pub status: Status,
    /// Error messages of the failed sinks, each starting with the sink's name.
    pub errors: Vec<Name>,
    /// Number of spans that were not delivered, summed over all sinks.
    pub dropped: u64,
}

/// Delivers the last batch of a trace, or the whole trace. If a sink fails, the others receive the
/// batch again with the status `partial`. Each delivery to a sink may take at most `patience`.
pub async fn send(
    sinks: &[Arc<dyn Sink>],
    mut parcel: TraceBatch,
    patience: Duration,
) -> DeliveryReport {
    mark_status(&mut parcel);
    let failed = deliver(sinks, &parcel, patience, &BTreeSet::new()).await;
    let dropped = parcel.spans.len() as u64 * failed.len() as u64;
    if !failed.is_empty() {
        for (_, error) in &failed {
            if !parcel.errors.contains(error) {
                parcel.errors.push(error.clone());
            }
        }
        (parcel.status, parcel.is_again) = (parcel.status.degraded(), true);
        mark_status(&mut parcel);
        let deaf = failed.iter().map(|(place, _)| *place).collect();
        drop(deliver(sinks, &parcel, patience, &deaf).await);
    }
    let TraceBatch { session, status, errors, .. } = parcel;
    DeliveryReport { session: session.id.clone(), status, errors, dropped }
}

/// Sets the trace status as an attribute of the run's own span.
fn mark_status(parcel: &mut TraceBatch) {
    let status = parcel.status.as_str();
    let Some(agent) = &mut parcel.agent else { return };
    agent.attributes.retain(|(key, _)| *key != STATUS);
    agent.add(STATUS, status);
}

/// Delivers a batch to all sinks in parallel, except those whose index is in `deaf`. Returns the
/// index and error of each failed sink.
pub(crate) async fn deliver(
    sinks: &[Arc<dyn Sink>],
    parcel: &TraceBatch,
    patience: Duration,
    deaf: &BTreeSet<usize>,
) -> Vec<(usize, Name)> {
    let parcel = Arc::new(parcel.clone());
    let mut work = JoinSet::new();
    for (place, sink) in sinks.iter().enumerate().filter(|(place, _)| !deaf.contains(place)) {
        let (sink, parcel) = (Arc::clone(sink), Arc::clone(&parcel));
        work.spawn(async move {
            // A sink that panics counts as failed.
            let name = sink.name().to_owned();
            let taking = async move { with_retries(|| sink.send(&parcel)).await };
            let taking = tokio::spawn(timeout(patience, taking));
            let taken = match taking.await {
                Ok(Ok(taken)) => taken,
                Ok(Err(_)) => Err(SinkError::permanent("the delivery timed out")),
                Err(_) => Err(SinkError::permanent("the sink panicked")),
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

/// Retries until the sink accepts the batch, fails permanently, or all attempts are used.
pub(crate) async fn with_retries<T>(take: impl Fn() -> T) -> Result<(), SinkError>
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
            Err(_) => SinkError::temporary("the delivery timed out"),
        };
        let pause = match error.again {
            Retry::Never => return Err(error),
            Retry::Soon => jittered(wait),
            Retry::After(asked) => asked.min(MAX_REQUESTED_WAIT) + jittered(FIRST_WAIT),
        };
        if tried == TRIES {
            return Err(error);
        }
        sleep(pause).await;
        wait = (wait * 2).min(MAX_WAIT);
        tried += 1;
    }
}

/// Returns a random delay up to `most`, so that retries from several processes are spread out.
fn jittered(most: Duration) -> Duration {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        return most;
    }
    most.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
