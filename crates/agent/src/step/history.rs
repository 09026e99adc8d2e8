//! Starts a run with an earlier conversation that the caller supplies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use throughline_core::{Body, CallId, Identity, Item, ItemId, Role};
use throughline_json::Name;
use throughline_spec::{MessageEvent, RunEvent};

use crate::action::Refusal;
use crate::progress::{EphemeralMessage, PlacedMessage};
use crate::step::{Step, StepResult};

impl Step {
    /// Adds the conversation to the Thread, then starts the run with the user message.
    pub(super) fn on_history(&mut self, history: Vec<Item>, said: Vec<Body>) -> StepResult {
        self.check_not_started()?;
        let is_stored = |item: &Item| !item.ephemeral;
        check_ephemeral(&history)?;
        check_calls(history.iter().filter(|item| is_stored(item)))?;
        let has_items = history.iter().any(is_stored) || !self.state.window.items.is_empty();
        if said.is_empty() && !has_items {
            let problem = "the message and the history are empty; start the run with a message";
            return Err(Refusal::invalid(problem));
        }
        let me = self.state.current_agent().map(|agent| agent.config.identity());
        let me = Arc::new(me.unwrap_or_default());
        let base = self.state.window.next;
        let last = self.state.window.items.last().map(|entry| entry.item.id.0.clone());
        let (mut after, mut ids, mut items) = (last, HashMap::new(), Vec::new());
        for mut item in history {
            if item.ephemeral {
                self.add_ephemeral(&item, after.clone());
                continue;
            }
            let id = ItemId(self.fresh_id("i"));
            ids.insert(std::mem::replace(&mut item.id, id.clone()), id.clone());
            item.place.message = item.place.message.saturating_add(base);
            assign_author(&mut item, &me);
            if let Body::Thought(thought) = &mut item.body {
                thought.set_recorded_at(self.at);
            }
            after = Some(id.0);
            items.push(item);
        }
        for seal in items.iter_mut().flat_map(|item| &mut item.seals) {
            let leads = seal.attached.leads.take();
            seal.attached.leads = leads.and_then(|leads| ids.get(&leads).cloned());
        }
        self.append_items(items);
        self.on_user_message(said)
    }

    /// Keeps an ephemeral text for the model calls of this run, and emits it for all listeners.
    fn add_ephemeral(&mut self, item: &Item, after: Option<Name>) {
        let Body::Text(text) = &item.body else { return };
        let by_model = item.role == Role::Assistant;
        let role = if by_model { "assistant" } else { "user" };
        let mut event = MessageEvent::new(role.into(), text.clone());
        event.ephemeral = Some(true);
        self.emit(RunEvent::Message(event));
        let message = EphemeralMessage { by_model, text: text.clone() };
        self.state.progress.ephemeral.push(PlacedMessage { after, message });
    }
}

/// Attributes an assistant's Item to the agent, unless the Item names another agent.
fn assign_author(item: &mut Item, me: &Arc<Identity>) {
    match &mut item.body {
        Body::Thought(thought) if thought.identity == Identity::default() => {
            thought.identity = Identity::clone(me);
        }
        Body::Thought(_) => {}
        _ if item.role == Role::Assistant && item.author.is_none() => {
            item.author = Some(Arc::clone(me));
        }
        _ => {}
    }
}

/// Checks that ephemeral messages contain only text, because the run keeps only their text.
fn check_ephemeral(history: &[Item]) -> StepResult {
    let is_text = |item: &Item| matches!(item.body, Body::Text(_));
    if history.iter().all(|item| !item.ephemeral || is_text(item)) {
        return Ok(());
    }
    let problem = "the history has an ephemeral message with content other than text";
    Err(Refusal::invalid(format!("{problem}; remove the content or the flag `ephemeral`")))
}

/// Checks that every tool call has a result and every result has a call, because providers reject a
/// conversation without these pairs.
fn check_calls<'h>(history: impl Iterator<Item = &'h Item> + Clone) -> StepResult {
    let mut open: HashSet<&CallId> = HashSet::new();
    for item in history.clone() {
        match &item.body {
            Body::Call(call) => {
                open.insert(&call.id);
            }
            Body::Result(result) if !open.remove(&result.call) => {
                let problem =
                    format!("the history has a result for an unknown call {}", result.call.0);
                return Err(Refusal::invalid(problem + "; add the call before its result"));
            }
            _ => {}
        }
    }
    let mut calls = history.filter_map(Item::call);
    let unanswered = calls.find(|call| open.contains(&call.id));
    unanswered.map_or(Ok(()), |call| {
        let problem = format!("the history has no result for the tool call {}", call.id.0);
        Err(Refusal::invalid(problem + "; add a tool message with its result"))
    })
}
