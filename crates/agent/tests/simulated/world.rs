//! A thread of an agent over the simulators: with a store, tools that take their time, and people who decide.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use throughline_agent::{
    AgentConfig, Begun, Casting, Ports, RunError, RunStatus, Runner, Start, State, Tool,
    ToolAnswer, ToolContext, ToolSpec, Word, Working,
};
use throughline_codec::Catalog;
use throughline_core::{
    Answering, Body, Clock, Credential, Ids, Json, LogId, ModelError, Models, Name, Outgoing,
    PendingUserQuestion, Store, StoreError, Tenant, ToolApprovalResolution, ToolApprovalStatus,
    Trouble, Upstream, UserQuestionAnswer, UserQuestionAnswerSet, UserQuestionResolution,
    UserQuestionStatus,
};
use throughline_provider::{Endpoint, EndpointModels, Http, Source};
use throughline_sim::{Options, Simulator};
use throughline_store::Durability;
use throughline_testkit::{Dice, Folder};

use crate::witness::Witness;

/// A model of every family, and one whose seals are bound to all that stands before them.
pub(crate) const MODELS: [(&str, &str); 6] = [
    ("claude-sonnet-4-5", "anthropic"),
    ("gpt-5.2", "openai"),
    ("gemini-3-pro-preview", "gemini"),
    ("deepseek-v4-pro", "deepseek"),
    ("claude-opus-5-5", "anthropic"),
    ("claude-sonnet-5", "anthropic"),
];

/// How long a run is held at first: short, because those who hold one here are often gone.
const LEASE: Duration = Duration::from_millis(60);

pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

/// A place for the runs of one thread.
pub(crate) struct World {
    pub(crate) simulator: Arc<Simulator>,
    pub(crate) witness: Arc<Witness>,
    store: Arc<dyn Store>,
    /// The bodies of all requests, in their order.
    bodies: Arc<Mutex<Vec<String>>>,
    ids: Arc<Counted>,
    _folder: Folder,
}

impl World {
    pub(crate) async fn new(seed: u64, parallel: bool) -> Self {
        Self::open(Options { seed, parallel, ..Options::default() }).await
    }

    /// One whose models answer by a script.
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
        let witness = Witness::new(models(&simulator.url(), &bodies), Arc::clone(&simulator));
        let (witness, ids) = (Arc::new(witness), Arc::default());
        Self { simulator, witness, store: Arc::new(journal), bodies, ids, _folder: folder }
    }

    /// A process that can hold runs.
    pub(crate) fn node(&self, name: &str) -> Runner {
        let ports = Ports {
            clock: Arc::new(Real),
            ids: Arc::clone(&self.ids) as Arc<dyn Ids>,
            secret: [7; 32],
        };
        let models = Arc::clone(&self.witness) as Arc<dyn Models>;
        let tools = [
            Slow(spec("look").idempotent()),
            Slow(spec("note").needs_approval()),
            Slow(spec("post")),
        ];
        let tools = tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>);
        let mut runner = Runner::new(Arc::clone(&self.store), models, ports).with_tools(tools);
        runner.lease = LEASE;
        runner.owner = name.into();
        runner
    }

    pub(crate) async fn begin(
        &self,
        agent: AgentConfig,
        thread: Option<LogId>,
        said: &str,
    ) -> Begun {
        let start = Start {
            tenant: us(),
            thread,
            casting: Casting::solo(agent, Vec::new()),
            said: vec![Body::Text(said.into())],
            once: Vec::new(),
        };
        self.node("beginner").begin(start).await.unwrap()
    }
}

/// Notes the bodies of all requests.
struct Noting {
    http: Http,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Upstream for Noting {
    fn send(&self, outgoing: Outgoing) -> Answering<'_> {
        let body = String::from_utf8_lossy(&outgoing.body).into_owned();
        self.bodies.lock().unwrap().push(body);
        self.http.send(outgoing)
    }
}

fn models(simulators: &str, bodies: &Arc<Mutex<Vec<String>>>) -> EndpointModels {
    let rows = ["anthropic", "openai", "gemini", "deepseek"];
    let lines = rows.map(|row| {
        let base = format!("{simulators}/at/{row}");
        let row = Catalog::builtin().provider(row).unwrap();
        let name = Arc::clone(&row.name);
        Endpoint::new(name, row, &base, Source::Key(Credential::new("simulated"))).unwrap()
    });
    let http = Http::new(lines, Arc::new(Timestamp::now)).unwrap();
    let http: Arc<dyn Upstream> = Arc::new(Noting { http, bodies: Arc::clone(bodies) });
    EndpointModels::new(http, |model| {
        let found = MODELS.iter().find(|(known, _)| *known == model);
        let unknown = || ModelError::new(Trouble::Other, format!("there is no model {model}"));
        let (_, row) = found.ok_or_else(unknown)?;
        Ok(vec![((*row).into(), Catalog::builtin().target_for(row, model, "us").unwrap())])
    })
}

