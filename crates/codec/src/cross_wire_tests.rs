//! Tests that settings keep their meaning on another wire.

use serde_json::{Value, json};
use throughline_core::{Call, Disposition, EncodedRequest, Request, ReshapeKind};

use crate::{Catalog, Codec, DecodeContext, codec};

/// The catalog entry, model and thinking members of a dialect.
struct TestDialect {
    row: &'static str,
    model: &'static str,
}

const ANTHROPIC: TestDialect = TestDialect { row: "anthropic", model: "claude-sonnet-4-5" };
const OPENAI: TestDialect = TestDialect { row: "openai", model: "gpt-5.2" };
const CHAT: TestDialect = TestDialect { row: "openrouter", model: "z-ai/glm-5" };
const GEMINI: TestDialect = TestDialect { row: "gemini", model: "gemini-3-pro-preview" };
const CONVERSE: TestDialect =
    TestDialect { row: "bedrock", model: "us.anthropic.claude-sonnet-4-5" };
const OPUS: TestDialect = TestDialect { row: "anthropic", model: "claude-opus-5-5" };

impl TestDialect {
    fn codec(&self) -> &'static dyn Codec {
        codec(&self.target().origin.wire).unwrap()
    }

    fn target(&self) -> throughline_core::Target {
        Catalog::builtin().target_for(self.row, self.model, "test").unwrap()
    }

    /// Decodes a request with the given settings in this dialect.
    fn decode(&self, settings: &Value) -> Call {
        let mut body = match self.row {
            "gemini" => json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
            "bedrock" => json!({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}),
            "openai" => json!({"model": self.model, "input": [{"role": "user", "content": "Hi"}]}),
            _ => {
                let messages = json!([{"role": "user", "content": "Hi"}]);
                json!({"model": self.model, "max_tokens": 9000, "messages": messages})
            }
        };
        for (key, value) in settings.as_object().unwrap() {
            body[key] = value.clone();
        }
        let path = self.codec().path(&self.target(), false).into();
        let request = Request { path, headers: Vec::new(), body: body.to_string().into() };
        self.codec().decode_request(&request, &DecodeContext::of(self.target())).unwrap()
    }

    fn encode(&self, mut call: Call) -> EncodedRequest {
        call.target = self.target();
        self.codec().encode(&call).unwrap()
    }
}

fn body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.request.body).unwrap()
}

/// Translates settings and returns the member at `pointer` in the translated request.
fn translated(from: &TestDialect, settings: &Value, to: &TestDialect, pointer: &str) -> Value {
    let body = body(&to.encode(from.decode(settings)));
    body.pointer(pointer).cloned().unwrap_or_default()
}

/// The settings with which clients of each dialect receive readable thoughts.
fn visible_settings() -> Vec<(TestDialect, Value)> {
    let enabled = json!({"type": "enabled", "budget_tokens": 4096});
    vec![
        (ANTHROPIC, json!({"thinking": enabled})),
        (ANTHROPIC, json!({"thinking": {"type": "adaptive", "display": "summarized"}})),
        (OPENAI, json!({"reasoning": {"effort": "medium", "summary": "auto"}})),
        (OPENAI, json!({"reasoning": {"summary": "detailed"}})),
        (CHAT, json!({"reasoning_effort": "medium"})),
        (CHAT, json!({"reasoning": {"enabled": true}})),
        (CHAT, json!({"thinking": {"type": "enabled"}})),
        (GEMINI, json!({"generationConfig": {"thinkingConfig": {"includeThoughts": true}}})),
        (CONVERSE, json!({"additionalModelRequestFields": {"thinking": enabled}})),
    ]
}

/// The settings with which clients of each dialect receive no readable thoughts.
fn hidden_settings() -> Vec<(TestDialect, Value)> {
    let config = json!({"includeThoughts": false, "thinkingLevel": "LOW"});
    vec![
        (ANTHROPIC, json!({"thinking": {"type": "adaptive", "display": "omitted"}})),
        (ANTHROPIC, json!({"thinking": {"type": "disabled"}})),
        (OPENAI, json!({"reasoning": {"effort": "medium"}})),
        (CHAT, json!({"reasoning": {"effort": "medium", "exclude": true}})),
        (CHAT, json!({"reasoning_effort": "none"})),
        (GEMINI, json!({"generationConfig": {"thinkingConfig": config}})),
    ]
}

#[test]
fn target_is_asked_for_thoughts_that_the_client_reads() {
    for (from, settings) in visible_settings() {
        let to = |to: &TestDialect, pointer: &str| translated(&from, &settings, to, pointer);
        let label = format!("{} {settings}", from.row);
        if from.row != "openai" {
            assert_eq!(to(&OPENAI, "/reasoning/summary"), "auto", "{label}");
        }
        if from.row != "gemini" {
            let pointer = "/generationConfig/thinkingConfig/includeThoughts";
            assert_eq!(to(&GEMINI, pointer), true, "{label}");
        }
        if from.row != "anthropic" {
            assert_eq!(to(&OPUS, "/thinking/type"), "adaptive", "{label}");
            assert_eq!(to(&OPUS, "/thinking/display"), "summarized", "{label}");
            assert_eq!(to(&ANTHROPIC, "/thinking/type"), "enabled", "{label}");
        }
        if from.row != "bedrock" {
            let pointer = "/additionalModelRequestFields/thinking/type";
            assert_eq!(to(&CONVERSE, pointer), "enabled", "{label}");
        }
        if from.row != "openrouter" {
            assert_eq!(to(&CHAT, "/reasoning/exclude"), false, "{label}");
        }
    }
}

