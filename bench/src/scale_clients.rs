//! Clients of the load test: open streams, conversations, and requests that need the store.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::conversation::{Conversation, Dialect, Size};
use crate::load::{Connection, Sample};
use crate::reply::Model;
use crate::streams::StreamTail;

/// Number of turns of a conversation. Its client then starts a new conversation.
pub(crate) const TURNS: usize = 10;
/// Number of streams that are opened concurrently, which is less than a listener's backlog.
const OPENING: usize = 100;
/// Delay before a client tries again after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Time between two requests of the same client that need the store.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
const MAX_PROBLEMS: usize = 3;

/// A part of the load test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadStage {
    Steady,
    /// PostgreSQL is stopped.
    Outage,
    Recovered,
    /// All streams have ended, and conversations run at full speed.
    Turns,
}

impl LoadStage {
    pub(crate) const ALL: [Self; 4] = [Self::Steady, Self::Outage, Self::Recovered, Self::Turns];

    fn index(self) -> usize {
        Self::ALL.iter().position(|stage| *stage == self).unwrap_or_default()
    }
}

/// What the clients observed in a stage. A request belongs to the stage in which it ended.
#[derive(Default)]
pub(crate) struct LoadTally {
    sample: Mutex<Sample>,
    turns: AtomicUsize,
    streams: AtomicUsize,
    /// Number of requests that need no stored state and failed.
    pub(crate) failed: AtomicUsize,
}

impl LoadTally {
    /// Returns the latencies of the turns since the last call.
    pub(crate) fn take_sample(&self) -> Sample {
        std::mem::take(&mut *lock(&self.sample))
    }

    /// Returns the number of streams that ended.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    /// Returns the number of turns and streams that ended.
    pub(crate) fn calls(&self) -> usize {
        self.turns.load(Ordering::SeqCst) + self.streams()
    }
}

/// A kind of request that needs the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreProbe {
    /// A model call with a key that has a budget.
    Budget,
    /// A model call with a key that no node has confirmed, sent only during the outage.
    UnconfirmedKey,
    /// A model call with a Seal that no node has issued, sent only during the outage.
    UnknownSeal,
    /// The record of a call.
    CallRecord,
}

impl StoreProbe {
    pub(crate) const ALL: [Self; 4] =
        [Self::Budget, Self::UnconfirmedKey, Self::UnknownSeal, Self::CallRecord];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Budget => "key with a budget",
            Self::UnconfirmedKey => "unconfirmed key",
            Self::UnknownSeal => "unknown Seal",
            Self::CallRecord => "record of a call",
        }
    }

    /// Returns whether the request is sent only during the outage.
    fn is_only_in_outage(self) -> bool {
        matches!(self, Self::UnconfirmedKey | Self::UnknownSeal)
    }
}

/// A request with a Seal that no node has issued.
const UNKNOWN_SEAL: &str = r#"{"model":"claude-probed","max_tokens":1024,"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"EqoBCkgIARABGAIiQLw7issuedElsewhere"},{"type":"text","text":"Hello"}]},{"role":"user","content":"More"}]}"#;

/// Responses to requests that need the store.
#[derive(Default)]
pub(crate) struct ProbeTally {
    /// Number of responses with 503 and `retry-after` during the outage.
    pub(crate) refused: AtomicUsize,
    /// Number of other responses during the outage.
    pub(crate) unexpected: AtomicUsize,
    /// Number of model calls that succeeded, in all stages.
    pub(crate) calls: AtomicUsize,
}

/// API keys of the load test.
pub(crate) struct LoadKeys {
    pub(crate) plain: String,
    pub(crate) budget: String,
    pub(crate) unconfirmed: String,
}

/// The state that all clients share.
pub(crate) struct ScaleLoad {
    pub(crate) nodes: Vec<SocketAddr>,
    pub(crate) keys: LoadKeys,
    stage: AtomicUsize,
    /// Whether PostgreSQL is stopped. The outage stage is longer, because it ends after the start.
    is_down: AtomicBool,
    /// Whether each conversation stays at the gateway of its last turn.
    is_sticky: AtomicBool,
    /// Number of turns in progress at another gateway than that of the turn before.
    switching: AtomicUsize,
    is_ending: AtomicBool,
    pub(crate) tallies: [LoadTally; LoadStage::ALL.len()],
    pub(crate) probes: [ProbeTally; StoreProbe::ALL.len()],
    pub(crate) open_streams: AtomicUsize,
    /// The first errors.
    problems: Mutex<Vec<String>>,
    opening: Semaphore,
}

