//! Tests known classes of replay failures, with three cases per class. The provider rejects or
//! degrades the broken request, and the audit predicts this with the right rule. The provider
//! accepts the repaired request.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod doctor;

use doctor::{Conversation, Setup, SimResponse};
use serde_json::{Value, json};
use throughline_codec::{RepairLevel, Severity};
use throughline_sim::{Options, Simulator, start};
use throughline_testkit::Shape;

const MANUAL: Setup = Setup {
    provider: "anthropic",
    model: "claude-sonnet-4-5",
    settings: || json!({"model": "claude-sonnet-4-5", "max_tokens": 8000, "system": "Be brief.", "thinking": {"type": "enabled", "budget_tokens": 2000}}),
    headers: &[],
};
const BOUND: Setup = Setup {
    provider: "anthropic",
    model: "claude-opus-5-5",
    settings: || json!({"model": "claude-opus-5-5", "max_tokens": 8000, "system": "Be brief."}),
    headers: &[],
};
const BEDROCK: Setup = Setup {
    provider: "bedrock",
    model: "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    settings: || json!({"inferenceConfig": {"maxTokens": 8000}, "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}}}),
    headers: &[],
};
const STORED: Setup = Setup {
    provider: "openai",
    model: "gpt-5.2",
    settings: || json!({"model": "gpt-5.2", "reasoning": {"effort": "medium", "summary": "auto"}}),
    headers: &[],
};
const STATELESS: Setup = Setup {
    provider: "openai",
    model: "gpt-5.2",
    settings: || json!({"model": "gpt-5.2", "store": false, "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium"}}),
    headers: &[],
};
const GEMINI: Setup = Setup {
    provider: "gemini",
    model: "gemini-3-pro-preview",
    settings: || json!({"generationConfig": {"thinkingConfig": {"includeThoughts": true}}}),
    headers: &[],
};
const GEMINI_PARALLEL: Setup = Setup { headers: &[("x-sim-parallel", "true")], ..GEMINI };
const DEEPSEEK: Setup = Setup {
    provider: "deepseek",
    model: "deepseek-v4",
    settings: || json!({"model": "deepseek-v4"}),
    headers: &[],
};
const KIMI: Setup = Setup {
    provider: "moonshot",
    model: "kimi-k2-thinking",
    settings: || json!({"model": "kimi-k2-thinking"}),
    headers: &[],
};
const MISTRAL: Setup = Setup {
    provider: "mistral",
    model: "magistral-medium-latest",
    settings: || json!({"model": "magistral-medium-latest"}),
    headers: &[],
};
const ROUTER: Setup = Setup {
    provider: "openrouter",
    model: "anthropic/claude-sonnet-4.5",
    settings: || json!({"model": "anthropic/claude-sonnet-4.5", "reasoning": {"effort": "medium"}}),
    headers: &[],
};

