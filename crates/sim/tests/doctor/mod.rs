//! A correct client for every wire. The client can also audit its own requests. All tests that
//! compare the audit with the simulator use this client.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use throughline_codec::{
    Audit, Catalog, Codec, DecodeContext, PriorExchanges, Repair, RepairLevel, StreamDecoder,
    Transcript, audit, codec, repair,
};
use throughline_core::{Event, Reply, Request, Target};
use throughline_json::Name;
use throughline_sim::Simulator;
use throughline_testkit::Shape;

/// Provider, model and settings of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Name of the provider in the catalog.
    pub(crate) provider: &'static str,
    pub(crate) model: &'static str,
    /// Fields of every request other than the conversation.
    pub(crate) settings: fn() -> Value,
    /// Headers sent with every request.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// A conversation that the client replays exactly until a test mutates the next request.
pub(crate) struct Conversation<'s> {
    pub(crate) setup: Setup,
    pub(crate) simulator: &'s Simulator,
    /// Body of the next request.
    pub(crate) next: Value,
    /// Earlier exchanges, oldest first.
    pub(crate) exchanges: Vec<Exchange>,
    /// API key for the following requests.
    pub(crate) account: String,
    /// Whether the next response is streamed.
    pub(crate) streams: bool,
    /// Whether two Seals of the next request were swapped.
    pub(crate) is_swapped: bool,
    /// Whether the model calls all tools at once.
    pub(crate) calls_all: bool,
    /// API key of the earlier requests; `earlier` is the setup of these requests.
    earlier_account: String,
    earlier: Setup,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A request body and its response body, as sent over the wire.
pub(crate) struct Exchange {
    pub(crate) request: Bytes,
    pub(crate) response: Bytes,
    pub(crate) is_streamed: bool,
}

