//! Another model is asked from now on: there must be one, and what its seals are bound to is heeded.

use throughline_agent::{AgentConfig, RunStatus, Start, ToolSpec, Word};
use throughline_core::{Call, ToolApprovalResolution};

use crate::harness::*;

/// More than the window may hold before it is summarised.
const LONG: &str = r#"{"text":"a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text, a long text"}"#;

fn script(call: &Call) -> Says {
    if call.system.iter().any(|item| item.visible().unwrap_or_default().contains("You summarise")) {
        return Says::Text(r#"{"summary":"they met"}"#);
    }
    let asked = call.items.iter().filter_map(throughline_core::Item::visible).next_back();
    match (asked, results(call)) {
        (Some("first"), _) => Says::Text("hello"),
        (_, 0) => Says::Calls(&[("note", LONG)]),
        _ => Says::Text("done"),
    }
}

/// A second run on a thread, in whose tool loop another model is asked: whether the first run was summarised meanwhile.
async fn is_summarised(model: &str) -> bool {
    let models = ["claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-5-5"];
    let cast = models.into_iter().fold(Cast::default(), |cast, name| cast.with(name, script));
    let scene = Scene::new(cast, vec![ToolSpec::new("note").needs_approval()]).await;
    let mut agent = AgentConfig::minimal("claude-sonnet-4-5");
    agent.context.summarise = Some(true);
    agent.context.trigger_tokens = Some(60);
    agent.context.keep_turns = Some(0);
    let (first, status) = scene.run(agent.clone(), "first").await;
    assert_eq!(status, RunStatus::Completed);
    let start = Start { thread: Some(first.thread), ..Scene::start(agent, "second") };
    let run = scene.runner.begin(start).await.unwrap().run;
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Waiting);
    let nobody = scene.runner.tell(&us(), &run, Word::Switch("nobody".into())).await;
    assert_eq!(nobody.unwrap_err().to_string(), "there is no model nobody");
    scene.runner.tell(&us(), &run, Word::Switch(model.into())).await.unwrap();
    let waits = scene.state(&run).await.smart.pending_approvals.unwrap()[0].id.clone();
    let allowed = Word::Decide(ToolApprovalResolution::new(waits, true));
    scene.runner.tell(&us(), &run, allowed).await.unwrap();
    assert_eq!(scene.runner.drive(&us(), &run).await.unwrap(), RunStatus::Completed);
    assert!(!scene.models.asked(model).is_empty(), "it was asked");
    scene.state(&run).await.smart.summaries.is_some()
}

#[tokio::test]
async fn what_a_bound_model_reads_behind_is_not_summarised_in_a_tool_loop() {
    assert!(is_summarised("claude-opus-4-5").await, "nothing speaks against it");
    assert!(!is_summarised("claude-opus-5-5").await, "its seals would be lost");
}