impl ScaleLoad {
    pub(crate) fn new(nodes: Vec<SocketAddr>, keys: LoadKeys) -> Arc<Self> {
        Arc::new(Self {
            nodes,
            keys,
            stage: AtomicUsize::default(),
            is_down: AtomicBool::default(),
            is_sticky: AtomicBool::default(),
            switching: AtomicUsize::default(),
            is_ending: AtomicBool::default(),
            tallies: Default::default(),
            probes: Default::default(),
            open_streams: AtomicUsize::default(),
            problems: Mutex::default(),
            opening: Semaphore::new(OPENING),
        })
    }

    pub(crate) fn begin(&self, stage: LoadStage) {
        self.stage.store(stage.index(), Ordering::SeqCst);
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Sets whether each conversation stays at the gateway of its last turn. During an outage, only
    /// this gateway knows who issued the Seals of the conversation.
    pub(crate) fn set_sticky(&self, is_sticky: bool) {
        self.is_sticky.store(is_sticky, Ordering::SeqCst);
    }

    /// Whether a turn is in progress at another gateway than that of the turn before.
    pub(crate) fn is_switching(&self) -> bool {
        self.switching.load(Ordering::SeqCst) > 0
    }

    /// Sets whether each client stops after its current request or stream.
    pub(crate) fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::SeqCst);
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    pub(crate) fn tally(&self, stage: LoadStage) -> &LoadTally {
        let [steady, outage, recovered, turns] = &self.tallies;
        match stage {
            LoadStage::Steady => steady,
            LoadStage::Outage => outage,
            LoadStage::Recovered => recovered,
            LoadStage::Turns => turns,
        }
    }

    fn current(&self) -> &LoadTally {
        let stage = LoadStage::ALL.get(self.stage.load(Ordering::SeqCst)).copied();
        self.tally(stage.unwrap_or(LoadStage::Turns))
    }

    fn node(&self, number: usize) -> anyhow::Result<SocketAddr> {
        self.nodes.iter().copied().cycle().nth(number).context("no gateway was started")
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        lock(&self.problems).clone()
    }

    fn record_problem(&self, problem: String) {
        let mut problems = lock(&self.problems);
        if problems.len() < MAX_PROBLEMS {
            problems.push(problem);
        }
    }

    /// Counts a failed request that needs no stored state, and waits before the next request.
    async fn record_failure(&self, problem: &anyhow::Error) {
        self.current().failed.fetch_add(1, Ordering::SeqCst);
        self.record_problem(format!("{problem:#}"));
        tokio::time::sleep(AFTER_FAILURE).await;
    }

    /// Keeps this number of streams open until the load ends.
    pub(crate) fn open_streams(self: &Arc<Self>, count: usize, running: &mut JoinSet<()>) {
        for number in 0..count {
            let load = Arc::clone(self);
            running.spawn(async move {
                while !load.is_ending() {
                    match load.read_stream(number).await {
                        Ok(()) => drop(load.current().streams.fetch_add(1, Ordering::SeqCst)),
                        Err(problem) => load.record_failure(&problem).await,
                    }
                }
            });
        }
    }

