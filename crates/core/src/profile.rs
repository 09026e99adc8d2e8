//! Differences between endpoints and models, as data.
//!
//! The entries are in `providers.toml` and `profiles.toml` of the codec crate; users can add their
//! own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_json::{Name, words};

use crate::name::Wire;

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
}

/// How an endpoint represents reasoning on the `openai-chat` and `openai-responses` wires. Every
/// other wire represents reasoning in only one way.
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
    /// Patterns for model names, in which `*` matches any text. The longest matching pattern wins.
    pub models: Vec<String>,
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
    /// Patterns for the families whose Seals the model can read; `*` matches any text. The model's
    /// own family is always included.
    pub reads: Vec<String>,
    /// Families whose Seals the model silently drops, although a pattern in `reads` matches the
    /// family.
    pub ignores: Vec<String>,
    /// What the family's Seals are bound to.
    pub bound: Binding,
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

    /// Returns the length of the longest pattern in `models` that matches the model name, ignoring
    /// case; `None` if no pattern matches.
    pub fn longest_match(&self, model: &str) -> Option<usize> {
        self.models.iter().filter(|pattern| matches_pattern(pattern, model)).map(String::len).max()
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

/// Whether `text` matches a pattern in which `*` matches any text, ignoring case.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // Each text is tested against many patterns. Comparing the first letter rules out most of them.
    match (pattern.first(), text.first()) {
        (Some(b'*') | None, _) => {}
        (Some(wanted), Some(first)) if wanted.eq_ignore_ascii_case(first) => {}
        (Some(_), _) => return false,
    }
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let head = pieces.next().unwrap_or_default();
    match text.split_at_checked(head.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(head) => text = rest,
        Some(_) | None => return false,
    }
    let Some(tail) = pieces.next_back() else { return text.is_empty() };
    for piece in pieces {
        match after_first(text, piece) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    let end = text.len().checked_sub(tail.len()).and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(tail))
}

/// Returns the text after the first occurrence of `piece`, ignoring case.
fn after_first<'t>(text: &'t [u8], piece: &[u8]) -> Option<&'t [u8]> {
    let Some(first) = piece.first() else { return Some(text) };
    let is_here = |window: &[u8]| {
        window.first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
            && window.eq_ignore_ascii_case(piece)
    };
    let start = text.windows(piece.len()).position(is_here)?;
    text.get(start + piece.len()..)
}
