//! opencode, an open-source coding agent.

use serde_json::Value;

use crate::program::{ClientProgram, ClientReply, Prompt, first_text, installed, platform};
use crate::session::{CLAUDE, assert_connected_loop};

pub(crate) const OPENCODE: ClientProgram = ClientProgram {
    name: "opencode",
    command: || {
        let package = format!("opencode-{}-baseline/bin/opencode", platform());
        Some(vec![installed(&package)?])
    },
    environment: &[("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_MODELS_FETCH", "1")],
    settings: &[(
        ".config/opencode/opencode.json",
        "{\n  \"autoupdate\": false, // kept by hand\n  \"share\": \"disabled\"\n}\n",
    )],
    arguments,
    read_output,
};

fn arguments(prompt: &Prompt<'_>) -> Vec<String> {
    let model = format!("throughline/{}", prompt.model);
    let mut arguments = ["run", "--format", "json", "--auto", "-m", &model].to_vec();
    if let Some(session) = prompt.session {
        arguments.extend(["-s", session]);
    }
    arguments.push(prompt.text);
    arguments.into_iter().map(str::to_owned).collect()
}

fn read_output(lines: &[Value]) -> ClientReply {
    let texts = lines.iter().filter(|line| line["type"] == "text");
    ClientReply {
        session: first_text(lines, "sessionID"),
        text: texts.filter_map(|line| line["part"]["text"].as_str()).collect(),
    }
}

#[test]
fn client_opencode_finishes_a_tool_loop() {
    assert_connected_loop(&OPENCODE, CLAUDE);
}
