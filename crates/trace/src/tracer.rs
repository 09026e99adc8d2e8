//! Runs are followed while they go on, and told. Nothing waits for it: a run ends when it ends, and its trace a little later.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use throughline_core::{Clock, LogId, Name, Store, StoreError, Tenant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::deliver::{Delivered, Status, deliver, send};
use crate::fold::{Fold, Telling};
use crate::session::{Parcel, Phase, Session, session_id};
use crate::sink::Sink;
use crate::span::Span;

/// How many records are read at a time.
const PAGE: u32 = 256;

/// How a trace travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// All of it, when the run is over.
    #[default]
    Batched,
    /// Piece by piece, as the run goes on.
    Streaming,
}

impl Mode {
    /// All of them, by their words.
    pub const ALL: &'static [(&'static str, Self)] =
        &[("batched", Self::Batched), ("streaming", Self::Streaming)];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Batched => "batched",
            Self::Streaming => "streaming",
        }
    }
}

/// What a tracer needs.
pub struct TracerOptions {
    /// Where the runs are.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How traces travel.
    pub mode: Mode,
    /// How much is told.
    pub telling: Telling,
    /// Who is told.
    pub sinks: Vec<Arc<dyn Sink>>,
    /// How long a sink may take for one parcel, with all its tries.
    pub patience: Duration,
}

/// Follows runs, and tells their traces.
#[derive(Clone)]
pub struct Tracer {
    options: Arc<TracerOptions>,
    work: Arc<Mutex<JoinSet<Delivered>>>,
}

/// A run that is followed for as long as this is held.
pub struct Following {
    _at_work: oneshot::Sender<()>,
}

impl Tracer {
    /// A tracer for all runs that it is told of.
    pub fn new(options: TracerOptions) -> Self {
        Self { options: Arc::new(options), work: Arc::default() }
    }

    /// Follows a run that this process goes on with, until it rests. What its log said up to that record, whoever went on with it
    /// before has told. It returns at once; dropping what it gives says that this process goes on no longer.
    pub fn follow(&self, tenant: &Tenant, run: &LogId, told: u64) -> Following {
        let (at_work, rests) = oneshot::channel();
        let options = Arc::clone(&self.options);
        let (tenant, run) = (tenant.clone(), run.clone());
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while work.try_join_next().is_some() {}
        work.spawn(async move {
            let session = session_id(&tenant, &run);
            let told = follow(&options, &tenant, &run, told, rests).await;
            told.unwrap_or_else(|error| Delivered {
                session,
                status: Status::Partial,
                errors: vec![Name::from(format!("the run's log cannot be read: {error}"))],
                dropped: 0,
            })
        });
        Following { _at_work: at_work }
    }

    /// Waits until all that was followed is told: what came of it. Whoever is told twice as slowly as is allowed is not waited for.
    pub async fn finish(&self) -> Vec<Delivered> {
        let mut work =
            std::mem::take(&mut *self.work.lock().unwrap_or_else(PoisonError::into_inner));
        let until = Instant::now() + 4 * self.options.patience;
        let mut all = Vec::new();
        loop {
            match timeout_at(until, work.join_next()).await {
                Ok(None) => return all,
                Ok(Some(done)) => all.extend(done.ok()),
                // Whoever is slower than that is not told.
                Err(_) => {
                    let left = work.len();
                    let late = Name::from("there was no time left to tell it");
                    let late = Delivered {
                        status: Status::Partial,
                        errors: vec![late],
                        ..Delivered::default()
                    };
                    all.extend(std::iter::repeat_n(late, left));
                    work.shutdown().await;
                    return all;
                }
            }
        }
    }
}

/// Reads a run's log as it grows, and tells it.
async fn follow(
    options: &TracerOptions,
    tenant: &Tenant,
    run: &LogId,
    told: u64,
    mut rests: oneshot::Receiver<()>,
) -> Result<Delivered, StoreError> {
    let mut teller = Teller::new(options, tenant, run).await?;
    let mut is_resting = false;
    loop {
        let records = options.store.read(tenant, run, teller.fold.seen(), PAGE).await?;
        for record in &records {
            let spans = teller.fold.record(record);
            let is_new = record.seq > told || options.mode == Mode::Batched;
            teller.take(spans, is_new);
        }
        teller.send_some().await;
        if teller.fold.ended().is_some() {
            return Ok(teller.end().await);
        }
        match (records.is_empty(), is_resting) {
            (false, _) => {}
            // All that was kept is read.
            (true, true) => return Ok(teller.rest()),
            (true, false) => tokio::select! {
                more = options.store.wait(tenant, run, teller.fold.seen()) => more?,
                _ = &mut rests => is_resting = true,
            },
        }
    }
}

