//! Tests of rules in document 004 of the specification: limits and token counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_agent::{
    AgentConfig, RunStatus, Tool, ToolAnswer, ToolContext, ToolFuture, ToolSpec,
};
use throughline_core::TokenCounter;
use throughline_json::Json;
use throughline_spec::RunEvent;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

const MODEL: &str = "claude-sonnet-4-5";

/// Tool that records the maximum number of concurrent calls.
struct ConcurrencyProbe {
    now: AtomicUsize,
    peak: Arc<AtomicUsize>,
}

impl Tool for ConcurrencyProbe {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("look").idempotent()
    }

    fn run<'a>(&'a self, _: &'a Json, _: &'a ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.peak.fetch_max(now, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.now.fetch_sub(1, Ordering::SeqCst);
            ToolAnswer::text("seen")
        })
    }
}

/// Runs an agent. Returns the final status of the run, and the limit that the run reached, if any.
async fn limit_of(scene: &Scene, agent: AgentConfig) -> (RunStatus, Option<String>) {
    let (started, status) = scene.run(agent, "go").await;
    let events = scene.events(&started.run).await;
    let limit = events.iter().find_map(|event| match event {
        RunEvent::Limit(event) => Some(event.limit.to_string()),
        _ => None,
    });
    (status, limit)
}

#[tokio::test]
async fn max_parallel_tools_total_output_and_context_are_enforced() {
    let models = || {
        ScriptedModels::default().with(MODEL, |call| match results(call) {
            0 => ScriptedAnswer::Calls(&[
                ("look", "{}"),
                ("look", "{}"),
                ("look", "{}"),
                ("look", "{}"),
            ]),
            _ => ScriptedAnswer::Text("done"),
        })
    };
    let peak = Arc::new(AtomicUsize::new(0));
    let mut scene = Scene::new(models(), Vec::new()).await;
    let tool = ConcurrencyProbe { now: AtomicUsize::new(0), peak: Arc::clone(&peak) };
    scene.runner = scene.runner.with_tool(tool);
    let mut agent = AgentConfig::minimal(MODEL);
    agent.limits.max_parallel_tools = Some(2);
    assert_eq!(limit_of(&scene, agent.clone()).await, (RunStatus::Completed, None));
    assert_eq!(peak.load(Ordering::SeqCst), 2);
    // Each answer from the scripted model uses ten output tokens.
    let mut short = agent.clone();
    short.limits.max_total_output_tokens = Some(5);
    let reached = Some("maxTotalOutputTokens".to_owned());
    assert_eq!(limit_of(&scene, short).await, (RunStatus::Failed, reached));
    agent.limits.max_context_tokens = Some(1);
    let reached = Some("maxContextTokens".to_owned());
    assert_eq!(limit_of(&scene, agent).await, (RunStatus::Failed, reached));
}

/// Token counter that counts one million tokens for every text.
struct MillionTokens;

impl TokenCounter for MillionTokens {
    fn count(&self, _: &str) -> u64 {
        1_000_000
    }
}

#[tokio::test]
async fn each_run_uses_its_own_token_counter() {
    let scene = Scene::new(
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Text("done")),
        Vec::new(),
    )
    .await;
    let mut other = scene.runner.clone();
    other.counter = Arc::new(MillionTokens);
    let agent = AgentConfig::minimal(MODEL);
    assert_eq!(limit_of(&scene, agent.clone()).await, (RunStatus::Completed, None));
    let started = other.start(Scene::start(agent.clone(), "go")).await.unwrap();
    assert_eq!(other.drive(&us(), &started.run).await.unwrap(), RunStatus::Failed);
    // A second run on the same Thread uses its own counter.
    let mut start = Scene::start(agent, "go on");
    start.thread = Some(started.thread);
    let started = scene.runner.start(start).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Completed);
}
