//! `throughline demo`: the first five minutes. A short story with real processes against the built-in simulators.
//!
//! This process only starts the others, kills one, and tells what they tell. The agent works in `throughline run` and `throughline
//! resume`, the gateway is `throughline serve`, and the simulators are the ones that everybody has. What is counted at the end
//! is read from the store and from the simulators' own ledger.

mod naive;
mod stage;
mod teller;
mod totals;

use throughline_core::{RunEvent, ThoughtPhase};

use crate::agent::{self, Asks, Tools};
use crate::failure::Failure;
use crate::options::Demo;
use crate::text::one_line;

use self::naive::Naive;
use self::stage::{Ending, Stage, Worker};
use self::teller::{Teller, YOU};
use self::totals::Totals;

const CLAUDE: &str = "claude-sonnet-4-5";
const GPT: &str = "gpt-5.2";
const ASKED: &str = "The checkout has been slow since Monday. Find out why, and mend it.";

pub(crate) fn run(options: &Demo) -> Result<(), Failure> {
    let teller = Teller::new();
    let mut story = Story { stage: Stage::set(options)?, teller, options, thread: String::new() };
    story.prologue()?;
    let run = story.thinks_and_is_killed()?;
    story.goes_on(&run)?;
    story.asks(&run)?;
    story.changes_provider(&run)?;
    story.changes_back()?;
    story.is_summarised()?;
    let naive = story.naive_client()?;
    let totals = story.counts(&naive)?;
    story.proves()?;
    if !totals.is_content() {
        let told = "the story did not go as it should: see the counts above";
        return Err(Failure::Outside(anyhow::anyhow!(told)));
    }
    story.epilogue()
}

/// The story, as far as it is told.
struct Story<'o> {
    stage: Stage,
    teller: Teller,
    options: &'o Demo,
    thread: String,
}

