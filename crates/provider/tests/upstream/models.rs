//! Models behind endpoints: what is asked and heard, with the simulators as their providers, and what is made of broken answers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use throughline_codec::{
    AnthropicMessages, Asked, Case, Catalog, Codec, CodecError, Decoder, Document, Encoder,
    Example, Finding, Findings, Framing, Rule, Severity,
};
use throughline_core::{
    Body, Call, CallId, Credential, Encoded, Event, Item, Json, Model as _, ModelError,
    Models as _, Name, NativeReasoning, Node, Outcome, Part, Place, Reply, Request, Role, Stop,
    Target, Tool, ToolResult, Trouble, Upstream, Wire,
};
use throughline_provider::{Endpoint, EndpointModel, EndpointModels, Http, Source};
use throughline_sim::{Options, Simulator, start};

use crate::server::{Does, Server, answer, begun, client, endpoint, key, swift};

/// A model of every family, with the row of its provider.
const FAMILIES: [(&str, &str); 5] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5.2"),
    ("gemini", "gemini-3-pro-preview"),
    ("deepseek", "deepseek-v4-pro"),
    ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
];

fn upstream(simulator: &Simulator) -> Arc<dyn Upstream> {
    let lines = FAMILIES.map(|(row, _)| {
        let base = format!("{}/at/{row}", simulator.url());
        let row = Catalog::builtin().provider(row).unwrap();
        let name = Arc::clone(&row.name);
        Endpoint::new(name, row, &base, Source::Key(Credential::new("simulated"))).unwrap()
    });
    let now = "2026-11-15T12:00:00Z".parse().unwrap();
    Arc::new(Http::new(lines, Arc::new(move || now)).unwrap())
}

fn models(simulator: &Simulator) -> EndpointModels {
    EndpointModels::new(upstream(simulator), |model| {
        let found = FAMILIES.iter().find(|(_, known)| *known == model);
        let (row, _) = found.ok_or_else(|| ModelError::new(Trouble::Other, "nobody's"))?;
        Ok(vec![((*row).into(), Catalog::builtin().target_for(row, model, "us").unwrap())])
    })
}

fn said(message: usize, text: &str) -> Item {
    let id = format!("said {message}");
    Item::new(id, Place::new(message, 0), Role::User, Body::Text(text.into()))
}

/// A question with thinking and two tools.
fn question(target: &Target, stream: bool) -> Call {
    let mut call = Call::new(target.clone());
    call.stream = stream;
    call.settings.max_tokens = Some(8000);
    call.settings.reasoning =
        Some(NativeReasoning { effort: Some("high".into()), ..NativeReasoning::default() });
    call.items = vec![said(0, "What is the weather in Zürich?")];
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
    Item::new(id, Place::new(0, part), Role::Tool, Body::Result(result))
}

/// Asks, and hears to the end.
async fn hear(model: &dyn throughline_core::Model, call: Call) -> Result<Vec<Event>, ModelError> {
    let mut events = model.ask(call).await?.events;
    let mut heard = Vec::new();
    while let Some(event) = events.next().await {
        heard.push(event?);
    }
    Ok(heard)
}

fn reply(events: &[Event]) -> Reply {
    match events.last() {
        Some(Event::Ended(reply)) => Reply::clone(reply),
        other => panic!("the last event is {other:?}"),
    }
}

/// The tool loop to its end, in which every answer goes back as it came.
async fn converse(simulator: &Simulator, name: &str, stream: bool) {
    let model = models(simulator).model(name).unwrap();
    let mut call = question(model.target(), stream);
    for _ in 0..4 {
        let events = hear(&*model, call.clone()).await.unwrap();
        let reply = reply(&events);
        // Some tell what they thought, and some only seal it.
        let thinks = |item: &Item| matches!(item.body, Body::Thought(_)) || !item.seals.is_empty();
        assert!(reply.items.iter().any(thinks), "{name}");
        if stream {
            let is_piece = |event: &Event| matches!(event, Event::Delta { .. });
            assert!(events.iter().any(is_piece), "{name} tells nothing while it goes on");
        }
        let calls: Vec<CallId> =
            reply.items.iter().filter_map(Item::call).map(|call| call.id.clone()).collect();
        call.extend(reply.items);
        if calls.is_empty() {
            assert_eq!(reply.stop, Stop::Done, "{name}");
            return;
        }
        assert_eq!(reply.stop, Stop::Tools, "{name}");
        call.extend(calls.iter().enumerate().map(|(part, id)| result(part, id)));
    }
    panic!("{name} never comes to an end");
}

