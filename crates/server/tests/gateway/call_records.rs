//! Tests of call records, as read by their tenant.

use std::sync::Arc;

use crate::harness::{ClientDialect, GatewayOptions, MODELS, SimGateway};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_core::{LogId, Store, StoreFuture, Tenant};
use throughline_server::{Admission, Allowance, Keyring, ReplayMode};
use throughline_testkit::figure;

const QUESTION: &str = "What is the weather in Paris, and what time is it there?";

/// A call's id, request body, status and response.
struct SentCall {
    id: String,
    request: Value,
    status: u16,
    answer: Value,
}

async fn send_request(
    gateway: &SimGateway,
    dialect: ClientDialect,
    model: &str,
    history: &[Value],
    key: Option<&str>,
) -> SentCall {
    let (path, request) = dialect.request(model, history, false);
    let key = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("anthropic-version", "2023-06-01"), ("x-note", "of the caller")];
    headers.extend(key.as_deref().map(|key| ("authorization", key)));
    let body = request.to_string().into_bytes();
    let (status, response_headers, answer) = gateway.send("POST", &path, body, &headers).await;
    let id = response_headers["x-throughline-call"].to_str().unwrap().to_owned();
    SentCall { id, request, status, answer: serde_json::from_slice(&answer).unwrap() }
}

async fn read_record(gateway: &SimGateway, id: &str) -> Value {
    let (status, record) = gateway.get(&format!("/v1/throughline/calls/{id}")).await;
    assert_eq!(status, 200, "{record}");
    record
}

