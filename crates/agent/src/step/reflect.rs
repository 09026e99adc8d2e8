//! Handles reflections: notes about recent results, outside the conversation. A failed reflection
//! never fails the run.

use std::collections::BTreeSet;

use throughline_core::ToolCall;
use throughline_json::{Name, Number};
use throughline_spec::{Cadence, ReflectionEvent, ReflectionRecord, RunEvent};

use crate::input::ModelAnswer;
use crate::progress::Purpose;
use crate::step::Step;
use crate::step::answer::{text_of, usage_record};
use crate::step::next::to_f64;

impl Step {
    pub(super) fn record_tools(&mut self, calls: &[ToolCall]) {
        let reflected = &mut self.state.progress.reflected;
        reflected.before = std::mem::take(&mut reflected.tools);
        let names: BTreeSet<Name> = calls.iter().map(|call| call.name.clone()).collect();
        reflected.tools = names.into_iter().collect();
        reflected.calls = calls.iter().map(|call| call.id.0.clone()).collect();
        reflected.tool_turns += 1;
        reflected.seen = false;
    }

    /// Reports the tool-call limit if it is reached. Otherwise, requests a reflection if one is
    /// due, or continues the run.
    pub(super) fn after_tools(&mut self) {
        let limit = self.state.current_agent().and_then(|part| part.limits.max_tool_calls);
        let used = self.state.progress.tool_calls;
        if self.state.progress.breach.is_none()
            && let Some(limit) = limit.filter(|limit| used >= *limit)
        {
            self.report_limit("maxToolCalls", to_f64(limit), to_f64(used));
        } else if self.is_reflection_due() {
            // Count the reflection before it is requested, so that failed ones count towards the
            // limit, too.
            let reflected = &mut self.state.progress.reflected;
            reflected.seen = true;
            reflected.count += 1;
            reflected.last = Some(reflected.tool_turns);
            self.call_model(Purpose::Reflection);
        } else {
            self.next();
        }
    }

    fn is_reflection_due(&self) -> bool {
        let Some(config) = self.state.reflection() else { return false };
        let reflected = &self.state.progress.reflected;
        let is_called_for = match config.cadence {
            Cadence::Off => false,
            Cadence::EveryTurn | Cadence::AfterTool => true,
            Cadence::OnBranch => reflected.tools != reflected.before,
        };
        let is_allowed = config.max_per_run.is_none_or(|limit| reflected.count < limit);
        let turns = reflected.tool_turns;
        let since = reflected.last.map_or(u64::MAX, |last| turns.saturating_sub(last));
        !reflected.seen && is_called_for && is_allowed && since >= config.every_n_turns.max(1)
    }

    pub(super) fn on_reflection(&mut self, answer: &ModelAnswer) {
        let Some(config) = self.state.reflection().cloned() else { return self.next() };
        let text = truncate_note(text_of(&answer.reply).trim(), config.max_chars);
        let text = self.truncate_tokens(text, config.max_tokens);
        let previous = self.state.smart.reflections.iter().flatten().last();
        let is_new = previous.is_none_or(|previous| !is_similar(&previous.text, &text));
        if !text.is_empty() && is_new {
            let (id, turn, now) = (self.fresh_id("r"), self.state.progress.turn, self.now());
            let mut record = ReflectionRecord::new(id, turn, Name::from(text), now);
            record.duration_ms = Some(Number::from(answer.took_ms));
            record.anchor_message_index = u64::from(self.state.window.next).checked_sub(1);
            record.trigger = Some(config.cadence);
            record.usage = Some(usage_record(&answer.reply.usage));
            record.tool_call_ids = Some(self.state.progress.reflected.calls.clone());
            if config.emit_events {
                let mut event =
                    ReflectionEvent::new(record.id.clone(), record.turn, record.text.clone());
                event.trigger = record.trigger;
                event.duration_ms.clone_from(&record.duration_ms);
                event.usage.clone_from(&record.usage);
                event.tool_call_ids.clone_from(&record.tool_call_ids);
                self.emit(RunEvent::Reflection(event));
            }
            self.add("reflections", record.json());
            self.state.smart.reflections.get_or_insert_default().push(record);
        }
        self.next();
    }

    /// Truncates a note to `maxTokens`, as counted by the run's token counter. The provider's
    /// output limit also covers native reasoning, so it does not bound the note itself.
    fn truncate_tokens(&self, text: String, max_tokens: u64) -> String {
        if self.state.cast.tokens(&text) <= max_tokens {
            return text;
        }
        let ends: Vec<usize> = text.char_indices().map(|(end, _)| end).collect();
        let short = |end: usize| format!("{}…", text.get(..end).unwrap_or_default().trim_end());
        let fits = |end: &usize| self.state.cast.tokens(&short(*end)) <= max_tokens;
        let count = ends.partition_point(fits);
        count
            .checked_sub(1)
            .and_then(|last| ends.get(last))
            .map_or_else(String::new, |end| short(*end))
    }
}

fn truncate_note(text: &str, max_chars: u64) -> String {
    let max_chars = usize::try_from(max_chars).unwrap_or(usize::MAX);
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default().trim_end()),
        None => text.to_owned(),
    }
}

/// Returns whether two notes share at least 90 % of their words.
fn is_similar(one: &str, other: &str) -> bool {
    let words = |text: &str| -> BTreeSet<String> {
        text.split_whitespace().map(str::to_lowercase).collect()
    };
    let (one, other) = (words(one), words(other));
    let (same, all) = (one.intersection(&other).count(), one.union(&other).count());
    all > 0 && same * 10 >= all * 9
}
