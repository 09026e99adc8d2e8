//! Tests that the gateway never silently drops or alters content. Covers model names, arguments
//! with added fields, Thoughts sent back as text, and values that only their issuer can read.

use std::sync::{Arc, Mutex};

use crate::harness::{
    ClientDialect, FALLBACK, GatewayOptions, MODELS, QUESTION, SimGateway, begin, serve,
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse, Wire};
use throughline_json::Name;
use throughline_server::{ModelRouter, ReplayMode, RouteTarget};
use throughline_sim::Verdict;
use throughline_testkit::figure;

/// A response, its call record, and its audit verdict.
struct AuditedCall {
    status: u16,
    text: String,
    record: Value,
    audit: String,
}

impl AuditedCall {
    fn sent(&self) -> String {
        self.record["sent"]["body"].to_string()
    }
}

async fn send_request(gateway: &SimGateway, path: &str, body: &Value) -> AuditedCall {
    let headers = [("anthropic-version", "2023-06-01"), ("content-type", "application/json")];
    let (status, headers_received, answer) =
        gateway.send("POST", path, body.to_string().into_bytes(), &headers).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let header =
        |name: &str| headers_received.get(name).map(|value| value.to_str().unwrap().to_owned());
    let call = header("x-throughline-call").unwrap();
    let (_, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
    AuditedCall { status, text, record, audit: header("x-throughline-audit").unwrap_or_default() }
}

/// Returns all model names in a response, whole or streamed.
fn model_names(answer: &str, stream: bool) -> Vec<String> {
    let documents: Vec<Value> = if stream {
        let lines = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    } else {
        vec![serde_json::from_str(answer).unwrap()]
    };
    let pointers = ["/model", "/message/model", "/response/model", "/modelVersion"];
    let names = documents.iter().flat_map(|document| {
        pointers.iter().filter_map(|pointer| document.pointer(pointer).and_then(Value::as_str))
    });
    names.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_name_the_model_as_requested() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut checked = 0;
    for dialect in ClientDialect::ALL {
        for model in MODELS.into_iter().chain([FALLBACK]) {
            let short_name = model.strip_prefix("sim/").filter(|_| model != FALLBACK);
            for stream in [false, true] {
                for name in [Some(model), short_name].into_iter().flatten() {
                    let (path, body) = dialect.request(name, &[dialect.user("Hi")], stream);
                    let call = send_request(&gateway, &path, &body).await;
                    let label = format!("{dialect:?}, {name}, streamed {stream}: {}", call.text);
                    assert_eq!(call.status, 200, "{label}");
                    let names = model_names(&call.text, stream);
                    assert!(
                        !names.is_empty() && names.iter().all(|found| found == name),
                        "{label}"
                    );
                    // The stored record names the model that answered.
                    let model_name = call.record["answer"]["model"].as_str().unwrap();
                    assert!(!model_name.contains("sim/") && model_name != FALLBACK, "{label}");
                    checked += names.len();
                }
            }
        }
    }
    figure("model names", format!("{checked} names in answers, each as the client wrote it"));
}

/// Returns the tool calls of a message without their reasoning, with one argument added to each
/// call.
fn grown(dialect: ClientDialect, reply: Vec<Value>, key: &str) -> Vec<Value> {
    let text = |value: &Value| {
        let mut args: Value = serde_json::from_str(value.as_str().unwrap()).unwrap();
        args[key] = json!(false);
        json!(args.to_string())
    };
    let mut reply = dialect.stripped(reply);
    for message in &mut reply {
        match dialect {
            ClientDialect::Messages => {
                for block in message["content"].as_array_mut().unwrap() {
                    if block["type"] == "tool_use" {
                        block["input"][key] = json!(false);
                    }
                }
            }
            ClientDialect::Responses if message["type"] == "function_call" => {
                message["arguments"] = text(&message["arguments"]);
            }
            ClientDialect::Responses => {}
            ClientDialect::Chat => {
                for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                    call["function"]["arguments"] = text(&call["function"]["arguments"]);
                }
            }
            ClientDialect::Gemini => {
                for part in message["parts"].as_array_mut().unwrap() {
                    if part["functionCall"].is_object() {
                        part["functionCall"]["args"][key] = json!(false);
                    }
                }
            }
        }
    }
    reply
}

