//! Handles the provider's response to a call: captures the reply, and returns it in the caller's
//! dialect.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use throughline_codec::{DecodeContext, Framing, error_message};
use throughline_core::{Request, Stage, TurnId, UpstreamResponse};
use throughline_json::{Name, Node};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::capture::{CaptureHandle, IdOwner};
use crate::gateway::compression;
use crate::gateway::dialect;
use crate::gateway::exchange::{Exchange, codec_for};
use crate::gateway::model_name::ModelName;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::stream::{RelayParts, relay};
use crate::response::{GatewayResponse, ResponseBody};
use crate::routing::RouteTarget;
use throughline_replay::{ClaimRewriter, FateCounts};

/// Reason reported when a response cannot be decoded and is therefore not captured.
pub(crate) const UNREADABLE: &str = "the answer cannot be read";
/// Maximum size of a complete response, and of one frame of a stream: 64 MiB.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;

impl Exchange<'_> {
    /// Captures a provider's response and returns it to the caller.
    pub(crate) async fn answer(
        &self,
        node: &TurnId,
        ready: PreparedRequest,
        reached: &RouteTarget,
        answer: UpstreamResponse,
        request: &Request,
    ) -> GatewayResult {
        let is_same = ready.target.origin.wire == self.wire;
        let mut headers = Vec::with_capacity(answer.headers.len() + 4);
        headers.push((Name::from("x-throughline-call"), node.0.clone()));
        // A request that was not decoded has no Fates.
        if !ready.encoded.fates.is_empty() {
            let fates = FateCounts::of(&ready.encoded.fates).to_string();
            headers.push((Name::from("x-throughline-fates"), fates.into()));
        }
        headers.push((Name::from("x-throughline-audit"), ready.verdict.as_str().into()));
        let changed = self.scope.record().prefix_changed.as_deref().map(Name::from);
        headers.extend(changed.map(|changed| (Name::from("x-throughline-prefix"), changed)));
        if ready.is_unrestored {
            headers.push((Name::from("x-throughline-restore"), Name::from("skipped")));
        }
        let status = answer.status;
        let passed = answer.headers.iter().filter(|(name, _)| is_forwarded_header(name, is_same));
        headers.extend(passed.cloned());
        let model = self.model.clone().filter(|name| *name != reached.model);
        let rewriter = (!is_same).then(|| {
            let claims = self.gateway.replay.claims().clone();
            let (tenant, model) = (ready.tenant.clone(), model.clone());
            ClaimRewriter::new(self.wire.clone(), claims, tenant, node.clone(), model)
        });
        let can_rename = is_same && compression::can_inflate(answer.header("content-encoding"));
        let model = model.filter(|_| can_rename);
        let model = model.map(|name| ModelName::new(self.wire.clone(), name));
        let mut keeper = CaptureHandle {
            replay: Arc::clone(&self.gateway.replay),
            node: node.clone(),
            conversation: ready.conversation,
            prefix: ready.encoded.prefix,
            longest: self.gateway.operations.limits.capture,
            scope: Arc::clone(&self.scope),
            owner: self.id_owner(request),
        };
        if let Err(problem) = refuse_redirect(&answer, reached) {
            keeper.record_failure(problem.status, &problem.message).await;
            return Err(problem);
        }
        let context = DecodeContext { target: ready.target, prefix: keeper.prefix };
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
                model,
                keeper,
                slow_reader,
            });
            if !is_same {
                let content_type = match framing {
                    Framing::Sse => "text/event-stream; charset=utf-8",
                    _ => "application/json",
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
            let response =
                self.complete_response(answer, &context, rewriter, model, request, &mut keeper);
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

    /// Returns the tenant that owns the ids in the response; `None` if the caller has no gateway
    /// key.
    fn id_owner(&self, request: &Request) -> Option<IdOwner> {
        self.caller.admission.is_key().then(|| IdOwner {
            tenant: self.caller.tenant.clone(),
            request: request.body.clone(),
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

    /// Returns a non-streamed response, and whether the gateway inflated the body.
    async fn complete_response(
        &self,
        answer: UpstreamResponse,
        context: &DecodeContext,
        rewriter: Option<ClaimRewriter>,
        model: Option<ModelName>,
        request: &Request,
        keeper: &mut CaptureHandle,
    ) -> GatewayResult<(Bytes, bool)> {
        let encoding = answer.header("content-encoding").map(Name::from);
        let body = collect_body(answer).await?;
        let from = codec_for(&context.target.origin.wire)?;
        let readable = compression::inflate(encoding.as_deref(), &body);
        let readable = readable.map_err(|error| error.to_string());
        let reply = readable.and_then(|readable| {
            let reply = Stage::Parse.run(|| from.decode_reply(&readable, context));
            let reply = reply.map_err(|error| error.to_string());
            reply.map(|reply| (reply, readable))
        });
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
            (Ok((reply, _)), Some(mut rewriter)) => {
                let rewritten = codec_for(&self.wire)?.encode_reply(&rewriter.reply(reply.clone()));
                let rewritten =
                    rewritten.map_err(|error| GatewayError::new(502, error.to_string()))?;
                let rewritten = self.with_request_echo(rewritten, request);
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

/// Returns the provider's response headers that a caller of the same dialect receives.
pub(crate) fn forwarded_headers(answer: &UpstreamResponse) -> Vec<(Name, Name)> {
    answer.headers.iter().filter(|(name, _)| is_forwarded_header(name, true)).cloned().collect()
}

/// Returns whether a header of the provider's response is forwarded to the caller. `is_same` is set
/// if the provider and the caller use the same dialect.
fn is_forwarded_header(name: &str, is_same: bool) -> bool {
    const OWN: &[&str] =
        &["connection", "content-length", "transfer-encoding", "keep-alive", "set-cookie"];
    const OF_BODY: &[&str] = &["content-type", "content-encoding"];
    let is = |names: &[&str]| names.iter().any(|own| name.eq_ignore_ascii_case(own));
    !is(OWN) && (is_same || !is(OF_BODY))
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
