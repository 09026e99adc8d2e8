//! Benchmark conversation that grows turn by turn: an agent with a scripted model and one tool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use throughline_agent::{
    AgentConfig, Ports, RunRequest, RunSpec, RunStatus, Runner, Tool, ToolAnswer, ToolContext,
    ToolFuture, ToolSpec,
};
use throughline_codec::{Catalog, events_from_reply};
use throughline_core::{
    Body, Call, CallId, Clock, IdGenerator, Item, ItemPosition as At, LogId, Model, ModelError,
    ModelFuture, ModelRegistry, ModelStream, Reply, Role, StopReason, Store, Target, Tenant,
    ToolCall, Usage,
};
use throughline_json::{Json, Name, Node};
use throughline_store::{Journal, Options, open};

const MODEL: &str = "claude-sonnet-4-5";

/// Returns whether to take measurements. `cargo test` also runs benchmarks, but only to check that
/// they work.
pub(crate) fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Wall-clock time and CPU time of a turn.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

pub(crate) fn median(costs: &[Cost], of: impl Fn(&Cost) -> Duration) -> Duration {
    let mut times: Vec<Duration> = costs.iter().map(of).collect();
    times.sort();
    times[times.len() / 2]
}

/// Returns the CPU time that this process has used.
fn cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = threads.map(|thread| {
        let path = thread.unwrap().path().join("schedstat");
        let line = std::fs::read_to_string(path).unwrap_or_default();
        line.split_whitespace().next().map_or(0, |first| first.parse().unwrap())
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// A folder that is deleted on drop. It is in the build directory, because the system's temporary
/// folder may be in memory.
pub(crate) struct BenchFolder(PathBuf);

impl BenchFolder {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = target.join(format!("bench-turns-{name}-{process}-{count}"));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the total size of all files in bytes.
    fn size(&self) -> u64 {
        let files = std::fs::read_dir(&self.0).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Generates text without repetitions. The LangGraph benchmark uses the same text.
fn text(seed: u64, length: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+";
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let letter = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(LETTERS[usize::try_from(state >> 33).unwrap() % LETTERS.len()])
    };
    (0..length).map(letter).collect()
}

/// Time spent in the model and the tool, which is subtracted from each measurement.
#[derive(Default)]
struct ExternalTime(AtomicU64);

impl ExternalTime {
    fn count(&self, began: Instant) {
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap();
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// Scripted model that calls the tool, answers after receiving the tool's result, and writes
/// summaries on request.
struct ScriptedModel {
    target: Target,
    turn: Arc<AtomicU64>,
    external: Arc<ExternalTime>,
}

impl Model for ScriptedModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        let began = Instant::now();
        let turn = self.turn.load(Ordering::Relaxed);
        let text_item = |text: String| {
            Item::new("text", At::new(0, 0), Role::Assistant, Body::Text(text.into()))
        };
        let last = call.items.last().map(|item| &item.body);
        let (item, stop) = if call.tools.is_empty() {
            (text_item(format!("{{\"summary\":\"{}\"}}", text(turn, 400))), StopReason::Done)
        } else if matches!(last, Some(Body::Result(_))) {
            (text_item(text(turn * 3 + 2, 400)), StopReason::Done)
        } else {
            let id = format!("call_{turn}");
            let call = ToolCall {
                id: CallId::from(id.clone()),
                wire_id: Some(id.into()),
                name: Name::from("look"),
                args: Json::parse(format!("{{\"at\":{turn}}}")).unwrap(),
                custom: false,
            };
            (Item::new("call", At::new(0, 0), Role::Assistant, Body::Call(call)), StopReason::Tools)
        };
        let reply = Reply {
            id: None,
            items: vec![item],
            stop,
            usage: Usage { input: 100, output: 10, ..Usage::default() },
            origin: Arc::clone(&self.target.origin),
            extras: Vec::new(),
        };
        let events: Vec<_> = events_from_reply(&reply).into_iter().map(Ok).collect();
        // Dropping the request is counted as model time, because a real model would send the
        // request.
        drop(call);
        self.external.count(began);
        Box::pin(async move {
            let events = Box::pin(futures_util::stream::iter(events));
            Ok(ModelStream { fates: Vec::new(), warnings: Vec::new(), events })
        })
    }
}

struct OneModel(Arc<ScriptedModel>);

impl ModelRegistry for OneModel {
    fn model(&self, _name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Model>)
    }
}

/// Tool that returns generated text.
struct LookTool(Arc<ExternalTime>);

impl Tool for LookTool {
    fn spec(&self) -> ToolSpec {
        let schema =
            r#"{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}"#;
        ToolSpec::new("look")
            .description("Looks at a place.")
            .schema(Json::parse(schema.to_owned()).unwrap())
    }

    fn run<'a>(&'a self, args: &'a Json, _about: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let began = Instant::now();
            let at = args.tree().root().get("at").and_then(Node::u64).unwrap();
            let found = text(at * 3 + 1, 600);
            self.0.count(began);
            ToolAnswer::text(found)
        })
    }
}

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Default)]
struct SequentialIds(AtomicU64);

