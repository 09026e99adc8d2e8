//! The rule book against recorded traffic: what providers accepted is never refused, what they refused is foreseen, and what
//! is spoiled in it is found.
//!
//! The recordings are not part of the project; where they are absent the tests say so and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;

use common::recorded::{exchanges, key, prior_of, recorded_request, report};
use common::{codec_of, request, target};
use throughline_codec::{Audit, Prior, Reach, Severity, Transcript, Verdict, audit, repair};
use throughline_core::{Request, Target};
use throughline_testkit::{Exchange, figure, recordings, skip};

fn looked(sent: &Request, exchange: &Exchange, to: &Target, prior: &Prior) -> Audit {
    let codec = codec_of(&exchange.wire);
    audit(&Transcript::of(codec, sent).after(prior), to).unwrap()
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
        for prior in [Prior::new(), prior_of(recording, index)] {
            let sent =
                request(&exchange.path, if prior.is_empty() { &exchange.request } else { &sent });
            let audit = looked(&sent, exchange, &to, &prior);
            let knows = if prior.is_empty() { "alone" } else { "with prior" };
            wrong.extend(
                refusals(&audit)
                    .into_iter()
                    .map(|said| format!("{} #{index} {knows}: {said}", recording.name)),
            );
            for finding in
                audit.findings.iter().filter(|finding| finding.severity == Severity::Degrade)
            {
                *degraded.entry(format!("{} {knows}", finding.rule.id)).or_default() += 1;
            }
            // What is accepted is not touched.
            let codec = codec_of(&exchange.wire);
            let mended =
                repair(&Transcript::of(codec, &sent).after(&prior), &to, Reach::Refused).unwrap();
            assert_eq!(mended.request.body, sent.body, "{} #{index}", recording.name);
        }
        *counts.entry(key(exchange)).or_default() += 1;
    }
    report("accepted and not refused", &counts);
    report("degrade findings", &degraded);
    assert!(wrong.is_empty(), "{} false refusals:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn recordings_refused_requests_are_foreseen() {
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
            for prior in [Prior::new(), prior_of(recording, *index)] {
                let audit = looked(&sent, exchange, &to, &prior);
                let found: Vec<&str> = audit
                    .findings
                    .iter()
                    .filter(|f| f.severity == Severity::Refuse)
                    .map(|f| f.rule.id)
                    .collect();
                assert_eq!(found, [*rule], "{}", recording.name);
                let codec = codec_of(&exchange.wire);
                let mended =
                    repair(&Transcript::of(codec, &sent).after(&prior), &to, Reach::Refused)
                        .unwrap();
                assert_ne!(mended.audit.verdict(), Verdict::Refuse, "{}", recording.name);
            }
            foreseen += 1;
        }
    }
    figure("refused and foreseen", foreseen);
    assert_eq!(foreseen, 5);
}
