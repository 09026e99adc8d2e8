//! Delivers batches to all sinks, with retries. If a sink fails, the trace is marked as partial and
//! the other sinks receive this status.

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
    mut batch: TraceBatch,
    patience: Duration,
) -> DeliveryReport {
    mark_status(&mut batch);
    let failed = deliver(sinks, &batch, patience, &BTreeSet::new()).await;
    let dropped = batch.spans.len() as u64 * failed.len() as u64;
    if !failed.is_empty() {
        for (_, error) in &failed {
            if !batch.errors.contains(error) {
                batch.errors.push(error.clone());
            }
        }
        (batch.status, batch.is_again) = (batch.status.degraded(), true);
        mark_status(&mut batch);
        let excluded = failed.iter().map(|(index, _)| *index).collect();
        drop(deliver(sinks, &batch, patience, &excluded).await);
    }
    let TraceBatch { session, status, errors, .. } = batch;
    DeliveryReport { session: session.id.clone(), status, errors, dropped }
}

/// Sets the trace status as an attribute of the run's own span.
fn mark_status(batch: &mut TraceBatch) {
    let status = batch.status.as_str();
    let Some(agent) = &mut batch.agent else { return };
    agent.attributes.retain(|(key, _)| *key != STATUS);
    agent.add(STATUS, status);
}

/// Delivers a batch to all sinks in parallel, except those whose index is in `excluded`. Returns
/// the index and error of each failed sink.
pub(crate) async fn deliver(
    sinks: &[Arc<dyn Sink>],
    batch: &TraceBatch,
    patience: Duration,
    excluded: &BTreeSet<usize>,
) -> Vec<(usize, Name)> {
    let batch = Arc::new(batch.clone());
    let mut tasks = JoinSet::new();
    for (index, sink) in sinks.iter().enumerate().filter(|(index, _)| !excluded.contains(index)) {
        let (sink, batch) = (Arc::clone(sink), Arc::clone(&batch));
        tasks.spawn(async move {
            // A sink that panics counts as failed.
            let name = sink.name().to_owned();
            let sending = async move { with_retries(|| sink.send(&batch)).await };
            let sending = tokio::spawn(timeout(patience, sending));
            let result = match sending.await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(SinkError::permanent("the delivery timed out")),
                Err(_) => Err(SinkError::permanent("the sink panicked")),
            };
            result.err().map(|error| (index, Name::from(format!("{name}: {error}"))))
        });
    }
    let mut errors: Vec<(usize, Name)> = Vec::new();
    while let Some(report) = tasks.join_next().await {
        errors.extend(report.ok().flatten());
    }
    errors.sort();
    errors
}

/// Retries `take` until it succeeds, it fails permanently, or all attempts are used.
pub(crate) async fn with_retries<T>(attempt: impl Fn() -> T) -> Result<(), SinkError>
where
    T: Future<Output = Result<(), SinkError>>,
{
    let mut wait = FIRST_WAIT;
    let mut attempts = 1;
    loop {
        let result = timeout(PATIENCE, attempt()).await;
        let error = match result {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => SinkError::temporary("the delivery timed out"),
        };
        let pause = match error.again {
            Retry::Never => return Err(error),
            Retry::Soon => jittered(wait),
            Retry::After(delay) => delay.min(MAX_REQUESTED_WAIT) + jittered(FIRST_WAIT),
        };
        if attempts == TRIES {
            return Err(error);
        }
        sleep(pause).await;
        wait = (wait * 2).min(MAX_WAIT);
        attempts += 1;
    }
}

/// Returns a random delay up to `limit`, so that retries from several processes are spread out.
fn jittered(limit: Duration) -> Duration {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        return limit;
    }
    limit.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
