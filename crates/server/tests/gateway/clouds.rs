//! Tests clients that are configured for Amazon Bedrock or Vertex AI.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use throughline_codec::{Frame, Framer, Framing};
use throughline_core::{StoreFuture, Tenant};
use throughline_server::{Admission, Allowance, Keyring, Passthrough, ReplayMode};

use crate::harness::{ClientDialect, GatewayOptions, MODELS, QUESTION, SimGateway};

/// A Claude at Bedrock, whose simulator speaks Converse.
const BEDROCK: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// The API of a cloud that a test client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloudApi {
    Invoke,
    Converse,
    RawPredict,
    VertexGemini,
}

impl CloudApi {
    const ALL: [CloudApi; 4] =
        [CloudApi::Invoke, CloudApi::Converse, CloudApi::RawPredict, CloudApi::VertexGemini];

    /// The dialect inside the wrapping; `None` for Converse, which is a dialect of its own.
    fn dialect(self) -> Option<ClientDialect> {
        match self {
            CloudApi::Invoke | CloudApi::RawPredict => Some(ClientDialect::Messages),
            CloudApi::VertexGemini => Some(ClientDialect::Gemini),
            CloudApi::Converse => None,
        }
    }

    fn user(self, text: &str) -> Value {
        match self.dialect() {
            Some(dialect) => dialect.user(text),
            None => json!({"role": "user", "content": [{"text": text}]}),
        }
    }

    fn request(self, model: &str, history: &[Value], stream: bool) -> (String, Value) {
        let encoded = model.replace('/', "%2F").replace(':', "%3A");
        let vertex = "/v1/projects/p/locations/us-east5/publishers";
        match self {
            CloudApi::Invoke => {
                let action = if stream { "invoke-with-response-stream" } else { "invoke" };
                let body = messages_body(model, history, "bedrock-2023-05-31");
                (format!("/model/{encoded}/{action}"), body)
            }
            CloudApi::RawPredict => {
                let action = if stream { "streamRawPredict" } else { "rawPredict" };
                let mut body = messages_body(model, history, "vertex-2023-10-16");
                if stream {
                    body["stream"] = json!(true);
                }
                (format!("{vertex}/anthropic/models/{encoded}:{action}"), body)
            }
            CloudApi::VertexGemini => {
                let (path, body) = ClientDialect::Gemini.request(model, history, stream);
                let (_, method) = path.rsplit_once(':').unwrap();
                (format!("{vertex}/google/models/{encoded}:{method}"), body)
            }
            CloudApi::Converse => {
                let action = if stream { "converse-stream" } else { "converse" };
                let schema = |key: &str| json!({"json": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}});
                let tool = |name: &str, key: &str| json!({"toolSpec": {"name": name, "inputSchema": schema(key)}});
                let tools = [tool("get_weather", "city"), tool("get_time", "zone")];
                let thinking = json!({"type": "enabled", "budget_tokens": 2048});
                let body = json!({
                    "messages": history,
                    "inferenceConfig": {"maxTokens": 8192},
                    "toolConfig": {"tools": tools},
                    "additionalModelRequestFields": {"thinking": thinking},
                });
                (format!("/model/{encoded}/{action}"), body)
            }
        }
    }

    /// Returns the messages of a reply.
    fn reply(self, body: &[u8], stream: bool) -> Vec<Value> {
        if !stream {
            let body: Value = serde_json::from_slice(body).unwrap();
            return match self.dialect() {
                Some(dialect) => dialect.answer(&body),
                None => vec![body["output"]["message"].clone()],
            };
        }
        match self {
            CloudApi::Invoke => {
                let frames: Vec<Frame> =
                    frames(Framing::EventStream, body).iter().map(unwrap_chunk).collect();
                ClientDialect::Messages.streamed(&frames)
            }
            CloudApi::Converse => vec![converse_message(&frames(Framing::EventStream, body))],
            CloudApi::RawPredict => ClientDialect::Messages.streamed(&frames(Framing::Sse, body)),
            CloudApi::VertexGemini => ClientDialect::Gemini.streamed(&frames(Framing::Sse, body)),
        }
    }

    fn calls(self, reply: &[Value]) -> Vec<(String, String)> {
        let Some(dialect) = self.dialect() else {
            let blocks = reply[0]["content"].as_array().unwrap().iter();
            let calls = blocks.map(|block| &block["toolUse"]).filter(|call| call.is_object());
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            return calls.map(|call| (text(&call["toolUseId"]), text(&call["name"]))).collect();
        };
        dialect.calls(reply)
    }

    fn results(self, calls: &[(String, String)]) -> Vec<Value> {
        let Some(dialect) = self.dialect() else {
            let result = |id: &String| json!({"toolResult": {"toolUseId": id, "content": [{"text": "sunny and noon"}]}});
            let results: Vec<Value> = calls.iter().map(|(id, _)| result(id)).collect();
            return vec![json!({"role": "user", "content": results})];
        };
        dialect.results(calls)
    }

    /// Removes the reasoning from a reply, as a lossy client does.
    fn stripped(self, mut reply: Vec<Value>) -> Vec<Value> {
        let Some(dialect) = self.dialect() else {
            for message in &mut reply {
                let blocks = message["content"].as_array_mut().unwrap();
                blocks.retain(|block| !block["reasoningContent"].is_object());
            }
            return reply;
        };
        dialect.stripped(reply)
    }
}

