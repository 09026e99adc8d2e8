//! Differences between endpoints and models, as data.
//!
//! The entries are in `providers.toml` and `profiles.toml` of the codec crate; users can add their
//! own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_json::{Name, words};

use crate::name::Wire;
use crate::pattern::matches_pattern;

/// A kind of endpoint: its protocol, dialect and default address.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// The name of the catalog entry, such as `anthropic`.
    pub name: Name,
    /// The wire that the endpoint uses.
    pub wire: Wire,
    /// The default base URL, up to the path that the wire defines.
    pub base_url: Name,
    /// The environment variable that usually holds the API key, if one is required.
    pub key_env: Option<Name>,
    /// How this endpoint's representation of reasoning differs from the wire's default.
    pub dialect: Dialect,
    /// Whether a gateway restores reasoning without a Seal in requests to this endpoint.
    pub replay_plain: PlainReplay,
}

/// How an endpoint represents reasoning on the `openai-chat` and `openai-responses` wires, and what
/// else it supports. Every other wire represents reasoning in only one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a row of facts, each of them true or not")]
pub struct Dialect {
    /// Where an assistant message carries reasoning.
    pub channel: ReasoningChannel,
    /// Whether every assistant message with tool calls must contain the reasoning member that
    /// `channel` selects, even if its value is `""`.
    pub demanded_with_tools: bool,
    /// The placeholder to send if the reasoning member is required but the message has no reasoning
    /// that can be sent.
    pub stand_in: Option<String>,
    /// The accepted format of tool call ids.
    pub call_ids: CallIds,
    /// How a request enables, disables and limits reasoning.
    pub switch: ReasoningSwitch,
    /// Whether the endpoint stores its responses, so that later requests can refer to items by id.
    /// Applies only to the Responses wire.
    pub stores: bool,
    /// Whether the endpoint pairs a stored reasoning item with the item that follows it, and
    /// rejects either item without the other.
    pub pairs: bool,
    /// Whether parallel tool calls must be followed directly by their outputs, with no other items
    /// in between.
    pub calls_together: bool,
    /// Whether the endpoint is a router that forwards reasoning unchanged, so that the upstream
    /// provider validates it.
    pub relays: bool,
    /// Whether the endpoint is known to reject unsupported settings.
    pub checks_settings: bool,
    /// Whether every tool call needs a result and every result needs a call.
    pub pairs_calls: bool,
    /// Whether the endpoint compacts a conversation on request: `compaction_trigger` on the
    /// Responses wire, `compaction` on the Messages wire.
    pub compacts: bool,
    /// Whether a request names the model in the path instead of the body. Applies only to the
    /// Messages wire.
    pub model_in_path: bool,
    /// The changes that the endpoint accepts in system messages inside a conversation.
    pub appends: AppendedChanges,
    /// The tags of caller-supplied Thoughts that the endpoint accepts in addition to the tags of
    /// its wire. Applies to every wire.
    pub accepted_tags: Vec<String>,
}

/// The changes that an endpoint accepts in system messages inside a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AppendedChanges {
    /// None is documented.
    #[default]
    None,
    /// A new system prompt.
    System,
    /// A new system prompt, tools that are removed by name, and complete definitions of new tools.
    Tools,
}

/// The tool call ids that an endpoint accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallIds {
    /// Up to 60 letters, digits, `_` and `-`.
    #[default]
    Plain,
    /// Up to 40 letters, digits, `_` and `-`.
    Forty,
    /// Exactly nine letters and digits.
    Nine,
}

/// Where an assistant message of the `openai-chat` wire carries reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningChannel {
    /// Reasoning is sent back in the same member that the server used.
    #[default]
    AsEmitted,
    /// The endpoint has no reasoning in chat messages.
    None,
    /// OpenRouter's `reasoning` and `reasoning_details`.
    Details,
    /// The string member `reasoning_content`.
    ReasoningContent,
    /// The string member `reasoning`.
    Reasoning,
    /// The string member `thinking` in Ollama's native API.
    Thinking,
    /// Mistral's `thinking` chunks inside `content`.
    Chunks,
    /// `<think>…</think>` inside the text.
    Tags,
}

/// How a chat request enables reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningSwitch {
    /// `reasoning_effort: "low"`
    #[default]
    Effort,
    /// OpenRouter: `reasoning: {effort | max_tokens, exclude}`
    Object,
    /// `thinking: {type: "enabled" | "disabled"}`, and `reasoning_effort` if the model's profile
    /// lists efforts.
    Toggle,
    /// Qwen: `enable_thinking`, `thinking_budget`
    Flag,
    /// Ollama's native API: `think: true | "low"`
    Think,
    /// The request has no setting for reasoning.
    None,
}

