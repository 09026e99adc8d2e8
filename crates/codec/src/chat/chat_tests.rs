//! Tests the guarantees of the chat codec.

use bytes::Bytes;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, Item, ItemPosition, NativeReasoning, Outcome,
    OutputFormat, Part, Reply, Request, ReshapeKind, Role, StopReason, Target, Thought,
    ThoughtKind, ThreadSecret, Tool, ToolCall, ToolChoice, ToolResult, Usage, Warning,
};
use throughline_json::{Json, Name};

use crate::chat::OpenAiChat;
use crate::{Catalog, Codec, CodecError, DecodeContext};

pub(super) fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "account").unwrap()
}

pub(super) fn context(provider: &str, model: &str) -> DecodeContext {
    DecodeContext::of(target(provider, model))
}

pub(super) fn reply(context: &DecodeContext, message: &str) -> Reply {
    let body = format!(
        r#"{{"id":"r","model":"{}","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#,
        context.target.model()
    );
    OpenAiChat.decode_reply(&Bytes::from(body), context).unwrap()
}

fn user(text: &str) -> Item {
    Item::new("u", ItemPosition::new(0, 0), Role::User, Body::Text(Name::from(text)))
}

/// Builds a Call in which `items` follow a user message.
pub(super) fn call_with(target: Target, items: Vec<Item>) -> Call {
    let mut call = Call::new(target);
    call.items.push(user("hi"));
    call.extend(items);
    call
}

fn body(call: &Call) -> String {
    let encoded = OpenAiChat.encode(call).unwrap();
    assert_eq!(encoded.fates.len(), call.system.len() + call.items.len());
    String::from_utf8(encoded.request.body.to_vec()).unwrap()
}

/// Returns the encoded message that follows the user message.
pub(super) fn answer(call: &Call) -> String {
    let tree = Json::parse(body(call)).unwrap().tree();
    tree.root().at("/messages/1").map_or(String::new(), |node| node.json().as_str().to_owned())
}

fn settings(provider: &str, model: &str, change: impl Fn(&mut Call)) -> (String, Vec<Warning>) {
    let mut call = call_with(target(provider, model), Vec::new());
    change(&mut call);
    let encoded = OpenAiChat.encode(&call).unwrap();
    let text = String::from_utf8(encoded.request.body.to_vec()).unwrap();
    let head = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]"#);
    (text.strip_prefix(&head).unwrap().to_owned(), encoded.warnings)
}

fn thinking(change: impl Fn(&mut NativeReasoning)) -> impl Fn(&mut Call) {
    move |call| {
        let mut reasoning = NativeReasoning::default();
        change(&mut reasoning);
        call.settings.reasoning = Some(reasoning);
    }
}

pub(super) trait SlotTexts {
    fn slot_texts(&self) -> Vec<(String, String)>;
}

impl SlotTexts for Reply {
    /// Returns the slot and readable text of each Item.
    fn slot_texts(&self) -> Vec<(String, String)> {
        let slot = |item: &Item| item.native.as_ref().unwrap().slot.to_string();
        let text = |item: &Item| match &item.body {
            Body::Call(call) => format!("{}{}", call.name, call.args.as_str()),
            _ => item.visible().unwrap_or("-").to_owned(),
        };
        self.items.iter().map(|item| (slot(item), text(item))).collect()
    }
}

pub(super) fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(slot, text)| ((*slot).to_owned(), (*text).to_owned())).collect()
}

const DETAILS: &str = r#"{"role":"assistant","content":"Hi.","reasoning":"Think.","reasoning_details":[{"type":"reasoning.text","text":"Think.","signature":"c2VhbC1vbmU=","format":"anthropic-claude-v1","index":0},{"type":"reasoning.encrypted","data":"c2VhbC10d28=","format":"anthropic-claude-v1","id":"toolu_1","index":1}],"tool_calls":[{"id":"toolu_1","index":0,"type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":null,"annotations":[]}"#;

#[test]
fn each_detail_is_one_thought_and_its_flat_copy_is_not() {
    let reply = reply(&context("openrouter", "claude-sonnet-4.5"), DETAILS);
    let expected = [
        ("reasoning_details/0+reasoning", "Think."),
        ("reasoning_details/1", ""),
        ("content", "Hi."),
        ("tool_calls/0", "f{}"),
    ];
    assert_eq!(reply.slot_texts(), pairs(&expected));
}