#[test]
fn target_is_not_asked_for_thoughts_that_the_client_hides() {
    for (from, settings) in hidden_settings() {
        let to = |to: &TestDialect, pointer: &str| translated(&from, &settings, to, pointer);
        let label = format!("{} {settings}", from.row);
        if from.row != "openai" {
            assert_eq!(to(&OPENAI, "/reasoning/summary"), Value::Null, "{label}");
        }
        if from.row != "gemini" {
            let pointer = "/generationConfig/thinkingConfig/includeThoughts";
            assert_ne!(to(&GEMINI, pointer), true, "{label}");
        }
        if from.row != "anthropic" {
            assert_ne!(to(&OPUS, "/thinking/display"), "summarized", "{label}");
        }
    }
}

#[test]
fn unchanged_dialect_gets_no_further_settings() {
    for (dialect, settings) in visible_settings() {
        let call = dialect.decode(&settings);
        let received = call.source.as_ref().unwrap().request.body.clone();
        assert_eq!(dialect.encode(call).request.body, received, "{} {settings}", dialect.row);
    }
}

/// Returns an input with two updates, of which the second replaces the effort of the first.
fn updated_input() -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let format = json!({"type": "json_schema", "name": "answer", "schema": schema});
    json!([
        {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": format}},
        {"role": "user", "content": "Hi"},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
    ])
}

#[test]
fn configuration_update_applies_on_other_wires() {
    let settings = json!({"input": updated_input(), "reasoning": {"effort": "none"}});
    let of = |to: &TestDialect, pointer: &str| translated(&OPENAI, &settings, to, pointer);
    assert_eq!(of(&OPUS, "/output_config/effort"), "high");
    assert_eq!(of(&OPUS, "/output_config/format/type"), "json_schema");
    assert_eq!(of(&GEMINI, "/generationConfig/thinkingConfig/thinkingLevel"), "HIGH");
    assert_eq!(of(&GEMINI, "/generationConfig/responseMimeType"), "application/json");
    assert_eq!(of(&CHAT, "/reasoning/effort"), "high");
    assert_eq!(of(&CHAT, "/response_format/type"), "json_schema");
    let text = json!({"type": "configuration_update", "text": {"format": {"type": "text"}}});
    let mut input = updated_input();
    input.as_array_mut().unwrap().push(text);
    let settings = json!({"input": input});
    assert_eq!(translated(&OPENAI, &settings, &CHAT, "/response_format"), Value::Null);
}

#[test]
fn configuration_update_counts_as_sent_on_other_wires() {
    let settings = json!({"input": updated_input()});
    for to in [OPUS, GEMINI, CHAT, CONVERSE] {
        let fates = to.encode(OPENAI.decode(&settings)).fates;
        let visible: Vec<_> = fates.iter().map(|fate| fate.visible.clone()).collect();
        let reshaped = Disposition::Reshaped(ReshapeKind::OtherWire);
        assert_eq!(visible, vec![reshaped; 3], "{}", to.row);
    }
}

#[test]
fn configuration_update_stays_unchanged_on_its_wire() {
    let settings = json!({"input": updated_input(), "reasoning": {"effort": "none"}});
    let call = OPENAI.decode(&settings);
    let received = call.source.as_ref().unwrap().request.body.clone();
    assert_eq!(OPENAI.encode(call).request.body, received);
}

#[test]
fn lost_input_format_of_a_custom_tool_is_reported_on_every_wire() {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: \"x\""});
    let tool =
        |format: &Value| json!({"tools": [{"type": "custom", "name": "f", "format": format}]});
    let message = "this endpoint cannot enforce the input format of `f`";
    let warned = |to: &TestDialect, call: Call| {
        let warnings = to.encode(call).warnings;
        warnings.iter().any(|warning| &*warning.setting == "tools" && &*warning.message == message)
    };
    for to in [ANTHROPIC, CHAT, GEMINI, CONVERSE] {
        assert!(warned(&to, OPENAI.decode(&tool(&grammar))), "{}", to.row);
        let text = json!({"type": "text"});
        assert!(!warned(&to, OPENAI.decode(&tool(&text))), "{}", to.row);
    }
    let grammar = json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}});
    let custom = json!({"name": "f", "format": grammar});
    let call = CHAT.decode(&json!({"tools": [{"type": "custom", "custom": custom}]}));
    assert!(warned(&OPENAI, call), "openai");
}
