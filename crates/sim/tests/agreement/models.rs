//! Tests the contract of each recent model: the audit and the simulator accept an intact tool loop,
//! reject each violation with the same rule, and the simulator accepts the repaired request.

use serde_json::{Value, json};
use throughline_codec::{RepairLevel, Severity, Verdict};
use throughline_sim::{Options, start};

use crate::doctor::{Conversation, PriorScope};
use crate::setups::SETUPS;

/// A change that breaks a contract, and the rule that reports the change.
struct Violation {
    /// The name of the setup.
    setup: &'static str,
    breaks: fn(&mut Value),
    rule: &'static str,
}

macro_rules! violations {
    ($($setup:literal $breaks:expr => $rule:literal;)*) => {
        &[$(Violation { setup: $setup, breaks: $breaks, rule: $rule }),*]
    };
}

const VIOLATIONS: &[Violation] = violations! {
    "Fable 5.2" edit_system => "anthropic/prefix-changed";
    "Fable 5.2" drop_first_thought => "anthropic/earlier-thinking-missing";
    "Fable 5.2" force_tool => "anthropic/forced-tool-choice";
    "Fable 5.2" add_system_message => "anthropic/system-message-order";
    "Fable 5.2, old account" edit_system => "anthropic/prefix-changed";
    "Mythos 5.1" edit_system => "anthropic/prefix-changed";
    "Mythos 5.2" edit_system => "anthropic/prefix-changed";
    "Mythos 5.2" force_tool => "anthropic/forced-tool-choice";
    "Opus 5.5" edit_system => "anthropic/prefix-changed";
    "Opus 5.5" empty_thought => "anthropic/thinking-empty";
    "Sonnet 5.5" edit_system => "anthropic/prefix-changed";
    "Haiku 5.5" edit_system => "anthropic/prefix-changed";
    "Haiku 5.5" drop_first_thought => "anthropic/earlier-thinking-missing";
    "Sonnet 5.5, between_tools" change_effort => "anthropic/between-tools-effort";
    "Sonnet 5.5, between_tools" |next| next["output_config"] = json!({"effort": "xhigh"})
        => "anthropic/mode-not-supported";
    "Opus 5 after a fallback" drop_fallback => "anthropic/fallback-moved";
    "Opus 5 after a fallback" move_fallback => "anthropic/fallback-moved";
    "Foundry Fable 5.2" edit_system => "anthropic/prefix-changed";
    "Mantle Opus 5.5" edit_system => "anthropic/prefix-changed";
    "Bedrock Fable 5.2" |next| next["system"] = json!([{"text": "Be long-winded."}])
        => "bedrock/prefix-changed";
    "Bedrock Fable 5.2" drop_first_thought => "bedrock/earlier-thinking-missing";
    "OpenAI stored, gpt-6" set_temperature => "openai/sampling-fixed";
    "OpenAI stored, gpt-6" |next| next["reasoning"]["effort"] = json!("minimal")
        => "openai/effort-not-supported";
    "OpenAI stateless, gpt-6-astra" |next| next["reasoning"]["effort"] = json!("none")
        => "openai/effort-not-supported";
    "OpenAI stateless, gpt-6.1-sol" |next| next["reasoning"]["effort"] = json!("minimal")
        => "openai/effort-not-supported";
    "OpenAI chat, gpt-6 without reasoning" |next| next["reasoning_effort"] = json!("medium")
        => "openai-chat/tools-need-responses";
    "OpenAI chat, gpt-6 without reasoning" |next| {
        next.as_object_mut().unwrap().remove("reasoning_effort");
    } => "openai-chat/tools-need-responses";
    "Gemini 4" drop_signature => "gemini/first-call-needs-signature";
    "Gemini 4" |next| {
        next["generationConfig"]["thinkingConfig"]["thinkingLevel"] = json!("MINIMAL");
    } => "gemini/level-not-supported";
    "DeepSeek Flash" drop_reasoning_content => "deepseek/reasoning-content-missing";
    "DeepSeek Flash" |next| next["tool_choice"] = json!("required")
        => "deepseek/forced-tool-choice";
    "Kimi K3" drop_reasoning_content => "kimi/reasoning-content-missing";
    "Kimi K3" set_temperature => "openai-chat/sampling-fixed";
    "Mistral Medium 3.5" |next| {
        assistant(next)["reasoning_content"] = json!("Let me think.");
    } => "mistral/reasoning-content-forbidden";
};

fn edit_system(next: &mut Value) {
    next["system"] = json!("Be long-winded.");
}

