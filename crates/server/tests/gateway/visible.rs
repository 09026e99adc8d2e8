//! Tests that clients of every dialect can read the reasoning of every provider, in the members
//! that their SDKs read, and that these thoughts reach no other model when a client sends them
//! back.

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use throughline_codec::{
    Catalog, Codec, DecodeContext, Frame, Framer, Framing, StreamDecoder, StreamEncoder, codec,
};
use throughline_core::{Request, Target, Upstream as _, UpstreamRequest};
use throughline_server::ReplayMode;
use throughline_testkit::figure;

use crate::common::codec_of;
use crate::harness::{ClientDialect, GatewayOptions, MODELS, QUESTION, SimGateway, upstream};

/// A model with readable reasoning, and the catalog entry that serves it.
struct VisibleTarget {
    row: &'static str,
    model: &'static str,
}

const TARGETS: [VisibleTarget; 7] = [
    VisibleTarget { row: "anthropic", model: "claude-sonnet-4-5" },
    // This model hides its thinking unless the request asks for a summary.
    VisibleTarget { row: "anthropic", model: "claude-opus-5-5" },
    VisibleTarget { row: "openai", model: "gpt-5.2" },
    VisibleTarget { row: "gemini", model: "gemini-3-pro-preview" },
    VisibleTarget { row: "deepseek", model: "deepseek-v4-pro" },
    VisibleTarget { row: "bedrock", model: "us.anthropic.claude-sonnet-4-5-20250929-v1:0" },
    VisibleTarget { row: "openrouter", model: "anthropic/claude-sonnet-4.5" },
];

impl VisibleTarget {
    fn target(&self) -> Target {
        let provider = Catalog::builtin().provider(self.row).unwrap();
        Catalog::builtin().target(&provider, self.model, "sim")
    }

    /// Returns the least number of members with readable reasoning, out of `all` members that
    /// clients of the dialect read. A reply that is forwarded unchanged has only the provider's own
    /// member, and has no reasoning if the request leaves a model's reasoning off.
    fn readable_members(&self, dialect: ClientDialect, form: SettingForm, all: usize) -> usize {
        let target = self.target();
        let is_native = target.origin.wire.as_str() == wire_of(dialect);
        match form {
            SettingForm::Shortest if is_native => usize::from(target.profile.thinks_by_default),
            SettingForm::Sized | SettingForm::Shortest if is_native => 1,
            SettingForm::Sized | SettingForm::Shortest => all,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.row, self.model)
    }
}

fn wire_of(dialect: ClientDialect) -> &'static str {
    match dialect {
        ClientDialect::Messages => "anthropic-messages",
        ClientDialect::Responses => "openai-responses",
        ClientDialect::Chat => "openai-chat",
        ClientDialect::Gemini => "gemini",
    }
}

/// How a client asks for readable reasoning.
#[derive(Clone, Copy, Debug)]
enum SettingForm {
    /// With an effort or a budget.
    Sized,
    /// With only the member that makes the reasoning readable in the client's dialect.
    Shortest,
}

/// Returns a request that asks for readable reasoning in the way of the dialect.
fn request(
    dialect: ClientDialect,
    model: &str,
    history: &[Value],
    stream: bool,
    form: SettingForm,
) -> (String, Value) {
    let (path, mut body) = dialect.request(model, history, stream);
    match (dialect, form) {
        // The newest Claude models accept only adaptive thinking, and hide it by default.
        (ClientDialect::Messages, _) if model.contains("opus-5-5") => {
            body["thinking"] = json!({"type": "adaptive", "display": "summarized"});
        }
        (ClientDialect::Messages, SettingForm::Sized) => {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 2048});
        }
        (ClientDialect::Messages, SettingForm::Shortest) => {
            body["thinking"] = json!({"type": "adaptive"});
        }
        (ClientDialect::Responses, SettingForm::Sized) => {
            body["reasoning"] = json!({"effort": "medium", "summary": "auto"});
        }
        (ClientDialect::Responses, SettingForm::Shortest) => {
            body["reasoning"] = json!({"summary": "auto"});
        }
        (ClientDialect::Chat, SettingForm::Sized) => body["reasoning_effort"] = json!("medium"),
        (ClientDialect::Chat, SettingForm::Shortest) => {
            body.as_object_mut().unwrap().remove("reasoning_effort");
            body["reasoning"] = json!({"enabled": true});
        }
        (ClientDialect::Gemini, SettingForm::Sized) => {
            let config = json!({"includeThoughts": true, "thinkingLevel": "LOW"});
            body["generationConfig"]["thinkingConfig"] = config;
        }
        (ClientDialect::Gemini, SettingForm::Shortest) => {
            body["generationConfig"]["thinkingConfig"] = json!({"includeThoughts": true});
        }
    }
    (path, body)
}

