//! A scratch folder with a gateway, a home folder and files, in which a client program runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::program::{ClientProgram, Prompt};
use crate::serving::{GatewayProcess, without_keys};

/// A client that causes no line in the gateway's log for this long is stopped. A client that makes
/// progress has no time limit, because the machine may be busy.
const IDLE_LIMIT: Duration = Duration::from_secs(200);

/// How often a test reads the gateway's log until an expected line appears, and the pause between
/// two reads: 5 minutes in total.
const LOG_READS: usize = 3000;
const LOG_PAUSE: Duration = Duration::from_millis(100);

/// A port on which no server listens. Clients that read the proxy variables send requests for other
/// hosts to this port, where they fail. Node's own `fetch` ignores the variables by default; the
/// scripts that use it call only the gateway.
const CLOSED_PROXY: &str = "http://127.0.0.1:9";

/// The output of one run of a client program.
pub(crate) struct ClientOutput {
    pub(crate) succeeded: bool,
    /// The JSON lines of standard output.
    pub(crate) lines: Vec<Value>,
    /// All output, for error messages.
    pub(crate) text: String,
}

/// A gateway with scripted simulators, and the folders of a client.
pub(crate) struct ClientFixture {
    folder: PathBuf,
    gateway: GatewayProcess,
}

impl ClientFixture {
    /// Starts a gateway whose simulators follow the script. `name` must be unique.
    pub(crate) fn new(name: &str, script: &str, program: &ClientProgram) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("client-{name}"));
        drop(fs::remove_dir_all(&folder));
        for part in ["home", "work", "tmp"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("script.toml"), script).unwrap();
        fs::write(folder.join("throughline.toml"), "").unwrap();
        let gateway = GatewayProcess::start(&folder, &[], &["--script", "script.toml"]);
        assert!(!gateway.address.is_empty(), "the gateway did not start: {}", gateway.errors());
        let fixture = Self { folder, gateway };
        for (path, text) in program.settings {
            fixture.write_home(path, text);
        }
        fixture
    }

    /// Returns the gateway's address without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.gateway.address)
    }

    /// Returns the folder in which the client works.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Returns the path of a file in the home folder.
    pub(crate) fn home(&self, path: &str) -> PathBuf {
        self.folder.join("home").join(path)
    }

    /// Writes a file in the home folder.
    pub(crate) fn write_home(&self, path: &str, text: &str) {
        let path = self.home(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns the gateway's log.
    pub(crate) fn gateway_log(&self) -> String {
        self.gateway.errors()
    }

    /// Waits until the gateway's log has a line that contains the text, and returns the line.
    pub(crate) fn wait_for_gateway_line(&self, text: &str) -> String {
        for _ in 0..LOG_READS {
            let log = self.gateway_log();
            if let Some(line) = log.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            std::thread::sleep(LOG_PAUSE);
        }
        panic!("the gateway's log has no line with {text}:\n{}", self.gateway_log());
    }

    /// Returns the output of all runs of the client.
    pub(crate) fn client_log(&self) -> String {
        fs::read_to_string(self.folder.join("client.log")).unwrap_or_default()
    }

    /// Runs `throughline connect` with the client's home folder, and requires success. Returns its
    /// standard output.
    pub(crate) fn connect(&self, arguments: &[&str]) -> String {
        let mut command = self.command(env!("CARGO_BIN_EXE_throughline"));
        let output = command.arg("connect").args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "throughline connect {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a prompt, and waits until the client ends.
    pub(crate) fn run(&self, program: &ClientProgram, prompt: &Prompt<'_>) -> ClientOutput {
        let parts = (program.command)().expect("the client is installed");
        let (path, first) = parts.split_first().unwrap();
        let mut command = self.command(path);
        command.args(first).args((program.arguments)(prompt));
        self.wait_for(program, command)
    }

    /// Runs a prompt with `throughline connect --run`, and waits until the client ends.
    pub(crate) fn run_connected(
        &self,
        program: &ClientProgram,
        prompt: &Prompt<'_>,
    ) -> ClientOutput {
        let parts = (program.command)().expect("the client is installed");
        let arguments = (program.arguments)(prompt);
        self.run_from(parts[0].parent().unwrap(), program, prompt.model, &arguments)
    }

    /// Runs `throughline connect --run` with these arguments. The programs in `folder` are found
    /// first.
    pub(crate) fn run_from(
        &self,
        folder: &Path,
        program: &ClientProgram,
        model: &str,
        arguments: &[String],
    ) -> ClientOutput {
        let search_path = search_path();
        let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(&search_path));
        let mut command = self.command(env!("CARGO_BIN_EXE_throughline"));
        command.env("PATH", std::env::join_paths(folders).unwrap());
        command.args(["connect", program.name, "--url", &self.url(), "--model", model]);
        command.args(["--run", "--"]).args(arguments);
        self.wait_for(program, command)
    }

    /// Runs a program in the work folder, and waits until it ends.
    pub(crate) fn run_program(
        &self,
        client: &ClientProgram,
        program: &Path,
        arguments: &[&str],
    ) -> ClientOutput {
        let mut command = self.command(program);
        command.args(arguments);
        self.wait_for(client, command)
    }

    /// Runs a command with the client's variables, and waits until the client ends.
    fn wait_for(&self, program: &ClientProgram, mut command: Command) -> ClientOutput {
        command.envs(program.environment.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let mut logged = 0;
        let output = loop {
            if let Ok(output) = receiver.recv_timeout(IDLE_LIMIT) {
                break output.unwrap();
            }
            let log = self.gateway_log();
            if log.len() == logged {
                drop(Command::new("kill").args(["-9", &id.to_string()]).status());
                panic!("{} made no progress in {IDLE_LIMIT:?}; gateway:\n{log}", program.name);
            }
            logged = log.len();
        };
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = format!("{out}{}", String::from_utf8_lossy(&output.stderr));
        fs::write(self.folder.join("client.log"), format!("{}{text}", self.client_log())).unwrap();
        let lines = out.lines().filter_map(|line| serde_json::from_str(line).ok());
        let lines = lines.filter(Value::is_object).collect();
        ClientOutput { succeeded: output.status.success(), lines, text }
    }

    /// Returns the entries of the simulators' ledger.
    pub(crate) fn ledger(&self) -> Vec<Value> {
        let response = self.gateway.send("GET", "/v1/throughline/sim/ledger", "", "");
        let body = response.split_once("\r\n\r\n").unwrap().1;
        let ledger: Value = serde_json::from_str(body).unwrap_or_else(|error| {
            panic!("the ledger is not readable: {error}: {response}");
        });
        ledger["entries"].as_array().unwrap().clone()
    }

    /// Returns a command in the work folder without the user's settings, and with a closed proxy.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.work()).stdin(Stdio::null());
        command.env("PATH", search_path()).env("HOME", self.home(""));
        command.env("TMPDIR", self.folder.join("tmp")).env("THROUGHLINE_URL", self.url());
        command.env("TERM", "dumb").env("LANG", "C.UTF-8");
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env(variable, CLOSED_PROXY);
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        without_keys(&mut command);
        command
    }
}

#[expect(clippy::disallowed_methods, reason = "the clients start node and a shell")]
fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into())
}
