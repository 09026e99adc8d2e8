//! Unit tests of the events, conversations and steering of a WebSocket.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::borrow::Cow;

use axum::http::Request;
use bytes::Bytes;
use throughline_core::Tenant;
use throughline_json::{Name, Tree};

use crate::access::{Admission, Caller};
use crate::error::GatewayError;
use crate::gateway::websocket::conversation_cache::{
    ConversationCache, ItemList, SocketConversation,
};
use crate::gateway::websocket::steering::{SteerOutcome, Steering};
use crate::gateway::websocket::{event, request_parts};
use crate::telemetry::{Limits, SocketPool};

fn tree(text: &str) -> Tree {
    Tree::parse(text.to_owned()).unwrap()
}

#[test]
fn error_events_contain_the_status_and_the_error() {
    let problem = GatewayError::new(404, "there is no model `x`");
    assert_eq!(
        event::from_problem(&problem).as_str(),
        r#"{"type":"error","status":404,"error":{"message":"there is no model `x`","type":"not_found_error","param":null,"code":null}}"#
    );
    let body = r#"{"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}"#;
    let headers = [("Retry-After".into(), "7".into()), ("server".into(), "x".into())];
    assert_eq!(
        event::from_response(429, &headers, &Bytes::from(body)).as_str(),
        r#"{"type":"error","status":429,"error":{"message":"Slow down.","code":"rate_limit_exceeded","type":"api_error","headers":{"Retry-After":"7"}},"headers":{"Retry-After":"7"}}"#
    );
    let body = r#"{"error":{"type":"invalid_request_error","message":"x","code":"previous_response_not_found"}}"#;
    let event = event::from_response(404, &[], &Bytes::from(body));
    assert_eq!(event.tree().root().get("status").unwrap().u64(), Some(400));
    let event = event::from_response(503, &[], &Bytes::from_static(b"<html>"));
    let message = event.tree().root().at("/error/message").unwrap().text().unwrap().into_owned();
    assert_eq!(message, "the provider answered with status 503");
}

#[test]
fn flat_error_events_of_streams_are_nested() {
    let flat = tree(
        r#"{"type":"error","code":"server_error","message":"x","param":null,"sequence_number":4}"#,
    );
    assert_eq!(
        event::from_stream_event(flat.root()).as_str(),
        r#"{"type":"error","status":502,"error":{"type":"server_error","code":"server_error","message":"x","param":null},"sequence_number":4}"#
    );
    let nested = r#"{"type":"error","error":{"type":"x","message":"y"}}"#;
    assert_eq!(event::from_stream_event(tree(nested).root()).as_str(), nested);
}

#[test]
fn requests_over_http_omit_the_headers_of_the_handshake() {
    let request = Request::builder()
        .uri("/v1/responses?x=1")
        .header("authorization", "Bearer k")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "x")
        .header("origin", "http://localhost")
        .header("accept-encoding", "gzip")
        .header("content-encoding", "zstd")
        .header("openai-beta", "responses_websockets=2026-02-06, other=v1")
        .body(())
        .unwrap();
    let parts = request_parts(&request.into_parts().0);
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in &parts.headers {
        headers.push((name.to_string(), value.to_str().unwrap().to_owned()));
    }
    headers.sort();
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [
        ("accept", "text/event-stream"),
        ("authorization", "Bearer k"),
        ("content-type", "application/json"),
        ("openai-beta", "other=v1"),
    ];
    assert_eq!(headers, expected);
    assert_eq!(
        (parts.method.as_str(), parts.uri.to_string().as_str()),
        ("POST", "/v1/responses?x=1")
    );
}

async fn conversation(text: &str) -> SocketConversation {
    let mut items = ItemList::default();
    items.push(text.as_bytes());
    let caller = Caller {
        tenant: Tenant::from("t"),
        end_user: None,
        prefix: None,
        credential: None,
        admission: Admission::Open,
        address: None,
        page_token: None,
    };
    let pool = SocketPool::new(&Limits::default());
    let memory = pool.reserve(&caller, text.len()).await.unwrap();
    SocketConversation { base: None, items, end_user: None, _memory: memory }
}

