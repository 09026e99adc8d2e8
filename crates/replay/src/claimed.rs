//! Rewrites a reply for a caller whose dialect differs from the provider's. The field for opaque
//! reasoning of each Thought contains a Claim, and tool calls get gateway ids. Clients send the
//! Claims and ids back, so the gateway can identify the turn.
//!
//! The reply to a compaction request becomes one compaction item, whose Claim stands for the
//! summary in the reply.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use throughline_codec::CallForms;
use throughline_core::{
    Body, CallId, Direction, Event, Item, ItemId, ItemPosition, NativePart, Origin, Reply, Role,
    StopReason, Tenant, Thought, TurnId, Wire,
};
use throughline_json::{self as json, Json, Label, Name};

use crate::claim::Claims;

/// Rewrites one reply, whole or streamed, for its caller.
pub struct ClaimRewriter {
    wire: Wire,
    claims: Claims,
    tenant: Tenant,
    node: TurnId,
    /// The model name in the caller's request, if it differs from the provider's name.
    model: Option<Name>,
    /// The number of each tool call, by the provider's call id.
    calls: HashMap<Name, usize>,
    /// The number of each Thought, by Item id.
    thoughts: HashMap<ItemId, usize>,
    /// Whether the reply is shown as one compaction item.
    is_compaction: bool,
    /// The forms of the calls that the caller's tools require.
    forms: CallForms,
    /// The stream indexes of calls that are sent once complete.
    buffered: HashSet<u32>,
}

impl ClaimRewriter {
    /// Creates a rewriter for the reply of turn `node`. `model` replaces the model name in the
    /// reply.
    pub fn new(
        wire: Wire,
        claims: Claims,
        tenant: Tenant,
        node: TurnId,
        model: Option<Name>,
    ) -> Self {
        Self {
            wire,
            claims,
            tenant,
            node,
            model,
            calls: HashMap::new(),
            thoughts: HashMap::new(),
            is_compaction: false,
            forms: CallForms::default(),
            buffered: HashSet::new(),
        }
    }

    /// Gives the calls in the reply the forms that the caller's tools require.
    #[must_use]
    pub fn with_call_forms(self, forms: CallForms) -> Self {
        Self { forms, ..self }
    }

    /// Shows the reply as one compaction item of the Responses API. [`Replay::expand`] later
    /// replaces the item with the summary in the reply.
    ///
    /// [`Replay::expand`]: crate::Replay::expand
    #[must_use]
    pub fn compacting(self) -> Self {
        Self { is_compaction: true, ..self }
    }

    /// Returns whether the reply is shown as one compaction item.
    pub fn is_compacting(&self) -> bool {
        self.is_compaction
    }

    /// Rewrites the id, the model name and the Items of a whole reply.
    pub fn reply(&mut self, mut reply: Reply) -> Reply {
        reply.id = self.id(reply.id);
        reply.origin = self.origin(reply.origin);
        if self.is_compaction {
            reply.items = vec![self.compaction()];
            reply.stop = StopReason::Done;
            // These members describe the summary, not the compaction.
            reply.extras.clear();
            return reply;
        }
        reply.items = reply.items.into_iter().map(|item| self.item(item)).collect();
        reply
    }

    /// Rewrites one stream event. Events must be passed in order. An event of a compaction may
    /// become no event or several events. A call that needs another form is sent once complete.
    pub fn events(&mut self, event: Event) -> Vec<Event> {
        if !self.is_compaction {
            let is_buffered = self.buffers(&event);
            return if is_buffered { Vec::new() } else { vec![self.event(event)] };
        }
        match event {
            Event::Opened { .. } | Event::Delta { .. } | Event::Closed { .. } => Vec::new(),
            Event::Ended(_) => {
                let closed = Event::Closed { index: 0, item: Box::new(self.compaction()) };
                vec![closed, self.event(event)]
            }
            other => vec![self.event(other)],
        }
    }

    /// Returns whether the event is a part of a call that is sent once complete.
    fn buffers(&mut self, event: &Event) -> bool {
        match event {
            Event::Opened { index, body: Body::Call(call), .. } => {
                self.forms.contains(&call.name) && self.buffered.insert(*index)
            }
            Event::Delta { index, .. } => self.buffered.contains(index),
            Event::Closed { index, .. } => {
                self.buffered.remove(index);
                false
            }
            Event::Began { .. }
            | Event::Opened { .. }
            | Event::Usage(_)
            | Event::Ended(_)
            | Event::Failed(_)
            | Event::Alien(_) => false,
        }
    }

    fn event(&mut self, event: Event) -> Event {
        match event {
            Event::Began { id, origin } => {
                Event::Began { id: self.id(id), origin: self.origin(origin) }
            }
            Event::Opened { index, id, mut body } => {
                self.rename_call(&mut body);
                Event::Opened { index, id, body }
            }
            Event::Closed { index, item } => {
                Event::Closed { index, item: Box::new(self.item(*item)) }
            }
            Event::Ended(reply) => Event::Ended(Box::new(self.reply(*reply))),
            other => other,
        }
    }

