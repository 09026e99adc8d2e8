//! Handles complete answers of a model.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, Item, ItemId, ItemPosition, ModelErrorKind, Reply, Seal, StopReason, ThoughtKind,
    ToolCall, Usage,
};
use throughline_json::{self as json, Json, Name, Number};
use throughline_spec::{
    FinalAnswerEvent, MemoryFact, MessageEvent, ReflectionUsage, ReplayEvent, RunEvent,
    SummarizationEvent, SummaryRecord, ThoughtEvent, ThoughtPhase, TurnEvent, TurnPhase,
    UsageEvent,
};

use crate::action::Refusal;
use crate::compact;
use crate::input::{FateCounts, ModelAnswer, ReplayCounts};
use crate::progress::{OpenCall, Phase, Purpose, RunStatus, Stage};
use crate::roster::schema_violations;
use crate::step::retry::InvalidAnswer;
use crate::step::{Step, StepResult};
use crate::tool::ToolAnswer;

impl Step {
    /// Handles a complete answer.
    pub(super) fn on_model_answered(&mut self, heard: ModelAnswer) -> StepResult {
        self.check_calling(heard.purpose)?;
        self.add_usage(&heard);
        if heard.reply.stop == StopReason::Cut {
            // A truncated answer is discarded as a whole.
            self.apply_gate(
                heard.purpose,
                ModelErrorKind::Transient,
                "the answer was truncated",
                None,
                heard.streamed,
            );
            return Ok(());
        }
        match heard.purpose {
            Purpose::Turn | Purpose::Final => self.on_turn_answer(heard),
            Purpose::Reflection => self.on_reflection(&heard),
            Purpose::Summary => self.on_summary(&heard),
        }
        Ok(())
    }

    pub(super) fn check_calling(&self, purpose: Purpose) -> StepResult {
        if self.state.progress.phase == (Phase::Asking { purpose }) {
            return Ok(());
        }
        let run = &self.state.progress.run;
        Err(Refusal::conflict(format!(
            "run {run} is not waiting for a model call of purpose {}",
            purpose.as_str()
        )))
    }

    /// Adds the usage of an answer, and emits usage and replay events.
    fn add_usage(&mut self, heard: &ModelAnswer) {
        let usage = &heard.reply.usage;
        self.state.progress.add_usage(&heard.reply.origin, usage, heard.cost);
        let spent = self.state.progress.spent;
        let total = Usage {
            input: spent.input,
            cached: spent.cached,
            output: spent.output,
            thought: spent.thought,
            written: 0,
        };
        let event = UsageEvent {
            model: Some(heard.reply.origin.answered.clone()),
            asked: Some(heard.reply.origin.asked.clone()),
            account: Some(heard.reply.origin.account.clone()),
            purpose: (heard.purpose != Purpose::Turn).then(|| heard.purpose.as_str().into()),
            usage: Some(usage_record(usage)),
            total: Some(usage_record(&total)),
            cost_usd: heard.cost.and_then(Number::from_f64),
            total_cost_usd: heard.cost.and_then(|_| Number::from_f64(spent.cost_usd)),
            ..UsageEvent::default()
        };
        self.emit(RunEvent::Usage(Box::new(event)));
        if heard.fates != ReplayCounts::default() {
            let event = replay_event(&heard.fates, self.state.progress.turn);
            self.emit(RunEvent::Replay(event));
        }
    }

    fn on_turn_answer(&mut self, heard: ModelAnswer) {
        let ModelAnswer { purpose, reply, streamed, .. } = heard;
        let has_calls = reply.items.iter().any(|item| item.call().is_some());
        let is_last = !has_calls && reply.stop != StopReason::Paused;
        if is_last && let Err((message, feedback)) = self.check_output(&text_of(&reply)) {
            let misfit = Some(InvalidAnswer { reply, feedback });
            return self.apply_gate(purpose, ModelErrorKind::Schema, &message, misfit, streamed);
        }
        self.accept_answer(purpose, reply);
    }

