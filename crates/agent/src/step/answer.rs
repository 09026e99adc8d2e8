//! Handles complete answers from a model.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, Item, ItemId, ItemPosition, ModelErrorKind, ReasoningSource, Reply, Role, Seal,
    StopReason, ThoughtKind, ToolCall, Usage,
};
use throughline_json::{self as json, Json, Name, Number};
use throughline_spec::{
    FinalAnswerEvent, MemoryFact, ReflectionUsage, RunEvent, SummarizationEvent, SummaryRecord,
    ThoughtEvent, ThoughtPhase, TurnEvent, TurnPhase, UsageEvent,
};

use crate::action::{Action, Refusal};
use crate::compact;
use crate::input::ModelAnswer;
use crate::progress::{OpenCall, Phase, Progress, Purpose, RunStatus, Stage, UsageTotals, item_id};
use crate::roster::check_schema;
use crate::state::strip_code_fence;
use crate::step::{Step, StepResult};

impl Step {
    pub(super) fn on_model_answered(&mut self, answer: ModelAnswer) -> StepResult {
        self.check_calling(answer.purpose)?;
        self.add_usage(&answer);
        if answer.purpose.is_turn() && answer.reply.stop != StopReason::Cut {
            self.mark_answers_delivered();
        }
        match answer.purpose {
            // A truncated answer is discarded as a whole.
            purpose if answer.reply.stop == StopReason::Cut => {
                let (kind, problem) = (ModelErrorKind::Transient, "the response was truncated");
                self.apply_gate(purpose, kind, problem, None, answer.streamed);
            }
            Purpose::Turn | Purpose::Final => self.on_turn_answer(answer),
            Purpose::Reflection => self.on_reflection(&answer),
            Purpose::Summary => self.on_summary(&answer),
        }
        Ok(())
    }

    pub(super) fn check_calling(&self, purpose: Purpose) -> StepResult {
        if self.state.progress.phase == (Phase::Asking { purpose }) {
            return Ok(());
        }
        let run = &self.state.progress.run;
        let problem = format!("run {run} is not waiting for a model call of purpose {purpose}");
        Err(Refusal::conflict(problem))
    }

    /// Adds the usage of an answer to the totals, and emits usage and replay events.
    fn add_usage(&mut self, answer: &ModelAnswer) {
        let usage = &answer.reply.usage;
        self.state.progress.add_usage(&answer.reply.origin, usage, answer.cost);
        let UsageTotals { input, cached, output, thought, cost_usd } = self.state.progress.spent;
        let total = Usage { input, cached, output, thought, written: 0 };
        let event = UsageEvent {
            model: Some(answer.reply.origin.answered.clone()),
            asked: Some(answer.reply.origin.asked.clone()),
            account: Some(answer.reply.origin.account.clone()),
            purpose: (answer.purpose != Purpose::Turn).then(|| answer.purpose.as_str().into()),
            usage: Some(usage_record(usage)),
            total: Some(usage_record(&total)),
            cost_usd: answer.cost.and_then(Number::from_f64),
            total_cost_usd: answer.cost.and_then(|_| Number::from_f64(cost_usd)),
            ..UsageEvent::default()
        };
        self.emit(RunEvent::Usage(Box::new(event)));
        self.actions
            .extend(answer.replay.clone().map(|event| Action::Tell(RunEvent::Replay(event))));
    }

