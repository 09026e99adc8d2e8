//! Rewrites a reply for a caller of another dialect: thoughts carry a Claim where that dialect
//! keeps opaque reasoning, and tool calls get ids of the gateway. Clients send both back, which
//! identifies the turn.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Direction, Event, Item, NativePart, Origin, Reply, Tenant, Thought, TurnId, Wire,
};
use throughline_json::{self as json, Name};

use crate::claim::Claims;

/// Rewrites one reply for its caller.
pub struct ClaimRewriter {
    wire: Wire,
    claims: Claims,
    tenant: Tenant,
    node: TurnId,
    /// The model name that the caller sent, if the provider uses another one.
    model: Option<Name>,
    /// Call numbers by the provider's call id.
    calls: HashMap<Name, usize>,
}

impl ClaimRewriter {
    /// Creates a rewriter for one reply.
    pub fn new(
        wire: Wire,
        claims: Claims,
        tenant: Tenant,
        node: TurnId,
        model: Option<Name>,
    ) -> Self {
        Self { wire, claims, tenant, node, model, calls: HashMap::new() }
    }

    /// Rewrites a whole reply.
    pub fn reply(&mut self, mut reply: Reply) -> Reply {
        reply.id = self.id(reply.id);
        reply.origin = self.origin(reply.origin);
        reply.items = reply.items.into_iter().map(|item| self.item(item)).collect();
        reply
    }

    /// Rewrites one stream event.
    pub fn event(&mut self, event: Event) -> Event {
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

    /// Returns the origin with the model name that the caller sent. Stored content names the
    /// answering model.
    fn origin(&self, origin: Arc<Origin>) -> Arc<Origin> {
        match &self.model {
            Some(model) => Arc::new(Origin { answered: model.clone(), ..Origin::clone(&origin) }),
            None => origin,
        }
    }

    /// Returns the reply's id. For the Responses API it is a gateway id, since later requests refer
    /// to it.
    fn id(&self, own: Option<Name>) -> Option<Name> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return own;
        }
        Some(self.claims.response_id(&self.tenant, &self.node))
    }

    fn item(&mut self, mut item: Item) -> Item {
        self.rename_call(&mut item.body);
        if let Body::Thought(thought) = &item.body {
            let claim = self.claims.claim(&self.tenant, &self.node);
            item.native = claim_json(&self.wire, thought, &claim);
            item.seals.clear();
        }
        item
    }

    fn rename_call(&mut self, body: &mut Body) {
        let Body::Call(call) = body else { return };
        let own = call.wire_id.clone().unwrap_or_else(|| call.id.0.clone());
        let next = self.calls.len();
        let number = *self.calls.entry(own).or_insert(next);
        let shown = self.claims.call_id(&self.tenant, &self.node, number);
        call.id = CallId(shown.clone());
        call.wire_id = Some(shown);
    }
}

/// Renders a thought in a dialect with the Claim as its seal. Chat Completions has no field for
/// one; there the call ids identify the turn.
fn claim_json(wire: &Wire, thought: &Thought, claim: &str) -> Option<NativePart> {
    let text = &*thought.content;
    let json = match wire.as_str() {
        "anthropic-messages" => {
            json::object!("type": "thinking", "thinking": text, "signature": claim)
        }
        "openai-responses" => json::object(|out| {
            let summary = json::object!("type": "summary_text", "text": text);
            // The codec adds the id under which the stream opened this item.
            out.string("type", "reasoning");
            out.list("summary", Some(&summary).filter(|_| !text.is_empty()));
            out.string("encrypted_content", claim);
        }),
        "gemini" => json::object!("text": text, "thought": true, "thoughtSignature": claim),
        _ => return None,
    };
    let native = NativePart::new(wire.clone(), Direction::Response, json);
    Some(NativePart { assembled: true, ..native })
}
