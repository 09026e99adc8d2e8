//! Tests for document 002, Letta's `ReasoningMessage` and `HiddenReasoningMessage`: JSON round
//! trips, and each rule in the document.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test may fail loudly"
)]

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use throughline_core::{
    Body, Item, ItemPosition, Origin, ReasoningFormat, ReasoningSource, Role, Seal, Thought,
    ThoughtKind, Wire, tag,
};
use throughline_json::{Json, Opaque};
use throughline_spec::{
    HiddenReasoningMessage, HiddenState, LettaHeader, LettaReasoning, ReasoningMessage,
};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn parse(text: &str) -> ReasoningMessage {
    ReasoningMessage::parse(&json(text)).unwrap()
}

fn refusal(text: &str) -> String {
    ReasoningMessage::parse(&json(text)).unwrap_err().to_string()
}

/// Returns a validator for the JSON Schema in the document.
fn schema() -> jsonschema::Validator {
    let schema = include_str!("fixtures/letta-reasoning-message.schema.json");
    let schema = serde_json::from_str(schema).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

fn is_valid(document: &Json) -> bool {
    schema().is_valid(&serde_json::from_str(document.as_str()).unwrap())
}

fn owner() -> Arc<Origin> {
    Arc::new(Origin {
        provider: "anthropic".into(),
        endpoint: "e".into(),
        account: "a".into(),
        wire: Wire::ANTHROPIC_MESSAGES,
        asked: "m".into(),
        answered: "m".into(),
        family: "f".into(),
        routed: None,
    })
}

fn captured(id: &str, text: &str, kind: ThoughtKind, seal: Option<&'static str>) -> Item {
    let mut thought = Thought::issued(text, kind, ReasoningFormat::AnthropicClaudeV1);
    thought.set_recorded_at("2026-01-31T12:00:00Z".parse().unwrap());
    let mut item = Item::new(id, ItemPosition::default(), Role::Assistant, Body::Thought(thought));
    item.origin = Some(owner());
    let seal = seal.map(|text| Seal::new(Bytes::from_static(text.as_bytes()), "x", owner(), "/s"));
    item.seals = seal.into_iter().collect();
    item
}

fn printed(item: &Item) -> String {
    LettaReasoning::from_item(item).unwrap().json().as_str().to_owned()
}

const FULL: &str = r#"{"id":"message-1","date":"2026-01-31T12:00:00Z","name":"Ann","message_type":"reasoning_message","otid":"o-1","sender_id":"s-1","step_id":"step-1","is_err":false,"seq_id":-7,"run_id":"run-1","source":"reasoner_model","reasoning":"hm","signature":"c2ln+/=="}"#;

#[test]
fn every_field_round_trips() {
    let message = parse(FULL);
    let header = &message.header;
    assert_eq!(&*header.id, "message-1");
    assert_eq!(header.date.to_string(), "2026-01-31T12:00:00Z");
    assert_eq!(header.name.as_deref(), Some("Ann"));
    assert_eq!(header.otid.as_deref(), Some("o-1"));
    assert_eq!(header.sender_id.as_deref(), Some("s-1"));
    assert_eq!(header.step_id.as_deref(), Some("step-1"));
    assert_eq!(header.is_err, Some(false));
    assert_eq!(header.seq_id, Some(-7));
    assert_eq!(header.run_id.as_deref(), Some("run-1"));
    assert_eq!(message.source, ReasoningSource::ReasonerModel);
    assert_eq!(&*message.reasoning, "hm");
    assert_eq!(message.signature.as_ref().unwrap().reveal_to_tenant(), "c2ln+/==");
    assert_eq!(message.json().as_str(), FULL);
    assert!(is_valid(&message.json()));
}

#[test]
fn message_type_and_source_have_defaults() {
    let message = parse(r#"{"id":"m","date":"2026-01-31T12:00:00+02:00","reasoning":""}"#);
    assert_eq!(message.source, ReasoningSource::NonReasonerModel);
    assert_eq!(
        message.json().as_str(),
        r#"{"id":"m","date":"2026-01-31T10:00:00Z","message_type":"reasoning_message","source":"non_reasoner_model","reasoning":""}"#
    );
    assert!(is_valid(&message.json()));
}

#[test]
fn null_means_absent() {
    let text = r#"{"id":"m","date":"2026-01-31T12:00:00Z","name":null,"message_type":null,"otid":null,"sender_id":null,"step_id":null,"is_err":null,"seq_id":null,"run_id":null,"source":null,"reasoning":"r","signature":null}"#;
    let header = LettaHeader::new("m", "2026-01-31T12:00:00Z".parse().unwrap());
    let source = ReasoningSource::NonReasonerModel;
    let plain = ReasoningMessage { header, source, reasoning: "r".into(), signature: None };
    assert_eq!(parse(text), plain);
}

#[test]
fn errors_name_missing_and_invalid_members() {
    let base = [("id", r#""m""#), ("date", r#""2026-01-31T12:00:00Z""#), ("reasoning", r#""r""#)];
    let with = |key: &str, value: &str| {
        let mut members: Vec<_> = base.iter().filter(|(name, _)| *name != key).copied().collect();
        if !value.is_empty() {
            members.push((key, value));
        }
        let members: Vec<_> = members.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        format!("{{{}}}", members.join(","))
    };
    for (key, value, message) in [
        ("id", "", "ReasoningMessage.id is missing; expected a string"),
        ("id", "null", "ReasoningMessage.id is missing; expected a string"),
        ("id", "7", "ReasoningMessage.id must be a string"),
        ("date", "", "ReasoningMessage.date is missing; expected an ISO 8601 date-time"),
        ("date", "1769860800", "ReasoningMessage.date must be a string"),
        (
            "date",
            r#""soon""#,
            "ReasoningMessage.date is invalid: \"soon\" is not a timestamp; use ISO 8601 \
             (2026-01-31T12:00:00Z), Unix seconds or Unix milliseconds",
        ),
        ("reasoning", "", "ReasoningMessage.reasoning is missing; expected a string"),
        ("reasoning", "[]", "ReasoningMessage.reasoning must be a string"),
        ("name", "1", "ReasoningMessage.name must be a string"),
        ("otid", "1", "ReasoningMessage.otid must be a string"),
        ("sender_id", "1", "ReasoningMessage.sender_id must be a string"),
        ("step_id", "1", "ReasoningMessage.step_id must be a string"),
        ("run_id", "1", "ReasoningMessage.run_id must be a string"),
        ("signature", "1", "ReasoningMessage.signature must be a string"),
        ("is_err", "1", "ReasoningMessage.is_err must be true or false"),
        ("seq_id", "1.5", "ReasoningMessage.seq_id must be a whole number"),
        (
            "source",
            r#""oracle""#,
            "ReasoningMessage.source must be one of reasoner_model, non_reasoner_model",
        ),
        (
            "message_type",
            r#""user_message""#,
            "ReasoningMessage.message_type must be reasoning_message",
        ),
    ] {
        assert_eq!(refusal(&with(key, value)), message);
        let document = json(&with(key, value));
        // The schema rejects everything that the parser rejects.
        assert!(!is_valid(&document), "{key} {value}");
    }
    assert_eq!(refusal("[]"), "ReasoningMessage must be an object");
}

#[test]
fn unknown_members_are_kept() {
    let text = r#"{"id":"m","date":"2026-01-31T12:00:00Z","message_type":"reasoning_message","source":"non_reasoner_model","reasoning":"r","state":"new","mood":[1, 2]}"#;
    assert_eq!(parse(text).json().as_str(), text);
    assert_eq!(printed(&parse(text).item(None)), text);
}

#[test]
fn a_naive_date_is_utc_and_prints_as_a_date_time() {
    let message = parse(r#"{"id":"m","date":"2026-01-31T12:00:00.25","reasoning":""}"#);
    assert_eq!(message.json().tree().root().text_of("date").unwrap(), "2026-01-31T12:00:00.25Z");
    assert!(is_valid(&message.json()));
}

#[test]
fn each_thought_is_one_message_with_its_own_signature() {
    let items = [
        captured("t1", "one", ThoughtKind::Text, Some("c2lnMQ")),
        captured("t2", "two", ThoughtKind::Text, Some("c2lnMg")),
        captured("t3", "in short", ThoughtKind::Summary, Some("ZW5j")),
    ];
    let line = |id: &str, text: &str, signature: &str| {
        format!(
            r#"{{"id":"{id}","date":"2026-01-31T12:00:00Z","message_type":"reasoning_message","source":"reasoner_model","reasoning":"{text}","signature":"{signature}"}}"#
        )
    };
    let all: Vec<_> = items.iter().map(printed).collect();
    let expected =
        [line("t1", "one", "c2lnMQ"), line("t2", "two", "c2lnMg"), line("t3", "in short", "ZW5j")];
    assert_eq!(all, expected);
    assert!(all.iter().all(|text| is_valid(&json(text))));
}

#[test]
fn a_signature_without_text_is_still_shown_with_its_signature() {
    let item = captured("t", "", ThoughtKind::Text, Some("c2ln"));
    let LettaReasoning::Shown(message) = LettaReasoning::from_item(&item).unwrap() else {
        panic!("hidden")
    };
    assert_eq!(&*message.reasoning, "");
    assert_eq!(message.signature, Some(Opaque::from("c2ln")));
}

#[test]
fn encrypted_thought_is_redacted_and_empty_thought_is_omitted() {
    assert_eq!(
        printed(&captured("t", "", ThoughtKind::Encrypted, Some("ZGF0YQ"))),
        r#"{"id":"t","date":"2026-01-31T12:00:00Z","message_type":"hidden_reasoning_message","state":"redacted","hidden_reasoning":"ZGF0YQ"}"#
    );
    assert_eq!(
        printed(&captured("t", "", ThoughtKind::Encrypted, None)),
        r#"{"id":"t","date":"2026-01-31T12:00:00Z","message_type":"hidden_reasoning_message","state":"omitted"}"#
    );
}

#[test]
fn hidden_message_round_trips() {
    let text = r#"{"id":"m","date":"2026-01-31T12:00:00Z","name":"Ann","message_type":"hidden_reasoning_message","otid":"o","sender_id":"s","step_id":"st","is_err":true,"seq_id":1,"run_id":"r","state":"redacted","hidden_reasoning":"ZGF0YQ","source":"kept"}"#;
    let message = HiddenReasoningMessage::parse(&json(text)).unwrap();
    assert_eq!(message.state, HiddenState::Redacted);
    assert_eq!(message.hidden_reasoning, Some(Opaque::from("ZGF0YQ")));
    assert_eq!(message.json().as_str(), text);
    for owner in [None, Some(owner())] {
        assert_eq!(printed(&message.item(owner.as_ref())), text);
    }
    let refusal = |text| HiddenReasoningMessage::parse(&json(text)).unwrap_err().to_string();
    assert_eq!(
        refusal(r#"{"id":"m","date":"2026-01-31"}"#),
        "HiddenReasoningMessage.state is missing; expected one of redacted, omitted"
    );
    assert_eq!(
        refusal(r#"{"id":"m","date":"2026-01-31","state":"lost"}"#),
        "HiddenReasoningMessage.state must be one of redacted, omitted"
    );
}

#[test]
fn signature_becomes_a_seal_of_its_owner() {
    let item = parse(FULL).item(Some(&owner()));
    assert_eq!(item.seals[0].reveal_to_tenant().as_ref(), b"c2ln+/==");
    assert_eq!(item.seals[0].owner, owner());
    assert_eq!(printed(&item), FULL);
}

#[test]
fn without_an_owner_native_reasoning_is_opaque_and_prompted_reasoning_is_plain() {
    let item = parse(FULL).item(None);
    let Body::Thought(thought) = &item.body else { panic!("not a thought") };
    assert_eq!(thought.replay_compatibility.as_deref(), Some(tag::LETTA_REASONING));
    assert!(!thought.is_plain());
    assert!(item.seals.is_empty());
    assert_eq!(printed(&item), FULL);
    let prompted = parse(r#"{"id":"m","date":"2026-01-31","reasoning":"r"}"#).item(None);
    let Body::Thought(thought) = &prompted.body else { panic!("not a thought") };
    assert!(thought.is_plain());
}

#[test]
fn debug_output_never_shows_a_signature() {
    assert!(!format!("{:?}", parse(FULL)).contains("c2ln"));
    assert!(!format!("{:?}", parse(FULL).item(Some(&owner()))).contains("c2ln"));
}

#[test]
fn unrecorded_thoughts_and_other_items_have_no_letta_view() {
    let text = Item::new("i", ItemPosition::default(), Role::User, Body::Text("hello".into()));
    assert_eq!(LettaReasoning::from_item(&text), None);
    let thought = Thought::issued("x", ThoughtKind::Text, ReasoningFormat::unknown());
    let fresh = Item::new("i", ItemPosition::default(), Role::Assistant, Body::Thought(thought));
    assert_eq!(LettaReasoning::from_item(&fresh), None);
}

proptest! {
    #[test]
    fn every_message_is_valid_and_round_trips_through_items(
        id in ".{0,20}",
        reasoning in ".{0,40}",
        name in proptest::option::of(".{0,10}"),
        signature in proptest::option::of("[A-Za-z0-9+/]{1,20}"),
        is_native in any::<bool>(),
        is_err in any::<Option<bool>>(),
        seq_id in any::<Option<i64>>(),
        seconds in 0_i64..100_000_000_000_i64,
    ) {
        let mut header = LettaHeader::new(id, jiff::Timestamp::from_second(seconds).unwrap());
        header.name = name.map(Into::into);
        header.is_err = is_err;
        header.seq_id = seq_id;
        let message = ReasoningMessage {
            header,
            source: if is_native { ReasoningSource::ReasonerModel } else { ReasoningSource::NonReasonerModel },
            reasoning: reasoning.as_str().into(),
            signature: signature.as_deref().map(Opaque::from),
        };
        prop_assert_eq!(&ReasoningMessage::parse(&message.json()).unwrap(), &message);
        prop_assert!(is_valid(&message.json()));
        let unowned = LettaReasoning::from_item(&message.item(None)).unwrap();
        if is_native || signature.is_some() || !reasoning.is_empty() {
            prop_assert_eq!(unowned, LettaReasoning::Shown(message.clone()));
        }
        let owned = LettaReasoning::from_item(&message.item(Some(&owner()))).unwrap();
        if signature.is_some() || !reasoning.is_empty() {
            prop_assert_eq!(owned, LettaReasoning::Shown(message));
        }
    }
}
