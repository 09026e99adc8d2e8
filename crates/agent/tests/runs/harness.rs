//! Test harness: scripted models, a fake clock, fake ids, and a store in a temporary folder.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_agent::{
    AgentConfig, Ports, RunRequest, RunSpec, RunStatus, Runner, StartedRun, State, Tool,
    ToolAnswer, ToolContext, ToolFuture, ToolSpec,
};
use throughline_codec::{Catalog, events_from_reply};
use throughline_core::{
    Body, Call, CallId, Clock, IdGenerator, Item, ItemPosition, LogId, Model, ModelError,
    ModelErrorKind, ModelFuture, ModelRegistry, ModelStream, Part, ReasoningFormat, Reply, Role,
    Seal, StopReason, Store, Target, Tenant, Thought, ThoughtKind, ToolCall, Usage, unpack_events,
};
use throughline_json::{Json, Name};
use throughline_spec::{RunEvent, SmartState};
use throughline_store::{Durability, Journal, Options, open};
use throughline_testkit::Folder;

/// Token usage of each scripted answer.
pub(crate) const USED: Usage = Usage { input: 100, cached: 40, written: 0, output: 10, thought: 4 };

/// Answer of a scripted model to one call.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedAnswer {
    Text(&'static str),
    /// A signed Thought, followed by text.
    Thinks(&'static str, &'static str),
    /// Tool calls, each with name and arguments.
    Calls(&'static [(&'static str, &'static str)]),
    Fails(ModelErrorKind),
    /// An error that leaves open whether the provider processed the request.
    GetsLost,
    Cut,
}

/// A model whose answer depends only on the conversation, so a repeated call gets the same answer.
pub(crate) struct ScriptedModel {
    target: Target,
    script: Arc<dyn Fn(&Call) -> ScriptedAnswer + Send + Sync>,
    pub(crate) requests: Mutex<Vec<Call>>,
}

impl Model for ScriptedModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        let scripted = (self.script)(&call);
        let turn = call.items.iter().filter(|item| item.role == Role::Assistant).count();
        self.requests.lock().unwrap().push(call);
        let reply = |items, stop| Reply {
            id: None,
            items,
            stop,
            usage: USED,
            origin: Arc::clone(&self.target.origin),
            extras: Vec::new(),
        };
        let text = |text: &str| {
            Item::new("text", ItemPosition::new(0, 0), Role::Assistant, Body::Text(text.into()))
        };
        let reply = match scripted {
            ScriptedAnswer::Text(content) => reply(vec![text(content)], StopReason::Done),
            ScriptedAnswer::Thinks(thought, content) => {
                let mut answer = text(content);
                answer.place = ItemPosition::new(0, 1);
                reply(vec![self.thought(thought), answer], StopReason::Done)
            }
            ScriptedAnswer::Cut => reply(vec![text("half an ans")], StopReason::Cut),
            ScriptedAnswer::Fails(kind) => {
                return Box::pin(async move { Err(ModelError::new(kind, "it failed")) });
            }
            ScriptedAnswer::GetsLost => {
                let error = ModelError::new(ModelErrorKind::Other, "no response in time");
                return Box::pin(async move { Err(error.with_possible_charge()) });
            }
            ScriptedAnswer::Calls(calls) => {
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
                        ItemPosition::new(0, part),
                        Role::Assistant,
                        Body::Call(call),
                    )
                };
                reply(calls.iter().enumerate().map(item).collect(), StopReason::Tools)
            }
        };
        let events: Vec<_> = events_from_reply(&reply).into_iter().map(Ok).collect();
        Box::pin(async move {
            let events = Box::pin(futures_util::stream::iter(events));
            Ok(ModelStream { fates: Vec::new(), warnings: Vec::new(), events })
        })
    }
}

impl ScriptedModel {
    fn thought(&self, text: &str) -> Item {
        let thought = Thought::issued(text, ThoughtKind::Text, ReasoningFormat::unknown());
        let mut item =
            Item::new("thought", ItemPosition::new(0, 0), Role::Assistant, Body::Thought(thought));
        let (signature, owner) = (Bytes::from_static(b"signed"), Arc::clone(&self.target.origin));
        item.seals.push(Seal::new(signature, "anthropic.signature", owner, "/signature"));
        item.origin = Some(Arc::clone(&self.target.origin));
        item
    }
}

#[derive(Default)]
pub(crate) struct ScriptedModels {
    models: BTreeMap<Name, Arc<ScriptedModel>>,
}

impl ScriptedModels {
    pub(crate) fn with(
        mut self,
        name: &str,
        script: impl Fn(&Call) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> Self {
        let target = Catalog::builtin().target_for("anthropic", name, "test").unwrap();
        let (script, requests) = (Arc::new(script), Mutex::default());
        self.models.insert(name.into(), Arc::new(ScriptedModel { target, script, requests }));
        self
    }

    pub(crate) fn requests(&self, name: &str) -> Vec<Call> {
        self.models[name].requests.lock().unwrap().clone()
    }
}

impl ModelRegistry for ScriptedModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let model = self.models.get(name).cloned();
        let model = model.ok_or_else(|| {
            ModelError::new(ModelErrorKind::Other, format!("there is no model {name}"))
        })?;
        Ok(model)
    }
}

