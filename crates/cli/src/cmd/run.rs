//! `throughline run` and `throughline resume`: drive an agent and prompt at the terminal.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{IsTerminal as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use owo_colors::Style;
use throughline_agent::{
    Phase, RunCommand, RunRequest, RunStatus, Snapshot, StartedRun, State, ToolSpec, parse_snapshot,
};
use throughline_core::{Body, LogId, Store as _};
use throughline_json::{self as json, Json, Name};
use throughline_spec::RunEvent;

use crate::agent::{
    self, AgentContext, CommandHints, EventPrinter, FollowedRun, ModelAccess, Tools,
    UNKNOWN_OUTCOME, approvals, last_event, option_lines, prompt_decisions, questions, run_spec,
};
use crate::args::{AgentArgs, Format, Resume, Run, StoreArgs};
use crate::print::failure::{Failure, Result};
use crate::print::text;
use crate::store::Signals;

pub(crate) fn run(options: &Run) -> Result<()> {
    let using = &options.using;
    let mut casting = run_spec(using, options.model.as_deref(), &options.approve)?;
    casting.ctx = parse_ctx(&options.ctx)?;
    let text = message(&options.text)?;
    let access = ModelAccess::Models(Tools::declared(using)?);
    agent::with(&options.at, access, async |context| {
        apply_lease(context, using);
        let start = RunRequest {
            tenant: context.tenant.clone(),
            thread: options.thread.as_deref().map(LogId::from),
            casting,
            said: vec![Body::Text(text.as_str().into())],
            once: Vec::new(),
        };
        let StartedRun { run, thread, .. } = context.run(context.runner.start(start)).await?;
        let hint = CommandHints::new(&options.at, Some(using));
        if options.detach {
            detach(&options.at, using, &run)?;
            let ids = || serde_json::json!({ "run": run.0, "thread": thread.0 });
            using.format.print(|| format!("{run}\n"), ids)?;
            if matches!(using.format, Format::Text) {
                let resume = hint.resume(&run.0);
                text::note(&format!("running in the background; follow the run with `{resume}`"));
            }
            return Ok(());
        }
        let mut printer = EventPrinter::new(using.format, context.policy.clone());
        printer.print_note("▸", Style::new().cyan(), &format!("{run} of {thread}"))?;
        let followed = FollowedRun { context, run, seen: 0, printer };
        InteractiveRun { followed, using, hint }.drive().await
    })
}

pub(crate) fn resume(options: &Resume) -> Result<()> {
    let using = &options.using;
    let access = ModelAccess::Models(Tools::declared(using)?);
    // An unreadable snapshot must not create a store.
    let snapshot = options.snapshot.as_deref().map(read_snapshot).transpose()?;
    agent::with(&options.at, access, async |context| {
        apply_lease(context, using);
        let run = match snapshot {
            Some(snapshot) => Box::pin(restore(context, snapshot)).await?,
            None => LogId::from(options.run.as_deref().unwrap_or_default()),
        };
        let state = context.state(&run).await?;
        if !matches!(state.progress.phase, Phase::Ended { .. }) {
            check_tools(context, &state.cast.casting.tools)?;
        }
        if let Some(model) = &options.model {
            context.send(&run, RunCommand::Switch(model.as_str().into())).await?;
        }
        let head = context.run(context.journal.log(&context.tenant, &run)).await?;
        let seen = head.map_or(0, |head| head.last);
        let hint = CommandHints::new(&options.at, Some(using));
        let printer = EventPrinter::new(using.format, context.policy.clone());
        let mut followed = FollowedRun { context, run, seen, printer };
        if matches!(state.progress.phase, Phase::Ended { .. }) {
            print_finished_run(&mut followed, using.format, state.status()).await?;
        }
        InteractiveRun { followed, using, hint }.drive().await
    })
}

fn read_snapshot(file: &Path) -> Result<Snapshot> {
    let document = if file.as_os_str() == "-" {
        let mut input = Vec::new();
        std::io::stdin()
            .read_to_end(&mut input)
            .map_err(|error| Failure::unreadable("cannot read standard input", &error))?;
        input
    } else {
        text::read_file(file)?.into_bytes()
    };
    parse_snapshot(&document.into())
        .map_err(|error| Failure::BadData(format!("{}: {error}", plain_path(file))))
}

/// Restores a run from a snapshot and returns its id.
async fn restore(context: &AgentContext, snapshot: Snapshot) -> Result<LogId> {
    check_tools(context, &snapshot.casting.tools)?;
    let restoring = context.runner.restore(&context.tenant, snapshot);
    let restored = Box::pin(context.run(restoring)).await?;
    let StartedRun { run, thread, .. } = restored;
    text::note(&format!("restored {run} of {thread}"));
    Ok(run)
}

fn plain_path(file: &Path) -> String {
    text::plain(&file.display().to_string())
}

/// Parses the `--ctx` options. A value that is not JSON is a text.
fn parse_ctx(options: &[String]) -> Result<BTreeMap<Name, Json>> {
    let parse = |option: &String| -> Result<(Name, Json)> {
        let (key, value) =
            option.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                Failure::Usage(format!("invalid --ctx {}: write KEY=VALUE", text::plain(option)))
            })?;
        let value = Json::parse(value.to_owned()).unwrap_or_else(|_| json::string(value));
        Ok((Name::from(key), value))
    };
    options.iter().map(parse).collect()
}