/// The texts that a client reads, by the member that contains them.
type ReadableTexts = Vec<(&'static str, String)>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn joined(list: &Value, key: &str, is_meant: impl Fn(&Value) -> bool) -> String {
    let elements = list.as_array().into_iter().flatten();
    elements.filter(|element| is_meant(element)).map(|element| text(&element[key])).collect()
}

/// Returns the reasoning in the messages of a whole reply.
fn whole_texts(dialect: ClientDialect, reply: &[Value]) -> ReadableTexts {
    let first = reply.first().unwrap();
    match dialect {
        ClientDialect::Messages => {
            let is_thinking = |block: &Value| block["type"] == "thinking";
            vec![("thinking", joined(&first["content"], "thinking", is_thinking))]
        }
        ClientDialect::Responses => {
            let items = reply.iter().filter(|item| item["type"] == "reasoning");
            vec![(
                "summary",
                items.map(|item| joined(&item["summary"], "text", |_| true)).collect(),
            )]
        }
        ClientDialect::Chat => chat_texts(first),
        ClientDialect::Gemini => {
            let is_thought = |part: &Value| part["thought"] == true;
            vec![("thought", joined(&first["parts"], "text", is_thought))]
        }
    }
}

fn chat_texts(message: &Value) -> ReadableTexts {
    vec![
        ("reasoning_content", text(&message["reasoning_content"])),
        ("reasoning", text(&message["reasoning"])),
        ("reasoning_details", joined(&message["reasoning_details"], "text", |_| true)),
    ]
}

/// Returns the reasoning in the deltas of a streamed reply.
fn streamed_texts(dialect: ClientDialect, frames: &[Frame]) -> ReadableTexts {
    let events = frames.iter().filter(|frame| &*frame.data != b"[DONE]");
    let events: Vec<Value> =
        events.map(|frame| serde_json::from_slice(&frame.data).unwrap()).collect();
    let deltas = |kind: &str, pointer: &str| -> String {
        let meant = events.iter().filter(|event| {
            event["type"] == kind || event["delta"]["type"] == kind || kind.is_empty()
        });
        meant.filter_map(|event| event.pointer(pointer)?.as_str().map(str::to_owned)).collect()
    };
    match dialect {
        ClientDialect::Messages => vec![("thinking", deltas("thinking_delta", "/delta/thinking"))],
        ClientDialect::Responses => {
            vec![("summary", deltas("response.reasoning_summary_text.delta", "/delta"))]
        }
        ClientDialect::Chat => chat_texts(&dialect.streamed(frames)[0]),
        ClientDialect::Gemini => whole_texts(dialect, &dialect.streamed(frames)),
    }
}

/// A reply as the client receives it.
struct ReceivedReply {
    texts: ReadableTexts,
    /// The messages that the client adds to its history.
    messages: Vec<Value>,
    /// The id of the call record.
    call: String,
}

async fn send(
    gateway: &SimGateway,
    dialect: ClientDialect,
    (path, body): (String, Value),
    stream: bool,
) -> ReceivedReply {
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let sent = gateway.send("POST", &path, body.to_string().into(), &headers).await;
    let (status, headers, bytes) = sent;
    assert_eq!(status, 200, "{dialect:?} {path}: {}", String::from_utf8_lossy(&bytes));
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let call = header("x-throughline-call");
    let (texts, messages) = if stream {
        let framing = Framing::from_content_type(&header("content-type")).unwrap();
        let frames = frames(framing, &bytes);
        (streamed_texts(dialect, &frames), dialect.streamed(&frames))
    } else {
        let messages = dialect.answer(&serde_json::from_slice(&bytes).unwrap());
        (whole_texts(dialect, &messages), messages)
    };
    ReceivedReply { texts, messages, call }
}

fn frames(framing: Framing, bytes: &[u8]) -> Vec<Frame> {
    let (mut reader, mut frames) = (Framer::new(framing), Vec::new());
    reader.push(bytes, &mut frames).unwrap();
    reader.finish(&mut frames).unwrap();
    frames
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// Returns the number of characters in each member.
fn counts(texts: &ReadableTexts) -> String {
    let counts = texts.iter().map(|(member, text)| format!("{member}={}", count(text)));
    counts.collect::<Vec<_>>().join(" ")
}

/// Every dialect shows the reasoning of every provider that has readable reasoning.
#[tokio::test(flavor = "multi_thread")]
async fn every_dialect_shows_readable_reasoning_of_every_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut unread = Vec::new();
    for dialect in ClientDialect::ALL {
        for target in &TARGETS {
            let model = format!("sim/{}", target.model);
            for (form, stream) in [
                (SettingForm::Sized, false),
                (SettingForm::Sized, true),
                (SettingForm::Shortest, false),
            ] {
                let request = request(dialect, &model, &[dialect.user(QUESTION)], stream, form);
                let reply = send(&gateway, dialect, request, stream).await;
                let kind = if stream { "streamed" } else { "whole" };
                let label = format!("{dialect:?} × {}, {form:?}, {kind}", target.name());
                figure(&format!("readable reasoning, {label}"), counts(&reply.texts));
                let readable = reply.texts.iter().filter(|(_, text)| !text.is_empty()).count();
                let expected = target.readable_members(dialect, form, reply.texts.len());
                if readable < expected {
                    unread.push(label);
                }
            }
        }
    }
    gateway.assert_nothing_refused();
    assert!(unread.is_empty(), "members without readable reasoning: {unread:#?}");
}