/// The capabilities and requirements of a model family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a row of facts, each of them true or not")]
pub struct Profile {
    /// The name of the model family.
    pub name: String,
    /// Patterns for model names. [`best_match`](crate::best_match) selects the profile of a model.
    pub models: Vec<String>,
    /// The date of the newest model that the profile describes, such as `2026-11-09`, if known.
    pub released: Option<String>,
    /// The vendor whose rules and Seal format apply to the family, if any.
    pub vendor: Option<Vendor>,
    /// The thinking modes that a request may select; empty if the wire has no modes.
    pub modes: Vec<Mode>,
    /// Whether the model thinks by default.
    pub thinks_by_default: bool,
    /// Whether thinking cannot be disabled.
    pub always_thinks: bool,
    /// The supported effort values; empty if the model has no effort setting.
    pub efforts: Vec<String>,
    /// Gemini's thinking levels; empty for models with a token budget.
    pub levels: Vec<String>,
    /// The accepted range of the thinking budget; `None` if the model has no such setting.
    pub budget: Option<TokenBudget>,
    /// Whether `temperature`, `top_p` and `top_k` are rejected.
    pub fixed_sampling: bool,
    /// Whether `temperature`, `top_p` and `top_k` are rejected while the model reasons.
    pub unsampled_while_reasoning: bool,
    /// When a forced tool choice is rejected.
    pub forced_tools: ForcedTools,
    /// When reasoning must be sent back.
    pub contract: Contract,
    /// What the model does with reasoning that has no Seal; `None` if the entry does not state it.
    /// [`Profile::plain`] returns the effective value.
    pub plain_reasoning: Option<PlainReasoning>,
    /// Patterns for the families whose Seals the model can read; `*` matches any text. The model's
    /// own family is always included.
    pub reads: Vec<String>,
    /// Families whose Seals the model silently drops, although a pattern in `reads` matches the
    /// family.
    pub ignores: Vec<String>,
    /// What the family's Seals are bound to.
    pub bound: Binding,
    /// Whether the model follows system messages inside the conversation, including added and
    /// removed tools, so that changes can be appended instead of edited into the prefix.
    pub appends: bool,
    /// The vendor's documented placeholder for a required signature that this model did not issue.
    pub stand_in: Option<String>,
    /// Additional facts for the codec of one wire, such as `max-tokens`.
    pub notes: BTreeMap<String, String>,
}

impl Profile {
    /// Whether the model can read Seals issued by `family`.
    pub fn reads_seals_of(&self, family: &str) -> bool {
        let among =
            |families: &[String]| families.iter().any(|pattern| matches_pattern(pattern, family));
        self.name == family || (among(&self.reads) && !among(&self.ignores))
    }

    /// Whether the model supports thinking.
    pub fn can_think(&self) -> bool {
        self.thinks_by_default
            || self.always_thinks
            || self.supports_mode(Mode::Enabled)
            || !self.efforts.is_empty()
    }

    /// Returns the vendor whose Seals the model issues and reads; `None` for models without Seals.
    pub fn seal_vendor(&self) -> Option<Vendor> {
        self.vendor.filter(|_| self.bound.model)
    }

    /// Returns what the model does with reasoning that has no Seal. If the profile does not state
    /// it, a contract of a vendor without Seals demands the reasoning.
    pub fn plain(&self) -> PlainReasoning {
        let is_demanded = self.vendor.is_none() && self.contract != Contract::Stateless;
        let default = if is_demanded { PlainReasoning::Demanded } else { PlainReasoning::Unknown };
        self.plain_reasoning.unwrap_or(default)
    }

    /// Whether a request may select that thinking mode.
    pub fn supports_mode(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }
}

/// A vendor of models whose reasoning is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// Anthropic's Claude models.
    Anthropic,
    /// Google's Gemini models.
    Google,
    /// OpenAI's GPT and o-series models, on any endpoint.
    OpenAi,
    /// xAI's Grok models, on any endpoint.
    Xai,
}

/// A thinking mode that a request can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The model thinks within a token budget.
    Enabled,
    /// The model decides how much to think, guided by the effort setting.
    Adaptive,
    /// The model does not think.
    Disabled,
    /// The model thinks only between tool calls.
    BetweenTools,
}

/// The accepted range of a thinking budget, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TokenBudget {
    /// The smallest accepted value.
    pub min: u64,
    /// The largest accepted value.
    pub max: u64,
    /// Whether `0` disables thinking.
    #[serde(default)]
    pub zero: bool,
}

/// When a model rejects a forced tool choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForcedTools {
    /// Never rejected.
    #[default]
    Allowed,
    /// Rejected while the model thinks with a manual budget.
    RefusedWithBudget,
    /// Rejected while the model thinks.
    RefusedWhileThinking,
    /// Always rejected.
    Refused,
}

words! {
    /// When a provider requires earlier reasoning to be sent back. The variants are ordered from
    /// the weakest contract to the strictest.
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Contract {
        /// Reasoning is never required. The provider uses or ignores reasoning that is sent back.
        #[default]
        Stateless = "stateless",
        /// Reasoning is required in turns that called tools.
        RequiredWithTools = "required_with_tools",
        /// Reasoning is required in every request.
        AlwaysRequired = "always_required",
    }

    /// What a model does with reasoning that has no Seal, if a later request sends it back.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    PlainReasoning {
        /// There is no evidence.
        #[default]
        Unknown = "unknown",
        /// The model never reads the reasoning.
        Ignored = "ignored",
        /// The model reads the reasoning of the current tool loop: the messages after the last user
        /// message that is not a tool result.
        UsedInToolLoop = "used-in-tool-loop",
        /// The model reads the reasoning of all turns.
        UsedAcrossTurns = "used-across-turns",
        /// The provider rejects requests without the reasoning that [`Profile::contract`] requires.
        Demanded = "demanded",
    }

    /// Whether a gateway restores reasoning without a Seal.
    #[derive(Default)]
    PlainReplay {
        /// The gateway restores reasoning that the model's profile states as used or demanded. At
        /// chat endpoints, the gateway also restores the reasoning of unknown models in the current
        /// tool loop.
        #[default]
        Auto = "auto",
        /// The gateway restores the reasoning of all turns of the model's family.
        Always = "always",
        /// The gateway restores no reasoning without a Seal.
        Never = "never",
    }
}

/// What a family's Seals are bound to, in addition to the issuing endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Binding {
    /// Only models whose profile accepts Seals of the issuing family can read the Seals.
    pub model: bool,
    /// Only the issuing account can use the Seals.
    pub account: bool,
    /// A Seal is valid only if all content before the Seal is sent unchanged.
    pub prefix: bool,
}
