//! What the story is played on: a folder, the simulators, a gateway, and workers that are processes of their own.

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
use throughline_core::{Json, Node, RunEvent};
use throughline_sim::{Fault, FaultKind, Ledger, Script, Simulator};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::failure::Failure;
use crate::options::{At, Demo};
use crate::store::Signals;

const AGENT: &str = include_str!("agent.toml");
const SCRIPT: &str = include_str!("script.toml");

/// The same agent, which summarises what is old as soon as it can.
const SHORT: &str = "\n[context]\ntriggerTokens = 100\nkeepTurns = 0\n";

/// How long a run is held without a word, in seconds: so long the next worker waits after a crash.
const LEASE: &str = "2";

/// The request whose answer stalls half-way: the worker that hears it is killed there.
const STALLED: u64 = 2;

/// The key that the agent and the gateway have at the simulators.
pub(super) const KEY: &str = "demo";

/// What it holds is taken away in this order, whenever somebody asks to stop.
pub(super) struct Stage {
    gateway: Gateway,
    simulator: Simulator,
    signals: Signals,
    runtime: Runtime,
    started: Cell<u32>,
    /// What a person types, once somebody listens.
    typed: Option<UnboundedReceiver<io::Result<String>>>,
    folder: PathBuf,
    /// Goes away with the stage, unless somebody named a folder.
    home: Option<TempDir>,
}

/// The gateway, a process of its own.
struct Gateway {
    child: Child,
    address: SocketAddr,
    /// Whoever closes it takes the gateway's word away.
    _out: Lines<BufReader<ChildStdout>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // What it had said was kept, so nothing is lost.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Stage {
    pub(super) fn set(options: &Demo) -> Result<Self, Failure> {
        let (folder, home) = folder(options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("the simulators cannot be started")?;
        let signals = {
            let _inside = runtime.enter();
            Signals::new().context("signals cannot be waited for")?
        };
        let script: Script = SCRIPT.parse().context("the story cannot be read")?;
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
        let gateway = Gateway::start(&folder)?;
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

    /// How many workers there were.
    pub(super) fn started(&self) -> u32 {
        self.started.get()
    }

    /// Where the story is kept, for this process itself.
    pub(super) fn at(&self) -> At {
        At {
            store: Some(self.store()),
            tenant: "default".to_owned(),
            master_key_file: None,
            retired_key_file: Vec::new(),
            config: Some(self.folder.join("throughline.toml")),
        }
    }

    /// Starts a worker for a run.
    pub(super) fn work(&self, arguments: &[&str], agent: &str) -> Result<Worker, Failure> {
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
        let out = child.stdout.take().context("a worker cannot be heard")?;
        Ok(Worker { child, lines: lines_of(BufReader::new(out)), errors })
    }

    /// The next thing that a worker tells; nothing when it is done.
    pub(super) fn event(&mut self, worker: &mut Worker) -> Result<Option<RunEvent>, Failure> {
        while let Some(line) = self.unless_stopped(worker.lines.recv())? {
            let line = line.context("a worker cannot be heard")?;
            let event = Json::parse(line).ok().and_then(|event| RunEvent::parse(&event).ok());
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// A line that a person types; nothing where there is nobody.
    pub(super) fn typed(&mut self) -> Result<Option<String>, Failure> {
        let mut lines = self.typed.take().unwrap_or_else(|| lines_of(BufReader::new(io::stdin())));
        let line = self.unless_stopped(lines.recv())?;
        self.typed = Some(lines);
        Ok(line.transpose().context("the answer cannot be read")?)
    }

    /// Waits for something, unless somebody asks to stop.
    fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let Self { runtime, signals, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = signals.asked_to_stop() => {
                    Err(Failure::Interrupted("the demo was stopped half-way".to_owned()))
                }
                done = work => Ok(done),
            }
        })
    }

    /// Runs a command to its end, for what it says.
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

    /// The JSON that a command answers with.
    fn answer(&self, arguments: &[&str]) -> Result<Json, Failure> {
        let said = self.command(&[arguments, &["--format", "json"]].concat())?;
        Ok(Json::parse(said.trim().to_owned()).context("a command answered with no JSON")?)
    }

    /// The thread of a run.
    pub(super) fn thread_of(&self, run: &str) -> Result<String, Failure> {
        let runs = self.answer(&["runs"])?;
        let tree = runs.tree();
        let mut runs = tree.root().get("runs").into_iter().flat_map(Node::elements);
        let found = runs.find(|known| known.get("id").is_some_and(|id| id.is(run)));
        let thread = found.and_then(|found| found.name_of("thread"));
        Ok(thread.context("the run has no thread")?.to_string())
    }

    /// What waits for a person.
    pub(super) fn waiting(&self, kind: &str) -> Result<Waiting, Failure> {
        let inbox = self.answer(&["inbox"])?;
        let tree = inbox.tree();
        let mut waiting = tree.root().get("waiting").into_iter().flat_map(Node::elements);
        let found = waiting.find(|one| one.get("kind").is_some_and(|known| known.is(kind)));
        let found = found.with_context(|| format!("no {kind} waits for anybody"))?;
        Ok(Waiting::of(found))
    }

    /// How often the tool that changes something ran: it writes a line each time.
    pub(super) fn deployments(&self) -> Result<usize, Failure> {
        match fs::read_to_string(self.folder.join("deployed")) {
            Ok(text) => Ok(text.lines().count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => {
                Err(anyhow::Error::new(error).context("what was deployed cannot be read").into())
            }
        }
    }

    /// Leaves the gateway open until somebody asks to stop.
    pub(super) fn wait_for_the_end(mut self) -> Result<(), Failure> {
        self.runtime.block_on(self.signals.asked_to_stop());
        self.close()
    }

    /// Ends everything that was started.
    pub(super) fn close(self) -> Result<(), Failure> {
        let Self { runtime, simulator, gateway, home, .. } = self;
        drop(gateway);
        runtime.block_on(simulator.stop());
        match home.map(TempDir::close) {
            Some(closed) => Ok(closed.context("the folder of the demo cannot be taken away")?),
            None => Ok(()),
        }
    }
}

impl Gateway {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let log = File::create(folder.join("gateway.log"));
        let mut child = program(folder)?
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.context("the gateway's log cannot be written")?)
            .spawn()
            .context("the gateway cannot be started")?;
        let out = child.stdout.take().context("the gateway cannot be heard")?;
        let mut lines = BufReader::new(out).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        let address = address.context("the gateway did not start: see gateway.log")?;
        Ok(Self { child, address, _out: lines })
    }
}

