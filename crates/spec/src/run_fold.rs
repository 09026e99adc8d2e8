//! Folds a run's events into turns, attempts per turn, and counts of the Thoughts' Fates.
//!
//! The console, traces and the thought map all use [`RunFold`], so they show the same numbers.
//!
//! An attempt is one model call. A turn has several attempts if the gate retries the call, or if a
//! process dies during the call and another process takes over. Older Journals have no `turn start`
//! for resumed attempts. In these Journals, the first answer event after `turn discarded` implies
//! the missing start.

#[cfg(test)]
#[path = "run_fold_tests.rs"]
mod run_fold_tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use throughline_json::{self as json, Name};

use crate::run_event::{
    ReplayEvent, RunEvent, ThoughtEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase, TurnEvent,
    TurnPhase,
};

/// Counts over all events of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The number of the last turn.
    pub turns: u64,
    /// Number of model calls, except calls for reflections and summaries.
    pub attempts: u64,
    /// Attempts whose answer was discarded.
    pub discarded: u64,
    /// Tool calls that were started.
    pub tools: u64,
    /// Thoughts in accepted answers.
    pub thoughts: u64,
    /// The total size in bytes of the Seals on Thoughts in accepted answers.
    pub sealed_bytes: u64,
    /// Thoughts sent back unchanged, summed over all model calls.
    pub kept: u64,
    /// Thoughts that were restored, summed over all model calls.
    pub restored: u64,
    /// Thoughts sent back in another form, summed over all model calls.
    pub reshaped: u64,
    /// Thoughts that were left out, summed over all model calls.
    pub elided: u64,
}

impl RunCounts {
    /// Writes the members `turns`, `attempts`, `discarded`, `tools` and `thoughts`.
    pub fn write_members(&self, o: &mut json::Object<'_>) {
        o.number("turns", self.turns).number("attempts", self.attempts);
        o.number("discarded", self.discarded).number("tools", self.tools);
        o.object("thoughts", |o| {
            o.number("received", self.thoughts).number("sealed_bytes", self.sealed_bytes);
            o.number("kept", self.kept).number("restored", self.restored);
            o.number("reshaped", self.reshaped).number("elided", self.elided);
        });
    }
}

/// One model call in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The turn, counted from 1.
    pub turn: u64,
    /// The number of this attempt within its turn, counted from 1.
    pub number: u64,
    /// When the call started.
    pub start: Timestamp,
    /// The requested model; `None` if the Journal does not name it.
    pub model: Option<Name>,
    /// The purpose of the call: `reflection`, `summary` or `final`. Absent for a regular step of
    /// the run.
    pub purpose: Option<Name>,
}

impl Attempt {
    fn new(at: Timestamp, event: &TurnEvent) -> Self {
        let (model, purpose) = (event.model.clone(), event.purpose.clone());
        Self { turn: event.turn, number: 1, start: at, model, purpose }
    }

    /// Returns whether the call is for a reflection or a summary. Calls for these purposes have no
    /// `turn end` event.
    pub fn is_side_call(&self) -> bool {
        self.purpose.as_deref().is_some_and(|purpose| matches!(purpose, "reflection" | "summary"))
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The answer was accepted.
    Accepted,
    /// The answer was discarded.
    Discarded,
    /// The attempt's end event is missing from the Journal, but a later event implies that the call
    /// is over.
    Left,
}

/// How one event changed a run's attempts. The changes apply in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptChange {
    /// The attempt that was open before this event and whose end event is missing.
    pub left: Option<Attempt>,
    /// The attempt that this event starts: explicitly with `turn start`, or implicitly if the start
    /// event is missing.
    pub opened: Option<Attempt>,
    /// The attempt that this event ends.
    pub ended: Option<(Attempt, AttemptEnd)>,
}

/// Folds the events of one run. The events must be pushed in Journal order.
#[derive(Clone, Debug, Default)]
pub struct RunFold {
    counts: RunCounts,
    models: Vec<Name>,
    open: Option<Attempt>,
    /// The last discarded attempt. If an answer event follows without a start event, it belongs to
    /// a new attempt at the same call.
    repeatable: Option<Attempt>,
    /// The last attempt. Its number determines the number of the next attempt in the same turn.
    last: Option<Attempt>,
    /// The ids of tool calls that have started but not ended. A restarted call counts only once.
    started: BTreeSet<Name>,
}

impl RunFold {
    /// Returns the counts over all events so far.
    pub fn counts(&self) -> RunCounts {
        self.counts
    }

    /// Returns the requested models in the order of their first call.
    pub fn models(&self) -> &[Name] {
        &self.models
    }

    /// Returns the attempt in progress, if any.
    pub fn open(&self) -> Option<&Attempt> {
        self.open.as_ref()
    }

    /// Records that the events at this position were erased, so the outcome of the open attempt is
    /// unknown.
    pub fn skip_erased(&mut self) {
        self.open = None;
        self.repeatable = None;
    }

