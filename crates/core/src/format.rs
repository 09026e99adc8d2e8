//! Whose shape a piece of reasoning has.

use crate::name::Name;

/// Whose shape a piece of reasoning has. An unknown name is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReasoningFormat {
    /// Anthropic's thinking blocks.
    AnthropicClaudeV1,
    /// Gemini's thoughts and part signatures.
    GoogleGeminiV1,
    /// OpenAI's reasoning items.
    OpenAiResponsesV1,
    /// OpenAI's reasoning items, issued by Azure.
    AzureOpenAiResponsesV1,
    /// xAI's reasoning items.
    XaiResponsesV1,
    /// Any other name.
    Other(Name),
}

impl ReasoningFormat {
    /// The format of that name.
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

    /// The format that nobody named.
    pub fn unknown() -> Self {
        Self::Other(Name::from("unknown"))
    }

    /// Its name.
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
