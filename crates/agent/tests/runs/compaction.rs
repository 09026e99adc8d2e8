//! Tests that compaction runs summarise the whole Thread, that deltas use the ids of their Items,
//! and that a waiting run reports its wait once.

use throughline_agent::{AgentConfig, RunRequest, RunSpec, RunStatus, ToolSpec};
use throughline_core::{Body, LogId};
use throughline_spec::RunEvent;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, names, us};

const MODEL: &str = "claude-sonnet-4-5";

fn is_summary(call: &throughline_core::Call) -> bool {
    let is_prompt =
        |body: &Body| matches!(body, Body::Text(text) if text.contains("You summarise"));
    call.system.iter().any(|item| is_prompt(&item.body))
}

#[tokio::test]
async fn compaction_run_summarises_whole_thread() {
    let models = ScriptedModels::default().with(MODEL, |call| {
        if is_summary(call) {
            return ScriptedAnswer::Text(r#"{"summary": "They greeted."}"#);
        }
        ScriptedAnswer::Text("Hello.")
    });
    let scene = Scene::new(models, Vec::new()).await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "Hi").await;
    let start = |thread: &LogId| RunRequest {
        thread: Some(thread.clone()),
        casting: RunSpec::single_agent(AgentConfig::minimal(MODEL), Vec::new()),
        said: Vec::new(),
        once: Vec::new(),
        tenant: us(),
    };
    let compaction = scene.runner.start_compaction(start(&started.thread)).await.unwrap();
    let status = scene.runner.drive(&us(), &compaction.run).await.unwrap();
    assert_eq!(status, RunStatus::Completed);
    let state = scene.state(&compaction.run).await;
    assert!(state.window.items.is_empty(), "everything is covered");
    assert!(state.window.summary.is_some());
    // The next run sees only the summary and its own message.
    let next = RunRequest { said: vec![Body::Text("And?".into())], ..start(&started.thread) };
    let next = scene.runner.start(next).await.unwrap();
    scene.runner.drive(&us(), &next.run).await.unwrap();
    let requests = scene.models.requests(MODEL);
    assert_eq!(requests.last().unwrap().items.len(), 2);
}

#[tokio::test]
async fn deltas_use_ids_of_their_items() {
    let scene = Scene::new(
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Text("Hello.")),
        Vec::new(),
    )
    .await;
    let (started, _) = scene.run(AgentConfig::minimal(MODEL), "Hi").await;
    let events = scene.events(&started.run).await;
    let piece = events.iter().find_map(|event| match event {
        RunEvent::Stream(event) => event.id.clone(),
        _ => None,
    });
    let state = scene.state(&started.run).await;
    let answer = state.window.items.last().map(|entry| entry.item.id.0.clone());
    assert_eq!(piece, answer);
    let items = events.iter().find_map(|event| match event {
        RunEvent::Turn(event) => event.items.clone(),
        _ => None,
    });
    assert_eq!(items, Some(vec![answer.unwrap()]));
}

#[tokio::test]
async fn waiting_run_reports_its_wait_once() {
    let models =
        ScriptedModels::default().with(MODEL, |_| ScriptedAnswer::Calls(&[("mail", "{}")]));
    let scene = Scene::new(models, vec![ToolSpec::new("mail").needs_approval()]).await;
    let (started, status) = scene.run(AgentConfig::minimal(MODEL), "Go").await;
    assert_eq!(status, RunStatus::Waiting);
    let before = scene.events(&started.run).await;
    assert_eq!(scene.runner.drive(&us(), &started.run).await.unwrap(), RunStatus::Waiting);
    assert_eq!(scene.events(&started.run).await, before, "{:?}", names(&before));
}
