//! Tests that redaction removes only what the policy specifies, and never changes replayed content.

use std::borrow::Cow;

use proptest::prelude::*;
use throughline_json::{Json, JsonKind, Opaque};

use crate::redaction::{REDACTED, pattern, text};
use crate::{InvalidPattern, Message, Pattern, RedactionPolicy, ThinkingBlock, ThoughtRedaction};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn policy(text: &str) -> RedactionPolicy {
    RedactionPolicy::parse(&json(text)).unwrap()
}

fn refusal(text: &str) -> String {
    RedactionPolicy::parse(&json(text)).unwrap_err().to_string()
}

fn redacted(policy: &RedactionPolicy, text: &str) -> String {
    policy.redact_json(&json(text), ThoughtRedaction::Redact).as_str().to_owned()
}

/// Returns a string of `count` characters that resembles an API key.
fn letters(count: usize) -> String {
    "aB3dE5gH".chars().cycle().take(count).collect()
}

fn key_block(body: &str, end: &str) -> String {
    format!("-----BEGIN RSA PRIVATE {}-----{body}{end}", "KEY")
}

const FULL: &str = r#"{"keys":["ssn"],"patterns":["(?i)^secret"],"fields":{"patient":["name","address.street"]},"emitPatterns":["^agent\\."],"thinkingPatterns":["Ada|Bob"],"secretPatterns":["T-[0-9]+"],"builtInSecrets":false}"#;

