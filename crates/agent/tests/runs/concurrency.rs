//! Tests that many agents can run concurrently in one process.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{AgentConfig, RunStatus, ToolSpec};
use throughline_testkit::figure;
use tokio::task::JoinSet;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, us};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_in_a_crowd_all_complete() {
    const RUNS: usize = 500;
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[("look", r#"{"at":1}"#), ("look", r#"{"at":2}"#)]),
        2 => ScriptedAnswer::Calls(&[("look", r#"{"at":3}"#)]),
        _ => ScriptedAnswer::Text("Done."),
    });
    let mut scene = Scene::new(models, vec![ToolSpec::new("look")]).await;
    // Each run waits for the disk writes of all others, so leases must be long.
    scene.runner.lease = Duration::from_mins(5);
    let scene = Arc::new(scene);
    let before = resident();
    let mut tasks = JoinSet::new();
    for number in 0..RUNS {
        let scene = Arc::clone(&scene);
        tasks.spawn(async move {
            let message = format!("I am number {number}.");
            let started = scene
                .runner
                .start(Scene::start(AgentConfig::minimal("claude-sonnet-4-5"), &message))
                .await;
            scene.runner.drive(&us(), &started.unwrap().run).await.unwrap()
        });
    }
    let mut completed = 0;
    while let Some(status) = tasks.join_next().await {
        assert_eq!(status.unwrap(), RunStatus::Completed);
        completed += 1;
    }
    let growth = resident().saturating_sub(before) / 1024;
    figure(
        "runs at once",
        format!("{completed} of {RUNS} came to their end, {growth} MiB more than before"),
    );
    assert_eq!(completed, RUNS);
    assert_eq!(scene.tool_calls.lock().unwrap().len(), RUNS * 3);
    assert!(growth < 512, "{growth} MiB for {RUNS} runs");
}

/// Returns the resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
