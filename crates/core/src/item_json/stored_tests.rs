//! Tests that stored Items are restored with and without their siblings, and that untrusted texts
//! are rejected.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{self as json, Json};

use crate::*;

pub(super) fn texts(stored: &[StoredItem]) -> Vec<Option<Bytes>> {
    stored.iter().map(|stored| Some(Bytes::copy_from_slice(stored.json.bytes()))).collect()
}

fn again(items: &[Item]) -> Vec<Item> {
    restore_items(texts(&store_items(items))).unwrap()
}

pub(super) fn parse(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

pub(super) fn claude() -> Arc<Origin> {
    Arc::new(Origin {
        provider: "anthropic".into(),
        endpoint: "api.anthropic.com".into(),
        account: "work".into(),
        wire: Wire::ANTHROPIC_MESSAGES,
        asked: "claude-sonnet-4-5".into(),
        answered: "claude-sonnet-4-5".into(),
        family: "claude-4.5".into(),
        routed: None,
    })
}

/// A signed Thought and a call from one message.
fn turn() -> Vec<Item> {
    let message = parse(
        r#"{"role": "assistant", "content": [{"type":"thinking","thinking":"I need the weather.","signature":"c2VjcmV0LXNlYWw="},
            {"type":"tool_use","id":"toolu_01","name":"weather","input":{"city": "Paris"}}], "odd": 1e2}"#,
    );
    let tree = message.tree();
    let part = |at: &str| tree.root().at(at).unwrap().json();
    let envelope = Arc::new(Envelope { json: message.clone(), parts: 2 });
    let native = |json| NativePart {
        envelope: Some(Arc::clone(&envelope)),
        ..NativePart::new(Wire::ANTHROPIC_MESSAGES, Direction::Request, json)
    };
    let thought = Thought::issued(
        "I need the weather.",
        ThoughtKind::Text,
        ReasoningFormat::AnthropicClaudeV1,
    );
    let mut thinking =
        Item::new("1.0", ItemPosition::new(1, 0), Role::Assistant, Body::Thought(thought));
    thinking.native = Some(native(part("/content/0")));
    thinking.origin = Some(claude());
    let bound = SealBinding { model: true, account: false, prefix: Some([7; 32]) };
    thinking.seals = vec![
        Seal::new("c2VjcmV0LXNlYWw=".into(), "anthropic.signature", claude(), "/signature")
            .bound_to(bound)
            .preceding("1.1".into()),
    ];
    let call = ToolCall {
        id: "toolu_01".into(),
        wire_id: Some("toolu_01".into()),
        name: "weather".into(),
        args: part("/content/1/input"),
        custom: false,
    };
    let mut call = Item::new("1.1", ItemPosition::new(1, 1), Role::Assistant, Body::Call(call));
    call.native = Some(native(part("/content/1")));
    call.origin = Some(claude());
    vec![thinking, call]
}

#[test]
fn content_in_native_json_is_stored_once() {
    let items = turn();
    let stored = store_items(&items);
    assert_eq!(
        stored[0].json.as_str(),
        concat!(
            r#"{"v":1,"at":[1,0],"role":"assistant","thought":{"text":["/thinking"],"format":"anthropic-claude-v1"},"#,
            r#""seals":[{"at":"/signature","leads":"1.1","format":"anthropic.signature","model":true,"#,
            r#""prefix":"0707070707070707070707070707070707070707070707070707070707070707"}],"#,
            r#""origin":["anthropic","api.anthropic.com","work","claude-sonnet-4-5","claude-4.5"],"to":"anthropic-messages","#,
            r#""cut":{"of":2,"before":"{\"role\": \"assistant\", \"content\": ["},"#,
            r#""json":{"type":"thinking","thinking":"I need the weather.","signature":"c2VjcmV0LXNlYWw="}}"#
        )
    );
    assert!(stored[1].json.as_str().contains(
        r#""cut":{"of":2,"part":1,"before":",\n            ","after":"], \"odd\": 1e2}"}"#
    ));
    assert_eq!(again(&items), items);
}

#[test]
fn native_json_stays_a_slice_and_the_envelope_is_shared() {
    let stored = texts(&store_items(&turn()));
    let places: Vec<Range<*const u8>> =
        stored.iter().flatten().map(|text| text.as_ptr_range()).collect();
    let items = restore_items(stored).unwrap();
    let natives: Vec<&NativePart> = items.iter().filter_map(|item| item.native.as_ref()).collect();
    for (native, place) in natives.iter().zip(&places) {
        assert!(place.contains(&native.json.bytes().as_ptr()));
        assert!(Arc::ptr_eq(
            native.envelope.as_ref().unwrap(),
            natives[0].envelope.as_ref().unwrap()
        ));
    }
    let seal = items[0].seals[0].reveal_to_tenant();
    assert!(places[0].contains(&seal.as_ptr()));
}

