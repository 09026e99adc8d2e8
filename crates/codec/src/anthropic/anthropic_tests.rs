//! Tests the codec of the Messages API.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Delta, Disposition, ElisionReason, EncodedRequest, Event, Extra, Item,
    ItemPosition, NativeReasoning, Outcome, OutputFormat, Part, Reply, Request, ReshapeKind, Role,
    Settings, StopReason, Target, Thought, ThoughtKind, ThreadSecret, Tool, ToolCall, ToolChoice,
    ToolResult, Usage, Wire, tag,
};
use throughline_json::{Json, Name};

use crate::frame::{Frame, Framing};
use crate::{
    AnthropicMessages, Catalog, Codec, CodecError, DecodeContext, StreamDecoder, StreamEncoder,
    events_from_reply,
};

const CLAUDE_4_5: &str = "claude-sonnet-4-5";
const CLAUDE_4_6: &str = "claude-opus-4-6";
const CLAUDE_4_7: &str = "claude-opus-4-7";
const CLAUDE_5_5: &str = "claude-opus-5-5";

fn target(model: &str) -> Target {
    Catalog::builtin().target_for("anthropic", model, "main").unwrap()
}

fn request(body: &str) -> Request {
    let path = "/v1/messages".into();
    Request { path, headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

fn read(model: &str, body: &str) -> Call {
    AnthropicMessages.decode_request(&request(body), &DecodeContext::of(target(model))).unwrap()
}

fn reply_to(context: &DecodeContext, blocks: &str) -> Reply {
    let body = format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"{}","content":{blocks},"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":1,"output_tokens":2}}}}"#,
        context.target.model()
    );
    AnthropicMessages.decode_reply(&Bytes::from(body), context).unwrap()
}

fn reply(model: &str, content: &str) -> Reply {
    reply_to(&DecodeContext::of(target(model)), content)
}

#[test]
fn summary_of_a_reply_is_the_reply_without_its_items() {
    let context = DecodeContext::of(target(CLAUDE_4_5));
    let body = Bytes::from_static(
        br#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"Look.","signature":"c2ln"},{"type":"tool_use","id":"toolu_1","name":"read_file","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c1"},"usage":{"input_tokens":1,"output_tokens":2}}"#,
    );
    let whole = AnthropicMessages.decode_reply(&body, &context).unwrap();
    let summary = AnthropicMessages.decode_reply_summary(&body, &context).unwrap();
    assert_eq!(whole.items.len(), 2);
    assert_eq!(summary, Reply { items: Vec::new(), ..whole });
    let refused = Bytes::from_static(br#"{"type":"error","error":{"type":"x","message":"y"}}"#);
    let error = AnthropicMessages.decode_reply_summary(&refused, &context).unwrap_err();
    assert!(matches!(error, CodecError::Provider(_)), "{error}");
}

#[test]
fn model_in_the_path_is_one_encoded_segment() {
    let path = |model: &str| {
        let target = Catalog::builtin().target_for("vertex-anthropic", model, "main").unwrap();
        written(&Call::new(target)).request.path.to_string()
    };
    assert_eq!(path("claude-opus-5@20260101"), "/claude-opus-5@20260101:rawPredict");
    assert_eq!(path("claude-x:countTokens?"), "/claude-x%3AcountTokens%3F:rawPredict");
    assert_eq!(path("../a#b"), "/..%2Fa%23b:rawPredict");
}

fn written(call: &Call) -> EncodedRequest {
    AnthropicMessages.encode(call).unwrap()
}

fn body(encoded: &EncodedRequest) -> &str {
    std::str::from_utf8(&encoded.request.body).unwrap()
}

fn member(encoded: &EncodedRequest, pointer: &str) -> Option<String> {
    let body = Json::parse(encoded.request.body.clone()).unwrap();
    body.tree().root().at(pointer).map(|node| node.json().as_str().to_owned())
}

fn warned(encoded: &EncodedRequest) -> Vec<&str> {
    encoded.warnings.iter().map(|warning| &*warning.setting).collect()
}

fn text_item(message: usize, role: Role, text: &str) -> Item {
    Item::new(format!("i{message}"), ItemPosition::new(message, 0), role, Body::Text(text.into()))
}

fn called(message: usize, id: &str) -> Item {
    let args = Json::parse(r#"{"city":"Oslo"}"#).unwrap();
    let (id, name) = (id.into(), "weather".into());
    let call = ToolCall { id, wire_id: None, name, args, custom: false };
    Item::new(
        format!("c{message}"),
        ItemPosition::new(message, 0),
        Role::Assistant,
        Body::Call(call),
    )
}

fn answered(message: usize, id: &str, text: &str) -> Item {
    let parts = vec![Part::Text(text.into())];
    let (wire_id, name, outcome) = (None, None, Outcome::Ok);
    let result = ToolResult { call: id.into(), wire_id, name, outcome, parts };
    Item::new(
        format!("r{message}"),
        ItemPosition::new(message, 0),
        Role::Tool,
        Body::Result(result),
    )
}

fn call_with_reasoning(model: &str, reasoning: NativeReasoning) -> Call {
    let mut call = Call::new(target(model));
    call.items = vec![text_item(0, Role::User, "hi")];
    call.settings.max_tokens = Some(8000);
    call.settings.reasoning = Some(reasoning);
    call
}

fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: None, schema: None, hosted: false, native: None }
}

