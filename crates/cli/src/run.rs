//! `throughline run` and `throughline resume`: an agent at work, watched and answered at the terminal.

use std::io::{IsTerminal as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use owo_colors::Style;
use throughline_agent::{Phase, RunStatus, Start, State, Word};
use throughline_core::{Body, LogId, RunEvent, json};

use crate::agent::{
    self, Asks, Hint, House, LOST, Live, Rest, Tools, approvals, decisions, declared, follow,
    last_event, questions,
};
use crate::failure::Failure;
use crate::options::{At, Format, Resume, Run, Using};
use crate::store::Signals;
use crate::text;

pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    let using = &options.using;
    let casting = declared(using, options.model.as_deref(), &options.approve)?;
    let text = said(&options.text)?;
    agent::with(&options.at, Asks::Models, Tools::of(using)?, async |house| {
        hold(house, using);
        let start = Start {
            tenant: house.tenant.clone(),
            thread: options.thread.as_deref().map(LogId::from),
            casting,
            said: vec![Body::Text(text.as_str().into())],
            once: Vec::new(),
        };
        let begun = house.runner.begin(start).await.map_err(|error| house.failed(error))?;
        let hint = Hint::new(&options.at, Some(using));
        if options.detach {
            detach(&options.at, using, &begun.run)?;
            return told_detached(using.format, &begun.run, &begun.thread, &hint);
        }
        let style = Style::new().cyan();
        let mut live = Live::new(using.format, house.policy.clone());
        live.aside("▸", style, &format!("{} of {}", begun.run, begun.thread))?;
        Watch { house, using, hint, run: begun.run, seen: 0, live }.go_on().await
    })
}

pub(crate) fn resume(options: &Resume) -> Result<(), Failure> {
    let using = &options.using;
    agent::with(&options.at, Asks::Models, Tools::of(using)?, async |house| {
        hold(house, using);
        let run = LogId::from(options.run.as_str());
        let state = house.runner.state(&house.tenant, &run).await;
        let state = state.map_err(|error| house.failed(error))?;
        tools_are_there(house, &state)?;
        if let Some(model) = &options.model {
            let word = Word::Switch(model.as_str().into());
            let told = house.runner.tell(&house.tenant, &run, word).await;
            told.map_err(|error| house.failed(error))?;
        }
        let head = throughline_core::Store::log(&house.journal, &house.tenant, &run).await;
        let seen = head.map_err(|error| house.failed(error.into()))?.map_or(0, |head| head.last);
        let hint = Hint::new(&options.at, Some(using));
        let mut live = Live::new(using.format, house.policy.clone());
        if matches!(state.progress.phase, Phase::Ended { .. }) {
            told_over(house, &run, using.format, state.status(), &mut live).await?;
        }
        Watch { house, using, hint, run, seen, live }.go_on().await
    })
}

/// What a run that is over said last: its answer for people, how it ended for programs.
async fn told_over(
    house: &House,
    run: &LogId,
    format: Format,
    status: RunStatus,
    live: &mut Live,
) -> Result<(), Failure> {
    let last = last_event(house, run, |event| match format {
        Format::Json => matches!(event, RunEvent::Run(_)),
        Format::Text => matches!(event, RunEvent::FinalAnswer(_)),
    });
    if let Some(event) = last.await? {
        live.tell(&event)?;
        live.end()?;
    }
    if matches!(format, Format::Text) {
        text::note(&format!("{run} is over: it was {status}"));
    }
    Ok(())
}

/// A run is held as long as the command line says.
fn hold(house: &mut House, using: &Using) {
    house.runner.lease = using.lease.map_or(house.runner.lease, Duration::from_secs);
}

/// What is said to the agent.
fn said(text: &str) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::Usage("there is nothing to say to the agent".to_owned()));
    }
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut said = String::new();
    std::io::stdin().read_to_string(&mut said).context("standard input cannot be read")?;
    if said.trim().is_empty() {
        return Err(Failure::Usage("standard input says nothing to the agent".to_owned()));
    }
    Ok(said.trim_end().to_owned())
}

/// A run that needs tools which nobody gave would be told that they are gone.
fn tools_are_there(house: &House, state: &State) -> Result<(), Failure> {
    if matches!(state.progress.phase, Phase::Ended { .. }) {
        return Ok(());
    }
    let tools = state.cast.casting.tools.iter().filter(|spec| !spec.client);
    let missing: Vec<&str> = tools
        .filter(|spec| !house.runner.tools.contains_key(&spec.name))
        .map(|spec| &*spec.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "this run uses tools that are not given: {}: give them again with --tool NAME=COMMAND or --agent",
        missing.join(", ")
    )))
}

