//! A scripted model, fake time and ids, and a store in a folder of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_agent::{
    AgentConfig, Begun, Casting, Ports, RunStatus, Runner, Start, State, Tool, ToolAnswer,
    ToolContext, ToolSpec, Working,
};
use throughline_codec::{Catalog, events_of};
use throughline_core::{
    Asking, Body, Call, CallId, Clock, Ids, Item, Json, LogId, Model, ModelError, Models, Name,
    Part, Place, ReasoningFormat, Reply, Role, RunEvent, Saying, Seal, SmartState, Stop, Store,
    Target, Tenant, Thought, ThoughtKind, ToolCall, Trouble, Usage, unpack,
};
use throughline_store::{Durability, Journal, Options, open};
use throughline_testkit::Folder;

/// What each answer of a scripted model uses.
pub(crate) const USED: Usage = Usage { input: 100, cached: 40, written: 0, output: 10, thought: 4 };

/// What a scripted model says next.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    Text(&'static str),
    /// A thought that is signed, and a text behind it.
    Thinks(&'static str, &'static str),
    /// Calls of tools, each by its name and arguments.
    Calls(&'static [(&'static str, &'static str)]),
    Fails(Trouble),
    Cut,
}

/// A model that says what a script says, chosen by how the conversation stands: so it says the same to whoever asks again.
pub(crate) struct Scripted {
    target: Target,
    script: Arc<dyn Fn(&Call) -> Says + Send + Sync>,
    pub(crate) asked: Mutex<Vec<Call>>,
}

impl Model for Scripted {
    fn target(&self) -> &Target {
        &self.target
    }

    fn ask(&self, call: Call) -> Asking<'_> {
        let says = (self.script)(&call);
        let turn = call.items.iter().filter(|item| item.role == Role::Assistant).count();
        self.asked.lock().unwrap().push(call);
        let reply = |items, stop| Reply {
            id: None,
            items,
            stop,
            usage: USED,
            origin: Arc::clone(&self.target.origin),
            extras: Vec::new(),
        };
        let text = |text: &str| {
            Item::new("text", Place::new(0, 0), Role::Assistant, Body::Text(text.into()))
        };
        let reply = match says {
            Says::Text(words) => reply(vec![text(words)], Stop::Done),
            Says::Thinks(thought, words) => {
                let mut answer = text(words);
                answer.place = Place::new(0, 1);
                reply(vec![self.thought(thought), answer], Stop::Done)
            }
            Says::Cut => reply(vec![text("half an ans")], Stop::Cut),
            Says::Fails(kind) => {
                return Box::pin(async move { Err(ModelError::new(kind, "it failed")) });
            }
            Says::Calls(calls) => {
                let item = |(part, (name, args)): (usize, &(&str, &str))| {
                    let id = format!("call_{turn}_{part}");
                    let call = ToolCall {
                        id: CallId::from(id.clone()),
                        wire_id: Some(id.into()),
                        name: Name::from(*name),
                        args: Json::parse((*args).to_owned()).unwrap(),
                        custom: false,
                    };
                    Item::new(
                        format!("c{part}"),
                        Place::new(0, part),
                        Role::Assistant,
                        Body::Call(call),
                    )
                };
                reply(calls.iter().enumerate().map(item).collect(), Stop::Tools)
            }
        };
        let events: Vec<_> = events_of(&reply).into_iter().map(Ok).collect();
        Box::pin(async move {
            let events = Box::pin(futures_util::stream::iter(events));
            Ok(Saying { fates: Vec::new(), warnings: Vec::new(), events })
        })
    }
}

impl Scripted {
    fn thought(&self, words: &str) -> Item {
        let thought = Thought::issued(words, ThoughtKind::Text, ReasoningFormat::unknown());
        let mut item =
            Item::new("thought", Place::new(0, 0), Role::Assistant, Body::Thought(thought));
        let (signature, owner) = (Bytes::from_static(b"signed"), Arc::clone(&self.target.origin));
        item.seals.push(Seal::new(signature, "anthropic.signature", owner, "/signature"));
        item.origin = Some(Arc::clone(&self.target.origin));
        item
    }
}

/// The scripted models by name.
#[derive(Default)]
pub(crate) struct Cast {
    models: BTreeMap<Name, Arc<Scripted>>,
}

impl Cast {
    pub(crate) fn with(
        mut self,
        name: &str,
        script: impl Fn(&Call) -> Says + Send + Sync + 'static,
    ) -> Self {
        let target = Catalog::builtin().target_for("anthropic", name, "test").unwrap();
        let (script, asked) = (Arc::new(script), Mutex::default());
        self.models.insert(name.into(), Arc::new(Scripted { target, script, asked }));
        self
    }

    pub(crate) fn asked(&self, name: &str) -> Vec<Call> {
        self.models[name].asked.lock().unwrap().clone()
    }
}