fn force_tool(next: &mut Value) {
    next["tool_choice"] = json!({"type": "any"});
}

fn set_temperature(next: &mut Value) {
    next["temperature"] = json!(0.2);
}

/// Returns the first message by the model.
fn assistant(next: &mut Value) -> &mut Value {
    let messages = next["messages"].as_array_mut().unwrap();
    messages.iter_mut().find(|message| message["role"] == "assistant").unwrap()
}

fn content(next: &mut Value) -> &mut Vec<Value> {
    assistant(next)["content"].as_array_mut().unwrap()
}

fn drop_first_thought(next: &mut Value) {
    content(next).remove(0);
}

fn empty_thought(next: &mut Value) {
    content(next)[0] = json!({"type": "thinking", "thinking": "", "signature": ""});
}

fn drop_fallback(next: &mut Value) {
    content(next).retain(|block| block["type"] != "fallback");
}

fn move_fallback(next: &mut Value) {
    let blocks = content(next);
    let at = blocks.iter().position(|block| block["type"] == "fallback").unwrap();
    let fallback = blocks.remove(at);
    blocks.insert(0, fallback);
}

fn add_system_message(next: &mut Value) {
    let messages = next["messages"].as_array_mut().unwrap();
    messages.insert(messages.len() - 1, json!({"role": "system", "content": "Be kind."}));
}

fn change_effort(next: &mut Value) {
    let effort = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
    next["messages"].as_array_mut().unwrap().push(effort);
}

fn drop_reasoning_content(next: &mut Value) {
    assistant(next).as_object_mut().unwrap().remove("reasoning_content");
}

fn drop_signature(next: &mut Value) {
    for message in next["contents"].as_array_mut().unwrap() {
        for part in message["parts"].as_array_mut().unwrap() {
            part.as_object_mut().unwrap().remove("thoughtSignature");
        }
    }
}

#[tokio::test]
async fn audit_and_simulator_enforce_the_contract_of_each_recent_model() {
    let simulator = start(Options::default()).await.unwrap();
    for (number, Violation { setup, breaks, rule }) in VIOLATIONS.iter().enumerate() {
        let label = format!("{setup}: {rule}");
        let row = SETUPS.iter().find(|(name, _)| name == setup).unwrap().1;
        let conversation = Conversation::new(&simulator, row, 3, "Plan a weekend in Lisbon.");
        let mut conversation = conversation.with_account(format!("model-{number}"));
        conversation.steps(2).await;

        let intact = conversation.body();
        let response = conversation.send(intact.clone()).await;
        assert_eq!(response.status, 200, "{label}: {}", response.text());
        let audit = conversation.audit_with(&intact, PriorScope::Everything, true);
        assert_eq!(audit.verdict(), Verdict::Accept, "{label}: {:?}", audit.findings);

        breaks(&mut conversation.next);
        let broken = conversation.body();
        let response = conversation.send(broken.clone()).await;
        assert!(matches!(response.status, 400 | 422), "{label}: {}", response.text());
        let audit = conversation.audit_with(&broken, PriorScope::Everything, true);
        let refusals = audit.findings.iter().filter(|found| found.severity == Severity::Refuse);
        let rules: Vec<&str> = refusals.map(|finding| finding.rule.id).collect();
        assert!(rules.contains(rule), "{label}: {rules:?}");

        let repaired = conversation.repair(&broken, RepairLevel::Refused);
        assert_ne!(repaired.audit.verdict(), Verdict::Refuse, "{label}");
        let response = conversation.send(repaired.request.body.clone()).await;
        assert_eq!(response.status, 200, "{label}: repaired: {}", response.text());
    }
    simulator.stop().await;
}

/// No provider requires the reasoning of Qwen 3.8.
#[tokio::test]
async fn qwen_accepts_requests_without_its_reasoning() {
    let simulator = start(Options::default()).await.unwrap();
    let row = SETUPS.iter().find(|(name, _)| *name == "Qwen 3.8").unwrap().1;
    let mut conversation = Conversation::new(&simulator, row, 1, "Plan a weekend in Lisbon.");
    assert!(conversation.step().await);
    assert!(assistant(&mut conversation.next)["reasoning_content"].is_string());
    drop_reasoning_content(&mut conversation.next);
    let body = conversation.body();
    assert_eq!(conversation.send(body.clone()).await.status, 200);
    let audit = conversation.audit_with(&body, PriorScope::Everything, true);
    assert_ne!(audit.verdict(), Verdict::Refuse);
    simulator.stop().await;
}