/// Runs a conversation with tools and returns its calls.
async fn converse(
    gateway: &SimGateway,
    dialect: ClientDialect,
    model: &str,
    answers: usize,
) -> Vec<SentCall> {
    let mut history = vec![dialect.user(QUESTION)];
    let mut calls = Vec::new();
    while calls.len() < answers {
        let call = send_request(gateway, dialect, model, &history, None).await;
        assert_eq!(call.status, 200, "{}", call.answer);
        let reply = dialect.answer(&call.answer);
        let tools = dialect.calls(&reply);
        history.extend(reply);
        if tools.is_empty() {
            history.push(dialect.user("Thank you. And once more, please."));
        } else {
            history.extend(dialect.results(&tools));
        }
        calls.push(call);
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn call_record_contains_received_and_sent_requests() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let same = [
        ClientDialect::Messages,
        ClientDialect::Responses,
        ClientDialect::Gemini,
        ClientDialect::Chat,
    ];
    for dialect in ClientDialect::ALL {
        for (model, provider_dialect) in MODELS.into_iter().zip(same) {
            let calls = converse(&gateway, dialect, model, 3).await;
            for (number, call) in calls.iter().enumerate() {
                let record = read_record(&gateway, &call.id).await;
                let label = format!("{dialect:?} → {model}, call {number}: {record:#}");
                assert_eq!(record["id"], json!(call.id), "{label}");
                assert_eq!(record["received"]["body"], call.request, "{label}");
                let mut sent = record["sent"]["body"].clone();
                if dialect == provider_dialect {
                    if dialect != ClientDialect::Gemini {
                        sent["model"] = call.request["model"].clone();
                    }
                    assert_eq!(sent, call.request, "{label}");
                }
                assert!(sent.is_object(), "{label}");
                assert_eq!((&record["status"], &record["audit"]), (&json!(200), &json!("accept")));
                assert!(!record["fates"].as_array().unwrap().is_empty(), "{label}");
                assert!(record["usage"]["output"].as_u64().unwrap() > 0, "{label}");
                let time = |name: &str| record["microseconds"][name].as_u64().unwrap();
                assert!(time("sent") <= time("first_byte") && time("first_byte") <= time("end"));
                assert_eq!(record["sent"]["account"], "sim", "{label}");
                let headers = record["received"]["headers"].as_array().unwrap();
                assert!(headers.contains(&json!(["x-note", "of the caller"])), "{label}");
                let before = number.checked_sub(1).map(|before| calls[before].id.clone());
                assert_eq!(record["parent"].as_str(), before.as_deref(), "{label}");
            }
        }
    }
}

/// The stored size of a turn is proportional to the turn's new content, with and without
/// translation.
#[tokio::test(flavor = "multi_thread")]
async fn stored_size_grows_with_new_content() {
    for (dialect, model) in [
        (ClientDialect::Messages, MODELS[0]),
        (ClientDialect::Chat, MODELS[0]),
        (ClientDialect::Responses, MODELS[2]),
    ] {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut history = vec![dialect.user(QUESTION)];
        let (mut bytes, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..60 {
            let call = send_request(&gateway, dialect, model, &history, None).await;
            assert_eq!(call.status, 200, "{}", call.answer);
            let reply = dialect.answer(&call.answer);
            let calls = dialect.calls(&reply);
            history.extend(reply);
            if calls.is_empty() {
                history.push(dialect.user("Thank you. And once more, please."));
            } else {
                history.extend(dialect.results(&calls));
            }
            let thread =
                read_record(&gateway, &call.id).await["thread"].as_str().unwrap().to_owned();
            let tenant = Tenant::from("default");
            let head = gateway.journal().log(&tenant, &LogId::from(thread)).await.unwrap().unwrap();
            bytes.push(head.bytes);
            ids.push(call.id);
            bodies.push(call.request);
        }
        // These sizes include the bodies that are occasionally stored in full.
        let (first, second) = (bytes[29], bytes[59] - bytes[29]);
        figure(
            &format!("{dialect:?} → {model}: bytes of 30 turns, early and late"),
            format!("{first}, {second}"),
        );
        assert!(second < 2 * first, "30 turns took {first} bytes, and later {second}");
        for (id, request) in ids.iter().zip(&bodies) {
            assert_eq!(read_record(&gateway, id).await["received"]["body"], *request);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_has_a_record() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in ClientDialect::ALL {
        let unknown =
            send_request(&gateway, dialect, "unknown/at-all", &[dialect.user("Hello")], None).await;
        assert_eq!(unknown.status, 404);
        let record = read_record(&gateway, &unknown.id).await;
        // The request was rejected before it was read, so its body is not stored.
        assert!(!record.to_string().contains("Hello"), "{record:#}");
        assert_eq!((&record["status"], &record["sent"]), (&json!(404), &Value::Null), "{record:#}");
        assert!(record["error"].as_str().unwrap().contains("there is no model"), "{record:#}");
        let refused = send_request(&gateway, dialect, MODELS[0], &[], None).await;
        assert_eq!(refused.status, 400);
        let record = read_record(&gateway, &refused.id).await;
        assert_eq!(record["status"], 400, "{record:#}");
        assert!(!record["error"].as_str().unwrap().is_empty(), "{record:#}");
    }
}

/// A refused call is stored as a delta of its conversation, and is erased with the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn refused_call_is_stored_with_its_conversation() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let calls = converse(&gateway, dialect, MODELS[0], 4).await;
    let mut body = calls[3].request.clone();
    body["max_tokens"] = json!(-1);
    let path = "/v1/messages";
    let (status, headers, _) = gateway.send("POST", path, body.to_string().into_bytes(), &[]).await;
    assert_eq!(status, 400);
    let id = headers["x-throughline-call"].to_str().unwrap();
    let record = read_record(&gateway, id).await;
    assert_eq!(record["received"]["body"], body, "{record:#}");
    let tenant = Tenant::from("default");
    let run = LogId::from(format!("call-{id}"));
    let head = gateway.journal().log(&tenant, &run).await.unwrap().unwrap();
    let thread = read_record(&gateway, &calls[3].id).await["thread"].as_str().unwrap().to_owned();
    assert_eq!(head.of, Some(LogId::from(thread.clone())));
    gateway.journal().forget(&tenant, &LogId::from(thread), None).await.unwrap();
    let (status, _) = gateway.get(&format!("/v1/throughline/calls/{id}")).await;
    assert_eq!(status, 404);
}

/// A truncated stream has a call record but no turn.
#[tokio::test(flavor = "multi_thread")]
async fn truncated_stream_has_a_record() {
    let faults = vec!["cut@600".parse().unwrap()];
    let simulators = throughline_sim::Options { faults, ..Default::default() };
    let gateway = SimGateway::open_with(GatewayOptions::of(ReplayMode::Repair), simulators).await;
    for dialect in [ClientDialect::Messages, ClientDialect::Chat] {
        let (path, request) = dialect.request(MODELS[0], &[dialect.user(QUESTION)], true);
        let body = request.to_string().into_bytes();
        let response = gateway.begin("POST", &path, body, &[]).await;
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-throughline-call"].to_str().unwrap().to_owned();
        // On the same wire the connection breaks; in another dialect an error is sent.
        let is_broken = response.into_body().collect().await.is_err();
        assert_eq!(is_broken, dialect == ClientDialect::Messages);
        // The response ends before the record is stored, because nothing depends on the record.
        let path = format!("/v1/throughline/calls/{id}");
        let record = loop {
            let (status, record) = gateway.get(&path).await;
            if status == 200 {
                break record;
            }
        };
        assert_eq!(record["received"]["body"], request, "{record:#}");
        assert_eq!(record["answer"]["stop"], "cut", "{record:#}");
        assert_eq!(record["thread"], Value::Null, "{record:#}");
    }
}

/// Three branches continue one turn, and each branch's call record contains its own bodies.
#[tokio::test(flavor = "multi_thread")]
async fn branches_have_their_own_records() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let calls = converse(&gateway, dialect, MODELS[0], 3).await;
    let history = calls[2].request["messages"].as_array().unwrap();
    let mut branches = Vec::new();
    for number in 0..3 {
        let mut history = history.clone();
        history.push(dialect.answer(&calls[2].answer).remove(0));
        let open = dialect.calls(&history[history.len() - 1..]);
        history.extend(dialect.results(&open));
        history.push(dialect.user(&format!("This is branch {number}.")));
        branches.push(send_request(&gateway, dialect, MODELS[0], &history, None).await);
    }
    for branch in &branches {
        assert_eq!(branch.status, 200, "{}", branch.answer);
        let record = read_record(&gateway, &branch.id).await;
        assert_eq!(record["received"]["body"], branch.request);
        assert_eq!(record["parent"], json!(calls[2].id));
    }
}

struct TwoTenants;

impl Keyring for TwoTenants {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        Box::pin(async move {
            let tenant = key.and_then(|key| key.strip_prefix("tl_")).map(Tenant::from);
            Ok(tenant.map_or(Admission::Refused, |tenant| Admission::Key {
                role: None,
                tenant,
                id: "key".into(),
                models: vec![],
                allowance: Allowance::default(),
            }))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_record_is_private_and_contains_no_keys() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(TwoTenants)).await;
    let dialect = ClientDialect::Messages;
    let call =
        send_request(&gateway, dialect, MODELS[0], &[dialect.user("Hello")], Some("tl_one")).await;
    assert_eq!(call.status, 200, "{}", call.answer);
    let path = format!("/v1/throughline/calls/{}", call.id);
    let get = async |key: &str| {
        let key = format!("Bearer {key}");
        gateway.send("GET", &path, Vec::new(), &[("authorization", &key)]).await
    };
    let (status, _, record) = get("tl_one").await;
    assert_eq!(status, 200);
    let record = String::from_utf8(record.to_vec()).unwrap();
    assert!(!record.contains("tl_one") && !record.contains("sim-key"), "{record}");
    assert_eq!(get("tl_two").await.0, 404);
    assert_eq!(get("unknown").await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_content_is_removed_from_records() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let dialect = ClientDialect::Messages;
    let tenant = Tenant::from("default");
    let calls = converse(&gateway, dialect, MODELS[0], 5).await;
    let last = read_record(&gateway, &calls[4].id).await;
    let thread = LogId::from(last["thread"].as_str().unwrap());
    // Erase one Item of the second answer.
    let records = gateway.journal().read(&tenant, &thread, 0, 1000).await.unwrap();
    let items: Vec<_> = records.iter().filter(|record| &*record.kind == "item").collect();
    let texts = items.iter().filter_map(|record| record.content.bytes().cloned());
    let stored = throughline_core::restore_items(texts.map(Some)).unwrap();
    let second = stored[1].id.to_string();
    gateway.journal().forget(&tenant, &thread, Some(&second)).await.unwrap();
    for call in &calls {
        let call_record = read_record(&gateway, &call.id).await;
        assert_eq!(call_record["received"]["body"], Value::Null, "{call_record:#}");
        assert_eq!(call_record["sent"]["body"], Value::Null, "{call_record:#}");
        assert!(call_record["bodies"].as_str().unwrap().contains("forgotten"), "{call_record:#}");
        assert_eq!(call_record["status"], 200, "members without content remain");
    }
    let records = gateway.journal().read(&tenant, &thread, 0, 1000).await.unwrap();
    let copies = records.iter().filter(|record| &*record.kind == "copy");
    assert_eq!(copies.filter(|record| record.content.bytes().is_some()).count(), 0);
    // The conversation continues, and new calls have records again.
    let mut history = calls[4].request["messages"].as_array().unwrap().clone();
    history.extend(dialect.answer(&calls[4].answer));
    let open = dialect.calls(&history[history.len() - 1..]);
    if open.is_empty() {
        history.push(dialect.user("Go on."));
    } else {
        history.extend(dialect.results(&open));
    }
    let next = send_request(&gateway, dialect, MODELS[0], &history, None).await;
    assert_eq!(next.status, 200, "{}", next.answer);
    let call_record = read_record(&gateway, &next.id).await;
    assert_eq!(call_record["received"]["body"], next.request, "{call_record:#}");
    gateway.journal().forget(&tenant, &thread, None).await.unwrap();
    for call in &calls {
        let (status, call_record) =
            gateway.get(&format!("/v1/throughline/calls/{}", call.id)).await;
        assert_eq!(status, 404, "{call_record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_off_stores_no_records() {
    let gateway = SimGateway::open(ReplayMode::Off).await;
    for model in [MODELS[0], "unknown/at-all"] {
        let call = send_request(
            &gateway,
            ClientDialect::Messages,
            model,
            &[ClientDialect::Messages.user("Hello")],
            None,
        )
        .await;
        let (status, _) = gateway.get(&format!("/v1/throughline/calls/{}", call.id)).await;
        assert_eq!(status, 404, "{model}");
    }
    let page = throughline_store::Page::default();
    assert_eq!(gateway.journal().threads(&Tenant::from("default"), page).await.unwrap(), []);
}
