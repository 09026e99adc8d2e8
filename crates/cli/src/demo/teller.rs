//! The story, told at a terminal: chapters, what the agent thinks and does, what others say to it, and the counts.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::{OwoColorize as _, Style};
use throughline_agent::{ASK_USER_QUESTION, MANAGE_TODO_LIST};
use throughline_core::{
    PlanEvent, ReplayEvent, RunEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase, TurnPhase,
};

use super::naive::{Heard, Restored};
use super::stage::Waiting;
use super::totals::{Counts, Totals};
use crate::failure::Failure;
use crate::text::{self, count, one_line, plain, push_line, size, width, wrapped, write_styled};

/// How many chapters there are.
const CHAPTERS: u32 = 9;
/// Whoever plays it.
pub(super) const YOU: &str = "you";

pub(super) struct Teller {
    spinner: ProgressBar,
    chapter: Cell<u32>,
    /// Whether half of a thought was shown.
    is_half: Cell<bool>,
    /// How many columns there are.
    wide: usize,
}

impl Teller {
    pub(super) fn new() -> Self {
        // It draws on standard error, and only where that is a terminal.
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {msg}") {
            spinner.set_style(style);
        }
        let wide = width(std::io::stdout()).min(120);
        Self { spinner, chapter: Cell::new(0), is_half: Cell::new(false), wide }
    }

    /// Waits for something, and shows that.
    pub(super) fn waiting<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        self.spinner.reset();
        self.spinner.set_message(doing.to_owned());
        self.spinner.enable_steady_tick(Duration::from_millis(100));
        let done = work();
        // Nothing of it stays behind where nobody waits.
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

    /// A new chapter, with a word on its right side.
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

    /// What could have been typed.
    pub(super) fn command(&self, arguments: &str) -> Result<(), Failure> {
        let room = self.wide.saturating_sub(2 + 2 + "throughline ".len());
        let line = one_line(arguments, room);
        self.line(&format!("  {}", format!("$ throughline {line}").dimmed()))
    }

    /// A mark, and a text that may go on on further lines below itself.
    fn marked(&self, mark: &str, style: Style, text: &str) -> Result<(), Failure> {
        let lines = wrapped(&plain(text), self.wide.saturating_sub(4));
        let mut page = String::new();
        for (number, line) in lines.iter().enumerate() {
            let before = if number == 0 { mark } else { " " };
            push_line(&mut page, &format!("  {} {line}", before.style(style)));
        }
        self.write(&page)
    }

    /// The same on one line.
    fn short(&self, mark: &str, style: Style, text: &str) -> Result<(), Failure> {
        self.marked(mark, style, &one_line(text, self.wide.saturating_sub(4)))
    }

    pub(super) fn remark(&self, text: &str) -> Result<(), Failure> {
        self.marked("✓", Style::new().green(), text)
    }

    /// Tells what a run tells.
    pub(super) fn tell(&self, event: &RunEvent) -> Result<(), Failure> {
        match event {
            RunEvent::Thought(thought) if thought.phase == ThoughtPhase::End => {
                let sealed = thought.sealed_bytes.filter(|bytes| *bytes > 0);
                let sealed = sealed.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
                let sealed = sealed.map(|bytes| format!("  [sealed, {}]", size(bytes)));
                let text = thought.text.as_deref().unwrap_or_default();
                let text: Vec<&str> = text.split_whitespace().collect();
                let text = text.join(" ");
                let text = if text.is_empty() { "(nothing that anybody can read)" } else { &text };
                let sealed = sealed.unwrap_or_default();
                self.marked("∴", Style::new().cyan(), &format!("{text}{sealed}"))
            }
            RunEvent::ToolCall(call) => self.tool(call),
            RunEvent::Plan(plan) => self.plan(plan),
            RunEvent::Replay(replay) => self.replay(replay),
            RunEvent::Summarization(summary) => {
                let of = usize::try_from(summary.messages_compressed.unwrap_or(0)).unwrap_or(0);
                let text = format!("{} now stand as: {}", count(of, "message"), summary.summary);
                self.marked("≡", Style::new().yellow(), &text)
            }
            RunEvent::FinalAnswer(answer) => self.marked("◆", Style::new().bold(), &answer.content),
            // What nobody was shown is not missed.
            RunEvent::Turn(turn)
                if turn.phase == TurnPhase::Discarded && self.is_half.replace(false) =>
            {
                let told = "half a thought has no signature: thrown away, and asked for again";
                self.short("↺", Style::new().yellow(), told)
            }
            _ => Ok(()),
        }
    }

    fn tool(&self, call: &ToolCallEvent) -> Result<(), Failure> {
        // These are told as what they are.
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
        self.short(mark, style, &format!("{} {value}", call.name))
    }

    fn plan(&self, plan: &PlanEvent) -> Result<(), Failure> {
        for step in plan.todo_list.iter().flatten() {
            let mark = match step.status.as_str() {
                "completed" => "☑",
                "in-progress" => "▶",
                _ => "☐",
            };
            self.short(mark, Style::new().cyan(), &step.step)?;
        }
        Ok(())
    }

    /// What went back to the provider, where there was anything to send back.
    fn replay(&self, replay: &ReplayEvent) -> Result<(), Failure> {
        let kept = replay.kept.unwrap_or(0) + replay.reshaped.unwrap_or(0);
        let elided = replay.elided.unwrap_or(0);
        if kept + elided == 0 {
            return Ok(());
        }
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let mut told = Vec::new();
        if kept > 0 {
            told.push(format!("{} went back as issued", count(number(kept), "thought")));
        }
        if elided > 0 {
            let why: Vec<&str> = replay.why.iter().flatten().map(|(why, _)| &**why).collect();
            let elided = count(number(elided), "thought");
            told.push(format!("{elided} stayed here, {}", why.join(", ")));
        }
        self.marked("⇄", Style::new().green(), &told.join("; "))
    }

    /// A thought that nobody will hear the end of.
    pub(super) fn broken_off(&self, half: &str) -> Result<(), Failure> {
        self.is_half.set(true);
        self.short("∴", Style::new().cyan(), &format!("{half}…"))
    }

    pub(super) fn died(&self, process: u32) -> Result<(), Failure> {
        self.short("✗", Style::new().red(), &format!("process {process} is gone, without a word"))
    }

    /// What waits for a person.
    pub(super) fn asked(&self, waiting: &Waiting) -> Result<(), Failure> {
        self.marked("?", Style::new().yellow().bold(), &waiting.words)?;
        for (number, (label, about)) in waiting.options.iter().enumerate() {
            let about = if about.is_empty() { String::new() } else { format!(": {about}") };
            self.short(" ", Style::new(), &format!("{} {label}{about}", number + 1))?;
        }
        Ok(())
    }

    /// What a person said.
    pub(super) fn decided(&self, words: &str, by: &str) -> Result<(), Failure> {
        let says = if by == YOU { "say" } else { "says" };
        self.short("✓", Style::new().green(), &format!("{words}, {says} {by}"))
    }

    /// What a person decides is heard by the run, and not by whoever wrote the models' words.
    pub(super) fn off_script(&self) -> Result<(), Failure> {
        let told =
            "that is kept; but what the models say is written beforehand, for the other choice";
        self.short("·", Style::new().yellow(), told)
    }

    pub(super) fn prompt(&self, prompt: &str) -> Result<(), Failure> {
        self.write(&format!("    {}", prompt.bold()))
    }

    pub(super) fn heard(&self, heard: &Heard) -> Result<(), Failure> {
        let Heard { provider, mistake, status, said, lost } = heard;
        let who = format!("{provider}: a client that {mistake}");
        let mark = text::mark(false);
        self.line(&format!("  {mark} {who} {}", format!("→ {status}").red().bold()))?;
        let lost = format!(
            "(not a word: but {} never came back, and the model goes on without its thoughts)",
            count(*lost, "seal")
        );
        self.marked(" ", Style::new(), if said.is_empty() { &lost } else { said })
    }

    pub(super) fn restored(&self, restored: &Restored) -> Result<(), Failure> {
        let Restored { status, thoughts, seals, call } = restored;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let head = "a client that drops the thinking, with the gateway as its base URL";
        let mark = text::mark(*status < 400);
        self.line(&format!("  {mark} {head} {}", format!("→ {status}").green().bold()))?;
        let thoughts = count(number(*thoughts), "thought");
        let seals = count(number(*seals), "seal");
        let story = format!("{thoughts} and {seals} put back; the story is call {call}");
        self.marked(" ", Style::new(), &story)
    }

    pub(super) fn totals(&self, totals: &Totals) -> Result<(), Failure> {
        let Counts { captured, replayed, restored, elided } = &totals.thoughts;
        let seals = &totals.seals;
        self.line(&format!("  {}", format!("{:<36}{:>8}{:>8}", "", "thoughts", "seals").dimmed()))?;
        for (what, thoughts, seals) in [
            ("captured", captured, seals.captured),
            ("replayed, in all requests", replayed, seals.replayed),
            ("restored, that a client had lost", restored, seals.restored),
            ("elided from a request, and kept", elided, seals.elided),
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
        self.line(&format!("  {:<36}{made:>8}{}", "the naive client", naive.red().bold()))?;
        let ledger = format!(
            "the simulators' own ledger: {} issued, {} came back and were accepted, {} missed",
            count(totals.issued, "seal"),
            totals.accepted,
            totals.lost
        );
        self.marked("✓", Style::new().green(), &ledger)
    }

    /// What a command said.
    pub(super) fn quoted(&self, said: &str) -> Result<(), Failure> {
        for line in said.lines() {
            self.line(&format!("  {}", one_line_kept(line, self.wide.saturating_sub(2))))?;
        }
        Ok(())
    }

    pub(super) fn end(&self, home: Option<&Path>) -> Result<(), Failure> {
        let kept = home.map(|home| format!("all of it is kept in {}", home.display()));
        let kept = kept.unwrap_or_else(|| "nothing of it is left behind".to_owned());
        self.line(&format!("\n{} {}", "That was it:".bold(), plain(&kept)))
    }

    /// The gateway stays open on the thread.
    pub(super) fn open(&self, url: &str, thread: &str, is_kept: bool) -> Result<(), Failure> {
        let page = format!("{url}/#/thread/{thread}");
        self.line(&format!("\n{} {}", "Look around:".bold(), page.cyan().bold()))?;
        let end =
            if is_kept { "Ctrl-C ends it" } else { "Ctrl-C ends it, and takes all of it away" };
        self.line(&end.dimmed().to_string())
    }
}

/// A line that is cut where it is too long, and keeps its indentation.
fn one_line_kept(line: &str, width: usize) -> String {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    format!("{}{}", " ".repeat(indent), one_line(&plain(words), width.saturating_sub(indent)))
}
