//! A model answered.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, FinalAnswerEvent, Item, ItemId, Json, MemoryFact, MessageEvent, Name, Number, Outcome,
    Place, ReflectionUsage, ReplayEvent, Reply, RunEvent, Seal, Stop, SummarizationEvent,
    SummaryRecord, ThoughtEvent, ThoughtKind, ThoughtPhase, ToolCall, Trouble, TurnEvent,
    TurnPhase, Usage, UsageEvent, json,
};

use crate::action::Refusal;
use crate::cast::problems;
use crate::compact;
use crate::input::{Counted, Heard, Replayed};
use crate::progress::{OpenCall, Phase, Purpose, RunStatus, Stage};
use crate::step::trial::Misfit;
use crate::step::{Done, Step};
use crate::tool::ToolAnswer;

impl Step {
    /// A model answered.
    pub(super) fn answered(&mut self, heard: Heard) -> Done {
        self.must_be_asking(heard.purpose)?;
        self.spend(&heard);
        if heard.reply.stop == Stop::Cut {
            // It is thrown away whole.
            self.try_again(
                heard.purpose,
                Trouble::Transient,
                "the answer was cut off",
                None,
                heard.streamed,
            );
            return Ok(());
        }
        match heard.purpose {
            Purpose::Turn | Purpose::Final => self.turn(heard),
            Purpose::Reflection => self.reflected(&heard),
            Purpose::Summary => self.summarised(&heard),
        }
        Ok(())
    }

    pub(super) fn must_be_asking(&self, purpose: Purpose) -> Done {
        if self.state.progress.phase == (Phase::Asking { purpose }) {
            return Ok(());
        }
        let run = &self.state.progress.run;
        Err(Refusal::conflict(format!("run {run} asked no model for a {}", purpose.as_str())))
    }

