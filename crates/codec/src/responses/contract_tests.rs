//! Tests which requests the Responses rules flag and which they accept.

use throughline_core::ReasoningFormat;

use crate::Severity::{Degrade, Note, Refuse};
use crate::rule_checks::{audit_body, check_examples, prior, request, target, violated_rules};
use crate::{
    Catalog, OpenAiResponses, PriorExchanges, RepairLevel, Severity, Transcript, Verdict, repair,
};

const ASKED: &str = r#"{"model":"gpt-5","input":[{"role":"user","content":"Weather?"}]}"#;
const ANSWERED: &str = r#"{"id":"resp_1","object":"response","model":"gpt-5","status":"completed","output":[
    {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABoxC3jL8rE"},
    {"type":"function_call","id":"fc_1","call_id":"call_1","name":"weather","arguments":"{}","status":"completed"},
    {"type":"function_call","id":"fc_2","call_id":"call_2","name":"weather","arguments":"{}","status":"completed"}]}"#;

const REASONING: &str =
    r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAABoxC3jL8rE"}"#;
const CALL: &str =
    r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"weather","arguments":"{}"}"#;
const SECOND: &str =
    r#"{"type":"function_call","id":"fc_2","call_id":"call_2","name":"weather","arguments":"{}"}"#;
const OUTPUTS: &str = r#"{"type":"function_call_output","call_id":"call_1","output":"sun"},
    {"type":"function_call_output","call_id":"call_2","output":"rain"}"#;

fn input(elements: &[&str]) -> String {
    format!(
        r#"{{"model":"gpt-5","input":[{{"role":"user","content":"Weather?"}},{}]}}"#,
        elements.join(",")
    )
}

