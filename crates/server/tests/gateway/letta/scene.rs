//! A gateway with agents and scripted models, for two tenants.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use throughline_agent::{Ports, Runner, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec};
use throughline_codec::{Catalog, events_from_reply};
use throughline_core::{
    Body, Call, CallId, Clock, Delta, Event, IdGenerator, Item, ItemPosition, KeyRole, Model,
    ModelError, ModelErrorKind, ModelFuture, ModelRegistry, ModelStream, ReasoningFormat, Reply,
    Role, Seal, StopReason, Store, StoreFuture, Target, Tenant, Thought, ThoughtKind, ToolCall,
    Usage,
};
use throughline_json::{Json, Name};
use throughline_server::{
    Admission, AgentApi, Allowance, Keyring, Price, Prices, ReplayMode, RunCaps, TokenPrices,
};
use throughline_store::Journal;
use throughline_testkit::Folder;
use tokio::sync::Semaphore;

use crate::harness::{GatewayOptions, begin, serve_on, upstream};
use crate::letta::promised;

pub(crate) const MODEL: &str = "claude-sonnet-4-5";
/// A second model, which never fails.
pub(crate) const OTHER: &str = "claude-opus-4-5";

/// The next action of a scripted model.
enum ScriptedAction {
    Text(String),
    Call(&'static str, &'static str),
    Calls(Vec<(&'static str, &'static str)>),
    TextAndCall(String, &'static str, &'static str),
    Fails,
    /// An error that leaves open whether the provider processed the request.
    GetsLost,
}

/// A model that emits two signed Thoughts and then follows the instruction in the last user
/// message.
struct ScriptedModel {
    target: Target,
    /// The number of model calls in this process.
    model_calls: Arc<AtomicU64>,
    /// One permit for each reply to a user message that contains `slow`.
    permits: Arc<Semaphore>,
}

impl Model for ScriptedModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        self.model_calls.fetch_add(1, Ordering::SeqCst);
        let user_text = last_user_text(&call);
        let action = match script(&call, &user_text) {
            ScriptedAction::Fails if self.target.model() == OTHER => {
                ScriptedAction::Text("I will.".to_owned())
            }
            action => action,
        };
        let turn = call.items.iter().filter(|item| item.role == Role::Assistant).count();
        let mut reply = match action {
            ScriptedAction::Fails => {
                return Box::pin(async {
                    Err(ModelError::new(ModelErrorKind::Other, "it does not want to"))
                });
            }
            ScriptedAction::GetsLost => {
                let error = ModelError::new(ModelErrorKind::Other, "no response in time");
                return Box::pin(async move { Err(error.with_possible_charge()) });
            }
            ScriptedAction::Text(text) => {
                self.reply(vec![Body::Text(text.into())], StopReason::Done, turn)
            }
            ScriptedAction::TextAndCall(text, name, args) => self.reply(
                vec![Body::Text(text.into()), tool_call(name, args, turn, 0)],
                StopReason::Tools,
                turn,
            ),
            ScriptedAction::Call(name, args) => {
                self.reply(vec![tool_call(name, args, turn, 0)], StopReason::Tools, turn)
            }
            ScriptedAction::Calls(calls) => {
                let calls = calls.iter().enumerate();
                let calls = calls.map(|(index, (name, args))| tool_call(name, args, turn, index));
                self.reply(calls.collect(), StopReason::Tools, turn)
            }
        };
        if user_text.contains("expensive") {
            reply.usage.input = 5000;
        }
        let events: Vec<_> = pieces(events_from_reply(&reply)).into_iter().map(Ok).collect();
        let is_slow = user_text.contains("slow");
        Box::pin(async move {
            if is_slow {
                self.permits.acquire().await.unwrap().forget();
            }
            let events = Box::pin(futures_util::stream::iter(events));
            Ok(ModelStream { fates: Vec::new(), warnings: Vec::new(), events })
        })
    }
}

