//! Tests for document 004, `ReasoningConfig` and `TracingConfig`: JSON round trips, presets, and
//! each rule in the document.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test may fail loudly"
)]

use proptest::prelude::*;
use throughline_core::NativeReasoning;
use throughline_json::Json;
use throughline_spec::{
    Cadence, ReasoningConfig, Reflection, ReflectionMode, ResolvedReasoning, TracingConfig,
};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn parse(text: &str) -> ReasoningConfig {
    ReasoningConfig::parse(&json(text)).unwrap()
}

fn resolve(text: &str) -> ResolvedReasoning {
    parse(text).resolve()
}

fn native(effort: &str) -> NativeReasoning {
    let effort = Some(effort.into());
    NativeReasoning { enabled: Some(true), effort, ..NativeReasoning::default() }
}

fn reflection(max_tokens: u64, max_chars: u64, cadence: Cadence) -> Reflection {
    Reflection {
        cadence,
        mode: ReflectionMode::Piggyback,
        max_tokens,
        max_chars,
        keep_last: 3,
        summarize: false,
        prompt_template: None,
        emit_events: true,
        max_per_run: None,
        every_n_turns: 1,
    }
}

const FULL: &str = r#"{"enabled":true,"level":"high","native":{"effort":"minimal","budgetTokens":4096,"includeThoughts":true,"providerExtras":{"b":1e2,"a":[1]}},"reflection":{"enabled":true,"cadence":"every_turn","mode":"separate","maxTokens":10,"maxChars":20,"keepLast":4,"summarize":true,"promptTemplate":"Why?","emitEvents":false,"maxPerRun":0,"everyNTurns":2}}"#;

#[test]
fn every_field_round_trips() {
    assert_eq!(parse(FULL).json().as_str(), FULL);
}

#[test]
fn explicit_fields_override_the_preset() {
    let resolved = resolve(FULL);
    let native = NativeReasoning {
        enabled: Some(true),
        effort: Some("minimal".into()),
        budget_tokens: Some(4096),
        include_thoughts: Some(true),
        provider_extras: vec![("b".into(), json("1e2")), ("a".into(), json("[1]"))],
    };
    let reflection = Reflection {
        cadence: Cadence::EveryTurn,
        mode: ReflectionMode::Separate,
        max_tokens: 10,
        max_chars: 20,
        keep_last: 4,
        summarize: true,
        prompt_template: Some("Why?".into()),
        emit_events: false,
        max_per_run: Some(0),
        every_n_turns: 2,
    };
    assert_eq!(resolved.native, Some(native));
    assert_eq!(resolved.reflection, Some(reflection));
}

