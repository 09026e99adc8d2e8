//! Calls a model and collects its answer. Deltas are emitted as they arrive, but only the complete
//! answer is stored.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use throughline_core::{
    Body, Call, Delta, Disposition, ElisionReason, Event, Failure, Item, ItemId, Model, ModelError,
    ModelErrorKind, ReasoningSource, Reply, StopReason,
};
use throughline_json::Name;
use throughline_spec::{RunEvent, StreamEvent, ThoughtEvent, ThoughtPhase};

use crate::input::{ModelAnswer, RunInput};
use crate::permit::CallGrant;
use crate::progress::{Purpose, item_id};
use crate::run::replay::replay_event;
use crate::run::{EventEmitter, Runner};
use crate::window::is_peer_item;

/// Inputs and dependencies of one model call.
pub(crate) struct ModelCall {
    pub(crate) model: Arc<dyn Model>,
    /// Name of the model in the agent declaration.
    pub(crate) name: Name,
    pub(crate) purpose: Purpose,
    pub(crate) turn: u64,
    /// Value of the run's id counter. The ids of the answer's Items are derived from this value.
    pub(crate) ids: u64,
    /// Number of discarded attempts at this answer.
    pub(crate) discarded: u64,
    pub(crate) agent: Name,
    /// Whether text deltas are held back until the answer is accepted.
    pub(crate) holds_text: bool,
    pub(crate) emitter: EventEmitter,
    pub(crate) runner: Runner,
}

impl ModelCall {
    /// Requests a permit, calls the model and returns the input for the next step.
    pub(crate) async fn send(self, call: Call) -> RunInput {
        let purpose = self.purpose;
        let mut grant: Box<dyn CallGrant> = Box::new(());
        if let Some(permit) = &self.runner.permit {
            match permit.permit(&self.name, purpose, &call).await {
                Ok(granted) => grant = granted,
                Err(denial) => return RunInput::Denied { purpose, denial },
            }
        }
        let began = self.runner.clock.now();
        let ids = |is_selected: fn(&Item) -> bool| -> HashSet<ItemId> {
            let selected = call.items.iter().filter(|item| is_selected(item));
            selected.map(|item| item.id.clone()).collect()
        };
        let thoughts = ids(|item| matches!(item.body, Body::Thought(_)));
        let peers = ids(is_peer_item);
        let response = match self.model.send(call).await {
            Ok(response) => response,
            Err(error) => {
                if !error.may_be_charged {
                    grant.settle(None);
                }
                return RunInput::Failed { purpose, error, streamed: false };
            }
        };
        let mut fates = response.fates;
        for fate in fates.iter_mut().filter(|fate| peers.contains(&fate.item)) {
            for disposition in std::iter::once(&mut fate.visible).chain(&mut fate.seals) {
                // The value may come from this provider. It is left out because another agent
                // produced it, so report that reason instead.
                if *disposition == Disposition::Elided(ElisionReason::Foreign) {
                    *disposition = Disposition::Elided(ElisionReason::ByPolicy);
                }
            }
        }
        let summary = replay_event(&fates, &thoughts, self.turn);
        let mut events = response.events;
        let mut streamed = false;
        let mut prompted = HashSet::new();
        let error = loop {
            match events.next().await {
                Some(Ok(Event::Ended(reply))) => {
                    let took = self.runner.clock.now().duration_since(began).as_millis();
                    let (reply, took_ms) = (*reply, u64::try_from(took).unwrap_or(0));
                    grant.settle(Some(&reply));
                    let streamed = streamed && reply.stop != StopReason::Tools;
                    let cost = self.cost(&reply);
                    let answer =
                        ModelAnswer { purpose, reply, replay: summary, streamed, cost, took_ms };
                    return RunInput::Answered(Box::new(answer));
                }
                Some(Ok(Event::Opened { index, body: Body::Thought(thought), .. }))
                    if thought.source == ReasoningSource::NonReasonerModel =>
                {
                    prompted.insert(index);
                }
                Some(Ok(Event::Delta { index, delta })) => {
                    grant.add_received(delta_bytes(&delta));
                    streamed |= self.emit(index, &delta, prompted.contains(&index)).await;
                }
                Some(Ok(Event::Failed(failure))) => break model_error(&failure),
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => {
                    let problem = "the response stream ended before the answer was complete";
                    break ModelError::new(ModelErrorKind::Transient, problem);
                }
            }
        };
        RunInput::Failed { purpose, error, streamed }
    }

    /// Returns the cost of an answer. If the requested name maps to several models, the price of
    /// the answering model is used.
    fn cost(&self, reply: &Reply) -> Option<f64> {
        let costs = self.runner.costs.as_ref()?;
        let (first, by) = (&self.model.target().origin, &reply.origin);
        let is_other = (&first.account, &first.asked) != (&by.account, &by.asked);
        let price = is_other.then(|| format!("{}/{}", by.account, by.asked));
        let price = price.and_then(|name| costs.cost(&name, &reply.usage));
        price.or_else(|| costs.cost(&self.name, &reply.usage))
    }

    /// Emits a delta. Returns whether the delta is part of the visible answer. `is_prompted` is
    /// whether the delta belongs to reasoning that a prompt requested.
    async fn emit(&self, index: u32, delta: &Delta, is_prompted: bool) -> bool {
        if !self.purpose.is_turn() {
            return false;
        }
        let number = self.ids.saturating_add(1).saturating_add(index.into());
        let id = Some(item_id(&self.emitter.run, number, self.discarded));
        let event = match delta {
            Delta::Text(text) if !self.holds_text => {
                let mut event = StreamEvent::new(text.clone());
                event.id = id;
                RunEvent::Stream(event)
            }
            Delta::Thought(text) => {
                let mut event = ThoughtEvent::new(ThoughtPhase::Delta, self.turn);
                event.text = Some(text.clone());
                event.id = id;
                event.source = is_prompted.then_some(ReasoningSource::NonReasonerModel);
                event.agent = Some(self.agent.clone());
                RunEvent::Thought(event)
            }
            Delta::Text(_) | Delta::Args(_) | Delta::ArgsAt { .. } => return false,
        };
        self.emitter.emit(&event).await;
        matches!(delta, Delta::Text(_))
    }
}

fn delta_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text.len(),
        Delta::ArgsAt { value, .. } => value.as_str().len(),
    }
}

fn model_error(failure: &Failure) -> ModelError {
    let kind = match failure.status {
        Some(429) => ModelErrorKind::RateLimit,
        Some(500..=599) | None => ModelErrorKind::Transient,
        Some(_) => ModelErrorKind::Other,
    };
    ModelError::new(kind, failure.message.clone())
}
