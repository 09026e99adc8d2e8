//! Tests of the roles of keys: every route for every role, and the management of keys.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_agent::{AgentConfig, RunRequest};
use throughline_server::{dialect_routes, routes};
use throughline_store::KeyLimits;
use throughline_testkit::{figure, workspace_root};

use crate::harness::begin;
use crate::letta::scene::{AgentGateway, MODEL, user_message};

/// The columns of the table in docs/security.md, with a key of that role.
const ROLES: [(&str, &str); 4] =
    [("operator", "us.operator"), ("app", "us.app"), ("viewer", "us.viewer"), ("no role", "us")];

/// Reads the table of docs/security.md: which roles may use each route.
fn table() -> BTreeMap<String, Vec<bool>> {
    let file = workspace_root().join("docs/security.md");
    let text = std::fs::read_to_string(file).unwrap();
    let head = format!("| routes | {} |", ROLES.map(|(role, _)| role).join(" | "));
    let (_, rest) = text.split_once(&head).expect("docs/security.md has the table of roles");
    let mut rows = BTreeMap::new();
    for line in rest.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let allowed: Vec<bool> = cells[1..].iter().map(|cell| *cell == "yes").collect();
        assert_eq!(allowed.len(), ROLES.len(), "{line}");
        for route in cells[0].split('`').skip(1).step_by(2) {
            assert!(rows.insert(route.to_owned(), allowed.clone()).is_none(), "{route}");
        }
    }
    rows
}

/// Returns whether the gateway refuses a request because of the role of the key.
async fn is_refused(gateway: &AgentGateway, key: &str, method: &str, path: &str) -> bool {
    let body = if matches!(method, "POST" | "PATCH" | "PUT") { json!({}) } else { Value::Null };
    let (status, bytes) = gateway.send(key, method, path, &body).await;
    let text = String::from_utf8_lossy(&bytes);
    let is_refused = text.contains("change the role with");
    assert!(!is_refused || status == 403, "{key} {method} {path}: {status} {text}");
    is_refused
}

