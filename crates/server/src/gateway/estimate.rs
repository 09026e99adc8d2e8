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

impl Exchange<'_> {
    /// Reserves the estimated tokens and cost of a request with `sent` bytes. The reservation of an
    /// earlier attempt is returned first.
    pub(crate) async fn reserve_budget(
        &self,
        reached: &RouteTarget,
        sent: usize,
    ) -> GatewayResult<()> {
        let is_repeated = self.scope.release_budget();
        let output = self.body.as_ref().and_then(max_output).unwrap_or(DEFAULT_OUTPUT);
        let input = (sent as u64).div_ceil(BYTES_OF_A_TOKEN);
        let estimate = Usage { input, output, ..Usage::default() };
        let meter = &self.gateway.operations.meter;
        let reserved =
            meter.reserve(&self.caller.admission, reached, estimate, is_repeated).await?;
        self.scope.hold_budget(reserved);
        Ok(())
    }
}

/// Returns the maximum number of output tokens that a request states.
fn max_output(body: &Tree) -> Option<u64> {
    let member = |path: &&[&str]| {
        path.iter().try_fold(body.root(), |node, name| node.get(name)).and_then(Node::u64)
    };
    MAXIMA.iter().find_map(member)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn maximum_output_is_read_in_all_dialects() {
        for (body, expected) in [
            (r#"{"max_tokens":7}"#, Some(7)),
            (r#"{"max_completion_tokens":8}"#, Some(8)),
            (r#"{"max_output_tokens":9}"#, Some(9)),
            (r#"{"generationConfig":{"maxOutputTokens":10}}"#, Some(10)),
            (r#"{"inferenceConfig":{"maxTokens":11}}"#, Some(11)),
            (r#"{"max_tokens":null}"#, None),
            (r#"{"generationConfig":[]}"#, None),
            ("{}", None),
        ] {
            assert_eq!(max_output(&Tree::parse(body.to_owned()).unwrap()), expected, "{body}");
        }
    }
}
