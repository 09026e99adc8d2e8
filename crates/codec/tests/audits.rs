//! Audits recorded traffic. Accepted requests must not be refused, and refused and corrupted
//! requests must be detected.
//!
//! The recordings are not part of the repository. Without them the tests print a note and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "audits/growth.rs"]
mod growth;

use std::collections::BTreeMap;

use common::recorded::{exchanges, key, prior_of, recorded_request, report};
use common::{codec_of, request, target};
use throughline_codec::{
    Audit, DecodeContext, IssuedSeals, PriorExchanges, RepairLevel, Severity, Transcript, Verdict,
    audit, repair,
};
use throughline_core::{Request, Target};
use throughline_testkit::{Exchange, figure, recordings, skip};

fn audit_request(
    sent: &Request,
    exchange: &Exchange,
    to: &Target,
    prior: &PriorExchanges,
) -> Audit {
    let codec = codec_of(&exchange.wire);
    audit(&Transcript::new(codec, sent).with_prior(prior), to).unwrap()
}

fn refusals(audit: &Audit) -> Vec<String> {
    let found = audit.findings.iter().filter(|finding| finding.severity == Severity::Refuse);
    found
        .map(|finding| format!("{} at {}: {}", finding.rule.id, finding.path, finding.message))
        .collect()
}

#[test]
fn recordings_accepted_requests_are_not_refused() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut degraded: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (recording, index, exchange) in exchanges(&recordings) {
        if exchange.status != 200 {
            continue;
        }
        let sent = recorded_request(recording, index);
        let to = target(&exchange.provider, &exchange.wire, &exchange.model);
        for prior in [PriorExchanges::new(), prior_of(recording, index)] {
            let sent =
                request(&exchange.path, if prior.is_empty() { &exchange.request } else { &sent });
            let audit = audit_request(&sent, exchange, &to, &prior);
            let knows = if prior.is_empty() { "alone" } else { "with prior" };
            wrong.extend(
                refusals(&audit)
                    .into_iter()
                    .map(|refusal| format!("{} #{index} {knows}: {refusal}", recording.name)),
            );
            for finding in
                audit.findings.iter().filter(|finding| finding.severity == Severity::Degrade)
            {
                *degraded.entry(format!("{} {knows}", finding.rule.id)).or_default() += 1;
            }
            // Repair must leave accepted requests unchanged.
            let codec = codec_of(&exchange.wire);
            let repaired = repair(
                &Transcript::new(codec, &sent).with_prior(&prior),
                &to,
                RepairLevel::Refused,
            )
            .unwrap();
            assert_eq!(repaired.request.body, sent.body, "{} #{index}", recording.name);
        }
        *counts.entry(key(exchange)).or_default() += 1;
    }
    report("accepted and not refused", &counts);
    report("degrade findings", &degraded);
    assert!(wrong.is_empty(), "{} false refusals:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn recordings_refused_requests_are_predicted() {
    let Some(recordings) = recordings() else { return skip("no recordings beside the project") };
    let expected = [
        ("explicit_effort_xhigh", "anthropic/effort-not-supported"),
        ("rejects_interleaved_function_calls", "deepseek/calls-interrupted"),
        ("thinking_with_modified_history", "openai/reasoning-without-following-item"),
        ("forced_tool_choice_under_thinking", "deepseek/forced-tool-choice"),
    ];
    let mut foreseen = 0;
    for recording in recordings.iter().filter(|recording| recording.folder == "refusals") {
        let (_, rule) = expected.iter().find(|(name, _)| recording.name.contains(name)).unwrap();
        for index in &recording.refused {
            let exchange = &recording.exchanges[*index];
            let to = target(&exchange.provider, &exchange.wire, &exchange.model);
            let sent = request(&exchange.path, &exchange.request);
            for prior in [PriorExchanges::new(), prior_of(recording, *index)] {
                let audit = audit_request(&sent, exchange, &to, &prior);
                let found: Vec<&str> = audit
                    .findings
                    .iter()
                    .filter(|f| f.severity == Severity::Refuse)
                    .map(|f| f.rule.id)
                    .collect();
                assert_eq!(found, [*rule], "{}", recording.name);
                let codec = codec_of(&exchange.wire);
                let repaired = repair(
                    &Transcript::new(codec, &sent).with_prior(&prior),
                    &to,
                    RepairLevel::Refused,
                )
                .unwrap();
                assert_ne!(repaired.audit.verdict(), Verdict::Refuse, "{}", recording.name);
            }
            foreseen += 1;
        }
    }
    figure("refused and foreseen", foreseen);
    assert_eq!(foreseen, 5);
}

