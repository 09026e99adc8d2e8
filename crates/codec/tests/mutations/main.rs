//! Mutates recorded requests, one property at a time. The right rule must detect each refusal, and
//! harmless changes must not be refused.
//!
//! The recordings are not part of the repository. Without them the tests print a note and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod reasons;
mod sent;
mod spoiled;
mod table;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{codec_of, request, target};
use sent::{as_prefix_bound, sent_requests};
use serde_json::{Value, json};
use spoiled::WHOLE_REQUEST;
use table::MutationTable;
use throughline_codec::{Transcript, Verdict, audit};
use throughline_testkit::{MUTATIONS, Shape, TestRng, figure, recordings, skip};

#[test]
fn recordings_mutated_requests_are_refused() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let (mut table, mut rng) = (MutationTable::default(), TestRng::new(1));
    let recorded = sent_requests(&recordings);
    for sent in &recorded {
        for spoiled in sent.spoiled(&mut rng) {
            table.judge(sent, &spoiled);
        }
    }
    for sent in &sent_requests(&as_prefix_bound(&recordings)) {
        let rules = sent.refused_by(&sent.body.to_string(), &sent.target);
        let is_of_prefix =
            |id: &str| id.ends_with("/prefix-changed") || id.ends_with("/earlier-thinking-missing");
        assert!(!rules.iter().any(|rule| is_of_prefix(rule)), "{rules:?}");
        for spoiled in sent.with_prefix_changes(&mut rng) {
            table.judge(sent, &spoiled);
        }
    }
    table.print();
    table.check(&recorded);
}

#[test]
fn recordings_harmless_changes_are_accepted() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for sent in &sent_requests(&recordings) {
        let may_drop = match sent.shape {
            Shape::Anthropic | Shape::Converse | Shape::Gemini => true,
            Shape::Responses => !sent.is_stored(),
            Shape::Chat => false,
        };
        let mut tried: Vec<(&str, String)> = vec![
            ("nothing", sent.body.to_string()),
            ("white space", serde_json::to_string_pretty(&sent.body).unwrap()),
            ("key order", turned(&sent.body).to_string()),
        ];
        for operator in MUTATIONS {
            let is_harmless = match operator.name {
                "add cache markers" => true,
                "drop earlier turns' reasoning" => may_drop,
                "drop reasoning ids" | "drop ids of followers" => sent.body["store"] == false,
                "edit system" | "edit a tool" | "edit first question" => {
                    !sent.target.profile.bound.prefix
                }
                _ => false,
            };
            let mut body = sent.body.clone();
            if is_harmless
                && operator.apply(sent.shape, &mut body, &WHOLE_REQUEST, &mut TestRng::new(1))
            {
                tried.push((operator.name, body.to_string()));
            }
        }
        for (name, body) in tried {
            let found = sent.refused_by(&body, &sent.target);
            *counts.entry(name).or_default() += 1;
            if !found.is_empty() {
                wrong.push(format!(
                    "{name}: {} {}: {found:?}",
                    sent.exchange.provider, sent.exchange.model
                ));
            }
        }
    }
    for (name, count) in counts {
        figure(&format!("harmless: {name}"), count);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reverses the member order of every object in a value.
fn turned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().rev().map(|(key, value)| (key.clone(), turned(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(turned).collect(),
        other => other.clone(),
    }
}

#[test]
fn mutated_request_is_refused_and_original_is_accepted() {
    // The test above needs recordings; this test checks the same logic without them.
    let codec = codec_of("anthropic-messages");
    let to = target("anthropic", "anthropic-messages", "claude-sonnet-4-5");
    let body = |signature: &str| {
        Bytes::from(json!({"model": "claude-sonnet-4-5", "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}, "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "I look", "signature": signature}, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"}]}
        ]}).to_string())
    };
    for (signature, verdict) in [("c2VhbC1vbmU=", Verdict::Accept), ("", Verdict::Refuse)] {
        let sent =
            throughline_core::Request { body: body(signature), ..request("/v1/messages", "") };
        assert_eq!(audit(&Transcript::new(codec, &sent), &to).unwrap().verdict(), verdict);
    }
}
