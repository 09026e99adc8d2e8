//! Tests for document 003, provider-agnostic reasoning replay: the three variants, the format
//! discriminator, the attachment of handles, and when replay is required. Most tests quote the
//! sentence of the document that they cover.
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
    Binding, Body, CallId, Contract, Dialect, Item, ItemPosition, Origin, PlainReplay, Profile,
    Provider, ReasoningFormat, Role, Seal, Target, Thought, ThoughtKind, ToolCall, Vendor, Wire,
};
use throughline_json::{Json, Name, Opaque};
use throughline_spec::{
    DetailMeta, OpenRouterReasoningCodec, ReasoningCodec, ReasoningItem, ReplayAudit,
    ReplayContract, ReplayTurn, ReplayViolation, audit_replay, parse_details, print_details,
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
fn summary_has_no_seal() {
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
fn encrypted_element_has_only_sealed_data() {
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
fn every_format_is_parsed_by_name() {
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
fn unknown_format_is_kept() {
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
            parse(text)
                .item("i", ItemPosition::default(), &owner(Wire::OPENAI_CHAT))
                .seals
                .is_empty()
        );
        assert_eq!(parse(text).json().as_str(), text);
    }
}

#[test]
fn last_fragment_may_contain_only_the_signature() {
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
fn each_element_round_trips_through_a_thought_with_its_seal() {
    let owner = owner(Wire::OPENAI_CHAT);
    let kinds = [ThoughtKind::Text, ThoughtKind::Summary, ThoughtKind::Encrypted];
    for ((text, kind), index) in [TEXT, SUMMARY, ENCRYPTED].into_iter().zip(kinds).zip(0..) {
        let item = parse(text).item("i", ItemPosition::default(), &owner);
        let Body::Thought(thought) = &item.body else { panic!("not a thought") };
        assert_eq!(thought.kind, kind);
        assert_eq!(thought.index, Some(index));
        assert_eq!(thought.format, parse(text).format());
        let native = item.native.as_ref().unwrap();
        for seal in &item.seals {
            let tree = native.json.tree();
            let bytes = tree.root().at(&seal.attached.at).unwrap().text_bytes().unwrap();
            assert_eq!(&bytes, seal.reveal_to_tenant());
        }
        assert_eq!(item.seals.len(), usize::from(kind != ThoughtKind::Summary));
        assert_eq!(ReasoningItem::from_item(&item), [parse(text)]);
    }
    let unknown = parse(r#"{"type":"reasoning.new","x":1}"#);
    let item = unknown.item("i", ItemPosition::default(), &owner);
    assert_eq!(item.body, Body::Unknown);
    assert_eq!(ReasoningItem::from_item(&item), [unknown]);
}

fn captured(kind: ThoughtKind, format: ReasoningFormat, text: &str) -> Item {
    let body = Body::Thought(Thought::issued(text, kind, format));
    let mut item = Item::new("i", ItemPosition::default(), Role::Assistant, body);
    let owner = owner(Wire::OPENAI_RESPONSES);
    item.seals.push(Seal::new(Bytes::from_static(b"c2Vj"), "x", owner, "/s"));
    item
}

#[test]
fn thoughts_of_other_wires_print_as_their_variants() {
    let print = |item: &Item| print_details(&ReasoningItem::from_item(item)).as_str().to_owned();
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
fn seal_on_a_call_attaches_by_call_id() {
    let owner = owner(Wire::GEMINI);
    let call = ToolCall {
        id: CallId::from("ours"),
        wire_id: Some("call_1".into()),
        name: "weather".into(),
        args: json("{}"),
        custom: false,
    };
    let mut item = Item::new("i", ItemPosition::default(), Role::Assistant, Body::Call(call));
    item.origin = Some(Arc::clone(&owner));
    assert_eq!(ReasoningItem::from_item(&item), []);
    let bytes = Bytes::from_static(b"Z2Vt");
    item.seals.push(Seal::new(bytes, "x", owner, "/thoughtSignature"));
    assert_eq!(
        print_details(&ReasoningItem::from_item(&item)).as_str(),
        r#"[{"type":"reasoning.encrypted","data":"Z2Vt","id":"call_1","format":"google-gemini-v1"}]"#
    );
}

#[test]
fn debug_output_never_shows_opaque_bytes() {
    let items = parse_details(&json(&format!("[{TEXT},{ENCRYPTED}]"))).unwrap();
    let debug = format!("{items:?}");
    assert!(!debug.contains("c2ln") && !debug.contains("ZGF0YQ"), "{debug}");
    assert!(debug.contains("Opaque(8 B)"), "{debug}");
}

// Tests for replay contracts and audits.

fn signed(format: &str, signature: &str, index: u64) -> ReasoningItem {
    parse(&format!(
        r#"{{"type":"reasoning.text","text":"hm","signature":"{signature}","format":"{format}","index":{index}}}"#
    ))
}

fn unsigned(format: &str, index: u64) -> ReasoningItem {
    parse(&format!(
        r#"{{"type":"reasoning.text","text":"hm","format":"{format}","index":{index}}}"#
    ))
}

fn encrypted(format: &str, data: &str, id: &str) -> ReasoningItem {
    parse(&format!(
        r#"{{"type":"reasoning.encrypted","data":"{data}","format":"{format}","id":"{id}"}}"#
    ))
}

fn summary(format: &str) -> ReasoningItem {
    parse(&format!(r#"{{"type":"reasoning.summary","summary":"short","format":"{format}"}}"#))
}

const CLAUDE: &str = "anthropic-claude-v1";
const GEMINI: &str = "google-gemini-v1";
const GPT: &str = "openai-responses-v1";
const GROK: &str = "xai-responses-v1";

fn violations(items: &[ReasoningItem]) -> Vec<ReplayViolation> {
    ReplayTurn::new(items).audit(ReplayContract::RequiredWithTools, true).violations
}

/// "Captures provider-native reasoning content from one assistant turn and replays it on the next".
#[test]
fn reasoning_of_one_turn_is_replayed_on_the_next() {
    let codec = OpenRouterReasoningCodec;
    let message = format!(
        r#"{{"role":"assistant","content":null,"reasoning_details":[{TEXT},{ENCRYPTED}]}}"#
    );
    let response = json(&format!(r#"{{"choices":[{{"message":{message}}}]}}"#));
    let items = codec.parse_response(&response);
    assert_eq!(items, [parse(TEXT), parse(ENCRYPTED)]);
    assert_eq!(codec.parse_response(&json(&message)), items);
    let next = json(r#"{"role":"assistant","content":"hi","mood":1e2}"#);
    assert_eq!(
        codec.write_assistant(&next, &items).as_str(),
        format!(
            r#"{{"role":"assistant","content":"hi","mood":1e2,"reasoning_details":[{TEXT},{ENCRYPTED}]}}"#
        )
    );
}

/// Without new elements, the message is unchanged. Existing details are replaced, not duplicated.
#[test]
fn codec_neither_adds_nor_duplicates_details() {
    let codec = OpenRouterReasoningCodec;
    let message = json(&format!(r#"{{"role": "assistant", "reasoning_details": [{SUMMARY}]}}"#));
    assert_eq!(codec.write_assistant(&message, &[]), message);
    assert_eq!(
        codec.write_assistant(&message, &[parse(TEXT)]).as_str(),
        format!(r#"{{"role":"assistant","reasoning_details":[{TEXT}]}}"#)
    );
    assert_eq!(codec.parse_response(&json(r#"{"role":"assistant"}"#)), []);
    assert_eq!(codec.parse_response(&json(r#"{"reasoning_details":null}"#)), []);
}

/// "Gemini binds `thoughtSignature` to a specific Part": the handle contains the id of its call,
/// and a handle for another call does not count.
#[test]
fn geminis_signature_belongs_to_its_own_call() {
    let calls = [Name::from("call_1"), Name::from("call_2")];
    let judge = |items: &[ReasoningItem]| {
        ReplayTurn::new(items)
            .with_calls(&calls)
            .audit(Contract::RequiredWithTools, true)
            .violations
    };
    assert_eq!(judge(&[encrypted(GEMINI, "c2ln", "call_1")]), []);
    let missing = ReplayViolation::UnsignedCall { call: Name::from("call_1") };
    for wrong in [encrypted(GEMINI, "c2ln", "call_2"), unsigned(GEMINI, 0)] {
        assert_eq!(judge(&[wrong]), std::slice::from_ref(&missing));
    }
    let anonymous =
        parse(r#"{"type":"reasoning.encrypted","data":"c2ln","format":"google-gemini-v1"}"#);
    assert_eq!(judge(&[anonymous]), []);
}

/// "Anthropic binds `signature` to a thinking content block": every block has its own signature.
#[test]
fn anthropics_signature_belongs_to_its_own_block() {
    assert_eq!(violations(&[signed(CLAUDE, "YQ==", 0), signed(CLAUDE, "Yg==", 1)]), []);
    let unsigned_block =
        ReplayViolation::Unsigned { item: 1, format: ReasoningFormat::AnthropicClaudeV1 };
    assert_eq!(violations(&[signed(CLAUDE, "YQ==", 0), unsigned(CLAUDE, 1)]), [unsigned_block]);
}

/// "OpenAI/xAI carry `encrypted_content` on a separate reasoning input item": a summary needs no
/// Seal.
#[test]
fn openai_handle_is_a_separate_item() {
    assert_eq!(violations(&[summary(GPT), encrypted(GPT, "Z0FB", "rs_1")]), []);
    let formats = vec![ReasoningFormat::OpenAiResponsesV1];
    let contract = ReplayContract::RequiredWithTools;
    assert_eq!(
        violations(&[summary(GPT)]),
        [ReplayViolation::MissingSignaturesForStrictProvider { contract, formats }]
    );
}

/// "whether replay is required (Gemini 3 always-with-tools".
#[test]
fn gemini_requires_replay_whenever_there_are_tools() {
    let calls = [Name::from("call_1")];
    let items = [encrypted(GEMINI, "", "call_1")];
    assert_eq!(ReasoningFormat::GoogleGeminiV1.replay_contract(), Contract::RequiredWithTools);
    for next_turn_carries_tools in [true, false] {
        let turn = ReplayTurn::new(&items).with_calls(&calls);
        let audit = turn.audit(Contract::RequiredWithTools, next_turn_carries_tools);
        assert_eq!(audit.violations.len(), 2, "the blob is empty, and so the call is unsigned");
    }
    assert!(ReplayTurn::new(&items).audit(Contract::RequiredWithTools, false).is_clean());
}

/// "Anthropic only when next turn carries `tool_result`".
#[test]
fn anthropic_requires_replay_only_before_a_tool_result() {
    let (items, calls) = ([unsigned(CLAUDE, 0)], [Name::from("toolu_1")]);
    let judge = |next_turn_carries_tools| {
        let turn = ReplayTurn::new(&items).with_calls(&calls);
        turn.audit(ReasoningFormat::AnthropicClaudeV1.replay_contract(), next_turn_carries_tools)
    };
    assert!(judge(false).is_clean());
    assert_eq!(judge(true).violations.len(), 1);
}

/// "OpenAI when a function call is in the turn".
#[test]
fn openai_requires_replay_when_the_turn_called_a_function() {
    let (items, calls) = ([encrypted(GPT, "", "rs_1")], [Name::from("call_1")]);
    let contract = ReasoningFormat::OpenAiResponsesV1.replay_contract();
    assert!(ReplayTurn::new(&items).audit(contract, false).is_clean());
    assert_eq!(
        ReplayTurn::new(&items).with_calls(&calls).audit(contract, false).violations.len(),
        1
    );
}

#[test]
fn grok_requires_nothing() {
    assert_eq!(ReasoningFormat::XaiResponsesV1.replay_contract(), ReplayContract::Stateless);
    assert_eq!(ReasoningFormat::unknown().replay_contract(), ReplayContract::Stateless);
    let items = [summary(GROK), encrypted(GROK, "", "rs_1")];
    assert!(OpenRouterReasoningCodec.audit(&items, true).is_clean());
}

/// "A flat opaque-bytes abstraction collapses the attachment point and breaks Gemini": the same
/// bytes on another call are not equivalent.
#[test]
fn same_bytes_on_another_call_are_rejected() {
    let calls = [Name::from("call_1"), Name::from("call_2")];
    let (right, wrong) = (encrypted(GEMINI, "c2ln", "call_1"), encrypted(GEMINI, "c2ln", "call_2"));
    assert_eq!(right.sealed().unwrap().0, wrong.sealed().unwrap().0);
    let is_clean = |item: &ReasoningItem| {
        let turn = ReplayTurn::new(std::slice::from_ref(item)).with_calls(&calls);
        turn.audit(Contract::RequiredWithTools, true).is_clean()
    };
    assert!(is_clean(&right) && !is_clean(&wrong));
}

/// "The bridge stores the typed enum verbatim; the codec is a stateless translator".
#[test]
fn codec_is_deterministic() {
    let codec = OpenRouterReasoningCodec;
    let message = json(r#"{"role":"assistant"}"#);
    let once = codec.write_assistant(&message, &[parse(TEXT), parse(SUMMARY)]);
    let items = codec.parse_response(&once);
    assert_eq!(items, [parse(TEXT), parse(SUMMARY)]);
    assert_eq!(codec.write_assistant(&once, &items), once);
}

/// "Covers every provider OpenRouter routes to": the strictest contract among the formats applies
/// to the turn.
#[test]
fn default_codec_returns_every_providers_contract() {
    let contract = |items: &[ReasoningItem]| OpenRouterReasoningCodec.replay_contract(items);
    for format in [CLAUDE, GEMINI, GPT, "azure-openai-responses-v1", "bedrock-openai-responses-v1"]
    {
        assert_eq!(contract(&[summary(format)]), ReplayContract::RequiredWithTools, "{format}");
    }
    for format in [GROK, "bedrock-xai-responses-v1", "unknown", "meta-responses-v1"] {
        assert_eq!(contract(&[summary(format)]), ReplayContract::Stateless, "{format}");
    }
    assert_eq!(contract(&[summary(GROK), summary(GPT)]), ReplayContract::RequiredWithTools);
    assert_eq!(contract(&[]), ReplayContract::Stateless);
}

/// "Whether this turn's reasoning items satisfy the next-turn replay contract": the profile and the
/// document use the same contract type.
#[test]
fn replay_contract_is_the_profiles_contract() {
    let profile = Profile { contract: ReplayContract::AlwaysRequired, ..Profile::default() };
    assert_eq!(profile.contract, Contract::AlwaysRequired);
    assert!(!ReplayTurn::new(&[unsigned(CLAUDE, 0)]).audit(profile.contract, false).is_clean());
    for contract in [Contract::Stateless, Contract::RequiredWithTools, Contract::AlwaysRequired] {
        let value = serde_json::to_value(contract).unwrap();
        assert_eq!(value, contract.as_str());
    }
}

/// "A specific way the audited turn would fail": an empty signature counts as none, and a signed
/// item does not make up for an unsigned one.
#[test]
fn every_block_is_checked_separately() {
    let unsigned_at =
        |item| ReplayViolation::Unsigned { item, format: ReasoningFormat::AnthropicClaudeV1 };
    let items = [
        signed(CLAUDE, "YQ==", 0),
        signed(CLAUDE, "", 1),
        encrypted(CLAUDE, "", "r"),
        signed(CLAUDE, "Yg==", 2),
    ];
    assert_eq!(violations(&items), [unsigned_at(1), unsigned_at(2)]);
}

/// Blocks must be in the provider's order, without duplicates and without stream fragments.
#[test]
fn wrong_order_duplicates_and_fragments_are_reported() {
    let (one, two) = (signed(CLAUDE, "YQ==", 0), signed(CLAUDE, "Yg==", 1));
    assert_eq!(violations(&[two.clone(), one.clone()]), [ReplayViolation::OutOfOrder { item: 1 }]);
    assert_eq!(violations(&[one.clone(), one.clone()]), [ReplayViolation::Duplicated { item: 1 }]);
    let fragments = [
        unsigned(CLAUDE, 0),
        parse(
            r#"{"type":"reasoning.text","signature":"YQ==","format":"anthropic-claude-v1","index":0}"#,
        ),
    ];
    assert_eq!(
        violations(&fragments),
        [
            ReplayViolation::Unsigned { item: 0, format: ReasoningFormat::AnthropicClaudeV1 },
            ReplayViolation::Fragmented { item: 1 },
        ]
    );
    // Some endpoints give all details the same index, whatever their kind.
    let alike = [
        parse(
            r#"{"type":"reasoning.summary","summary":"s","format":"openai-responses-v1","index":0}"#,
        ),
        parse(
            r#"{"type":"reasoning.encrypted","data":"Z0FB","format":"openai-responses-v1","index":0}"#,
        ),
    ];
    assert_eq!(violations(&alike), []);
}

fn target(family: &str, reads: &[&str], account: &str) -> Target {
    let origin = Origin {
        account: account.into(),
        family: family.into(),
        ..Origin::clone(&owner(Wire::OPENAI_CHAT))
    };
    let provider = Provider {
        name: "openrouter".into(),
        wire: Wire::OPENAI_CHAT,
        base_url: "".into(),
        key_env: None,
        dialect: Dialect::default(),
        replay_plain: PlainReplay::default(),
    };
    let profile = Profile {
        name: family.to_owned(),
        reads: reads.iter().map(|reads| (*reads).to_owned()).collect(),
        bound: Binding { model: true, account: true, prefix: false },
        ..Profile::default()
    };
    Target { origin: Arc::new(origin), provider: Arc::new(provider), profile: Arc::new(profile) }
}

/// All Seals in a turn must come from one vendor, and the target must be able to read them.
#[test]
fn foreign_owner_and_model_are_reported() {
    let foreign = |item, format| ReplayViolation::Foreign { item, format };
    assert_eq!(
        violations(&[signed(CLAUDE, "YQ==", 0), encrypted(GPT, "Z0FB", "rs_1")]),
        [foreign(1, ReasoningFormat::OpenAiResponsesV1)]
    );
    // If the turn contains Seals of the target's vendor, the others are foreign.
    let mut gpt = target("gpt-5", &[], "a");
    let profile = Profile { vendor: Some(Vendor::OpenAi), ..Profile::clone(&gpt.profile) };
    gpt.profile = Arc::new(profile);
    let mixed = [signed(CLAUDE, "YQ==", 0), encrypted(GPT, "Z0FB", "rs_1")];
    let audit = ReplayTurn::new(&mixed).with_target(&gpt).audit(Contract::RequiredWithTools, true);
    assert_eq!(audit.violations, [foreign(0, ReasoningFormat::AnthropicClaudeV1)]);
    let items = [signed(CLAUDE, "YQ==", 0)];
    let issuer = Origin { family: "claude-4".into(), ..Origin::clone(&owner(Wire::OPENAI_CHAT)) };
    let judge = |target: &Target| {
        let turn = ReplayTurn::new(&items).with_issuer(&issuer).with_target(target);
        turn.audit(Contract::RequiredWithTools, true).violations
    };
    let violation = foreign(0, ReasoningFormat::AnthropicClaudeV1);
    assert_eq!(judge(&target("claude-5", &["claude*"], "a")), []);
    for wrong in [target("claude-5", &[], "a"), target("claude-5", &["claude*"], "b")] {
        assert_eq!(judge(&wrong), std::slice::from_ref(&violation));
    }
}

/// "Diagnostic about a single assistant turn's reasoning state": the audit is printed as JSON.
#[test]
fn the_audit_prints_its_json() {
    let items = [signed(CLAUDE, "YQ==", 0), unsigned(CLAUDE, 1), summary("unknown")];
    let audit = audit_replay(&OpenRouterReasoningCodec, &items, true);
    let violation = r#"{"kind":"unsigned","item":1,"format":"anthropic-claude-v1","message":"element 1 of format anthropic-claude-v1 has no signature"}"#;
    assert_eq!(
        audit.json().as_str(),
        format!(
            r#"{{"item_count":3,"signed_count":1,"formats":["anthropic-claude-v1","unknown"],"violation":{violation},"violations":[{violation}]}}"#
        )
    );
    assert_eq!(
        ReplayAudit::default().json().as_str(),
        r#"{"item_count":0,"signed_count":0,"formats":[],"violations":[]}"#
    );
    assert!(!format!("{audit:?}").contains("YQ=="));
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
    fn every_list_round_trips_through_json_and_items(items in proptest::collection::vec(any_item(), 0..5)) {
        let printed = print_details(&items);
        prop_assert_eq!(&parse_details(&printed).unwrap(), &items);
        let owner = owner(Wire::OPENAI_CHAT);
        let through = |item: &ReasoningItem| {
            ReasoningItem::from_item(&item.item("i", ItemPosition::default(), &owner))
        };
        prop_assert_eq!(items.iter().flat_map(through).collect::<Vec<_>>(), items);
    }

    #[test]
    fn any_parsed_element_prints_equivalent_json(
        kind in "reasoning\\.(text|summary|encrypted|new)",
        members in proptest::collection::vec(
            ("(text|summary|data|signature|id|format|index|mood)", "(null|7|\"\"|\"x\"|\\[\\])"),
            0..5,
        ),
    ) {
        let mut by_name = std::collections::BTreeMap::from([("type".to_owned(), format!("\"{kind}\""))]);
        by_name.extend(members);
        let members: Vec<_> = by_name.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let document = json(&format!("{{{}}}", members.join(",")));
        prop_assert!(ReasoningItem::parse(&document).json().is_equivalent_to(&document));
    }
}
