//! Handles one model call, from the client's request to its response.
//!
//! ```text
//! request  → resolve model → decode → restore → encode → audit and repair → send
//! response ← encode for client ← capture ← decode ← provider's response
//! ```
//!
//! If client and provider use the same wire, bytes pass unchanged both ways unless a repair is
//! needed. `prepare.rs` prepares the request, `answer.rs` returns the response.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use throughline_codec::{Codec, codec};
use throughline_core::{Request, UpstreamError, UpstreamRequest as Sent, UpstreamResponse, Wire};
use throughline_json::{Name, Tree};
use tokio::time::timeout;

use crate::access::Caller;
use crate::error::GatewayError;
use crate::gateway::dialect;
use crate::gateway::headers::without_query;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::{Gateway, ReplayMode};
use crate::response::GatewayResponse;
use crate::routing::RouteTarget;
use crate::telemetry::RequestScope;
use throughline_replay::{Claims, Conversation, DeltaBase, FateCounts};

/// One request of one caller.
pub(crate) struct Exchange<'g> {
    pub(crate) gateway: &'g Gateway,
    pub(crate) caller: Caller,
    pub(crate) wire: Wire,
    pub(crate) scope: Arc<RequestScope>,
    /// The parsed body, if it is JSON.
    pub(crate) body: Option<Tree>,
}

impl<'g> Exchange<'g> {
    pub(crate) fn new(
        gateway: &'g Gateway,
        caller: Caller,
        wire: Wire,
        scope: Arc<RequestScope>,
        body: Option<Tree>,
    ) -> Self {
        Self { gateway, caller, wire, scope, body }
    }

    /// Calls a model and records the call whatever its outcome.
    pub(crate) async fn call(&self, request: Request) -> Result<GatewayResponse, GatewayError> {
        let node =
            Claims::new_turn_id().map_err(|error| GatewayError::new(500, error.to_string()))?;
        self.scope.record().begin_call(node.clone(), &request);
        let answered = match self.try_targets(&request).await {
            Ok((ready, reached, answer)) => {
                Box::pin(self.answer(&node, ready, &reached, answer, &request)).await
            }
            Err(problem) => {
                self.scope.record_error(&problem);
                self.scope.record().set_failure(problem.status, &*problem.message);
                if self.gateway.mode != ReplayMode::Off {
                    let record = self.scope.record().clone();
                    let keeping = self.gateway.replay.calls().keep(&record);
                    drop(timeout(self.gateway.operations.limits.capture, keeping).await);
                }
                Err(problem)
            }
        };
        Ok(answered.unwrap_or_else(|problem| {
            let mut answered = problem.told(&self.wire);
            answered.headers.push((Name::from("x-throughline-call"), node.0));
            answered
        }))
    }

