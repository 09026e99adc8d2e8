//! Tests the encoding of messages, tools and settings.

use throughline_core::{
    Body, Call, Disposition, ElisionReason, Extra, Item, ItemPosition, Media, NativeReasoning,
    Outcome, OutputFormat, Part, Role, Settings, Tool, ToolChoice, Warning, Wire,
};
use throughline_json::{Json, Name};

use crate::converse::tests::{
    CLAUDE, CLAUDE_4_6, CLAUDE_4_7, CLAUDE_5_5, DEEPSEEK, GPT_OSS, NOVA, SEALED, answered, body,
    budget, call_with_reasoning, called, effort, member, off, read, reply, target, text_item,
    warned, written,
};

#[test]
fn adjacent_messages_are_joined_and_results_come_first() {
    let mut call = read(
        CLAUDE,
        r#"{"messages":[{"role":"user","content":[{"text":"one"}],"weight":1},{"role":"user","content":[{"text":"two"}]}]}"#,
    );
    let before = written(&call);
    call.extend([text_item(0, Role::User, "three")]);
    let encoded = written(&call);
    let messages = r#"[{"role":"user","content":[{"text":"one"}],"weight":1},{"role":"user","content":[{"text":"two"},{"text":"three"}]}]"#;
    assert_eq!(member(&encoded, "/messages").as_deref(), Some(messages));
    assert_eq!(member(&before, "/messages/0"), member(&encoded, "/messages/0"));

    let mut call = Call::new(target(CLAUDE));
    call.items = vec![
        text_item(0, Role::User, "q"),
        called(1, "x", "weather"),
        text_item(2, Role::User, "by the way"),
        answered(3, "x", Outcome::Error, vec![Part::Text("no".into())]),
    ];
    let content = r#"[{"toolResult":{"toolUseId":"x","content":[{"text":"no"}],"status":"error"}},{"text":"by the way"}]"#;
    assert_eq!(member(&written(&call), "/messages/2/content").as_deref(), Some(content));
}

