//! `throughline run` and `throughline resume`: drive an agent and prompt at the terminal.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use owo_colors::Style;
use serde_json::json;
use throughline_agent::{Phase, RunCommand, RunRequest, RunStatus, State};
use throughline_core::{Body, LogId};
use throughline_spec::RunEvent;

use crate::agent::{
    self, AgentContext, CommandHints, EventPrinter, FollowOutcome, ModelAccess, Tools,
    UNKNOWN_OUTCOME, approvals, follow, last_event, prompt_decisions, questions, run_spec,
};
use crate::args::{AgentArgs, Format, Resume, Run, StoreArgs};
use crate::print::failure::Failure;
use crate::print::text;
use crate::store::Signals;

pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    let using = &options.using;
    let casting = run_spec(using, options.model.as_deref(), &options.approve)?;
    let text = said(&options.text)?;
    agent::with(&options.at, ModelAccess::Models, Tools::of(using)?, async |house| {
        apply_lease(house, using);
        let start = RunRequest {
            tenant: house.tenant.clone(),
            thread: options.thread.as_deref().map(LogId::from),
            casting,
            said: vec![Body::Text(text.as_str().into())],
            once: Vec::new(),
        };
        let begun = house.runner.start(start).await.map_err(|error| house.to_failure(error))?;
        let hint = CommandHints::new(&options.at, Some(using));
        if options.detach {
            detach(&options.at, using, &begun.run)?;
            return print_detached(using.format, &begun.run, &begun.thread, &hint);
        }
        let style = Style::new().cyan();
        let mut live = EventPrinter::new(using.format, house.policy.clone());
        live.print_note("▸", style, &format!("{} of {}", begun.run, begun.thread))?;
        RunFollower { house, using, hint, run: begun.run, seen: 0, live }.run().await
    })
}

pub(crate) fn resume(options: &Resume) -> Result<(), Failure> {
    let using = &options.using;
    agent::with(&options.at, ModelAccess::Models, Tools::of(using)?, async |house| {
        apply_lease(house, using);
        let run = LogId::from(options.run.as_str());
        let state = house.runner.state(&house.tenant, &run).await;
        let state = state.map_err(|error| house.to_failure(error))?;
        check_tools(house, &state)?;
        if let Some(model) = &options.model {
            let word = RunCommand::Switch(model.as_str().into());
            let told = house.runner.send_command(&house.tenant, &run, word).await;
            told.map_err(|error| house.to_failure(error))?;
        }
        let head = throughline_core::Store::log(&house.journal, &house.tenant, &run).await;
        let seen =
            head.map_err(|error| house.to_failure(error.into()))?.map_or(0, |head| head.last);
        let hint = CommandHints::new(&options.at, Some(using));
        let mut live = EventPrinter::new(using.format, house.policy.clone());
        if matches!(state.progress.phase, Phase::Ended { .. }) {
            print_finished_run(house, &run, using.format, state.status(), &mut live).await?;
        }
        RunFollower { house, using, hint, run, seen, live }.run().await
    })
}

/// Prints the result of a finished run: its answer as text, or its last event as JSON.
async fn print_finished_run(
    house: &AgentContext,
    run: &LogId,
    format: Format,
    status: RunStatus,
    live: &mut EventPrinter,
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
        text::note(&format!("{run} has ended with status {status}"));
    }
    Ok(())
}

/// Applies the `--lease` option.
fn apply_lease(house: &mut AgentContext, using: &AgentArgs) {
    house.runner.lease = using.lease.map_or(house.runner.lease, Duration::from_secs);
}

/// Returns the message for the agent.
fn said(text: &str) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::Usage("the message for the agent is empty".to_owned()));
    }
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut said = String::new();
    std::io::stdin().read_to_string(&mut said).context("standard input cannot be read")?;
    if said.trim().is_empty() {
        return Err(Failure::Usage(
            "standard input is empty; expected a message for the agent".to_owned(),
        ));
    }
    Ok(said.trim_end().to_owned())
}

/// Fails if the run uses tools that were not passed: the model would be informed that they are
/// gone.
fn check_tools(house: &AgentContext, state: &State) -> Result<(), Failure> {
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
        "this run uses tools that were not passed: {}; pass them again with --tool NAME=COMMAND or --agent",
        missing.join(", ")
    )))
}

