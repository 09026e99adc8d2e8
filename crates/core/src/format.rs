//! The provider format of a piece of reasoning.

use crate::name::Name;

/// The provider format of a piece of reasoning. Unknown names are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReasoningFormat {
    /// Anthropic thinking blocks.
    AnthropicClaudeV1,
    /// Gemini thoughts and part signatures.
    GoogleGeminiV1,
    /// OpenAI reasoning items.
    OpenAiResponsesV1,
    /// OpenAI reasoning items issued by Azure.
    AzureOpenAiResponsesV1,
    /// xAI reasoning items.
    XaiResponsesV1,
    /// Any other name.
    Other(Name),
}

impl ReasoningFormat {
    /// Returns the format with that name.
    pub fn new(name: &str) -> Self {
        match name {
            "anthropic-claude-v1" => Self::AnthropicClaudeV1,
            "google-gemini-v1" => Self::GoogleGeminiV1,
            "openai-responses-v1" => Self::OpenAiResponsesV1,
            "azure-openai-responses-v1" => Self::AzureOpenAiResponsesV1,
            "xai-responses-v1" => Self::XaiResponsesV1,
            other => Self::Other(Name::from(other)),
        }
    }

    /// The format of reasoning whose source did not specify one.
    pub fn unknown() -> Self {
        Self::Other(Name::from("unknown"))
    }

    /// Returns the documented name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AnthropicClaudeV1 => "anthropic-claude-v1",
            Self::GoogleGeminiV1 => "google-gemini-v1",
            Self::OpenAiResponsesV1 => "openai-responses-v1",
            Self::AzureOpenAiResponsesV1 => "azure-openai-responses-v1",
            Self::XaiResponsesV1 => "xai-responses-v1",
            Self::Other(name) => name,
        }
    }
}

impl std::fmt::Display for ReasoningFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