    /// Opens a stream and reads it to its end.
    async fn read_stream(&self, number: usize) -> anyhow::Result<()> {
        let (mut body, _connection) = {
            let _permit = self.opening.acquire().await?;
            let address = self.node(number % self.nodes.len())?;
            let mut connection = Connection::open_with_key(address, &self.keys.plain).await?;
            let conversation =
                Conversation::new(Dialect::Messages, Model::Paced, Size::Small, false);
            let response = connection.post(conversation.path(), conversation.request(true)).await?;
            (success(response).await?.into_body(), connection)
        };
        self.open_streams.fetch_add(1, Ordering::SeqCst);
        let result = read_to_end(&mut body).await;
        self.open_streams.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Runs conversations until the load ends. Each client waits for `think` between two turns, and
    /// sends the turns of a conversation to the nodes in turn, unless they are sticky.
    pub(crate) fn run_conversations(
        self: &Arc<Self>,
        count: usize,
        think: Duration,
        running: &mut JoinSet<()>,
    ) {
        for number in 0..count {
            let load = Arc::clone(self);
            running.spawn(async move {
                // The clients do not all send their first turn at the same time.
                tokio::time::sleep(think * number as u32 / count as u32).await;
                while !load.is_ending() {
                    if let Err(problem) = load.run_conversation(number, think).await {
                        load.record_failure(&problem).await;
                    }
                }
            });
        }
    }

    async fn run_conversation(&self, number: usize, think: Duration) -> anyhow::Result<()> {
        let mut connections = Vec::new();
        for address in &self.nodes {
            connections.push(Connection::open_with_key(*address, &self.keys.plain).await?);
        }
        loop {
            let mut conversation =
                Conversation::new(Dialect::Messages, Model::Short, Size::Small, false);
            let mut last = number % connections.len();
            for turn in 0..TURNS {
                if self.is_ending() {
                    return Ok(());
                }
                self.switching.fetch_add(1, Ordering::SeqCst);
                let stays = self.is_sticky.load(Ordering::SeqCst);
                let at = if stays { last } else { (number + turn) % connections.len() };
                if at == last {
                    self.switching.fetch_sub(1, Ordering::SeqCst);
                }
                let connection = connections.get_mut(at).context("no gateway was started")?;
                if connection.is_closed() {
                    let address = self.node(at)?;
                    *connection = Connection::open_with_key(address, &self.keys.plain).await?;
                }
                let mut sample = Sample::default();
                let taken = connection.take_turn(&mut conversation, &mut sample).await;
                if at != last {
                    self.switching.fetch_sub(1, Ordering::SeqCst);
                }
                taken?;
                last = at;
                let tally = self.current();
                tally.turns.fetch_add(1, Ordering::SeqCst);
                lock(&tally.sample).merge(sample);
                tokio::time::sleep(think).await;
            }
        }
    }

    /// Sends requests that need the store to each node, until the load ends.
    pub(crate) fn probe_store(self: &Arc<Self>, running: &mut JoinSet<()>) {
        for (probe, address) in
            StoreProbe::ALL.iter().flat_map(|probe| self.nodes.iter().map(move |at| (*probe, *at)))
        {
            let load = Arc::clone(self);
            running.spawn(async move {
                while !load.is_ending() {
                    let was_down = load.is_down.load(Ordering::SeqCst);
                    if was_down || !probe.is_only_in_outage() {
                        let status = load.send_probe(probe, address).await;
                        let is_down = was_down && load.is_down.load(Ordering::SeqCst);
                        load.record_probe(probe, &status, is_down);
                    }
                    tokio::time::sleep(PROBE_INTERVAL).await;
                }
            });
        }
    }

    /// Sends a request that needs the store. Returns the status, and whether the response contains
    /// `retry-after`.
    async fn send_probe(
        &self,
        probe: StoreProbe,
        address: SocketAddr,
    ) -> anyhow::Result<(StatusCode, bool)> {
        let key = match probe {
            StoreProbe::Budget => &self.keys.budget,
            StoreProbe::UnconfirmedKey => &self.keys.unconfirmed,
            StoreProbe::UnknownSeal | StoreProbe::CallRecord => &self.keys.plain,
        };
        let mut connection = Connection::open_with_key(address, key).await?;
        let response = match probe {
            StoreProbe::Budget | StoreProbe::UnconfirmedKey => {
                let conversation =
                    Conversation::new(Dialect::Messages, Model::Probed, Size::Small, false);
                connection.post(conversation.path(), conversation.request(false)).await?
            }
            StoreProbe::UnknownSeal => {
                connection.post("/v1/messages", Bytes::from_static(UNKNOWN_SEAL.as_bytes())).await?
            }
            StoreProbe::CallRecord => connection.get_response("/v1/throughline/calls/none").await?,
        };
        let result = (response.status(), response.headers().contains_key("retry-after"));
        response.into_body().collect().await?;
        Ok(result)
    }

    fn record_probe(
        &self,
        probe: StoreProbe,
        result: &anyhow::Result<(StatusCode, bool)>,
        is_down: bool,
    ) {
        let [budget, unconfirmed, seal, record] = &self.probes;
        let tally = match probe {
            StoreProbe::Budget => budget,
            StoreProbe::UnconfirmedKey => unconfirmed,
            StoreProbe::UnknownSeal => seal,
            StoreProbe::CallRecord => record,
        };
        match result {
            Ok((StatusCode::SERVICE_UNAVAILABLE, true)) if is_down => {
                tally.refused.fetch_add(1, Ordering::SeqCst);
            }
            Ok((StatusCode::OK, _)) => drop(tally.calls.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
        if is_down && !matches!(result, Ok((StatusCode::SERVICE_UNAVAILABLE, true))) {
            tally.unexpected.fetch_add(1, Ordering::SeqCst);
            self.record_problem(format!("{} during the outage: {result:?}", probe.name()));
        }
    }
}

/// Reads a stream, which must be complete.
async fn read_to_end(body: &mut Incoming) -> anyhow::Result<()> {
    let mut end = StreamTail::default();
    while let Some(frame) = body.frame().await {
        end.read(frame?.data_ref().map_or(&[], Bytes::as_ref));
    }
    anyhow::ensure!(end.is_whole(), "a stream was cut: {end}");
    Ok(())
}

/// Returns the response if it is successful, and its body as an error otherwise.
async fn success(response: Response<Incoming>) -> anyhow::Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::bail!("{status}: {}", String::from_utf8_lossy(&body))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
