//! Patterns: regular expressions that know their own text, and those of the usual secrets.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::name::Name;

/// A regular expression. Two are equal when they are written alike.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles the expression. Begin it with `(?i)` to ignore case.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |problem: String| InvalidPattern { pattern: Name::from(text), problem };
        let compiled = Regex::new(text).map_err(|error| invalid(reason(&error)))?;
        if compiled.is_match("") {
            return Err(invalid("it matches the empty text, and so it matches everywhere".into()));
        }
        Ok(Self(compiled))
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Where it matches. A match of nothing is none.
    pub(super) fn matches(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        self.0.find_iter(text).map(|found| found.range()).filter(|range| !range.is_empty())
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

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be used: {problem}")]
pub struct InvalidPattern {
    /// The pattern.
    pub pattern: Name,
    /// What is wrong with it.
    pub problem: String,
}

/// The last line of the compiler's drawing says what is wrong.
fn reason(error: &regex::Error) -> String {
    let drawing = error.to_string();
    let last = drawing.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// The usual secrets. Each begins with letters that are rare elsewhere and goes on as long as the secret may, so that no end of one
/// is left over. None needs to look far ahead to know where it ends, which keeps reading linear.
pub(super) const BUILT_IN: [&str; 8] = [
    // Keys of model providers and of the hosts of models: OpenAI, Anthropic, OpenRouter, DeepSeek, Moonshot and others.
    r"(?-u:\b)sk-(?:[A-Za-z0-9]{1,12}-){1,3}[A-Za-z0-9_-]{20,}|(?-u:\b)sk-[A-Za-z0-9]{20}[A-Za-z0-9_-]*",
    // Cerebras, xAI, Perplexity, NVIDIA, Groq, Hugging Face, Fireworks, Replicate, Together.
    r"(?-u:\b)(?:csk-|xai-|pplx-|nvapi-|gsk_|hf_|fw_|r8_|tgp_v1_)[A-Za-z0-9_-]{20,}",
    // Google: keys and the access tokens of service accounts.
    r"(?-u:\b)(?:AIza[A-Za-z0-9_-]{30,}|AQ\.Ab[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,})",
    // Amazon: ids of access keys, keys of Bedrock, and secrets that are named.
    r"(?-u:\b)(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}|(?-u:\b)ABSK[A-Za-z0-9+/=]{40,}",
    r#"(?i)aws_?(?:secret_?access_?key|session_?token)[\\"']*\s*[:=]\s*[\\"']*[A-Za-z0-9/+=]{40,}"#,
    // Code hosts and chat.
    r"(?-u:\b)(?:gh[oprsu]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,})",
    // Whatever is shown at a door, and what is signed to be shown there.
    r"(?-u:\b)(?i:bearer)\s+[A-Za-z0-9._~+/=-]{16,}|(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    // Private keys, whole or cut off, with headers or without, with line breaks that may be escaped or have become blanks.
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