/// Returns a Messages request as the clouds expect it: with an API version, and without the model
/// and the streaming mode.
fn messages_body(model: &str, history: &[Value], version: &str) -> Value {
    let (_, mut body) = ClientDialect::Messages.request(model, history, false);
    let members = body.as_object_mut().unwrap();
    members.remove("model");
    members.remove("stream");
    members.insert("anthropic_version".to_owned(), json!(version));
    body
}

fn frames(framing: Framing, body: &[u8]) -> Vec<Frame> {
    let (mut reader, mut frames) = (Framer::new(framing), Vec::new());
    reader.push(body, &mut frames).unwrap();
    reader.finish(&mut frames).unwrap();
    frames
}

/// Returns the event in a chunk of `InvokeModelWithResponseStream`.
fn unwrap_chunk(frame: &Frame) -> Frame {
    assert_eq!(frame.event.as_deref(), Some("chunk"), "{frame:?}");
    let chunk: Value = serde_json::from_slice(&frame.data).unwrap();
    let data = STANDARD.decode(chunk["bytes"].as_str().unwrap()).unwrap();
    Frame { event: None, data: data.into(), exception: false }
}

/// Accumulates the message of a Converse stream.
fn converse_message(frames: &[Frame]) -> Value {
    let (mut blocks, mut arguments): (Vec<Value>, String) = (Vec::new(), String::new());
    for frame in frames {
        let event: Value = serde_json::from_slice(&frame.data).unwrap();
        let index = usize::try_from(event["contentBlockIndex"].as_u64().unwrap_or(0)).unwrap();
        match frame.event.as_deref().unwrap() {
            "contentBlockStart" => {
                blocks.push(json!({"toolUse": event["start"]["toolUse"]}));
                arguments.clear();
            }
            "contentBlockDelta" => {
                let delta = &event["delta"];
                let thought = &delta["reasoningContent"];
                if blocks.len() <= index {
                    blocks.push(if thought.is_object() {
                        json!({"reasoningContent": {"reasoningText": {"text": ""}}})
                    } else {
                        json!({"text": ""})
                    });
                }
                let block = &mut blocks[index];
                for (target, more) in [
                    ("/text", &delta["text"]),
                    ("/reasoningContent/reasoningText/text", &thought["text"]),
                ] {
                    if let Some(more) = more.as_str() {
                        let text = block.pointer_mut(target).unwrap();
                        *text = json!(format!("{}{more}", text.as_str().unwrap()));
                    }
                }
                if thought["signature"].is_string() {
                    block["reasoningContent"]["reasoningText"]["signature"] =
                        thought["signature"].clone();
                }
                arguments.push_str(delta["toolUse"]["input"].as_str().unwrap_or_default());
            }
            "contentBlockStop" if blocks[index]["toolUse"].is_object() => {
                let input = if arguments.is_empty() { "{}" } else { &*arguments };
                blocks[index]["toolUse"]["input"] = serde_json::from_str(input).unwrap();
            }
            _ => {}
        }
    }
    json!({"role": "assistant", "content": blocks})
}