    /// Accepts an answer: appends its Items to the Thread and handles its tool calls.
    pub(super) fn accept_answer(&mut self, purpose: Purpose, reply: Reply) {
        self.on_gate_passed();
        let text = text_of(&reply);
        let items = self.adopt_items(reply.items);
        let calls: Vec<ToolCall> = items.iter().filter_map(Item::call).cloned().collect();
        self.emit_items(&items);
        let mut event = TurnEvent::new(TurnPhase::End, self.state.progress.turn);
        event.items = Some(items.iter().map(|item| item.id.0.clone()).collect());
        self.append_items(items);
        event.reason = Some(stop_name(&reply.stop));
        self.emit(RunEvent::Turn(event));
        if reply.stop == StopReason::Paused && calls.is_empty() {
            self.next();
        } else if calls.is_empty() {
            self.finish(&text, &reply.stop);
        } else {
            self.handle_tool_calls(&calls, purpose);
        }
    }

    /// Ends the run with the final answer.
    fn finish(&mut self, text: &str, stop: &StopReason) {
        self.emit(RunEvent::FinalAnswer(FinalAnswerEvent::new(text.into())));
        let reason: Name = match (&self.state.progress.breach, stop) {
            (Some(limit), _) => format!("limit reached: {limit}").into(),
            (None, StopReason::Length) => "the answer reached its token limit".into(),
            (None, StopReason::Refused(reason)) => format!("the model refused: {reason}").into(),
            (None, _) => "answered".into(),
        };
        self.end(RunStatus::Completed, reason);
    }

    /// Checks the final answer against the output contract; the error contains the problem and the
    /// feedback for the model.
    fn check_output(&self, text: &str) -> Result<(), (String, String)> {
        let Some(part) = self.state.current_agent() else { return Ok(()) };
        let Some(schema) = &part.output else { return Ok(()) };
        let failed = |problem: String| {
            let told = format!("{} What was wrong: {problem}", crate::gate::FEEDBACK);
            Err((problem, told))
        };
        let value = match serde_json::from_str::<serde_json::Value>(strip_code_fence(text)) {
            Ok(value) => value,
            Err(error) => return failed(format!("the answer is not JSON: {error}")),
        };
        let problems = schema_violations(schema, &value);
        if problems.is_empty() { Ok(()) } else { failed(problems.join("; ")) }
    }

    /// Assigns ids of this run, the next message number and this agent's identity to the Items of
    /// an answer.
    fn adopt_items(&mut self, mut items: Vec<Item>) -> Vec<Item> {
        let first = self.state.window.next;
        let who = self.state.current_agent().map(|part| part.config.identity()).unwrap_or_default();
        let mut renamed: HashMap<ItemId, ItemId> = HashMap::new();
        // These ids must come first and in order: the model call already emitted deltas under them.
        for item in &mut items {
            let id = ItemId(self.fresh_id("i"));
            renamed.insert(std::mem::replace(&mut item.id, id.clone()), id);
        }
        let author = Arc::new(who.clone());
        for item in &mut items {
            if !matches!(item.body, Body::Thought(_)) {
                item.author = Some(Arc::clone(&author));
            }
            item.place.message = item.place.message.saturating_add(first);
            match &mut item.body {
                Body::Thought(thought) => {
                    thought.identity = who.clone();
                    thought.set_recorded_at(self.at);
                }
                Body::Call(call) => {
                    if self.state.calls.contains(&call.id.0) {
                        call.id.0 = self.fresh_id("c");
                    }
                    self.state.calls.insert(call.id.0.clone());
                }
                Body::Text(_)
                | Body::Media(_)
                | Body::Result(_)
                | Body::Hosted(_)
                | Body::Compaction
                | Body::Summary { .. }
                | Body::Unknown => {}
            }
        }
        for seal in items.iter_mut().flat_map(|item| &mut item.seals) {
            if let Some(leads) = &mut seal.attached.leads
                && let Some(id) = renamed.get(leads)
            {
                *leads = id.clone();
            }
        }
        items
    }

