//! Tests creating, listing, showing, changing and deleting agents.

use serde_json::json;

use crate::letta::scene::{AgentGateway, MODEL, OTHER};

#[tokio::test(flavor = "multi_thread")]
async fn agent_keeps_its_declared_members() {
    let gateway = AgentGateway::open().await;
    let agent = gateway
        .request(
            "POST",
            "/v1/agents/",
            &json!({
                "name": "Ada", "model": MODEL, "system": "Be kind.", "tools": ["get_weather"],
                "tags": ["one", "two"], "metadata": {"a": 1}, "timezone": "Europe/Paris",
                "memory_blocks": [{"label": "human", "value": "Likes tea.", "limit": 100}],
                "secrets": {"KEY": "hidden"}, "from_another_time": {"kept": true},
            }),
        )
        .await;
    assert!(agent["id"].as_str().unwrap().starts_with("agent-"), "{agent}");
    assert_eq!(agent["name"], "Ada");
    assert_eq!(agent["model"], MODEL);
    assert_eq!(agent["llm_config"]["handle"], MODEL);
    assert_eq!(agent["tags"], json!(["one", "two"]));
    assert_eq!(agent["metadata"], json!({"a": 1}));
    assert_eq!(agent["tools"][0]["name"], "get_weather");
    assert_eq!(agent["blocks"][0]["label"], "human");
    assert_eq!(agent["memory"]["blocks"], agent["blocks"]);
    // Members without a counterpart are stored and returned; secrets are not returned.
    assert_eq!(agent["timezone"], "Europe/Paris");
    assert_eq!(agent["from_another_time"], json!({"kept": true}));
    assert!(!agent.to_string().contains("hidden"), "{agent}");
    let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
    assert_eq!(gateway.request("GET", &path, &json!(null)).await, agent);
    assert_eq!(gateway.request("GET", &format!("/letta{path}"), &json!(null)).await, agent);

    let changed = gateway.request("PATCH", &path, &json!({"name": "Eve", "tags": []})).await;
    assert_eq!((&changed["name"], &changed["tags"]), (&json!("Eve"), &json!([])));
    assert_eq!(changed["system"], "Be kind.");
    let block = format!("{path}/core-memory/blocks/human");
    let block_after = gateway.request("PATCH", &block, &json!({"value": "Likes coffee."})).await;
    assert_eq!(block_after["value"], "Likes coffee.");
    assert_eq!(gateway.request("GET", &block, &json!(null)).await, block_after);

    gateway.request("DELETE", &path, &json!(null)).await;
    let (status, error) = gateway.try_request("GET", &path, &json!(null)).await;
    assert_eq!(status, 404, "{error}");
    assert!(error["detail"].is_string(), "{error}");
    assert_eq!(gateway.request("GET", "/v1/agents/", &json!(null)).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_listed_in_pages() {
    let gateway = AgentGateway::open().await;
    let mut agents = Vec::new();
    for number in 0..5 {
        let tag = if number % 2 == 0 { "even" } else { "odd" };
        agents
            .push(gateway.agent(&json!({"name": format!("agent {number}"), "tags": [tag]})).await);
    }
    let ids = |page: &serde_json::Value| -> Vec<String> {
        page.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let list = async |query: &str| {
        ids(&gateway.request("GET", &format!("/v1/agents/?{query}"), &json!(null)).await)
    };
    let newest: Vec<String> = agents.iter().rev().cloned().collect();
    assert_eq!(list("").await, newest);
    assert_eq!(list("order=asc").await, agents);
    assert_eq!(list("limit=2").await, newest[..2]);
    assert_eq!(list(&format!("limit=2&after={}", newest[1])).await, newest[2..4]);
    assert_eq!(list(&format!("limit=2&before={}", newest[4])).await, newest[2..4]);
    assert_eq!(list("tags=odd&order=asc").await, [agents[1].clone(), agents[3].clone()]);
    assert_eq!(list("name=agent%203").await, [agents[3].clone()]);
    assert_eq!(gateway.request("GET", "/v1/agents/count", &json!(null)).await, json!(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_agent_is_refused_with_the_member_name() {
    let gateway = AgentGateway::open().await;
    for (body, status, message) in [
        (json!({"name": "x"}), 422, "model: is missing"),
        (json!({"model": "unknown"}), 422, "there is no model unknown"),
        (json!({"model": MODEL, "tools": ["fly"]}), 404, "there is no tool fly"),
        (json!({"model": MODEL, "throughline": {"planing": true}}), 422, "unknown field `planing`"),
    ] {
        let (found_status, error) = gateway.try_request("POST", "/v1/agents/", &body).await;
        assert_eq!(found_status, status, "{error}");
        assert!(error["detail"].as_str().unwrap().contains(message), "{error}");
    }
    let (status, _) = gateway.send("poor", "POST", "/v1/agents/", &json!({"model": MODEL})).await;
    assert_eq!(status, 403, "a key may use only its own models");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_cannot_use_models_its_key_may_not() {
    let gateway = AgentGateway::open().await;
    let other_ways = [
        json!({"gate": {"otherModels": [OTHER]}}),
        json!({"context": {"model": OTHER}}),
        json!({"model": OTHER}),
    ];
    for own in &other_ways {
        let body = json!({"model": MODEL, "throughline": own});
        let (status, bytes) = gateway.send("narrow", "POST", "/v1/agents/", &body).await;
        assert_eq!(status, 403, "{own}: {bytes:?}");
    }
    let (status, bytes) =
        gateway.send("narrow", "POST", "/v1/agents/", &json!({"model": MODEL})).await;
    assert_eq!(status, 200);
    let agent: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
    for own in &other_ways {
        let (status, _) =
            gateway.send("narrow", "PATCH", &path, &json!({"throughline": own})).await;
        assert_eq!(status, 403, "{own}");
    }
    let other = json!({"input": "hi", "override_model": OTHER});
    let (status, _) = gateway.send("narrow", "POST", &format!("{path}/messages"), &other).await;
    assert_eq!(status, 403);
    // A snapshot does not bypass the restriction either.
    let hi = json!({"input": "hi"});
    let (status, bytes) = gateway.send("narrow", "POST", &format!("{path}/messages"), &hi).await;
    assert_eq!(status, 200);
    let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let run = answer["usage"]["run_ids"][0].as_str().unwrap();
    let snapshot = format!("/v1/throughline/runs/{run}/snapshot");
    let (_, bytes) = gateway.send("narrow", "GET", &snapshot, &json!(null)).await;
    let mut snapshot: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    snapshot["progress"]["model"] = json!(OTHER);
    let path = "/v1/throughline/snapshots";
    let (status, bytes) = gateway.send("narrow", "POST", path, &snapshot).await;
    assert_eq!(status, 403, "{bytes:?}");
}
