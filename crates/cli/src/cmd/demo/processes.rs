//! Processes and files of the demo: a directory, the simulators, a gateway, and workers.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;
use throughline_json::Json;
use throughline_sim::{Fault, FaultKind, Script, Simulator};
use throughline_spec::RunEvent;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::sleep;

use crate::args::{Demo, Format, StoreArgs};
use crate::clock::instant;
use crate::print::failure::{Failure, Result};
use crate::print::progress::StatusLine;
use crate::print::text;
use crate::store::{self, Signals};

const AGENT: &str = include_str!("agent.toml");
const SCRIPT: &str = include_str!("script.toml");

/// Configuration that makes the agent summarise old messages as soon as possible.
const SHORT: &str = "\n[context]\ntriggerTokens = 100\nkeepTurns = 0\n";

/// Lease duration in seconds. After this time, the next worker takes over the run of a killed
/// worker.
const LEASE: &str = "2";

/// Interval between two frames of the line that is shown during a pause.
const FRAME: Duration = Duration::from_millis(200);

/// API key with which the agent and the gateway access the simulators.
pub(super) const KEY: &str = "demo";

/// Resources of the demo. The fields are dropped in declaration order.
pub(super) struct DemoProcesses {
    gateway: GatewayProcess,
    pub(super) simulator: Simulator,
    signals: Signals,
    runtime: Runtime,
    /// Number of workers started so far.
    pub(super) workers: u32,
    /// Lines from standard input; `None` until the first prompt.
    typed: Option<UnboundedReceiver<io::Result<String>>>,
    folder: PathBuf,
    /// Temporary directory that is deleted when the demo ends; `None` if `--home` is given.
    home: Option<TempDir>,
}

struct GatewayProcess {
    _process: Process,
    address: SocketAddr,
    /// Kept open, because the gateway cannot print its output if the reading end is closed.
    _out: Lines<BufReader<ChildStdout>>,
}

/// A process that is killed on drop. Killing loses no data: the gateway stores responses before it
/// ends them, and most workers have already exited.
struct Process(Child);