/// Sends a request with a key; returns the status and the body.
async fn send(
    gateway: &SimGateway,
    key: &str,
    path: &str,
    body: &Value,
) -> (u16, hyper::HeaderMap, bytes::Bytes) {
    let bearer = format!("Bearer {key}");
    let headers = [("content-type", "application/json"), ("authorization", &*bearer)];
    gateway.send("POST", path, body.to_string().into_bytes(), &headers).await
}

/// Runs a conversation of two questions with tools. Returns the number of replies.
async fn converse(
    gateway: &SimGateway,
    api: CloudApi,
    model: &str,
    stream: bool,
    drops: bool,
) -> usize {
    let label = format!("{api:?} → {model}, streamed {stream}, drops {drops}");
    let mut history = vec![api.user(QUESTION)];
    let (mut replies, mut finals) = (0, 0);
    while finals < 2 {
        let (path, body) = api.request(model, &history, stream);
        let (status, headers, body) = send(gateway, "tl_alpha", &path, &body).await;
        assert_eq!(status, 200, "{label}: {}", String::from_utf8_lossy(&body));
        let is_binary = stream && matches!(api, CloudApi::Invoke | CloudApi::Converse);
        let kind = headers["content-type"].to_str().unwrap();
        assert_eq!(kind == "application/vnd.amazon.eventstream", is_binary, "{label}: {kind}");
        let reply = api.reply(&body, stream);
        replies += 1;
        assert!(replies < 12, "{label}: the conversation does not end");
        let calls = api.calls(&reply);
        history.extend(if drops { api.stripped(reply) } else { reply });
        if calls.is_empty() {
            finals += 1;
            history.push(api.user("Thank you. And once more, please."));
        } else {
            history.extend(api.results(&calls));
        }
    }
    replies
}

/// Every API of the clouds reaches every family, whole and streamed, with a client that sends
/// reasoning back and with one that drops it. No request is refused, and no Seal is lost.
#[tokio::test(flavor = "multi_thread")]
async fn every_cloud_reaches_every_family() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for api in CloudApi::ALL {
        for model in MODELS.into_iter().chain([BEDROCK]) {
            for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
                let replies = converse(&gateway, api, model, stream, drops).await;
                assert!(replies >= 3, "{api:?} → {model}: {replies} replies");
            }
        }
    }
    gateway.assert_nothing_refused();
    for entry in gateway.ledger().entries {
        let is_sealed = !entry.model.starts_with("deepseek");
        assert!(!is_sealed || entry.all_verified(), "{}: {entry:?}", entry.model);
    }
}

/// Two tenants; `narrow` may use only models of Bedrock.
struct CloudKeys;

impl Keyring for CloudKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let known = ["alpha", "beta", "narrow"];
        let tenant = key.and_then(|key| key.strip_prefix("tl_"));
        let tenant = tenant.filter(|tenant| known.contains(tenant)).map(Tenant::from);
        let admission = tenant.map_or(Admission::Refused, |tenant| Admission::Key {
            role: None,
            id: tenant.0.clone(),
            models: if &*tenant.0 == "narrow" { vec!["us.anthropic.*".into()] } else { Vec::new() },
            tenant,
            allowance: Allowance::default(),
        });
        Box::pin(async move { Ok(admission) })
    }
}