/// One sealed response per wire, and the request that replays the response. `SEAL` is replaced with
/// the Seal under test.
const SEALED: [(&str, &str, &str, &str, &str); 5] = [
    (
        "anthropic",
        "anthropic-messages",
        "claude-sonnet-4-5",
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","stop_reason":"end_turn","content":[{"type":"thinking","thinking":"Hm.","signature":SEAL},{"type":"text","text":"Hello"}],"usage":{"input_tokens":1,"output_tokens":1}}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":SEAL},{"type":"text","text":"Hello"}]},{"role":"user","content":"More"}]}"#,
    ),
    (
        "openai",
        "openai-responses",
        "gpt-5.2",
        r#"{"id":"resp_1","object":"response","model":"gpt-5.2","status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":SEAL},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}]}"#,
        r#"{"model":"gpt-5.2","store":false,"input":[{"role":"user","content":"Hi"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":SEAL},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Hello"}]},{"role":"user","content":"More"}]}"#,
    ),
    (
        "gemini",
        "gemini",
        "gemini-3-pro-preview",
        r#"{"responseId":"r1","modelVersion":"gemini-3-pro-preview","candidates":[{"finishReason":"STOP","content":{"role":"model","parts":[{"functionCall":{"name":"now","args":{}},"thoughtSignature":SEAL}]}}]}"#,
        r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]},{"role":"model","parts":[{"functionCall":{"name":"now","args":{}},"thoughtSignature":SEAL}]},{"role":"user","parts":[{"functionResponse":{"name":"now","response":{"output":"noon"}}}]}]}"#,
    ),
    (
        "openrouter",
        "openai-chat",
        "anthropic/claude-sonnet-4.5",
        r#"{"id":"gen-1","object":"chat.completion","model":"anthropic/claude-sonnet-4.5","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.","signature":SEAL,"format":"anthropic-claude-v1","index":0}]}}]}"#,
        r#"{"model":"anthropic/claude-sonnet-4.5","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.","signature":SEAL,"format":"anthropic-claude-v1","index":0}]},{"role":"user","content":"More"}]}"#,
    ),
    (
        "bedrock",
        "bedrock-converse",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        r#"{"output":{"message":{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"Hm.","signature":SEAL}}},{"text":"Hello"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}"#,
        r#"{"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":1024}},"messages":[{"role":"user","content":[{"text":"Hi"}]},{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"Hm.","signature":SEAL}}},{"text":"Hello"}]},{"role":"user","content":[{"text":"More"}]}]}"#,
    ),
];

/// A store of issued Seals that contains the Seals of these Items.
struct KnownSeals(Vec<throughline_core::Item>);

impl IssuedSeals for KnownSeals {
    fn contains(&self, seal: &[u8]) -> bool {
        let mut seals = self.0.iter().flat_map(|item| &item.seals);
        seals.any(|issued| **issued.reveal_to_tenant() == *seal)
    }
}

/// Audit and repair must not change an issued Seal, whatever its characters, if the Seal store or
/// an earlier exchange contains the Seal.
#[test]
fn issued_seals_survive_audit_and_repair() {
    let letters: Vec<char> = "aZ09+/-_= ~!:;,.<>[]{}é€\u{1F512}g".chars().collect();
    let mut rng = throughline_testkit::TestRng::new(7);
    for case in 0..throughline_testkit::cases(120) {
        let length = 1 + rng.below(40);
        let seal: String = (0..length).map(|_| letters[rng.below(letters.len())]).collect();
        let written = throughline_json::string(&seal);
        for (provider, wire, model, answer, body) in SEALED {
            let (codec, to) = (codec_of(wire), target(provider, wire, model));
            let body = body.replace("SEAL", written.as_str());
            let sent = request("", &body);
            let context = DecodeContext::of(to.clone());
            let answer = bytes::Bytes::from(answer.replace("SEAL", written.as_str()));
            let reply = codec.decode_reply(&answer, &context).unwrap();
            let issued = KnownSeals(reply.items);
            let mut prior = PriorExchanges::new();
            prior.push_response(codec, &answer, context).unwrap();
            let by_store = Transcript { issued: Some(&issued), ..Transcript::new(codec, &sent) };
            for transcript in [by_store, Transcript::new(codec, &sent).with_prior(&prior)] {
                let repaired = repair(&transcript, &to, RepairLevel::Degraded).unwrap();
                let now = String::from_utf8_lossy(&repaired.request.body);
                assert!(
                    now.contains(written.as_str()),
                    "case {case}, {wire}: {body}\n{now}\n{:#?}",
                    repaired.fixes
                );
            }
        }
    }
}
