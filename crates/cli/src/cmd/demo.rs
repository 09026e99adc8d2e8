//! `throughline demo`: a scripted tour with real processes against the built-in simulators.
//!
//! This process only starts the other processes, kills one of them, and prints their events. The
//! agent runs in `throughline run` and `throughline resume`, and the gateway is `throughline
//! serve`. The final counts come from the store and from the simulators' ledger.

mod lossy;
mod printer;
mod processes;
mod totals;

use std::io::IsTerminal as _;
use std::time::Duration;

use owo_colors::{OwoColorize as _, Style};
use throughline_spec::{RunEvent, ThoughtPhase};

use crate::agent::{self, AgentContext, ModelAccess};
use crate::args::Demo;
use crate::print::failure::{Failure, Result};
use crate::print::progress::with_spinner;
use crate::print::text::{one_line, write_styled};

use self::lossy::LossyClient;
use self::printer::DemoPrinter;
use self::processes::{DemoProcesses, Worker};
use self::totals::Totals;

const CLAUDE: &str = "claude-opus-4-5";
const GPT: &str = "gpt-5.6-sol";
const TASK: &str = "The checkout has been slow since Monday. Find out why, and fix it.";

/// Reading time per word, and the shortest and longest pause after a scene.
const TIME_PER_WORD: Duration = Duration::from_millis(80);
const SHORTEST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(12);

pub(crate) fn run(options: &Demo) -> Result<()> {
    // The agent's second request stalls. The lossy client sends its requests before the agent.
    let processes = DemoProcesses::start(options, lossy::REQUESTS + 2)?;
    let (printer, thread) = (DemoPrinter::new(), String::new());
    let mut demo = DemoRun { processes, printer, options, thread };
    demo.print_intro()?;
    let lossy = demo.run_lossy_client()?;
    demo.pause()?;
    demo.processes.start_script()?;
    let run = demo.run_until_killed()?;
    demo.resume(&run)?;
    demo.pause()?;
    demo.decide(&run)?;
    demo.pause()?;
    demo.switch_provider(&run)?;
    demo.pause()?;
    demo.printer.chapter("Back to the first provider: its thoughts are replayed", CLAUDE)?;
    demo.send_message("Tell the team in two sentences.", "agent.toml")?;
    demo.pause()?;
    demo.summarise()?;
    demo.pause()?;
    let totals = demo.count(&lossy)?;
    demo.pause()?;
    demo.printer.chapter("The journal is verified", "throughline verify")?;
    demo.printer.command_output(&demo.processes.command(&["verify"])?)?;
    if !totals.is_success() {
        let message = "the demo did not run as expected; see the counts above";
        return Err(Failure::Outside(anyhow::anyhow!(message)));
    }
    demo.printer.result(&totals)?;
    printer::invite()?;
    demo.finish()
}

/// State of a running demo.
struct DemoRun<'o> {
    processes: DemoProcesses,
    printer: DemoPrinter,
    options: &'o Demo,
    thread: String,
}

