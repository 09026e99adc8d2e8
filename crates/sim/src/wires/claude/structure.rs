//! Checks the structure of a Claude conversation: required members, unpaired calls and results, and
//! invalid endings.

use throughline_core::{Mode, Profile};

use crate::turn::{Refusal, ensure};
use crate::wires::claude::settings::Settings;
use crate::wires::claude::{Block, Dialogue, Role, system_messages};

/// Checks the structure of a conversation in the same order as Anthropic.
pub(crate) fn check(
    dialogue: &Dialogue,
    profile: &Profile,
    settings: &Settings<'_>,
) -> Result<(), Refusal> {
    check_members(dialogue)?;
    system_messages::check_order(dialogue)?;
    // A conversation that is compacted may end with any message.
    if !settings.compacts {
        check_end(dialogue, profile)?;
    }
    check_calls(dialogue)?;
    check_tool_loop(dialogue, settings.mode())
}

/// Checks that thoughts have the members that the schema requires. A thought may have an empty
/// text, but only with a signature.
fn check_members(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, index, block) in dialogue.blocks() {
        if let Block::Thinking { text, signature } = block
            && text.is_empty()
            && signature.as_deref().unwrap_or_default().is_empty()
        {
            return Err(Refusal::invalid(format!(
                "messages.{number}.content.{index}.thinking: each thinking block must contain \
                 thinking"
            )));
        }
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

/// Checks that each call has one result in the next message, and that each result has a call in the
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
        if let Some((index, id)) = unpaired.repeated {
            return Err(Refusal::invalid(format!(
                "messages.{number}.content.{index}: each tool_use must have a single result. Found \
                 multiple `tool_result` blocks with id: {id}"
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
    let blocks = dialogue.messages.get(number).into_iter().flat_map(|message| &message.blocks);
    // The listing of an MCP server's tools and a compaction precede the thoughts.
    let precedes = |block: &Block| matches!(block.kind(), "mcp_tool_listing" | "compaction");
    let mut blocks = blocks.enumerate().filter(|(_, block)| !precedes(block));
    let Some((index, first)) = blocks.next() else { return Ok(()) };
    ensure!(
        first.is_thought(),
        "messages.{number}.content.{index}.type: Expected `thinking` or `redacted_thinking`, but found \
         `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking \
         block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend \
         you include thinking blocks from previous turns. To avoid this requirement, disable \
         `thinking`. Please consult our documentation at \
         https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
        first.kind()
    );
    Ok(())
}
