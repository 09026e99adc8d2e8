//! What chat endpoints refuse, as far as writing a request must heed it.

use throughline_core::{Channel, Choice, Contract, ForcedTools, Item, ReasoningFormat, Target};

/// Whether a message with tool calls must carry reasoning: "The `reasoning_content` in the thinking mode must be passed
/// back to the API." The endpoint has to ask for it and the model to be one that thinks.
pub(super) fn demands_reasoning(target: &Target) -> bool {
    target.provider.dialect.demanded_with_tools && target.profile.contract != Contract::Stateless
}

/// Whether the model refuses to be told which tool to call: "Thinking mode does not support this `tool_choice`".
pub(super) fn refuses_choice(target: &Target, is_off: bool, choice: &Choice) -> bool {
    let thinks = !is_off && (target.profile.thinks_by_default || target.profile.always_thinks);
    matches!(choice, Choice::Any | Choice::Tool(_))
        && match target.profile.forced_tools {
            ForcedTools::Allowed | ForcedTools::RefusedWithBudget => false,
            ForcedTools::RefusedWhileThinking => thinks,
            ForcedTools::Refused => true,
        }
}

/// Whether a limit of tokens has to be called `max_completion_tokens`: `OpenAI`'s reasoning models refuse the old name.
pub(super) fn wants_completion_tokens(target: &Target) -> bool {
    let is_openai = target.provider.dialect.channel == Channel::None
        || target.provider.name.starts_with("azure");
    let family = target.profile.name.as_str();
    is_openai && (family == "openai-o" || family.starts_with("gpt-5"))
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