/// A client of Converse, whose requests the gateway does not serve, reads the reasoning of every
/// provider through the codecs.
#[tokio::test(flavor = "multi_thread")]
async fn converse_shows_readable_reasoning_of_every_provider() {
    let simulator = throughline_sim::start(throughline_sim::Options::default()).await.unwrap();
    let converse = codec_of("bedrock-converse");
    for target in TARGETS.iter().filter(|target| target.row != "bedrock") {
        for stream in [false, true] {
            let text = converse_text(&simulator.url(), converse, target, stream).await;
            let kind = if stream { "streamed" } else { "whole" };
            let label = format!("Converse × {}, {kind}", target.name());
            figure(&format!("readable reasoning, {label}"), format!("text={}", count(&text)));
            assert!(!text.is_empty(), "{label}");
        }
    }
}

/// Translates a Converse request for a target, sends it, and returns the reasoning in the
/// translated reply.
async fn converse_text(
    simulator: &str,
    converse: &dyn Codec,
    target: &VisibleTarget,
    stream: bool,
) -> String {
    let thinking = json!({"type": "enabled", "budget_tokens": 2048});
    let body = json!({"messages": [{"role": "user", "content": [{"text": QUESTION}]}],
        "inferenceConfig": {"maxTokens": 8192},
        "additionalModelRequestFields": {"thinking": thinking}});
    let bedrock = TARGETS.iter().find(|target| target.row == "bedrock").unwrap().target();
    let path = converse.path(&bedrock, stream).into();
    let received = Request { path, headers: Vec::new(), body: body.to_string().into() };
    let mut call = converse.decode_request(&received, &DecodeContext::of(bedrock)).unwrap();
    call.target = target.target();
    call.stream = stream;
    let context = DecodeContext::of(call.target.clone());
    let to = codec(&call.target.origin.wire).unwrap();
    let request = to.encode(&call).unwrap().request;
    let header = |name: &str, value: &str| (name.into(), value.into());
    let outgoing = UpstreamRequest {
        endpoint: format!("sim-{}", target.row).into(),
        model: None,
        method: "POST".into(),
        path: request.path,
        headers: [request.headers, vec![header("content-type", "application/json")]].concat(),
        body: request.body,
        credential: None,
    };
    let answer = upstream(simulator).send(outgoing).await.unwrap();
    let status = answer.status;
    let framing = answer.header("content-type").and_then(Framing::from_content_type);
    let chunks: Vec<Bytes> = answer.body.map(Result::unwrap).collect().await;
    let body = Bytes::from(chunks.concat());
    assert_eq!(status, 200, "{}: {}", target.name(), String::from_utf8_lossy(&body));
    if !stream {
        let reply = to.decode_reply(&body, &context).unwrap();
        let shown: Value = serde_json::from_slice(&converse.encode_reply(&reply).unwrap()).unwrap();
        let blocks = shown["output"]["message"]["content"].as_array().unwrap();
        return blocks
            .iter()
            .map(|block| text(&block["reasoningContent"]["reasoningText"]["text"]))
            .collect();
    }
    let mut decoder = StreamDecoder::with_framing(to, &context, framing.unwrap());
    let mut events = decoder.push(&body).unwrap();
    events.extend(decoder.finish().unwrap());
    let mut encoder = StreamEncoder::with_framing(converse, Framing::EventStream);
    let mut bytes = Vec::new();
    for event in &events {
        encoder.push(event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    let deltas = frames(Framing::EventStream, &bytes);
    let deltas = deltas.iter().map(|frame| serde_json::from_slice::<Value>(&frame.data).unwrap());
    deltas.map(|event| text(&event["delta"]["reasoningContent"]["text"])).collect()
}

/// Returns the part of a simulated thought that occurs in no other thought.
fn mark_of(texts: &ReadableTexts) -> String {
    let (_, text) = texts.iter().find(|(_, text)| !text.is_empty()).unwrap();
    let (_, mark) = text.rsplit_once("(note ").unwrap();
    format!("(note {mark}")
}

/// Returns the request that the gateway sent to the provider.
async fn sent_body(gateway: &SimGateway, call: &str) -> String {
    let (status, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
    assert_eq!(status, 200, "{record:#}");
    record["sent"]["body"].to_string()
}

/// Returns the ways in which clients of a dialect send reasoning back: all of it, or, in the chat
/// dialect, only one of the members.
fn returned_forms(dialect: ClientDialect, messages: &[Value]) -> Vec<Vec<Value>> {
    let mut forms = vec![messages.to_vec()];
    let members = ["reasoning_content", "reasoning", "reasoning_details"];
    if dialect == ClientDialect::Chat {
        for only in members {
            let mut message = messages[0].clone();
            for other in members.iter().filter(|other| **other != only) {
                message.as_object_mut().unwrap().remove(*other);
            }
            forms.push(vec![message]);
        }
    }
    forms
}

/// If a client sends shown thoughts back, the model that produced them receives them again, and no
/// other model receives their text. Gemini signs its answer instead of its thoughts, so Gemini
/// receives only thoughts that a client sends in Gemini's own dialect.
#[tokio::test(flavor = "multi_thread")]
async fn shown_thoughts_return_only_to_their_model() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in ClientDialect::ALL {
        for owner in MODELS {
            for stream in [false, true] {
                let mut history = vec![dialect.user(QUESTION)];
                let asked = request(dialect, owner, &history, stream, SettingForm::Sized);
                let reply = send(&gateway, dialect, asked, stream).await;
                let mark = mark_of(&reply.texts);
                let calls = dialect.calls(&reply.messages);
                for form in returned_forms(dialect, &reply.messages) {
                    history.truncate(1);
                    history.extend(form);
                    history.extend(dialect.results(&calls));
                    for model in MODELS {
                        let asked = request(dialect, model, &history, stream, SettingForm::Sized);
                        let next = send(&gateway, dialect, asked, stream).await;
                        let sent = sent_body(&gateway, &next.call).await;
                        let label = format!("{dialect:?}, {owner} → {model}, streamed {stream}");
                        assert!(!sent.contains("tl1c"), "a Claim was sent: {label}: {sent}");
                        // Gemini streams a thought in several parts.
                        let joined = sent.replace(r#"","thought":true},{"text":""#, "");
                        let is_sent = joined.contains(&mark);
                        let is_signed = owner != MODELS[2] || dialect == ClientDialect::Gemini;
                        assert_eq!(
                            is_sent,
                            model == owner && is_signed,
                            "{label}: {history:#?} {sent}"
                        );
                    }
                }
            }
        }
    }
    gateway.assert_nothing_refused();
}

/// OpenAI's error for an account that may not generate summaries.
const UNVERIFIED: &str = r#"
[[turn]]
model = "gpt-*"
[turn.refuse]
status = 400
message = "Your organization must be verified to generate reasoning summaries."
kind = "invalid_request_error"
code = "unsupported_value"
param = "reasoning.summary"
"#;

/// If OpenAI refuses the summary that the gateway requested, the client receives the reply without
/// readable reasoning. A client that requested the summary itself receives the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn refused_summary_is_not_requested_again() {
    for dialect in ClientDialect::ALL {
        let script = UNVERIFIED.parse().unwrap();
        let simulators = throughline_sim::Options { script, ..throughline_sim::Options::default() };
        let options = GatewayOptions::of(ReplayMode::Repair);
        let gateway = SimGateway::open_with(options, simulators).await;
        let [_, gpt, ..] = MODELS;
        let asked = request(dialect, gpt, &[dialect.user(QUESTION)], false, SettingForm::Sized);
        let (path, body) = asked;
        let (status, reply) = gateway.raw(&path, body.to_string().into(), &[]).await;
        let entries = gateway.ledger().entries;
        let statuses: Vec<u16> = entries.iter().map(|entry| entry.status).collect();
        if dialect == ClientDialect::Responses {
            assert_eq!((status, statuses), (400, vec![400]), "{reply:#}");
            assert_eq!(reply["error"]["param"], "reasoning.summary", "{reply:#}");
            continue;
        }
        assert_eq!((status, statuses), (200, vec![400, 200]), "{dialect:?}: {reply:#}");
        assert!(!dialect.calls(&dialect.answer(&reply)).is_empty(), "{dialect:?}: {reply:#}");
        // The next call does not request a summary.
        let (status, headers, _) = gateway.send("POST", &path, body.to_string().into(), &[]).await;
        assert_eq!((status, gateway.requests()), (200, 3), "{dialect:?}");
        let call = headers["x-throughline-call"].to_str().unwrap();
        let (_, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
        let sent = &record["sent"]["body"];
        assert!(sent["model"].is_string(), "{dialect:?}: {record:#}");
        assert_eq!(sent.pointer("/reasoning/summary"), None, "{dialect:?}: {record:#}");
    }
}
