//! Tests for document 001, `LLMMessage`: JSON round trips, and each rule in the document.
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
    Body, CallId, Direction, Item, ItemPosition, NativePart, Origin, Outcome, Part,
    ReasoningFormat, Role, Seal, Thought, ThoughtKind, ToolCall, ToolResult, Wire, tag,
};
use throughline_json::{Json, Node, Opaque};
use throughline_spec::{Message, MessageCall, MessageRole, ThinkingBlock, ThinkingKind};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn parse(text: &str) -> Message {
    Message::parse(&json(text)).unwrap()
}

fn refusal(text: &str) -> String {
    Message::parse(&json(text)).unwrap_err().to_string()
}

fn owner(wire: Wire) -> Arc<Origin> {
    Arc::new(Origin {
        provider: "p".into(),
        endpoint: "e".into(),
        account: "a".into(),
        wire,
        asked: "m".into(),
        answered: "m".into(),
        family: "f".into(),
        routed: None,
    })
}

const FULL: &str = r#"{"role":"assistant","content":"Checking.","ephemeral":true,"thinkingBlocks":[{"type":"thinking","content":"hm","signature":"c2ln+/==","providerMeta":{"b":1e2}},{"type":"redacted_thinking","content":"","signature":"ZGF0YQ=="},{"type":"thinking","content":"step","summary":true,"mood":null}],"toolCalls":[{"id":"c1","name":"weather","args":{"city": "Z\u00fcrich"},"providerMeta":{"thoughtSignature":"Z2Vt"},"cost":2}],"injectedBy":"gate"}"#;