#[tokio::test]
async fn every_family_thinks_calls_tools_and_gets_its_seals_back() {
    for stream in [true, false] {
        let simulator = start(Options::default()).await.unwrap();
        for (_, name) in FAMILIES {
            converse(&simulator, name, stream).await;
        }
        let ledger = simulator.ledger();
        let refused: Vec<_> = ledger.entries.iter().filter_map(|e| e.refused.as_ref()).collect();
        assert!(ledger.is_content(), "{refused:?} {ledger:#?}");
        assert!(ledger.returned().count() >= 2 * (FAMILIES.len() - 1), "seals come back");
    }
}

#[tokio::test]
async fn seals_that_are_bound_to_a_prefix_know_it() {
    let simulator = start(Options::default()).await.unwrap();
    let models = models(&simulator);
    let model = models.model("claude-sonnet-4-5").unwrap();
    let bound = model.target().profile.bound.prefix;
    let events = hear(&*model, question(model.target(), true)).await.unwrap();
    let reply = reply(&events);
    let seals = reply.items.iter().flat_map(|item| &item.seals);
    let known: Vec<bool> = seals.map(|seal| seal.bound.prefix.is_some()).collect();
    assert!(!known.is_empty());
    assert!(known.iter().all(|known| *known == bound), "{known:?}");
}

#[tokio::test]
async fn what_would_be_refused_is_mended_or_not_sent() {
    let simulator = start(Options::default()).await.unwrap();
    let model = models(&simulator).model("claude-sonnet-4-5").unwrap();
    // A call that nobody answered cannot stand, and is left out with its answer's place.
    let mut call = question(model.target(), true);
    let first = reply(&hear(&*model, call.clone()).await.unwrap());
    call.extend(first.items);
    call.extend([said(0, "Never mind.")]);
    hear(&*model, call).await.unwrap();
    let own = EndpointModel::new(upstream(&simulator), "anthropic", model.target().clone());
    let own = own.unwrap().speaking(&Squeamish);
    let error = hear(&own, question(model.target(), true)).await.unwrap_err();
    assert_eq!(error.kind, Trouble::Other);
    assert_eq!(&*error.message, "anthropic would refuse this: [anthropic/squeamish] it has tools");
    let ledger = simulator.ledger();
    let statuses: Vec<u16> = ledger.entries.iter().map(|entry| entry.status).collect();
    assert_eq!(statuses, [200, 200], "what would be refused was not sent");
}

/// Anthropic's wire, by somebody who knows of a refusal that nobody can mend.
struct Squeamish;

static SQUEAMISH: Rule = Rule {
    id: "anthropic/squeamish",
    wire: Wire::ANTHROPIC_MESSAGES,
    severity: Severity::Refuse,
    title: "No tools.",
    why: "",
    provider_error: None,
    breach: None,
    fix: "",
    applies: |_| true,
    evidence: &[],
    example: Example { provider: "anthropic", model: "", prior: &[], failing: "", mended: "" },
};

impl Codec for Squeamish {
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

    fn encode(&self, call: &Call) -> Result<Encoded, CodecError> {
        AnthropicMessages.encode(call)
    }

    fn decode_request(&self, request: &Request, asked: &Asked) -> Result<Call, CodecError> {
        AnthropicMessages.decode_request(request, asked)
    }

    fn decode_reply(&self, body: &Bytes, asked: &Asked) -> Result<Reply, CodecError> {
        AnthropicMessages.decode_reply(body, asked)
    }

    fn encode_reply(&self, reply: &Reply) -> Result<Bytes, CodecError> {
        AnthropicMessages.encode_reply(reply)
    }

    fn decoder(&self, asked: &Asked) -> Box<dyn Decoder> {
        AnthropicMessages.decoder(asked)
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        AnthropicMessages.encoder()
    }

