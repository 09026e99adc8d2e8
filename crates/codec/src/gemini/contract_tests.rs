//! Tests which requests the Gemini rules flag and which they accept.

use crate::Severity::{Degrade, Note, Refuse};
use crate::rule_checks::{audit_body, check_examples, prior, request, target, violated_rules};
use crate::{Gemini, PriorExchanges, RepairLevel, Severity, Transcript, Verdict, repair};

const ASKED: &str = r#"{"contents":[{"role":"user","parts":[{"text":"Weather in Paris?"}]}]}"#;
const ANSWERED: &str = r#"{"candidates":[{"content":{"role":"model","parts":[
    {"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"Eu+KAc/xzXzr"}
]},"finishReason":"STOP"}],"responseId":"r1"}"#;

/// Builds a conversation with a function call. `signature` is JSON text that is inserted after the
/// `functionCall` member.
fn continued(signature: &str) -> String {
    format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":"Weather in Paris?"}}]}},
        {{"role":"model","parts":[{{"functionCall":{{"name":"weather","args":{{"city":"Paris"}}}}{signature}}}]}},
        {{"role":"user","parts":[{{"functionResponse":{{"name":"weather","response":{{"output":"sunny"}}}}}}]}}]}}"#
    )
}

/// Returns the findings for a request to `model` after the earlier exchanges in `documents`.
fn found(model: &str, documents: &[&str], body: &str) -> Vec<(&'static str, Severity)> {
    let to = target("gemini", model);
    violated_rules(&audit_body(&Gemini, &to, &prior(&Gemini, &to, documents), body))
}

#[test]
fn each_rule_finds_its_example_and_accepts_the_fixed_one() {
    check_examples(&Gemini);
}

