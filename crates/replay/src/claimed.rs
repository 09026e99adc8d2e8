//! Rewrites a reply for a caller whose dialect differs from the provider's. The field for opaque
//! reasoning of each Thought contains a Claim, and tool calls get gateway ids. Clients send the
//! Claims and ids back, so the gateway can identify the turn.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Direction, Event, Item, NativePart, Origin, Reply, Tenant, Thought, TurnId, Wire,
};
use throughline_json::{self as json, Name};

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
        Self { wire, claims, tenant, node, model, calls: HashMap::new() }
    }

    /// Rewrites the id, the model name and the Items of a whole reply.
    pub fn reply(&mut self, mut reply: Reply) -> Reply {
        reply.id = self.id(reply.id);
        reply.origin = self.origin(reply.origin);
        reply.items = reply.items.into_iter().map(|item| self.item(item)).collect();
        reply
    }

    /// Rewrites one stream event. Events must be passed in order.
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

    /// Returns the origin with the model name from the caller's request. Only the caller's reply is
    /// changed; the stored turn keeps the name of the model that responded.
    fn origin(&self, origin: Arc<Origin>) -> Arc<Origin> {
        match &self.model {
            Some(model) => Arc::new(Origin { answered: model.clone(), ..Origin::clone(&origin) }),
            None => origin,
        }
    }

    /// Returns the id of the rewritten reply. In the Responses API, later requests refer to the
    /// reply by its id, so the reply gets a gateway id.
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
        let wire_id = call.wire_id.clone().unwrap_or_else(|| call.id.0.clone());
        let next = self.calls.len();
        let number = *self.calls.entry(wire_id).or_insert(next);
        let call_id = self.claims.call_id(&self.tenant, &self.node, number);
        call.id = CallId(call_id.clone());
        call.wire_id = Some(call_id);
    }
}

/// Renders a Thought in a dialect, with the Claim instead of the Thought's Seal. Returns `None` for
/// other dialects, such as Chat Completions, in which only the call ids identify the turn.
fn claim_json(wire: &Wire, thought: &Thought, claim: &str) -> Option<NativePart> {
    let text = &*thought.content;
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
        _ => return None,
    };
    let native = NativePart::new(wire.clone(), Direction::Response, json);
    Some(NativePart { assembled: true, ..native })
}
