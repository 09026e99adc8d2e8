//! A run's events, as Letta's messages.
//!
//! The same events give the same messages with the same numbers, whoever reads them and whenever: so a stream that broke goes on
//! from any number at any process. For that a run is always read from its beginning, and what the reader has is left out.
//!
//! | what happened | what is told |
//! |---|---|
//! | the model thinks or writes, and pieces are wanted | a `reasoning_message` or an `assistant_message` with the piece |
//! | it answered | its thoughts and texts, or the signatures of what was told in pieces; then its calls |
//! | a tool answered | a `tool_return_message` |
//! | a person decided | an `approval_response_message` |
//! | older messages were summarised | a `summary_message` |
//! | the run waits, ended or failed | `error_message`, `stop_reason`, `usage_statistics` |

use std::collections::HashSet;

use jiff::Timestamp;
use throughline_agent::{ASK_USER_QUESTION, Casting};
use throughline_core::{
    Body, Item, Json, LogId, Name, ReflectionUsage, RunEvent, RunStatusEvent, Store, StoreError,
    Tenant, ThoughtPhase, ToolApprovalEvent, ToolApprovalEventStatus, ToolCall, ToolCallEvent,
    ToolCallPhase, TurnEvent, TurnPhase, fits, json,
};

use crate::letta::reader::{Reader, Seen, answers};
use crate::letta::request::RunNote;
use crate::letta::union::{self, Decided, Letter};

/// What a run is known to be before its events are read.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) tenant: Tenant,
    pub(crate) run: LogId,
    pub(crate) thread: LogId,
    pub(crate) casting: Casting,
    pub(crate) note: RunNote,
    /// The last record of the Thread before it began.
    pub(crate) from: u64,
}

/// Reads a run's events, and tells them.
pub(crate) struct Projector<'s> {
    known: Known,
    reader: Reader<'s>,
    /// Whether pieces are told as they come.
    tokens: bool,
    /// Whether what users said is told, too.
    users: bool,
    /// The Items of which pieces were told.
    streamed: HashSet<Name>,
    /// How often an answer was thrown away of which pieces were told.
    discarded: u64,
    /// Texts of the model's that no turn has told yet.
    loose: Vec<Name>,
    /// The message that is expected next.
    next: u32,
    usage: Usage,
    steps: Vec<Step>,
}

/// A step of a run: a model was asked, and answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) id: Name,
    pub(crate) model: Option<Name>,
    pub(crate) usage: ReflectionUsage,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<Name>,
}

#[derive(Clone, Debug, Default)]
struct Usage {
    total: ReflectionUsage,
    steps: u64,
}

/// How a run stands, in Letta's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Why it stopped.
    pub(crate) reason: &'static str,
}

/// What an event says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) letters: Vec<Letter>,
    /// Whether nothing more comes before somebody says something.
    pub(crate) rest: Option<Rest>,
}

impl<'s> Projector<'s> {
    pub(crate) fn new(store: &'s dyn Store, known: Known, tokens: bool) -> Self {
        let (tenant, thread) = (known.tenant.clone(), known.thread.clone());
        let reader = Reader::new(store, tenant, thread, known.from);
        Self {
            known,
            reader,
            tokens,
            users: false,
            streamed: HashSet::new(),
            discarded: 0,
            loose: Vec::new(),
            next: 0,
            usage: Usage::default(),
            steps: Vec::new(),
        }
    }

    /// The same, which tells what users said, too.
    pub(crate) fn with_users(mut self) -> Self {
        self.users = true;
        self
    }

    /// The steps that were read.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What the run used, as far as it was read.
    pub(crate) fn used(&self) -> Json {
        let Usage { total, steps } = &self.usage;
        usage_json(total, *steps, &self.known.run.0)
    }

    /// What an event says.
    pub(crate) async fn tell(
        &mut self,
        event: &RunEvent,
        at: Timestamp,
    ) -> Result<Said, StoreError> {
        let letters = match event {
            RunEvent::Thought(event) if event.phase == ThoughtPhase::Delta => {
                self.piece(true, event.id.as_ref(), event.text.as_deref(), at)
            }
            RunEvent::Stream(event) => self.piece(false, event.id.as_ref(), Some(&event.text), at),
            RunEvent::Turn(event) => self.turn(event).await?,
            RunEvent::Message(event) => match &event.id {
                Some(id) if &*event.role == "user" => self.said(id).await?,
                // What a model said is told with its turn; what stands for it has none.
                Some(id) => {
                    self.loose.push(id.clone());
                    Vec::new()
                }
                None => Vec::new(),
            },
            RunEvent::FinalAnswer(_) => self.stands_alone().await?,
            RunEvent::ToolCall(event) => self.tool(event).await?,
            RunEvent::ToolApproval(event) => approval(event, at),
            RunEvent::Summarization(_) => {
                let found =
                    self.reader.next(|item| matches!(item.body, Body::Summary { .. })).await?;
                found.iter().filter_map(union::of_item).collect()
            }
            RunEvent::Usage(event) => {
                if let (Some(step), Some(usage)) = (self.steps.last_mut(), &event.usage)
                    && event.purpose.is_none()
                {
                    step.usage = usage.clone();
                }
                if let Some(total) = &event.total {
                    self.usage.total = total.clone();
                }
                Vec::new()
            }
            RunEvent::Run(event) => return Ok(self.stands(event, at)),
            _ => Vec::new(),
        };
        Ok(Said { letters, rest: None })
    }

