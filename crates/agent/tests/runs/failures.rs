//! Tests for failures inside a run: tools that panic or never end, looping models, accepted invalid
//! answers, missing prices and inconsistent snapshots.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_agent::{
    AgentConfig, Agents, Decision, Handoff, OutputContract, Phase, RefusalKind, RunCommand,
    RunError, RunRequest, RunSpec, RunStatus, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec,
};
use throughline_core::{Body, CostEstimator, Usage};
use throughline_json::Json;
use throughline_spec::{RunEvent, ToolApprovalResolution, ToolExecutionStatus};
use tokio::sync::Notify;

use crate::harness::{
    FakeClock, Scene, ScriptedAnswer, ScriptedModels, results, tool_result_texts, us,
};

const MODEL: &str = "claude-sonnet-4-5";
const OTHER: &str = "claude-opus-4-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

async fn reason(scene: &Scene, run: &throughline_core::LogId) -> String {
    match scene.state(run).await.progress.phase {
        Phase::Ended { reason, .. } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Tool that panics after it releases the tools that wait for it.
struct PanickingTool(ToolSpec, Arc<Notify>);

impl Tool for PanickingTool {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            self.1.notify_one();
            panic!("it bursts");
        })
    }
}

/// Tool that signals its start and runs until it is released.
#[derive(Clone, Default)]
struct BlockingTool {
    began: Arc<Notify>,
    end: Arc<Notify>,
}

impl Tool for BlockingTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wait")
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            self.began.notify_one();
            self.end.notified().await;
            ToolAnswer::text("waited")
        })
    }
}

#[tokio::test]
async fn panicking_tool_does_not_affect_other_tools() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("wait", "{}"), ("burst", "{}"), ("crack", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let blocking = BlockingTool::default();
    scene.runner = scene
        .runner
        .with_tool(PanickingTool(ToolSpec::new("burst"), Arc::clone(&blocking.end)))
        .with_tool(PanickingTool(ToolSpec::new("crack").idempotent(), Arc::default()))
        .with_tool(blocking);
    let (started, status) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let texts = tool_result_texts(&scene.models.requests(MODEL)[1]);
    let unknown = "The tool stopped unexpectedly. It is unknown whether the call took effect.";
    assert_eq!(texts, ["waited", unknown, "The tool stopped unexpectedly."]);
    let history = scene.state(&started.run).await.smart.tool_history.unwrap();
    let of =
        |name: &str| history.iter().find(|execution| &*execution.tool_name == name).unwrap().status;
    assert_eq!(of("burst"), Some(ToolExecutionStatus::Unknown));
    assert_eq!(of("crack"), Some(ToolExecutionStatus::Error));
}

/// Tool that advances the clock by a minute and never ends.
struct EndlessTool(Arc<FakeClock>);

impl Tool for EndlessTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wait")
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            self.0.0.fetch_add(60, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn max_wall_clock_ms_applies_while_a_tool_runs() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("wait", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    scene.runner = scene.runner.with_tool(EndlessTool(Arc::clone(&scene.clock)));
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_wall_clock_ms = Some(20);
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(reason(&scene, &started.run).await, "limit reached: maxWallClockMs");
    let state = scene.state(&started.run).await;
    let history = state.smart.tool_history.unwrap();
    assert_eq!(
        history[0].status,
        Some(ToolExecutionStatus::Unknown),
        "the tool may have taken effect"
    );
}

/// Starts a run with a time limit of five seconds. The run waits for a person after three seconds.
/// After the wait, the run continues for `seconds`.
async fn run_for(seconds: u64) -> RunStatus {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("sign", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_wall_clock_ms = Some(5000);
    let started = scene.runner.start(Scene::start(agent, "go")).await.unwrap();
    let later = |seconds: u64| scene.clock.0.fetch_add(seconds, Ordering::SeqCst);
    later(3);
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Waiting);
    later(1000);
    let allowed = ToolApprovalResolution::new("call_0_0".into(), true);
    scene.runner.send_command(&us(), &started.run, RunCommand::Decide(allowed)).await.unwrap();
    later(seconds);
    scene.runner.drive(&us(), &started.run).await.unwrap()
}

#[tokio::test]
async fn max_wall_clock_ms_excludes_only_time_waiting_for_people() {
    assert_eq!(run_for(1).await, RunStatus::Completed);
    assert_eq!(run_for(3).await, RunStatus::Failed, "six seconds were used");
}

#[tokio::test]
async fn tool_calls_in_final_answer_fail_the_run() {
    let models =
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Calls(&[("look", "{}")]));
    let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_tool_calls = Some(2);
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    let expected = "limit reached: maxToolCalls, and the model did not answer without tools";
    assert_eq!(reason(&scene, &started.run).await, expected);
    assert_eq!(
        (scene.models.requests(MODEL).len(), scene.tool_calls.lock().unwrap().len()),
        (3, 2)
    );
}

