//! Runs the unmodified official clients against the simulator for two turns with tools and
//! reasoning, both complete and streamed. If a client drops or alters a Seal, the simulator returns
//! the provider's error and the client raises it.
//!
//! `scripts/test` calls `scripts/sdks`, which installs the clients.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use throughline_sim::{Options, start};
use throughline_testkit::{figure, skip, workspace_root};

/// Runs a script with the simulator's address. If the script fails, prints its output.
async fn run(language: &str, script: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(language);
    let Some(mut command) = interpreter(language) else {
        skip(&format!("{language} clients: run scripts/sdks to install them"));
        return;
    };
    let simulator = start(Options::default()).await.unwrap();
    let output = command
        .arg(scripts.join(script))
        .arg(simulator.url())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}:\n{out}\n{error}");
    let issued = simulator.ledger().issued().count();
    figure(
        &format!("{language}/{script}"),
        format!("{} checks, {issued} seals issued", out.lines().count()),
    );
    simulator.stop().await;
}

/// Returns the interpreter with the installed clients, or `None` if `scripts/sdks` was not run.
fn interpreter(language: &str) -> Option<tokio::process::Command> {
    let home = environments();
    let mut command = match language {
        "python" => {
            let python = home.join("python/bin/python");
            python.exists().then(|| tokio::process::Command::new(python))?
        }
        _ => {
            let modules = home.join("node/node_modules");
            modules.exists().then(|| tokio::process::Command::new("node"))?
        }
    };
    command
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .env_remove("GEMINI_API_KEY");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("NO_PROXY", "127.0.0.1");
    Some(command)
}

fn environments() -> PathBuf {
    workspace_root().join("target/sdks")
}

macro_rules! clients {
    ($($test:ident: $language:literal $script:literal;)*) => {
        $(#[tokio::test]
        async fn $test() {
            run($language, $script).await;
        })*
    };
}

clients! {
    sdk_python_anthropic: "python" "anthropic_messages.py";
    sdk_python_openai_responses: "python" "openai_responses.py";
    sdk_python_openai_chat: "python" "openai_chat.py";
    sdk_python_google_genai: "python" "google_gemini.py";
    sdk_python_boto3: "python" "bedrock_converse.py";
    sdk_node_anthropic: "node" "anthropic_messages.mjs";
    sdk_node_openai_responses: "node" "openai_responses.mjs";
    sdk_node_openai_chat: "node" "openai_chat.mjs";
    sdk_node_google_genai: "node" "google_gemini.mjs";
}
