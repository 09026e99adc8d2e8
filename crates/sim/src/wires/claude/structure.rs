//! Checks the structure of a Claude conversation: required members, calls without results, invalid
//! endings.

use throughline_core::{Mode, Profile};

use crate::turn::Refusal;
use crate::wires::claude::settings::RequestedThinking;
use crate::wires::claude::{Block, Dialogue, Role};

/// Checks the structure of a conversation, in Anthropic's order.
pub(crate) fn check(
    dialogue: &Dialogue,
    profile: &Profile,
    asks: RequestedThinking,
) -> Result<(), Refusal> {
    check_members(dialogue)?;
    check_end(dialogue, profile)?;
    check_calls(dialogue)?;
    check_tool_loop(dialogue, asks)
}

/// Checks the members that the schema requires of a thought.
fn check_members(dialogue: &Dialogue) -> Result<(), Refusal> {
    for (number, message) in dialogue.messages.iter().enumerate() {
        for (place, block) in message.blocks.iter().enumerate() {
            let missing = match block {
                Block::Thinking { signature: None, .. } => "thinking.signature",
                Block::Redacted { data: None } => "redacted_thinking.data",
                Block::Thinking { .. }
                | Block::Redacted { .. }
                | Block::Text(_)
                | Block::Call { .. }
                | Block::Answer { .. }
                | Block::Other { .. } => continue,
            };
            return Err(Refusal::invalid(format!(
                "messages.{number}.content.{place}.{missing}: Field required"
            )));
        }
    }
    Ok(())
}

fn check_end(dialogue: &Dialogue, profile: &Profile) -> Result<(), Refusal> {
    let Some(last) = dialogue.messages.last() else { return Ok(()) };
    if last.role != Role::Assistant {
        return Ok(());
    }
    if profile.notes.get("prefill").is_some_and(|prefill| prefill == "refused") {
        return Err(Refusal::invalid(
            "This model does not support assistant message prefill. The conversation must end with \
             a user message.",
        ));
    }
    let number = dialogue.messages.len() - 1;
    if let Some(block) = last.blocks.last().filter(|block| block.is_thought()) {
        let (place, kind) = (last.blocks.len() - 1, block.kind());
        return Err(Refusal::invalid(format!(
            "messages.{number}.content.{place}: The final block in an assistant message cannot be \
             `{kind}`."
        )));
    }
    Ok(())
}

/// Checks that each call has a result in the next message, and each result a call in the previous
/// one.
fn check_calls(dialogue: &Dialogue) -> Result<(), Refusal> {
    // System messages do not count as turns.
    let spoken: Vec<_> =
        dialogue.messages.iter().enumerate().filter(|(_, m)| m.role != Role::System).collect();
    for (position, (number, message)) in spoken.iter().enumerate() {
        let next = spoken.get(position + 1).map(|(_, next)| next);
        let is_answered =
            |call: &str| next.is_some_and(|next| next.answers().any(|(_, answer)| answer == call));
        let unanswered: Vec<&str> = message.calls().filter(|call| !is_answered(call)).collect();
        if message.role == Role::Assistant && !unanswered.is_empty() {
            return Err(Refusal::invalid(format!(
                "messages.{number}: `tool_use` ids were found without `tool_result` blocks \
                 immediately after: {}. Each `tool_use` block must have a corresponding \
                 `tool_result` block in the next message.",
                unanswered.join(", ")
            )));
        }
        let before = position.checked_sub(1).and_then(|before| spoken.get(before));
        let is_asked = |answer: &str| {
            before.is_some_and(|(_, before)| before.calls().any(|call| call == answer))
        };
        if let Some((place, id)) = message.answers().find(|(_, answer)| !is_asked(answer)) {
            return Err(Refusal::invalid(format!(
                "messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` \
                 blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block \
                 in the previous message."
            )));
        }
    }
    Ok(())
}

/// With a budget, the assistant message before tool results must begin with a thought.
fn check_tool_loop(dialogue: &Dialogue, asks: RequestedThinking) -> Result<(), Refusal> {
    if asks != RequestedThinking::For(Mode::Enabled) || !dialogue.is_in_loop() {
        return Ok(());
    }
    let Some(number) = dialogue.latest() else { return Ok(()) };
    let message = dialogue.messages.get(number);
    let Some(first) = message.and_then(|message| message.blocks.first()) else { return Ok(()) };
    if first.is_thought() {
        return Ok(());
    }
    let found = first.kind();
    Err(Refusal::invalid(format!(
        "messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
         `{found}`. When `thinking` is enabled, a final `assistant` message must start with a \
         thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We \
         recommend you include thinking blocks from previous turns. To avoid this requirement, \
         disable `thinking`. Please consult our documentation at \
         https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
    )))
}
