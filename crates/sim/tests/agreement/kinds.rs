//! The kinds of cases in which audit and simulator differ: each with a request that shows it, and who is right.

use serde_json::{Value, json};
use throughline_codec::Verdict;
use throughline_sim::{Options, Simulator, start};

use crate::doctor::{Conversation, Setup, Told};
use crate::judges::{Kind, Knows, Loss, Made, rules_of};
use crate::setups::SETUPS;

fn setup(label: &str) -> Setup {
    SETUPS.iter().find(|(name, _)| *name == label).unwrap().1
}

/// The open tool loop of a conversation.
async fn in_a_loop<'s>(simulator: &'s Simulator, label: &str) -> Conversation<'s> {
    let mut talk = Conversation::new(simulator, setup(label), 1, "Plan a weekend in Lisbon.");
    assert!(talk.step().await, "no tool was called");
    talk
}

/// What the simulator makes of the next request.
async fn sent(talk: &Conversation<'_>) -> Made {
    talk.send(talk.body()).await;
    Made::of_the_last(talk.simulator)
}

fn heard(talk: &Conversation<'_>, knows: Knows) -> Verdict {
    talk.audit_told(&talk.body(), knows.past, knows.age).verdict()
}

fn kind(talk: &Conversation<'_>, made: &Made, knows: Knows) -> Option<Kind> {
    let audit = talk.audit_told(&talk.body(), knows.past, knows.age);
    Kind::of(talk, &talk.body(), made, &audit, knows)
}

fn edit_system(talk: &mut Conversation<'_>) {
    talk.next["system"] = json!("Be long-winded.");
}

/// One letter of a signature was changed. Only its issuer can tell: signatures are opaque, and what does not verify is
/// answered with "Invalid `signature` in `thinking` block" [I <https://github.com/ding113/claude-code-hub/issues/518>]. So
/// the simulator, which has the key, is right. An audit that has not seen what was issued has no evidence and must not
/// refuse; told of it, it agrees. The same goes for what was dropped, moved or reordered.
#[tokio::test]
async fn what_the_audit_is_not_told_it_does_not_judge() {
    let simulator = start(Options::default()).await.unwrap();
    let mut talk = in_a_loop(&simulator, "Sonnet 4.5, manual").await;
    let signature = talk.next.pointer_mut("/messages/1/content/0/signature").unwrap();
    let text = signature.as_str().unwrap().to_owned();
    let (head, tail) = text.split_at(text.len() / 2);
    let other = if tail.starts_with('A') { "B" } else { "A" };
    *signature = Value::String(format!("{head}{other}{}", &tail[1..]));
    let made = sent(&talk).await;
    assert_eq!(made.verdict, Verdict::Refuse);
    assert!(made.refusal.contains("Invalid `signature` in `thinking` block"), "{}", made.refusal);
    let less = Knows { past: Told::Nothing, age: true };
    assert_eq!(heard(&talk, less), Verdict::Accept);
    assert_eq!(kind(&talk, &made, less), Some(Kind::ToldLess));
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Refuse);
    simulator.stop().await;
}

/// The system prompt changed before a thought that is bound to it. Prefixes are checked for accounts made from 2026-08-31 on,
/// and for older ones only where the request says what to do about a mismatch [D
/// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking>]. The simulator knows how old the account is and
/// is right: it refuses the young and answers the old. An audit that does not know it can say neither, and warns; told the
/// age, it agrees with both.
#[tokio::test]
async fn an_account_of_unknown_age_is_warned() {
    let simulator = start(Options::default()).await.unwrap();
    for (label, verdict) in
        [("Opus 5.5", Verdict::Refuse), ("Opus 5.5, old account", Verdict::Accept)]
    {
        let mut talk = in_a_loop(&simulator, label).await;
        edit_system(&mut talk);
        let made = sent(&talk).await;
        assert_eq!(made.verdict, verdict, "{label}");
        let less = Knows { past: Told::Everything, age: false };
        assert_eq!(heard(&talk, less), Verdict::Degrade, "{label}");
        assert_eq!(kind(&talk, &made, less), Some(Kind::AgeUnknown), "{label}");
        assert_eq!(heard(&talk, Knows::ALL), verdict, "{label}");
    }
    simulator.stop().await;
}

