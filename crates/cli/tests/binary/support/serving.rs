//! A gateway process, and a plain HTTP client for requests to it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use throughline_codec::Catalog;

pub(crate) struct GatewayProcess {
    child: Child,
    pub(crate) address: String,
    /// The gateway's standard output, up to the end of the startup message.
    pub(crate) welcome: String,
    /// Kept open, as by a reader of the whole output.
    _out: Lines<BufReader<ChildStdout>>,
    errors: PathBuf,
}

impl GatewayProcess {
    /// Starts a gateway on a free port, in a directory with its store and configuration.
    pub(crate) fn start(folder: &Path, environment: &[(&str, &str)], options: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", folder, environment, options)
    }

    /// Starts a gateway on this address.
    pub(crate) fn start_at(
        listen: &str,
        folder: &Path,
        environment: &[(&str, &str)],
        options: &[&str],
    ) -> Self {
        let errors = folder.join("errors");
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        let mut child = without_keys(&mut command)
            .args(["serve", "--listen", listen])
            .args(options)
            .env("THROUGHLINE_STORE", format!("sqlite://{}", folder.join("a.db").display()))
            .env("RUST_BACKTRACE", "1")
            .env("RUST_LOG", "trace")
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut welcome = String::new();
        while let Some(Ok(line)) = lines.next() {
            welcome.push_str(&line);
            welcome.push('\n');
            // The startup message ends with this line.
            if line.contains("Ctrl-C") {
                break;
            }
        }
        let url = welcome.lines().next().unwrap_or_default();
        let address = url.split_once("://").map_or("", |(_, rest)| rest);
        let address = address.split_whitespace().next().unwrap_or_default().to_owned();
        Self { child, address, welcome, _out: lines, errors }
    }

    /// Returns the standard error output of the gateway so far.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    /// Sends a request to the gateway and returns the whole HTTP response.
    pub(crate) fn send(&self, method: &str, target: &str, headers: &str, body: &str) -> String {
        send_request(&self.address, method, target, headers, body)
    }

    /// Returns the current and peak memory use in kilobytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (number("VmRSS:"), number("VmHWM:"))
    }

    /// Kills the gateway with SIGKILL, to simulate a crash.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns whether the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal, such as `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let (signal, id) = (format!("-{name}"), self.child.id().to_string());
        assert!(Command::new("kill").args([&signal, &id]).status().unwrap().success());
    }

    /// Sends SIGTERM and returns the exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        self.signal("TERM");
        self.child.wait().unwrap().code().expect("it was not killed")
    }
}

/// Sends a request to an address and returns the whole HTTP response.
pub(crate) fn send_request(
    address: &str,
    method: &str,
    target: &str,
    headers: &str,
    body: &str,
) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // The process may already have stopped.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Environment variables that configure providers and are not listed in the catalog as key
/// variables.
const ADDRESSES: [&str; 12] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AZURE_OPENAI_ENDPOINT",
    "SNOWFLAKE_ACCOUNT",
    "OLLAMA_BASE_URL",
    "OLLAMA_HOST",
    "VLLM_BASE_URL",
    "LLAMA_BASE_URL",
    "GPUSTACK_BASE_URL",
];

/// Variables that select a client's configuration folder, its backend or the gateway key.
pub(crate) const CLIENT_VARIABLES: [&str; 14] = [
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "XDG_CONFIG_HOME",
    "THROUGHLINE_KEY",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GEMINI_BASE_URL",
    "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_CONTENT",
];

/// Removes the user's provider and client variables from the environment of a command.
pub(crate) fn without_keys(command: &mut Command) -> &mut Command {
    let rows = Catalog::builtin().providers().iter();
    let names = rows.filter_map(|row| row.key_env.as_deref());
    for name in names.chain(ADDRESSES).chain(CLIENT_VARIABLES) {
        command.env_remove(name);
    }
    command
}

/// Number of checks after which a condition counts as never fulfilled.
const CHECKS: u32 = 3_000;

/// Waits for a condition that the gateway fulfils.
pub(crate) fn wait_until(condition: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..CHECKS {
        if is_true() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the gateway never reported {condition}");
}