/// Prints the result of a finished run: its answer as text, or its last event as JSON.
async fn print_finished_run(
    followed: &mut FollowedRun<'_>,
    format: Format,
    status: RunStatus,
) -> Result<()> {
    let FollowedRun { context, run, printer, .. } = followed;
    let last = last_event(context, run, |event| match format {
        Format::Json => matches!(event, RunEvent::Run(_)),
        Format::Text => matches!(event, RunEvent::FinalAnswer(_)),
    });
    if let Some(event) = last.await? {
        printer.print(&event)?;
        printer.end()?;
    }
    if matches!(format, Format::Text) {
        text::note(&format!("{run} has ended with status {status}"));
    }
    Ok(())
}

fn apply_lease(context: &mut AgentContext, using: &AgentArgs) {
    context.runner.lease = using.lease.map_or(context.runner.lease, Duration::from_secs);
}

/// Returns the message for the agent. If `text` is `-`, reads the message from standard input.
fn message(text: &str) -> Result<String> {
    if text.trim().is_empty() {
        return Err(Failure::Usage("the message for the agent is empty".to_owned()));
    }
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut input = String::new();
    std::io::stdin()
        .read_to_string(&mut input)
        .map_err(|error| Failure::unreadable("cannot read standard input", &error))?;
    if input.trim().is_empty() {
        let message = "standard input is empty; expected a message for the agent";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(input.trim_end().to_owned())
}

/// Fails if a tool of the run was not passed to this command. Without this check, the model would
/// receive an error that the tool does not exist.
fn check_tools(context: &AgentContext, tools: &[ToolSpec]) -> Result<()> {
    let tools = tools.iter().filter(|spec| !spec.client);
    let missing: Vec<&str> = tools
        .filter(|spec| !context.runner.tools.contains_key(&spec.name))
        .map(|spec| &*spec.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "this run uses tools that were not passed: {}; pass them again with --tool NAME=COMMAND or \
         --agent FILE",
        missing.join(", ")
    )))
}

/// Continues the run in a background process, without prompts.
fn detach(at: &StoreArgs, using: &AgentArgs, run: &LogId) -> Result<()> {
    let program = std::env::current_exe()
        .context("cannot determine the path of the running throughline executable")?;
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
    spawned.map(drop).context("cannot start the background process").map_err(Failure::from)
}

/// A run that is driven at a terminal, with prompts for approvals and questions.
struct InteractiveRun<'h> {
    followed: FollowedRun<'h>,
    using: &'h AgentArgs,
    hint: CommandHints,
}

impl InteractiveRun<'_> {
    /// Drives the run until it ends, is interrupted, or needs a decision that this command does not
    /// prompt for.
    async fn drive(mut self) -> Result<()> {
        loop {
            let Some(status) = self.followed.follow().await? else { return Err(self.paused()) };
            let run = &self.followed.run;
            let state = self.followed.context.state(run).await?;
            match status {
                RunStatus::Completed => return Ok(()),
                RunStatus::Failed => {
                    let message = format!("{run} failed: {}", reason(&state));
                    return Err(Failure::Outside(anyhow::anyhow!(message)));
                }
                RunStatus::Cancelled => {
                    let message = format!("{run} was cancelled: {}", reason(&state));
                    return Err(Failure::Interrupted(message));
                }
                RunStatus::Running => return Err(self.paused()),
                RunStatus::Waiting => {
                    if !self.prompts() || !self.decide(&state).await? {
                        self.print_pending(&state);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns whether this command prompts for decisions.
    fn prompts(&self) -> bool {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        self.using.ask || (is_terminal && !self.using.no_ask)
    }

    /// Prompts for pending decisions and sends them to the run. Returns `false` at end of input.
    async fn decide(&mut self, state: &State) -> Result<bool> {
        let FollowedRun { context, run, .. } = &self.followed;
        let mut signals = Signals::new()?;
        let commands = tokio::select! {
            commands = prompt_decisions(state, &context.policy) => commands?.unwrap_or_default(),
            () = signals.wait_for_stop() => return Err(self.paused()),
        };
        let has_decided = !commands.is_empty();
        for command in commands {
            match context.send(run, command).await {
                // An invalid answer is reported, and the prompt appears again.
                Err(Failure::Usage(problem)) => text::note(&problem),
                sent => sent?,
            }
        }
        Ok(has_decided)
    }

    /// Prints the CLI commands with which the user can decide the pending requests.
    fn print_pending(&self, state: &State) {
        for approval in approvals(state) {
            let command = |verb: &str| self.hint.command(verb, &approval.id);
            let (approve, reject) = (command("approve"), command("reject"));
            let tool = &approval.tool_name;
            text::note(&if state.is_lost(&approval.id) {
                format!(
                    "{tool}: {UNKNOWN_OUTCOME}: `{approve}` runs the call again, `{reject}` sends \
                     the outcome \"unknown\" to the model"
                )
            } else {
                format!("{tool} needs approval: `{approve}` or `{reject}`")
            });
        }
        for question in questions(state) {
            let answer = self.hint.answer(&question.id, &question.questions);
            let allows_text = question.allow_free_text.unwrap_or(false);
            let mut texts = Vec::new();
            for item in &question.questions {
                texts.push(item.question.to_string());
                let lines = option_lines(item, allows_text).into_iter();
                texts.extend(lines.map(|line| format!("  {line}")));
            }
            text::note(&format!("{}\nanswer with `{answer}`", texts.join("\n")));
        }
        let resume = self.hint.resume(&self.followed.run.0);
        text::note(&format!("then continue with `{resume}`"));
    }

    fn paused(&self) -> Failure {
        let run = &self.followed.run;
        let resume = self.hint.resume(&run.0);
        Failure::Interrupted(format!("{run} is paused; `{resume}` continues it"))
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
