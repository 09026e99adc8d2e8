//! Tests custom sinks that succeed, fail, panic or never respond.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{CompletedCall, RequestParameters, TraceParent};
use throughline_json::Name;

use crate::calls::CallTracer;
use crate::deliver::{DeliveryReport, send};
use crate::session::{BatchPhase, Mode, Session, Status, TraceBatch};
use crate::sink::{SendFuture, Sink, SinkError};
use crate::span::{Span, SpanKind, Value};

#[derive(Clone, Copy, PartialEq)]
enum SinkBehaviour {
    Takes,
    /// Fails this many times, then succeeds.
    FailsFirst(u32),
    FailsForGood,
    Panics,
    NeverAnswers,
}

/// A custom sink that records its batches.
struct RecordingSink {
    behaviour: SinkBehaviour,
    tries: AtomicU32,
    batches: Mutex<Vec<TraceBatch>>,
}

impl RecordingSink {
    fn new(behaviour: SinkBehaviour) -> Arc<Self> {
        Arc::new(Self { behaviour, tries: AtomicU32::new(0), batches: Mutex::default() })
    }

    /// Returns the status of each received batch, and whether the batch was a repetition.
    fn statuses(&self) -> Vec<(Status, bool)> {
        self.batches.lock().unwrap().iter().map(|batch| (batch.status, batch.is_again)).collect()
    }
}

impl Sink for RecordingSink {
    fn name(&self) -> &'static str {
        "own"
    }

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        Box::pin(async move {
            let tried = self.tries.fetch_add(1, Ordering::Relaxed);
            match self.behaviour {
                SinkBehaviour::FailsFirst(times) if tried < times => {
                    return Err(SinkError::temporary("busy"));
                }
                SinkBehaviour::FailsForGood => return Err(SinkError::permanent("no")),
                SinkBehaviour::Panics => panic!("a sink panics"),
                SinkBehaviour::NeverAnswers => std::future::pending().await,
                SinkBehaviour::Takes | SinkBehaviour::FailsFirst(_) => {}
            }
            self.batches.lock().unwrap().push(batch.clone());
            Ok(())
        })
    }

    fn send_calls<'a>(&'a self, _: &'a [Span]) -> SendFuture<'a> {
        Box::pin(std::future::pending())
    }
}

fn batch() -> TraceBatch {
    let session = Session {
        id: Name::from("sess_run_1"),
        trace: [1; 16],
        root: [2; 8],
        thread: Name::from("thread_1"),
        log_data: true,
        mode: Mode::Batched,
        sinks: vec![Name::from("own")],
    };
    let span = |kind| Span::new([1; 16], kind, "of a test".to_owned(), Timestamp::UNIX_EPOCH);
    TraceBatch {
        session: Arc::new(session),
        phase: BatchPhase::Whole,
        before: 0,
        spans: vec![span(SpanKind::Inference)],
        agent: Some(span(SpanKind::Agent)),
        status: Status::Success,
        errors: Vec::new(),
        is_again: false,
    }
}

async fn deliver(sinks: &[&Arc<RecordingSink>]) -> DeliveryReport {
    let sinks: Vec<Arc<dyn Sink>> = sinks.iter().map(|sink| Arc::clone(*sink) as _).collect();
    send(&sinks, batch(), Duration::from_secs(3)).await
}

#[tokio::test]
async fn temporary_sink_failure_is_retried() {
    let (steady, shaky) = (
        RecordingSink::new(SinkBehaviour::Takes),
        RecordingSink::new(SinkBehaviour::FailsFirst(2)),
    );
    let delivered = deliver(&[&steady, &shaky]).await;
    assert_eq!((delivered.status, delivered.errors.len()), (Status::Success, 0));
    assert_eq!(shaky.tries.load(Ordering::Relaxed), 3);
    assert_eq!(
        (steady.statuses(), shaky.statuses()),
        (vec![(Status::Success, false)], vec![(Status::Success, false)])
    );
}

#[tokio::test]
async fn other_sinks_are_notified_of_a_partial_trace() {
    for (behaviour, problem) in [
        (SinkBehaviour::FailsForGood, "own: no"),
        (SinkBehaviour::Panics, "own: the sink panicked"),
        (SinkBehaviour::NeverAnswers, "own: the delivery timed out"),
    ] {
        let (steady, bad) =
            (RecordingSink::new(SinkBehaviour::Takes), RecordingSink::new(behaviour));
        let delivered = deliver(&[&steady, &bad]).await;
        assert_eq!((delivered.status, delivered.dropped), (Status::Partial, 1), "{problem}");
        assert_eq!(delivered.errors, [Name::from(problem)]);
        assert_eq!(steady.statuses(), [(Status::Success, false), (Status::Partial, true)]);
        let last = steady.batches.lock().unwrap().pop().unwrap();
        let marked = last.agent.unwrap().attributes;
        assert_eq!(marked, [("throughline.trace.status", Value::from("partial"))]);
        assert_eq!(last.errors, delivered.errors);
    }
}

#[tokio::test]
async fn full_queue_drops_and_counts_calls() {
    let tracer =
        CallTracer::new(vec![RecordingSink::new(SinkBehaviour::NeverAnswers) as Arc<dyn Sink>]);
    let own = TraceParent { trace: [1; 16], span: [2; 8], is_sampled: true };
    let call = CompletedCall {
        own,
        parent: None,
        took: Duration::ZERO,
        first_byte: None,
        call: None,
        dialect: Name::from("openai-chat"),
        provider: None,
        system: None,
        operation: "chat",
        endpoint: None,
        model: None,
        parameters: RequestParameters::default(),
        answered: None,
        response: None,
        finish_reason: None,
        is_stream: false,
        error_type: None,
        status: 200,
        usage: None,
        fates: None,
        audit: None,
        problem: None,
    };
    for _ in 0..2000 {
        tracer.call(call.clone(), Timestamp::UNIX_EPOCH);
    }
    // The background task has not run yet, so the queue fills up and the remaining calls are
    // dropped.
    assert_eq!(tracer.dropped(), 2000 - 1024);
}
