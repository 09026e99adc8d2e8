//! Runs one Thread against the simulators, with a store, slow tools and simulated people.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use throughline_agent::{
    AgentConfig, Ports, RunCommand, RunError, RunRequest, RunSpec, RunStatus, Runner, StartedRun,
    State, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec,
};
use throughline_codec::Catalog;
use throughline_core::{
    Body, Clock, Credential, IdGenerator, LogId, ModelError, ModelErrorKind, ModelRegistry, Store,
    StoreError, Tenant, Upstream, UpstreamFuture, UpstreamRequest,
};
use throughline_json::{Json, Name};
use throughline_provider::{CredentialSource, Endpoint, EndpointModels, Http};
use throughline_sim::{Options, Simulator};
use throughline_spec::{
    PendingUserQuestion, ToolApprovalResolution, ToolApprovalStatus, UserQuestionAnswer,
    UserQuestionAnswerSet, UserQuestionResolution, UserQuestionStatus,
};
use throughline_store::Durability;
use throughline_testkit::{Folder, TestRng};

use crate::witness::VerifyingModels;

/// One model of each family, and one model whose Seals are bound to the whole prefix.
pub(crate) const MODELS: [(&str, &str); 6] = [
    ("claude-sonnet-4-5", "anthropic"),
    ("gpt-5.2", "openai"),
    ("gemini-3-pro-preview", "gemini"),
    ("deepseek-v4-pro", "deepseek"),
    ("claude-opus-5-5", "anthropic"),
    ("claude-sonnet-5", "anthropic"),
];

/// Initial lease duration. It is short, because the tests often kill the owner of a run.
const LEASE: Duration = Duration::from_millis(60);

pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

/// Everything that the runs of one Thread need: simulator, models, store and ids.
pub(crate) struct TestEnvironment {
    pub(crate) simulator: Arc<Simulator>,
    pub(crate) witness: Arc<VerifyingModels>,
    store: Arc<dyn Store>,
    /// Bodies of all requests, in order.
    bodies: Arc<Mutex<Vec<String>>>,
    ids: Arc<SequentialIds>,
    _folder: Folder,
}

impl TestEnvironment {
    pub(crate) async fn new(seed: u64, parallel: bool) -> Self {
        Self::open(Options { seed, parallel, ..Options::default() }).await
    }

    /// Creates an environment whose models answer from a script.
    pub(crate) async fn scripted(script: &str) -> Self {
        Self::open(Options { script: script.parse().unwrap(), ..Options::default() }).await
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }

    async fn open(simulated: Options) -> Self {
        let folder = Folder::new("simulated");
        let options = throughline_store::Options {
            durability: Durability::Relaxed,
            ..throughline_store::Options::default()
        };
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = throughline_store::open(&url, &options).await.unwrap();
        let simulator = Arc::new(throughline_sim::start(simulated).await.unwrap());
        let bodies = Arc::default();
        let witness =
            VerifyingModels::new(models(&simulator.url(), &bodies), Arc::clone(&simulator));
        let (witness, ids) = (Arc::new(witness), Arc::default());
        Self { simulator, witness, store: Arc::new(journal), bodies, ids, _folder: folder }
    }

    /// Creates a runner that acts as a separate process.
    pub(crate) fn node(&self, name: &str) -> Runner {
        let ports = Ports {
            clock: Arc::new(RealClock),
            ids: Arc::clone(&self.ids) as Arc<dyn IdGenerator>,
            secret: [7; 32],
        };
        let models = Arc::clone(&self.witness) as Arc<dyn ModelRegistry>;
        let tools = [
            SlowTool(spec("look").idempotent()),
            SlowTool(spec("note").needs_approval()),
            SlowTool(spec("post")),
        ];
        let tools = tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>);
        let mut runner = Runner::new(Arc::clone(&self.store), models, ports).with_tools(tools);
        runner.lease = LEASE;
        runner.owner = name.into();
        runner
    }

    pub(crate) async fn start_run(
        &self,
        agent: AgentConfig,
        thread: Option<LogId>,
        message: &str,
    ) -> StartedRun {
        let start = RunRequest {
            tenant: us(),
            thread,
            casting: RunSpec::single_agent(agent, Vec::new()),
            said: vec![Body::Text(message.into())],
            once: Vec::new(),
        };
        self.node("beginner").start(start).await.unwrap()
    }
}

/// Upstream that records the bodies of all requests.
struct RecordingUpstream {
    http: Http,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Upstream for RecordingUpstream {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        let body = String::from_utf8_lossy(&outgoing.body).into_owned();
        self.bodies.lock().unwrap().push(body);
        self.http.send(outgoing)
    }
}

