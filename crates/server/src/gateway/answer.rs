//! Handles the provider's response to a call: captures the reply, and returns it in the caller's
//! dialect.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use throughline_codec::{Codec, DecodeContext, Framing, error_message, join_replies};
use throughline_core::{Reply, Request, Role, Stage, TurnId, UpstreamResponse, Wire};
use throughline_json::{Name, Node};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::capture::{CaptureHandle, IdOwner};
use crate::gateway::compaction::{self, CompactionForm, CompactionMethod};
use crate::gateway::compression;
use crate::gateway::continuation::Continuer;
use crate::gateway::dialect;
use crate::gateway::exchange::{Exchange, codec_for};
use crate::gateway::model_name::ModelName;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::removed_tools::RemovedTools;
use crate::gateway::stream::{RelayParts, relay};
use crate::response::{GatewayResponse, ResponseBody};
use crate::routing::RouteTarget;
use throughline_replay::{ClaimRewriter, FateCounts};

/// Reason reported when a response cannot be decoded and is therefore not captured.
pub(crate) const UNREADABLE: &str = "the answer cannot be read";
/// Maximum size of a complete response, and of one frame of a stream: 64 MiB.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;

/// How to relay a non-streamed response.
struct WholeRelay {
    context: DecodeContext,
    /// Rewrites the reply for a caller of another dialect.
    rewriter: Option<ClaimRewriter>,
    /// Continues a reply that the provider interrupts.
    continuer: Option<Continuer>,
    /// The model name to show to a caller of the same dialect.
    model: Option<ModelName>,
    removed_tools: RemovedTools,
}

