//! What chat endpoints refuse: what writing a request heeds, and the rules by which a request is judged.

mod altered;
mod calls;
#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
mod details;
mod fields;
mod past;
mod rules;
mod settings;
mod view;

use throughline_core::{
    Channel, Choice, Contract, ForcedTools, Item, NativeReasoning, ReasoningFormat, Target, Vendor,
};

use crate::audit::{Case, Findings};
use crate::chat::contract::past::Past;
use crate::chat::contract::view::{Report, View};

pub(super) use crate::chat::contract::rules::RULES;

/// Looks for what the request's endpoint would refuse, and reports it.
pub(super) fn inspect(case: &Case<'_>, findings: &mut Findings<'_>) {
    let view = View::of(case);
    let past = Past::of(&view);
    let mut report = Report::new(case.target(), findings);
    fields::count(&view, &mut report);
    settings::check(&view, &mut report);
    calls::check(&view, &mut report);
    fields::check(&view, &past, &mut report);
    details::check(&view, &past, &mut report);
    past::check(&view, &past, &mut report);
}

/// Whose seals the model reads; nothing for one that seals nothing.
pub(super) fn vendor_of(target: &Target) -> Option<Vendor> {
    target.profile.seals_as()
}

/// Whether a message with tool calls must carry reasoning: "The `reasoning_content` in the thinking mode must be passed
/// back to the API." The endpoint has to ask for it and the model to be one that thinks.
pub(super) fn demands_reasoning(target: &Target) -> bool {
    target.provider.dialect.demanded_with_tools && target.profile.contract != Contract::Stateless
}

/// Whether the model will reason, as far as the request decides it.
pub(super) fn reasons(target: &Target, reasoning: Option<&NativeReasoning>) -> bool {
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

/// Whether the model refuses to be told which tool to call: "Thinking mode does not support this `tool_choice`".
pub(super) fn refuses_choice(target: &Target, reasons: bool, choice: &Choice) -> bool {
    matches!(choice, Choice::Any | Choice::Tool(_))
        && match target.profile.forced_tools {
            ForcedTools::Allowed | ForcedTools::RefusedWithBudget => false,
            ForcedTools::RefusedWhileThinking => reasons,
            ForcedTools::Refused => true,
        }
}

/// Whether the model refuses a temperature of the caller's own: "Unsupported parameter: 'temperature' is not supported
/// with this model".
pub(super) fn refuses_sampling(target: &Target, reasons: bool) -> bool {
    target.profile.fixed_sampling || target.profile.unsampled_while_reasoning && reasons
}

/// Whether a limit of tokens has to be called `max_completion_tokens`: `OpenAI`'s reasoning models refuse the old name.
pub(super) fn wants_completion_tokens(target: &Target) -> bool {
    is_openai(target) && target.profile.notes.contains_key("max-tokens")
}

/// Whether the endpoint has tools whose input is a text of any form. Others get a function with one text to fill in.
pub(super) fn takes_custom_tools(target: &Target) -> bool {
    is_openai(target)
}

fn is_openai(target: &Target) -> bool {
    target.provider.dialect.channel == Channel::None || target.provider.name.starts_with("azure")
}

/// The members that chat endpoints have in common, besides those that the Call's own fields speak for.
const COMMON: [&str; 8] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "n",
    "presence_penalty",
    "seed",
    "stream_options",
    "top_logprobs",
];
/// What `OpenAI` knows besides.
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
const OLLAMA: [&str; 3] = ["keep_alive", "logprobs", "top_logprobs"];
/// What only routers know: how to choose among their upstreams, and what to add to them.
const ROUTERS: [&str; 9] = [
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

/// Whether an endpoint takes a setting that was meant for another one.
pub(super) fn takes_extra(from: &Target, to: &Target, key: &str) -> bool {
    let (was, now) = (from.provider.dialect.channel, to.provider.dialect.channel);
    match now {
        Channel::None => COMMON.contains(&key) || OPENAI.contains(&key),
        Channel::Chunks => MISTRAL.contains(&key),
        Channel::Thinking => OLLAMA.contains(&key),
        // Who takes anything is spared what is known to be another's alone.
        Channel::AsEmitted | Channel::Details => match was {
            Channel::Details => now == Channel::Details || !ROUTERS.contains(&key),
            Channel::Thinking => !matches!(key, "options" | "keep_alive"),
            Channel::Chunks => !matches!(key, "prompt_mode" | "random_seed" | "safe_prompt"),
            Channel::AsEmitted
            | Channel::None
            | Channel::ReasoningContent
            | Channel::Reasoning
            | Channel::Tags => !matches!(key, "enable_search" | "search_options"),
        },
        Channel::ReasoningContent | Channel::Reasoning | Channel::Tags => COMMON.contains(&key),
    }
}

/// Whether a request may hold only what the provider's schema lists: "Extra inputs are not permitted".
pub(super) fn is_strict(target: &Target) -> bool {
    matches!(target.provider.dialect.channel, Channel::None | Channel::Chunks)
}

/// Whether a thought lacks the signature without which its upstream refuses it: "Invalid `signature` in `thinking`
/// block".
pub(super) fn lacks_signature(item: &Item, format: &ReasoningFormat) -> bool {
    *format == ReasoningFormat::AnthropicClaudeV1 && item.seals.is_empty()
}
