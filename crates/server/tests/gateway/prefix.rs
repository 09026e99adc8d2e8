//! Models that bind their thoughts to all that stands before them, and callers who change it.

use crate::harness::{Gate, Opening};
use serde_json::{Value, json};
use throughline_server::{PrefixPolicy, ReplayMode};

const MODEL: &str = "sim/claude-fable-5-1";
const SYSTEM: &str = "You are a weather service.";

/// Its keys in one order, and in another.
const TOOL: &str = r#"[{"name":"get_weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]"#;
const SAME_TOOL: &str = r#"[ {"input_schema": {"required":["city"],"properties":{"city":{"type":"string"}},"type":"object"}, "name":"get_weather"} ]"#;

async fn gate(prefix: PrefixPolicy) -> Gate {
    let opening = Opening { prefix, ..Opening::of(ReplayMode::Repair) };
    Gate::open_with(opening, throughline_sim::Options::default()).await
}

/// The status, what the header says of fates and of the prefix, and the answer.
async fn ask(
    gate: &Gate,
    system: &str,
    tools: &str,
    messages: &[Value],
) -> (u16, String, Option<String>, Value) {
    // By hand, so that every byte is as it is written here.
    let body = format!(
        r#"{{"model":"{MODEL}","max_tokens":4096,"system":{},"tools":{tools},"messages":{}}}"#,
        json!(system),
        json!(messages)
    );
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let (status, headers, body) =
        gate.send("POST", "/v1/messages", body.into_bytes(), &headers).await;
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let fates = text("x-throughline-fates").unwrap_or_default();
    (status, fates, text("x-throughline-prefix"), serde_json::from_slice(&body).unwrap())
}

/// A conversation in a tool loop: its model thought, called a tool, and was answered.
async fn begun(gate: &Gate) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "What is the weather in Paris?"})];
    let (status, _, _, said) = ask(gate, SYSTEM, TOOL, &messages).await;
    assert_eq!(status, 200, "{said}");
    let content = said["content"].as_array().unwrap();
    assert!(content.iter().any(|block| block["type"] == "thinking"), "{said}");
    let call = content.iter().find(|block| block["type"] == "tool_use").unwrap();
    let result =
        json!({"type": "tool_result", "tool_use_id": call["id"], "content": "sunny, 21 degrees"});
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": [result]}));
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_looks_different_is_sent_as_it_was() {
    let gate = gate(PrefixPolicy::Freeze).await;
    let messages = begun(&gate).await;
    let (status, fates, changed, said) = ask(&gate, SYSTEM, SAME_TOOL, &messages).await;
    assert_eq!((status, changed), (200, None), "{said}");
    assert!(fates.ends_with("elided=0"), "{fates}");
    gate.assert_nothing_refused();
    let last = gate.ledger().entries.into_iter().next_back().unwrap();
    assert_eq!(last.returned.len(), 1, "the thought came back: {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_means_something_else_costs_the_thoughts_and_is_named() {
    for policy in [PrefixPolicy::Freeze, PrefixPolicy::DropBlock] {
        let gate = gate(policy).await;
        let messages = begun(&gate).await;
        let (status, fates, changed, said) = ask(&gate, "You are a pirate.", TOOL, &messages).await;
        assert_eq!((status, changed.as_deref()), (200, Some("system")), "{policy:?}: {said}");
        assert!(!fates.ends_with("elided=0"), "{policy:?}: {fates}");
        gate.assert_nothing_refused();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_refused_where_that_is_wanted() {
    for policy in [PrefixPolicy::FreezeOrError, PrefixPolicy::Error] {
        let gate = gate(policy).await;
        let messages = begun(&gate).await;
        let asked = gate.requests();
        let (status, _, _, said) = ask(&gate, "You are a pirate.", TOOL, &messages).await;
        assert_eq!(status, 400, "{policy:?}: {said}");
        let message = said["error"]["message"].as_str().unwrap();
        assert!(message.contains("`system`"), "{policy:?}: {message}");
        assert_eq!(gate.requests(), asked, "{policy:?}: the provider was not asked");
        // What only looks different is refused by the stricter one alone.
        let (status, _, _, said) = ask(&gate, SYSTEM, SAME_TOOL, &messages).await;
        let expected = if policy == PrefixPolicy::Error { 400 } else { 200 };
        assert_eq!(status, expected, "{policy:?}: {said}");
    }
}

/// Whoever only looks on changes nothing: then the provider refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn without_repair_the_provider_refuses_it() {
    let gate = Gate::open(ReplayMode::Observe).await;
    let messages = begun(&gate).await;
    let (status, _, _, said) = ask(&gate, "You are a pirate.", TOOL, &messages).await;
    assert_eq!(status, 400, "{said}");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains("bound to a different conversation"), "{message}");
}