    fn emit_items(&mut self, items: &[Item]) {
        let (turn, agent) = (self.state.progress.turn, self.state.progress.agent.clone());
        for item in items {
            match &item.body {
                Body::Thought(thought) => {
                    let mut event = ThoughtEvent::new(ThoughtPhase::End, turn);
                    event.text = (!thought.content.is_empty()).then(|| thought.content.clone());
                    event.id = Some(item.id.0.clone());
                    let sealed: usize = item.seals.iter().map(Seal::len).sum();
                    event.sealed_bytes = u64::try_from(sealed).ok().filter(|sealed| *sealed > 0);
                    event.summary = (thought.kind == ThoughtKind::Summary).then_some(true);
                    event.agent = Some(agent.clone());
                    self.emit(RunEvent::Thought(event));
                }
                Body::Text(text) if !text.is_empty() => {
                    let mut event = MessageEvent::new("assistant".into(), text.clone());
                    event.id = Some(item.id.0.clone());
                    self.emit(RunEvent::Message(event));
                }
                _ => {}
            }
        }
    }

    /// Handles the tool calls of an answer in order.
    fn handle_tool_calls(&mut self, calls: &[ToolCall], purpose: Purpose) {
        self.state.progress.answers_at = self.state.window.next;
        self.state.progress.calls = calls
            .iter()
            .map(|call| OpenCall {
                id: call.id.0.clone(),
                tool: call.name.clone(),
                stage: Stage::Queued,
                args: None,
                began: None,
            })
            .collect();
        if purpose == Purpose::Final {
            return self.reject_final_calls();
        }
        self.record_tools(calls);
        // A handoff runs last, because the current agent's rules apply to all calls of its answer.
        let part = self.state.current_agent();
        let is_handoff =
            |call: &ToolCall| part.is_some_and(|part| part.handoff(&call.name).is_some());
        let (handoffs, others): (Vec<usize>, Vec<usize>) =
            (0..calls.len()).partition(|place| calls.get(*place).is_some_and(is_handoff));
        for position in others.into_iter().chain(handoffs) {
            self.check_call(position);
        }
        self.continue_calls();
    }

    /// Ends the run if the model calls tools although its final answer may not contain any.
    fn reject_final_calls(&mut self) {
        for position in 0..self.state.progress.calls.len() {
            let answer = ToolAnswer::denied("Skipped: the limit of tool calls is reached.");
            self.skip(position, &answer);
        }
        self.state.progress.calls.clear();
        let limit = self.state.progress.breach.as_deref().unwrap_or("maxToolCalls");
        let reason = format!("limit reached: {limit}, and the model did not answer without tools");
        self.end(RunStatus::Failed, reason);
    }

    fn on_summary(&mut self, heard: &ModelAnswer) {
        let text = text_of(&heard.reply);
        let Some(before) = compact::covered_end(&self.state).filter(|_| !text.trim().is_empty())
        else {
            return self.on_summary_failed();
        };
        let earlier = self.state.smart.summary_records.as_ref().and_then(|records| records.last());
        let mut summary = compact::parse_summary(&text, earlier, self.at);
        let tokens_before = self.state.window.tokens();
        let covered = self.state.window.take_covered(before);
        self.store_facts(&summary.record);
        let words = compact::summary_text(&summary, &self.state, &covered);
        let id = self.fresh_id("i");
        let item = compact::summary_item(id, &words, &covered, self.state.window.summary.as_ref());
        summary.record.extras.push(compact::covers(&item, covered.len()));
        let behind = covered.iter().map(|kept| kept.seq).max().map_or(0, |last| last + 1);
        let from = self.state.window.items.first().map_or(behind, |kept| kept.seq);
        self.append_items(vec![item]);
        self.archive(&covered);
        let mut event = SummarizationEvent::new(summary.text.clone());
        event.messages_compressed = u64::try_from(covered.len()).ok();
        event.input_tokens = Some(heard.reply.usage.input);
        event.output_tokens = Some(heard.reply.usage.output);
        event.duration_ms = Some(Number::from(heard.took_ms));
        event.previous_summary = self.state.smart.summaries.iter().flatten().last().cloned();
        event.token_count_before = Some(tokens_before);
        event.token_count_after = Some(self.state.window.tokens());
        event.integrity.clone_from(&summary.record.integrity);
        event.structured_summary = Some(summary.record.clone());
        self.add("summaries", json::string(&summary.text));
        self.state.smart.summaries.get_or_insert_default().push(summary.text.clone());
        self.add("summaryRecords", summary.record.json());
        self.state.smart.summary_records.get_or_insert_default().push(summary.record);
        self.set_context("__contextFrom", Some(Json::from(from)));
        self.emit(RunEvent::Summarization(Box::new(event)));
        if self.state.progress.compacts {
            self.end(RunStatus::Completed, "summarised");
        } else {
            self.next();
        }
    }

