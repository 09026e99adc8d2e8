//! Tests for document 000, `RawThought`: JSON round trips, and each rule in the document.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test may fail loudly"
)]

use std::sync::Arc;

use proptest::prelude::*;
use throughline_core::{
    Body, Direction, Identifier, Identity, Item, ItemId, ItemPosition, NativePart, Origin,
    PLAIN_TEXT, RawIdentity, ReasoningFormat, Role, Thought, ThoughtKind, TokenCounter, Wire, tag,
};
use throughline_json::{Json, Node};
use throughline_spec::{InvalidThought, RawThought, raw_thought_json};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn parse(text: &str) -> Result<Item, InvalidThought> {
    RawThought::parse(&json(text))
}

fn thought(item: &Item) -> &Thought {
    let Body::Thought(thought) = &item.body else { panic!("not a thought") };
    thought
}

/// Returns the JSON of a valid `RawThought` with one member replaced or added.
fn with(key: &str, value: &str) -> String {
    let members = [
        ("id", r#""t1""#),
        ("content", r#""think""#),
        ("createdAt", r#""2026-01-31T12:00:00Z""#),
        ("updatedAt", r#""2026-01-31T12:00:01Z""#),
    ];
    let mut out: Vec<String> = members
        .iter()
        .filter(|(name, _)| *name != key)
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    if !value.is_empty() {
        out.push(format!("\"{key}\":{value}"));
    }
    format!("{{{}}}", out.join(","))
}

fn blamed(text: &str) -> String {
    let error = parse(text).unwrap_err();
    assert_eq!(error.code(), "E_INVALID_INITIAL_THOUGHT_VALUE");
    assert!(error.to_string().starts_with("E_INVALID_INITIAL_THOUGHT_VALUE: "), "{error}");
    error.field.to_string()
}

#[test]
fn every_field_round_trips() {
    let document = r#"{"id":"t1","content":"think","identity":{"identifier":7,"representation":"Ann"},"payload":{"signature":"c2ln","n":1e2},"replayCompatibility":"anthropic-messages-thinking-v1","createdAt":"2026-01-31T12:00:00Z","updatedAt":"2026-01-31T12:00:01.5Z"}"#;
    let item = parse(document).unwrap();
    let read = thought(&item);
    assert_eq!(item.id, ItemId::from("t1"));
    assert_eq!(item.role, Role::Assistant);
    assert_eq!(&*read.content, "think");
    assert_eq!(read.identity.identifier, Identifier::Number(json("7")));
    assert_eq!(read.identity.representation, "Ann");
    assert_eq!(read.payload, Some(json(r#"{"signature":"c2ln","n":1e2}"#)));
    assert_eq!(read.replay_compatibility.as_deref(), Some(tag::ANTHROPIC_MESSAGES_THINKING));
    assert_eq!(read.format, ReasoningFormat::AnthropicClaudeV1);
    let record = read.record.as_deref().unwrap();
    assert_eq!(record.created_at.to_string(), "2026-01-31T12:00:00Z");
    assert_eq!(record.updated_at.to_string(), "2026-01-31T12:00:01.5Z");
    assert_eq!(raw_thought_json(&item).unwrap().as_str(), document);
}

#[test]
fn id_and_both_instants_are_required() {
    assert_eq!(blamed(&with("id", "")), "id");
    assert_eq!(blamed(&with("id", "\"\"")), "id");
    assert_eq!(blamed(&with("id", "7")), "id");
    assert_eq!(blamed(&with("createdAt", "")), "createdAt");
    assert_eq!(blamed(&with("updatedAt", "")), "updatedAt");
}

#[test]
fn instants_are_iso_8601_or_unix_seconds_or_milliseconds() {
    for (given, instant) in [
        (r#""2026-01-31T12:00:00Z""#, "2026-01-31T12:00:00Z"),
        (r#""2026-01-31T12:00:00+02:00""#, "2026-01-31T10:00:00Z"),
        (r#""2026-01-31T12:00:00""#, "2026-01-31T12:00:00Z"),
        (r#""2026-01-31""#, "2026-01-31T00:00:00Z"),
        ("1769860800", "2026-01-31T12:00:00Z"),
        ("1769860800.25", "2026-01-31T12:00:00.25Z"),
        ("1769860800123", "2026-01-31T12:00:00.123Z"),
    ] {
        for key in ["createdAt", "updatedAt"] {
            let item = parse(&with(key, given)).unwrap();
            let record = thought(&item).record.clone().unwrap();
            let read = if key == "createdAt" { record.created_at } else { record.updated_at };
            assert_eq!(read.to_string(), instant);
        }
    }
    for wrong in [r#""soon""#, "true", "{}", "1e300"] {
        assert_eq!(blamed(&with("createdAt", wrong)), "createdAt");
        assert_eq!(blamed(&with("updatedAt", wrong)), "updatedAt");
    }
}

#[test]
fn typed_timestamps_and_identities_pass_through() {
    let at: jiff::Timestamp = "2026-01-31T12:00:00.000000001Z".parse().unwrap();
    let ann = Identity { identifier: Identifier::Text("a-1".into()), representation: "Ann".into() };
    let content: Arc<str> = Arc::from("ready");
    let item = RawThought::new("t1", content, at).with_identity(ann.clone()).into_item().unwrap();
    let read = thought(&item);
    assert_eq!(read.identity, ann);
    assert_eq!(read.record.as_deref().unwrap().created_at, at);
    assert_eq!(&*read.content, "ready");
}

#[test]
fn content_may_be_absent_or_empty_only_with_a_payload() {
    assert_eq!(blamed(&with("content", "")), "content");
    assert_eq!(blamed(&with("content", "\"\"")), "content");
    assert_eq!(blamed(&with("content", "null")), "content");
    assert_eq!(blamed(&with("content", "7")), "content");
    for content in ["", r#""content":"","#, r#""content":null,"#] {
        let document = format!(
            r#"{{"id":"t1",{content}"payload":0,"replayCompatibility":"x","createdAt":0,"updatedAt":0}}"#
        );
        let item = parse(&document).unwrap();
        assert_eq!(&*thought(&item).content, "");
        assert_eq!(thought(&item).kind, ThoughtKind::Encrypted);
    }
}

#[test]
fn content_tokens_can_be_counted() {
    struct Words;
    impl TokenCounter for Words {
        fn count(&self, text: &str) -> u64 {
            text.split_whitespace().count() as u64
        }
    }
    let item = parse(&with("content", "\"one two three\"")).unwrap();
    assert_eq!(thought(&item).tokens(&Words), 3);
}

#[test]
fn payload_requires_replay_compatibility() {
    assert_eq!(blamed(&with("payload", "{}")), "replayCompatibility");
    assert_eq!(blamed(&with("payload", "false")), "replayCompatibility");
    assert_eq!(blamed(&with("replayCompatibility", "\"\"")), "replayCompatibility");
    assert_eq!(blamed(&with("replayCompatibility", "1")), "replayCompatibility");
    assert_eq!(
        parse(&with("payload", "{}")).unwrap_err().to_string(),
        "E_INVALID_INITIAL_THOUGHT_VALUE: replayCompatibility is missing; a payload requires the \
         tag of its wire format"
    );
}

#[test]
fn a_replay_compatibility_needs_no_payload() {
    let item = parse(&with("replayCompatibility", "\"my-fine-tune\"")).unwrap();
    assert_eq!(thought(&item).replay_compatibility.as_deref(), Some("my-fine-tune"));
    assert_eq!(thought(&item).payload, None);
    assert!(!thought(&item).is_plain());
}

#[test]
fn a_thought_is_plain_without_payload_and_without_tag_or_with_plain_text() {
    assert!(thought(&parse(&with("identity", "")).unwrap()).is_plain());
    let tagged = parse(&with("replayCompatibility", &format!("\"{PLAIN_TEXT}\""))).unwrap();
    assert!(thought(&tagged).is_plain());
}

#[test]
fn a_payload_is_any_json_value_kept_verbatim() {
    for payload in [r#""c2ln""#, "0", "false", "[]", r#"{"b":1e2,"a":"\u00e9","a":1}"#, "[ 1 , 2 ]"]
    {
        let document = format!(
            r#"{{"id":"t1","payload":{payload},"replayCompatibility":"x","createdAt":0,"updatedAt":0}}"#
        );
        let item = parse(&document).unwrap();
        assert_eq!(thought(&item).payload.as_ref().unwrap().as_str(), payload);
        let printed = raw_thought_json(&item).unwrap();
        assert_eq!(printed.tree().root().get("payload").unwrap().raw(), payload.as_bytes());
    }
}

#[test]
fn null_means_absent_everywhere() {
    let document = r#"{"id":"t1","content":"x","identity":null,"payload":null,"replayCompatibility":null,"createdAt":0,"updatedAt":0}"#;
    let item = parse(document).unwrap();
    assert_eq!(thought(&item).payload, None);
    assert_eq!(thought(&item).replay_compatibility, None);
    assert_eq!(thought(&item).identity, Identity::default());
    assert!(thought(&item).is_plain());
    for key in ["id", "content", "createdAt", "updatedAt"] {
        assert_eq!(blamed(&with(key, "null")), key);
    }
    let mut raw = RawThought::new("t1", "x", 0_i64);
    raw.payload = Some(Json::null());
    raw.identity = Some(RawIdentity::Raw(Json::null()));
    assert!(thought(&raw.into_item().unwrap()).is_plain());
}

#[test]
fn an_identity_is_a_string_or_an_object_or_assistant() {
    let identity =
        |value: &str| thought(&parse(&with("identity", value)).unwrap()).identity.clone();
    assert_eq!(identity(""), Identity::named("assistant"));
    assert_eq!(identity(r#""Ann""#), Identity::named("Ann"));
    assert_eq!(
        identity(r#"{"identifier":"a-1","representation":"Ann"}"#),
        Identity { identifier: Identifier::Text("a-1".into()), representation: "Ann".into() }
    );
    assert_eq!(
        identity(r#"{"identifier":18446744073709551616,"representation":"Ann"}"#).identifier,
        Identifier::Number(json("18446744073709551616"))
    );
}

#[test]
fn an_identity_needs_both_parts() {
    for (value, field) in [
        ("7", "identity"),
        ("\"\"", "identity"),
        ("{}", "identity.identifier"),
        (r#"{"identifier":null,"representation":"Ann"}"#, "identity.identifier"),
        (r#"{"identifier":"","representation":"Ann"}"#, "identity.identifier"),
        (r#"{"identifier":true,"representation":"Ann"}"#, "identity.identifier"),
        (r#"{"identifier":"a"}"#, "identity.representation"),
        (r#"{"identifier":"a","representation":""}"#, "identity.representation"),
        (r#"{"identifier":"a","representation":7}"#, "identity.representation"),
    ] {
        assert_eq!(blamed(&with("identity", value)), field, "{value}");
    }
}

#[test]
fn non_objects_are_rejected() {
    for text in ["[]", "null", "\"t\"", "1"] {
        assert_eq!(blamed(text), "thought");
    }
}

#[test]
fn unknown_members_are_kept() {
    let document = r#"{"id":"t1","content":"x","identity":{"identifier":"a","representation":"b","colour":"red"},"createdAt":"2026-01-31T12:00:00Z","updatedAt":"2026-01-31T12:00:00Z","mood":[1, 2]}"#;
    let item = parse(document).unwrap();
    assert_eq!(raw_thought_json(&item).unwrap().as_str(), document);
}

fn captured(wire: &Wire, native: &str) -> Item {
    let body = Thought::issued("deep", ThoughtKind::Text, ReasoningFormat::unknown());
    let mut item = Item::new("t1", ItemPosition::default(), Role::Assistant, Body::Thought(body));
    item.native = Some(NativePart::new(wire.clone(), Direction::Response, json(native)));
    item.origin = Some(Arc::new(Origin {
        provider: "p".into(),
        endpoint: "e".into(),
        account: "a".into(),
        wire: wire.clone(),
        asked: "m".into(),
        answered: "m".into(),
        family: "f".into(),
        routed: None,
    }));
    item
}

fn record(item: &mut Item) {
    let Body::Thought(thought) = &mut item.body else { panic!("not a thought") };
    thought.set_recorded_at("2026-01-31T12:00:00Z".parse().unwrap());
}

#[test]
fn captured_thought_prints_its_native_json_and_wire_tag() {
    let tags = [
        (Wire::ANTHROPIC_MESSAGES, "anthropic-messages-thinking-v1"),
        (Wire::OPENAI_RESPONSES, "openai-responses-reasoning-item-v1"),
        (Wire::OPENAI_CHAT, "openai-chat-reasoning-v1"),
        (Wire::GEMINI, "gemini-thought-part-v1"),
        (Wire::BEDROCK_CONVERSE, "bedrock-converse-reasoning-v1"),
        (Wire::new("another-elses"), "another-elses"),
    ];
    for (wire, tag) in tags {
        let native = r#"{"signature" : "c2ln"}"#;
        let mut item = captured(&wire, native);
        assert_eq!(raw_thought_json(&item), None, "it was never recorded");
        record(&mut item);
        let printed = raw_thought_json(&item).unwrap();
        assert_eq!(
            printed.as_str(),
            format!(
                r#"{{"id":"t1","content":"deep","identity":{{"identifier":"assistant","representation":"assistant"}},"payload":{native},"replayCompatibility":"{tag}","createdAt":"2026-01-31T12:00:00Z","updatedAt":"2026-01-31T12:00:00Z"}}"#
            )
        );
        let back = RawThought::parse(&printed).unwrap();
        assert_eq!(raw_thought_json(&back).unwrap(), printed);
        assert!(!thought(&back).is_plain());
    }
}

#[test]
fn unreplayable_captured_thought_never_becomes_plain() {
    let mut item = captured(&Wire::ANTHROPIC_MESSAGES, r#"{"signature":"c2ln"}"#);
    record(&mut item);
    let Body::Thought(cut) = &mut item.body else { panic!("not a thought") };
    cut.whole = false;
    let printed = raw_thought_json(&item).unwrap();
    assert_eq!(printed.tree().root().get("payload").map(Node::json), None);
    let back = RawThought::parse(&printed).unwrap();
    assert_eq!(thought(&back).replay_compatibility.as_deref(), Some(tag::NOT_REPLAYABLE));
    assert!(!thought(&back).is_plain());
}

#[test]
fn other_items_have_no_raw_thought() {
    let text = Item::new("i", ItemPosition::default(), Role::User, Body::Text("hello".into()));
    assert_eq!(raw_thought_json(&text), None);
}

proptest! {
    #[test]
    fn every_valid_thought_round_trips(
        id in ".{1,20}",
        content in ".{0,40}",
        tag in proptest::option::of(".{1,20}"),
        payload in proptest::option::of(any::<String>()),
        name in ".{1,10}",
        seconds in -62_135_596_800_i64..100_000_000_000_i64,
    ) {
        let mut raw = RawThought::new(id.as_str(), content.as_str(), seconds).with_identity(name.as_str());
        raw.replay_compatibility = tag.as_deref().map(Into::into);
        raw.payload = payload.as_deref().map(throughline_json::string);
        let is_valid = (raw.payload.is_none() || tag.is_some())
            && (raw.payload.is_some() || !content.is_empty());
        match raw.into_item() {
            Err(_) => prop_assert!(!is_valid),
            Ok(item) => {
                prop_assert!(is_valid);
                let printed = raw_thought_json(&item).unwrap();
                let back = RawThought::parse(&printed).unwrap();
                prop_assert_eq!(&back, &item);
                prop_assert_eq!(raw_thought_json(&back).unwrap(), printed);
            }
        }
    }
}
