//! A model is asked, and heard to its end. What it says is told as it comes, and kept when it is whole.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use throughline_core::{
    Call, CostEstimator, Delta, Did, Event, EventWriter, Failure, ItemId, Model, ModelError, Name,
    Reply, RunEvent, Stop, StreamEvent, ThoughtEvent, ThoughtPhase, Trouble, Why,
};

use crate::input::{Heard, Replayed, What};
use crate::permit::CallPermit;
use crate::progress::Purpose;
use crate::run::{Listener, tell_listener};
use crate::window::is_peers;

/// All that is needed to ask a model and to hear its answer.
pub(crate) struct Question {
    pub(crate) model: Arc<dyn Model>,
    /// The model's name, as the agent knows it.
    pub(crate) name: Name,
    pub(crate) purpose: Purpose,
    pub(crate) turn: u64,
    /// The run, and how many ids it had made up: the Items of the answer get the next ones.
    pub(crate) run: Name,
    pub(crate) ids: u64,
    pub(crate) agent: Name,
    /// Whether pieces of text are held back until the answer was taken.
    pub(crate) holds: bool,
    pub(crate) events: Arc<dyn EventWriter>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) costs: Option<Arc<dyn CostEstimator>>,
    pub(crate) clock: Arc<dyn throughline_core::Clock>,
    /// Decides whether the call may be made.
    pub(crate) permit: Option<Arc<dyn CallPermit>>,
}

impl Question {
    /// Asks for permission and then the model, and gives what happened.
    pub(crate) async fn ask(self, call: Call) -> What {
        if let Some(permit) = &self.permit
            && let Err(denial) = permit.permit(&self.name, self.purpose).await
        {
            return What::Denied { purpose: self.purpose, denial };
        }
        let began = self.clock.now();
        let thoughts = Replayed::thoughts(&call.items);
        let peers: HashSet<ItemId> =
            call.items.iter().filter(|item| is_peers(item)).map(|item| item.id.clone()).collect();
        let saying = match self.model.ask(call).await {
            Ok(saying) => saying,
            Err(error) => {
                return What::Failed { purpose: self.purpose, error, streamed: false };
            }
        };
        let mut fates = saying.fates;
        for fate in fates.iter_mut().filter(|fate| peers.contains(&fate.item)) {
            for did in std::iter::once(&mut fate.visible).chain(&mut fate.seals) {
                // The same provider may have issued it: it stays behind because another agent thought it.
                if *did == Did::Elided(Why::Foreign) {
                    *did = Did::Elided(Why::ByPolicy);
                }
            }
        }
        let fates = Replayed::of(&fates, &thoughts);
        let mut events = saying.events;
        let mut streamed = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Ended(reply)) => return self.heard(*reply, fates, streamed, began),
                Ok(Event::Delta { index, delta }) => streamed |= self.tell(index, &delta).await,
                Ok(Event::Failed(failure)) => {
                    let error = error_of(&failure);
                    return What::Failed { purpose: self.purpose, error, streamed };
                }
                Ok(_) => {}
                Err(error) => return What::Failed { purpose: self.purpose, error, streamed },
            }
        }
        let error = ModelError::new(Trouble::Transient, "the answer ended without an end");
        What::Failed { purpose: self.purpose, error, streamed }
    }

    fn heard(&self, reply: Reply, fates: Replayed, streamed: bool, began: Timestamp) -> What {
        let took = self.clock.now().duration_since(began).as_millis();
        let cost = self.cost(&reply);
        let streamed = streamed && reply.stop != Stop::Tools;
        What::Answered(Box::new(Heard {
            purpose: self.purpose,
            reply,
            fates,
            streamed,
            cost,
            took_ms: u64::try_from(took).unwrap_or(0),
        }))
    }

    /// What an answer cost. Of several that go by one name another one may have answered, at a price of its own.
    fn cost(&self, reply: &Reply) -> Option<f64> {
        let costs = self.costs.as_ref()?;
        let (first, by) = (&self.model.target().origin, &reply.origin);
        let is_other = (&first.account, &first.asked) != (&by.account, &by.asked);
        let own = is_other.then(|| format!("{}/{}", by.account, by.asked));
        let own = own.and_then(|name| costs.cost(&name, &reply.usage));
        own.or_else(|| costs.cost(&self.name, &reply.usage))
    }

    /// Tells a piece: whether it was one of the answer itself.
    async fn tell(&self, index: u32, delta: &Delta) -> bool {
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
        tell_listener(self.listener.as_ref(), &self.run, &event);
        self.events.push(event.json().bytes(), None).await;
        matches!(delta, Delta::Text(_))
    }
}

fn error_of(failure: &Failure) -> ModelError {
    let kind = match failure.status {
        Some(429) => Trouble::RateLimit,
        Some(500..=599) | None => Trouble::Transient,
        Some(_) => Trouble::Other,
    };
    ModelError::new(kind, failure.message.clone())
}
