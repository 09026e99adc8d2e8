//! Keeps what came of a call: its answer as a turn of the Vault, and its story.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{Digest, Json, Reply, Stop, Wire};
use tokio::time::timeout;

use crate::operations::{Capture, Ticket};
use crate::replay::{Conversation, Replay, Turn};
use crate::stored;
use crate::story::Story;

/// Keeps what comes of one call.
pub(crate) struct Keeper {
    pub(crate) replay: Arc<Replay>,
    /// Where the answer belongs; nothing where nothing is kept.
    pub(crate) conversation: Option<Conversation>,
    /// What stands before the answer, as it was sent.
    pub(crate) prefix: Option<Digest>,
    pub(crate) story: Story,
    /// How long the end of an answer is held for it.
    pub(crate) longest: Duration,
    pub(crate) ticket: Arc<Ticket>,
}

impl Keeper {
    /// Keeps the answer before its end is told, if answers are kept, but does not hold that for ever. One that cannot be kept
    /// reaches its caller all the same, and the loss is told. `shown` is what the caller is shown of it.
    pub(crate) async fn keep(&mut self, reply: &Reply, shown: Option<Bytes>) {
        self.ticket.note(|facts| {
            facts.usage = Some(reply.usage);
            facts.is_whole = reply.stop != Stop::Cut;
        });
        let Some(conversation) = &self.conversation else { return };
        self.story.ends(reply);
        self.story.cost = self.ticket.cost(&reply.usage);
        let user = conversation.end_user.as_deref();
        let response = shown.filter(|_| self.story.keeps_response).and_then(|shown| {
            let is_own = reply.origin.wire == Wire::OPENAI_RESPONSES;
            let shown = if is_own {
                Json::parse(shown).ok()
            } else {
                stored::echoed(&shown, &self.story.texts.came)
            };
            Some(stored::record(&shown?, user, &reply.origin))
        });
        let turn = Turn {
            node: self.story.node.clone(),
            conversation,
            reply,
            prefix: self.prefix,
            ids: &[],
            story: Some(&self.story),
            response: response.as_ref(),
        };
        if reply.stop == Stop::Cut || reply.items.is_empty() {
            drop(timeout(self.longest, self.replay.stories().keep(&self.story)).await);
            return;
        }
        let kept = timeout(self.longest, self.replay.capture(&self.story.tenant, &turn)).await;
        let capture = match kept {
            Ok(Ok(Some(_))) => Capture::Kept,
            Ok(Ok(None)) => Capture::None,
            Ok(Err(error)) => Capture::Lost(error.to_string()),
            Err(_) => Capture::Lost("the store took too long".to_owned()),
        };
        self.ticket.note(|facts| facts.capture = capture);
    }

    /// Keeps the story of a call that has no answer.
    pub(crate) async fn fail(&mut self, status: u16, message: &str) {
        if self.conversation.is_some() {
            self.story.fails(status, message);
            drop(timeout(self.longest, self.replay.stories().keep(&self.story)).await);
        }
    }
}
