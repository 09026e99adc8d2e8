//! Tests an agent run that uses external tools.

use throughline_agent::{AgentConfig, RunStatus};
use throughline_spec::{RunEvent, ToolCallPhase, ToolExecutionStatus};
use throughline_tools::HttpConfig;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, tool_result_texts};
use crate::world::{RawServer, reply, spawned};

#[tokio::test]
async fn agent_uses_mcp_and_http_tools_and_receives_their_outcomes() {
    let page = RawServer::start(|_| reply("200 OK", "text/plain", "a page")).await;
    let page = HttpConfig::get("page", format!("{}/{{name}}", page.url));
    let models = ScriptedModels::default().with("claude-sonnet-4-5", |call| match results(call) {
        0 => ScriptedAnswer::Calls(&[
            ("outside__add", r#"{"a":1,"b":2}"#),
            ("outside__add", r#"{"a":"one"}"#),
            ("page", r#"{"name":"x"}"#),
        ]),
        3 => ScriptedAnswer::Calls(&[("outside__die", "{}")]),
        4 => ScriptedAnswer::Calls(&[("outside__echo", r#"{"text":"back"}"#)]),
        _ => ScriptedAnswer::Text("done"),
    });
    let mut scene = Scene::new(models, Vec::new()).await;
    let mut tools = spawned().await.tools().await.unwrap();
    tools.push(std::sync::Arc::new(throughline_tools::HttpTool::new(page).unwrap()));
    scene.runner = scene.runner.clone().with_tools(tools);
    let (started, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let requests = scene.models.requests("claude-sonnet-4-5");
    let texts = tool_result_texts(requests.last().unwrap());
    assert_eq!(texts[0], r#"{"sum": 3}"#);
    assert!(
        texts[1].contains("The arguments of outside__add do not match its schema"),
        "{texts:?}"
    );
    assert_eq!(texts[2], "a page");
    assert!(texts[3].contains("`outside` disconnected"), "{texts:?}");
    assert_eq!(texts[4], "back");
    let state = scene.state(&started.run).await;
    let history = state.smart.tool_history.unwrap();
    let lost =
        history.iter().filter(|execution| execution.status == Some(ToolExecutionStatus::Unknown));
    assert_eq!(lost.map(|execution| &*execution.tool_name).collect::<Vec<_>>(), ["outside__die"]);
    let events = scene.events(&started.run).await;
    let succeeded = events.iter().filter(
        |event| matches!(event, RunEvent::ToolCall(event) if event.phase == ToolCallPhase::Success),
    );
    assert_eq!(succeeded.count(), 3);
}