/// Symptom that the simulator shows for a broken request.
#[derive(Clone, Copy)]
enum Symptom {
    /// The request is rejected with an error that contains this text.
    Error(&'static str),
    /// The reply has the stop reason for a refusal.
    Refusal,
    /// The simulator reads fewer tokens from the cache than for the previous request.
    CacheMiss,
}

/// A broken request of one class, with its expected symptom.
struct Case {
    setup: Setup,
    /// Number of conversation steps before the broken request.
    steps: usize,
    mutate: fn(&mut Conversation<'_>),
    rule: &'static str,
    symptom: Symptom,
}

async fn run_case(case: &Case) {
    let simulator = start(Options::default()).await.unwrap();
    let mut conversation =
        Conversation::new(&simulator, case.setup, 2, "Plan a weekend in Lisbon 🌞.");
    for _ in 0..case.steps {
        if !conversation.step().await {
            conversation.add_user_message("And for a week, please?");
        }
    }
    let original = conversation.body();
    (case.mutate)(&mut conversation);
    let mutated = conversation.body();
    assert_ne!(original, mutated, "{}: the request did not change", case.rule);

    let severity = match case.symptom {
        Symptom::Error(_) => Severity::Refuse,
        Symptom::Refusal | Symptom::CacheMiss => Severity::Degrade,
    };
    let audit = conversation.audit(&mutated, true);
    let findings: Vec<(&str, Severity)> =
        audit.findings.iter().map(|finding| (finding.rule.id, finding.severity)).collect();
    assert!(findings.contains(&(case.rule, severity)), "{}: {findings:?}", case.rule);

    // The earlier requests are cached now, so only a changed prefix misses the cache.
    let before = conversation.send(mutated.clone()).await;
    check_symptom(case, &simulator, &before);

    let level =
        if severity == Severity::Refuse { RepairLevel::Refused } else { RepairLevel::Degraded };
    let repaired = conversation.repair(&mutated, level);
    assert!(!repaired.fixes.is_empty(), "{}: nothing was repaired", case.rule);
    let after = conversation.send(repaired.request.body.clone()).await;
    let body = String::from_utf8_lossy(&repaired.request.body).into_owned();
    assert_eq!(after.status, 200, "{}: after repair: {}\n{body}", case.rule, after.text());
    check_repaired(case, &simulator, &after, &body);
    simulator.stop().await;
}

fn check_symptom(case: &Case, simulator: &Simulator, answer: &SimResponse) {
    match case.symptom {
        Symptom::Error(message) => {
            assert!(answer.status >= 400, "{}: was accepted", case.rule);
            assert!(answer.text().contains(message), "{}: {}", case.rule, answer.text());
        }
        Symptom::Refusal => assert_eq!(stop_of(answer), "refusal", "{}", case.rule),
        Symptom::CacheMiss => {
            let entries = simulator.ledger().entries;
            let cached: Vec<u64> = entries.iter().map(|entry| entry.cached).collect();
            let [.., earlier, last] = cached[..] else { panic!("too few requests") };
            assert!(last < earlier, "{}: cache reads did not fall: {cached:?}", case.rule);
        }
    }
}

fn check_repaired(case: &Case, simulator: &Simulator, answer: &SimResponse, body: &str) {
    match case.symptom {
        Symptom::Error(_) => {}
        Symptom::Refusal => assert_ne!(stop_of(answer), "refusal", "{}: {body}", case.rule),
        Symptom::CacheMiss => {
            let entries = simulator.ledger().entries;
            let cached: Vec<u64> = entries.iter().map(|entry| entry.cached).collect();
            let [.., mutated, recovered] = cached[..] else { panic!("too few requests") };
            assert!(recovered > mutated, "{}: cache reads did not recover: {cached:?}", case.rule);
        }
    }
}

fn stop_of(answer: &SimResponse) -> String {
    let answer = answer.json();
    // Converse has no stop reason for a refusal; the model's own stop reason is in an additional
    // field.
    let pointers = ["/additionalModelResponseFields/stop_reason", "/stop_reason", "/stopReason"];
    let stop = pointers.iter().find_map(|pointer| answer.pointer(pointer)?.as_str());
    stop.unwrap_or_default().to_owned()
}

macro_rules! classes {
    ($($class:ident { $($name:ident: $setup:ident, $steps:literal, $rule:literal, $symptom:expr, $mutate:expr;)* })*) => {
        $(mod $class {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                run_case(&Case { setup: $setup, steps: $steps, mutate: $mutate, rule: $rule, symptom: $symptom }).await;
            })*
        })*
    };
}

/// Returns the model's last message in the next request.
fn last_message<'t>(conversation: &'t mut Conversation<'_>) -> &'t mut Value {
    let shape = conversation.shape();
    let role = if shape == Shape::Gemini { "model" } else { "assistant" };
    let messages = shape.messages(&mut conversation.next).iter_mut().rev();
    messages.into_iter().find(|message| message["role"] == role).unwrap()
}

/// Returns the parts of the model's last message.
fn parts<'t>(conversation: &'t mut Conversation<'_>) -> &'t mut Vec<Value> {
    let member = conversation.shape().parts().unwrap();
    last_message(conversation)[member].as_array_mut().unwrap()
}

/// Returns the input items of the next Responses API request.
fn items<'t>(conversation: &'t mut Conversation<'_>) -> &'t mut Vec<Value> {
    Shape::Responses.messages(&mut conversation.next)
}

