//! The models of a list, and the formats in which lists are returned.

use std::sync::Arc;

use throughline_core::{Profile, Wire};
use throughline_json::Name;

/// A model in a list.
pub(crate) struct ListedModel {
    /// The name that clients request.
    pub(crate) id: Name,
    /// The name to show to people.
    pub(crate) title: Name,
    /// The maximum number of input tokens, if known.
    pub(crate) context: Option<u64>,
    /// The maximum number of output tokens, if known.
    pub(crate) output: Option<u64>,
    /// The release date, such as `2026-07-24`, if known.
    pub(crate) released: Option<Name>,
    /// The family of the model.
    pub(crate) profile: Arc<Profile>,
}

/// The format of a model list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelFormat {
    /// OpenAI's list.
    OpenAi,
    /// OpenAI's list, with the metadata that Codex reads.
    Codex,
    Anthropic,
    Gemini,
    /// The models of a publisher on Vertex.
    Vertex,
    /// The foundation models of Amazon Bedrock.
    BedrockModels,
    /// The inference profiles of Amazon Bedrock.
    BedrockProfiles,
}

impl ModelFormat {
    /// Returns the wire in whose format errors are returned.
    pub(crate) fn wire(self) -> Wire {
        match self {
            ModelFormat::OpenAi | ModelFormat::Codex => Wire::OPENAI_CHAT,
            ModelFormat::Anthropic => Wire::ANTHROPIC_MESSAGES,
            ModelFormat::Gemini | ModelFormat::Vertex => Wire::GEMINI,
            ModelFormat::BedrockModels | ModelFormat::BedrockProfiles => Wire::BEDROCK_CONVERSE,
        }
    }

    /// Returns the wire of the provider that defined the format.
    pub(super) fn provider_wire(self) -> Wire {
        match self {
            ModelFormat::OpenAi | ModelFormat::Codex => Wire::OPENAI_RESPONSES,
            ModelFormat::Anthropic
            | ModelFormat::Gemini
            | ModelFormat::Vertex
            | ModelFormat::BedrockModels
            | ModelFormat::BedrockProfiles => self.wire(),
        }
    }
}