/// Some clients add default values to tool arguments. The call id still identifies the turn, so the
/// turn's reasoning is restored.
#[tokio::test(flavor = "multi_thread")]
async fn reasoning_returns_to_calls_whose_arguments_gained_members() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut restored = 0;
    for dialect in [ClientDialect::Messages, ClientDialect::Responses, ClientDialect::Chat] {
        for model in MODELS {
            let mut history = vec![dialect.user(QUESTION)];
            let reply = gateway.send_history(dialect, model, &history, false).await.unwrap();
            let calls = dialect.calls(&reply);
            assert!(!calls.is_empty());
            history.extend(grown(dialect, reply, "replace_all"));
            history.extend(dialect.results(&calls));
            let (path, body) = dialect.request(model, &history, false);
            let call = send_request(&gateway, &path, &body).await;
            let label = format!("{dialect:?} → {model}: {}\n{:#}", call.text, call.record);
            assert_eq!(call.status, 200, "{label}");
            assert_eq!(call.audit, "accept", "{label}");
            assert!(call.sent().contains("replace_all"), "{label}");
            let ledger = gateway.ledger();
            let entry = ledger.entries.last().unwrap();
            // The OpenAI simulator treats reasoning before another call as moved, and does not
            // refuse it.
            let is_back = |verdict: &Verdict| match verdict {
                Verdict::Accepted => true,
                Verdict::Dropped(_) => model == MODELS[1],
                Verdict::Refused(_) => false,
            };
            let back = entry.returned.iter().filter(|back| is_back(&back.verdict)).count();
            assert!(back > 0, "{label}\n{entry:#?}");
            restored += back;
        }
    }
    gateway.assert_nothing_refused();
    figure("added arguments", format!("{restored} thoughts restored in 12 conversations"));
}

/// If a client replaces the arguments of a tool call, nothing is restored, and the audit header
/// reports the degradation.
#[tokio::test(flavor = "multi_thread")]
async fn changed_arguments_restore_nothing_and_degrade() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (dialect, model) = (ClientDialect::Messages, MODELS[0]);
    let mut history = vec![dialect.user(QUESTION)];
    let reply = gateway.send_history(dialect, model, &history, false).await.unwrap();
    let calls = dialect.calls(&reply);
    let mut reply = dialect.stripped(reply);
    for block in reply[0]["content"].as_array_mut().unwrap() {
        if block["type"] == "tool_use" {
            block["input"] = json!({"other": true});
        }
    }
    history.extend(reply);
    history.extend(dialect.results(&calls));
    let (path, body) = dialect.request(model, &history, false);
    let call = send_request(&gateway, &path, &body).await;
    assert_eq!(call.status, 200, "{}", call.text);
    assert!(gateway.ledger().entries.last().unwrap().returned.is_empty());
    assert_eq!(call.audit, "degrade", "thinking was switched off: {:#}", call.record);
}

/// Converts Thoughts to text, as clients do when they switch models: plain text, or text in tags.
fn thoughts_as_text(reply: &[Value], tag: Option<&str>) -> (Vec<Value>, Vec<String>) {
    let mut thoughts = Vec::new();
    let messages = reply.iter().map(|message| {
        let blocks = message["content"].as_array().unwrap().iter();
        // Hidden thoughts cannot be sent as text.
        let blocks = blocks.filter(|block| block["thinking"] != "" && block["data"].is_null());
        let content = blocks.map(|block| {
            if block["type"] != "thinking" {
                return block.clone();
            }
            let thought = block["thinking"].as_str().unwrap();
            thoughts.push(thought.to_owned());
            let text = match tag {
                Some(tag) => format!("<{tag}>\n{thought}\n</{tag}>"),
                None => thought.to_owned(),
            };
            json!({"type": "text", "text": text})
        });
        json!({"role": "assistant", "content": content.collect::<Vec<_>>()})
    });
    (messages.collect(), thoughts)
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_sent_as_text_are_removed_or_restored() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let mut removed = 0;
    for issuer in MODELS {
        // All tags are handled alike, so one issuer is enough to cover them.
        let tags = [None, Some("think"), Some("thinking"), Some("reasoning"), Some("thought")];
        let tried = if issuer == MODELS[3] { tags.len() } else { 2 };
        for tag in tags.into_iter().take(tried) {
            let mut history = vec![dialect.user(QUESTION)];
            // A tool loop, then a text-only turn that only the visible conversation can identify.
            for turn in 0..3 {
                let reply = gateway.send_history(dialect, issuer, &history, false).await.unwrap();
                let calls = dialect.calls(&reply);
                let (reply, thoughts) = thoughts_as_text(&reply, tag);
                history.extend(reply);
                if calls.is_empty() {
                    history.push(dialect.user("Thank you. And once more, please."));
                } else {
                    history.extend(dialect.results(&calls));
                }
                let thoughts: Vec<_> = thoughts.iter().filter(|text| !text.is_empty()).collect();
                for target in [MODELS[0], issuer] {
                    let (path, body) = dialect.request(target, &history, false);
                    let call = send_request(&gateway, &path, &body).await;
                    let label = format!(
                        "{issuer} → {target}, {tag:?}, turn {turn}: {}\n{:#}",
                        call.text, call.record
                    );
                    assert_eq!(call.status, 200, "{label}");
                    let answer: Value = serde_json::from_str(&call.text).unwrap();
                    assert_ne!(answer["stop_reason"], "refusal", "{label}");
                    // Claude does not continue thinking within a tool loop that another model
                    // started.
                    let goes_on = target == issuer || calls.is_empty();
                    assert_eq!(call.audit, if goes_on { "accept" } else { "degrade" }, "{label}");
                    for thought in &thoughts {
                        let as_text = json!({"type": "text", "text": thought}).to_string();
                        assert!(!call.sent().contains(&as_text), "{label}");
                        let escaped = json!(thought).to_string();
                        let escaped = escaped.trim_matches('"');
                        assert!(target == issuer || !call.sent().contains(escaped), "{label}");
                    }
                    let findings = call.record["restore_findings"].to_string();
                    let is_told = findings.contains("repeats a Thought of this conversation");
                    assert_eq!(is_told, !thoughts.is_empty(), "{label}");
                    removed += thoughts.len();
                }
            }
        }
    }
    gateway.assert_nothing_refused();
    figure("thoughts as text", format!("{removed} recognised, 0 sent as text"));
}

