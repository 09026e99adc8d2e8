//! Tests lossless decoding and encoding, and that Seals are sent only to their issuers.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, EncodedRequest, Event, Extra, Fate, Item, ItemId,
    ItemPosition, NativeReasoning, Outcome, OutputFormat, Part, Reply, Request, ReshapeKind, Role,
    Settings, Target, Thought, ThoughtKind, ToolCall, ToolChoice, ToolResult, Wire, tag,
};
use throughline_json::{Json, Name};

use crate::frame::Framing;
use crate::{BedrockConverse, Catalog, Codec, CodecError, DecodeContext, StreamDecoder};

pub(super) const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
pub(super) const CLAUDE_4_6: &str = "us.anthropic.claude-sonnet-4-6";
pub(super) const CLAUDE_4_7: &str = "us.anthropic.claude-opus-4-7-v1";
pub(super) const CLAUDE_5_5: &str = "us.anthropic.claude-opus-5-5-v1";
pub(super) const NOVA: &str = "us.amazon.nova-2-lite-v1:0";
pub(super) const DEEPSEEK: &str = "us.deepseek.v3.2";
pub(super) const GPT_OSS: &str = "openai.gpt-oss-120b-1:0";

pub(super) fn target(model: &str) -> Target {
    Catalog::builtin().target_for("bedrock", model, "main").unwrap()
}

pub(super) fn context(model: &str) -> DecodeContext {
    DecodeContext::of(target(model))
}

