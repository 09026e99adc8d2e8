//! Tests that a reply reaches a caller of the same dialect byte for byte, with any chunking and
//! compression. Official clients parse the reply exactly like the provider's own response, and the
//! gateway captures the reply.

use std::sync::Arc;

use crate::harness::scripted::{Chunking, Compression, FixedProvider, ReplyStyle, model};
use crate::harness::{ClientDialect, GatewayOptions, QUESTION, official};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::Value;
use throughline_codec::{Framer, Framing};
use throughline_server::ReplayMode;
use throughline_testkit::{Folder, chunks, figure, proptest_config};

/// A gateway in front of a provider with fixed replies.
struct FixedReplyGateway {
    scripted: Arc<FixedProvider>,
    url: String,
    _folder: Folder,
}

struct ReceivedResponse {
    coding: Option<String>,
    kind: String,
    body: Bytes,
}

impl FixedReplyGateway {
    async fn open() -> Self {
        let scripted = FixedProvider::open().await;
        let upstream = Arc::new(crate::harness::upstream(&scripted.url));
        let (url, _, folder) =
            crate::harness::serve(upstream, GatewayOptions::of(ReplayMode::Repair)).await;
        Self { scripted, url, _folder: folder }
    }

    async fn send(
        &self,
        dialect: ClientDialect,
        history: &[Value],
        stream: bool,
        user: &str,
    ) -> ReceivedResponse {
        self.send_to_model(dialect, model(dialect), history, stream, user).await
    }

    async fn send_to_model(
        &self,
        dialect: ClientDialect,
        model: &str,
        history: &[Value],
        stream: bool,
        user: &str,
    ) -> ReceivedResponse {
        let (path, body) = dialect.request(model, history, stream);
        let request = hyper::Request::post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("accept-encoding", "gzip, deflate, br, zstd")
            .header("x-throughline-user", user)
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), 200, "{dialect:?}, streamed {stream}");
        let coding = response.headers().get("content-encoding");
        let coding = coding.map(|value| value.to_str().unwrap().to_owned());
        let kind = response.headers().get("content-type");
        let kind = kind.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        ReceivedResponse {
            coding,
            kind,
            body: response.into_body().collect().await.unwrap().to_bytes(),
        }
    }

    /// Sends a request and compares the response bytes. Then continues the conversation without the
    /// reasoning and checks that the gateway restores it.
    async fn compare(&self, dialect: ClientDialect, stream: bool, style: ReplyStyle, user: &str) {
        let label = format!("{dialect:?}, streamed {stream}, {style:?}");
        let reply = self.scripted.reply(dialect, stream);
        let sent = style.coding.of(&reply.body);
        let coding = style.coding;
        self.scripted.set_style(style);
        let history = vec![dialect.user(QUESTION)];
        let got = self.send(dialect, &history, stream, user).await;
        assert_eq!(got.coding.as_deref(), coding.name(), "{label}");
        assert_eq!(got.body, sent, "{label}");
        let (headers, _) = self.scripted.last();
        assert_eq!(headers["accept-encoding"], "gzip, deflate, br", "{label}");
        let reply = if stream {
            let mut reader = Framer::new(Framing::from_content_type(&reply.kind).unwrap());
            let mut frames = Vec::new();
            reader.push(&reply.body, &mut frames).unwrap();
            reader.finish(&mut frames).unwrap();
            dialect.streamed(&frames)
        } else {
            dialect.answer(&serde_json::from_slice(&reply.body).unwrap())
        };
        let calls = dialect.calls(&reply);
        let reasoning = opaque(&reply);
        assert!(!reasoning.is_empty(), "{label}: {reply:#?}");
        let next_history: Vec<Value> = [history, dialect.stripped(reply), dialect.results(&calls)]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(opaque(&next_history), Vec::<String>::new(), "{label}");
        self.send(dialect, &next_history, stream, user).await;
        let (_, request) = self.scripted.last();
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(opaque(std::slice::from_ref(&request)), reasoning, "{label}");
    }
}