    fn inspect(&self, case: &Case<'_>, findings: &mut Findings<'_>) {
        if let Some(tools) = case.body().get("tools") {
            findings.add(Finding::at(&SQUEAMISH, tools, "it has tools"));
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_leaves_nothing_that_can_be_replayed() {
    for (row, name) in FAMILIES {
        for at in [1, 150, 400, 700] {
            let faults = vec![format!("cut@{at}").parse().unwrap()];
            let simulator = start(Options { faults, ..Options::default() }).await.unwrap();
            let model = models(&simulator).model(name).unwrap();
            let mut events = match model.ask(question(model.target(), true)).await {
                Ok(saying) => saying.events,
                Err(error) => {
                    assert_eq!(error.kind, Trouble::Transient, "{row} {at}");
                    continue;
                }
            };
            let mut outcome = None;
            while let Some(event) = events.next().await {
                assert!(outcome.is_none(), "{row} {at}: something came behind the end");
                match event {
                    Ok(Event::Ended(reply)) => {
                        assert_eq!(reply.stop, Stop::Cut, "{row} {at}");
                        assert!(reply.items.iter().all(|item| item.seals.is_empty()));
                        outcome = Some(());
                    }
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind, Trouble::Transient, "{row} {at}: {error}");
                        outcome = Some(());
                    }
                }
            }
            assert!(outcome.is_some(), "{row} {at}: it never ended");
        }
    }
}

/// The model `claude-sonnet-4-5` at a server that answers so.
async fn behind(does: Vec<Does>) -> (Server, EndpointModel) {
    let server = Server::start(does).await;
    let line = endpoint("anthropic", &server.address, key("the-key")).with(swift());
    let target = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "us").unwrap();
    let model = EndpointModel::new(Arc::new(client(line)), "here", target).unwrap();
    (server, model)
}

const WHOLE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;

#[tokio::test]
async fn the_request_is_json_and_wants_no_compression() {
    let (server, model) = behind(vec![answer(200, "", WHOLE)]).await;
    hear(&model, question(model.target(), false)).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].all("content-type"), ["application/json"]);
    assert_eq!(seen[0].all("accept-encoding"), ["identity"]);
    assert_eq!(seen[0].all("anthropic-version"), ["2023-06-01"]);
    assert_eq!(seen[0].line, "POST /v1/messages HTTP/1.1");
}

#[tokio::test]
async fn an_answer_in_one_piece_is_heard_where_a_stream_was_asked_for() {
    let json = "content-type: application/json\r\n";
    let (_server, model) = behind(vec![answer(200, json, WHOLE)]).await;
    let events = hear(&model, question(model.target(), true)).await.unwrap();
    assert_eq!(reply(&events).items[0].visible(), Some("hello"));
}

#[tokio::test]
async fn failures_have_their_kinds_and_tell_no_secret() {
    let seal = "EuYBCkQYAiJAQm9VbmRUb1RoZVNlYWwwMTIzNDU2Nzg5";
    let error = |kind: &str| {
        format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"no: {seal} and the-key"}}}}"#
        )
    };
    let event = |kind: &str| format!("event: error\ndata: {}\n\n", error(kind));
    let closed = Does::Breaks(begun(&event("overloaded_error")));
    for (does, kind) in [
        (answer(400, "", error("invalid_request_error")), Trouble::Other),
        (answer(429, "retry-after: 9000\r\n", error("rate_limit_error")), Trouble::RateLimit),
        (answer(529, "", error("overloaded_error")), Trouble::Transient),
        (answer(307, "location: http://elsewhere/\r\n", ""), Trouble::Other),
        (answer(200, "content-encoding: gzip\r\n", WHOLE), Trouble::Other),
        (closed, Trouble::Transient),
        (Does::Breaks(Vec::new()), Trouble::Transient),
    ] {
        let (_server, model) = behind(vec![does]).await;
        let error = hear(&model, question(model.target(), true)).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(!error.message.contains(seal), "{error}");
        assert!(!error.message.is_empty());
    }
}

#[tokio::test]
async fn dropping_what_a_model_says_ends_the_request() {
    let piece = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n";
    let (mut server, model) = behind(vec![Does::Stalls(begun(piece))]).await;
    let mut saying = model.ask(question(model.target(), true)).await.unwrap();
    assert!(matches!(saying.events.next().await, Some(Ok(Event::Began { .. }))));
    drop(saying);
    server.gone.recv().await.unwrap();
}

#[tokio::test]
async fn a_model_that_nobody_has_is_an_error() {
    let simulator = start(Options::default()).await.unwrap();
    let error = models(&simulator).model("llama").map(|_| ()).unwrap_err();
    assert_eq!((error.kind, error.message), (Trouble::Other, Name::from("nobody's")));
}
