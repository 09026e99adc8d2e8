//! Requests of the mode `off` that are sent without decoding them.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use bytes::Bytes;
use memchr::memmem;
use throughline_codec::{AuditOutcome, CallForms};
use throughline_core::{EncodedRequest, ReasoningChannel, Request, SIDE_CHANNEL};
use throughline_replay::Claims;

use crate::gateway::ReplayMode;
use crate::gateway::dialect;
use crate::gateway::exchange::Exchange;
use crate::gateway::prepare::PreparedRequest;
use crate::gateway::removed_tools::RemovedTools;
use crate::routing::RouteTarget;

/// A request that contains one of these texts may need decoding: a part of every handle, the member
/// for reasoning of other vendors, a continuation token, and the escape of a letter that could hide
/// a handle or a token.
const DECODED_TEXTS: [&str; 5] =
    [Claims::HANDLE_PART, SIDE_CHANNEL, "continuationToken", "continuation_token", "\\u00"];

/// Finds all [`DECODED_TEXTS`] in one pass with vector instructions; `None` if the processor has
/// none.
static DECODED_TEXT_FINDER: LazyLock<Option<Searcher>> =
    LazyLock::new(|| Searcher::new(DECODED_TEXTS));

/// Returns whether a body contains a handle of the gateway, or another of the [`DECODED_TEXTS`].
pub(super) fn must_be_decoded(body: &[u8]) -> bool {
    finds_decoded_texts(body, DECODED_TEXT_FINDER.as_ref())
}

fn finds_decoded_texts(body: &[u8], finder: Option<&Searcher>) -> bool {
    let is_other = |text: &&str| *text != Claims::HANDLE_PART;
    let Some(finder) = finder else {
        let mut others = DECODED_TEXTS.iter().filter(|text| is_other(text));
        return others.any(|text| memmem::find(body, text.as_bytes()).is_some())
            || Claims::contains_handles(body);
    };
    let mut found = finder
        .find_iter(body)
        .filter_map(|found| DECODED_TEXTS.get(found.pattern().as_usize()).copied());
    found.next().is_some_and(|first| {
        is_other(&first) || found.any(|text| is_other(&text)) || Claims::contains_handles(body)
    })
}

impl Exchange<'_> {
    /// Whether a body is the body as received and is known to contain nothing that the gateway
    /// issued.
    pub(crate) fn is_plain(&self, body: &Bytes) -> bool {
        self.known.is_plain && self.body.as_ref().is_some_and(|tree| tree.indexes(body))
    }

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
            && (self.is_plain(&request.body) || !must_be_decoded(&request.body))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_because_of_their_texts() {
        let claim = format!("\"signature\":\"tl1c{}\"", "a".repeat(32));
        for (text, expected) in [
            ("\"content\":\"tl1 is no handle\"", false),
            ("\"content\":\"a\\nb\"", false),
            (&claim, true),
            ("\"throughline_thoughts\":[]", true),
            ("\"continuationToken\":\"t\"", true),
            ("\"tl1\":1,\"continuation_token\":\"t\"", true),
            ("\"content\":\"\\u0074l1\"", true),
        ] {
            for length in [0, 10_000] {
                let body = format!("{{\"system\":\"{}\",{text}}}", "x".repeat(length));
                for finder in [None, DECODED_TEXT_FINDER.as_ref()] {
                    assert_eq!(finds_decoded_texts(body.as_bytes(), finder), expected, "{text}");
                }
            }
        }
    }
}
