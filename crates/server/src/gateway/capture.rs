//! Stores the outcome of a call: the reply as a turn in the Vault, and the call record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{Digest, Origin, Reply, StopReason, Target, Tenant, TurnId, Usage, Wire};
use throughline_json::{Json, Name};
use tokio::time::timeout;

use crate::records::StoreResult;
use crate::telemetry::{RequestScope, store_timeout};
use throughline_replay::{Conversation, OwnedTurn, Replay};

/// Maximum number of Items in an unfinished turn that a reply may continue. The captured turn
/// stores these Items again, so a longer turn is not captured.
const MAX_OPEN_ITEMS: usize = 1_000;

/// Captures the outcome of one call.
pub(crate) struct CaptureHandle {
    pub(crate) replay: Arc<Replay>,
    pub(crate) node: TurnId,
    /// The conversation that the reply continues; `None` if nothing is stored. [`Self::capture`]
    /// takes the value.
    pub(crate) conversation: Option<Conversation>,
    /// The target that received the request.
    pub(crate) target: Target,
    /// Digest of the prefix of the sent request, if the model binds its Seals to the prefix.
    pub(crate) prefix: Option<Digest>,
    /// How long the gateway may delay the end of a response to wait for the capture.
    pub(crate) longest: Duration,
    pub(crate) scope: Arc<RequestScope>,
    /// The tenant that owns the ids in the response, if the caller has a gateway key.
    pub(crate) owner: Option<IdOwner>,
}

/// The tenant that owns the ids in a response.
pub(crate) struct IdOwner {
    pub(crate) tenant: Tenant,
    /// Whether the request names a thread, so that the id of an Anthropic reply names it too.
    pub(crate) names_thread: bool,
    /// Whether the caller may use the response id before the response ends, as with a background
    /// response.
    pub(crate) is_early: bool,
}

impl CaptureHandle {
    /// Returns whether the response is stored as the caller sees it, for later retrieval.
    pub(crate) fn stores_response(&self) -> bool {
        self.conversation.is_some() && self.scope.record().keeps_response
    }

    /// Returns whether the reply's Items are needed: to capture the reply, or to record its ids.
    pub(crate) fn needs_items(&self) -> bool {
        self.conversation.is_some() || self.owner.is_some()
    }

    /// Captures the reply, if captures are enabled. The end of the response waits for the capture
    /// for at most `longest`, or not at all if captures are relaxed. If the capture fails, the
    /// caller still gets the response and the loss is reported. `shown_body` is the response as the
    /// caller sees it.
    pub(crate) async fn capture(&mut self, reply: Reply, shown_body: Option<Bytes>) {
        {
            let mut record = self.scope.record();
            record.set_reply(&reply);
            record.set_transformations(&reply, &self.target);
        }
        // A captured turn contains its ids; the ids of every other response are recorded here.
        let conversation = self.conversation.take();
        let is_endless = conversation.as_ref().is_some_and(|it| it.open.len() > MAX_OPEN_ITEMS);
        let is_captured = reply.stop != StopReason::Cut && !reply.items.is_empty() && !is_endless;
        if conversation.is_none() || !is_captured {
            self.record_ids(&reply).await;
        }
        let Some(conversation) = conversation else { return };
        let cost = self.scope.cost(&reply.usage);
        self.scope.record().cost = cost;
        let record = self.scope.record().clone();
        let response = shown_body.filter(|_| record.keeps_response).and_then(|shown_body| {
            let is_own = reply.origin.wire == Wire::OPENAI_RESPONSES;
            let shown_body = if is_own {
                Json::parse(shown_body).ok()
            } else {
                throughline_replay::echoed(&shown_body, &record.texts.received)
            };
            Some(throughline_replay::response_record(
                &shown_body?,
                conversation.end_user.as_deref(),
                &reply.origin,
            ))
        });
        if !is_captured {
            let stored = timeout(self.longest, self.replay.calls().keep(&record)).await;
            if let Err(error) = stored.unwrap_or_else(|_| Err(store_timeout())) {
                let lost = format!("cannot store the record of the call: {error}");
                self.scope.record_lost_capture(&lost);
            }
            return;
        }
        let owned = self.owner.as_ref().map(|owner| {
            let ids = throughline_replay::ids_of_reply(&reply, owner.names_thread);
            let account = Name::from(throughline_replay::account_of(&reply.origin));
            (Arc::clone(&self.replay), owner.tenant.clone(), account, ids)
        });
        let (node, prefix) = (self.node.clone(), self.prefix);
        let turn = Box::new(OwnedTurn { node, record, conversation, reply, prefix, response });
        let scope = Arc::clone(&self.scope);
        let on_stored = move |captured: StoreResult<Option<TurnId>>| {
            if let (Err(_), Some((replay, tenant, account, ids))) = (&captured, &owned) {
                replay.cache_unrecorded(tenant, account, ids);
            }
            scope.record_capture(&captured);
            scope.end();
        };
        let storing = Box::pin(self.replay.keep(turn, on_stored));
        if timeout(self.longest, storing).await.is_err() {
            self.scope.record_capture::<TurnId>(&Err(store_timeout()));
        }
    }

    /// Records the id of a response that has started, if the caller may use the id before the
    /// response ends.
    pub(crate) async fn record_early_id(&self, id: Option<&Name>, origin: &Arc<Origin>) {
        let is_early = self.owner.as_ref().is_some_and(|owner| owner.is_early);
        if let Some(id) = id.filter(|_| is_early) {
            let reply = Reply {
                id: Some(id.clone()),
                items: Vec::new(),
                stop: StopReason::Cut,
                usage: Usage::default(),
                origin: Arc::clone(origin),
                extras: Vec::new(),
            };
            self.record_ids(&reply).await;
        }
    }

    /// Records that the caller's tenant owns the ids in a response.
    async fn record_ids(&self, reply: &Reply) {
        let Some(owner) = &self.owner else { return };
        let ids = throughline_replay::ids_of_reply(reply, owner.names_thread);
        let account = throughline_replay::account_of(&reply.origin);
        let recording = self.replay.record_objects(&owner.tenant, account, &ids);
        let failed = match timeout(self.longest, recording).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store took too long".to_owned(),
        };
        self.replay.cache_unrecorded(&owner.tenant, account, &ids);
        let lost = format!("cannot record the owner of the ids in the response: {failed}");
        self.scope.record_lost_capture(&lost);
    }

    /// Stores the record of a call that failed.
    pub(crate) async fn record_failure(&self, status: u16, message: &str) {
        if self.conversation.is_some() {
            let record = {
                let mut record = self.scope.record();
                record.set_failure(status, message);
                record.clone()
            };
            drop(timeout(self.longest, self.replay.calls().keep(&record)).await);
        }
    }
}
