//! Follows runs and delivers their traces. Runs never wait for the delivery.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use throughline_core::{Clock, LogId, Store, StoreError, Tenant};
use throughline_json::{Name, Node, Tree};
use throughline_spec::{
    RedactionPolicy, TraceSinkConfig, TraceSinkType, TracingConfig, TracingMode,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::deliver::{DeliveryReport, deliver, send};
use crate::fold::{Fold, TraceOptions};
use crate::session::{BatchPhase, Mode, Session, Status, TraceBatch, id_scope, session_id};
use crate::sink::{OtlpOptions, Sink, SinkKind, SinkOptions};
use crate::span::{Span, derive_id};

/// Number of records to read at a time.
const PAGE: u32 = 256;

/// Dependencies and settings of a tracer. An agent or a run can change some settings for its own
/// traces; see [`TracingConfig`].
#[derive(Clone)]
pub struct TracerOptions {
    /// Store that contains the run logs.
    pub store: Arc<dyn Store>,
    /// Clock that provides the current time.
    pub clock: Arc<dyn Clock>,
    /// Whether traces are delivered once as a whole or in batches.
    pub mode: Mode,
    /// Settings for the content of spans.
    pub content: TraceOptions,
    /// Destinations for the traces.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// Further sinks that receive only the traces of agents that name them.
    pub named_sinks: Vec<Arc<dyn Sink>>,
    /// Whether agents may also declare their own sinks, by path or URL. Turn this off if untrusted
    /// callers declare agents.
    pub accepts_agent_sinks: bool,
    /// Maximum time per sink and batch, including retries.
    pub patience: Duration,
}

/// Follows runs in the background and delivers their traces.
#[derive(Clone)]
pub struct Tracer {
    options: Arc<RwLock<Arc<TracerOptions>>>,
    work: Arc<Mutex<JoinSet<Option<DeliveryReport>>>>,
}

/// Guard for a followed run. Drop the guard when this process stops driving the run.
pub struct FollowGuard {
    _guard: oneshot::Sender<()>,
}

impl Tracer {
    /// Creates a tracer that does not follow any run yet.
    pub fn new(options: TracerOptions) -> Self {
        Self { options: Arc::new(RwLock::new(Arc::new(options))), work: Arc::default() }
    }

    /// Sets the redaction policy of the runs that are followed from now on.
    pub fn set_redaction(&self, redaction: RedactionPolicy) {
        let mut options = self.options.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = TracerOptions::clone(&options);
        new.content.redaction = redaction;
        *options = Arc::new(new);
    }

    fn options(&self) -> Arc<TracerOptions> {
        Arc::clone(&self.options.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows a run in the background until the run ends, or until this process stops driving it
    /// and drops the guard. Earlier owners of the run have already delivered the spans of the
    /// records up to `delivered`.
    pub fn follow(&self, tenant: &Tenant, run: &LogId, delivered: u64) -> FollowGuard {
        let (guard, released) = oneshot::channel();
        let options = self.options();
        let (tenant, run) = (tenant.clone(), run.clone());
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while work.try_join_next().is_some() {}
        work.spawn(async move {
            let report = match run_options(&options, &tenant, &run).await {
                Ok(None) => return None,
                Ok(Some(options)) => follow(&options, &tenant, &run, delivered, released)
                    .await
                    .map_err(|error| format!("cannot read the run's log: {error}")),
                Err(problem) => Err(problem),
            };
            Some(report.unwrap_or_else(|problem| DeliveryReport {
                session: session_id(&tenant, &run),
                status: Status::Partial,
                errors: vec![Name::from(problem)],
                dropped: 0,
            }))
        });
        FollowGuard { _guard: guard }
    }

    /// Waits until the traces of all followed runs are delivered, but no longer than four times the
    /// configured `patience`. Returns one report per traced run.
    pub async fn finish(&self) -> Vec<DeliveryReport> {
        let mut work =
            std::mem::take(&mut *self.work.lock().unwrap_or_else(PoisonError::into_inner));
        let deadline = Instant::now() + 4 * self.options().patience;
        let mut reports = Vec::new();
        loop {
            match timeout_at(deadline, work.join_next()).await {
                Ok(None) => return reports,
                Ok(Some(report)) => reports.extend(report.ok().flatten()),
                // Traces that are still not delivered are abandoned.
                Err(_) => {
                    let errors = vec!["the trace was not delivered before the deadline".into()];
                    let (status, session) = (Status::Partial, Name::default());
                    let undelivered = DeliveryReport { session, status, errors, dropped: 0 };
                    reports.extend(std::iter::repeat_n(undelivered, work.len()));
                    work.shutdown().await;
                    return reports;
                }
            }
        }
    }
}

/// Returns the trace id of a run, which every process derives in the same way.
pub fn run_trace_id(tenant: &Tenant, run: &LogId) -> [u8; 16] {
    derive_id::<16>(&id_scope(tenant, run))
}

/// Returns the tracing settings that are stored with a run: the run's own settings, or those of its
/// first agent.
pub async fn run_tracing(
    store: &dyn Store,
    tenant: &Tenant,
    run: &LogId,
) -> Result<Option<TracingConfig>, StoreError> {
    let records = store.read(tenant, run, 0, 1).await?;
    let declaration = records.first().and_then(|record| record.content.bytes());
    let tree = declaration.and_then(|declaration| Tree::parse(declaration.clone()).ok());
    let Some(tree) = tree else { return Ok(None) };
    let root = tree.root();
    let of_agent = || {
        let agents = root.get("agents")?;
        agents.get(&root.name_of("first")?)?.present("tracing")
    };
    let document = root.present("tracing").or_else(of_agent).map(Node::json);
    let config = document.map(|document| TracingConfig::parse(&document)).transpose();
    config.map_err(|error| StoreError::Corrupt(error.to_string().into()))
}

/// Returns the options for the trace of one run; `None` if the run is not traced.
async fn run_options(
    options: &TracerOptions,
    tenant: &Tenant,
    run: &LogId,
) -> Result<Option<TracerOptions>, String> {
    let config = run_tracing(&*options.store, tenant, run).await;
    let config = config.map_err(|error| format!("cannot read the run's settings: {error}"))?;
    let mut options = options.clone();
    if let Some(config) = config {
        if !config.enabled {
            return Ok(None);
        }
        options.content = options.content.with_run_settings(&config);
        options.mode = match config.mode {
            Some(TracingMode::Batched) => Mode::Batched,
            Some(TracingMode::Streaming) => Mode::Streaming,
            None => options.mode,
        };
        if let Some(sink) = &config.sink {
            options.sinks = vec![select_sink(&options, sink)?];
        }
    }
    Ok(Some(options).filter(|options| !options.sinks.is_empty()))
}

/// Finds the sink that an agent names, or opens the sink that an agent declares.
fn select_sink(options: &TracerOptions, config: &TraceSinkConfig) -> Result<Arc<dyn Sink>, String> {
    if let Some(name) = &config.name {
        let mut sinks = options.named_sinks.iter().chain(&options.sinks);
        let sink = sinks.find(|sink| sink.name() == &**name).cloned();
        return sink.ok_or_else(|| format!("the agent's sink {name} is not declared here"));
    }
    if !options.accepts_agent_sinks {
        return Err("the agent declares its own sink, which is not allowed here; name a sink of \
                    this process"
            .to_owned());
    }
    let kind = match config.kind {
        TraceSinkType::File => SinkKind::File,
        TraceSinkType::Http => SinkKind::Http,
        TraceSinkType::Cognipeer => SinkKind::Cognipeer,
        TraceSinkType::Otlp => SinkKind::Otlp,
        TraceSinkType::Custom => return Err("a custom sink needs a name".to_owned()),
    };
    let to = config.path.as_ref().or(config.url.as_ref());
    let to = to.map(ToString::to_string).unwrap_or_default();
    let (headers, otlp) = (Vec::new(), OtlpOptions::default());
    let sink = SinkOptions { kind, name: None, to, headers, otlp };
    sink.open().map(Arc::from).map_err(|problem| format!("the agent's sink: {problem}"))
}

/// Reads a run's log as it grows, and delivers the resulting spans.
async fn follow(
    options: &TracerOptions,
    tenant: &Tenant,
    run: &LogId,
    delivered: u64,
    mut released: oneshot::Receiver<()>,
) -> Result<DeliveryReport, StoreError> {
    let mut forwarder = Forwarder::new(options, tenant, run).await?;
    let mut is_released = false;
    loop {
        let records = options.store.read(tenant, run, forwarder.fold.last_seq(), PAGE).await?;
        for record in &records {
            let spans = forwarder.fold.record(record);
            let is_new = record.seq > delivered || options.mode == Mode::Batched;
            forwarder.push_spans(spans, is_new);
        }
        forwarder.send_new_spans().await;
        if forwarder.fold.ended().is_some() {
            return Ok(forwarder.finish().await);
        }
        match (records.is_empty(), is_released) {
            (false, _) => {}
            // All stored records were read.
            (true, true) => return Ok(forwarder.pause()),
            (true, false) => tokio::select! {
                more = options.store.wait(tenant, run, forwarder.fold.last_seq()) => more?,
                _ = &mut released => is_released = true,
            },
        }
    }
}

/// Builds the whole trace of a stored run as one batch, for exports.
pub async fn load_session(
    store: &dyn Store,
    tenant: &Tenant,
    run: &LogId,
    content: TraceOptions,
    clock: &dyn Clock,
) -> Result<TraceBatch, StoreError> {
    let head = store.log(tenant, run).await?;
    let missing = || StoreError::NotFound { what: "run", name: run.0.clone() };
    let head = head.ok_or_else(missing)?;
    let thread = head.of.ok_or_else(missing)?;
    let mut fold = Fold::new(tenant, run, &thread, content);
    let mut spans = Vec::new();
    loop {
        let records = store.read(tenant, run, fold.last_seq(), PAGE).await?;
        if records.is_empty() {
            break;
        }
        for record in &records {
            spans.extend(fold.record(record));
        }
    }
    // If the last events were erased, only the head of the log contains the status.
    let is_over = |status: &Name| matches!(&**status, "completed" | "failed" | "cancelled");
    let over = head.status.filter(is_over);
    let final_status = fold.ended().or(over.as_ref());
    let status = status_of(final_status);
    let agent = fold.agent(if final_status.is_some() { jiff::Timestamp::MIN } else { clock.now() });
    let (phase, errors) = (BatchPhase::Whole, Vec::new());
    let session = Arc::new(fold.session());
    Ok(TraceBatch { session, phase, before: 0, spans, agent, status, errors, is_again: false })
}

fn status_of(final_status: Option<&Name>) -> Status {
    match final_status.map(|final_status| &**final_status) {
        None => Status::Running,
        Some("completed") => Status::Success,
        Some(_) => Status::Error,
    }
}

/// Builds and delivers the trace of one run.
struct Forwarder<'o> {
    options: &'o TracerOptions,
    session: Arc<Session>,
    fold: Fold,
    /// Spans that were not delivered yet. In batched mode, these are all spans of the run.
    spans: Vec<Span>,
    /// Number of spans delivered so far.
    before: u64,
    has_begun: bool,
    errors: Vec<Name>,
    dropped: u64,
    /// Indices of the failed sinks.
    failed_sinks: BTreeSet<usize>,
}

impl<'o> Forwarder<'o> {
    async fn new(
        options: &'o TracerOptions,
        tenant: &Tenant,
        run: &LogId,
    ) -> Result<Self, StoreError> {
        let head = options.store.log(tenant, run).await?;
        let thread = head.and_then(|head| head.of).unwrap_or_else(|| run.clone());
        let fold = Fold::new(tenant, run, &thread, options.content.clone());
        let sinks = options.sinks.iter().map(|sink| Name::from(sink.name())).collect();
        let session = Session { mode: options.mode, sinks, ..fold.session() };
        Ok(Self {
            options,
            session: Arc::new(session),
            fold,
            spans: Vec::new(),
            before: 0,
            has_begun: false,
            errors: Vec::new(),
            dropped: 0,
            failed_sinks: BTreeSet::new(),
        })
    }

    fn push_spans(&mut self, spans: Vec<Span>, is_new: bool) {
        if is_new {
            self.spans.extend(spans);
        } else {
            self.before += spans.len() as u64;
            self.has_begun = true;
        }
    }

    fn batch(&mut self, phase: BatchPhase, status: Status) -> TraceBatch {
        let spans = std::mem::take(&mut self.spans);
        let is_last = matches!(phase, BatchPhase::Whole | BatchPhase::End);
        let agent = if is_last { self.fold.agent(jiff::Timestamp::MIN) } else { None };
        TraceBatch {
            session: Arc::clone(&self.session),
            phase,
            before: self.before,
            spans,
            agent,
            status,
            errors: self.errors.clone(),
            is_again: false,
        }
    }

    /// Delivers new spans if the tracer is in streaming mode.
    async fn send_new_spans(&mut self) {
        if self.options.mode == Mode::Batched || self.spans.is_empty() {
            return;
        }
        let phase = if self.has_begun { BatchPhase::More } else { BatchPhase::Start };
        self.has_begun = true;
        let batch = self.batch(phase, Status::Running);
        self.send(&batch).await;
        self.before += batch.spans.len() as u64;
    }

    async fn send(&mut self, batch: &TraceBatch) {
        let TracerOptions { sinks, patience, .. } = self.options;
        let failed = deliver(sinks, batch, *patience, &self.failed_sinks).await;
        self.dropped += batch.spans.len() as u64 * (self.failed_sinks.len() + failed.len()) as u64;
        for (index, error) in failed {
            // Send nothing more to this sink until the last batch, so that it does not delay the
            // others.
            self.failed_sinks.insert(index);
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        }
    }

    /// Delivers the last batch. If a sink fails, the other sinks receive the batch again with the
    /// status `partial`.
    async fn finish(mut self) -> DeliveryReport {
        let phase =
            if self.options.mode == Mode::Batched { BatchPhase::Whole } else { BatchPhase::End };
        let mut status = status_of(self.fold.ended());
        if !self.errors.is_empty() {
            status = status.degraded();
        }
        let batch = self.batch(phase, status);
        let mut delivered = send(&self.options.sinks, batch, self.options.patience).await;
        delivered.dropped += self.dropped;
        delivered
    }

    /// Stops following a run that has not ended. In batched mode, the process that later ends the
    /// run delivers the whole trace.
    fn pause(self) -> DeliveryReport {
        let status = if self.errors.is_empty() { Status::Running } else { Status::Partial };
        let session = self.session.id.clone();
        DeliveryReport { session, status, errors: self.errors, dropped: self.dropped }
    }
}
