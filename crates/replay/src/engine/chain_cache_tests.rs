//! Tests that an extended cached chain equals a chain computed from scratch.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_codec::{Catalog, DecodeContext, codec};
use throughline_core::{Call, Part, Request, Tenant, Wire};

use super::{ChainCache, fingerprints};
use crate::engine::chain::Chain;

fn call_of(messages: &[Value], system: &str) -> Call {
    let body = json!({"model": "claude-sonnet-4-5", "system": system, "messages": messages});
    let body = Bytes::from(body.to_string());
    let request = Request { path: "/v1/messages".into(), headers: Vec::new(), body };
    let target = Catalog::builtin().target_for("anthropic", "claude-sonnet-4-5", "a").unwrap();
    let codec = codec(&Wire::ANTHROPIC_MESSAGES).unwrap();
    codec.decode_request(&request, &DecodeContext::of(target)).unwrap()
}

/// A message from a small set, so that equal messages are common.
fn message() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("yes"),
        Just("no"),
        Just("a much longer text than a fingerprint has, and one that differs in the middle: one"),
        Just(
            "a much longer text than a fingerprint has, and one that differs in the middle: two, as a fingerprint cannot tell: one"
        ),
        Just(
            "a much longer text than a fingerprint has, and one that differs in the middle: owt, as a fingerprint cannot tell: one"
        )
    ];
    let number = 0..3_u8;
    (text, number, any::<bool>()).prop_map(|(text, number, is_model)| {
        let id = format!("toolu_{number}");
        match (is_model, number) {
            (true, 0) => json!({"role": "assistant", "content": text}),
            (true, _) => json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"},
                {"type": "text", "text": text},
                {"type": "tool_use", "id": id, "name": "look", "input": {"at": text}}]}),
            (false, 0) => json!({"role": "user", "content": text}),
            (false, 1) => json!({"role": "user", "content": [{"type": "image", "source":
                {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}, {"type": "odd", "of": text}]}),
            (false, _) => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": text}]}),
        }
    })
}

/// A request: the length of its conversation, an optional replaced message, and its caller.
fn request() -> impl Strategy<Value = (usize, Option<(usize, Value)>, u8)> {
    (1..9_usize, proptest::option::of((0..8_usize, message())), 0..6_u8)
}

fn assert_same(known: &Chain, computed: &Chain, answer: &Call) {
    assert_eq!(known.turns(), computed.turns());
    assert_eq!(known.ends_with_model_turn(), computed.ends_with_model_turn());
    assert_eq!(known.after(&answer.items), computed.after(&answer.items));
}

proptest! {
    #[test]
    fn cached_chain_equals_one_computed_from_scratch(
        messages in proptest::collection::vec(message(), 8),
        all in proptest::collection::vec(request(), 1..12),
    ) {
        let chains = ChainCache::new(16 << 20);
        let answer = call_of(&[json!({"role": "assistant", "content": "So it is."})], "");
        for (length, change, caller) in all {
            let mut messages = messages.clone();
            if let Some((index, message)) = change {
                messages[index] = message;
            }
            messages.truncate(length);
            let call = call_of(&messages, if caller == 1 { "Be kind." } else { "Be brief." });
            let tenant = Tenant::from(if caller == 2 { "other" } else { "acme" });
            let end_user = (caller == 3).then_some("ann");
            let computed = Chain::of(&call, &tenant, end_user);
            assert_same(&chains.of(&call, &tenant, end_user), &computed, &answer);
            assert_same(&chains.of(&call, &tenant, end_user), &computed, &answer);
        }
    }
}

#[test]
fn growing_conversation_keeps_one_extended_entry() {
    let (tenant, chains) = (Tenant::from("acme"), ChainCache::new(16 << 20));
    let turn = |number: u8| {
        [
            json!({"role": "user", "content": format!("Question {number}")}),
            json!({"role": "assistant", "content": format!("Answer {number}")}),
        ]
    };
    let messages: Vec<Value> = (0..20).flat_map(turn).collect();
    for length in (1..messages.len()).step_by(2) {
        let call = call_of(&messages[..length], "");
        chains.of(&call, &tenant, None);
        let mark = *fingerprints(&call, &tenant, None).last().unwrap();
        let recent = chains.0.lock().unwrap();
        // The only entry is the whole conversation.
        assert_eq!(recent.len(), 1);
        let known = recent.get(&mark).unwrap();
        assert_eq!(known.items.len(), length);
        // The entry has the same size as a chain that was computed at once.
        let at_once = ChainCache::new(16 << 20);
        at_once.of(&call, &tenant, None);
        let at_once = at_once.0.lock().unwrap();
        assert_eq!(known.size(), at_once.get(&mark).unwrap().size());
    }
}