impl IdGenerator for SequentialIds {
    fn generate(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

pub(crate) struct Conversation {
    runner: Runner,
    agent: AgentConfig,
    turn: Arc<AtomicU64>,
    external: Arc<ExternalTime>,
    thread: Option<LogId>,
    /// Thread of the conversation that `begin_another` set aside.
    set_aside: Option<LogId>,
    folder: BenchFolder,
    _journal: Journal,
}

impl Conversation {
    /// Creates a conversation. If `summarises` is true, older turns are summarised; otherwise they
    /// are always sent in full.
    pub(crate) async fn new(summarises: bool) -> Self {
        let folder = BenchFolder::new("own");
        let url = format!("sqlite://{}", folder.file("store.db").display());
        let journal = open(&url, &Options::default()).await.unwrap();
        let (turn, external) = (Arc::new(AtomicU64::new(0)), Arc::new(ExternalTime::default()));
        let target = Catalog::builtin().target_for("anthropic", MODEL, "bench").unwrap();
        let model =
            ScriptedModel { target, turn: Arc::clone(&turn), external: Arc::clone(&external) };
        let ports = Ports {
            clock: Arc::new(SystemClock),
            ids: Arc::new(SequentialIds::default()),
            secret: [7; 32],
        };
        let store = Arc::new(journal.clone()) as Arc<dyn Store>;
        let models = Arc::new(OneModel(Arc::new(model))) as Arc<dyn ModelRegistry>;
        let look = Arc::new(LookTool(Arc::clone(&external))) as Arc<dyn Tool>;
        let runner = Runner::new(store, models, ports).with_tools([look]);
        let mut agent =
            if summarises { AgentConfig::smart(MODEL) } else { AgentConfig::minimal(MODEL) };
        agent.instructions = Some("You look at places.".into());
        if !summarises {
            agent.limits.max_context_tokens = Some(u64::MAX);
        }
        Self {
            runner,
            agent,
            turn,
            external,
            thread: None,
            set_aside: None,
            folder,
            _journal: journal,
        }
    }

    /// Plays one turn and returns its cost, excluding the time spent in the model and the tool.
    pub(crate) async fn turn(&mut self) -> Cost {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let message = text(turn * 3, 120);
        let start = RunRequest {
            tenant: Tenant::from("bench"),
            thread: self.thread.clone(),
            casting: RunSpec::single_agent(self.agent.clone(), Vec::new()),
            said: vec![Body::Text(message.into())],
            once: Vec::new(),
        };
        self.external.take();
        let (worked, clock) = (cpu(), Instant::now());
        let started = self.runner.start(start).await.unwrap();
        let status = self.runner.drive(&Tenant::from("bench"), &started.run).await.unwrap();
        let (took, external) = (clock.elapsed(), self.external.take());
        let worked = cpu().saturating_sub(worked);
        assert_eq!(status, RunStatus::Completed);
        self.thread = Some(started.thread);
        Cost { wall: took.saturating_sub(external), cpu: worked.saturating_sub(external) }
    }

    /// Sets the current conversation aside and starts a new conversation.
    pub(crate) fn begin_another(&mut self) {
        self.set_aside = self.thread.take();
    }

    /// Returns to the conversation that was set aside.
    pub(crate) fn return_to_first(&mut self) {
        self.thread = self.set_aside.take();
    }

    /// Returns the size of the store in bytes.
    pub(crate) fn stored(&self) -> u64 {
        self.folder.size()
    }
}