/// A conversation that was not stored goes on with `store`, its reasoning with an id and its calls without. A reasoning item
/// whose id resolves needs the item that followed it, by its id as well: recorded as a refusal with an edited history
/// [C pydantic-ai, `thinking_with_modified_history`]. An id that was never stored resolves to nothing, and no pair of such
/// was seen to be refused. The simulator knows what it stored and is right to answer. An audit that was not told of the
/// exchange takes the id for a stored one, since `store` is on unless it is switched off [T openai 3.49.0]; told of it, it
/// agrees.
#[tokio::test]
async fn an_id_of_unknown_origin_is_taken_for_a_stored_one() {
    let simulator = start(Options::default()).await.unwrap();
    let mut talk = in_a_loop(&simulator, "OpenAI stateless").await;
    talk.next["store"] = json!(true);
    for item in talk.next["input"].as_array_mut().unwrap() {
        if item["type"] == "function_call" {
            item.as_object_mut().unwrap().shift_remove("id");
        }
    }
    let made = sent(&talk).await;
    assert_eq!(made.verdict, Verdict::Accept, "{}", made.refusal);
    let less = Knows { past: Told::Nothing, age: true };
    assert_eq!(heard(&talk, less), Verdict::Refuse);
    assert_eq!(kind(&talk, &made, less), Some(Kind::OriginUnknown));
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Accept);
    simulator.stop().await;
}

/// Two reasoning items changed their ciphertexts. Each opens, and so nothing is refused; but each stands before what it did
/// not lead to, and reasoning belongs immediately before its output [T openai 3.49.0]. The simulator, which issued
/// both, is right. An audit that was not told of the exchange that one of them comes from sees a ciphertext where
/// another was issued, and foresees what is said of altered ones: "could not be verified" [I
/// <https://github.com/openai/codex/issues/8145>]. Told of it, it agrees.
#[tokio::test]
async fn a_seal_of_unknown_origin_is_taken_for_an_altered_one() {
    let simulator = start(Options::default()).await.unwrap();
    let setup = setup("OpenAI stateless");
    let mut talk = Conversation::new(&simulator, setup, 2, "Plan a weekend in Lisbon.");
    assert!(talk.step().await && talk.step().await, "two tools are called");
    let items = talk.next["input"].as_array_mut().unwrap();
    let is_reasoning = |item: &Value| item["type"] == "reasoning";
    let places: Vec<usize> = (0..items.len()).filter(|at| is_reasoning(&items[*at])).collect();
    let [first, second] = places[..] else { panic!("{places:?}") };
    let sealed = items[first]["encrypted_content"].take();
    items[first]["encrypted_content"] = items[second]["encrypted_content"].take();
    items[second]["encrypted_content"] = sealed;
    talk.is_swapped = true;
    let made = sent(&talk).await;
    assert_eq!(made.verdict, Verdict::Degrade);
    let less = Knows { past: Told::TheEarlier, age: true };
    assert_eq!(heard(&talk, less), Verdict::Refuse);
    assert_eq!(kind(&talk, &made, less), Some(Kind::SealUnknown));
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Degrade);
    simulator.stop().await;
}