/// The part of the earlier conversation that the audit receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorScope {
    Everything,
    /// Only the last exchange.
    TheLast,
    /// All exchanges except the last.
    TheEarlier,
    /// All responses, but none of the requests.
    Answers,
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) struct SimResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl SimResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl<'s> Conversation<'s> {
    pub(crate) fn new(
        simulator: &'s Simulator,
        setup: Setup,
        tools: usize,
        question: &str,
    ) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let mut next = (setup.settings)();
        let shape = shape_of(&setup);
        add_tools(shape, &mut next, tools);
        add_user_message(shape, &mut next, question);
        let account = "key-of-mine".to_owned();
        let earlier_account = account.clone();
        let (streams, calls_all) = (false, false);
        Self {
            setup,
            simulator,
            next,
            exchanges: Vec::new(),
            account,
            streams,
            is_swapped: false,
            calls_all,
            earlier_account,
            earlier: setup,
            client,
        }
    }

    /// Sets the API key for the whole conversation.
    pub(crate) fn with_account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self.earlier_account.clone_from(&self.account);
        self
    }

    pub(crate) fn shape(&self) -> Shape {
        shape_of(&self.setup)
    }

    /// Sends `body` without changing the conversation.
    pub(crate) async fn send(&self, body: Bytes) -> SimResponse {
        self.post(body, false).await
    }

    async fn post(&self, body: Bytes, is_streamed: bool) -> SimResponse {
        let path = codec_of(&self.setup).path(&target(&self.setup, "x"), is_streamed);
        let path = match self.setup.provider {
            // The base URLs in the catalog end with a version, so the codec's paths do not contain
            // it.
            _ if path.starts_with("/v1") || path.starts_with("/model") => path,
            _ => format!("/v1{path}"),
        };
        let url = format!("{}/at/{}{path}", self.simulator.url(), self.setup.provider);
        let mut request = hyper::Request::post(url)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.account));
        for (name, value) in self.setup.headers {
            request = request.header(*name, *value);
        }
        if self.calls_all {
            request = request.header("x-sim-parallel", "true");
        }
        let response = self.client.request(request.body(Full::new(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        SimResponse { status, body: response.into_body().collect().await.unwrap().to_bytes() }
    }

    /// Sends the next request and appends the reply as a correct client does. Returns whether the
    /// reply contains calls.
    pub(crate) async fn step(&mut self) -> bool {
        let (is_streamed, body) = (self.streams, self.next_body());
        let answer = self.post(body.clone(), is_streamed).await;
        assert_eq!(answer.status, 200, "{}: {}", self.setup.model, answer.text());
        let reply = if is_streamed { self.assemble(&answer.body) } else { answer.json() };
        let calls = append_reply(self.shape(), &mut self.next, &reply);
        self.exchanges.push(Exchange { request: body, response: answer.body, is_streamed });
        calls > 0
    }

    /// Returns the next request. Sets `stream` on wires that request streaming in the body.
    fn next_body(&self) -> Bytes {
        let is_in_path = matches!(self.shape(), Shape::Converse | Shape::Gemini);
        if !self.streams || is_in_path {
            return self.body();
        }
        let mut next = self.next.clone();
        next["stream"] = json!(true);
        Bytes::from(serde_json::to_vec(&next).unwrap())
    }

    /// Converts a streamed response to the equivalent complete response.
    fn assemble(&self, stream: &[u8]) -> Value {
        let codec = codec_of(&self.setup);
        let context = DecodeContext::of(target(&self.setup, &self.account));
        let reply = reply_of(codec, stream, &context);
        serde_json::from_slice(&codec.encode_reply(&reply).unwrap()).unwrap()
    }

    /// Runs at most `most` steps, and stops when a reply contains no calls.
    pub(crate) async fn steps(&mut self, limit: usize) {
        for _ in 0..limit {
            if !self.step().await {
                break;
            }
        }
    }

    /// Continues with another model from the same provider.
    pub(crate) fn switch(&mut self, to: Setup) {
        self.setup = to;
        for (key, value) in (to.settings)().as_object().unwrap() {
            if key != self.shape().list() {
                self.next[key] = value.clone();
            }
        }
    }

    pub(crate) fn add_user_message(&mut self, text: &str) {
        add_user_message(self.shape(), &mut self.next, text);
    }

    pub(crate) fn body(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(&self.next).unwrap())
    }

    /// Returns the part of the earlier conversation that the audit receives.
    pub(crate) fn prior(&self, scope: PriorScope) -> PriorExchanges {
        let mut prior = PriorExchanges::new();
        let codec = codec_of(&self.earlier);
        let last = self.exchanges.len().saturating_sub(1);
        let exchanges = match scope {
            PriorScope::Everything | PriorScope::Answers => &self.exchanges[..],
            PriorScope::TheLast => &self.exchanges[last..],
            PriorScope::TheEarlier => &self.exchanges[..last],
            PriorScope::Nothing => &[],
        };
        for Exchange { request, response, is_streamed } in exchanges {
            let context = DecodeContext::of(target(&self.earlier, &self.earlier_account));
            if scope != PriorScope::Answers {
                let request = request_of(&self.earlier, request.clone());
                prior.push_request(codec, &request, context.clone()).unwrap();
            }
            if *is_streamed {
                prior.push_stream(codec, response, codec.framing(), context).unwrap();
            } else {
                prior.push_response(codec, response, context).unwrap();
            }
        }
        prior
    }

    /// Audits a body with either the whole earlier conversation or no earlier conversation.
    pub(crate) fn audit(&self, body: &Bytes, has_prior: bool) -> Audit {
        let scope = if has_prior { PriorScope::Everything } else { PriorScope::Nothing };
        self.audit_with(body, scope, true)
    }

    /// Audits a body with this part of the earlier conversation.
    pub(crate) fn audit_with(&self, body: &Bytes, scope: PriorScope, knows_age: bool) -> Audit {
        let (prior, request) = (self.prior(scope), request_of(&self.setup, body.clone()));
        let mut transcript = self.transcript(&request, &prior);
        transcript.account_created = transcript.account_created.filter(|_| knows_age);
        audit(&transcript, &target(&self.setup, &self.account)).unwrap()
    }

    pub(crate) fn repair(&self, body: &Bytes, level: RepairLevel) -> Repair {
        let prior = self.prior(PriorScope::Everything);
        let request = request_of(&self.setup, body.clone());
        let transcript = self.transcript(&request, &prior);
        repair(&transcript, &target(&self.setup, &self.account), level).unwrap()
    }

    fn transcript<'t>(&self, request: &'t Request, prior: &'t PriorExchanges) -> Transcript<'t> {
        // Accounts of the simulator are new, unless a header sets their creation date.
        let created = self.setup.headers.iter().find(|(name, _)| *name == "x-sim-account-created");
        let created = created.map_or("2026-09-01", |(_, value)| value);
        let account_created = Some(format!("{created}T00:00:00Z").parse().unwrap());
        let codec = codec_of(&self.setup);
        let transcript = Transcript::new(codec, request).with_prior(prior);
        Transcript { knows_headers: true, account_created, ..transcript }
    }
}

fn request_of(setup: &Setup, body: Bytes) -> Request {
    let headers = setup.headers.iter();
    Request {
        path: Name::from(codec_of(setup).path(&target(setup, "x"), false)),
        headers: headers.map(|(name, value)| (Name::from(*name), Name::from(*value))).collect(),
        body,
    }
}

