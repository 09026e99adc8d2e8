//! Sinks of one's own: what they are told, and what becomes of a trace when they fail, panic or never answer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{EndedCall, Name, TraceParent};

use crate::calls::CallTracer;
use crate::deliver::{Delivered, Status, send};
use crate::session::{Parcel, Phase, Session};
use crate::sink::{Sink, SinkError, Taking};
use crate::span::{Span, SpanKind, Value};
use crate::tracer::Mode;

/// How a sink behaves.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Takes,
    /// It fails so often, and then takes it.
    FailsFirst(u32),
    FailsForGood,
    Panics,
    NeverAnswers,
}

/// A sink of one's own, which remembers what it was told.
struct Own {
    way: Way,
    tries: AtomicU32,
    told: Mutex<Vec<Parcel>>,
}

impl Own {
    fn new(way: Way) -> Arc<Self> {
        Arc::new(Self { way, tries: AtomicU32::new(0), told: Mutex::default() })
    }

    /// How the trace stood each time that it was told, and whether that was again.
    fn heard(&self) -> Vec<(Status, bool)> {
        self.told.lock().unwrap().iter().map(|parcel| (parcel.status, parcel.is_again)).collect()
    }
}

impl Sink for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn take<'a>(&'a self, parcel: &'a Parcel) -> Taking<'a> {
        Box::pin(async move {
            let tried = self.tries.fetch_add(1, Ordering::Relaxed);
            match self.way {
                Way::FailsFirst(times) if tried < times => return Err(SinkError::passing("busy")),
                Way::FailsForGood => return Err(SinkError::lasting("no")),
                Way::Panics => panic!("a sink panics"),
                Way::NeverAnswers => std::future::pending().await,
                Way::Takes | Way::FailsFirst(_) => {}
            }
            self.told.lock().unwrap().push(parcel.clone());
            Ok(())
        })
    }

    fn take_calls<'a>(&'a self, _: &'a [Span]) -> Taking<'a> {
        Box::pin(std::future::pending())
    }
}

fn parcel() -> Parcel {
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
    Parcel {
        session: Arc::new(session),
        phase: Phase::Whole,
        before: 0,
        spans: vec![span(SpanKind::Inference)],
        agent: Some(span(SpanKind::Agent)),
        status: Status::Success,
        errors: Vec::new(),
        is_again: false,
    }
}

async fn sent(sinks: &[&Arc<Own>]) -> Delivered {
    let sinks: Vec<Arc<dyn Sink>> = sinks.iter().map(|sink| Arc::clone(*sink) as _).collect();
    send(&sinks, parcel(), Duration::from_secs(3)).await
}

#[tokio::test]
async fn a_sink_that_fails_now_and_then_is_asked_again() {
    let (steady, shaky) = (Own::new(Way::Takes), Own::new(Way::FailsFirst(2)));
    let delivered = sent(&[&steady, &shaky]).await;
    assert_eq!((delivered.status, delivered.errors.len()), (Status::Success, 0));
    assert_eq!(shaky.tries.load(Ordering::Relaxed), 3);
    assert_eq!(
        (steady.heard(), shaky.heard()),
        (vec![(Status::Success, false)], vec![(Status::Success, false)])
    );
}

#[tokio::test]
async fn whoever_heard_that_all_was_well_hears_that_it_was_not() {
    for (way, problem) in [
        (Way::FailsForGood, "own: no"),
        (Way::Panics, "own: it panicked"),
        (Way::NeverAnswers, "own: it took too long"),
    ] {
        let (steady, bad) = (Own::new(Way::Takes), Own::new(way));
        let delivered = sent(&[&steady, &bad]).await;
        assert_eq!((delivered.status, delivered.dropped), (Status::Partial, 1), "{problem}");
        assert_eq!(delivered.errors, [Name::from(problem)]);
        assert_eq!(steady.heard(), [(Status::Success, false), (Status::Partial, true)]);
        let last = steady.told.lock().unwrap().pop().unwrap();
        let marked = last.agent.unwrap().attributes;
        assert_eq!(marked, [("throughline.trace.status", Value::from("partial"))]);
        assert_eq!(last.errors, delivered.errors);
    }
}

#[tokio::test]
async fn a_queue_that_is_full_drops_and_counts() {
    let tracer = CallTracer::new(vec![Own::new(Way::NeverAnswers) as Arc<dyn Sink>]);
    let own = TraceParent { trace: [1; 16], span: [2; 8], is_sampled: true };
    let call = EndedCall {
        own,
        parent: None,
        took: Duration::ZERO,
        first_byte: None,
        call: None,
        dialect: Name::from("openai-chat"),
        provider: None,
        model: None,
        status: 200,
        usage: None,
        fates: None,
        audit: None,
        problem: None,
    };
    for _ in 0..2000 {
        tracer.call(call.clone(), Timestamp::UNIX_EPOCH);
    }
    // Nobody had a chance to take one off: what fits waits, and the rest is counted.
    assert_eq!(tracer.dropped(), 2000 - 1024);
}