#[test]
fn message_that_repeats_a_part_is_stored_whole_and_can_be_removed() {
    let message =
        r#"{"details":[{"text":"Let me see."}],"reasoning":"Let me see.","content":"Hi"}"#;
    let message = parse(message);
    let tree = message.tree();
    let envelope = Arc::new(Envelope { json: message.clone(), parts: 2 });
    let item = |part: usize, at: &str, text: &str| {
        let body = Body::Text(text.into());
        let mut item = Item::new("x", ItemPosition::new(0, part), Role::Assistant, body);
        item.id = ItemId::from_position("", item.place);
        let json = tree.root().at(at).unwrap().json();
        let native = NativePart::new(Wire::OPENAI_CHAT, Direction::Request, json);
        item.native = Some(NativePart { envelope: Some(Arc::clone(&envelope)), ..native });
        item
    };
    let items = [item(0, "/details/0", "Let me see."), item(1, "/content", "Hi")];
    let stored = store_items(&items);
    assert!(stored[0].holds_siblings && holds_siblings(&stored[0].json));
    assert!(!stored[1].holds_siblings && !holds_siblings(&stored[1].json));
    assert!(!stored[1].json.as_str().contains("see"));
    assert_eq!(restore_items(texts(&stored)).unwrap(), items);

    let given_up = without_siblings(&stored[0].json);
    assert!(!holds_siblings(&given_up) && !given_up.as_str().contains("Hi"));
    let kept = restore_items([Some(given_up.bytes().clone()), None]).unwrap();
    assert_eq!(kept, without_envelopes(&items[..1]));
}

pub(super) fn without_envelopes(items: &[Item]) -> Vec<Item> {
    let mut items = items.to_vec();
    for native in items.iter_mut().filter_map(|item| item.native.as_mut()) {
        native.envelope = None;
    }
    items
}

#[test]
fn parts_of_two_messages_are_never_joined() {
    let mut items = turn();
    let mut other = turn();
    for (item, id) in other.iter_mut().zip(["2.0", "2.1"]) {
        (item.id, item.place.message) = (id.into(), 2);
    }
    items.append(&mut other);
    let stored = texts(&store_items(&items));
    let mixed = restore_items([stored[0].clone(), stored[3].clone()]).unwrap();
    assert_eq!(mixed, without_envelopes(&[items[0].clone(), items[3].clone()]));
}