#[tokio::test]
async fn looping_model_is_stopped_by_max_turns() {
    let models = ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Calls(&[("fly", "{}")]));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_tool_calls = Some(5);
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(reason(&scene, &started.run).await, "limit reached: maxTurns");
    assert_eq!(scene.models.requests(MODEL).len(), 40);
}

#[tokio::test]
async fn accepted_invalid_answer_keeps_its_thoughts() {
    let models =
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Thinks("hm", "not json"));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    agent.gate.rules.truncate(1);
    (agent.gate.rules[0].then, agent.gate.rules[0].same_error_times) = (Decision::Ok, None);
    let (started, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Completed);
    let state = scene.state(&started.run).await;
    assert_eq!(state.answer().as_deref(), Some("not json"));
    let thought =
        state.window.items.iter().find(|entry| matches!(entry.item.body, Body::Thought(_)));
    assert_eq!(thought.expect("it is kept").item.seals.len(), 1);
    let events = scene.events(&started.run).await;
    assert!(!events.iter().any(|event| event.json().as_str().contains("discarded")));
}

#[tokio::test]
async fn tool_events_contain_edited_arguments() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("sign", r#"{"sum":1}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    let mut edited = ToolApprovalResolution::new("call_0_0".into(), true);
    edited.approved_args = Some(json(r#"{"sum":7}"#));
    scene.runner.send_command(&us(), &started.run, RunCommand::Decide(edited)).await.unwrap();
    scene.runner.drive(&us(), &started.run).await.unwrap();
    let events = scene.events(&started.run).await;
    let args = events.iter().filter_map(|event| match event {
        RunEvent::ToolCall(event) => Some(event.args.as_ref()?.as_str().to_owned()),
        _ => None,
    });
    assert_eq!(args.collect::<Vec<_>>(), [r#"{"sum":7}"#, r#"{"sum":7}"#], "started and finished");
}

#[tokio::test]
async fn calls_beside_a_handoff_follow_the_calling_agents_rules() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("transfer_to_clerk", "{}"), ("pay", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("pay")]).await;
    let mut host = AgentConfig::minimal(MODEL).with_name("host");
    host.human_in_the_loop.approve = vec!["pay".into()];
    host.handoffs = vec![Handoff { to: "clerk".into(), description: None }];
    let clerk = AgentConfig::minimal(MODEL).with_name("clerk");
    let mut casting = RunSpec::single_agent(host, Vec::new());
    casting.agents.extend(Agents::from([("clerk".into(), clerk)]));
    let start = RunRequest { casting, ..Scene::start(AgentConfig::minimal(MODEL), "go") };
    let started = scene.runner.start(start).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Waiting);
    assert!(scene.tool_calls.lock().unwrap().is_empty(), "the host needs an approval to pay");
    assert_eq!(scene.state(&started.run).await.progress.agent.to_string(), "clerk");
}

/// Cost estimator with a price for only one model.
struct OnePrice;

impl CostEstimator for OnePrice {
    fn cost(&self, model: &str, _: &Usage) -> Option<f64> {
        (model == MODEL).then_some(0.1)
    }
}

#[tokio::test]
async fn max_cost_usd_rejects_models_without_price_from_any_source() {
    let script = |call: &throughline_core::Call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("sign", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    };
    let models = ScriptedModels::default().with(MODEL, script).with(OTHER, script);
    let mut scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    scene.runner.costs = Some(Arc::new(OnePrice));
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_cost_usd = Some(1.0);
    let mut summarised = agent.clone();
    summarised.context.model = Some(OTHER.into());
    let error = scene.runner.start(Scene::start(summarised, "go")).await.unwrap_err();
    assert!(error.to_string().ends_with("there is no price for claude-opus-4-5"), "{error}");
    let (started, _) = scene.run(agent, "go").await;
    let error =
        scene.runner.send_command(&us(), &started.run, RunCommand::Switch(OTHER.into())).await;
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("there is no price for claude-opus-4-5"), "{error}");
    assert_eq!(scene.state(&started.run).await.model().to_string(), MODEL);
    let snapshot = scene.runner.snapshot(&us(), &started.run).await.unwrap();
    scene.runner.costs = None;
    let error = scene.runner.restore(&us(), snapshot).await.unwrap_err().to_string();
    assert!(error.ends_with("needs a cost estimator, and none is configured"), "{error}");
}

