//! Tests for document 004, run events: JSON round trips, and events of unknown types.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail loudly")]

use throughline_json::Json;
use throughline_spec::{PlanEvent, PlanSource, ReflectionEvent, RunEvent, UserQuestionEvent};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn refusal(text: &str) -> String {
    RunEvent::parse(&json(text)).unwrap_err().to_string()
}

const PLAN: &str = r#"{"type":"plan","source":"manage_todo_list","operation":"update","todoList":[{"id":1,"step":"look","owner":"agent","exitCriteria":"seen","status":"completed"}],"version":4,"adherenceScore":1}"#;
const REFLECTION: &str = r#"{"type":"reflection","id":"r1","turn":2,"text":"Better ask.","trigger":"on_branch","durationMs":12,"usage":{"inputTokens":1,"reasoningTokens":2},"toolCallIds":["c1","c2"]}"#;
const QUESTION: &str = r#"{"type":"user_question","status":"answered","id":"q1","toolCallId":"c1","questions":[{"question":"Why?"}],"answers":{"Why?":{"values":["so"]}},"answeredBy":"Ada","allowFreeText":false}"#;

/// Each event type with two documents: all members, and only the required members.
const EVENTS: [(&str, &str, &str); 22] = [
    ("plan", PLAN, r#"{"type":"plan","source":"system"}"#),
    ("reflection", REFLECTION, r#"{"type":"reflection","id":"r1","turn":0,"text":""}"#),
    (
        "user_question",
        QUESTION,
        r#"{"type":"user_question","status":"pending","id":"q1","toolCallId":"c1"}"#,
    ),
    (
        "tool_call",
        r#"{"type":"tool_call","phase":"success","name":"t","id":"c1","args":{"a": 1},"result":null,"error":{"message":"no","code":1},"durationMs":0.25}"#,
        r#"{"type":"tool_call","phase":"skipped","name":"t"}"#,
    ),
    (
        "tool_approval",
        r#"{"type":"tool_approval","status":"rejected","id":"a1","toolName":"t","toolCallId":"c1","args":[],"decidedBy":"Ada","comment":"no"}"#,
        r#"{"type":"tool_approval","status":"pending","id":"a1","toolName":"t"}"#,
    ),
    (
        "summarization",
        r#"{"type":"summarization","summary":"…","messagesCompressed":1,"inputTokens":2,"outputTokens":3,"cachedInputTokens":4,"totalTokens":5,"durationMs":6,"previousSummary":"","tokenCountBefore":7,"tokenCountAfter":8,"archivedCount":9,"structuredSummary":{"rawSummary":"…"},"integrity":{"passed":true}}"#,
        r#"{"type":"summarization","summary":""}"#,
    ),
    (
        "finalAnswer",
        r#"{"type":"finalAnswer","content":"Yes.","subagentId":"s1"}"#,
        r#"{"type":"finalAnswer","content":""}"#,
    ),
    (
        "metadata",
        r#"{"type":"metadata","usage":{"input":1},"modelName":"m","limits":{"maxToolCalls":5},"limitBreached":"maxCostUsd"}"#,
        r#"{"type":"metadata"}"#,
    ),
    (
        "handoff",
        r#"{"type":"handoff","from":"a","to":"b","toolName":"t"}"#,
        r#"{"type":"handoff","toolName":"t"}"#,
    ),
    (
        "guardrail",
        r#"{"type":"guardrail","phase":"response","guardrailId":"g","guardrailTitle":"G","ruleId":"r","ruleTitle":"R","disposition":"warn","reason":"rude","details":{"word":"hm"}}"#,
        r#"{"type":"guardrail","phase":"request","disposition":"block"}"#,
    ),
    (
        "progress",
        r#"{"type":"progress","stage":"s","message":"m","percent":12.5,"detail":[null]}"#,
        r#"{"type":"progress"}"#,
    ),
    ("stream", r#"{"type":"stream","text":"a","isFinal":true}"#, r#"{"type":"stream","text":""}"#),
    (
        "cancelled",
        r#"{"type":"cancelled","stage":"tools","reason":"enough"}"#,
        r#"{"type":"cancelled"}"#,
    ),
    (
        "subagent",
        r#"{"type":"subagent","phase":"result","name":"n","id":"s1","mode":"registry","parentToolCallId":"c1","parallel":true,"input":"do","content":"done","error":{"message":"no"},"durationMs":3}"#,
        r#"{"type":"subagent","phase":"start","name":"n","id":"s1","mode":"adhoc"}"#,
    ),
    (
        "run",
        r#"{"type":"run","status":"waiting","runId":"run_1","agent":"clerk","reason":"waits for an answer"}"#,
        r#"{"type":"run","status":"running"}"#,
    ),
    (
        "turn",
        r#"{"type":"turn","phase":"discarded","turn":2,"model":"m","purpose":"final","reason":"cut"}"#,
        r#"{"type":"turn","phase":"start","turn":1}"#,
    ),
    (
        "message",
        r#"{"type":"message","role":"user","content":"Again.","ephemeral":true}"#,
        r#"{"type":"message","role":"assistant","content":""}"#,
    ),
    (
        "thought",
        r#"{"type":"thought","phase":"end","turn":1,"text":"Hm.","id":"i1","sealedBytes":12,"agent":"clerk"}"#,
        r#"{"type":"thought","phase":"delta","turn":1}"#,
    ),
    (
        "limit",
        r#"{"type":"limit","limit":"maxCostUsd","allowed":0.5,"actual":0.75}"#,
        r#"{"type":"limit","limit":"maxToolCalls","allowed":2,"actual":2}"#,
    ),
    (
        "gate",
        r#"{"type":"gate","phase":"retried","attempt":1,"action":"retry-other","errorKind":"schema-fail","message":"no JSON","rule":"stuck","fromModel":"a","toModel":"b"}"#,
        r#"{"type":"gate","phase":"recovered","attempt":2}"#,
    ),
    (
        "replay",
        r#"{"type":"replay","turn":3,"kept":2,"restored":1,"reshaped":1,"elided":1,"why":{"foreign":1},"seals":{"kept":2}}"#,
        r#"{"type":"replay"}"#,
    ),
    (
        "usage",
        r#"{"type":"usage","model":"m","asked":"m-1","account":"work","purpose":"summary","usage":{"inputTokens":1},"total":{"inputTokens":2},"costUsd":0.01,"totalCostUsd":0.02}"#,
        r#"{"type":"usage"}"#,
    ),
];

#[test]
fn full_and_minimal_events_round_trip() {
    for (name, full, minimal) in EVENTS {
        for text in [full, minimal] {
            let event = RunEvent::parse(&json(text)).unwrap();
            assert_eq!(event.json().as_str(), text);
            assert_eq!(event.name(), name);
            assert!(!matches!(event, RunEvent::Unknown(_)), "{name}");
        }
    }
}

#[test]
fn specified_events_have_their_own_types() {
    let plan = PlanEvent::parse(&json(PLAN)).unwrap();
    assert_eq!(plan.source, PlanSource::ManageTodoList);
    assert_eq!(RunEvent::parse(&json(PLAN)).unwrap(), RunEvent::Plan(plan));
    assert_eq!(ReflectionEvent::parse(&json(REFLECTION)).unwrap().json().as_str(), REFLECTION);
    assert_eq!(UserQuestionEvent::parse(&json(QUESTION)).unwrap().json().as_str(), QUESTION);
    let error = PlanEvent::parse(&json(r#"{"source":"system"}"#)).unwrap_err();
    assert_eq!(error.to_string(), "PlanEvent.type must be plan");
}

#[test]
fn an_event_of_an_unknown_type_is_kept_raw() {
    let text = r#"{"mood" : 1e2, "type":"w\u0065ather"}"#;
    let event = RunEvent::parse(&json(text)).unwrap();
    assert_eq!(event, RunEvent::Unknown(json(text)));
    assert_eq!(event.json().as_str(), text);
    assert_eq!(event.name(), "weather");
}

#[test]
fn errors_name_the_path_of_the_invalid_member() {
    let invalid = [
        ("1", "RunEvent must be an object"),
        ("{}", "RunEvent.type is missing; expected a string"),
        (r#"{"type":1}"#, "RunEvent.type must be a string"),
        (
            r#"{"type":"plan"}"#,
            "PlanEvent.source is missing; expected one of manage_todo_list, system",
        ),
        (
            r#"{"type":"plan","source":"system","operation":"delete"}"#,
            "PlanEvent.operation must be one of read, write, update",
        ),
        (
            r#"{"type":"plan","source":"system","todoList":[{"id":1}]}"#,
            "PlanEvent.todoList[0].step is missing; expected a string",
        ),
        (
            r#"{"type":"tool_call","name":"t","phase":"began"}"#,
            "ToolCallEvent.phase must be one of start, progress, success, error, skipped",
        ),
        (
            r#"{"type":"user_question","id":"q","toolCallId":"c","status":"executed"}"#,
            "UserQuestionEvent.status must be one of pending, answered, cancelled",
        ),
        (
            r#"{"type":"reflection","id":"r","turn":1,"text":"","trigger":"often"}"#,
            "ReflectionEvent.trigger must be one of off, every_turn, after_tool, on_branch",
        ),
    ];
    for (text, problem) in invalid {
        assert_eq!(refusal(text), problem);
    }
}

#[test]
fn published_event_schema_accepts_valid_events_and_rejects_invalid_ones() {
    let schema: serde_json::Value = serde_json::from_slice(RunEvent::schema().bytes()).unwrap();
    let pretty = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let published = include_str!("../../../docs/schemas/run-event.json");
    assert!(
        published == pretty,
        "docs/schemas/run-event.json: store the output of RunEvent::schema() with two-space indentation"
    );
    let validator = jsonschema::validator_for(&schema).unwrap();
    let is_valid = |text: &str| validator.is_valid(&serde_json::from_str(text).unwrap());
    for (name, full, minimal) in EVENTS {
        assert!(is_valid(full) && is_valid(minimal), "{name}");
        // An event without members is valid only if no member is required.
        let bare = format!(r#"{{"type":"{name}"}}"#);
        assert_eq!(is_valid(&bare), RunEvent::parse(&json(&bare)).is_ok(), "{name}");
    }
    assert!(is_valid(r#"{"type":"weather","mood":1}"#), "unknown types are valid events");
    for wrong in ["{}", "1", r#"{"type":"plan","source":"unknown"}"#] {
        assert!(!is_valid(wrong), "{wrong}");
    }
}
