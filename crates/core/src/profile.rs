//! What varies between endpoints and between models, as rows of data.
//!
//! The rows themselves are `providers.toml` and `profiles.toml` of the codec crate; users add their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::{Name, Wire};

/// An endpoint kind: which protocol it speaks, in which dialect, and where it is found.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// The row's name, as `anthropic`.
    pub name: Name,
    /// The protocol.
    pub wire: Wire,
    /// The default address, up to the wire's own path.
    pub base_url: Name,
    /// The environment variable that usually holds the key, if one is needed.
    pub key_env: Option<Name>,
    /// How this endpoint's reasoning differs from the wire's own.
    pub dialect: Dialect,
}

/// How an endpoint writes reasoning on the `openai-chat` and `openai-responses` wires. Other wires have one way only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a row of facts, each of them true or not")]
pub struct Dialect {
    /// Where an assistant message carries reasoning.
    pub channel: Channel,
    /// Whether the channel's key must be on every assistant message with tool calls, if only as `""`.
    pub demanded_with_tools: bool,
    /// What stands in for reasoning that another model produced, where the key is demanded.
    pub stand_in: Option<String>,
    /// What ids of tool calls look like.
    pub call_ids: CallIds,
    /// How reasoning is switched on, off and sized in a request.
    pub switch: Switch,
    /// Whether the Responses clone keeps what it answered, so that item ids resolve.
    pub stores: bool,
    /// Whether the ids that it keeps pair reasoning with the item it led to, so that neither is taken without the other.
    pub pairs: bool,
    /// Whether nothing but their outputs may follow calls that were made at once.
    pub calls_together: bool,
    /// Whether a router hands reasoning to the upstream unmended, so that the upstream's refusals are its own.
    pub relays: bool,
    /// Whether settings that the model does not take are refused. Others drop them, or have models of their own making.
    pub checks_settings: bool,
    /// Whether every tool call must be answered, and every answer belong to a call.
    pub pairs_calls: bool,
}

/// What ids of tool calls an endpoint takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallIds {
    /// Letters, digits, `_` and `-`, up to 60 of them.
    #[default]
    Plain,
    /// The same, up to 40.
    Forty,
    /// Exactly nine letters and digits.
    Nine,
}

/// Where an assistant message of the `openai-chat` wire carries reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// What the server emitted is what it gets back.
    #[default]
    AsEmitted,
    /// Reasoning is not part of this endpoint's chat messages.
    None,
    /// OpenRouter's `reasoning` and `reasoning_details`.
    Details,
    /// `reasoning_content`, a string.
    ReasoningContent,
    /// `reasoning`, a string.
    Reasoning,
    /// Ollama's own `thinking`, a string.
    Thinking,
    /// Mistral's `thinking` chunks inside `content`.
    Chunks,
    /// `<think>…</think>` inside the text.
    Tags,
}

/// How a chat request asks for reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// `reasoning_effort: "low"`
    #[default]
    Effort,
    /// OpenRouter: `reasoning: {effort | max_tokens, exclude}`
    Object,
    /// `thinking: {type: "enabled" | "disabled"}`, and `reasoning_effort` where the profile lists efforts.
    Toggle,
    /// Qwen: `enable_thinking`, `thinking_budget`
    Flag,
    /// Ollama's own: `think: true | "low"`
    Think,
    /// Nothing to set.
    None,
}

/// What a model family can do, and what it demands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "a row of facts, each of them true or not")]
pub struct Profile {
    /// The row's name, which is also the family's.
    pub name: String,
    /// Patterns of model names, where `*` stands for anything. The longest pattern that fits wins.
    pub models: Vec<String>,
    /// Who makes it, where that decides what it is held to: whose rules it keeps, and whose shape its seals have.
    pub vendor: Option<Vendor>,
    /// The modes of thinking that a request may ask for; empty where the wire has no modes.
    pub modes: Vec<Mode>,
    /// Whether the model thinks when the request does not say.
    pub thinks_by_default: bool,
    /// Whether thinking cannot be switched off.
    pub always_thinks: bool,
    /// The efforts that it takes; empty where there is no such knob.
    pub efforts: Vec<String>,
    /// Gemini's thinking levels; empty on models that take a budget.
    pub levels: Vec<String>,
    /// The smallest and largest budget of thinking tokens.
    pub budget: Option<Budget>,
    /// Whether `temperature`, `top_p` and `top_k` are refused.
    pub fixed_sampling: bool,
    /// Whether they are refused while it reasons.
    pub unsampled_while_reasoning: bool,
    /// Under which circumstances a forced tool choice is refused.
    pub forced_tools: ForcedTools,
    /// When its reasoning must be sent back.
    pub contract: Contract,
    /// The families whose seals it reads, where `*` stands for anything; its own is always among them.
    pub reads: Vec<String>,
    /// The families whose seals it is known to drop unread, although a pattern of `reads` covers them.
    pub ignores: Vec<String>,
    /// What its seals are bound to.
    pub bound: Binding,
    /// A documented value that stands in for a signature it did not issue.
    pub stand_in: Option<String>,
    /// More facts that only one wire understands.
    pub notes: BTreeMap<String, String>,
}

