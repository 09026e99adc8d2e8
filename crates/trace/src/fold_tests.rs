//! Tests that a trace contains each text only once.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{Content, ElisionReason, LogId, Record, Tenant, pack_events};
use throughline_json::Name;
use throughline_spec::RedactionPolicy;
use throughline_testkit::figure;

use crate::fold::{Fold, TraceOptions};
use crate::otlp;
use crate::resource::Resource;
use crate::session::Mode;
use crate::session::Status;
use crate::session::{BatchPhase, Session, TraceBatch};
use crate::span::{Span, SpanKind, Value};

const TURNS: u64 = 1000;

fn options() -> TraceOptions {
    TraceOptions { thread_id: None, log_data: true, redaction: RedactionPolicy::default() }
}

fn fold() -> Fold {
    Fold::new(&Tenant::from("default"), &LogId::from("run_1"), &LogId::from("thread_1"), options())
}

fn record(seq: u64, events: &[String]) -> Record {
    let packed = pack_events(events.iter().map(String::as_bytes));
    let at =
        Timestamp::from_millisecond(1_760_000_000_000 + 10 * i64::try_from(seq).unwrap()).unwrap();
    let events = Some((1, u64::from(packed.events)));
    Record { seq, kind: packed.kind, at, events, content: Content::Here(packed.content) }
}

