//! Gemini CLI, Google's coding agent.

use std::process::Command;

use serde_json::Value;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed};
use crate::session::{GEMINI, assert_connected_loop};

pub(crate) const GEMINI_CLI: ClientProgram = ClientProgram {
    name: "gemini-cli",
    command: || {
        let program = installed("@google/gemini-cli/bundle/gemini.js")?;
        is_node_20().then(|| vec!["node".into(), program])
    },
    environment: &[("GEMINI_CLI_TRUST_WORKSPACE", "true")],
    settings: &[(
        ".gemini/settings.json",
        r#"{
  // Kept by hand.
  "privacy": { "usageStatisticsEnabled": false },
  "telemetry": { "enabled": false },
  "general": { "enableAutoUpdate": false, "enableAutoUpdateNotification": false }
}
"#,
    )],
    arguments,
    read_output,
};

/// Returns whether Node can run Gemini CLI, which needs version 20.
fn is_node_20() -> bool {
    let Ok(output) = Command::new("node").arg("--version").output() else { return false };
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let major = version.trim_start_matches('v').split('.').next().map(str::parse::<u32>);
    major.is_some_and(|major| major.is_ok_and(|major| major >= 20))
}

fn arguments(prompt: &Prompt<'_>) -> Vec<String> {
    let mut arguments = ["-p", prompt.text, "-m", prompt.model].to_vec();
    arguments.extend(["--output-format", "stream-json", "--approval-mode", "yolo"]);
    if prompt.session.is_some() {
        arguments.extend(["--resume", "latest"]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

fn read_output(lines: &[Value]) -> ClientReply {
    let messages = lines.iter().filter(|line| line["type"] == "message");
    let replies = messages.filter(|message| message["role"] == "assistant");
    ClientReply {
        session: first_text(lines, "session_id"),
        text: replies.filter_map(|reply| reply["content"].as_str()).collect(),
    }
}

#[test]
fn client_gemini_cli_finishes_a_tool_loop() {
    assert_connected_loop(&GEMINI_CLI, GEMINI);
}