impl Process {
    /// Starts `throughline` in the demo's directory and returns the process with its standard
    /// output.
    fn start(folder: &Path, log: &Path, args: &[&str]) -> Result<(Self, BufReader<ChildStdout>)> {
        let log = File::create(log)
            .with_context(|| format!("cannot create the log file {}", log.display()))?;
        let mut command = program(folder)?;
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start `throughline {}`", args.join(" ")));
        let mut process = Self(child?);
        let output = process.0.stdout.take().context("cannot capture the output of a process")?;
        Ok((process, BufReader::new(output)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl DemoProcesses {
    /// Starts the simulators and the gateway. The response to the request with the number `stalled`
    /// stalls half-way, so that the worker can be killed during this response.
    pub(super) fn start(options: &Demo, stalled: u64) -> Result<Self> {
        let (folder, home) = folder(options)?;
        let runtime = store::runtime(Builder::new_multi_thread())?;
        let signals = runtime.block_on(async { Signals::new() })?;
        let stall = Fault { kind: FaultKind::Stall, only: Some(stalled) };
        let sim_options = throughline_sim::Options { faults: vec![stall], ..Default::default() };
        let simulator = runtime.block_on(throughline_sim::start(sim_options));
        let simulator = simulator.context("cannot start the simulators")?;
        let short = format!("{AGENT}{SHORT}");
        for (file, text) in [
            ("agent.toml", AGENT),
            ("short.toml", &short),
            ("throughline.toml", &configuration(&simulator.url())),
        ] {
            text::write_file(&folder.join(file), text.as_bytes())?;
        }
        let gateway = GatewayProcess::start(&folder)?;
        Ok(Self { gateway, simulator, signals, runtime, workers: 0, typed: None, folder, home })
    }

    pub(super) fn gateway_url(&self) -> String {
        format!("http://{}", self.gateway.address)
    }

    pub(super) fn store(&self) -> String {
        store_of(&self.folder)
    }

    /// Returns the options that open the demo's store in this process.
    pub(super) fn store_args(&self) -> StoreArgs {
        StoreArgs {
            store: Some(self.store()),
            tenant: "default".to_owned(),
            master_key_file: None,
            retired_key_file: Vec::new(),
            config: Some(self.folder.join("throughline.toml")),
        }
    }

    /// Scripts the answers of the agent's models. Before, the simulators generate their answers.
    pub(super) fn start_script(&self) -> Result<()> {
        let script: Script = SCRIPT.parse().context("cannot parse the demo script")?;
        self.simulator.set_script(script);
        Ok(())
    }

    /// Waits until the user presses Enter or, unless `time` is `None`, until the time has passed.
    pub(super) fn pause(&mut self, time: Option<Duration>) -> Result<()> {
        let mut lines = self.typed.take().unwrap_or_else(|| lines_of(BufReader::new(io::stdin())));
        // Earlier input does not skip a scene.
        while lines.try_recv().is_ok() {}
        let (started, mut status) = (instant(), StatusLine::new(Format::Text));
        let is_entered = self.wait_unless_interrupted(async {
            loop {
                let left = time.map(|time| time.saturating_sub(started.elapsed()));
                if left.is_some_and(|left| left.is_zero()) {
                    return false;
                }
                status.draw(&match left {
                    Some(left) => format!("next scene in {} s, or press Enter", left.as_secs() + 1),
                    None => "press Enter for the next scene".to_owned(),
                });
                tokio::select! {
                    line = lines.recv(), if !lines.is_closed() || time.is_none() => match line {
                        Some(_) => return true,
                        None if time.is_none() => return false,
                        None => {}
                    },
                    () = sleep(FRAME) => {}
                }
            }
        })?;
        self.typed = Some(lines);
        if is_entered {
            // The terminal has printed the line feed, so the status is on the line above.
            text::write_stderr("\x1b[1A")?;
        }
        status.clear();
        Ok(())
    }

    /// Starts a worker process for a run. `agent` is the name of the agent's declaration file.
    pub(super) fn start_worker(&mut self, arguments: &[&str], agent: &str) -> Result<Worker> {
        self.workers += 1;
        let errors = self.folder.join(format!("worker-{}.log", self.workers));
        let options = ["--agent", agent, "--lease", LEASE, "--no-ask", "--format", "json"];
        let arguments = [arguments, &options].concat();
        let (process, output) = Process::start(&self.folder, &errors, &arguments)?;
        Ok(Worker { process, lines: lines_of(output), errors })
    }

    /// Returns the next event that a worker prints; `None` at the end of its output.
    pub(super) fn next_event(&mut self, worker: &mut Worker) -> Result<Option<RunEvent>> {
        while let Some(line) = self.wait_unless_interrupted(worker.lines.recv())? {
            let line = line.context("cannot read the output of a worker process")?;
            let event = Json::parse(line).ok().and_then(|event| RunEvent::parse(&event).ok());
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Reads a line from the terminal; `None` at end of input.
    pub(super) fn read_line(&mut self) -> Result<Option<String>> {
        let mut lines = self.typed.take().unwrap_or_else(|| lines_of(BufReader::new(io::stdin())));
        let line = self.wait_unless_interrupted(lines.recv())?;
        self.typed = Some(lines);
        Ok(line.transpose().context("cannot read the answer")?)
    }

    /// Waits for `work`, which ends soon.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits for `work`, or fails if the user interrupts the demo.
    fn wait_unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let Self { runtime, signals, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = signals.wait_for_stop() => {
                    Err(Failure::Interrupted("the demo was interrupted".to_owned()))
                }
                done = work => Ok(done),
            }
        })
    }

    /// Runs a `throughline` command to completion and returns its standard output.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<String> {
        let ended = program(&self.folder)?.args(arguments).stdin(Stdio::null()).output();
        let line = arguments.join(" ");
        let ended = ended.with_context(|| format!("cannot run `throughline {line}`"))?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&ended.stderr);
        Err(Failure::Outside(anyhow::anyhow!("`throughline {line}` failed: {}", error.trim())))
    }

    /// Runs a command with JSON output. Returns the element of the array `list` whose field `key`
    /// has this value.
    fn find_in(&self, command: &str, list: &str, key: &str, value: &str) -> Result<Option<Value>> {
        let output = self.command(&[command, "--format", "json"])?;
        let output: Value = serde_json::from_str(&output)
            .with_context(|| format!("the output of `throughline {command}` is not JSON"))?;
        let mut entries = output.get(list).and_then(Value::as_array).into_iter().flatten();
        Ok(entries.find(|entry| entry.get(key).is_some_and(|found| found == value)).cloned())
    }

    pub(super) fn thread_of(&self, run: &str) -> Result<String> {
        let found = self.find_in("runs", "runs", "id", run)?.unwrap_or_default();
        let thread = found.get("thread").and_then(Value::as_str);
        Ok(thread.with_context(|| format!("cannot find the thread of run {run}"))?.to_owned())
    }

    /// Returns the pending request of the given kind from the inbox.
    pub(super) fn pending_request(&self, kind: &str) -> Result<PendingDemoRequest> {
        let found = self.find_in("inbox", "waiting", "kind", kind)?;
        let found = found.with_context(|| format!("there is no pending {kind}"))?;
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let id = text(&found, "id");
        let Some(question) = found.pointer("/questions/0") else {
            let text =
                format!("{} {}", text(&found, "tool"), found.get("args").unwrap_or(&Value::Null));
            return Ok(PendingDemoRequest { id, text, options: Vec::new() });
        };
        let options = question.get("options").and_then(Value::as_array).into_iter().flatten();
        let options = options.map(|option| (text(option, "label"), text(option, "description")));
        Ok(PendingDemoRequest { id, text: text(question, "question"), options: options.collect() })
    }

    /// Returns how often the deploy tool ran, by counting the lines that the tool wrote to a file.
    pub(super) fn deployments(&self) -> Result<usize> {
        let lines = match fs::read_to_string(self.folder.join("deployed")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            read => read.map(|text| text.lines().count()),
        };
        Ok(lines.context("cannot read the file `deployed`")?)
    }

    /// Keeps the gateway running until the user interrupts the demo.
    pub(super) fn wait_for_interrupt(mut self) -> Result<()> {
        self.runtime.block_on(self.signals.wait_for_stop());
        self.close()
    }

    /// Stops all processes and deletes the temporary directory.
    pub(super) fn close(self) -> Result<()> {
        let Self { runtime, simulator, gateway, home, .. } = self;
        drop(gateway);
        runtime.block_on(simulator.stop());
        let closed = home.map_or(Ok(()), TempDir::close);
        Ok(closed.context("cannot delete the demo's temporary directory")?)
    }
}

impl GatewayProcess {
    fn start(folder: &Path) -> Result<Self> {
        let arguments = ["serve", "--listen", "127.0.0.1:0"];
        let log = folder.join("gateway.log");
        let (process, output) = Process::start(folder, &log, &arguments)?;
        let mut lines = output.lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        let address = address.with_context(|| {
            let errors = fs::read_to_string(&log).unwrap_or_default();
            format!("the gateway did not start: {}", errors.trim())
        })?;
        Ok(Self { _process: process, address, _out: lines })
    }
}

/// A `throughline` process that drives a run.
pub(super) struct Worker {
    process: Process,
    lines: UnboundedReceiver<io::Result<String>>,
    errors: PathBuf,
}

impl Worker {
    /// Kills the worker with SIGKILL and returns its process id.
    pub(super) fn kill(mut self) -> Result<u32> {
        let child = &mut self.process.0;
        child.kill().context("cannot kill the worker process")?;
        child.wait().context("cannot wait for the worker process to exit")?;
        Ok(child.id())
    }

