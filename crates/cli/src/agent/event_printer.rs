//! Prints the events of a run live: the model's text on standard output, everything else on
//! standard error.

use owo_colors::{OwoColorize as _, Style};
use throughline_agent::sentence;
use throughline_spec::{
    PlanStepStatus, RedactionPolicy, RunEvent, StreamRedactor, ThoughtEvent, ThoughtPhase,
    ToolCallEvent, ToolCallPhase, TurnPhase,
};

use crate::args::Format;
use crate::print::failure::Result;
use crate::print::text::{one_line, plain, width, write_out, write_stderr};

/// Kind of output on the current terminal line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineContent {
    Empty,
    Thought,
    Text,
}

pub(crate) struct EventPrinter {
    format: Format,
    policy: RedactionPolicy,
    line: LineContent,
    /// Redacted text of the current line. The last words of the text may still be buffered.
    pieces: StreamRedactor,
    /// Whether thoughts of the current turn were streamed.
    has_thought: bool,
    /// Whether the answer of the current turn was streamed.
    has_text: bool,
}

impl EventPrinter {
    pub(crate) fn new(format: Format, policy: RedactionPolicy) -> Self {
        let (line, pieces) = (LineContent::Empty, StreamRedactor::default());
        Self { format, policy, line, pieces, has_thought: false, has_text: false }
    }

    pub(crate) fn print(&mut self, event: &RunEvent) -> Result<()> {
        if matches!(self.format, Format::Json) {
            let event = self.policy.redact_run_event(event);
            return write_out(format!("{}\n", event.as_str()).as_bytes());
        }
        match event {
            RunEvent::Thought(event) => self.print_thought(event),
            RunEvent::Stream(event) => self.print_text(&event.text),
            RunEvent::FinalAnswer(event) if !self.has_text => self.print_text(&event.content),
            RunEvent::ToolCall(event) => self.tool(event),
            RunEvent::Plan(event) => event.todo_list.iter().flatten().try_for_each(|step| {
                let text = self.policy.redact_text(&step.step).into_owned();
                self.print_note(plan_mark(step.status), Style::new().cyan(), &text)
            }),
            RunEvent::Turn(turn) if turn.phase == TurnPhase::Start => {
                (self.has_thought, self.has_text) = (false, false);
                Ok(())
            }
            // Output that was never printed needs no retraction.
            RunEvent::Turn(turn)
                if turn.phase == TurnPhase::Discarded && (self.has_thought || self.has_text) =>
            {
                self.print_sentence("↺", event)
            }
            RunEvent::Reflection(event) => {
                let text = self.policy.redact_thought(&event.text).into_owned();
                self.print_note("✎", Style::new().cyan(), &text)
            }
            RunEvent::Summarization(_)
            | RunEvent::Handoff(_)
            | RunEvent::Limit(_)
            | RunEvent::Gate(_)
            | RunEvent::Guardrail(_)
            | RunEvent::Subagent(_) => self.print_sentence("·", event),
            _ => Ok(()),
        }
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.line, LineContent::Empty) {
            LineContent::Empty => Ok(()),
            LineContent::Thought => {
                let rest = self.pieces.finish(|text| self.policy.redact_thought(text));
                write_stderr(&format!("{}\n", plain(&rest).dimmed()))
            }
            LineContent::Text => {
                let rest = self.pieces.finish(|text| self.policy.redact_text(text));
                write_out(format!("{}\n", plain(&rest)).as_bytes())
            }
        }
    }

    fn print_thought(&mut self, event: &ThoughtEvent) -> Result<()> {
        let text = event.text.as_deref().unwrap_or_default();
        let is_piece = event.phase == ThoughtPhase::Delta;
        let policy = &self.policy;
        if is_piece && !(policy.thinking_patterns.is_empty() && policy.secret_patterns.is_empty()) {
            // A configured pattern may match across pieces, so the whole thought is printed later.
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

    fn print_text(&mut self, text: &str) -> Result<()> {
        self.has_text = true;
        self.begin_line(LineContent::Text)?;
        let shown = self.pieces.push(text, |text| self.policy.redact_text(text));
        write_out(plain(&shown).as_bytes())
    }

    fn tool(&mut self, event: &ToolCallEvent) -> Result<()> {
        let (mark, style) = tool_mark(event.phase);
        let value = event.result.as_ref().or(event.args.as_ref());
        let value = value.map(|value| self.policy.redact_text(value.as_str()).into_owned());
        let problem = event.error.as_ref().map(|error| error.message.to_string());
        let about = problem.or(value).unwrap_or_default();
        self.print_note(mark, style, &format!("{} {about}", event.name))
    }

    fn print_sentence(&mut self, mark: &str, event: &RunEvent) -> Result<()> {
        let sentence = sentence(event, &self.policy).unwrap_or_default();
        self.print_note(mark, Style::new().yellow(), &sentence)
    }

    /// Ends the current line and prints a note on its own line of standard error.
    pub(crate) fn print_note(&mut self, mark: &str, style: Style, text: &str) -> Result<()> {
        self.end()?;
        let wide = width(std::io::stderr()).saturating_sub(2);
        write_stderr(&format!("{} {}\n", mark.style(style), one_line(&plain(text), wide)))
    }

    /// Starts a line of the given kind and returns the mark for its start. Returns an empty string
    /// if the current line already has this kind.
    fn begin_line(&mut self, line: LineContent) -> Result<String> {
        if self.line == line {
            return Ok(String::new());
        }
        self.end()?;
        self.line = line;
        Ok(format!("{} ", "∴".cyan()))
    }
}

/// Returns the symbol and colour for a phase of a tool call.
pub(crate) fn tool_mark(phase: ToolCallPhase) -> (&'static str, Style) {
    match phase {
        ToolCallPhase::Start => ("→", Style::new().magenta()),
        ToolCallPhase::Success => ("←", Style::new().magenta()),
        ToolCallPhase::Error => ("✗", Style::new().red()),
        ToolCallPhase::Skipped => ("⊘", Style::new().yellow()),
        ToolCallPhase::Progress => ("…", Style::new().magenta()),
    }
}

/// Returns the symbol for the status of a plan step.
pub(crate) fn plan_mark(status: PlanStepStatus) -> &'static str {
    match status.as_str() {
        "completed" => "☑",
        "in-progress" => "▶",
        "blocked" => "✗",
        _ => "☐",
    }
}
