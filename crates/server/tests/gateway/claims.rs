//! Tests that Claims are valid only for their issuer and tenant, and are never sent to a provider.

use crate::common::{KEY, call_of, codec_of, target};
use proptest::prelude::*;
use serde_json::json;
use throughline_core::{Disposition, ElisionReason, Tenant};
use throughline_replay::Claims;
use throughline_testkit::proptest_config;

fn tenant() -> Tenant {
    Tenant::from("acme")
}

#[test]
fn claim_resolves_to_its_turn() {
    let claims = Claims::new(KEY);
    let node = Claims::new_turn_id().unwrap();
    let claim = claims.claim(&tenant(), &node);
    assert_eq!(claims.read(&tenant(), &claim), Some(node.clone()));
    assert_eq!(claim.len() % 4, 0, "a client may take it for base64");
    assert!(claim.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{claim}");
    let ids: Vec<_> = (0..3000).map(|number| claims.call_id(&tenant(), &node, number)).collect();
    for id in &ids {
        assert_eq!(claims.read(&tenant(), id), Some(node.clone()));
        assert_eq!(id.len(), 40);
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{id}");
    }
    let unique: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn claims_of_other_tenants_and_keys_are_rejected() {
    let (ours, theirs) = (Claims::new(KEY), Claims::new([8; 32]));
    let node = Claims::new_turn_id().unwrap();
    for text in [theirs.claim(&tenant(), &node), theirs.call_id(&tenant(), &node, 0)] {
        assert_eq!(ours.read(&tenant(), &text), None);
    }
    for text in [ours.claim(&tenant(), &node), ours.call_id(&tenant(), &node, 0)] {
        assert_eq!(ours.read(&Tenant::from("other"), &text), None);
        assert_eq!(ours.read(&Tenant::from("acm"), &text), None);
    }
}

proptest! {
    #![proptest_config(proptest_config(500))]

    #[test]
    fn corrupted_claims_are_rejected(at in 0usize..40, with in "[0-9A-Za-z_]", cut in 0usize..40, is_call: bool) {
        let claims = Claims::new(KEY);
        let node = Claims::new_turn_id().unwrap();
        let text = if is_call {
            claims.call_id(&tenant(), &node, 1)
        } else {
            claims.claim(&tenant(), &node)
        };
        let at = at % text.len();
        let mut spoiled = text.to_string();
        spoiled.replace_range(at..=at, &with);
        if spoiled != *text {
            prop_assert_eq!(claims.read(&tenant(), &spoiled), None);
        }
        prop_assert_eq!(claims.read(&tenant(), &text[..cut % text.len()]), None);
        prop_assert_eq!(claims.read(&tenant(), &format!("{text}0")), None);
    }

    #[test]
    fn reading_arbitrary_text_does_not_panic(text in ".{0,60}") {
        prop_assert_eq!(Claims::new(KEY).read(&tenant(), &text), None);
    }
}

/// Claims are found in every dialect's fields that can contain one, and removed completely.
#[test]
fn no_claim_reaches_a_provider() {
    let claims = Claims::new(KEY);
    let node = Claims::new_turn_id().unwrap();
    let (claim, id) = (claims.claim(&tenant(), &node), claims.call_id(&tenant(), &node, 0));
    for (provider, wire, model, body) in dialects(&claim, &id) {
        let (codec, target) = (codec_of(wire), target(provider, wire, model));
        let mut call = call_of(codec, &target, &body);
        let found: Vec<_> = call.items.iter().flat_map(Claims::handles_in_item).collect();
        assert!(found.contains(&claim) && found.contains(&id), "{wire}: {found:?}");
        let left = Claims::remove(&mut call, ElisionReason::Foreign);
        assert_eq!(left.len(), 1, "{wire}");
        assert_eq!(left[0].visible, Disposition::Elided(ElisionReason::Foreign), "{wire}");
        let encoded = codec.encode(&call).unwrap();
        let sent = String::from_utf8(encoded.request.body.to_vec()).unwrap();
        assert!(!sent.contains("tl1"), "{wire}: {sent}");
        // The call and its result are still linked.
        let again = call_of(codec, &target, &serde_json::from_str(&sent).unwrap());
        let links: Vec<_> = again.items.iter().filter_map(link).collect();
        assert_eq!(links.len(), 2, "{wire}: {sent}");
        assert_eq!(links[0], links[1], "{wire}: {sent}");
    }
}

fn link(item: &throughline_core::Item) -> Option<throughline_core::CallId> {
    match &item.body {
        throughline_core::Body::Call(call) => Some(call.id.clone()),
        throughline_core::Body::Result(result) => Some(result.call.clone()),
        _ => None,
    }
}

type Dialect = (&'static str, &'static str, &'static str, serde_json::Value);

/// Returns a conversation in each dialect, with a Claim on a Thought and a gateway id on a tool
/// call.
fn dialects(claim: &str, id: &str) -> Vec<Dialect> {
    let anthropic = json!({"model": "claude-sonnet-4-5", "max_tokens": 9000, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": claim},
            {"type": "tool_use", "id": id, "name": "weather", "input": {"city": "Oslo"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "rain"}]}]});
    let responses = json!({"model": "gpt-5.2", "store": false, "input": [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": claim},
        {"type": "function_call", "call_id": id, "name": "weather", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call_output", "call_id": id, "output": "rain"}]});
    let chat = json!({"model": "anthropic/claude-sonnet-4.5", "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null,
         "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": claim}],
         "tool_calls": [{"id": id, "type": "function",
            "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": id, "content": "rain"}]});
    let gemini = json!({"contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": true, "thoughtSignature": claim},
            {"functionCall": {"id": id, "name": "weather", "args": {"city": "Oslo"}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": id, "name": "weather", "response": {"output": "rain"}}}]}]});
    let converse = json!({"messages": [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": claim}}},
            {"toolUse": {"toolUseId": id, "name": "weather", "input": {"city": "Oslo"}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": id, "content": [{"text": "rain"}]}}]}]});
    vec![
        ("anthropic", "anthropic-messages", "claude-sonnet-4-5", anthropic),
        ("openai", "openai-responses", "gpt-5.2", responses),
        ("openrouter", "openai-chat", "anthropic/claude-sonnet-4.5", chat),
        ("gemini", "gemini", "gemini-2.5-pro", gemini),
        ("bedrock", "bedrock-converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", converse),
    ]
}