#[test]
fn emptied_message_is_removed_with_its_border() {
    let mut call = Call::new(target(CLAUDE));
    call.items = vec![text_item(0, Role::User, "one")];
    call.extend(
        reply(DEEPSEEK, r#"[{"reasoningContent":{"reasoningText":{"text":"hm"}}},{"text":" \n"}]"#)
            .items,
    );
    call.extend([text_item(0, Role::User, "two")]);
    let encoded = written(&call);
    let messages = r#"[{"role":"user","content":[{"text":"one"},{"text":"two"}]}]"#;
    assert_eq!(member(&encoded, "/messages").as_deref(), Some(messages));
    assert_eq!(encoded.fates[2].visible, Disposition::Elided(ElisionReason::NotOnThisWire));
}

#[test]
fn system_prompts_among_messages_move_to_the_top() {
    let mut call = Call::new(target(CLAUDE));
    call.items = vec![
        text_item(0, Role::Developer, "Be brief."),
        text_item(1, Role::User, "hi"),
        text_item(2, Role::System, "Be kind."),
    ];
    let encoded = written(&call);
    assert_eq!(
        body(&encoded),
        r#"{"system":[{"text":"Be brief."}],"messages":[{"role":"user","content":[{"text":"hi"},{"text":"Be kind."}]}]}"#
    );
}

#[test]
fn unsupported_media_is_omitted_with_a_warning() {
    let inline = |mime: &str| Media::Inline { mime: mime.into(), base64: "AAAA".into() };
    let remote = |mime: Option<&str>, uri: &str| Media::Remote {
        mime: mime.map(Name::from),
        uri: uri.into(),
        owner: None,
    };
    let media = [
        (inline("image/png"), Some(r#"{"image":{"format":"png","source":{"bytes":"AAAA"}}}"#)),
        (
            inline("application/pdf"),
            Some(r#"{"document":{"format":"pdf","name":"document-1","source":{"bytes":"AAAA"}}}"#),
        ),
        (
            remote(Some("video/mp4"), "s3://b/k"),
            Some(r#"{"video":{"format":"mp4","source":{"s3Location":{"uri":"s3://b/k"}}}}"#),
        ),
        (inline("audio/wav"), Some(r#"{"audio":{"format":"wav","source":{"bytes":"AAAA"}}}"#)),
        (inline("image/tiff"), None),
        (remote(Some("image/png"), "https://example.org/a.png"), None),
    ];
    for (media, expected) in media {
        let mut call = Call::new(target(CLAUDE));
        let item = Item::new("m", ItemPosition::default(), Role::User, Body::Media(media));
        call.items = vec![item];
        let encoded = written(&call);
        assert_eq!(member(&encoded, "/messages/0/content/0").as_deref(), expected);
        assert_eq!(warned(&encoded).is_empty(), expected.is_some());
    }
}

#[test]
fn tool_results_contain_values_texts_and_media() {
    let value = |text: &'static str| Part::Value(Json::parse(text).unwrap());
    let parts = vec![
        value(r#"{"rain":1}"#),
        value("[1]"),
        Part::Media(Media::Inline { mime: "image/png".into(), base64: "AAAA".into() }),
        Part::Unknown(Wire::GEMINI, Json::null()),
    ];
    let mut call = Call::new(target(CLAUDE));
    call.items = vec![called(0, "x", "weather"), answered(1, "x", Outcome::Ok, parts)];
    let encoded = written(&call);
    let content = r#"[{"json":{"rain":1}},{"text":"[1]"},{"image":{"format":"png","source":{"bytes":"AAAA"}}}]"#;
    assert_eq!(
        member(&encoded, "/messages/1/content/0/toolResult/content").as_deref(),
        Some(content)
    );
    assert_eq!(warned(&encoded), ["tools", "tool result"]);
    let read = read(CLAUDE, body(&encoded));
    let Body::Result(result) = &read.items[1].body else { panic!("a result") };
    assert_eq!(result.parts[0], value(r#"{"rain":1}"#));
    assert_eq!((&*result.call.0, result.outcome), ("x", Outcome::Ok));
}

#[test]
fn the_next_request_extends_the_last() {
    let first = r#"{"messages":[{"role":"user","content":[{"text":"q"}]}]}"#;
    let mut call = read(CLAUDE, first);
    let mut before = Vec::new();
    for turn in 0..3 {
        call.extend(reply(CLAUDE, SEALED).items);
        call.extend([answered(0, "t1", Outcome::Ok, vec![Part::Text(format!("{turn}").into())])]);
        let encoded = written(&call);
        let body = Json::parse(encoded.request.body.clone()).unwrap();
        let tree = body.tree();
        let messages = tree.root().get("messages").unwrap();
        let messages: Vec<_> = messages.elements().map(|m| m.json().as_str().to_owned()).collect();
        assert_eq!(messages.get(..before.len()), Some(before.as_slice()));
        assert_eq!(written(&call).request, encoded.request);
        before = messages;
    }
}

#[test]
fn hosted_tools_of_another_provider_are_omitted() {
    let tool = |name: &str, hosted| Tool {
        name: name.into(),
        description: Some("".into()),
        schema: None,
        hosted,
        native: None,
    };
    let mut call = Call::new(target(CLAUDE));
    call.tools = vec![tool("f", false), tool("web_search", true)];
    call.settings.choice = Some(ToolChoice::Any);
    call.settings.parallel = Some(false);
    let encoded = written(&call);
    let config = r#"{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}],"toolChoice":{"any":{}}}"#;
    assert_eq!(member(&encoded, "/toolConfig").as_deref(), Some(config));
    assert_eq!(warned(&encoded), ["tools", "parallel"]);
}

#[test]
fn calls_without_tools_declare_the_called_tools() {
    let mut call = Call::new(target(CLAUDE));
    call.items = vec![called(0, "x", "f"), called(1, "y", "g"), called(2, "z", "f")];
    let encoded = written(&call);
    let tools = r#"[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}},{"toolSpec":{"name":"g","inputSchema":{"json":{"type":"object"}}}}]"#;
    assert_eq!(member(&encoded, "/toolConfig/tools").as_deref(), Some(tools));
    assert_eq!(warned(&encoded), ["tools"]);
}

#[test]
fn unsupported_tool_choices_are_dropped_with_a_warning() {
    let config = r#"{"messages":[],"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{}}}}],"toolChoice":{"auto":{}}}}"#;
    let choose = |model: &str, choice, reasoning| {
        let mut call = read(model, config);
        call.settings.choice = Some(choice);
        call.settings.reasoning = reasoning;
        let encoded = written(&call);
        let warned = encoded.warnings.iter().any(|w| &*w.setting == "tool_choice");
        (member(&encoded, "/toolConfig/toolChoice").unwrap_or_default(), warned)
    };
    let tool = || ToolChoice::Tool("f".into());
    let forced = (r#"{"tool":{"name":"f"}}"#.to_owned(), false);
    let freed = (r#"{"auto":{}}"#.to_owned(), true);
    assert_eq!(choose(CLAUDE, ToolChoice::None, None), (String::new(), true));
    assert_eq!(choose(CLAUDE, tool(), None), forced);
    assert_eq!(choose(CLAUDE, tool(), Some(budget(2000))), freed);
    // Bedrock rejects forced tools with adaptive thinking, although Anthropic's own endpoint
    // accepts them.
    assert_eq!(choose(CLAUDE_4_6, tool(), Some(effort("low"))), freed);
    assert_eq!(choose(CLAUDE_5_5, tool(), None), freed);
    assert_eq!(choose(NOVA, tool(), Some(effort("low"))), forced);
}

#[test]
fn reasoning_settings_match_the_family() {
    let fields = |model: &str, reasoning| {
        let encoded = written(&call_with_reasoning(model, reasoning));
        let warned: Vec<_> = warned(&encoded).into_iter().map(str::to_owned).collect();
        (member(&encoded, "/additionalModelRequestFields").unwrap_or_default(), warned)
    };
    let no = Vec::<String>::new;
    let one = |setting: &str| vec![setting.to_owned()];
    let cases = [
        (CLAUDE, budget(2000), r#"{"thinking":{"type":"enabled","budget_tokens":2000}}"#, no()),
        (CLAUDE, effort("low"), r#"{"thinking":{"type":"enabled","budget_tokens":2048}}"#, no()),
        (
            CLAUDE,
            budget(10),
            r#"{"thinking":{"type":"enabled","budget_tokens":1024}}"#,
            one("reasoning.budget_tokens"),
        ),
        (CLAUDE, off(), r#"{"thinking":{"type":"disabled"}}"#, no()),
        (
            CLAUDE_4_6,
            effort("high"),
            r#"{"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}"#,
            no(),
        ),
        (
            CLAUDE_4_6,
            effort("xhigh"),
            r#"{"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}"#,
            one("reasoning.effort"),
        ),
        (
            CLAUDE_4_7,
            budget(2000),
            r#"{"thinking":{"type":"adaptive"}}"#,
            one("reasoning.budget_tokens"),
        ),
        (CLAUDE_5_5, off(), "", one("reasoning")),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", effort("low"), "", one("reasoning")),
        (
            NOVA,
            effort("minimal"),
            r#"{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"low"}}"#,
            one("reasoning.effort"),
        ),
        (NOVA, off(), r#"{"reasoningConfig":{"type":"disabled"}}"#, no()),
        (GPT_OSS, effort("high"), r#"{"reasoning_effort":"high"}"#, no()),
        (GPT_OSS, off(), "", one("reasoning")),
        (DEEPSEEK, effort("high"), "", one("reasoning")),
    ];
    for (model, reasoning, expected, warnings) in cases {
        assert_eq!(fields(model, reasoning.clone()), (expected.to_owned(), warnings), "{model}");
    }
}

#[test]
fn thoughts_are_requested_only_from_models_that_support_it() {
    let shown = NativeReasoning { include_thoughts: Some(true), ..effort("low") };
    let encoded = written(&call_with_reasoning(CLAUDE_4_7, shown));
    let thinking = member(&encoded, "/additionalModelRequestFields/thinking");
    assert_eq!(thinking.as_deref(), Some(r#"{"type":"adaptive","display":"summarized"}"#));
}

#[test]
fn budget_removes_sampling_and_raises_max_tokens() {
    let mut call = call_with_reasoning(CLAUDE, budget(4000));
    call.settings.max_tokens = Some(1000);
    call.settings.temperature = Some(Json::from(0));
    call.settings.top_k = Some(Json::from(5));
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/inferenceConfig").as_deref(), Some(r#"{"maxTokens":5024}"#));
    assert_eq!(member(&encoded, "/additionalModelRequestFields/top_k"), None);
    assert_eq!(warned(&encoded), ["max_tokens", "temperature", "top_k"]);
    // Without `maxTokens`, the endpoint's default may leave no room for the answer.
    let encoded = written(&call_with_reasoning(CLAUDE, budget(4000)));
    assert_eq!(member(&encoded, "/inferenceConfig").as_deref(), Some(r#"{"maxTokens":5024}"#));
}

#[test]
fn budget_is_omitted_in_a_tool_loop_started_without_thinking() {
    let mut call = call_with_reasoning(CLAUDE, budget(2000));
    call.items.push(called(1, "x", "f"));
    call.items.push(answered(2, "x", Outcome::Ok, Vec::new()));
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/additionalModelRequestFields"), None);
    assert_eq!(warned(&encoded), ["tools", "reasoning"]);
}

#[test]
fn request_is_rewritten_for_another_model() {
    let body = r#"{"messages":[],"inferenceConfig":{"temperature":1,"maxTokens":9000},"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":2000},"beta":[1]}}"#;
    let mut call = read(CLAUDE, body);
    call.target = target(CLAUDE_4_7);
    let encoded = written(&call);
    let fields = member(&encoded, "/additionalModelRequestFields");
    assert_eq!(fields.as_deref(), Some(r#"{"thinking":{"type":"adaptive"},"beta":[1]}"#));
    assert_eq!(member(&encoded, "/inferenceConfig").as_deref(), Some(r#"{"maxTokens":9000}"#));
    call.target = target(NOVA);
    let fields = member(&written(&call), "/additionalModelRequestFields");
    let nova = r#"{"beta":[1],"reasoningConfig":{"type":"enabled","maxReasoningEffort":"medium"}}"#;
    assert_eq!(fields.as_deref(), Some(nova));
}

#[test]
fn setting_that_is_unset_is_removed_from_the_request() {
    let body = r#"{"messages":[],"inferenceConfig":{"maxTokens":9},"additionalModelRequestFields":{"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}}"#;
    let mut call = read(CLAUDE_4_6, body);
    call.settings = Settings::default();
    let expected = r#"{"messages":[],"inferenceConfig":{},"additionalModelRequestFields":{}}"#;
    assert_eq!(self::body(&written(&call)), expected);
}

#[test]
fn top_k_is_written_where_the_family_expects_it() {
    let top_k = |model: &str| {
        let mut call = Call::new(target(model));
        call.settings.top_k = Some(Json::from(20));
        let encoded = written(&call);
        (member(&encoded, "/additionalModelRequestFields"), warned(&encoded).len())
    };
    assert_eq!(top_k(CLAUDE), (Some(r#"{"top_k":20}"#.to_owned()), 0));
    assert_eq!(top_k(NOVA), (Some(r#"{"inferenceConfig":{"topK":20}}"#.to_owned()), 0));
    assert_eq!(top_k(DEEPSEEK), (None, 1));
    assert_eq!(top_k(CLAUDE_4_7), (None, 1));
}

#[test]
fn schema_is_written_as_text_and_plain_json_output_is_unsupported() {
    let mut call = Call::new(target(CLAUDE));
    let schema = Json::parse(r#"{"type": "object"}"#).unwrap();
    call.settings.output = Some(OutputFormat::Schema { name: None, schema, strict: Some(true) });
    let format = member(&written(&call), "/outputConfig");
    let expected = r#"{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":"{\"type\": \"object\"}"}}}}"#;
    assert_eq!(format.as_deref(), Some(expected));
    call.settings.output = Some(OutputFormat::Json);
    let encoded = written(&call);
    assert_eq!(warned(&encoded), ["output"]);
    assert_eq!(member(&encoded, "/outputConfig"), None);
}

#[test]
fn foreign_members_are_reported_and_caller_extras_come_last() {
    let mut call = call_with_reasoning(CLAUDE, budget(2000));
    let extra = |wire, key: &str| Extra { wire, key: key.into(), value: Json::from(1) };
    call.extras = vec![extra(Some(Wire::OPENAI_CHAT), "logprobs"), extra(None, "requestMetadata")];
    let fields = Json::parse(r#"{"thinking":{"type":"adaptive"}}"#).unwrap();
    let reasoning = call.settings.reasoning.as_mut().unwrap();
    reasoning.provider_extras = vec![("additionalModelRequestFields".into(), fields)];
    let encoded = written(&call);
    let expected =
        Warning::new("logprobs", "this setting exists only on openai-chat; it was omitted");
    assert_eq!(encoded.warnings, [expected]);
    assert_eq!(member(&encoded, "/requestMetadata").as_deref(), Some("1"));
    let fields = member(&encoded, "/additionalModelRequestFields");
    assert_eq!(fields.as_deref(), Some(r#"{"thinking":{"type":"adaptive"}}"#));
}
