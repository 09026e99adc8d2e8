//! Tests an agent run that uses external tools.

use throughline_agent::{AgentConfig, RunStatus};
use throughline_spec::{RunEvent, ToolCallPhase, ToolExecutionStatus};
use throughline_tools::HttpConfig;

use crate::harness::{Scene, ScriptedAnswer, ScriptedModels, results, said_by_tools};
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
    let (begun, status) = scene.run(AgentConfig::minimal("claude-sonnet-4-5"), "go").await;
    assert_eq!(status, RunStatus::Completed);
    let asked = scene.models.asked("claude-sonnet-4-5");
    let told = said_by_tools(asked.last().unwrap());
    assert_eq!(told[0], r#"{"sum": 3}"#);
    assert!(told[1].contains("The arguments of outside__add do not match its schema"), "{told:?}");
    assert_eq!(told[2], "a page");
    assert!(told[3].contains("`outside` disconnected"), "{told:?}");
    assert_eq!(told[4], "back");
    let state = scene.state(&begun.run).await;
    let history = state.smart.tool_history.unwrap();
    let lost = history.iter().filter(|ran| ran.status == Some(ToolExecutionStatus::Unknown));
    assert_eq!(lost.map(|ran| &*ran.tool_name).collect::<Vec<_>>(), ["outside__die"]);
    let events = scene.events(&begun.run).await;
    let succeeded = events.iter().filter(
        |event| matches!(event, RunEvent::ToolCall(event) if event.phase == ToolCallPhase::Success),
    );
    assert_eq!(succeeded.count(), 3);
}
