//! An agent as it is declared: in Rust, in an `agent.toml`, or over HTTP. The names of the members are the documented ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_core::{Identity, Json, Name, ReasoningConfig, ResolvedReasoning};

use crate::gate::Gate;
use crate::limits::{AgentLimits, RuntimeProfile};

/// An agent, as it is declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Its name, by which models and other agents know it.
    #[serde(default = "assistant")]
    pub name: Name,
    /// Its name for the system, which no model is told; the same as `name` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<Name>,
    /// The model that it asks.
    pub model: Name,
    /// What it is told before anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Name>,
    /// How much comes with it.
    #[serde(default)]
    pub kind: AgentKind,
    /// How it reasons: the document `ReasoningConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Json>,
    /// The limits that it has, where none is said.
    #[serde(default)]
    pub profile: RuntimeProfile,
    /// The limits that it has.
    #[serde(default, skip_serializing_if = "AgentLimits::is_empty")]
    pub limits: AgentLimits,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Json>,
    /// Whether it keeps a plan, by the tool `manage_todo_list`. A smart agent does, unless this says no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<bool>,
    /// What a person has a say in.
    #[serde(default, skip_serializing_if = "HumanInTheLoop::is_empty")]
    pub human_in_the_loop: HumanInTheLoop,
    /// What its last answer must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputContract>,
    /// What is done when an answer does not come, or is not what it had to be.
    #[serde(default, skip_serializing_if = "Gate::is_default")]
    pub gate: Gate,
    /// When older parts of a conversation are summarised.
    #[serde(default, skip_serializing_if = "ContextPolicy::is_default")]
    pub context: ContextPolicy,
    /// The agents that it may hand the conversation to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handoffs: Vec<Handoff>,
    /// What is done about a tool of which nobody knows whether it ran.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown_outcome: UnknownOutcome,
}

fn assistant() -> Name {
    Name::from("assistant")
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How much comes with an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// A model and its tools, and nothing else.
    Minimal,
    /// A plan, summaries of what is old, and a few words on how to use them.
    #[default]
    Smart,
}

impl AgentConfig {
    /// A model and its tools, and nothing else.
    pub fn minimal(model: impl Into<Name>) -> Self {
        Self { kind: AgentKind::Minimal, ..Self::smart(model) }
    }

    /// An agent with a plan and summaries.
    pub fn smart(model: impl Into<Name>) -> Self {
        Self {
            name: assistant(),
            identifier: None,
            model: model.into(),
            instructions: None,
            kind: AgentKind::Smart,
            reasoning: None,
            profile: RuntimeProfile::default(),
            limits: AgentLimits::default(),
            max_tokens: None,
            temperature: None,
            planning: None,
            human_in_the_loop: HumanInTheLoop::default(),
            output: None,
            gate: Gate::default(),
            context: ContextPolicy::default(),
            handoffs: Vec::new(),
            unknown_outcome: UnknownOutcome::default(),
        }
    }

    /// The same, with instructions.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Name>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// The same, under a name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Name>) -> Self {
        self.name = name.into();
        self
    }

    /// The same, with that way to reason.
    #[must_use]
    pub fn reasoning(mut self, reasoning: &ReasoningConfig) -> Self {
        self.reasoning = Some(reasoning.json());
        self
    }

    /// The models that it may ask: its own, those that are asked instead, and the one that summarises.
    pub fn models(&self) -> impl Iterator<Item = &Name> {
        [&self.model].into_iter().chain(&self.gate.other_models).chain(&self.context.model)
    }

    /// Who speaks when it does.
    pub fn identity(&self) -> Identity {
        let mut identity = Identity::named(self.name.to_string());
        if let Some(identifier) = &self.identifier {
            identity.identifier = throughline_core::Identifier::Text(identifier.to_string().into());
        }
        identity
    }

    /// How it reasons, with what is not said filled in.
    pub fn resolved_reasoning(&self) -> Result<ResolvedReasoning, InvalidConfig> {
        let Some(document) = &self.reasoning else {
            return Ok(ResolvedReasoning { native: None, reflection: None });
        };
        let config = ReasoningConfig::parse(document)
            .map_err(|error| InvalidConfig::new("reasoning", error.to_string()))?;
        Ok(config.resolve())
    }

    /// The limits that it has, with what is not said filled in from its profile.
    pub fn resolved_limits(&self) -> AgentLimits {
        self.limits.over(self.profile)
    }

    /// Whether it keeps a plan.
    pub fn plans(&self) -> bool {
        self.planning.unwrap_or(self.kind == AgentKind::Smart)
    }

    /// Whether what is old is summarised.
    pub fn summarises(&self) -> bool {
        self.context.summarise.unwrap_or(self.kind == AgentKind::Smart)
    }
}

/// What a person has a say in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HumanInTheLoop {
    /// Whether the model may ask a person, by the tool `ask_user_question`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_user: Option<AskUser>,
    /// The tools that a person must allow each time, besides those that say so themselves; `*` stands for anything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<Name>,
    /// How long an approval can be given, in milliseconds; for ever without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_expires_ms: Option<u64>,
}

impl HumanInTheLoop {
    fn is_empty(&self) -> bool {
        is_default(self)
    }
}

/// How the model may ask a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AskUser {
    /// Whether an answer may be in one's own words.
    pub allow_free_text: bool,
    /// How long it can be answered, in milliseconds; for ever without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl Default for AskUser {
    fn default() -> Self {
        Self { allow_free_text: true, expires_ms: None }
    }
}

/// What an agent's last answer must look like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputContract {
    /// The JSON Schema.
    pub schema: Json,
    /// The schema's name, for providers that want one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Whether the provider is asked to enforce it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
}

/// When older parts of a conversation are summarised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContextPolicy {
    /// Whether they are at all. A smart agent does, unless this says no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summarise: Option<bool>,
    /// From how many tokens on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_tokens: Option<u64>,
    /// How many of the latest exchanges stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_turns: Option<u64>,
    /// The model that summarises; the agent's own without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Name>,
}

impl ContextPolicy {
    fn is_default(&self) -> bool {
        is_default(self)
    }
}

/// An agent that another may hand the conversation to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handoff {
    /// The agent.
    pub to: Name,
    /// When to do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Name>,
}

impl Handoff {
    /// The tool by which it is done.
    pub fn tool(&self) -> Name {
        Name::from(format!("transfer_to_{}", self.to))
    }
}

/// What is done about a tool that was begun and of which nobody knows how it ended. It is never run again by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownOutcome {
    /// A person says what became of it.
    #[default]
    Ask,
    /// The model is told that nobody knows.
    Report,
}

/// What is wrong with an agent's declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidConfig {
    /// The member.
    pub field: Name,
    /// What is wrong with it, and what to write instead.
    pub problem: Name,
}

impl InvalidConfig {
    pub(crate) fn new(field: impl Into<Name>, problem: impl Into<Name>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// The agents of a run, by name. One of them begins.
pub type Agents = BTreeMap<Name, AgentConfig>;
