//! Tests requests that move to another model or endpoint, and Items from other wires.

use bytes::Bytes;
use throughline_core::{
    Body, Call, Disposition, ElisionReason, Event, Item, ItemPosition, Outcome, Reply, Role,
    Target, ToolCall, ToolChoice, Warning,
};
use throughline_json as json;

use super::tests::{answer, body, input, look, openai, read, result, target, text, text_item};
use super::wire;
use crate::{CallForms, Codec, DecodeContext, Gemini, OpenAiResponses, codec, events_from_reply};

const STORED_ELSEWHERE: &str = "only the endpoint that stores it can use it; it was left out";

/// Encodes a request for another target. Returns the body and the names of the settings with
/// warnings.
fn moved(request: &str, from: &str, to: Target) -> (String, Vec<String>) {
    let mut call = read(request, target("openai", from));
    assert_eq!(body(&call), request, "without a move the request must stay unchanged");
    call.target = to;
    let warnings = OpenAiResponses.encode(&call).unwrap().warnings;
    (body(&call), warnings.iter().map(|warning| warning.setting.to_string()).collect())
}

#[test]
fn non_reasoning_model_gets_no_reasoning_settings() {
    let request = r#"{"model":"gpt-5.2","input":"Hi","reasoning":{"effort":"high","mode":"pro"},"include":["reasoning.encrypted_content"],"store":false}"#;
    let (sent, warnings) = moved(request, "gpt-5.2", target("openai", "gpt-4o"));
    assert_eq!(sent, r#"{"model":"gpt-4o","input":"Hi","store":false}"#);
    assert_eq!(warnings, ["reasoning"]);
}

#[test]
fn effort_sampling_and_choice_are_adapted_to_another_model() {
    let request =
        r#"{"model":"gpt-5.2","input":"Hi","reasoning":{"effort":"xhigh","summary":"detailed"}}"#;
    let (sent, warnings) = moved(request, "gpt-5.2", target("openai", "gpt-5"));
    let expected =
        r#"{"model":"gpt-5","input":"Hi","reasoning":{"effort":"high","summary":"detailed"}}"#;
    assert_eq!((sent.as_str(), warnings), (expected, vec!["reasoning.effort".to_owned()]));

    let request = r#"{"model":"gpt-4o","input":"Hi","temperature":0.5}"#;
    let (sent, warnings) = moved(request, "gpt-4o", target("openai", "gpt-5"));
    assert_eq!(sent, r#"{"model":"gpt-5","input":"Hi"}"#);
    assert_eq!(warnings, ["temperature"]);

    let request = r#"{"model":"gpt-5.6","input":"Hi","tools":[{"type":"function","name":"f"}],"tool_choice":"required","store":true}"#;
    let deepseek = target("deepseek-responses", "deepseek-v4-flash");
    let (sent, warnings) = moved(request, "gpt-5.6", deepseek);
    let expected = r#"{"model":"deepseek-v4-flash","input":"Hi","tools":[{"type":"function","name":"f"}],"tool_choice":"auto","store":true}"#;
    assert_eq!((sent.as_str(), warnings), (expected, vec!["tool_choice".to_owned()]));
}

#[test]
fn stored_references_are_dropped_for_another_endpoint() {
    let request = r#"{"model":"gpt-5.6","input":"Hi","previous_response_id":"resp_0","prompt":{"id":"p"},"store":true}"#;
    for (provider, model) in
        [("xai", "grok-4.3"), ("azure", "gpt-5.6"), ("deepseek-responses", "deepseek-v4-flash")]
    {
        let (sent, warnings) = moved(request, "gpt-5.6", target(provider, model));
        assert_eq!(sent, format!(r#"{{"model":"{model}","input":"Hi","store":true}}"#));
        assert_eq!(warnings, ["previous_response_id", "prompt"]);
    }
    let request = r#"{"model":"gpt-5.6","input":"Hi","conversation":"conv_1"}"#;
    let (sent, warnings) = moved(request, "gpt-5.6", target("azure", "gpt-5.6"));
    assert_eq!(sent, r#"{"model":"gpt-5.6","input":"Hi"}"#);
    assert_eq!(warnings, ["conversation"]);
}

#[test]
fn full_conversation_is_sent_without_the_previous_response() {
    let call =
        r#"{"id":"fc_1","type":"function_call","arguments":"{}","call_id":"call_1","name":"look"}"#;
    let mut call = {
        let mut first_turn = read(r#"{"model":"gpt-5.6","input":"Hi"}"#, openai());
        first_turn.extend(answer(&[call], openai()).items);
        first_turn
    };
    call.resumes = Some("resp_1".into());
    call.extend([result("call_1", Outcome::Ok, "4")]);
    assert_eq!(input(&call).0.len(), 1);
    call.target = target("xai", "grok-4.3");
    let (elements, fates, warnings) = input(&call);
    assert_eq!(elements.len(), 3);
    assert!(!fates.contains(&Disposition::Elided(ElisionReason::Covered)), "{fates:?}");
    assert_eq!(warnings, [Warning::new("previous_response_id", STORED_ELSEWHERE)]);
    // A response that the new endpoint produced can be continued.
    call.resumes = Some("resp_2".into());
    assert!(body(&call).contains(r#""previous_response_id":"resp_2""#));
}

#[test]
fn foreign_hosted_tools_and_their_choice_are_dropped() {
    let request = r#"{"model":"gpt-5.6","input":"Hi","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}],"tool_choice":{"type":"file_search"},"parallel_tool_calls":true}"#;
    let (sent, warnings) = moved(request, "gpt-5.6", target("xai", "grok-4.3"));
    assert_eq!(sent, r#"{"model":"grok-4.3","input":"Hi","tools":[]}"#);
    assert_eq!(warnings, ["tools", "tool_choice", "parallel"]);
}

#[test]
fn tool_settings_are_dropped_without_tools() {
    let mut call = Call::new(openai());
    call.settings.choice = Some(ToolChoice::Any);
    call.settings.parallel = Some(false);
    call.items = vec![text_item(Role::User, "Hi")];
    let plain = r#"{"model":"gpt-5.6","input":[{"role":"user","content":"Hi"}]}"#;
    assert_eq!(body(&call), plain);
    let warnings: Vec<_> = input(&call).2.iter().map(|w| w.setting.to_string()).collect();
    assert_eq!(warnings, ["tool_choice", "parallel"]);
    call.tools = vec![look()];
    assert!(body(&call).contains(r#""tool_choice":"required","parallel_tool_calls":false"#));

    let request = r#"{"model":"gpt-5.6","input":"Hi","tools":[{"type":"function","name":"f"}],"tool_choice":"required","parallel_tool_calls":true}"#;
    let mut call = read(request, openai());
    call.tools.clear();
    assert_eq!(body(&call), r#"{"model":"gpt-5.6","input":"Hi","tools":[]}"#);
    let odd =
        r#"{"model":"gpt-5.6","input":"Hi","tool_choice":"required","parallel_tool_calls":true}"#;
    assert_eq!(body(&read(odd, openai())), odd);
}

fn broken(custom: bool) -> Item {
    let args = json::string("{\"city\": \"Os");
    let (id, name) = ("c1".into(), "look".into());
    let call = ToolCall { id, wire_id: None, name, args, custom };
    Item::new("call", ItemPosition::default(), Role::Assistant, Body::Call(call))
}

#[test]
fn non_json_arguments_are_sent_verbatim() {
    let mut call = Call::new(openai());
    call.items = vec![broken(false)];
    let expected =
        r#"{"type":"function_call","call_id":"c1","name":"look","arguments":"{\"city\": \"Os"}"#;
    assert_eq!(input(&call).0, [expected]);

    let mut reply = answer(&[], openai());
    reply.origin = target("gemini", "gemini-2.5-flash").origin;
    reply.items = vec![broken(false)];
    let context = DecodeContext::of(openai());
    let arguments = |reply: &Reply| match &reply.items[0].body {
        Body::Call(call) => call.args.clone(),
        other => panic!("{other:?}"),
    };
    let body = OpenAiResponses.encode_reply(&reply).unwrap();
    let again = OpenAiResponses.decode_reply(&body, &context).unwrap();
    assert_eq!(arguments(&again), arguments(&reply));
    let (mut encoder, mut decoder) = (OpenAiResponses.encoder(), OpenAiResponses.decoder(&context));
    let mut ended = None;
    for event in events_from_reply(&reply) {
        for frame in encoder.push(&event).unwrap() {
            for event in decoder.push(&frame).unwrap() {
                if let Event::Ended(reply) = event {
                    ended = Some(*reply);
                }
            }
        }
    }
    assert_eq!(arguments(&ended.unwrap()), arguments(&reply));
}

#[test]
fn rejected_call_id_is_replaced_in_the_result_too() {
    let long = "call-0123456789-0123456789-0123456789-0123456789-0123456789";
    let request = format!(
        r#"{{"model":"grok-4.3","input":[{{"type":"function_call","call_id":"{long}","name":"f","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"{long}","output":"1"}},{{"type":"function_call_output","call_id":"lost {long}","output":"2"}}]}}"#
    );
    let mut call = read(&request, target("xai", "grok-4.3"));
    assert_eq!(body(&call), request);
    call.target = openai();
    let ids: Vec<String> = input(&call)
        .0
        .iter()
        .map(|element| text(element).tree().root().text_of("call_id").unwrap().into_owned())
        .collect();
    assert_eq!((ids[0] == ids[1], ids[1] == ids[2]), (true, false));
    assert!(ids.iter().all(|id| id.len() <= 40 && !id.contains(' ')), "{ids:?}");
}

#[test]
fn gemini_only_settings_are_named_in_warnings() {
    let body = r#"{"contents":[{"parts":[{"text":"Hi"}]}],"generationConfig":{"temperature":1,"seed":3,"thinkingConfig":{"thinkingBudget":9,"odd":1}}}"#;
    let request = throughline_core::Request {
        path: "/v1beta/models/gemini-2.5-flash:generateContent".into(),
        headers: Vec::new(),
        body: Bytes::from_static(body.as_bytes()),
    };
    let context = DecodeContext::of(target("gemini", "gemini-2.5-flash"));
    let mut call = Gemini.decode_request(&request, &context).unwrap();
    call.target = target("openai", "gpt-4o");
    let warnings: Vec<_> = input(&call).2.iter().map(|w| w.setting.to_string()).collect();
    assert_eq!(
        warnings,
        ["generationConfig.seed", "generationConfig.thinkingConfig.odd", "reasoning"]
    );
    assert!(super::tests::body(&call).contains(r#""temperature":1"#));
}

/// Codex defines its tools in the input. All wires receive them as tools, each name once.
#[test]
fn additional_tools_reach_every_wire() {
    let request = r#"{"model":"gpt-5.6","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"functions","tools":[{"type":"custom","name":"exec","description":"Runs code."},{"type":"function","name":"wait","description":"Old.","parameters":{"type":"object","properties":{"cell":{"type":"string"}}}}]},{"type":"function","name":"notify","parameters":{"type":"object","properties":{}}}]},{"role":"user","content":"Go."},{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"wait","description":"Waits.","parameters":{"type":"object","properties":{"id":{"type":"string"}}}}]}],"tools":[{"type":"function","name":"plan","parameters":{"type":"object","properties":{}}}],"parallel_tool_calls":true}"#;
    let read_call = || read(request, target("openai", "gpt-5.6"));
    assert_eq!(body(&read_call()), request, "the same wire receives the request unchanged");
    let cases = [
        ("anthropic", "claude-sonnet-4-5", "/tools", "/name", "/description"),
        ("openai-chat", "gpt-5.6", "/tools", "/function/name", "/function/description"),
        ("gemini", "gemini-3-pro", "/tools/0/functionDeclarations", "/name", "/description"),
        (
            "bedrock",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "/toolConfig/tools",
            "/toolSpec/name",
            "/toolSpec/description",
        ),
    ];
    for (provider, model, list, name, description) in cases {
        let mut call = read_call();
        call.target = target(provider, model);
        let encoded = codec(&call.target.provider.wire).unwrap().encode(&call).unwrap();
        let sent: serde_json::Value = serde_json::from_slice(&encoded.request.body).unwrap();
        let tools = sent.pointer(list).and_then(serde_json::Value::as_array).unwrap();
        let name_of = |tool: &serde_json::Value| {
            // The Chat Completions API has custom tools too.
            let name = tool.pointer(name).or_else(|| tool.pointer("/custom/name"));
            name.cloned().unwrap()
        };
        let names: Vec<_> = tools.iter().map(name_of).collect();
        assert_eq!(names, ["plan", "exec", "wait", "notify"], "{provider}: {sent}");
        assert_eq!(tools[2].pointer(description).unwrap(), "Waits.", "{provider}: {sent}");
        assert!(!sent.to_string().contains("additional_tools"), "{provider}: {sent}");
        let is_lost =
            |fate: &&throughline_core::Fate| matches!(fate.visible, Disposition::Elided(_));
        assert_eq!(encoded.fates.iter().find(is_lost), None, "{provider}");
    }
}

/// Codex sends the tools of MCP servers in namespaces. Other wires receive them as tools, and a
/// custom tool as a function with one text argument.
#[test]
fn namespaces_and_custom_tools_reach_every_wire() {
    let request = r#"{"model":"gpt-5.6","input":"Go.","tools":[{"type":"namespace","name":"mcp__files","description":"Files.","tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{}}}]},{"type":"custom","name":"exec"}]}"#;
    let read_call = || read(request, target("openai", "gpt-5.6"));
    assert_eq!(body(&read_call()), request, "the same wire receives the request unchanged");
    let mut call = read_call();
    call.target = target("anthropic", "claude-sonnet-4-5");
    let encoded = codec(&call.target.provider.wire).unwrap().encode(&call).unwrap();
    let sent: serde_json::Value = serde_json::from_slice(&encoded.request.body).unwrap();
    let names: Vec<_> =
        sent["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["exec", "mcp__files__read"]);
    assert_eq!(sent["tools"][0]["input_schema"]["required"], serde_json::json!(["input"]));
    let warned: Vec<_> = encoded.warnings.iter().map(|warning| &*warning.setting).collect();
    assert!(!warned.contains(&"tools"), "{warned:?}");
}

/// Two namespaces and the list of tools contain a tool with the same name. All three reach other
/// wires, the history names the right one, and the form of a call names its namespace again.
#[test]
fn equal_names_in_several_namespaces_stay_apart() {
    let request = r#"{"model":"gpt-5.6","input":[{"role":"user","content":"Go."},{"type":"function_call","call_id":"call_1","name":"read","namespace":"mcp__files__","arguments":"{}"},{"type":"function_call_output","call_id":"call_1","output":"a"},{"type":"function_call","call_id":"call_2","name":"read","namespace":"mail","arguments":"{}"},{"type":"function_call_output","call_id":"call_2","output":"b"},{"type":"function_call","call_id":"call_3","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"call_3","output":"c"},{"type":"function_call","call_id":"call_4","name":"send","arguments":"{}"},{"type":"function_call_output","call_id":"call_4","output":"d"}],"tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{"path":{"type":"string"}}}},{"type":"namespace","name":"mcp__files__","tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{}}}]},{"type":"namespace","name":"mail","tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{}}},{"type":"function","name":"send","parameters":{"type":"object","properties":{}}}]}],"tool_choice":{"type":"function","namespace":"mail","name":"read"}}"#;
    let call = read(request, target("openai", "gpt-5.6"));
    assert_eq!(body(&call), request, "the same wire receives the request unchanged");
    // The client omitted the namespace of `send`, which only one tool has as its name.
    let called = ["mcp__files__read", "mail__read", "read", "mail__send"];
    let cases = [
        ("anthropic", "claude-sonnet-4-5", "/tools", "/name"),
        ("openai-chat", "gpt-5.6", "/tools", "/function/name"),
        ("gemini", "gemini-3-pro", "/tools/0/functionDeclarations", "/name"),
        (
            "bedrock",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "/toolConfig/tools",
            "/toolSpec/name",
        ),
    ];
    for (provider, model, list, name) in cases {
        let mut call = call.clone();
        call.target = target(provider, model);
        let encoded = codec(&call.target.provider.wire).unwrap().encode(&call).unwrap();
        let sent: serde_json::Value = serde_json::from_slice(&encoded.request.body).unwrap();
        let tools = sent.pointer(list).and_then(serde_json::Value::as_array).unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.pointer(name).unwrap()).collect();
        assert_eq!(names, ["read", "mcp__files__read", "mail__read", "mail__send"], "{provider}");
        let again = codec(&call.target.provider.wire).unwrap();
        let context = DecodeContext::of(call.target.clone());
        let again = again.decode_request(&encoded.request, &context).unwrap();
        let names: Vec<_> =
            again.items.iter().filter_map(|item| Some(item.call()?.name.to_string())).collect();
        assert_eq!(names, called, "{provider}: {sent}");
        let chosen = ToolChoice::Tool("mail__read".into());
        assert_eq!(again.settings.choice, Some(chosen), "{provider}: {sent}");
    }
    let mut moved = call.clone();
    moved.target = target("openai", "gpt-5.2");
    let choice = r#""tool_choice":{"type":"function","namespace":"mail","name":"read"}"#;
    assert!(body(&moved).contains(choice), "{}", body(&moved));
    let forms = CallForms::of(&call);
    let mut seen = Vec::new();
    for name in called {
        let args = json::Json::parse("{}").unwrap();
        let tool_call =
            ToolCall { id: "call_9".into(), wire_id: None, name: name.into(), args, custom: false };
        let place = ItemPosition::default();
        let mut item = Item::new("reply", place, Role::Assistant, Body::Call(tool_call));
        forms.apply(&mut item);
        let native = item.native.map(|native| native.json.as_str().to_owned());
        let native = native.map(|json| serde_json::from_str::<serde_json::Value>(&json).unwrap());
        seen.push(native.map(|json| (json["namespace"].clone(), json["name"].clone())));
    }
    let form = |namespace: &str, name: &str| {
        Some((serde_json::Value::from(namespace), serde_json::Value::from(name)))
    };
    let expected = [form("mcp__files__", "read"), form("mail", "read"), None, form("mail", "send")];
    assert_eq!(seen, expected);
}

/// Other wires accept at most 64 bytes.
#[test]
fn long_names_in_namespaces_are_shortened_and_stay_apart() {
    let namespace = "mcp__a_server_with_a_very_long_name";
    let long = |end: &str| format!("a_tool_with_a_name_that_is_long_as_well_{end}").into();
    let names = [long("1"), long("2")].map(|name| wire::qualified_name(Some(namespace), name));
    assert_ne!(names[0], names[1]);
    for name in names {
        assert_eq!(name.len(), 64, "{name}");
        assert!(name.starts_with("mcp__a_server_with_a_very_long_name__a_tool"), "{name}");
    }
    assert_eq!(&*wire::qualified_name(Some("functions"), "exec".into()), "exec");
}