/// Returns the Seals in these values, and the reasoning without Seals, in order.
fn opaque(values: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest: Vec<&Value> = values.iter().rev().collect();
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(members) => {
                for key in
                    ["signature", "encrypted_content", "thoughtSignature", "reasoning_content"]
                {
                    found.extend(members.get(key).and_then(Value::as_str).map(str::to_owned));
                }
                rest.extend(members.values().rev());
            }
            Value::Array(elements) => rest.extend(elements.iter().rev()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// Covers complete and streamed replies on every wire, with every compression, split at random
/// positions and after each byte.
#[tokio::test(flavor = "multi_thread")]
async fn replies_are_forwarded_byte_for_byte_and_captured() {
    let fixture = FixedReplyGateway::open().await;
    let mut compared = 0;
    for dialect in ClientDialect::ALL {
        for stream in [false, true] {
            for coding in Compression::ALL {
                for cut in [Chunking::OneByte, Chunking::Random(compared), Chunking::At(Vec::new())]
                {
                    let style = ReplyStyle::new(cut, coding);
                    fixture.compare(dialect, stream, style, &format!("user-{compared}")).await;
                    compared += 1;
                }
            }
        }
    }
    figure("replies forwarded byte for byte and stored", compared);
}

/// Repeats the byte comparison with random chunkings from proptest.
#[tokio::test(flavor = "multi_thread")]
async fn chunking_does_not_change_a_stream() {
    let fixture = FixedReplyGateway::open().await;
    let config = proptest_config(12);
    let cases = config.cases;
    let mut runner = TestRunner::new(config);
    for case in 0..cases {
        for dialect in ClientDialect::ALL {
            for coding in Compression::ALL {
                let length = coding.of(&fixture.scripted.reply(dialect, true).body).len();
                let places = chunks(length).new_tree(&mut runner).unwrap().current();
                let style = ReplyStyle::new(Chunking::At(places), coding);
                let user = format!("{case}-{dialect:?}-{coding:?}");
                fixture.compare(dialect, true, style, &user).await;
            }
        }
    }
}

/// A provider may answer a streaming request with one JSON object. A caller of another dialect then
/// receives a stream in its own dialect, without fields of the provider's dialect.
#[tokio::test(flavor = "multi_thread")]
async fn whole_json_answer_to_a_stream_is_translated_for_every_pair_of_wires() {
    let fixture = FixedReplyGateway::open().await;
    let mut pairs = 0;
    for provider in ClientDialect::ALL {
        let reply = fixture.scripted.reply(provider, false);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        let seals: Vec<String> = opaque(std::slice::from_ref(&body));
        let calls = provider.calls(&provider.answer(&body));
        assert!(!seals.is_empty() && !calls.is_empty(), "{provider:?}: {body}");
        for caller in ClientDialect::ALL.into_iter().filter(|caller| *caller != provider) {
            for (cut, coding) in [
                (Chunking::At(Vec::new()), Compression::Plain),
                (Chunking::Random(7), Compression::Gzip),
            ] {
                let label = format!("{caller:?} asks {provider:?}, {cut:?}, {coding:?}");
                let style = ReplyStyle { cut, coding, ignores_stream: true };
                fixture.scripted.set_style(style);
                let history = [caller.user(QUESTION)];
                let user = format!("pair-{pairs}");
                let got =
                    fixture.send_to_model(caller, model(provider), &history, true, &user).await;
                let mut reader = Framer::new(Framing::from_content_type(&got.kind).unwrap());
                let mut frames = Vec::new();
                reader.push(&got.body, &mut frames).unwrap();
                reader.finish(&mut frames).unwrap();
                let streamed = caller.streamed(&frames);
                assert_eq!(caller.calls(&streamed).len(), calls.len(), "{label}: {streamed:#?}");
                let text = String::from_utf8(got.body.to_vec()).unwrap();
                // Chat reasoning is plain text without a Seal, so every dialect may show it.
                for seal in seals.iter().filter(|_| provider != ClientDialect::Chat) {
                    assert!(!text.contains(seal.as_str()), "{label}: a seal of the provider");
                }
                let id = body["id"].as_str().or(body["responseId"].as_str()).unwrap();
                let named = frames.iter().filter(|frame| {
                    let value = serde_json::from_slice::<Value>(&frame.data);
                    value.is_ok_and(|value| value == body)
                });
                assert_eq!(named.count(), 0, "{label}: the answer {id} passed as it was");
                pairs += 1;
            }
        }
    }
    figure("JSON answers to streaming requests that were translated", pairs);
}

/// Two end users with equal conversations each receive only their own state.
#[tokio::test(flavor = "multi_thread")]
async fn user_header_separates_equal_conversations() {
    let fixture = FixedReplyGateway::open().await;
    let dialect = ClientDialect::Messages;
    let history = vec![dialect.user(QUESTION)];
    let got = fixture.send(dialect, &history, false, "alice").await;
    let reply = dialect.answer(&serde_json::from_slice(&got.body).unwrap());
    let (calls, reasoning) = (dialect.calls(&reply), opaque(&reply));
    let next_history: Vec<Value> =
        [history, dialect.stripped(reply), dialect.results(&calls)].into_iter().flatten().collect();
    for (user, expected) in [("bob", Vec::new()), ("alice", reasoning)] {
        fixture.send(dialect, &next_history, false, user).await;
        let (headers, request) = fixture.scripted.last();
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(opaque(std::slice::from_ref(&request)), expected, "{user}");
        assert_eq!(headers.get("x-throughline-user"), None, "the provider does not receive it");
    }
}

/// Checks that an official client parses a response through the gateway like the provider's own.
async fn assert_parsed_alike(language: &str, script: &str, dialect: ClientDialect) {
    let fixture = FixedReplyGateway::open().await;
    let (mut compared, models) = (0, [model(dialect)]);
    for cut in [Chunking::OneByte, Chunking::Random(1), Chunking::Random(2)] {
        fixture.scripted.set_style(ReplyStyle::new(cut.clone(), Compression::Plain));
        let mut outputs = Vec::new();
        for url in [&fixture.scripted.url, &fixture.url] {
            let run = official::run(language, script, url, "tell", &models);
            let Some(output) = run.await else { return };
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{language}/{script}, {cut:?}: {error}");
            outputs.push(String::from_utf8(output.stdout).unwrap());
        }
        assert_eq!(outputs[0].lines().count(), 2, "{}", outputs[0]);
        assert!(outputs[0].len() > 1000, "{}", outputs[0]);
        assert_eq!(outputs[0], outputs[1], "{language}/{script}, {cut:?}");
        compared += 2;
    }
    figure(&format!("{language}/{script}: responses parsed alike"), compared);
}

macro_rules! clients {
    ($($test:ident: $language:literal $script:literal $dialect:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            assert_parsed_alike($language, $script, ClientDialect::$dialect).await;
        })*
    };
}

clients! {
    fidelity_python_anthropic: "python" "anthropic_messages.py" Messages;
    fidelity_python_openai_responses: "python" "openai_responses.py" Responses;
    fidelity_python_openai_chat: "python" "openai_chat.py" Chat;
    fidelity_python_google_genai: "python" "google_gemini.py" Gemini;
    fidelity_node_anthropic: "node" "anthropic_messages.mjs" Messages;
    fidelity_node_openai_responses: "node" "openai_responses.mjs" Responses;
    fidelity_node_openai_chat: "node" "openai_chat.mjs" Chat;
    fidelity_node_google_genai: "node" "google_gemini.mjs" Gemini;
}