fn unstored(body: &str) -> String {
    body.replacen('{', r#"{"store":false,"#, 1)
}

fn without_ids(body: &str) -> String {
    ["rs_1", "fc_1", "fc_2"]
        .iter()
        .fold(body.to_owned(), |body, id| body.replace(&format!(r#""id":"{id}","#), ""))
}

/// Returns the findings for a request to an OpenAI model after the earlier exchanges in
/// `documents`.
fn found(model: &str, documents: &[&str], body: &str) -> Vec<(&'static str, Severity)> {
    let to = target("openai", model);
    violated_rules(&audit_body(
        &OpenAiResponses,
        &to,
        &prior(&OpenAiResponses, &to, documents),
        body,
    ))
}

/// Repairs the request and checks that the repaired request has no findings.
fn repair_body(documents: &[&str], body: &str) -> String {
    let to = target("openai", "gpt-5");
    let request = request(&OpenAiResponses, &to, body);
    let before = prior(&OpenAiResponses, &to, documents);
    let transcript = Transcript::new(&OpenAiResponses, &request).with_prior(&before);
    let repaired = repair(&transcript, &to, RepairLevel::Refused).unwrap();
    assert_ne!(repaired.audit.verdict(), Verdict::Refuse, "{repaired:#?}");
    String::from_utf8(repaired.request.body.to_vec()).unwrap()
}

#[test]
fn each_rule_finds_its_example_and_accepts_the_fixed_one() {
    check_examples(&OpenAiResponses);
}

#[test]
fn unchanged_replay_is_accepted() {
    let replayed = input(&[REASONING, CALL, SECOND, OUTPUTS]);
    let by_id = replayed.replace(r#","encrypted_content":"gAAAAABoxC3jL8rE""#, "");
    for body in [&replayed, &by_id, &unstored(&replayed), &unstored(&without_ids(&replayed))] {
        assert_eq!(found("gpt-5", &[], body), [], "{body}");
        if body != &unstored(&replayed) {
            assert_eq!(found("gpt-5", &[ASKED, ANSWERED], body), [], "{body}");
        }
    }
}

#[test]
fn class_j_broken_pairs_are_found_from_either_side() {
    let behind = [("openai/reasoning-without-following-item", Refuse)];
    let before = [("openai/item-without-its-reasoning", Refuse)];
    let plain = r#"{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{}"}"#;
    for (elements, alone, known) in [
        (&[REASONING, plain, SECOND, OUTPUTS][..], &behind[..], &behind[..]),
        (&[CALL, SECOND, OUTPUTS], &[], &before),
        (&[REASONING], &behind, &behind),
    ] {
        let body = input(elements);
        assert_eq!(found("gpt-5", &[], &body), alone, "{body}");
        assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &body), known, "{body}");
        let body = unstored(&body);
        assert!(found("gpt-5", &[], &body).iter().all(|(_, grave)| *grave < Refuse), "{body}");
    }
    let healed = repair_body(&[ASKED, ANSWERED], &input(&[REASONING, plain, SECOND, OUTPUTS]));
    assert!(healed.contains("fc_1") && healed.contains("rs_1"), "{healed}");
}

#[test]
fn different_following_item_is_refused() {
    let body = input(&[REASONING, SECOND, CALL, OUTPUTS]);
    assert_eq!(found("gpt-5", &[], &body), []);
    let expected = [("openai/reasoning-without-following-item", Refuse)];
    assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &body), expected);
}

#[test]
fn reasoning_may_be_between_paired_items() {
    let second = REASONING.replace("rs_1", "rs_0");
    assert_eq!(found("gpt-5", &[], &input(&[&second, REASONING, CALL, SECOND, OUTPUTS])), []);
}

#[test]
fn class_d_split_pair_is_repaired_by_removing_ids() {
    let body =
        input(&[SECOND, r#"{"type":"function_call_output","call_id":"call_2","output":"rain"}"#]);
    let expected = [("openai/item-without-its-reasoning", Refuse)];
    assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &body), expected);
    let healed = repair_body(&[ASKED, ANSWERED], &body);
    assert!(!healed.contains("fc_2") && healed.contains("call_2"), "{healed}");
}

#[test]
fn clones_do_not_pair_items() {
    let body = input(&[REASONING, r#"{"role":"assistant","content":"Sunny."}"#]);
    for (provider, model) in [("xai", "grok-4.3"), ("deepseek-responses", "deepseek-v4-flash")] {
        let to = target(provider, model);
        let audit = audit_body(&OpenAiResponses, &to, &PriorExchanges::new(), &body);
        assert_eq!(violated_rules(&audit), [], "{provider}");
    }
}

#[test]
fn class_c_foreign_encrypted_content_is_invalid() {
    let body = input(&[REASONING, CALL, SECOND, OUTPUTS]);
    let ours = target("openai", "gpt-5");
    let before = prior(&OpenAiResponses, &ours, &[ASKED, ANSWERED]);
    let other = Catalog::builtin().target_for("openai", "gpt-5", "other").unwrap();
    for to in [target("azure", "gpt-5"), other] {
        let audit = audit_body(&OpenAiResponses, &to, &before, &body);
        assert_eq!(violated_rules(&audit), [("openai/encrypted-content-invalid", Refuse)]);
        let request = request(&OpenAiResponses, &to, &body);
        let transcript = Transcript::new(&OpenAiResponses, &request).with_prior(&before);
        let repaired = repair(&transcript, &to, RepairLevel::Refused).unwrap();
        let text = String::from_utf8(repaired.request.body.to_vec()).unwrap();
        assert!(!text.contains("rs_1") && !text.contains("fc_1"), "{text}");
        assert_ne!(repaired.audit.verdict(), Verdict::Refuse);
    }
}

#[test]
fn class_b_changed_encrypted_content_is_invalid() {
    let replayed = unstored(&without_ids(&input(&[REASONING, CALL, SECOND, OUTPUTS])));
    let invalid = [("openai/encrypted-content-invalid", Refuse)];
    for changed in ["gAAAAABoxC3j", "gAAAAABoxC3jL8rF", ""] {
        let body = replayed.replace("gAAAAABoxC3jL8rE", changed);
        assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &body), invalid, "{changed}");
        assert!(repair_body(&[ASKED, ANSWERED], &body).contains("call_1"));
    }
    let scrubbed = replayed.replace("gAAAAABoxC3jL8rE", "<redacted>");
    assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &scrubbed), invalid);
    let empty = replayed.replace("gAAAAABoxC3jL8rE", "");
    assert_eq!(found("gpt-5", &[], &empty), invalid);
    assert_eq!(found("mystery", &[], &empty), []);
}

