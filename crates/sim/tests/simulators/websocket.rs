//! Tests for WebSocket mode of the Responses API.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use throughline_sim::Simulator;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use crate::common::simulator;

async fn open(simulator: &Simulator, path: &str) -> WebSocketStream<TcpStream> {
    let address = simulator.address();
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer sk-one"));
    let stream = TcpStream::connect(address).await.unwrap();
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

/// Sends an event and returns the events up to the end of the response.
async fn exchange(socket: &mut WebSocketStream<TcpStream>, event: &Value) -> Vec<Value> {
    socket.send(Message::text(event.to_string())).await.unwrap();
    let mut events: Vec<Value> = Vec::new();
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message.unwrap() else { continue };
        events.push(serde_json::from_str(&text).unwrap());
        let kind = events.last().unwrap()["type"].as_str().unwrap();
        if matches!(kind, "response.completed" | "error") {
            return events;
        }
    }
    panic!("the socket closed after {events:?}");
}

fn create(input: &Value, previous: Option<&Value>) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}},
                        "required": ["city"]});
    let mut event = json!({
        "type": "response.create",
        "model": "gpt-5.2",
        "store": false,
        "input": input,
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "weather", "parameters": schema}],
    });
    if let Some(previous) = previous {
        event["previous_response_id"] = previous.clone();
    }
    event
}

#[tokio::test]
async fn conversation_continues_without_storage() {
    let simulator = simulator().await;
    let mut socket = open(&simulator, "/v1/responses").await;
    let mut warm_up = create(&json!([{"role": "developer", "content": "Be brief."}]), None);
    warm_up["generate"] = json!(false);
    let events = exchange(&mut socket, &warm_up).await;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response.created", "response.completed"]);
    assert!(simulator.ledger().entries.is_empty(), "a warm-up is no model call");
    let mut previous = events[1]["response"]["id"].clone();
    let mut input = json!("How is the weather in Paris?");
    let mut calls = 0;
    for _ in 0..6 {
        let events = exchange(&mut socket, &create(&input, Some(&previous))).await;
        let last = &events.last().unwrap()["response"];
        assert_eq!(last["status"], "completed", "{last}");
        previous = last["id"].clone();
        let output = last["output"].as_array().unwrap().iter();
        let results: Vec<Value> = output
            .filter(|item| item["type"] == "function_call")
            .map(|call| {
                let id = &call["call_id"];
                json!({"type": "function_call_output", "call_id": id, "output": "sunny"})
            })
            .collect();
        calls += results.len();
        input = if results.is_empty() { json!("And tomorrow?") } else { json!(results) };
    }
    assert!(calls > 0);
    let ledger = simulator.ledger();
    assert_eq!(ledger.entries.len(), 6);
    assert!(ledger.all_verified(), "{ledger:?}");
    assert!(ledger.entries.iter().any(|entry| !entry.returned.is_empty()));
}

#[tokio::test]
async fn errors_are_events_and_name_their_lane() {
    let simulator = simulator().await;
    let mut socket = open(&simulator, "/at/openai/v1/responses").await;
    let mut event = create(&json!("Hello."), Some(&json!("resp_unknown")));
    event["stream_id"] = json!("main");
    let events = exchange(&mut socket, &event).await;
    let error = events.last().unwrap();
    assert_eq!((&error["status"], &error["stream_id"]), (&json!(400), &json!("main")), "{error}");
    assert_eq!(error["error"]["code"], "previous_response_not_found", "{error}");
    for invalid in
        [json!({"type": "response.steer"}), json!({"type": "response.create", "background": true})]
    {
        let events = exchange(&mut socket, &invalid).await;
        assert_eq!(events.last().unwrap()["status"], 400, "{invalid}");
    }
    // The response of another connection is unknown if it is not stored.
    event["previous_response_id"] = json!(null);
    let events = exchange(&mut socket, &event).await;
    assert!(events.iter().all(|event| event["stream_id"] == "main"));
    let id = &events.last().unwrap()["response"]["id"];
    let mut other = open(&simulator, "/v1/responses").await;
    let events = exchange(&mut other, &create(&json!("Hello."), Some(id))).await;
    assert_eq!(events.last().unwrap()["error"]["code"], "previous_response_not_found");
}