/// Some clients send another system prompt to another model, and the reasoning of the first model
/// as text.
#[tokio::test(flavor = "multi_thread")]
async fn thoughts_as_text_are_removed_after_a_changed_system_prompt() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let send = async |model: &str, history: &[Value]| {
        let (path, mut body) = dialect.request(model, history, false);
        body["system"] = json!(format!("You are {model}."));
        let call = send_request(&gateway, &path, &body).await;
        assert_eq!(call.status, 200, "{model}: {}", call.text);
        call
    };
    let mut removed = 0;
    for issuer in MODELS {
        let target = if issuer == MODELS[0] { MODELS[1] } else { MODELS[0] };
        // "Hi" is answered without a call, so the first turn has no id.
        for question in [QUESTION, "Hi"] {
            let (mut own, mut as_text) =
                (vec![dialect.user(question)], vec![dialect.user(question)]);
            let mut thoughts = Vec::new();
            for turn in 0..3 {
                let answer: Value = serde_json::from_str(&send(issuer, &own).await.text).unwrap();
                let reply = vec![json!({"role": "assistant", "content": answer["content"]})];
                let calls = dialect.calls(&reply);
                let (texts, new) = thoughts_as_text(&reply, None);
                let next = if calls.is_empty() {
                    vec![dialect.user("Thank you. And once more, please.")]
                } else {
                    dialect.results(&calls)
                };
                own.extend(reply.into_iter().chain(next.clone()));
                as_text.extend(texts.into_iter().chain(next));
                thoughts.extend(new);
                let call = send(target, &as_text).await;
                let label = format!("{issuer} → {target}, {question}, turn {turn}");
                for thought in &thoughts {
                    let escaped = json!(thought).to_string();
                    let is_sent = call.sent().contains(escaped.trim_matches('"'));
                    assert!(!is_sent, "{label}: {:#}", call.record);
                }
                let findings = call.record["restore_findings"].to_string();
                let reported = findings.matches("repeats a Thought of this conversation").count();
                assert_eq!(reported, thoughts.len(), "{label}: {findings}");
                removed += thoughts.len();
            }
        }
    }
    gateway.assert_nothing_refused();
    figure("thoughts as text after a changed system prompt", format!("{removed} removed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_only_resembles_a_thought_is_kept() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (dialect, model) = (ClientDialect::Chat, MODELS[3]);
    let mut history = vec![dialect.user("Hi")];
    let body = json!({"model": model, "messages": history});
    let answer: Value =
        serde_json::from_str(&send_request(&gateway, "/v1/chat/completions", &body).await.text)
            .unwrap();
    let message = &answer["choices"][0]["message"];
    let thought = message["reasoning_content"].as_str().unwrap().to_owned();
    let text = message["content"].as_str().unwrap().to_owned();
    for similar in [format!("{thought} Indeed."), thought[..thought.len() - 1].to_owned()] {
        history.truncate(1);
        history.push(json!({"role": "assistant", "content": format!("{similar}\n\n{text}")}));
        history.push(dialect.user("More"));
        let body = json!({"model": model, "messages": history});
        let call = send_request(&gateway, "/v1/chat/completions", &body).await;
        let written = json!(similar).to_string();
        assert!(call.sent().contains(written.trim_matches('"')), "{:#}", call.record);
    }
}

/// Content that a target cannot represent is left out, and the audit header is `degrade`.
#[tokio::test(flavor = "multi_thread")]
async fn content_that_cannot_be_sent_degrades() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let input = json!([{"role": "user", "content": "Hi"}, {"type": "future_item"}]);
    let body = json!({"model": MODELS[0], "input": input});
    let call = send_request(&gateway, "/v1/responses", &body).await;
    assert_eq!((call.status, &*call.audit), (200, "degrade"), "{:#}", call.record);
    // Leaving out another model's thoughts does not count as degradation.
    let dialect = ClientDialect::Responses;
    let mut input = vec![dialect.user("Hi")];
    let body = json!({"model": MODELS[3], "input": input});
    let answer = send_request(&gateway, "/v1/responses", &body).await.text;
    input.extend(dialect.answer(&serde_json::from_str(&answer).unwrap()));
    input.push(dialect.user("More"));
    let body = json!({"model": MODELS[0], "input": input, "reasoning": {"effort": "medium"}});
    let call = send_request(&gateway, "/v1/responses", &body).await;
    assert_eq!((call.status, &*call.audit), (200, "accept"), "{:#}", call.record);
}