fn effort(word: &str) -> NativeReasoning {
    NativeReasoning { effort: Some(word.into()), ..NativeReasoning::default() }
}

fn budget(tokens: u64) -> NativeReasoning {
    NativeReasoning { budget_tokens: Some(tokens), ..NativeReasoning::default() }
}

fn off() -> NativeReasoning {
    NativeReasoning { enabled: Some(false), ..NativeReasoning::default() }
}

fn decode(stream: &str) -> Vec<Event> {
    let context = DecodeContext::of(target(CLAUDE_4_5));
    let mut decoder = StreamDecoder::with_framing(&AnthropicMessages, &context, Framing::JsonLines);
    let mut events = decoder.push(stream.as_bytes()).unwrap();
    events.extend(decoder.finish().unwrap());
    events
}

fn ended(events: &[Event]) -> Reply {
    let ended = events.iter().find_map(|event| match event {
        Event::Ended(reply) => Some(Reply::clone(reply)),
        _ => None,
    });
    ended.unwrap()
}

fn natives(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.native.as_ref().unwrap().json.as_str()).collect()
}

fn seals(item: &Item) -> Vec<(&str, &str, &[u8])> {
    let seals = item.seals.iter();
    seals.map(|s| (&*s.format, &*s.attached.at, &**s.reveal_to_tenant())).collect()
}

const SEALED: &str = r#"[{"type":"thinking","thinking":"hm","signature":"c2VhbC1vbmU="},{"type":"text","text":"a"},{"type":"redacted_thinking","data":"c2VhbC10d28="},{"type":"tool_use","id":"t1","name":"f","input":{}},{"type":"thinking","thinking":"","signature":"c2VhbC10aHJlZQ=="}]"#;

#[test]
fn blocks_are_replayed_unmodified_and_in_order() {
    let answer = reply(CLAUDE_4_5, SEALED);
    let found: Vec<_> = answer.items.iter().map(seals).collect();
    let expected: [Vec<(&str, &str, &[u8])>; 5] = [
        vec![("anthropic.signature", "/signature", b"c2VhbC1vbmU=")],
        vec![],
        vec![("anthropic.data", "/data", b"c2VhbC10d28=")],
        vec![],
        vec![("anthropic.signature", "/signature", b"c2VhbC10aHJlZQ==")],
    ];
    assert_eq!(found, expected);
    let mut call = Call::new(target(CLAUDE_4_5));
    call.items = vec![text_item(0, Role::User, "q")];
    call.extend(answer.items);
    call.extend([answered(0, "t1", "done")]);
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/messages/1/content").as_deref(), Some(SEALED));
    let answer = r#"[{"type":"tool_result","tool_use_id":"t1","content":"done"}]"#;
    assert_eq!(member(&encoded, "/messages/2/content").as_deref(), Some(answer));
    assert!(encoded.fates.iter().all(|fate| fate.visible == Disposition::Kept));
}

#[test]
fn response_only_members_are_not_replayed() {
    let content = r#"[{"type":"text","text":"a","citations":null,"novel":1},{"type":"tool_use","id":"t","name":"f","input":{},"caller":{"type":"direct"},"more":2},{"type":"novel","citations":null}]"#;
    let mut call = Call::new(target(CLAUDE_4_5));
    call.extend(reply(CLAUDE_4_5, content).items);
    let expected = r#"[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{},"caller":{"type":"direct"}},{"type":"novel","citations":null}]"#;
    assert_eq!(member(&written(&call), "/messages/0/content").as_deref(), Some(expected));
}