#[test]
fn details_are_replayed_whole_and_in_order_once_per_message() {
    let context = context("openrouter", "claude-sonnet-4.5");
    let call = call_with(context.target.clone(), reply(&context, DETAILS).items);
    let expected = r#"{"role":"assistant","content":"Hi.","reasoning_details":[{"type":"reasoning.text","text":"Think.","signature":"c2VhbC1vbmU=","format":"anthropic-claude-v1","index":0},{"type":"reasoning.encrypted","data":"c2VhbC10d28=","format":"anthropic-claude-v1","id":"toolu_1","index":1}],"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    assert_eq!(answer(&call), expected);
}

#[test]
fn encrypted_detail_with_call_id_is_linked_to_that_call() {
    let reply = reply(&context("openrouter", "claude-sonnet-4.5"), DETAILS);
    let leads: Vec<_> =
        reply.items.iter().flat_map(|item| &item.seals).map(|s| s.attached.leads.clone()).collect();
    assert_eq!(leads, [None, Some("r.0.3".into())]);
}

#[test]
fn detail_with_empty_signature_has_no_seal_and_is_not_sent() {
    let context = context("openrouter", "claude-sonnet-4.5");
    let message = r#"{"content":"Hi.","reasoning_details":[{"type":"reasoning.text","text":"T","signature":"","format":"anthropic-claude-v1"}]}"#;
    let reply = reply(&context, message);
    assert!(reply.items.iter().all(|item| item.seals.is_empty()));
    let call = call_with(context.target.clone(), reply.items);
    let encoded = OpenAiChat.encode(&call).unwrap();
    assert_eq!(encoded.fates[1].visible, Disposition::Elided(ElisionReason::Unsigned));
    assert_eq!(answer(&call), r#"{"role":"assistant","content":"Hi."}"#);
}

#[test]
fn foreign_sealed_details_are_dropped_and_readable_ones_are_sent() {
    let context = context("openrouter", "gpt-5");
    let message = r#"{"content":"Hi.","reasoning_details":[{"type":"reasoning.summary","summary":"S","format":"openai-responses-v1","index":0},{"type":"reasoning.encrypted","data":"c2VhbC10d28=","format":"openai-responses-v1","index":0}]}"#;
    let call = call_with(target("openrouter", "claude-sonnet-4.5"), reply(&context, message).items);
    let encoded = OpenAiChat.encode(&call).unwrap();
    let fates: Vec<_> = encoded.fates.iter().map(|fate| fate.visible.clone()).collect();
    assert_eq!(
        fates,
        [
            Disposition::Kept,
            Disposition::Kept,
            Disposition::Elided(ElisionReason::OtherModel),
            Disposition::Kept
        ]
    );
    assert!(!body(&call).contains("c2VhbC10d28="));
}

#[test]
fn unknown_details_are_preserved_and_replayed() {
    let context = context("openrouter", "glm-4.7");
    let message =
        r#"{"content":"Hi.","reasoning_details":[{"type":"reasoning.telepathy","waves":[1]}]}"#;
    let call = call_with(context.target.clone(), reply(&context, message).items);
    assert!(
        answer(&call)
            .contains(r#""reasoning_details":[{"type":"reasoning.telepathy","waves":[1]}]"#)
    );
}

#[test]
fn foreign_reasoning_is_dropped_and_never_becomes_text() {
    let deepseek = context("deepseek", "deepseek-reasoner");
    let items = reply(&deepseek, r#"{"content":"Hi.","reasoning_content":"secret plan"}"#).items;
    for (provider, model) in [
        ("mistral", "magistral-medium-latest"),
        ("openai-chat", "gpt-4o"),
        ("openrouter", "glm-4.7"),
    ] {
        let call = call_with(target(provider, model), items.clone());
        let encoded = OpenAiChat.encode(&call).unwrap();
        assert_eq!(
            encoded.fates[1].visible,
            Disposition::Elided(ElisionReason::Foreign),
            "{provider}"
        );
        assert_eq!(answer(&call), r#"{"role":"assistant","content":"Hi."}"#, "{provider}");
    }
}

#[test]
fn reasoning_is_replayed_in_the_field_the_endpoint_used() {
    let cases = [
        ("deepseek", "deepseek-reasoner", "reasoning_content"),
        ("vllm", "qwen3", "reasoning"),
        ("vllm", "qwen3", "reasoning_content"),
        ("ollama-native", "qwen3", "thinking"),
        ("compatible", "anything", "reasoning"),
    ];
    for (provider, model, field) in cases {
        let context = context(provider, model);
        let reply = reply(&context, &format!(r#"{{"content":"Hi.","{field}":"T"}}"#));
        let call = call_with(context.target.clone(), reply.items);
        let expected = format!(r#"{{"role":"assistant","content":"Hi.","{field}":"T"}}"#);
        assert_eq!(answer(&call), expected, "{provider}");
    }
}

#[test]
fn unknown_endpoint_gets_every_emitted_field_back() {
    let context = context("compatible", "anything");
    let message = r#"{"content":"Hi.","reasoning":"T","reasoning_content":"T","reasoning_details":[{"type":"reasoning.text","text":"T"}]}"#;
    let reply = reply(&context, message);
    assert_eq!(
        reply.slot_texts(),
        pairs(&[("reasoning_details/0+reasoning_content+reasoning", "T"), ("content", "Hi.")])
    );
    let call = call_with(context.target.clone(), reply.items);
    let expected = r#"{"role":"assistant","content":"Hi.","reasoning_content":"T","reasoning":"T","reasoning_details":[{"type":"reasoning.text","text":"T"}]}"#;
    assert_eq!(answer(&call), expected);
}

#[test]
fn required_reasoning_is_sent_even_when_empty() {
    let context = context("deepseek", "deepseek-reasoner");
    let message = r#"{"content":null,"reasoning_content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let call = call_with(context.target.clone(), reply(&context, message).items);
    let expected = r#"{"role":"assistant","content":null,"reasoning_content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    assert_eq!(answer(&call), expected);
}

#[test]
fn stand_in_replaces_foreign_reasoning_where_required() {
    let deepseek = context("deepseek", "deepseek-reasoner");
    let message = r#"{"content":null,"reasoning_content":"mine","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let call = call_with(target("moonshot", "kimi-k2.5"), reply(&deepseek, message).items);
    let encoded = OpenAiChat.encode(&call).unwrap();
    assert_eq!(encoded.fates[1].visible, Disposition::Reshaped(ReshapeKind::StandIn));
    assert!(answer(&call).contains(r#""reasoning_content":".","tool_calls""#));
    assert!(!body(&call).contains("mine"));
}

#[test]
fn mistral_chunks_stay_in_content_with_their_signature() {
    let context = context("mistral", "magistral-medium-latest");
    let message = r#"{"role":"assistant","tool_calls":null,"content":[{"type":"thinking","thinking":[{"type":"text","text":"T"}],"signature":"c2VhbC1vbmU=","closed":true},{"type":"text","text":"Hi."}]}"#;
    let reply = reply(&context, message);
    assert_eq!(reply.slot_texts(), pairs(&[("content/0", "T"), ("content/1", "Hi.")]));
    assert_eq!(reply.items[0].seals[0].attached.at, "/signature");
    let call = call_with(context.target.clone(), reply.items);
    let expected = r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"T"}],"signature":"c2VhbC1vbmU=","closed":true},{"type":"text","text":"Hi."}]}"#;
    assert_eq!(answer(&call), expected);
}

#[test]
fn inline_tags_decode_as_thoughts_and_encode_byte_for_byte() {
    let context = context("minimax", "minimax-m2");
    let text = "<think>\nPlan.\n</think>\n\nHi. <thinking>More</thinking>Bye.";
    let message = format!(r#"{{"content":{}}}"#, throughline_json::string(text).as_str());
    let reply = reply(&context, &message);
    assert_eq!(
        reply.slot_texts(),
        pairs(&[
            ("content", "\nPlan.\n"),
            ("content", "\n\nHi. "),
            ("content", "More"),
            ("content", "Bye.")
        ])
    );
    let call = call_with(context.target.clone(), reply.items);
    assert_eq!(answer(&call), format!(r#"{{"role":"assistant",{}"#, &message[1..]));
}

#[test]
fn inline_tags_of_models_without_native_reasoning_are_prompted() {
    use throughline_core::ReasoningSource::{NonReasonerModel, ReasonerModel};
    for (provider, model, source) in [
        ("minimax", "minimax-m2", ReasonerModel),
        ("compatible", "qwen3-32b", ReasonerModel),
        ("compatible", "anything", ReasonerModel),
        ("compatible", "gpt-4o", NonReasonerModel),
    ] {
        let reply = reply(&context(provider, model), r#"{"content":"<think>x</think>Hi."}"#);
        let Body::Thought(thought) = &reply.items[0].body else { unreachable!() };
        assert_eq!((&*thought.content, thought.source), ("x", source), "{model}");
    }
}

#[test]
fn unclosed_tag_is_an_incomplete_thought() {
    let context = context("minimax", "minimax-m2");
    let reply = reply(&context, r#"{"content":"<think>and th"}"#);
    let Body::Thought(thought) = &reply.items[0].body else { unreachable!() };
    assert_eq!((&*thought.content, thought.whole), ("and th", false));
    let encoded = OpenAiChat.encode(&call_with(context.target, reply.items)).unwrap();
    assert_eq!(encoded.fates[1].visible, Disposition::Elided(ElisionReason::Cut));
}

#[test]
fn mid_text_tags_of_unknown_endpoints_stay_text() {
    let reply = reply(&context("compatible", "anything"), r#"{"content":"Use <think>x</think>."}"#);
    assert_eq!(reply.slot_texts(), pairs(&[("content", "Use <think>x</think>.")]));
}

#[test]
fn signatures_on_calls_and_messages_are_replayed_in_place() {
    let context = context("compatible", "gemini-3-flash");
    let message = r#"{"content":"Hi.","extra_content":{"google":{"thought_signature":"c2VhbC1vbmU="}},"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2VhbC10d28="}}}]}"#;
    let reply = reply(&context, message);
    let seals: Vec<_> = reply.items.iter().flat_map(|item| &item.seals).collect();
    let shown: Vec<_> = seals.iter().map(|seal| (&*seal.format, &*seal.attached.at)).collect();
    assert_eq!(
        shown,
        [
            ("openai-chat.thought_signature", "/extra_content/google/thought_signature"),
            ("openai-chat.thought_signature", "/google/thought_signature")
        ]
    );
    let own = answer(&call_with(context.target.clone(), reply.items.clone()));
    assert!(own.contains("c2VhbC1vbmU=") && own.contains("c2VhbC10d28="));
    let foreign = call_with(target("openrouter", "gpt-5"), reply.items);
    let expected = r#"{"role":"assistant","content":"Hi.","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    assert_eq!(answer(&foreign), expected);
}

#[test]
fn unchanged_request_encodes_to_the_same_bytes() {
    let text = "{ \"messages\" : [ {\"role\":\"assistant\", \"content\":\"\\u00e9\",\"reasoning\":\"T\",\"x\":1e2} ,\n{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"} ],\"n\":1, \"n\":2,\"model\":\"m\" , \"reasoning\":{\"effort\":\"low\"} }\n";
    let request =
        Request { path: "/v1/chat/completions".into(), headers: Vec::new(), body: text.into() };
    for provider in ["openai-chat", "mistral", "openrouter", "compatible", "ollama-native"] {
        let call = OpenAiChat.decode_request(&request, &context(provider, "m")).unwrap();
        assert_eq!(OpenAiChat.encode(&call).unwrap().request.body, request.body, "{provider}");
    }
}

#[test]
fn edited_message_keeps_unknown_members() {
    let text = r#"{"model":"m","messages":[{"role":"assistant","x":{"y":1},"content":"old","reasoning_content":"T"}]}"#;
    let request = Request { path: "/p".into(), headers: Vec::new(), body: text.into() };
    let mut call = OpenAiChat.decode_request(&request, &context("xai-chat", "m")).unwrap();
    call.items[1].replace_body(Body::Text("new".into()));
    let expected = r#"{"model":"m","messages":[{"role":"assistant","x":{"y":1},"content":"new","reasoning_content":"T"}]}"#;
    assert_eq!(body(&call), expected);
}

#[test]
fn moved_request_uses_the_dialect_of_the_new_endpoint() {
    let text = r#"{"model":"m","messages":[{"role":"developer","content":"Be kind."},{"role":"assistant","x":1,"content":"Hi.","reasoning_content":"","tool_calls":[]},{"role":"user","content":"b"}],"thinking":{"type":"disabled"},"tools":[{"type":"web_search"}]}"#;
    let request = Request { path: "/p".into(), headers: Vec::new(), body: text.into() };
    let mut call = OpenAiChat.decode_request(&request, &context("deepseek", "m")).unwrap();
    call.target = target("mistral", "magistral-medium-latest");
    let encoded = OpenAiChat.encode(&call).unwrap();
    let expected = r#"{"model":"magistral-medium-latest","messages":[{"role":"system","content":"Be kind."},{"role":"assistant","content":"Hi."},{"role":"user","content":"b"}],"reasoning_effort":"none"}"#;
    assert_eq!(std::str::from_utf8(&encoded.request.body).unwrap(), expected);
    let warned: Vec<_> = encoded.warnings.iter().map(|warning| &*warning.setting).collect();
    assert_eq!(warned, ["tools", "messages.x"]);
}

#[test]
fn conversation_of_another_wire_is_translated() {
    let mut call = call_with(target("openai-chat", "gpt-5"), Vec::new());
    call.system.push(Item::new(
        "s",
        ItemPosition::default(),
        Role::System,
        Body::Text("Be kind.".into()),
    ));
    let tool = ToolCall {
        id: "t.1".into(),
        wire_id: None,
        name: "f".into(),
        args: Json::parse(r#"{"a":1}"#).unwrap(),
        custom: false,
    };
    call.items.push(Item::new("c", ItemPosition::new(1, 0), Role::Assistant, Body::Call(tool)));
    let result = ToolResult {
        call: "t.1".into(),
        wire_id: None,
        name: None,
        outcome: Outcome::Ok,
        parts: vec![Part::Text("fine".into())],
    };
    call.items.push(Item::new("r", ItemPosition::new(2, 0), Role::User, Body::Result(result)));
    call.tools.push(Tool {
        name: "f".into(),
        description: None,
        schema: Some(Json::parse("{}").unwrap()),
        hosted: false,
        native: None,
    });
    let expected = r#"{"model":"gpt-5","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"t_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"t_1","content":"fine"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}"#;
    assert_eq!(body(&call), expected);
}

#[test]
fn plain_caller_thought_becomes_enveloped_user_text() {
    let mut thought =
        Thought::issued("hunch", ThoughtKind::Text, throughline_core::ReasoningFormat::unknown());
    let item = |thought: &Thought| {
        Item::new("t", ItemPosition::new(0, 0), Role::Assistant, Body::Thought(thought.clone()))
    };
    let mut call = call_with(target("deepseek", "deepseek-reasoner"), vec![item(&thought)]);
    call.replay.secret = Some(ThreadSecret::new([7; 32]));
    let encoded = OpenAiChat.encode(&call).unwrap();
    assert_eq!(encoded.fates[1].visible, Disposition::Reshaped(ReshapeKind::Enveloped));
    assert!(body(&call).contains("hunch") && !body(&call).contains(r#""role":"assistant""#));
    thought.payload = Some(throughline_json::string("mine"));
    thought.replay_compatibility = Some(throughline_core::tag::OPENAI_CHAT_REASONING.into());
    let call = call_with(target("deepseek", "deepseek-reasoner"), vec![item(&thought)]);
    assert_eq!(answer(&call), r#"{"role":"assistant","content":"","reasoning_content":"mine"}"#);
}

type CallChange<'c> = &'c dyn Fn(&mut Call);

#[test]
fn reasoning_settings_follow_each_dialect() {
    let high = thinking(|r| r.effort = Some("high".into()));
    let off = thinking(|r| r.enabled = Some(false));
    let cases: [(&str, &str, CallChange<'_>, &str); 13] = [
        ("openai-chat", "gpt-5", &high, r#","reasoning_effort":"high"}"#),
        ("openrouter", "glm-4.7", &high, r#","reasoning":{"effort":"high"}}"#),
        ("openrouter", "glm-4.7", &off, r#","reasoning":{"effort":"none"}}"#),
        (
            "deepseek",
            "deepseek-v4",
            &high,
            r#","thinking":{"type":"enabled"},"reasoning_effort":"high"}"#,
        ),
        ("deepseek", "deepseek-v4", &off, r#","thinking":{"type":"disabled"}}"#),
        ("moonshot", "kimi-k2.5", &off, r#","thinking":{"type":"disabled"}}"#),
        ("qwen", "qwen3-max", &high, r#","enable_thinking":true,"thinking_budget":16384}"#),
        ("qwen", "qwen3-max", &off, r#","enable_thinking":false}"#),
        ("qwen", "qwen3.8-max", &high, r#","enable_thinking":true,"reasoning_effort":"high"}"#),
        (
            "moonshot",
            "kimi-k3",
            &high,
            r#","thinking":{"type":"enabled"},"reasoning_effort":"high"}"#,
        ),
        ("mistral", "mistral-medium-3.5", &high, r#","reasoning_effort":"high"}"#),
        ("ollama-native", "unheard-of", &off, r#","think":false,"stream":false}"#),
        ("minimax", "minimax-m2", &thinking(|_| {}), "}"),
    ];
    for (provider, model, change, expected) in cases {
        assert_eq!(settings(provider, model, change).0, expected, "{provider}");
    }
}

#[test]
fn unsupported_reasoning_settings_produce_warnings() {
    let (text, warnings) = settings("openai-chat", "gpt-5", |call| {
        call.settings.temperature = Some(Json::from(1));
        call.settings.max_tokens = Some(9);
        thinking(|r| r.budget_tokens = Some(2048))(call);
    });
    assert_eq!(text, r#","reasoning_effort":"low","max_completion_tokens":9}"#);
    let warned: Vec<_> = warnings.iter().map(|warning| &*warning.setting).collect();
    assert_eq!(warned, ["reasoning.budget_tokens", "temperature"]);
    let (text, warnings) = settings("deepseek", "deepseek-v4", |call| {
        call.settings.choice = Some(ToolChoice::Any);
        call.tools.push(Tool {
            name: "f".into(),
            description: None,
            schema: Some(Json::parse("{}").unwrap()),
            hosted: false,
            native: None,
        });
        call.settings.max_tokens = Some(9);
        call.settings.stop = vec!["END".into()];
    });
    let tool = r#"{"type":"function","function":{"name":"f","parameters":{}}}"#;
    let expected =
        format!(r#","tools":[{tool}],"max_tokens":9,"stop":["END"],"tool_choice":"auto"}}"#);
    assert_eq!(text, expected);
    assert_eq!(&*warnings[0].setting, "tool_choice");
    let (_, warnings) = settings("minimax", "minimax-m2", thinking(|r| r.enabled = Some(true)));
    assert_eq!(&*warnings[0].setting, "reasoning");
}

#[test]
fn ollama_native_request_has_its_own_shape() {
    let (text, _) = settings("ollama-native", "unheard-of", |call| {
        call.settings.max_tokens = Some(9);
        call.settings.output = Some(OutputFormat::Json);
        call.stream = true;
    });
    assert_eq!(text, r#","options":{"num_predict":9},"format":"json"}"#);
}

#[test]
fn stop_reasons_and_usage_are_mapped() {
    let body = |reason: &str, usage: &str| {
        let text = format!(
            r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":{reason}}}],"usage":{usage}}}"#
        );
        OpenAiChat.decode_reply(&Bytes::from(text), &context("compatible", "m")).unwrap()
    };
    let stops = [
        (r#""stop""#, StopReason::Done),
        (r#""length""#, StopReason::Length),
        (r#""content_filter""#, StopReason::Refused("content_filter".into())),
        (r#""tool_calls""#, StopReason::Tools),
        (r#""odd""#, StopReason::Other("odd".into())),
    ];
    for (finish_reason, stop) in stops {
        assert_eq!(body(finish_reason, "null").stop, stop);
    }
    let usages = [
        (
            r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}"#,
            Usage { input: 10, cached: 4, written: 2, output: 5, thought: 3 },
        ),
        (
            r#"{"prompt_tokens":12,"completion_tokens":2,"total_tokens":354,"completion_tokens_details":{"reasoning_tokens":340}}"#,
            Usage { input: 12, cached: 0, written: 0, output: 342, thought: 340 },
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":8}"#,
            Usage { input: 9, cached: 8, written: 0, output: 1, thought: 0 },
        ),
    ];
    for (json, usage) in usages {
        assert_eq!(body(r#""stop""#, json).usage, usage);
    }
}

#[test]
fn failure_message_is_the_providers_own() {
    let bodies = [
        (
            r#"{"error":{"message":"Provider returned error","code":400}}"#,
            "Provider returned error",
        ),
        (r#"{"error":"model not found"}"#, "model not found"),
        (r#"{"object":"error","message":"no","type":"invalid"}"#, "no"),
        (
            r#"{"detail":[{"msg":"Extra inputs are not permitted"}]}"#,
            r#"[{"msg":"Extra inputs are not permitted"}]"#,
        ),
    ];
    for (body, message) in bodies {
        let answer = OpenAiChat.decode_reply(&Bytes::from(body), &context("compatible", "m"));
        let Err(CodecError::Provider(failure)) = answer else { unreachable!("{body}") };
        assert_eq!(&*failure.message, message);
    }
    let odd = OpenAiChat.decode_reply(&Bytes::from("{}"), &context("compatible", "m"));
    assert!(matches!(odd, Err(CodecError::Shape { .. })));
}
