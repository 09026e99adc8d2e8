//! Converts the events of a run to Letta messages.
//!
//! The same events produce the same messages with the same sequence numbers, for every reader and
//! in every process. A broken stream can therefore resume from any number in any process. To
//! guarantee this, a run is always read from its start, and messages before the requested number
//! are skipped.
//!
//! | event | messages |
//! |---|---|
//! | a delta, if token streaming is on | a partial `assistant_message` or `reasoning_message` |
//! | the model's answer ends | its texts, thoughts (signatures only if streamed) and tool calls |
//! | a tool returns | `tool_return_message` |
//! | a person decides | `approval_response_message` |
//! | the agent reflects | `reasoning_message` with the source `non_reasoner_model` |
//! | older messages are summarised | `summary_message` |
//! | the run waits, ends or fails | `error_message`, `stop_reason`, `usage_statistics` |

use std::collections::HashSet;

use jiff::Timestamp;
use throughline_agent::{ASK_USER_QUESTION, RunSpec};
use throughline_core::{
    Body, Item, LogId, ReasoningSource, Store, Tenant, ToolCall, matches_pattern,
};
use throughline_json::Name;
use throughline_spec::{
    ReflectionUsage, RunEvent, RunStatusEvent, ThoughtPhase, ToolCallEvent, ToolCallPhase,
    TurnEvent, TurnPhase,
};

use crate::api::RunNote;
use crate::letta::item_reader::ItemReader;
use crate::letta::message::{self, LettaMessage, MessageContent, UsageTotals};
use crate::records::StoreResult;

/// A run's identity and configuration, loaded before its events.
#[derive(Clone, Debug)]
pub(crate) struct RunContext {
    pub(crate) tenant: Tenant,
    pub(crate) run: LogId,
    pub(crate) thread: LogId,
    pub(crate) casting: RunSpec,
    pub(crate) note: RunNote,
    /// Sequence number of the Thread's last record before the run started.
    pub(crate) from: u64,
}

/// Converts a run's events to messages, in order.
pub(crate) struct Projector<'s> {
    known: RunContext,
    reader: ItemReader<'s>,
    /// Whether deltas produce partial messages.
    tokens: bool,
    /// Whether user messages are included.
    users: bool,
    /// Ids of the Items for which deltas were sent.
    streamed: HashSet<Name>,
    /// Number of discarded model replies for which deltas were sent.
    discarded: u64,
    /// Ids of the Items of these replies.
    discarded_ids: HashSet<Name>,
    /// Name of the agent that is currently active.
    agent: Name,
    /// Ids of assistant texts that are not part of any turn yet.
    loose: Vec<Name>,
    /// The message index of the next model reply.
    next: u32,
    usage: ReflectionUsage,
    /// Number of steps that have started.
    step_count: u64,
    pub(crate) steps: Vec<Step>,
}

/// A step of a run: one model call and its reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) id: Name,
    pub(crate) model: Option<Name>,
    pub(crate) usage: ReflectionUsage,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<Name>,
}

/// The messages for one event, and the stop reason if the run stops.
#[derive(Debug, Default)]
pub(crate) struct EventOutput {
    pub(crate) letters: Vec<LettaMessage>,
    /// Letta's stop reason, if the run produces no more messages until it receives input.
    pub(crate) stop: Option<&'static str>,
}

impl<'s> Projector<'s> {
    /// Creates a converter. If `tokens` is set, deltas produce partial messages. If `users` is set,
    /// user messages are included.
    pub(crate) fn new(store: &'s dyn Store, known: RunContext, tokens: bool, users: bool) -> Self {
        let (tenant, thread) = (known.tenant.clone(), known.thread.clone());
        let reader = ItemReader::new(store, tenant, thread, known.from);
        let agent = known.casting.first.clone();
        Self {
            agent,
            known,
            reader,
            tokens,
            users,
            streamed: HashSet::new(),
            discarded: 0,
            discarded_ids: HashSet::new(),
            loose: Vec::new(),
            next: 0,
            usage: ReflectionUsage::default(),
            step_count: 0,
            steps: Vec::new(),
        }
    }

