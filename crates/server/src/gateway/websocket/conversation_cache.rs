//! The conversations that a WebSocket holds in memory, so that a client can continue a response
//! that is not stored.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use throughline_json::{Json, Name};

use crate::gateway::websocket::steering::SteerSubmission;
use crate::telemetry::PoolPermit;
use throughline_json::{Node, object};

/// A conversation up to and including a response.
pub(super) struct SocketConversation {
    /// The stored response that the conversation continues.
    pub(super) base: Option<Name>,
    /// The items after `base`.
    pub(super) items: ItemList,
    /// The end user that the request names.
    pub(super) end_user: Option<Name>,
    /// The reserved memory, which is free again when the conversation is dropped.
    pub(super) _memory: PoolPermit,
}

/// The most recent conversations of a socket, by response id.
pub(super) struct ConversationCache {
    limit: usize,
    used: usize,
    entries: VecDeque<(Name, Arc<SocketConversation>)>,
}

impl ConversationCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: 0, entries: VecDeque::new() }
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<SocketConversation>> {
        let entry = self.entries.iter().find(|(known, _)| &**known == id);
        entry.map(|(_, conversation)| Arc::clone(conversation))
    }

    /// Drops the oldest conversation. Returns false if there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let Some((_, oldest)) = self.entries.pop_front() else { return false };
        self.used = self.used.saturating_sub(oldest.items.len());
        true
    }

    /// Holds a conversation, and drops the oldest ones beyond the limit. A conversation that is
    /// too large by itself is not held.
    pub(super) fn insert(&mut self, id: Name, conversation: SocketConversation) {
        let size = conversation.items.len();
        if size > self.limit {
            return;
        }
        while self.used + size > self.limit && self.drop_oldest() {}
        self.used += size;
        self.entries.push_back((id, Arc::new(conversation)));
    }
}

/// Items of a conversation as the elements of a JSON array, without its brackets.
#[derive(Clone, Default)]
pub(super) struct ItemList(Vec<u8>);

impl ItemList {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, item: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        self.0.extend_from_slice(item);
    }

    /// Adds the `input` of a request, and steering input after the tool results at its start. A
    /// provider may require that the results directly follow their calls.
    pub(super) fn push_input(&mut self, input: Option<Node<'_>>, steers: &[SteerSubmission]) {
        let mut steers = steers.iter().flat_map(|steer| &steer.messages).peekable();
        let message = input.filter(|input| input.is_string());
        let message = message.map(|text| object!("role": "user", "content": text));
        for item in input.into_iter().flat_map(Node::elements) {
            if steers.peek().is_some() && !is_result(item) {
                steers.by_ref().for_each(|message| self.push(message.bytes()));
            }
            self.push(item.raw());
        }
        steers.for_each(|message| self.push(message.bytes()));
        if let Some(message) = message {
            self.push(message.bytes());
        }
    }

    pub(super) fn to_array(&self) -> Json {
        Json::from_trusted(Bytes::from([b"[", &*self.0, b"]"].concat()))
    }
}

/// Returns whether an item is the result of a tool call or the decision on an approval.
fn is_result(item: Node<'_>) -> bool {
    let kind = item.text_of("type").unwrap_or_default();
    kind.ends_with("_output") || kind == "mcp_approval_response"
}
