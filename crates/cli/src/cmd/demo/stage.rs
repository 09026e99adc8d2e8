//! Environment of the demo: a folder, the simulators, a gateway, and worker processes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use anyhow::Context as _;
use tempfile::TempDir;
use throughline_json::{Json, Node};
use throughline_sim::{Fault, FaultKind, Ledger, Script, Simulator};
use throughline_spec::RunEvent;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::args::{Demo, StoreArgs};
use crate::print::failure::Failure;
use crate::store::Signals;

const AGENT: &str = include_str!("agent.toml");
const SCRIPT: &str = include_str!("script.toml");

/// Appended to the agent declaration: summarises old messages as soon as possible.
const SHORT: &str = "\n[context]\ntriggerTokens = 100\nkeepTurns = 0\n";

/// Lease in seconds: the next worker waits this long after a crash.
const LEASE: &str = "2";

/// The request whose response stalls half-way, so that its worker can be killed there.
const STALLED: u64 = 2;

/// API key of the agent and the gateway at the simulators.
pub(super) const KEY: &str = "demo";

/// Resources of the demo. Fields are dropped in declaration order when the demo is stopped.
pub(super) struct DemoProcesses {
    gateway: GatewayProcess,
    simulator: Simulator,
    signals: Signals,
    runtime: Runtime,
    started: Cell<u32>,
    /// Lines from standard input, once they are read.
    typed: Option<UnboundedReceiver<io::Result<String>>>,
    folder: PathBuf,
    /// Deleted with the stage, unless `--home` names a folder.
    home: Option<TempDir>,
}

