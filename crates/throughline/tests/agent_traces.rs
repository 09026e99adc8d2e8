//! Tests that an agent and a run choose the sink and the content of their traces.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline::agent::{self, AgentConfig, RunRequest, Runner};
use throughline::codec::Catalog;
use throughline::models::{
    EventStream, Model, ModelError, ModelFuture, ModelRegistry, ModelStream,
};
use throughline::store::{self, Journal};
use throughline::trace::{
    self, DeliveryMode, SendFuture, Sink, Status, TraceBatch, TraceOptions, TraceSinkConfig,
    TraceSinkType, Tracer, TracerOptions, TracingConfig, TracingMode,
};
use throughline::{Body, Call, Event, Item, ItemPosition, Reply, Role, StopReason, Target, Tenant};
use throughline_testkit::Folder;

const MODEL: &str = "claude-sonnet-5-5";

/// A model that always gives the same answer.
struct OneAnswer(Target);

impl Model for OneAnswer {
    fn target(&self) -> &Target {
        &self.0
    }

    fn send(&self, _: Call) -> ModelFuture<'_> {
        let body = Body::Text("the secret answer".into());
        let reply = Reply {
            id: None,
            items: vec![Item::new("text", ItemPosition::new(0, 0), Role::Assistant, body)],
            stop: StopReason::Done,
            usage: throughline::Usage::default(),
            origin: Arc::clone(&self.0.origin),
            extras: Vec::new(),
        };
        let ended = Ok(Event::Ended(Box::new(reply)));
        let events: EventStream = Box::pin(futures_util::stream::iter([ended]));
        Box::pin(async { Ok(ModelStream { fates: Vec::new(), warnings: Vec::new(), events }) })
    }
}

struct OneModel;

impl ModelRegistry for OneModel {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let target = Catalog::builtin().target_for("anthropic", name, "work").unwrap();
        Ok(Arc::new(OneAnswer(target)))
    }
}

/// A sink that records its batches.
struct RecordingSink(&'static str, Mutex<Vec<TraceBatch>>);

impl RecordingSink {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self(name, Mutex::default()))
    }

    fn take(&self) -> Vec<TraceBatch> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

impl Sink for RecordingSink {
    fn name(&self) -> &str {
        self.0
    }

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        self.1.lock().unwrap().push(batch.clone());
        Box::pin(async { Ok(()) })
    }
}

async fn open_store(folder: &Folder) -> Journal {
    let url = format!("sqlite://{}", folder.join("store.db").display());
    store::open(&url, &store::Options::default()).await.unwrap()
}

/// Drives a run of an agent with these settings, and of a run with its own settings.
async fn drive(runner: &Runner, agent: Option<&TracingConfig>, run: Option<&TracingConfig>) {
    let mut config = AgentConfig::minimal(MODEL);
    config.tracing = agent.map(TracingConfig::json);
    let mut request = RunRequest::new("us", config, "Hello");
    request.casting.tracing = run.map(TracingConfig::json);
    let started = runner.start(request).await.unwrap();
    runner.drive(&Tenant::from("us"), &started.run).await.unwrap();
}

#[tokio::test]
async fn agents_and_runs_choose_their_own_tracing() {
    let folder = Folder::new("agent-traces");
    let journal = open_store(&folder).await;
    let mut runner = agent::runner(&journal, OneModel);
    let (usual, audit) = (RecordingSink::new("usual"), RecordingSink::new("audit"));
    let tracer = Tracer::new(TracerOptions {
        store: Arc::clone(&runner.store),
        clock: Arc::clone(&runner.clock),
        mode: DeliveryMode::Batched,
        content: TraceOptions { log_data: true, ..TraceOptions::default() },
        sinks: vec![Arc::clone(&usual) as Arc<dyn Sink>],
        named_sinks: vec![Arc::clone(&audit) as Arc<dyn Sink>],
        accepts_agent_sinks: false,
        patience: Duration::from_secs(5),
    });
    trace::attach_tracer(&mut runner, &tracer);

    // Without settings, the sinks of the process receive the trace.
    drive(&runner, None, None).await;
    assert_eq!(tracer.finish().await.len(), 1);
    let batches = usual.take();
    assert!(batches[0].to_json().as_str().contains("the secret answer"));
    assert!(audit.take().is_empty());

    // An agent selects a custom sink, the mode, the thread id, and leaves content out.
    let mut config = TracingConfig::new(true);
    config.mode = Some(TracingMode::Streaming);
    config.thread_id = Some("shop".into());
    config.log_data = Some(false);
    config.sink = Some(TraceSinkConfig::named(TraceSinkType::Custom, "audit"));
    assert_eq!(TracingConfig::parse(&config.json()), Ok(config.clone()));
    drive(&runner, Some(&config), None).await;
    let reports = tracer.finish().await;
    assert_eq!(reports[0].status, Status::Success, "{reports:?}");
    let batches = audit.take();
    assert!(batches.len() > 1, "streaming mode sends several batches");
    for batch in &batches {
        assert_eq!(&*batch.session.thread, "shop");
        assert!(!batch.to_json().as_str().contains("the secret answer"));
    }
    assert!(usual.take().is_empty());

    // The settings of a run replace those of its agent.
    drive(&runner, Some(&config), Some(&TracingConfig::new(false))).await;
    assert!(tracer.finish().await.is_empty(), "the run is not traced");
    assert!(audit.take().is_empty() && usual.take().is_empty());

    // A sink by path needs a process that trusts its agents. The run itself is not affected.
    let path = folder.join("traces").display().to_string();
    let file = TraceSinkConfig {
        path: Some(path.into()),
        ..TraceSinkConfig::named(TraceSinkType::File, "")
    };
    let own = TracingConfig { sink: Some(TraceSinkConfig { name: None, ..file }), ..config };
    drive(&runner, Some(&own), None).await;
    let reports = tracer.finish().await;
    assert_eq!(reports[0].status, Status::Partial);
    assert!(reports[0].errors[0].contains("not allowed here"), "{reports:?}");
    let trusting =
        trace::attach(&mut runner, DeliveryMode::Batched, TraceOptions::default(), Vec::new());
    drive(&runner, Some(&own), None).await;
    assert_eq!(trusting.finish().await[0].status, Status::Success);
    assert!(folder.join("traces").is_dir());
}
