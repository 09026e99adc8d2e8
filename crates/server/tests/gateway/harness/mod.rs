//! Checks that an official client parses a response through the gateway like a response from the
//! provider.

pub(crate) mod official;
pub(crate) mod scripted;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use throughline_agent::Ports;
use throughline_codec::{Catalog, Frame, Framer, Framing, SharedCatalog};
use throughline_core::{Provider, Store, StoreFuture, Upstream, Wire};
use throughline_json::Name;
use throughline_provider::{CredentialSource, Endpoint, EndpointOptions, Http, RetryPolicy};
use throughline_replay::{Claims, Replay};
use throughline_server::{
    Admission, AgentApi, Gateway, Keyring, Limits, ModelRouter, NoPrices, NullLog, Passthrough,
    PrefixPolicy, Prices, ReplayMode, RouteTarget, Server, Telemetry,
};
use throughline_sim::Simulator;
use throughline_store::Journal;
use throughline_testkit::Folder;

pub(crate) const MODELS: [&str; 4] =
    ["sim/claude-sonnet-4-5", "sim/gpt-5.2", "sim/gemini-3-pro-preview", "sim/deepseek-v4-pro"];
/// A route whose first target is an unreachable Claude and whose second target is a GPT.
pub(crate) const FALLBACK: &str = "fallback";
/// An endpoint without a listener.
pub(crate) const DOWN: &str = "down";
pub(crate) const QUESTION: &str = "What is the weather in Paris, and what time is it there?";

/// A dialect in which the test client sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientDialect {
    Messages,
    Responses,
    Chat,
    Gemini,
}

impl ClientDialect {
    pub(crate) const ALL: [ClientDialect; 4] = [
        ClientDialect::Messages,
        ClientDialect::Responses,
        ClientDialect::Chat,
        ClientDialect::Gemini,
    ];
}

/// A running gateway in front of a simulator.
pub(crate) struct SimGateway {
    url: String,
    simulator: Simulator,
    journal: Journal,
    _folder: Folder,
}

/// A keyring without keys.
struct NoKeys;

impl Keyring for NoKeys {
    fn admit<'a>(&'a self, _: Option<&'a str>) -> StoreFuture<'a, Admission> {
        Box::pin(async { Ok(Admission::Open) })
    }
}

/// Routes each model to the simulator of its provider.
struct SimRouter {
    catalog: Arc<Catalog>,
}

impl SimRouter {
    fn row(&self, model: &str) -> Option<Arc<Provider>> {
        let rows = [
            ("claude", "anthropic"),
            ("gpt", "openai"),
            ("gemini", "gemini"),
            ("deepseek", "deepseek"),
            ("kimi", "moonshot"),
            ("qwen", "qwen"),
            ("mistral", "mistral"),
            ("us.anthropic", "bedrock"),
            ("anthropic/", "openrouter"),
        ];
        let (_, row) = rows.iter().find(|(begins, _)| model.starts_with(begins))?;
        self.catalog.provider(row)
    }
}

impl ModelRouter for SimRouter {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        if model == FALLBACK {
            let [claude, gpt, ..] = MODELS;
            let down = self.reach(claude)?.into_iter();
            let down = down.map(|reached| RouteTarget { endpoint: DOWN.into(), ..reached });
            return Ok(down.chain(self.reach(gpt)?).collect());
        }
        let model = model.strip_prefix("sim/").unwrap_or(model);
        let provider = self.row(model).ok_or_else(|| format!("there is no model `{model}`"))?;
        let endpoint = Name::from(format!("sim-{}", provider.name));
        Ok(vec![RouteTarget {
            endpoint,
            account: "sim".into(),
            is_callers: false,
            provider,
            model: model.into(),
        }])
    }

    fn of_wire(&self, _: &Wire) -> Option<RouteTarget> {
        None
    }

    fn models(&self) -> Vec<Name> {
        MODELS.iter().map(|model| Name::from(*model)).collect()
    }
}