/// A clock that stands still or advances by one second per reading.
#[derive(Default)]
pub(crate) struct FakeClock(pub(crate) AtomicU64);

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let seconds = self.0.load(Ordering::SeqCst);
        Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap()
    }
}

#[derive(Default)]
pub(crate) struct SequentialIds(AtomicU64);

impl IdGenerator for SequentialIds {
    fn generate(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", self.0.fetch_add(1, Ordering::SeqCst)))
    }
}

/// Tool that records its arguments and returns them.
pub(crate) struct RecordingTool {
    pub(crate) spec: ToolSpec,
    pub(crate) tool_calls: Arc<Mutex<Vec<String>>>,
}

impl Tool for RecordingTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, context: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            (context.progress)("at it");
            let note = format!("{} {} {}", self.spec.name, context.call, args.as_str());
            self.tool_calls.lock().unwrap().push(note);
            ToolAnswer::text(format!("did {}", args.as_str()))
        })
    }
}

/// A runner with its store, its models and the recorded tool calls.
pub(crate) struct Scene {
    pub(crate) runner: Runner,
    pub(crate) journal: Journal,
    pub(crate) models: Arc<ScriptedModels>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) tool_calls: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

pub(crate) fn us() -> Tenant {
    Tenant::from("us")
}

impl Scene {
    pub(crate) async fn new(models: ScriptedModels, tools: Vec<ToolSpec>) -> Self {
        let folder = Folder::new("agent");
        let options = Options { durability: Durability::Relaxed, ..Options::default() };
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = open(&url, &options).await.unwrap();
        let (models, clock) = (Arc::new(models), Arc::new(FakeClock::default()));
        let tool_calls = Arc::new(Mutex::new(Vec::new()));
        let tools = tools.into_iter().map(|spec| {
            let tool = RecordingTool { spec, tool_calls: Arc::clone(&tool_calls) };
            Arc::new(tool) as Arc<dyn Tool>
        });
        let ports = Ports {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ids: Arc::new(SequentialIds::default()),
            secret: [7; 32],
        };
        let store = Arc::new(journal.clone()) as Arc<dyn Store>;
        let mut runner = Runner::new(store, Arc::clone(&models) as Arc<dyn ModelRegistry>, ports)
            .with_tools(tools);
        runner.lease = Duration::from_secs(30);
        Self { runner, journal, models, clock, tool_calls, _folder: folder }
    }

    pub(crate) fn start(agent: AgentConfig, message: &str) -> RunRequest {
        RunRequest {
            tenant: us(),
            thread: None,
            casting: RunSpec::single_agent(agent, Vec::new()),
            said: vec![Body::Text(message.into())],
            once: Vec::new(),
        }
    }

    /// Starts a run and drives it until it waits or ends.
    pub(crate) async fn run(&self, agent: AgentConfig, message: &str) -> (StartedRun, RunStatus) {
        let started = self.runner.start(Self::start(agent, message)).await.unwrap();
        let status = self.runner.drive(&us(), &started.run).await.unwrap();
        (started, status)
    }

    /// Returns the state of a run, after validating it against the published schema.
    pub(crate) async fn state(&self, run: &LogId) -> State {
        let state = self.runner.state(&us(), run).await.unwrap();
        assert_valid(&STATE, &state.smart_state().json());
        state
    }

    pub(crate) async fn events(&self, run: &LogId) -> Vec<RunEvent> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let records = self.journal.read(&us(), run, after, 500).await.unwrap();
            let Some(last) = records.last() else { return events };
            after = last.seq;
            for record in &records {
                for (_, event) in unpack_events(record).unwrap() {
                    let event = Json::parse(event).unwrap();
                    assert_valid(&EVENT, &event);
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

fn assert_valid(schema: &jsonschema::Validator, document: &Json) {
    let value = serde_json::from_slice(document.bytes()).unwrap();
    if let Err(error) = schema.validate(&value) {
        panic!("{error}: {}", document.as_str());
    }
}

/// Returns the number of tool results in a Call.
pub(crate) fn results(call: &Call) -> usize {
    call.items.iter().filter(|item| matches!(item.body, Body::Result(_))).count()
}

/// Returns the texts of the tool results in a Call.
pub(crate) fn tool_result_texts(call: &Call) -> Vec<String> {
    let texts = call.items.iter().filter_map(|item| match &item.body {
        Body::Result(result) => Some(result.parts.iter().map(|part| match part {
            Part::Text(text) => text.to_string(),
            _ => String::new(),
        })),
        _ => None,
    });
    texts.map(Iterator::collect).collect()
}

/// Returns the names of the events in order, without consecutive duplicates.
pub(crate) fn names(events: &[RunEvent]) -> Vec<String> {
    let mut names: Vec<String> = events.iter().map(|event| event.name().into_owned()).collect();
    names.dedup();
    names
}