impl Story<'_> {
    fn prologue(&self) -> Result<(), Failure> {
        self.teller
            .title("no key, no configuration, no network: real processes, simulated providers")?;
        self.teller.fact("simulators", &self.stage.simulators())?;
        self.teller.fact("gateway", &self.stage.gateway_url())?;
        self.teller.fact("store", &self.stage.store())
    }

    /// The first worker: killed in the middle of its second thought. The run that it leaves.
    fn thinks_and_is_killed(&mut self) -> Result<String, Failure> {
        self.teller.chapter("An agent thinks, plans and calls tools", CLAUDE)?;
        self.teller.command(&format!("run \"{ASKED}\" --model {CLAUDE}"))?;
        let mut worker = self.stage.work(&["run", ASKED, "--model", CLAUDE], "agent.toml")?;
        let mut run = String::new();
        let mut half = String::new();
        let mut thoughts = 0;
        while let Some(event) = self.teller.waiting("it works", || self.stage.event(&mut worker))? {
            match &event {
                RunEvent::Run(event) if run.is_empty() => {
                    event.run_id.as_deref().unwrap_or_default().clone_into(&mut run);
                }
                RunEvent::Thought(thought) if thought.phase == ThoughtPhase::Delta => {
                    half.push_str(thought.text.as_deref().unwrap_or_default());
                    // The answer stalls half-way, so that it is killed there and nowhere else.
                    if thoughts > 0 && half.chars().count() > 40 {
                        break;
                    }
                }
                RunEvent::Thought(_) => {
                    thoughts += 1;
                    half.clear();
                    self.teller.tell(&event)?;
                }
                _ => self.teller.tell(&event)?,
            }
        }
        self.thread = self.stage.thread_of(&run)?;
        self.teller.chapter("Its process dies in the middle of a thought", "kill -9")?;
        let half = one_line(&half, 48);
        self.teller.broken_off(&half)?;
        let id = worker.kill()?;
        self.teller.died(id)?;
        Ok(run)
    }

    /// Another worker goes on, up to the question.
    fn goes_on(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.command(&format!("resume {run}"))?;
        let worker = self.stage.work(&["resume", run], "agent.toml")?;
        self.follow(worker, "it waits until the dead process holds the run no more")?;
        Ok(())
    }

    fn asks(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.chapter("It asks a question, and waits for an approval", "a person decides")?;
        let question = self.stage.waiting("question")?;
        self.teller.asked(&question)?;
        let answer = self.say("Your answer, 1 or 2: ", &["1", "2"])?;
        self.stage.command(&["answer", &question.id, answer, "--by", self.by()])?;
        self.teller.command(&format!("answer {} {answer}", question.id))?;
        let chosen = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let chosen = chosen.and_then(|place| question.options.get(place));
        let words = chosen.map_or(answer, |(label, _)| label.as_str());
        self.teller.decided(&format!("“{words}”"), self.by())?;
        let worker = self.stage.work(&["resume", run], "agent.toml")?;
        self.follow(worker, "it works")?;
        let approval = self.stage.waiting("approval")?;
        self.teller.asked(&approval)?;
        let said = self.say("May it run? [y/n] ", &["y", "n"])?;
        let verb = if said == "n" { "reject" } else { "approve" };
        self.stage.command(&[verb, &approval.id, "--by", self.by()])?;
        self.teller.command(&format!("{verb} {}", approval.id))?;
        let words = if verb == "approve" { "it may run" } else { "it may not run" };
        self.teller.decided(words, self.by())?;
        let is_written = answer == "1" && verb == "approve";
        if is_written { Ok(()) } else { self.teller.off_script() }
    }

    fn changes_provider(&mut self, run: &str) -> Result<(), Failure> {
        self.teller.chapter("Another provider goes on, in the middle of a tool loop", GPT)?;
        self.teller.command(&format!("resume {run} --model {GPT}"))?;
        let worker = self.stage.work(&["resume", run, "--model", GPT], "agent.toml")?;
        self.follow(worker, "it works")?;
        let times = self.stage.deployments()?;
        self.teller.remark(&format!(
            "deploy ran {} through a crash, {} processes and two providers",
            if times == 1 { "once".to_owned() } else { format!("{times} times") },
            self.stage.started(),
        ))
    }

    fn changes_back(&mut self) -> Result<(), Failure> {
        self.teller.chapter("And back: its own thoughts are there again", CLAUDE)?;
        self.speak("Tell the team in two sentences.", "agent.toml")
    }

    fn is_summarised(&mut self) -> Result<(), Failure> {
        self.teller.chapter("The conversation is summarised, and goes on", CLAUDE)?;
        self.speak("What should we watch from now on?", "short.toml")
    }

    /// Something is said on the thread, to Claude.
    fn speak(&mut self, text: &str, agent: &str) -> Result<(), Failure> {
        self.teller
            .command(&format!("run \"{text}\" --thread {} --model {CLAUDE}", self.thread))?;
        let arguments = ["run", text, "--thread", &self.thread, "--model", CLAUDE];
        let worker = self.stage.work(&arguments, agent)?;
        self.follow(worker, "it works")
    }

    fn naive_client(&mut self) -> Result<Naive, Failure> {
        self.teller.chapter("What a naive client would have heard", "the same conversation")?;
        let (stage, thread) = (&self.stage, &self.thread);
        let naive = self.teller.waiting("the same conversation is sent without care", || {
            agent::with(&stage.at(), Asks::Nobody, Tools::default(), async |house| {
                naive::play(stage, house, thread).await
            })
        })?;
        for heard in &naive.heard {
            self.teller.heard(heard)?;
        }
        self.teller.restored(&naive.restored)?;
        Ok(naive)
    }

    fn counts(&mut self, naive: &Naive) -> Result<Totals, Failure> {
        self.teller.chapter("What became of every thought", "counted")?;
        let (stage, thread) = (&self.stage, &self.thread);
        let totals = agent::with(&stage.at(), Asks::Nobody, Tools::default(), async |house| {
            totals::count(house, thread, &stage.ledger(), naive).await
        })?;
        self.teller.totals(&totals)?;
        Ok(totals)
    }

    fn proves(&mut self) -> Result<(), Failure> {
        self.teller.chapter("The journal proves itself", "throughline verify")?;
        let proof = self.stage.command(&["verify"])?;
        self.teller.quoted(&proof)
    }

    fn epilogue(self) -> Result<(), Failure> {
        let Story { stage, teller, options, thread } = self;
        if options.no_serve {
            teller.end(options.home.as_deref())?;
            return stage.close();
        }
        teller.open(&stage.gateway_url(), &thread, options.home.is_some())?;
        stage.wait_for_the_end()
    }

    /// Tells what a worker does until it rests.
    fn follow(&mut self, mut worker: Worker, doing: &str) -> Result<(), Failure> {
        let mut doing = doing;
        while let Some(event) = self.teller.waiting(doing, || self.stage.event(&mut worker))? {
            doing = "it works";
            self.teller.tell(&event)?;
        }
        match worker.end()? {
            Ending::Rested => Ok(()),
            Ending::Failed(told) => {
                Err(Failure::Outside(anyhow::anyhow!("a process of the demo failed: {told}")))
            }
        }
    }

    /// Which of these a person says, or the demo in its place. Whoever says none of them is asked again.
    fn say(&mut self, prompt: &str, choices: &[&'static str]) -> Result<&'static str, Failure> {
        if !self.options.interactive {
            return Ok(choices.first().copied().unwrap_or_default());
        }
        loop {
            self.teller.prompt(prompt)?;
            let Some(line) = self.stage.typed()? else {
                let told = "nobody is there to decide: play it without --interactive";
                return Err(Failure::Usage(told.to_owned()));
            };
            let said = line.trim().to_lowercase();
            let chosen = choices.iter().find(|choice| said.starts_with(**choice));
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
    }

    fn by(&self) -> &'static str {
        if self.options.interactive { YOU } else { "the demo" }
    }
}