#[test]
fn policy_round_trips() {
    assert_eq!(policy(FULL).json().as_str(), FULL);
    assert_eq!(policy("{}"), RedactionPolicy::default());
    assert_eq!(policy("{}").json().as_str(), "{}");
    assert_eq!(policy(r#"{"builtInSecrets":false}"#), RedactionPolicy::nothing());
}

#[test]
fn error_names_an_invalid_pattern() {
    assert_eq!(
        refusal(r#"{"thinkingPatterns":["fine","(oops"]}"#),
        r#"RedactionPolicy.thinkingPatterns[1] is invalid: cannot use the pattern "(oops": unclosed group"#
    );
    assert_eq!(
        refusal(r#"{"secretPatterns":["x*"]}"#),
        r#"RedactionPolicy.secretPatterns[0] is invalid: cannot use the pattern "x*": it matches the empty string, so it would match everywhere"#
    );
    let error = InvalidPattern { pattern: "(".into(), problem: "unclosed group".into() };
    assert_eq!("(".parse::<Pattern>(), Err(error));
}

#[test]
fn unknown_settings_are_rejected() {
    let settings =
        "keys, patterns, fields, emitPatterns, thinkingPatterns, secretPatterns, builtInSecrets";
    assert_eq!(
        refusal(r#"{"thinkingPattern":[]}"#),
        format!("RedactionPolicy.thinkingPattern is not a known setting; use {settings}")
    );
    assert_eq!(refusal(r#"{"keys":[1]}"#), "RedactionPolicy.keys[0] must be a string");
    assert_eq!(
        refusal(r#"{"fields":{"a":"b"}}"#),
        "RedactionPolicy.fields.a must be an array of strings"
    );
}

#[test]
fn every_built_in_pattern_compiles() {
    assert_eq!(RedactionPolicy::built_in().len(), pattern::BUILT_IN.len());
}

#[test]
fn common_secrets_are_redacted_completely() {
    let policy = RedactionPolicy::default();
    let body = letters(48);
    let secrets = [
        format!("tl_{}", "0a1b2c".repeat(8)),
        format!("sk-{body}"),
        format!("sk-proj-{body}_x-y"),
        format!("sk-ant-api03-{body}-{body}AA"),
        format!("sk-or-v1-{body}"),
        format!("xai-{body}"),
        format!("gsk_{body}"),
        format!("hf_{body}"),
        format!("AIza{}", letters(35)),
        format!("ya29.{body}"),
        format!("AKIA{}", "A1B2".repeat(4)),
        format!("ABSK{body}="),
        format!("aws_secret_access_key = {}", letters(40)),
        format!("AWS_SESSION_TOKEN=\"{body}"),
        format!("ghp_{}", letters(36)),
        format!("Bearer {body}.x~y"),
        format!("eyJ{}.eyJ{}.{body}", letters(12), letters(12)),
        key_block(&format!("\n{body}\n{body}==\n"), "-----END RSA PRIVATE KEY-----"),
        key_block(&format!("\\n{body}\\nabc=\\n"), "-----END RSA PRIVATE KEY-----"),
        key_block(&format!("\n    {body}\n    abc=\n    "), "-----END RSA PRIVATE KEY-----"),
        key_block(&format!(" {body} {body} abc= "), "-----END RSA PRIVATE KEY-----"),
        key_block(
            &format!("\nProc-Type: 4,ENCRYPTED\nVersion: Any v2 (x)\n\n{body}\n"),
            "-----END RSA PRIVATE KEY-----",
        ),
        key_block(&format!("\n{body}\n{body}"), ""),
    ];
    for secret in secrets {
        assert_eq!(policy.redact_text(&secret), REDACTED, "{secret}");
        let sentence = format!("It is <{secret}>, they say.");
        assert_eq!(policy.redact_text(&sentence), format!("It is <{REDACTED}>, they say."));
    }
}

#[test]
fn harmless_text_is_unchanged() {
    let policy = RedactionPolicy::default();
    let harmless = [
        "",
        "The task-master asks whether sk-learn is a risk-free choice.",
        "sk-container-id-1",
        "A bearer of bad news.",
        "AKIA is a prefix, and AIza is one too.",
        "Look for a line with BEGIN PRIVATE KEY in it.",
        "e79d3f1c-8c2d-4f4e-9b0a-1c2d3e4f5a6b",
    ];
    for text in harmless {
        assert!(matches!(policy.redact_text(text), Cow::Borrowed(same) if same == text), "{text}");
    }
}

#[test]
fn empty_policy_redacts_nothing() {
    let secret = format!("sk-{}", letters(48));
    assert_eq!(RedactionPolicy::nothing().redact_text(&secret), secret);
}

#[test]
fn matches_that_overlap_or_touch_are_redacted_as_one() {
    let policy = policy(r#"{"secretPatterns":["abc","cde","fg"]}"#);
    assert_eq!(policy.redact_text("xabcdefgy"), format!("x{REDACTED}y"));
}

#[test]
fn matches_created_by_a_redaction_are_redacted() {
    let policy = policy(r#"{"secretPatterns":["bar","\\bfoo\\b"]}"#);
    assert_eq!(policy.redact_text("12barfoo"), format!("12{REDACTED}"));
}

#[test]
fn text_that_needs_too_many_passes_is_redacted_completely() {
    let policy = policy(r#"{"secretPatterns":["\\ba"]}"#);
    assert_eq!(policy.redact_text("aab"), format!("{REDACTED}b"));
    assert_eq!(policy.redact_text(&"a".repeat(100)), REDACTED);
}

#[test]
fn only_the_content_of_thinking_blocks_is_redacted() {
    let policy = policy(r#"{"thinkingPatterns":["Ada"]}"#);
    let text = r#"{"role":"assistant","content":"Ada","thinkingBlocks":[{"type":"thinking","content":"Ask Ada.","signature":"QWRh Ada","providerMeta":{"by":"Ada"},"note":"Ada"},{"type":"redacted_thinking","content":"","signature":"Ada"}],"toolCalls":[{"id":"c1","name":"t","args":{"to":"Ada"}}]}"#;
    let message = Message::parse(&json(text)).unwrap();
    let expected = text.replace("Ask Ada.", "Ask [REDACTED].");
    assert_eq!(policy.redact_message(&message).json().as_str(), expected);
    // The message that will be replayed is unchanged.
    assert_eq!(message.json().as_str(), text);
}

#[test]
fn blocks_without_matches_are_borrowed() {
    let policy = policy(r#"{"thinkingPatterns":["Ada"]}"#);
    let blocks = [ThinkingBlock::thinking("Ask Bob.", Some(Opaque::from("Ada")))];
    assert!(
        matches!(policy.redact_thinking_blocks(&blocks), Cow::Borrowed(same) if same == blocks)
    );
    let message = Message { thinking_blocks: blocks.to_vec(), ..message("Ada") };
    assert!(matches!(policy.redact_message(&message), Cow::Borrowed(_)));
}

fn message(content: &str) -> Message {
    Message::new(crate::MessageRole::Assistant, content)
}

#[test]
fn secrets_are_redacted_in_every_readable_part_of_a_message() {
    let secret = format!("sk-{}", letters(48));
    let policy = policy(r#"{"keys":["injectedBy"]}"#);
    let text = format!(
        r#"{{"role":"assistant","content":"{secret}","thinkingBlocks":[{{"type":"thinking","content":"{secret}","signature":"{secret}"}}],"toolCalls":[{{"id":"c1","name":"t","args":{{"a":["{secret}"], "b":1e2}},"providerMeta":{{"thoughtSignature":"{secret}"}}}}],"injectedBy":{{"gate":1}},"note":"{secret}"}}"#
    );
    let message = Message::parse(&json(&text)).unwrap();
    let expected = format!(
        r#"{{"role":"assistant","content":"[REDACTED]","thinkingBlocks":[{{"type":"thinking","content":"[REDACTED]","signature":"{secret}"}}],"toolCalls":[{{"id":"c1","name":"t","args":{{"a":["[REDACTED]"], "b":1e2}},"providerMeta":{{"thoughtSignature":"{secret}"}}}}],"injectedBy":"[REDACTED]","note":"[REDACTED]"}}"#
    );
    assert_eq!(policy.redact_message(&message).json().as_str(), expected);
}

#[test]
fn members_are_removed_by_name_pattern_and_path() {
    let policy = policy(FULL);
    let text = r#"{ "ssn": {"a": [1]}, "Secrets":null, "my secret": 1e2, "list": [{"ssn":"\u0041"}],
        "patient": {"name":"N","age":1.0,"address":{"street":"S","city":"C"}}, "name":"kept",
        "patients": {"name":"kept"}, "id":"T-12 \u0041" }"#;
    let expected = r#"{ "ssn": "[REDACTED]", "Secrets":"[REDACTED]", "my secret": 1e2, "list": [{"ssn":"[REDACTED]"}],
        "patient": {"name":"[REDACTED]","age":1.0,"address":{"street":"[REDACTED]","city":"C"}}, "name":"kept",
        "patients": {"name":"kept"}, "id":"[REDACTED] A" }"#;
    assert_eq!(redacted(&policy, text), expected);
}

#[test]
fn paths_traverse_arrays_and_duplicate_names() {
    let policy = policy(FULL);
    assert_eq!(
        redacted(&policy, r#"{"patient":[{"address":[{"street":[1]}]},[{"name":1,"name":2}]]}"#),
        r#"{"patient":[{"address":[{"street":"[REDACTED]"}]},[{"name":"[REDACTED]","name":"[REDACTED]"}]]}"#
    );
}

#[test]
fn secrets_in_member_names_are_redacted() {
    let policy = policy(FULL);
    assert_eq!(
        redacted(&policy, r#"{"Is T-1 yours?":{"values":[ ]}}"#),
        r#"{"Is [REDACTED] yours?":{"values":[ ]}}"#
    );
}

#[test]
fn thoughts_are_recognized_in_every_provider_format() {
    let policy = policy(FULL);
    let thoughts = [
        r#"{"type":"thinking","thinking":"@","signature":"Ada"}"#,
        r#"{"type":"thinking","content":"@","signature":"Ada","providerMeta":{"text":"Ada"}}"#,
        r#"{"type":"thinking","thinking":[{"type":"text","text":"@"}]}"#,
        r#"{"type":"thinking_delta","thinking":"@"}"#,
        r#"{"type":"reasoning","id":"Ada","summary":[{"type":"summary_text","text":"@"}],"content":[{"type":"reasoning_text","text":"@"}],"encrypted_content":"Ada"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","delta":"@"}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","text":"@","signature":"Ada"},{"type":"reasoning.encrypted","data":"Ada"}]}"#,
        r#"{"role":"assistant","reasoning_content":"@","content":"Ada"}"#,
        r#"{"role":"assistant","reasoning":"@","content":"Ada"}"#,
        r#"{"parts":[{"thought":true,"text":"@","thoughtSignature":"Ada"},{"text":"Ada","thoughtSignature":"Ada"}]}"#,
        r#"{"reasoningContent":{"reasoningText":{"text":"@","signature":"Ada"}}}"#,
        r#"{"message_type":"reasoning_message","reasoning":"@","signature":"Ada"}"#,
        r#"{"type":"reflection","id":"r1","text":"@"}"#,
        r#"{"reflections":[{"id":"Ada","text":"@"}],"messages":[{"content":"Ada"}]}"#,
    ];
    for thought in thoughts {
        let text = thought.replace('@', "Hello Ada");
        assert_eq!(redacted(&policy, &text), thought.replace('@', "Hello [REDACTED]"));
        let unredacted = policy.redact_json(&json(&text), ThoughtRedaction::Leave).into_owned();
        assert_eq!(unredacted.as_str(), text);
    }
}

#[test]
fn sealed_values_are_kept_unless_listed_in_keys() {
    let secret = format!("sk-{}", letters(48));
    let text = format!(
        r#"[{{"type":"reasoning","encrypted_content":"{secret}"}},{{"type":"redacted_thinking","data":"{secret}"}},{{"signature":"{secret}"}}]"#
    );
    let unsealed =
        text.replace(&format!(r#"{{"signature":"{secret}"}}"#), r#"{"signature":"[REDACTED]"}"#);
    assert_eq!(redacted(&RedactionPolicy::default(), &text), unsealed);
    let policy = policy(r#"{"keys":["encrypted_content","data"]}"#);
    assert!(!redacted(&policy, &text).contains("sk-"));
}

#[test]
fn an_event_is_redacted_by_its_name() {
    let policy = policy(FULL);
    let payload = json(r#"{"ssn":1, "text":"T-1"}"#);
    assert_eq!(policy.redact_event("agent.turn", &payload).as_str(), r#""[REDACTED]""#);
    let redacted = policy.redact_event("stream.agent.token", &payload);
    assert_eq!(redacted.as_str(), r#"{"ssn":"[REDACTED]", "text":"[REDACTED]"}"#);
    let harmless = json(r#"{"text":"t"}"#);
    assert!(matches!(policy.redact_event("stream.token", &harmless), Cow::Borrowed(_)));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!("{}\"T-1\"{}", "[".repeat(100_000), "]".repeat(100_000));
    let expected = deep.replace("T-1", REDACTED);
    assert_eq!(redacted(&policy(FULL), &deep), expected);
}

/// Generates JSON values that contain secrets, Thoughts and all kinds of member names.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let text = prop_oneof![
        "[a-zA-Z \\[\\]\u{e9}\"\\\\]{0,12}",
        Just("T-12".to_owned()),
        Just("Ada and Bob".to_owned()),
        Just("[REDACTED]".to_owned()),
        Just("xT-1[REDACTED]T-2Ada".to_owned()),
        Just(format!("sk-{}", "aB3".repeat(10))),
    ];
    let name = prop_oneof![
        "[a-z]{0,3}",
        Just("ssn".to_owned()),
        Just("secret".to_owned()),
        Just("patient".to_owned()),
        Just("name".to_owned()),
        Just("thinking".to_owned()),
        Just("text".to_owned()),
        Just("T-9".to_owned()),
    ];
    let leaf = prop_oneof![
        text.prop_map(serde_json::Value::from),
        any::<i32>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Returns all strings in a value, including member names.
fn strings(value: &Json) -> Vec<String> {
    let tree = value.tree();
    let (mut texts, mut stack) = (Vec::new(), vec![tree.root()]);
    while let Some(node) = stack.pop() {
        if node.shape() == JsonKind::String {
            texts.extend(node.text().map(Cow::into_owned));
        }
        stack.extend(node.elements());
        stack.extend(node.members().flat_map(|(name, value)| [name, value]));
    }
    texts
}

proptest! {
    #[test]
    fn redaction_is_complete_and_idempotent(value in value()) {
        let policy = RedactionPolicy { built_in_secrets: true, ..policy(FULL) };
        let value = Json::from(&value);
        let once = policy.redact_json(&value, ThoughtRedaction::Redact).into_owned();
        prop_assert!(Json::parse(once.bytes().clone()).is_ok());
        prop_assert!(matches!(policy.redact_json(&once, ThoughtRedaction::Redact), Cow::Borrowed(_)));
        for pattern in policy.active_secret_patterns() {
            prop_assert!(!strings(&once).iter().any(|text| pattern.is_match(text)));
        }
    }

    #[test]
    fn values_without_matches_are_borrowed(value in value()) {
        let policy = policy(r#"{"secretPatterns":["never said"],"keys":["never"],"thinkingPatterns":["nor this"],"builtInSecrets":false}"#);
        let value = Json::from(&value);
        prop_assert!(matches!(policy.redact_json(&value, ThoughtRedaction::Redact), Cow::Borrowed(_)));
    }

    #[test]
    fn unredacted_bytes_are_unchanged(before in "[^T\\[]{0,20}", after in "[^T\\[]{0,20}") {
        let policy = policy(r#"{"secretPatterns":["T-[0-9]{3}"],"builtInSecrets":false}"#);
        let text = format!("{before}T-123{after}");
        prop_assert_eq!(policy.redact_text(&text), format!("{before}{REDACTED}{after}"));
    }

    #[test]
    fn redaction_is_idempotent_for_any_pattern(
        first in "[ab.\\[\\]RE]{1,4}",
        second in proptest::sample::select(vec![r"\b[abx]", "[a-c]+", r"\W.", "^.", ".$", "R?a"]),
        body in "[abx \\[\\]RE]{0,40}",
        is_marked: bool,
    ) {
        let patterns: Vec<_> = [first.as_str(), second].iter().filter_map(|p| Pattern::new(p).ok()).collect();
        let patterns: Vec<_> = patterns.iter().collect();
        let body = if is_marked { format!("{body}{REDACTED}{body}") } else { body };
        let once = text::redact(&body, &patterns).into_owned();
        prop_assert_eq!(text::redact(&once, &patterns), once.as_str());
        for pattern in &patterns {
            // A pattern with context assertions may match an isolated piece that it does not match
            // in the whole text.
            let is_plain = pattern.as_str().chars().all(|letter| "abRE.".contains(letter));
            let is_left = once.split(REDACTED).any(|piece| pattern.is_match(piece));
            prop_assert!(!(is_plain && is_left));
        }
    }
}

#[test]
fn thoughts_in_stored_records_are_redacted_everywhere() {
    let policy = RedactionPolicy {
        thinking_patterns: vec![Pattern::new("zebra").unwrap()],
        ..RedactionPolicy::default()
    };
    let redacted = |kind: &str, content: &'static [u8]| {
        policy.redact_record(kind, &bytes::Bytes::from_static(content))
    };
    // A stored Thought cannot be recognized by its position.
    let item = redacted(
        "item",
        br#"{"thought":{"text":"a zebra"},"json":{"content":"<think>zebra</think>"}}"#,
    );
    let item = String::from_utf8(item.unwrap().to_vec()).unwrap();
    assert!(!item.contains("zebra") && item.contains(REDACTED), "{item}");
    // Stream pieces are redacted whole, because a match may span several pieces.
    let events = throughline_core::pack_events([
        &br#"{"type":"thought","phase":"delta","turn":1,"text":"zeb"}"#[..],
        &br#"{"type":"stream","text":"ra"}"#[..],
    ]);
    let events = policy.redact_record(&events.kind, &events.content).unwrap();
    for event in throughline_core::split_pack(&events) {
        let event = String::from_utf8(event.to_vec()).unwrap();
        assert!(event.contains(REDACTED) && !event.contains("zeb"), "{event}");
    }
    assert_eq!(redacted("copy", b"{\"delta\":\"zeb\"}").unwrap(), format!("{REDACTED:?}"));
    // Content without a match stays unchanged, even if it is not text.
    assert_eq!(redacted("item", br#"{"text":"harmless"}"#), None);
    assert_eq!(redacted("item", b"\xff\xfe\x00"), None);
    let nothing = RedactionPolicy::nothing();
    assert_eq!(nothing.redact_record("copy", &bytes::Bytes::from_static(b"zebra")), None);
}