/// Returns an HTTP client for the simulators' endpoints. Each catalog entry is at
/// `{base}/at/{entry}`.
pub(crate) fn upstream(base: &str) -> Http {
    let rows = [
        "anthropic",
        "openai",
        "gemini",
        "deepseek",
        "moonshot",
        "qwen",
        "mistral",
        "bedrock",
        "openrouter",
    ];
    let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let options = EndpointOptions { retry, ..EndpointOptions::default() };
    let endpoint = |name: &str, row: &str, at: &str| {
        let row = Catalog::builtin().provider(row).unwrap();
        let key = CredentialSource::Key(throughline_core::Credential::new("sim-key"));
        Endpoint::new(name, row, at, key).unwrap().with_options(options)
    };
    let simulated =
        rows.map(|row| endpoint(&format!("sim-{row}"), row, &format!("{base}/at/{row}")));
    // Port 1 has no listener.
    let endpoints =
        simulated.into_iter().chain([endpoint(DOWN, "anthropic", "http://127.0.0.1:1")]);
    Http::new(endpoints, Arc::new(|| jiff::Timestamp::UNIX_EPOCH)).unwrap()
}

pub(crate) struct GatewayOptions {
    pub(crate) mode: ReplayMode,
    pub(crate) prefix: PrefixPolicy,
    pub(crate) keyring: Arc<dyn Keyring>,
    pub(crate) directory: Arc<dyn ModelRouter>,
    pub(crate) catalog: SharedCatalog,
    /// Paths to forward although the gateway does not recognise them.
    pub(crate) passthrough: Passthrough,
    pub(crate) allow_open: bool,
    pub(crate) prices: Arc<dyn Prices>,
    pub(crate) limits: Limits,
    /// Whether a shutdown waits for open responses.
    pub(crate) drains: bool,
    /// Creates the agent API; `None` for tests that do not need it.
    pub(crate) agents: Option<MakeAgents>,
}

/// Creates the agent API for a given store.
pub(crate) type MakeAgents = Box<dyn FnOnce(Arc<dyn Store>) -> AgentApi + Send>;

impl GatewayOptions {
    /// Returns options for a gateway without keys in front of the simulators.
    pub(crate) fn of(mode: ReplayMode) -> Self {
        let directory = SimRouter { catalog: Arc::new(Catalog::builtin().clone()) };
        Self {
            mode,
            prefix: PrefixPolicy::default(),
            keyring: Arc::new(NoKeys),
            directory: Arc::new(directory),
            catalog: SharedCatalog::default(),
            passthrough: Passthrough::default(),
            allow_open: false,
            prices: Arc::new(NoPrices),
            limits: Limits { capture: Duration::from_secs(5), ..Limits::default() },
            drains: false,
            agents: None,
        }
    }
}

/// Starts a gateway in front of this upstream. Returns the gateway's address, its store, and the
/// store's folder.
pub(crate) async fn serve(
    upstream: Arc<dyn Upstream>,
    options: GatewayOptions,
) -> (String, Journal, Folder) {
    let folder = Folder::new("gateway");
    let url = format!("sqlite://{}", folder.join("store.db").display());
    let store =
        throughline_store::open(&url, &throughline_store::Options::default()).await.unwrap();
    let url = serve_on(store.clone(), upstream, options, std::future::pending()).await;
    (url, store, folder)
}

