//! Document 003, typed reasoning items: the three variants, the format discriminator, and where a handle attaches.
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
    Body, CallId, DetailMeta, Item, Json, Opaque, Origin, Place, ReasoningFormat, ReasoningItem,
    Role, Seal, Thought, ThoughtKind, ToolCall, Wire, parse_details, print_details,
};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn parse(text: &str) -> ReasoningItem {
    ReasoningItem::parse(&json(text))
}

fn owner(wire: Wire) -> Arc<Origin> {
    Arc::new(Origin {
        provider: "openrouter".into(),
        endpoint: "e".into(),
        account: "a".into(),
        wire,
        asked: "m".into(),
        answered: "m".into(),
        family: "f".into(),
        routed: None,
    })
}

fn meta(id: &str, format: ReasoningFormat, index: u64) -> DetailMeta {
    DetailMeta { id: Some(id.into()), format: Some(format), index: Some(index), extras: Vec::new() }
}

const TEXT: &str = r#"{"type":"reasoning.text","text":"hm","signature":"c2ln+/==","id":"r1","format":"anthropic-claude-v1","index":0}"#;
const SUMMARY: &str = r#"{"type":"reasoning.summary","summary":"in short","id":"r2","format":"openai-responses-v1","index":1}"#;
const ENCRYPTED: &str = r#"{"type":"reasoning.encrypted","data":"ZGF0YQ==","id":"r3","format":"google-gemini-v1","index":2}"#;

#[test]
fn plain_text_has_an_optional_signature() {
    let item = parse(TEXT);
    let expected = ReasoningItem::Text {
        meta: meta("r1", ReasoningFormat::AnthropicClaudeV1, 0),
        text: Some("hm".into()),
        signature: Some(Opaque::from("c2ln+/==")),
    };
    assert_eq!(item, expected);
    assert_eq!(item.json().as_str(), TEXT);
    assert_eq!(item.sealed(), Some((&Opaque::from("c2ln+/=="), "/signature")));
    let unsigned = r#"{"type":"reasoning.text","text":"hm","format":"xai-responses-v1"}"#;
    assert_eq!(parse(unsigned).sealed(), None);
    assert_eq!(parse(unsigned).json().as_str(), unsigned);
}

#[test]
fn a_summary_is_a_summary() {
    let item = parse(SUMMARY);
    let expected = ReasoningItem::Summary {
        meta: meta("r2", ReasoningFormat::OpenAiResponsesV1, 1),
        summary: "in short".into(),
    };
    assert_eq!(item, expected);
    assert_eq!(item.json().as_str(), SUMMARY);
    assert_eq!(item.sealed(), None);
}

#[test]
fn a_blob_is_fully_encrypted() {
    let item = parse(ENCRYPTED);
    let expected = ReasoningItem::Encrypted {
        meta: meta("r3", ReasoningFormat::GoogleGeminiV1, 2),
        data: Opaque::from("ZGF0YQ=="),
    };
    assert_eq!(item, expected);
    assert_eq!(item.json().as_str(), ENCRYPTED);
    assert_eq!(item.sealed(), Some((&Opaque::from("ZGF0YQ=="), "/data")));
}

