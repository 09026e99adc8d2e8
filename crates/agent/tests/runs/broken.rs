//! What goes wrong within a run, and ends there: tools that panic or never end, models that go round in circles, answers that are
//! taken although they do not fit, prices that nobody knows, and snapshots that do not hold together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_agent::{
    AgentConfig, Agents, Casting, Decision, Handoff, OutputContract, Phase, RefusalKind, RunError,
    RunStatus, Start, Tool, ToolAnswer, ToolContext, ToolSpec, Word, Working,
};
use throughline_core::{
    Body, CostEstimator, Json, RunEvent, ToolApprovalResolution, ToolExecutionStatus, Usage,
};
use tokio::sync::Notify;

use crate::harness::{Cast, Says, Scene, Still, results, said_by_tools, us};

const MODEL: &str = "claude-sonnet-4-5";
const OTHER: &str = "claude-opus-4-5";

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// How often, and with what reason, a run ended that way.
async fn reason(scene: &Scene, run: &throughline_core::LogId) -> String {
    match scene.state(run).await.progress.phase {
        Phase::Ended { reason, .. } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A tool that panics, and lets go of those that wait for that.
struct Bursting(ToolSpec, Arc<Notify>);

impl Tool for Bursting {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            self.1.notify_one();
            panic!("it bursts");
        })
    }
}

/// A tool that says when it begins, and is at work until somebody says so.
#[derive(Clone, Default)]
struct Patient {
    began: Arc<Notify>,
    end: Arc<Notify>,
}

impl Tool for Patient {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wait")
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            self.began.notify_one();
            self.end.notified().await;
            ToolAnswer::text("waited")
        })
    }
}

#[tokio::test]
async fn a_tool_that_panics_ends_alone() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("wait", "{}"), ("burst", "{}"), ("crack", "{}")]),
        _ => Says::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let patient = Patient::default();
    scene.runner = scene
        .runner
        .with_tool(Bursting(ToolSpec::new("burst"), Arc::clone(&patient.end)))
        .with_tool(Bursting(ToolSpec::new("crack").idempotent(), Arc::default()))
        .with_tool(patient);
    let (begun, status) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let told = said_by_tools(&scene.models.asked(MODEL)[1]);
    let unknown = "The tool stopped unexpectedly. Whether it took effect is unknown.";
    assert_eq!(told, ["waited", unknown, "The tool stopped unexpectedly."]);
    let history = scene.state(&begun.run).await.smart.tool_history.unwrap();
    let of = |name: &str| history.iter().find(|one| &*one.tool_name == name).unwrap().status;
    assert_eq!(of("burst"), Some(ToolExecutionStatus::Unknown));
    assert_eq!(of("crack"), Some(ToolExecutionStatus::Error));
}

/// A tool that takes a minute by the clock, and then never ends.
struct Endless(Arc<Still>);

impl Tool for Endless {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wait")
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> Working<'a> {
        Box::pin(async move {
            self.0.0.fetch_add(60, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn max_wall_clock_ms_holds_while_a_tool_is_at_work() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("wait", "{}")]),
        _ => Says::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    scene.runner = scene.runner.with_tool(Endless(Arc::clone(&scene.clock)));
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_wall_clock_ms = Some(20);
    let (begun, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(reason(&scene, &begun.run).await, "limit reached: maxWallClockMs");
    let state = scene.state(&begun.run).await;
    let history = state.smart.tool_history.unwrap();
    assert_eq!(history[0].status, Some(ToolExecutionStatus::Unknown), "it may have taken effect");
}

/// A run of five seconds that waited for a person after three, and goes on for so many more.
async fn goes_on_for(seconds: u64) -> RunStatus {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("sign", "{}")]),
        _ => Says::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_wall_clock_ms = Some(5000);
    let begun = scene.runner.begin(Scene::start(agent, "go")).await.unwrap();
    let later = |seconds: u64| scene.clock.0.fetch_add(seconds, Ordering::SeqCst);
    later(3);
    assert_eq!(scene.runner.drive(&us(), &begun.run).await.unwrap(), RunStatus::Waiting);
    later(1000);
    let allowed = ToolApprovalResolution::new("call_0_0".into(), true);
    scene.runner.tell(&us(), &begun.run, Word::Decide(allowed)).await.unwrap();
    later(seconds);
    scene.runner.drive(&us(), &begun.run).await.unwrap()
}