    fn piece(
        &mut self,
        is_thought: bool,
        id: Option<&Name>,
        text: Option<&str>,
        at: Timestamp,
    ) -> Vec<Letter> {
        let (Some(id), Some(text)) = (id, text) else { return Vec::new() };
        if !self.tokens || text.is_empty() {
            return Vec::new();
        }
        self.streamed.insert(id.clone());
        let mut letter = union::piece(is_thought, id, at, text);
        letter.step = self.steps.last().map(|step| step.id.clone());
        self.rename(&mut letter);
        vec![letter]
    }

    /// What is told again, because an earlier answer was thrown away, is another message.
    fn rename(&self, letter: &mut Letter) {
        if self.discarded > 0 {
            letter.id = Name::from(format!("{}-{}", letter.id, self.discarded));
        }
    }

    async fn turn(&mut self, event: &TurnEvent) -> Result<Vec<Letter>, StoreError> {
        match event.phase {
            TurnPhase::Start => {
                let is_turn = event.purpose.as_deref().is_none_or(|purpose| purpose == "final");
                if is_turn && self.steps.last().is_none_or(|step| step.status != "pending") {
                    self.usage.steps += 1;
                    let id = union::step_id(&self.known.run.0, self.next);
                    let model = event.model.clone();
                    self.steps.push(Step { id, model, status: "pending", ..Step::default() });
                }
                Ok(Vec::new())
            }
            TurnPhase::Discarded => {
                if !self.streamed.is_empty() {
                    self.discarded += 1;
                    self.streamed.clear();
                }
                Ok(Vec::new())
            }
            TurnPhase::End => {
                let letters = self.answered(event).await?;
                if let Some(step) = self.steps.last_mut() {
                    step.status = "success";
                    step.reason.clone_from(&event.reason);
                }
                self.loose.clear();
                self.streamed.clear();
                self.discarded = 0;
                Ok(letters)
            }
        }
    }

    /// A model answered: its Items, in their order.
    async fn answered(&mut self, event: &TurnEvent) -> Result<Vec<Letter>, StoreError> {
        let mut items = Vec::new();
        for id in event.items.iter().flatten() {
            items.extend(self.reader.next(|item| item.id.0 == *id).await?);
        }
        let message = items.last().map_or(self.next, |seen| seen.item.place.message);
        if let Some(step) = self.steps.last_mut() {
            step.id = union::step_id(&self.known.run.0, message);
        }
        // The answers of tools are a message of their own.
        let has_calls = items.iter().any(|seen| seen.item.call().is_some());
        self.next = message.saturating_add(1 + u32::from(has_calls));
        let step = self.steps.last().map(|step| step.id.clone());
        let mut letters = Vec::new();
        for seen in &items {
            let is_told = self.streamed.contains(&seen.item.id.0);
            let letter = match &seen.item.body {
                Body::Thought(_) if is_told => union::signature_of(seen),
                Body::Text(_) if is_told => None,
                _ => union::of_item(seen),
            };
            letters.extend(letter.map(|mut letter| {
                if is_told {
                    self.rename(&mut letter);
                }
                letter
            }));
        }
        let calls: Vec<(&Seen, &ToolCall)> =
            items.iter().filter_map(|seen| Some((seen, seen.item.call()?))).collect();
        for asks in [false, true] {
            let these: Vec<_> =
                calls.iter().filter(|(_, call)| self.asks(call) == asks).copied().collect();
            letters.extend(union::calls(&these, asks));
        }
        for letter in &mut letters {
            letter.step.clone_from(&step);
        }
        Ok(letters)
    }

    fn asks(&self, call: &ToolCall) -> bool {
        asks(&self.known.casting, call)
    }

    /// Somebody spoke. Callers of a stream know that already.
    async fn said(&mut self, id: &Name) -> Result<Vec<Letter>, StoreError> {
        let Some(seen) = self.reader.next(|item| item.id.0 == *id).await? else {
            return Ok(Vec::new());
        };
        self.next = seen.item.place.message.saturating_add(1);
        let letter = union::of_item(&seen).filter(|_| self.users);
        Ok(Vec::from_iter(letter.map(|letter| named(letter, &seen.item, &self.known.note))))
    }

