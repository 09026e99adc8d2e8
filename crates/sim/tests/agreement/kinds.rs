//! The known kinds of disagreement between audit and simulator. Each kind has a test with an
//! example request. The test's comment states whether the audit or the simulator is right.

use serde_json::{Value, json};
use throughline_codec::Verdict;
use throughline_sim::{Options, Simulator, start};

use crate::doctor::{Conversation, PriorScope, Setup};
use crate::judges::{AuditKnowledge, DisagreementKind, Loss, SimOutcome, rules_of};
use crate::setups::SETUPS;

fn setup(label: &str) -> Setup {
    SETUPS.iter().find(|(name, _)| *name == label).unwrap().1
}

/// Starts a conversation and stops after the first tool call.
async fn start_tool_loop<'s>(simulator: &'s Simulator, label: &str) -> Conversation<'s> {
    let mut conversation =
        Conversation::new(simulator, setup(label), 1, "Plan a weekend in Lisbon.");
    assert!(conversation.step().await, "no tool was called");
    conversation
}

/// Sends the next request and returns the simulator's verdict.
async fn send_next(conversation: &Conversation<'_>) -> SimOutcome {
    conversation.send(conversation.body()).await;
    SimOutcome::from_last_entry(conversation.simulator)
}

fn audit_verdict(conversation: &Conversation<'_>, knowledge: AuditKnowledge) -> Verdict {
    conversation.audit_with(&conversation.body(), knowledge.past, knowledge.age).verdict()
}

fn kind(
    conversation: &Conversation<'_>,
    outcome: &SimOutcome,
    knowledge: AuditKnowledge,
) -> Option<DisagreementKind> {
    let audit = conversation.audit_with(&conversation.body(), knowledge.past, knowledge.age);
    DisagreementKind::of(conversation, &conversation.body(), outcome, &audit, knowledge)
}

fn edit_system(conversation: &mut Conversation<'_>) {
    conversation.next["system"] = json!("Be long-winded.");
}

/// One letter of a signature was changed. Only the issuer can detect the change, because signatures
/// are opaque. The provider answers "Invalid `signature` in `thinking` block" [I
/// <https://github.com/ding113/claude-code-hub/issues/518>]. The simulator has the key and is
/// right. Without the issued value, the audit has no evidence and must not predict a rejection.
/// With the issued value, the audit agrees with the simulator. The same applies to dropped, moved
/// and reordered values.
#[tokio::test]
async fn audit_does_not_judge_missing_information() {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation = start_tool_loop(&simulator, "Sonnet 4.5, manual").await;
    let signature = conversation.next.pointer_mut("/messages/1/content/0/signature").unwrap();
    let text = signature.as_str().unwrap().to_owned();
    let (head, tail) = text.split_at(text.len() / 2);
    let other = if tail.starts_with('A') { "B" } else { "A" };
    *signature = Value::String(format!("{head}{other}{}", &tail[1..]));
    let outcome = send_next(&conversation).await;
    assert_eq!(outcome.verdict, Verdict::Refuse);
    assert!(
        outcome.refusal.contains("Invalid `signature` in `thinking` block"),
        "{}",
        outcome.refusal
    );
    let partial = AuditKnowledge { past: PriorScope::Nothing, age: true };
    assert_eq!(audit_verdict(&conversation, partial), Verdict::Accept);
    assert_eq!(kind(&conversation, &outcome, partial), Some(DisagreementKind::MissingInformation));
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Refuse);
    simulator.stop().await;
}

/// The system prompt changed before a thought that is bound to the prompt. The provider checks
/// prefixes for accounts created on or after 2026-08-31, and for older accounts only if the request
/// sets a mismatch policy [D
/// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking>]. The simulator knows
/// the account's age and is right: it rejects requests from new accounts and answers old accounts.
/// Without the age, the audit cannot decide and only warns. With the age, the audit agrees with the
/// simulator in both cases.
#[tokio::test]
async fn unknown_account_age_causes_a_warning() {
    let simulator = start(Options::default()).await.unwrap();
    for (label, verdict) in
        [("Opus 5.5", Verdict::Refuse), ("Opus 5.5, old account", Verdict::Accept)]
    {
        let mut conversation = start_tool_loop(&simulator, label).await;
        edit_system(&mut conversation);
        let outcome = send_next(&conversation).await;
        assert_eq!(outcome.verdict, verdict, "{label}");
        let partial = AuditKnowledge { past: PriorScope::Everything, age: false };
        assert_eq!(audit_verdict(&conversation, partial), Verdict::Degrade, "{label}");
        assert_eq!(
            kind(&conversation, &outcome, partial),
            Some(DisagreementKind::AgeUnknown),
            "{label}"
        );
        assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), verdict, "{label}");
    }
    simulator.stop().await;
}

