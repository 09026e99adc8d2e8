//! Tests of models at simulated providers, and of corrupt responses.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use throughline_codec::{
    AnthropicMessages, AuditContext, Catalog, Codec, CodecError, DecodeContext, Decoder, Document,
    Encoder, Example, Finding, Findings, Framing, Rule, Severity,
};
use throughline_core::{
    Body, Call, CallId, Credential, EncodedRequest, Event, Item, ItemPosition, Model as _,
    ModelError, ModelErrorKind, ModelRegistry as _, NativeReasoning, Outcome, Part, Reply, Request,
    Role, StopReason, Target, Tool, ToolResult, Upstream, Wire,
};
use throughline_json::{Json, Name, Node};
use throughline_provider::{CredentialSource, Endpoint, EndpointModel, EndpointModels, Http};
use throughline_sim::{Options, Simulator, start};

use crate::server::{Reaction, Server, chunked_start, client, endpoint, key, response, swift};

/// One model per family, with the name of its provider.
const FAMILIES: [(&str, &str); 5] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5.2"),
    ("gemini", "gemini-3-pro-preview"),
    ("deepseek", "deepseek-v4-pro"),
    ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
];

fn upstream(simulator: &Simulator) -> Arc<dyn Upstream> {
    let endpoints = FAMILIES.map(|(row, _)| {
        let base = format!("{}/at/{row}", simulator.url());
        let row = Catalog::builtin().provider(row).unwrap();
        let name = Arc::clone(&row.name);
        Endpoint::new(name, row, &base, CredentialSource::Key(Credential::new("simulated")))
            .unwrap()
    });
    let now = "2026-11-15T12:00:00Z".parse().unwrap();
    Arc::new(Http::new(endpoints, Arc::new(move || now)).unwrap())
}

fn models(simulator: &Simulator) -> EndpointModels {
    EndpointModels::new(upstream(simulator), |model| {
        let family = FAMILIES.iter().find(|(_, known)| *known == model);
        let (row, _) =
            family.ok_or_else(|| ModelError::new(ModelErrorKind::Other, "no provider"))?;
        Ok(vec![((*row).into(), Catalog::builtin().target_for(row, model, "us").unwrap())])
    })
}

fn user_message(message: usize, text: &str) -> Item {
    let id = format!("said {message}");
    Item::new(id, ItemPosition::new(message, 0), Role::User, Body::Text(text.into()))
}

/// Builds a Call with reasoning and two tools.
fn question(target: &Target, stream: bool) -> Call {
    let mut call = Call::new(target.clone());
    call.stream = stream;
    call.settings.max_tokens = Some(8000);
    call.settings.reasoning =
        Some(NativeReasoning { effort: Some("high".into()), ..NativeReasoning::default() });
    call.items = vec![user_message(0, "What is the weather in Zürich?")];
    call.tools = ["weather", "news"].map(tool).into();
    call
}

fn tool(name: &str) -> Tool {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
    Tool {
        name: name.into(),
        description: Some("Looks it up.".into()),
        schema: Some(Json::parse(schema.to_owned()).unwrap()),
        hosted: false,
        native: None,
    }
}

fn result(part: usize, call: &CallId) -> Item {
    let result = ToolResult {
        call: call.clone(),
        wire_id: None,
        name: None,
        parts: vec![Part::Text("sunny ☀".into())],
        outcome: Outcome::Ok,
    };
    let id = format!("result of {}", call.0);
    Item::new(id, ItemPosition::new(0, part), Role::Tool, Body::Result(result))
}

/// Calls a model and collects all Events.
async fn collect_events(
    model: &dyn throughline_core::Model,
    call: Call,
) -> Result<Vec<Event>, ModelError> {
    let mut events = model.send(call).await?.events;
    let mut received = Vec::new();
    while let Some(event) = events.next().await {
        received.push(event?);
    }
    Ok(received)
}

fn reply(events: &[Event]) -> Reply {
    match events.last() {
        Some(Event::Ended(reply)) => Reply::clone(reply),
        other => panic!("the last event is {other:?}"),
    }
}

/// Runs a tool loop to its end, sending every reply back unchanged.
async fn converse(simulator: &Simulator, name: &str, stream: bool) {
    let model = models(simulator).model(name).unwrap();
    let mut call = question(model.target(), stream);
    for _ in 0..4 {
        let events = collect_events(&*model, call.clone()).await.unwrap();
        let reply = reply(&events);
        // Some models return readable reasoning, and others only Seals.
        let thinks = |item: &Item| matches!(item.body, Body::Thought(_)) || !item.seals.is_empty();
        assert!(reply.items.iter().any(thinks), "{name}");
        if stream {
            let is_piece = |event: &Event| matches!(event, Event::Delta { .. });
            assert!(events.iter().any(is_piece), "{name} streams no deltas");
        }
        let calls: Vec<CallId> =
            reply.items.iter().filter_map(Item::call).map(|call| call.id.clone()).collect();
        call.extend(reply.items);
        if calls.is_empty() {
            assert_eq!(reply.stop, StopReason::Done, "{name}");
            return;
        }
        assert_eq!(reply.stop, StopReason::Tools, "{name}");
        call.extend(calls.iter().enumerate().map(|(part, id)| result(part, id)));
    }
    panic!("{name} never ends");
}

