//! Prints the demo: chapters, the agent's thoughts and actions, decisions, and the final counts.

use std::cell::Cell;
use std::path::Path;

use owo_colors::{OwoColorize as _, Style};
use throughline_agent::{ASK_USER_QUESTION, MANAGE_TODO_LIST};
use throughline_spec::{
    ReplayEvent, RunEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase, TurnPhase,
};

use super::lossy::{GatewayResult, MistakeResult};
use super::processes::PendingDemoRequest;
use super::totals::{Counts, Totals};
use crate::agent::{plan_mark, tool_mark};
use crate::print::failure::Result;
use crate::print::text::{self, count, one_line, plain, stored_size, width, wrapped, write_styled};

const CHAPTERS: u32 = 9;

pub(super) struct DemoPrinter {
    chapter: Cell<u32>,
    /// Whether the last printed thought was incomplete because its worker was killed.
    is_half: Cell<bool>,
    /// Width of the terminal in columns.
    width: usize,
}

pub(super) fn print_line(text: &str) -> Result<()> {
    write_styled(&format!("{text}\n"))
}

impl DemoPrinter {
    pub(super) fn new() -> Self {
        let width = width(std::io::stdout()).min(120);
        Self { chapter: Cell::new(0), is_half: Cell::new(false), width }
    }

    /// Prints a chapter heading with a right-aligned note.
    pub(super) fn chapter(&self, title: &str, note: &str) -> Result<()> {
        self.chapter.update(|number| number + 1);
        let number = format!("{}/{CHAPTERS}", self.chapter.get());
        let used = number.len() + title.chars().count() + note.chars().count() + 4;
        let rule = "─".repeat(self.width.saturating_sub(used).max(1));
        let (number, title) = (number.cyan().bold().to_string(), title.bold());
        print_line(&format!("\n{number} {title} {} {}", rule.dimmed(), note.cyan()))
    }

    /// Prints the `throughline` command for the next step.
    pub(super) fn command(&self, arguments: &str) -> Result<()> {
        let room = self.width.saturating_sub(2 + 2 + "throughline ".len());
        let line = format!("$ throughline {}", one_line(arguments, room));
        print_line(&format!("  {}", line.dimmed()))
    }

    /// Prints a mark and a text, wrapped with indented continuation lines.
    pub(super) fn paragraph(&self, mark: &str, style: Style, text: &str) -> Result<()> {
        let lines = wrapped(&plain(text), self.width.saturating_sub(4)).join("\n    ");
        print_line(&format!("  {} {lines}", mark.style(style)))
    }

    /// Prints a mark and a text truncated to one line.
    pub(super) fn line(&self, mark: &str, style: Style, text: &str) -> Result<()> {
        self.paragraph(mark, style, &one_line(text, self.width.saturating_sub(4)))
    }

    pub(super) fn print_event(&self, event: &RunEvent) -> Result<()> {
        match event {
            RunEvent::Thought(thought) if thought.phase == ThoughtPhase::End => {
                let sealed = thought.sealed_bytes.filter(|bytes| *bytes > 0);
                let sealed = sealed.map(|bytes| format!("  [sealed, {}]", stored_size(bytes)));
                let tokens = thought.text.as_deref().unwrap_or_default().split_whitespace();
                let text = tokens.collect::<Vec<_>>().join(" ");
                let text = if text.is_empty() { "(no readable text)" } else { &text };
                let text = format!("{text}{}", sealed.unwrap_or_default());
                self.paragraph("∴", Style::new().cyan(), &text)
            }
            RunEvent::ToolCall(call) => self.tool(call),
            RunEvent::Plan(plan) => plan.todo_list.iter().flatten().try_for_each(|step| {
                self.line(plan_mark(step.status), Style::new().cyan(), &step.step)
            }),
            RunEvent::Replay(replay) => self.replay(replay),
            RunEvent::Summarization(summary) => {
                let replaced = count(summary.messages_compressed.unwrap_or(0), "message");
                let text = format!("{replaced} replaced by a summary: {}", summary.summary);
                self.paragraph("≡", Style::new().yellow(), &text)
            }
            RunEvent::FinalAnswer(answer) => {
                self.paragraph("◆", Style::new().bold(), &answer.content)
            }
            // A discarded turn is not mentioned unless a part of it was printed.
            RunEvent::Turn(turn)
                if turn.phase == TurnPhase::Discarded && self.is_half.replace(false) =>
            {
                let text = "half a thought has no signature: discarded, and requested again";
                self.line("↺", Style::new().yellow(), text)
            }
            _ => Ok(()),
        }
    }

    fn tool(&self, call: &ToolCallEvent) -> Result<()> {
        // Questions and plans have their own events.
        let has_own_event = [ASK_USER_QUESTION, MANAGE_TODO_LIST].contains(&&*call.name);
        if has_own_event || call.phase == ToolCallPhase::Progress {
            return Ok(());
        }
        let value = call.result.as_ref().or(call.args.as_ref());
        let value = value.map(|value| match value.tree().root().text() {
            Some(text) => text.lines().collect::<Vec<_>>().join(" / "),
            None => value.as_str().to_owned(),
        });
        let (mark, style) = tool_mark(call.phase);
        self.line(mark, style, &format!("{} {}", call.name, value.unwrap_or_default()))
    }

