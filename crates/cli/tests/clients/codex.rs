//! Codex, OpenAI's coding agent.

use serde_json::Value;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed, platform};
use crate::session::{GPT, Session, assert_connected_loop};

pub(crate) const CODEX: ClientProgram = ClientProgram {
    name: "codex",
    command: || {
        let folder = installed(&format!("@openai/codex-{}/vendor", platform()))?;
        let targets = std::fs::read_dir(folder).ok()?;
        let mut programs = targets.filter_map(|target| Some(target.ok()?.path().join("bin/codex")));
        Some(vec![programs.find(|program| program.exists())?])
    },
    environment: &[("CODEX_API_KEY", "any"), ("OPENAI_API_KEY", "any")],
    settings: &[(
        ".codex/config.toml",
        "# Kept by hand.\ncheck_for_update_on_startup = false\n\n[analytics]\nenabled = false\n",
    )],
    arguments,
    read_output,
};

fn arguments(prompt: &Prompt<'_>) -> Vec<String> {
    let mut arguments = ["exec", "--json", "--skip-git-repo-check"].to_vec();
    arguments.extend(["--dangerously-bypass-approvals-and-sandbox", "-m", prompt.model]);
    if let Some(session) = prompt.session {
        arguments.extend(["resume", session]);
    }
    arguments.push(prompt.text);
    arguments.into_iter().map(str::to_owned).collect()
}

fn read_output(lines: &[Value]) -> ClientReply {
    let items = lines.iter().filter(|line| line["type"] == "item.completed");
    let items = items.map(|line| &line["item"]).filter(|item| item["type"] == "agent_message");
    let text = items.filter_map(|item| item["text"].as_str()).next_back();
    ClientReply {
        session: first_text(lines, "thread_id"),
        text: text.unwrap_or_default().to_owned(),
    }
}

#[test]
fn client_codex_finishes_a_tool_loop() {
    assert_connected_loop(&CODEX, GPT);
}

/// With only `openai_base_url`, Codex uses its built-in provider, which opens a WebSocket first.
#[test]
fn client_codex_upgrades_with_only_a_base_url() {
    let Some(mut session) = Session::start(&CODEX, "codex-base-url", &[(GPT, 3)]) else { return };
    let (path, settings) = CODEX.settings[0];
    let url = session.fixture.url();
    session.fixture.write_home(path, &format!("openai_base_url = \"{url}/v1\"\n{settings}"));
    session.run_task();
    let fixture = &session.fixture;
    let log = fixture.client_log();
    assert!(!log.contains("failed to connect"), "{log}");
    // The gateway writes this line when the WebSocket is closed. The loop has four requests.
    let line = fixture.wait_for_gateway_line("\"event\":\"websocket\"");
    let socket: Value = serde_json::from_str(&line).unwrap();
    assert!(socket["responses"].as_u64() >= Some(4), "Codex sent requests over HTTP: {line}");
    let refused = fixture.gateway_log().lines().any(|line| line.contains("\"status\":426"));
    assert!(!refused, "{}", fixture.gateway_log());
    session.assert_complete();
}

#[test]
fn client_codex_run_overrides_its_configuration() {
    let Some(mut session) = Session::start(&CODEX, "codex-run", &[(GPT, 3)]) else { return };
    let (path, settings) = CODEX.settings[0];
    let other = format!(
        "model = \"other\"\nmodel_provider = \"other\"\n{settings}\n[model_providers.other]\nname = \
         \"Other\"\nbase_url = \"http://127.0.0.1:9/v1\"\nwire_api = \"responses\"\n"
    );
    session.fixture.write_home(path, &other);
    session.run_task_connected();
    session.assert_complete();
}
