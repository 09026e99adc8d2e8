//! Tests that spans use the names and types of OpenTelemetry's conventions.
//!
//! Sources, as of [`gen_ai::SCHEMA_URL`]:
//! - `gen_ai.*`: <https://github.com/open-telemetry/semantic-conventions-genai>, commit
//!   `004902b8cb70aa5ae6ca4ae07132b7daabcd3e10`, `docs/gen-ai/gen-ai-spans.md` and
//!   `docs/gen-ai/gen-ai-agent-spans.md`
//! - `error.*`, `http.*` and `server.*`: <https://github.com/open-telemetry/semantic-conventions>,
//!   `v1.42.0`, `docs/registry/attributes`

use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{
    CompletedCall, Content, LogId, Record, RequestParameters, Tenant, TraceParent, Usage, gen_ai,
    pack_events,
};
use throughline_json::Name;
use throughline_spec::RedactionPolicy;

use crate::calls;
use crate::fold::{Fold, TraceOptions};
use crate::otlp;
use crate::resource::Resource;
use crate::span::{Span, Value};

/// Attributes of the conventions that Throughline sets, with their types. Content (`any`) is a JSON
/// string, as the conventions allow for spans.
const ATTRIBUTES: [(&str, &str); 40] = [
    ("error.type", "string"),
    ("gen_ai.agent.name", "string"),
    ("gen_ai.conversation.id", "string"),
    ("gen_ai.input.messages", "any"),
    ("gen_ai.operation.name", "string"),
    ("gen_ai.output.messages", "any"),
    ("gen_ai.output.type", "string"),
    ("gen_ai.provider.name", "string"),
    ("gen_ai.request.choice.count", "int"),
    ("gen_ai.request.frequency_penalty", "double"),
    ("gen_ai.request.max_tokens", "int"),
    ("gen_ai.request.model", "string"),
    ("gen_ai.request.presence_penalty", "double"),
    ("gen_ai.request.seed", "int"),
    ("gen_ai.request.stop_sequences", "string[]"),
    ("gen_ai.request.stream", "boolean"),
    ("gen_ai.request.temperature", "double"),
    ("gen_ai.request.top_k", "double"),
    ("gen_ai.request.top_p", "double"),
    ("gen_ai.response.finish_reasons", "string[]"),
    ("gen_ai.response.id", "string"),
    ("gen_ai.response.model", "string"),
    ("gen_ai.response.time_to_first_chunk", "double"),
    ("gen_ai.tool.call.arguments", "any"),
    ("gen_ai.tool.call.id", "string"),
    ("gen_ai.tool.call.result", "any"),
    ("gen_ai.tool.name", "string"),
    ("gen_ai.tool.type", "string"),
    ("gen_ai.usage.cache_creation.input_tokens", "int"),
    ("gen_ai.usage.cache_read.input_tokens", "int"),
    ("gen_ai.usage.input_tokens", "int"),
    ("gen_ai.usage.output_tokens", "int"),
    ("gen_ai.usage.reasoning.output_tokens", "int"),
    ("http.response.status_code", "int"),
    ("server.address", "string"),
    ("server.port", "int"),
    ("service.name", "string"),
    ("service.version", "string"),
    ("telemetry.sdk.language", "string"),
    ("telemetry.sdk.name", "string"),
];

