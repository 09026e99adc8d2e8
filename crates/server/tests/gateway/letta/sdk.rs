//! Runs Letta's own clients, unmodified, through the agent API.
//!
//! `scripts/sdks` creates the environments for the scripts; `scripts/test` calls it.

use throughline_testkit::figure;

use crate::harness::official;
use crate::letta::scene::{AgentGateway, MODEL};

async fn run(language: &str, script: &str) {
    let gateway = AgentGateway::open().await;
    let Some(output) = official::run(language, script, &gateway.url, "tl_us", &[MODEL]).await
    else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}/{script}:\n{stdout}\n{error}");
    let parts = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(parts, 8, "{stdout}");
    for list in stdout.lines().filter(|line| line.starts_with("list ")) {
        figure(&format!("{language} {script}"), list);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_python_letta() {
    run("python", "letta_agents.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_node_letta() {
    run("node", "letta_agents.mjs").await;
}