    /// Returns the run's usage, up to the last event read.
    pub(crate) fn used(&self) -> UsageTotals {
        let usage = &self.usage;
        UsageTotals {
            completion_tokens: usage.output_tokens.unwrap_or(0),
            prompt_tokens: usage.input_tokens.unwrap_or(0),
            total_tokens: usage.total_tokens.unwrap_or(0),
            step_count: self.step_count,
            run_ids: [self.known.run.0.clone()],
            cached_input_tokens: usage.cached_input_tokens,
            reasoning_tokens: usage.reasoning_tokens,
        }
    }

    pub(crate) async fn convert(
        &mut self,
        event: &RunEvent,
        at: Timestamp,
    ) -> StoreResult<EventOutput> {
        let letters = match event {
            RunEvent::Thought(event) if event.phase == ThoughtPhase::Delta => {
                let source = Some(event.source.unwrap_or(ReasoningSource::ReasonerModel));
                self.delta(source, event.id.as_ref(), event.text.as_deref(), at)
            }
            RunEvent::Stream(event) => self.delta(None, event.id.as_ref(), Some(&event.text), at),
            RunEvent::Reflection(event) => {
                let letter = message::reflection(event, at);
                let mut letter = self.sent_by_agent(letter);
                letter.place.step_id = self.steps.last().map(|step| step.id.clone());
                vec![letter]
            }
            RunEvent::Turn(event) => self.turn(event).await?,
            RunEvent::Message(event) => match &event.id {
                Some(id) if &*event.role == "user" => self.user_message(id).await?,
                // A model's text is sent with its turn; a replacement text has no turn.
                Some(id) => {
                    self.loose.push(id.clone());
                    Vec::new()
                }
                None => Vec::new(),
            },
            RunEvent::FinalAnswer(_) => self.replacement_texts().await?,
            RunEvent::ToolCall(event) => self.tool_result(event).await?,
            RunEvent::ToolApproval(event) => {
                message::approval_response(event, at).into_iter().collect()
            }
            RunEvent::Summarization(_) => {
                let found =
                    self.reader.next(|item| matches!(item.body, Body::Summary { .. })).await?;
                found.iter().filter_map(message::from_item).collect()
            }
            RunEvent::Usage(event) => {
                if let (Some(step), Some(usage)) = (self.steps.last_mut(), &event.usage)
                    && event.purpose.is_none()
                {
                    step.usage = usage.clone();
                }
                if let Some(total) = &event.total {
                    self.usage = total.clone();
                }
                Vec::new()
            }
            RunEvent::Handoff(event) => {
                let to = event.to.as_ref().filter(|to| self.known.casting.agents.contains_key(*to));
                self.agent = to.unwrap_or(&self.agent).clone();
                Vec::new()
            }
            RunEvent::Run(event) => return Ok(self.status_change(event, at)),
            _ => Vec::new(),
        };
        Ok(EventOutput { letters, stop: None })
    }

    fn delta(
        &mut self,
        thought: Option<ReasoningSource>,
        id: Option<&Name>,
        text: Option<&str>,
        at: Timestamp,
    ) -> Vec<LettaMessage> {
        let (Some(id), Some(text)) = (id, text) else { return Vec::new() };
        if !self.tokens || text.is_empty() {
            return Vec::new();
        }
        self.streamed.insert(id.clone());
        let letter = message::piece(thought, id, at, text);
        let mut letter = self.sent_by_agent(letter);
        letter.place.step_id = self.steps.last().map(|step| step.id.clone());
        self.number_retry(&mut letter);
        vec![letter]
    }

