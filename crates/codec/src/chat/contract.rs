//! Requirements of chat endpoints: predicates for the encoder, and rules for audits.

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
pub(super) use crate::chat::contract::rules::RULES;
use crate::chat::contract::view::ChatRequest;

/// Reports where a request violates the rules of the Chat Completions API.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = ChatRequest::new(case);
    view.count_reasoning(findings);
    view.check_settings(findings);
    calls::check(&view, findings);
    view.check_fields(findings);
    view.check_details(findings);
    view.check_changes(findings);
}

/// Returns the message field where an endpoint expects reasoning as one string.
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

/// Returns whether the target rejects messages that have tool calls but no reasoning. The
/// provider's error is "The `reasoning_content` in the thinking mode must be passed back to the
/// API."
pub(super) fn requires_reasoning(target: &Target) -> bool {
    target.provider.dialect.demanded_with_tools && target.profile.contract != Contract::Stateless
}

/// Returns whether the model will reason, based on the request's settings and the model's defaults.
pub(super) fn will_reason(target: &Target, reasoning: Option<&NativeReasoning>) -> bool {
    let profile = &target.profile;
    if profile.always_thinks {
        return true;
    }
    let requests_thinking = |reasoning: &NativeReasoning| {
        reasoning.enabled == Some(true)
            || reasoning.effort.is_some()
            || reasoning.budget_tokens.is_some_and(|budget| budget > 0)
    };
    match reasoning {
        Some(reasoning) if reasoning.is_off() => false,
        Some(reasoning) if requests_thinking(reasoning) => profile.can_think(),
        Some(_) | None => profile.thinks_by_default,
    }
}

/// Returns whether the model rejects a forced tool choice: "Thinking mode does not support this
/// `tool_choice`".
pub(super) fn rejects_tool_choice(target: &Target, reasons: bool, choice: &ToolChoice) -> bool {
    matches!(choice, ToolChoice::Any | ToolChoice::Tool(_))
        && match target.profile.forced_tools {
            ForcedTools::Allowed | ForcedTools::RefusedWithBudget => false,
            ForcedTools::RefusedWhileThinking => reasons,
            ForcedTools::Refused => true,
        }
}

/// Returns whether the endpoint rejects function tools while the model reasons: "Function tools
/// with `reasoning_effort` are not supported".
pub(super) fn limits_tools(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::None
        && target.profile.notes.contains_key("chat-tools")
}

/// Returns whether the model rejects sampling settings: "Unsupported parameter: 'temperature' is
/// not supported with this model".
pub(super) fn rejects_sampling(target: &Target, reasons: bool) -> bool {
    target.profile.fixed_sampling || target.profile.unsampled_while_reasoning && reasons
}

/// Returns whether the token limit must be named `max_completion_tokens`, because OpenAI's
/// reasoning models reject `max_tokens`.
pub(super) fn requires_max_completion_tokens(target: &Target) -> bool {
    is_openai(target) && target.profile.notes.contains_key("max-tokens")
}

pub(super) fn is_openai(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::None
        || target.provider.name.starts_with("azure")
}

/// Request members that all chat endpoints accept and that are not decoded into a field of the
/// Call.
const COMMON_MEMBERS: &str = "frequency_penalty logit_bias logprobs n presence_penalty seed \
    stream_options top_logprobs";
const OPENAI_MEMBERS: &str = "audio function_call functions metadata modalities prediction \
    prompt_cache_key prompt_cache_retention safety_identifier service_tier store user verbosity \
    web_search_options response_format";
const MISTRAL_MEMBERS: &str = "frequency_penalty metadata n prediction presence_penalty prompt_mode \
    random_seed safe_prompt";
const OLLAMA_MEMBERS: &str = "keep_alive logprobs top_logprobs";
/// Request members that only routers accept, such as upstream selection.
const ROUTER_MEMBERS: &str =
    "models plugins provider providerOptions route session_id trace transforms usage";

/// Returns whether the endpoint `to` accepts the request member `key` of a request that was written
/// for `from`.
pub(super) fn accepts_extra(from: &Target, to: &Target, key: &str) -> bool {
    let (was, now) = (from.provider.dialect.channel, to.provider.dialect.channel);
    let is_in = |members: &str| members.split_ascii_whitespace().any(|member| member == key);
    match now {
        ReasoningChannel::None => is_in(COMMON_MEMBERS) || is_in(OPENAI_MEMBERS),
        ReasoningChannel::Chunks => is_in(MISTRAL_MEMBERS),
        ReasoningChannel::Thinking => is_in(OLLAMA_MEMBERS),
        // These endpoints accept any member, so only members known to be specific to another
        // endpoint are dropped.
        ReasoningChannel::AsEmitted | ReasoningChannel::Details => match was {
            ReasoningChannel::Details => now == ReasoningChannel::Details || !is_in(ROUTER_MEMBERS),
            ReasoningChannel::Thinking => !is_in("options keep_alive"),
            ReasoningChannel::Chunks => !is_in("prompt_mode random_seed safe_prompt"),
            ReasoningChannel::AsEmitted
            | ReasoningChannel::None
            | ReasoningChannel::ReasoningContent
            | ReasoningChannel::Reasoning
            | ReasoningChannel::Tags => !is_in("enable_search search_options"),
        },
        ReasoningChannel::ReasoningContent
        | ReasoningChannel::Reasoning
        | ReasoningChannel::Tags => is_in(COMMON_MEMBERS),
    }
}

/// Returns whether the provider rejects request members that are not in its schema: "Extra inputs
/// are not permitted".
pub(super) fn is_strict(target: &Target) -> bool {
    matches!(target.provider.dialect.channel, ReasoningChannel::None | ReasoningChannel::Chunks)
}

/// Returns whether a Thought lacks a signature that Claude requires. The upstream's error is
/// "Invalid `signature` in `thinking` block".
pub(super) fn lacks_signature(item: &Item, format: &ReasoningFormat) -> bool {
    *format == ReasoningFormat::AnthropicClaudeV1 && item.seals.is_empty()
}