    /// Waits until the worker exits because its run has ended or needs input.
    pub(super) fn wait(mut self) -> Result<()> {
        let status = self.process.0.wait();
        let status = status.context("cannot wait for the worker process to exit")?;
        if status.success() {
            return Ok(());
        }
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        let errors = errors.trim();
        Err(Failure::Outside(anyhow::anyhow!("a worker process of the demo failed: {errors}")))
    }
}

pub(super) struct PendingDemoRequest {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) options: Vec<(String, String)>,
}

/// Returns the demo's directory. If the directory is temporary, also returns the guard that deletes
/// it.
fn folder(options: &Demo) -> Result<(PathBuf, Option<TempDir>)> {
    let Some(home) = &options.home else {
        let home = TempDir::with_prefix("throughline-demo-");
        let home = home.context("cannot create a temporary directory")?;
        return Ok((home.path().to_owned(), Some(home)));
    };
    let shown = home.display();
    fs::create_dir_all(home).with_context(|| format!("cannot create {shown}"))?;
    let mut inside = fs::read_dir(home).with_context(|| format!("cannot read {shown}"))?;
    if inside.next().is_some() {
        return Err(Failure::Usage(format!(
            "--home {shown} is not empty; choose another directory"
        )));
    }
    let absolute = home.canonicalize().with_context(|| format!("cannot resolve {shown}"))?;
    Ok((absolute, None))
}

fn store_of(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("demo.db").display())
}

/// Returns a configuration that redirects requests for Anthropic and OpenAI to the simulators.
fn configuration(simulators: &str) -> String {
    let providers = ["anthropic", "openai"].map(|name| {
        format!("[providers.{name}]\nbase_url = \"{simulators}/at/{name}\"\napi_key = \"{KEY}\"\n")
    });
    providers.join("\n")
}

/// Returns a command that runs this executable in the demo's directory and with the demo's store.
fn program(folder: &Path) -> Result<Command> {
    let own = std::env::current_exe()
        .context("cannot determine the path of the running throughline executable")?;
    let mut command = Command::new(own);
    // Takes precedence over the user's store.
    command.env("THROUGHLINE_STORE", store_of(folder));
    // Ctrl-C reaches only this process, which stops the other processes.
    command.current_dir(folder).process_group(0);
    Ok(command)
}

/// Reads lines on a separate thread, so that waiting for a line can be interrupted.
fn lines_of(source: impl BufRead + Send + 'static) -> UnboundedReceiver<io::Result<String>> {
    let (sender, lines) = mpsc::unbounded_channel();
    thread::spawn(move || source.lines().try_for_each(|line| sender.send(line)));
    lines
}
