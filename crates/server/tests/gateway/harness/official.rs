//! Runs the official clients in the environments created by `scripts/sdks`.

use std::path::Path;
use std::process::{Output, Stdio};

use throughline_testkit::{skip, workspace_root};

/// Runs a script against a gateway. Skips the script if the official clients are not installed.
pub(crate) async fn run(
    language: &str,
    script: &str,
    url: &str,
    client: &str,
    models: &[&str],
) -> Option<Output> {
    let Some(mut command) = interpreter(language) else {
        skip(&format!("{language} clients: run scripts/sdks to install them"));
        return None;
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(language);
    command.arg(scripts.join(script)).arg(url).arg(client).args(models);
    Some(command.stdin(Stdio::null()).output().await.unwrap())
}

/// Returns the path of the interpreter with the clients installed; `None` if `scripts/sdks` has not
/// run.
fn interpreter(language: &str) -> Option<tokio::process::Command> {
    let home = workspace_root().join("target/sdks");
    let (program, needed) = match language {
        "python" => (home.join("python/bin/python"), home.join("python/bin/python")),
        _ => ("node".into(), home.join("node/node_modules")),
    };
    let mut command = needed.exists().then(|| tokio::process::Command::new(program))?;
    for key in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"] {
        command.env_remove(key);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("NO_PROXY", "127.0.0.1");
    Some(command)
}
