//! Tests that every chat rule flags its example, that repair fixes the example, and that similar
//! requests are not flagged.

use bytes::Bytes;
use throughline_core::{Request, Target};

use crate::audit::{Audit, PriorExchanges, Severity, Transcript, Verdict, audit};
use crate::chat::OpenAiChat;
use crate::chat::contract::RULES;
use crate::repair::{Repair, RepairLevel, repair};
use crate::{Catalog, Codec, DecodeContext, Document};

fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "account").unwrap()
}

fn request(body: &str) -> Request {
    Request {
        path: "/chat/completions".into(),
        headers: Vec::new(),
        body: Bytes::from(body.to_owned()),
    }
}

fn prior(target: &Target, documents: &[&str]) -> PriorExchanges {
    let mut prior = PriorExchanges::new();
    for document in documents {
        let context = DecodeContext::of(target.clone());
        let json = throughline_json::Json::parse((*document).to_owned()).unwrap();
        match OpenAiChat.recognise(json.tree().root()) {
            Some(Document::Request) => {
                prior.push_request(&OpenAiChat, &request(document), context).unwrap();
            }
            Some(Document::Response) => {
                let body = Bytes::from((*document).to_owned());
                prior.push_response(&OpenAiChat, &body, context).unwrap();
            }
            Some(Document::Event) | None => panic!("document of another wire: {document}"),
        }
    }
    prior
}

fn audit_request(provider: &str, model: &str, documents: &[&str], body: &str) -> Audit {
    let target = target(provider, model);
    let (prior, request) = (prior(&target, documents), request(body));
    audit(&Transcript::new(&OpenAiChat, &request).with_prior(&prior), &target).unwrap()
}

fn repair_body(
    provider: &str,
    model: &str,
    documents: &[&str],
    body: &str,
    reach: RepairLevel,
) -> Repair {
    let target = target(provider, model);
    let (prior, request) = (prior(&target, documents), request(body));
    repair(&Transcript::new(&OpenAiChat, &request).with_prior(&prior), &target, reach).unwrap()
}

fn found(audit: &Audit) -> Vec<(&'static str, Severity)> {
    audit.findings.iter().map(|finding| (finding.rule.id, finding.severity)).collect()
}

/// Builds a conversation with one tool call. `members` are added to the assistant message.
fn tool_loop(members: &str) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"Weather?"}},{{"role":"assistant","content":null,{members}"tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"weather","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"call_1","content":"Rain."}}]}}"#
    )
}

/// Builds the response that the conversation of [`tool_loop`] replays.
fn answer(members: &str) -> String {
    format!(
        r#"{{"id":"1","model":"m","choices":[{{"index":0,"finish_reason":"tool_calls","message":{{"role":"assistant","content":null,{members}"tool_calls":[{{"id":"call_1","type":"function","function":{{"name":"weather","arguments":"{{}}"}}}}]}}}}]}}"#
    )
}

const ASKED: &str = r#"{"model":"m","messages":[{"role":"user","content":"Weather?"}]}"#;
const CLAUDE: &str = "anthropic/claude-sonnet-4.5";
const GEMINI: &str = "google/gemini-3-pro-preview";

#[test]
fn every_rule_flags_only_its_own_example() {
    for rule in RULES.iter() {
        let example = &rule.example;
        let audit = audit_request(example.provider, example.model, example.prior, example.failing);
        assert_eq!(found(&audit), [(rule.id, rule.severity)], "{}", rule.id);
        let finding = &audit.findings[0];
        assert!(!finding.path.is_empty(), "{}", rule.id);
        assert_eq!(finding.provider_error.is_some(), rule.provider_error.is_some(), "{}", rule.id);
        assert!(!finding.provider_error.iter().any(|error| error.contains('…')), "{}", rule.id);
    }
}

#[test]
fn fixed_examples_have_no_findings() {
    for rule in RULES.iter() {
        let example = &rule.example;
        let audit = audit_request(example.provider, example.model, example.prior, example.fixed);
        assert_eq!(found(&audit), [], "{}", rule.id);
    }
}

#[test]
fn repair_of_every_example_is_idempotent() {
    for rule in RULES.iter() {
        let example = &rule.example;
        let (provider, model) = (example.provider, example.model);
        let repaired =
            repair_body(provider, model, example.prior, example.failing, RepairLevel::Degraded);
        assert_eq!(repaired.audit.verdict(), Verdict::Accept, "{}", rule.id);
        let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
        let again = repair_body(provider, model, example.prior, &body, RepairLevel::Degraded);
        assert_eq!(again.request, repaired.request, "{}", rule.id);
        let accepted =
            repair_body(provider, model, example.prior, example.fixed, RepairLevel::Degraded);
        assert_eq!(accepted.request.body, example.fixed.as_bytes(), "{}", rule.id);
    }
}

#[test]
fn repaired_examples_equal_the_fixed_ones() {
    let says_the_same = |rule: &&&crate::Rule| {
        // Repair cannot restore values that are not in the transcript. It removes an unsigned
        // block, generates ids, and replaces a signature by a stand-in.
        !matches!(
            rule.id,
            "openrouter/signature-missing"
                | "openrouter/first-call-needs-signature"
                | "mistral/call-id-form"
                | "openai-chat/reasoning-sent"
                | "vllm/reasoning-content-ignored"
        )
    };
    for rule in RULES.iter().filter(says_the_same) {
        let example = &rule.example;
        let (provider, model) = (example.provider, example.model);
        let repaired =
            repair_body(provider, model, example.prior, example.failing, RepairLevel::Degraded);
        let [got, wanted] = [&repaired.request.body, &Bytes::from_static(example.fixed.as_bytes())]
            .map(|body| throughline_json::Json::parse(body.clone()).unwrap().canonical());
        assert_eq!(got, wanted, "{}", rule.id);
    }
}