/// A conversation that was not stored continues with `store`. Its reasoning items have ids, but its
/// calls have none. If a reasoning item's id resolves, the provider requires the id of the item
/// that followed it. A rejection of this kind was recorded for an edited history [C pydantic-ai,
/// `thinking_with_modified_history`]. An id that was never stored resolves to nothing, and no
/// rejection of such a pair was observed. The simulator knows its stored items and is right to
/// answer. Without the earlier exchange, the audit assumes that the id is stored, because `store`
/// is on by default [T openai 3.49.0]. With the exchange, the audit agrees with the simulator.
#[tokio::test]
async fn id_of_unknown_origin_is_treated_as_stored() {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation = start_tool_loop(&simulator, "OpenAI stateless").await;
    conversation.next["store"] = json!(true);
    for item in conversation.next["input"].as_array_mut().unwrap() {
        if item["type"] == "function_call" {
            item.as_object_mut().unwrap().shift_remove("id");
        }
    }
    let outcome = send_next(&conversation).await;
    assert_eq!(outcome.verdict, Verdict::Accept, "{}", outcome.refusal);
    let partial = AuditKnowledge { past: PriorScope::Nothing, age: true };
    assert_eq!(audit_verdict(&conversation, partial), Verdict::Refuse);
    assert_eq!(kind(&conversation, &outcome, partial), Some(DisagreementKind::OriginUnknown));
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Accept);
    simulator.stop().await;
}

/// Two reasoning items swapped their ciphertexts. Each ciphertext can be decrypted, so nothing is
/// rejected. But each ciphertext now precedes an item that did not originally follow it, and
/// reasoning belongs immediately before its output [T openai 3.49.0]. The simulator issued both
/// ciphertexts and is right. If one exchange is missing, the audit sees an unexpected ciphertext
/// and predicts the error for altered ciphertexts: "could not be verified" [I
/// <https://github.com/openai/codex/issues/8145>]. With the exchange, the audit agrees with the
/// simulator.
#[tokio::test]
async fn seal_of_unknown_origin_is_reported_as_altered() {
    let simulator = start(Options::default()).await.unwrap();
    let setup = setup("OpenAI stateless");
    let mut conversation = Conversation::new(&simulator, setup, 2, "Plan a weekend in Lisbon.");
    assert!(conversation.step().await && conversation.step().await, "two tools are called");
    let items = conversation.next["input"].as_array_mut().unwrap();
    let is_reasoning = |item: &Value| item["type"] == "reasoning";
    let positions: Vec<usize> = (0..items.len()).filter(|at| is_reasoning(&items[*at])).collect();
    let [first, second] = positions[..] else { panic!("{positions:?}") };
    let sealed = items[first]["encrypted_content"].take();
    items[first]["encrypted_content"] = items[second]["encrypted_content"].take();
    items[second]["encrypted_content"] = sealed;
    conversation.is_swapped = true;
    let outcome = send_next(&conversation).await;
    assert_eq!(outcome.verdict, Verdict::Degrade);
    let partial = AuditKnowledge { past: PriorScope::TheEarlier, age: true };
    assert_eq!(audit_verdict(&conversation, partial), Verdict::Refuse);
    assert_eq!(kind(&conversation, &outcome, partial), Some(DisagreementKind::SealUnknown));
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Degrade);
    simulator.stop().await;
}

