//! `throughline demo`: a scripted tour with real processes against the built-in simulators.
//!
//! This process only starts the others, kills one, and prints their events. The agent runs in
//! `throughline run` and `throughline resume`, the gateway is `throughline serve`, and the
//! simulators are the built-in ones. The final counts come from the store and from the simulators'
//! ledger.

mod naive;
mod stage;
mod teller;
mod totals;

use throughline_spec::{RunEvent, ThoughtPhase};

use crate::agent::{self, ModelAccess, Tools};
use crate::args::Demo;
use crate::print::failure::Failure;
use crate::print::text::one_line;

use self::naive::LossyClient;
use self::stage::{DemoProcesses, Worker, WorkerExit};
use self::teller::{DemoPrinter, YOU};
use self::totals::Totals;

const CLAUDE: &str = "claude-sonnet-4-5";
const GPT: &str = "gpt-5.2";
const ASKED: &str = "The checkout has been slow since Monday. Find out why, and fix it.";

pub(crate) fn run(options: &Demo) -> Result<(), Failure> {
    let teller = DemoPrinter::new();
    let mut story =
        DemoRun { stage: DemoProcesses::start(options)?, teller, options, thread: String::new() };
    story.print_intro()?;
    let run = story.run_until_killed()?;
    story.goes_on(&run)?;
    story.asks(&run)?;
    story.switch_provider(&run)?;
    story.switch_back()?;
    story.summarise()?;
    let naive = story.run_lossy_client()?;
    let totals = story.counts(&naive)?;
    story.verify_journal()?;
    if !totals.is_success() {
        let told = "the demo did not run as expected: see the counts above";
        return Err(Failure::Outside(anyhow::anyhow!(told)));
    }
    story.finish()
}

/// State of the running demo.
struct DemoRun<'o> {
    stage: DemoProcesses,
    teller: DemoPrinter,
    options: &'o Demo,
    thread: String,
}