    fn on_turn_answer(&mut self, answer: ModelAnswer) {
        let ModelAnswer { purpose, reply, streamed, .. } = answer;
        let has_calls = reply.items.iter().any(|item| item.call().is_some());
        let is_last = !has_calls && reply.stop != StopReason::Paused;
        if is_last && let Err(problem) = self.check_output(&text_of(&reply)) {
            let kind = ModelErrorKind::Schema;
            return self.apply_gate(purpose, kind, &problem, Some(reply), streamed);
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

    /// Emits the final answer and ends the run.
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

    /// Validates the final answer against the agent's output schema.
    fn check_output(&self, text: &str) -> Result<(), String> {
        let schema = self.state.current_agent().and_then(|part| part.output.as_ref());
        let Some(schema) = schema else { return Ok(()) };
        let value = serde_json::from_str(strip_code_fence(text))
            .map_err(|error| format!("the answer is not JSON: {error}"))?;
        check_schema(schema, &value)
    }

    /// Assigns run-specific ids, the next message number and the agent's identity to the Items of
    /// an answer.
    fn adopt_items(&mut self, mut items: Vec<Item>) -> Vec<Item> {
        let first = self.state.window.next;
        let identity =
            self.state.current_agent().map(|part| part.config.identity()).unwrap_or_default();
        let mut renamed: HashMap<ItemId, ItemId> = HashMap::new();
        // These ids must be generated first and in order, because deltas were already emitted under
        // them.
        let discarded = std::mem::take(&mut self.state.progress.discarded);
        for item in &mut items {
            self.state.progress.ids += 1;
            let Progress { run, ids, .. } = &self.state.progress;
            let id = ItemId(item_id(run, *ids, discarded));
            renamed.insert(std::mem::replace(&mut item.id, id.clone()), id);
        }
        let author = Arc::new(identity.clone());
        for item in &mut items {
            item.place.message = item.place.message.saturating_add(first);
            if !matches!(item.body, Body::Thought(_)) {
                item.author = Some(Arc::clone(&author));
            }
            match &mut item.body {
                Body::Thought(thought) => {
                    thought.identity = identity.clone();
                    thought.set_recorded_at(self.at);
                }
                Body::Call(call) => {
                    if self.state.calls.contains(&call.id.0) {
                        call.id.0 = self.fresh_id("c");
                    }
                    self.state.calls.insert(call.id.0.clone());
                }
                _ => {}
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
                    let is_prompted = thought.source == ReasoningSource::NonReasonerModel;
                    event.source = is_prompted.then_some(thought.source);
                    event.agent = Some(agent.clone());
                    self.emit(RunEvent::Thought(event));
                }
                Body::Text(text) if !text.is_empty() => {
                    self.emit_message("assistant", text, Some(&item.id));
                }
                _ => {}
            }
        }
    }

    /// Queues and checks the tool calls of an answer, in order.
    fn handle_tool_calls(&mut self, calls: &[ToolCall], purpose: Purpose) {
        self.state.progress.answers_at = self.state.window.next;
        let queued = |call: &ToolCall| {
            let (id, tool) = (call.id.0.clone(), call.name.clone());
            OpenCall { id, tool, stage: Stage::Queued, args: None, began: None }
        };
        self.state.progress.calls = calls.iter().map(queued).collect();
        if purpose == Purpose::Final {
            return self.reject_final_calls();
        }
        self.record_tools(calls);
        // Handoffs are handled last, because the current agent's rules apply to all calls of its
        // answer.
        let (handoffs, others): (Vec<_>, Vec<_>) =
            calls.iter().enumerate().partition(|(_, call)| self.is_handoff(call));
        for (position, _) in others.into_iter().chain(handoffs) {
            self.check_call(position);
        }
        self.continue_calls();
    }

    pub(super) fn is_handoff(&self, call: &ToolCall) -> bool {
        self.state.current_agent().is_some_and(|part| part.handoff(&call.name).is_some())
    }

    /// Fails the run, because the model called tools although only a final answer was allowed.
    fn reject_final_calls(&mut self) {
        for position in 0..self.state.progress.calls.len() {
            self.skip(position);
        }
        self.state.progress.calls.clear();
        let limit = self.state.progress.breach.as_deref().unwrap_or("maxToolCalls");
        let reason = format!("limit reached: {limit}, and the model did not answer without tools");
        self.end(RunStatus::Failed, reason);
    }

    fn on_summary(&mut self, answer: &ModelAnswer) {
        let text = text_of(&answer.reply);
        let Some(before) = compact::covered_end(&self.state).filter(|_| !text.trim().is_empty())
        else {
            return self.on_summary_failed();
        };
        let earlier = self.state.smart.summary_records.as_ref().and_then(|records| records.last());
        let mut summary = compact::parse_summary(&text, earlier, self.at);
        let tokens_before = self.state.window.tokens();
        let covered = self.state.window.take_covered(before);
        self.store_facts(&summary.record);
        let replacement = compact::summary_text(&summary, &self.state, &covered);
        let covers = compact::covered_range(&covered, self.state.window.summary.as_ref());
        summary.record.extras.push(compact::covers_member(&covers, covered.len()));
        let from = self.state.window.items.first().map_or(covers.end, |entry| entry.seq);
        let place = covered.first().map_or(ItemPosition::default(), |entry| entry.item.place);
        let body = Body::Summary { text: replacement.into(), covers };
        let id = ItemId(self.fresh_id("i"));
        self.append_items(vec![Item::new(id, place, Role::User, body)]);
        self.archive(&covered);
        let mut event = SummarizationEvent::new(summary.text.clone());
        event.messages_compressed = u64::try_from(covered.len()).ok();
        event.input_tokens = Some(answer.reply.usage.input);
        event.output_tokens = Some(answer.reply.usage.output);
        event.duration_ms = Some(Number::from(answer.took_ms));
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

    /// Merges the stable facts of a summary into the stored memory.
    fn store_facts(&mut self, record: &SummaryRecord) {
        let existing = self.state.smart.memory_facts.as_deref().unwrap_or_default();
        let facts = compact::merge_facts(existing, record, self.state.progress.turn);
        if facts != existing {
            let list = facts.iter().map(MemoryFact::json).collect::<Vec<_>>();
            self.set("memoryFacts", json::array_of(&list));
            self.state.smart.memory_facts = Some(facts);
        }
    }

    /// Continues without a summary. A run that exists only to write a summary fails instead.
    pub(super) fn on_summary_failed(&mut self) {
        if self.state.progress.compacts {
            return self.end(RunStatus::Failed, "the model wrote no summary");
        }
        self.state.progress.no_summary = true;
        self.next();
    }
}

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

/// Returns the text of an answer, without Thoughts.
pub(super) fn text_of(reply: &Reply) -> String {
    let texts = reply.items.iter().filter_map(|item| match &item.body {
        Body::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
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
        StopReason::Other(name) => return name.clone(),
    })
}