/// Short and long messages are split by different code.
#[test]
fn equal_parts_are_found_in_messages_of_every_length() {
    for count in [1, 2, 15, 16, 17, 40] {
        let part =
            |at: usize| format!(r#"{{"type":"text","text":"sentence {} of the message"}}"#, at % 3);
        let parts: Vec<String> = (0..count).map(part).collect();
        let message = parse(&format!(r#"{{"id":"m","content":[{}],"end":true}}"#, parts.join(",")));
        let tree = message.tree();
        let envelope = Arc::new(Envelope { json: message.clone(), parts: count });
        let items: Vec<Item> = tree
            .root()
            .get("content")
            .unwrap()
            .elements()
            .enumerate()
            .map(|(at, part)| {
                let body = Body::Text(format!("sentence {} of the message", at % 3).into());
                let place = ItemPosition::new(0, at);
                let id = ItemId::from_position("", place);
                let mut item = Item::new(id, place, Role::Assistant, body);
                let wire = Wire::ANTHROPIC_MESSAGES;
                let native = NativePart::new(wire, Direction::Response, part.json());
                item.native = Some(NativePart { envelope: Some(Arc::clone(&envelope)), ..native });
                item
            })
            .collect();
        let stored = store_items(&items);
        assert!(stored.iter().all(|stored| !stored.holds_siblings), "{count} parts");
        let own = |at: usize| stored[at].json.as_str().matches("sentence").count();
        assert!((0..count).all(|at| own(at) == 1), "{count} parts");
        assert_eq!(again(&items), items, "{count} parts");
    }
}

#[test]
fn many_and_deep_parts_round_trip() {
    let line_text = |number: usize| format!("Line {number} of a tool's long answer.");
    let lines: Vec<Json> = (0..5_000).map(|number| json::string(&line_text(number))).collect();
    let parts = (0..5_000).map(|number| Part::Text(line_text(number).into())).collect();
    let (call, wire_id, name) = ("c".into(), None, None);
    let result = ToolResult { call, wire_id, name, outcome: Outcome::Denied, parts };
    let mut many = Item::new("a", ItemPosition::default(), Role::Tool, Body::Result(result));
    many.native = Some(NativePart::new(Wire::GEMINI, Direction::Request, json::array_of(&lines)));
    let deep = "[".repeat(10_000) + "\"down here, far below\"" + &"]".repeat(10_000);
    let body = Body::Text("down here, far below".into());
    let mut low = Item::new("b", ItemPosition::new(1, 0), Role::User, body);
    low.native = Some(NativePart::new(Wire::GEMINI, Direction::Request, parse(&deep)));
    let items = [many, low];
    assert_eq!(again(&items), items);
}

#[test]
fn other_versions_are_rejected() {
    let error = restore_items([Some(Bytes::from_static(br#"{"v":2,"at":[0,0]}"#))]).unwrap_err();
    assert_eq!(error.to_string(), "stored[0].v is 2, but only version 1 is supported");
    let error = restore_items([None, Some(Bytes::from_static(b"{}"))]).unwrap_err();
    assert_eq!(error.to_string(), "stored[1].v is missing; set it to the format version");
}

#[test]
fn errors_name_the_invalid_member() {
    let cases = [
        (
            r#"{"v":1,"role":"user","text":"a"}"#,
            "stored[0].at must be two non-negative whole numbers",
        ),
        (r#"{"v":1,"at":[0,0],"text":"a"}"#, "stored[0].role is missing"),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":["/x"]}"#,
            "stored[0].text points into `json`, which is missing",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":["/x"],"to":"w","json":1}"#,
            "stored[0].text points at nothing in `json`",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":["",9],"to":"w","json":"x"}"#,
            "stored[0].text points beyond the end of the referenced string",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":["",1],"to":"w","json":"é"}"#,
            "stored[0].text must be text, but splits a character",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":"a","cut":{}}"#,
            "stored[0].cut requires a native part, but `to` and `by` are missing",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":"a","to":"w","json":1,"cut":{"before":"["}}"#,
            "stored[0].cut does not form a message with the parts before it",
        ),
        (
            r#"{"v":1,"at":[0,0],"role":"user","text":"a","seals":[{"at":"/s","format":"f","bytes":"secret"}]}"#,
            "stored[0].seals[0].owner is missing",
        ),
        ("{", "stored[0] is not JSON: the text ends inside an object or array at line 1 column 2"),
        ("[]", "stored[0] must be an object"),
    ];
    for (text, problem) in cases {
        let error = restore_items([Some(Bytes::from_static(text.as_bytes()))]).unwrap_err();
        assert_eq!(error.to_string(), problem, "{text}");
    }
    let bodies = restore_items([Some(Bytes::from_static(
        br#"{"v":1,"at":[0,0],"role":"user","text":"a","unknown":true}"#,
    ))]);
    assert!(
        bodies.unwrap_err().to_string().starts_with("stored[0].body must be the Item's only body")
    );
}

#[test]
fn references_cannot_amplify_a_text() {
    let piece = format!(r#"["/{}"]"#, "a");
    let pieces = vec![piece; 10_000].join(",");
    let text = format!(
        r#"{{"v":1,"at":[0,0],"role":"user","text":{{"joined":[{pieces}]}},"to":"w","json":{{"a":"{}"}}}}"#,
        "x".repeat(100_000)
    );
    let error = restore_items([Some(Bytes::from(text))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stored[0].text exceeds the work budget of references into `json`"
    );
}

#[test]
fn truncated_text_is_rejected_and_never_printed() {
    let stored = store_items(&turn());
    assert!(!format!("{stored:?}").contains("c2Vj"));
    for stored in &stored {
        for length in 0..stored.json.bytes().len() {
            let error = restore_items([Some(stored.json.bytes().slice(..length))]).unwrap_err();
            assert!(!error.to_string().contains("c2Vj"));
        }
    }
}

/// Replaces each value with values of every type. The reader must accept or reject each value
/// without a panic.
#[test]
fn wrong_types_never_panic() {
    let stored = store_items(&turn());
    for stored in &stored {
        let tree = stored.json.tree();
        for node in tree.root().values() {
            for other in
                ["null", "true", "-1", "1e9", "\"\"", "\"/thinking\"", "[]", "[\"\",5,1]", "{}"]
            {
                let mut text = stored.json.bytes().to_vec();
                text.splice(node.range(), other.bytes());
                if let Err(error) = restore_items([Some(Bytes::from(text))]) {
                    assert!(!error.to_string().contains("c2Vj"));
                }
            }
        }
    }
}