impl Models for Cast {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = self.models.get(name).cloned();
        let model = model
            .ok_or_else(|| ModelError::new(Trouble::Other, format!("there is no model {name}")))?;
        Ok(model)
    }
}

/// Time that stands still, and moves by a second with each look where that is wanted.
#[derive(Default)]
pub(crate) struct Still(pub(crate) AtomicU64);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        let seconds = self.0.load(Ordering::SeqCst);
        Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap()
    }
}

/// Ids that are counted.
#[derive(Default)]
pub(crate) struct Counted(AtomicU64);

impl Ids for Counted {
    fn fresh(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

/// A tool that notes what it was asked, and answers with it.
pub(crate) struct Noting {
    pub(crate) spec: ToolSpec,
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
}

impl Tool for Noting {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, about: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            (about.progress)("at it");
            let note = format!("{} {} {}", self.spec.name, about.call, args.as_str());
            self.ran.lock().unwrap().push(note);
            ToolAnswer::text(format!("did {}", args.as_str()))
        })
    }
}

/// A place for runs.
pub(crate) struct Scene {
    pub(crate) runner: Runner,
    pub(crate) journal: Journal,
    pub(crate) models: Arc<Cast>,
    pub(crate) clock: Arc<Still>,
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

impl Scene {
    pub(crate) async fn new(models: Cast, tools: Vec<ToolSpec>) -> Self {
        let folder = Folder::new("agent");
        let options = Options { durability: Durability::Relaxed, ..Options::default() };
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = open(&url, &options).await.unwrap();
        let (models, clock) = (Arc::new(models), Arc::new(Still::default()));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let tools = tools.into_iter().map(|spec| {
            let tool = Noting { spec, ran: Arc::clone(&ran) };
            Arc::new(tool) as Arc<dyn Tool>
        });
        let ports = Ports {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ids: Arc::new(Counted::default()),
            secret: [7; 32],
        };
        let store = Arc::new(journal.clone()) as Arc<dyn Store>;
        let mut runner =
            Runner::new(store, Arc::clone(&models) as Arc<dyn Models>, ports).with_tools(tools);
        runner.lease = Duration::from_secs(30);
        Self { runner, journal, models, clock, ran, _folder: folder }
    }

    pub(crate) fn start(agent: AgentConfig, said: &str) -> Start {
        Start {
            tenant: us(),
            thread: None,
            casting: Casting::solo(agent, Vec::new()),
            said: vec![Body::Text(said.into())],
            once: Vec::new(),
        }
    }

    /// Begins a run and goes on with it until it rests.
    pub(crate) async fn run(&self, agent: AgentConfig, said: &str) -> (Begun, RunStatus) {
        let begun = self.runner.begin(Self::start(agent, said)).await.unwrap();
        let status = self.runner.drive(&us(), &begun.run).await.unwrap();
        (begun, status)
    }

    /// What is known of a run, which prints as the published schema says.
    pub(crate) async fn state(&self, run: &LogId) -> State {
        let state = self.runner.state(&us(), run).await.unwrap();
        must_fit(&STATE, &state.smart_state().json());
        state
    }

    /// The events of a run.
    pub(crate) async fn events(&self, run: &LogId) -> Vec<RunEvent> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let records = self.journal.read(&us(), run, after, 500).await.unwrap();
            let Some(last) = records.last() else { return events };
            after = last.seq;
            for record in &records {
                for (_, event) in unpack(record).unwrap() {
                    let event = Json::parse(event).unwrap();
                    must_fit(&EVENT, &event);
                    events.push(RunEvent::parse(&event).unwrap());
                }
            }
        }
    }
}

static EVENT: LazyLock<jsonschema::Validator> = LazyLock::new(|| schema(&RunEvent::schema()));
static STATE: LazyLock<jsonschema::Validator> = LazyLock::new(|| schema(&SmartState::schema()));

fn schema(schema: &Json) -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_slice(schema.bytes()).unwrap()).unwrap()
}

fn must_fit(schema: &jsonschema::Validator, document: &Json) {
    let value = serde_json::from_slice(document.bytes()).unwrap();
    if let Err(error) = schema.validate(&value) {
        panic!("{error}: {}", document.as_str());
    }
}

/// How many answers of tools a Call brings.
pub(crate) fn results(call: &Call) -> usize {
    call.items.iter().filter(|item| matches!(item.body, Body::Result(_))).count()
}

/// What the answers of tools say.
pub(crate) fn said_by_tools(call: &Call) -> Vec<String> {
    let texts = call.items.iter().filter_map(|item| match &item.body {
        Body::Result(result) => Some(result.parts.iter().map(|part| match part {
            Part::Text(text) => text.to_string(),
            _ => String::new(),
        })),
        _ => None,
    });
    texts.map(Iterator::collect).collect()
}

/// The names of events, in order, each once where it is repeated.
pub(crate) fn names(events: &[RunEvent]) -> Vec<String> {
    let mut names: Vec<String> = events.iter().map(|event| event.name().into_owned()).collect();
    names.dedup();
    names
}