#[test]
fn every_format_is_told_by_its_name() {
    for (name, format) in [
        ("anthropic-claude-v1", ReasoningFormat::AnthropicClaudeV1),
        ("google-gemini-v1", ReasoningFormat::GoogleGeminiV1),
        ("openai-responses-v1", ReasoningFormat::OpenAiResponsesV1),
        ("azure-openai-responses-v1", ReasoningFormat::AzureOpenAiResponsesV1),
        ("xai-responses-v1", ReasoningFormat::XaiResponsesV1),
        ("unknown", ReasoningFormat::unknown()),
    ] {
        let text = format!(r#"{{"type":"reasoning.summary","summary":"s","format":"{name}"}}"#);
        assert_eq!(parse(&text).format(), format);
        assert_eq!(format.as_str(), name);
        assert_eq!(parse(&text).json().as_str(), text);
    }
}

#[test]
fn an_unknown_format_is_kept_as_it_is() {
    let text = r#"{"type":"reasoning.summary","summary":"s","format":"meta-responses-v9"}"#;
    assert_eq!(parse(text).format(), ReasoningFormat::Other("meta-responses-v9".into()));
    assert_eq!(parse(text).json().as_str(), text);
    let silent = r#"{"type":"reasoning.summary","summary":"s"}"#;
    assert_eq!(parse(silent).format(), ReasoningFormat::unknown());
    assert_eq!(parse(silent).json().as_str(), silent);
}

#[test]
fn an_empty_signature_means_none_and_empty_data_seals_nothing() {
    for text in [
        r#"{"type":"reasoning.text","text":"hm","signature":""}"#,
        r#"{"type":"reasoning.text","text":"hm","signature":null}"#,
        r#"{"type":"reasoning.encrypted","data":""}"#,
    ] {
        assert_eq!(parse(text).sealed(), None);
        assert!(
            parse(text).item("i", Place::default(), &owner(Wire::OPENAI_CHAT)).seals.is_empty()
        );
        assert_eq!(parse(text).json().as_str(), text);
    }
}

#[test]
fn a_last_fragment_may_bring_only_the_signature() {
    let text = r#"{"type":"reasoning.text","signature":"c2ln","index":0}"#;
    let ReasoningItem::Text { text: None, signature: Some(_), .. } = parse(text) else {
        panic!("a signature without text")
    };
    assert_eq!(parse(text).json().as_str(), text);
}

#[test]
fn unknown_kinds_members_and_nulls_are_kept() {
    for text in [
        r#"{"type":"reasoning.server_tool_call","tool_name":"search","result":{"a": 1e2}}"#,
        r#"{"type":"reasoning.summary"}"#,
        r#"{"type":"reasoning.text","text":7}"#,
        r#"{"text":"no type"}"#,
        r#""not an object""#,
    ] {
        assert_eq!(parse(text), ReasoningItem::Unknown(json(text)));
        assert_eq!(parse(text).json().as_str(), text);
    }
    let odd =
        r#"{"type":"reasoning.text","text":"hm","id":null,"format":null,"index":-1,"mood":[1, 2]}"#;
    assert_eq!(parse(odd).json().as_str(), odd);
}

#[test]
fn a_list_keeps_its_order() {
    let list = json(&format!("[{TEXT},{ENCRYPTED},{SUMMARY}]"));
    let items = parse_details(&list).unwrap();
    assert_eq!(items.len(), 3);
    assert_eq!(print_details(&items), list);
    assert_eq!(parse_details(&json("{}")), None);
    assert_eq!(print_details(&[]).as_str(), "[]");
}

#[test]
fn each_becomes_a_thought_with_its_seal_and_prints_again() {
    let owner = owner(Wire::OPENAI_CHAT);
    let kinds = [ThoughtKind::Text, ThoughtKind::Summary, ThoughtKind::Encrypted];
    for ((text, kind), index) in [TEXT, SUMMARY, ENCRYPTED].into_iter().zip(kinds).zip(0..) {
        let item = parse(text).item("i", Place::default(), &owner);
        let Body::Thought(thought) = &item.body else { panic!("not a thought") };
        assert_eq!(thought.kind, kind);
        assert_eq!(thought.index, Some(index));
        assert_eq!(thought.format, parse(text).format());
        let native = item.native.as_ref().unwrap();
        for seal in &item.seals {
            let tree = native.json.tree();
            let found = tree.root().at(&seal.attached.at).unwrap().text_bytes().unwrap();
            assert_eq!(&found, seal.reveal_to_tenant());
        }
        assert_eq!(item.seals.len(), usize::from(kind != ThoughtKind::Summary));
        assert_eq!(ReasoningItem::of(&item), [parse(text)]);
    }
    let unknown = parse(r#"{"type":"reasoning.new","x":1}"#);
    let item = unknown.item("i", Place::default(), &owner);
    assert_eq!(item.body, Body::Unknown);
    assert_eq!(ReasoningItem::of(&item), [unknown]);
}

fn captured(kind: ThoughtKind, format: ReasoningFormat, text: &str) -> Item {
    let body = Body::Thought(Thought::issued(text, kind, format));
    let mut item = Item::new("i", Place::default(), Role::Assistant, body);
    let owner = owner(Wire::OPENAI_RESPONSES);
    item.seals.push(Seal::new(Bytes::from_static(b"c2Vj"), "x", owner, "/s"));
    item
}

#[test]
fn thoughts_of_other_wires_print_as_their_variants() {
    let print = |item: &Item| print_details(&ReasoningItem::of(item)).as_str().to_owned();
    assert_eq!(
        print(&captured(ThoughtKind::Text, ReasoningFormat::AnthropicClaudeV1, "hm")),
        r#"[{"type":"reasoning.text","text":"hm","signature":"c2Vj","format":"anthropic-claude-v1"}]"#
    );
    assert_eq!(
        print(&captured(ThoughtKind::Summary, ReasoningFormat::OpenAiResponsesV1, "short")),
        r#"[{"type":"reasoning.summary","summary":"short","format":"openai-responses-v1"},{"type":"reasoning.encrypted","data":"c2Vj","format":"openai-responses-v1"}]"#
    );
    assert_eq!(
        print(&captured(ThoughtKind::Encrypted, ReasoningFormat::XaiResponsesV1, "")),
        r#"[{"type":"reasoning.encrypted","data":"c2Vj","format":"xai-responses-v1"}]"#
    );
}

#[test]
fn a_handle_on_a_call_attaches_by_the_calls_id() {
    let owner = owner(Wire::GEMINI);
    let call = ToolCall {
        id: CallId::from("ours"),
        wire_id: Some("call_1".into()),
        name: "weather".into(),
        args: json("{}"),
        custom: false,
    };
    let mut item = Item::new("i", Place::default(), Role::Assistant, Body::Call(call));
    item.origin = Some(Arc::clone(&owner));
    assert_eq!(ReasoningItem::of(&item), []);
    let bytes = Bytes::from_static(b"Z2Vt");
    item.seals.push(Seal::new(bytes, "x", owner, "/thoughtSignature"));
    assert_eq!(
        print_details(&ReasoningItem::of(&item)).as_str(),
        r#"[{"type":"reasoning.encrypted","data":"Z2Vt","id":"call_1","format":"google-gemini-v1"}]"#
    );
}

#[test]
fn debug_output_never_shows_opaque_bytes() {
    let items = parse_details(&json(&format!("[{TEXT},{ENCRYPTED}]"))).unwrap();
    let shown = format!("{items:?}");
    assert!(!shown.contains("c2ln") && !shown.contains("ZGF0YQ"), "{shown}");
    assert!(shown.contains("Opaque(8 B)"), "{shown}");
}

fn any_item() -> impl Strategy<Value = ReasoningItem> {
    let name = || proptest::option::of(".{0,12}");
    let meta = (name(), name(), any::<Option<u64>>(), any::<Option<u64>>());
    let meta = meta.prop_map(|(id, format, index, extra)| DetailMeta {
        id: id.map(Into::into),
        format: format.map(|name| ReasoningFormat::new(&name)),
        index,
        extras: extra.map(|value| ("mood".into(), value.into())).into_iter().collect(),
    });
    (meta, 0..3, name(), ".{1,12}").prop_map(|(meta, kind, text, opaque)| match kind {
        0 => ReasoningItem::Text {
            meta,
            signature: text.as_ref().map(|_| opaque.as_str().into()),
            text: text.map(Into::into),
        },
        1 => ReasoningItem::Summary { meta, summary: opaque.into() },
        _ => ReasoningItem::Encrypted { meta, data: opaque.as_str().into() },
    })
}

proptest! {
    #[test]
    fn every_list_survives_printing_and_items(items in proptest::collection::vec(any_item(), 0..5)) {
        let printed = print_details(&items);
        prop_assert_eq!(&parse_details(&printed).unwrap(), &items);
        let owner = owner(Wire::OPENAI_CHAT);
        let through = |item: &ReasoningItem| {
            ReasoningItem::of(&item.item("i", Place::default(), &owner))
        };
        prop_assert_eq!(items.iter().flat_map(through).collect::<Vec<_>>(), items);
    }

    #[test]
    fn whatever_is_read_prints_the_same(
        kind in "reasoning\\.(text|summary|encrypted|new)",
        members in proptest::collection::vec(
            ("(text|summary|data|signature|id|format|index|mood)", "(null|7|\"\"|\"x\"|\\[\\])"),
            0..5,
        ),
    ) {
        let mut seen = std::collections::BTreeMap::from([("type".to_owned(), format!("\"{kind}\""))]);
        seen.extend(members);
        let members: Vec<_> = seen.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let document = json(&format!("{{{}}}", members.join(",")));
        prop_assert!(ReasoningItem::parse(&document).json().says_the_same_as(&document));
    }
}
