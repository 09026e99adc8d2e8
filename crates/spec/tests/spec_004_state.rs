//! Tests for document 004, `SmartState` and its records: JSON round trips, and errors for invalid
//! documents.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail loudly")]

use proptest::prelude::*;
use throughline_json::{Json, Nullable, Number};
use throughline_spec::{
    Cadence, MemoryFact, PendingToolApproval, PendingUserQuestion, Plan, PlanStepRecord,
    PlanStepStatus, QuestionTool, ReflectionRecord, SmartState, SummaryRecord,
    ToolApprovalResolution, ToolExecution, ToolExecutionStatus, UserQuestionAnswer,
    UserQuestionAnswerSet, UserQuestionItem, UserQuestionOption, UserQuestionResolution,
    UserQuestionStatus,
};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// Asserts that parsing and writing each of these documents does not change it.
macro_rules! goes_in_and_comes_out {
    ($type:ident: $($text:expr),+ $(,)?) => {
        $(assert_eq!($type::parse(&json($text)).unwrap().json().as_str(), $text);)+
    };
}

fn refusal(text: &str) -> String {
    SmartState::parse(&json(text)).unwrap_err().to_string()
}

const OPTION: &str =
    r#"{"label":"Zürich","value":"zrh","description":"the big one","preview":"┌─┐"}"#;
const ANSWERS: &str = r#"{"Which city?":{"values":["zrh","bsl"],"freeText":"or both","notes":"soon"},"When?":{"values":[]}}"#;
const STEP: &str = r#"{"id":1,"step":"look","owner":"agent","exitCriteria":"seen","evidence":"a photo","status":"in-progress","title":"Look","description":"closely"}"#;
const REFLECTION: &str = r#"{"id":"r1","turn":2,"text":"Better ask.","createdAt":"2026-01-31T12:00:00.000Z","durationMs":12.5,"anchorMessageIndex":3,"trigger":"after_tool","usage":{"inputTokens":1,"outputTokens":2,"cachedInputTokens":3,"totalTokens":4,"reasoningTokens":5},"toolCallIds":["c1"]}"#;
const EXECUTION: &str = r#"{"executionId":"e1","toolName":"weather","args":{"city":"Z\u00fcrich"},"output":null,"rawOutput":[1e2],"timestamp":"2026-01-31T12:00:00Z","summarized":true,"originalTokenCount":null,"messageId":"m1","toolCallId":"c1","fromCache":false,"classification":"critical","retentionPolicy":"keep_full","archiveId":"a1","summary":"rain","status":"success","startedAt":"2026-01-31T12:00:00Z","endedAt":"2026-01-31T12:00:01Z","durationMs":1000,"error":"none","tool_call_id":"c1"}"#;
const APPROVAL: &str = r#"{"id":"a1","toolCallId":"c1","toolName":"pay","args":{"amount":1.50},"status":"approved","requestedAt":"2026-01-31","decidedAt":"2026-02-01","decidedBy":"Ada","comment":"less","approvedArgs":{"amount":1.00},"resolvedAt":"2026-02-02","executionId":"e1","metadata":{"b":1,"a":2}}"#;
const FACT: &str = r#"{"key":"city","value":"Basel","sourceTurn":2,"confidence":0.30,"ttl":null,"obsolete":false,"lastUpdatedAt":"2026-01-31","scope":"user","tags":["reflection"]}"#;
const SUMMARY: &str = r#"{"stable_facts":[{"key":"k","value":"v","confidence":1,"source":"user"}],"active_goals":["go"],"open_questions":["when"],"discarded_obsolete":[],"rawSummary":"…","integrity":{"passed":true,"criticalFactLoss":false,"obsoleteFactRevived":false,"notes":["fine"]},"createdAt":"2026-01-31"}"#;

fn item() -> String {
    format!(
        r#"{{"question":"Which city?","header":"City","multiSelect":true,"placeholder":"any","options":[{OPTION}],"required":false}}"#
    )
}

fn pending_question() -> String {
    format!(
        r#"{{"id":"q1","toolCallId":"c1","toolName":"ask_user_question","questions":[{}],"status":"answered","requestedAt":"2026-01-31","answeredAt":"2026-02-01","answeredBy":"Ada","answers":{ANSWERS},"cancelled":false,"notes":"-","allowFreeText":true,"metadata":{{"ui":"web"}}}}"#,
        item()
    )
}