/// Returns the events of one turn with a tool call.
fn turn(number: u64) -> Vec<String> {
    let thought = format!("Thought {number}: {}", "why and how, step by step. ".repeat(12));
    let message =
        if number == 1 { r#"{"type":"message","role":"user","content":"Go on."}"# } else { "" };
    let events = [
        message.to_owned(),
        format!(r#"{{"type":"turn","phase":"start","turn":{number},"model":"claude-sonnet-4-5"}}"#),
        format!(
            r#"{{"type":"usage","usage":{{"inputTokens":{},"outputTokens":50,"reasoningTokens":40}}}}"#,
            100 * number
        ),
        format!(
            r#"{{"type":"replay","turn":{number},"kept":{},"seals":{{"kept":{}}}}}"#,
            number - 1,
            number - 1
        ),
        format!(
            r#"{{"type":"thought","phase":"end","turn":{number},"text":"{thought}","sealedBytes":432}}"#
        ),
        format!(r#"{{"type":"turn","phase":"end","turn":{number},"reason":"tools"}}"#),
        format!(
            r#"{{"type":"tool_call","phase":"start","name":"look","id":"call_{number}","args":{{"at":{number}}}}}"#
        ),
        format!(
            r#"{{"type":"tool_call","phase":"success","name":"look","id":"call_{number}","args":{{"at":{number}}},"result":"{}"}}"#,
            "found ".repeat(20)
        ),
    ];
    events.into_iter().filter(|event| !event.is_empty()).collect()
}

/// Returns the size of a session document with these spans, in bytes.
fn bytes(fold: &Fold, spans: &[Span]) -> usize {
    let session = Session {
        id: Name::from("sess_run_1"),
        trace: fold.trace(),
        root: fold.root(),
        thread: Name::from("thread_1"),
        log_data: true,
        mode: Mode::Batched,
        sinks: Vec::new(),
    };
    let batch = TraceBatch {
        session: Arc::new(session),
        phase: BatchPhase::Whole,
        before: 0,
        spans: spans.to_vec(),
        agent: fold.agent(Timestamp::MIN),
        status: Status::Success,
        errors: Vec::new(),
        is_again: false,
    };
    batch.to_json().as_str().len()
}

#[test]
fn trace_of_a_thousand_turns_grows_linearly() {
    let (mut full, resource) = (fold(), Resource::default());
    let (mut spans, mut sum, mut sum_otlp) = (Vec::new(), 0, 0);
    for number in 1..=TURNS {
        let record = record(number, &turn(number));
        spans.extend(full.record(&record));
        // Trace the same turn alone, in a run of its own.
        let mut alone = fold();
        let own = alone.record(&record);
        assert_eq!(own.len(), 2, "a turn and a tool");
        sum += bytes(&alone, &own) - bytes(&alone, &[]);
        sum_otlp += otlp::spans(&own, &resource).len() - otlp::spans([], &resource).len();
    }
    let (total, total_otlp) = (bytes(&full, &spans), otlp::spans(&spans, &resource).len());
    assert_eq!(spans.len() as u64, 2 * TURNS);
    for (name, total, sum) in [("session", total, sum), ("otlp", total_otlp, sum_otlp)] {
        // Multiply by 100 to compare integers instead of rounded fractions.
        assert!(100 * total <= 130 * sum, "{name}: {total} bytes, and its turns have {sum}");
        let share = 1000 * total / sum;
        let size = format!(
            "{total} bytes at {TURNS} turns, {}.{:03} of the sum of its turns",
            share / 1000,
            share % 1000
        );
        figure(&format!("traces: {name}"), size);
    }
}

#[test]
fn repeated_delivery_has_the_same_span_ids() {
    let read = || {
        let mut fold = fold();
        (1..=3).flat_map(|number| fold.record(&record(number, &turn(number)))).collect::<Vec<_>>()
    };
    assert_eq!(read(), read());
    let kinds: Vec<SpanKind> = read().iter().map(|span| span.kind).collect();
    assert_eq!(kinds, [SpanKind::Inference, SpanKind::Tool].repeat(3));
}

#[test]
fn content_is_omitted_without_log_data() {
    let without_data = TraceOptions { log_data: false, ..options() };
    let mut fold = Fold::new(
        &Tenant::from("default"),
        &LogId::from("run_1"),
        &LogId::from("thread_1"),
        without_data,
    );
    let spans = fold.record(&record(1, &turn(1)));
    let all = format!("{spans:?}");
    for text in ["Thought 1", "found", "Go on.", "\"at\""] {
        assert!(!all.contains(text), "{text}: {all}");
    }
    assert!(all.contains("gen_ai.usage.reasoning.output_tokens"), "{all}");
}

#[test]
fn forgotten_events_are_reported_as_forgotten() {
    let mut fold = fold();
    fold.record(&record(1, &turn(1)));
    let erased = Record { content: Content::Gone(ElisionReason::Forgotten), ..record(2, &turn(2)) };
    let [span] = &fold.record(&erased)[..] else { panic!("one span") };
    assert_eq!((span.kind, &*span.name), (SpanKind::Note, "forgotten"));
    let expected = [
        ("throughline.forgotten.events", Value::from(7)),
        ("throughline.forgotten.why", Value::from(ElisionReason::Forgotten.to_string())),
    ];
    assert_eq!(span.attributes, expected);
    // Later events are traced as usual.
    assert_eq!(fold.record(&record(3, &turn(3))).len(), 2);
}

#[test]
fn usage_outside_turns_is_counted() {
    let events = [
        r#"{"type":"run","status":"running","agent":"a"}"#,
        r#"{"type":"turn","phase":"start","turn":1,"model":"m","purpose":"reflection"}"#,
        r#"{"type":"usage","usage":{"inputTokens":400,"outputTokens":20},"costUsd":0.5}"#,
        r#"{"type":"replay","turn":1,"kept":3}"#,
        r#"{"type":"reflection","id":"r1","turn":1,"text":"All is well."}"#,
        r#"{"type":"turn","phase":"start","turn":2,"model":"m"}"#,
        r#"{"type":"run","status":"failed","reason":"no one answered"}"#,
    ];
    let mut fold = fold();
    let spans = fold.record(&record(1, &events.map(str::to_owned)));
    let named: Vec<(&str, Option<&str>)> =
        spans.iter().map(|span| (&*span.name, span.problem.as_deref())).collect();
    let unanswered = ("chat m", Some("the model did not answer"));
    assert_eq!(named, [("chat m", None), ("reflection", None), unanswered]);
    let total = fold.agent(Timestamp::MIN).unwrap().attributes;
    for (key, value) in [
        ("gen_ai.usage.input_tokens", Value::from(400)),
        ("throughline.fates.kept", Value::from(3)),
        ("throughline.cost_usd", Value::Decimal(0.5)),
    ] {
        assert!(total.contains(&(key, value)), "{key}: {total:?}");
    }
}