    /// Returns the origin with the model name from the caller's request. Only the caller's reply is
    /// changed; the stored turn keeps the name of the model that responded.
    fn origin(&self, origin: Arc<Origin>) -> Arc<Origin> {
        match &self.model {
            Some(model) => Arc::new(Origin { answered: model.clone(), ..Origin::clone(&origin) }),
            None => origin,
        }
    }

    /// Returns the id of the rewritten reply. In the Responses API, later requests refer to the
    /// reply by its id, so the reply gets a gateway id. A reply without an id, such as a reply of
    /// Bedrock, gets the id of its turn: Claude Code joins replies with equal ids.
    fn id(&self, own: Option<Name>) -> Option<Name> {
        let prefix = match self.wire.as_str() {
            "openai-responses" => {
                return Some(self.claims.response_id(&self.tenant, &self.node));
            }
            "anthropic-messages" => "msg_",
            "openai-chat" => "chatcmpl-",
            _ => return own,
        };
        own.or_else(|| Some(Name::from(format!("{prefix}{}", self.node.0))))
    }

    fn item(&mut self, mut item: Item) -> Item {
        self.rename_call(&mut item.body);
        self.forms.apply(&mut item);
        if let Body::Thought(thought) = &item.body {
            let claim = self.claims.claim(&self.tenant, &self.node);
            let next = self.thoughts.len();
            let number = *self.thoughts.entry(item.id.clone()).or_insert(next);
            item.native = claimed_part(&self.wire, thought, number, &claim);
            item.seals.clear();
        }
        item
    }

    /// Returns the compaction item, which contains only the Claim.
    fn compaction(&self) -> Item {
        let claim = self.claims.claim(&self.tenant, &self.node);
        let json = json::object!("type": "compaction", "encrypted_content": &*claim);
        let native = NativePart::new(self.wire.clone(), Direction::Response, json);
        let (id, place) = (ItemId::from("compaction"), ItemPosition::default());
        let mut item = Item::new(id, place, Role::Assistant, Body::Compaction);
        item.native = Some(NativePart { assembled: true, ..native });
        item
    }

    fn rename_call(&mut self, body: &mut Body) {
        let Body::Call(call) = body else { return };
        let wire_id = call.wire_id.clone().unwrap_or_else(|| call.id.0.clone());
        let next = self.calls.len();
        let number = *self.calls.entry(wire_id).or_insert(next);
        let call_id = self.claims.call_id(&self.tenant, &self.node, number);
        call.id = CallId(call_id.clone());
        call.wire_id = Some(call_id);
    }
}

/// Renders a Thought in a dialect, with the Claim instead of the Thought's Seal. `number` is the
/// index of the Thought in the reply. Returns `None` for an unknown dialect, in which only the call
/// ids identify the turn.
fn claimed_part(wire: &Wire, thought: &Thought, number: usize, claim: &str) -> Option<NativePart> {
    let text = &*thought.content;
    let mut slot = Label::Borrowed("");
    let json = match wire.as_str() {
        "anthropic-messages" => {
            json::object!("type": "thinking", "thinking": text, "signature": claim)
        }
        "openai-responses" => json::object(|out| {
            let summary = json::object!("type": "summary_text", "text": text);
            // The codec adds the id that the stream used when it opened this item.
            out.string("type", "reasoning");
            out.list("summary", Some(&summary).filter(|_| !text.is_empty()));
            out.string("encrypted_content", claim);
        }),
        "gemini" => json::object!("text": text, "thought": true, "thoughtSignature": claim),
        "openai-chat" => {
            let (part, echoes) = claimed_detail(text, number, claim);
            slot = Label::Owned(format!("reasoning_details/{number}{echoes}"));
            part
        }
        "bedrock-converse" => {
            let signed = json::object!("text": text, "signature": claim);
            json::object!("reasoningContent": &json::object!("reasoningText": &signed))
        }
        _ => return None,
    };
    let native = NativePart::new(wire.clone(), Direction::Response, json);
    Some(NativePart { assembled: true, slot, ..native })
}

/// Renders a Thought as an entry of `reasoning_details`, the only member of a chat message that can
/// hold a Claim. Also returns the slots of the strings that repeat the readable text.
fn claimed_detail(text: &str, number: usize, claim: &str) -> (Json, &'static str) {
    let index = number as u64;
    if text.is_empty() {
        let detail = json::object!(
            "type": "reasoning.encrypted", "data": claim, "format": "unknown", "index": index,
        );
        return (detail, "");
    }
    let detail = json::object!(
        "type": "reasoning.text", "text": text, "signature": claim, "format": "unknown",
        "index": index,
    );
    (detail, "+reasoning_content+reasoning")
}

#[cfg(test)]
#[path = "claimed_tests.rs"]
mod claimed_tests;
