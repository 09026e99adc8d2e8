//! Tests for model switches: the new model must exist, and prefix-bound Seals stay valid.

use throughline_agent::{AgentConfig, RunCommand, RunRequest, RunStatus, ToolSpec};
use throughline_core::Call;
use throughline_spec::ToolApprovalResolution;

use crate::harness::*;

/// Text long enough to trigger a summary.
const LONG: &str = r#"{"text":"a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text"}"#;

fn script(call: &Call) -> ScriptedAnswer {
    if call.system.iter().any(|item| item.visible().unwrap_or_default().contains("You summarise")) {
        return ScriptedAnswer::Text(r#"{"summary":"they met"}"#);
    }
    let message = call.items.iter().filter_map(throughline_core::Item::visible).next_back();
    match (message, results(call)) {
        (Some("first"), _) => ScriptedAnswer::Text("hello"),
        (_, 0) => ScriptedAnswer::Calls(&[("note", LONG)]),
        _ => ScriptedAnswer::Text("done"),
    }
}

/// Switches the model in the second run on a Thread, within a tool loop. Returns whether the first
/// run was summarised.
async fn is_summarised(model: &str) -> bool {
    let models = ["claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-5-5"];
    let scripted = models
        .into_iter()
        .fold(ScriptedModels::default(), |scripted, name| scripted.with(name, script));
    let scene = Scene::new(scripted, vec![ToolSpec::new("note").needs_approval()]).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.context.summarise = Some(true);
    agent.context.trigger_tokens = Some(60);
    agent.context.keep_turns = Some(0);
    let (first, status) = scene.run(agent.clone(), "first").await;
    assert_eq!(status, RunStatus::Completed);
    let start = RunRequest { thread: Some(first.thread), ..Scene::start(agent, "second") };
    let run = scene.runner.start(start).await.unwrap().run;
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Waiting);
    let unknown =
        scene.runner.send_command(&us(), &run, RunCommand::Switch("unknown".into())).await;
    assert_eq!(unknown.unwrap_err().to_string(), "there is no model unknown");
    scene.runner.send_command(&us(), &run, RunCommand::Switch(model.into())).await.unwrap();
    let approval = scene.state(&run).await.smart.pending_approvals.unwrap()[0].id.clone();
    let allowed = RunCommand::Decide(ToolApprovalResolution::new(approval, true));
    scene.runner.send_command(&us(), &run, allowed).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Completed);
    assert!(!scene.models.requests(model).is_empty(), "the model was called");
    scene.state(&run).await.smart.summaries.is_some()
}

#[tokio::test]
async fn prefix_bound_model_is_not_compacted_in_a_tool_loop() {
    assert!(is_summarised("claude-opus-4-5").await, "the model allows it");
    assert!(!is_summarised("claude-opus-5-5").await, "its Seals would be lost");
}