#[tokio::test]
async fn inconsistent_snapshot_is_rejected() {
    let models =
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Calls(&[("sign", "{}")]));
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    let valid = scene.runner.snapshot(&us(), &started.run).await.unwrap();
    let mut unknown = valid.clone();
    unknown.progress.agent = "unknown".into();
    let mut empty = valid.clone();
    empty.items.clear();
    for (snapshot, problem) in [
        (unknown, "progress.agent: unknown is not a declared agent"),
        (empty, "progress.calls: no item contains the tool call call_0_0"),
    ] {
        match scene.runner.restore(&us(), snapshot).await {
            Err(RunError::Refused(refusal)) => {
                assert_eq!((refusal.kind, &*refusal.message), (RefusalKind::Invalid, problem));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn context_names_first_of_several_pending_requests() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("sign", r#"{"sum":1}"#), ("sign", r#"{"sum":2}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    for call in ["call_0_0", "call_0_1"] {
        let state = scene.state(&started.run).await;
        let awaited = state.context("__awaitingApproval").unwrap().tree();
        assert_eq!(awaited.root().text_of("toolCallId").as_deref(), Some(call));
        let allowed = ToolApprovalResolution::new(call.into(), true);
        scene.runner.send_command(&us(), &started.run, RunCommand::Decide(allowed)).await.unwrap();
    }
    assert!(scene.state(&started.run).await.context("__awaitingApproval").is_none());
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Completed);
    assert_eq!(scene.tool_calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn owner_reports_kind_of_refusal() {
    let models = ScriptedModels::default().with(MODEL, |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("wait", "{}")]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let blocking = BlockingTool::default();
    scene.runner = scene.runner.with_tool(blocking.clone());
    let started =
        scene.runner.start(Scene::start(AgentConfig::minimal(MODEL), "go")).await.unwrap();
    let mut other = scene.runner.clone();
    other.owner = "other".into();
    let (us, run) = (us(), started.run);
    let sending = async {
        blocking.began.notified().await;
        let unknown = RunCommand::Decide(ToolApprovalResolution::new("unknown".into(), true));
        let result = other.send_command(&us, &run, unknown).await;
        blocking.end.notify_one();
        result
    };
    let (driven, result) = tokio::join!(scene.runner.drive(&us, &run), sending);
    assert_eq!(driven.unwrap(), RunStatus::Completed);
    match result {
        Err(RunError::Refused(refusal)) => assert_eq!(refusal.kind, RefusalKind::NotFound),
        other => panic!("{other:?}"),
    }
}