/// Returns the first part of the model's last message that has this member.
fn part_with<'t>(conversation: &'t mut Conversation<'_>, member: &str) -> &'t mut Value {
    parts(conversation).iter_mut().find(|part| part.get(member).is_some()).unwrap()
}

fn without(value: &mut Value, member: &str) {
    value.as_object_mut().unwrap().shift_remove(member).unwrap();
}

/// Moves the first member of an object to the end. This changes the JSON text but not its meaning.
fn rotate_members(value: &mut Value) {
    let members = value.as_object_mut().unwrap();
    let first = members.keys().next().cloned().unwrap();
    let removed = members.shift_remove(&first).unwrap();
    members.insert(first, removed);
}

classes! {
    // An adapter dropped the opaque field.
    class_a_dropped_by_an_adapter {
        thinking_is_not_echoed: MANUAL, 1, "anthropic/tool-loop-needs-thinking", Symptom::Error("Expected `thinking` or `redacted_thinking`, but found `tool_use`"),
            |conversation| parts(conversation).retain(|part| part["type"] != "thinking" && part["type"] != "text");
        the_library_has_no_field_for_signatures: GEMINI, 1, "gemini/first-call-needs-signature", Symptom::Error("missing a thought_signature"),
            |conversation| for part in parts(conversation) { part.as_object_mut().unwrap().shift_remove("thoughtSignature"); };
        the_signature_is_discarded_and_the_text_kept: MANUAL, 1, "anthropic/signature-missing", Symptom::Error("signature: Field required"),
            |conversation| without(part_with(conversation, "signature"), "signature");
    }
    // The value was lost or changed by persistence.
    class_b_lost_in_persistence {
        the_text_was_emptied_and_the_signature_kept: MANUAL, 1, "anthropic/thinking-modified", Symptom::Error("cannot be modified"),
            |conversation| part_with(conversation, "signature")["thinking"] = json!("");
        the_signature_was_stripped_on_write: BEDROCK, 1, "bedrock/signature-missing", Symptom::Error("signature: Field required"),
            |conversation| without(&mut part_with(conversation, "reasoningContent")["reasoningContent"]["reasoningText"], "signature");
        the_store_keeps_every_block_twice: MANUAL, 1, "anthropic/thinking-modified", Symptom::Error("cannot be modified"),
            |conversation| { let copy = parts(conversation)[0].clone(); parts(conversation).insert(0, copy); };
    }
    // A value was sent to a model, account or endpoint that did not issue it.
    class_c_sent_to_a_stranger {
        the_account_was_switched: STATELESS, 1, "openai/encrypted-content-invalid", Symptom::Error("could not be verified"),
            |conversation| { conversation.account = "key-of-theirs".to_owned(); conversation.next["metadata"] = json!({"switched": "yes"}); };
        the_login_was_switched: GEMINI, 1, "gemini/signature-corrupted", Symptom::Error("Corrupted thought signature"),
            |conversation| { conversation.account = "key-of-theirs".to_owned(); conversation.next["labels"] = json!({"switched": "yes"}); };
        another_providers_signature_goes_to_claude: MANUAL, 1, "anthropic/signature-invalid", Symptom::Error("Invalid `signature` in `thinking` block"),
            |conversation| part_with(conversation, "signature")["signature"] = json!("gAAAAABpTm90LWEtY2xhdWRlLXNpZ25hdHVyZQ==");
    }
    // Compaction or trimming separated reasoning from the items that followed it.
    class_d_split_by_compaction {
        an_orphan_call_was_removed_and_its_reasoning_stayed: STORED, 1, "openai/reasoning-without-following-item", Symptom::Error("without its required following item"),
            |conversation| items(conversation).retain(|item| item["type"] != "function_call" && item["type"] != "function_call_output");
        the_call_kept_its_id_and_lost_its_reasoning: STORED, 1, "openai/item-without-its-reasoning", Symptom::Error("without its required 'reasoning' item"),
            |conversation| items(conversation).retain(|item| item["type"] != "reasoning");
        a_summary_removed_thinking_in_an_active_loop: MANUAL, 2, "anthropic/tool-loop-needs-thinking", Symptom::Error("must start with a thinking block"),
            |conversation| parts(conversation).retain(|part| part["type"] != "thinking");
    }
    // Content before a prefix-bound block was changed.
    class_e_prefix_changed {
        the_system_prompt_is_dynamic: BOUND, 1, "anthropic/prefix-changed", Symptom::Error("bound to a different conversation"),
            |conversation| conversation.next["system"] = json!("Be brief. It is Monday.");
        the_set_of_tools_was_filtered: BOUND, 1, "anthropic/prefix-changed", Symptom::Error("bound to a different conversation"),
            |conversation| { conversation.next["tools"].as_array_mut().unwrap().pop(); };
        memory_was_put_into_an_earlier_message: BOUND, 2, "anthropic/prefix-changed", Symptom::Error("bound to a different conversation"),
            |conversation| conversation.next["messages"][0]["content"] = json!("Remember: they like fish. Plan a weekend in Lisbon 🌞.");
    }
    // A stream was interrupted, and the partial content was kept.
    class_f_interrupted_stream {
        a_partial_block_was_kept: MANUAL, 1, "anthropic/signature-missing", Symptom::Error("signature: Field required"),
            |conversation| { parts(conversation).insert(0, json!({"type": "thinking", "thinking": "I was about to"})); };
        a_partial_block_was_given_an_empty_signature: MANUAL, 1, "anthropic/signature-invalid", Symptom::Error("Invalid `signature` in `thinking` block"),
            |conversation| { parts(conversation).insert(0, json!({"type": "thinking", "thinking": "I was about to", "signature": ""})); };
        a_partial_block_was_kept_on_bedrock: BEDROCK, 1, "bedrock/signature-missing", Symptom::Error("signature: Field required"),
            |conversation| { parts(conversation).insert(0, json!({"reasoningContent": {"reasoningText": {"text": "I was about to"}}})); };
    }
    // A sanitiser, redactor or synthesiser changed the blocks.
    class_g_sanitised {
        a_redactor_took_the_signature_for_a_secret: MANUAL, 1, "anthropic/signature-invalid", Symptom::Error("Invalid `signature` in `thinking` block"),
            |conversation| part_with(conversation, "signature")["signature"] = json!("REDACTED");
        every_emoji_was_replaced: MANUAL, 1, "anthropic/thinking-modified", Symptom::Error("cannot be modified"),
            |conversation| {
                let thought = part_with(conversation, "signature");
                let text: String = thought["thinking"].as_str().unwrap().chars().map(|letter| if letter.is_ascii() { letter } else { '\u{fffd}' }).collect();
                thought["thinking"] = json!(format!("{text}\u{fffd}"));
            };
        a_validator_made_a_block_up: MANUAL, 1, "anthropic/signature-missing", Symptom::Error("signature: Field required"),
            |conversation| { parts(conversation).retain(|part| part["type"] != "thinking"); parts(conversation).insert(0, json!({"type": "thinking", "thinking": "[previous reasoning]"})); };
    }
    // Parallel calls or stream chunks were aggregated wrongly.
    class_h_aggregated_wrongly {
        parallel_calls_are_split_into_steps: GEMINI_PARALLEL, 1, "gemini/first-call-needs-signature", Symptom::Error("missing a thought_signature"),
            |conversation| {
                let contents = Shape::Gemini.messages(&mut conversation.next);
                let (results, calls) = (contents.pop().unwrap(), contents.pop().unwrap());
                for (call, result) in calls["parts"].as_array().unwrap().iter().filter(|part| part.get("functionCall").is_some()).zip(results["parts"].as_array().unwrap()) {
                    contents.push(json!({"role": "model", "parts": [call]}));
                    contents.push(json!({"role": "user", "parts": [result]}));
                }
            };
        the_first_call_loses_its_signature: GEMINI_PARALLEL, 1, "gemini/first-call-needs-signature", Symptom::Error("missing a thought_signature"),
            |conversation| without(part_with(conversation, "thoughtSignature"), "thoughtSignature");
        raw_fragments_are_sent_back: ROUTER, 1, "openrouter/details-fragmented", Symptom::Error("Invalid `signature` in `thinking` block"),
            |conversation| {
                let details = last_message(conversation)["reasoning_details"].as_array_mut().unwrap();
                let detail = details[0].clone();
                let text = detail["text"].as_str().unwrap().to_owned();
                let half = text.char_indices().nth(text.chars().count() / 2).unwrap().0;
                let mut first = detail.clone();
                first["text"] = json!(&text[..half]);
                without(&mut first, "signature");
                let mut second = detail;
                second["text"] = json!(&text[half..]);
                details.splice(0..1, [first, second]);
            };
    }
    // Plain reasoning was not sent back, or was sent in the wrong dialect.
    class_i_wrong_dialect {
        deepseek_does_not_get_its_reasoning: DEEPSEEK, 1, "deepseek/reasoning-content-missing", Symptom::Error("The reasoning_content in the thinking mode must be passed back to the API."),
            |conversation| without(last_message(conversation), "reasoning_content");
        kimi_does_not_get_its_reasoning: KIMI, 1, "kimi/reasoning-content-missing", Symptom::Error("reasoning_content is missing in assistant tool call message at index"),
            |conversation| without(last_message(conversation), "reasoning_content");
        mistral_gets_a_key_it_does_not_know: MISTRAL, 1, "mistral/reasoning-content-forbidden", Symptom::Error("Extra inputs are not permitted"),
            |conversation| last_message(conversation)["reasoning_content"] = json!("I thought about it.");
    }
    // Items stored by OpenAI were sent without the items they are paired with.
    class_j_unpaired_items {
        the_call_lost_its_id: STORED, 1, "openai/reasoning-without-following-item", Symptom::Error("without its required following item"),
            |conversation| for item in items(conversation) { if item["type"] == "function_call" { without(item, "id"); } };
        the_answer_was_rebuilt_by_hand: STORED, 3, "openai/reasoning-without-following-item", Symptom::Error("without its required following item"),
            |conversation| for item in items(conversation) { if item["type"] == "message" { *item = json!({"role": "assistant", "content": "All is planned."}); } };
        the_item_was_never_stored: STATELESS, 1, "openai/item-not-found", Symptom::Error("Items are not persisted when `store` is set to false"),
            |conversation| for item in items(conversation) { if item["type"] == "reasoning" { without(item, "encrypted_content"); } };
    }
    // Equal values were serialised differently, which causes cache misses.
    class_k_unstable_text {
        a_tool_is_written_in_another_order: MANUAL, 2, "anthropic/cache-prefix-broken", Symptom::CacheMiss,
            |conversation| rotate_members(&mut conversation.next["tools"][0]);
        an_earlier_message_is_written_in_another_order: STATELESS, 2, "openai/cache-prefix-broken", Symptom::CacheMiss,
            |conversation| rotate_members(&mut conversation.next["input"][0]);
        a_declaration_is_written_in_another_order: GEMINI, 2, "gemini/cache-prefix-broken", Symptom::CacheMiss,
            |conversation| rotate_members(&mut conversation.next["tools"][0]["functionDeclarations"][0]);
    }
    // Reasoning was sent as visible text.
    class_l_said_aloud {
        a_thought_became_text: MANUAL, 3, "anthropic/thought-as-text", Symptom::Refusal,
            |conversation| for part in parts(conversation) { if part["type"] == "thinking" { *part = json!({"type": "text", "text": part["thinking"]}); } };
        a_thought_was_put_in_tags: MANUAL, 3, "anthropic/thought-as-text", Symptom::Refusal,
            |conversation| for part in parts(conversation) { if part["type"] == "thinking" { *part = json!({"type": "text", "text": format!("<think>{}</think>", part["thinking"].as_str().unwrap())}); } };
        a_thought_became_text_on_bedrock: BEDROCK, 3, "bedrock/thought-as-text", Symptom::Refusal,
            |conversation| for part in parts(conversation) { if part.get("reasoningContent").is_some() { *part = json!({"text": part["reasoningContent"]["reasoningText"]["text"]}); } };
    }
}
