//! Prints the demo: chapters, the agent's thoughts and actions, decisions, and the counts.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::{OwoColorize as _, Style};
use throughline_agent::{ASK_USER_QUESTION, MANAGE_TODO_LIST};
use throughline_spec::{
    PlanEvent, ReplayEvent, RunEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase, TurnPhase,
};

use super::naive::{GatewayResult, MistakeResult};
use super::stage::PendingDemoRequest;
use super::totals::{Counts, Totals};
use crate::print::failure::Failure;
use crate::print::text::{
    self, count, one_line, plain, push_line, size, width, wrapped, write_styled,
};

/// Number of chapters.
const CHAPTERS: u32 = 9;
/// The user in interactive mode.
pub(super) const YOU: &str = "you";

pub(super) struct DemoPrinter {
    spinner: ProgressBar,
    chapter: Cell<u32>,
    /// Whether half a thought was printed.
    is_half: Cell<bool>,
    /// Width of the terminal in columns.
    wide: usize,
}

impl DemoPrinter {
    pub(super) fn new() -> Self {
        // The spinner draws on standard error, and only if that is a terminal.
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg}") {
            spinner.set_style(style);
        }
        let wide = width(std::io::stdout()).min(120);
        Self { spinner, chapter: Cell::new(0), is_half: Cell::new(false), wide }
    }

    /// Runs `work` and shows a spinner meanwhile.
    pub(super) fn with_spinner<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        self.spinner.reset();
        self.spinner.set_message(doing.to_owned());
        self.spinner.enable_steady_tick(Duration::from_millis(100));
        let done = work();
        // Clear the spinner line.
        self.spinner.disable_steady_tick();
        self.spinner.finish_and_clear();
        done
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        self.spinner.suspend(|| write_styled(text))
    }

    fn line(&self, text: &str) -> Result<(), Failure> {
        self.write(&format!("{text}\n"))
    }

    pub(super) fn title(&self, about: &str) -> Result<(), Failure> {
        self.line(&format!("{}\n{about}", "throughline demo".bold()))
    }

    pub(super) fn fact(&self, what: &str, value: &str) -> Result<(), Failure> {
        self.line(&format!("  {} {value}", format!("{what:<10}").dimmed()))
    }

    /// Prints a chapter heading with a note at its right end.
    pub(super) fn chapter(&self, title: &str, beside: &str) -> Result<(), Failure> {
        let number = self.chapter.get() + 1;
        self.chapter.set(number);
        let of = format!("{number}/{CHAPTERS}");
        let used = of.len() + title.chars().count() + beside.chars().count() + 4;
        let rule = "─".repeat(self.wide.saturating_sub(used).max(1));
        self.line(&format!(
            "\n{} {} {} {}",
            of.cyan().bold(),
            title.bold(),
            rule.dimmed(),
            beside.cyan()
        ))
    }

    /// Prints the equivalent command line.
    pub(super) fn command(&self, arguments: &str) -> Result<(), Failure> {
        let room = self.wide.saturating_sub(2 + 2 + "throughline ".len());
        let line = one_line(arguments, room);
        self.line(&format!("  {}", format!("$ throughline {line}").dimmed()))
    }

    /// Prints a mark and a text, with continuation lines indented.
    fn marked_paragraph(&self, mark: &str, style: Style, text: &str) -> Result<(), Failure> {
        let lines = wrapped(&plain(text), self.wide.saturating_sub(4));
        let mut page = String::new();
        for (number, line) in lines.iter().enumerate() {
            let before = if number == 0 { mark } else { " " };
            push_line(&mut page, &format!("  {} {line}", before.style(style)));
        }
        self.write(&page)
    }

    /// Prints a mark and a text truncated to one line.
    fn marked_line(&self, mark: &str, style: Style, text: &str) -> Result<(), Failure> {
        self.marked_paragraph(mark, style, &one_line(text, self.wide.saturating_sub(4)))
    }

    pub(super) fn remark(&self, text: &str) -> Result<(), Failure> {
        self.marked_paragraph("✓", Style::new().green(), text)
    }

    /// Prints a run event.
    pub(super) fn print_event(&self, event: &RunEvent) -> Result<(), Failure> {
        match event {
            RunEvent::Thought(thought) if thought.phase == ThoughtPhase::End => {
                let sealed = thought.sealed_bytes.filter(|bytes| *bytes > 0);
                let sealed = sealed.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
                let sealed = sealed.map(|bytes| format!("  [sealed, {}]", size(bytes)));
                let text = thought.text.as_deref().unwrap_or_default();
                let text: Vec<&str> = text.split_whitespace().collect();
                let text = text.join(" ");
                let text = if text.is_empty() { "(no readable text)" } else { &text };
                let sealed = sealed.unwrap_or_default();
                self.marked_paragraph("∴", Style::new().cyan(), &format!("{text}{sealed}"))
            }
            RunEvent::ToolCall(call) => self.tool(call),
            RunEvent::Plan(plan) => self.plan(plan),
            RunEvent::Replay(replay) => self.replay(replay),
            RunEvent::Summarization(summary) => {
                let of = usize::try_from(summary.messages_compressed.unwrap_or(0)).unwrap_or(0);
                let text =
                    format!("{} replaced by a summary: {}", count(of, "message"), summary.summary);
                self.marked_paragraph("≡", Style::new().yellow(), &text)
            }
            RunEvent::FinalAnswer(answer) => {
                self.marked_paragraph("◆", Style::new().bold(), &answer.content)
            }
            // A discarded turn that was never shown is not mentioned.
            RunEvent::Turn(turn)
                if turn.phase == TurnPhase::Discarded && self.is_half.replace(false) =>
            {
                let told = "half a thought has no signature: discarded, and requested again";
                self.marked_line("↺", Style::new().yellow(), told)
            }
            _ => Ok(()),
        }
    }

    fn tool(&self, call: &ToolCallEvent) -> Result<(), Failure> {
        // Questions and plans have their own events.
        if [ASK_USER_QUESTION, MANAGE_TODO_LIST].contains(&&*call.name) {
            return Ok(());
        }
        let value = call.result.as_ref().or(call.args.as_ref());
        let value = value.map(|value| match value.tree().root().text() {
            Some(text) => text.lines().collect::<Vec<_>>().join(" / "),
            None => value.as_str().to_owned(),
        });
        let value = value.unwrap_or_default();
        let (mark, style) = match call.phase {
            ToolCallPhase::Start => ("→", Style::new().magenta()),
            ToolCallPhase::Success => ("←", Style::new().magenta()),
            ToolCallPhase::Error => ("✗", Style::new().red()),
            ToolCallPhase::Skipped => ("⊘", Style::new().yellow()),
            ToolCallPhase::Progress => return Ok(()),
        };
        self.marked_line(mark, style, &format!("{} {value}", call.name))
    }

    fn plan(&self, plan: &PlanEvent) -> Result<(), Failure> {
        for step in plan.todo_list.iter().flatten() {
            let mark = match step.status.as_str() {
                "completed" => "☑",
                "in-progress" => "▶",
                _ => "☐",
            };
            self.marked_line(mark, Style::new().cyan(), &step.step)?;
        }
        Ok(())
    }

    /// Prints how many thoughts were sent back to the provider, if there were any.
    fn replay(&self, replay: &ReplayEvent) -> Result<(), Failure> {
        let kept = replay.kept.unwrap_or(0) + replay.reshaped.unwrap_or(0);
        let elided = replay.elided.unwrap_or(0);
        if kept + elided == 0 {
            return Ok(());
        }
        let mut told = Vec::new();
        if kept > 0 {
            told.push(format!("{} sent back unchanged", count(kept, "thought")));
        }
        if elided > 0 {
            let why: Vec<&str> = replay.why.iter().flatten().map(|(why, _)| &**why).collect();
            let elided = count(elided, "thought");
            told.push(format!("{elided} left out, {}", why.join(", ")));
        }
        self.marked_paragraph("⇄", Style::new().green(), &told.join("; "))
    }

    /// Prints the incomplete thought of the killed worker.
    pub(super) fn incomplete_thought(&self, half: &str) -> Result<(), Failure> {
        self.is_half.set(true);
        self.marked_line("∴", Style::new().cyan(), &format!("{half}…"))
    }

    pub(super) fn process_killed(&self, process: u32) -> Result<(), Failure> {
        self.marked_line("✗", Style::new().red(), &format!("process {process} was killed"))
    }

    /// Prints a pending request with its options.
    pub(super) fn pending_request(&self, waiting: &PendingDemoRequest) -> Result<(), Failure> {
        self.marked_paragraph("?", Style::new().yellow().bold(), &waiting.words)?;
        for (number, (label, about)) in waiting.options.iter().enumerate() {
            let about = if about.is_empty() { String::new() } else { format!(": {about}") };
            self.marked_line(" ", Style::new(), &format!("{} {label}{about}", number + 1))?;
        }
        Ok(())
    }

    /// Prints a decision.
    pub(super) fn decision(&self, words: &str, by: &str) -> Result<(), Failure> {
        let says = if by == YOU { "say" } else { "says" };
        self.marked_line("✓", Style::new().green(), &format!("{words}, {says} {by}"))
    }

    /// Explains that the scripted models do not react to the other choice.
    pub(super) fn off_script(&self) -> Result<(), Failure> {
        let told =
            "your decision is recorded, but the scripted models answer as for the other choice";
        self.marked_line("·", Style::new().yellow(), told)
    }

    pub(super) fn prompt(&self, prompt: &str) -> Result<(), Failure> {
        self.write(&format!("    {}", prompt.bold()))
    }

    pub(super) fn mistake_result(&self, heard: &MistakeResult) -> Result<(), Failure> {
        let MistakeResult { provider, mistake, status, said, lost } = heard;
        let who = format!("{provider}: a client that {mistake}");
        let mark = text::mark(false);
        self.line(&format!("  {mark} {who} {}", format!("→ {status}").red().bold()))?;
        let lost = format!(
            "(no error, but {} never came back, and the model continues without its thoughts)",
            count(*lost, "seal")
        );
        self.marked_paragraph(" ", Style::new(), if said.is_empty() { &lost } else { said })
    }

    pub(super) fn gateway_result(&self, restored: &GatewayResult) -> Result<(), Failure> {
        let GatewayResult { status, thoughts, seals, call } = restored;
        let head = "a client that drops the thinking, with the gateway as its base URL";
        let mark = text::mark(*status < 400);
        self.line(&format!("  {mark} {head} {}", format!("→ {status}").green().bold()))?;
        let thoughts = count(*thoughts, "thought");
        let seals = count(*seals, "seal");
        let story = format!("{thoughts} and {seals} restored; details: call {call}");
        self.marked_paragraph(" ", Style::new(), &story)
    }

    pub(super) fn totals(&self, totals: &Totals) -> Result<(), Failure> {
        let Counts { captured, replayed, restored, elided } = &totals.thoughts;
        let seals = &totals.seals;
        self.line(&format!("  {}", format!("{:<36}{:>8}{:>8}", "", "thoughts", "seals").dimmed()))?;
        for (what, thoughts, seals) in [
            ("captured", captured, seals.captured),
            ("replayed, in all requests", replayed, seals.replayed),
            ("restored after a client lost them", restored, seals.restored),
            ("elided from a request, but kept", elided, seals.elided),
        ] {
            self.line(&format!("  {what:<36}{thoughts:>8}{seals:>8}"))?;
        }
        for (why, times) in &totals.why {
            self.line(&format!("    {}", format!("{times} × {why}").dimmed()))?;
        }
        self.line(&format!(
            "  {}",
            format!("{:<36}{:>8}{:>8}", "", "requests", "refused").dimmed()
        ))?;
        let refused = format!("{:>8}", totals.refused);
        let refused = if totals.refused == 0 {
            refused.green().bold().to_string()
        } else {
            refused.red().bold().to_string()
        };
        self.line(&format!("  {:<36}{:>8}{refused}", "the agent and the gateway", totals.calls))?;
        let (made, naive) = (totals.naive, format!("{:>8}", totals.naive_refused));
        self.line(&format!("  {:<36}{made:>8}{}", "the lossy client", naive.red().bold()))?;
        let ledger = format!(
            "the simulators' ledger: {} issued, {} returned and accepted, {} missing",
            count(totals.issued, "seal"),
            totals.accepted,
            totals.lost
        );
        self.marked_paragraph("✓", Style::new().green(), &ledger)
    }

    /// Prints the output of a command.
    pub(super) fn command_output(&self, said: &str) -> Result<(), Failure> {
        for line in said.lines() {
            self.line(&format!(
                "  {}",
                truncate_keeping_indent(line, self.wide.saturating_sub(2))
            ))?;
        }
        Ok(())
    }

    pub(super) fn end(&self, home: Option<&Path>) -> Result<(), Failure> {
        let kept = home.map(|home| format!("all files are kept in {}", home.display()));
        let kept = kept.unwrap_or_else(|| "all temporary files were deleted".to_owned());
        self.line(&format!("\n{} {}", "Demo finished:".bold(), plain(&kept)))
    }

    /// Prints the console URL while the gateway stays open.
    pub(super) fn open(&self, url: &str, thread: &str, is_kept: bool) -> Result<(), Failure> {
        let page = format!("{url}/#/thread/{thread}");
        self.line(&format!("\n{} {}", "Open the console:".bold(), page.cyan().bold()))?;
        let end = if is_kept {
            "Ctrl-C ends the demo"
        } else {
            "Ctrl-C ends the demo and deletes its files"
        };
        self.line(&end.dimmed().to_string())
    }
}

/// Truncates a line to `width` columns and keeps its indentation.
fn truncate_keeping_indent(line: &str, width: usize) -> String {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    format!("{}{}", " ".repeat(indent), one_line(&plain(words), width.saturating_sub(indent)))
}
