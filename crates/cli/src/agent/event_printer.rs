//! Prints the events of a run live: the model's text on standard output, everything else on
//! standard error.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use owo_colors::{OwoColorize as _, Style};
use throughline_agent::sentence;
use throughline_json::Name;
use throughline_spec::{
    PlanStepStatus, RedactionPolicy, RunEvent, StreamRedactor, ThoughtEvent, ThoughtPhase,
    ToolCallEvent, ToolCallPhase, TurnPhase,
};

use crate::args::Format;
use crate::clock::instant;
use crate::print::failure::Result;
use crate::print::progress::StatusLine;
use crate::print::text::{elapsed, one_line, plain, width, write_out, write_stderr};
use crate::print::wrapper::WordWrapper;

/// Time after which the status line shows what the run waits for, and minimum duration of a tool
/// call that is printed with its result.
const LONG: Duration = Duration::from_secs(1);

/// A model or tool that the run waits for.
struct RunningCall {
    /// Id of the tool call; `None` for the model.
    id: Option<Name>,
    name: Name,
    started: Instant,
}

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
    /// Wraps thoughts on a terminal.
    wrapper: Option<WordWrapper>,
    /// Calls that have started and not ended, in the order of their start.
    running: Vec<RunningCall>,
    status: StatusLine,
}

impl EventPrinter {
    pub(crate) fn new(format: Format, policy: RedactionPolicy) -> Self {
        let (line, pieces) = (LineContent::Empty, StreamRedactor::default());
        let status = StatusLine::new(format);
        Self {
            format,
            policy,
            line,
            pieces,
            has_thought: false,
            has_text: false,
            wrapper: None,
            running: Vec::new(),
            status,
        }
    }

    /// Waits until the status line changes. Waits forever if there is no status line.
    pub(crate) async fn next_frame(&self) {
        self.status.next_frame().await;
    }

    /// Shows for how long the run has waited for its model or tools. A line of output that is not
    /// complete stays as it is.
    pub(crate) fn show_running(&mut self) {
        let Some(first) = self.running.first() else { return };
        let waited = first.started.elapsed();
        if self.line != LineContent::Empty || waited < LONG {
            return;
        }
        let names: Vec<&str> = self.running.iter().map(|call| &*call.name).collect();
        self.status.draw(&format!("{} {}", names.join(", "), elapsed(waited)));
    }

    /// Shows that another process owns the run, and when its lease expires.
    pub(crate) fn show_lease(&mut self, left: Duration) {
        if self.line == LineContent::Empty {
            self.status.draw(&format!(
                "another process owns this run; its lease expires in {} s unless it is renewed",
                left.as_secs() + 1
            ));
        }
    }

    pub(crate) fn print(&mut self, event: &RunEvent) -> Result<()> {
        if matches!(self.format, Format::Json) {
            let event = self.policy.redact_run_event(event);
            return write_out(format!("{}\n", event.as_str()).as_bytes());
        }
        self.status.clear();
        self.track(event);
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

    /// Updates the calls that the run waits for.
    fn track(&mut self, event: &RunEvent) {
        let started = instant();
        match event {
            RunEvent::Turn(turn) if turn.phase == TurnPhase::Start => {
                let name = turn.model.clone().unwrap_or_else(|| Name::from("the model"));
                self.running = vec![RunningCall { id: None, name, started }];
            }
            RunEvent::ToolCall(call) if call.phase == ToolCallPhase::Start => {
                self.running.retain(|running| running.id.is_some());
                let (id, name) = (call.id.clone(), call.name.clone());
                self.running.push(RunningCall { id, name, started });
            }
            RunEvent::ToolCall(call) if call.phase != ToolCallPhase::Progress => {
                self.running.retain(|running| running.id.is_some() && running.id != call.id);
            }
            // The model has started to answer.
            RunEvent::Thought(_) | RunEvent::Stream(_) => {
                self.running.retain(|running| running.id.is_some());
            }
            RunEvent::Turn(_) | RunEvent::Run(_) => self.running.clear(),
            _ => {}
        }
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        self.status.clear();
        match std::mem::replace(&mut self.line, LineContent::Empty) {
            LineContent::Empty => Ok(()),
            LineContent::Thought => {
                let rest = plain(&self.pieces.finish(|text| self.policy.redact_thought(text)));
                let rest = match self.wrapper.take() {
                    Some(mut wrapper) => wrapper.push(&rest) + &wrapper.finish(),
                    None => rest,
                };
                write_stderr(&format!("{}\n", rest.dimmed()))
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
            let shown = plain(&self.pieces.push(text, |text| self.policy.redact_thought(text)));
            let shown = match &mut self.wrapper {
                Some(wrapper) => wrapper.push(&shown),
                None => shown,
            };
            write_stderr(&format!("{mark}{}", shown.dimmed()))?;
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
        let took = event.duration_ms.as_ref().and_then(|number| number.as_str().parse().ok());
        let took = took.and_then(|took: f64| Duration::try_from_secs_f64(took / 1000.0).ok());
        let took = took.filter(|took| *took >= LONG).map(|took| format!("  {}", elapsed(took)));
        let text = format!("{} {about}", event.name);
        self.print_line(mark, style, &text, &took.unwrap_or_default())
    }

    fn print_sentence(&mut self, mark: &str, event: &RunEvent) -> Result<()> {
        let sentence = sentence(event, &self.policy).unwrap_or_default();
        self.print_note(mark, Style::new().yellow(), &sentence)
    }

    /// Ends the current line and prints a note on its own line of standard error.
    pub(crate) fn print_note(&mut self, mark: &str, style: Style, text: &str) -> Result<()> {
        self.print_line(mark, style, text, "")
    }

    /// Prints a note whose suffix is never truncated.
    fn print_line(&mut self, mark: &str, style: Style, text: &str, suffix: &str) -> Result<()> {
        self.end()?;
        let wide = width(std::io::stderr()).saturating_sub(2 + suffix.len());
        let (text, suffix) = (one_line(&plain(text), wide), suffix.dimmed().to_string());
        write_stderr(&format!("{} {text}{suffix}\n", mark.style(style)))
    }

    /// Starts a line of the given kind and returns the mark for its start. Returns an empty string
    /// if the current line already has this kind.
    fn begin_line(&mut self, line: LineContent) -> Result<String> {
        if self.line == line {
            return Ok(String::new());
        }
        self.end()?;
        self.line = line;
        let output = std::io::stderr();
        let is_wrapped = line == LineContent::Thought && output.is_terminal();
        self.wrapper = is_wrapped.then(|| WordWrapper::new(width(output), 2));
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