impl ScriptedModel {
    fn reply(&self, bodies: Vec<Body>, stop: StopReason, turn: usize) -> Reply {
        let thoughts = ["Let me see.", "That is it."].iter().enumerate().map(|(index, text)| {
            let thought = Thought::issued(*text, ThoughtKind::Text, ReasoningFormat::unknown());
            let mut item = item(index, Body::Thought(thought));
            let signature = Bytes::from(format!("signature-{turn}-{index}"));
            let owner = Arc::clone(&self.target.origin);
            item.seals.push(Seal::new(signature, "anthropic.signature", owner, "/signature"));
            item
        });
        let bodies = bodies.into_iter().enumerate().map(|(index, body)| item(index + 2, body));
        Reply {
            id: None,
            items: thoughts.chain(bodies).collect(),
            stop,
            usage: Usage { input: 100, output: 10, thought: 4, ..Usage::default() },
            origin: Arc::clone(&self.target.origin),
            extras: Vec::new(),
        }
    }
}

fn item(index: usize, body: Body) -> Item {
    Item::new(format!("i{index}"), ItemPosition::new(0, index), Role::Assistant, body)
}

fn tool_call(name: &str, args: &str, turn: usize, index: usize) -> Body {
    let id = format!("call_{turn}_{index}");
    Body::Call(ToolCall {
        id: CallId::from(id.clone()),
        wire_id: Some(id.into()),
        name: Name::from(name),
        args: Json::parse(args.to_owned()).unwrap(),
        custom: false,
    })
}

/// Returns the same events with each text split into words.
fn pieces(events: Vec<Event>) -> Vec<Event> {
    let split_words =
        |text: &str| text.split_inclusive(' ').map(Arc::<str>::from).collect::<Vec<_>>();
    let split = |event: Event| match event {
        Event::Delta { index, delta: Delta::Text(text) } => split_words(&text)
            .into_iter()
            .map(|word| Event::Delta { index, delta: Delta::Text(word) })
            .collect(),
        Event::Delta { index, delta: Delta::Thought(text) } => split_words(&text)
            .into_iter()
            .map(|word| Event::Delta { index, delta: Delta::Thought(word) })
            .collect(),
        other => vec![other],
    };
    events.into_iter().flat_map(split).collect()
}

fn last_user_text(call: &Call) -> String {
    let users = call.items.iter().filter(|item| item.role == Role::User);
    let texts = users.filter_map(|item| match &item.body {
        Body::Text(text) => Some(text.to_string()),
        _ => None,
    });
    texts.last().unwrap_or_default()
}

