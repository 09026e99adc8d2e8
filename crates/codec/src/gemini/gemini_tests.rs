//! Tests the guarantees of the Gemini codec.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, CallId, Direction, Disposition, ElisionReason, HostedStep, Item, ItemPosition,
    Media, NativePart, Outcome, Part, ReasoningFormat, Reply, Request, ReshapeKind, Role, Seal,
    StopReason, Target, Thought, ThoughtKind, ThreadSecret, ToolCall, ToolResult, Warning, Wire,
};
use throughline_json::{Json, Name, Tree};

use crate::{Catalog, Codec, DecodeContext, Document, Gemini};

#[path = "continuation_tests.rs"]
mod continuation_tests;
#[path = "move_tests.rs"]
mod move_tests;
#[path = "reply_tests.rs"]
mod reply_tests;
#[path = "settings_tests.rs"]
mod settings_tests;

fn target(provider: &str, model: &str) -> Target {
    Catalog::builtin().target_for(provider, model, "work").unwrap()
}

fn gemini_3() -> Target {
    target("gemini", "gemini-3-flash-preview")
}

fn gemini_25() -> Target {
    target("gemini", "gemini-2.5-flash")
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn request(path: &str, body: &str) -> Request {
    Request { path: path.into(), headers: Vec::new(), body: Bytes::from(body.to_owned()) }
}

/// Decodes a request to `to` with the given `contents`.
fn call_of(to: &Target, contents: &str) -> Call {
    let path = format!("/v1beta/models/{}:generateContent", to.model());
    let body = format!(r#"{{"contents":{contents}}}"#);
    Gemini.decode_request(&request(&path, &body), &DecodeContext::of(to.clone())).unwrap()
}

fn reply_of(to: &Target, parts: &str) -> Reply {
    let body = format!(
        r#"{{"candidates":[{{"content":{{"parts":{parts},"role":"model"}},"finishReason":"STOP"}}],"responseId":"r1"}}"#
    );
    Gemini.decode_reply(&Bytes::from(body), &DecodeContext::of(to.clone())).unwrap()
}

fn body_of(call: &Call) -> String {
    String::from_utf8(Gemini.encode(call).unwrap().request.body.to_vec()).unwrap()
}

/// Encodes a request and returns one value of its body.
fn member(call: &Call, pointer: &str) -> Option<String> {
    let tree = Tree::parse(body_of(call)).unwrap();
    tree.root().at(pointer).map(|node| node.json().as_str().to_owned())
}

fn contents(call: &Call) -> String {
    member(call, "/contents").unwrap()
}

fn fates(call: &Call) -> Vec<(Disposition, Vec<Disposition>)> {
    let fates = Gemini.encode(call).unwrap().fates;
    fates.into_iter().map(|fate| (fate.visible, fate.seals)).collect()
}

fn warnings(call: &Call) -> Vec<(String, String)> {
    let warnings = Gemini.encode(call).unwrap().warnings;
    let plain = |w: Warning| (w.setting.to_string(), w.message.to_string());
    warnings.into_iter().map(plain).collect()
}

fn caller_text(id: &str, message: usize, text: &str) -> Item {
    Item::new(id, ItemPosition::new(message, 0), Role::User, Body::Text(text.into()))
}

fn tool_call(id: &str, name: &str, args: &str) -> Body {
    Body::Call(ToolCall {
        id: id.into(),
        wire_id: None,
        name: name.into(),
        args: json(args),
        custom: false,
    })
}

fn answer(call: &str, outcome: Outcome, parts: Vec<Part>) -> Body {
    let call = CallId::from(call);
    Body::Result(ToolResult { call, wire_id: None, name: None, outcome, parts })
}

/// Builds an Item that was decoded from Anthropic's wire.
fn foreign(id: &str, place: ItemPosition, body: Body, part: &str) -> Item {
    let mut item = Item::new(id, place, Role::Assistant, body);
    item.native = Some(NativePart::new(Wire::ANTHROPIC_MESSAGES, Direction::Response, json(part)));
    item.origin = Some(target("anthropic", "claude-sonnet-4-5").origin);
    item
}

fn seals(items: &[Item]) -> Vec<Vec<(&str, &str, &str)>> {
    let shown = |item: &'_ Item| {
        item.seals
            .iter()
            .map(|seal| {
                let bytes: &'static [u8] =
                    Box::leak(seal.reveal_to_tenant().to_vec().into_boxed_slice());
                let at: &'static str = Box::leak(seal.attached.at.to_string().into_boxed_str());
                let format: &'static str = Box::leak(seal.format.to_string().into_boxed_str());
                (std::str::from_utf8(bytes).unwrap(), format, at)
            })
            .collect()
    };
    items.iter().map(shown).collect()
}

#[test]
fn model_and_stream_flag_are_read_from_the_path() {
    let of = |path: &str| {
        let request = request(path, r#"{"contents":[]}"#);
        let call = Gemini.decode_request(&request, &DecodeContext::of(gemini_3())).unwrap();
        (Gemini.model_of(&request).map(|model| model.to_string()), call.stream)
    };
    let vertex = "/v1beta1/projects/p/locations/global/publishers/google/models";
    assert_eq!(of("/v1beta/models/m:generateContent"), (Some("m".to_owned()), false));
    assert_eq!(of("/v1beta/models/m:streamGenerateContent?alt=sse"), (Some("m".to_owned()), true));
    assert_eq!(of(&format!("{vertex}/m:streamGenerateContent")), (Some("m".to_owned()), true));
    assert_eq!(of("/v1beta/models"), (None, false));
    assert_eq!(of(""), (None, false));
}

#[test]
fn model_or_stream_change_rewrites_only_the_path() {
    let body = r#"{ "contents" : [ ] }"#;
    let to = |path: &str, model: &str, stream: bool| {
        let mut call =
            Gemini.decode_request(&request(path, body), &DecodeContext::of(gemini_3())).unwrap();
        call.target = target("gemini", model);
        call.stream = stream;
        let encoded = Gemini.encode(&call).unwrap().request;
        assert_eq!(encoded.body, Bytes::from(body));
        encoded.path.to_string()
    };
    let vertex = "/v1beta1/projects/p/locations/global/publishers/google/models";
    assert_eq!(
        to("/v1beta/models/a:generateContent?key=1", "b", false),
        "/v1beta/models/b:generateContent?key=1"
    );
    assert_eq!(
        to("/v1beta/models/a:generateContent?key=1", "a", true),
        "/v1beta/models/a:streamGenerateContent?key=1&alt=sse"
    );
    assert_eq!(
        to("/v1beta/models/a:streamGenerateContent?alt=sse", "a", false),
        "/v1beta/models/a:generateContent"
    );
    assert_eq!(
        to(&format!("{vertex}/a:streamGenerateContent"), "models/b", true),
        format!("{vertex}/b:streamGenerateContent")
    );
    assert_eq!(to("", "b", false), "");
}

#[test]
fn new_call_uses_the_endpoint_default_path() {
    let path = |target: Target, stream| {
        let mut call = Call::new(target);
        call.stream = stream;
        Gemini.encode(&call).unwrap().request.path.to_string()
    };
    assert_eq!(path(gemini_25(), false), "/v1beta/models/gemini-2.5-flash:generateContent");
    assert_eq!(
        path(gemini_25(), true),
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    );
    assert_eq!(
        path(target("vertex", "gemini-2.5-flash"), false),
        "/v1beta1/publishers/google/models/gemini-2.5-flash:generateContent"
    );
    // A model name cannot select another method.
    assert_eq!(
        path(target("gemini", "gemini-2.5-flash:countTokens?"), false),
        "/v1beta/models/gemini-2.5-flash%3AcountTokens%3F:generateContent"
    );
}

#[test]
fn every_part_decodes_in_either_spelling() {
    let call = call_of(
        &gemini_3(),
        r#"[{"parts":[{"text":"hi"},{"inline_data":{"mime_type":"image/png","data":"AA=="}},{"fileData":{"fileUri":"gs://b/f","mimeType":"text/plain"}}]},
        {"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"name":"f","args":{"x":1}}},{"executable_code":{"code":"1","id":"c"}},{"toolResponse":{"toolType":"FILE_SEARCH","id":"t"}},{"hologram":1}]},
        {"role":"user","parts":[{"function_response":{"name":"f","response":{"output":"ok"}}}]}]"#,
    );
    let bodies: Vec<(Role, Body)> =
        call.items.iter().map(|item| (item.role, item.body.clone())).collect();
    let hosted = |name: &str, id: &str, is_result, visible: &str| {
        Body::Hosted(HostedStep {
            name: name.into(),
            pairs: Some(id.into()),
            is_result,
            visible: visible.into(),
        })
    };
    let thought = Thought::issued("hm", ThoughtKind::Summary, ReasoningFormat::GoogleGeminiV1);
    let inline = Media::Inline { mime: "image/png".into(), base64: Bytes::from_static(b"AA==") };
    let remote = Media::Remote {
        mime: Some("text/plain".into()),
        uri: "gs://b/f".into(),
        owner: Some(gemini_3().origin),
    };
    let result = ToolResult {
        call: "call_1_1".into(),
        wire_id: None,
        name: Some("f".into()),
        outcome: Outcome::Ok,
        parts: vec![Part::Text("ok".into())],
    };
    let expected = vec![
        (Role::User, Body::Text("hi".into())),
        (Role::User, Body::Media(inline)),
        (Role::User, Body::Media(remote)),
        (Role::Assistant, Body::Thought(thought)),
        (Role::Assistant, tool_call("call_1_1", "f", r#"{"x":1}"#)),
        (Role::Assistant, hosted("code_execution", "c", false, "1")),
        (Role::Assistant, hosted("file_search", "t", true, "")),
        (Role::Assistant, Body::Unknown),
        (Role::User, Body::Result(result)),
    ];
    assert_eq!(bodies, expected);
}

#[test]
fn signature_on_any_part_is_a_seal() {
    let reply = reply_of(
        &gemini_3(),
        r#"[{"functionCall":{"name":"f"},"thoughtSignature":"c2VhbC1vbmU="},{"text":"","thoughtSignature":"a+/b"},{"text":"x","thought":true,"thought_signature":"a-_b"},{"executableCode":{},"thoughtSignature":"s4"},{"hologram":1,"thoughtSignature":"s5"},{"text":"x","thoughtSignature":""}]"#,
    );
    let seal = |bytes, at| vec![(bytes, "gemini.thought_signature", at)];
    let expected = vec![
        seal("c2VhbC1vbmU=", "/thoughtSignature"),
        seal("a+/b", "/thoughtSignature"),
        seal("a-_b", "/thought_signature"),
        seal("s4", "/thoughtSignature"),
        seal("s5", "/thoughtSignature"),
        vec![],
    ];
    assert_eq!(seals(&reply.items), expected);
}

#[test]
fn documented_stand_in_is_not_a_seal() {
    for stand_in in [
        "skip_thought_signature_validator",
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "context_engineering_is_the_way_to_go",
        "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
    ] {
        let part =
            format!(r#"[{{"functionCall":{{"name":"f"}},"thoughtSignature":"{stand_in}"}}]"#);
        assert_eq!(seals(&reply_of(&gemini_3(), &part).items), vec![vec![]]);
    }
}

#[test]
fn responses_match_calls_by_id_or_by_name_in_order() {
    let call = call_of(
        &gemini_3(),
        r#"[{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"f"}},{"functionCall":{"name":"g","id":"k"}},{"functionCall":{"name":"h"}}]},
        {"role":"user","parts":[{"functionResponse":{"name":"g","id":"k","response":{}}},{"functionResponse":{"name":"f","response":{}}},{"functionResponse":{"name":"f","response":{}}},{"functionResponse":{"name":"h","id":"invented","response":{}}}]}]"#,
    );
    let answered: Vec<String> = call
        .items
        .iter()
        .filter_map(|item| match &item.body {
            Body::Result(result) => Some(result.call.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(answered, ["k", "call_0_0", "call_0_1", "call_0_3"]);
}

#[test]
fn calls_without_id_get_one_from_the_reply() {
    let reply = reply_of(&gemini_3(), r#"[{"functionCall":{"name":"f","args":{}}}]"#);
    assert_eq!(reply.items[0].body, tool_call("r1.0.0", "f", "{}"));
    assert_eq!(reply.stop, StopReason::Tools);
}

#[test]
fn tool_output_is_decoded_by_its_member() {
    let decoded = |response: &str| {
        let contents = format!(
            r#"[{{"parts":[{{"functionResponse":{{"name":"f","response":{response}}}}}]}}]"#
        );
        match &call_of(&gemini_3(), &contents).items[0].body {
            Body::Result(result) => (result.outcome, result.parts.clone()),
            other => panic!("{other:?}"),
        }
    };
    let value = |text: &str| vec![Part::Value(json(text))];
    assert_eq!(decoded(r#"{"output":"a"}"#), (Outcome::Ok, vec![Part::Text("a".into())]));
    assert_eq!(decoded(r#"{"result":[1]}"#), (Outcome::Ok, value("[1]")));
    assert_eq!(decoded(r#"{"error":"no"}"#), (Outcome::Error, vec![Part::Text("no".into())]));
    assert_eq!(decoded(r#"{"a":1,"error":2}"#), (Outcome::Ok, value(r#"{"a":1,"error":2}"#)));
}

#[test]
fn own_parts_are_replayed_separately_with_signatures() {
    let mut call = call_of(&gemini_3(), r#"[{"role":"user","parts":[{"text":"go"}]}]"#);
    let reply = reply_of(
        &gemini_3(),
        r#"[{"functionCall":{"name":"f","args":{"a":1.0},"willContinue":false},"thoughtSignature":"c2VhbC1vbmU="},{"functionCall":{"name":"g","args":{}}},{"text":"a","thoughtSignature":"s2"},{"text":"b"},{"text":"","thoughtSignature":"s3"}]"#,
    );
    call.extend(reply.items);
    let expected = r#"[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":1.0}},"thoughtSignature":"c2VhbC1vbmU="},{"functionCall":{"name":"g","args":{}}},{"text":"a","thoughtSignature":"s2"},{"text":"b"},{"text":"","thoughtSignature":"s3"}]}]"#;
    assert_eq!(contents(&call), expected);
    assert!(fates(&call).iter().all(|(visible, _)| *visible == Disposition::Kept));
}

#[test]
fn unsigned_thoughts_and_empty_texts_are_not_replayed() {
    let mut call = call_of(&gemini_3(), "[]");
    let parts = r#"[{"text":"hm","thought":true},{"text":"ah","thought":true,"thoughtSignature":"s1"},{"text":"yes"},{"text":""}]"#;
    call.extend(reply_of(&gemini_3(), parts).items);
    let expected = r#"[{"role":"model","parts":[{"text":"ah","thought":true,"thoughtSignature":"s1"},{"text":"yes"}]}]"#;
    assert_eq!(contents(&call), expected);
    let expected = [
        (Disposition::Elided(ElisionReason::Unsigned), vec![]),
        (Disposition::Kept, vec![Disposition::Kept]),
        (Disposition::Kept, vec![]),
        (Disposition::Elided(ElisionReason::NotOnThisWire), vec![]),
    ];
    assert_eq!(fates(&call), expected);
}

#[test]
fn other_endpoint_gets_stand_ins_instead_of_signatures() {
    let mut call = call_of(
        &target("vertex", "gemini-3-flash-preview"),
        r#"[{"role":"model","parts":[{"text":"t","thoughtSignature":"s0"},{"functionCall":{"name":"f","id":"a"},"thoughtSignature":"s1"},{"functionCall":{"name":"g","id":"b"}}]},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{}}},{"functionResponse":{"id":"b","name":"g","response":{}}}]},{"role":"model","parts":[{"text":"","thoughtSignature":"s2"},{"functionCall":{"name":"f"},"thought_signature":"s3"}]}]"#,
    );
    call.target = gemini_3();
    let expected = r#"[{"role":"model","parts":[{"text":"t"},{"functionCall":{"name":"f","id":"a"},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"g","id":"b"}}]},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{}}},{"functionResponse":{"id":"b","name":"g","response":{}}}]},{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":"skip_thought_signature_validator"}]}]"#;
    assert_eq!(contents(&call), expected);
    let foreign = || vec![Disposition::Elided(ElisionReason::Foreign)];
    let stand_in = || Disposition::Reshaped(ReshapeKind::StandIn);
    let expected = [
        (Disposition::Kept, foreign()),
        (stand_in(), foreign()),
        (Disposition::Kept, vec![]),
        (Disposition::Kept, vec![]),
        (Disposition::Kept, vec![]),
        (Disposition::Elided(ElisionReason::Foreign), foreign()),
        (stand_in(), foreign()),
    ];
    assert_eq!(fates(&call), expected);
}

#[test]
fn unsigned_step_of_older_model_gets_a_stand_in_for_gemini_3() {
    let contents_25 = r#"[{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}]"#;
    let mut call = call_of(&gemini_25(), contents_25);
    assert_eq!(contents(&call), contents_25);
    call.target = gemini_3();
    let expected = r#"[{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}]}]"#;
    assert_eq!(contents(&call), expected);
    // A request that was already sent to Gemini 3 stays unchanged.
    assert_eq!(contents(&call_of(&gemini_3(), contents_25)), contents_25);
}

#[test]
fn foreign_calls_and_results_are_translated() {
    let mut call = Call::new(gemini_3());
    let place = |part| ItemPosition::new(1, part);
    let thought = Thought::issued("secret", ThoughtKind::Text, ReasoningFormat::AnthropicClaudeV1);
    let mut sealed = foreign("t", place(0), Body::Thought(thought), r#"{"type":"thinking"}"#);
    let owner = Arc::clone(sealed.origin.as_ref().unwrap());
    sealed.seals.push(Seal::new(
        Bytes::from_static(b"foreign-seal"),
        "anthropic.signature",
        owner,
        "/signature",
    ));
    call.items = vec![
        caller_text("q", 0, "go"),
        sealed,
        foreign("a", place(1), tool_call("toolu.1", "f", r#"{"x":1}"#), r#"{"cache_control":{}}"#),
        foreign("b", place(2), tool_call("toolu.2", "g", r#""free""#), "{}"),
    ];
    let result = |id: &str, message, call: &str, outcome, part| {
        let body = answer(call, outcome, vec![part]);
        Item::new(id, ItemPosition::new(message, 0), Role::Tool, body)
    };
    call.items.push(result("ra", 2, "toolu.1", Outcome::Ok, Part::Text("fine".into())));
    call.items.push(result("rb", 3, "toolu.2", Outcome::Denied, Part::Text("no".into())));
    let expected = r#"[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"x":1},"id":"toolu_1"},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"g","args":{"input":"free"},"id":"toolu_2"}}]},{"role":"user","parts":[{"functionResponse":{"id":"toolu_1","name":"f","response":{"output":"fine"}}},{"functionResponse":{"id":"toolu_2","name":"g","response":{"error":"no"}}}]}]"#;
    assert_eq!(contents(&call), expected);
    let expected = [
        (Disposition::Kept, vec![]),
        (
            Disposition::Elided(ElisionReason::Foreign),
            vec![Disposition::Elided(ElisionReason::Foreign)],
        ),
        (Disposition::Reshaped(ReshapeKind::StandIn), vec![]),
        (Disposition::Reshaped(ReshapeKind::OtherWire), vec![]),
        (Disposition::Kept, vec![]),
        (Disposition::Kept, vec![]),
    ];
    assert_eq!(fates(&call), expected);
    let message = "cache markers cannot be translated to another wire; they were omitted";
    assert_eq!(warnings(&call), [("cache_control".to_owned(), message.to_owned())]);
    // Gemini 2.5 does not require signatures.
    call.target = gemini_25();
    assert!(!contents(&call).contains("thoughtSignature"));
}

#[test]
fn longer_thread_extends_the_contents_of_the_shorter() {
    let mut call = Call::new(gemini_3());
    call.items = vec![
        caller_text("q", 0, "go"),
        foreign("a", ItemPosition::new(1, 0), tool_call("c1", "f", "{}"), "{}"),
    ];
    let shorter = contents(&call);
    call.items.push(Item::new(
        "r",
        ItemPosition::new(2, 0),
        Role::Tool,
        answer("c1", Outcome::Ok, vec![]),
    ));
    call.extend(reply_of(&gemini_3(), r#"[{"text":"done","thoughtSignature":"s1"}]"#).items);
    call.extend([caller_text("q2", 0, "thanks")]);
    let longer = contents(&call);
    assert!(longer.starts_with(shorter.trim_end_matches(']')), "{shorter}\n{longer}");
}

#[test]
fn caller_thought_becomes_enveloped_text_or_a_part() {
    let thought = |payload: Option<&str>, tag: Option<&str>| {
        let mut thought = Thought::issued("perhaps", ThoughtKind::Text, ReasoningFormat::unknown());
        thought.payload = payload.map(json);
        thought.replay_compatibility = tag.map(Name::from);
        Body::Thought(thought)
    };
    let part = r#"{"text":"perhaps","thought":true}"#;
    let mut call = Call::new(gemini_3());
    call.replay.secret = Some(ThreadSecret::new([7; 32]));
    let item = |id: &str, message, body| {
        Item::new(id, ItemPosition::new(message, 0), Role::Assistant, body)
    };
    call.items = vec![
        item("plain", 0, thought(None, None)),
        item("typed", 1, thought(Some(part), Some("gemini-thought-part-v1"))),
        item("other", 2, thought(Some("1"), Some("another-elses"))),
    ];
    let tree = Tree::parse(body_of(&call)).unwrap();
    let at = |pointer: &str| tree.root().at(pointer).unwrap();
    assert!(at("/contents/0/role").is("user"));
    assert!(at("/contents/0/parts/0/text").text().unwrap().contains("perhaps"));
    assert!(at("/contents/1/role").is("model"));
    assert_eq!(at("/contents/1/parts/0").json().as_str(), part);
    let expected = [
        (Disposition::Reshaped(ReshapeKind::Enveloped), vec![]),
        (Disposition::Kept, vec![]),
        (Disposition::Elided(ElisionReason::ByPolicy), vec![]),
    ];
    assert_eq!(fates(&call), expected);
}

#[test]
fn images_are_inside_responses_only_since_gemini_3() {
    let picture = Media::Inline { mime: "image/png".into(), base64: Bytes::from_static(b"AA==") };
    let elsewhere = Media::Remote {
        mime: None,
        uri: "file-1".into(),
        owner: Some(target("openai", "gpt-5").origin),
    };
    let mut call = Call::new(gemini_3());
    let parts = vec![Part::Text("see".into()), Part::Media(picture), Part::Media(elsewhere)];
    let body = answer("c1", Outcome::Ok, parts);
    call.items = vec![Item::new("r", ItemPosition::new(0, 0), Role::Tool, body)];
    let inside = r#"[{"role":"user","parts":[{"functionResponse":{"name":"c1","response":{"output":"see"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}}]}]"#;
    assert_eq!(contents(&call), inside);
    call.target = gemini_25();
    let beside = r#"[{"role":"user","parts":[{"functionResponse":{"name":"c1","response":{"output":"see"}}},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}]"#;
    assert_eq!(contents(&call), beside);
    let message = "a file stored by another provider was left out";
    assert_eq!(warnings(&call), [("media".to_owned(), message.to_owned())]);
}

#[test]
fn system_prompts_of_other_wires_become_the_system_instruction() {
    let mut call = Call::new(gemini_25());
    let system = |id: &str, text: &str| {
        Item::new(id, ItemPosition::new(0, 0), Role::System, Body::Text(text.into()))
    };
    call.system = vec![system("s", "Be kind.")];
    call.items = vec![system("d", "Be brief."), caller_text("q", 1, "go")];
    assert_eq!(
        body_of(&call),
        r#"{"systemInstruction":{"parts":[{"text":"Be kind."},{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"go"}]}]}"#
    );
}

#[test]
fn documents_are_recognised() {
    let recognised = |text: &str| {
        let tree = Tree::parse(text.to_owned()).unwrap();
        Gemini.recognise(tree.root())
    };
    assert_eq!(recognised(r#"{"contents":[]}"#), Some(Document::Request));
    assert_eq!(recognised(r#"{"candidates":[]}"#), Some(Document::Response));
    assert_eq!(recognised(r#"{"promptFeedback":{}}"#), Some(Document::Response));
    assert_eq!(
        recognised(r#"{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}"#),
        Some(Document::Response)
    );
    assert_eq!(recognised(r#"{"error":{"message":"m","type":"t","code":"c"}}"#), None);
    assert_eq!(recognised(r#"{"messages":[]}"#), None);
}