fn reply_of(codec: &dyn Codec, stream: &[u8], context: &DecodeContext) -> Reply {
    let mut decoder = StreamDecoder::with_framing(codec, context, codec.framing());
    let mut events = decoder.push(stream).unwrap();
    events.extend(decoder.finish().unwrap());
    let reply = events.into_iter().find_map(|event| match event {
        Event::Ended(reply) => Some(*reply),
        _ => None,
    });
    reply.unwrap()
}

pub(crate) fn codec_of(setup: &Setup) -> &'static dyn Codec {
    codec(&Catalog::builtin().provider(setup.provider).unwrap().wire).unwrap()
}

pub(crate) fn shape_of(setup: &Setup) -> Shape {
    Shape::from_wire(codec_of(setup).wire().as_str())
}

pub(crate) fn target(setup: &Setup, account: &str) -> Target {
    Catalog::builtin().target_for(setup.provider, setup.model, account).unwrap()
}

/// Adds the first `count` tools to a request.
fn add_tools(shape: Shape, request: &mut Value, count: usize) {
    let schema = json!({"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]});
    let names = ["forecast", "flights", "hotels"];
    let tools = names.iter().take(count).map(|name| {
        let description = format!("Looks up {name}.");
        match shape {
            Shape::Anthropic => json!({"name": name, "description": description, "input_schema": schema}),
            Shape::Converse => json!({"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}),
            Shape::Responses => json!({"type": "function", "name": name, "description": description, "parameters": schema}),
            Shape::Chat => json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}}),
            Shape::Gemini => json!({"name": name, "description": description, "parametersJsonSchema": schema}),
        }
    });
    let tools: Vec<Value> = tools.collect();
    if tools.is_empty() {
        return;
    }
    match shape {
        Shape::Anthropic | Shape::Responses | Shape::Chat => request["tools"] = json!(tools),
        Shape::Converse => request["toolConfig"] = json!({"tools": tools}),
        Shape::Gemini => request["tools"] = json!([{"functionDeclarations": tools}]),
    }
}

pub(crate) fn add_user_message(shape: Shape, request: &mut Value, text: &str) {
    let message = match shape {
        Shape::Anthropic | Shape::Responses | Shape::Chat => {
            json!({"role": "user", "content": text})
        }
        Shape::Converse => json!({"role": "user", "content": [{"text": text}]}),
        Shape::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
    };
    shape.messages(request).push(message);
}

/// Appends an unchanged reply and the results of its calls to the request; returns the number of
/// calls.
pub(crate) fn append_reply(shape: Shape, request: &mut Value, answer: &Value) -> usize {
    let elements = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match shape {
        Shape::Anthropic => {
            let content = elements(&answer["content"]);
            let results: Vec<Value> = content.iter().filter(|block| block["type"] == "tool_use").map(|block| {
                json!({"type": "tool_result", "tool_use_id": block["id"], "content": "all is well"})
            }).collect();
            shape.messages(request).push(json!({"role": "assistant", "content": content}));
            push_results(shape, request, json!({"role": "user", "content": results}), results.len())
        }
        Shape::Converse => {
            let message = answer["output"]["message"].clone();
            let results: Vec<Value> = elements(&message["content"]).iter().filter(|block| block.get("toolUse").is_some()).map(|block| {
                json!({"toolResult": {"toolUseId": block["toolUse"]["toolUseId"], "content": [{"text": "all is well"}]}})
            }).collect();
            shape.messages(request).push(message);
            push_results(shape, request, json!({"role": "user", "content": results}), results.len())
        }
        Shape::Responses => {
            let items = elements(&answer["output"]);
            let results: Vec<Value> = items.iter().filter(|item| item["type"] == "function_call").map(|item| {
                json!({"type": "function_call_output", "call_id": item["call_id"], "output": "all is well"})
            }).collect();
            let count = results.len();
            shape.messages(request).extend(items);
            shape.messages(request).extend(results);
            count
        }
        Shape::Chat => {
            let message = answer["choices"][0]["message"].clone();
            let results: Vec<Value> = elements(&message["tool_calls"]).iter().map(|call| {
                json!({"role": "tool", "tool_call_id": call["id"], "content": "all is well"})
            }).collect();
            let count = results.len();
            shape.messages(request).push(message);
            shape.messages(request).extend(results);
            count
        }
        Shape::Gemini => {
            let content = answer["candidates"][0]["content"].clone();
            let results: Vec<Value> = elements(&content["parts"]).iter().filter(|part| part.get("functionCall").is_some()).map(|part| {
                json!({"functionResponse": {"name": part["functionCall"]["name"], "response": {"result": "all is well"}}})
            }).collect();
            shape.messages(request).push(content);
            push_results(shape, request, json!({"role": "user", "parts": results}), results.len())
        }
    }
}

fn push_results(shape: Shape, request: &mut Value, message: Value, count: usize) -> usize {
    if count > 0 {
        shape.messages(request).push(message);
    }
    count
}