#[test]
fn rules_have_complete_texts_and_evidence() {
    for rule in RULES.iter() {
        for text in [rule.title, rule.why, rule.fix] {
            assert!(text.ends_with('.') && !text.contains("  "), "{}: {text}", rule.id);
        }
        assert!(!rule.evidence.is_empty(), "{}", rule.id);
        let is_unique = RULES.iter().filter(|other| other.id == rule.id).count() == 1;
        assert!(is_unique, "{}", rule.id);
    }
}

// ---- reasoning as text ----

#[test]
fn deepseek_requires_only_the_reasoning_key() {
    let ids = |members: &str, model: &str| {
        found(&audit_request("deepseek", model, &[], &tool_loop(members))).len()
    };
    assert_eq!(ids("", "deepseek-v4-flash"), 1);
    assert_eq!(ids(r#""reasoning_content":null,"#, "deepseek-v4-flash"), 1);
    assert_eq!(ids(r#""reasoning_content":"","#, "deepseek-v4-flash"), 0);
    assert_eq!(ids(r#""reasoning_content":"hm","#, "deepseek-reasoner"), 0);
    // Models that do not think by default, and unknown models, need no reasoning.
    assert_eq!(ids("", "deepseek-chat"), 0);
    assert_eq!(ids("", "deepseek-v3.2"), 0);
    assert_eq!(ids("", "something-else"), 0);
}

#[test]
fn deepseek_requires_nothing_without_thinking_or_calls() {
    let off = tool_loop("").replacen('{', r#"{"thinking":{"type":"disabled"},"#, 1);
    assert_eq!(found(&audit_request("deepseek", "deepseek-v4-flash", &[], &off)), []);
    let conversation = r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#;
    assert_eq!(found(&audit_request("deepseek", "deepseek-v4-flash", &[], conversation)), []);
    let on = tool_loop("").replacen('{', r#"{"thinking":{"type":"enabled"},"#, 1);
    let audit = audit_request("deepseek", "deepseek-v3.2", &[], &on);
    assert_eq!(found(&audit), [("deepseek/reasoning-content-missing", Severity::Refuse)]);
    assert_eq!(audit.findings[0].path, "messages[1].reasoning_content");
    assert_eq!(
        audit.findings[0].provider_error.as_deref().unwrap(),
        "Missing `reasoning_content` field in the assistant message at message index 1. For more information, please refer \
         to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
    );
}

#[test]
fn known_deepseek_reasoning_is_restored() {
    let issued = answer(r#""reasoning_content":"I \u006eeed it.","#);
    let repaired = repair_body(
        "deepseek",
        "deepseek-v4-flash",
        &[ASKED, &issued],
        &tool_loop(""),
        RepairLevel::Refused,
    );
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(body.contains(r#""reasoning_content":"I \u006eeed it.""#), "{body}");
    assert_eq!(repaired.fixes[0].what, "restores the reasoning issued with this message");
}

#[test]
fn empty_deepseek_reasoning_is_a_degradation() {
    let issued = answer(r#""reasoning_content":"I need it.","#);
    let sent = tool_loop(r#""reasoning_content":"","#);
    let audit = audit_request("deepseek", "deepseek-v4-flash", &[ASKED, &issued], &sent);
    assert_eq!(found(&audit), [("chat/reasoning-dropped", Severity::Degrade)]);
}

/// DeepSeek's guide demands the reasoning of all messages of a turn that called tools.
#[test]
fn deepseek_answers_after_calls_lose_their_reasoning() {
    let call = answer(r#""reasoning_content":"I need it.","#);
    let asked = tool_loop(r#""reasoning_content":"I need it.","#);
    let rains = r#"{"id":"2","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","reasoning_content":"Now I know.","content":"It rains."}}]}"#;
    let documents = [ASKED, &call, &asked, rains];
    let next = |members: &str| {
        asked.replace(
            r#""content":"Rain."}]"#,
            &format!(
                r#""content":"Rain."}},{{"role":"assistant",{members}"content":"It rains."}},{{"role":"user","content":"Thanks."}}]"#
            ),
        )
    };
    let audit = |body: &str| audit_request("deepseek", "deepseek-v4-flash", &documents, body);
    assert_eq!(found(&audit(&next(r#""reasoning_content":"Now I know.","#))), []);
    let dropped = [("chat/reasoning-dropped", Severity::Degrade)];
    assert_eq!(found(&audit(&next(""))), dropped);
    let (provider, model) = ("deepseek", "deepseek-v4-flash");
    let repaired = repair_body(provider, model, &documents, &next(""), RepairLevel::Degraded);
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(body.contains(r#""reasoning_content":"Now I know.""#), "{body}");
    let off = next("").replacen('{', r#"{"thinking":{"type":"disabled"},"#, 1);
    assert_eq!(found(&audit(&off)), []);
}

#[test]
fn empty_kimi_reasoning_is_only_noted() {
    let audit =
        audit_request("moonshot", "kimi-k2.5", &[], &tool_loop(r#""reasoning_content":"","#));
    assert_eq!(found(&audit), [("kimi/reasoning-content-missing", Severity::Note)]);
    assert_eq!(found(&audit_request("moonshot", "kimi-k2-0905", &[], &tool_loop(""))), []);
    // Other hosts of the same model do not require reasoning.
    assert_eq!(found(&audit_request("avian", "moonshotai/kimi-k2.5", &[], &tool_loop(""))), []);
}

#[test]
fn mistral_accepts_only_its_own_chunks() {
    let own = r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}"#;
    let audit = audit_request("mistral", "magistral-medium-latest", &[], own);
    assert_eq!(found(&audit), []);
    assert_eq!((audit.summary.item_count, audit.summary.signed_count), (1, 0));
    let sent = own.replace(
        r#""role":"assistant","#,
        r#""role":"assistant","reasoning_details":[],"reasoning":null,"#,
    );
    let audit = audit_request("mistral", "magistral-medium-latest", &[], &sent);
    assert_eq!(found(&audit), [("mistral/reasoning-content-forbidden", Severity::Refuse); 2]);
    let ids = found(&audit_request("compatible", "magistral-medium-latest", &[], &sent));
    assert_eq!(ids, []);
}

#[test]
fn vllm_reads_the_new_field_name() {
    let both = tool_loop(r#""reasoning":"hm","reasoning_content":"hm","#);
    assert_eq!(found(&audit_request("vllm", "qwen3", &[], &both)), []);
    assert_eq!(found(&audit_request("ollama", "qwen3", &[], &both)), []);
    assert_eq!(
        found(&audit_request("llamacpp", "qwen3", &[], &tool_loop(r#""reasoning_content":"hm","#))),
        []
    );
}

#[test]
fn reasoning_of_finished_turns_may_be_omitted() {
    let issued = answer(r#""reasoning_content":"I need it.","#);
    let next = tool_loop("").replace(
        r#""content":"Rain."}]"#,
        r#""content":"Rain."},{"role":"assistant","content":"It rains."},{"role":"user","content":"Thanks."}]"#,
    );
    assert_eq!(found(&audit_request("zai", "glm-4.7", &[ASKED, &issued], &next)), []);
    let kept = next.replacen('{', r#"{"thinking":{"type":"enabled","clear_thinking":false},"#, 1);
    assert_eq!(
        found(&audit_request("zai", "glm-4.7", &[ASKED, &issued], &kept)),
        [("zai/reasoning-dropped", Severity::Degrade)]
    );
}

// ---- tool calls ----

#[test]
fn misplaced_tool_result_is_moved_to_its_call() {
    let body = r#"{"model":"gpt-5","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"b"},{"role":"tool","tool_call_id":"call_1","content":"c"}]}"#;
    let audit = audit_request("openai-chat", "gpt-5", &[], body);
    assert_eq!(found(&audit), [("chat/tool-call-unanswered", Severity::Refuse)]);
    assert_eq!(audit.findings[0].path, "messages[1].tool_calls[0]");
    let repaired = repair_body("openai-chat", "gpt-5", &[], body, RepairLevel::Refused);
    let roles = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    let order: Vec<_> =
        roles.match_indices("\"role\":\"").map(|(at, _)| &roles[at + 8..at + 12]).collect();
    assert_eq!(order, ["user", "assi", "tool", "user"]);
}

#[test]
fn only_the_unanswered_call_of_two_is_removed() {
    let body = r#"{"model":"gpt-5","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_2","content":"c"}]}"#;
    let audit = audit_request("openai-chat", "gpt-5", &[], body);
    assert_eq!(audit.findings[0].path, "messages[1].tool_calls[0]");
    assert!(
        audit.findings[0]
            .provider_error
            .as_deref()
            .unwrap()
            .ends_with("did not have response messages: call_1")
    );
    let repaired = repair_body("openai-chat", "gpt-5", &[], body, RepairLevel::Refused);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(!body.contains("call_1") && body.contains("call_2"));
}

/// Gemini CLI repeats the tool results of a session that it resumes.
#[test]
fn repeated_result_is_removed() {
    let body = r#"{"model":"gpt-5","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"first"},{"role":"tool","tool_call_id":"call_1","content":"again"},{"role":"tool","tool_call_id":"call_2","content":"c"}]}"#;
    let audit = audit_request("openai-chat", "gpt-5", &[], body);
    assert_eq!(found(&audit), [("chat/tool-call-unanswered", Severity::Refuse)]);
    assert_eq!(audit.findings[0].path, "messages[3]");
    assert_eq!(
        audit.findings[0].provider_error.as_deref(),
        Some(
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'call_1', in messages[2] and messages[3]."
        )
    );
    let repaired = repair_body("openai-chat", "gpt-5", &[], body, RepairLevel::Refused);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(body.contains("first") && !body.contains("again"), "{body}");
    // A self-hosted server accepts whatever its chat template accepts.
    assert_eq!(audit_request("ollama", "qwen3", &[], &body).verdict(), Verdict::Accept);
}

#[test]
fn orphan_result_error_depends_on_the_provider() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"tool","tool_call_id":"abcdefghi","content":"c"}]}"#;
    let text = |provider: &str, model: &str| {
        let audit = audit_request(provider, model, &[], body);
        (audit.verdict(), audit.findings[0].provider_error.clone().unwrap().into_owned())
    };
    let refused = |text: &str| (Verdict::Refuse, text.to_owned());
    assert_eq!(
        text("deepseek", "deepseek-chat"),
        refused(
            "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
        )
    );
    assert_eq!(
        text("mistral", "mistral-large-latest"),
        refused("Not the same number of function calls and responses")
    );
    assert_eq!(
        text("minimax", "MiniMax-M2"),
        refused("invalid params, tool result's tool id(abcdefghi) not found (2013)")
    );
    // A self-hosted server accepts whatever its chat template accepts.
    assert_eq!(audit_request("ollama", "qwen3", &[], body).verdict(), Verdict::Accept);
    assert_eq!(found(&audit_request("ollama-native", "qwen3", &[], body)), []);
}

#[test]
fn generated_mistral_ids_are_unique() {
    let call = |id: &str| {
        format!(
            r#"{{"role":"assistant","content":"","tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"{id}","content":"c"}}"#
        )
    };
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"a"}},{},{},{}]}}"#,
        call("call_1"),
        call("call_1"),
        call("abcdefghi")
    );
    let audit = audit_request("mistral", "mistral-large-latest", &[], &body);
    assert_eq!(found(&audit), [("mistral/call-id-form", Severity::Refuse); 2]);
    let repaired = repair_body("mistral", "mistral-large-latest", &[], &body, RepairLevel::Refused);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    let text = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(!text.contains("call_1") && text.matches("abcdefghi").count() == 2);
}

// ---- settings ----

fn settings(provider: &str, model: &str, members: &str) -> Vec<(&'static str, Severity)> {
    let body =
        format!(r#"{{"model":"{model}",{members},"messages":[{{"role":"user","content":"a"}}]}}"#);
    found(&audit_request(provider, model, &[], &body))
}

#[test]
fn settings_are_refused_only_at_endpoints_known_to_refuse() {
    assert_eq!(settings("openai-chat", "gpt-5", r#""temperature":1,"top_p":1.0"#), []);
    assert_eq!(settings("openai-chat", "gpt-4o", r#""temperature":0.2,"max_tokens":9"#), []);
    assert_eq!(settings("openai-chat", "gpt-5.1", r#""temperature":0.2"#), []);
    assert_eq!(
        settings("openai-chat", "gpt-5.1", r#""temperature":0.2,"reasoning_effort":"high""#),
        [("openai-chat/sampling-fixed", Severity::Refuse)]
    );
    assert_eq!(settings("openai-chat", "gpt-5", r#""reasoning_effort":null"#), []);
    // An unknown release has the contract of the newest one.
    assert_eq!(settings("openai-chat", "gpt-7", r#""reasoning_effort":"max""#), []);
    assert_eq!(
        settings("openai-chat", "gpt-7", r#""max_tokens":9,"reasoning_effort":"max""#),
        [("openai-chat/max-tokens-renamed", Severity::Refuse)]
    );
    // A router drops settings that its upstream does not accept.
    let all =
        r#""temperature":0.2,"max_tokens":9,"reasoning_effort":"xhigh","tool_choice":"required""#;
    assert_eq!(settings("openrouter", "openai/gpt-5", all), []);
    assert_eq!(settings("vercel", "openai/gpt-5", all), []);
    assert_eq!(settings("compatible", "gpt-5", all), []);
}

#[test]
fn non_reasoning_model_rejects_effort() {
    let body =
        r#"{"model":"gpt-4o","reasoning_effort":"low","messages":[{"role":"user","content":"a"}]}"#;
    let audit = audit_request("openai-chat", "gpt-4o", &[], body);
    assert_eq!(found(&audit), [("openai-chat/effort-not-supported", Severity::Refuse)]);
    assert_eq!(
        audit.findings[0].provider_error.as_deref().unwrap(),
        "Unrecognized request argument supplied: reasoning_effort"
    );
    let minimal = audit_request("openai-chat", "o3", &[], &body.replace("low", "minimal"));
    assert_eq!(
        minimal.findings[0].provider_error.as_deref().unwrap(),
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', \
         'medium', and 'high'."
    );
}

#[test]
fn kimi_rejects_temperature_while_thinking() {
    let cold = r#""temperature":0.6"#;
    assert_eq!(
        settings("moonshot", "kimi-k2.5", cold),
        [("openai-chat/sampling-fixed", Severity::Refuse)]
    );
    assert_eq!(settings("moonshot", "kimi-k2.5", r#""temperature":1.0,"top_p":0.9"#), []);
    let off = r#""temperature":0.6,"thinking":{"type":"disabled"}"#;
    assert_eq!(settings("moonshot", "kimi-k2.5", off), []);
}

#[test]
fn deepseek_accepts_forced_tool_without_thinking() {
    let named = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
    assert_eq!(
        settings("deepseek", "deepseek-v4-flash", named),
        [("deepseek/forced-tool-choice", Severity::Refuse)]
    );
    let off = format!(r#"{named},"thinking":{{"type":"disabled"}}"#);
    assert_eq!(settings("deepseek", "deepseek-v4-flash", &off), []);
    assert_eq!(settings("deepseek", "deepseek-v4-flash", r#""tool_choice":"none""#), []);
    assert_eq!(settings("deepseek", "deepseek-chat", named), []);
}

#[test]
fn groq_accepts_either_reasoning_setting_alone() {
    assert_eq!(
        settings(
            "groq",
            "qwen/qwen3-32b",
            r#""reasoning_format":"parsed","include_reasoning":null"#
        ),
        []
    );
    assert_eq!(settings("groq", "qwen/qwen3-32b", r#""include_reasoning":false"#), []);
}

// ---- details ----

const SIGNED: &str = r#"{"type":"reasoning.text","text":"I need it.","signature":"c2lnbmF0dXJl","format":"anthropic-claude-v1","index":0}"#;
const SECOND: &str = r#"{"type":"reasoning.text","text":"And more.","signature":"b3RoZXIgb25l","format":"anthropic-claude-v1","index":1}"#;
const HANDLE: &str = r#"{"type":"reasoning.encrypted","data":"Z2VtaW5pcyBzaWc=","id":"call_1","format":"google-gemini-v1","index":0}"#;
const FERNET: &str = r#"{"type":"reasoning.encrypted","data":"gAAAAABpsx2Va4wv","id":"rs_1","format":"openai-responses-v1","index":0}"#;

fn details(list: &str) -> String {
    format!(r#""reasoning_details":[{list}],"#)
}

fn routed(model: &str, issued: Option<&str>, sent: &str) -> Vec<(&'static str, Severity)> {
    let issued = issued.map(|issued| answer(&details(issued)));
    let documents: Vec<&str> = issued.iter().flat_map(|issued| [ASKED, issued]).collect();
    found(&audit_request("openrouter", model, &documents, &tool_loop(&details(sent))))
}

#[test]
fn unchanged_details_are_accepted() {
    assert_eq!(routed(CLAUDE, Some(SIGNED), SIGNED), []);
    let both = format!("{SIGNED},{SECOND}");
    assert_eq!(routed(CLAUDE, Some(&both), &both), []);
    assert_eq!(routed(GEMINI, Some(HANDLE), HANDLE), []);
    assert_eq!(routed("openai/gpt-5", Some(FERNET), FERNET), []);
    let spaced = r#"{ "index": 0, "format": "anthropic-claude-v1", "signature": "c2lnbmF0dXJl", "text": "I need it.", "type": "reasoning.text" }"#;
    assert_eq!(routed(CLAUDE, Some(SIGNED), spaced), []);
}

#[test]
fn claude_refuses_a_changed_block() {
    let refused = [("openrouter/signature-invalid", Severity::Refuse)];
    for changed in [
        SIGNED.replace("c2ln", "c2lm"),
        SIGNED.replace("c2lnbmF0dXJl", "c2lnbmF0"),
        SIGNED.replace("c2lnbmF0dXJl", "not base64!"),
        SIGNED.replace("c2lnbmF0dXJl", "gAAAAABpsx2Va4wv"),
        SIGNED.replace("I need it.", "I need it!"),
        SIGNED.replace("I need it.", ""),
    ] {
        assert_eq!(routed(CLAUDE, Some(SIGNED), &changed), refused, "{changed}");
    }
    let both = format!("{SIGNED},{SECOND}");
    let swapped_order = format!("{SECOND},{SIGNED}");
    assert_eq!(routed(CLAUDE, Some(&both), &swapped_order), refused);
    let swapped_seals = both
        .replace("c2lnbmF0dXJl", "X")
        .replace("b3RoZXIgb25l", "c2lnbmF0dXJl")
        .replace('X', "b3RoZXIgb25l");
    assert!(routed(CLAUDE, Some(&both), &swapped_seals).contains(&refused[0]));
    let doubled = format!("{SIGNED},{SIGNED}");
    assert_eq!(routed(CLAUDE, Some(SIGNED), &doubled), refused);
}

#[test]
fn issuing_vendor_refuses_a_changed_encrypted_detail() {
    let refused = [("openrouter/signature-invalid", Severity::Refuse)];
    let flipped = HANDLE.replace("Z2Vt", "Z2Vu");
    assert_eq!(routed(GEMINI, Some(HANDLE), &flipped), refused);
    assert_eq!(routed("openai/gpt-5", Some(FERNET), &FERNET.replace("psx2", "psx3")), refused);
    // Google accepts both base64 alphabets.
    let handle = HANDLE.replace("Z2VtaW5pcyBzaWc=", "a+/b");
    assert_eq!(routed(GEMINI, Some(&handle), &handle.replace("a+/b", "a-_b")), []);
}

#[test]
fn unsigned_blocks_of_the_current_turn_are_refused() {
    let unsigned = SIGNED.replace(r#""signature":"c2lnbmF0dXJl","#, "");
    let empty = SIGNED.replace("c2lnbmF0dXJl", "");
    for sent in [&unsigned, &empty] {
        let missing = [("openrouter/signature-missing", Severity::Refuse)];
        assert_eq!(routed(CLAUDE, None, sent), missing);
        assert_eq!(routed(CLAUDE, Some(SIGNED), sent), missing);
    }
    let closed = tool_loop(&details(&unsigned)).replace(
        r#""content":"Rain."}]"#,
        r#""content":"Rain."},{"role":"assistant","content":"It rains."},{"role":"user","content":"Thanks."}]"#,
    );
    let audit = audit_request("openrouter", CLAUDE, &[], &closed);
    assert_eq!(found(&audit), [("openrouter/signature-missing", Severity::Note)]);
    // Other vendors do not sign their blocks, and Vercel is not known to forward signatures.
    let plain = unsigned.replace("anthropic-claude-v1", "unknown");
    assert_eq!(routed("z-ai/glm-5-turbo", None, &plain), []);
    assert_eq!(found(&audit_request("vercel", CLAUDE, &[], &tool_loop(&details(&unsigned)))), []);
}

#[test]
fn fragments_are_distinguished_from_blocks() {
    // An endpoint may give all its blocks the same index.
    let alike = format!("{SIGNED},{}", SECOND.replace(r#""index":1"#, r#""index":0"#));
    assert_eq!(routed(CLAUDE, None, &alike), []);
    let pieces = [
        r#"{"type":"reasoning.text","text":"I need","format":"anthropic-claude-v1","index":0}"#,
        r#"{"type":"reasoning.text","text":" it.","signature":"c2lnbmF0dXJl","format":"anthropic-claude-v1","index":0}"#,
    ]
    .join(",");
    let fragmented = [("openrouter/details-fragmented", Severity::Refuse)];
    assert_eq!(routed(CLAUDE, None, &pieces), fragmented);
    assert_eq!(routed(CLAUDE, Some(SIGNED), &pieces), fragmented);
    let issued = answer(&details(SIGNED));
    let repaired = repair_body(
        "openrouter",
        CLAUDE,
        &[ASKED, &issued],
        &tool_loop(&details(&pieces)),
        RepairLevel::Refused,
    );
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(body.contains(SIGNED), "{body}");
}

#[test]
fn verifying_vendors_refuse_foreign_seals() {
    let foreign = |severity| vec![("openrouter/foreign-details", severity)];
    assert_eq!(routed(CLAUDE, None, FERNET), foreign(Severity::Refuse));
    assert_eq!(routed("openai/gpt-5", None, SIGNED), foreign(Severity::Refuse));
    assert_eq!(routed("deepseek/deepseek-v4", None, FERNET), foreign(Severity::Degrade));
    assert_eq!(routed("another/unheard-of", None, FERNET), []);
    let summary =
        r#"{"type":"reasoning.summary","summary":"short","format":"openai-responses-v1"}"#;
    assert_eq!(routed(CLAUDE, None, summary), []);
    let text = r#"{"type":"reasoning.text","text":"hm","format":"unknown"}"#;
    assert_eq!(routed(CLAUDE, None, text), foreign(Severity::Note));
}

#[test]
fn router_not_known_to_relay_does_not_refuse_seals() {
    let sent = |parts: &str| {
        let prior = [ASKED, &answer(&details(SIGNED))];
        found(&audit_request("vercel", CLAUDE, &prior, &tool_loop(&details(parts))))
    };
    assert_eq!(sent(FERNET)[0], ("openrouter/foreign-details", Severity::Degrade));
    let altered = SIGNED.replace("c2lnbmF0dXJl", "c2lnbmF0dXJF");
    assert_eq!(sent(&altered), [("openrouter/signature-invalid", Severity::Degrade)]);
    assert_eq!(sent(SIGNED), []);
}

#[test]
fn gemini_requires_only_the_first_call_signature() {
    let missing = [("openrouter/first-call-needs-signature", Severity::Refuse)];
    assert_eq!(routed(GEMINI, None, &HANDLE.replace("Z2VtaW5pcyBzaWc=", "")), missing);
    assert_eq!(routed(GEMINI, None, &HANDLE.replace(r#""id":"call_1","#, "")), []);
    let stand_in = HANDLE.replace("Z2VtaW5pcyBzaWc=", "skip_thought_signature_validator");
    assert_eq!(routed(GEMINI, None, &stand_in), []);
    let two = tool_loop(&details(HANDLE))
        .replace(
            "}}]},",
            r#"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"#,
        )
        .replace(
            r#""content":"Rain."}]"#,
            r#""content":"Rain."},{"role":"tool","tool_call_id":"call_2","content":"c"}]"#,
        );
    assert_eq!(found(&audit_request("openrouter", GEMINI, &[], &two)), []);
    let later = two.replace(r#""id":"call_1","format""#, r#""id":"call_2","format""#);
    assert_eq!(found(&audit_request("openrouter", GEMINI, &[], &later)), missing);
    // Older Gemini models, image models and finished turns do not require the signature.
    for model in ["google/gemini-2.5-pro", "google/gemini-3-pro-image-preview"] {
        assert_eq!(found(&audit_request("openrouter", model, &[], &tool_loop(""))), []);
    }
    let closed = tool_loop("").replace(
        r#""content":"Rain."}]"#,
        r#""content":"Rain."},{"role":"assistant","content":"It rains."},{"role":"user","content":"Thanks."}]"#,
    );
    assert_eq!(found(&audit_request("openrouter", GEMINI, &[], &closed)), []);
}

#[test]
fn gemini_signature_is_restored_or_replaced_by_stand_in() {
    let issued = answer(&details(HANDLE));
    let body = |documents: &[&str]| {
        let repaired =
            repair_body("openrouter", GEMINI, documents, &tool_loop(""), RepairLevel::Refused);
        assert_eq!(repaired.audit.verdict(), Verdict::Accept);
        String::from_utf8(repaired.request.body.to_vec()).unwrap()
    };
    assert!(body(&[ASKED, &issued]).contains(HANDLE));
    assert!(body(&[]).contains(
        r#"{"type":"reasoning.encrypted","data":"skip_thought_signature_validator","id":"call_1","format":"google-gemini-v1","index":0}"#
    ));
}

#[test]
fn stand_in_is_a_degradation_if_the_signature_is_known() {
    for value in
        ["skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="]
    {
        let stand_in = HANDLE.replace("Z2VtaW5pcyBzaWc=", value);
        assert_eq!(routed(GEMINI, None, &stand_in), []);
        let dropped = [("openrouter/details-dropped", Severity::Degrade)];
        assert_eq!(routed(GEMINI, Some(HANDLE), &stand_in), dropped);
    }
}

#[test]
fn claude_accepts_blocks_of_other_claude_models() {
    let (documents, sent) = ([ASKED, &answer(&details(SIGNED))], tool_loop(&details(SIGNED)));
    let issuer = target("openrouter", "anthropic/claude-opus-4.5");
    let reader = target("openrouter", CLAUDE);
    let (prior, request) = (prior(&issuer, &documents), request(&sent));
    let audit = audit(&Transcript::new(&OpenAiChat, &request).with_prior(&prior), &reader).unwrap();
    assert_eq!(found(&audit), []);
}

#[test]
fn summary_counts_signed_reasoning() {
    let unsigned = SECOND.replace("b3RoZXIgb25l", "");
    let sent = tool_loop(&format!(
        r#"{}"reasoning":"I need it.And more.","#,
        details(&format!("{SIGNED},{unsigned}"))
    ));
    let summary = audit_request("openrouter", CLAUDE, &[], &sent).summary;
    assert_eq!((summary.item_count, summary.signed_count), (2, 1));
    assert_eq!(summary.formats.len(), 1);
}

#[test]
fn malformed_messages_do_not_panic() {
    for body in [
        r#"{"model":"m"}"#,
        r#"{"messages":7}"#,
        r#"{"messages":[]}"#,
        r#"{"messages":[null,1,{"role":7,"tool_calls":{},"reasoning_details":"x"},{"role":"assistant","tool_calls":[null,{"id":7}],"reasoning_details":[null,{"type":7,"format":7,"data":7,"index":"x"}]},{"role":"tool"}]}"#,
    ] {
        for (provider, model) in [
            ("openrouter", CLAUDE),
            ("openrouter", GEMINI),
            ("mistral", "m"),
            ("deepseek", "deepseek-v4"),
        ] {
            audit_request(provider, model, &[], body);
        }
    }
}

// ---- public failure reports ----

/// Class A: a router's client keeps `tool_calls` and drops the details (claude-code-router#1057).
#[test]
fn class_a_a_client_drops_the_details() {
    let issued = answer(&details(HANDLE));
    let audit = audit_request("openrouter", GEMINI, &[ASKED, &issued], &tool_loop(""));
    assert_eq!(found(&audit), [("openrouter/first-call-needs-signature", Severity::Refuse)]);
    let issued = answer(&details(FERNET));
    let audit = audit_request("openrouter", "openai/gpt-5", &[ASKED, &issued], &tool_loop(""));
    assert_eq!(found(&audit), [("openrouter/details-dropped", Severity::Degrade)]);
}

/// Class B: a store keeps the signature and empties the text (claude-code#63147), or repeats the
/// block (openclaw#103587).
#[test]
fn class_b_a_store_empties_or_repeats_a_block() {
    let refused = [("openrouter/signature-invalid", Severity::Refuse)];
    assert_eq!(routed(CLAUDE, Some(SIGNED), &SIGNED.replace("I need it.", "")), refused);
    assert_eq!(routed(CLAUDE, Some(SIGNED), &[SIGNED; 3].join(",")).len(), 2);
}

/// Class C: a Gemini signature from one endpoint is sent to another endpoint (ai-sdk-provider#491,
/// mastra#23433).
#[test]
fn class_c_signature_is_sent_to_another_endpoint() {
    let issuer = target("vercel", GEMINI);
    let reader = target("openrouter", GEMINI);
    let documents = [ASKED, &answer(&details(HANDLE))];
    let sent = request(&tool_loop(&details(HANDLE)));
    let prior = prior(&issuer, &documents);
    let transcript = Transcript::new(&OpenAiChat, &sent).with_prior(&prior);
    let audit = audit(&transcript, &reader).unwrap();
    assert_eq!(found(&audit), [("openrouter/foreign-details", Severity::Refuse)]);
    assert_eq!(
        audit.findings[0].provider_error.as_deref().unwrap(),
        "Corrupted thought signature."
    );
    let repaired = repair(&transcript, &reader, RepairLevel::Refused).unwrap();
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    assert!(!String::from_utf8_lossy(&repaired.request.body).contains("Z2VtaW5pcyBzaWc="));
}

/// Class C: the model changes in the middle of a conversation (open-webui#28240), in both
/// directions.
#[test]
fn class_c_the_model_changes_midway() {
    assert_eq!(
        routed("google/gemini-2.5-pro", None, FERNET),
        [("openrouter/foreign-details", Severity::Refuse)]
    );
    let repaired =
        repair_body("openrouter", CLAUDE, &[], &tool_loop(&details(FERNET)), RepairLevel::Refused);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    assert_eq!(repaired.fixes[0].what, "removes the block sealed by another vendor's model");
}

/// Class D: trimming removes the result of one of two parallel calls (omnigent#2449).
#[test]
fn class_d_a_parallel_batch_is_trimmed() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"c"},{"role":"user","content":"b"}]}"#;
    let audit = audit_request("deepseek", "deepseek-v4-flash", &[], body);
    assert_eq!(found(&audit), [("chat/tool-call-unanswered", Severity::Refuse)]);
    assert_eq!(audit.findings[0].path, "messages[1].tool_calls[1]");
}

/// Class F: a stream was cut before the signature, and the partial block was kept (openclaw#84430).
#[test]
fn class_f_a_truncated_stream_leaves_an_unsigned_block() {
    let cut = r#"{"type":"reasoning.text","text":"I ne","format":"anthropic-claude-v1","index":0}"#;
    assert_eq!(routed(CLAUDE, None, cut), [("openrouter/signature-missing", Severity::Refuse)]);
    let repaired =
        repair_body("openrouter", CLAUDE, &[], &tool_loop(&details(cut)), RepairLevel::Refused);
    assert!(!String::from_utf8_lossy(&repaired.request.body).contains("I ne"));
}

/// Class G: a redactor overwrites the signature (entireio/cli#1866), or a sanitiser overwrites the
/// text (pi-anthropic-oauth#25).
#[test]
fn class_g_a_redactor_or_sanitiser_overwrites_a_block() {
    let refused = [("openrouter/signature-invalid", Severity::Refuse)];
    let redacted = SIGNED.replace("c2lnbmF0dXJl", "REDACTED");
    assert_eq!(routed(CLAUDE, Some(SIGNED), &redacted), refused);
    let joyful = SIGNED.replace("I need it.", "I need it \u{1f600}.");
    let mangled = SIGNED.replace("I need it.", "I need it \u{fffd}\u{fffd}.");
    assert_eq!(routed(CLAUDE, Some(&joyful), &mangled), refused);
    let repaired = repair_body(
        "openrouter",
        CLAUDE,
        &[ASKED, &answer(&details(&joyful))],
        &tool_loop(&details(&mangled)),
        RepairLevel::Refused,
    );
    assert!(String::from_utf8_lossy(&repaired.request.body).contains(&joyful));
}

/// Class H: the signature of the first call moves to the second (OmniRoute#11669).
#[test]
fn class_h_a_signature_moves_to_the_second_call() {
    let two = |id: &str| {
        tool_loop(&details(&HANDLE.replace("call_1", id)))
            .replace("}}]},", r#"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},"#)
            .replace(r#""content":"Rain."}]"#, r#""content":"Rain."},{"role":"tool","tool_call_id":"call_2","content":"c"}]"#)
    };
    assert_eq!(found(&audit_request("openrouter", GEMINI, &[], &two("call_1"))), []);
    assert_eq!(
        found(&audit_request("openrouter", GEMINI, &[], &two("call_2"))),
        [("openrouter/first-call-needs-signature", Severity::Refuse)]
    );
}

/// Class I: a bridge from another wire never sets `reasoning_content` (litellm#27946,
/// cc-switch-cli#170).
#[test]
fn class_i_a_bridge_drops_the_reasoning() {
    for (provider, model, rule) in [
        ("deepseek", "deepseek-v4-pro", "deepseek/reasoning-content-missing"),
        ("moonshot", "kimi-k2-thinking", "kimi/reasoning-content-missing"),
    ] {
        let bridged = tool_loop(r#""thinking_blocks":[{"type":"thinking","thinking":"hm"}],"#);
        let audit = audit_request(provider, model, &[], &bridged);
        assert_eq!(found(&audit), [(rule, Severity::Refuse)]);
        let repaired = repair_body(provider, model, &[], &bridged, RepairLevel::Refused);
        assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    }
}

/// Class K: a tool's schema is written with its keys in another order (FlowDown#273, sglang#34553).
#[test]
fn class_k_a_tools_keys_change_their_order() {
    let with = |schema: &str| {
        format!(
            r#"{{"model":"m","tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}],"messages":[{{"role":"user","content":"a"}}]}}"#
        )
    };
    let before = with(r#"{"type":"object","properties":{}}"#);
    let now = with(r#"{"properties":{},"type":"object"}"#);
    let audit = audit_request("deepseek", "deepseek-chat", &[&before], &now);
    assert_eq!(found(&audit), [("chat/cache-prefix-broken", Severity::Degrade)]);
    assert_eq!(audit.findings[0].path, "tools[0]");
    let repaired =
        repair_body("deepseek", "deepseek-chat", &[&before], &now, RepairLevel::Degraded);
    assert_eq!(repaired.request.body, before.as_bytes());
}

/// Class L: a thought is sent to Claude as text (oh-my-pi#7241).
#[test]
fn class_l_thought_is_sent_as_text() {
    let issued = answer(&details(SIGNED));
    let sent = tool_loop("")
        .replace(r#""content":null"#, r#""content":"<thinking>I need it.</thinking>""#);
    let audit = audit_request("openrouter", CLAUDE, &[ASKED, &issued], &sent);
    let leaked = ("chat/thought-as-text", Severity::Degrade);
    assert_eq!(found(&audit), [("openrouter/details-dropped", Severity::Degrade), leaked]);
    let repaired =
        repair_body("openrouter", CLAUDE, &[ASKED, &issued], &sent, RepairLevel::Degraded);
    assert_eq!(repaired.audit.verdict(), Verdict::Accept);
    let body = String::from_utf8(repaired.request.body.to_vec()).unwrap();
    assert!(body.contains(r#""content":null"#) && body.contains(SIGNED), "{body}");
}

#[test]
fn tools_are_rejected_only_while_newer_openai_models_reason() {
    let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}"#;
    let custom = r#"{"type":"custom","custom":{"name":"f"}}"#;
    let refused = |provider: &str, model: &str, tool: &str, effort: &str| {
        let body = format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"Hi"}}],"tools":[{tool}]{effort}}}"#
        );
        let audit = audit_request(provider, model, &[], &body);
        let found = audit.findings.into_iter();
        let found = found.filter(|finding| finding.rule.id == "openai-chat/tools-need-responses");
        found.map(|finding| (finding.provider_error.unwrap().into_owned(), finding.auto_fix)).next()
    };
    let medium = r#","reasoning_effort":"medium""#;
    let none = r#","reasoning_effort":"none""#;
    for (model, effort) in
        [("gpt-5.4", medium), ("gpt-5.5", ""), ("gpt-5.6-sol", ""), ("gpt-6-luna", medium)]
    {
        let (error, fix) = refused("openai-chat", model, tool, effort).unwrap();
        assert!(error.contains(model), "{error}");
        assert_eq!(error.ends_with("to 'none'."), model > "gpt-5.6", "{error}");
        assert!(fix.is_some(), "{model}");
    }
    let (_, fix) = refused("openai-chat", "gpt-6-astra", tool, "").unwrap();
    assert!(fix.is_none(), "Astra cannot stop reasoning");
    for (provider, model, tool, effort) in [
        ("openai-chat", "gpt-5.4", tool, ""),
        ("openai-chat", "gpt-5.6", tool, none),
        ("openai-chat", "gpt-5.6", custom, medium),
        ("openai-chat", "gpt-5.2", tool, medium),
        ("azure-chat", "gpt-5.6", tool, medium),
        ("openrouter", "openai/gpt-5.6", tool, medium),
    ] {
        assert_eq!(refused(provider, model, tool, effort).map(|(error, _)| error), None, "{model}");
    }
}
