//! Tests the Converse rules on Converse requests. The Claude rules themselves are tested on
//! Anthropic's wire.

use serde_json::{Value, json};

use crate::claude::claude_tests::AuditFixture;
use crate::rule_checks::check_examples;
use crate::{BedrockConverse, RepairLevel, Verdict};

const SONNET: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const OPUS: &str = "us.anthropic.claude-opus-4-6-v1";
const NOVA: &str = "us.amazon.nova-2-lite-v1:0";
const SIGNATURE: &str = "EqQBCkYIBRgCKkB4n2VtcGxlU2lnbmF0dXJl";
const OTHER: &str = "EsYBCkYIBRgCKkBzZWNvbmRTaWduYXR1cmUh";

fn bench(model: &str, body: &Value) -> AuditFixture {
    AuditFixture::new(&BedrockConverse, "bedrock", model, &body.to_string())
}

fn user(blocks: &[Value]) -> Value {
    json!({"role": "user", "content": blocks})
}

fn assistant(blocks: &[Value]) -> Value {
    json!({"role": "assistant", "content": blocks})
}

fn text(text: &str) -> Value {
    json!({"text": text})
}

fn thought(text: &str, signature: &str) -> Value {
    json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
}

fn call(id: &str) -> Value {
    json!({"toolUse": {"toolUseId": id, "name": "weather", "input": {}}})
}

fn result(id: &str) -> Value {
    json!({"toolResult": {"toolUseId": id, "content": [{"text": "rain"}]}})
}

fn body(fields: &Value, messages: &[Value]) -> Value {
    json!({"inferenceConfig": {"maxTokens": 4096}, "additionalModelRequestFields": fields, "messages": messages})
}

fn manual() -> Value {
    json!({"thinking": {"type": "enabled", "budget_tokens": 2048}})
}

fn adaptive() -> Value {
    json!({"thinking": {"type": "adaptive"}})
}

fn repaired(bench: &AuditFixture) -> Value {
    let repaired = bench.repair(RepairLevel::Refused);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept, "{:?}", bench.lines());
    serde_json::from_slice(&repaired.request.body).unwrap()
}

#[test]
fn every_example_breaks_its_own_rule_and_is_repaired() {
    check_examples(&BedrockConverse);
}

#[test]
fn complete_requests_are_accepted() {
    let redacted = json!({"reasoningContent": {"redactedContent": OTHER}});
    let begun = assistant(&[thought("Hm.", SIGNATURE), redacted, call("a")]);
    let loops = [user(&[text("Go.")]), begun, user(&[result("a")])];
    for model in [SONNET, OPUS, "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"] {
        assert!(bench(model, &body(&manual(), &loops)).lines().is_empty(), "{model}");
    }
    let empty = [
        user(&[text("Go.")]),
        assistant(&[thought("", SIGNATURE), text("Done.")]),
        user(&[text("On.")]),
    ];
    assert!(
        bench("us.anthropic.claude-opus-4-7-v1", &body(&adaptive(), &empty)).lines().is_empty()
    );
}

#[test]
fn families_without_signatures_receive_unsigned_reasoning() {
    let unsigned = json!({"reasoningContent": {"reasoningText": {"text": "Hm."}}});
    let messages =
        [user(&[text("Go.")]), assistant(&[unsigned, text("Done.")]), user(&[text("On.")])];
    let request = body(&json!({}), &messages);
    for model in [NOVA, "us.deepseek.r1-v1:0"] {
        assert!(bench(model, &request).lines().is_empty(), "{model}");
    }
    let claude = bench(SONNET, &request);
    assert_eq!(claude.lines(), ["refuse signature-missing messages.1.content.0"]);
    let error = claude.audit().findings.remove(0).provider_error.unwrap();
    assert_eq!(
        error,
        "The model returned the following errors: messages.1.content.0.thinking.signature: Field required"
    );
    assert_eq!(repaired(&claude)["messages"][1], assistant(&[text("Done.")]));
}

#[test]
fn empty_signature_is_rejected_for_every_family() {
    let messages = [
        user(&[text("Go.")]),
        assistant(&[thought("Hm.", ""), text("Done.")]),
        user(&[text("On.")]),
    ];
    let request = body(&json!({}), &messages);
    let place = "messages.1.content.0";
    assert_eq!(bench(SONNET, &request).lines(), [format!("refuse signature-invalid {place}")]);
    let nova = bench(NOVA, &request);
    assert_eq!(nova.lines(), [format!("refuse empty-signature {place}")]);
    let unsigned = json!({"reasoningContent": {"reasoningText": {"text": "Hm."}}});
    assert_eq!(repaired(&nova)["messages"][1]["content"][0], unsigned);
}