    /// Folds the next event. Stream pieces may be omitted, because they do not affect the counts.
    pub fn push(&mut self, at: Timestamp, event: &RunEvent) -> AttemptChange {
        match event {
            RunEvent::Turn(event) => self.turn(at, event),
            RunEvent::Thought(event) => {
                self.thought(event);
                self.answer()
            }
            RunEvent::Stream(_) | RunEvent::Usage(_) => self.answer(),
            RunEvent::Replay(event) => {
                self.replay(event);
                self.answer()
            }
            RunEvent::ToolCall(event) => {
                self.tool(event);
                AttemptChange::default()
            }
            RunEvent::Run(_) => {
                self.repeatable = None;
                AttemptChange { left: self.open.take(), ..AttemptChange::default() }
            }
            RunEvent::Gate(_) | RunEvent::Limit(_) => {
                // The gate writes a start event for each retry, and no attempt is repeated after a
                // limit.
                self.repeatable = None;
                AttemptChange::default()
            }
            RunEvent::Reflection(_) | RunEvent::Summarization(_) => {
                let left = self.open.take_if(|open| open.is_side_call());
                AttemptChange { left, ..AttemptChange::default() }
            }
            RunEvent::ToolApproval(_)
            | RunEvent::UserQuestion(_)
            | RunEvent::Plan(_)
            | RunEvent::FinalAnswer(_)
            | RunEvent::Metadata(_)
            | RunEvent::Handoff(_)
            | RunEvent::Guardrail(_)
            | RunEvent::Progress(_)
            | RunEvent::Cancelled(_)
            | RunEvent::Subagent(_)
            | RunEvent::Message(_)
            | RunEvent::Unknown(_) => AttemptChange::default(),
        }
    }

    fn turn(&mut self, at: Timestamp, event: &TurnEvent) -> AttemptChange {
        self.counts.turns = self.counts.turns.max(event.turn);
        if event.phase == TurnPhase::Start {
            let left = self.open.take();
            let opened = self.begin(Attempt::new(at, event));
            return AttemptChange { left, opened: Some(opened), ended: None };
        }
        let mut change = self.answer();
        if self.open.is_none() && event.phase == TurnPhase::End {
            // The start event was erased.
            change.opened = Some(self.begin(Attempt::new(at, event)));
        }
        // A turn that is discarded before the model call has no attempt.
        let Some(attempt) = self.open.take() else { return change };
        let end = match event.phase {
            TurnPhase::Start | TurnPhase::End => AttemptEnd::Accepted,
            TurnPhase::Discarded => {
                self.counts.discarded += u64::from(!attempt.is_side_call());
                self.repeatable = Some(Attempt { start: at, ..attempt.clone() });
                AttemptEnd::Discarded
            }
        };
        change.ended = Some((attempt, end));
        change
    }

    fn begin(&mut self, mut attempt: Attempt) -> Attempt {
        self.repeatable = None;
        let models = &mut self.models;
        models.extend(attempt.model.clone().filter(|model| !models.contains(model)));
        if !attempt.is_side_call() {
            let before = self.last.as_ref().filter(|last| last.turn == attempt.turn);
            attempt.number = before.map_or(1, |last| last.number + 1);
            self.counts.attempts += 1;
            self.last = Some(attempt.clone());
        }
        self.open = Some(attempt.clone());
        attempt
    }

    /// Handles an answer event. If the last attempt was discarded and none was started since, the
    /// answer event implies a new attempt.
    fn answer(&mut self) -> AttemptChange {
        let repeated = self.repeatable.take().filter(|_| self.open.is_none());
        let opened = repeated.map(|attempt| self.begin(attempt));
        AttemptChange { opened, ..AttemptChange::default() }
    }

    fn thought(&mut self, event: &ThoughtEvent) {
        if event.phase == ThoughtPhase::End {
            self.counts.thoughts += 1;
            self.counts.sealed_bytes += event.sealed_bytes.unwrap_or(0);
        }
    }

    fn replay(&mut self, event: &ReplayEvent) {
        self.counts.kept += event.kept.unwrap_or(0);
        self.counts.restored += event.restored.unwrap_or(0);
        self.counts.reshaped += event.reshaped.unwrap_or(0);
        self.counts.elided += event.elided.unwrap_or(0);
    }

    fn tool(&mut self, event: &ToolCallEvent) {
        match event.phase {
            ToolCallPhase::Start => {
                let is_new = event.id.clone().is_none_or(|id| self.started.insert(id));
                self.counts.tools += u64::from(is_new);
            }
            ToolCallPhase::Progress => {}
            ToolCallPhase::Success | ToolCallPhase::Error | ToolCallPhase::Skipped => {
                if let Some(id) = &event.id {
                    self.started.remove(id);
                }
            }
        }
    }
}