/// A provider with one fixed reply per wire. The reply's Seal contains characters outside base64.
struct OddProvider {
    arrived: Mutex<Vec<Bytes>>,
    catalog: Catalog,
}

const ODD_SEAL: &str = "sealed:v2!~ é€";

impl Upstream for OddProvider {
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_> {
        self.arrived.lock().unwrap().push(outgoing.body.clone());
        let answer = match &*outgoing.endpoint {
            "anthropic" => json!({"id": "msg_1", "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1},
                "content": [{"type": "thinking", "thinking": "Hm.", "signature": ODD_SEAL},
                            {"type": "redacted_thinking", "data": format!("{ODD_SEAL}2")},
                            {"type": "text", "text": "Hello"}]}),
            "gemini" => json!({"responseId": "r1", "modelVersion": "gemini-3-pro-preview",
                "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
                    {"text": "Hello", "thoughtSignature": ODD_SEAL}]}}]}),
            _ => json!({"id": "resp_a1b2c3d4e5f6", "object": "response", "status": "completed",
                "model": "gpt-5.2", "error": null, "output": [
                    {"type": "reasoning", "id": "rs_a1b2c3d4e5f6", "summary": [], "encrypted_content": ODD_SEAL},
                    {"type": "message", "id": "msg_a1b2c3d4e5f6", "role": "assistant", "status": "completed",
                     "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}]}),
        };
        let headers = vec![(Name::from("content-type"), Name::from("application/json"))];
        let body = Box::pin(stream::iter([Ok(Bytes::from(answer.to_string()))]));
        Box::pin(async move { Ok(UpstreamResponse { status: 200, headers, body }) })
    }
}

impl ModelRouter for OddProvider {
    fn reach(&self, model: &str) -> Result<Vec<RouteTarget>, String> {
        let row = match model.split('-').next() {
            Some("claude") => "anthropic",
            Some("gemini") => "gemini",
            _ => "openai",
        };
        let provider = self.catalog.provider(row).unwrap();
        let (endpoint, account) = (Name::from(row), Name::from("odd"));
        let model = Name::from(model);
        Ok(vec![RouteTarget { endpoint, account, is_callers: false, provider, model }])
    }

    fn of_wire(&self, _: &Wire) -> Option<RouteTarget> {
        None
    }

    fn models(&self) -> Vec<Name> {
        Vec::new()
    }
}

/// A provider gets back exactly the values that it issued, whatever characters the values contain.
#[tokio::test(flavor = "multi_thread")]
async fn captured_seals_are_accepted_in_any_format() {
    let catalog = Catalog::builtin().clone();
    let odd = Arc::new(OddProvider { arrived: Mutex::default(), catalog });
    let options = GatewayOptions {
        directory: Arc::clone(&odd) as Arc<dyn ModelRouter>,
        ..GatewayOptions::of(ReplayMode::Repair)
    };
    let (url, _store, _folder) = serve(Arc::clone(&odd) as Arc<dyn Upstream>, options).await;
    for (dialect, model) in [
        (ClientDialect::Messages, "claude-sonnet-4-5"),
        (ClientDialect::Gemini, "gemini-3-pro-preview"),
        (ClientDialect::Responses, "gpt-5.2"),
    ] {
        let mut history = vec![dialect.user("Hi")];
        for turn in 0..2 {
            let (path, body) = dialect.request(model, &history, false);
            let sent = body.to_string();
            let headers = [("anthropic-version", "2023-06-01")];
            let answer = begin(&url, "POST", &path, sent.clone().into_bytes(), &headers).await;
            let audit = answer.headers()["x-throughline-audit"].to_str().unwrap().to_owned();
            let status = answer.status();
            let answer = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(status, 200, "{dialect:?}: {}", String::from_utf8_lossy(&answer));
            assert_eq!(audit, "accept", "{dialect:?}, turn {turn}");
            let arrived = odd.arrived.lock().unwrap().pop().unwrap();
            assert_eq!(String::from_utf8_lossy(&arrived), sent, "{dialect:?}, turn {turn}");
            history.extend(dialect.answer(&serde_json::from_slice(&answer).unwrap()));
            history.push(dialect.user("More"));
        }
    }
}

/// When a Gemini client resumes a session, it sends each tool result with its media twice, and the
/// last text without a signature.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_gemini_sessions_are_deduplicated_and_signed() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (dialect, model) = (ClientDialect::Gemini, MODELS[2]);
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}});
    let with_picture = |mut results: Vec<Value>| {
        results[0]["parts"].as_array_mut().unwrap().push(picture.clone());
        results
    };
    let mut history = vec![dialect.user(QUESTION)];
    let mut resumed = history.clone();
    for _ in 0..6 {
        let reply = gateway.send_history(dialect, model, &history, true).await.unwrap();
        let calls = dialect.calls(&reply);
        history.extend(reply.clone());
        let is_last = calls.is_empty();
        // The text loses its signature; the calls keep theirs.
        resumed.extend(if is_last { dialect.stripped(reply) } else { reply });
        if is_last {
            break;
        }
        let results = with_picture(dialect.results(&calls));
        history.extend(results.clone());
        let mut twice = results;
        let parts = twice[0]["parts"].as_array_mut().unwrap();
        parts.extend(parts.clone());
        resumed.extend(twice);
    }
    resumed.push(dialect.user("More"));
    let (path, body) = dialect.request(model, &resumed, false);
    let call = send_request(&gateway, &path, &body).await;
    assert_eq!(call.status, 200, "{}\n{:#}", call.text, call.record);
    let sent = call.sent();
    let count = |text: &str| sent.matches(text).count();
    assert_eq!(count("functionResponse"), count("functionCall"), "{sent}");
    let steps =
        resumed.iter().filter(|content| content["parts"][0]["functionResponse"].is_object());
    assert_eq!(count("inlineData"), steps.count(), "{sent}");
    gateway.assert_nothing_refused();
    let ledger = gateway.ledger();
    let issued: Vec<_> = ledger.issued().map(|issued| issued.seal.clone()).collect();
    let back = &ledger.entries.last().unwrap().returned;
    let before = &issued[..issued.len() - ledger.entries.last().unwrap().issued.len()];
    for seal in before {
        assert!(back.iter().any(|back| back.seal == *seal), "{seal} is lost: {back:#?}");
    }
}

