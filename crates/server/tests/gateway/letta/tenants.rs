//! Tests that no route shows one tenant's objects to another tenant, and that the `OpenAPI`
//! document covers every route.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use throughline_server::{dialect_routes, routes};
use throughline_testkit::figure;

use crate::letta::scene::{AgentGateway, MODEL, user_message};

/// Routes without object ids, each with the response text expected for a tenant without objects.
const ROUTES_WITHOUT_IDS: [(&str, &str, &str); 28] = [
    ("GET", "/v1/health/", "ok"),
    ("GET", "/v1/models/", "["),
    ("GET", "/v1/tools/", "get_weather"),
    ("POST", "/v1/agents/", "model: is missing"),
    ("GET", "/v1/agents/", "[]"),
    ("GET", "/v1/agents/count", "0"),
    ("GET", "/v1/runs/", "[]"),
    ("POST", "/v1/conversations/", "agent_id: is missing"),
    ("GET", "/v1/conversations/", "[]"),
    ("GET", "/v1/throughline/questions", "[]"),
    ("POST", "/v1/throughline/snapshots", "`version` is missing"),
    ("GET", "/v1/throughline/runs", r#""runs":[]"#),
    ("GET", "/v1/throughline/threads", r#""threads":[]"#),
    ("GET", "/v1/throughline/calls", r#""calls":[]"#),
    ("GET", "/v1/throughline/overview", r#""recorded":0,"failed":0"#),
    ("GET", "/v1/throughline/inbox", r#""waiting":[]"#),
    ("GET", "/v1/throughline/journal", "signature"),
    ("POST", "/v1/throughline/journal/verify", r#""records":0"#),
    ("GET", "/v1/throughline/journal/export", "throughline-export"),
    ("GET", "/v1/throughline/settings", r#""store":{"ok":true}"#),
    ("GET", "/v1/throughline/budgets", r#""keys":[]"#),
    ("GET", "/v1/throughline/keys", r#""keys":[]"#),
    ("POST", "/v1/throughline/keys", r#""tenant":"them""#),
    ("GET", "/v1/throughline/routes", r#""routes":[]"#),
    ("GET", "/v1/throughline/usage/hours", r#""hours":[]"#),
    ("GET", "/v1/throughline/sim/ledger", "covers all tenants"),
    ("GET", "/v1/throughline/doctor", "anthropic-messages"),
    ("POST", "/v1/throughline/doctor", "paste one"),
];

/// Returns a request body for each route that needs one.
fn body_of(path: &str) -> Value {
    match path {
        _ if path.ends_with("/messages")
            || path.ends_with("/stream")
            || path.ends_with("/async") =>
        {
            user_message("Hello")
        }
        _ if path.ends_with("/rewind") => json!({"to": 0}),
        _ if path.contains("/approvals/") => json!({"approved": true}),
        _ if path.contains("/questions/") => json!({"answers": {}}),
        _ if path.contains("/tools/approval/") => json!({"requires_approval": true}),
        _ => json!({}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_exposes_another_tenants_objects() {
    let gateway = AgentGateway::open().await;
    let own = json!({"humanInTheLoop": {"askUser": {"allowFreeText": true}}});
    let block = json!([{"label": "human", "value": "x"}]);
    let agent = gateway.agent(&json!({"throughline": own, "memory_blocks": block})).await;
    let response = gateway.send_message(&agent, "Ask me a question.").await;
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let question = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    let question = question[0]["id"].as_str().unwrap().to_owned();
    let created = gateway.request("POST", "/v1/conversations/", &json!({"agent_id": agent})).await;
    let conversation = created["id"].as_str().unwrap();
    let mailing = gateway.agent(&json!({})).await;
    gateway.send_message(&mailing, "Send a mail.").await;
    let inbox = gateway.request("GET", "/v1/throughline/inbox", &json!(null)).await;
    let waiting = inbox["waiting"].as_array().unwrap();
    let approval = waiting.iter().find(|one| one["kind"] == "approval").unwrap()["id"].as_str();
    let approval = approval.unwrap().to_owned();
    // The call has no reply, but its record is listed.
    let question_of = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]});
    gateway.send("us", "POST", "/v1/messages", &question_of).await;
    let calls = gateway.request("GET", "/v1/throughline/calls", &json!(null)).await;
    let call = calls["calls"][0]["id"].as_str().unwrap();
    let limits = throughline_store::KeyLimits::default();
    let key = gateway.journal.create_api_key(&"us".into(), "ours", &limits).await.unwrap();
    let (path, route) = ("/v1/throughline/routes/route-fast", json!({"targets": [MODEL]}));
    assert_eq!(gateway.send("us.operator", "PUT", path, &route).await.0, 200);
    let ids = [
        ("{agent}", &*agent),
        ("{run}", run),
        ("{conversation}", conversation),
        ("{question}", &question),
        ("{thread}", &agent),
        ("{tool}", "get_weather"),
        ("{block}", "human"),
        ("{call}", call),
        ("{approval}", &approval),
        ("{schema}", "run-event"),
        ("{key}", &*key.id),
        ("{route}", "route-fast"),
    ];
    let mut tried = BTreeSet::new();
    for route in routes() {
        let path =
            ids.iter().fold(route.path.to_owned(), |path, (name, id)| path.replace(name, id));
        assert!(!path.contains('{'), "{path}: fill in the id");
        for path in [path.clone(), format!("/letta{path}")] {
            let body = if route.method == "GET" { json!(null) } else { body_of(&path) };
            let (status, answer) = gateway.send("them.operator", route.method, &path, &body).await;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            if route.path.contains("{schema}") {
                assert!(status == 200 && answer.contains("\"RunEvent\""), "{path}: {answer}");
            } else if (route.method, route.path) == ("PUT", "/v1/throughline/routes/{route}") {
                // Each tenant has its own routes.
                assert_eq!(status, 422, "{path}: {answer}");
            } else if route.path.contains('{') {
                assert_eq!(status, 404, "{} {path}: {answer}", route.method);
            } else {
                let case = ROUTES_WITHOUT_IDS
                    .iter()
                    .find(|(method, path, _)| (*method, *path) == (route.method, route.path));
                let (_, _, expected) = case.unwrap_or_else(|| panic!("{path} is not tried here"));
                assert!(answer.contains(expected), "{} {path}: {answer}", route.method);
            }
            for id in [&*agent, run, conversation, &question, &approval, call, &*key.id] {
                let is_echo = status == 404;
                assert!(is_echo || !answer.contains(id), "{path} shows {id}: {answer}");
            }
            tried.insert((route.method, route.path));
        }
    }
    assert_eq!(tried.len(), routes().len());
    // The document lists every route, so every documented path was tried. The tests of `isolation`
    // try the paths of the dialects.
    let dialects: BTreeSet<(&str, String)> =
        dialect_routes().map(|route| (route.method, route.path)).collect();
    let mut of_dialects = 0;
    let (_, document) = gateway.send("them", "GET", "/openapi.json", &json!(null)).await;
    let document: Value = serde_json::from_slice(&document).unwrap();
    let mut documented = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            // These routes serve callers who have no tenant yet.
            if operation["tags"][0] == "sign-in" {
                continue;
            }
            let method = method.to_ascii_uppercase();
            let is_tried = tried.iter().any(|case| *case == (method.as_str(), path.as_str()));
            if !is_tried && dialects.contains(&(method.as_str(), path.clone())) {
                of_dialects += 1;
                continue;
            }
            assert!(is_tried, "{method} {path} is not tried");
            documented += 1;
        }
    }
    assert_eq!(documented, routes().len());
    assert!(of_dialects > 90, "{of_dialects} paths of the dialects");
    figure(
        "routes of the OpenAPI document that show another tenant nothing, each under two paths",
        documented,
    );
    // The owner's objects are unaffected.
    let run_view = gateway.request("GET", &format!("/v1/runs/{run}"), &json!(null)).await;
    assert_eq!(run_view["stop_reason"], "requires_approval");
    let list = gateway.request("GET", &format!("/v1/agents/{agent}/messages"), &json!(null)).await;
    assert_eq!(list.as_array().unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_key_are_refused() {
    let gateway = AgentGateway::open().await;
    let response = crate::harness::begin(&gateway.url, "GET", "/v1/agents/", Vec::new(), &[]).await;
    assert_eq!(response.status().as_u16(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn served_openapi_equals_the_checked_in_file() {
    let gateway = AgentGateway::open().await;
    let (status, served) = gateway.send("us", "GET", "/openapi.json", &json!(null)).await;
    assert_eq!(status, 200);
    let served: Value = serde_json::from_slice(&served).unwrap();
    let gemini = "/v1beta/models/{model}:generateContent";
    for path in ["/v1/messages", "/v1/responses", "/v1/chat/completions", gemini] {
        assert!(served["paths"][path]["post"].is_object(), "{path} is not listed");
    }
    let mut served = serde_json::to_string_pretty(&served).unwrap();
    served.push('\n');
    let kept = include_str!("../../../../../docs/openapi.json");
    let is_kept = served == kept;
    assert!(is_kept, "docs/openapi.json: store the output of GET /openapi.json, indented by two");
    let (status, page) = gateway.send("us", "GET", "/docs", &json!(null)).await;
    let page = String::from_utf8_lossy(&page).into_owned();
    assert_eq!(status, 200);
    for route in routes() {
        assert!(page.contains(route.path), "{} is not on the page", route.path);
    }
}
