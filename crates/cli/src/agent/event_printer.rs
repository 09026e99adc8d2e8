//! Prints the events of a run live: the model's text on standard output, everything else on
//! standard error.

use std::io::Write as _;

use anyhow::Context as _;
use owo_colors::{OwoColorize as _, Style};
use throughline_agent::sentence;
use throughline_spec::{
    PlanEvent, RedactionPolicy, RunEvent, ThoughtEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase,
    TurnPhase,
};

use super::stream_redactor::StreamRedactor;
use crate::args::Format;
use crate::print::failure::Failure;
use crate::print::text::{one_line, plain, width, write_out};

/// Content of the current output line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineContent {
    Empty,
    Thought,
    /// Text of the model.
    Said,
}

/// Prints run events.
pub(crate) struct EventPrinter {
    format: Format,
    policy: RedactionPolicy,
    line: LineContent,
    /// Text of the current line, part of which may be held back.
    pieces: StreamRedactor,
    /// Whether thoughts of this turn were streamed.
    has_thought: bool,
    /// Whether the answer of this turn was streamed.
    has_said: bool,
}

impl EventPrinter {
    pub(crate) fn new(format: Format, policy: RedactionPolicy) -> Self {
        let (line, pieces) = (LineContent::Empty, StreamRedactor::default());
        Self { format, policy, line, pieces, has_thought: false, has_said: false }
    }

    /// Prints one event.
    pub(crate) fn tell(&mut self, event: &RunEvent) -> Result<(), Failure> {
        if matches!(self.format, Format::Json) {
            let told = self.policy.redact_run_event(event);
            return write_out(format!("{}\n", told.as_str()).as_bytes());
        }
        match event {
            RunEvent::Thought(event) => self.print_thought(event),
            RunEvent::Stream(event) => self.said(&event.text),
            RunEvent::FinalAnswer(event) if !self.has_said => self.said(&event.content),
            RunEvent::ToolCall(event) => self.tool(event),
            RunEvent::Plan(event) => self.plan(event),
            RunEvent::Turn(event) => {
                if event.phase == TurnPhase::Start {
                    (self.has_thought, self.has_said) = (false, false);
                    return Ok(());
                }
                // An output that was never shown needs no retraction.
                let was_shown = self.has_thought || self.has_said;
                if event.phase == TurnPhase::Discarded && was_shown {
                    return self.print_note(
                        "↺",
                        Style::new().yellow(),
                        &self.words(&RunEvent::Turn(event.clone())),
                    );
                }
                Ok(())
            }
            RunEvent::Reflection(event) => {
                self.print_note("✎", Style::new().cyan(), &self.policy.redact_thought(&event.text))
            }
            RunEvent::Summarization(_)
            | RunEvent::Handoff(_)
            | RunEvent::Limit(_)
            | RunEvent::Gate(_)
            | RunEvent::Guardrail(_)
            | RunEvent::Subagent(_) => {
                self.print_note("·", Style::new().yellow(), &self.words(event))
            }
            RunEvent::FinalAnswer(_)
            | RunEvent::ToolApproval(_)
            | RunEvent::UserQuestion(_)
            | RunEvent::Metadata(_)
            | RunEvent::Progress(_)
            | RunEvent::Cancelled(_)
            | RunEvent::Run(_)
            | RunEvent::Message(_)
            | RunEvent::Replay(_)
            | RunEvent::Usage(_)
            | RunEvent::Unknown(_) => Ok(()),
        }
    }

    /// Ends the current line.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match std::mem::replace(&mut self.line, LineContent::Empty) {
            LineContent::Empty => Ok(()),
            LineContent::Thought => {
                let rest = self.pieces.finish(|text| self.policy.redact_thought(text));
                write_stderr(&format!("{}\n", plain(&rest).dimmed()))
            }
            LineContent::Said => {
                let rest = self.pieces.finish(|text| self.policy.redact_text(text));
                write_out(format!("{}\n", plain(&rest)).as_bytes())
            }
        }
    }

    fn print_thought(&mut self, event: &ThoughtEvent) -> Result<(), Failure> {
        let text = event.text.as_deref().unwrap_or_default();
        let is_piece = event.phase == ThoughtPhase::Delta;
        let policy = &self.policy;
        if is_piece && !(policy.thinking_patterns.is_empty() && policy.secret_patterns.is_empty()) {
            // A configured pattern may match across pieces; the whole thought is printed later.
            return Ok(());
        }
        if is_piece || (!self.has_thought && !text.is_empty()) {
            self.has_thought |= is_piece;
            let mark = self.begin_line(LineContent::Thought)?;
            let shown = self.pieces.push(text, |text| self.policy.redact_thought(text));
            write_stderr(&format!("{mark}{}", plain(&shown).dimmed()))?;
        }
        if is_piece { Ok(()) } else { self.end() }
    }

    fn said(&mut self, text: &str) -> Result<(), Failure> {
        self.has_said = true;
        self.begin_line(LineContent::Said)?;
        let shown = self.pieces.push(text, |text| self.policy.redact_text(text));
        write_out(plain(&shown).as_bytes())
    }

    fn tool(&mut self, event: &ToolCallEvent) -> Result<(), Failure> {
        let (mark, style) = match event.phase {
            ToolCallPhase::Start => ("→", Style::new().magenta()),
            ToolCallPhase::Success => ("←", Style::new().magenta()),
            ToolCallPhase::Error => ("✗", Style::new().red()),
            ToolCallPhase::Skipped => ("⊘", Style::new().yellow()),
            ToolCallPhase::Progress => ("…", Style::new().magenta()),
        };
        let value = event.result.as_ref().or(event.args.as_ref());
        let value = value.map(|value| self.policy.redact_text(value.as_str()).into_owned());
        let problem = event.error.as_ref().map(|error| error.message.to_string());
        let about = problem.or(value).unwrap_or_default();
        self.print_note(mark, style, &format!("{} {about}", event.name))
    }

    fn plan(&mut self, event: &PlanEvent) -> Result<(), Failure> {
        for step in event.todo_list.iter().flatten() {
            let mark = match step.status.as_str() {
                "completed" => "☑",
                "in-progress" => "▶",
                "blocked" => "✗",
                _ => "☐",
            };
            self.print_note(mark, Style::new().cyan(), &self.policy.redact_text(&step.step))?;
        }
        Ok(())
    }

    fn words(&self, event: &RunEvent) -> String {
        sentence(event, &self.policy).unwrap_or_default()
    }

    /// Prints a separate line on standard error.
    pub(crate) fn print_note(
        &mut self,
        mark: &str,
        style: Style,
        text: &str,
    ) -> Result<(), Failure> {
        self.end()?;
        let wide = width(std::io::stderr()).saturating_sub(2);
        write_stderr(&format!("{} {}\n", mark.style(style), one_line(&plain(text), wide)))
    }

    /// Ends the current line if it has other content; returns the mark for the new content.
    fn begin_line(&mut self, line: LineContent) -> Result<String, Failure> {
        if self.line == line {
            return Ok(String::new());
        }
        self.end()?;
        self.line = line;
        Ok(format!("{} ", "∴".cyan()))
    }
}

/// Writes to standard error, with colours if the terminal supports them.
fn write_stderr(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stderr();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.context("standard error cannot be written")?)
}