/// All that a run's log tells, as one parcel: for whoever wants a trace later.
pub async fn session_of(
    store: &dyn Store,
    tenant: &Tenant,
    run: &LogId,
    telling: Telling,
    clock: &dyn Clock,
) -> Result<Parcel, StoreError> {
    let head = store.log(tenant, run).await?;
    let missing = || StoreError::NotFound { what: "run", name: run.0.clone() };
    let head = head.ok_or_else(missing)?;
    let thread = head.of.ok_or_else(missing)?;
    let log_data = telling.log_data;
    let session_thread = telling.thread_id.clone().unwrap_or_else(|| thread.0.clone());
    let mut fold = Fold::new(tenant, run, &thread, telling);
    let mut spans = Vec::new();
    loop {
        let records = store.read(tenant, run, fold.seen(), PAGE).await?;
        if records.is_empty() {
            break;
        }
        for record in &records {
            spans.extend(fold.record(record));
        }
    }
    let session = Session {
        id: session_id(tenant, run),
        trace: fold.trace(),
        root: fold.root(),
        thread: session_thread,
        log_data,
        mode: Mode::Batched,
        sinks: Vec::new(),
    };
    // Where the run's last words are no more, its head knows how it ended.
    let over =
        head.status.filter(|status| matches!(&**status, "completed" | "failed" | "cancelled"));
    let ended = fold.ended().or(over.as_ref());
    let status = status_of(ended);
    let agent = fold.agent(if ended.is_some() { jiff::Timestamp::MIN } else { clock.now() });
    let (phase, errors) = (Phase::Whole, Vec::new());
    let session = Arc::new(session);
    Ok(Parcel { session, phase, before: 0, spans, agent, status, errors, is_again: false })
}

fn status_of(ended: Option<&Name>) -> Status {
    match ended.map(|ended| &**ended) {
        None => Status::Running,
        Some("completed") => Status::Success,
        Some(_) => Status::Error,
    }
}

/// Tells one run's trace.
struct Teller<'o> {
    options: &'o TracerOptions,
    session: Arc<Session>,
    fold: Fold,
    /// What is not told yet; in a batch, all of it.
    spans: Vec<Span>,
    /// How many spans were told.
    before: u64,
    has_begun: bool,
    errors: Vec<Name>,
    dropped: u64,
    /// The sinks that failed, by their places.
    deaf: BTreeSet<usize>,
}

impl<'o> Teller<'o> {
    async fn new(
        options: &'o TracerOptions,
        tenant: &Tenant,
        run: &LogId,
    ) -> Result<Self, StoreError> {
        let head = options.store.log(tenant, run).await?;
        let thread = head.and_then(|head| head.of).unwrap_or_else(|| run.clone());
        let fold = Fold::new(tenant, run, &thread, options.telling.clone());
        let told_as = options.telling.thread_id.clone();
        let session = Session {
            id: session_id(tenant, run),
            trace: fold.trace(),
            root: fold.root(),
            thread: told_as.unwrap_or(thread.0),
            log_data: options.telling.log_data,
            mode: options.mode,
            sinks: options.sinks.iter().map(|sink| Name::from(sink.name())).collect(),
        };
        Ok(Self {
            options,
            session: Arc::new(session),
            fold,
            spans: Vec::new(),
            before: 0,
            has_begun: false,
            errors: Vec::new(),
            dropped: 0,
            deaf: BTreeSet::new(),
        })
    }

    fn take(&mut self, spans: Vec<Span>, is_new: bool) {
        if is_new {
            self.spans.extend(spans);
        } else {
            self.before += spans.len() as u64;
            self.has_begun = true;
        }
    }

    fn parcel(&mut self, phase: Phase, status: Status) -> Parcel {
        let spans = std::mem::take(&mut self.spans);
        let is_last = matches!(phase, Phase::Whole | Phase::End);
        let agent = if is_last { self.fold.agent(jiff::Timestamp::MIN) } else { None };
        Parcel {
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

    /// Tells what is new, where that is told at once.
    async fn send_some(&mut self) {
        if self.options.mode == Mode::Batched || self.spans.is_empty() {
            return;
        }
        let phase = if self.has_begun { Phase::More } else { Phase::Start };
        self.has_begun = true;
        let parcel = self.parcel(phase, Status::Running);
        self.send(&parcel).await;
        self.before += parcel.spans.len() as u64;
    }

    async fn send(&mut self, parcel: &Parcel) {
        let TracerOptions { sinks, patience, .. } = self.options;
        let failed = deliver(sinks, parcel, *patience, &self.deaf).await;
        self.dropped += parcel.spans.len() as u64 * (self.deaf.len() + failed.len()) as u64;
        for (place, error) in failed {
            // It is left alone until the end, so that it does not hold up the others.
            self.deaf.insert(place);
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        }
    }

    /// The run is over: the last word, and the same once more where somebody failed to hear it.
    async fn end(mut self) -> Delivered {
        let phase = if self.options.mode == Mode::Batched { Phase::Whole } else { Phase::End };
        let mut status = status_of(self.fold.ended());
        if !self.errors.is_empty() {
            status = status.degraded();
        }
        let parcel = self.parcel(phase, status);
        let mut delivered = send(&self.options.sinks, parcel, self.options.patience).await;
        delivered.dropped += self.dropped;
        delivered
    }

    /// The run waits for somebody. In a batch, whoever ends it tells all of it.
    fn rest(self) -> Delivered {
        let status = if self.errors.is_empty() { Status::Running } else { Status::Partial };
        self.delivered(status)
    }

    fn delivered(self, status: Status) -> Delivered {
        let session = self.session.id.clone();
        Delivered { session, status, errors: self.errors, dropped: self.dropped }
    }
}
