//! Prints the demo: chapters, the agent's thoughts and actions, decisions, and the final counts.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use owo_colors::{OwoColorize as _, Style};
use throughline_agent::{ASK_USER_QUESTION, MANAGE_TODO_LIST};
use throughline_spec::{
    ReplayEvent, RunEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase, TurnPhase,
};

use super::lossy::MistakeResult;
use super::processes::PendingDemoRequest;
use super::totals::{Counts, LedgerCounts, Totals};
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

/// Number of words since the last pause. The demo prints on one thread.
static WORDS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn print_line(text: &str) -> Result<()> {
    WORDS.fetch_add(text.split_whitespace().count(), Ordering::Relaxed);
    write_styled(&format!("{text}\n"))
}

/// Returns the number of words that were printed since the last call.
pub(super) fn take_words() -> usize {
    WORDS.swap(0, Ordering::Relaxed)
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
        let half = half.trim_end_matches('…');
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

    /// Prints what a mistake of the lossy client caused, without and with the gateway.
    pub(super) fn mistake_result(&self, result: &MistakeResult) -> Result<()> {
        let MistakeResult { provider, mistake, direct, gateway } = result;
        let heading = format!("{provider}: the client {mistake}");
        print_line(&format!("  {}", heading.bold()))?;
        let status = |mark: String, label: &str, status: u16, style: Style| {
            let status = format!("→ {status}").style(style.bold()).to_string();
            print_line(&format!("  {mark} {label:<21} {status}"))
        };
        let style = if direct.status < 400 { Style::new().yellow() } else { Style::new().red() };
        status(text::mark(false), "directly", direct.status, style)?;
        let lost = format!(
            "no error, but {} never came back: the model continues without its thoughts",
            count(direct.lost, "seal")
        );
        let problem = if direct.error.is_empty() { &lost } else { &direct.error };
        let room = self.width.saturating_sub(4);
        self.paragraph(" ", Style::new(), &one_line(problem, 2 * room))?;
        let mark = text::mark(gateway.status < 400);
        status(mark, "through the gateway", gateway.status, Style::new().green())?;
        let (thoughts, seals) = (gateway.thoughts, gateway.seals);
        let restored = match thoughts {
            0 => format!("{} restored", count(seals, "seal")),
            thoughts => {
                format!("{} and {} restored", count(thoughts, "thought"), count(seals, "seal"))
            }
        };
        self.paragraph(" ", Style::new(), &format!("{restored}; details: call {}", gateway.call))
    }

    /// Prints the counts of the simulators' ledger and of the store.
    pub(super) fn totals(&self, totals: &Totals) -> Result<()> {
        let heads = ["requests", "refused", "degraded", "seals issued", "accepted"];
        let row = |label: &str, cells: [String; 5]| {
            let cells = heads.iter().zip(cells).map(|(head, cell)| {
                let width = head.len();
                format!("  {cell:>width$}")
            });
            format!("  {label:<32}{}", cells.collect::<String>())
        };
        let heading = row("simulators' ledger", heads.map(str::to_owned));
        print_line(&heading.dimmed().to_string())?;
        let all = totals.direct.plus(totals.with_throughline());
        for (label, counts) in [
            ("the client, directly", totals.direct),
            ("the client, through the gateway", totals.gateway),
            ("the agent", totals.agent),
            ("all", all),
        ] {
            let LedgerCounts { requests, refused, degraded, issued, accepted } = counts;
            let cells = [requests, refused, degraded, issued, accepted];
            print_line(&row(label, cells.map(|cell| cell.to_string())))?;
        }
        let Counts { captured, replayed, elided } = &totals.seals;
        let discarded = totals.discarded_seals();
        let store = format!(
            "the store has {} of the agent: {} issued, {discarded} in a discarded answer",
            count(*captured, "seal"),
            totals.agent.issued
        );
        self.paragraph("✓", Style::new().green(), &store)?;
        let unanswered = totals.agent.accepted.saturating_sub(*replayed);
        let sent = format!(
            "{replayed} seals were sent back in answered requests, and {unanswered} in the request \
             of the killed process"
        );
        self.paragraph("✓", Style::new().green(), &sent)?;
        let reasons: Vec<&str> = totals.reasons.iter().map(|(reason, _)| reason.as_str()).collect();
        let elided =
            format!("{} left out, but kept: {}", count(*elided, "seal"), reasons.join(", "));
        self.paragraph("✓", Style::new().green(), &elided)
    }

    /// Prints one line with the result of the whole demo.
    pub(super) fn result(&self, totals: &Totals) -> Result<()> {
        let (own, direct) = (totals.with_throughline(), totals.direct);
        let result = format!(
            "With Throughline, {} of {} requests were refused. Without it, {} of {}, and {} lost its \
             reasoning.",
            own.refused, own.requests, direct.refused, direct.requests, direct.degraded
        );
        let lines = wrapped(&result, self.width).join("\n");
        print_line(&format!("\n{}", lines.bold()))
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

/// Prints the commands with which the user can connect a client.
pub(super) fn invite() -> Result<()> {
    print_line(&format!("\n{}", "Connect your own client:".bold()))?;
    for (command, about) in [
        ("throughline serve", "start the gateway with your provider keys"),
        ("throughline connect claude-code --run", "or codex, gemini-cli, opencode and others"),
    ] {
        print_line(&format!("  {command:<40}{}", about.dimmed()))?;
    }
    Ok(())
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
