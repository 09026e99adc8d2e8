//! Tests of `show`, `translate` and `audit` with conversations in the documented formats.

use serde_json::{Value, json};

use crate::support::{file, throughline};

const MESSAGES: &str = r#"[
  {"role":"user","content":"Look up."},
  {"role":"assistant","content":"","thinkingBlocks":[{"type":"thinking","content":"Weigh both.","signature":"RXFvQ0NrWUlD"}],
   "toolCalls":[{"id":"toolu_1","name":"look","args":{"at":"sky"}}]},
  {"role":"tool","content":"blue","toolCallId":"toolu_1","toolName":"look"}
]"#;

const DETAILS: &str = r#"[
  {"role":"user","content":"Look up."},
  {"role":"assistant","content":null,
   "reasoning_details":[{"type":"reasoning.text","text":"Weigh both.","signature":"RXFvQ0NrWUlD","format":"anthropic-claude-v1","index":0}],
   "tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]},
  {"role":"tool","tool_call_id":"call_1","content":"blue"}
]"#;

const LETTA: &str = r#"[
  {"id":"message-1","date":"2026-01-31T12:00:00Z","message_type":"user_message","content":"Look up."},
  {"id":"message-2","date":"2026-01-31T12:00:01Z","message_type":"reasoning_message","source":"reasoner_model","reasoning":"Weigh both.","signature":"RXFvQ0NrWUlD"},
  {"id":"message-3","date":"2026-01-31T12:00:01Z","message_type":"tool_call_message","tool_call":{"name":"look","arguments":"{\"at\":\"sky\"}","tool_call_id":"toolu_1"}},
  {"id":"message-4","date":"2026-01-31T12:00:02Z","message_type":"tool_return_message","tool_return":"blue","status":"success","tool_call_id":"toolu_1"}
]"#;

const THOUGHTS: &str = r#"[
  {"id":"t1","content":"Weigh both.","payload":{"type":"thinking","thinking":"Weigh both.","signature":"RXFvQ0NrWUlD"},
   "replayCompatibility":"anthropic-messages-thinking-v1","createdAt":"2026-W05-6","updatedAt":1769860800}
]"#;

const CLAUDE: &str = "claude-opus-4-5";

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Each format restores the signed block for Anthropic.
#[test]
fn every_format_is_translated_to_its_owner_byte_for_byte() {
    for (format, text) in [
        ("llm-message", MESSAGES),
        ("reasoning-details", DETAILS),
        ("reasoning-message", LETTA),
        ("raw-thought", THOUGHTS),
    ] {
        let path = file(&format!("{format}.json"), text);
        let target = ["--to", "anthropic-messages", "--model", CLAUDE];
        let owner = ["--from", format, "--from-provider", "anthropic"];
        let arguments = [&["translate"][..], &owner, &target, &["--fates", "-", &path]].concat();
        let output = throughline(&arguments, b"");
        assert_eq!(output.code, 0, "{format}: {}", output.err);
        let request = json_of(&output.out);
        let block = json!({"type":"thinking","thinking":"Weigh both.","signature":"RXFvQ0NrWUlD"});
        let messages = request["messages"].as_array().unwrap();
        let mut blocks = messages.iter().filter_map(|message| message["content"].as_array());
        let found = blocks.any(|blocks| blocks.contains(&block));
        assert!(found, "{format}: {}", output.out);
        // Another provider receives neither the signature nor the text.
        let target = ["--to", "openai-responses", "--model", "gpt-5.2"];
        let owner = [&owner[..], &["--from-model", CLAUDE]].concat();
        let output = throughline(&[&["translate"][..], &owner, &target, &[&path]].concat(), b"");
        assert_eq!(output.code, 0, "{format}: {}", output.err);
        assert!(!output.out.contains("RXFvQ0NrWUlD"), "{format}: {}", output.out);
        assert!(!output.out.contains("Weigh both."), "{format}: {}", output.out);
        assert!(output.err.contains("foreign"), "{format}: {}", output.err);
    }
}

#[test]
fn llm_messages_are_shown_with_their_seals() {
    let path = file("shown-messages.json", MESSAGES);
    let shown = ["show", "--from", "llm-message", "--provider", "anthropic", &path];
    let output = throughline(&shown, b"");
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{}", output.out);
    assert!(output.out.contains("sealed by anthropic"), "{}", output.out);
    assert!(!output.out.contains("RXFvQ0NrWUlD"), "{}", output.out);
    let output = throughline(&[&shown[..5], &["--format", "json", &path]].concat(), b"");
    let shown = json_of(&output.out);
    assert_eq!(shown["document"], "history");
    assert_eq!(shown["items"][1]["seals"][0]["owner"], "anthropic");
    // Without an owner, the block is kept, and a note explains how to restore it.
    let output = throughline(&["show", "--from", "llm-message", &path], b"");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains("does not name the provider"), "{}", output.err);
    assert!(output.err.contains("specify it with --provider"), "{}", output.err);
    let target = ["--to", "anthropic-messages", "--model", CLAUDE];
    let output = throughline(
        &[&["translate", "--from", "llm-message"][..], &target, &[&path]].concat(),
        b"",
    );
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.err.contains("specify it with --from-provider"), "{}", output.err);
}