impl DemoRun<'_> {
    fn print_intro(&self) -> Result<()> {
        let about = "no key, no configuration, no network: real processes, simulated providers";
        printer::print_line(&format!("{}\n{about}", "throughline demo".bold()))?;
        printer::fact("simulators", &self.processes.simulator.url())?;
        printer::fact("gateway", &self.processes.gateway_url())?;
        printer::fact("store", &self.processes.store())
    }

    /// Pauses after a scene at a terminal, until there was time to read it or the user presses
    /// Enter.
    fn pause(&mut self) -> Result<()> {
        let words = u32::try_from(printer::take_words()).unwrap_or(u32::MAX);
        let is_paced = std::io::stdout().is_terminal() && !self.options.fast;
        if !is_paced {
            return Ok(());
        }
        let time = TIME_PER_WORD.saturating_mul(words).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        self.processes.pause((!self.options.step).then_some(time))
    }

    /// Starts the first worker and kills it during the agent's second thought. Returns the run id.
    fn run_until_killed(&mut self) -> Result<String> {
        self.printer.chapter("An agent thinks, plans and calls tools", CLAUDE)?;
        self.printer.command(&format!("run \"{TASK}\" --model {CLAUDE}"))?;
        let mut worker =
            self.processes.start_worker(&["run", TASK, "--model", CLAUDE], "agent.toml")?;
        let (mut run, mut half, mut thoughts) = (String::new(), String::new(), 0);
        while let Some(event) = with_spinner("working", || self.processes.next_event(&mut worker))?
        {
            match &event {
                RunEvent::Run(event) if run.is_empty() => {
                    event.run_id.as_deref().unwrap_or_default().clone_into(&mut run);
                }
                RunEvent::Thought(thought) if thought.phase == ThoughtPhase::Delta => {
                    half.push_str(thought.text.as_deref().unwrap_or_default());
                    // The scripted response stalls half-way, so the kill always happens at this
                    // point.
                    if thoughts > 0 && half.chars().count() > 40 {
                        break;
                    }
                }
                RunEvent::Thought(_) => {
                    thoughts += 1;
                    half.clear();
                    self.printer.print_event(&event)?;
                }
                _ => self.printer.print_event(&event)?,
            }
        }
        // The process is killed before the pause, because it would repeat a stalled request.
        let killed = format!("process {} was killed", worker.kill()?);
        self.thread = self.processes.thread_of(&run)?;
        self.pause()?;
        self.printer.chapter("Its process is killed in the middle of a thought", "kill -9")?;
        self.printer.incomplete_thought(&one_line(&half, 48))?;
        self.printer.line("✗", Style::new().red(), &killed)?;
        Ok(run)
    }

    /// Resumes the run in another worker until the agent asks the user a question.
    fn resume(&mut self, run: &str) -> Result<()> {
        self.printer.command(&format!("resume {run}"))?;
        let waiting = "waiting for the lease of the killed process to expire";
        self.work(&["resume", run], "agent.toml", waiting)
    }

    fn decide(&mut self, run: &str) -> Result<()> {
        let by = if self.options.interactive { "you" } else { "the demo" };
        self.printer.chapter("It asks a question and waits for an approval", "a person decides")?;
        let question = self.processes.pending_request("question")?;
        self.printer.pending_request(&question)?;
        let answer = self.choose("Your answer, 1 or 2: ", &["1", "2"])?;
        self.processes.command(&["answer", &question.id, answer, "--by", by])?;
        self.printer.command(&format!("answer {} {answer}", question.id))?;
        let option = question.options.get(usize::from(answer == "2"));
        let label = option.map_or(answer, |(label, _)| label.as_str());
        self.printer.decision(&format!("“{label}”"), by)?;
        self.work(&["resume", run], "agent.toml", "working")?;
        let approval = self.processes.pending_request("approval")?;
        self.printer.pending_request(&approval)?;
        let (verb, decision) = match self.choose("Approve this call? [y/n] ", &["y", "n"])? {
            "n" => ("reject", "rejected"),
            _ => ("approve", "approved"),
        };
        self.processes.command(&[verb, &approval.id, "--by", by])?;
        self.printer.command(&format!("{verb} {}", approval.id))?;
        self.printer.decision(decision, by)?;
        if answer == "1" && verb == "approve" {
            return Ok(());
        }
        let note =
            "your decision is recorded, but the scripted models answer as for the other choice";
        self.printer.line("·", Style::new().yellow(), note)
    }

    fn switch_provider(&mut self, run: &str) -> Result<()> {
        self.printer.chapter("Another provider continues in the middle of a tool loop", GPT)?;
        self.printer.command(&format!("resume {run} --model {GPT}"))?;
        self.work(&["resume", run, "--model", GPT], "agent.toml", "working")?;
        let times = match self.processes.deployments()? {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let workers = self.processes.workers;
        let remark =
            format!("deploy ran {times} through a crash, {workers} processes and two providers");
        self.printer.paragraph("✓", Style::new().green(), &remark)
    }

    fn summarise(&mut self) -> Result<()> {
        self.printer.chapter("The conversation is summarised and continues", CLAUDE)?;
        self.send_message("What should we watch from now on?", "short.toml")
    }

    /// Sends a user message to Claude on the demo's thread.
    fn send_message(&mut self, text: &str, agent: &str) -> Result<()> {
        let thread = self.thread.clone();
        self.printer.command(&format!("run \"{text}\" --thread {thread} --model {CLAUDE}"))?;
        self.work(&["run", text, "--thread", &thread, "--model", CLAUDE], agent, "working")
    }

    /// Plays a client that loses reasoning, without and with the gateway.
    fn run_lossy_client(&mut self) -> Result<LossyClient> {
        let note = "400 without the gateway, 200 with it";
        self.printer.chapter("A client loses the reasoning of its models", note)?;
        let processes = &self.processes;
        let lossy = with_spinner("sending the requests of a lossy client", || {
            processes.wait(lossy::play(processes))
        })?;
        for result in &lossy.results {
            self.printer.mistake_result(result)?;
        }
        Ok(lossy)
    }

    fn count(&mut self, lossy: &LossyClient) -> Result<Totals> {
        self.printer.chapter("The store agrees with the providers' ledger", "counted")?;
        let (ledger, thread) = (self.processes.simulator.ledger(), &self.thread);
        let totals =
            self.with_store(async |context| totals::count(context, thread, &ledger, lossy).await)?;
        self.printer.totals(&totals)?;
        Ok(totals)
    }

    /// Opens the demo's store in this process.
    fn with_store<T>(&self, work: impl AsyncFnOnce(&mut AgentContext) -> Result<T>) -> Result<T> {
        let store = self.processes.store_args();
        agent::with(&store, ModelAccess::NoModels, work)
    }

    fn finish(self) -> Result<()> {
        let DemoRun { processes, options, thread, .. } = self;
        if options.no_serve {
            printer::end(options.home.as_deref())?;
            return processes.close();
        }
        printer::open(&processes.gateway_url(), &thread, options.home.is_some())?;
        processes.wait_for_interrupt()
    }

    /// Starts a worker and prints the worker's events until the worker exits.
    fn work(&mut self, arguments: &[&str], agent: &str, status: &str) -> Result<()> {
        let mut worker: Worker = self.processes.start_worker(arguments, agent)?;
        let mut status = status;
        while let Some(event) = with_spinner(status, || self.processes.next_event(&mut worker))? {
            status = "working";
            self.printer.print_event(&event)?;
        }
        worker.wait()
    }

    /// Prompts until the user picks one of `choices`. Without `--interactive`, picks the first
    /// choice.
    fn choose(&mut self, prompt: &str, choices: &[&'static str]) -> Result<&'static str> {
        if !self.options.interactive {
            return Ok(choices.first().copied().unwrap_or_default());
        }
        loop {
            write_styled(&format!("    {}", prompt.bold()))?;
            let Some(line) = self.processes.read_line()? else {
                let message = "standard input is closed; run the demo without --interactive";
                return Err(Failure::Usage(message.to_owned()));
            };
            let line = line.trim().to_lowercase();
            if let Some(choice) = choices.iter().find(|choice| line.starts_with(**choice)) {
                return Ok(choice);
            }
        }
    }
}