    /// Prints how many thoughts were sent back to the provider and how many were left out. Prints
    /// nothing if there were no thoughts.
    fn replay(&self, replay: &ReplayEvent) -> Result<()> {
        let kept = replay.kept.unwrap_or(0) + replay.reshaped.unwrap_or(0);
        let elided = replay.elided.unwrap_or(0);
        let mut parts = Vec::new();
        if kept > 0 {
            parts.push(format!("{} sent back unchanged", count(kept, "thought")));
        }
        if elided > 0 {
            let reasons: Vec<&str> = replay.why.iter().flatten().map(|(why, _)| &**why).collect();
            parts.push(format!("{} left out, {}", count(elided, "thought"), reasons.join(", ")));
        }
        if parts.is_empty() {
            return Ok(());
        }
        self.paragraph("⇄", Style::new().green(), &parts.join("; "))
    }

    /// Prints the incomplete thought of the killed worker.
    pub(super) fn incomplete_thought(&self, half: &str) -> Result<()> {
        self.is_half.set(true);
        self.line("∴", Style::new().cyan(), &format!("{half}…"))
    }

    /// Prints a pending request with its options.
    pub(super) fn pending_request(&self, pending: &PendingDemoRequest) -> Result<()> {
        self.paragraph("?", Style::new().yellow().bold(), &pending.text)?;
        for (number, (label, about)) in (1..).zip(&pending.options) {
            let about = if about.is_empty() { String::new() } else { format!(": {about}") };
            self.line(" ", Style::new(), &format!("{number} {label}{about}"))?;
        }
        Ok(())
    }

    pub(super) fn decision(&self, decision: &str, by: &str) -> Result<()> {
        self.line("✓", Style::new().green(), &format!("{decision}, decided by {by}"))
    }

    pub(super) fn mistake_result(&self, result: &MistakeResult) -> Result<()> {
        let MistakeResult { provider, mistake, status, error, lost } = result;
        let (mark, status) = (text::mark(false), format!("→ {status}"));
        let status = status.red().bold().to_string();
        print_line(&format!("  {mark} {provider}: a client that {mistake} {status}"))?;
        let lost = format!(
            "(no error, but {} never came back, and the model continues without its thoughts)",
            count(*lost, "seal")
        );
        self.paragraph(" ", Style::new(), if error.is_empty() { &lost } else { error })
    }

    pub(super) fn gateway_result(&self, result: &GatewayResult) -> Result<()> {
        let GatewayResult { status, thoughts, seals, call } = result;
        let head = "a client that drops the thinking, with the gateway as its base URL";
        let (mark, status) = (text::mark(*status < 400), format!("→ {status}"));
        print_line(&format!("  {mark} {head} {}", status.green().bold()))?;
        let (thoughts, seals) = (count(*thoughts, "thought"), count(*seals, "seal"));
        let restored = format!("{thoughts} and {seals} restored; details: call {call}");
        self.paragraph(" ", Style::new(), &restored)
    }

    pub(super) fn totals(&self, totals: &Totals) -> Result<()> {
        let Counts { captured, replayed, restored, elided } = &totals.thoughts;
        let seals = &totals.seals;
        let heading = |left: &str, right: &str| {
            let heading = format!("{:<36}{left:>8}{right:>8}", "");
            print_line(&format!("  {}", heading.dimmed()))
        };
        heading("thoughts", "seals")?;
        for (label, thoughts, seals) in [
            ("captured", captured, seals.captured),
            ("replayed, in all requests", replayed, seals.replayed),
            ("restored after a client lost them", restored, seals.restored),
            ("elided from a request, but kept", elided, seals.elided),
        ] {
            print_line(&format!("  {label:<36}{thoughts:>8}{seals:>8}"))?;
        }
        for (reason, times) in &totals.reasons {
            print_line(&format!("    {}", format!("{times} × {reason}").dimmed()))?;
        }
        heading("requests", "refused")?;
        let own_style = if totals.refused == 0 { Style::new().green() } else { Style::new().red() };
        for (label, requests, refused, style) in [
            ("the agent and the gateway", totals.calls, totals.refused, own_style),
            ("the lossy client", totals.lossy_calls, totals.lossy_refused, Style::new().red()),
        ] {
            let refused = format!("{refused:>8}").style(style.bold()).to_string();
            print_line(&format!("  {label:<36}{requests:>8}{refused}"))?;
        }
        let issued = count(totals.issued, "seal");
        let Totals { accepted, lost, .. } = totals;
        let ledger = format!(
            "the simulators' ledger: {issued} issued, {accepted} returned and accepted, {lost} missing"
        );
        self.paragraph("✓", Style::new().green(), &ledger)
    }

    /// Prints the output of a command, each line truncated to the terminal width.
    pub(super) fn command_output(&self, output: &str) -> Result<()> {
        output.lines().try_for_each(|line| {
            let text = line.trim_start();
            let indent = line.len() - text.len() + 2;
            let text = one_line(&plain(text), self.width.saturating_sub(indent));
            print_line(&format!("{:indent$}{text}", ""))
        })
    }
}

pub(super) fn fact(label: &str, value: &str) -> Result<()> {
    print_line(&format!("  {} {value}", format!("{label:<10}").dimmed()))
}

pub(super) fn end(home: Option<&Path>) -> Result<()> {
    let files = home.map(|home| format!("all files are kept in {}", home.display()));
    let files = files.unwrap_or_else(|| "all temporary files were deleted".to_owned());
    print_line(&format!("\n{} {}", "Demo finished:".bold(), plain(&files)))
}

/// Prints the console URL. The console stays reachable while the gateway runs.
pub(super) fn open(url: &str, thread: &str, is_kept: bool) -> Result<()> {
    let page = format!("{url}/#/thread/{thread}");
    let deletes = if is_kept { "" } else { " and deletes its files" };
    let end = format!("Ctrl-C ends the demo{deletes}");
    let (label, page) = ("Open the console:".bold(), page.cyan().bold().to_string());
    print_line(&format!("\n{label} {page}\n{}", end.dimmed()))
}
