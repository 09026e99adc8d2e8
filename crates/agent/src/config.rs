//! Agent declarations, built in Rust or parsed from `agent.toml` or an HTTP request. The JSON and
//! TOML field names are public API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_core::Identity;
use throughline_json::{Json, Name};
use throughline_spec::{ReasoningConfig, ResolvedReasoning, TracingConfig};

use crate::gate::Gate;
use crate::limits::{AgentLimits, RuntimeProfile};

/// Declaration of an agent. `AgentConfig::default()` is invalid, because it has no name and no
/// model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Name shown to models and other agents.
    #[serde(default = "default_name")]
    pub name: Name,
    /// Internal name, never shown to models; defaults to `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<Name>,
    /// Model that the agent calls, until the run switches to another model.
    pub model: Name,
    /// Text at the start of the system message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Name>,
    /// Preset that selects which features are enabled by default.
    #[serde(default)]
    pub kind: AgentKind,
    /// Reasoning settings, as a `ReasoningConfig` JSON document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Json>,
    /// Preset of default limits.
    #[serde(default)]
    pub profile: RuntimeProfile,
    /// Limits that override the limits of `profile`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: AgentLimits,
    /// Maximum number of output tokens per answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature, sent to the provider verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Json>,
    /// Whether the agent plans with the tool `manage_todo_list`; defaults to true for a smart
    /// agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<bool>,
    /// Settings for approvals by a person and questions to a person.
    #[serde(default, skip_serializing_if = "is_default")]
    pub human_in_the_loop: HumanInTheLoop,
    /// JSON Schema that the final answer must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputContract>,
    /// Rules for failed model calls and invalid answers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gate: Gate,
    /// Settings that decide when older exchanges are summarised.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context: ContextPolicy,
    /// Agents that may take over the conversation from this agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handoffs: Vec<Handoff>,
    /// Policy for a tool call whose outcome is unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown_outcome: UnknownOutcome,
    /// Tracing settings of the agent's runs, as a `TracingConfig` JSON document. Without settings,
    /// the settings of the process apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Json>,
    /// Tags of caller-supplied Thoughts that the agent's model accepts, in addition to the tags of
    /// its wire and of its provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_tags: Vec<Name>,
}

fn default_name() -> Name {
    Name::from("assistant")
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Preset that selects which features are enabled by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Only the model and its tools.
    Minimal,
    /// The model and its tools, with planning, summaries, and short instructions on how to use
    /// both.
    #[default]
    Smart,
}

impl AgentConfig {
    /// Declares an agent with only a model and tools.
    pub fn minimal(model: impl Into<Name>) -> Self {
        Self { kind: AgentKind::Minimal, ..Self::smart(model) }
    }

    /// Declares an agent with planning and summaries.
    pub fn smart(model: impl Into<Name>) -> Self {
        Self { name: default_name(), model: model.into(), ..Self::default() }
    }