impl Exchange<'_> {
    /// Captures a provider's response and returns it to the caller.
    pub(crate) async fn answer(
        &self,
        node: &TurnId,
        ready: Box<PreparedRequest>,
        reached: &RouteTarget,
        answer: UpstreamResponse,
        request: &Request,
    ) -> GatewayResult {
        let wire = &ready.target.origin.wire;
        let is_claimed = self.claims_compaction(&ready);
        let is_same = *wire == self.wire && !is_claimed;
        let mut headers = self.report_headers(node, &ready, reached);
        let status = answer.status;
        let passed = answer.headers.iter().filter(|(name, _)| is_forwarded_header(name, is_same));
        headers.extend(passed.cloned());
        let model = self.model.clone().filter(|name| *name != reached.model);
        let rewriter = (!is_same).then(|| {
            let claims = self.gateway.replay.claims().clone();
            let (tenant, model) = (ready.tenant.clone(), model.clone());
            let rewriter =
                ClaimRewriter::new(self.wire.clone(), claims, tenant, node.clone(), model)
                    .with_call_forms(ready.call_forms.clone());
            if is_claimed { rewriter.compacting() } else { rewriter }
        });
        let continuer = rewriter.as_ref().and_then(|_| self.continuer(&ready, reached, request));
        // Converse does not return a model name.
        let can_rename = is_same
            && self.wire != Wire::BEDROCK_CONVERSE
            && compression::can_inflate(answer.header("content-encoding"));
        let model = model.filter(|_| can_rename);
        let model = model.map(|name| ModelName::new(self.wire.clone(), name));
        let mut keeper = CaptureHandle {
            replay: Arc::clone(&self.gateway.replay),
            node: node.clone(),
            conversation: ready.conversation,
            target: ready.target.clone(),
            prefix: ready.encoded.prefix,
            longest: self.gateway.operations.limits.capture,
            scope: Arc::clone(&self.scope),
            owner: self.id_owner(reached),
        };
        if let Err(problem) = refuse_redirect(&answer, reached) {
            keeper.record_failure(problem.status, &problem.message).await;
            return Err(problem);
        }
        let context = DecodeContext::of(ready.target);
        let context = DecodeContext { prefix: keeper.prefix, ..context };
        if status < 400 && ready.stream {
            let framing = dialect::framing(&self.wire, request);
            let from = codec_for(&context.target.origin.wire)?;
            let to = codec_for(&self.wire)?;
            self.scope.record_stream();
            let slow_reader = self.gateway.operations.limits.slow_reader;
            if model.is_some() {
                headers.retain(|(name, _)| !is_content_encoding(name));
            }
            let relayed = relay(RelayParts {
                answer,
                from,
                to,
                context,
                framing,
                rewriter,
                continuer,
                model,
                keeper,
                slow_reader,
                removed_tools: ready.removed_tools,
            });
            if !is_same {
                let content_type = match framing {
                    Framing::Sse => "text/event-stream; charset=utf-8",
                    Framing::EventStream => "application/vnd.amazon.eventstream",
                    Framing::JsonLines | Framing::JsonArray => "application/json",
                };
                headers.push((Name::from("content-type"), Name::from(content_type)));
            }
            return Ok(GatewayResponse { status, headers, body: ResponseBody::Stream(relayed) });
        }
        if !is_same {
            headers.push((Name::from("content-type"), Name::from("application/json")));
        }
        let body = if status >= 400 {
            self.error_body(reached, answer, is_same, &mut keeper).await
        } else {
            let removed_tools = ready.removed_tools;
            let relay = WholeRelay { context, rewriter, continuer, model, removed_tools };
            let response = self.complete_response(answer, relay, request, &mut keeper);
            response.await.map(|(body, is_inflated)| {
                headers.retain(|(name, _)| !is_inflated || !is_content_encoding(name));
                body
            })
        };
        match body {
            Ok(body) => Ok(GatewayResponse { status, headers, body: ResponseBody::Whole(body) }),
            Err(problem) => {
                keeper.record_failure(problem.status, &problem.message).await;
                Err(problem)
            }
        }
    }

    /// Returns the headers that report how the gateway handled the call.
    fn report_headers(
        &self,
        node: &TurnId,
        ready: &PreparedRequest,
        reached: &RouteTarget,
    ) -> Vec<(Name, Name)> {
        let mut headers = Vec::with_capacity(16);
        headers.push((Name::from("x-throughline-call"), node.0.clone()));
        // A request that was not decoded has no Fates.
        if !ready.encoded.fates.is_empty() {
            let fates = FateCounts::of(&ready.encoded.fates).to_string();
            headers.push((Name::from("x-throughline-fates"), fates.into()));
        }
        headers.push((Name::from("x-throughline-audit"), ready.verdict.as_str().into()));
        headers.extend(reached.response_headers());
        let changed = self.scope.record().prefix_changed.as_deref().map(Name::from);
        headers.extend(changed.map(|changed| (Name::from("x-throughline-prefix"), changed)));
        if ready.appended > 0 {
            let appended = Name::from(ready.appended.to_string());
            headers.push((Name::from("x-throughline-appended"), appended));
        }
        if ready.is_unrestored {
            headers.push((Name::from("x-throughline-restore"), Name::from("skipped")));
        }
        headers
    }

    /// Returns whether the caller gets one compaction item with a Claim, because its dialect cannot
    /// show the target's reply.
    fn claims_compaction(&self, ready: &PreparedRequest) -> bool {
        match ready.compaction {
            None => false,
            Some(CompactionMethod::Native) => ready.target.origin.wire != self.wire,
            Some(CompactionMethod::Summary) => true,
        }
    }

    /// Returns the sender of the requests that continue an interrupted reply, if the provider may
    /// interrupt its replies.
    fn continuer(
        &self,
        ready: &PreparedRequest,
        reached: &RouteTarget,
        request: &Request,
    ) -> Option<Continuer> {
        (ready.target.origin.wire == Wire::GEMINI).then(|| {
            let upstream = Arc::clone(&self.gateway.upstream);
            let body = ready.encoded.request.body.clone();
            let sent = self.upstream_call(ready, reached, request, body);
            Continuer::new(upstream, sent, ready.target.clone())
        })
    }

    /// Returns the tenant that owns the ids in the response; `None` if the caller has no gateway
    /// key and the provider has only one account, so that the ids need not be recorded.
    fn id_owner(&self, reached: &RouteTarget) -> Option<IdOwner> {
        let is_recorded = self.caller.admission.is_key() || reached.account_name().is_some();
        is_recorded.then(|| IdOwner {
            tenant: self.caller.tenant.clone(),
            names_thread: self.body.as_ref().is_some_and(throughline_replay::names_thread),
            is_early: self.body.as_ref().is_some_and(|body| {
                body.root().get("background").and_then(Node::bool).unwrap_or(false)
            }),
        })
    }

    /// Records the failure and returns the provider's error, translated if the caller uses another
    /// dialect.
    async fn error_body(
        &self,
        reached: &RouteTarget,
        answer: UpstreamResponse,
        is_same: bool,
        keeper: &mut CaptureHandle,
    ) -> GatewayResult<Bytes> {
        let status = answer.status;
        let encoding = answer.header("content-encoding").map(Name::from);
        let body = collect_body(answer).await?;
        let readable = compression::inflate(encoding.as_deref(), &body).unwrap_or_default();
        let unnamed = || format!("{} answered {status}", reached.endpoint);
        let message = error_message(&readable).unwrap_or_else(unnamed);
        keeper.record_failure(status, &message).await;
        if is_same {
            return Ok(body);
        }
        Ok(GatewayError::new(status, message).to_json(&self.wire).bytes().clone())
    }

    /// Requests the rest of an interrupted reply, and returns the whole reply.
    async fn continued(
        &self,
        mut reply: Reply,
        continuer: &mut Continuer,
        from: &dyn Codec,
        context: &DecodeContext,
    ) -> GatewayResult<Reply> {
        loop {
            let request = continuer.next_request(&reply);
            if !matches!(request, Ok(None)) {
                // The provider charges for the first part even if the rest fails.
                self.scope.record().set_reply(&reply);
            }
            let request = request.map_err(|problem| GatewayError::new(502, problem))?;
            let Some(request) = request else { return Ok(reply) };
            let answer = continuer.send(request).await;
            let answer = answer.map_err(|error| self.record_upstream_error(&error))?;
            let (status, encoding) =
                (answer.status, answer.header("content-encoding").map(Name::from));
            let body = collect_body(answer).await?;
            let body = compression::inflate(encoding.as_deref(), &body)
                .map_err(|error| GatewayError::new(502, error.to_string()))?;
            if status >= 400 {
                let message = error_message(&body).unwrap_or_else(|| status.to_string());
                let message = format!("the provider did not continue its response: {message}");
                return Err(GatewayError::new(502, message));
            }
            let next = from.decode_reply(&body, context);
            let next = next.map_err(|error| GatewayError::new(502, error.to_string()))?;
            reply = join_replies(reply, next);
        }
    }

    /// Returns a non-streamed response, and whether the gateway inflated the body.
    async fn complete_response(
        &self,
        answer: UpstreamResponse,
        relay: WholeRelay,
        request: &Request,
        keeper: &mut CaptureHandle,
    ) -> GatewayResult<(Bytes, bool)> {
        let WholeRelay { context, rewriter, mut continuer, model, removed_tools } = relay;
        let encoding = answer.header("content-encoding").map(Name::from);
        let body = collect_body(answer).await?;
        let from = codec_for(&context.target.origin.wire)?;
        let readable = compression::inflate(encoding.as_deref(), &body);
        let readable = readable.map_err(|error| error.to_string());
        let needs_items = keeper.needs_items()
            || rewriter.is_some()
            || self.compaction.is_some()
            || !removed_tools.is_empty();
        let reply = readable.and_then(|readable| {
            let reply = Stage::Parse.run(|| {
                if needs_items {
                    from.decode_reply(&readable, &context)
                } else {
                    from.decode_reply_summary(&readable, &context)
                }
            });
            let mut reply = reply.map_err(|error| error.to_string())?;
            if self.compaction.is_some() {
                // A native compaction repeats the user's messages, which are no output of a model.
                reply.items.retain(|item| item.role == Role::Assistant);
            }
            Ok((reply, readable))
        });
        if let Ok((reply, _)) = &reply
            && let Err(problem) = removed_tools.check(reply)
        {
            // The provider charges for the refused reply.
            self.scope.record().set_reply(reply);
            return Err(problem);
        }
        match (reply, rewriter) {
            (Ok((reply, readable)), None) => match model {
                Some(model) => {
                    let rewritten = model.rewrite(&readable);
                    keeper.capture(reply, Some(rewritten.clone())).await;
                    Ok((rewritten, true))
                }
                None => {
                    keeper.capture(reply, Some(readable)).await;
                    Ok((body, false))
                }
            },
            (Ok((mut reply, _)), Some(mut rewriter)) => {
                if let Some(continuer) = &mut continuer {
                    reply = self.continued(reply, continuer, from, &context).await?;
                }
                if rewriter.is_compacting()
                    && let Some(problem) = compaction::problem(&reply)
                {
                    // The provider charges for the unusable reply.
                    self.scope.record().set_reply(&reply);
                    return Err(GatewayError::new(502, problem));
                }
                let rewritten = codec_for(&self.wire)?.encode_reply(&rewriter.reply(reply.clone()));
                let rewritten =
                    rewritten.map_err(|error| GatewayError::new(502, error.to_string()))?;
                let rewritten = if self.compaction == Some(CompactionForm::Endpoint) {
                    compaction::endpoint_response(&rewritten).unwrap_or(rewritten)
                } else {
                    self.with_request_echo(rewritten, request)
                };
                keeper.capture(reply, Some(rewritten.clone())).await;
                Ok((rewritten, false))
            }
            // An undecodable response is still forwarded, since the caller may be able to read it.
            (Err(error), None) => {
                self.scope.record().received = body.len() as u64;
                self.scope.record_lost_capture(UNREADABLE);
                keeper.record_failure(200, &error).await;
                Ok((body, false))
            }
            (Err(error), Some(_)) => {
                self.scope.record_lost_capture(UNREADABLE);
                Err(GatewayError::new(502, error))
            }
        }
    }
}

