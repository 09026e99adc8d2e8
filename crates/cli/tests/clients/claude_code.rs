//! Claude Code, Anthropic's coding agent.

use serde_json::Value;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed, platform};
use crate::session::{CLAUDE, assert_connected_loop};

pub(crate) const CLAUDE_CODE: ClientProgram = ClientProgram {
    name: "claude-code",
    command: || {
        let package = format!("@anthropic-ai/claude-code-{}/claude", platform());
        Some(vec![installed(&package)?])
    },
    environment: &[
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
        // Without this variable, root must confirm each tool.
        ("IS_SANDBOX", "1"),
    ],
    settings: &[(".claude/settings.json", "{\n  \"cleanupPeriodDays\": 30\n}\n")],
    arguments,
    read_output,
};

fn arguments(prompt: &Prompt<'_>) -> Vec<String> {
    let mut arguments = ["-p", prompt.text, "--model", prompt.model].to_vec();
    arguments.extend(["--output-format", "stream-json", "--verbose"]);
    arguments.push("--dangerously-skip-permissions");
    if let Some(session) = prompt.session {
        arguments.extend(["--resume", session]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

fn read_output(lines: &[Value]) -> ClientReply {
    let results = lines.iter().filter(|line| line["type"] == "result");
    let result = results.filter_map(|line| line["result"].as_str()).next_back();
    ClientReply {
        session: first_text(lines, "session_id"),
        text: result.unwrap_or_default().to_owned(),
    }
}

#[test]
fn client_claude_code_finishes_a_tool_loop() {
    assert_connected_loop(&CLAUDE_CODE, CLAUDE);
}