#[test]
fn one_explicit_field_keeps_the_other_defaults() {
    let resolved =
        resolve(r#"{"level":"low","reflection":{"maxChars":5},"native":{"effort":"high"}}"#);
    assert_eq!(resolved.native, Some(native("high")));
    assert_eq!(resolved.reflection, Some(reflection(200, 5, Cadence::OnBranch)));
}

#[test]
fn each_level_presets_effort_and_reflection() {
    for (level, tokens, chars, cadence) in [
        ("low", 200, 600, Cadence::OnBranch),
        ("medium", 350, 1200, Cadence::AfterTool),
        ("high", 600, 2000, Cadence::AfterTool),
    ] {
        let resolved = resolve(&format!(r#"{{"level":"{level}"}}"#));
        assert_eq!(resolved.native, Some(native(level)));
        assert_eq!(resolved.reflection, Some(reflection(tokens, chars, cadence)));
    }
}

#[test]
fn level_defaults_to_medium() {
    for text in [r#"{"enabled":true}"#, r#"{"native":{}}"#, r#"{"reflection":{}}"#] {
        assert_eq!(resolve(text), resolve(r#"{"level":"medium"}"#));
    }
}

#[test]
fn enabled_false_turns_everything_off() {
    let text = FULL.replace(r#""enabled":true,"level""#, r#""enabled":false,"level""#);
    assert_eq!(resolve(&text), ResolvedReasoning { native: Some(off()), reflection: None });
}

#[test]
fn any_setting_enables_reasoning_and_an_empty_config_does_not() {
    assert_eq!(resolve("{}"), ResolvedReasoning::default());
    assert!(resolve(r#"{"level":"low"}"#).native.is_some());
    assert!(resolve(r#"{"native":{}}"#).native.is_some());
    assert!(resolve(r#"{"reflection":{}}"#).native.is_some());
}

#[test]
fn native_false_and_reflection_false_disable_each() {
    let no_native = resolve(r#"{"level":"low","native":false}"#);
    assert_eq!(no_native.native, Some(off()));
    assert!(no_native.reflection.is_some());
    let no_reflection = resolve(r#"{"level":"low","reflection":false}"#);
    assert!(no_reflection.native.is_some());
    assert_eq!(no_reflection.reflection, None);
    let text = r#"{"native":false,"reflection":false}"#;
    assert_eq!(parse(text).json().as_str(), text);
    assert_eq!(resolve(text), ResolvedReasoning { native: Some(off()), reflection: None });
}

/// Disabled reasoning must be explicit in the request, because many models reason by default.
fn off() -> NativeReasoning {
    NativeReasoning { enabled: Some(false), ..NativeReasoning::default() }
}

#[test]
fn reflection_can_be_disabled_or_its_cadence_turned_off() {
    assert_eq!(resolve(r#"{"reflection":{"enabled":false}}"#).reflection, None);
    assert_eq!(resolve(r#"{"reflection":{"cadence":"off"}}"#).reflection, None);
    assert!(resolve(r#"{"reflection":{"enabled":true}}"#).reflection.is_some());
}

#[test]
fn every_cadence_mode_level_and_effort_is_documented() {
    for (field, values) in [
        ("level", &["low", "medium", "high"][..]),
        ("native.effort", &["minimal", "low", "medium", "high"]),
        ("reflection.cadence", &["off", "every_turn", "after_tool", "on_branch"]),
        ("reflection.mode", &["piggyback", "separate"]),
    ] {
        let document = |value: &str| match field.split_once('.') {
            Some((section, key)) => format!(r#"{{"{section}":{{"{key}":"{value}"}}}}"#),
            None => format!(r#"{{"{field}":"{value}"}}"#),
        };
        for value in values {
            assert_eq!(parse(&document(value)).json().as_str(), document(value));
        }
        let error = ReasoningConfig::parse(&json(&document("extreme"))).unwrap_err();
        let expected = format!("reasoning.{field} must be one of {}", values.join(", "));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn errors_name_the_invalid_member() {
    for (text, message) in [
        ("[]", "reasoning must be an object"),
        (r#"{"enabled":"yes"}"#, "reasoning.enabled must be true or false"),
        (r#"{"native":true}"#, "reasoning.native must be an object or false"),
        (r#"{"reflection":"on"}"#, "reasoning.reflection must be an object or false"),
        (
            r#"{"native":{"budgetTokens":-1}}"#,
            "reasoning.native.budgetTokens must be a non-negative whole number",
        ),
        (
            r#"{"native":{"includeThoughts":1}}"#,
            "reasoning.native.includeThoughts must be true or false",
        ),
        (
            r#"{"native":{"providerExtras":[]}}"#,
            "reasoning.native.providerExtras must be an object",
        ),
        (
            r#"{"reflection":{"everyNTurns":0}}"#,
            "reasoning.reflection.everyNTurns must be a whole number >= 1",
        ),
        (
            r#"{"reflection":{"everyNTurns":"2"}}"#,
            "reasoning.reflection.everyNTurns must be a whole number >= 1",
        ),
        (
            r#"{"reflection":{"maxPerRun":-1}}"#,
            "reasoning.reflection.maxPerRun must be a non-negative whole number",
        ),
        (
            r#"{"reflection":{"maxTokens":1.5}}"#,
            "reasoning.reflection.maxTokens must be a non-negative whole number",
        ),
        (
            r#"{"reflection":{"maxChars":-1}}"#,
            "reasoning.reflection.maxChars must be a non-negative whole number",
        ),
        (
            r#"{"reflection":{"keepLast":-1}}"#,
            "reasoning.reflection.keepLast must be a non-negative whole number",
        ),
        (
            r#"{"reflection":{"promptTemplate":1}}"#,
            "reasoning.reflection.promptTemplate must be a string",
        ),
        (
            r#"{"reflection":{"summarize":1}}"#,
            "reasoning.reflection.summarize must be true or false",
        ),
        (
            r#"{"reflection":{"emitEvents":1}}"#,
            "reasoning.reflection.emitEvents must be true or false",
        ),
        (
            r#"{"levle":"low"}"#,
            "reasoning.levle is not a known setting; use enabled, level, native, reflection",
        ),
        (
            r#"{"native":{"budget":1}}"#,
            "reasoning.native.budget is not a known setting; use effort, budgetTokens, \
             includeThoughts, providerExtras",
        ),
    ] {
        assert_eq!(ReasoningConfig::parse(&json(text)).unwrap_err().to_string(), message);
    }
    let error = ReasoningConfig::parse(&json(r#"{"reflection":{"feedTo":"plan"}}"#)).unwrap_err();
    assert_eq!(&*error.field, "reasoning.reflection.feedTo");
}

#[test]
fn null_means_absent() {
    let text = r#"{"enabled":null,"level":null,"native":null,"reflection":null}"#;
    assert_eq!(parse(text), ReasoningConfig::default());
    let text = r#"{"native":{"effort":null,"budgetTokens":null,"includeThoughts":null,"providerExtras":null},"reflection":{"enabled":null,"cadence":null,"everyNTurns":null}}"#;
    assert_eq!(parse(text), parse(r#"{"native":{},"reflection":{}}"#));
}

proptest! {
    #[test]
    fn every_configuration_round_trips(
        enabled in any::<Option<bool>>(),
        level in proptest::option::of("low|medium|high"),
        native in proptest::option::of(any::<Option<(Option<u64>, Option<bool>)>>()),
        reflection in proptest::option::of(any::<Option<(Option<u64>, Option<bool>)>>()),
        cadence in proptest::option::of("off|every_turn|after_tool|on_branch"),
        template in proptest::option::of(".{0,20}"),
    ) {
        let document = throughline_json::object(|out| {
            if let Some(enabled) = enabled {
                out.bool("enabled", enabled);
            }
            out.maybe_string("level", level.as_deref());
            let sections = [("native", &native), ("reflection", &reflection)];
            for (key, section) in sections {
                match section {
                    None => {}
                    Some(None) => {
                        out.bool(key, false);
                    }
                    Some(Some((number, flag))) => {
                        let is_native = key == "native";
                        out.object(key, |out| {
                            if let Some(number) = number {
                                out.number(if is_native { "budgetTokens" } else { "maxPerRun" }, *number);
                            }
                            if let Some(flag) = flag {
                                out.bool(if is_native { "includeThoughts" } else { "summarize" }, *flag);
                            }
                            if !is_native {
                                out.maybe_string("cadence", cadence.as_deref());
                                out.maybe_string("promptTemplate", template.as_deref());
                            }
                        });
                    }
                }
            }
        });
        let config = ReasoningConfig::parse(&document).unwrap();
        prop_assert!(config.json().is_equivalent_to(&document));
        prop_assert_eq!(&ReasoningConfig::parse(&config.json()).unwrap(), &config);
        let resolved = config.resolve();
        if enabled == Some(false) {
            prop_assert_eq!(resolved, ResolvedReasoning { native: Some(off()), reflection: None });
        } else if let Some(reflection) = resolved.reflection {
            prop_assert!(reflection.cadence != Cadence::Off);
        }
    }
}

#[test]
fn tracing_config_round_trips_and_refuses_credentials() {
    for text in [
        r#"{"enabled":false}"#,
        r#"{"enabled":true,"mode":"batched","threadId":"t","logData":false,"sink":{"type":"file","path":"traces"}}"#,
        r#"{"enabled":true,"mode":"streaming","sink":{"type":"http","url":"https://x/"}}"#,
        r#"{"enabled":true,"sink":{"type":"cognipeer","name":"console"}}"#,
        r#"{"enabled":true,"sink":{"type":"otlp","url":"http://127.0.0.1:4318"}}"#,
        r#"{"enabled":true,"sink":{"type":"custom","name":"audit"}}"#,
    ] {
        assert_eq!(TracingConfig::parse(&json(text)).unwrap().json().as_str(), text);
    }
    for (text, problem) in [
        ("{}", "tracing.enabled is missing"),
        (r#"{"enabled":true,"verbose":1}"#, "tracing.verbose"),
        (r#"{"enabled":true,"mode":"later"}"#, "tracing.mode"),
        (r#"{"enabled":true,"sink":{}}"#, "tracing.sink.type is missing"),
        (r#"{"enabled":true,"sink":{"type":"file"}}"#, "or write `path`"),
        (r#"{"enabled":true,"sink":{"type":"custom"}}"#, "tracing.sink.name is missing"),
        (r#"{"enabled":true,"sink":{"type":"file","url":"x"}}"#, "does not apply"),
        (r#"{"enabled":true,"sink":{"type":"file","name":"a","path":"b"}}"#, "keep one of them"),
        (r#"{"enabled":true,"sink":{"type":"cognipeer","apiKey":"k"}}"#, "is a credential"),
        (r#"{"enabled":true,"sink":{"type":"http","headers":{"a":"b"}}}"#, "is a credential"),
    ] {
        let error = TracingConfig::parse(&json(text)).unwrap_err().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }
}