/// Another tenant cannot restore reasoning with a conversation that it copied.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_of_a_cloud_cannot_restore_each_others_reasoning() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(CloudKeys)).await;
    for api in [CloudApi::Invoke, CloudApi::Converse, CloudApi::RawPredict] {
        let model = "sim/gpt-5.2";
        let mut history = vec![api.user(QUESTION)];
        let (path, body) = api.request(model, &history, false);
        let (status, _, body) = send(&gateway, "tl_alpha", &path, &body).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let reply = api.reply(&body, false);
        let calls = api.calls(&reply);
        history.extend(reply);
        history.extend(api.results(&calls));
        let (path, body) = api.request(model, &history, false);
        for (key, is_owner) in [("tl_beta", false), ("tl_alpha", true)] {
            let (status, ..) = send(&gateway, key, &path, &body).await;
            let entries = gateway.ledger().entries;
            let returned = &entries.last().unwrap().returned;
            assert_eq!(status, 200);
            assert_eq!(!returned.is_empty(), is_owner, "{api:?} {key}: {returned:?}");
        }
    }
}

/// A wrong key, a signature instead of a key, an unknown model and a forbidden model get errors in
/// the format of the cloud.
#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_format_of_the_cloud() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(CloudKeys)).await;
    for api in CloudApi::ALL {
        for stream in [false, true] {
            let history = [api.user("Hi")];
            for (key, model, bedrock, vertex) in [
                ("tl_wrong", MODELS[0], "UnrecognizedClientException", "UNAUTHENTICATED"),
                ("tl_alpha", "nothing", "ResourceNotFoundException", "NOT_FOUND"),
                ("tl_narrow", MODELS[0], "AccessDeniedException", "PERMISSION_DENIED"),
            ] {
                let (path, body) = api.request(model, &history, stream);
                let (status, headers, body) = send(&gateway, key, &path, &body).await;
                let body: Value = serde_json::from_slice(&body).unwrap();
                let label = format!("{api:?} {key} {model}: {status} {body}");
                let expected = match (key, api) {
                    ("tl_alpha", _) => 404,
                    ("tl_wrong", CloudApi::RawPredict | CloudApi::VertexGemini) => 401,
                    (_, _) => 403,
                };
                assert_eq!(status, expected, "{label}");
                if matches!(api, CloudApi::Invoke | CloudApi::Converse) {
                    assert_eq!(headers["x-amzn-errortype"], bedrock, "{label}");
                    assert!(body["message"].is_string(), "{label}");
                } else {
                    assert_eq!(body["error"]["status"], vertex, "{label}");
                    assert_eq!(body["error"]["code"], expected, "{label}");
                }
            }
        }
    }
    let (path, body) = CloudApi::Invoke.request(BEDROCK, &[CloudApi::Invoke.user("Hi")], false);
    let signed = "AWS4-HMAC-SHA256 Credential=AKIA/20261118/us-east-1/bedrock/aws4_request, \
                  SignedHeaders=host;x-amz-date, Signature=00";
    let headers = [("authorization", signed), ("x-amz-date", "20261118T000000Z")];
    let (status, headers, body) =
        gateway.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 403, "{body}");
    assert_eq!(headers["x-amzn-errortype"], "UnrecognizedClientException");
    assert!(body["message"].as_str().unwrap().contains("AWS_BEARER_TOKEN_BEDROCK"), "{body}");
    assert_eq!(gateway.requests(), 0);
}

/// A gateway without keys serves signed requests, and does not forward the signature.
#[tokio::test(flavor = "multi_thread")]
async fn signature_is_accepted_if_no_keys_exist() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (path, body) = CloudApi::Converse.request(BEDROCK, &[CloudApi::Converse.user("Hi")], false);
    let headers = [
        ("authorization", "AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=00"),
        ("x-amz-security-token", "secret"),
    ];
    let (status, ..) = gateway.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    assert_eq!(status, 200);
}