/// The gateway process.
struct GatewayProcess {
    child: Child,
    address: SocketAddr,
    /// Kept open: the gateway fails to print if its standard output is closed.
    _out: Lines<BufReader<ChildStdout>>,
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // Responses were stored before they ended, so nothing is lost.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl DemoProcesses {
    pub(super) fn start(options: &Demo) -> Result<Self, Failure> {
        let (folder, home) = folder(options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("the simulators cannot be started")?;
        let signals = {
            let _inside = runtime.enter();
            Signals::new().context("signal handlers cannot be installed")?
        };
        let script: Script = SCRIPT.parse().context("the demo script cannot be parsed")?;
        let stall = Fault { kind: FaultKind::Stall, only: Some(STALLED) };
        let how = throughline_sim::Options { script, faults: vec![stall], ..Default::default() };
        let simulator = runtime.block_on(throughline_sim::start(how));
        let simulator = simulator.context("the simulators cannot be started")?;
        let short = format!("{AGENT}{SHORT}");
        for (file, text) in [
            ("agent.toml", AGENT),
            ("short.toml", &short),
            ("throughline.toml", &configuration(&simulator.url())),
        ] {
            let path = folder.join(file);
            fs::write(&path, text)
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
        let gateway = GatewayProcess::start(&folder)?;
        let started = Cell::new(0);
        Ok(Self { gateway, simulator, signals, runtime, started, typed: None, folder, home })
    }

    pub(super) fn simulators(&self) -> String {
        self.simulator.url()
    }

    pub(super) fn gateway_url(&self) -> String {
        format!("http://{}", self.gateway.address)
    }

    pub(super) fn store(&self) -> String {
        store_of(&self.folder)
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.simulator.ledger()
    }

    /// Returns the number of workers that were started.
    pub(super) fn worker_count(&self) -> u32 {
        self.started.get()
    }

    /// Returns the store options of the demo for this process.
    pub(super) fn store_args(&self) -> StoreArgs {
        StoreArgs {
            store: Some(self.store()),
            tenant: "default".to_owned(),
            master_key_file: None,
            retired_key_file: Vec::new(),
            config: Some(self.folder.join("throughline.toml")),
        }
    }

    /// Starts a worker for a run.
    pub(super) fn start_worker(&self, arguments: &[&str], agent: &str) -> Result<Worker, Failure> {
        self.started.set(self.started.get() + 1);
        let errors = self.folder.join(format!("worker-{}.log", self.started.get()));
        let told = File::create(&errors).context("the log of a worker cannot be written")?;
        let mut child = program(&self.folder)?
            .args(arguments)
            .args(["--agent", agent, "--lease", LEASE, "--no-ask", "--format", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(told)
            .spawn()
            .context("a worker cannot be started")?;
        let out = child.stdout.take().context("the output of a worker cannot be read")?;
        Ok(Worker { child, lines: lines_of(BufReader::new(out)), errors })
    }

    /// Returns the next event of a worker; `None` at the end of its output.
    pub(super) fn next_event(&mut self, worker: &mut Worker) -> Result<Option<RunEvent>, Failure> {
        while let Some(line) = self.wait_unless_interrupted(worker.lines.recv())? {
            let line = line.context("the output of a worker cannot be read")?;
            let event = Json::parse(line).ok().and_then(|event| RunEvent::parse(&event).ok());
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Reads a line from the terminal; `None` at end of input.
    pub(super) fn read_line(&mut self) -> Result<Option<String>, Failure> {
        let mut lines = self.typed.take().unwrap_or_else(|| lines_of(BufReader::new(io::stdin())));
        let line = self.wait_unless_interrupted(lines.recv())?;
        self.typed = Some(lines);
        Ok(line.transpose().context("the answer cannot be read")?)
    }

    /// Waits for `work`, unless the user interrupts the demo.
    fn wait_unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let Self { runtime, signals, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = signals.wait_for_stop() => {
                    Err(Failure::Interrupted("the demo was stopped half-way".to_owned()))
                }
                done = work => Ok(done),
            }
        })
    }

    /// Runs a command to completion and returns its output.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<String, Failure> {
        let ended = program(&self.folder)?.args(arguments).stdin(Stdio::null()).output();
        let ended = ended.context("a command cannot be run")?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        let line = arguments.join(" ");
        Err(Failure::Outside(anyhow::anyhow!("`throughline {line}` failed: {told}")))
    }

    /// Runs a command and parses its JSON output.
    fn command_json(&self, arguments: &[&str]) -> Result<Json, Failure> {
        let said = self.command(&[arguments, &["--format", "json"]].concat())?;
        Ok(Json::parse(said.trim().to_owned()).context("a command did not print JSON")?)
    }

    /// Returns the thread of a run.
    pub(super) fn thread_of(&self, run: &str) -> Result<String, Failure> {
        let runs = self.command_json(&["runs"])?;
        let tree = runs.tree();
        let mut runs = tree.root().get("runs").into_iter().flat_map(Node::elements);
        let found = runs.find(|known| known.get("id").is_some_and(|id| id.is(run)));
        let thread = found.and_then(|found| found.name_of("thread"));
        Ok(thread.context("the run has no thread")?.to_string())
    }

    /// Returns the pending request of that kind.
    pub(super) fn pending_request(&self, kind: &str) -> Result<PendingDemoRequest, Failure> {
        let inbox = self.command_json(&["inbox"])?;
        let tree = inbox.tree();
        let mut waiting = tree.root().get("waiting").into_iter().flat_map(Node::elements);
        let found = waiting.find(|one| one.get("kind").is_some_and(|known| known.is(kind)));
        let found = found.with_context(|| format!("there is no pending {kind}"))?;
        Ok(PendingDemoRequest::of(found))
    }

    /// Counts the runs of the deploy tool, which appends a line each time.
    pub(super) fn deployments(&self) -> Result<usize, Failure> {
        match fs::read_to_string(self.folder.join("deployed")) {
            Ok(text) => Ok(text.lines().count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(anyhow::Error::new(error)
                .context("the file of deployments cannot be read")
                .into()),
        }
    }

    /// Keeps the gateway running until the user interrupts the demo.
    pub(super) fn wait_for_interrupt(mut self) -> Result<(), Failure> {
        self.runtime.block_on(self.signals.wait_for_stop());
        self.close()
    }

    /// Stops all processes and deletes the temporary folder.
    pub(super) fn close(self) -> Result<(), Failure> {
        let Self { runtime, simulator, gateway, home, .. } = self;
        drop(gateway);
        runtime.block_on(simulator.stop());
        match home.map(TempDir::close) {
            Some(closed) => Ok(closed.context("the folder of the demo cannot be deleted")?),
            None => Ok(()),
        }
    }
}

impl GatewayProcess {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let log = File::create(folder.join("gateway.log"));
        let mut child = program(folder)?
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.context("the gateway's log cannot be written")?)
            .spawn()
            .context("the gateway cannot be started")?;
        let out = child.stdout.take().context("the output of the gateway cannot be read")?;
        let mut lines = BufReader::new(out).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        let address = address.context("the gateway did not start: see gateway.log")?;
        Ok(Self { child, address, _out: lines })
    }
}

/// A process that drives a run.
pub(super) struct Worker {
    child: Child,
    lines: UnboundedReceiver<io::Result<String>>,
    errors: PathBuf,
}

/// How a worker ended.
pub(super) enum WorkerExit {
    /// The run is over or waits for input.
    Rested,
    /// The worker failed with this message.
    Failed(String),
}

impl Worker {
    /// Kills the worker with SIGKILL and returns its process id.
    pub(super) fn kill(mut self) -> Result<u32, Failure> {
        let id = self.child.id();
        self.child.kill().context("the worker cannot be killed")?;
        self.child.wait().context("the worker cannot be waited for")?;
        Ok(id)
    }

