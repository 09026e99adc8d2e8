//! Handles one model call, from the client's request to its response.
//!
//! ```text
//! request  → resolve model → decode → restore → encode → audit and repair → send
//! response ← encode for client ← capture ← decode ← provider's response
//! ```
//!
//! If client and provider use the same wire, requests and responses pass unchanged unless a repair
//! is needed. `prepare.rs` prepares the request, and `answer.rs` returns the response.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use throughline_codec::{Catalog, Codec, add_beta, codec};
use throughline_core::{Request, UpstreamError, UpstreamRequest as Sent, UpstreamResponse, Wire};
use throughline_json::{Name, Tree};
use tokio::time::timeout;

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::accounts::is_for_next;
use crate::gateway::compaction::{COMPACTION_BETA, CompactionForm, CompactionMethod};
use crate::gateway::dialect;
use crate::gateway::headers::without_query;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::{Gateway, ReplayMode};
use crate::routing::RouteTarget;
use crate::telemetry::RequestScope;
use throughline_replay::{Claims, Conversation, DeltaBase, FateCounts, KnownFacts, ParsedBody};

/// A client request that the gateway is handling, with its caller, wire and parsed body.
pub(crate) struct Exchange<'g> {
    pub(crate) gateway: &'g Gateway,
    /// The gateway's catalog at the start of the request.
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) caller: Caller,
    pub(crate) wire: Wire,
    pub(crate) scope: Arc<RequestScope>,
    /// The parsed body as received, if it is JSON.
    pub(crate) body: Option<Tree>,
    /// What is known about the body from earlier requests.
    pub(crate) known: KnownFacts,
    /// The model name exactly as the client sent it.
    pub(crate) model: Option<Name>,
    /// The end user that the client names.
    pub(crate) end_user: Option<Name>,
    /// How the request asks for a compaction; `None` for any other request.
    pub(crate) compaction: Option<CompactionForm>,
}

impl<'g> Exchange<'g> {
    pub(crate) fn new(
        gateway: &'g Gateway,
        caller: Caller,
        wire: &Wire,
        scope: &Arc<RequestScope>,
        request: &Request,
        body: Option<ParsedBody>,
    ) -> Self {
        let (wire, scope) = (wire.clone(), Arc::clone(scope));
        let (body, known) = body.map(|body| (body.tree, body.known)).unzip();
        let known = known.unwrap_or_default();
        let model = dialect::requested_model(&wire, &request.path, body.as_ref());
        let end_user = || body.as_ref().and_then(dialect::end_user);
        let end_user = caller.end_user.clone().or_else(end_user);
        let catalog = gateway.catalog.current();
        let compaction = CompactionForm::of(&wire, &request.path, body.as_ref());
        Self { gateway, catalog, caller, wire, scope, body, known, model, end_user, compaction }
    }

    /// Calls a model. The call is recorded even if it fails.
    pub(crate) async fn call(&self, request: Request) -> GatewayResult {
        let node =
            Claims::new_turn_id().map_err(|error| GatewayError::new(500, error.to_string()))?;
        self.scope.record().begin_call(node.clone(), &request, self.body.as_ref());
        let response = match self.try_targets(&request).await {
            Ok((ready, reached, answer)) => {
                Box::pin(self.answer(&node, ready, &reached, answer, &request)).await
            }
            Err(problem) => {
                self.scope.record_error(&problem);
                self.scope.record().set_failure(problem.status, &*problem.message);
                if self.gateway.mode != ReplayMode::Off {
                    let record = self.scope.record().clone();
                    let storing = self.gateway.replay.calls().keep(&record);
                    drop(timeout(self.gateway.operations.limits.capture, storing).await);
                }
                Err(problem)
            }
        };
        Ok(response.unwrap_or_else(|problem| {
            problem.to_response(&self.wire).with_header("x-throughline-call", node.0)
        }))
    }