/// ARNs and Vertex's spelling of versions lead to the models that they name.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_the_clouds_are_routed() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let arn = format!("arn:aws:bedrock:us-east-1:123456789012:inference-profile/{BEDROCK}");
    for (api, name, expected) in [
        (CloudApi::Invoke, BEDROCK, BEDROCK),
        (CloudApi::Invoke, &*arn, BEDROCK),
        (CloudApi::Converse, &*arn, BEDROCK),
        (CloudApi::RawPredict, "claude-sonnet-4-5@20250929", "claude-sonnet-4-5-20250929"),
        (CloudApi::RawPredict, "claude-sonnet-4-5@default", "claude-sonnet-4-5"),
    ] {
        let (path, body) = api.request(name, &[api.user("Hi")], false);
        let (status, headers, body) = send(&gateway, "tl_alpha", &path, &body).await;
        assert_eq!(status, 200, "{name}: {}", String::from_utf8_lossy(&body));
        assert_eq!(headers["x-throughline-model"], expected, "{name}");
        assert_eq!(gateway.ledger().entries.last().unwrap().model, expected, "{name}");
    }
}

/// The paths of Vertex have several forms, which depend on the client's base URL.
#[tokio::test(flavor = "multi_thread")]
async fn paths_of_vertex_may_omit_the_version_and_the_project() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let claude = "publishers/anthropic/models/claude-sonnet-4-5:rawPredict";
    let gemini = "publishers/google/models/gemini-3-pro-preview:generateContent";
    for lead in ["", "/v1", "/v1beta1"] {
        for project in ["", "/projects/p/locations/global"] {
            for (path, api) in [(claude, CloudApi::RawPredict), (gemini, CloudApi::VertexGemini)] {
                let (_, body) = api.request("", &[api.user("Hi")], false);
                let path = format!("{lead}{project}/{path}");
                let (status, _, body) = send(&gateway, "tl_alpha", &path, &body).await;
                assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
            }
        }
    }
    gateway.assert_nothing_refused();
}

/// Tokens are counted on the paths of both clouds.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let body = messages_body(MODELS[0], &[json!({"role": "user", "content": "Hi"})], "x");
    let wrapped = json!({"invokeModel": {"body": STANDARD.encode(body.to_string())}});
    let converse = json!({"converse": {"messages": [CloudApi::Converse.user("Hi")]}});
    let bedrock = |model: &str| format!("/model/{}/count-tokens", model.replace('/', "%2F"));
    let vertex = "/v1/projects/p/locations/l/publishers";
    let messages = json!({"model": "claude-sonnet-4-5@20250929", "messages": [{"role": "user", "content": "Hi"}]});
    for (path, body, member) in [
        (bedrock(MODELS[0]), json!({"input": wrapped}), "inputTokens"),
        (bedrock(MODELS[0]), json!({"input": converse}), "inputTokens"),
        (bedrock(BEDROCK), json!({"input": converse}), "inputTokens"),
        (bedrock(MODELS[1]), json!({"input": wrapped}), "inputTokens"),
        (format!("{vertex}/anthropic/models/count-tokens:rawPredict"), messages, "input_tokens"),
        (
            format!("{vertex}/google/models/gemini-3-pro-preview:countTokens"),
            json!({"contents": [ClientDialect::Gemini.user("Hi")]}),
            "totalTokens",
        ),
    ] {
        let (status, headers, answer) = send(&gateway, "tl_alpha", &path, &body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        assert!(answer[member].as_u64().unwrap() > 0, "{path}: {answer}");
        assert!(headers.contains_key("x-throughline-count"), "{path}");
    }
}