#[test]
fn class_a_only_gemini_3_refuses_a_dropped_signature() {
    let body = continued("");
    let refused = [("gemini/first-call-needs-signature", Refuse)];
    assert_eq!(found("gemini-3-flash-preview", &[], &body), refused);
    assert_eq!(
        found("gemini-3-pro-preview", &[], &continued(r#","thoughtSignature":"""#)),
        refused
    );
    for model in
        ["gemini-2.5-flash", "gemini-3-pro-image-preview", "gemini-flash-latest", "mystery"]
    {
        assert_eq!(found(model, &[], &body), [], "{model}");
    }
    let lost = [("gemini/signature-dropped", Degrade)];
    assert_eq!(found("gemini-2.5-flash", &[ASKED, ANSWERED], &body), lost);
}

#[test]
fn class_b_truncated_signature_is_corrupted() {
    let cut = continued(r#","thoughtSignature":"Eu+KAc/x""#);
    let expected = [("gemini/signature-corrupted", Refuse)];
    assert_eq!(found("gemini-3-flash-preview", &[ASKED, ANSWERED], &cut), expected);
    let redacted = continued(r#","thoughtSignature":"[REDACTED]""#);
    assert_eq!(found("gemini-3-flash-preview", &[], &redacted), expected);
}

#[test]
fn class_c_a_signature_of_another_endpoint_or_account_is_corrupted() {
    let body = continued(r#","thoughtSignature":"Eu+KAc/xzXzr""#);
    let (ours, vertex) =
        (target("gemini", "gemini-3-flash-preview"), target("vertex", "gemini-3-flash-preview"));
    let before = prior(&Gemini, &ours, &[ASKED, ANSWERED]);
    let audit = audit_body(&Gemini, &vertex, &before, &body);
    assert_eq!(violated_rules(&audit), [("gemini/signature-corrupted", Refuse)]);
    let catalog = crate::Catalog::builtin();
    let other = catalog.target_for("gemini", "gemini-3-flash-preview", "other").unwrap();
    let audit = audit_body(&Gemini, &other, &before, &body);
    assert_eq!(violated_rules(&audit), [("gemini/signature-corrupted", Refuse)]);
    let request = request(&Gemini, &vertex, &body);
    let transcript = Transcript::new(&Gemini, &request).with_prior(&before);
    let repaired = repair(&transcript, &vertex, RepairLevel::Refused).unwrap();
    let text = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(text.contains("skip_thought_signature_validator"), "{text}");
    assert_eq!(repaired.audit.verdict(), Verdict::Degrade);
}

#[test]
fn class_h_parallel_calls_in_separate_contents_lack_signatures() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"Both?"}]},
        {"role":"model","parts":[{"functionCall":{"name":"a","args":{}},"thoughtSignature":"EuIKAcCxzXzr"}]},
        {"role":"model","parts":[{"functionCall":{"name":"b","args":{}}}]},
        {"role":"user","parts":[{"functionResponse":{"name":"a","response":{}}},
            {"functionResponse":{"name":"b","response":{}}}]}]}"#;
    let expected = [("gemini/first-call-needs-signature", Refuse)];
    assert_eq!(found("gemini-3-flash-preview", &[], body), expected);
    let together = body.replace(
        r#"}]},
        {"role":"model","parts":[{"functionCall":{"name":"b""#,
        r#"},{"functionCall":{"name":"b""#,
    );
    assert_eq!(found("gemini-3-flash-preview", &[], &together), []);
}

#[test]
fn only_the_current_turn_must_be_signed() {
    let later = continued("").replace(
        "]}]}",
        r#"]},{"role":"model","parts":[{"text":"Sunny."}]},{"role":"user","parts":[{"text":"Thanks."}]}]}"#,
    );
    assert_eq!(found("gemini-3-flash-preview", &[], &later), []);
    let beside = continued("").replace(r#""sunny"}}}]"#, r#""sunny"}}},{"text":"Look at that."}]"#);
    assert_eq!(found("gemini-3-flash-preview", &[], &beside), []);
}

#[test]
fn other_base64_alphabet_and_snake_case_are_equivalent() {
    for signature in
        [r#","thoughtSignature":"Eu-KAc_xzXzr""#, r#","thought_signature":"Eu+KAc/xzXzr""#]
    {
        let body = continued(signature);
        assert_eq!(found("gemini-3-flash-preview", &[ASKED, ANSWERED], &body), [], "{signature}");
    }
}

#[test]
fn stand_ins_are_accepted_plain_and_in_base64() {
    for stand_in in [
        "skip_thought_signature_validator",
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "context_engineering_is_the_way_to_go",
        "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
    ] {
        let body = continued(&format!(r#","thoughtSignature":"{stand_in}""#));
        let expected = [("gemini/stand-in-used", Degrade)];
        assert_eq!(found("gemini-3-flash-preview", &[], &body), expected, "{stand_in}");
    }
}

#[test]
fn unissued_signature_is_refused_only_with_a_complete_history() {
    let body = continued(r#","thoughtSignature":"AAAAAAAA""#);
    let only_asked = found("gemini-3-flash-preview", &[ASKED], &body);
    assert_eq!(only_asked, [("gemini/signature-corrupted", Note)]);
    let all = found("gemini-3-flash-preview", &[ASKED, ANSWERED], &body);
    assert_eq!(all, [("gemini/signature-corrupted", Refuse)]);
}

#[test]
fn levels_and_budgets_are_checked_against_the_profile() {
    let thinking = |config: &str| {
        let contents = r#"[{"role":"user","parts":[{"text":"Hi."}]}]"#;
        format!(r#"{{"contents":{contents},"generationConfig":{{"thinkingConfig":{config}}}}}"#)
    };
    let level = [("gemini/level-not-supported", Refuse)];
    let budget = [("gemini/budget-out-of-range", Refuse)];
    for (model, config, expected) in [
        ("gemini-3-pro-preview", r#"{"thinkingLevel":"low"}"#, &[][..]),
        ("gemini-3-pro-preview", r#"{"thinkingLevel":"MEDIUM"}"#, &level),
        ("gemini-3.1-pro-preview", r#"{"thinkingLevel":"MEDIUM"}"#, &[]),
        ("gemini-3.1-pro-preview", r#"{"thinkingLevel":"MINIMAL"}"#, &level),
        ("gemini-2.5-flash", r#"{"thinkingLevel":"LOW"}"#, &level),
        ("mystery", r#"{"thinkingLevel":"LOW"}"#, &[]),
        ("gemini-2.5-flash", r#"{"thinkingBudget":0}"#, &[]),
        ("gemini-2.5-flash", r#"{"thinkingBudget":-1}"#, &[]),
        ("gemini-2.5-flash", r#"{"thinking_budget":24577}"#, &budget),
        ("gemini-2.5-pro", r#"{"thinkingBudget":0,"includeThoughts":true}"#, &budget),
        ("gemini-2.5-pro", r#"{"thinkingBudget":-1}"#, &[("gemini/budget-out-of-range", Note)]),
        ("gemini-3-flash-preview", r#"{"thinkingBudget":8192}"#, &[]),
        ("gemini-2.5-flash", r#"{"thinkingBudget":8192,"includeThoughts":true}"#, &[]),
    ] {
        assert_eq!(found(model, &[], &thinking(config)), expected, "{model} {config}");
    }
}

#[test]
fn level_becomes_a_budget_for_models_with_budgets() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"Hi."}]}],"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"LOW"}}}"#;
    let to = target("gemini", "gemini-2.5-flash");
    let request = request(&Gemini, &to, body);
    let repaired = repair(&Transcript::new(&Gemini, &request), &to, RepairLevel::Refused).unwrap();
    let expected = body.replace(r#""thinkingLevel":"LOW""#, r#""thinkingBudget":2048"#);
    assert_eq!(String::from_utf8(repaired.request.body.to_vec()).unwrap(), expected);
}

#[test]
fn responses_are_counted_against_all_calls_of_a_step() {
    let contents = |parts: &str| {
        format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"Go."}}]}},{parts}]}}"#)
    };
    let call = |id: &str| format!(r#"{{"functionCall":{{"id":"{id}","name":"f","args":{{}}}}}}"#);
    let answer =
        |id: &str| format!(r#"{{"functionResponse":{{"id":"{id}","name":"f","response":{{}}}}}}"#);
    let model = |parts: String| format!(r#"{{"role":"model","parts":[{parts}]}}"#);
    let user = |parts: String| format!(r#"{{"role":"user","parts":[{parts}]}}"#);
    let unequal = [("gemini/answers-do-not-match", Refuse)];
    let (a, b) = (call("a"), call("b"));
    for (parts, expected) in [
        (format!("{},{}", model(a.clone()), user(answer("a"))), &[][..]),
        (
            format!(
                "{},{},{}",
                model(a.clone()),
                model(b.clone()),
                user(answer("a") + "," + &answer("b"))
            ),
            &[],
        ),
        (format!("{},{},{}", model(format!("{a},{b}")), user(answer("a")), user(answer("b"))), &[]),
        (
            format!(
                "{},{}",
                model(a.clone()),
                user(format!(r#"{},{{"text":"See?"}}"#, answer("a")))
            ),
            &[],
        ),
        (model(a.clone()), &[]),
        (format!("{},{}", model(format!("{a},{b}")), user(answer("b"))), &unequal),
        (format!("{},{}", model(a.clone()), user(r#"{"text":"Never mind."}"#.into())), &unequal),
        (format!("{},{}", model(r#"{"text":"Hm."}"#.into()), user(answer("a"))), &unequal),
    ] {
        assert_eq!(found("gemini-2.5-flash", &[], &contents(&parts)), expected, "{parts}");
    }
}

#[test]
fn accepted_requests_are_not_repaired() {
    let to = target("gemini", "gemini-3-flash-preview");
    let request = request(&Gemini, &to, &continued(r#","thoughtSignature":"Eu-KAc_xzXzr""#));
    let before = prior(&Gemini, &to, &[ASKED, ANSWERED]);
    for before in [&PriorExchanges::new(), &before] {
        let transcript = Transcript::new(&Gemini, &request).with_prior(before);
        assert_eq!(repair(&transcript, &to, RepairLevel::Refused).unwrap().request, request);
    }
}

#[test]
fn reasoning_is_counted() {
    let to = target("gemini", "gemini-3-flash-preview");
    let body = continued(r#","thoughtSignature":"Eu+KAc/xzXzr""#).replace(
        r#""parts":[{"functionCall""#,
        r#""parts":[{"text":"Hm.","thought":true},{"functionCall""#,
    );
    let summary = audit_body(&Gemini, &to, &PriorExchanges::new(), &body).summary;
    assert_eq!((summary.item_count, summary.signed_count), (2, 1));
}
