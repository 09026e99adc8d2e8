//! The interface between the tests and a client program, and the location of installed programs.

use std::path::PathBuf;

use serde_json::Value;
use throughline_testkit::workspace_root;

/// A client program that runs one prompt per process and prints JSON lines.
pub(crate) struct ClientProgram {
    /// Name of the client in `throughline connect` and in the table of the matrix.
    pub(crate) name: &'static str,
    /// Returns the program and its first arguments, or `None` if it is not installed.
    pub(crate) command: fn() -> Option<Vec<PathBuf>>,
    /// Variables that disable telemetry and updates, and that confirm the sandbox.
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// Configuration files in the home folder before the client is connected. They disable
    /// telemetry and updates if no variable does. A library has none, and the gateway's address is
    /// in its program.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    /// Returns the arguments that run a prompt.
    pub(crate) arguments: fn(&Prompt<'_>) -> Vec<String>,
    /// Reads the session id and the final text from the JSON lines on standard output.
    pub(crate) read_output: fn(&[Value]) -> ClientReply,
}

/// A prompt for a client program.
pub(crate) struct Prompt<'p> {
    pub(crate) text: &'p str,
    pub(crate) model: &'p str,
    /// The session to resume; `None` starts a new session.
    pub(crate) session: Option<&'p str>,
}

/// The result of a prompt.
#[derive(Debug, Default)]
pub(crate) struct ClientReply {
    pub(crate) session: String,
    pub(crate) text: String,
}

/// Returns the path of an installed file, relative to `node_modules`.
pub(crate) fn installed(file: &str) -> Option<PathBuf> {
    let path = workspace_root().join("target/clients/node_modules").join(file);
    path.exists().then_some(path)
}

/// Returns the suffix of npm's platform packages, such as `linux-x64`.
pub(crate) fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{processor}")
}

/// Returns the member of the first JSON line that has it, as text.
pub(crate) fn first_text(lines: &[Value], member: &str) -> String {
    let found = lines.iter().find_map(|line| line[member].as_str());
    found.unwrap_or_default().to_owned()
}