    /// Counts what an answer cost, and tells it; and what became of what was sent for it.
    fn spend(&mut self, heard: &Heard) {
        let usage = &heard.reply.usage;
        self.state.progress.spend(&heard.reply.origin, usage, heard.cost);
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
            usage: Some(tokens(usage)),
            total: Some(tokens(&total)),
            cost_usd: heard.cost.and_then(Number::of),
            total_cost_usd: heard.cost.and_then(|_| Number::of(spent.cost_usd)),
            ..UsageEvent::default()
        };
        self.tell(RunEvent::Usage(Box::new(event)));
        if heard.fates != Replayed::default() {
            let event = replayed(&heard.fates, self.state.progress.turn);
            self.tell(RunEvent::Replay(event));
        }
    }

    fn turn(&mut self, heard: Heard) {
        let Heard { purpose, reply, streamed, .. } = heard;
        let has_calls = reply.items.iter().any(|item| item.call().is_some());
        let is_last = !has_calls && reply.stop != Stop::Paused;
        if is_last && let Err((message, feedback)) = self.fits_contract(&text_of(&reply)) {
            let misfit = Some(Misfit { reply, feedback });
            self.try_again(purpose, Trouble::Schema, &message, misfit, streamed);
            return;
        }
        self.take(purpose, reply);
    }

    /// An answer is taken: it is the Thread's from now on, and what it asks for is done.
    pub(super) fn take(&mut self, purpose: Purpose, reply: Reply) {
        self.passed();
        let text = text_of(&reply);
        let items = self.adopt(reply.items);
        let calls: Vec<ToolCall> = items.iter().filter_map(Item::call).cloned().collect();
        self.tell_of(&items);
        let mut event = TurnEvent::new(TurnPhase::End, self.state.progress.turn);
        event.items = Some(items.iter().map(|item| item.id.0.clone()).collect());
        self.keep(items);
        event.reason = Some(word_of(&reply.stop));
        self.tell(RunEvent::Turn(event));
        if reply.stop == Stop::Paused && calls.is_empty() {
            self.next();
        } else if calls.is_empty() {
            self.finish(&text, &reply.stop);
        } else {
            self.propose(&calls, purpose);
        }
    }

    /// The agent's last answer is here.
    fn finish(&mut self, text: &str, stop: &Stop) {
        self.tell(RunEvent::FinalAnswer(FinalAnswerEvent::new(text.into())));
        let reason: Name = match (&self.state.progress.breach, stop) {
            (Some(limit), _) => format!("limit reached: {limit}").into(),
            (None, Stop::Length) => "the answer reached the limit of its tokens".into(),
            (None, Stop::Refused(reason)) => format!("the model refused: {reason}").into(),
            (None, _) => "answered".into(),
        };
        self.end(RunStatus::Completed, reason);
    }

    /// Whether the text is what the agent's last answer must be; else what is wrong, and what the model is told.
    fn fits_contract(&self, text: &str) -> Result<(), (String, String)> {
        let Some(part) = self.state.part() else { return Ok(()) };
        let Some(schema) = &part.output else { return Ok(()) };
        let failed = |problem: String| {
            let told = format!("{} What was wrong: {problem}", crate::gate::FEEDBACK);
            Err((problem, told))
        };
        let value = match serde_json::from_str::<serde_json::Value>(unfenced(text)) {
            Ok(value) => value,
            Err(error) => return failed(format!("the answer is not JSON: {error}")),
        };
        let problems = problems(schema, &value);
        if problems.is_empty() { Ok(()) } else { failed(problems.join("; ")) }
    }

    /// Makes an answer's Items the Thread's own: with ids of this run, behind the last message, by this agent.
    fn adopt(&mut self, mut items: Vec<Item>) -> Vec<Item> {
        let first = self.state.window.next;
        let who = self.state.part().map(|part| part.config.identity()).unwrap_or_default();
        let mut renamed: HashMap<ItemId, ItemId> = HashMap::new();
        // These ids come first and one by one: whoever asked knew them, and told the pieces under them.
        for item in &mut items {
            let id = ItemId(self.fresh("i"));
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
                    thought.record_at(self.at);
                }
                Body::Call(call) => {
                    if self.state.calls.contains(&call.id.0) {
                        call.id.0 = self.fresh("c");
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

    fn tell_of(&mut self, items: &[Item]) {
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
                    self.tell(RunEvent::Thought(event));
                }
                Body::Text(text) if !text.is_empty() => {
                    let mut event = MessageEvent::new("assistant".into(), text.clone());
                    event.id = Some(item.id.0.clone());
                    self.tell(RunEvent::Message(event));
                }
                _ => {}
            }
        }
    }

    /// The model wants tools. Each call is looked at in its order.
    fn propose(&mut self, calls: &[ToolCall], purpose: Purpose) {
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
            self.refuse_last_calls();
            return;
        }
        self.note_tools(calls);
        // All that an agent calls is judged by what it may do itself: so it hands over last.
        let part = self.state.part();
        let is_handoff =
            |call: &ToolCall| part.is_some_and(|part| part.handoff(&call.name).is_some());
        let (handoffs, others): (Vec<usize>, Vec<usize>) =
            (0..calls.len()).partition(|place| calls.get(*place).is_some_and(is_handoff));
        for position in others.into_iter().chain(handoffs) {
            self.consider(position);
        }
        self.go_on();
    }

    /// The model was asked for a last answer without tools, and calls some all the same: that is the end.
    fn refuse_last_calls(&mut self) {
        for position in 0..self.state.progress.calls.len() {
            let answer = ToolAnswer {
                outcome: Outcome::Denied,
                ..ToolAnswer::error("Skipped: the limit of tool calls is reached.")
            };
            self.skip(position, &answer);
        }
        self.state.progress.calls.clear();
        let limit = self.state.progress.breach.as_deref().unwrap_or("maxToolCalls");
        let reason =
            format!("limit reached: {limit}, and the model would not answer without tools");
        self.end(RunStatus::Failed, reason);
    }

    fn summarised(&mut self, heard: &Heard) {
        let text = text_of(&heard.reply);
        let Some(before) = compact::due(&self.state).filter(|_| !text.trim().is_empty()) else {
            self.no_summary();
            return;
        };
        let earlier = self.state.smart.summary_records.as_ref().and_then(|records| records.last());
        let mut summary = compact::read(&text, earlier, self.at);
        let tokens_before = self.state.window.tokens();
        let covered = self.state.window.cover(before);
        self.remember(&summary.record);
        let words = compact::words(&summary, &self.state, &covered);
        let id = self.fresh("i");
        let item = compact::item(id, &words, &covered, self.state.window.summary.as_ref());
        summary.record.extras.push(compact::covers(&item, covered.len()));
        let behind = covered.iter().map(|kept| kept.seq).max().map_or(0, |last| last + 1);
        let from = self.state.window.items.first().map_or(behind, |kept| kept.seq);
        self.keep(vec![item]);
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
        self.tell(RunEvent::Summarization(Box::new(event)));
        if self.state.progress.compacts {
            self.end(RunStatus::Completed, "summarised");
        } else {
            self.next();
        }
    }

    /// What a summary holds for settled is remembered beyond it.
    fn remember(&mut self, record: &SummaryRecord) {
        let known = self.state.smart.memory_facts.as_deref().unwrap_or_default();
        let facts = compact::remembered(known, record, self.state.progress.turn);
        if facts != known {
            let list = facts.iter().map(MemoryFact::json).collect::<Vec<_>>();
            self.set("memoryFacts", json::array_of(&list));
            self.state.smart.memory_facts = Some(facts);
        }
    }

    /// It goes on without a summary, as long as there is room. A run that is there for one alone has failed.
    pub(super) fn no_summary(&mut self) {
        if self.state.progress.compacts {
            self.end(RunStatus::Failed, "the model wrote no summary");
            return;
        }
        self.state.progress.no_summary = true;
        self.next();
    }
}

fn replayed(fates: &Replayed, turn: u64) -> ReplayEvent {
    let Counted { kept, restored, reshaped, elided } = fates.thoughts;
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

/// The documented words for what an answer cost.
pub(super) fn tokens(usage: &Usage) -> ReflectionUsage {
    ReflectionUsage {
        input_tokens: Some(usage.input),
        output_tokens: Some(usage.output),
        cached_input_tokens: (usage.cached > 0).then_some(usage.cached),
        total_tokens: Some(usage.total()),
        reasoning_tokens: (usage.thought > 0).then_some(usage.thought),
        ..ReflectionUsage::default()
    }
}

/// What an answer says, without its thoughts.
pub(super) fn text_of(reply: &Reply) -> String {
    let texts = reply.items.iter().filter_map(|item| match &item.body {
        Body::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("")
}

/// JSON that stands in a fence of Markdown is meant without it.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).map_or(text, str::trim)
}

fn word_of(stop: &Stop) -> Name {
    Name::from(match stop {
        Stop::Done => "done",
        Stop::Tools => "tools",
        Stop::Length => "length",
        Stop::Sequence(_) => "stop sequence",
        Stop::Paused => "paused",
        Stop::Refused(_) => "refused",
        Stop::Cut => "cut",
        Stop::Other(word) => return word.clone(),
    })
}

/// Where an answer to a call stands.
pub(super) fn place_of(answers_at: u32, position: usize) -> Place {
    Place { message: answers_at, part: u32::try_from(position).unwrap_or(u32::MAX) }
}
