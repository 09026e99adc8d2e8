//! Tests of documented runtime rules: `ReasoningConfig.reflection`, `humanInTheLoop.askUser`,
//! `AgentLimits`, `RuntimeProfile`, `costEstimator`, and `ephemeral` and `thinkingBlocks` of
//! `LLMMessage`.

use std::sync::{Arc, Mutex};

use throughline_agent::{
    AgentConfig, AgentLimits, AskUser, Listener, OutputContract, RunStatus, RuntimeProfile,
    ToolSpec, narrate,
};
use throughline_core::{Body, Call, CostEstimator, ModelErrorKind, Part, Store, Usage};
use throughline_json::{Json, Name};
use throughline_spec::{ReasoningConfig, RedactionPolicy, RunEvent, ThoughtPhase};

use crate::harness::*;

const CLAUDE: &str = "claude-sonnet-4-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn reflecting(config: &str) -> AgentConfig {
    let config = format!(r#"{{"level":"low","reflection":{config}}}"#);
    AgentConfig::minimal(CLAUDE).reasoning(&ReasoningConfig::parse(&json(&config)).unwrap())
}

fn is_reflection(call: &Call) -> bool {
    call.items.last().is_some_and(|item| &*item.id.0 == "reflection-question")
}

/// Script that alternates between two tools and answers after six calls.
fn busy(call: &Call) -> ScriptedAnswer {
    match results(call) {
        0 | 1 | 4 | 5 => ScriptedAnswer::Calls(&[("look", "{}")]),
        2 | 3 => ScriptedAnswer::Calls(&[("listen", "{}")]),
        _ => ScriptedAnswer::Text("Done."),
    }
}

fn tools() -> Vec<ToolSpec> {
    vec![ToolSpec::new("look"), ToolSpec::new("listen")]
}