pub(super) fn request(model: &str, body: &str) -> Request {
    let path = super::wire::ConversePath::default().with_model(model, false);
    Request { path: path.into(), headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

pub(super) fn read(model: &str, body: &str) -> Call {
    BedrockConverse.decode_request(&request(model, body), &context(model)).unwrap()
}

pub(super) fn reply(model: &str, content: &str) -> Reply {
    let body = format!(
        r#"{{"output":{{"message":{{"role":"assistant","content":{content}}}}},"stopReason":"end_turn","usage":{{"inputTokens":1,"outputTokens":2,"totalTokens":3}},"metrics":{{"latencyMs":4}}}}"#
    );
    BedrockConverse.decode_reply(&Bytes::from(body), &context(model)).unwrap()
}

pub(super) fn written(call: &Call) -> EncodedRequest {
    BedrockConverse.encode(call).unwrap()
}

pub(super) fn body(encoded: &EncodedRequest) -> &str {
    std::str::from_utf8(&encoded.request.body).unwrap()
}

pub(super) fn member(encoded: &EncodedRequest, pointer: &str) -> Option<String> {
    let body = Json::parse(encoded.request.body.clone()).unwrap();
    body.tree().root().at(pointer).map(|node| node.json().as_str().to_owned())
}

pub(super) fn warned(encoded: &EncodedRequest) -> Vec<&str> {
    encoded.warnings.iter().map(|warning| &*warning.setting).collect()
}

pub(super) fn text_item(message: usize, role: Role, text: &str) -> Item {
    Item::new(format!("i{message}"), ItemPosition::new(message, 0), role, Body::Text(text.into()))
}

pub(super) fn called(message: usize, id: &str, name: &str) -> Item {
    let args = Json::parse(r#"{"city":"Oslo"}"#).unwrap();
    let (id, name) = (id.into(), name.into());
    let call = ToolCall { id, wire_id: None, name, args, custom: false };
    Item::new(
        format!("c{message}"),
        ItemPosition::new(message, 0),
        Role::Assistant,
        Body::Call(call),
    )
}

pub(super) fn answered(message: usize, id: &str, outcome: Outcome, parts: Vec<Part>) -> Item {
    let result = ToolResult { call: id.into(), wire_id: None, name: None, outcome, parts };
    Item::new(
        format!("r{message}"),
        ItemPosition::new(message, 0),
        Role::Tool,
        Body::Result(result),
    )
}

pub(super) fn call_with_reasoning(model: &str, reasoning: NativeReasoning) -> Call {
    let mut call = Call::new(target(model));
    call.items = vec![text_item(0, Role::User, "hi")];
    call.settings.reasoning = Some(reasoning);
    call
}

pub(super) fn effort(word: &str) -> NativeReasoning {
    NativeReasoning { effort: Some(word.into()), ..NativeReasoning::default() }
}

pub(super) fn budget(tokens: u64) -> NativeReasoning {
    NativeReasoning { budget_tokens: Some(tokens), ..NativeReasoning::default() }
}

pub(super) fn off() -> NativeReasoning {
    NativeReasoning { enabled: Some(false), ..NativeReasoning::default() }
}

pub(super) fn decode(model: &str, framing: Framing, stream: &[u8]) -> Vec<Event> {
    let mut decoder = StreamDecoder::with_framing(&BedrockConverse, &context(model), framing);
    let mut events = decoder.push(stream).unwrap();
    events.extend(decoder.finish().unwrap());
    events
}

pub(super) fn ended(events: &[Event]) -> Reply {
    let ended = events.iter().find_map(|event| match event {
        Event::Ended(reply) => Some(Reply::clone(reply)),
        _ => None,
    });
    ended.unwrap()
}

/// The properties of an Item that a stream must reproduce: body, native JSON and Seals.
type ItemContent = (Body, String, Vec<(String, String, Bytes)>);

pub(super) fn essence(items: &[Item]) -> Vec<ItemContent> {
    let essence = |item: &Item| {
        let json = item.native.as_ref().map(|native| native.json.canonical()).unwrap_or_default();
        let seals = item.seals.iter().map(|seal| {
            let (format, at) = (seal.format.to_string(), seal.attached.at.to_string());
            (format, at, seal.reveal_to_tenant().clone())
        });
        (item.body.clone(), json, seals.collect())
    };
    items.iter().map(essence).collect()
}

#[test]
fn path_contains_model_and_streaming_mode() {
    let body = r#"{"messages":[]}"#;
    let mut streamed = request(CLAUDE, body);
    streamed.path =
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream?trace=1".into();
    assert_eq!(BedrockConverse.model_of(&streamed), Some(Name::from(CLAUDE)));
    let mut call = BedrockConverse.decode_request(&streamed, &context(CLAUDE)).unwrap();
    assert!(call.stream);
    assert_eq!(written(&call).request, streamed);

    call.stream = false;
    call.target = target(NOVA);
    let path = written(&call).request.path;
    assert_eq!(&*path, "/model/us.amazon.nova-2-lite-v1%3A0/converse?trace=1");
}

#[test]
fn new_request_uses_the_path_of_its_model() {
    let mut call = Call::new(target(CLAUDE));
    call.items = vec![text_item(0, Role::User, "hi")];
    call.stream = true;
    let encoded = written(&call);
    let path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream";
    assert_eq!(&*encoded.request.path, path);
    assert_eq!(body(&encoded), r#"{"messages":[{"role":"user","content":[{"text":"hi"}]}]}"#);
}

#[test]
fn model_in_the_body_is_decoded_and_follows_the_target() {
    let body = r#"{"modelId":"us.amazon.nova-2-lite-v1:0","messages":[]}"#;
    let request = Request { path: "".into(), headers: Vec::new(), body: body.into() };
    assert_eq!(BedrockConverse.model_of(&request), Some(Name::from(NOVA)));
    let mut call = BedrockConverse.decode_request(&request, &context(NOVA)).unwrap();
    assert_eq!(written(&call).request, request);
    call.target = target(CLAUDE_4_6);
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/modelId"), Some(format!("\"{CLAUDE_4_6}\"")));
    assert_eq!(&*encoded.request.path, "/model/us.anthropic.claude-sonnet-4-6/converse");
}

#[test]
fn empty_and_malformed_members_are_unchanged() {
    for body in [
        r#"{"messages": [], "system": [], "inferenceConfig": {}, "toolConfig": {"tools": []}}"#,
        r#"{"messages":[{"role":"user","content":[]}],"system":null,"inferenceConfig":null}"#,
        r#"{"messages":[{"role":"user","content":"text"}],"system":"odd","toolConfig":7}"#,
        r#"{"messages":[{"role":"user"},{"role":"user","content":[{"text":" "}]}],"x":1,"x":2}"#,
        r#"{ "promptVariables" : {"a":{"text":"b"}} }"#,
        r#"{"messages":[{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"t","signature":""}}}]}]}"#,
    ] {
        let request = request(CLAUDE, body);
        let call = BedrockConverse.decode_request(&request, &context(CLAUDE)).unwrap();
        let encoded = written(&call);
        assert_eq!(encoded.request, request);
        assert_eq!(encoded.fates.len(), call.system.len() + call.items.len());
        assert_eq!(encoded.warnings, Vec::new());
    }
}

#[test]
fn invalid_requests_are_rejected_with_their_path() {
    for body in [r#"{"contents":[]}"#, r#"{"messages":{}}"#, r#"{"messages":[1]}"#, "[]"] {
        let read = BedrockConverse.decode_request(&request(CLAUDE, body), &context(CLAUDE));
        assert!(matches!(read, Err(CodecError::Shape { .. })), "{body}");
    }
}

#[test]
fn call_without_its_source_encodes_completely() {
    let body = r#"{"system":[{"text":"Be brief."}],"messages":[{"role":"user","content":[{"text":"hi"}]}],"inferenceConfig":{"maxTokens":9},"toolConfig":{"tools":[{"systemTool":{"name":"s"}}],"toolChoice":{"auto":{}}},"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":2000},"beta":[1]},"serviceTier":{"type":"flex"}}"#;
    let mut call = read(CLAUDE, body);
    call.settings.max_tokens = Some(4000);
    call.source = None;
    let encoded = written(&call);
    let expected = body.replace("\"maxTokens\":9", "\"maxTokens\":4000");
    let sent = Json::parse(encoded.request.body.clone()).unwrap();
    assert_eq!(sent.canonical(), Json::parse(expected).unwrap().canonical());
    assert_eq!(encoded.warnings, Vec::new());
}

#[test]
fn wire_specific_members_become_extras() {
    let fields = r#"{"thinking":{"type":"adaptive"},"anthropic_beta":["x"]}"#;
    let body = format!(
        r#"{{"messages":[],"inferenceConfig":{{"maxTokens":1}},"additionalModelRequestFields":{fields},"guardrailConfig":{{"trace":"enabled"}}}}"#
    );
    let extra = |key: &str, value: &str| Extra {
        wire: Some(Wire::BEDROCK_CONVERSE),
        key: key.into(),
        value: Json::parse(value.to_owned()).unwrap(),
    };
    let expected = vec![
        extra("additionalModelRequestFields", fields),
        extra("guardrailConfig", r#"{"trace":"enabled"}"#),
    ];
    assert_eq!(read(CLAUDE, &body).extras, expected);
}

#[test]
fn settings_are_read_from_every_location() {
    let body = r#"{"messages":[],"inferenceConfig":{"maxTokens":100,"temperature":0.50,"topP":1,"stopSequences":["A","B"]},"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object"}}}}],"toolChoice":{"tool":{"name":"f"}}},"additionalModelRequestFields":{"top_k":5,"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"high"}},"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\":\"object\"}","name":"n"}}}}}"#;
    let call = read(CLAUDE_4_6, body);
    let json = |text: &'static str| Json::parse(text).unwrap();
    let expected = Settings {
        max_tokens: Some(100),
        temperature: Some(json("0.50")),
        top_p: Some(json("1")),
        top_k: Some(json("5")),
        stop: vec!["A".into(), "B".into()],
        choice: Some(ToolChoice::Tool("f".into())),
        parallel: None,
        reasoning: Some(NativeReasoning {
            enabled: Some(true),
            effort: Some("high".into()),
            budget_tokens: None,
            include_thoughts: Some(false),
            provider_extras: Vec::new(),
        }),
        output: Some(OutputFormat::Schema {
            name: Some("n".into()),
            schema: json(r#"{"type":"object"}"#),
            strict: None,
        }),
    };
    assert_eq!(call.settings, expected);
    let tool = &call.tools[0];
    assert_eq!((&*tool.name, tool.description.as_deref(), tool.hosted), ("f", Some("d"), false));
    assert_eq!(tool.schema, Some(json(r#"{"type":"object"}"#)));
}

pub(super) const SEALED: &str = r#"[{"reasoningContent":{"reasoningText":{"signature":"c2VhbC1vbmU=","text":"hm"}}},{"text":"a"},{"reasoningContent":{"redactedContent":"c2VhbC10d28="}},{"toolUse":{"toolUseId":"t1","name":"f","input":{},"extra":null}},{"reasoningContent":{"reasoningText":{"text":"","signature":"c2VhbC10aHJlZQ=="}}}]"#;

#[test]
fn thoughts_are_replayed_whole_and_in_order() {
    let mut call = read(CLAUDE, r#"{"messages":[{"role":"user","content":[{"text":"q"}]}]}"#);
    let answer = reply(CLAUDE, SEALED);
    let seals = |item: &Item| -> Vec<(String, String)> {
        let seals = item.seals.iter();
        seals.map(|seal| (seal.format.to_string(), seal.attached.at.to_string())).collect()
    };
    let text_seal = vec![(
        "bedrock.signature".to_owned(),
        "/reasoningContent/reasoningText/signature".to_owned(),
    )];
    let redacted_seal = vec![(
        "bedrock.redacted_content".to_owned(),
        "/reasoningContent/redactedContent".to_owned(),
    )];
    let found: Vec<_> = answer.items.iter().map(seals).collect();
    assert_eq!(found, [text_seal.clone(), vec![], redacted_seal, vec![], text_seal]);
    call.extend(answer.items);
    call.extend([answered(0, "t1", Outcome::Ok, vec![Part::Text("done".into())])]);
    let encoded = written(&call);
    let expected = SEALED.replace(r#","extra":null"#, "");
    assert_eq!(member(&encoded, "/messages/1/content"), Some(expected));
    assert_eq!(
        member(&encoded, "/messages/2"),
        Some(r#"{"role":"user","content":[{"toolResult":{"toolUseId":"t1","content":[{"text":"done"}]}}]}"#.to_owned())
    );
    assert!(encoded.fates.iter().all(|fate| fate.visible == Disposition::Kept));
}

#[test]
fn unsigned_thought_is_never_sent_to_claude() {
    for content in [
        r#"[{"reasoningContent":{"reasoningText":{"text":"hm"}}},{"text":"a"}]"#,
        r#"[{"reasoningContent":{"reasoningText":{"text":"hm","signature":""}}},{"text":"a"}]"#,
    ] {
        let mut call = Call::new(target(CLAUDE));
        call.extend(reply(CLAUDE, content).items);
        let encoded = written(&call);
        assert_eq!(member(&encoded, "/messages/0/content"), Some(r#"[{"text":"a"}]"#.to_owned()));
        assert_eq!(encoded.fates[0].visible, Disposition::Elided(ElisionReason::Unsigned));
    }
}

#[test]
fn unsigned_thought_is_sent_only_to_its_family_without_signature() {
    let content = r#"[{"reasoningContent":{"reasoningText":{"text":"hm","signature":""}}}]"#;
    let fate = |from: &str, to: &str| {
        let mut call = Call::new(target(to));
        call.extend(reply(from, content).items);
        let encoded = written(&call);
        (member(&encoded, "/messages/0/content"), encoded.fates[0].visible.clone())
    };
    let sent = Some(r#"[{"reasoningContent":{"reasoningText":{"text":"hm"}}}]"#.to_owned());
    assert_eq!(fate(NOVA, NOVA), (sent.clone(), Disposition::Kept));
    assert_eq!(fate(NOVA, "amazon.nova-pro-v1:0"), (sent, Disposition::Kept));
    assert_eq!(fate(DEEPSEEK, NOVA), (None, Disposition::Elided(ElisionReason::OtherModel)));
    assert_eq!(fate(DEEPSEEK, CLAUDE), (None, Disposition::Elided(ElisionReason::Unsigned)));
    assert_eq!(
        fate("vendor.one", "vendor.two"),
        (None, Disposition::Elided(ElisionReason::OtherModel))
    );
}

#[test]
fn thoughts_of_another_family_are_omitted() {
    let body = r#"{"messages":[{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm"}}},{"text":"a"}]}]}"#;
    let mut call = read(DEEPSEEK, body);
    assert_eq!(self::body(&written(&call)), body);
    call.target = target(CLAUDE);
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/messages/0/content"), Some(r#"[{"text":"a"}]"#.to_owned()));
    assert_eq!(encoded.fates[0].visible, Disposition::Elided(ElisionReason::Unsigned));
}

#[test]
fn seals_are_sent_only_to_models_that_read_them() {
    let fates = |to: Target| {
        let mut call = Call::new(to);
        call.extend(reply(CLAUDE, SEALED).items);
        written(&call)
    };
    let kept = fates(target(CLAUDE_4_6));
    assert_eq!(kept.fates[0].seals, [Disposition::Kept]);
    let other = fates(target(NOVA));
    assert_eq!(other.fates[0].seals, [Disposition::Elided(ElisionReason::OtherModel)]);
    assert!(!body(&other).contains("c2VhbC"));
    let mut elsewhere = target(CLAUDE);
    let mut origin = (*elsewhere.origin).clone();
    origin.endpoint = "bedrock-runtime.eu-central-1.amazonaws.com".into();
    elsewhere.origin = Arc::new(origin);
    let foreign = fates(elsewhere);
    assert_eq!(foreign.fates[2].seals, [Disposition::Elided(ElisionReason::Foreign)]);
    assert!(!body(&foreign).contains("c2VhbC"));
}

#[test]
fn truncated_thought_is_never_sent() {
    let mut items = reply(CLAUDE, SEALED).items;
    if let Body::Thought(thought) = &mut items[0].body {
        thought.whole = false;
    }
    let mut call = Call::new(target(CLAUDE));
    call.extend(items);
    assert_eq!(written(&call).fates[0].visible, Disposition::Elided(ElisionReason::Cut));
}

#[test]
fn bound_thought_is_omitted_after_a_prefix_change() {
    let call_with_text = |text: &str| {
        let mut call = Call::new(target(CLAUDE_5_5));
        call.system = vec![text_item(0, Role::System, "Be brief.")];
        call.items = vec![text_item(0, Role::User, text)];
        call
    };
    let blocks = r#"[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"c2VhbC1vbmU="}}},{"text":"a"}]"#;
    let prefix = written(&call_with_text("one")).prefix;
    let body =
        format!(r#"{{"output":{{"message":{{"content":{blocks}}}}},"stopReason":"end_turn"}}"#);
    let context = DecodeContext { prefix, ..DecodeContext::of(target(CLAUDE_5_5)) };
    let answer = BedrockConverse.decode_reply(&body.into(), &context).unwrap();
    let fate = |mut call: Call| {
        call.extend(answer.items.clone());
        written(&call).fates[2].visible.clone()
    };
    assert_eq!(fate(call_with_text("one")), Disposition::Kept);
    assert_eq!(fate(call_with_text("two")), Disposition::Elided(ElisionReason::PrefixChanged));
    // A cache marker is not part of the model's input.
    let mut marked = read(
        CLAUDE_5_5,
        r#"{"system":[{"text":"Be brief."},{"cachePoint":{"type":"default"}}],"messages":[{"role":"user","content":[{"text":"one"},{"cachePoint":{"type":"default"}}]}]}"#,
    );
    marked.extend(answer.items.clone());
    let encoded = written(&marked);
    assert_eq!(encoded.fates[4].visible, Disposition::Kept);
}

#[test]
fn caller_thought_becomes_user_text_or_keeps_its_native_form() {
    let thought = |tag: Option<&str>, payload: Option<&'static str>| {
        let mut thought = Thought::issued(
            "a plan",
            ThoughtKind::Text,
            throughline_core::ReasoningFormat::unknown(),
        );
        thought.replay_compatibility = tag.map(Name::from);
        thought.payload = payload.map(|payload| Json::parse(payload).unwrap());
        let mut call = Call::new(target(CLAUDE));
        call.replay.secret = Some(throughline_core::ThreadSecret::new([7; 32]));
        let body = Body::Thought(thought);
        call.items = vec![
            text_item(0, Role::User, "q"),
            Item::new("t", ItemPosition::new(1, 0), Role::Assistant, body),
            text_item(2, Role::Assistant, "a"),
        ];
        written(&call)
    };
    let plain = thought(None, None);
    let rendered = member(&plain, "/messages/0/content/1/text").unwrap();
    assert!(rendered.contains("a plan") && rendered.contains("kind=\\\"self-reasoning\\\""));
    assert_eq!(plain.fates[1].visible, Disposition::Reshaped(ReshapeKind::Enveloped));

    let payload = r#"{"reasoningContent":{"reasoningText":{"text":"p","signature":"s"}}}"#;
    let typed = thought(Some(tag::BEDROCK_CONVERSE_REASONING), Some(payload));
    assert_eq!(member(&typed, "/messages/1/content/0"), Some(payload.to_owned()));
    assert_eq!(typed.fates[1].visible, Disposition::Kept);

    let foreign = thought(Some("another-else-v1"), Some(r#"{"x":1}"#));
    assert_eq!(foreign.fates[1].visible, Disposition::Elided(ElisionReason::ByPolicy));
    assert!(!body(&foreign).contains("a plan"));
}

#[test]
fn another_providers_thought_never_becomes_text() {
    let mut call = Call::new(target(CLAUDE));
    let mut items = reply(CLAUDE, SEALED).items;
    let mut origin = (**items[0].origin.as_ref().unwrap()).clone();
    origin.provider = "elsewhere".into();
    items[0].origin = Some(Arc::new(origin));
    items[0].native.as_mut().unwrap().wire = Wire::OPENAI_CHAT;
    call.extend(items);
    let encoded = written(&call);
    let expected = Fate {
        item: ItemId::from("reply.0.0"),
        visible: Disposition::Elided(ElisionReason::Foreign),
        seals: vec![Disposition::Elided(ElisionReason::Foreign)],
    };
    assert_eq!(encoded.fates[0], expected);
    assert!(!body(&encoded).contains("hm"));
}
