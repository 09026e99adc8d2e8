//! Redaction patterns, and the built-in patterns for common secrets.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use throughline_json::Name;

/// A regular expression. Two patterns are equal if their texts are equal.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a regular expression. A leading `(?i)` makes it ignore case. Fails if the
    /// expression is invalid or matches the empty string.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |problem: String| InvalidPattern { pattern: Name::from(text), problem };
        let compiled = Regex::new(text).map_err(|error| invalid(reason(&error)))?;
        if compiled.is_match("") {
            return Err(invalid(
                "it matches the empty string, so it would match everywhere".into(),
            ));
        }
        Ok(Self(compiled))
    }

    /// Returns the expression as written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether the pattern matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Returns the ranges of all non-empty matches.
    pub(super) fn matches(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        self.0.find_iter(text).map(|hit| hit.range()).filter(|range| !range.is_empty())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", self.as_str())
    }
}

impl std::str::FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        Self::new(text)
    }
}

/// The error for a pattern that is not a valid regular expression or matches the empty string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the pattern {pattern:?}: {problem}")]
pub struct InvalidPattern {
    /// The rejected expression.
    pub pattern: Name,
    /// The reason for the rejection, as a clause without a final period.
    pub problem: String,
}

/// Returns the last line of the regex compiler's message, because only that line states the
/// problem.
fn reason(error: &regex::Error) -> String {
    let drawing = error.to_string();
    let last = drawing.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Patterns for common secrets. Each pattern starts with a rare prefix and matches the whole
/// secret, so that no part remains visible. No pattern needs a long look-ahead, so matching takes
/// linear time.
pub(super) const BUILT_IN: [&str; 9] = [
    // API keys of a Throughline gateway.
    r"(?-u:\b)tl_[0-9a-f]{32,}",
    // Provider keys that start with `sk-`: OpenAI, Anthropic, OpenRouter, DeepSeek, Moonshot and
    // others.
    r"(?-u:\b)sk-(?:[A-Za-z0-9]{1,12}-){1,3}[A-Za-z0-9_-]{20,}|(?-u:\b)sk-[A-Za-z0-9]{20}[A-Za-z0-9_-]*",
    // Cerebras, xAI, Perplexity, NVIDIA, Groq, Hugging Face, Fireworks, Replicate, Together.
    r"(?-u:\b)(?:csk-|xai-|pplx-|nvapi-|gsk_|hf_|fw_|r8_|tgp_v1_)[A-Za-z0-9_-]{20,}",
    // Google: API keys and service account access tokens.
    r"(?-u:\b)(?:AIza[A-Za-z0-9_-]{30,}|AQ\.Ab[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,})",
    // Amazon: access key ids, Bedrock keys, and named secrets.
    r"(?-u:\b)(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}|(?-u:\b)ABSK[A-Za-z0-9+/=]{40,}",
    r#"(?i)aws_?(?:secret_?access_?key|session_?token)[\\"']*\s*[:=]\s*[\\"']*[A-Za-z0-9/+=]{40,}"#,
    // Code hosting and chat services.
    r"(?-u:\b)(?:gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,})",
    // Bearer tokens and JSON Web Tokens.
    r"(?-u:\b)(?i:bearer)\s+[A-Za-z0-9._~+/=-]{16,}|(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    // Private keys: complete or truncated, with or without headers, with line breaks that may be
    // escaped or replaced by spaces.
    concat!(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        r"(?:: [^\r\n\\]*|[\n\r][ \t]*|\\[nr] *| {1,4}[A-Za-z0-9+/=]{16}|-[A-Za-z0-9]|[\tA-Za-z0-9+/=\\:,])*",
        r"(?:(?: [A-Za-z0-9+/=]{1,80})? *-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
];

pub(super) fn built_in() -> &'static [Pattern] {
    static COMPILED: LazyLock<Vec<Pattern>> =
        LazyLock::new(|| BUILT_IN.iter().filter_map(|text| Pattern::new(text).ok()).collect());
    &COMPILED
}
