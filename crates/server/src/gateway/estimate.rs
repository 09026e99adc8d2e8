//! Estimates the tokens of a call before it is sent, and reserves them from the limits of its key.

use throughline_core::Usage;
use throughline_json::{Node, Tree};

use crate::error::GatewayResult;
use crate::gateway::exchange::Exchange;
use crate::routing::RouteTarget;
use crate::telemetry::BYTES_OF_A_TOKEN;

/// Assumed number of output tokens if the request has no maximum.
const DEFAULT_OUTPUT: u64 = 4096;

/// Members that state the maximum number of output tokens, in all dialects.
const MAXIMA: [&[&str]; 6] = [
    &["max_tokens"],
    &["max_completion_tokens"],
    &["max_output_tokens"],
    &["generationConfig", "maxOutputTokens"],
    &["generation_config", "max_output_tokens"],
    &["inferenceConfig", "maxTokens"],
];

/// Members that state the number of answers, in all dialects. The maximum applies to each answer.
const ANSWERS: [&[&str]; 3] =
    [&["n"], &["generationConfig", "candidateCount"], &["generation_config", "candidate_count"]];

impl Exchange<'_> {
    /// Reserves the estimated tokens and cost of a request with `sent` bytes. The reservation of an
    /// earlier attempt is returned first.
    pub(crate) async fn reserve_budget(
        &self,
        reached: &RouteTarget,
        sent: usize,
    ) -> GatewayResult<()> {
        let is_repeated = self.scope.release_budget();
        let output = self.body.as_ref().map_or(DEFAULT_OUTPUT, max_output);
        let input = (sent as u64).div_ceil(BYTES_OF_A_TOKEN);
        let estimate = Usage { input, output, ..Usage::default() };
        let meter = &self.gateway.operations.meter;
        let reserved =
            meter.reserve(&self.caller.admission, reached, estimate, is_repeated).await?;
        self.scope.hold_budget(reserved);
        Ok(())
    }
}

/// Returns the maximum number of output tokens of a request. A request can contain the members of
/// several dialects, and a provider may read any of them, so the largest number counts.
fn max_output(body: &Tree) -> u64 {
    let largest = |paths: &[&[&str]]| {
        let member = |path: &&[&str]| {
            path.iter().try_fold(body.root(), |node, name| node.get(name)).and_then(Node::u64)
        };
        paths.iter().filter_map(member).max()
    };
    let of_one = largest(&MAXIMA).unwrap_or(DEFAULT_OUTPUT);
    of_one.saturating_mul(largest(&ANSWERS).unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn maximum_output_is_read_in_all_dialects() {
        for (body, expected) in [
            (r#"{"max_tokens":7}"#, 7),
            (r#"{"max_completion_tokens":8}"#, 8),
            (r#"{"max_output_tokens":9}"#, 9),
            (r#"{"generationConfig":{"maxOutputTokens":10}}"#, 10),
            (r#"{"inferenceConfig":{"maxTokens":11}}"#, 11),
            (r#"{"max_tokens":null}"#, DEFAULT_OUTPUT),
            (r#"{"generationConfig":[]}"#, DEFAULT_OUTPUT),
            ("{}", DEFAULT_OUTPUT),
            // The largest maximum counts.
            (r#"{"max_tokens":1,"max_completion_tokens":900}"#, 900),
            (r#"{"max_tokens":1,"generationConfig":{"maxOutputTokens":800}}"#, 800),
            // The maximum applies to each answer.
            (r#"{"max_tokens":7,"n":3}"#, 21),
            (r#"{"n":2}"#, 2 * DEFAULT_OUTPUT),
            (r#"{"max_tokens":7,"n":0}"#, 7),
            (r#"{"generationConfig":{"maxOutputTokens":10,"candidateCount":4}}"#, 40),
            (r#"{"max_tokens":18446744073709551615,"n":2}"#, u64::MAX),
        ] {
            assert_eq!(max_output(&Tree::parse(body.to_owned()).unwrap()), expected, "{body}");
        }
    }
}