fn call(status: u16) -> CompletedCall {
    CompletedCall {
        own: TraceParent { trace: [1; 16], span: [2; 8], is_sampled: true },
        parent: Some([3; 8]),
        took: Duration::from_millis(80),
        first_byte: Some(Duration::from_millis(20)),
        call: Some(Name::from("call_1")),
        dialect: Name::from("openai-chat"),
        provider: Some(Name::from("google-eu")),
        system: Some(Name::from("gemini")),
        operation: "generate_content",
        endpoint: Some(Name::from("https://generativelanguage.googleapis.com/v1beta")),
        model: Some(Name::from("gemini-3-pro")),
        parameters: RequestParameters {
            max_tokens: Some(100),
            choices: Some(2),
            seed: Some(7),
            temperature: Some(0.5),
            top_p: Some(0.9),
            top_k: Some(40.0),
            frequency_penalty: Some(0.1),
            presence_penalty: Some(-0.1),
            stop_sequences: vec![Name::from("END")],
            output_type: Some("json"),
        },
        answered: Some(Name::from("gemini-3-pro-001")),
        response: Some(Name::from("resp_1")),
        finish_reason: Some(Name::from("stop")),
        is_stream: true,
        status,
        usage: Some(Usage { input: 100, cached: 50, written: 5, output: 20, thought: 10 }),
        fates: Some([1, 2, 3]),
        audit: Some("accept"),
        error_type: (status >= 400).then(|| Name::from(status.to_string())),
        problem: None,
    }
}

/// Returns the spans of a run with a message, an answer, a failed and a successful tool call.
fn run_spans() -> Vec<Span> {
    let events = [
        r#"{"type":"run","status":"running","agent":"assistant"}"#,
        r#"{"type":"message","role":"user","content":"What is the time?"}"#,
        r#"{"type":"turn","phase":"start","turn":1,"model":"anthropic/claude-sonnet-4-5"}"#,
        r#"{"type":"stream","text":"Noon."}"#,
        r#"{"type":"usage","usage":{"inputTokens":10,"outputTokens":5,"reasoningTokens":4,"cachedInputTokens":2}}"#,
        r#"{"type":"turn","phase":"end","turn":1,"reason":"tools"}"#,
        r#"{"type":"tool_call","phase":"start","name":"now","id":"call_1","args":{}}"#,
        r#"{"type":"tool_call","phase":"error","name":"now","id":"call_1","args":{},"error":{"message":"no clock"}}"#,
        r#"{"type":"tool_call","phase":"start","name":"now","id":"call_2","args":{}}"#,
        r#"{"type":"tool_call","phase":"success","name":"now","id":"call_2","args":{},"result":"noon"}"#,
    ];
    let packed = pack_events(events.iter().map(|event| event.as_bytes()));
    let events = Some((1, u64::from(packed.events)));
    let content = Content::Here(packed.content);
    let record = Record { seq: 1, kind: packed.kind, at: Timestamp::UNIX_EPOCH, events, content };
    let options =
        TraceOptions { thread_id: None, log_data: true, redaction: RedactionPolicy::default() };
    let (tenant, run) = (Tenant::from("default"), LogId::from("run_1"));
    let mut fold = Fold::new(&tenant, &run, &LogId::from("thread_1"), options);
    let mut spans = fold.record(&record);
    spans.extend(fold.agent(Timestamp::UNIX_EPOCH));
    spans
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Text(_) => "string",
        Value::Whole(_) => "int",
        Value::Decimal(_) => "double",
        Value::Flag(_) => "boolean",
        Value::Texts(_) => "string[]",
    }
}

fn text<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
    span.attributes.iter().find_map(|(name, value)| match value {
        Value::Text(text) if *name == key => Some(&**text),
        _ => None,
    })
}

#[test]
fn attributes_have_the_names_and_types_of_the_conventions() {
    let mut spans = run_spans();
    spans.extend([calls::span(&call(200), Timestamp::UNIX_EPOCH)]);
    spans.extend([calls::span(&call(429), Timestamp::UNIX_EPOCH)]);
    let mut unused: Vec<&str> = ATTRIBUTES.iter().map(|(name, _)| *name).collect();
    for span in &spans {
        let own = |name: &str| name.starts_with("throughline.");
        for (name, value) in span.attributes.iter().filter(|(name, _)| !own(name)) {
            let known = ATTRIBUTES.iter().find(|(known, _)| known == name);
            let (_, expected) = known.unwrap_or_else(|| panic!("{name} is no known attribute"));
            let is_json = *expected == "any" && type_name(value) == "string";
            assert!(is_json || type_name(value) == *expected, "{name} of {}", span.name);
            unused.retain(|unused| unused != name);
        }
        // Every operation of the conventions has its name, and inference also has a provider.
        let operation = text(span, "gen_ai.operation.name").unwrap();
        assert!(span.name.starts_with(operation), "{}", span.name);
        assert_eq!(span.kind.is_client(), ["chat", "generate_content"].contains(&operation));
        assert!(!span.kind.is_client() || text(span, "gen_ai.provider.name").is_some());
    }
    for (name, _) in Resource::default().attributes() {
        unused.retain(|unused| *unused != &**name);
    }
    assert_eq!(unused, [""; 0], "no span sets these attributes");
}

