//! Tests requests that move to another endpoint, and conversations from other wires.

use throughline_core::{
    Call, Extra, Item, ItemPosition, Outcome, Part, Role, Tool, ToolChoice, Wire,
};

use super::{
    answer, body_of, caller_text, contents, foreign, gemini_3, gemini_25, json, request, target,
    tool_call, warnings,
};
use crate::{Codec, DecodeContext, Gemini};

fn warned_settings(call: &Call) -> Vec<String> {
    warnings(call).into_iter().map(|(setting, _)| setting).collect()
}

#[test]
fn moved_request_uses_the_new_endpoint_path() {
    let vertex = target("vertex", "gemini-3-flash-preview");
    let theirs = "/v1/projects/p/locations/global/publishers/google/models/gemini-3-flash-preview:generateContent";
    let body = r#"{"contents":[],"cachedContent":"projects/p/cachedContents/1"}"#;
    let mut call =
        Gemini.decode_request(&request(theirs, body), &DecodeContext::of(vertex)).unwrap();
    assert_eq!(&*Gemini.encode(&call).unwrap().request.path, theirs);
    assert_eq!(body_of(&call), body);
    call.target = gemini_3();
    let path = Gemini.encode(&call).unwrap().request.path;
    assert_eq!(&*path, "/v1beta/models/gemini-3-flash-preview:generateContent");
    assert_eq!(body_of(&call), r#"{"contents":[]}"#);
    assert_eq!(warned_settings(&call), ["cachedContent"]);
}

#[test]
fn tool_choice_requires_the_named_tools() {
    let mut call = Call::new(gemini_25());
    call.settings.choice = Some(ToolChoice::Tool("f".into()));
    assert_eq!(body_of(&call), r#"{"contents":[]}"#);
    assert_eq!(warned_settings(&call), ["tool_choice"]);
    let (name, hosted) = ("f".into(), false);
    call.tools = vec![Tool { name, description: None, schema: None, hosted, native: None }];
    assert!(body_of(&call).contains(r#""allowedFunctionNames":["f"]"#));

    let body = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}"#;
    let mut call =
        Gemini.decode_request(&request("", body), &DecodeContext::of(gemini_25())).unwrap();
    assert_eq!(body_of(&call), body);
    call.tools.clear();
    assert_eq!(body_of(&call), r#"{"contents":[],"tools":[]}"#);
    let odd = r#"{"contents":[],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}"#;
    let call = Gemini.decode_request(&request("", odd), &DecodeContext::of(gemini_25())).unwrap();
    assert_eq!(body_of(&call), odd);
}

#[test]
fn unrepresented_settings_are_rejoined_without_the_source() {
    let body = r#"{"contents":[],"generation_config":{"seed":1,"topK":2,"thinkingConfig":{"odd":true}},"toolConfig":{"retrievalConfig":{}}}"#;
    let mut call =
        Gemini.decode_request(&request("", body), &DecodeContext::of(gemini_25())).unwrap();
    let keys: Vec<&str> = call.extras.iter().map(|extra| &*extra.key).collect();
    let expected = [
        "generation_config.seed",
        "generation_config.thinkingConfig.odd",
        "toolConfig.retrievalConfig",
    ];
    assert_eq!(keys, expected);
    call.source = None;
    call.settings.reasoning = None;
    let fresh = r#"{"contents":[],"generationConfig":{"seed":1,"topK":2,"thinkingConfig":{"odd":true}},"toolConfig":{"retrievalConfig":{}}}"#;
    assert_eq!(body_of(&call), fresh);
    let extra = Extra { wire: Some(Wire::GEMINI), key: "labels".into(), value: json("{}") };
    call.extras = vec![extra];
    assert!(body_of(&call).ends_with(r#""generationConfig":{"topK":2}}"#), "{}", body_of(&call));
}

#[test]
fn non_object_arguments_are_wrapped_once() {
    let args = |args: &str| {
        let mut call = Call::new(gemini_25());
        call.items = vec![foreign("a", ItemPosition::new(0, 0), tool_call("c", "f", args), "{}")];
        super::member(&call, "/contents/0/parts/0/functionCall/args").unwrap()
    };
    assert_eq!(args(r#""{\"city\": \"Os""#), r#"{"input":"{\"city\": \"Os"}"#);
    assert_eq!(args(r#"{"input":"x"}"#), r#"{"input":"x"}"#);
    assert_eq!((args(r#""""#), args("null")), ("{}".to_owned(), "{}".to_owned()));
}

#[test]
fn responses_follow_the_order_of_their_calls_in_one_content() {
    let mut call = Call::new(gemini_3());
    let step = |id: &str, message, call: &str| {
        foreign(id, ItemPosition::new(message, 0), tool_call(call, "f", "{}"), "{}")
    };
    let result = |id: &str, message, call: &str| {
        let body = answer(call, Outcome::Ok, vec![Part::Text(id.into())]);
        Item::new(id, ItemPosition::new(message, 0), Role::Tool, body)
    };
    call.items = vec![
        caller_text("q", 0, "go"),
        foreign("e", ItemPosition::new(1, 0), throughline_core::Body::Text("".into()), "{}"),
        step("a", 1, "one"),
        step("b", 2, "two"),
        result("second", 3, "two"),
        result("first", 4, "one"),
        step("c", 5, "three"),
        result("third", 6, "three"),
    ];
    let expected = concat!(
        r#"[{"role":"user","parts":[{"text":"go"}]},"#,
        r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{},"id":"one"},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"f","args":{},"id":"two"}}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"id":"one","name":"f","response":{"output":"first"}}},{"functionResponse":{"id":"two","name":"f","response":{"output":"second"}}}]},"#,
        r#"{"role":"model","parts":[{"functionCall":{"name":"f","args":{},"id":"three"},"thoughtSignature":"skip_thought_signature_validator"}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"id":"three","name":"f","response":{"output":"third"}}}]}]"#,
    );
    assert_eq!(contents(&call), expected);
    let fates: Vec<_> = Gemini.encode(&call).unwrap().fates;
    let item_ids: Vec<&str> = fates.iter().map(|fate| &*fate.item.0).collect();
    assert_eq!(item_ids, ["q", "e", "a", "b", "second", "first", "c", "third"]);
}

#[test]
fn result_without_a_call_gets_a_safe_id_and_name() {
    let mut call = Call::new(gemini_25());
    let mut body = answer("toolu 1/é", Outcome::Ok, vec![]);
    if let throughline_core::Body::Result(result) = &mut body {
        result.wire_id = Some("toolu 1/é".into());
    }
    call.items = vec![Item::new("r", ItemPosition::new(0, 0), Role::Tool, body)];
    let expected = r#"[{"role":"user","parts":[{"functionResponse":{"id":"toolu_1__","name":"toolu_1__","response":{"output":""}}}]}]"#;
    assert_eq!(contents(&call), expected);
}

#[test]
fn client_result_uses_the_id_of_the_translated_call() {
    let mut call = Call::new(gemini_25());
    call.items = vec![foreign("a", ItemPosition::new(0, 0), tool_call("toolu/1", "f", "{}"), "{}")];
    let body = r#"{"contents":[{"role":"user","parts":[{"functionResponse":{"id":"toolu/1","name":"f","response":{}}}]}]}"#;
    let context = DecodeContext::of(gemini_25());
    let mut answered = Gemini.decode_request(&request("", body), &context).unwrap().items;
    if let throughline_core::Body::Result(result) = &mut answered[0].body {
        result.call = "toolu/1".into();
    }
    call.extend(answered);
    assert_eq!(
        super::member(&call, "/contents/1/parts/0/functionResponse/id").unwrap(),
        r#""toolu_1""#
    );
}