/// Thinking is disabled between a call and its result. A tool loop is one turn, and a turn has one
/// thinking configuration. This rule is documented for the Messages API [D
/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>], and the audit
/// reports violations there. Bedrock's Converse serves the same model and probably has the same
/// rule, but no documentation or recording shows it. The simulator may assume the rule. The audit's
/// rules are never stricter than their evidence, so the audit is right not to report the change.
#[tokio::test]
async fn bedrock_configuration_change_in_a_tool_loop_is_not_reported() {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation = start_tool_loop(&simulator, "Bedrock Opus 4.7").await;
    conversation.next["additionalModelRequestFields"] = json!({"thinking": {"type": "disabled"}});
    let outcome = send_next(&conversation).await;
    assert_eq!((outcome.verdict, &outcome.losses[..]), (Verdict::Degrade, &[Loss::Thinking][..]));
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Accept);
    assert_eq!(
        kind(&conversation, &outcome, AuditKnowledge::ALL),
        Some(DisagreementKind::BedrockThinking)
    );

    let mut conversation = start_tool_loop(&simulator, "Opus 4.7").await;
    conversation.next["thinking"] = json!({"type": "disabled"});
    assert_eq!(send_next(&conversation).await.losses, [Loss::Thinking]);
    let audit = conversation.audit(&conversation.body(), true);
    assert_eq!(rules_of(&audit), ["anthropic/config-changed-in-loop"]);
    simulator.stop().await;
}

/// The members of a tool were reordered. The simulator caches every prefix that it receives.
/// Bedrock caches only the content before a `cachePoint`, and uses no cache if the request has no
/// `cachePoint` [D
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent_CachePointBlock.html>, I
/// <https://github.com/NousResearch/hermes-agent/issues/11970>]. This request has no `cachePoint`,
/// so it loses nothing, and the audit is right. For providers that cache prefixes automatically,
/// audit and simulator agree.
#[tokio::test]
async fn bedrock_caches_only_what_is_marked() {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation = start_tool_loop(&simulator, "Bedrock Sonnet 4.5, manual").await;
    let tool = conversation.next.pointer_mut("/toolConfig/tools/0/toolSpec").unwrap();
    rotate_members(tool);
    let outcome = send_next(&conversation).await;
    assert_eq!((outcome.verdict, &outcome.losses[..]), (Verdict::Degrade, &[Loss::Cache][..]));
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Accept);
    assert_eq!(
        kind(&conversation, &outcome, AuditKnowledge::ALL),
        Some(DisagreementKind::BedrockCache)
    );

    let mut conversation = start_tool_loop(&simulator, "DeepSeek").await;
    rotate_members(&mut conversation.next["tools"][0]);
    assert_eq!(send_next(&conversation).await.losses, [Loss::Cache]);
    let audit = conversation.audit(&conversation.body(), true);
    assert_eq!(rules_of(&audit), ["chat/cache-prefix-broken"]);
    simulator.stop().await;
}

/// Moves the first member of an object to its end.
fn rotate_members(value: &mut Value) {
    let members = value.as_object_mut().unwrap();
    let (first, member) =
        members.shift_remove_entry(&members.keys().next().unwrap().clone()).unwrap();
    members.insert(first, member);
}

/// A reasoning item precedes a different item than in its reply, because the call that followed it
/// is missing. Reasoning belongs immediately before its output [T openai 3.49.0], and the simulator
/// drops reasoning that has lost its output. No documentation or report states that an endpoint
/// without stored ids drops such reasoning. The audit is therefore right not to report the loss.
#[tokio::test]
async fn trailing_reasoning_is_not_reported_as_lost() {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation =
        Conversation::new(&simulator, setup("xAI"), 2, "Plan a weekend in Lisbon.");
    assert!(conversation.step().await && conversation.step().await, "no tool was called");
    let input = conversation.next["input"].as_array_mut().unwrap();
    let reasoning = input.iter().position(|item| item["type"] == "reasoning").unwrap();
    let call = input.remove(reasoning + 1);
    input.retain(|item| {
        item["type"] != "function_call_output" || item["call_id"] != call["call_id"]
    });
    let outcome = send_next(&conversation).await;
    assert_eq!(outcome.losses, [Loss::Dropped("moved".to_owned())]);
    assert_eq!(audit_verdict(&conversation, AuditKnowledge::ALL), Verdict::Accept);
    assert_eq!(
        kind(&conversation, &outcome, AuditKnowledge::ALL),
        Some(DisagreementKind::OrphanedReasoning)
    );
    simulator.stop().await;
}
