//! How to answer: the settings that more than one wire knows.

use crate::json::Json;
use crate::name::Name;

/// The settings that more than one wire knows. Numbers stay as they were written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The most tokens to answer with.
    pub max_tokens: Option<u64>,
    /// The temperature.
    pub temperature: Option<Json>,
    /// The nucleus.
    pub top_p: Option<Json>,
    /// The number of candidates for each token.
    pub top_k: Option<Json>,
    /// Where to stop.
    pub stop: Vec<Name>,
    /// Which tool to use.
    pub choice: Option<Choice>,
    /// Whether several tools may be called at once.
    pub parallel: Option<bool>,
    /// How to reason.
    pub reasoning: Option<NativeReasoning>,
    /// What the answer must look like.
    pub output: Option<Output>,
}

/// Which tool to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// As the model sees fit.
    Auto,
    /// None.
    None,
    /// Some tool.
    Any,
    /// This one.
    Tool(Name),
    /// Something else that only the request's own wire understands.
    Other(Json),
}

/// What the answer must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Any JSON.
    Json,
    /// JSON of this schema.
    Schema {
        /// The schema's name, where the wire wants one.
        name: Option<Name>,
        /// The schema.
        schema: Json,
        /// Whether the provider must enforce it.
        strict: Option<bool>,
    },
}

/// How a model's native reasoning is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeReasoning {
    /// On or off; nothing leaves it to the model's default.
    pub enabled: Option<bool>,
    /// How hard to think: `none`, `minimal`, `low`, `medium`, `high`, or a provider's own word.
    pub effort: Option<Name>,
    /// How many tokens to think with.
    pub budget_tokens: Option<u64>,
    /// Whether readable thoughts are wanted in the answer.
    pub include_thoughts: Option<bool>,
    /// Merged into the request last, as they are.
    pub provider_extras: Vec<(Name, Json)>,
}

impl NativeReasoning {
    /// Whether it asks for no reasoning at all. Effort `none` beats a budget.
    pub fn is_off(&self) -> bool {
        self.enabled == Some(false) || self.effort.as_deref() == Some("none")
    }
}
