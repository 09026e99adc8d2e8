//! Tests of the routes that the operators of a tenant manage over HTTP.

use serde_json::{Value, json};

use crate::house::{ANSWER, RawProvider, http_response};
use crate::letta::scene::{AgentGateway, MODEL, OTHER};

const ROUTES: &str = "/v1/throughline/routes";

/// Sends a request with a key. Returns the status and the response.
async fn send(
    gateway: &AgentGateway,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let (status, bytes) = gateway.send(key, method, path, body).await;
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Calls a model with a key. Returns the status and the response.
async fn call(gateway: &AgentGateway, key: &str, model: &str) -> (u16, Value) {
    let body = json!({"model": model, "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}]});
    send(gateway, key, "POST", "/v1/messages", &body).await
}

async fn gateway() -> AgentGateway {
    let answer = http_response("200 OK", "application/json", ANSWER);
    let provider = RawProvider::with_reply(answer).await;
    AgentGateway::open().await.with_provider(&provider.url).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_manage_the_routes_of_their_own_tenant() {
    let gateway = gateway().await;
    let path = format!("{ROUTES}/route-fast");
    assert_eq!(call(&gateway, "us", "route-fast").await.0, 404);
    let targets = json!({"targets": [MODEL, OTHER]});
    let route = json!({"model": "route-fast", "targets": [MODEL, OTHER]});
    assert_eq!(send(&gateway, "us.operator", "PUT", &path, &targets).await, (200, route.clone()));
    let listed = (200, json!({"routes": [route]}));
    assert_eq!(send(&gateway, "us.viewer", "GET", ROUTES, &Value::Null).await, listed);
    // Every node and every key of the tenant uses the route at once. Responses name the route.
    let node = gateway.beside(std::future::pending()).await;
    assert_eq!(send(&node, "us", "GET", ROUTES, &Value::Null).await, listed);
    let (status, reply) = call(&gateway, "us.app", "route-fast").await;
    assert_eq!((status, &reply["model"]), (200, &json!("route-fast")), "{reply}");
    let (_, models) = send(&gateway, "us", "GET", "/v1/models", &Value::Null).await;
    assert!(models.to_string().contains("\"route-fast\""), "{models}");
    // Other tenants do not have it.
    assert_eq!(call(&gateway, "them", "route-fast").await.0, 404);
    let no_routes = (200, json!({"routes": []}));
    assert_eq!(send(&gateway, "them.operator", "GET", ROUTES, &Value::Null).await, no_routes);
    let (_, models) = send(&gateway, "them", "GET", "/v1/models", &Value::Null).await;
    assert!(!models.to_string().contains("route-fast"), "{models}");
    for (key, expected) in [("them.operator", 404), ("us.app", 403), ("us", 403)] {
        let (status, error) = send(&gateway, key, "DELETE", &path, &Value::Null).await;
        assert_eq!(status, expected, "{key}: {error}");
    }
    // Another node deletes it.
    let deleted = (200, json!({"deleted": "route-fast"}));
    assert_eq!(send(&node, "us.operator", "DELETE", &path, &Value::Null).await, deleted);
    assert_eq!(call(&gateway, "us", "route-fast").await.0, 404);
    assert_eq!(send(&node, "us.operator", "DELETE", &path, &Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_routes_are_refused() {
    let gateway = gateway().await;
    let targets = json!({"targets": [MODEL]});
    for (name, body, expected, problem) in [
        (MODEL, &targets, 409, "already defines the model"),
        ("a%20b", &targets, 422, "consists of letters"),
        ("route-fast", &json!({"targets": [MODEL], "weight": 3}), 422, "`weight` is not a member"),
        ("route-fast", &json!({}), 422, "`targets` must be a list"),
        ("route-fast", &json!({"targets": []}), 422, "`targets` must be a list"),
        ("route-fast", &json!({"targets": [7]}), 422, "`targets` must be a list"),
        ("route-fast", &json!({"targets": ["route-other"]}), 422, "there is no model"),
    ] {
        let path = format!("{ROUTES}/{name}");
        let (status, error) = send(&gateway, "us.operator", "PUT", &path, body).await;
        assert_eq!(status, expected, "{name} {body}: {error}");
        assert!(error.to_string().contains(problem), "{name} {body}: {error}");
    }
    let no_routes = (200, json!({"routes": []}));
    assert_eq!(send(&gateway, "us.operator", "GET", ROUTES, &Value::Null).await, no_routes);
}

/// Nodes that write at the same time keep the routes of each other.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_routes_are_all_kept() {
    let (one, targets) = (gateway().await, json!({"targets": [MODEL]}));
    let two = one.beside(std::future::pending()).await;
    let put = async |gateway: &AgentGateway, number: u32| {
        let path = format!("{ROUTES}/route-{number}");
        assert_eq!(send(gateway, "us.operator", "PUT", &path, &targets).await.0, 200);
    };
    for number in 0..8 {
        tokio::join!(put(&one, 2 * number), put(&two, 2 * number + 1));
    }
    let (_, listed) = send(&one, "us.operator", "GET", ROUTES, &Value::Null).await;
    assert_eq!(listed["routes"].as_array().unwrap().len(), 16, "{listed}");
}