    /// Tries the targets of the requested model in order.
    async fn try_targets(
        &self,
        request: &Request,
    ) -> GatewayResult<(Box<PreparedRequest>, RouteTarget, UpstreamResponse)> {
        let model = self.requested_model(request)?;
        self.scope.record().set_requested_model(model);
        self.check_compaction()?;
        let all = self.reach(model).await?;
        self.gateway.operations.check_writes().await?;
        self.gateway.operations.meter.check_allowance(&self.caller.admission, &all).await?;
        let previous = self.find_previous(request).await?;
        let all = self.with_accounts(all, request, &previous).await?;
        let mut last = GatewayError::new(404, format!("no provider serves model {model}"));
        // The caller's own key is sent only to the first endpoint that takes a caller's key.
        let keyed = all.iter().find(|reached| reached.is_callers);
        let keyed = keyed.map(|reached| reached.endpoint.clone());
        let add_failed_attempt = |reached: &RouteTarget, reason: &str| {
            self.scope.record().add_failed_attempt(&reached.endpoint, reason);
        };
        let attempts = self.with_methods(all)?;
        for (index, (reached, method)) in attempts.iter().enumerate() {
            let (next, method) = (attempts.get(index + 1), *method);
            if reached.is_callers && Some(&reached.endpoint) != keyed.as_ref() {
                add_failed_attempt(reached, "no key for this endpoint");
                continue;
            }
            let rename = |body: &Bytes| {
                let request = Request { body: body.clone(), ..request.clone() };
                dialect::renamed(&self.wire, request, model, &reached.model)
            };
            let expanded = previous.request_for(&reached.provider.wire)?;
            let compacting = |body: &Bytes| self.compaction_request(rename(body), reached, method);
            let expanded = expanded
                .map(|(stored, expanded)| Ok::<_, GatewayError>((stored, compacting(expanded)?)))
                .transpose()?;
            let renamed = compacting(&request.body)?;
            let length = expanded.as_ref().map_or(&renamed, |(_, expanded)| expanded).body.len();
            let ready = self.prepare(renamed, expanded, reached);
            let mut ready =
                self.gateway.operations.heavy.run(&self.caller, length, ready).await??;
            ready.compaction = method;
            if let Some(conversation) = ready.conversation.as_mut().filter(|_| method.is_some()) {
                // A compaction is a turn of its own, even after a turn of the model.
                conversation.open.clear();
            }
            if method == Some(CompactionMethod::Native) && reached.provider.wire != self.wire {
                add_beta(&mut ready.encoded.request.headers, COMPACTION_BETA);
            }
            let sent = &ready.encoded.request.body;
            self.check_ownership(&ready.target.origin, sent).await?;
            self.reserve_budget(reached, sent.len()).await?;
            {
                let mut record = self.scope.record();
                record.provider = Some(reached.charged_provider());
                record.account = reached.account_name().map(Name::from);
                record.model = Some(reached.model.clone());
                record.fates = Some(FateCounts::of(&ready.encoded.fates));
                record.fallbacks = index as u64;
            }
            self.scope.release_preparation_memory();
            self.open_at_account(reached);
            let (answer, base) =
                join(self.send_or_repeat(&ready, reached, request), self.load_delta_base(&ready))
                    .await;
            self.record_account(reached, &answer);
            self.scope.record().base = base;
            match answer {
                // Statuses 408, 429 and 5xx move on to the next target, if another one is left. A
                // target that refuses to compact is asked for a summary next.
                Ok(answer)
                    if next.is_none_or(|(next, _)| {
                        !is_for_next(answer.status, reached, next)
                            && !method.is_some_and(|method| method.is_unsupported(answer.status))
                    }) =>
                {
                    self.scope.record().set_first_byte(answer.status);
                    return Ok((ready, reached.clone(), answer));
                }
                Ok(answer) => {
                    let message = format!("{} could not serve the request", reached.endpoint);
                    add_failed_attempt(reached, &format!("status {}", answer.status));
                    last = GatewayError::new(answer.status, message);
                }
                Err(error) => {
                    add_failed_attempt(reached, &error.to_string());
                    last = self.record_upstream_error(&error);
                }
            }
        }
        Err(last)
    }