/// Other providers' Thoughts are not sent to Gemini, whether or not the Thoughts belong to a turn
/// with tool calls.
#[tokio::test(flavor = "multi_thread")]
async fn unsigned_thoughts_of_other_providers_are_not_sent_to_gemini() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Gemini;
    for issuer in [MODELS[0], MODELS[3]] {
        let mut history = vec![dialect.user(QUESTION)];
        let mut thoughts = Vec::new();
        for _ in 0..3 {
            let mut reply = gateway.send_history(dialect, issuer, &history, false).await.unwrap();
            let calls = dialect.calls(&reply);
            for part in reply[0]["parts"].as_array_mut().unwrap() {
                part.as_object_mut().unwrap().remove("thoughtSignature");
                if part["thought"] == true {
                    thoughts.push(part["text"].as_str().unwrap().to_owned());
                }
            }
            history.extend(reply);
            if calls.is_empty() {
                history.push(dialect.user("Thank you. And once more, please."));
            } else {
                history.extend(dialect.results(&calls));
            }
            let (path, body) = dialect.request(MODELS[2], &history, false);
            let call = send_request(&gateway, &path, &body).await;
            let label = format!("{issuer}: {}\n{:#}", call.text, call.record);
            assert_eq!(call.status, 200, "{label}");
            for thought in thoughts.iter().filter(|thought| !thought.is_empty()) {
                let written = json!(thought).to_string();
                assert!(!call.sent().contains(written.trim_matches('"')), "{thought} {label}");
            }
        }
        assert!(thoughts.len() >= 2, "{thoughts:?}");
    }
    gateway.assert_nothing_refused();
}
