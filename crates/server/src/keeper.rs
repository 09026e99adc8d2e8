//! Keeps what came of a call: its answer as a turn of the Vault, and its story.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Digest, Json, Name, NodeId, Origin, Reply, Stop, StoreError, Tenant, Usage, Wire,
};
use tokio::time::timeout;

use crate::objects;
use crate::operations::{Capture, Ticket, too_slow};
use crate::replay::{Answered, Conversation, Replay};
use crate::stored;
use crate::story::Story;

/// The most Items of one turn that an answer continues. A turn holds all of them again, so a longer one is not captured.
const MOST_OPEN: usize = 1_000;

/// Keeps what comes of one call.
pub(crate) struct Keeper {
    pub(crate) replay: Arc<Replay>,
    /// The call, until it is over; nothing where nothing is kept.
    pub(crate) open: Option<Open>,
    /// What stands before the answer, as it was sent.
    pub(crate) prefix: Option<Digest>,
    /// How long the end of an answer is held for it.
    pub(crate) longest: Duration,
    pub(crate) ticket: Arc<Ticket>,
    /// The tenant that owns the ids in the answer, where the caller has a gateway key.
    pub(crate) owner: Option<Owner>,
}

/// The tenant that owns the ids in an answer.
pub(crate) struct Owner {
    pub(crate) tenant: Tenant,
    /// The body of the request.
    pub(crate) asked: Bytes,
    /// Whether the caller may use the id before the answer ends, as that of a background response.
    pub(crate) is_early: bool,
}

/// A call of which something is to be kept.
pub(crate) struct Open {
    /// Where the answer belongs.
    pub(crate) conversation: Conversation,
    pub(crate) story: Story,
}

impl Keeper {
    /// Whether the answer as its caller is shown it is kept, to be asked for.
    pub(crate) fn keeps_response(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.story.keeps_response)
    }

    /// Keeps the answer, if answers are kept. It is held for that, unless captures are relaxed, but not for ever: one that cannot
    /// be kept reaches its caller all the same, and the loss is told. `shown` is what the caller is shown of it.
    pub(crate) async fn keep(&mut self, reply: Reply, shown: Option<Bytes>) {
        self.ticket.note(|facts| {
            facts.usage = Some(reply.usage);
            facts.is_whole = reply.stop != Stop::Cut;
        });
        // A captured turn carries its ids; the ids of every other answer are recorded here.
        let is_endless =
            self.open.as_ref().is_some_and(|open| open.conversation.open.len() > MOST_OPEN);
        let is_captured = reply.stop != Stop::Cut && !reply.items.is_empty() && !is_endless;
        if self.open.is_none() || !is_captured {
            self.record_ids(&reply).await;
        }
        let Some(Open { conversation, mut story }) = self.open.take() else { return };
        story.ends(&reply);
        story.cost = self.ticket.cost(&reply.usage);
        let response = shown.filter(|_| story.keeps_response).and_then(|shown| {
            let is_own = reply.origin.wire == Wire::OPENAI_RESPONSES;
            let shown = if is_own {
                Json::parse(shown).ok()
            } else {
                stored::echoed(&shown, &story.texts.came)
            };
            Some(stored::record(&shown?, conversation.end_user.as_deref(), &reply.origin))
        });
        if !is_captured {
            drop(timeout(self.longest, self.replay.stories().keep(&story)).await);
            return;
        }
        let owned = self.owner.as_ref().map(|owner| {
            let ids = objects::ids_of_reply(&reply, Some(&owner.asked));
            let account = Name::from(objects::account_of(&reply.origin));
            (Arc::clone(&self.replay), owner.tenant.clone(), account, ids)
        });
        let prefix = self.prefix;
        let answered = Box::new(Answered { story, conversation, reply, prefix, response });
        let ticket = Arc::clone(&self.ticket);
        let tell = move |kept: Result<Option<NodeId>, StoreError>| {
            if let (Err(_), Some((replay, tenant, account, ids))) = (&kept, &owned) {
                replay.note_unrecorded(tenant, account, ids);
            }
            ticket.note_capture(&kept);
        };
        let keeping = Box::pin(self.replay.keep(answered, tell));
        if timeout(self.longest, keeping).await.is_err() {
            self.ticket.note_capture::<NodeId>(&Err(too_slow()));
        }
    }

    /// Records the id of an answer that has begun, where the caller may use it before the end.
    pub(crate) async fn begin(&self, id: Option<&Name>, origin: &Arc<Origin>) {
        let is_early = self.owner.as_ref().is_some_and(|owner| owner.is_early);
        if let Some(id) = id.filter(|_| is_early) {
            let reply = Reply {
                id: Some(id.clone()),
                items: Vec::new(),
                stop: Stop::Cut,
                usage: Usage::default(),
                origin: Arc::clone(origin),
                extras: Vec::new(),
            };
            self.record_ids(&reply).await;
        }
    }

    /// Records that the caller's tenant owns the ids in an answer.
    async fn record_ids(&self, reply: &Reply) {
        let Some(owner) = &self.owner else { return };
        let ids = objects::ids_of_reply(reply, Some(&owner.asked));
        let account = objects::account_of(&reply.origin);
        let recording = self.replay.record_objects(&owner.tenant, account, &ids);
        let failed = match timeout(self.longest, recording).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store took too long".to_owned(),
        };
        self.replay.note_unrecorded(&owner.tenant, account, &ids);
        let lost = format!("the owner of the answer's ids was not recorded: {failed}");
        self.ticket.note(|facts| facts.capture = Capture::Lost(lost));
    }

    /// Keeps the story of a call that has no answer.
    pub(crate) async fn fail(&mut self, status: u16, message: &str) {
        if let Some(Open { story, .. }) = &mut self.open {
            story.fails(status, message);
            drop(timeout(self.longest, self.replay.stories().keep(story)).await);
        }
    }
}