/// Replaces the names in braces by ids that do not exist. The form of a conversation's id decides
/// which dialect serves its path.
fn with_ids(path: &str, conversation: &str) -> String {
    let mut parts = path.split(['{', '}']);
    let mut target = parts.next().unwrap_or_default().to_owned();
    while let (Some(name), Some(rest)) = (parts.next(), parts.next()) {
        let id = match name {
            "conversation" => conversation,
            "response" => "resp_none",
            _ => "none",
        };
        target.push_str(id);
        target.push_str(rest);
    }
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_has_the_documented_roles() {
    let gateway = AgentGateway::open().await;
    let mut rows = table();
    let models = rows.remove("GET /v1/models").expect("a row for the model lists");
    let others = rows.remove("every other path of a dialect").expect("a row for the dialects");
    let mut cases: Vec<(String, String, Vec<bool>)> = Vec::new();
    for route in routes() {
        let name = format!("{} {}", route.method, route.path);
        let allowed = rows.remove(&name);
        let allowed = allowed.unwrap_or_else(|| panic!("{name} is not in docs/security.md"));
        cases.push((route.method.to_owned(), with_ids(route.path, "conv-none"), allowed));
    }
    for (path, allowed) in [
        ("/metrics", rows.remove("GET /metrics")),
        ("/v1/throughline/usage", rows.remove("GET /v1/throughline/usage")),
        ("/v1/throughline/token", rows.remove("GET /v1/throughline/token")),
        ("/v1/throughline/calls/none", rows.remove("GET /v1/throughline/calls/{call}")),
    ] {
        cases.push(("GET".to_owned(), path.to_owned(), allowed.expect(path)));
    }
    for route in dialect_routes() {
        let is_list = route.method == "GET"
            && (route.summary.contains("the models")
                || route.summary.starts_with("Return a model"));
        let allowed = if is_list { &models } else { &others };
        cases.push((route.method.to_owned(), with_ids(&route.path, "conv_none"), allowed.clone()));
    }
    assert_eq!(rows, BTreeMap::new(), "these routes do not exist");
    for (method, path, allowed) in &cases {
        for ((role, key), allowed) in ROLES.iter().zip(allowed) {
            let is_refused = is_refused(&gateway, key, method, path).await;
            assert_eq!(!is_refused, *allowed, "{role}: {method} {path}");
        }
    }
    figure("routes checked for each of four roles", cases.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_cannot_approve_the_calls_of_their_agents() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let message = user_message("Send a mail.");
    let (status, waiting) = gateway.send("us.app", "POST", &path, &message).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&waiting));
    let waiting: Value = serde_json::from_slice(&waiting).unwrap();
    let call = &waiting["messages"][2]["tool_call"]["tool_call_id"];
    let approval = json!({"type": "approval", "tool_call_id": call, "approve": true});
    let decision = json!({"messages": [{"type": "approval", "approvals": [approval]}]});
    let (status, text) = gateway.send("us.app", "POST", &path, &decision).await;
    let text = String::from_utf8_lossy(&text);
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("a key with the role app may not decide on approvals"), "{text}");
    assert_eq!(gateway.ran.lock().unwrap().len(), 0);
    // A key without a role decides, as before there were roles.
    gateway.request("POST", &path, &decision).await;
    assert_eq!(gateway.ran.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_cannot_answer_the_questions_of_their_agents() {
    let gateway = AgentGateway::open().await;
    let own = json!({"humanInTheLoop": {"askUser": {"allowFreeText": false}}});
    let agent = gateway.agent(&json!({"throughline": own})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let asked = user_message("Ask me a question.");
    let (status, _) = gateway.send("us.app", "POST", &path, &asked).await;
    assert_eq!(status, 200);
    let list = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    let question = format!("/v1/throughline/questions/{}", list[0]["id"].as_str().unwrap());
    let answer = json!({"answers": {"Which?": {"values": ["Two"]}}});
    // Neither an app, nor a viewer, nor an operator of another tenant may answer.
    for (key, expected) in [("us.app", 403), ("us.viewer", 403), ("them.operator", 404)] {
        let (status, text) = gateway.send(key, "POST", &question, &answer).await;
        assert_eq!(status, expected, "{key}: {}", String::from_utf8_lossy(&text));
    }
    let waiting = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    assert_eq!(waiting, list);
    let (status, text) = gateway.send("us.operator", "POST", &question, &answer).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
    let left = gateway.request("GET", "/v1/throughline/questions", &json!(null)).await;
    assert_eq!(left, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_have_access_to_their_own_tenant_only() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let sent = gateway.send_message(&agent, "Send a mail.").await;
    let run = sent["messages"][0]["run_id"].as_str().unwrap();
    let get = async |key: &str, path: &str| {
        let (status, bytes) = gateway.send(key, "GET", path, &Value::Null).await;
        (status, serde_json::from_slice::<Value>(&bytes).unwrap_or_default())
    };
    let (_, inbox) = get("us.operator", "/v1/throughline/inbox").await;
    let approval = inbox["waiting"][0]["id"].as_str().unwrap();
    assert_eq!(get("them.operator", "/v1/throughline/inbox").await.1["waiting"], json!([]));
    for path in ["/v1/agents/", "/v1/runs/"] {
        assert_ne!(get("us.operator", path).await.1, json!([]), "{path}");
        assert_eq!(get("them.operator", path).await, (200, json!([])), "{path}");
    }
    let runs = format!("/v1/throughline/runs/{run}");
    for (method, path, body) in [
        ("GET", runs.clone(), Value::Null),
        ("GET", format!("{runs}/snapshot"), Value::Null),
        ("POST", format!("{runs}/resume"), json!({})),
        ("POST", format!("/v1/throughline/approvals/{approval}"), json!({"approve": true})),
        ("POST", format!("/v1/agents/{agent}/messages"), user_message("Hello")),
        ("DELETE", format!("/v1/agents/{agent}"), Value::Null),
    ] {
        let (status, text) = gateway.send("them.operator", method, &path, &body).await;
        assert_eq!(status, 404, "{method} {path}: {}", String::from_utf8_lossy(&text));
    }
    assert_eq!(gateway.ran.lock().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_a_viewer_does_not_continue_a_run() {
    let gateway = AgentGateway::open().await;
    // A program stored this run and stopped before the first model call. The gateway takes over
    // only the runs of the agent API by itself.
    let start = RunRequest::new("us", AgentConfig::minimal(MODEL), "Hello");
    let run = gateway.runner().start(start).await.unwrap().run;
    let path = format!("/v1/runs/{run}/stream");
    let headers = [("authorization", "Bearer tl_us.viewer")];
    let response = begin(&gateway.url, "GET", &path, Vec::new(), &headers).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut pings = 0;
    while pings < 3 {
        let frame = body.frame().await.expect("the stream stays open").unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        pings += text.matches("\"ping\"").count();
    }
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), 0);
    // The stream of a caller who may run agents continues the run.
    let frames = gateway.stream(&path, &json!({})).await;
    assert_eq!(frames.last().unwrap()["message_type"], "usage_statistics");
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_manage_the_keys_of_their_own_tenant() {
    let gateway = AgentGateway::open().await;
    let send = async |key: &str, method: &str, path: &str, body: &Value| {
        let (status, bytes) = gateway.send(key, method, path, body).await;
        (status, serde_json::from_slice::<Value>(&bytes).unwrap_or_default())
    };
    let keys = "/v1/throughline/keys";
    let body = json!({"label": "shop", "role": "app", "budget_micro_usd": 5_000_000,
                      "budget_period": "month"});
    let (status, created) = send("us.operator", "POST", keys, &body).await;
    assert_eq!(status, 200, "{created}");
    let limits = json!({"budget_micro_usd": 5_000_000, "budget_period": "month", "role": "app"});
    assert_eq!((&created["limits"], &created["tenant"]), (&limits, &json!("us")));
    let (id, secret) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    let known = gateway.journal.api_key(secret).await.unwrap().unwrap();
    assert_eq!((&*known.id, &*known.tenant.0), (id, "us"));

    // The list contains no secret, and another tenant does not see the key.
    let (_, listed) = send("us.operator", "GET", keys, &Value::Null).await;
    assert_eq!(listed["keys"][0]["limits"], limits);
    assert!(!listed.to_string().contains(secret));
    let (_, listed) = send("them.operator", "GET", keys, &Value::Null).await;
    assert_eq!(listed, json!({"keys": []}));

    let path = format!("{keys}/{id}");
    let change = json!({"role": "viewer", "budget_period": null, "requests_per_minute": 9});
    for (method, path, body) in [
        ("PATCH", path.clone(), &change),
        ("POST", format!("{path}/reset"), &Value::Null),
        ("DELETE", path.clone(), &Value::Null),
    ] {
        let (status, error) = send("them.operator", method, &path, body).await;
        assert_eq!(status, 404, "{method}: {error}");
        for key in ["us.app", "us.viewer", "us"] {
            let (status, error) = send(key, method, &path, body).await;
            assert_eq!(status, 403, "{key} {method}: {error}");
        }
    }
    assert_eq!(gateway.journal.api_key(secret).await.unwrap(), Some(known));

    let (status, changed) = send("us.operator", "PATCH", &path, &change).await;
    assert_eq!(status, 200, "{changed}");
    let limits = json!({"budget_micro_usd": 5_000_000, "requests_per_minute": 9, "role": "viewer"});
    assert_eq!(changed, json!({"id": id, "limits": limits}));
    for invalid in [json!({"role": "admin"}), json!({"region": "eu"}), json!({"models": "all"})] {
        let (status, error) = send("us.operator", "PATCH", &path, &invalid).await;
        assert_eq!(status, 422, "{invalid}: {error}");
        let (status, error) = send("us.operator", "POST", keys, &invalid).await;
        assert_eq!(status, 422, "{invalid}: {error}");
    }
    let (status, reset) = send("us.operator", "POST", &format!("{path}/reset"), &json!({})).await;
    assert_eq!((status, reset), (200, json!({"reset": id})));
    let (status, revoked) = send("us.operator", "DELETE", &path, &Value::Null).await;
    assert_eq!((status, revoked), (200, json!({"revoked": id})));
    assert_eq!(gateway.journal.api_key(secret).await.unwrap(), None);
    assert_eq!(send("us.operator", "DELETE", &path, &Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_earlier_versions_have_no_role() {
    let gateway = AgentGateway::open().await;
    // Earlier versions stored these limits, without a role.
    let limits = KeyLimits { requests_per_minute: Some(60), ..KeyLimits::default() };
    assert_eq!(limits.json().as_str(), r#"{"requests_per_minute":60}"#);
    let tenant = throughline_core::Tenant::from("us");
    let key = gateway.journal.create_api_key(&tenant, "old", &limits).await.unwrap();
    let known = gateway.journal.api_key(&key.secret).await.unwrap().unwrap();
    assert_eq!(known.limits.role, None);
}
