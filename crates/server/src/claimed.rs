//! What a caller of another dialect is shown of an answer: the thoughts with our claim where that dialect keeps opaque
//! reasoning, and calls under ids of ours. Both come back from honest clients, and say which turn it was.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Event, Item, Json, Name, Native, NodeId, Origin, Reply, Side, Tenant, Thought,
    Wire, json,
};

use crate::replay::Claims;

/// Dresses one answer for a caller.
pub(crate) struct Dresser {
    wire: Wire,
    claims: Claims,
    tenant: Tenant,
    node: NodeId,
    /// The model's name as the caller wrote it, where the provider knows it under another.
    model: Option<Name>,
    /// The numbers of the calls that were seen, by their own ids.
    calls: HashMap<Name, usize>,
}

impl Dresser {
    pub(crate) fn new(
        wire: Wire,
        claims: Claims,
        tenant: Tenant,
        node: NodeId,
        model: Option<Name>,
    ) -> Self {
        Self { wire, claims, tenant, node, model, calls: HashMap::new() }
    }

    /// The answer as the caller is shown it.
    pub(crate) fn reply(&mut self, mut reply: Reply) -> Reply {
        reply.id = self.id(reply.id);
        reply.origin = self.origin(reply.origin);
        reply.items = reply.items.into_iter().map(|item| self.item(item)).collect();
        reply
    }

    /// A part of the stream as the caller is shown it.
    pub(crate) fn event(&mut self, event: Event) -> Event {
        match event {
            Event::Began { id, origin } => {
                Event::Began { id: self.id(id), origin: self.origin(origin) }
            }
            Event::Opened { index, id, mut body } => {
                self.name(&mut body);
                Event::Opened { index, id, body }
            }
            Event::Closed { index, item } => {
                Event::Closed { index, item: Box::new(self.item(*item)) }
            }
            Event::Ended(reply) => Event::Ended(Box::new(self.reply(*reply))),
            other => other,
        }
    }

    /// The origin that names the model as the caller wrote it. What is kept names the model that answered.
    fn origin(&self, origin: Arc<Origin>) -> Arc<Origin> {
        match &self.model {
            Some(model) => Arc::new(Origin { answered: model.clone(), ..Origin::clone(&origin) }),
            None => origin,
        }
    }

    /// The id of an answer. A response goes by one of ours: others go on from it, and ask for it.
    fn id(&self, own: Option<Name>) -> Option<Name> {
        if self.wire != Wire::OPENAI_RESPONSES {
            return own;
        }
        Some(self.claims.response_id(&self.tenant, &self.node))
    }

    fn item(&mut self, mut item: Item) -> Item {
        self.name(&mut item.body);
        if let Body::Thought(thought) = &item.body {
            let claim = self.claims.claim(&self.tenant, &self.node);
            item.native = native(&self.wire, thought, &claim);
            item.seals.clear();
        }
        item
    }

    fn name(&mut self, body: &mut Body) {
        let Body::Call(call) = body else { return };
        let own = call.wire_id.clone().unwrap_or_else(|| call.id.0.clone());
        let next = self.calls.len();
        let number = *self.calls.entry(own).or_insert(next);
        let shown = self.claims.call_id(&self.tenant, &self.node, number);
        call.id = CallId(shown.clone());
        call.wire_id = Some(shown);
    }
}

/// A thought in the words of a dialect, with a claim as its seal. Chat has no place for one: there its calls tell.
fn native(wire: &Wire, thought: &Thought, claim: &str) -> Option<Native> {
    let text = &*thought.content;
    let json: Json = match wire.as_str() {
        "anthropic-messages" => json::object(|o| {
            o.string("type", "thinking").string("thinking", text).string("signature", claim);
        }),
        "openai-responses" => json::object(|o| {
            // Its id is the one under which the stream began it: the codec gives both.
            o.string("type", "reasoning");
            o.array("summary", |a| {
                if !text.is_empty() {
                    a.object(|o| {
                        o.string("type", "summary_text").string("text", text);
                    });
                }
            });
            o.string("encrypted_content", claim);
        }),
        "gemini" => json::object(|o| {
            o.string("text", text).bool("thought", true).string("thoughtSignature", claim);
        }),
        _ => return None,
    };
    Some(Native {
        wire: wire.clone(),
        side: Side::Response,
        id: None,
        json,
        assembled: true,
        slot: "".into(),
        envelope: None,
    })
}