fn models(simulators: &str, bodies: &Arc<Mutex<Vec<String>>>) -> EndpointModels {
    let rows = ["anthropic", "openai", "gemini", "deepseek"];
    let endpoints = rows.map(|row| {
        let base = format!("{simulators}/at/{row}");
        let row = Catalog::builtin().provider(row).unwrap();
        let name = Arc::clone(&row.name);
        Endpoint::new(name, row, &base, CredentialSource::Key(Credential::new("simulated")))
            .unwrap()
    });
    let http = Http::new(endpoints, Arc::new(Timestamp::now)).unwrap();
    let http: Arc<dyn Upstream> = Arc::new(RecordingUpstream { http, bodies: Arc::clone(bodies) });
    EndpointModels::new(http, |model| {
        let found = MODELS.iter().find(|(known, _)| *known == model);
        let unknown =
            || ModelError::new(ModelErrorKind::Other, format!("there is no model {model}"));
        let (_, row) = found.ok_or_else(unknown)?;
        Ok(vec![((*row).into(), Catalog::builtin().target_for(row, model, "us").unwrap())])
    })
}

fn spec(name: &str) -> ToolSpec {
    let schema = r#"{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}"#;
    ToolSpec::new(name).schema(Json::parse(schema.to_owned()).unwrap()).description("Does it.")
}

/// Tool that yields several times before it returns, so that the run's owner can be killed while
/// the tool runs.
struct SlowTool(ToolSpec);

impl Tool for SlowTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
                (context.progress)("at it");
            }
            ToolAnswer::text(format!("{} did {}", self.0.name, args.as_str()))
        })
    }
}

struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Default)]
pub(crate) struct SequentialIds(AtomicU64);

impl IdGenerator for SequentialIds {
    fn generate(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

/// Drives a run until it waits or ends. After `polls` polls, simulates a kill of the owner and
/// returns `None`.
pub(crate) async fn drive(runner: &Runner, run: &LogId, polls: usize) -> Option<RunStatus> {
    let mut runner = runner.clone();
    loop {
        let tenant = us();
        let driven = DropAfter { work: Box::pin(runner.drive(&tenant, run)), polls };
        match driven.await? {
            Ok(status) => return Some(status),
            // The previous owner was killed, but its lease has not expired yet.
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                tokio::time::sleep(Duration::from_millis(left_ms)).await;
            }
            // The owner was too slow to renew its lease, so retry with a longer lease.
            Err(RunError::Store(StoreError::Fenced { .. })) => runner.lease *= 2,
            Err(error) => panic!("{run} cannot go on: {error}"),
        }
    }
}

/// Sends a command, and waits for the lease if the run has another owner.
pub(crate) async fn send_command(runner: &Runner, run: &LogId, command: RunCommand) {
    let mut runner = runner.clone();
    loop {
        match runner.send_command(&us(), run, command.clone()).await {
            Ok(()) => return,
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                tokio::time::sleep(Duration::from_millis(left_ms)).await;
            }
            Err(RunError::Store(StoreError::Fenced { .. })) => runner.lease *= 2,
            Err(error) => panic!("{run} does not accept the command: {error}"),
        }
    }
}

/// A future that is dropped after a number of polls.
struct DropAfter<'a, T> {
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    polls: usize,
}

impl<T> Future for DropAfter<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        self.work.as_mut().poll(context).map(Some)
    }
}

/// Returns a random decision for each pending request.
pub(crate) fn decisions(state: &State, rng: &mut TestRng) -> Vec<RunCommand> {
    let approvals = state.smart.pending_approvals.iter().flatten();
    let approvals = approvals.filter(|pending| pending.status == ToolApprovalStatus::Pending);
    let questions = state.smart.pending_user_questions.iter().flatten();
    let questions = questions.filter(|pending| pending.status == UserQuestionStatus::Pending);
    let mut commands = Vec::new();
    for approval in approvals {
        let mut decision = ToolApprovalResolution::new(approval.id.clone(), rng.below(4) > 0);
        decision.comment = Some("as you like".into());
        commands.push(RunCommand::Decide(decision));
    }
    commands.extend(questions.map(|question| RunCommand::Answer(answer(question, rng))));
    commands
}

fn answer(question: &PendingUserQuestion, rng: &mut TestRng) -> UserQuestionResolution {
    let mut resolution = UserQuestionResolution::new(question.id.clone());
    if rng.below(4) == 0 {
        resolution.cancelled = Some(true);
        return resolution;
    }
    let answers = question.questions.iter().map(|item| {
        let options = item.options.iter().flatten();
        let chosen: Vec<Name> = options.take(1).map(|option| option.answer().clone()).collect();
        let mut answer = UserQuestionAnswer::new(chosen);
        if answer.values.is_empty() {
            answer.free_text = Some("whatever you think".into());
        }
        (item.question.clone(), answer)
    });
    resolution.answers = Some(UserQuestionAnswerSet(answers.collect()));
    resolution
}
