//! Claude Code, Anthropic's coding agent.

use std::fs;

use serde_json::Value;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed, platform};
use crate::session::{CLAUDE, Session, assert_connected_loop};

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

/// Claude Code prefers the variables in its settings files to those of its process.
#[test]
fn client_claude_code_run_overrides_its_settings_files() {
    let Some(mut session) = Session::start(&CLAUDE_CODE, "claude-code-run", &[(CLAUDE, 3)]) else {
        return;
    };
    let other = r#"{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": "other", "ANTHROPIC_MODEL": "other"}}"#;
    session.fixture.write_home(".claude/settings.json", other);
    let project = session.fixture.work().join(".claude");
    fs::create_dir_all(&project).unwrap();
    let bedrock = r#"{"env": {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": "other"}}"#;
    fs::write(project.join("settings.json"), bedrock).unwrap();
    session.run_task_connected();
    session.assert_complete();
    let path = session.fixture.home(".claude/settings.json");
    assert_eq!(fs::read_to_string(path).unwrap(), other, "--run changes no file of the client");
}
