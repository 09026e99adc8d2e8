//! Growing conversations: the provider receives the same requests whether or not the gateway
//! reuses earlier requests.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline_testkit::Folder;
use tokio::io::AsyncWriteExt as _;

use crate::house::{ANSWER, RawGateway, RawGatewayOptions, RawProvider, http_response, store};

const MODEL: &str = "claude-sonnet-4-5";

/// Sends the requests in order through a gateway with this cache size, and returns the bodies that
/// the provider received.
async fn received(path: &str, requests: &[Value], cache_size: usize) -> Vec<String> {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let provider = RawProvider::with_request_handler(move |request, mut stream| {
        let body = request.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        seen.lock().unwrap().extend(body);
        async move {
            let answer = http_response("200 OK", "application/json", ANSWER);
            stream.write_all(answer.as_bytes()).await.ok();
        }
    })
    .await;
    let folder = Folder::new("growing");
    let journal = store(&folder).await;
    let options = RawGatewayOptions { cache_size, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &journal, options);
    for request in requests {
        let response = gateway.send(path, "", &request.to_string()).await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    gateway.close().await;
    let bodies = bodies.lock().unwrap();
    bodies.clone()
}

/// Compares a gateway with caches and a gateway without.
async fn check(path: &str, requests: &[Value]) {
    let reusing = received(path, requests, throughline_replay::DEFAULT_CACHE_SIZE).await;
    let alone = received(path, requests, 0).await;
    assert_eq!(reusing.len(), requests.len());
    for (number, (reusing, alone)) in reusing.iter().zip(&alone).enumerate() {
        assert!(reusing == alone, "request {number} of {path} differs");
    }
}

/// A text that makes a request long enough for the cache.
fn long(text: &str) -> String {
    format!("{text} \u{e9}\u{1b} {}", "x".repeat(6_000))
}

/// Returns the requests of a conversation: one with each number of turns, then one in which a turn
/// is different, and one that continues the conversation after that.
fn growing(request: impl Fn(&[usize]) -> Value) -> Vec<Value> {
    let mut requests: Vec<Value> =
        (3..7).map(|turns| request(&(0..turns).collect::<Vec<_>>())).collect();
    requests.push(request(&[0, 1, 2, 3, 40]));
    requests.push(request(&[0, 1, 2, 3, 40, 41]));
    requests.push(request(&[0, 50]));
    requests.push(request(&[0, 1, 2, 3, 4, 5, 6]));
    requests
}

#[tokio::test]
async fn messages_are_sent_as_without_the_cache() {
    let request = |turns: &[usize]| {
        let last = turns.len() - 1;
        let messages = turns.iter().enumerate().flat_map(|(at, turn)| {
            let mut text = json!({"type": "text", "text": long(&format!("question {turn}"))});
            if at == last {
                text["cache_control"] = json!({"type": "ephemeral"});
            }
            let id = format!("toolu_{turn}");
            [
                json!({"role": "user", "content": [text]}),
                json!({"role": "assistant", "content": [
                    {"type": "text", "text": format!("answer {turn}")},
                    {"type": "tool_use", "id": id, "name": "read", "input": {"path": turn}},
                ]}),
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": id, "content": long("result")},
                ]}),
            ]
        });
        json!({
            "model": MODEL, "max_tokens": 100, "messages": messages.collect::<Vec<_>>(),
            "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        })
    };
    check("/v1/messages", &growing(request)).await;
}

#[tokio::test]
async fn chat_messages_are_sent_as_without_the_cache() {
    let request = |turns: &[usize]| {
        let messages = turns.iter().flat_map(|turn| {
            let arguments = format!("{{\"path\":\"\\u00e9{turn}\"}}");
            let function = json!({"name": "read", "arguments": arguments});
            [
                json!({"role": "user", "content": long(&format!("question {turn}"))}),
                json!({"role": "assistant", "content": null, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": function},
                ]}),
                json!({"role": "tool", "tool_call_id": "call_1", "content": long("result")}),
            ]
        });
        let tool = json!({"name": "read", "parameters": {"type": "object"}});
        json!({
            "model": MODEL, "messages": messages.collect::<Vec<_>>(),
            "tools": [{"type": "function", "function": tool}],
        })
    };
    check("/v1/chat/completions", &growing(request)).await;
}

#[tokio::test]
async fn responses_are_sent_as_without_the_cache() {
    let send = json!({"type": "function", "name": "send", "parameters": {"type": "object"}});
    let namespace =
        |name: &str| json!({"type": "namespace", "name": name, "description": "", "tools": [send]});
    let request = |turns: &[usize]| {
        let input = turns.iter().flat_map(|turn| {
            let id = format!("call_{turn}");
            [
                json!({"role": "user", "content": long(&format!("question {turn}"))}),
                json!({"type": "function_call", "call_id": id, "name": "send", "arguments": "{}"}),
                json!({"type": "function_call_output", "call_id": id, "output": long("result")}),
            ]
        });
        // The tools decide which tool the call without a namespace names.
        let tools = match turns.len() % 3 {
            0 => json!([namespace("mail")]),
            1 => json!([namespace("mail"), namespace("chat")]),
            _ => json!([send]),
        };
        json!({"model": MODEL, "input": input.collect::<Vec<_>>(), "tools": tools})
    };
    check("/v1/responses", &growing(request)).await;
}