/// Reads the complete body of a response, or fails if it exceeds [`LARGEST_ANSWER`] bytes.
pub(crate) async fn collect_body(answer: UpstreamResponse) -> GatewayResult<Bytes> {
    let mut chunks = answer.body;
    // A body that arrives in one chunk is not copied.
    let (mut only, mut joined) = (Bytes::new(), BytesMut::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| GatewayError::from(&error))?;
        if only.len() + joined.len() + chunk.len() > LARGEST_ANSWER {
            let message = "the response exceeds the limit of 64 MiB";
            return Err(GatewayError::new(502, message));
        }
        if only.is_empty() && joined.is_empty() {
            only = chunk;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut only));
            joined.extend_from_slice(&chunk);
        }
    }
    Ok(if joined.is_empty() { only } else { joined.freeze() })
}

/// Returns the headers of a response that is not a model call: the headers that name the provider,
/// and the provider's own headers.
pub(crate) fn forwarded_headers(
    reached: &RouteTarget,
    answer: &UpstreamResponse,
) -> Vec<(Name, Name)> {
    let passed = answer.headers.iter().filter(|(name, _)| is_forwarded_header(name, true));
    reached.response_headers().into_iter().chain(passed.cloned()).collect()
}

/// Returns whether a header of the provider's response is forwarded to the caller. `is_same` is set
/// if the provider and the caller use the same dialect.
fn is_forwarded_header(name: &str, is_same: bool) -> bool {
    const OWN: &[&str] =
        &["connection", "content-length", "transfer-encoding", "keep-alive", "set-cookie"];
    const OF_BODY: &[&str] = &["content-type", "content-encoding"];
    let is = |names: &[&str]| names.iter().any(|own| name.eq_ignore_ascii_case(own));
    !is(OWN) && !is_gateway_header(name) && (is_same || !is(OF_BODY))
}

/// Returns whether only a gateway sets a header. If the provider is another gateway, its headers
/// name its own provider and call.
pub(crate) fn is_gateway_header(name: &str) -> bool {
    const PREFIX: &str = "x-throughline-";
    name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

fn is_content_encoding(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-encoding")
}

/// Refuses redirects. Following a redirect would send a key to another host: the provider key if
/// the gateway follows the redirect, or the caller's key if the client follows it.
pub(crate) fn refuse_redirect(
    answer: &UpstreamResponse,
    reached: &RouteTarget,
) -> GatewayResult<()> {
    if !matches!(answer.status, 300..=303 | 305..=399) {
        return Ok(());
    }
    let (endpoint, status) = (&reached.endpoint, answer.status);
    let message = format!(
        "{endpoint} answered {status}, and redirects are not followed: correct its base_url"
    );
    Err(GatewayError::new(502, message))
}