#[test]
fn all_fields_of_an_assistant_message_round_trip() {
    let message = parse(FULL);
    assert_eq!(message.role, MessageRole::Assistant);
    assert_eq!(&*message.content, "Checking.");
    assert!(message.ephemeral);
    let [thinking, redacted, summary] = &message.thinking_blocks[..] else {
        panic!("three blocks")
    };
    assert_eq!(thinking.kind, ThinkingKind::Thinking);
    assert_eq!(&*thinking.content, "hm");
    assert_eq!(thinking.signature.as_ref().unwrap().reveal_to_tenant(), "c2ln+/==");
    assert_eq!(thinking.provider_meta, Some(json(r#"{"b":1e2}"#)));
    assert_eq!(redacted.kind, ThinkingKind::RedactedThinking);
    assert_eq!(&*redacted.content, "");
    assert_eq!(summary.summary, Some(true));
    let [call] = &message.tool_calls[..] else { panic!("one call") };
    assert_eq!((&*call.id, &*call.name), ("c1", "weather"));
    assert_eq!(call.args.as_str(), r#"{"city": "Z\u00fcrich"}"#);
    assert_eq!(call.provider_meta, Some(json(r#"{"thoughtSignature":"Z2Vt"}"#)));
    assert_eq!(message.json().as_str(), FULL);
}

#[test]
fn a_tool_message_names_its_call_and_its_tool() {
    let text = r#"{"role":"tool","content":"sunny","toolCallId":"c1","toolName":"weather"}"#;
    let message = parse(text);
    assert_eq!(message.role, MessageRole::Tool);
    assert_eq!(message.tool_call_id.as_deref(), Some("c1"));
    assert_eq!(message.tool_name.as_deref(), Some("weather"));
    assert_eq!(message.json().as_str(), text);
}

#[test]
fn tool_calls_are_an_empty_list_on_text_only_assistant_turns_and_absent_elsewhere() {
    let assistant = r#"{"role":"assistant","content":"hi","toolCalls":[]}"#;
    assert_eq!(parse(assistant).json().as_str(), assistant);
    assert_eq!(parse(r#"{"role":"assistant","content":"hi"}"#).json().as_str(), assistant);
    for role in ["system", "user", "tool"] {
        let text = format!(r#"{{"role":"{role}","content":"hi"}}"#);
        assert_eq!(parse(&text).json().as_str(), text);
        let calling = format!(
            r#"{{"role":"{role}","content":"","toolCalls":[{{"id":"c","name":"n","args":{{}}}}]}}"#
        );
        assert_eq!(refusal(&calling), "LLMMessage.toolCalls is allowed only on assistant messages");
    }
}

#[test]
fn thinking_blocks_are_empty_or_absent_when_there_are_none() {
    for text in [
        r#"{"role":"assistant","content":"hi","thinkingBlocks":[]}"#,
        r#"{"role":"assistant","content":"hi","thinkingBlocks":null}"#,
        r#"{"role":"assistant","content":"hi"}"#,
    ] {
        let message = parse(text);
        assert!(message.thinking_blocks.is_empty());
        assert_eq!(message.json().tree().root().get("thinkingBlocks").map(Node::json), None);
    }
    let text =
        r#"{"role":"user","content":"","thinkingBlocks":[{"type":"thinking","content":""}]}"#;
    assert_eq!(refusal(text), "LLMMessage.thinkingBlocks is allowed only on assistant messages");
}

#[test]
fn an_ephemeral_message_is_an_ephemeral_item_and_stays_visible() {
    let message = parse(r#"{"role":"user","content":"try again","ephemeral":true}"#);
    let items = message.items(0, None).unwrap();
    assert!(items.iter().all(|item| item.ephemeral));
    assert_eq!(items[0].visible(), Some("try again"));
    assert_eq!(Message::from_items(&items), [message]);
    let message = parse(r#"{"role":"user","content":"hi","ephemeral":false}"#);
    assert!(!message.items(0, None).unwrap()[0].ephemeral);
    assert_eq!(message.json().as_str(), r#"{"role":"user","content":"hi"}"#);
}

#[test]
fn null_means_absent() {
    let text = r#"{"role":"assistant","content":"x","ephemeral":null,"thinkingBlocks":null,"toolCalls":null,"toolCallId":null,"toolName":null}"#;
    assert_eq!(parse(text), Message::new(MessageRole::Assistant, "x"));
}

#[test]
fn errors_name_the_invalid_member() {
    for (text, message) in [
        ("[]", "LLMMessage must be an object"),
        (
            r#"{"content":""}"#,
            "LLMMessage.role is missing; expected one of system, user, assistant, tool",
        ),
        (
            r#"{"role":"model","content":""}"#,
            "LLMMessage.role must be one of system, user, assistant, tool",
        ),
        (r#"{"role":"user"}"#, "LLMMessage.content is missing; expected a string"),
        (r#"{"role":"user","content":[]}"#, "LLMMessage.content must be a string"),
        (
            r#"{"role":"user","content":"","ephemeral":1}"#,
            "LLMMessage.ephemeral must be true or false",
        ),
        (
            r#"{"role":"user","content":"","toolCallId":"c"}"#,
            "LLMMessage.toolCallId is allowed only on tool messages",
        ),
        (
            r#"{"role":"assistant","content":"","toolName":"n"}"#,
            "LLMMessage.toolName is allowed only on tool messages",
        ),
        (
            r#"{"role":"assistant","content":"","toolCalls":{}}"#,
            "LLMMessage.toolCalls must be an array",
        ),
        (
            r#"{"role":"assistant","content":"","toolCalls":[{"id":"c","args":{}}]}"#,
            "LLMMessage.toolCalls[0].name is missing; expected a string",
        ),
        (
            r#"{"role":"assistant","content":"","toolCalls":[{"id":"c","name":"n"}]}"#,
            "LLMMessage.toolCalls[0].args is missing; use {} if there are no arguments",
        ),
        (
            r#"{"role":"assistant","content":"","thinkingBlocks":[{"type":"mood"}]}"#,
            "LLMMessage.thinkingBlocks[0].type must be one of thinking, redacted_thinking",
        ),
        (
            r#"{"role":"assistant","content":"","thinkingBlocks":[{"type":"thinking"}]}"#,
            "LLMMessage.thinkingBlocks[0].content is missing; expected a string",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
    let orphan = parse(r#"{"role":"tool","content":"x"}"#).items(0, None).unwrap_err();
    assert_eq!(
        orphan.to_string(),
        "LLMMessage.toolCallId is missing; a tool message must name its tool call"
    );
}

#[test]
fn message_round_trips_through_items() {
    let message = parse(FULL);
    for owner in [None, Some(owner(Wire::ANTHROPIC_MESSAGES))] {
        let items = message.items(3, owner.as_ref()).unwrap();
        let positions: Vec<_> = items.iter().map(|item| item.place).collect();
        assert_eq!(positions, (0..5).map(|part| ItemPosition::new(3, part)).collect::<Vec<_>>());
        assert_eq!(Message::from_items(&items)[0].json().as_str(), FULL);
    }
}

#[test]
fn signatures_become_seals_of_their_owner_byte_for_byte() {
    let owner = owner(Wire::ANTHROPIC_MESSAGES);
    let items = parse(FULL).items(0, Some(&owner)).unwrap();
    let seals: Vec<_> = items.iter().flat_map(|item| &item.seals).collect();
    let bytes: Vec<_> = seals.iter().map(|seal| seal.reveal_to_tenant().clone()).collect();
    assert_eq!(bytes, ["c2ln+/==", "ZGF0YQ=="]);
    assert!(seals.iter().all(|seal| seal.owner == owner));
}

#[test]
fn without_an_owner_a_thought_is_opaque_and_never_plain() {
    let items = parse(FULL).items(0, None).unwrap();
    let Body::Thought(thought) = &items[0].body else { panic!("a thought first") };
    assert_eq!(thought.replay_compatibility.as_deref(), Some(tag::THINKING_BLOCK));
    assert!(!thought.is_plain());
    // If the message has changed, its blocks are still written from their payloads.
    let message = Message::from_items(&items[..2]).remove(0);
    assert_eq!(message.thinking_blocks, parse(FULL).thinking_blocks[..2]);
}

/// Returns a captured turn: reasoning, text, a signed call, more reasoning, more text.
fn captured() -> Vec<Item> {
    let owner = owner(Wire::GEMINI);
    let position = |part| ItemPosition::new(1, part);
    let issued = |text: &str| {
        Body::Thought(Thought::issued(text, ThoughtKind::Text, ReasoningFormat::unknown()))
    };
    let seal = |bytes: &'static str| {
        Seal::new(
            Bytes::from_static(bytes.as_bytes()),
            "x",
            Arc::clone(&owner),
            "/thoughtSignature",
        )
    };
    let mut items = vec![
        Item::new("a", position(0), Role::Assistant, issued("one")),
        Item::new("b", position(1), Role::Assistant, Body::Text("Look. ".into())),
        Item::new(
            "c",
            position(2),
            Role::Assistant,
            Body::Call(ToolCall {
                id: CallId::from("ours"),
                wire_id: None,
                name: "weather".into(),
                args: json("{}"),
                custom: false,
            }),
        ),
        Item::new("d", position(3), Role::Assistant, issued("two")),
        Item::new("e", position(4), Role::Assistant, Body::Text("Done.".into())),
    ];
    items[0].seals.push(seal("c2lnMQ"));
    items[2].seals.push(seal("c2lnMg"));
    let part = r#"{"functionCall":{"name":"weather","args":{}},"thoughtSignature":"c2lnMg"}"#;
    items[2].native = Some(NativePart::new(Wire::GEMINI, Direction::Response, json(part)));
    for item in &mut items {
        item.origin = Some(Arc::clone(&owner));
    }
    items
}

#[test]
fn captured_items_print_as_one_message_with_opaque_extras_on_the_call() {
    let [message] = &Message::from_items(&captured())[..] else { panic!("one message") };
    assert_eq!(
        message.json().as_str(),
        r#"{"role":"assistant","content":"Look. Done.","thinkingBlocks":[{"type":"thinking","content":"one","signature":"c2lnMQ"},{"type":"thinking","content":"two","index":3}],"toolCalls":[{"id":"ours","name":"weather","args":{},"providerMeta":{"functionCall":{"name":"weather","args":{}},"thoughtSignature":"c2lnMg"}}]}"#
    );
}

#[test]
fn view_keeps_the_order_of_the_items() {
    let items = captured();
    let before = items.clone();
    let _view = Message::from_items(&items);
    assert_eq!(items, before);
    let order: Vec<_> = items.iter().map(|item| (item.place.part, item.id.0.as_ref())).collect();
    assert_eq!(order, [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]);
}

#[test]
fn a_redacted_thought_prints_its_data_as_signature_and_its_part_as_extras() {
    let owner = owner(Wire::ANTHROPIC_MESSAGES);
    let body = Thought::issued("", ThoughtKind::Encrypted, ReasoningFormat::AnthropicClaudeV1);
    let mut item = Item::new("r", ItemPosition::default(), Role::Assistant, Body::Thought(body));
    item.seals.push(Seal::new(Bytes::from_static(b"ZGF0YQ=="), "x", owner, "/data"));
    let part = json(r#"{"type":"redacted_thinking","data":"ZGF0YQ=="}"#);
    item.native = Some(NativePart::new(Wire::ANTHROPIC_MESSAGES, Direction::Response, part));
    assert_eq!(
        Message::from_items(&[item])[0].json().as_str(),
        r#"{"role":"assistant","content":"","thinkingBlocks":[{"type":"redacted_thinking","content":"","signature":"ZGF0YQ==","providerMeta":{"type":"redacted_thinking","data":"ZGF0YQ=="}}],"toolCalls":[]}"#
    );
}

#[test]
fn each_tool_result_is_a_separate_message() {
    let result = |part: usize, id: &str| {
        let body = Body::Result(ToolResult {
            call: CallId::from(id),
            wire_id: Some(id.into()),
            name: Some("weather".into()),
            outcome: Outcome::Ok,
            parts: vec![Part::Text("sunny ".into()), Part::Value(json(r#"{"c": 20}"#))],
        });
        Item::new(format!("r{part}"), ItemPosition::new(2, part), Role::User, body)
    };
    let text = Item::new("t", ItemPosition::new(2, 2), Role::User, Body::Text("and?".into()));
    let printed: Vec<_> = Message::from_items(&[result(0, "c1"), result(1, "c2"), text])
        .iter()
        .map(|message| message.json().as_str().to_owned())
        .collect();
    assert_eq!(
        printed,
        [
            r#"{"role":"tool","content":"sunny {\"c\": 20}","toolCallId":"c1","toolName":"weather"}"#,
            r#"{"role":"tool","content":"sunny {\"c\": 20}","toolCallId":"c2","toolName":"weather"}"#,
            r#"{"role":"user","content":"and?"}"#,
        ]
    );
}

#[test]
fn debug_output_never_shows_a_signature() {
    let debug = format!("{:?}", parse(FULL));
    for secret in ["c2ln", "ZGF0YQ", "Z2Vt"] {
        assert!(!debug.contains(secret), "{debug}");
    }
}

fn any_block() -> impl Strategy<Value = ThinkingBlock> {
    let fields = (any::<bool>(), ".{0,20}", proptest::option::of(".{0,20}"), any::<Option<bool>>());
    fields.prop_map(|(redacted, content, signature, summary)| {
        let signature = signature.map(|text| Opaque::from(text.as_str()));
        let block = if redacted {
            ThinkingBlock::redacted(signature)
        } else {
            ThinkingBlock::thinking(content, signature)
        };
        ThinkingBlock { summary, ..block }
    })
}

fn any_call() -> impl Strategy<Value = MessageCall> {
    (".{0,10}", ".{0,10}", any::<u64>(), any::<Option<u64>>()).prop_map(|(id, name, args, meta)| {
        MessageCall {
            id: id.into(),
            name: name.into(),
            args: Json::from(args),
            provider_meta: meta.map(Json::from),
            extras: Vec::new(),
        }
    })
}

proptest! {
    #[test]
    fn every_assistant_message_round_trips_through_json_and_items(
        content in ".{0,40}",
        ephemeral in any::<bool>(),
        blocks in proptest::collection::vec(any_block(), 0..4),
        calls in proptest::collection::vec(any_call(), 0..4),
        extra in any::<Option<u64>>(),
    ) {
        let mut message = Message::new(MessageRole::Assistant, content);
        message.ephemeral = ephemeral;
        message.thinking_blocks = blocks;
        message.tool_calls = calls;
        message.extras = extra.map(|value| ("injectedBy".into(), value.into())).into_iter().collect();
        prop_assert_eq!(&Message::parse(&message.json()).unwrap(), &message);
        for owner in [None, Some(owner(Wire::ANTHROPIC_MESSAGES))] {
            let items = message.items(0, owner.as_ref()).unwrap();
            prop_assert_eq!(&Message::from_items(&items), std::slice::from_ref(&message));
        }
    }
}
