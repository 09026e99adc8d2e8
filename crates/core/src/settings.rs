//! Model settings that more than one wire supports.

use throughline_json::{Json, Name};

/// Model settings that more than one wire supports. Numbers keep their original text, such as
/// `1.0`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Maximum number of output tokens.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<Json>,
    /// Nucleus sampling threshold.
    pub top_p: Option<Json>,
    /// Number of candidate tokens to sample from (top-k).
    pub top_k: Option<Json>,
    /// Stop sequences, which end the output; empty for none.
    pub stop: Vec<Name>,
    /// Which tool the model may or must call; `None` selects the provider's default.
    pub choice: Option<ToolChoice>,
    /// Whether parallel tool calls are allowed.
    pub parallel: Option<bool>,
    /// Settings for the model's reasoning; `None` selects the model's defaults.
    pub reasoning: Option<NativeReasoning>,
    /// Required format of the response; `None` for free text.
    pub output: Option<OutputFormat>,
}

/// Which tool the model may or must call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides whether to call a tool.
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call at least one tool.
    Any,
    /// The model must call this tool.
    Tool(Name),
    /// A provider-specific choice, which only the wire of the original request supports.
    Other(Json),
}

/// The required format of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Any valid JSON.
    Json,
    /// JSON that matches a schema.
    Schema {
        /// The name of the schema, if the wire requires a name.
        name: Option<Name>,
        /// The JSON Schema that the response must match.
        schema: Json,
        /// Whether the provider must enforce the schema.
        strict: Option<bool>,
    },
}

/// Settings for a model's native reasoning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeReasoning {
    /// Whether reasoning is enabled; `None` selects the model's default.
    pub enabled: Option<bool>,
    /// The effort: `none`, `minimal`, `low`, `medium`, `high`, or a provider-specific value.
    pub effort: Option<Name>,
    /// The token budget for thinking.
    pub budget_tokens: Option<u64>,
    /// Whether the response should contain readable thoughts.
    pub include_thoughts: Option<bool>,
    /// Provider-specific members that are merged verbatim into the finished request.
    pub provider_extras: Vec<(Name, Json)>,
}

impl NativeReasoning {
    /// Whether reasoning is disabled. Effort `none` overrides a budget.
    pub fn is_off(&self) -> bool {
        self.enabled == Some(false) || self.effort.as_deref() == Some("none")
    }
}
