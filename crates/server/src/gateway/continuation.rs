//! Continues a reply that Gemini interrupts, for callers of other dialects.
//!
//! Other dialects have no equivalent of Gemini's `continuationToken`. The gateway therefore sends
//! the further requests itself, and the caller gets one reply.

use std::sync::Arc;

use throughline_codec::{continuation_seal, continued_body, join_replies};
use throughline_core::{
    Event, Reply, Target, Upstream, UpstreamError, UpstreamRequest, UpstreamResponse, Usage,
};

/// Maximum number of requests that continue one reply.
const MAX_CONTINUATIONS: u32 = 64;

/// Sends the requests that continue one reply.
pub(crate) struct Continuer {
    upstream: Arc<dyn Upstream>,
    /// The request that the interrupted reply answers.
    request: UpstreamRequest,
    target: Target,
    count: u32,
}

impl Continuer {
    pub(crate) fn new(
        upstream: Arc<dyn Upstream>,
        request: UpstreamRequest,
        target: Target,
    ) -> Self {
        Self { upstream, request, target, count: 0 }
    }

    /// Returns the request that continues a reply; `None` if the reply is complete. The error
    /// states why an incomplete reply cannot be continued.
    pub(crate) fn next_request(
        &mut self,
        reply: &Reply,
    ) -> Result<Option<UpstreamRequest>, String> {
        let Some(token) = continuation_seal(reply) else { return Ok(None) };
        if self.count >= MAX_CONTINUATIONS {
            return Err(format!(
                "the provider interrupted its response more than {MAX_CONTINUATIONS} times: request \
                 a shorter response"
            ));
        }
        self.count += 1;
        let token = token.open_for(&self.target, None).ok();
        let body = token.and_then(|token| continued_body(&self.request.body, token));
        let body = body.ok_or("the token that continues the provider's response cannot be used")?;
        Ok(Some(UpstreamRequest { body, ..self.request.clone() }))
    }

    pub(crate) async fn send(
        &self,
        request: UpstreamRequest,
    ) -> Result<UpstreamResponse, UpstreamError> {
        self.upstream.send(request).await
    }
}

/// The part of a streamed reply that arrived before an interruption.
pub(crate) struct InterruptedReply(Reply);

impl InterruptedReply {
    pub(crate) fn new(reply: Reply) -> Self {
        Self(reply)
    }

    /// Converts an event of the continuation to an event of the whole reply; `None` if the event
    /// repeats the start of the reply.
    pub(crate) fn joined(&self, event: Event) -> Option<Event> {
        let offset = u32::try_from(self.0.items.len()).unwrap_or(u32::MAX);
        Some(match event {
            Event::Began { .. } => return None,
            Event::Opened { index, id, body } => {
                Event::Opened { index: index.saturating_add(offset), id, body }
            }
            Event::Delta { index, delta } => {
                Event::Delta { index: index.saturating_add(offset), delta }
            }
            Event::Closed { index, mut item } => {
                item.place.part = item.place.part.saturating_add(offset);
                Event::Closed { index: index.saturating_add(offset), item }
            }
            Event::Usage(usage) => Event::Usage(self.total(usage)),
            Event::Ended(reply) => Event::Ended(Box::new(join_replies(self.0.clone(), *reply))),
            Event::Failed(_) | Event::Alien(_) => event,
        })
    }

    /// Returns the usage of the whole reply so far.
    fn total(&self, usage: Usage) -> Usage {
        let before = &self.0.usage;
        Usage {
            input: before.input.saturating_add(usage.input),
            cached: before.cached.saturating_add(usage.cached),
            written: before.written.saturating_add(usage.written),
            output: before.output.saturating_add(usage.output),
            thought: before.thought.saturating_add(usage.thought),
        }
    }
}