    /// Sets the agent of the run as the sender of a message.
    fn sent_by_agent(&self, letter: LettaMessage) -> LettaMessage {
        match self.known.casting.agents.get(&self.agent) {
            Some(agent) => letter.sent_by(&agent.identity()),
            None => letter,
        }
    }

    /// Gives a message a new id if an earlier attempt at the reply was partly sent under the same
    /// Item id and then discarded. Runs of earlier versions reused the ids of discarded attempts.
    fn number_retry(&self, letter: &mut LettaMessage) {
        let item = letter.head.id.strip_prefix(message::MESSAGE);
        if item.is_some_and(|item| self.discarded_ids.contains(item)) {
            letter.head.id = Name::from(format!("{}-{}", letter.head.id, self.discarded));
        }
    }

    async fn turn(&mut self, event: &TurnEvent) -> StoreResult<Vec<LettaMessage>> {
        match event.phase {
            TurnPhase::Start => {
                let is_turn = event.purpose.as_deref().is_none_or(|purpose| purpose == "final");
                if is_turn && self.steps.last().is_none_or(|step| step.status != "pending") {
                    self.step_count += 1;
                    let id = message::step_id(&self.known.run.0, self.next);
                    let model = event.model.clone();
                    self.steps.push(Step { id, model, status: "pending", ..Step::default() });
                }
                Ok(Vec::new())
            }
            TurnPhase::Discarded => {
                if !self.streamed.is_empty() {
                    self.discarded += 1;
                    self.discarded_ids.extend(self.streamed.drain());
                }
                Ok(Vec::new())
            }
            TurnPhase::End => {
                let letters = self.model_answer(event).await?;
                if let Some(step) = self.steps.last_mut() {
                    step.status = "success";
                    step.reason.clone_from(&event.reason);
                }
                self.loose.clear();
                self.streamed.clear();
                self.discarded_ids.clear();
                self.discarded = 0;
                Ok(letters)
            }
        }
    }

    /// Returns the messages for a model reply, in the order of its Items.
    async fn model_answer(&mut self, event: &TurnEvent) -> StoreResult<Vec<LettaMessage>> {
        let mut items = Vec::new();
        for id in event.items.iter().flatten() {
            items.extend(self.reader.next(|item| item.id.0 == *id).await?);
        }
        let message = items.last().map_or(self.next, |stored| stored.item.place.message);
        if let Some(step) = self.steps.last_mut() {
            step.id = message::step_id(&self.known.run.0, message);
        }
        // The results of the tool calls form the next message.
        let has_calls = items.iter().any(|stored| stored.item.call().is_some());
        self.next = message.saturating_add(1 + u32::from(has_calls));
        let step = self.steps.last().map(|step| step.id.clone());
        let mut letters = Vec::new();
        for stored in &items {
            let is_streamed = self.streamed.contains(&stored.item.id.0);
            let letter = match &stored.item.body {
                Body::Thought(_) if is_streamed => message::signature_message(stored),
                Body::Text(_) if is_streamed => None,
                _ => message::from_item(stored),
            };
            letters.extend(letter.map(|mut letter| {
                if is_streamed {
                    self.number_retry(&mut letter);
                }
                letter
            }));
        }
        let needs_decision = |call: &ToolCall| needs_decision(&self.known.casting, call);
        letters.extend(message::call_messages(&items.iter(), needs_decision));
        for letter in &mut letters {
            letter.place.step_id.clone_from(&step);
        }
        Ok(letters)
    }

    /// Returns the message for a user's input. Streams omit this message, because their caller sent
    /// the input.
    async fn user_message(&mut self, id: &Name) -> StoreResult<Vec<LettaMessage>> {
        let Some(stored) = self.reader.next(|item| item.id.0 == *id).await? else {
            return Ok(Vec::new());
        };
        self.next = stored.item.place.message.saturating_add(1);
        let letter = message::from_item(&stored).filter(|_| self.users);
        Ok(Vec::from_iter(letter.map(|letter| named(letter, &stored.item, &self.known.note))))
    }