    pub(crate) fn record_upstream_error(&self, error: &UpstreamError) -> GatewayError {
        {
            let mut record = self.scope.record();
            record.problem = Some(error.to_string());
            record.may_be_charged |= error.may_be_charged();
        }
        let problem = GatewayError::from(error);
        match error {
            UpstreamError::NoCredential { endpoint, .. } if self.caller.credential.is_some() => {
                let message = format!(
                    "{error}; the key in this request was not sent, because it is not a key of \
                     {endpoint}"
                );
                GatewayError { message, ..problem }
            }
            _ => problem,
        }
    }

    /// Loads the bodies of the previous call as the base for delta compression, while the provider
    /// generates its response.
    async fn load_delta_base(&self, ready: &PreparedRequest) -> Option<Arc<DeltaBase>> {
        let Conversation { parent, era, .. } = ready.conversation.as_ref()?;
        let calls = self.gateway.replay.calls();
        let tail = calls.tail(&ready.tenant, parent.as_ref()?, Some(*era));
        // A hanging store must not delay the response.
        timeout(self.gateway.operations.limits.capture, tail).await.ok().flatten()
    }

    /// Sends `body` to the target of a prepared request.
    pub(crate) async fn send(
        &self,
        ready: &PreparedRequest,
        reached: &RouteTarget,
        received: &Request,
        body: Bytes,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let sent = self.upstream_call(ready, reached, received, body);
        self.scope.record().set_sent(&sent, &ready.target.origin);
        self.gateway.upstream.send(sent).await
    }

    /// Returns the request that sends `body` to the target of a prepared request.
    pub(crate) fn upstream_call(
        &self,
        ready: &PreparedRequest,
        reached: &RouteTarget,
        received: &Request,
        body: Bytes,
    ) -> Sent {
        let wire = &ready.target.origin.wire;
        let path = codec_for(wire).map(|codec| codec.path(&ready.target, ready.stream));
        let mut path = path.unwrap_or_default();
        let is_native = ready.compaction == Some(CompactionMethod::Native) && *wire == self.wire;
        if is_native && self.compaction == Some(CompactionForm::Endpoint) {
            path = format!("{}/compact", without_query(&path));
        }
        // On the same wire the caller's query is kept, since it may request another framing.
        if *wire == self.wire {
            path.truncate(without_query(&path).len());
            if let Some((_, query)) = received.path.split_once('?') {
                path = format!("{path}?{query}");
            }
        }
        let headers = ready.encoded.request.headers.clone();
        let request = Request { path: path.into(), headers, body };
        self.upstream_request(reached, "POST", request)
    }

    fn upstream_request(&self, reached: &RouteTarget, method: &str, request: Request) -> Sent {
        let key = self.caller.credential.as_ref();
        let credential = key.and_then(|key| key.for_provider(&reached.provider, &self.wire));
        Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: method.into(),
            path: request.path,
            headers: request.headers,
            body: request.body,
            credential,
        }
    }

    /// Sends a request other than a model call to the provider.
    pub(crate) async fn send_other(
        &self,
        reached: &RouteTarget,
        method: &str,
        request: Request,
    ) -> GatewayResult<UpstreamResponse> {
        {
            let mut record = self.scope.record();
            record.provider = Some(reached.charged_provider());
            record.account = reached.account_name().map(Name::from);
        }
        let sent = self.upstream_request(reached, method, request);
        self.open_at_account(reached);
        let answer = self.gateway.upstream.send(sent).await;
        self.record_account(reached, &answer);
        let answer = answer.map_err(|error| self.record_upstream_error(&error))?;
        self.scope.record_first_byte();
        Ok(answer)
    }
}

pub(crate) fn codec_for(wire: &Wire) -> GatewayResult<&'static dyn Codec> {
    codec(wire)
        .ok_or_else(|| GatewayError::new(500, format!("no codec registered for wire `{wire}`")))
}