#[test]
fn blank_texts_are_rejected_for_every_model() {
    let messages =
        [user(&[text("Go.")]), assistant(&[text(" \n"), call("a")]), user(&[result("a")])];
    for model in [SONNET, NOVA, "some.model"] {
        let bench = bench(model, &body(&json!({}), &messages));
        assert_eq!(bench.lines(), ["refuse blank-text messages.1.content.0"], "{model}");
        assert_eq!(repaired(&bench)["messages"][1], assistant(&[call("a")]));
    }
}

#[test]
fn results_of_one_turn_must_be_in_one_message() {
    let calls = assistant(&[call("a"), call("b")]);
    let split = [user(&[text("Go.")]), calls.clone(), user(&[result("a")]), user(&[result("b")])];
    let split = bench(SONNET, &body(&json!({}), &split));
    assert_eq!(
        split.lines(),
        [
            "refuse tool-call-unanswered messages.1.content.1",
            "refuse tool-call-unanswered messages.3.content.0"
        ]
    );
    let together = [user(&[text("Go.")]), calls, user(&[result("a"), result("b")])];
    assert!(bench(SONNET, &body(&json!({}), &together)).lines().is_empty());
}

#[test]
fn removing_a_message_keeps_speakers_alternating() {
    let messages = [user(&[text("Go.")]), assistant(&[call("a")]), user(&[text("On.")])];
    let unanswered = bench(SONNET, &body(&json!({}), &messages));
    assert_eq!(repaired(&unanswered)["messages"], json!([user(&[text("Go."), text("On.")])]));
}

#[test]
fn bedrock_is_stricter_with_forced_tools() {
    let tools = json!({"tools": [{"toolSpec": {"name": "w", "inputSchema": {"json": {}}}}], "toolChoice": {"any": {}}});
    let mut request = body(&adaptive(), &[user(&[text("Go.")])]);
    request["toolConfig"] = tools;
    let rule = "refuse forced-tool-choice toolConfig.toolChoice";
    let refused = bench(OPUS, &request);
    assert_eq!(refused.lines(), [rule]);
    assert_eq!(repaired(&refused)["toolConfig"]["toolChoice"], json!({"auto": {}}));
    assert!(bench("us.anthropic.claude-opus-4-8-v1", &request).lines().is_empty());
}

#[test]
fn tool_choice_is_not_part_of_the_prefix() {
    let model = "us.anthropic.claude-fable-5-1-v1:0";
    let fields = json!({"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}});
    let request = |description: &str, choice: Value, messages: &[Value]| {
        let tool = json!({"toolSpec": {"name": "w", "description": description, "inputSchema": {"json": {}}}});
        let mut request = body(&fields, messages);
        request["toolConfig"] = json!({"tools": [tool], "toolChoice": choice});
        request
    };
    let first_request = request("Weather", json!({"auto": {}}), &[user(&[text("Go.")])]);
    let reply = assistant(&[thought("Hm.", SIGNATURE), text("Rain.")]);
    let answer = json!({"output": {"message": reply}, "stopReason": "end_turn"});
    let messages = [user(&[text("Go.")]), reply, user(&[text("On.")])];
    let after = |request: Value| {
        bench(model, &request).after(&[&first_request.to_string(), &answer.to_string()])
    };
    assert!(after(request("Weather", json!({}), &messages)).lines().is_empty());
    let changed = after(request("Forecast", json!({"auto": {}}), &messages));
    assert_eq!(changed.lines(), ["refuse prefix-changed messages.1.content.0"]);
    let message = changed.audit().findings.remove(0).message;
    assert_eq!(message, "`toolConfig.tools.0` changed after this block was issued");
    assert_eq!(repaired(&changed)["messages"][1], assistant(&[text("Rain.")]));
}

#[test]
fn changed_thought_is_restored_as_issued() {
    let issued = [thought("First.", SIGNATURE), thought("Second.", OTHER), call("a")];
    let first_request = body(&adaptive(), &[user(&[text("Go.")])]);
    let answer = json!({"output": {"message": assistant(&issued)}, "stopReason": "tool_use"});
    let [first, second, own_call] = issued.clone();
    let cases = [
        (
            vec![thought("First!", SIGNATURE), second.clone(), own_call.clone()],
            "thinking-modified messages.1.content.0",
        ),
        (
            vec![second.clone(), first.clone(), own_call.clone()],
            "thinking-modified messages.1.content.1",
        ),
        (
            vec![first.clone(), thought("Second.", &OTHER[..32]), own_call.clone()],
            "signature-invalid messages.1.content.1",
        ),
        (vec![first.clone(), first, second, own_call], "thinking-modified messages.1.content.1"),
    ];
    for (content, rule) in cases {
        let messages = [user(&[text("Go.")]), assistant(&content), user(&[result("a")])];
        let changed = bench(OPUS, &body(&adaptive(), &messages))
            .after(&[&first_request.to_string(), &answer.to_string()]);
        assert_eq!(changed.lines(), [format!("refuse {rule}")]);
        assert_eq!(repaired(&changed)["messages"][1], assistant(&issued));
    }
}