fn spec(name: &str) -> ToolSpec {
    let schema = r#"{"type":"object","properties":{"what":{"type":"string"}},"required":["what"]}"#;
    ToolSpec::new(name).schema(Json::parse(schema.to_owned()).unwrap()).description("Does it.")
}

/// A tool that gives way a few times before it answers, so that whoever holds the run may be gone meanwhile.
struct Slow(ToolSpec);

impl Tool for Slow {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, about: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
                (about.progress)("at it");
            }
            ToolAnswer::text(format!("{} did {}", self.0.name, args.as_str()))
        })
    }
}

struct Real;

impl Clock for Real {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Default)]
pub(crate) struct Counted(AtomicU64);

impl Ids for Counted {
    fn fresh(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

/// Goes on with a run until it rests, or until whoever holds it is gone: after that many looks at what it does.
pub(crate) async fn drive(runner: &Runner, run: &LogId, looks: usize) -> Option<RunStatus> {
    let mut runner = runner.clone();
    loop {
        let tenant = us();
        let driven = Dropped { work: Box::pin(runner.drive(&tenant, run)), looks };
        match driven.await? {
            Ok(status) => return Some(status),
            // Whoever held it is gone, and the store says for how long that is not known.
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                tokio::time::sleep(Duration::from_millis(left_ms)).await;
            }
            // Whoever was too slow to keep it takes it again, for longer.
            Err(RunError::Store(StoreError::Fenced { .. })) => runner.lease *= 2,
            Err(error) => panic!("{run} cannot go on: {error}"),
        }
    }
}

/// Tells a run something when nobody holds it any more.
pub(crate) async fn tell(runner: &Runner, run: &LogId, word: Word) {
    let mut runner = runner.clone();
    loop {
        match runner.tell(&us(), run, word.clone()).await {
            Ok(()) => return,
            Err(RunError::Store(StoreError::Held { left_ms, .. })) => {
                tokio::time::sleep(Duration::from_millis(left_ms)).await;
            }
            Err(RunError::Store(StoreError::Fenced { .. })) => runner.lease *= 2,
            Err(error) => panic!("{run} does not hear: {error}"),
        }
    }
}

/// Work that is dropped in the middle.
struct Dropped<'a, T> {
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    looks: usize,
}

impl<T> Future for Dropped<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if self.looks == 0 {
            return Poll::Ready(None);
        }
        self.looks -= 1;
        self.work.as_mut().poll(context).map(Some)
    }
}

/// What people say to whatever waits for them.
pub(crate) fn decisions(state: &State, dice: &mut Dice) -> Vec<Word> {
    let approvals = state.smart.pending_approvals.iter().flatten();
    let approvals = approvals.filter(|waits| waits.status == ToolApprovalStatus::Pending);
    let questions = state.smart.pending_user_questions.iter().flatten();
    let questions = questions.filter(|waits| waits.status == UserQuestionStatus::Pending);
    let mut words = Vec::new();
    for approval in approvals {
        let mut decision = ToolApprovalResolution::new(approval.id.clone(), dice.below(4) > 0);
        decision.comment = Some("as you like".into());
        words.push(Word::Decide(decision));
    }
    words.extend(questions.map(|question| Word::Answer(answer(question, dice))));
    words
}

fn answer(question: &PendingUserQuestion, dice: &mut Dice) -> UserQuestionResolution {
    let mut resolution = UserQuestionResolution::new(question.id.clone());
    if dice.below(4) == 0 {
        resolution.cancelled = Some(true);
        return resolution;
    }
    let answers = question.questions.iter().map(|asked| {
        let options = asked.options.iter().flatten();
        let chosen: Vec<Name> = options.take(1).map(|option| option.answer().clone()).collect();
        let mut answer = UserQuestionAnswer::new(chosen);
        if answer.values.is_empty() {
            answer.free_text = Some("whatever you think".into());
        }
        (asked.question.clone(), answer)
    });
    resolution.answers = Some(UserQuestionAnswerSet(answers.collect()));
    resolution
}
