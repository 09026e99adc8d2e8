//! Tests of the sentences that describe events.

use throughline_json::Json;
use throughline_spec::{Pattern, RedactionPolicy, RunEvent};

use super::narrate;

fn sentences_of(events: &[&str], policy: &RedactionPolicy) -> Vec<String> {
    let parse = |text: &&str| RunEvent::parse(&Json::parse((*text).to_owned()).unwrap()).unwrap();
    let events: Vec<RunEvent> = events.iter().map(parse).collect();
    narrate(&events, policy).lines().map(str::to_owned).collect()
}

#[test]
fn each_event_becomes_one_sentence_except_deltas() {
    let sentences = sentences_of(
        &[
            r#"{"type":"run","status":"running","runId":"run_1","agent":"ann"}"#,
            r#"{"type":"message","role":"user","content":"two\nlines"}"#,
            r#"{"type":"turn","phase":"start","turn":1,"model":"m"}"#,
            r#"{"type":"thought","phase":"delta","turn":1,"text":"hm"}"#,
            r#"{"type":"thought","phase":"end","turn":1,"text":"hmm","sealedBytes":12}"#,
            r#"{"type":"thought","phase":"end","turn":1,"sealedBytes":7}"#,
            r#"{"type":"stream","text":"an"}"#,
            r#"{"type":"tool_call","phase":"start","name":"look","args":{"a":1}}"#,
            r#"{"type":"tool_call","phase":"success","name":"look","result":"seen","durationMs":3}"#,
            r#"{"type":"tool_approval","status":"approved","id":"a1","toolName":"look","decidedBy":"bob"}"#,
            r#"{"type":"handoff","from":"m","to":"n","toolName":"switch_model"}"#,
            r#"{"type":"message","role":"user","content":"again","ephemeral":true}"#,
            r#"{"type":"run","status":"completed","reason":"answered"}"#,
        ],
        &RedactionPolicy::default(),
    );
    let expected = [
        "The run run_1 is running with the agent ann.",
        "The user said: “two lines”",
        "Turn 1: the agent asked m.",
        "The model thought (12 bytes sealed): “hmm”",
        "The model thought, without readable text (7 bytes sealed).",
        "The tool look started with {\"a\":1}.",
        "The tool look succeeded after 3 ms: “seen”",
        "bob approved the tool look (a1).",
        "The run switched from m to n.",
        "The user said (ephemeral: not kept in the thread): “again”",
        "The run completed: answered.",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn redacted_content_is_not_narrated() {
    let policy = RedactionPolicy {
        thinking_patterns: vec![Pattern::new("zebra").unwrap()],
        emit_patterns: vec![Pattern::new("^plan$").unwrap()],
        ..RedactionPolicy::default()
    };
    let sentences = sentences_of(
        &[
            r#"{"type":"thought","phase":"end","turn":1,"text":"the zebra knows"}"#,
            r#"{"type":"message","role":"user","content":"my zebra has sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2"}"#,
            r#"{"type":"plan","source":"system"}"#,
        ],
        &policy,
    );
    let expected = [
        "The model thought: “the [REDACTED] knows”",
        "The user said: “my zebra has [REDACTED]”",
        "An event of type plan was redacted.",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn earlier_events_affect_later_sentences() {
    let sentences = sentences_of(
        &[
            r#"{"type":"tool_approval","status":"pending","id":"a1","toolName":"look","toolCallId":"c1"}"#,
            r#"{"type":"tool_call","phase":"start","name":"look","id":"c1"}"#,
            r#"{"type":"tool_approval","status":"pending","id":"a2","toolName":"look","toolCallId":"c1"}"#,
            r#"{"type":"turn","phase":"discarded","turn":2,"reason":"the process stopped"}"#,
            r#"{"type":"stream","text":"an"}"#,
            r#"{"type":"turn","phase":"discarded","turn":2,"reason":"the process stopped"}"#,
            r#"{"type":"usage","usage":{"inputTokens":3,"outputTokens":4},"totalCostUsd":22.384612650000015}"#,
        ],
        &RedactionPolicy::default(),
    );
    let expected = [
        "The tool look may run only after an approval (a1).",
        "The tool look started.",
        "The tool look may run only after an approval (a2). It was started before, and its end was not recorded.",
        "The partial answer of turn 2 was discarded: the process stopped.",
        "The model read 3 tokens and wrote 4; $22.3846 so far.",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn request_of_a_resumed_turn_is_narrated_once() {
    let start = r#"{"type":"turn","phase":"start","turn":2,"model":"m"}"#;
    let discarded = r#"{"type":"turn","phase":"discarded","turn":2,"reason":"the process exited"}"#;
    let text = r#"{"type":"stream","text":"an"}"#;
    let other = r#"{"type":"turn","phase":"start","turn":2,"model":"n"}"#;
    let retried =
        r#"{"type":"gate","phase":"retried","attempt":1,"errorKind":"timeout","message":"slow"}"#;
    let asked = |model: &str| format!("Turn 2: the agent asked {model}.");
    let narrated = |events: &[&str]| sentences_of(events, &RedactionPolicy::default());
    assert_eq!(narrated(&[start, discarded, start]), [asked("m")]);
    assert_eq!(narrated(&[start, discarded, start, discarded, start]), [asked("m")]);
    assert_eq!(narrated(&[start, discarded, other]), [asked("m"), asked("n")]);
    let again = narrated(&[start, text, discarded, start]);
    let cut = "The partial answer of turn 2 was discarded: the process exited.".to_owned();
    assert_eq!(again, [asked("m"), cut, asked("m")]);
    // A failed attempt is a request of its own.
    let failed = narrated(&[start, discarded, retried, start]);
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(failed.last(), Some(&asked("m")));
}

#[test]
fn unknown_outcome_is_not_narrated_as_failure_or_with_duration() {
    let lost = "The process that ran this tool stopped.";
    let failed = |outcome: &str| {
        format!(
            r#"{{"type":"tool_call","phase":"error","name":"pay","id":"c1","durationMs":29514,"error":{{"message":"{lost}"}}{outcome}}}"#
        )
    };
    // `new` states the outcome. In `old`, from an older journal, a person decided the lost call
    // instead.
    let (new, old) = (failed(r#","outcome":"unknown""#), failed(""));
    let waits = r#"{"type":"tool_approval","status":"pending","id":"a1","toolName":"pay","toolCallId":"c1"}"#;
    let start = r#"{"type":"tool_call","phase":"start","name":"pay","id":"c1"}"#;
    for events in [&[start, &*new][..], &[start, waits, &*old]] {
        let sentences = sentences_of(events, &RedactionPolicy::default());
        assert_eq!(
            sentences.last().map(String::as_str),
            Some("The outcome of the tool pay is unknown: The process that ran this tool stopped.")
        );
    }
    // A call that starts again after the decision can fail normally.
    let again = sentences_of(&[start, waits, start, &old], &RedactionPolicy::default());
    assert!(again.last().unwrap().starts_with("The tool pay failed after 29514 ms"), "{again:?}");
}

#[test]
fn final_answer_and_run_id_appear_once() {
    let sentences = sentences_of(
        &[
            r#"{"type":"run","status":"running","runId":"run_1"}"#,
            r#"{"type":"message","role":"assistant","content":"Done."}"#,
            r#"{"type":"finalAnswer","content":"Done."}"#,
            r#"{"type":"run","status":"completed","runId":"run_1","reason":"answered"}"#,
        ],
        &RedactionPolicy::default(),
    );
    let expected = [
        "The run run_1 is running.",
        "The assistant said: “Done.”",
        "The run completed: answered.",
    ];
    assert_eq!(sentences, expected);
}

#[test]
fn sentences_omit_missing_names_and_reasons() {
    let sentences = sentences_of(
        &[
            r#"{"type":"run","status":"waiting","reason":"waits for an approval"}"#,
            r#"{"type":"run","status":"waiting"}"#,
            r#"{"type":"run","status":"failed","reason":"the model is unavailable"}"#,
            r#"{"type":"run","status":"cancelled"}"#,
            r#"{"type":"cancelled"}"#,
            r#"{"type":"cancelled","reason":"enough"}"#,
            r#"{"type":"stream","text":"an"}"#,
            r#"{"type":"turn","phase":"discarded","turn":2}"#,
            r#"{"type":"tool_call","phase":"error","name":"look"}"#,
            r#"{"type":"tool_call","phase":"skipped","name":"look"}"#,
            r#"{"type":"tool_approval","status":"rejected","id":"a1","toolName":"look"}"#,
            r#"{"type":"user_question","status":"cancelled","id":"q1","toolCallId":"c1"}"#,
            r#"{"type":"handoff","toolName":"transfer_to_clerk"}"#,
            r#"{"type":"handoff","toolName":"switch_model"}"#,
        ],
        &RedactionPolicy::default(),
    );
    let expected = [
        "The run waits for an approval.",
        "The run is waiting.",
        "The run failed: the model is unavailable.",
        "The run was cancelled.",
        "The run was asked to stop.",
        "The run was asked to stop: enough.",
        "The partial answer of turn 2 was discarded.",
        "The tool look failed.",
        "The tool look was not run.",
        "The tool look was rejected (a1).",
        "The question was not answered (q1).",
        "The agent handed over to another agent.",
        "The run switched to another model.",
    ];
    assert_eq!(sentences, expected);
}
