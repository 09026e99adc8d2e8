//! Estimates the tokens of a request before it is sent.

use throughline_core::Usage;
use throughline_json::{Node, Tree};

/// Assumed bytes per token if the provider reports no token count.
pub(crate) const BYTES_OF_A_TOKEN: u64 = 4;

/// Assumed number of output tokens if the request has no maximum.
const DEFAULT_OUTPUT: u64 = 4096;

/// Members that state the maximum number of output tokens, in all dialects.
const MAXIMA: [&[&str]; 7] = [
    &["max_tokens"],
    &["max_completion_tokens"],
    &["max_output_tokens"],
    &["generationConfig", "maxOutputTokens"],
    &["generation_config", "max_output_tokens"],
    &["inferenceConfig", "maxTokens"],
    &["options", "num_predict"],
];

/// Members that state the number of answers, in all dialects. The maximum applies to each answer.
const ANSWERS: [&[&str]; 3] =
    [&["n"], &["generationConfig", "candidateCount"], &["generation_config", "candidate_count"]];

/// Returns the largest usage that a request with `sent` bytes is expected to have. `body` is
/// `None` if the body is not JSON.
pub(crate) fn estimate_usage(sent: usize, body: Option<&Tree>) -> Usage {
    let input = (sent as u64).div_ceil(BYTES_OF_A_TOKEN);
    Usage { input, output: body.map_or(DEFAULT_OUTPUT, max_output), ..Usage::default() }
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
            (r#"{"options":{"num_predict":12}}"#, 12),
            (r#"{"options":{"num_predict":-1}}"#, DEFAULT_OUTPUT),
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