#[test]
fn llm_messages_are_audited_turn_by_turn() {
    let audit = |text: &str| {
        let path = file("audited-messages.json", text);
        let owner = ["--from", "llm-message", "--provider", "anthropic", "--model", CLAUDE];
        let json =
            throughline(&[&["audit", "--format", "json"][..], &owner, &[&path]].concat(), b"");
        let text = throughline(&[&["audit"][..], &owner, &[&path]].concat(), b"");
        assert_eq!(json.code, text.code, "{} {}", json.err, text.err);
        // Long lines are wrapped.
        let text = text.out.split_whitespace().collect::<Vec<_>>().join(" ");
        (json.code, json_of(&json.out), text)
    };
    let (code, report, _) = audit(MESSAGES);
    assert_eq!((code, &report["verdict"]), (0, &json!("accept")), "{report}");
    let turn = json!({"message":1,"item_count":1,"signed_count":1,"formats":["anthropic-claude-v1"],"violations":[]});
    assert_eq!(report["turns"], json!([turn]));
    let unsigned = MESSAGES.replace(r#","signature":"RXFvQ0NrWUlD""#, "");
    let (code, report, text) = audit(&unsigned);
    assert_eq!((code, &report["verdict"]), (1, &json!("refuse")), "{report}");
    assert_eq!(report["turns"][0]["violations"][0]["kind"], "unsigned");
    assert!(text.contains("✗ refuse: 1 replay violation"), "{text}");
    assert!(
        text.contains("message 1: element 0 of format anthropic-claude-v1 has no signature"),
        "{text}"
    );
    // The user does not have the request that the conversation was translated to.
    let result = r#""role":"tool","content":"blue","toolCallId":"toolu_1","toolName":"look""#;
    let unanswered = MESSAGES.replace(result, r#""role":"user","content":"blue""#);
    let (code, report, text) = audit(&unanswered);
    assert_eq!(code, 1, "{report}");
    assert!(text.contains("--> translated request:1:"), "{text}");
    assert!(text.contains("✗ refuse: 1 refusal"), "{text}");
}

#[test]
fn reasoning_details_are_shown_translated_and_audited() {
    let path = file("details.json", DETAILS);
    let output = throughline(&["show", "--from", "reasoning-details", &path], b"");
    assert_eq!(output.code, 0, "{}", output.err);
    assert!(output.out.contains("sealed by openrouter"), "{}", output.out);
    let owner = ["--from", "reasoning-details", "--from-provider", "openrouter"];
    let target = [
        "--to",
        "openai-chat",
        "--to-provider",
        "openrouter",
        "--model",
        "anthropic/claude-opus-4.5",
    ];
    let output = throughline(&[&["translate"][..], &owner, &target, &[&path]].concat(), b"");
    assert_eq!(output.code, 0, "{}", output.err);
    let sent = json_of(&output.out);
    let details = &json_of(DETAILS)[1]["reasoning_details"];
    assert_eq!(&sent["messages"][1]["reasoning_details"], details);
    let model = ["--model", "anthropic/claude-opus-4.5"];
    let output = throughline(
        &[&["audit", "--from", "reasoning-details"][..], &model, &[&path]].concat(),
        b"",
    );
    assert_eq!(output.code, 0, "{} {}", output.out, output.err);
}

#[test]
fn invalid_documents_are_rejected_with_the_entry() {
    let path = file("invalid-messages.json", r#"[{"role":"user"}]"#);
    let output =
        throughline(&["show", "--from", "llm-message", "--provider", "anthropic", &path], b"");
    assert_eq!(output.code, 65, "{}", output.err);
    assert!(output.err.contains("entry 0: LLMMessage.content"), "{}", output.err);
    let output =
        throughline(&["show", "--from", "llm-message", "--provider", "antropic", &path], b"");
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("unknown provider `antropic`"), "{}", output.err);
    let output = throughline(&["audit", "--from", "llm-message", &path], b"");
    assert_eq!(output.code, 2, "{}", output.err);
    assert!(output.err.contains("--model"), "{}", output.err);
}