fn full_state() -> String {
    let plan = format!(
        r#"{{"version":3,"steps":[{STEP}],"lastUpdated":"2026-01-31","adherenceScore":0.67,"lastReflection":"r1"}}"#
    );
    let message = r#"{"role":"assistant","content":"Hm.","thinkingBlocks":[{"type":"thinking","content":"?","signature":"c2ln"}],"toolCalls":[]}"#;
    format!(
        r#"{{"messages":[{{"role":"user","content":"Hi"}},{message}],"toolHistory":[{EXECUTION}],"toolHistoryArchived":[],"summaries":["long ago"],"summaryRecords":[{SUMMARY}],"memoryFacts":[{FACT}],"plan":{plan},"planVersion":3,"reflections":[{REFLECTION}],"pendingApprovals":[{APPROVAL}],"pendingUserQuestions":[{}],"ctx":{{"__awaitingUserQuestion":{{"id": "q1"}},"b":1e2,"a":null}},"usage":{{"perRequest":[]}}}}"#,
        pending_question()
    )
}

#[test]
fn state_round_trips() {
    goes_in_and_comes_out!(SmartState: &full_state(), r#"{"messages":[]}"#);
}

#[test]
fn full_and_minimal_records_round_trip() {
    goes_in_and_comes_out!(UserQuestionOption: OPTION, r#"{"label":"yes"}"#);
    goes_in_and_comes_out!(UserQuestionItem: &item(), r#"{"question":"Why?"}"#);
    goes_in_and_comes_out!(UserQuestionAnswer:
        r#"{"values":["a"],"freeText":"b","notes":"c"}"#, r#"{"values":[]}"#);
    goes_in_and_comes_out!(UserQuestionAnswerSet: ANSWERS, "{}");
    goes_in_and_comes_out!(PendingUserQuestion: &pending_question(),
        r#"{"id":"q1","toolCallId":"c1","toolName":"ask_user_question","questions":[],"status":"pending","requestedAt":"now"}"#);
    let resolution = format!(
        r#"{{"id":"c1","answers":{ANSWERS},"answeredBy":"Ada","notes":"-","cancelled":true}}"#
    );
    goes_in_and_comes_out!(UserQuestionResolution: &resolution, r#"{"id":"q1"}"#);
    goes_in_and_comes_out!(ReflectionRecord: REFLECTION,
        r#"{"id":"r1","turn":0,"text":"","createdAt":"now"}"#);
    goes_in_and_comes_out!(PlanStepRecord: STEP,
        r#"{"id":1,"step":"look","owner":"the night watch","exitCriteria":"seen","status":"blocked"}"#);
    goes_in_and_comes_out!(Plan:
        r#"{"version":1,"steps":[],"lastUpdated":"now","adherenceScore":1.0}"#,
        r#"{"version":0,"steps":[]}"#);
    goes_in_and_comes_out!(ToolExecution: EXECUTION,
        r#"{"executionId":"e1","toolName":"t","args":null}"#);
    goes_in_and_comes_out!(PendingToolApproval: APPROVAL,
        r#"{"id":"a1","toolCallId":"c1","toolName":"t","args":{},"status":"pending","requestedAt":"now"}"#);
    goes_in_and_comes_out!(ToolApprovalResolution:
        r#"{"id":"a1","approved":true,"approvedArgs":{},"decidedBy":"Ada","comment":"go"}"#,
        r#"{"id":"a1","approved":false}"#);
    goes_in_and_comes_out!(MemoryFact: FACT, r#"{"key":"k","value":"v"}"#);
    goes_in_and_comes_out!(SummaryRecord: SUMMARY, "{}");
}

#[test]
fn null_plan_differs_from_absent_plan() {
    let absent = SmartState::parse(&json(r#"{"messages":[]}"#)).unwrap();
    let null = SmartState::parse(&json(r#"{"messages":[],"plan":null}"#)).unwrap();
    let planned =
        SmartState::parse(&json(r#"{"messages":[],"plan":{"version":1,"steps":[]}}"#)).unwrap();
    assert_eq!(absent.plan, None);
    assert_eq!(null.plan, Some(Nullable::Null));
    assert_eq!(null.json().as_str(), r#"{"messages":[],"plan":null}"#);
    assert_eq!(planned.current_plan(), Some(&Plan::new(1, Vec::new())));
    assert_eq!((absent.current_plan(), null.current_plan()), (None, None));
}

#[test]
fn an_empty_list_is_printed_and_an_absent_one_is_not() {
    let text = r#"{"messages":[],"reflections":[],"ctx":{}}"#;
    goes_in_and_comes_out!(SmartState: text);
}

#[test]
fn members_are_printed_in_document_order_with_unknown_ones_last() {
    let mixed = r#"{"mood":"good","status":"pending","id":"q1","requestedAt":"now","questions":[],"toolName":"ask_user_question","toolCallId":"c1","notes":null}"#;
    let printed = r#"{"id":"q1","toolCallId":"c1","toolName":"ask_user_question","questions":[],"status":"pending","requestedAt":"now","mood":"good"}"#;
    assert_eq!(PendingUserQuestion::parse(&json(mixed)).unwrap().json().as_str(), printed);
}

#[test]
fn value_defaults_to_label() {
    let option = UserQuestionOption::parse(&json(r#"{"label":"Yes"}"#)).unwrap();
    assert_eq!(&**option.answer(), "Yes");
    let option = UserQuestionOption::parse(&json(r#"{"label":"Yes","value":"y"}"#)).unwrap();
    assert_eq!(&**option.answer(), "y");
}

#[test]
fn multi_select_defaults_to_false_and_required_to_true() {
    let item = UserQuestionItem::parse(&json(r#"{"question":"?"}"#)).unwrap();
    assert_eq!((item.is_multi_select(), item.is_required()), (false, true));
    let text = r#"{"question":"?","multiSelect":true,"required":false}"#;
    let item = UserQuestionItem::parse(&json(text)).unwrap();
    assert_eq!((item.is_multi_select(), item.is_required()), (true, false));
}

#[test]
fn a_resolution_names_the_question_or_its_tool_call() {
    let question = PendingUserQuestion::parse(&json(&pending_question())).unwrap();
    let names = |id: &str| UserQuestionResolution::new(id.into()).is_for(&question);
    assert_eq!((names("q1"), names("c1"), names("q2")), (true, true, false));
    let approval = PendingToolApproval::parse(&json(APPROVAL)).unwrap();
    let names = |id: &str| ToolApprovalResolution::new(id.into(), true).is_for(&approval);
    assert_eq!((names("a1"), names("c1"), names("a2")), (true, true, false));
}

#[test]
fn answers_are_found_by_the_text_of_their_question() {
    let answers = UserQuestionAnswerSet::parse(&json(ANSWERS)).unwrap();
    let values = |question| answers.get(question).map(|answer| answer.values.len());
    assert_eq!((values("Which city?"), values("When?"), values("Why?")), (Some(2), Some(0), None));
}

#[test]
fn records_are_created_from_required_members() {
    let step = PlanStepRecord {
        evidence: Some("a photo".into()),
        ..PlanStepRecord::new(
            1,
            "look".into(),
            "agent".into(),
            "seen".into(),
            PlanStepStatus::Completed,
        )
    };
    let question = PendingUserQuestion::new(
        "q1".into(),
        "c1".into(),
        QuestionTool::AskUserQuestion,
        vec![UserQuestionItem::new("Why?".into())],
        UserQuestionStatus::Pending,
        "now".into(),
    );
    let reflection = ReflectionRecord {
        trigger: Some(Cadence::OnBranch),
        duration_ms: Number::from_f64(0.5),
        ..ReflectionRecord::new("r1".into(), 1, "hm".into(), "now".into())
    };
    let execution = ToolExecution {
        status: Some(ToolExecutionStatus::Running),
        ..ToolExecution::new("e1".into(), "t".into(), json("{}"))
    };
    let state = SmartState {
        plan: Some(Nullable::Value(Plan::new(1, vec![step]))),
        pending_user_questions: Some(vec![question]),
        reflections: Some(vec![reflection]),
        tool_history: Some(vec![execution]),
        ..SmartState::default()
    };
    assert_eq!(SmartState::parse(&state.json()).unwrap(), state);
}

#[test]
fn number_keeps_its_spelling() {
    let fact = |confidence: &str| {
        MemoryFact::parse(&json(&format!(r#"{{"key":"k","value":"v","confidence":{confidence}}}"#)))
    };
    let confidence = fact("1.0").unwrap().confidence.unwrap();
    assert_eq!(confidence.as_str(), "1.0");
    assert!((confidence.value() - 1.0).abs() < f64::EPSILON);
    assert_eq!(Number::from_f64(f64::NAN), None);
    assert_eq!(Number::from_f64(f64::INFINITY), None);
    assert_eq!(Number::from(3).as_str(), "3");
}

#[test]
fn errors_name_the_path_of_the_invalid_member() {
    let question = |replaced: &str, by: &str| {
        let question = pending_question().replace(replaced, by);
        refusal(&format!(r#"{{"messages":[],"pendingUserQuestions":[{question}]}}"#))
    };
    assert_eq!(
        question(r#""status":"answered""#, r#""status":"done""#),
        "SmartState.pendingUserQuestions[0].status must be one of pending, answered, cancelled, executed"
    );
    assert_eq!(
        question(r#""status":"answered","#, ""),
        "SmartState.pendingUserQuestions[0].status is missing; expected one of pending, answered, \
         cancelled, executed"
    );
    assert_eq!(
        question(r#""ask_user_question""#, r#""ask""#),
        "SmartState.pendingUserQuestions[0].toolName must be one of ask_user_question"
    );
    assert_eq!(
        question(r#""label":"Zürich""#, r#""label":1"#),
        "SmartState.pendingUserQuestions[0].questions[0].options[0].label must be a string"
    );
    assert_eq!(
        question(r#""values":["zrh","bsl"]"#, r#""values":["zrh",2]"#),
        r#"SmartState.pendingUserQuestions[0].answers["Which city?"].values[1] must be a string"#
    );
    let invalid = [
        ("[]", "SmartState must be an object"),
        ("{}", "SmartState.messages is missing; expected an array of objects"),
        (r#"{"messages":{}}"#, "SmartState.messages must be an array"),
        (
            r#"{"messages":[{"role":"user"}]}"#,
            "SmartState.messages[0].content is missing; expected a string",
        ),
        (
            r#"{"messages":[],"plan":{"version":-1,"steps":[]}}"#,
            "SmartState.plan.version must be a non-negative whole number",
        ),
        (
            r#"{"messages":[],"plan":{"version":1}}"#,
            "SmartState.plan.steps is missing; expected an array of objects",
        ),
        (r#"{"messages":[],"plan":false}"#, "SmartState.plan must be an object"),
        (
            r#"{"messages":[],"summaries":"one"}"#,
            "SmartState.summaries must be an array of strings",
        ),
        (r#"{"messages":[],"ctx":[]}"#, "SmartState.ctx must be an object"),
        (
            r#"{"messages":[],"memoryFacts":[{"key":"k","value":"v","confidence":"high"}]}"#,
            "SmartState.memoryFacts[0].confidence must be a number",
        ),
        (
            r#"{"messages":[],"toolHistory":[{"executionId":"e","toolName":"t"}]}"#,
            "SmartState.toolHistory[0].args is missing; expected any JSON value",
        ),
        (
            r#"{"messages":[],"reflections":[{"id":"r","turn":1,"text":"","createdAt":"","usage":{"inputTokens":0.5}}]}"#,
            "SmartState.reflections[0].usage.inputTokens must be a non-negative whole number",
        ),
    ];
    for (text, problem) in invalid {
        assert_eq!(refusal(text), problem);
    }
    let step = STEP.replace("in-progress", "started");
    assert_eq!(
        PlanStepRecord::parse(&json(&step)).unwrap_err().to_string(),
        "PlanStepRecord.status must be one of not-started, in-progress, completed, blocked"
    );
}

proptest! {
    #[test]
    fn any_state_round_trips(
        texts in proptest::collection::vec(".{0,12}", 6),
        version: u64,
        score in proptest::num::f64::ANY,
        is_null: bool,
    ) {
        let [a, b, c, d, e, f] = <[String; 6]>::try_from(texts).unwrap();
        let answer = UserQuestionAnswer {
            free_text: Some(a.as_str().into()),
            ..UserQuestionAnswer::new(vec![b.as_str().into()])
        };
        let question = PendingUserQuestion {
            answers: Some(UserQuestionAnswerSet(vec![(c.as_str().into(), answer)])),
            ..PendingUserQuestion::new(
                d.as_str().into(),
                e.as_str().into(),
                QuestionTool::AskUserQuestion,
                Vec::new(),
                UserQuestionStatus::Pending,
                f.as_str().into(),
            )
        };
        let plan = Plan { adherence_score: Number::from_f64(score), ..Plan::new(version, Vec::new()) };
        let state = SmartState {
            plan: Some(if is_null { Nullable::Null } else { Nullable::Value(plan) }),
            pending_user_questions: Some(vec![question]),
            ctx: Some(vec![(a.as_str().into(), json("[null]"))]),
            ..SmartState::default()
        };
        prop_assert_eq!(SmartState::parse(&state.json()).unwrap(), state);
    }
}

#[test]
fn published_state_schema_accepts_printed_states() {
    let schema: serde_json::Value = serde_json::from_slice(SmartState::schema().bytes()).unwrap();
    let pretty = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let published = include_str!("../../../docs/schemas/smart-state.json");
    assert!(
        published == pretty,
        "docs/schemas/smart-state.json: store the output of SmartState::schema() with two-space indentation"
    );
    let validator = jsonschema::validator_for(&schema).unwrap();
    let is_valid = |text: &str| validator.is_valid(&serde_json::from_str(text).unwrap());
    assert!(is_valid(&full_state()) && is_valid(r#"{"messages":[]}"#));
    for wrong in ["{}", r#"{"messages":[],"plan":{}}"#, r#"{"messages":[],"planVersion":-1}"#] {
        assert!(!is_valid(wrong), "{wrong}");
    }
}