#[test]
fn cache_does_not_retain_request_buffers() {
    let (tenant, chains) = (Tenant::from("acme"), ChainCache::new(16 << 20));
    let turns = [
        json!({"role": "user", "content": "Question"}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "So.", "signature": "c2lnbmF0dXJl"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "the door"}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "text", "text": "It is open."},
                {"type": "odd", "of": "something else"},
                {"type": "image", "source":
                    {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
            {"type": "image", "source":
                {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]}),
    ];
    let bodies: Vec<Bytes> = [1, 3]
        .map(|length| {
            let call = call_of(&turns[..length], "Be brief.");
            chains.of(&call, &tenant, None);
            call.source.unwrap().request.body.clone()
        })
        .into();
    assert_eq!(chains.0.lock().unwrap().len(), 1);
    assert!(bodies.iter().all(Bytes::is_unique));
}

/// Returns, for each request, the number of its cached Items; `None` if the request is not cached.
fn remembered(chains: &ChainCache, calls: &[&Call]) -> Vec<Option<usize>> {
    let recent = chains.0.lock().unwrap();
    let items = calls.iter().map(|call| {
        let mark = *fingerprints(call, &Tenant::from("acme"), None).last().unwrap();
        recent.get(&mark).map(|known| known.items.len())
    });
    items.collect()
}

#[test]
fn uncacheable_request_leaves_its_prefix_cached() {
    let (tenant, chains) = (Tenant::from("acme"), ChainCache::new(16 << 20));
    let question = json!({"role": "user", "content": "Question"});
    let first = call_of(std::slice::from_ref(&question), "");
    chains.of(&first, &tenant, None);
    // One request ends with a model turn; the other contains an unknown Item.
    let reply = json!({"role": "assistant", "content": "So"});
    let odd = json!({"role": "user", "content": [{"type": "odd", "of": "something"}]});
    for next in [reply, odd] {
        let call = call_of(&[question.clone(), next], "");
        assert_same(&chains.of(&call, &tenant, None), &Chain::of(&call, &tenant, None), &first);
        assert_eq!(remembered(&chains, &[&first]), [Some(1)]);
        assert_eq!(chains.0.lock().unwrap().len(), 1);
    }
}

#[test]
fn fingerprint_collision_leaves_the_entry_cached() {
    let (tenant, chains) = (Tenant::from("acme"), ChainCache::new(16 << 20));
    let text = |word: &str| format!("{} {word} {}", "a".repeat(40), "b".repeat(40));
    let user_message = |word: &str| json!({"role": "user", "content": text(word)});
    let first = call_of(&[user_message("one")], "");
    let other = call_of(&[user_message("two"), user_message("Go on.")], "");
    chains.of(&first, &tenant, None);
    chains.of(&other, &tenant, None);
    assert_eq!(remembered(&chains, &[&first, &other]), [Some(1), Some(2)]);
}

#[test]
fn entry_size_counts_all_caller_controlled_data() {
    let tenant = Tenant::from("acme");
    let long = "x".repeat(1 << 20);
    let named = [
        json!({"role": "user", "content": "Question"}),
        json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": long, "name": "look", "input": {}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": long, "content": []}]}),
    ];
    let many: Vec<Value> = (0..20_000).map(|_| json!({"type": "text"})).collect();
    let many = [json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": many}]})];
    let short = [json!({"role": "user", "content": "Question"})];
    let cases = [
        (call_of(&named, ""), None, long.len()),
        (call_of(&many, ""), None, 20_000 * size_of::<Part>()),
        (call_of(&short, ""), Some(&*long), long.len()),
    ];
    for (call, end_user, held) in cases {
        let chains = ChainCache::new(16 << 20);
        chains.of(&call, &tenant, end_user);
        let mark = *fingerprints(&call, &tenant, end_user).last().unwrap();
        assert!(chains.0.lock().unwrap().get(&mark).unwrap().size() > held);
    }
}