/// Continues the run in a background process without prompts.
fn detach(at: &StoreArgs, using: &AgentArgs, run: &LogId) -> Result<(), Failure> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut command = Command::new(program);
    command.arg("resume").arg(&*run.0).arg("--no-ask").args(["--tenant", &at.tenant]);
    let mut option = |name: &str, value: &dyn AsRef<OsStr>| {
        command.arg(name).arg(value.as_ref());
    };
    at.store.iter().for_each(|url| option("--store", url));
    at.config.iter().for_each(|file| option("--config", file));
    at.master_key_file.iter().for_each(|file| option("--master-key-file", file));
    at.retired_key_file.iter().for_each(|file| option("--retired-key-file", file));
    using.lease.iter().for_each(|seconds| option("--lease", &seconds.to_string()));
    using.agent.iter().for_each(|file| option("--agent", file));
    using.tool.iter().for_each(|tool| option("--tool", tool));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C in the terminal must not reach the background process.
    let spawned = command.process_group(0).spawn();
    spawned.map(drop).context("the background process cannot be started").map_err(Failure::from)
}

fn print_detached(
    format: Format,
    run: &LogId,
    thread: &LogId,
    hint: &CommandHints,
) -> Result<(), Failure> {
    match format {
        Format::Json => text::write_json(&json!({ "run": run.0, "thread": thread.0 })),
        Format::Text => {
            text::write_out(format!("{run}\n").as_bytes())?;
            text::note(&format!(
                "running in the background; follow the run with `{}`",
                hint.resume(&run.0)
            ));
            Ok(())
        }
    }
}

/// Follows a run and prompts for decisions.
struct RunFollower<'h> {
    house: &'h AgentContext,
    using: &'h AgentArgs,
    hint: CommandHints,
    run: LogId,
    seen: u64,
    live: EventPrinter,
}

impl RunFollower<'_> {
    /// Drives the run until it ends, waits for a decision elsewhere, or is interrupted.
    async fn run(mut self) -> Result<(), Failure> {
        loop {
            let rest = follow(self.house, &self.run, &mut self.seen, &mut self.live).await?;
            let FollowOutcome::At(status) = rest else { return Err(self.paused()) };
            let state = self.house.runner.state(&self.house.tenant, &self.run).await;
            let state = state.map_err(|error| self.house.to_failure(error))?;
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
                RunStatus::Running => return Err(self.paused()),
                RunStatus::Waiting => {
                    if !self.asks() || !self.decide(&state).await? {
                        self.wait(&state);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns whether questions are prompted for here.
    fn asks(&self) -> bool {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        self.using.ask || (is_terminal && !self.using.no_ask)
    }

    /// Prompts for pending decisions and sends them to the run; returns false at end of input.
    async fn decide(&mut self, state: &State) -> Result<bool, Failure> {
        let mut signals = Signals::new().context("signal handlers cannot be installed")?;
        let words = tokio::select! {
            words = prompt_decisions(state, &self.house.policy) => words?,
            () = signals.wait_for_stop() => return Err(self.paused()),
        };
        let Some(words) = words.filter(|words| !words.is_empty()) else { return Ok(false) };
        for word in words {
            let told = self.house.runner.send_command(&self.house.tenant, &self.run, word).await;
            match told.map_err(|error| self.house.to_failure(error)) {
                // The prompt is repeated.
                Err(Failure::Usage(problem)) => text::note(&problem),
                told => told?,
            }
        }
        Ok(true)
    }

    /// Prints how to answer the pending requests.
    fn wait(&self, state: &State) {
        for approval in approvals(state) {
            let (approve, reject) = (
                self.hint.command("approve", &approval.id),
                self.hint.command("reject", &approval.id),
            );
            let tool = &approval.tool_name;
            text::note(&if state.is_lost(&approval.id) {
                format!(
                    "{tool}: {UNKNOWN_OUTCOME}: `{approve}` runs it again, `{reject}` reports an unknown outcome to the model"
                )
            } else {
                format!("{tool} needs approval: `{approve}` or `{reject}`")
            });
        }
        for question in questions(state) {
            let answer = self.hint.command("answer", &question.id);
            let asked: Vec<&str> =
                question.questions.iter().map(|asked| &*asked.question).collect();
            text::note(&format!("{} `{answer} ANSWER`", asked.join(" ")));
        }
        text::note(&format!("then continue with `{}`", self.hint.resume(&self.run.0)));
    }

    fn paused(&self) -> Failure {
        let resume = self.hint.resume(&self.run.0);
        Failure::Interrupted(format!("{} is paused; `{resume}` continues it", self.run))
    }
}

/// Returns the reason why a run ended.
fn reason(state: &State) -> String {
    match &state.progress.phase {
        Phase::Ended { reason, .. } => text::plain(reason),
        Phase::Asking { .. } | Phase::Working | Phase::Waiting => {
            "the run has not ended".to_owned()
        }
    }
}
