//! Names of the formats in which providers represent reasoning.

use throughline_json::Name;

use crate::profile::{Contract, Vendor};

/// The format in which a provider represents reasoning. Unknown format names are kept.
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
    /// A format name that this version does not know.
    Other(Name),
}

impl ReasoningFormat {
    /// Parses a format name. Never fails: unknown names become [`ReasoningFormat::Other`].
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

    /// Returns the format `unknown`, for reasoning whose source does not specify a format.
    pub fn unknown() -> Self {
        Self::Other(Name::from("unknown"))
    }

    /// Returns the format name as used in documents, such as `anthropic-claude-v1`.
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

    /// Returns the vendor whose models read this format; `None` for unknown formats.
    pub fn vendor(&self) -> Option<Vendor> {
        match self {
            Self::AnthropicClaudeV1 => Some(Vendor::Anthropic),
            Self::GoogleGeminiV1 => Some(Vendor::Google),
            Self::OpenAiResponsesV1 | Self::AzureOpenAiResponsesV1 => Some(Vendor::OpenAi),
            Self::XaiResponsesV1 => Some(Vendor::Xai),
            Self::Other(name) if name.ends_with("openai-responses-v1") => Some(Vendor::OpenAi),
            Self::Other(name) if name.ends_with("xai-responses-v1") => Some(Vendor::Xai),
            Self::Other(_) => None,
        }
    }

    /// Returns when providers that use this format require reasoning to be sent back in later
    /// requests.
    pub fn replay_contract(&self) -> Contract {
        match self.vendor() {
            Some(Vendor::Anthropic | Vendor::Google | Vendor::OpenAi) => {
                Contract::RequiredWithTools
            }
            Some(Vendor::Xai) | None => Contract::Stateless,
        }
    }
}

impl std::fmt::Display for ReasoningFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