#[tokio::test]
async fn every_family_reasons_calls_tools_and_receives_its_seals() {
    for stream in [true, false] {
        let simulator = start(Options::default()).await.unwrap();
        for (_, name) in FAMILIES {
            converse(&simulator, name, stream).await;
        }
        let ledger = simulator.ledger();
        let refused: Vec<_> = ledger.entries.iter().filter_map(|e| e.refused.as_ref()).collect();
        assert!(ledger.all_verified(), "{refused:?} {ledger:#?}");
        assert!(ledger.returned().count() >= 2 * (FAMILIES.len() - 1), "seals come back");
    }
}

#[tokio::test]
async fn prefix_bound_seals_store_their_prefix_digest() {
    let simulator = start(Options::default()).await.unwrap();
    let models = models(&simulator);
    let model = models.model("claude-sonnet-4-5").unwrap();
    let bound = model.target().profile.bound.prefix;
    let events = collect_events(&*model, question(model.target(), true)).await.unwrap();
    let reply = reply(&events);
    let seals = reply.items.iter().flat_map(|item| &item.seals);
    let known: Vec<bool> = seals.map(|seal| seal.bound.prefix.is_some()).collect();
    assert!(!known.is_empty());
    assert!(known.iter().all(|known| *known == bound), "{known:?}");
}

#[tokio::test]
async fn invalid_requests_are_fixed_or_not_sent() {
    let simulator = start(Options::default()).await.unwrap();
    let model = models(&simulator).model("claude-sonnet-4-5").unwrap();
    // A tool call without a result is invalid, so the repair removes it.
    let mut call = question(model.target(), true);
    let first = reply(&collect_events(&*model, call.clone()).await.unwrap());
    call.extend(first.items);
    call.extend([user_message(0, "Never mind.")]);
    collect_events(&*model, call).await.unwrap();
    let own = EndpointModel::new(upstream(&simulator), "anthropic", model.target().clone());
    let own = own.unwrap().with_codec(&StrictCodec);
    let error = collect_events(&own, question(model.target(), true)).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Other);
    assert_eq!(
        &*error.message,
        "anthropic would reject this request: [anthropic/squeamish] it has tools"
    );
    let ledger = simulator.ledger();
    let statuses: Vec<u16> = ledger.entries.iter().map(|entry| entry.status).collect();
    assert_eq!(statuses, [200, 200], "the invalid request was not sent");
}

/// Anthropic's codec with an additional audit rule that has no automatic fix.
struct StrictCodec;

static NO_TOOLS_RULE: Rule = Rule {
    id: "anthropic/squeamish",
    wire: Wire::ANTHROPIC_MESSAGES,
    severity: Severity::Refuse,
    title: "No tools.",
    effect: None,
    why: "",
    provider_error: None,
    breach: None,
    fix: "",
    applies: |_| true,
    evidence: &[],
    example: Example { provider: "anthropic", model: "", prior: &[], failing: "", fixed: "" },
};

impl Codec for StrictCodec {
    fn wire(&self) -> Wire {
        AnthropicMessages.wire()
    }

    fn recognise(&self, document: Node<'_>) -> Option<Document> {
        AnthropicMessages.recognise(document)
    }

    fn model_of(&self, request: &Request) -> Option<Name> {
        AnthropicMessages.model_of(request)
    }

    fn path(&self, target: &Target, stream: bool) -> String {
        AnthropicMessages.path(target, stream)
    }

    fn framing(&self) -> Framing {
        AnthropicMessages.framing()
    }

    fn encode(&self, call: &Call) -> Result<EncodedRequest, CodecError> {
        AnthropicMessages.encode(call)
    }

    fn decode_request(
        &self,
        request: &Request,
        context: &DecodeContext,
    ) -> Result<Call, CodecError> {
        AnthropicMessages.decode_request(request, context)
    }

    fn decode_reply(&self, body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
        AnthropicMessages.decode_reply(body, context)
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        AnthropicMessages.encode_reply(reply)
    }

    fn decoder(&self, context: &DecodeContext) -> Box<dyn Decoder> {
        AnthropicMessages.decoder(context)
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        AnthropicMessages.encoder()
    }

    fn inspect(&self, case: &AuditContext<'_>, findings: &mut Findings<'_>) {
        if let Some(tools) = case.body().get("tools") {
            findings.add(Finding::at(&NO_TOOLS_RULE, tools, "it has tools"));
        }
    }
}

