//! Requests of the mode `off` that are sent without decoding them.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use throughline_codec::{AuditOutcome, CallForms};
use throughline_core::{EncodedRequest, ReasoningChannel, Request, SIDE_CHANNEL};
use throughline_replay::Claims;

use crate::gateway::ReplayMode;
use crate::gateway::dialect;
use crate::gateway::exchange::Exchange;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::removed_tools::RemovedTools;
use crate::routing::RouteTarget;

/// Texts because of which a request may have to be decoded even in the mode `off`: a part of every
/// handle, the member for reasoning of other vendors, a continuation token, and the escape of a
/// letter that could hide a handle or a token.
const DECODED_TEXTS: [&str; 5] =
    [Claims::HANDLE_PART, SIDE_CHANNEL, "continuationToken", "continuation_token", "\\u00"];

/// Finds all [`DECODED_TEXTS`] in one pass with vector instructions; `None` if the processor has
/// none.
static DECODED_TEXT_FINDER: LazyLock<Option<Searcher>> =
    LazyLock::new(|| Searcher::new(DECODED_TEXTS));

/// Returns whether a body contains a handle of the gateway, or another text because of which it
/// must be decoded.
fn must_be_decoded(body: &[u8]) -> bool {
    let Some(finder) = &*DECODED_TEXT_FINDER else { return true };
    let mut found =
        finder.find_iter(body).map(|found| DECODED_TEXTS.get(found.pattern().as_usize()));
    let is_other = |text: Option<&&str>| text != Some(&Claims::HANDLE_PART);
    found.next().is_some_and(|first| {
        is_other(first) || found.any(is_other) || Claims::contains_handles(body)
    })
}

impl Exchange<'_> {
    /// Returns whether a request is sent without decoding it: in the mode `off`, to a provider of
    /// the caller's wire, if the request contains nothing that the gateway issued.
    pub(crate) fn passes_unchanged(&self, request: &Request, reached: &RouteTarget) -> bool {
        self.gateway.mode == ReplayMode::Off
            && reached.provider.wire == self.wire
            && self.body.is_some()
            // An API with this channel streams by default.
            && reached.provider.dialect.channel != ReasoningChannel::Thinking
            && !reached.provider.dialect.model_in_path
            && !self.received_references()
            && !must_be_decoded(&request.body)
    }

    /// Prepares a request that is sent as received.
    pub(crate) fn pass_through(&self, request: Request, reached: &RouteTarget) -> PreparedRequest {
        let (target, tenant) = self.target(reached);
        let verdict = AuditOutcome::skipped().verdict;
        let stream = dialect::is_streamed(&self.wire, &request.path, self.body.as_ref());
        {
            let mut record = self.scope.record();
            record.tenant = tenant.clone();
            record.verdict = Some(verdict);
        }
        let (fates, warnings) = (Vec::new(), Vec::new());
        let encoded = EncodedRequest { request, fates, warnings, prefix: None };
        PreparedRequest {
            encoded,
            verdict,
            conversation: None,
            tenant,
            target,
            stream,
            is_unrestored: false,
            compaction: None,
            appended: 0,
            removed_tools: RemovedTools::default(),
            call_forms: CallForms::default(),
        }
    }
}