#[test]
fn alphabet_of_encrypted_content_is_not_checked() {
    let replayed = unstored(&without_ids(&input(&[REASONING, CALL, SECOND, OUTPUTS])));
    for odd in ["<redacted>", "xai:v2!~ é", "a"] {
        let body = replayed.replace("gAAAAABoxC3jL8rE", odd);
        assert_eq!(found("gpt-5", &[], &body), [], "{odd}");
    }
}

#[test]
fn unissued_content_is_refused_only_with_a_complete_history() {
    let unissued = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAAABzzzzz"}"#;
    let body = unstored(&input(&[unissued, r#"{"role":"assistant","content":"Hm."}"#]));
    let rule = "openai/encrypted-content-invalid";
    assert_eq!(found("gpt-5", &[ASKED], &body), [(rule, Note)]);
    let response = r#"{"id":"resp_0","object":"response","model":"gpt-5","status":"completed","output":[
        {"type":"message","id":"msg_0","role":"assistant","content":[{"type":"output_text","text":"Hm."}]}]}"#;
    assert_eq!(found("gpt-5", &[ASKED, response], &body), [(rule, Refuse)]);
    // The call after the known reasoning is missing, so the reasoning of a later, unknown response
    // follows it directly.
    let call = r#"{"type":"function_call","call_id":"call_9","name":"weather","arguments":"{}"}"#;
    let output = r#"{"type":"function_call_output","call_id":"call_9","output":"sunny"}"#;
    let asked = unstored(ASKED);
    let body = unstored(&without_ids(&input(&[REASONING, unissued, call, output])));
    assert_eq!(found("gpt-5", &[&asked, ANSWERED], &body), [(rule, Note)]);
}

#[test]
fn bare_id_resolves_only_stored_items() {
    let by_id = input(&[REASONING, CALL, SECOND, OUTPUTS])
        .replace(r#","encrypted_content":"gAAAAABoxC3jL8rE""#, "");
    let kept_nothing = unstored(ASKED);
    let rule = "openai/item-not-found";
    assert_eq!(found("gpt-5", &[&kept_nothing, ANSWERED], &by_id), [(rule, Refuse)]);
    assert!(repair_body(&[&kept_nothing, ANSWERED], &by_id).contains("gAAAAABoxC3jL8rE"));
    assert_eq!(found("gpt-5", &[], &unstored(&by_id)), [(rule, Degrade)]);
    let reference = input(&[r#"{"type":"item_reference","id":"rs_1"}"#, CALL, SECOND, OUTPUTS]);
    assert_eq!(found("gpt-5", &[&kept_nothing, ANSWERED], &reference), [(rule, Refuse)]);
    assert_eq!(found("gpt-5", &[ASKED, ANSWERED], &reference), []);
}

#[test]
fn calls_and_outputs_need_each_other_unless_stored() {
    let output = r#"{"type":"function_call_output","call_id":"call_1","output":"sun"}"#;
    let call = r#"{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{}"}"#;
    let unanswered = [("openai/tool-call-unanswered", Refuse)];
    assert_eq!(found("gpt-5", &[], &input(&[output])), unanswered);
    assert_eq!(found("gpt-5", &[], &input(&[call])), unanswered);
    assert_eq!(found("gpt-5", &[], &input(&[call, output])), []);
    assert_eq!(
        found("gpt-5", &[], &input(&[r#"{"type":"item_reference","id":"fc_1"}"#, output])),
        []
    );
    for member in [r#""previous_response_id":"resp_1","#, r#""conversation":"conv_1","#] {
        let body = input(&[output]).replacen('{', &format!("{{{member}"), 1);
        assert_eq!(found("gpt-5", &[], &body), [], "{member}");
    }
    let shell =
        r#"{"type":"local_shell_call","call_id":"c","id":"s","action":{},"status":"completed"}"#;
    assert_eq!(found("gpt-5", &[], &input(&[shell])), []);
    let healed = repair_body(&[ASKED, ANSWERED], &input(&[output]));
    assert!(healed.contains("rs_1") && healed.contains("fc_1"), "{healed}");
}

#[test]
fn unanswered_call_is_removed_with_its_reasoning() {
    let body = input(&[REASONING, CALL, r#"{"role":"user","content":"Stop."}"#]);
    let healed = repair_body(&[], &body);
    assert_eq!(healed, input(&[r#"{"role":"user","content":"Stop."}"#]));
}

#[test]
fn efforts_and_sampling_are_checked_against_the_profile() {
    let effort = [("openai/effort-not-supported", Refuse)];
    let sampling = [("openai/sampling-fixed", Refuse)];
    for (model, members, expected) in [
        ("gpt-5", r#""reasoning":{"effort":"minimal"}"#, &[][..]),
        ("gpt-5", r#""reasoning":{"effort":"none"}"#, &effort),
        ("gpt-5.2", r#""reasoning":{"effort":"minimal"}"#, &effort),
        ("gpt-4.1", r#""reasoning":{"effort":"low"}"#, &effort),
        ("mystery", r#""reasoning":{"effort":"ultra"}"#, &[]),
        ("gpt-5", r#""temperature":0.2"#, &sampling),
        ("gpt-5", r#""temperature":null"#, &[]),
        ("gpt-5", r#""temperature":1"#, &[("openai/sampling-fixed", Note)]),
        ("gpt-5.1", r#""temperature":0.2"#, &[]),
        ("gpt-5.1", r#""temperature":0.2,"reasoning":{"effort":"low"}"#, &sampling),
        ("gpt-4.1", r#""top_p":0.5"#, &[]),
    ] {
        let body = format!(r#"{{"model":"{model}","input":"Hi.",{members}}}"#);
        assert_eq!(found(model, &[], &body), expected, "{model} {members}");
    }
}

#[test]
fn class_k_members_in_another_order_miss_the_cache() {
    let before = r#"{"model":"gpt-5","input":[{"role":"user","content":"Weather?"}]}"#;
    let body = r#"{"model":"gpt-5","input":[{"content":"Weather?","role":"user"},{"role":"user","content":"Hm?"}]}"#;
    assert_eq!(found("gpt-5", &[before], body), [("openai/cache-prefix-broken", Degrade)]);
    let spaced = body.replace(
        r#"{"content":"Weather?","role":"user"}"#,
        r#"{ "role": "user", "content": "Weather?" }"#,
    );
    assert_eq!(found("gpt-5", &[before], &spaced), []);
}

#[test]
fn deepseek_accepts_reasoning_but_no_message_between_calls() {
    let to = target("deepseek-responses", "deepseek-v4-flash");
    let thought = r#"{"type":"reasoning","id":"a","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}],"encrypted_content":null}"#;
    let body = input(&[thought, CALL, thought, SECOND, OUTPUTS]);
    assert_eq!(
        violated_rules(&audit_body(&OpenAiResponses, &to, &PriorExchanges::new(), &body)),
        []
    );
    let message = r#"{"role":"assistant","content":"Hm."}"#;
    let between = audit_body(
        &OpenAiResponses,
        &to,
        &PriorExchanges::new(),
        &input(&[CALL, message, SECOND, OUTPUTS]),
    );
    assert_eq!(violated_rules(&between), [("deepseek/calls-interrupted", Refuse)]);
    assert_eq!(found("gpt-5", &[], &without_ids(&input(&[CALL, message, SECOND, OUTPUTS]))), []);
}

#[test]
fn accepted_requests_are_not_repaired() {
    let body = input(&[REASONING, CALL, SECOND, OUTPUTS]);
    assert_eq!(repair_body(&[ASKED, ANSWERED], &body), body);
    assert_eq!(repair_body(&[], &body), body);
}

#[test]
fn reasoning_is_counted() {
    let to = target("azure", "gpt-5");
    let reasoning_item = r#"{"type":"reasoning","id":"rs_9","summary":[]}"#;
    let body = input(&[reasoning_item, REASONING, CALL, SECOND, OUTPUTS]);
    let summary = audit_body(&OpenAiResponses, &to, &PriorExchanges::new(), &body).summary;
    let formats: Vec<_> = summary.formats.iter().map(ReasoningFormat::as_str).collect();
    assert_eq!((summary.item_count, summary.signed_count), (2, 1));
    assert_eq!(formats, ["azure-openai-responses-v1"]);
}