    pub(super) fn wait(mut self) -> Result<WorkerExit, Failure> {
        let status = self.child.wait().context("a worker cannot be waited for")?;
        if status.success() {
            return Ok(WorkerExit::Rested);
        }
        let told = fs::read_to_string(&self.errors).unwrap_or_default();
        Ok(WorkerExit::Failed(told.trim().to_owned()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Most workers have already exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A pending request.
pub(super) struct PendingDemoRequest {
    pub(super) id: String,
    pub(super) words: String,
    /// Choices with their descriptions.
    pub(super) options: Vec<(String, String)>,
}

impl PendingDemoRequest {
    fn of(one: Node<'_>) -> Self {
        let text = |node: Node<'_>, key: &str| node.name_of(key).unwrap_or_default().to_string();
        let id = text(one, "id");
        let question = one.get("questions").into_iter().flat_map(Node::elements).next();
        let Some(question) = question else {
            let args = one.get("args").map(|args| args.json().as_str().to_owned());
            let words = format!("{} {}", text(one, "tool"), args.unwrap_or_default());
            return Self { id, words, options: Vec::new() };
        };
        let options = question.get("options").into_iter().flat_map(Node::elements);
        let options = options.map(|option| (text(option, "label"), text(option, "description")));
        Self { id, words: text(question, "question"), options: options.collect() }
    }
}

/// Returns the folder of the demo, and the guard that deletes a temporary one.
fn folder(options: &Demo) -> Result<(PathBuf, Option<TempDir>), Failure> {
    let Some(home) = &options.home else {
        let home = TempDir::with_prefix("throughline-demo-")
            .context("a temporary folder cannot be created")?;
        return Ok((home.path().to_owned(), Some(home)));
    };
    let shown = home.display();
    fs::create_dir_all(home).with_context(|| format!("{shown} cannot be created"))?;
    let mut inside = fs::read_dir(home).with_context(|| format!("{shown} cannot be read"))?;
    if inside.next().is_some() {
        return Err(Failure::Usage(format!("--home {shown} is not empty; choose another folder")));
    }
    let whole = home.canonicalize().with_context(|| format!("{shown} cannot be found"))?;
    Ok((whole, None))
}

fn store_of(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("demo.db").display())
}

/// Configures the real providers with the addresses of the simulators.
fn configuration(simulators: &str) -> String {
    let providers = ["anthropic", "openai"].map(|name| {
        format!("[providers.{name}]\nbase_url = \"{simulators}/at/{name}\"\napi_key = \"{KEY}\"\n")
    });
    providers.join("\n")
}

/// Returns a command that runs this program in the demo's folder and on its store.
fn program(folder: &Path) -> Result<Command, Failure> {
    let own = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(own);
    // Overrides the user's store.
    command.env("THROUGHLINE_STORE", store_of(folder));
    // Ctrl-C reaches only this process, which stops the others.
    command.current_dir(folder).process_group(0);
    Ok(command)
}

/// Reads lines on a thread, so that waiting for a line can be interrupted.
fn lines_of(source: impl BufRead + Send + 'static) -> UnboundedReceiver<io::Result<String>> {
    let (lines, heard) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in source.lines() {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    heard
}
