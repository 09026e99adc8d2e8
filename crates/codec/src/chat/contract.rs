//! Requirements of chat endpoints: predicates that the encoder uses, and the rules that audit a
//! request.

mod alteration;
mod calls;
#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
mod details;
mod fields;
mod replay_history;
mod rules;
mod settings;
mod view;

use throughline_core::{
    Contract, ForcedTools, Item, NativeReasoning, ReasoningChannel, ReasoningFormat, Target,
    ToolChoice,
};

use crate::audit::{AuditContext, Findings};
use crate::chat::contract::replay_history::ChatReplayHistory;
use crate::chat::contract::view::{ChatFindings, ChatRequest};

pub(super) use crate::chat::contract::rules::RULES;

/// Reports everything in the request that the endpoint would reject.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = ChatRequest::new(case);
    let past = ChatReplayHistory::of(&view);
    let mut report = ChatFindings::new(case.target(), findings);
    fields::count_reasoning(&view, &mut report);
    settings::check(&view, &mut report);
    calls::check(&view, &mut report);
    fields::check(&view, &past, &mut report);
    details::check(&view, &past, &mut report);
    replay_history::check(&view, &past, &mut report);
}

/// Returns the member in which an endpoint expects reasoning as one string.
pub(super) fn reasoning_field(channel: ReasoningChannel) -> Option<&'static str> {
    match channel {
        ReasoningChannel::ReasoningContent => Some("reasoning_content"),
        ReasoningChannel::Reasoning => Some("reasoning"),
        ReasoningChannel::Thinking => Some("thinking"),
        ReasoningChannel::AsEmitted
        | ReasoningChannel::None
        | ReasoningChannel::Details
        | ReasoningChannel::Chunks
        | ReasoningChannel::Tags => None,
    }
}

/// Returns whether a message with tool calls must have reasoning: "The `reasoning_content` in the
/// thinking mode must be passed back to the API." This needs an endpoint that requires it and a
/// model that reasons.
pub(super) fn requires_reasoning(target: &Target) -> bool {
    target.provider.dialect.demanded_with_tools && target.profile.contract != Contract::Stateless
}

/// Returns whether the model will reason, as far as the request determines it.
pub(super) fn will_reason(target: &Target, reasoning: Option<&NativeReasoning>) -> bool {
    let profile = &target.profile;
    if profile.always_thinks {
        return true;
    }
    let asks = |reasoning: &NativeReasoning| {
        reasoning.enabled == Some(true)
            || reasoning.effort.is_some()
            || reasoning.budget_tokens.is_some_and(|budget| budget > 0)
    };
    match reasoning {
        Some(reasoning) if reasoning.is_off() => false,
        Some(reasoning) if asks(reasoning) => profile.can_think(),
        Some(_) | None => profile.thinks_by_default,
    }
}

/// Returns whether the model rejects a forced tool: "Thinking mode does not support this
/// `tool_choice`".
pub(super) fn rejects_tool_choice(target: &Target, reasons: bool, choice: &ToolChoice) -> bool {
    matches!(choice, ToolChoice::Any | ToolChoice::Tool(_))
        && match target.profile.forced_tools {
            ForcedTools::Allowed | ForcedTools::RefusedWithBudget => false,
            ForcedTools::RefusedWhileThinking => reasons,
            ForcedTools::Refused => true,
        }
}

/// Returns whether the model rejects sampling settings: "Unsupported parameter: 'temperature' is
/// not supported with this model".
pub(super) fn rejects_sampling(target: &Target, reasons: bool) -> bool {
    target.profile.fixed_sampling || target.profile.unsampled_while_reasoning && reasons
}

/// Returns whether the token limit must be named `max_completion_tokens`: OpenAI's reasoning models
/// reject the old name.
pub(super) fn requires_max_completion_tokens(target: &Target) -> bool {
    is_openai(target) && target.profile.notes.contains_key("max-tokens")
}

/// Returns whether the endpoint has custom tools, whose input is free text. Others get a function
/// with one string argument.
pub(super) fn takes_custom_tools(target: &Target) -> bool {
    is_openai(target)
}

fn is_openai(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::None
        || target.provider.name.starts_with("azure")
}

/// Members that all chat endpoints share, besides those that fields of the Call represent.
const COMMON_MEMBERS: [&str; 8] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "n",
    "presence_penalty",
    "seed",
    "stream_options",
    "top_logprobs",
];
/// Additional members of OpenAI.
const OPENAI: [&str; 15] = [
    "audio",
    "function_call",
    "functions",
    "metadata",
    "modalities",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
    "web_search_options",
    "response_format",
];
const MISTRAL: [&str; 8] = [
    "frequency_penalty",
    "metadata",
    "n",
    "prediction",
    "presence_penalty",
    "prompt_mode",
    "random_seed",
    "safe_prompt",
];
const OLLAMA_MEMBERS: [&str; 3] = ["keep_alive", "logprobs", "top_logprobs"];
/// Members that only routers have: upstream selection and additions.
const ROUTER_MEMBERS: [&str; 9] = [
    "models",
    "plugins",
    "provider",
    "providerOptions",
    "route",
    "session_id",
    "trace",
    "transforms",
    "usage",
];

/// Returns whether an endpoint accepts a setting that was written for another endpoint.
pub(super) fn accepts_extra(from: &Target, to: &Target, key: &str) -> bool {
    let (was, now) = (from.provider.dialect.channel, to.provider.dialect.channel);
    match now {
        ReasoningChannel::None => COMMON_MEMBERS.contains(&key) || OPENAI.contains(&key),
        ReasoningChannel::Chunks => MISTRAL.contains(&key),
        ReasoningChannel::Thinking => OLLAMA_MEMBERS.contains(&key),
        // These endpoints accept any member, so only members known to be specific to another
        // endpoint are dropped.
        ReasoningChannel::AsEmitted | ReasoningChannel::Details => match was {
            ReasoningChannel::Details => {
                now == ReasoningChannel::Details || !ROUTER_MEMBERS.contains(&key)
            }
            ReasoningChannel::Thinking => !matches!(key, "options" | "keep_alive"),
            ReasoningChannel::Chunks => {
                !matches!(key, "prompt_mode" | "random_seed" | "safe_prompt")
            }
            ReasoningChannel::AsEmitted
            | ReasoningChannel::None
            | ReasoningChannel::ReasoningContent
            | ReasoningChannel::Reasoning
            | ReasoningChannel::Tags => !matches!(key, "enable_search" | "search_options"),
        },
        ReasoningChannel::ReasoningContent
        | ReasoningChannel::Reasoning
        | ReasoningChannel::Tags => COMMON_MEMBERS.contains(&key),
    }
}

/// Returns whether a request may contain only members of the provider's schema: "Extra inputs are
/// not permitted".
pub(super) fn is_strict(target: &Target) -> bool {
    matches!(target.provider.dialect.channel, ReasoningChannel::None | ReasoningChannel::Chunks)
}

/// Returns whether a Thought lacks the signature that its upstream requires: "Invalid `signature`
/// in `thinking` block".
pub(super) fn lacks_signature(item: &Item, format: &ReasoningFormat) -> bool {
    *format == ReasoningFormat::AnthropicClaudeV1 && item.seals.is_empty()
}