#[tokio::test]
async fn oldest_conversations_are_dropped_first() {
    let mut cache = ConversationCache::new(10);
    for id in ["a", "b", "c"] {
        cache.insert(Name::from(id), conversation("1234").await);
    }
    assert!(cache.get("a").is_none());
    assert!(cache.get("b").is_some() && cache.get("c").is_some());
    cache.insert(Name::from("d"), conversation("12345678901").await);
    assert!(cache.get("d").is_none(), "a conversation beyond the limit is held");
    assert!(cache.get("c").is_some());
}

#[test]
fn steering_input_follows_tool_results() {
    let mut steering = Steering::default();
    let id = Name::from("resp_1");
    steering.open(&id, None, true);
    let steer = tree(r#"{"type":"response.steer","previous_response_id":"resp_1","input":"Now."}"#);
    assert_eq!(steering.submit(steer.root(), None).len(), 1);
    let SteerOutcome::Successor(steers) = steering.finish(&id, Vec::new()) else {
        panic!("the input starts a successor");
    };
    let input =
        tree(r#"[{"type":"function_call_output","output":"1"},{"role":"user","content":"2"}]"#);
    let mut items = ItemList::default();
    items.push_input(Some(input.root()), &steers);
    assert_eq!(
        items.to_array().as_str(),
        r#"[{"type":"function_call_output","output":"1"},{"type":"message","role":"user","content":"Now."},{"role":"user","content":"2"}]"#
    );
    let mut items = ItemList::default();
    items.push_input(Some(tree(r#""Hello""#).root()), &[]);
    assert_eq!(items.to_array().as_str(), r#"[{"role":"user","content":"Hello"}]"#);
}

#[test]
fn running_responses_and_waiting_input_are_remembered_longest() {
    let mut steering = Steering::default();
    let steer = |id: &str| {
        tree(&format!(r#"{{"type":"response.steer","previous_response_id":"{id}","input":"x"}}"#))
    };
    let stub = || vec![throughline_json::object!("type": "function_call_output")];
    let open = |steering: &mut Steering, id: &str| steering.open(&Name::from(id), None, true);
    assert!(open(&mut steering, "active").is_empty());
    assert!(open(&mut steering, "steered").is_empty());
    assert_eq!(steering.submit(steer("steered").root(), None).len(), 1);
    assert!(matches!(steering.finish("steered", stub()), SteerOutcome::Pending(_)));
    for index in 0..126 {
        let id = format!("waits_{index}");
        assert!(open(&mut steering, &id).is_empty());
        steering.finish(&id, stub());
    }
    // The responses without input make room first, and then the one with input.
    for index in 0..126 {
        assert!(open(&mut steering, &format!("new_{index}")).is_empty());
    }
    let lost = open(&mut steering, "last");
    assert_eq!(lost.len(), 1);
    assert!(lost[0].as_str().contains("response.steer.failed"), "{}", lost[0].as_str());
    let accepted = steering.submit(steer("active").root(), None);
    assert!(accepted[0].as_str().contains("response.steer.accepted"), "{}", accepted[0].as_str());
}

#[test]
fn steering_input_is_limited() {
    let mut steering = Steering::default();
    let id = Name::from("resp_1");
    steering.open(&id, Some(&Name::from("lane")), true);
    let steer = tree(r#"{"type":"response.steer","previous_response_id":"resp_1","input":"x"}"#);
    let code = |events: Vec<throughline_json::Json>| {
        let event = events[0].tree();
        event.root().at("/error/code").and_then(|code| code.text().map(Cow::into_owned))
    };
    for _ in 0..16 {
        assert_eq!(code(steering.submit(steer.root(), None)), None);
    }
    let refused = code(steering.submit(steer.root(), None));
    assert_eq!(refused.as_deref(), Some("too_many_pending_steers"));
    assert_eq!(steering.fail(&id).len(), 16);
    assert_eq!(
        code(steering.submit(steer.root(), None)).as_deref(),
        Some("response_already_completed")
    );
    let with_lane = tree(
        r#"{"type":"response.steer","previous_response_id":"resp_1","input":"x","stream_id":"lane"}"#,
    );
    assert_eq!(code(steering.submit(with_lane.root(), None)).as_deref(), Some("invalid_input"));
    steering.open(&Name::from("resp_2"), None, false);
    let other = tree(r#"{"type":"response.steer","previous_response_id":"resp_2","input":"x"}"#);
    assert_eq!(
        code(steering.submit(other.root(), None)).as_deref(),
        Some("steering_not_supported")
    );
}