    /// Tries the targets of the requested model in order.
    async fn try_targets(
        &self,
        request: &Request,
    ) -> Result<(PreparedRequest, RouteTarget, UpstreamResponse), GatewayError> {
        let body = self.body.as_ref();
        let (asked, end_user) = self.named(request, body)?;
        self.scope.record().set_requested_model(&asked);
        let all = self.reach(&asked)?;
        self.gateway.operations.check_writes().await?;
        self.gateway.operations.meter.check_allowance(&self.caller.admission, &all).await?;
        let resumed = self.find_previous(request, body, end_user.as_deref()).await?;
        let mut last = GatewayError::new(404, format!("no provider serves model {asked}"));
        let mut left = all.len();
        // The caller's own key is sent only to the first endpoint that takes a caller's key.
        let keyed = all.iter().find(|reached| reached.is_callers);
        let keyed = keyed.map(|reached| reached.endpoint.clone());
        let add_failed_attempt = |reached: &RouteTarget, reason: &str| {
            self.scope.record().add_failed_attempt(&reached.endpoint, reason);
        };
        for (place, reached) in all.into_iter().enumerate() {
            left -= 1;
            if reached.is_callers && Some(&reached.endpoint) != keyed.as_ref() {
                add_failed_attempt(&reached, "no key for this endpoint");
                continue;
            }
            let rename = |body: &Bytes| {
                let request = Request { body: body.clone(), ..request.clone() };
                dialect::renamed(&self.wire, request, &asked, &reached.model)
            };
            let whole = resumed.request_for(&reached.provider.wire)?;
            let whole = whole.map(|(stored, whole)| (stored, rename(whole)));
            let end_user = end_user.as_deref();
            let renamed = rename(&request.body);
            let length = whole.as_ref().map_or(&renamed, |(_, whole)| whole).body.len();
            let ready = self.prepare(renamed, body, whole, &reached, end_user);
            let heavy = &self.gateway.operations.heavy;
            let ready = heavy.run(&self.caller, length, Box::pin(ready)).await??;
            let sent = &ready.encoded.request.body;
            self.check_body_ownership(&ready.target.origin, sent, body).await?;
            self.record_target(&ready, &reached, place);
            self.scope.release_preparation_memory();
            let (answer, base) =
                join(self.send(&ready, &reached, request), self.load_delta_base(&ready)).await;
            self.scope.record().base = base;
            match answer {
                Ok(answer) if left == 0 || !allows_fallback(answer.status) => {
                    self.scope.record().set_first_byte(answer.status);
                    return Ok((ready, reached, answer));
                }
                Ok(answer) => {
                    let message = format!("{} could not answer", reached.endpoint);
                    add_failed_attempt(&reached, &format!("status {}", answer.status));
                    last = GatewayError::new(answer.status, message);
                }
                Err(error) => {
                    add_failed_attempt(&reached, &error.to_string());
                    last = self.record_upstream_error(&error);
                }
            }
        }
        Err(last)
    }

    /// Records the target and the Fates of a prepared request.
    fn record_target(&self, ready: &PreparedRequest, reached: &RouteTarget, place: usize) {
        let mut record = self.scope.record();
        record.provider = Some(reached.account.clone());
        record.model = Some(reached.model.clone());
        record.fates = Some(FateCounts::of(&ready.encoded.fates));
        record.fallbacks = place as u64;
    }

    pub(crate) fn record_upstream_error(&self, error: &UpstreamError) -> GatewayError {
        self.scope.record().problem = Some(error.to_string());
        GatewayError::from_upstream(error)
    }

    /// Loads the bodies of the previous call as the delta base, while the provider answers.
    async fn load_delta_base(&self, ready: &PreparedRequest) -> Option<Arc<DeltaBase>> {
        let Conversation { parent, era, .. } = ready.conversation.as_ref()?;
        let calls = self.gateway.replay.calls();
        let tail = calls.tail(&ready.tenant, parent.as_ref()?, Some(*era));
        // A hanging store must not delay the response.
        timeout(self.gateway.operations.limits.capture, tail).await.ok().flatten()
    }

    async fn send(
        &self,
        ready: &PreparedRequest,
        reached: &RouteTarget,
        asked: &Request,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let wire = &ready.target.origin.wire;
        let path = codec_for(wire).map(|codec| codec.path(&ready.target, ready.stream));
        let mut path = path.unwrap_or_default();
        // On the same wire the caller's query is kept, since it may request another framing.
        if *wire == self.wire {
            path.truncate(without_query(&path).len());
            if let Some((_, query)) = asked.path.split_once('?') {
                path = format!("{path}?{query}");
            }
        }
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: "POST".into(),
            path: path.into(),
            headers: ready.encoded.request.headers.clone(),
            body: ready.encoded.request.body.clone(),
            credential: self.caller.credential.clone(),
        };
        self.scope.record().set_sent(&sent, &ready.target.origin);
        self.gateway.upstream.send(sent).await
    }
}

pub(crate) fn codec_for(wire: &Wire) -> Result<&'static dyn Codec, GatewayError> {
    codec(wire)
        .ok_or_else(|| GatewayError::new(500, format!("no codec registered for wire `{wire}`")))
}

/// Whether the next target is tried after this status.
fn allows_fallback(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}