#[test]
fn unsigned_and_truncated_thoughts_are_omitted() {
    let unsigned =
        r#"[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"a"}]"#;
    let mut call = Call::new(target(CLAUDE_4_5));
    call.extend(reply(CLAUDE_4_5, unsigned).items);
    let encoded = written(&call);
    assert_eq!(encoded.fates[0].visible, Disposition::Elided(ElisionReason::Unsigned));
    assert!(!body(&encoded).contains("hm"));
    let mut items = reply(CLAUDE_4_5, SEALED).items;
    if let Body::Thought(thought) = &mut items[0].body {
        thought.whole = false;
    }
    let mut call = Call::new(target(CLAUDE_4_5));
    call.extend(items);
    assert_eq!(written(&call).fates[0].visible, Disposition::Elided(ElisionReason::Cut));
}

#[test]
fn a_foreign_seal_never_reaches_the_request() {
    let mut call = Call::new(target(CLAUDE_4_5));
    let mut elsewhere = target(CLAUDE_4_5);
    let mut origin = (*elsewhere.origin).clone();
    origin.endpoint = "gateway.example.org".into();
    elsewhere.origin = Arc::new(origin);
    call.extend(reply_to(&DecodeContext::of(elsewhere), SEALED).items);
    let encoded = written(&call);
    assert!(!body(&encoded).contains("c2VhbC"));
    assert_eq!(encoded.fates[0].seals, [Disposition::Elided(ElisionReason::Foreign)]);
    assert_eq!(encoded.fates[1].visible, Disposition::Kept);
}

#[test]
fn citations_and_search_results_keep_their_seals() {
    let content = r#"[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","encrypted_content":"c2VhbC1vbmU="}]},{"type":"text","text":"a","citations":[{"type":"web_search_result_location","encrypted_index":"c2VhbC10d28="}]},{"type":"compaction","content":"c","encrypted_content":"c2VhbC10aHJlZQ=="}]"#;
    let answer = reply(CLAUDE_4_5, content);
    let result = ("anthropic.encrypted_content", "/content/0/encrypted_content");
    let citation = ("anthropic.encrypted_index", "/citations/0/encrypted_index");
    let compaction = ("anthropic.encrypted_content", "/encrypted_content");
    let places: Vec<_> = answer
        .items
        .iter()
        .flat_map(|item| seals(item).into_iter().map(|(format, at, _)| (format, at)))
        .collect();
    assert_eq!(places, [result, citation, compaction]);
    let mut call = Call::new(target(CLAUDE_4_5));
    call.extend(answer.items);
    assert_eq!(member(&written(&call), "/messages/0/content").as_deref(), Some(content));
    let mut origin = (*call.target.origin).clone();
    origin.endpoint = "gateway.example.org".into();
    call.target.origin = Arc::new(origin);
    let encoded = written(&call);
    assert!(!body(&encoded).contains("c2VhbC"));
    assert_eq!(encoded.fates[2].visible, Disposition::Reshaped(ReshapeKind::Flattened));
    assert_eq!(encoded.fates[3].visible, Disposition::Elided(ElisionReason::Foreign));
}

#[test]
fn bound_thoughts_after_a_prefix_change_are_omitted() {
    let ask = |text: &str| {
        let mut call = Call::new(target(CLAUDE_5_5));
        call.system = vec![text_item(0, Role::System, "Be brief.")];
        call.items = vec![text_item(0, Role::User, text)];
        call
    };
    let thought = r#"[{"type":"thinking","thinking":"hm","signature":"c2VhbC1vbmU="},{"type":"text","text":"a"}]"#;
    let mut call = ask("one");
    let mut replies = Vec::new();
    for _ in 0..2 {
        let prefix = written(&call).prefix;
        let answer =
            reply_to(&DecodeContext { prefix, ..DecodeContext::of(target(CLAUDE_5_5)) }, thought)
                .items;
        replies.push(answer.clone());
        call.extend(answer);
        call.extend([text_item(0, Role::User, "go on")]);
    }
    let fates = |mut call: Call| {
        for answer in &replies {
            call.extend(answer.clone());
            call.extend([text_item(0, Role::User, "go on")]);
        }
        let encoded = written(&call);
        [encoded.fates[2].visible.clone(), encoded.fates[5].visible.clone()]
    };
    assert_eq!(fates(ask("one")), [Disposition::Kept, Disposition::Kept]);
    let changed = || Disposition::Elided(ElisionReason::PrefixChanged);
    assert_eq!(fates(ask("two")), [changed(), changed()]);
    let mut system = ask("one");
    system.system = vec![text_item(0, Role::System, "Be long.")];
    assert_eq!(fates(system), [changed(), changed()]);
}