impl Profile {
    /// Whether it can read seals that `family` issued.
    pub fn reads_seals_of(&self, family: &str) -> bool {
        let among = |families: &[String]| families.iter().any(|pattern| fits(pattern, family));
        self.name == family || (among(&self.reads) && !among(&self.ignores))
    }

    /// The length of the longest of its patterns that a model's name fits, whatever the case of either.
    pub fn fit(&self, model: &str) -> Option<usize> {
        self.models.iter().filter(|pattern| fits(pattern, model)).map(String::len).max()
    }

    /// Whether it can think at all.
    pub fn can_think(&self) -> bool {
        self.thinks_by_default
            || self.always_thinks
            || self.takes(Mode::Enabled)
            || !self.efforts.is_empty()
    }

    /// Whose seals it issues and reads; nothing for a model that seals nothing.
    pub fn seals_as(&self) -> Option<Vendor> {
        self.vendor.filter(|_| self.bound.model)
    }

    /// Whether the model takes requests in that mode.
    pub fn takes(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }
}

/// Who makes models whose reasoning is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// Claude.
    Anthropic,
    /// Gemini.
    Google,
    /// GPT and the o series, wherever they are served.
    OpenAi,
    /// Grok, wherever it is served.
    Xai,
}

/// A way of thinking that a request can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// With a budget of tokens.
    Enabled,
    /// As the model sees fit, steered by effort.
    Adaptive,
    /// Not at all.
    Disabled,
    /// Between tool calls only.
    BetweenTools,
}

/// The limits of a budget of thinking tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Budget {
    /// The smallest that is taken.
    pub min: u64,
    /// The largest that is taken.
    pub max: u64,
    /// Whether `0` switches thinking off.
    #[serde(default)]
    pub zero: bool,
}

/// Under which circumstances a model refuses to be told which tool to call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForcedTools {
    /// Never.
    #[default]
    Allowed,
    /// While it thinks with a manual budget.
    RefusedWithBudget,
    /// While it thinks.
    RefusedWhileThinking,
    /// Always.
    Refused,
}

/// When a provider demands its reasoning back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contract {
    /// Never: sending it back is welcome or ignored.
    #[default]
    Stateless,
    /// In a turn that called tools.
    RequiredWithTools,
    /// In every request.
    AlwaysRequired,
}

impl Contract {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Contract::Stateless => "stateless",
            Contract::RequiredWithTools => "required_with_tools",
            Contract::AlwaysRequired => "always_required",
        }
    }
}

impl std::fmt::Display for Contract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a family's seals are bound to, besides the endpoint that issued them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Binding {
    /// To the model family.
    pub model: bool,
    /// To the account.
    pub account: bool,
    /// To everything that was sent before them.
    pub prefix: bool,
}

/// Whether `text` fits a pattern in which `*` stands for anything, whatever the case of either.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // Many patterns are tried for each text, and most of them differ from it in the first letter.
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
        match behind(text, piece) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    let end = text.len().checked_sub(tail.len()).and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(tail))
}

/// What stands behind the first place of a piece in a text, whatever the case of either.
fn behind<'t>(text: &'t [u8], piece: &[u8]) -> Option<&'t [u8]> {
    let Some(first) = piece.first() else { return Some(text) };
    let is_here = |window: &[u8]| {
        window.first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
            && window.eq_ignore_ascii_case(piece)
    };
    let start = text.windows(piece.len()).position(is_here)?;
    text.get(start + piece.len()..)
}