/// Returns the action that the last user message requests. After tool results, the model ends the
/// turn.
fn script(call: &Call, user_text: &str) -> ScriptedAction {
    let has_result = call.items.last().is_some_and(|item| matches!(item.body, Body::Result(_)));
    let is_summary = call
        .system
        .iter()
        .any(|item| matches!(&item.body, Body::Text(text) if text.contains("You summarise")));
    if is_summary {
        return ScriptedAction::Text(
            r#"{"summary": "They talked.", "stable_facts": []}"#.to_owned(),
        );
    }
    if user_text.contains("forever") {
        return ScriptedAction::Call("get_weather", r#"{"city":"Paris"}"#);
    }
    if has_result && user_text.contains("switch") {
        return ScriptedAction::Fails;
    }
    if has_result {
        return ScriptedAction::Text("That is what the tools say.".to_owned());
    }
    match user_text {
        _ if user_text.contains("weather") => {
            ScriptedAction::Call("get_weather", r#"{"city":"Paris"}"#)
        }
        _ if user_text.contains("repeat") => {
            let args = r#"{"to":"a@example.com"}"#;
            ScriptedAction::TextAndCall(user_text.to_owned(), "send_mail", args)
        }
        _ if user_text.contains("mails") => ScriptedAction::Calls(vec![
            ("send_mail", r#"{"to":"a@example.com"}"#),
            ("send_mail", r#"{"to":"b@example.com"}"#),
        ]),
        _ if user_text.contains("mail") => {
            ScriptedAction::Call("send_mail", r#"{"to":"a@example.com"}"#)
        }
        _ if user_text.contains("clock") => {
            ScriptedAction::Call("local_time", r#"{"zone":"Paris"}"#)
        }
        _ if user_text.contains("question") => ScriptedAction::Call(
            "ask_user_question",
            r#"{"questions":[{"question":"Which?","options":[{"label":"One"},{"label":"Two"}]}]}"#,
        ),
        _ if user_text.contains("plan") => ScriptedAction::Call(
            "manage_todo_list",
            r#"{"operation":"write","todoList":[{"id":1,"title":"Go","description":"Go there","status":"not-started"}]}"#,
        ),
        _ if user_text.contains("fail") => ScriptedAction::Fails,
        _ if user_text.contains("lost") => ScriptedAction::GetsLost,
        _ => ScriptedAction::Text(format!("You said: {user_text}")),
    }
}

struct TwoModels([Arc<ScriptedModel>; 2]);

impl ModelRegistry for TwoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let found = self.0.iter().find(|model| name.ends_with(model.target.model()));
        let unknown =
            || ModelError::new(ModelErrorKind::Other, format!("there is no model {name}"));
        Ok(Arc::clone(found.ok_or_else(unknown)?) as Arc<dyn Model>)
    }
}

/// A tool that records its arguments and returns them.
pub(crate) struct RecordingTool(ToolSpec, Arc<Mutex<Vec<String>>>);

/// Creates a recording tool for tests that ignore the recorded calls.
pub(crate) fn noting(spec: ToolSpec) -> RecordingTool {
    RecordingTool(spec, Arc::default())
}

impl Tool for RecordingTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, args: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            self.1.lock().unwrap().push(format!("{} {}", self.0.name, args.as_str()));
            ToolAnswer::text(format!("did {}", args.as_str()))
        })
    }
}

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Generates sequential ids that are unique across all gateways in the test process.
pub(crate) struct SequentialIds;

static IDS: AtomicU64 = AtomicU64::new(0);

impl IdGenerator for SequentialIds {
    fn generate(&self, prefix: &str) -> Name {
        Name::from(format!("{prefix}_{}", IDS.fetch_add(1, Ordering::SeqCst)))
    }
}

/// A keyring in which each key names its tenant; a suffix after a dot distinguishes a tenant's
/// keys.
#[derive(Clone, Default)]
pub(crate) struct RevocableKeys {
    revoked: Arc<Mutex<Vec<String>>>,
    /// Budgets in millionths of a dollar.
    budgets: Arc<Mutex<HashMap<String, u64>>>,
}

impl RevocableKeys {
    pub(crate) fn revoke(&self, name: &str) {
        self.revoked.lock().unwrap().push(name.to_owned());
    }

    /// Sets the budget of a key in millionths of a dollar.
    pub(crate) fn set_budget(&self, name: &str, micro_usd: u64) {
        self.budgets.lock().unwrap().insert(name.to_owned(), micro_usd);
    }

    fn admission(&self, name: &str) -> Admission {
        if self.revoked.lock().unwrap().iter().any(|revoked| revoked == name) {
            return Admission::Refused;
        }
        let (tenant, kind) = name.split_once('.').unwrap_or((name, name));
        let budget = self.budgets.lock().unwrap().get(name).copied();
        Admission::Key {
            role: KeyRole::parse(kind),
            tenant: Tenant::from(tenant),
            id: Name::from(name),
            models: match kind {
                "poor" => vec!["gpt-*".into()],
                "narrow" => vec!["claude-sonnet-*".into()],
                _ => Vec::new(),
            },
            allowance: Allowance { micro_usd: budget, ..Allowance::default() },
        }
    }
}