/// Starts a gateway on this store. On shutdown, the gateway stops immediately, unless the options
/// say otherwise. Returns the gateway's address.
pub(crate) async fn serve_on(
    store: Journal,
    upstream: Arc<dyn Upstream>,
    options: GatewayOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> String {
    let operations = Telemetry::new(
        Arc::new(store.clone()),
        options.prices,
        Ports::with_system_clock([0; 32]).clock,
        Arc::new(NullLog),
        options.limits,
    )
    .unwrap();
    let gateway = Gateway {
        replay: Arc::new(Replay::new(Arc::new(store.clone()), Claims::new([7; 32]))),
        upstream,
        directory: options.directory,
        catalog: options.catalog,
        mode: options.mode,
        prefix: options.prefix,
        keyring: options.keyring,
        sign_in: None,
        allow_open: options.allow_open,
        hosts: vec!["gateway.example".into()],
        passthrough: options.passthrough,
        body_limit: 64 << 20,
        depth_limit: 512,
        operations: Arc::new(operations),
        redaction: None,
    };
    let agents = options.agents.map(|make| Arc::new(make(Arc::new(store.clone()))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let drains = options.drains;
    let now = async move {
        if drains {
            std::future::pending::<()>().await;
        }
    };
    tokio::spawn(throughline_server::serve(Server::new(gateway, agents), listener, stop, now));
    url
}

/// Sends a request and returns the response without waiting for its body.
pub(crate) async fn begin(
    url: &str,
    method: &str,
    path: &str,
    body: Vec<u8>,
    headers: &[(&str, &str)],
) -> hyper::Response<hyper::body::Incoming> {
    let mut request = hyper::Request::builder().method(method).uri(format!("{url}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request).await.unwrap()
}

impl SimGateway {
    pub(crate) async fn open(mode: ReplayMode) -> Self {
        Self::open_with(GatewayOptions::of(mode), throughline_sim::Options::default()).await
    }

    pub(crate) async fn open_for(mode: ReplayMode, keyring: Arc<dyn Keyring>) -> Self {
        let options = GatewayOptions { keyring, ..GatewayOptions::of(mode) };
        Self::open_with(options, throughline_sim::Options::default()).await
    }

    /// Opens a gateway in front of simulators with these options.
    pub(crate) async fn open_with(
        options: GatewayOptions,
        simulators: throughline_sim::Options,
    ) -> Self {
        Self::open_before(|_| options, simulators).await
    }

    /// Like `open_with`, for options that need the simulators' address.
    pub(crate) async fn open_before(
        make_options: impl FnOnce(String) -> GatewayOptions,
        simulators: throughline_sim::Options,
    ) -> Self {
        let simulator = throughline_sim::start(simulators).await.unwrap();
        let options = make_options(simulator.url());
        let (url, journal, folder) = serve(Arc::new(upstream(&simulator.url())), options).await;
        Self { url, simulator, journal, _folder: folder }
    }

    pub(crate) fn simulator_url(&self) -> String {
        self.simulator.url()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the tool call ids in the first reply, as the caller sees them.
    pub(crate) async fn call_ids(
        &self,
        dialect: ClientDialect,
        model: &str,
        stream: bool,
    ) -> Vec<String> {
        let reply =
            self.send_history(dialect, model, &[dialect.user(QUESTION)], stream).await.unwrap();
        dialect.calls(&reply).into_iter().map(|(id, _)| id).collect()
    }

    #[allow(dead_code, reason = "only the official clients use it")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the simulator's ledger: the requests that it received, and its verdicts.
    pub(crate) fn ledger(&self) -> throughline_sim::Ledger {
        self.simulator.ledger()
    }

    pub(crate) fn assert_nothing_refused(&self) {
        let ledger = self.simulator.ledger();
        assert!(!ledger.entries.is_empty(), "the simulator received no request");
        for entry in &ledger.entries {
            assert_eq!(entry.refused, None, "{} {} refused {entry:?}", entry.wire, entry.model);
        }
    }

    /// Runs a conversation of two questions, with tools and reasoning. Returns the number of model
    /// replies.
    pub(crate) async fn converse(
        &self,
        dialect: ClientDialect,
        model: &str,
        stream: bool,
        drops: bool,
    ) -> usize {
        let conversed = self.try_converse(dialect, model, stream, drops).await;
        let label = format!("{dialect:?} → {model}, streamed {stream}, drops {drops}");
        conversed.map_err(|error| format!("{label}: {error}")).unwrap()
    }

    pub(crate) async fn try_converse(
        &self,
        dialect: ClientDialect,
        model: &str,
        stream: bool,
        drops: bool,
    ) -> Result<usize, String> {
        let mut history = vec![dialect.user(QUESTION)];
        let (mut answers, mut finals) = (0, 0);
        while finals < 2 {
            let reply = self.send_history(dialect, model, &history, stream).await?;
            answers += 1;
            assert!(answers < 12, "the conversation does not end: {history:#?}");
            let calls = dialect.calls(&reply);
            let reply = if drops { dialect.stripped(reply) } else { reply };
            history.extend(reply);
            if calls.is_empty() {
                finals += 1;
                history.push(dialect.user("Thank you. And once more, please."));
            } else {
                history.extend(dialect.results(&calls));
            }
        }
        Ok(answers)
    }

    /// Returns the number of requests that reached the simulator.
    pub(crate) fn requests(&self) -> usize {
        self.simulator.ledger().entries.len()
    }

    /// Sends one request; returns the status and body of the response.
    pub(crate) async fn post(
        &self,
        dialect: ClientDialect,
        model: &str,
        history: &[Value],
    ) -> (u16, Value) {
        let (path, body) = dialect.request(model, history, false);
        self.raw(&path, body.to_string().into_bytes(), &[]).await
    }

    pub(crate) async fn raw(
        &self,
        path: &str,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let (status, _, body) = self.send("POST", path, body, headers).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, Vec::new(), &[]).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Sends any request; returns the status, headers and body.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> (u16, hyper::HeaderMap, bytes::Bytes) {
        let response = self.begin(method, path, body, headers).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Sends any request; returns the response without waiting for its body.
    pub(crate) async fn begin(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> hyper::Response<hyper::body::Incoming> {
        begin(&self.url, method, path, body, headers).await
    }

    /// Runs a conversation in which each reply comes from the next model in `models`, even within a
    /// tool loop.
    pub(crate) async fn switch(
        &self,
        dialect: ClientDialect,
        models: &[&str],
        stream: bool,
        drops: bool,
    ) {
        let mut history = vec![dialect.user(QUESTION)];
        for model in models {
            let reply = self.send_history(dialect, model, &history, stream).await;
            let label = format!("{dialect:?} → {model}, streamed {stream}, drops {drops}");
            let reply = reply.map_err(|error| format!("{label}: {error}")).unwrap();
            let calls = dialect.calls(&reply);
            history.extend(if drops { dialect.stripped(reply) } else { reply });
            if calls.is_empty() {
                history.push(dialect.user("Thank you. And once more, please."));
            } else {
                history.extend(dialect.results(&calls));
            }
        }
    }

    /// Sends the history and returns the messages that the reply adds.
    pub(crate) async fn send_history(
        &self,
        dialect: ClientDialect,
        model: &str,
        history: &[Value],
        stream: bool,
    ) -> Result<Vec<Value>, String> {
        let (path, body) = dialect.request(model, history, stream);
        let request = hyper::Request::post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let status = response.status();
        let kind =
            response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
        }
        Ok(dialect.reply(&body, kind.as_deref().filter(|_| stream)))
    }
}

fn tools() -> [(&'static str, Value); 2] {
    let with = |key: &str| json!({"type": "object", "properties": {key: {"type": "string"}}, "required": [key]});
    [("get_weather", with("city")), ("get_time", with("zone"))]
}

type CallIdAndName = (String, String);

impl ClientDialect {
    pub(crate) fn user(self, text: &str) -> Value {
        match self {
            ClientDialect::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            ClientDialect::Messages | ClientDialect::Responses | ClientDialect::Chat => {
                json!({"role": "user", "content": text})
            }
        }
    }

    pub(crate) fn request(self, model: &str, history: &[Value], stream: bool) -> (String, Value) {
        match self {
            ClientDialect::Messages => {
                let tools =
                    tools().map(|(name, schema)| json!({"name": name, "input_schema": schema}));
                let thinking = json!({"type": "enabled", "budget_tokens": 2048});
                let body = json!({"model": model, "max_tokens": 8192, "thinking": thinking, "tools": tools,
                                  "messages": history, "stream": stream});
                ("/v1/messages".to_owned(), body)
            }
            ClientDialect::Responses => {
                let tools = tools().map(|(name, schema)| json!({"type": "function", "name": name, "parameters": schema}));
                let body = json!({"model": model, "input": history, "tools": tools, "store": false,
                                  "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium"},
                                  "stream": stream});
                ("/v1/responses".to_owned(), body)
            }
            ClientDialect::Chat => {
                let tools = tools().map(|(name, schema)| {
                    json!({"type": "function", "function": {"name": name, "parameters": schema}})
                });
                // Mistral Medium 3.5 has only the efforts `none` and `high`.
                let effort = if model.contains("mistral-medium-3.5") { "high" } else { "medium" };
                let body = json!({"model": model, "messages": history, "tools": tools,
                                  "reasoning_effort": effort, "stream": stream});
                ("/v1/chat/completions".to_owned(), body)
            }
            ClientDialect::Gemini => {
                let tools = tools()
                    .map(|(name, schema)| json!({"name": name, "parametersJsonSchema": schema}));
                let thinking = json!({"includeThoughts": true, "thinkingLevel": "LOW"});
                let body = json!({"contents": history, "tools": [{"functionDeclarations": tools}],
                                  "generationConfig": {"thinkingConfig": thinking}});
                let verb = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
                (format!("/v1beta/models/{model}:{verb}"), body)
            }
        }
    }

    /// Returns the messages that a response adds to the history. `stream` is the content type of a
    /// streamed response.
    pub(crate) fn reply(self, body: &[u8], stream: Option<&str>) -> Vec<Value> {
        let Some(kind) = stream else {
            return self.answer(&serde_json::from_slice(body).unwrap());
        };
        let (mut reader, mut frames) =
            (Framer::new(Framing::from_content_type(kind).unwrap()), Vec::new());
        reader.push(body, &mut frames).unwrap();
        reader.finish(&mut frames).unwrap();
        self.streamed(&frames)
    }

    pub(crate) fn answer(self, body: &Value) -> Vec<Value> {
        match self {
            ClientDialect::Messages => {
                vec![json!({"role": "assistant", "content": body["content"]})]
            }
            ClientDialect::Responses => body["output"].as_array().unwrap().clone(),
            ClientDialect::Chat => vec![body["choices"][0]["message"].clone()],
            ClientDialect::Gemini => vec![body["candidates"][0]["content"].clone()],
        }
    }

    pub(crate) fn streamed(self, frames: &[Frame]) -> Vec<Value> {
        let events = frames.iter().filter(|frame| &*frame.data != b"[DONE]");
        let events: Vec<Value> =
            events.map(|frame| serde_json::from_slice(&frame.data).unwrap()).collect();
        match self {
            ClientDialect::Messages => {
                vec![json!({"role": "assistant", "content": blocks(&events)})]
            }
            ClientDialect::Responses => {
                let last =
                    events.iter().find(|event| event["type"] == "response.completed").unwrap();
                self.answer(&last["response"])
            }
            ClientDialect::Chat => vec![assemble_chat_message(&events)],
            ClientDialect::Gemini => {
                let parts =
                    |event: &Value| event["candidates"][0]["content"]["parts"].as_array().cloned();
                let parts: Vec<Value> = events.iter().filter_map(parts).flatten().collect();
                vec![json!({"role": "model", "parts": parts})]
            }
        }
    }

    pub(crate) fn calls(self, reply: &[Value]) -> Vec<CallIdAndName> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
        match self {
            ClientDialect::Messages => {
                let blocks = all(&reply[0]["content"])
                    .into_iter()
                    .filter(|block| block["type"] == "tool_use");
                blocks.map(|block| (text(&block["id"]), text(&block["name"]))).collect()
            }
            ClientDialect::Responses => {
                let calls = reply.iter().filter(|item| item["type"] == "function_call");
                calls.map(|item| (text(&item["call_id"]), text(&item["name"]))).collect()
            }
            ClientDialect::Chat => {
                let calls = all(&reply[0]["tool_calls"]).into_iter();
                calls.map(|call| (text(&call["id"]), text(&call["function"]["name"]))).collect()
            }
            ClientDialect::Gemini => {
                let calls = all(&reply[0]["parts"])
                    .into_iter()
                    .filter(|part| part["functionCall"].is_object());
                calls
                    .map(|part| {
                        (text(&part["functionCall"]["id"]), text(&part["functionCall"]["name"]))
                    })
                    .collect()
            }
        }
    }

    pub(crate) fn results(self, calls: &[CallIdAndName]) -> Vec<Value> {
        match self {
            ClientDialect::Messages => {
                let results = calls.iter().map(|(id, _)| {
                    json!({"type": "tool_result", "tool_use_id": id, "content": "sunny and noon"})
                });
                vec![json!({"role": "user", "content": results.collect::<Vec<_>>()})]
            }
            ClientDialect::Responses => calls
                .iter()
                .map(|(id, _)| json!({"type": "function_call_output", "call_id": id, "output": "sunny and noon"}))
                .collect(),
            ClientDialect::Chat => calls
                .iter()
                .map(|(id, _)| json!({"role": "tool", "tool_call_id": id, "content": "sunny and noon"}))
                .collect(),
            ClientDialect::Gemini => {
                let parts = calls.iter().map(|(id, name)| {
                    let mut response = json!({"name": name, "response": {"result": "sunny and noon"}});
                    if !id.is_empty() {
                        response["id"] = json!(id);
                    }
                    json!({"functionResponse": response})
                });
                vec![json!({"role": "user", "parts": parts.collect::<Vec<_>>()})]
            }
        }
    }

    /// Removes the reasoning from a reply, as a lossy client does.
    pub(crate) fn stripped(self, reply: Vec<Value>) -> Vec<Value> {
        let without = |list: &Value, drops: fn(&Value) -> bool| {
            list.as_array().unwrap().iter().filter(|part| !drops(part)).cloned().collect::<Vec<_>>()
        };
        let kept =
            reply.into_iter().filter(|item| item["type"] != "reasoning").map(|mut message| {
                match self {
                    ClientDialect::Messages => {
                        message["content"] =
                            json!(without(&message["content"], |block| block["type"]
                                == "thinking"
                                || block["type"] == "redacted_thinking"));
                    }
                    ClientDialect::Gemini => {
                        let mut parts = without(&message["parts"], |part| part["thought"] == true);
                        for part in &mut parts {
                            part.as_object_mut().unwrap().remove("thoughtSignature");
                        }
                        message["parts"] = json!(parts);
                    }
                    ClientDialect::Chat => {
                        let message = message.as_object_mut().unwrap();
                        for key in ["reasoning_content", "reasoning", "reasoning_details"] {
                            message.remove(key);
                        }
                    }
                    ClientDialect::Responses => {}
                }
                message
            });
        kept.collect()
    }
}

/// Accumulates the blocks of an Anthropic stream.
fn blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => {
                let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
                for key in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[key].as_str() {
                        let before = block[key].as_str().unwrap_or_default();
                        block[key] = json!(format!("{before}{more}"));
                    }
                }
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !arguments.is_empty() => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&arguments).unwrap();
            }
            _ => {}
        }
    }
    blocks
}

/// Accumulates the message of a chat stream.
fn assemble_chat_message(events: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": ""});
    let mut calls: Vec<Value> = Vec::new();
    let mut details: Vec<Value> = Vec::new();
    for delta in
        events.iter().filter_map(|event| event["choices"].get(0)).map(|choice| &choice["delta"])
    {
        for key in ["content", "reasoning_content", "reasoning"] {
            if let Some(more) = delta[key].as_str() {
                let before = message[key].as_str().unwrap_or_default();
                message[key] = json!(format!("{before}{more}"));
            }
        }
        for new in delta["reasoning_details"].as_array().into_iter().flatten() {
            add_detail(&mut details, new);
        }
        for new in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(new["index"].as_u64().unwrap()).unwrap();
            while calls.len() <= index {
                calls.push(json!({"type": "function", "function": {"name": "", "arguments": ""}}));
            }
            if new["id"].is_string() {
                calls[index]["id"] = new["id"].clone();
            }
            for key in ["name", "arguments"] {
                let before = calls[index]["function"][key].as_str().unwrap().to_owned();
                let more = new["function"][key].as_str().unwrap_or_default();
                calls[index]["function"][key] = json!(format!("{before}{more}"));
            }
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if !details.is_empty() {
        message["reasoning_details"] = json!(details);
    }
    message
}

/// Adds a fragment to the reasoning detail with the same index, as clients of OpenRouter do.
fn add_detail(details: &mut Vec<Value>, fragment: &Value) {
    let is_same = |known: &&mut Value| known["index"] == fragment["index"];
    let Some(known) = details.iter_mut().find(is_same) else {
        return details.push(fragment.clone());
    };
    for (key, value) in fragment.as_object().unwrap() {
        let joins = matches!(key.as_str(), "text" | "summary") && known[key].is_string();
        known[key] = match (joins, value.as_str()) {
            (true, Some(more)) => json!(format!("{}{more}", known[key].as_str().unwrap())),
            (_, _) => value.clone(),
        };
    }
}
