//! Tests that every list of the agent API can be paged to its end: paging by `after` and `before`
//! returns each object once.

use serde_json::{Value, json};
use throughline_server::routes;
use throughline_testkit::figure;

use crate::letta::scene::{AgentGateway, user_message};

async fn page(gateway: &AgentGateway, path: &str, query: &str) -> (u16, Vec<Value>) {
    let (status, body) = gateway.send("us", "GET", &format!("{path}?{query}"), &json!(null)).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    (status, body.as_array().cloned().unwrap_or_default())
}

fn ids(list: &[Value]) -> Vec<String> {
    list.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_end_on_every_route() {
    let gateway = AgentGateway::open().await;
    let blocks: Vec<Value> =
        (0..5).map(|number| json!({"label": format!("b{number}"), "value": "x"})).collect();
    let agent = gateway.agent(&json!({"memory_blocks": blocks})).await;
    gateway.agent(&json!({})).await;
    let response = gateway.send_message(&agent, "What is the weather?").await;
    let run = response["messages"][0]["run_id"].as_str().unwrap().to_owned();
    gateway.send_message(&agent, "Hello").await;
    let mut conversation = String::new();
    for _ in 0..3 {
        let created =
            gateway.request("POST", "/v1/conversations/", &json!({"agent_id": agent})).await;
        conversation = created["id"].as_str().unwrap().to_owned();
    }
    let path = format!("/v1/conversations/{conversation}/messages");
    let mut body = user_message("What is the weather?");
    body["streaming"] = json!(false);
    gateway.request("POST", &path, &body).await;
    let (mut lists, mut requests, mut objects) = (0, 0, 0);
    for route in routes() {
        if route.method != "GET" || route.path.starts_with("/v1/throughline/") {
            continue;
        }
        let path = route.path.replace("{agent}", &agent).replace("{run}", &run);
        let path = path.replace("{conversation}", &conversation);
        if path.contains('{') {
            continue;
        }
        let (status, listed) = page(&gateway, &path, "limit=1000").await;
        // Lists without ids are not paged.
        if status != 200 || listed.iter().any(|one| one["id"].is_null()) || listed.is_empty() {
            continue;
        }
        let listed = ids(&listed);
        assert!(listed.len() > 1, "{path} has {} objects: make more", listed.len());
        lists += 1;
        objects += listed.len();
        for order in ["asc", "desc"] {
            let (_, all) = page(&gateway, &path, &format!("limit=1000&order={order}")).await;
            let all = ids(&all);
            let (mut forwards, mut after, mut page_count) = (Vec::new(), String::new(), 0);
            loop {
                let query = format!("limit=2&order={order}{after}");
                let (status, page) = page(&gateway, &path, &query).await;
                page_count += 1;
                assert_eq!(status, 200, "{path}?{query}");
                assert!(page.len() <= 2 && page_count <= all.len() / 2 + 2, "{path} does not end");
                let Some(last) = page.last() else { break };
                after = format!("&after={}", last["id"].as_str().unwrap());
                forwards.extend(ids(&page));
            }
            assert_eq!(forwards, all, "{path} by after, {order}");
            requests += page_count;
            // Page backwards from the last object.
            let mut backwards = vec![all.last().unwrap().clone()];
            loop {
                let query = format!("limit=2&order={order}&before={}", backwards[0]);
                let (status, page) = page(&gateway, &path, &query).await;
                assert_eq!(status, 200, "{path}?{query}");
                if page.is_empty() {
                    break;
                }
                let mut earlier = ids(&page);
                earlier.append(&mut backwards);
                backwards = earlier;
                assert!(backwards.len() <= all.len(), "{path} does not end");
            }
            assert_eq!(backwards, all, "{path} by before, {order}");
        }
        for cursor in ["after", "before"] {
            let (status, _) = page(&gateway, &path, &format!("{cursor}=unknown-1")).await;
            assert_eq!(status, 404, "{path}?{cursor}");
        }
    }
    assert_eq!(lists, 10, "agents, tools, blocks, messages, runs, steps, conversations");
    figure(
        "lists of the agent API",
        format!("{lists} with {objects} objects, {requests} requests by twos"),
    );
}
