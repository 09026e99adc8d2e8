//! Checks the structure of a Claude conversation: required members, unpaired calls and results, and
//! invalid endings.

use throughline_core::{Mode, Profile};

use crate::turn::{Refusal, ensure};
use crate::wires::claude::{Block, Dialogue, Role};

/// Checks the structure of a conversation in the same order as Anthropic. `mode` is the requested
/// thinking mode.
pub(crate) fn check(
    dialogue: &Dialogue,
    profile: &Profile,
    mode: Option<Mode>,
) -> Result<(), Refusal> {
    check_members(dialogue)?;
    check_end(dialogue, profile)?;
    check_calls(dialogue)?;
    check_tool_loop(dialogue, mode)
}

/// Checks that thoughts have the members that the schema requires.
fn check_members(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, index, block) in dialogue.blocks() {
        let missing = if let Block::Thinking { signature: None, .. } = block {
            "thinking.signature"
        } else if let Block::Redacted { data: None } = block {
            "redacted_thinking.data"
        } else {
            continue;
        };
        let path = format!("messages.{number}.content.{index}.{missing}");
        return Err(Refusal::invalid(format!("{path}: Field required")));
    }
    Ok(())
}

fn check_end(dialogue: &Dialogue, profile: &Profile) -> Result<(), Refusal> {
    let Some(last) = dialogue.messages.last() else { return Ok(()) };
    if last.role != Role::Assistant {
        return Ok(());
    }
    ensure!(
        profile.notes.get("prefill").is_none_or(|prefill| prefill != "refused"),
        "This model does not support assistant message prefill. The conversation must end with a \
         user message."
    );
    if let Some(block) = last.blocks.last().filter(|block| block.is_thought()) {
        let (number, index) = (dialogue.messages.len() - 1, last.blocks.len() - 1);
        return Err(Refusal::invalid(format!(
            "messages.{number}.content.{index}: The final block in an assistant message cannot be \
             `{}`.",
            block.kind()
        )));
    }
    Ok(())
}

/// Checks that each call has a result in the next message, and that each result has a call in the
/// previous message.
fn check_calls(dialogue: &Dialogue) -> Result<(), Refusal> {
    for unpaired in dialogue.unpaired_tools() {
        let number = unpaired.number;
        ensure!(
            unpaired.unanswered.is_empty(),
            "messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately \
             after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the \
             next message.",
            unpaired.unanswered.join(", ")
        );
        if let Some((index, id)) = unpaired.unexpected {
            return Err(Refusal::invalid(format!(
                "messages.{number}.content.{index}: unexpected `tool_use_id` found in `tool_result` \
                 blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block \
                 in the previous message."
            )));
        }
    }
    Ok(())
}

/// Checks that the assistant message before tool results starts with a thought. This applies only
/// if thinking has a token budget.
fn check_tool_loop(dialogue: &Dialogue, mode: Option<Mode>) -> Result<(), Refusal> {
    if mode != Some(Mode::Enabled) || !dialogue.is_in_loop() {
        return Ok(());
    }
    let Some(number) = dialogue.latest() else { return Ok(()) };
    let message = dialogue.messages.get(number);
    let Some(first) = message.and_then(|message| message.blocks.first()) else { return Ok(()) };
    ensure!(
        first.is_thought(),
        "messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
         `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking \
         block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend \
         you include thinking blocks from previous turns. To avoid this requirement, disable \
         `thinking`. Please consult our documentation at \
         https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
        first.kind()
    );
    Ok(())
}
