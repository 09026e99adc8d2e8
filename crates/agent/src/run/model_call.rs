//! Calls a model and collects its answer. Deltas are emitted as they arrive; the answer is stored
//! when it is complete.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use throughline_core::{
    Call, CostEstimator, Delta, Disposition, ElisionReason, Event, EventWriter, Failure, ItemId,
    Model, ModelError, ModelErrorKind, Reply, StopReason,
};
use throughline_json::Name;
use throughline_spec::{RunEvent, StreamEvent, ThoughtEvent, ThoughtPhase};

use crate::input::{ModelAnswer, ReplayCounts, RunInput};
use crate::permit::CallPermit;
use crate::progress::Purpose;
use crate::run::{Listener, notify_listener};
use crate::window::is_peer_item;

/// Everything that one model call needs.
pub(crate) struct ModelCall {
    pub(crate) model: Arc<dyn Model>,
    /// Name of the model in the agent's declaration.
    pub(crate) name: Name,
    pub(crate) purpose: Purpose,
    pub(crate) turn: u64,
    /// Id of the run. Together with its id counter this determines the ids of the answer's Items.
    pub(crate) run: Name,
    pub(crate) ids: u64,
    pub(crate) agent: Name,
    /// Whether text deltas are withheld until the answer is accepted.
    pub(crate) holds: bool,
    pub(crate) events: Arc<dyn EventWriter>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) costs: Option<Arc<dyn CostEstimator>>,
    pub(crate) clock: Arc<dyn throughline_core::Clock>,
    /// Decides whether the call may be made.
    pub(crate) permit: Option<Arc<dyn CallPermit>>,
}

impl ModelCall {
    /// Requests the permit, calls the model and returns the resulting input.
    pub(crate) async fn ask(self, call: Call) -> RunInput {
        if let Some(permit) = &self.permit
            && let Err(denial) = permit.permit(&self.name, self.purpose).await
        {
            return RunInput::Denied { purpose: self.purpose, denial };
        }
        let began = self.clock.now();
        let thoughts = ReplayCounts::thought_ids(&call.items);
        let peers = call.items.iter().filter(|item| is_peer_item(item));
        let peers: HashSet<ItemId> = peers.map(|item| item.id.clone()).collect();
        let purpose = self.purpose;
        let response = match self.model.send(call).await {
            Ok(response) => response,
            Err(error) => return RunInput::Failed { purpose, error, streamed: false },
        };
        let mut fates = response.fates;
        for fate in fates.iter_mut().filter(|fate| peers.contains(&fate.item)) {
            for did in std::iter::once(&mut fate.visible).chain(&mut fate.seals) {
                // The same provider may have issued it. It is left out because another agent
                // produced it.
                if *did == Disposition::Elided(ElisionReason::Foreign) {
                    *did = Disposition::Elided(ElisionReason::ByPolicy);
                }
            }
        }
        let fates = ReplayCounts::from_fates(&fates, &thoughts);
        let mut events = response.events;
        let mut streamed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Ended(reply)) => {
                    return self.answer_input(*reply, fates, streamed, began);
                }
                Ok(Event::Delta { index, delta }) => streamed |= self.emit(index, &delta).await,
                Ok(Event::Failed(failure)) => {
                    let error = model_error(&failure);
                    return RunInput::Failed { purpose, error, streamed };
                }
                Ok(_) => {}
                Err(error) => return RunInput::Failed { purpose, error, streamed },
            }
        }
        let problem = "the response stream ended before the answer was complete";
        let error = ModelError::new(ModelErrorKind::Transient, problem);
        RunInput::Failed { purpose, error, streamed }
    }

    fn answer_input(
        &self,
        reply: Reply,
        fates: ReplayCounts,
        streamed: bool,
        began: Timestamp,
    ) -> RunInput {
        let took = self.clock.now().duration_since(began).as_millis();
        let cost = self.cost(&reply);
        let streamed = streamed && reply.stop != StopReason::Tools;
        RunInput::Answered(Box::new(ModelAnswer {
            purpose: self.purpose,
            reply,
            fates,
            streamed,
            cost,
            took_ms: u64::try_from(took).unwrap_or(0),
        }))
    }

    /// Returns the cost of an answer. If a name maps to several models, the answering one has its
    /// own price.
    fn cost(&self, reply: &Reply) -> Option<f64> {
        let costs = self.costs.as_ref()?;
        let (first, by) = (&self.model.target().origin, &reply.origin);
        let is_other = (&first.account, &first.asked) != (&by.account, &by.asked);
        let own = is_other.then(|| format!("{}/{}", by.account, by.asked));
        let own = own.and_then(|name| costs.cost(&name, &reply.usage));
        own.or_else(|| costs.cost(&self.name, &reply.usage))
    }

    /// Emits a delta; returns whether it belongs to the visible answer.
    async fn emit(&self, index: u32, delta: &Delta) -> bool {
        if !self.purpose.is_turn() {
            return false;
        }
        let number = self.ids.saturating_add(1).saturating_add(index.into());
        let id = Some(Name::from(format!("{}.i{number}", self.run)));
        let event = match delta {
            Delta::Text(text) if !self.holds => {
                let mut event = StreamEvent::new(text.clone());
                event.id = id;
                RunEvent::Stream(event)
            }
            Delta::Thought(text) => {
                let mut event = ThoughtEvent::new(ThoughtPhase::Delta, self.turn);
                event.text = Some(text.clone());
                event.id = id;
                event.agent = Some(self.agent.clone());
                RunEvent::Thought(event)
            }
            Delta::Text(_) | Delta::Args(_) | Delta::ArgsAt { .. } => return false,
        };
        notify_listener(self.listener.as_ref(), &self.run, &event);
        self.events.push(event.json().bytes(), None).await;
        matches!(delta, Delta::Text(_))
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