    /// Sets the text at the start of the system message.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Name>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Sets the name shown to models and other agents.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Name>) -> Self {
        self.name = name.into();
        self
    }

    /// Declares tags of caller-supplied Thoughts that the agent's model accepts.
    #[must_use]
    pub fn accepting_tags<T: Into<Name>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.accepted_tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Sets the reasoning settings, which are stored as JSON.
    #[must_use]
    pub fn reasoning(mut self, reasoning: &ReasoningConfig) -> Self {
        self.reasoning = Some(reasoning.json());
        self
    }

    /// Sets the tracing settings of the agent's runs, which are stored as JSON.
    #[must_use]
    pub fn tracing(mut self, tracing: &TracingConfig) -> Self {
        self.tracing = Some(tracing.json());
        self
    }

    /// Lists the models that the agent may call: the agent's own model, the fallback models and the
    /// summary model.
    pub fn models(&self) -> impl Iterator<Item = &Name> {
        [&self.model].into_iter().chain(&self.gate.other_models).chain(&self.context.model)
    }

    /// Returns the identity recorded as the author of the agent's messages.
    pub fn identity(&self) -> Identity {
        let mut identity = Identity::named(self.name.to_string());
        if let Some(identifier) = &self.identifier {
            identity.identifier = throughline_core::Identifier::Text(identifier.to_string().into());
        }
        identity
    }

    /// Returns the reasoning settings with all defaults resolved.
    pub fn resolved_reasoning(&self) -> Result<ResolvedReasoning, InvalidConfig> {
        let Some(document) = &self.reasoning else {
            return Ok(ResolvedReasoning { native: None, reflection: None });
        };
        let config = ReasoningConfig::parse(document)
            .map_err(|error| InvalidConfig::new("reasoning", error.to_string()))?;
        Ok(config.resolve())
    }

    /// Returns the limits, with unset values filled in from the profile.
    pub fn resolved_limits(&self) -> AgentLimits {
        self.limits.with_defaults_from(self.profile)
    }

    /// Returns whether the agent has the tool `manage_todo_list`. Defaults to true for a smart
    /// agent.
    pub fn is_planning_enabled(&self) -> bool {
        self.planning.unwrap_or(self.kind == AgentKind::Smart)
    }

    /// Returns whether older exchanges are summarised. Defaults to true for a smart agent.
    pub fn is_compaction_enabled(&self) -> bool {
        self.context.summarise.unwrap_or(self.kind == AgentKind::Smart)
    }
}

/// Settings for tool approvals and for questions to a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HumanInTheLoop {
    /// Enables the tool `ask_user_question`, which the model uses to ask a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_user: Option<AskUser>,
    /// Tools that need approval for every call, in addition to tools whose own declaration requires
    /// approval. `*` is a wildcard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<Name>,
    /// Time in milliseconds until an approval expires; never by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_expires_ms: Option<u64>,
}

/// Settings for the tool `ask_user_question`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AskUser {
    /// Whether a person may answer in free text.
    pub allow_free_text: bool,
    /// Time in milliseconds until a question expires; never by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Data that is added to the `metadata` of each question, such as the team that answers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<Name, Json>,
}

impl Default for AskUser {
    fn default() -> Self {
        Self { allow_free_text: true, expires_ms: None, metadata: BTreeMap::new() }
    }
}

/// Required form of the agent's final answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputContract {
    /// JSON Schema against which the answer is validated.
    pub schema: Json,
    /// Name of the schema, for providers that require a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Whether the schema is also sent to the provider, so that the provider enforces the schema.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
}

/// Settings for compaction: when older exchanges are summarised, and by which model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContextPolicy {
    /// Whether older exchanges are summarised; defaults to true for a smart agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summarise: Option<bool>,
    /// Size of the conversation, in tokens, that triggers a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_tokens: Option<u64>,
    /// Number of exchanges before the current exchange that are not summarised, as long as they fit
    /// in half of the trigger size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_turns: Option<u64>,
    /// Model that writes summaries; defaults to the agent's own model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Name>,
}

/// Another agent that may take over the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handoff {
    /// Name of the agent that takes over.
    pub to: Name,
    /// Text that explains to the model when to hand over to this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Name>,
}

impl Handoff {
    /// Returns the handoff tool's name, `transfer_to_` followed by the agent's name.
    pub fn tool(&self) -> Name {
        Name::from(format!("transfer_to_{}", self.to))
    }
}

/// Policy for a tool call that started but whose outcome is unknown. The call is never repeated
/// automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownOutcome {
    /// A person decides the outcome.
    #[default]
    Ask,
    /// The model receives a result that reports the outcome as unknown.
    Report,
}

/// Error for an invalid field of an agent declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidConfig {
    /// Path to the invalid field, such as `agents.writer.model`.
    pub field: Name,
    /// Error text and suggested fix, printed after the path.
    pub problem: Name,
}

impl InvalidConfig {
    pub(crate) fn new(field: impl Into<Name>, problem: impl Into<Name>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Agent declarations of a run, by agent name.
pub type Agents = BTreeMap<Name, AgentConfig>;
