//! Declares the rules of chat endpoints.

use throughline_core::{
    CallIds, Contract, Dialect, ReasoningChannel, ReasoningSwitch, Target, Vendor, Wire,
};

use crate::audit::rule_book::declare_rules;
use crate::chat::contract::{is_openai, limits_tools, requires_reasoning};

declare_rules! {
    Wire::OPENAI_CHAT, "chat.toml";
    REASONING_CONTENT_MISSING = "deepseek/reasoning-content-missing" if requires_empty_reasoning;
    KIMI_REASONING_MISSING = "kimi/reasoning-content-missing" if requires_filled_reasoning;
    REASONING_CONTENT_FORBIDDEN = "mistral/reasoning-content-forbidden"
        if |target| target.provider.dialect.channel == ReasoningChannel::Chunks;
    CALL_ID_FORM = "mistral/call-id-form"
        if |target| target.provider.dialect.call_ids == CallIds::Nine;
    FORCED_TOOL_CHOICE = "deepseek/forced-tool-choice"
        if |target| checks_settings(target) && target.provider.dialect.demanded_with_tools;
    REASONING_SENT = "openai-chat/reasoning-sent"
        if |target| target.provider.dialect.channel == ReasoningChannel::None;
    EFFORT_NOT_SUPPORTED = "openai-chat/effort-not-supported" if checks_efforts;
    SAMPLING_FIXED = "openai-chat/sampling-fixed" if checks_settings;
    MAX_TOKENS_RENAMED = "openai-chat/max-tokens-renamed" if rejects_max_tokens;
    TOOLS_NEED_RESPONSES = "openai-chat/tools-need-responses" if limits_tools;
    TOOL_CALL_UNANSWERED = "chat/tool-call-unanswered";
    SIGNATURE_MISSING = "openrouter/signature-missing" if relays_to_anthropic;
    DETAILS_FRAGMENTED = "openrouter/details-fragmented" if relays_to_anthropic;
    SIGNATURE_INVALID = "openrouter/signature-invalid" if takes_details, prior 1 2;
    FOREIGN_DETAILS = "openrouter/foreign-details" if takes_details;
    FIRST_CALL_NEEDS_SIGNATURE = "openrouter/first-call-needs-signature" if relays_signed_calls;
    DETAILS_DROPPED = "openrouter/details-dropped" if takes_details, prior 1 2;
    ZAI_REASONING_DROPPED = "zai/reasoning-dropped"
        if |target| &*target.provider.name == "zai", prior 1 2;
    THINKING_STRIPPED = "minimax/thinking-stripped"
        if |target| target.provider.dialect.channel == ReasoningChannel::Tags, prior 1 2;
    REASONING_DROPPED = "chat/reasoning-dropped", prior 1 2;
    REASONING_ALTERED = "chat/reasoning-altered", prior 1 2;
    REASONING_CONTENT_IGNORED = "vllm/reasoning-content-ignored"
        if |target| &*target.provider.name == "vllm";
    REASONING_FORMAT_EXCLUSIVE = "groq/reasoning-format-exclusive"
        if |target| &*target.provider.name == "groq";
    THOUGHT_AS_TEXT = "chat/thought-as-text", prior 1 2;
    CACHE_PREFIX_BROKEN = "chat/cache-prefix-broken"
        if |target| target.provider.dialect.channel != ReasoningChannel::Thinking, prior 1;
}

/// Returns whether the endpoint requires the reasoning member but accepts an empty string.
fn requires_empty_reasoning(target: &Target) -> bool {
    requires_reasoning(target) && has_empty_stand_in(&target.provider.dialect)
}

/// Returns whether the endpoint requires a non-empty reasoning member.
fn requires_filled_reasoning(target: &Target) -> bool {
    requires_reasoning(target) && !has_empty_stand_in(&target.provider.dialect)
}

fn has_empty_stand_in(dialect: &Dialect) -> bool {
    dialect.stand_in.as_deref().unwrap_or_default().is_empty()
}

/// Returns whether the endpoint rejects settings that the model does not support, as the vendors'
/// own endpoints do.
fn checks_settings(target: &Target) -> bool {
    target.provider.dialect.checks_settings && target.profile.name != "unknown"
}

fn checks_efforts(target: &Target) -> bool {
    let family = target.profile.name.as_str();
    let is_listed = family.starts_with("openai") || family.starts_with("gpt-");
    let takes_efforts = target.provider.dialect.switch == ReasoningSwitch::Effort;
    checks_settings(target) && is_openai(target) && is_listed && takes_efforts
}

fn rejects_max_tokens(target: &Target) -> bool {
    let note = target.profile.notes.get("max-tokens");
    checks_settings(target) && is_openai(target) && note.is_some_and(|note| note == "refused")
}

fn takes_details(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::Details
}

fn relays_to(target: &Target, vendor: Vendor) -> bool {
    target.provider.dialect.relays && target.profile.seal_vendor() == Some(vendor)
}

fn relays_to_anthropic(target: &Target) -> bool {
    relays_to(target, Vendor::Anthropic)
}

/// Returns whether the endpoint relays to a Gemini model that requires a signature on tool calls.
fn relays_signed_calls(target: &Target) -> bool {
    let is_demanded = target.profile.contract != Contract::Stateless;
    relays_to(target, Vendor::Google) && is_demanded && target.profile.stand_in.is_some()
}
