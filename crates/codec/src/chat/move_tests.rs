//! Tests conversations that move to another model or endpoint, or come from another wire.

use throughline_core::{
    Body, Call, CallId, Disposition, ElisionReason, Item, ItemPosition, Outcome, Part, Request,
    ReshapeKind, Role, Thought, ThoughtKind, ThreadSecret, Tool, ToolCall, ToolChoice, ToolResult,
    Warning,
};
use throughline_json::{self as json, Json, Name};

use crate::chat::OpenAiChat;
use crate::chat::tests::{answer, call_with, context, reply, target};
use crate::{Codec, DecodeContext};

fn read(text: &str, context: &DecodeContext) -> Call {
    let path = Name::from("/v1/chat/completions");
    let request = Request { path, headers: Vec::new(), body: text.to_owned().into() };
    OpenAiChat.decode_request(&request, context).unwrap()
}

fn sent(call: &Call) -> (String, Vec<Warning>) {
    let encoded = OpenAiChat.encode(call).unwrap();
    assert_eq!(encoded.fates.len(), call.system.len() + call.items.len());
    (String::from_utf8(encoded.request.body.to_vec()).unwrap(), encoded.warnings)
}

type ProviderAndModel<'w> = (&'w str, &'w str);

/// Encodes a request that was written for `from` as a request to `to`. Returns the members after
/// `messages`, and the warnings.
fn moved(
    from: ProviderAndModel<'_>,
    to: ProviderAndModel<'_>,
    members: &str,
) -> (String, Vec<String>) {
    let messages = r#""messages":[{"role":"user","content":"hi"}]"#;
    let text = format!(r#"{{"model":"{}",{messages}{members}}}"#, from.1);
    let mut call = read(&text, &context(from.0, from.1));
    assert_eq!(sent(&call).0, text);
    call.target = target(to.0, to.1);
    let (body, warnings) = sent(&call);
    let head = format!(r#"{{"model":"{}",{messages}"#, to.1);
    let rest = body.strip_prefix(&head).unwrap().to_owned();
    (rest, warnings.iter().map(|warning| warning.setting.to_string()).collect())
}

#[test]
fn unsupported_settings_are_dropped_on_move() {
    let toggled = r#","thinking":{"type":"enabled"},"reasoning_effort":"high""#;
    let routed = r#","provider":{"only":["x"]},"usage":{"include":true},"plugins":[],"seed":1,"reasoning":{"effort":"high"},"odd":2"#;
    let tool = r#","tools":[{"type":"function","function":{"name":"f"}}]"#;
    let forced = format!(r#"{tool},"tool_choice":"required""#);
    let free = format!(r#"{tool},"tool_choice":"auto"}}"#);
    let cases: [(ProviderAndModel<'_>, ProviderAndModel<'_>, &str, &str, &[&str]); 13] = [
        (
            ("deepseek", "deepseek-v4"),
            ("mistral", "magistral-medium-latest"),
            toggled,
            r#","reasoning_effort":"high"}"#,
            &[],
        ),
        (("deepseek", "deepseek-v4"), ("openai-chat", "gpt-4o"), toggled, "}", &["reasoning"]),
        (
            ("openai-chat", "gpt-5.2"),
            ("openai-chat", "gpt-4o"),
            r#","reasoning_effort":"xhigh""#,
            "}",
            &["reasoning"],
        ),
        (
            ("openai-chat", "gpt-5.1"),
            ("openai-chat", "gpt-5"),
            r#","reasoning_effort":"none""#,
            "}",
            &["reasoning"],
        ),
        (
            ("openrouter", "gpt-5.2"),
            ("openai-chat", "gpt-5.2"),
            routed,
            r#","reasoning_effort":"high","seed":1}"#,
            &["provider", "usage", "plugins", "odd"],
        ),
        (
            ("openrouter", "glm-5.2"),
            ("compatible", "glm-5.2"),
            routed,
            r#","reasoning_effort":"high","seed":1,"odd":2}"#,
            &["provider", "usage", "plugins"],
        ),
        (
            ("compatible", "mistral-large"),
            ("mistral", "mistral-large"),
            r#","odd":2,"seed":1,"n":1"#,
            r#","n":1}"#,
            &["odd", "seed"],
        ),
        (
            ("qwen", "qwen3-max"),
            ("openai-chat", "gpt-4o"),
            r#","enable_thinking":false,"temperature":0.5"#,
            r#","temperature":0.5}"#,
            &[],
        ),
        (
            ("openai-chat", "gpt-4o"),
            ("openai-chat", "gpt-5"),
            r#","max_tokens":9,"temperature":0.5,"top_p":1"#,
            r#","max_completion_tokens":9}"#,
            &["temperature", "top_p"],
        ),
        (
            ("openai-chat", "gpt-4o"),
            ("openai-chat", "gpt-5.2"),
            r#","temperature":0.5"#,
            r#","temperature":0.5}"#,
            &[],
        ),
        (
            ("openai-chat", "gpt-4o"),
            ("openai-chat", "gpt-5.5"),
            r#","temperature":0.5"#,
            "}",
            &["temperature"],
        ),
        (
            ("deepseek", "deepseek-chat"),
            ("deepseek", "deepseek-v4"),
            &forced,
            &free,
            &["tool_choice"],
        ),
        (
            ("moonshot", "kimi-k2.5"),
            ("moonshot", "kimi-k2-turbo-preview"),
            r#","thinking":{"type":"disabled"}"#,
            "}",
            &[],
        ),
    ];
    for (from, to, members, expected, warned) in cases {
        let (rest, warnings) = moved(from, to, members);
        assert_eq!((rest.as_str(), warnings.as_slice()), (expected, &owned(warned)[..]), "{to:?}");
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn tool_choice_is_sent_only_with_tools() {
    let text = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false}"#;
    let mut call = read(text, &context("openai-chat", "gpt-4o"));
    call.tools.clear();
    let (body, warnings) = sent(&call);
    assert!(!body.contains("tool_choice") && !body.contains("parallel"), "{body}");
    let warned: Vec<_> = warnings.iter().map(|warning| &*warning.setting).collect();
    assert_eq!(warned, ["parallel_tool_calls", "tool_choice"]);
    let mut call = call_with(target("openai-chat", "gpt-4o"), Vec::new());
    call.settings.choice = Some(ToolChoice::Any);
    call.settings.parallel = Some(true);
    assert!(!sent(&call).0.contains("tool"));
    // A request whose tool choice names no declared tool stays unchanged.
    let odd = text.replace(r#""tools":[{"type":"function","function":{"name":"f"}}],"#, "");
    assert_eq!(sent(&read(&odd, &context("openai-chat", "gpt-4o"))).0, odd);
}

fn caller(payload: &str) -> Item {
    let mut thought =
        Thought::issued("hunch", ThoughtKind::Text, throughline_core::ReasoningFormat::unknown());
    thought.payload = Some(Json::parse(payload.to_owned()).unwrap());
    thought.replay_compatibility = Some(throughline_core::tag::OPENAI_CHAT_REASONING.into());
    Item::new("t", ItemPosition::new(0, 0), Role::Assistant, Body::Thought(thought))
}

#[test]
fn caller_payload_uses_the_endpoint_channel() {
    let (deepseek, mistral) = (("deepseek", "deepseek-reasoner"), ("mistral", "magistral"));
    let chunk = r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"mine"}]}]}"#;
    let own = r#"{"role":"assistant","content":"","reasoning_content":"mine"}"#;
    let several = r#"{"reasoning_content":"mine","content":"smuggled","tool_calls":[{}]}"#;
    let detail = r#"[{"type":"reasoning.text","text":"mine"}]"#;
    let cases = [
        (deepseek, r#""mine""#, own),
        (deepseek, several, own),
        (deepseek, r#"{"reasoning":"mine"}"#, own),
        (deepseek, detail, own),
        (mistral, r#""mine""#, chunk),
        (mistral, several, chunk),
        (mistral, r#"{"type":"thinking","thinking":[{"type":"text","text":"mine"}]}"#, chunk),
        (("compatible", "m"), several, own),
        (
            ("openrouter", "m"),
            r#""mine""#,
            r#"{"role":"assistant","content":"","reasoning":"mine"}"#,
        ),
        (
            ("openrouter", "m"),
            detail,
            r#"{"role":"assistant","content":"","reasoning_details":[{"type":"reasoning.text","text":"mine"}]}"#,
        ),
    ];
    for ((provider, model), payload, expected) in cases {
        let call = call_with(target(provider, model), vec![caller(payload)]);
        assert_eq!(answer(&call), expected, "{provider} {payload}");
    }
    for payload in [r#""mine""#, several, detail] {
        let call = call_with(target("openai-chat", "gpt-4o"), vec![caller(payload)]);
        let encoded = OpenAiChat.encode(&call).unwrap();
        assert_eq!(encoded.fates[1].visible, Disposition::Elided(ElisionReason::NotOnThisWire));
        assert!(!sent(&call).0.contains("mine"));
    }
}

const REQUEST_WITH_ODD_IDS: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"functions.f:0","content":"one"},{"role":"tool","tool_call_id":"","content":"two"},{"role":"tool","tool_call_id":"no provider","content":"three"}]}"#;

#[test]
fn calls_and_results_get_ids_the_endpoint_accepts() {
    for provider in ["mistral", "openai-chat", "moonshot", "compatible"] {
        let mut call = read(REQUEST_WITH_ODD_IDS, &context("openrouter", "m"));
        assert_eq!(sent(&call).0, REQUEST_WITH_ODD_IDS);
        call.target = target(provider, "m");
        let tree = Json::parse(sent(&call).0).unwrap().tree();
        let at =
            |pointer: &str| tree.root().at(pointer).and_then(throughline_json::Node::name).unwrap();
        let calls = [at("/messages/1/tool_calls/0/id"), at("/messages/1/tool_calls/1/id")];
        let answers = [at("/messages/2/tool_call_id"), at("/messages/3/tool_call_id")];
        assert_eq!(calls, answers, "{provider}");
        let ids = crate::call_ids::CallIdAllocator::for_target(&call.target);
        let orphan = at("/messages/4/tool_call_id");
        assert!(calls.iter().chain([&orphan]).all(|id| ids.accepts(id)), "{provider} {calls:?}");
    }
}

#[test]
fn endpoint_gets_its_own_ids_back_unchanged() {
    let context = context("moonshot", "kimi-k2.5");
    let message = r#"{"content":null,"tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let call = call_with(context.target.clone(), reply(&context, message).items);
    assert!(answer(&call).contains(r#""id":"functions.f:0""#));
}

fn calling(id: &str, message: usize, args: Json, custom: bool) -> Item {
    let call = ToolCall { id: id.into(), wire_id: None, name: "f".into(), args, custom };
    Item::new(id, ItemPosition::new(message, 0), Role::Assistant, Body::Call(call))
}

fn answering(id: &str, message: usize) -> Item {
    let result = ToolResult {
        call: CallId::from(id),
        wire_id: None,
        name: None,
        outcome: Outcome::Ok,
        parts: vec![Part::Text("fine".into())],
    };
    Item::new(format!("r{id}"), ItemPosition::new(message, 0), Role::User, Body::Result(result))
}

fn plain(id: &str, message: usize) -> Item {
    let thought =
        Thought::issued("hunch", ThoughtKind::Text, throughline_core::ReasoningFormat::unknown());
    Item::new(id, ItemPosition::new(message, 0), Role::Assistant, Body::Thought(thought))
}

#[test]
fn thought_between_calls_and_results_is_deferred() {
    let empty = || json::object(|_| {});
    let orders = [
        vec![calling("a", 1, empty(), false), plain("t", 2), answering("a", 3)],
        vec![
            calling("a", 1, empty(), false),
            plain("t", 2),
            calling("b", 3, empty(), false),
            answering("a", 4),
            plain("s", 5),
            answering("b", 6),
        ],
    ];
    for items in orders {
        let answers = items.iter().filter(|item| matches!(item.body, Body::Result(_))).count();
        let mut call = call_with(target("openai-chat", "gpt-4o"), items);
        call.replay.secret = Some(ThreadSecret::new([7; 32]));
        let encoded = OpenAiChat.encode(&call).unwrap();
        let tree = Json::parse(encoded.request.body.clone()).unwrap().tree();
        let messages = tree.root().get("messages").unwrap();
        let roles: Vec<_> = messages.elements().map(|m| m.name_of("role").unwrap()).collect();
        let mut expected = vec!["user", "assistant"];
        expected.extend(std::iter::repeat_n("tool", answers));
        expected.push("user");
        assert_eq!(roles.iter().map(|role| &**role).collect::<Vec<_>>(), expected);
        for (item, fate) in call.items.iter().zip(&encoded.fates) {
            let is_thought = matches!(item.body, Body::Thought(_));
            assert_eq!(fate.visible == Disposition::Reshaped(ReshapeKind::Enveloped), is_thought);
        }
    }
}

#[test]
fn cache_markers_and_unknown_members_are_dropped_for_strict_endpoints() {
    let text = r#"{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]},{"role":"user","x":1,"content":[{"type":"text","text":"hi"},{"type":"text","text":"you","cache_control":{"type":"ephemeral"}}]}],"tools":[{"type":"function","function":{"name":"f","strict":true},"cache_control":{"type":"ephemeral"}}]}"#;
    let mut call = read(text, &context("openrouter", "m"));
    call.target = target("compatible", "m");
    assert_eq!(sent(&call).0, text);
    for provider in ["mistral", "openai-chat"] {
        call.target = target(provider, "m");
        let (body, warnings) = sent(&call);
        let expected = text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        assert_eq!(body, expected.replace(r#""x":1,"#, ""), "{provider}");
        let warned: Vec<_> = warnings.iter().map(|warning| &*warning.setting).collect();
        assert_eq!(warned, ["cache_control", "messages.x"]);
    }
}

#[test]
fn texts_from_other_wires_become_one_string() {
    let text = |id: &str, role, text: &str| {
        Item::new(id.to_owned(), ItemPosition::new(0, 0), role, Body::Text(text.into()))
    };
    let mut call = Call::new(target("deepseek", "deepseek-chat"));
    call.system = vec![text("a", Role::System, "Be kind."), text("b", Role::System, "Be brief.")];
    call.items = vec![text("c", Role::User, "hi"), text("d", Role::User, "you")];
    let expected = r#"{"model":"deepseek-chat","messages":[{"role":"system","content":"Be kind.\n\nBe brief."},{"role":"user","content":"hi\n\nyou"}]}"#;
    assert_eq!(sent(&call).0, expected);
}

#[test]
fn custom_tools_are_declared_and_called_consistently() {
    let text = r#"{"model":"gpt-5","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"x = 1"}}]},{"role":"tool","tool_call_id":"a","content":"fine"}],"tools":[{"type":"custom","custom":{"name":"f"}}],"tool_choice":{"type":"custom","custom":{"name":"f"}}}"#;
    let mut call = read(text, &context("openai-chat", "gpt-5"));
    call.target = target("azure-chat", "gpt-5");
    assert_eq!(sent(&call).0, text);
    call.target = target("groq", "gpt-oss");
    let (body, _) = sent(&call);
    let declared = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}}}]"#;
    let called = r#"{"id":"a","type":"function","function":{"name":"f","arguments":"{\"input\":\"x = 1\"}"}}"#;
    let chosen = r#""tool_choice":{"type":"function","function":{"name":"f"}}"#;
    for expected in [declared, called, chosen] {
        assert!(body.contains(expected), "{body}");
    }
    assert!(!body.contains("custom"), "{body}");
}

#[test]
fn responses_custom_tool_stays_custom_at_openai() {
    let native = r#"{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark","definition":"x"}}"#;
    let native = throughline_core::NativePart::new(
        throughline_core::Wire::OPENAI_RESPONSES,
        throughline_core::Direction::Request,
        Json::parse(native).unwrap(),
    );
    let mut call = call_with(
        target("openai-chat", "gpt-5"),
        vec![calling("a", 1, json::string("x = 1"), true), answering("a", 2)],
    );
    call.tools.push(Tool {
        name: "f".into(),
        description: None,
        schema: None,
        hosted: false,
        native: Some(native),
    });
    let (body, _) = sent(&call);
    let declared = r#"{"type":"custom","custom":{"name":"f","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}"#;
    let called = r#"{"id":"a","type":"custom","custom":{"name":"f","input":"x = 1"}}"#;
    assert!(body.contains(declared) && body.contains(called), "{body}");
}

#[test]
fn malformed_arguments_are_sent_verbatim() {
    let broken = calling("a", 1, json::string("{\"a\":"), false);
    let call = call_with(target("openai-chat", "gpt-4o"), vec![broken, answering("a", 2)]);
    assert!(answer(&call).contains(r#""arguments":"{\"a\":"}"#), "{}", answer(&call));
}

#[test]
fn warnings_report_what_a_budget_became() {
    let budget = |provider: &str, model: &str, effort: Option<&str>| {
        let mut call = call_with(target(provider, model), Vec::new());
        call.settings.reasoning = Some(throughline_core::NativeReasoning {
            budget_tokens: Some(2048),
            effort: effort.map(Name::from),
            ..Default::default()
        });
        let (_, warnings) = sent(&call);
        warnings.iter().map(|warning| warning.message.to_string()).collect::<Vec<_>>()
    };
    let none = "this endpoint accepts no budget; 2048";
    assert_eq!(budget("openai-chat", "gpt-5", None), [format!("{none} became the effort `low`")]);
    assert_eq!(budget("openai-chat", "gpt-5", Some("high")), [format!("{none} was left out")]);
    assert_eq!(budget("moonshot", "kimi-k2.5", None), [format!("{none} was left out")]);
    assert_eq!(budget("moonshot", "kimi-k2", None), ["kimi-k2 does not think; it was left out"]);
}