    /// A text that no turn told: it stands for the answer that did not come.
    async fn stands_alone(&mut self) -> Result<Vec<Letter>, StoreError> {
        let mut letters = Vec::new();
        for id in std::mem::take(&mut self.loose) {
            let found = self.reader.next(|item| item.id.0 == id).await?;
            letters.extend(found.as_ref().and_then(union::of_item));
        }
        Ok(letters)
    }

    async fn tool(&mut self, event: &ToolCallEvent) -> Result<Vec<Letter>, StoreError> {
        let is_over = !matches!(event.phase, ToolCallPhase::Start | ToolCallPhase::Progress);
        let Some(call) = event.id.as_ref().filter(|_| is_over) else { return Ok(Vec::new()) };
        let found = self.reader.next(|item| answers(item, call)).await?;
        let mut letters: Vec<Letter> = found.iter().filter_map(union::of_item).collect();
        for letter in &mut letters {
            letter.step = self.steps.last().map(|step| step.id.clone());
        }
        Ok(letters)
    }

    /// The run waits, goes on, or is over.
    fn stands(&mut self, event: &RunStatusEvent, at: Timestamp) -> Said {
        let run = self.known.run.0.clone();
        let reason = event.reason.as_deref().unwrap_or_default();
        let Some(rest) = rest(&event.status, reason) else { return Said::default() };
        if let Some(step) = self.steps.last_mut().filter(|step| step.status == "pending") {
            step.status = if rest.reason == "cancelled" { "cancelled" } else { "failed" };
        }
        let mut letters = Vec::new();
        if &*event.status == "failed" {
            letters.push(union::failed(&run, at, rest.reason, reason));
        }
        letters.push(union::stopped(&run, at, rest.reason));
        letters.push(union::used(&run, at, &self.used()));
        Said { letters, rest: Some(rest) }
    }
}

/// A message of a user's, with the name that its caller gave it.
pub(crate) fn named(mut letter: Letter, item: &Item, note: &RunNote) -> Letter {
    let place = usize::try_from(item.place.part).unwrap_or(usize::MAX);
    letter.otid = note.otids.get(place).cloned().flatten();
    letter
}

/// Why a run that stands so has stopped, in Letta's words; nothing while it is at work.
pub(crate) fn rest(status: &str, reason: &str) -> Option<Rest> {
    let reason = match status {
        "waiting" => "requires_approval",
        "completed" if reason.starts_with("limit reached: maxToolCalls") => "max_steps",
        "completed" if reason.contains("limit of its tokens") => "max_tokens_exceeded",
        "completed" => "end_turn",
        "cancelled" => "cancelled",
        "failed" if reason.starts_with("limit reached: keyBudget") => "insufficient_credits",
        "failed" if reason.starts_with("limit reached") => "error",
        "failed" => "llm_api_error",
        _ => return None,
    };
    Some(Rest { reason })
}

/// Whether somebody must decide on a call or run it, before the run goes on.
pub(crate) fn asks(casting: &Casting, call: &ToolCall) -> bool {
    let patterns = casting.agents.values().flat_map(|agent| &agent.human_in_the_loop.approve);
    let is_listed = patterns.into_iter().any(|pattern| fits(pattern, &call.name));
    let spec = casting.tools.iter().find(|spec| spec.name == call.name);
    let is_asked = spec.is_some_and(|spec| spec.client || spec.needs_approval);
    &*call.name == ASK_USER_QUESTION || (spec.is_some() && is_listed) || is_asked
}

fn approval(event: &ToolApprovalEvent, at: Timestamp) -> Vec<Letter> {
    let call = event.tool_call_id.as_deref().unwrap_or_default();
    let approve = match event.status {
        ToolApprovalEventStatus::Pending => return Vec::new(),
        ToolApprovalEventStatus::Approved => true,
        ToolApprovalEventStatus::Rejected => false,
    };
    let reason = event.comment.as_deref();
    vec![union::decided(&Decided { approval: &event.id, call, approve, reason }, at)]
}

/// What was used, in Letta's words.
pub(crate) fn usage_json(total: &ReflectionUsage, steps: u64, run: &str) -> Json {
    json::object(|o| {
        o.number("completion_tokens", total.output_tokens.unwrap_or(0));
        o.number("prompt_tokens", total.input_tokens.unwrap_or(0));
        o.number("total_tokens", total.total_tokens.unwrap_or(0));
        o.number("step_count", steps).array("run_ids", |list| {
            list.string(run);
        });
        if let Some(cached) = total.cached_input_tokens {
            o.number("cached_input_tokens", cached);
        }
        if let Some(thought) = total.reasoning_tokens {
            o.number("reasoning_tokens", thought);
        }
    })
}
