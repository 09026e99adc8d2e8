//! Tests the conversion between Call settings and Gemini requests.

use throughline_core::{
    Call, Direction, NativePart, NativeReasoning, OutputFormat, Settings, Target, Tool, ToolChoice,
    Wire,
};
use throughline_json::Json;

use super::{body_of, gemini_3, gemini_25, json, member, request, target, warnings};
use crate::{Codec, DecodeContext, Gemini};

fn with_reasoning(target: Target, reasoning: NativeReasoning) -> Call {
    let mut call = Call::new(target);
    call.settings.reasoning = Some(reasoning);
    call
}

#[test]
fn reasoning_becomes_a_level_or_budget_by_model() {
    let thinking = |model: &str, reasoning: NativeReasoning| {
        let call = with_reasoning(target("gemini", model), reasoning);
        let settings: Vec<String> =
            warnings(&call).into_iter().map(|(setting, _)| setting).collect();
        (member(&call, "/generationConfig/thinkingConfig"), settings.join(" "))
    };
    let effort = |word: &str| NativeReasoning { effort: Some(word.into()), ..Default::default() };
    let budget = |tokens| NativeReasoning { budget_tokens: Some(tokens), ..Default::default() };
    let expected = |config: &str, warned: &str| (Some(config.to_owned()), warned.to_owned());
    let none = |warned: &str| (None, warned.to_owned());
    let shown = NativeReasoning { include_thoughts: Some(true), ..effort("low") };
    let hidden = NativeReasoning { include_thoughts: Some(true), ..effort("none") };
    let on = NativeReasoning { enabled: Some(true), ..Default::default() };

    assert_eq!(
        thinking("gemini-3-flash-preview", shown),
        expected(r#"{"includeThoughts":true,"thinkingLevel":"LOW"}"#, "")
    );
    assert_eq!(
        thinking("gemini-3-pro-preview", effort("minimal")),
        expected(r#"{"thinkingLevel":"LOW"}"#, "reasoning.effort")
    );
    assert_eq!(
        thinking("gemini-3-flash-preview", effort("none")),
        expected(r#"{"thinkingLevel":"MINIMAL"}"#, "reasoning")
    );
    assert_eq!(
        thinking("gemini-3-flash-preview", budget(2000)),
        expected(r#"{"thinkingLevel":"LOW"}"#, "reasoning.budget_tokens")
    );
    assert_eq!(
        thinking("gemini-2.5-flash", effort("low")),
        expected(r#"{"thinkingBudget":2048}"#, "")
    );
    assert_eq!(
        thinking("gemini-2.5-flash", budget(99_999)),
        expected(r#"{"thinkingBudget":24576}"#, "reasoning.budget_tokens")
    );
    assert_eq!(
        thinking("gemini-2.5-flash", hidden),
        expected(r#"{"thinkingBudget":0}"#, "reasoning.include_thoughts")
    );
    assert_eq!(
        thinking("gemini-2.5-pro", effort("none")),
        expected(r#"{"thinkingBudget":128}"#, "reasoning")
    );
    assert_eq!(
        thinking("gemini-2.5-flash-lite", on.clone()),
        expected(r#"{"thinkingBudget":-1}"#, "")
    );
    assert_eq!(thinking("gemini-2.5-flash", on), none(""));
    assert_eq!(thinking("gemini-2.0-flash", effort("low")), none("reasoning"));
    assert_eq!(thinking("mystery", effort("low")), expected(r#"{"thinkingLevel":"LOW"}"#, ""));
    assert_eq!(thinking("mystery", effort("none")), expected(r#"{"thinkingBudget":0}"#, ""));
    assert_eq!(thinking("mystery", budget(5)), expected(r#"{"thinkingBudget":5}"#, ""));
}

#[test]
fn thinking_settings_are_rewritten_for_another_model() {
    let body = r#"{"contents":[],"generation_config":{"seed":1,"thinking_config":{"thinking_level":"LOW","include_thoughts":true}}}"#;
    let path = "/v1beta/models/gemini-3-flash-preview:generateContent";
    let mut call =
        Gemini.decode_request(&request(path, body), &DecodeContext::of(gemini_3())).unwrap();
    call.target = gemini_25();
    let expected = r#"{"contents":[],"generation_config":{"seed":1,"thinking_config":{"include_thoughts":true,"thinkingBudget":2048}}}"#;
    assert_eq!(body_of(&call), expected);
}

#[test]
fn settings_decode_and_unknown_members_are_preserved() {
    let body = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"maxOutputTokens":5,"temperature":1.0,"topP":0.5,"topK":4,"stopSequences":["x"],"responseMimeType":"application/json","responseSchema":{"type":"OBJECT"},"seed":3,"thinkingConfig":{"thinkingBudget":-1}},"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}},"labels":{}}"#;
    let mut call =
        Gemini.decode_request(&request("", body), &DecodeContext::of(gemini_25())).unwrap();
    let expected = Settings {
        max_tokens: Some(5),
        temperature: Some(json("1.0")),
        top_p: Some(json("0.5")),
        top_k: Some(json("4")),
        stop: vec!["x".into()],
        choice: Some(ToolChoice::Tool("f".into())),
        parallel: None,
        reasoning: Some(NativeReasoning { enabled: Some(true), ..Default::default() }),
        output: Some(OutputFormat::Schema {
            name: None,
            schema: json(r#"{"type":"object"}"#),
            strict: None,
        }),
    };
    assert_eq!(call.settings, expected);
    let extras: Vec<&str> = call.extras.iter().map(|extra| &*extra.key).collect();
    assert_eq!(extras, ["generationConfig.seed", "labels"]);
    assert_eq!(body_of(&call), body);

    call.settings.max_tokens = Some(6);
    call.settings.top_k = None;
    call.settings.output = Some(OutputFormat::Json);
    call.settings.choice = Some(ToolChoice::Auto);
    let edited = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"maxOutputTokens":6,"temperature":1.0,"topP":0.5,"stopSequences":["x"],"responseMimeType":"application/json","seed":3,"thinkingConfig":{"thinkingBudget":-1}},"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},"labels":{}}"#;
    assert_eq!(body_of(&call), edited);
}

#[test]
fn unsupported_content_is_reported() {
    let mut call = Call::new(gemini_25());
    call.settings.parallel = Some(false);
    call.settings.choice = Some(ToolChoice::Other(json(r#"{"type":"custom"}"#)));
    call.resumes = Some("resp_1".into());
    call.extras.push(throughline_core::Extra {
        wire: Some(Wire::OPENAI_CHAT),
        key: "logprobs".into(),
        value: json("true"),
    });
    call.tools.push(Tool {
        name: "web_search".into(),
        description: None,
        schema: None,
        hosted: true,
        native: Some(NativePart::new(Wire::ANTHROPIC_MESSAGES, Direction::Request, json("{}"))),
    });
    let settings: Vec<String> = warnings(&call).into_iter().map(|(setting, _)| setting).collect();
    assert_eq!(settings, ["tools", "previous_response_id", "logprobs", "parallel", "tool_choice"]);
    assert_eq!(body_of(&call), r#"{"contents":[]}"#);
}

#[test]
fn every_calling_mode_maps_to_a_tool_choice() {
    let choice = |calling: &str| {
        let body =
            format!(r#"{{"contents":[],"toolConfig":{{"functionCallingConfig":{calling}}}}}"#);
        let call =
            Gemini.decode_request(&request("", &body), &DecodeContext::of(gemini_25())).unwrap();
        call.settings.choice
    };
    let validated = r#"{"mode":"VALIDATED"}"#;
    let several = r#"{"mode":"ANY","allowedFunctionNames":["f","g"]}"#;
    assert_eq!(choice(r#"{"mode":"AUTO"}"#), Some(ToolChoice::Auto));
    assert_eq!(choice(r#"{"mode":"none"}"#), Some(ToolChoice::None));
    assert_eq!(choice(r#"{"mode":"ANY"}"#), Some(ToolChoice::Any));
    assert_eq!(choice(validated), Some(ToolChoice::Other(json(validated))));
    assert_eq!(choice(several), Some(ToolChoice::Other(json(several))));
    assert_eq!(choice("{}"), None);
}

#[test]
fn tools_decode_separately_and_encode_together() {
    let body = r#"{"contents":[],"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING","enum":["STRING"]}}}},{"name":"g"}],"googleSearch":{}},{"codeExecution":{}}]}"#;
    let mut call =
        Gemini.decode_request(&request("", body), &DecodeContext::of(gemini_25())).unwrap();
    let tools: Vec<(&str, bool, Option<&str>)> = call
        .tools
        .iter()
        .map(|tool| (&*tool.name, tool.hosted, tool.schema.as_ref().map(Json::as_str)))
        .collect();
    let schema = r#"{"type":"object","properties":{"type":{"type":"string","enum":["STRING"]}}}"#;
    let expected = [
        ("f", false, Some(schema)),
        ("g", false, None),
        ("googleSearch", true, None),
        ("codeExecution", true, None),
    ];
    assert_eq!(tools, expected);
    assert_eq!(body_of(&call), body);

    call.tools.remove(1);
    call.tools.push(Tool {
        name: "h".into(),
        description: Some("Helps.".into()),
        schema: Some(json(r#"{"type":"object","$defs":{}}"#)),
        hosted: false,
        native: None,
    });
    let edited = r#"{"contents":[],"tools":[{"googleSearch":{}},{"codeExecution":{}},{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING","enum":["STRING"]}}}},{"name":"h","description":"Helps.","parametersJsonSchema":{"type":"object","$defs":{}}}]}]}"#;
    assert_eq!(body_of(&call), edited);
}