/// Bodies that `InvokeModel` cannot carry get an error that names the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn unsupported_invocations_are_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let path = format!("/model/{BEDROCK}/invoke");
    let body = messages_body(BEDROCK, &[json!({"role": "user", "content": "Hi"})], "x");
    let mut foreign = body.clone();
    foreign.as_object_mut().unwrap().remove("anthropic_version");
    for (headers, body, message) in [
        (vec![], "[]".to_owned(), "not a JSON object"),
        (vec![], foreign.to_string(), "anthropic_version"),
        (vec![("x-amzn-bedrock-guardrailidentifier", "g")], body.to_string(), "guardrail"),
    ] {
        let (status, headers, body) =
            gateway.send("POST", &path, body.into_bytes(), &headers).await;
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 400, "{body}");
        assert_eq!(headers["x-amzn-errortype"], "ValidationException");
        assert!(body["message"].as_str().unwrap().contains(message), "{body}");
    }
    assert_eq!(gateway.requests(), 0);
}

/// Bedrock reads S3 objects, guardrails and prompts with the operator's identity. A key can use
/// only those that the operator lists, in Converse and in a request of another dialect.
#[tokio::test(flavor = "multi_thread")]
async fn keys_cannot_use_objects_of_the_operators_aws_account() {
    let passthrough = Passthrough::new(["s3://shared/*", "/guardrails/shared"]).unwrap();
    let options = GatewayOptions {
        keyring: Arc::new(CloudKeys),
        passthrough,
        ..GatewayOptions::of(ReplayMode::Repair)
    };
    let gateway = SimGateway::open_with(options, throughline_sim::Options::default()).await;
    let image =
        |uri: &str| json!({"image": {"format": "png", "source": {"s3Location": {"uri": uri}}}});
    let converse = |block: Value| {
        let history = [json!({"role": "user", "content": [{"text": "Hi"}, block]})];
        CloudApi::Converse.request(BEDROCK, &history, false)
    };
    let guarded = |id: &str| {
        let (path, mut body) = converse(json!({"text": "Please."}));
        body["guardrailConfig"] = json!({"guardrailIdentifier": id, "guardrailVersion": "1"});
        (path, body)
    };
    let part = json!({"fileData": {"mimeType": "image/png", "fileUri": "s3://private/a.png"}});
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}, part]}]});
    let encoded = BEDROCK.replace(':', "%3A");
    let gemini = (format!("/v1beta/models/{encoded}:generateContent"), contents);
    for (path, body) in [converse(image("s3://private/a.png")), guarded("private"), gemini] {
        let (status, _, answer) = send(&gateway, "tl_alpha", &path, &body).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(status, 404, "{body}: {answer}");
        assert!(answer.contains("passthrough"), "{answer}");
    }
    // The model name is part of the path, and must not lead to another path.
    let (_, body) = converse(json!({"text": "Please."}));
    let path = "/model/us.anthropic%2F..%2F..%2Fguardrails/converse";
    assert_eq!(send(&gateway, "tl_alpha", path, &body).await.0, 404);
    assert_eq!(gateway.requests(), 0, "no request reached Bedrock");
    for (path, body) in [converse(image("s3://shared/a.png")), guarded("shared")] {
        let (status, _, answer) = send(&gateway, "tl_alpha", &path, &body).await;
        assert_eq!(status, 200, "{body}: {}", String::from_utf8_lossy(&answer));
    }
}

/// Vertex has resources under `projects`, but the agent API has only the list of projects.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_vertex_paths_get_errors_of_vertex() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for path in [
        "/v1/projects/p/locations/l/endpoints/e:predict",
        "/v1/projects/p/locations/l/publishers/google/models/m:unknown",
        "/v1beta1/projects/p/locations/l/cachedContents",
        "/v1/publishers/google/models/m:predict",
    ] {
        let (status, answer) = gateway.raw(path, b"{}".to_vec(), &[]).await;
        assert_eq!(status, 404, "{path}: {answer}");
        assert_eq!(answer["error"]["status"], "NOT_FOUND", "{path}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(path), "{answer}");
    }
    let (status, answer) = gateway.get("/v1/projects").await;
    assert_eq!(status, 404, "{answer}");
    assert!(answer["detail"].is_string(), "{answer}");
    assert_eq!(gateway.requests(), 0);
}