/// Another process goes on with the run, and nobody watches it.
fn detach(at: &At, using: &Using, run: &LogId) -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(program);
    command.arg("resume").arg(&*run.0).arg("--no-ask").args(["--tenant", &at.tenant]);
    let option = |command: &mut Command, name: &str, value: &std::ffi::OsStr| {
        command.arg(name).arg(value);
    };
    if let Some(store) = &at.store {
        option(&mut command, "--store", store.as_ref());
    }
    if let Some(file) = &at.config {
        option(&mut command, "--config", file.as_ref());
    }
    if let Some(file) = &at.master_key_file {
        option(&mut command, "--master-key-file", file.as_ref());
    }
    for file in &at.retired_key_file {
        option(&mut command, "--retired-key-file", file.as_ref());
    }
    if let Some(seconds) = using.lease {
        option(&mut command, "--lease", seconds.to_string().as_ref());
    }
    if let Some(file) = &using.agent {
        option(&mut command, "--agent", file.as_ref());
    }
    for tool in &using.tool {
        option(&mut command, "--tool", tool.as_ref());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The terminal's Ctrl-C is not for it.
    let spawned = command.process_group(0).spawn();
    spawned.map(drop).context("the run cannot go on in the background").map_err(Failure::from)
}

fn told_detached(format: Format, run: &LogId, thread: &LogId, hint: &Hint) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let told = json::object(|o| {
                o.string("run", &run.0).string("thread", &thread.0);
            });
            text::write_out(format!("{}\n", told.as_str()).as_bytes())
        }
        Format::Text => {
            text::write_out(format!("{run}\n").as_bytes())?;
            text::note(&format!(
                "it goes on in the background; watch it with `{}`",
                hint.resume(&run.0)
            ));
            Ok(())
        }
    }
}

/// Somebody who watches a run.
struct Watch<'h> {
    house: &'h House,
    using: &'h Using,
    hint: Hint,
    run: LogId,
    seen: u64,
    live: Live,
}

impl Watch<'_> {
    /// Goes on until the run is over, waits for somebody else, or is left.
    async fn go_on(mut self) -> Result<(), Failure> {
        loop {
            let rest = follow(self.house, &self.run, &mut self.seen, &mut self.live).await?;
            let Rest::At(status) = rest else { return Err(self.left()) };
            let state = self.house.runner.state(&self.house.tenant, &self.run).await;
            let state = state.map_err(|error| self.house.failed(error))?;
            match status {
                RunStatus::Completed => return Ok(()),
                RunStatus::Failed => {
                    let message = format!("{} failed: {}", self.run, reason(&state));
                    return Err(Failure::Outside(anyhow::anyhow!(message)));
                }
                RunStatus::Cancelled => {
                    let message = format!("{} was cancelled: {}", self.run, reason(&state));
                    return Err(Failure::Interrupted(message));
                }
                RunStatus::Running => return Err(self.left()),
                RunStatus::Waiting => {
                    if !self.asks() || !self.decide(&state).await? {
                        self.wait(&state);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether questions are asked here.
    fn asks(&self) -> bool {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        self.using.ask || (is_terminal && !self.using.no_ask)
    }

    /// Asks whoever sits there, and tells the run what they say: whether there was somebody.
    async fn decide(&mut self, state: &State) -> Result<bool, Failure> {
        let mut signals = Signals::new().context("signals cannot be waited for")?;
        let words = tokio::select! {
            words = decisions(state, &self.house.policy) => words?,
            () = signals.asked_to_stop() => return Err(self.left()),
        };
        let Some(words) = words.filter(|words| !words.is_empty()) else { return Ok(false) };
        for word in words {
            let told = self.house.runner.tell(&self.house.tenant, &self.run, word).await;
            match told.map_err(|error| self.house.failed(error)) {
                // It is asked for again.
                Err(Failure::Usage(problem)) => text::note(&problem),
                told => told?,
            }
        }
        Ok(true)
    }

    /// The run waits for somebody, who is told how to answer.
    fn wait(&self, state: &State) {
        for approval in approvals(state) {
            let (approve, reject) = (
                self.hint.command("approve", &approval.id),
                self.hint.command("reject", &approval.id),
            );
            let tool = &approval.tool_name;
            text::note(&if state.is_lost(&approval.id) {
                format!("{tool}: {LOST}: `{approve}` runs it again, `{reject}` tells the model so")
            } else {
                format!("{tool} waits for somebody who allows it: `{approve}` or `{reject}`")
            });
        }
        for question in questions(state) {
            let answer = self.hint.command("answer", &question.id);
            let asked: Vec<&str> =
                question.questions.iter().map(|asked| &*asked.question).collect();
            text::note(&format!("{} `{answer} ANSWER`", asked.join(" ")));
        }
        text::note(&format!("then go on with `{}`", self.hint.resume(&self.run.0)));
    }

    fn left(&self) -> Failure {
        let resume = self.hint.resume(&self.run.0);
        Failure::Interrupted(format!(
            "{} is left as it stands: `{resume}` goes on with it",
            self.run
        ))
    }
}

/// Why a run ended.
fn reason(state: &State) -> String {
    match &state.progress.phase {
        Phase::Ended { reason, .. } => text::plain(reason),
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => "it is not over".to_owned(),
    }
}