impl Keyring for RevocableKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let name = key.and_then(|key| key.strip_prefix("tl_"));
        let admission = name.map_or(Admission::Refused, |name| self.admission(name));
        Box::pin(async move { Ok(admission) })
    }

    fn admit_id<'a>(&'a self, tenant: &'a Tenant, id: &'a Name) -> StoreFuture<'a, Admission> {
        let known = match self.admission(id) {
            Admission::Key { tenant: owner, .. } if owner != *tenant => Admission::Refused,
            known => known,
        };
        Box::pin(async move { Ok(known) })
    }
}

/// A price table in which a hundred tokens cost one cent.
struct CentPrices;

impl Prices for CentPrices {
    fn price(&self, _: &str, _: &str) -> Option<Price> {
        let input = 100_000_000;
        Some(Price::flat(TokenPrices { input, cached: input, written: input, output: 0 }))
    }

    fn version(&self) -> Name {
        "cents".into()
    }
}

pub(crate) struct AgentGateway {
    pub(crate) url: String,
    pub(crate) journal: Journal,
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) keys: RevocableKeys,
    /// The number of model calls in this process.
    pub(crate) model_calls: Arc<AtomicU64>,
    folder: Arc<Folder>,
}

const LEASE: Duration = Duration::from_secs(1);

/// Creates the agent API of one process.
fn agents(
    store: Arc<dyn Store>,
    ran: &Arc<Mutex<Vec<String>>>,
    permits: &Arc<Semaphore>,
    model_calls: &Arc<AtomicU64>,
    lease: Duration,
) -> AgentApi {
    let mut runner = runner(store, permits, model_calls);
    let tools = [
        with_text("get_weather", "city").idempotent(),
        with_text("send_mail", "to").needs_approval(),
    ];
    let tools = tools.map(|spec| Arc::new(RecordingTool(spec, Arc::clone(ran))) as Arc<dyn Tool>);
    runner = runner.with_tools(tools);
    runner.lease = lease;
    AgentApi::new(runner).with_ping(Duration::from_millis(50))
}

/// Creates a runner with the scripted models and without tools.
fn runner(store: Arc<dyn Store>, permits: &Arc<Semaphore>, model_calls: &Arc<AtomicU64>) -> Runner {
    let models = TwoModels([MODEL, OTHER].map(|name| {
        let target = Catalog::builtin().target_for("anthropic", name, "test").unwrap();
        Arc::new(ScriptedModel {
            target,
            model_calls: Arc::clone(model_calls),
            permits: Arc::clone(permits),
        })
    }));
    let ports =
        Ports { clock: Arc::new(SystemClock), ids: Arc::new(SequentialIds), secret: [7; 32] };
    Runner::new(store, Arc::new(models), ports)
}

pub(crate) fn with_text(name: &str, key: &str) -> ToolSpec {
    let schema =
        json!({"type": "object", "properties": {key: {"type": "string"}}, "required": [key]});
    ToolSpec::new(name).description("A tool.").schema(Json::from(&schema))
}

impl AgentGateway {
    pub(crate) async fn open() -> Self {
        let folder = Folder::new("letta");
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let options = throughline_store::Options::default();
        let journal = throughline_store::open(&url, &options).await.unwrap();
        let caps = (RunCaps::default(), LEASE);
        Self::on(journal, Arc::new(folder), RevocableKeys::default(), caps, pending()).await
    }

    /// Starts another gateway on the same store, whose provider has this URL.
    pub(crate) async fn with_provider(&self, url: &str) -> Self {
        let (journal, folder) = (self.journal.clone(), Arc::clone(&self.folder));
        // The runs of this gateway are driven here, even on a busy machine.
        let caps = (RunCaps::default(), Duration::from_mins(1));
        Self::at(url, journal, folder, self.keys.clone(), caps, pending()).await
    }

    /// Opens a gateway with these run caps per tenant.
    pub(crate) async fn capped(caps: RunCaps) -> Self {
        let gateway = Self::open().await;
        let (journal, folder) = (gateway.journal.clone(), Arc::clone(&gateway.folder));
        // Tests of caps keep runs active for long, so the lease must last even on a busy machine.
        let lease = Duration::from_mins(1);
        Self::on(journal, folder, gateway.keys.clone(), (caps, lease), pending()).await
    }