    /// Returns the messages for texts outside any turn. Such a text replaces a missing model reply.
    async fn replacement_texts(&mut self) -> StoreResult<Vec<LettaMessage>> {
        let mut letters = Vec::new();
        for id in std::mem::take(&mut self.loose) {
            let found = self.reader.next(|item| item.id.0 == id).await?;
            letters.extend(found.as_ref().and_then(message::from_item));
        }
        Ok(letters)
    }

    async fn tool_result(&mut self, event: &ToolCallEvent) -> StoreResult<Vec<LettaMessage>> {
        let is_over = !matches!(event.phase, ToolCallPhase::Start | ToolCallPhase::Progress);
        let Some(call) = event.id.as_ref().filter(|_| is_over) else { return Ok(Vec::new()) };
        let answers =
            |item: &Item| matches!(&item.body, Body::Result(result) if result.call.0 == *call);
        let found = self.reader.next(answers).await?;
        let mut letters: Vec<LettaMessage> = found.iter().filter_map(message::from_item).collect();
        for letter in &mut letters {
            letter.place.step_id = self.steps.last().map(|step| step.id.clone());
        }
        Ok(letters)
    }

    fn status_change(&mut self, event: &RunStatusEvent, at: Timestamp) -> EventOutput {
        let reason = event.reason.as_deref().unwrap_or_default();
        let Some(stop_reason) = stop_for_status(&event.status, reason) else {
            return EventOutput::default();
        };
        if let Some(step) = self.steps.last_mut().filter(|step| step.status == "pending") {
            step.status = if stop_reason == "cancelled" { "cancelled" } else { "failed" };
        }
        let (error_type, message) = (Name::from(stop_reason), Name::from(reason));
        let error = MessageContent::ErrorMessage { error_type, message };
        let frames = [
            Some(error).filter(|_| &*event.status == "failed"),
            Some(MessageContent::StopReason { stop_reason }),
            Some(MessageContent::UsageStatistics(self.used())),
        ];
        let frame = |content| LettaMessage::of_run(content, &self.known.run.0, at);
        let letters = frames.into_iter().flatten().map(frame).collect();
        EventOutput { letters, stop: Some(stop_reason) }
    }
}

/// Adds the client's `otid`, `name` and `sender_id` to a user message.
pub(crate) fn named(letter: LettaMessage, item: &Item, note: &RunNote) -> LettaMessage {
    letter.sent_with(note, usize::try_from(item.place.part).unwrap_or(usize::MAX))
}

/// Maps a run status to Letta's stop reason; `None` while the run is active.
pub(crate) fn stop_for_status(status: &str, reason: &str) -> Option<&'static str> {
    Some(match status {
        "waiting" => "requires_approval",
        "completed" if reason.starts_with("limit reached: maxToolCalls") => "max_steps",
        "completed" if reason.contains("limit of its tokens") => "max_tokens_exceeded",
        "completed" => "end_turn",
        "cancelled" => "cancelled",
        "failed" if reason.starts_with("limit reached: keyBudget") => "insufficient_credits",
        "failed" if reason.starts_with("limit reached") => "error",
        "failed" => "llm_api_error",
        _ => return None,
    })
}

/// Returns whether a person must decide on a tool call, or the client must run it, before the run
/// continues.
pub(crate) fn needs_decision(casting: &RunSpec, call: &ToolCall) -> bool {
    let patterns = casting.agents.values().flat_map(|agent| &agent.human_in_the_loop.approve);
    let is_listed = patterns.into_iter().any(|pattern| matches_pattern(pattern, &call.name));
    let spec = casting.tools.iter().find(|spec| spec.name == call.name);
    let is_asked = spec.is_some_and(|spec| spec.client || spec.needs_approval);
    &*call.name == ASK_USER_QUESTION || (spec.is_some() && is_listed) || is_asked
}