impl DemoRun<'_> {
    fn print_intro(&self) -> Result<(), Failure> {
        self.teller
            .title("no key, no configuration, no network: real processes, simulated providers")?;
        self.teller.fact("simulators", &self.stage.simulators())?;
        self.teller.fact("gateway", &self.stage.gateway_url())?;
        self.teller.fact("store", &self.stage.store())
    }

    /// Starts the first worker and kills it during its second thought; returns the run id.
    fn run_until_killed(&mut self) -> Result<String, Failure> {
        self.teller.chapter("An agent thinks, plans and calls tools", CLAUDE)?;
        self.teller.command(&format!("run \"{ASKED}\" --model {CLAUDE}"))?;
        let mut worker =
            self.stage.start_worker(&["run", ASKED, "--model", CLAUDE], "agent.toml")?;
        let mut run = String::new();
        let mut half = String::new();
        let mut thoughts = 0;
        while let Some(event) =
            self.teller.with_spinner("working", || self.stage.next_event(&mut worker))?
        {
            match &event {
                RunEvent::Run(event) if run.is_empty() => {
                    event.run_id.as_deref().unwrap_or_default().clone_into(&mut run);
                }
                RunEvent::Thought(thought) if thought.phase == ThoughtPhase::Delta => {
                    half.push_str(thought.text.as_deref().unwrap_or_default());
                    // The scripted answer stalls half-way, so the kill always happens at this
                    // point.
                    if thoughts > 0 && half.chars().count() > 40 {
                        break;
                    }
                }
                RunEvent::Thought(_) => {
                    thoughts += 1;
                    half.clear();
                    self.teller.print_event(&event)?;
                }
                _ => self.teller.print_event(&event)?,
            }
        }
        self.thread = self.stage.thread_of(&run)?;
        self.teller.chapter("Its process is killed in the middle of a thought", "kill -9")?;
        let half = one_line(&half, 48);
        self.teller.incomplete_thought(&half)?;
        let id = worker.kill()?;
        self.teller.process_killed(id)?;
        Ok(run)
    }

    /// Resumes the run in another worker, up to the question.
    fn goes_on(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.command(&format!("resume {run}"))?;
        let worker = self.stage.start_worker(&["resume", run], "agent.toml")?;
        self.follow(worker, "waiting for the lease of the killed process to expire")?;
        Ok(())
    }

    fn asks(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.chapter("It asks a question and waits for an approval", "a person decides")?;
        let question = self.stage.pending_request("question")?;
        self.teller.pending_request(&question)?;
        let answer = self.say("Your answer, 1 or 2: ", &["1", "2"])?;
        self.stage.command(&["answer", &question.id, answer, "--by", self.decided_by()])?;
        self.teller.command(&format!("answer {} {answer}", question.id))?;
        let chosen = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = chosen.and_then(|place| question.options.get(place));
        let words = chosen.map_or(answer, |(label, _)| label.as_str());
        self.teller.decision(&format!("“{words}”"), self.decided_by())?;
        let worker = self.stage.start_worker(&["resume", run], "agent.toml")?;
        self.follow(worker, "working")?;
        let approval = self.stage.pending_request("approval")?;
        self.teller.pending_request(&approval)?;
        let said = self.say("Approve this call? [y/n] ", &["y", "n"])?;
        let verb = if said == "n" { "reject" } else { "approve" };
        self.stage.command(&[verb, &approval.id, "--by", self.decided_by()])?;
        self.teller.command(&format!("{verb} {}", approval.id))?;
        let words = if verb == "approve" { "approved" } else { "rejected" };
        self.teller.decision(words, self.decided_by())?;
        let is_written = answer == "1" && verb == "approve";
        if is_written { Ok(()) } else { self.teller.off_script() }
    }

    fn switch_provider(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.chapter("Another provider continues in the middle of a tool loop", GPT)?;
        self.teller.command(&format!("resume {run} --model {GPT}"))?;
        let worker = self.stage.start_worker(&["resume", run, "--model", GPT], "agent.toml")?;
        self.follow(worker, "working")?;
        let times = self.stage.deployments()?;
        self.teller.remark(&format!(
            "deploy ran {} through a crash, {} processes and two providers",
            if times == 1 { "once".to_owned() } else { format!("{times} times") },
            self.stage.worker_count(),
        ))
    }

    fn switch_back(&mut self) -> Result<(), Failure> {
        self.teller.chapter("Back to the first provider: its thoughts are replayed", CLAUDE)?;
        self.send_message("Tell the team in two sentences.", "agent.toml")
    }

    fn summarise(&mut self) -> Result<(), Failure> {
        self.teller.chapter("The conversation is summarised and continues", CLAUDE)?;
        self.send_message("What should we watch from now on?", "short.toml")
    }

    /// Sends a user message on the thread to Claude.
    fn send_message(&mut self, text: &str, agent: &str) -> Result<(), Failure> {
        self.teller
            .command(&format!("run \"{text}\" --thread {} --model {CLAUDE}", self.thread))?;
        let arguments = ["run", text, "--thread", &self.thread, "--model", CLAUDE];
        let worker = self.stage.start_worker(&arguments, agent)?;
        self.follow(worker, "working")
    }

    fn run_lossy_client(&mut self) -> Result<LossyClient, Failure> {
        self.teller.chapter("What a lossy client would have received", "the same conversation")?;
        let (stage, thread) = (&self.stage, &self.thread);
        let naive =
            self.teller.with_spinner("replaying the conversation with a lossy client", || {
                agent::with(
                    &stage.store_args(),
                    ModelAccess::NoModels,
                    Tools::default(),
                    async |house| naive::play(stage, house, thread).await,
                )
            })?;
        for heard in &naive.heard {
            self.teller.mistake_result(heard)?;
        }
        self.teller.gateway_result(&naive.restored)?;
        Ok(naive)
    }

    fn counts(&mut self, naive: &LossyClient) -> Result<Totals, Failure> {
        self.teller.chapter("The fate of every thought", "counted")?;
        let (stage, thread) = (&self.stage, &self.thread);
        let totals = agent::with(
            &stage.store_args(),
            ModelAccess::NoModels,
            Tools::default(),
            async |house| totals::count(house, thread, &stage.ledger(), naive).await,
        )?;
        self.teller.totals(&totals)?;
        Ok(totals)
    }

    fn verify_journal(&mut self) -> Result<(), Failure> {
        self.teller.chapter("The journal is verified", "throughline verify")?;
        let proof = self.stage.command(&["verify"])?;
        self.teller.command_output(&proof)
    }

    fn finish(self) -> Result<(), Failure> {
        let DemoRun { stage, teller, options, thread } = self;
        if options.no_serve {
            teller.end(options.home.as_deref())?;
            return stage.close();
        }
        teller.open(&stage.gateway_url(), &thread, options.home.is_some())?;
        stage.wait_for_interrupt()
    }

    /// Prints the events of a worker until it exits.
    fn follow(&mut self, mut worker: Worker, doing: &str) -> Result<(), Failure> {
        let mut doing = doing;
        while let Some(event) =
            self.teller.with_spinner(doing, || self.stage.next_event(&mut worker))?
        {
            doing = "working";
            self.teller.print_event(&event)?;
        }
        match worker.wait()? {
            WorkerExit::Rested => Ok(()),
            WorkerExit::Failed(told) => {
                Err(Failure::Outside(anyhow::anyhow!("a process of the demo failed: {told}")))
            }
        }
    }

    /// Prompts until the user picks one of `choices`; without `--interactive` the demo picks one.
    fn say(&mut self, prompt: &str, choices: &[&'static str]) -> Result<&'static str, Failure> {
        if !self.options.interactive {
            return Ok(choices.first().copied().unwrap_or_default());
        }
        loop {
            self.teller.prompt(prompt)?;
            let Some(line) = self.stage.read_line()? else {
                let told = "standard input is closed; run the demo without --interactive";
                return Err(Failure::Usage(told.to_owned()));
            };
            let said = line.trim().to_lowercase();
            let chosen = choices.iter().find(|choice| said.starts_with(**choice));
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
    }

    fn decided_by(&self) -> &'static str {
        if self.options.interactive { YOU } else { "the demo" }
    }
}