    /// Starts another process on the same store.
    pub(crate) async fn beside(&self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let (journal, folder) = (self.journal.clone(), Arc::clone(&self.folder));
        Self::on(journal, folder, self.keys.clone(), (RunCaps::default(), LEASE), stop).await
    }

    async fn on(
        journal: Journal,
        folder: Arc<Folder>,
        keys: RevocableKeys,
        caps: (RunCaps, Duration),
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        // Most tests do not call providers.
        Self::at("http://127.0.0.1:1", journal, folder, keys, caps, stop).await
    }

    async fn at(
        provider: &str,
        journal: Journal,
        folder: Arc<Folder>,
        keys: RevocableKeys,
        (caps, lease): (RunCaps, Duration),
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (ran, permits) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let model_calls = Arc::new(AtomicU64::new(0));
        let (tool_log, model_permits, archive) =
            (Arc::clone(&ran), Arc::clone(&permits), journal.clone());
        let calls = Arc::clone(&model_calls);
        let options = GatewayOptions {
            keyring: Arc::new(keys.clone()),
            prices: Arc::new(CentPrices),
            agents: Some(Box::new(move |store| {
                let agents = agents(store, &tool_log, &model_permits, &calls, lease);
                let keys = Arc::new(archive.clone());
                agents.with_caps(caps).with_archive(Arc::new(archive)).with_keys(keys)
            })),
            ..GatewayOptions::of(ReplayMode::Repair)
        };
        let provider = Arc::new(upstream(provider));
        let url = serve_on(journal.clone(), provider, options, stop).await;
        Self { url, journal, ran, permits, keys, model_calls, folder }
    }

    /// Returns a runner of another program on the same store.
    pub(crate) fn runner(&self) -> Runner {
        runner(Arc::new(self.journal.clone()), &self.permits, &self.model_calls)
    }

    pub(crate) async fn send(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Bytes) {
        let bearer = format!("Bearer tl_{key}");
        let headers = [("authorization", &*bearer), ("content-type", "application/json")];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = begin(&self.url, method, path, body, &headers).await;
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Sends a request as tenant `us`, checks that the request succeeds, and returns the response.
    pub(crate) async fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, response) = self.try_request(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {response}");
        response
    }

    pub(crate) async fn try_request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, bytes) = self.send("us", method, path, body).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let answer = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        promised::check(method, path, status, &answer);
        (status, answer)
    }

    /// Reads the frames of a stream up to `[DONE]` and leaves out the pings.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, bytes) = self.send("us", "POST", path, body).await;
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        let mut frames: Vec<&str> = text.split("\n\n").filter(|frame| !frame.is_empty()).collect();
        assert_eq!(frames.pop(), Some("data: [DONE]"), "{text}");
        frames
            .into_iter()
            .map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap())
            .filter(|frame: &Value| frame["message_type"] != "ping")
            .collect()
    }

    /// Creates an agent with the test tools; `more` adds or replaces fields. Returns the agent's
    /// id.
    pub(crate) async fn agent(&self, more: &Value) -> String {
        let mut body = json!({"name": "Ada", "model": MODEL, "system": "Be kind.", "tools": ["get_weather", "send_mail"]});
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let agent = self.request("POST", "/v1/agents/", &body).await;
        agent["id"].as_str().unwrap().to_owned()
    }

    /// Sends a message to an agent and returns the response.
    pub(crate) async fn send_message(&self, agent: &str, text: &str) -> Value {
        self.request("POST", &format!("/v1/agents/{agent}/messages"), &user_message(text)).await
    }
}

/// Returns a request body with this user message.
pub(crate) fn user_message(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// Returns the message types, in order.
pub(crate) fn kinds(messages: &Value) -> Vec<&str> {
    let list = messages.as_array().unwrap();
    list.iter().map(|message| message["message_type"].as_str().unwrap()).collect()
}