    /// Stores the settled facts of a summary in memory.
    fn store_facts(&mut self, record: &SummaryRecord) {
        let known = self.state.smart.memory_facts.as_deref().unwrap_or_default();
        let facts = compact::merge_facts(known, record, self.state.progress.turn);
        if facts != known {
            let list = facts.iter().map(MemoryFact::json).collect::<Vec<_>>();
            self.set("memoryFacts", json::array_of(&list));
            self.state.smart.memory_facts = Some(facts);
        }
    }

    /// Continues without a summary while there is room. A compaction run fails.
    pub(super) fn on_summary_failed(&mut self) {
        if self.state.progress.compacts {
            return self.end(RunStatus::Failed, "the model wrote no summary");
        }
        self.state.progress.no_summary = true;
        self.next();
    }
}

fn replay_event(fates: &ReplayCounts, turn: u64) -> ReplayEvent {
    let FateCounts { kept, restored, reshaped, elided } = fates.thoughts;
    let pairs = |pairs: &[(&str, u64)]| {
        let some = pairs.iter().filter(|(_, count)| *count > 0);
        some.map(|(word, count)| (Name::from(*word), Json::from(*count))).collect::<Vec<_>>()
    };
    let seals = fates.seals;
    let seals = pairs(&[
        ("kept", seals.kept),
        ("restored", seals.restored),
        ("reshaped", seals.reshaped),
        ("elided", seals.elided),
    ]);
    let why: Vec<_> =
        fates.why.iter().map(|(why, count)| (why.clone(), Json::from(*count))).collect();
    let spans = json::array(|list| {
        for span in &fates.spans {
            list.array(|one| {
                one.string(&span.first).string(&span.did).number(span.count);
            });
        }
    });
    ReplayEvent {
        turn: Some(turn),
        kept: Some(kept),
        restored: (restored > 0).then_some(restored),
        reshaped: (reshaped > 0).then_some(reshaped),
        elided: (elided > 0).then_some(elided),
        why: (!why.is_empty()).then_some(why),
        seals: (!seals.is_empty()).then_some(seals),
        fates: (!fates.spans.is_empty()).then_some(spans),
        ..ReplayEvent::default()
    }
}

/// Converts usage to the documented form.
pub(super) fn usage_record(usage: &Usage) -> ReflectionUsage {
    ReflectionUsage {
        input_tokens: Some(usage.input),
        output_tokens: Some(usage.output),
        cached_input_tokens: (usage.cached > 0).then_some(usage.cached),
        total_tokens: Some(usage.total()),
        reasoning_tokens: (usage.thought > 0).then_some(usage.thought),
        ..ReflectionUsage::default()
    }
}

/// Returns the text of an answer without its Thoughts.
pub(super) fn text_of(reply: &Reply) -> String {
    let texts = reply.items.iter().filter_map(|item| match &item.body {
        Body::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("")
}

/// Strips a Markdown code fence around JSON.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).map_or(text, str::trim)
}

fn stop_name(stop: &StopReason) -> Name {
    Name::from(match stop {
        StopReason::Done => "done",
        StopReason::Tools => "tools",
        StopReason::Length => "length",
        StopReason::Sequence(_) => "stop sequence",
        StopReason::Paused => "paused",
        StopReason::Refused(_) => "refused",
        StopReason::Cut => "cut",
        StopReason::Other(word) => return word.clone(),
    })
}

/// Returns the place of a tool result in the conversation.
pub(super) fn result_place(answers_at: u32, position: usize) -> ItemPosition {
    ItemPosition { message: answers_at, part: u32::try_from(position).unwrap_or(u32::MAX) }
}