#[tokio::test]
async fn broken_stream_yields_nothing_replayable() {
    for (row, name) in FAMILIES {
        for at in [1, 150, 400, 700] {
            let faults = vec![format!("cut@{at}").parse().unwrap()];
            let simulator = start(Options { faults, ..Options::default() }).await.unwrap();
            let model = models(&simulator).model(name).unwrap();
            let mut events = match model.send(question(model.target(), true)).await {
                Ok(stream) => stream.events,
                Err(error) => {
                    assert_eq!(error.kind, ModelErrorKind::Transient, "{row} {at}");
                    continue;
                }
            };
            let mut outcome = None;
            while let Some(event) = events.next().await {
                assert!(outcome.is_none(), "{row} {at}: an event after the end");
                match event {
                    Ok(Event::Ended(reply)) => {
                        assert_eq!(reply.stop, StopReason::Cut, "{row} {at}");
                        assert!(reply.items.iter().all(|item| item.seals.is_empty()));
                        outcome = Some(());
                    }
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind, ModelErrorKind::Transient, "{row} {at}: {error}");
                        outcome = Some(());
                    }
                }
            }
            assert!(outcome.is_some(), "{row} {at}: the stream never ended");
        }
    }
}

/// Creates the model `claude-sonnet-4-5` at a server with scripted reactions.
async fn scripted_model(reactions: Vec<Reaction>) -> (Server, EndpointModel) {
    let server = Server::start(reactions).await;
    let endpoint = endpoint("anthropic", &server.address, key("the-key")).with_options(swift());
    let target = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "us").unwrap();
    let model = EndpointModel::new(Arc::new(client(endpoint)), "here", target).unwrap();
    (server, model)
}

const WHOLE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;

#[tokio::test]
async fn request_is_json_without_compression() {
    let (server, model) = scripted_model(vec![response(200, "", WHOLE)]).await;
    collect_events(&model, question(model.target(), false)).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].all("content-type"), ["application/json"]);
    assert_eq!(requests[0].all("accept-encoding"), ["identity"]);
    assert_eq!(requests[0].all("anthropic-version"), ["2023-06-01"]);
    assert_eq!(requests[0].request_line, "POST /v1/messages HTTP/1.1");
}

#[tokio::test]
async fn whole_response_is_accepted_instead_of_a_stream() {
    let json = "content-type: application/json\r\n";
    let (_server, model) = scripted_model(vec![response(200, json, WHOLE)]).await;
    let events = collect_events(&model, question(model.target(), true)).await.unwrap();
    assert_eq!(reply(&events).items[0].visible(), Some("hello"));
}

#[tokio::test]
async fn failures_are_classified_without_secrets() {
    let seal = "EuYBCkQYAiJAQm9VbmRUb1RoZVNlYWwwMTIzNDU2Nzg5";
    let error = |kind: &str| {
        format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"no: {seal} and the-key"}}}}"#
        )
    };
    let event = |kind: &str| format!("event: error\ndata: {}\n\n", error(kind));
    let closed = Reaction::Breaks(chunked_start(&event("overloaded_error")));
    for (reaction, kind) in [
        (response(400, "", error("invalid_request_error")), ModelErrorKind::Other),
        (
            response(429, "retry-after: 9000\r\n", error("rate_limit_error")),
            ModelErrorKind::RateLimit,
        ),
        (response(529, "", error("overloaded_error")), ModelErrorKind::Transient),
        (response(307, "location: http://elsewhere/\r\n", ""), ModelErrorKind::Other),
        (response(200, "content-encoding: gzip\r\n", WHOLE), ModelErrorKind::Other),
        (closed, ModelErrorKind::Transient),
        (Reaction::Breaks(Vec::new()), ModelErrorKind::Transient),
    ] {
        let (_server, model) = scripted_model(vec![reaction]).await;
        let error = collect_events(&model, question(model.target(), true)).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(!error.message.contains(seal), "{error}");
        assert!(!error.message.is_empty());
    }
}

#[tokio::test]
async fn dropping_the_events_cancels_the_request() {
    let piece = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n";
    let (mut server, model) = scripted_model(vec![Reaction::Stalls(chunked_start(piece))]).await;
    let mut stream = model.send(question(model.target(), true)).await.unwrap();
    assert!(matches!(stream.events.next().await, Some(Ok(Event::Began { .. }))));
    drop(stream);
    server.disconnects.recv().await.unwrap();
}

#[tokio::test]
async fn unknown_model_is_an_error() {
    let simulator = start(Options::default()).await.unwrap();
    let error = models(&simulator).model("llama").map(|_| ()).unwrap_err();
    assert_eq!((error.kind, error.message), (ModelErrorKind::Other, Name::from("no provider")));
}