#[tokio::test]
async fn max_wall_clock_ms_leaves_out_the_time_that_a_person_takes_and_nothing_else() {
    assert_eq!(goes_on_for(1).await, RunStatus::Completed);
    assert_eq!(goes_on_for(3).await, RunStatus::Failed, "six seconds were used");
}

#[tokio::test]
async fn a_model_that_calls_tools_in_its_last_answer_ends_there() {
    let models = Cast::default().with(MODEL, |_| Says::Calls(&[("look", "{}")]));
    let scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_tool_calls = Some(2);
    let (begun, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    let expected = "limit reached: maxToolCalls, and the model would not answer without tools";
    assert_eq!(reason(&scene, &begun.run).await, expected);
    assert_eq!((scene.models.asked(MODEL).len(), scene.ran.lock().unwrap().len()), (3, 2));
}

#[tokio::test]
async fn a_model_that_goes_round_in_circles_comes_to_an_end() {
    let models = Cast::default().with(MODEL, |_| Says::Calls(&[("fly", "{}")]));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_tool_calls = Some(5);
    let (begun, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(reason(&scene, &begun.run).await, "limit reached: maxTurns");
    assert_eq!(scene.models.asked(MODEL).len(), 40);
}

#[tokio::test]
async fn an_answer_that_is_taken_as_it_is_keeps_its_thoughts() {
    let models = Cast::default().with(MODEL, |_| Says::Thinks("hm", "not json"));
    let scene = Scene::new(models, Vec::new()).await;
    let mut agent = AgentConfig::minimal(MODEL);
    agent.output =
        Some(OutputContract { schema: json(r#"{"type":"object"}"#), name: None, native: false });
    agent.gate.rules.truncate(1);
    (agent.gate.rules[0].then, agent.gate.rules[0].same_error_times) = (Decision::Ok, None);
    let (begun, status) = scene.run(agent, "go").await;
    assert_eq!(status, RunStatus::Completed);
    let state = scene.state(&begun.run).await;
    assert_eq!(state.answer().as_deref(), Some("not json"));
    let thought = state.window.items.iter().find(|kept| matches!(kept.item.body, Body::Thought(_)));
    assert_eq!(thought.expect("it is kept").item.seals.len(), 1);
    let events = scene.events(&begun.run).await;
    assert!(!events.iter().any(|event| event.json().as_str().contains("discarded")));
}

#[tokio::test]
async fn what_a_person_changed_is_what_is_told() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("sign", r#"{"sum":1}"#)]),
        _ => Says::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (begun, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    let mut edited = ToolApprovalResolution::new("call_0_0".into(), true);
    edited.approved_args = Some(json(r#"{"sum":7}"#));
    scene.runner.tell(&us(), &begun.run, Word::Decide(edited)).await.unwrap();
    scene.runner.drive(&us(), &begun.run).await.unwrap();
    let events = scene.events(&begun.run).await;
    let told = events.iter().filter_map(|event| match event {
        RunEvent::ToolCall(event) => Some(event.args.as_ref()?.as_str().to_owned()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [r#"{"sum":7}"#, r#"{"sum":7}"#], "begun, and done");
}

#[tokio::test]
async fn calls_beside_a_handoff_are_judged_by_who_makes_them() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("transfer_to_clerk", "{}"), ("pay", "{}")]),
        _ => Says::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("pay")]).await;
    let mut host = AgentConfig::minimal(MODEL).named("host");
    host.human_in_the_loop.approve = vec!["pay".into()];
    host.handoffs = vec![Handoff { to: "clerk".into(), description: None }];
    let clerk = AgentConfig::minimal(MODEL).named("clerk");
    let mut casting = Casting::solo(host, Vec::new());
    casting.agents.extend(Agents::from([("clerk".into(), clerk)]));
    let start = Start { casting, ..Scene::start(AgentConfig::minimal(MODEL), "go") };
    let begun = scene.runner.begin(start).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &begun.run).await.unwrap(), RunStatus::Waiting);
    assert!(scene.ran.lock().unwrap().is_empty(), "the host may not pay without a word");
    assert_eq!(scene.state(&begun.run).await.progress.agent.to_string(), "clerk");
}

/// A price for one model alone.
struct OnePrice;

impl CostEstimator for OnePrice {
    fn cost(&self, model: &str, _: &Usage) -> Option<f64> {
        (model == MODEL).then_some(0.1)
    }
}

#[tokio::test]
async fn max_cost_usd_takes_no_model_without_a_price_wherever_it_comes_from() {
    let script = |call: &throughline_core::Call| match results(call) {
        0 => Says::Calls(&[("sign", "{}")]),
        _ => Says::Text("done"),
    };
    let models = Cast::default().with(MODEL, script).with(OTHER, script);
    let mut scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    scene.runner.costs = Some(Arc::new(OnePrice));
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_cost_usd = Some(1.0);
    let mut summarised = agent.clone();
    summarised.context.model = Some(OTHER.into());
    let refused = scene.runner.begin(Scene::start(summarised, "go")).await.unwrap_err();
    assert!(refused.to_string().ends_with("there is no price for claude-opus-4-5"), "{refused}");
    let (begun, _) = scene.run(agent, "go").await;
    let refused = scene.runner.tell(&us(), &begun.run, Word::Switch(OTHER.into())).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.ends_with("there is no price for claude-opus-4-5"), "{refused}");
    assert_eq!(scene.state(&begun.run).await.model().to_string(), MODEL);
    let snapshot = scene.runner.snapshot(&us(), &begun.run).await.unwrap();
    scene.runner.costs = None;
    let refused = scene.runner.restore(&us(), snapshot).await.unwrap_err().to_string();
    assert!(refused.ends_with("needs a cost estimator, and there is none"), "{refused}");
}

#[tokio::test]
async fn a_snapshot_that_does_not_hold_together_is_refused() {
    let models = Cast::default().with(MODEL, |_| Says::Calls(&[("sign", "{}")]));
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (begun, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    let whole = scene.runner.snapshot(&us(), &begun.run).await.unwrap();
    let mut nobody = whole.clone();
    nobody.progress.agent = "nobody".into();
    let mut empty = whole.clone();
    empty.items.clear();
    for (snapshot, problem) in [
        (nobody, "progress.agent: nobody does not take part"),
        (empty, "progress.calls: no item calls a tool as call_0_0"),
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
async fn several_may_wait_at_once_and_the_context_names_one_that_does() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("sign", r#"{"sum":1}"#), ("sign", r#"{"sum":2}"#)]),
        _ => Says::Text("done"),
    });
    let scene = Scene::new(models, vec![ToolSpec::new("sign").needs_approval()]).await;
    let (begun, _) = scene.run(AgentConfig::minimal(MODEL), "go").await;
    for call in ["call_0_0", "call_0_1"] {
        let state = scene.state(&begun.run).await;
        let awaited = state.context("__awaitingApproval").unwrap().tree();
        assert_eq!(awaited.root().text_of("toolCallId").as_deref(), Some(call));
        let allowed = ToolApprovalResolution::new(call.into(), true);
        scene.runner.tell(&us(), &begun.run, Word::Decide(allowed)).await.unwrap();
    }
    assert!(scene.state(&begun.run).await.context("__awaitingApproval").is_none());
    assert_eq!(scene.runner.drive(&us(), &begun.run).await.unwrap(), RunStatus::Completed);
    assert_eq!(scene.ran.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn who_holds_the_run_says_what_kind_of_refusal_it_is() {
    let models = Cast::default().with(MODEL, |call| match results(call) {
        0 => Says::Calls(&[("wait", "{}")]),
        _ => Says::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let patient = Patient::default();
    scene.runner = scene.runner.with_tool(patient.clone());
    let begun = scene.runner.begin(Scene::start(AgentConfig::minimal(MODEL), "go")).await.unwrap();
    let mut other = scene.runner.clone();
    other.owner = "other".into();
    let (us, run) = (us(), begun.run);
    let telling = async {
        patient.began.notified().await;
        let nobody = Word::Decide(ToolApprovalResolution::new("nobody".into(), true));
        let told = other.tell(&us, &run, nobody).await;
        patient.end.notify_one();
        told
    };
    let (driven, told) = tokio::join!(scene.runner.drive(&us, &run), telling);
    assert_eq!(driven.unwrap(), RunStatus::Completed);
    match told {
        Err(RunError::Refused(refusal)) => assert_eq!(refusal.kind, RefusalKind::NotFound),
        other => panic!("{other:?}"),
    }
}