#[test]
fn inference_spans_have_the_names_and_values_of_the_conventions() {
    let span = calls::span(&call(200), Timestamp::UNIX_EPOCH);
    assert_eq!(span.name, "generate_content gemini-3-pro");
    assert_eq!(text(&span, "gen_ai.provider.name"), Some("gcp.gemini"));
    assert_eq!(text(&span, "server.address"), Some("generativelanguage.googleapis.com"));
    assert_eq!((text(&span, "error.type"), &span.problem), (None, &None));
    let failed = calls::span(&call(429), Timestamp::UNIX_EPOCH);
    assert_eq!(text(&failed, "error.type"), Some("429"));
    // A response that is not a stream has no first chunk.
    let whole = CompletedCall { is_stream: false, ..call(200) };
    let whole = calls::span(&whole, Timestamp::UNIX_EPOCH);
    let streamed = ["gen_ai.request.stream", "gen_ai.response.time_to_first_chunk"];
    assert!(!whole.attributes.iter().any(|(name, _)| streamed.contains(name)));
    // A request for one answer does not state its number of answers.
    let parameters = RequestParameters { choices: Some(1), ..RequestParameters::default() };
    let single = calls::span(&CompletedCall { parameters, ..call(200) }, Timestamp::UNIX_EPOCH);
    assert!(!single.attributes.iter().any(|(name, _)| *name == "gen_ai.request.choice.count"));
    let spans = run_spans();
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    let tool = "execute_tool now";
    let expected = ["chat anthropic/claude-sonnet-4-5", tool, tool, "invoke_agent assistant"];
    assert_eq!(names, expected);
    assert_eq!(text(&spans[0], "gen_ai.provider.name"), Some("anthropic"));
    let output = text(&spans[0], "gen_ai.output.messages").unwrap();
    assert!(output.contains(r#""finish_reason":"tools""#), "{output}");
}

#[test]
fn json_and_protobuf_requests_contain_the_same_texts() {
    let mut resource = Resource::default();
    resource.set("service.name", "shop");
    let mut spans = run_spans();
    spans.extend([calls::span(&call(429), Timestamp::UNIX_EPOCH)]);
    let protobuf = otlp::spans(&spans, &resource);
    let json = String::from_utf8(otlp::json_spans(&spans, &resource)).unwrap();
    for expected in [
        "shop",
        gen_ai::SCHEMA_URL,
        "execute_tool now",
        "no clock",
        "error.type",
        gen_ai::OTHER_ERROR,
        "HTTP 429",
        "server.address",
    ] {
        assert!(json.contains(expected), "{expected} is not in {json}");
        let is_in = protobuf.windows(expected.len()).any(|window| window == expected.as_bytes());
        assert!(is_in, "{expected} is not in the protobuf request");
    }
    // Ids are hexadecimal, kinds are numbers, and 64-bit integers are strings.
    let start = format!(r#"{{"traceId":"{}","spanId":""#, "01".repeat(16));
    assert!(json.contains(&start), "{json}");
    for expected in [
        r#""parentSpanId":"0303030303030303","name":"generate_content gemini-3-pro","kind":3"#,
        r#"{"key":"server.port","value":{"intValue":"443"}}"#,
        r#"{"key":"gen_ai.request.stream","value":{"boolValue":true}}"#,
        r#"{"arrayValue":{"values":[{"stringValue":"stop"}]}}"#,
        r#""status":{"message":"HTTP 429","code":2}"#,
    ] {
        assert!(json.contains(expected), "{expected} is not in {json}");
    }
}