async fn reflections(config: &str) -> (Vec<(u64, String)>, usize, Vec<String>) {
    let models = ScriptedModels::default().with(CLAUDE, |call| {
        if !is_reflection(call) {
            return busy(call);
        }
        match results(call) {
            1 => ScriptedAnswer::Text("one look so far"),
            2 => ScriptedAnswer::Text("two looks now"),
            3 => ScriptedAnswer::Text("heard something strange"),
            4 => ScriptedAnswer::Text("nothing else to hear"),
            5 => ScriptedAnswer::Text("looking again pays"),
            _ => ScriptedAnswer::Text("that must be all there is"),
        }
    });
    let scene = Scene::new(models, tools()).await;
    let (started, status) = scene.run(reflecting(config), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let smart = scene.state(&started.run).await.smart_state();
    let records = smart.reflections.unwrap_or_default();
    let events = scene.events(&started.run).await;
    let events = events.iter().filter(|event| matches!(event, RunEvent::Reflection(_))).count();
    let records = records.iter().map(|record| (record.turn, record.text.to_string())).collect();
    let messages = smart.messages.iter().map(|message| message.content.to_string()).collect();
    (records, events, messages)
}

#[tokio::test]
async fn reflection_cadence_after_tool_runs_every_turn_outside_the_conversation() {
    let (records, events, messages) = reflections(r#"{"cadence":"after_tool"}"#).await;
    assert_eq!(records.len(), 6);
    assert_eq!(records[0], (1, "one look so far".to_owned()));
    assert_eq!(events, 6, "emitEvents is on by itself");
    assert!(records.iter().all(|(_, text)| !messages.contains(text)), "{messages:?}");
}

#[tokio::test]
async fn reflection_cadence_on_branch_runs_when_tools_differ() {
    let (records, ..) = reflections(r#"{"cadence":"on_branch"}"#).await;
    let turns: Vec<u64> = records.iter().map(|(turn, _)| *turn).collect();
    assert_eq!(turns, [1, 3, 5]);
}

#[tokio::test]
async fn reflection_max_per_run_every_n_turns_max_chars_and_emit_events_apply() {
    let (records, events, _) = reflections(
        r#"{"cadence":"every_turn","maxPerRun":2,"everyNTurns":2,"maxChars":8,"emitEvents":false}"#,
    )
    .await;
    let expected = [(1, "one look…".to_owned()), (3, "heard so…".to_owned())];
    assert_eq!((records.as_slice(), events), (expected.as_slice(), 0));
}

#[tokio::test]
async fn reflection_cadence_off_never_reflects() {
    assert!(reflections(r#"{"cadence":"off"}"#).await.0.is_empty());
}

#[tokio::test]
async fn failed_reflection_does_not_fail_the_run() {
    let models = ScriptedModels::default().with(CLAUDE, |call| {
        if is_reflection(call) { ScriptedAnswer::Fails(ModelErrorKind::Other) } else { busy(call) }
    });
    let scene = Scene::new(models, tools()).await;
    let (_, status) = scene.run(reflecting(r#"{"cadence":"after_tool"}"#), "go").await;
    assert_eq!(status, RunStatus::Completed);
}

/// Removes the notes that follow a tool result.
fn without_notes(mut body: Body) -> Body {
    if let Body::Result(result) = &mut body {
        for part in &mut result.parts {
            let Part::Text(text) = part else { continue };
            let own = text.split_once("\n\n[Not from the tool]").map(|(own, _)| Name::from(own));
            *text = own.unwrap_or_else(|| text.clone());
        }
    }
    body
}

#[tokio::test]
async fn reflection_adds_only_notes_to_main_requests() {
    let script =
        |call: &Call| if is_reflection(call) { ScriptedAnswer::Text("hm") } else { busy(call) };
    let with = Scene::new(ScriptedModels::default().with(CLAUDE, script), tools()).await;
    with.run(reflecting(r#"{"cadence":"after_tool"}"#), "go").await;
    let without = Scene::new(ScriptedModels::default().with(CLAUDE, script), tools()).await;
    without.run(reflecting("false"), "go").await;
    let requests = |scene: &Scene| {
        let calls = scene.models.requests(CLAUDE).into_iter().filter(|call| !is_reflection(call));
        calls.map(|call| (call.system, call.tools, call.items)).collect::<Vec<_>>()
    };
    let bodies = |requests: Vec<(Vec<_>, Vec<_>, Vec<throughline_core::Item>)>| {
        requests
            .into_iter()
            .map(
                |(system, tools, items): (
                    Vec<throughline_core::Item>,
                    Vec<throughline_core::Tool>,
                    _,
                )| {
                    let items = items.into_iter();
                    let items: Vec<_> = items
                        .map(|item| (item.place, item.role, without_notes(item.body)))
                        .collect();
                    (system, tools, items)
                },
            )
            .collect::<Vec<_>>()
    };
    assert_eq!(bodies(requests(&with)), bodies(requests(&without)));
}

#[tokio::test]
async fn ask_user_question_is_offered_only_when_ask_user_is_on() {
    let models = || ScriptedModels::default().with(CLAUDE, |_| ScriptedAnswer::Text("Hello."));
    let offered = |scene: &Scene| {
        let call = scene.models.requests(CLAUDE).remove(0);
        call.tools.iter().any(|tool| &*tool.name == "ask_user_question")
    };
    let scene = Scene::new(models(), Vec::new()).await;
    scene.run(AgentConfig::smart(CLAUDE), "hi").await;
    assert!(!offered(&scene));
    let scene = Scene::new(models(), Vec::new()).await;
    let mut agent = AgentConfig::smart(CLAUDE);
    agent.human_in_the_loop.ask_user = Some(AskUser::default());
    scene.run(agent, "hi").await;
    assert!(offered(&scene));
}

#[test]
fn runtime_profiles_preset_limits_and_explicit_values_win() {
    let of = |profile, limits: AgentLimits| {
        let limits = limits.with_defaults_from(profile);
        (limits.max_tool_calls, limits.max_parallel_tools, limits.max_context_tokens)
    };
    let none = AgentLimits::default();
    assert_eq!(of(RuntimeProfile::Fast, none), (Some(8), Some(3), Some(32_000)));
    assert_eq!(of(RuntimeProfile::Balanced, none), (Some(20), Some(5), Some(96_000)));
    assert_eq!(of(RuntimeProfile::Deep, none), (Some(40), Some(8), Some(200_000)));
    assert_eq!(of(RuntimeProfile::Research, none), (Some(80), Some(10), Some(400_000)));
    let own = AgentLimits { max_tool_calls: Some(3), ..none };
    assert_eq!(of(RuntimeProfile::Custom, own), (Some(3), Some(5), Some(96_000)));
}

/// Cost estimator with a price for only one model.
struct OneDollarPrice;

impl CostEstimator for OneDollarPrice {
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        (model == CLAUDE).then_some(if usage.output > 0 { 1.0 } else { 0.0 })
    }
}

#[tokio::test]
async fn max_cost_usd_needs_a_cost_estimator_and_a_price_and_ends_a_run() {
    let models = ScriptedModels::default().with(CLAUDE, busy).with("claude-opus-4-5", busy);
    let mut scene = Scene::new(models, tools()).await;
    let limited = |model: &str| {
        let mut agent = AgentConfig::minimal(model);
        agent.limits.max_cost_usd = Some(2.5);
        agent
    };
    let start = |agent: AgentConfig| Scene::start(agent, "go");
    let error = scene.runner.start(start(limited(CLAUDE))).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "agents.assistant.limits.maxCostUsd: needs a cost estimator, and none is configured"
    );
    scene.runner.costs = Some(Arc::new(OneDollarPrice));
    let error =
        scene.runner.start(start(limited("claude-opus-4-5"))).await.unwrap_err().to_string();
    assert!(error.ends_with("there is no price for claude-opus-4-5"), "{error}");
    let (started, status) = scene.run(limited(CLAUDE), "go").await;
    assert_eq!(status, RunStatus::Failed);
    let state = scene.state(&started.run).await;
    assert_eq!(state.progress.breach.as_deref(), Some("maxCostUsd"));
    assert_eq!(scene.models.requests(CLAUDE).len(), 3);
}

#[tokio::test]
async fn ephemeral_messages_are_audited() {
    const HIDDEN: &str = "MANDARIN";
    let models = ScriptedModels::default().with(CLAUDE, |call| {
        let has_feedback = call
            .items
            .iter()
            .any(|item| item.ephemeral && item.visible().is_some_and(|text| text.contains(HIDDEN)));
        if has_feedback { ScriptedAnswer::Text(r#"{"n":1}"#) } else { ScriptedAnswer::Text("no") }
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(CLAUDE);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    for rule in &mut agent.gate.rules {
        rule.feedback = Some(format!("{HIDDEN}: {{error}}").into());
    }
    let log = Arc::new(EventLog::default());
    scene.runner.listener = Some(Arc::clone(&log) as Arc<dyn Listener>);
    let (started, status) = scene.run(agent, "count").await;
    assert_eq!(status, RunStatus::Completed, "the model saw it");
    let is_feedback = |event: &RunEvent| matches!(event, RunEvent::Message(message) if message.ephemeral == Some(true) && message.content.contains(HIDDEN));
    let events = scene.events(&started.run).await;
    assert!(events.iter().any(is_feedback), "the Journal contains it, marked as ephemeral");
    assert!(log.0.lock().unwrap().iter().any(is_feedback), "the listener received it");
    let narrative = narrate(&events, &RedactionPolicy::default());
    let sentence =
        narrative.lines().find(|line| line.contains(HIDDEN)).expect("the narrative contains it");
    assert!(sentence.contains("(ephemeral: not kept in the thread)"), "{sentence}");
    let thread = scene.journal.read(&us(), &started.thread, 0, 500).await.unwrap();
    let in_thread = thread.iter().filter_map(|record| record.content.bytes());
    let mut in_thread = in_thread.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(!in_thread.any(|text| text.contains(HIDDEN)), "the Thread does not contain it");
    let state = scene.state(&started.run).await.smart_state().json();
    assert!(!state.as_str().contains(HIDDEN), "nor do messages, memory and summaries");
}

#[derive(Default)]
struct EventLog(Mutex<Vec<RunEvent>>);

impl Listener for EventLog {
    fn on_event(&self, _: &Name, event: &RunEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[tokio::test]
async fn ephemeral_messages_count_toward_the_context_window() {
    const LONG: &str = "no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no";
    let models = ScriptedModels::default().with(CLAUDE, |_| ScriptedAnswer::Text(LONG));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(CLAUDE);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    agent.limits.max_context_tokens = Some(10);
    let (started, status) = scene.run(agent, "count").await;
    assert_eq!(status, RunStatus::Failed);
    let state = scene.state(&started.run).await;
    assert!(state.window.tokens() < 10, "the conversation alone would fit");
    assert_eq!(state.progress.breach.as_deref(), Some("maxContextTokens"));
    assert_eq!(scene.models.requests(CLAUDE).len(), 1);
}

#[tokio::test]
async fn events_and_state_contain_the_thinking_blocks() {
    let answer = |_: &Call| ScriptedAnswer::Thinks("Weigh both.", "Blue.");
    let scene = Scene::new(ScriptedModels::default().with(CLAUDE, answer), Vec::new()).await;
    let (started, status) = scene.run(AgentConfig::minimal(CLAUDE), "Which?").await;
    assert_eq!(status, RunStatus::Completed);
    let events = scene.events(&started.run).await;
    let mut ends = events.iter().filter_map(|event| match event {
        RunEvent::Thought(thought) if thought.phase == ThoughtPhase::End => Some(thought),
        _ => None,
    });
    let thought = ends.next().unwrap();
    assert_eq!(thought.text.as_deref(), Some("Weigh both."));
    assert_eq!(thought.sealed_bytes, Some(6), "the size of `signed`");
    assert_eq!(ends.next(), None);
    let state = scene.state(&started.run).await.smart_state();
    let expected = r#"{"role":"assistant","content":"Blue.","thinkingBlocks":[{"type":"thinking","content":"Weigh both.","signature":"signed"}],"toolCalls":[]}"#;
    assert_eq!(state.messages[1].json().as_str(), expected);
}