/// Thinking is switched off between a call and its result. A tool loop is one turn, and a turn has one configuration of
/// thinking: so it is documented for the Messages API [D
/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking>], where the audit says so too. That Bedrock's
/// Converse behaves alike is likely, since the model is the same, but is neither documented nor recorded: the simulator
/// may assume it, and the audit, whose rules are never stricter than their evidence, is right to be silent.
#[tokio::test]
async fn bedrock_is_not_known_to_want_one_configuration_for_a_turn() {
    let simulator = start(Options::default()).await.unwrap();
    let mut talk = in_a_loop(&simulator, "Bedrock Opus 4.7").await;
    talk.next["additionalModelRequestFields"] = json!({"thinking": {"type": "disabled"}});
    let made = sent(&talk).await;
    assert_eq!((made.verdict, &made.losses[..]), (Verdict::Degrade, &[Loss::Thinking][..]));
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Accept);
    assert_eq!(kind(&talk, &made, Knows::ALL), Some(Kind::BedrockThinking));

    let mut talk = in_a_loop(&simulator, "Opus 4.7").await;
    talk.next["thinking"] = json!({"type": "disabled"});
    assert_eq!(sent(&talk).await.losses, [Loss::Thinking]);
    let audit = talk.audit(&talk.body(), true);
    assert_eq!(rules_of(&audit), ["anthropic/config-changed-in-loop"]);
    simulator.stop().await;
}

/// The members of a tool changed their order. The simulator caches every beginning that it was ever sent. Bedrock caches what
/// stands before a `cachePoint`, and without one reads and writes no cache [D
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent_CachePointBlock.html>, I
/// <https://github.com/NousResearch/hermes-agent/issues/11970>]. This request marks nothing, so it has nothing to lose, and
/// the audit is right. Where beginnings are cached unasked, both say the same.
#[tokio::test]
async fn bedrock_caches_only_what_is_marked() {
    let simulator = start(Options::default()).await.unwrap();
    let mut talk = in_a_loop(&simulator, "Bedrock Sonnet 4.5, manual").await;
    let tool = talk.next.pointer_mut("/toolConfig/tools/0/toolSpec").unwrap();
    turn_round(tool);
    let made = sent(&talk).await;
    assert_eq!((made.verdict, &made.losses[..]), (Verdict::Degrade, &[Loss::Cache][..]));
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Accept);
    assert_eq!(kind(&talk, &made, Knows::ALL), Some(Kind::BedrockCache));

    let mut talk = in_a_loop(&simulator, "DeepSeek").await;
    turn_round(&mut talk.next["tools"][0]);
    assert_eq!(sent(&talk).await.losses, [Loss::Cache]);
    let audit = talk.audit(&talk.body(), true);
    assert_eq!(rules_of(&audit), ["chat/cache-prefix-broken"]);
    simulator.stop().await;
}

/// Writes an object's members in another order.
fn turn_round(value: &mut Value) {
    let members = value.as_object_mut().unwrap();
    let (first, said) =
        members.shift_remove_entry(&members.keys().next().unwrap().clone()).unwrap();
    members.insert(first, said);
}

/// The call that a reasoning item led to is gone, and the item stands before something else. Reasoning belongs immediately
/// before its output [T openai 3.49.0], and the simulator gives up what it cannot attach. But nothing that is documented or
/// was reported says that an endpoint without stored ids drops it, so the audit is right to be silent.
#[tokio::test]
async fn reasoning_that_leads_nowhere_is_not_known_to_be_lost() {
    let simulator = start(Options::default()).await.unwrap();
    let mut talk = Conversation::new(&simulator, setup("xAI"), 2, "Plan a weekend in Lisbon.");
    assert!(talk.step().await && talk.step().await, "no tool was called");
    let input = talk.next["input"].as_array_mut().unwrap();
    let reasoning = input.iter().position(|item| item["type"] == "reasoning").unwrap();
    let call = input.remove(reasoning + 1);
    input.retain(|item| {
        item["type"] != "function_call_output" || item["call_id"] != call["call_id"]
    });
    let made = sent(&talk).await;
    assert_eq!(made.losses, [Loss::Dropped("moved".to_owned())]);
    assert_eq!(heard(&talk, Knows::ALL), Verdict::Accept);
    assert_eq!(kind(&talk, &made, Knows::ALL), Some(Kind::LeadsNowhere));
    simulator.stop().await;
}