#[test]
fn cache_marker_does_not_invalidate_bound_thoughts() {
    let plain = r#"{"model":"claude-opus-5-5","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"q"}]}]}"#;
    let marked = plain
        .replace(r#""text":"q""#, r#""text":"q","cache_control":{"type":"ephemeral"}"#)
        .replace(r#""text":"s""#, r#""text":"s","cache_control":{"type":"ephemeral"}"#);
    let prefix = |body: &str| written(&read(CLAUDE_5_5, body)).prefix;
    assert!(prefix(plain).is_some());
    assert_eq!(prefix(plain), prefix(&marked));
    assert_ne!(prefix(plain), prefix(&plain.replace(r#""text":"q""#, r#""text":"r""#)));
}

#[test]
fn caller_thought_becomes_user_text_or_keeps_its_native_form() {
    let thought = |tag: Option<&str>, payload: Option<&'static str>| {
        let format = throughline_core::ReasoningFormat::unknown();
        let mut thought = Thought::issued("a plan", ThoughtKind::Text, format);
        thought.replay_compatibility = tag.map(Name::from);
        thought.payload = payload.map(|payload| Json::parse(payload).unwrap());
        let mut call = Call::new(target(CLAUDE_4_5));
        let body = Body::Thought(thought);
        let item = Item::new("t", ItemPosition::new(1, 0), Role::Assistant, body);
        call.items = vec![text_item(0, Role::User, "q"), item, text_item(2, Role::Assistant, "a")];
        call.replay.secret = Some(ThreadSecret::new([7; 32]));
        written(&call)
    };
    let plain = thought(None, None);
    assert!(member(&plain, "/messages/0/content/1/text").unwrap().contains("a plan"));
    assert_eq!(plain.fates[1].visible, Disposition::Reshaped(ReshapeKind::Enveloped));
    let payload = r#"{"type":"thinking","thinking":"p","signature":"s"}"#;
    let typed = thought(Some(tag::ANTHROPIC_MESSAGES_THINKING), Some(payload));
    assert_eq!(member(&typed, "/messages/1/content/0").as_deref(), Some(payload));
    let foreign = thought(Some("another-else-v1"), Some(r#"{"x":1}"#));
    assert_eq!(foreign.fates[1].visible, Disposition::Elided(ElisionReason::ByPolicy));
    assert!(!body(&foreign).contains("a plan"));
}

#[test]
fn tool_results_come_first_and_system_prompts_move_to_the_top() {
    let mut call = Call::new(target(CLAUDE_4_5));
    call.settings.max_tokens = Some(9);
    call.items = vec![
        text_item(0, Role::System, "Be brief."),
        called(1, "x"),
        text_item(2, Role::User, "by the way"),
        answered(3, "x", "rain"),
    ];
    let expected = r#"{"model":"claude-sonnet-4-5","system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"weather","input":{"city":"Oslo"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"rain"},{"type":"text","text":"by the way"}]}],"max_tokens":9}"#;
    let encoded = written(&call);
    let sent = Json::parse(encoded.request.body.clone()).unwrap();
    assert_eq!(sent.canonical(), Json::parse(expected).unwrap().canonical());
}

#[test]
fn reasoning_settings_match_the_model() {
    let thinking = |model: &str, reasoning| {
        let encoded = written(&call_with_reasoning(model, reasoning));
        let thinking = member(&encoded, "/thinking").unwrap_or_default();
        let effort = member(&encoded, "/output_config/effort").unwrap_or_default();
        let warned: Vec<_> = warned(&encoded).into_iter().map(str::to_owned).collect();
        (thinking, effort, warned.join(" "))
    };
    let shown = NativeReasoning { include_thoughts: Some(true), ..effort("low") };
    let manual = |tokens: u64| format!(r#"{{"type":"enabled","budget_tokens":{tokens}}}"#);
    let adaptive = r#"{"type":"adaptive"}"#.to_owned();
    let disabled = r#"{"type":"disabled"}"#.to_owned();
    let between = r#"{"type":"between_tools"}"#.to_owned();
    let budget_word = "reasoning.budget_tokens";
    let cases = [
        (CLAUDE_4_5, budget(2000), manual(2000), "", ""),
        (CLAUDE_4_5, effort("high"), manual(16_384), "", "max_tokens"),
        (CLAUDE_4_5, budget(5), manual(1024), "", budget_word),
        (CLAUDE_4_5, off(), disabled.clone(), "", ""),
        (CLAUDE_4_5, effort("none"), disabled, "", ""),
        (CLAUDE_4_6, effort("high"), adaptive.clone(), "\"high\"", ""),
        (CLAUDE_4_6, effort("xhigh"), adaptive.clone(), "\"high\"", "reasoning.effort"),
        (CLAUDE_4_6, budget(2000), manual(2000), "", ""),
        (CLAUDE_4_7, budget(2000), adaptive, "", budget_word),
        (
            CLAUDE_4_7,
            shown,
            r#"{"type":"adaptive","display":"summarized"}"#.to_owned(),
            "\"low\"",
            "",
        ),
        (CLAUDE_5_5, off(), String::new(), "", "reasoning"),
        ("claude-sonnet-5-5", off(), between, "", "reasoning"),
        ("claude-3-haiku-20240307", effort("low"), String::new(), "", "reasoning"),
        (CLAUDE_4_5, NativeReasoning::default(), String::new(), "", ""),
    ];
    for (model, reasoning, expected, effort, warnings) in cases {
        let expected = (expected, effort.to_owned(), warnings.to_owned());
        assert_eq!(thinking(model, reasoning.clone()), expected, "{model} {reasoning:?}");
    }
}

#[test]
fn budget_removes_sampling_and_raises_max_tokens() {
    let mut call = call_with_reasoning(CLAUDE_4_5, budget(4000));
    call.settings.max_tokens = Some(1000);
    call.settings.temperature = Some(Json::from(0));
    call.settings.choice = Some(ToolChoice::Any);
    call.tools = vec![tool("f")];
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/max_tokens").as_deref(), Some("5024"));
    assert_eq!(member(&encoded, "/temperature"), None);
    assert_eq!(member(&encoded, "/tool_choice").as_deref(), Some(r#"{"type":"auto"}"#));
    assert_eq!(warned(&encoded), ["max_tokens", "temperature", "tool_choice"]);
    let mut unlimited = call_with_reasoning(CLAUDE_4_5, budget(4000));
    unlimited.settings.max_tokens = None;
    assert_eq!(member(&written(&unlimited), "/max_tokens").as_deref(), Some("5024"));
}

#[test]
fn forced_tool_choice_is_dropped_for_models_that_reject_it() {
    let choice = |model: &str, reasoning: Option<NativeReasoning>| {
        let mut call = call_with_reasoning(model, NativeReasoning::default());
        call.settings.reasoning = reasoning;
        call.settings.choice = Some(ToolChoice::Tool("f".into()));
        call.tools = vec![tool("f")];
        member(&written(&call), "/tool_choice/type").unwrap()
    };
    assert_eq!(choice(CLAUDE_4_5, None), "\"tool\"");
    assert_eq!(choice(CLAUDE_4_5, Some(budget(2000))), "\"auto\"");
    assert_eq!(choice(CLAUDE_4_6, Some(effort("low"))), "\"tool\"");
    assert_eq!(choice(CLAUDE_5_5, None), "\"auto\"");
}

#[test]
fn tool_choice_for_unsent_tools_is_omitted() {
    for choice in [ToolChoice::Any, ToolChoice::Tool("g".into())] {
        let mut call = call_with_reasoning(CLAUDE_4_5, NativeReasoning::default());
        call.settings.reasoning = None;
        call.settings.choice = Some(choice.clone());
        if choice != ToolChoice::Any {
            call.tools = vec![tool("f")];
        }
        let encoded = written(&call);
        assert_eq!(member(&encoded, "/tool_choice"), None);
        assert_eq!(warned(&encoded), ["tool_choice"]);
    }
}

#[test]
fn caller_thought_is_delayed_until_calls_are_answered() {
    let mut call = Call::new(target(CLAUDE_4_5));
    let format = throughline_core::ReasoningFormat::unknown();
    let thought = Body::Thought(Thought::issued("a plan", ThoughtKind::Text, format));
    let thought = |at| Item::new("t", ItemPosition::new(at, 0), Role::Assistant, thought.clone());
    call.replay.secret = Some(ThreadSecret::new([7; 32]));
    call.items =
        vec![text_item(0, Role::User, "q"), called(1, "x"), thought(2), called(3, "y"), thought(4)];
    call.items.extend([answered(5, "x", "rain"), answered(6, "y", "sun")]);
    let encoded = written(&call);
    let roles = |at: usize| member(&encoded, &format!("/messages/{at}/role"));
    assert_eq!(
        (roles(1).as_deref(), roles(2).as_deref()),
        (Some("\"assistant\""), Some("\"user\""))
    );
    assert_eq!(member(&encoded, "/messages/1/content/1/id").as_deref(), Some("\"y\""));
    assert_eq!(member(&encoded, "/messages/2/content/1/tool_use_id").as_deref(), Some("\"y\""));
    assert!(member(&encoded, "/messages/2/content/3/text").unwrap().contains("a plan"));
    assert_eq!(encoded.fates[2].visible, Disposition::Reshaped(ReshapeKind::Enveloped));
    assert_eq!(encoded.fates[5].visible, Disposition::Kept);
}

#[test]
fn vendors_without_signatures_receive_only_their_own_thoughts() {
    let clone = Catalog::builtin().target_for("deepseek-anthropic", "deepseek-v4", "test").unwrap();
    let answer = r#"[{"type":"thinking","thinking":"mine","signature":""},{"type":"tool_use","id":"x","name":"f","input":{}}]"#;
    let mut call = Call::new(clone.clone());
    let body = Bytes::from(format!(
        r#"{{"id":"m","type":"message","role":"assistant","model":"d","content":{answer},"stop_reason":"tool_use"}}"#
    ));
    let reply = AnthropicMessages.decode_reply(&body, &DecodeContext::of(clone.clone())).unwrap();
    call.items = vec![text_item(0, Role::User, "q")];
    call.extend(reply.items);
    assert!(body_of(&written(&call)).contains("mine"));
    // A request that was written for the other vendor is sent to Anthropic.
    let sent = format!(
        r#"{{"model":"deepseek-v4","max_tokens":9,"messages":[{{"role":"assistant","content":{answer}}}]}}"#
    );
    let sent =
        Request { path: "/v1/messages".into(), headers: Vec::new(), body: Bytes::from(sent) };
    let mut moved = AnthropicMessages.decode_request(&sent, &DecodeContext::of(clone)).unwrap();
    moved.target = target(CLAUDE_4_5);
    let encoded = written(&moved);
    assert!(!body_of(&encoded).contains("mine"));
    assert_eq!(encoded.fates[0].visible, Disposition::Elided(ElisionReason::Foreign));
}

fn body_of(encoded: &EncodedRequest) -> String {
    String::from_utf8_lossy(&encoded.request.body).into_owned()
}

#[test]
fn budget_is_omitted_in_a_tool_loop_started_without_thinking() {
    let mut call = call_with_reasoning(CLAUDE_4_5, budget(2000));
    call.items.extend([called(1, "x"), answered(2, "x", "rain")]);
    let encoded = written(&call);
    assert_eq!(member(&encoded, "/thinking"), None);
    assert_eq!(warned(&encoded), ["reasoning"]);
}

#[test]
fn request_is_rewritten_for_another_model() {
    let body = r#"{"model":"claude-sonnet-4-5","max_tokens":9000,"temperature":1,"thinking":{"type":"enabled","budget_tokens":2000},"messages":[]}"#;
    let mut call = read(CLAUDE_4_5, body);
    call.target = target(CLAUDE_4_7);
    let encoded = written(&call);
    let expected = r#"{"model":"claude-opus-4-7","max_tokens":9000,"thinking":{"type":"adaptive"},"messages":[]}"#;
    assert_eq!(self::body(&encoded), expected);
    assert_eq!(warned(&encoded), ["reasoning.budget_tokens", "temperature"]);
}

#[test]
fn setting_that_is_unset_is_removed_from_the_request() {
    let body = r#"{"model":"claude-opus-4-6","max_tokens":9,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"messages":[]}"#;
    let mut call = read(CLAUDE_4_6, body);
    call.settings.reasoning = None;
    let expected = r#"{"model":"claude-opus-4-6","max_tokens":9,"messages":[]}"#;
    assert_eq!(self::body(&written(&call)), expected);
}

#[test]
fn unchanged_requests_round_trip_exactly() {
    for body in [
        r#"{"model":"claude-sonnet-4-5","messages":[],"system":[],"tools":[]}"#,
        r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":[]}],"system":null,"tools":null,"stream":null}"#,
        r#"{"model":"claude-sonnet-4-5","messages":[{"role":"user"}],"system":7,"tools":{},"x":1,"x":2}"#,
        r#"{ "messages" : [ {"role":"user","content":"a"} , {"role":"user","content":"b"} ], "model":"claude-sonnet-4-5","stream":false }"#,
    ] {
        let call = read(CLAUDE_4_5, body);
        let encoded = written(&call);
        assert_eq!(encoded.request, request(body));
        assert_eq!(encoded.fates.len(), call.system.len() + call.items.len());
    }
    let missing =
        AnthropicMessages.decode_request(&request("{}"), &DecodeContext::of(target(CLAUDE_4_5)));
    assert!(matches!(missing, Err(CodecError::Shape { .. })));
}

#[test]
fn call_without_its_source_encodes_completely() {
    let body = r#"{"model":"claude-opus-4-6","system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":"hi"}],"max_tokens":9000,"tools":[{"type":"web_search_20250305","name":"web_search"}],"thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"metadata":{"user_id":"u"}}"#;
    let mut call = read(CLAUDE_4_6, body);
    call.source = None;
    let sent = Json::parse(written(&call).request.body).unwrap();
    assert_eq!(sent.canonical(), Json::parse(body).unwrap().canonical());
}

#[test]
fn settings_are_read_from_every_location() {
    let body = r#"{"model":"m","messages":[],"max_tokens":100,"temperature":0.50,"top_p":1,"top_k":5,"stop_sequences":["A"],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}},"container":"c"}"#;
    let call = read(CLAUDE_4_6, body);
    let json = |text: &'static str| Json::parse(text).unwrap();
    let expected = Settings {
        max_tokens: Some(100),
        temperature: Some(json("0.50")),
        top_p: Some(json("1")),
        top_k: Some(json("5")),
        stop: vec!["A".into()],
        choice: Some(ToolChoice::Any),
        parallel: Some(false),
        reasoning: Some(NativeReasoning {
            enabled: Some(true),
            include_thoughts: Some(false),
            ..effort("high")
        }),
        output: Some(OutputFormat::Schema {
            name: None,
            schema: json(r#"{"type":"object"}"#),
            strict: None,
        }),
    };
    assert_eq!(call.settings, expected);
    let wire = Some(Wire::ANTHROPIC_MESSAGES);
    assert_eq!(call.extras, [Extra { wire, key: "container".into(), value: json("\"c\"") }]);
}

#[test]
fn stop_reasons_usage_and_failures_are_decoded() {
    let stop = |reason: &str, sequence: &str| {
        let body = format!(
            r#"{{"content":[],"stop_reason":{reason},"stop_sequence":{sequence},"usage":{{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":20,"output_tokens":4,"output_tokens_details":{{"thinking_tokens":2}}}}}}"#
        );
        let context = DecodeContext::of(target(CLAUDE_4_5));
        let reply = AnthropicMessages.decode_reply(&body.into(), &context).unwrap();
        let usage = Usage { input: 33, cached: 10, written: 20, output: 4, thought: 2 };
        assert_eq!(reply.usage, usage);
        reply.stop
    };
    assert_eq!(stop("\"end_turn\"", "null"), StopReason::Done);
    assert_eq!(stop("\"tool_use\"", "null"), StopReason::Tools);
    assert_eq!(stop("\"max_tokens\"", "null"), StopReason::Length);
    assert_eq!(stop("\"stop_sequence\"", "\"END\""), StopReason::Sequence(Some("END".into())));
    assert_eq!(stop("\"pause_turn\"", "null"), StopReason::Paused);
    assert_eq!(stop("\"refusal\"", "null"), StopReason::Refused("refusal".into()));
    assert_eq!(stop("\"novel\"", "null"), StopReason::Other("novel".into()));
    assert_eq!(stop("null", "null"), StopReason::Cut);
    let fault = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let context = DecodeContext::of(target(CLAUDE_4_5));
    let read = AnthropicMessages.decode_reply(&fault.into(), &context);
    let Err(CodecError::Provider(failure)) = read else { panic!("a failure") };
    assert_eq!(
        (failure.kind.as_deref(), &*failure.message),
        (Some("overloaded_error"), "Overloaded")
    );
}

const STREAM: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":0}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"b2xk"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2VhbC1vbmU="}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"c2VhbC10d28="}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{"}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"}"}}
{"type":"content_block_stop","index":3}
{"type":"content_block_start","index":4,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":4,"delta":{"type":"signature_delta","signature":"c2VhbC10aHJlZQ=="}}
{"type":"content_block_stop","index":4}
{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}
{"type":"message_stop"}
"#;

#[test]
fn stream_and_whole_response_decode_equally() {
    let streamed = ended(&decode(STREAM));
    let original = reply(CLAUDE_4_5, SEALED);
    // The stream sends the signature twice, so the decoder must assign it instead of concatenating.
    assert_eq!(natives(&streamed.items), natives(&original.items));
    let of_all = |reply: &Reply| -> Vec<_> {
        let owned = |(format, at, bytes): (&str, &str, &[u8])| {
            (format.to_owned(), at.to_owned(), bytes.to_owned())
        };
        reply.items.iter().flat_map(seals).map(owned).collect()
    };
    assert_eq!(of_all(&streamed), of_all(&original));
    let essence = |reply: &Reply| (reply.id.clone(), reply.stop.clone(), reply.usage);
    assert_eq!(essence(&streamed), essence(&original));
    // Members that the end of the stream does not repeat must be kept.
    let again = AnthropicMessages.encode_reply(&streamed).unwrap();
    let again =
        AnthropicMessages.decode_reply(&again, &DecodeContext::of(target(CLAUDE_4_5))).unwrap();
    assert_eq!(essence(&again), essence(&original));
}

#[test]
fn reply_round_trips_through_a_stream() {
    let content = r#"[{"type":"thinking","thinking":"hm","signature":"c2VhbC1vbmU="},{"type":"tool_use","id":"t","name":"f","input":{"a":1},"caller":{"type":"direct"}},{"type":"text","text":"","citations":[{"type":"x","encrypted_index":"c2VhbC10d28="}]},{"type":"novel","encrypted_x":"c2VhbC10aHJlZQ=="},{"type":"thinking","thinking":"","signature":"c2VhbC1mb3Vy"}]"#;
    let original = reply(CLAUDE_4_5, content);
    let mut encoder = StreamEncoder::with_framing(&AnthropicMessages, Framing::JsonLines);
    let mut out = Vec::new();
    for event in events_from_reply(&original) {
        encoder.push(&event, &mut out).unwrap();
    }
    encoder.finish(&mut out);
    let decoded = ended(&decode(std::str::from_utf8(&out).unwrap()));
    for (decoded, item) in decoded.items.iter().zip(&original.items) {
        let json = |item: &Item| item.native.as_ref().unwrap().json.canonical();
        assert_eq!(json(decoded), json(item));
        assert_eq!(decoded.body, item.body);
        assert_eq!(seals(decoded), seals(item));
    }
    assert_eq!(decoded.items.len(), original.items.len());
    assert_eq!(
        (decoded.id, decoded.stop, decoded.usage),
        (original.id, original.stop, original.usage)
    );
}

#[test]
fn call_is_written_incrementally() {
    let mut encoder = AnthropicMessages.encoder();
    let item = called(0, "x");
    let opened = Event::Opened { index: 0, id: None, body: item.body.clone() };
    let delta = |text: &str| Event::Delta { index: 0, delta: Delta::Args(text.into()) };
    let closed = Event::Closed { index: 0, item: Box::new(item) };
    let events = [opened, delta("{\"city\":"), delta("\"Oslo\"}"), closed];
    let counts: Vec<_> = events.iter().map(|event| encoder.push(event).unwrap().len()).collect();
    assert_eq!(counts, [0, 2, 1, 1]);
}

#[test]
fn truncated_stream_yields_no_replayable_items() {
    let lines: Vec<&str> = STREAM.split_inclusive('\n').collect();
    for end in 1..lines.len() {
        let cut = ended(&decode(&lines[..end].concat()));
        assert_eq!(cut.stop, StopReason::Cut);
        for item in &cut.items {
            assert_eq!(item.seals, []);
            assert!(!matches!(&item.body, Body::Thought(thought) if thought.whole));
        }
        let mut call = Call::new(target(CLAUDE_4_5));
        call.extend(cut.items);
        assert!(!body(&written(&call)).contains("c2VhbC"));
    }
}

#[test]
fn failures_and_unknown_events_are_forwarded() {
    let mut decoder = AnthropicMessages.decoder(&DecodeContext::of(target(CLAUDE_4_5)));
    let frame =
        |data: &str| Frame { event: None, data: Bytes::from(data.to_owned()), exception: false };
    let fault = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let events = decoder.push(&frame(fault)).unwrap();
    let [Event::Failed(failure)] = events.as_slice() else { panic!("a failure") };
    assert_eq!(&*failure.message, "Overloaded");
    let events = decoder.push(&frame(r#"{"type":"novelty","x":1}"#)).unwrap();
    let [Event::Alien(alien)] = events.as_slice() else { panic!("an alien") };
    assert_eq!(alien.as_str(), r#"{"type":"novelty","x":1}"#);
    assert_eq!(AnthropicMessages.encoder().push(&events[0]).unwrap()[0].data, alien.as_str());
}