/// A process that works on a run.
pub(super) struct Worker {
    child: Child,
    lines: UnboundedReceiver<io::Result<String>>,
    errors: PathBuf,
}

/// How a worker ended.
pub(super) enum Ending {
    /// The run is over, or waits.
    Rested,
    /// It failed, and said that.
    Failed(String),
}

impl Worker {
    /// Kills it as a power cut would: it hears nothing of it. Its number.
    pub(super) fn kill(mut self) -> Result<u32, Failure> {
        let id = self.child.id();
        self.child.kill().context("the worker cannot be killed")?;
        self.child.wait().context("the worker cannot be waited for")?;
        Ok(id)
    }

    pub(super) fn end(mut self) -> Result<Ending, Failure> {
        let status = self.child.wait().context("a worker cannot be waited for")?;
        if status.success() {
            return Ok(Ending::Rested);
        }
        let told = fs::read_to_string(&self.errors).unwrap_or_default();
        Ok(Ending::Failed(told.trim().to_owned()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Most have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Something that waits for a person.
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) words: String,
    /// What can be chosen, each with what it means.
    pub(super) options: Vec<(String, String)>,
}

impl Waiting {
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

/// The folder of the story, and what takes it away again.
fn folder(options: &Demo) -> Result<(PathBuf, Option<TempDir>), Failure> {
    let Some(home) = &options.home else {
        let home = TempDir::with_prefix("throughline-demo-").context("no folder can be made")?;
        return Ok((home.path().to_owned(), Some(home)));
    };
    let shown = home.display();
    fs::create_dir_all(home).with_context(|| format!("{shown} cannot be made"))?;
    let mut inside = fs::read_dir(home).with_context(|| format!("{shown} cannot be read"))?;
    if inside.next().is_some() {
        return Err(Failure::Usage(format!("--home {shown} is not empty: name another folder")));
    }
    let whole = home.canonicalize().with_context(|| format!("{shown} cannot be found"))?;
    Ok((whole, None))
}

fn store_of(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("demo.db").display())
}

/// The providers, as if they were the real ones: only their addresses are the simulators'.
fn configuration(simulators: &str) -> String {
    let providers = ["anthropic", "openai"].map(|name| {
        format!("[providers.{name}]\nbase_url = \"{simulators}/at/{name}\"\napi_key = \"{KEY}\"\n")
    });
    providers.join("\n")
}

/// This program once more, in that folder and on its store.
fn program(folder: &Path) -> Result<Command, Failure> {
    let own = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(own);
    // Whatever store whoever plays it has, the story has its own.
    command.env("THROUGHLINE_STORE", store_of(folder));
    // The terminal's Ctrl-C is for this process alone, which ends the others.
    command.current_dir(folder).process_group(0);
    Ok(command)
}

/// The lines of something, each as it comes: whoever waits for one can be interrupted, whoever reads cannot.
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
