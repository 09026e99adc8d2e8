//! Checks for Claude requests, shared by all wires that serve Claude.
//!
//! Anthropic's wire and Bedrock's Converse encode the same conversation differently. Each wire
//! converts the conversation to a [`Dialogue`]. The same checks then run in the same order:
//! settings, message structure, Seals. Paths use Anthropic's notation, because Bedrock relays
//! Anthropic's errors.

pub(crate) mod seals;
pub(crate) mod settings;
pub(crate) mod structure;
pub(crate) mod system_messages;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use throughline_core::{ForcedTools, Profile};
use throughline_json::{Json, Node};

use crate::cache::PromptElement;
use crate::digest::{Digest, canonical_bytes};
use crate::ledger::ReplyKey;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
use crate::wires::Exchange;
use crate::wires::claude::seals::SealedThought;
use crate::wires::claude::settings::Settings;

/// Returns whether a model family signs its thoughts and requires clients to return them. Other
/// models with Anthropic-compatible APIs do not sign.
pub(crate) fn is_claude(profile: &Profile) -> bool {
    profile.bound.model && profile.name.starts_with("claude")
}

/// Checks a Claude request in the same order as Anthropic. Stores in `turn` the prefix that the
/// reply's Seals are bound to. `forced_tools` is the provider's rule for forced tools.
pub(crate) fn check(
    exchange: &mut Exchange<'_>,
    turn: &mut Turn,
    dialogue: &Dialogue,
    settings: &Settings<'_>,
    forced_tools: ForcedTools,
) -> Result<(), Refusal> {
    let profile = Arc::clone(&turn.target.profile);
    settings::check(settings, &profile, forced_tools)?;
    structure::check(dialogue, &profile, settings)?;
    (turn.prefix, turn.notices) = seals::check(exchange, dialogue, settings, &profile)?;
    turn.demoted = dialogue.has_thoughts_as_text(exchange.state);
    turn.config = Some(settings.config());
    Ok(())
}

/// Returns the prompt elements in rendering order: tools, system prompt, thinking settings and
/// messages.
pub(crate) fn elements<'t>(
    tools: impl Iterator<Item = Node<'t>>,
    system: impl Iterator<Item = Node<'t>>,
    settings: &Settings<'_>,
    messages: impl Iterator<Item = Node<'t>>,
) -> Vec<PromptElement> {
    let settings = PromptElement::from_setting(&settings.rendered());
    let before = tools.chain(system).map(PromptElement::new);
    before.chain([settings]).chain(messages.map(PromptElement::new)).collect()
}

/// Functions with which a wire writes the blocks of a reply.
pub(crate) struct BlockFormat {
    pub(crate) call_prefix: &'static str,
    pub(crate) text: fn(&str) -> Value,
    /// Writes a call, given its id, name and arguments.
    pub(crate) call: fn(&str, &str, &Value) -> Value,
    pub(crate) thought: fn(SealedThought) -> Value,
    /// Writes the block that marks a change of the model, if the wire has such a block.
    pub(crate) fallback: Option<fn(&str) -> Value>,
    /// Writes a thought of a model that issues no signatures.
    pub(crate) unsigned: fn(&SimRequest, &str, ThoughtDisplay) -> Value,
}

/// Writes the content of a reply, with each sealed thought at its position.
pub(crate) fn content(
    exchange: &mut Exchange<'_>,
    turn: &Turn,
    plan: &ReplyPlan,
    format: &BlockFormat,
) -> Vec<Value> {
    let request = exchange.request;
    let mut content: Vec<Value> = Vec::new();
    let mut blocks: Vec<Option<Block>> = Vec::new();
    for (number, part) in plan.parts.iter().enumerate() {
        let (value, block) = match part {
            ReplyPart::Thought { text, display } => {
                ((format.unsigned)(request, text, *display), None)
            }
            ReplyPart::Text(text) => ((format.text)(text), Some(Block::Text(text.clone()))),
            ReplyPart::Call { name, arguments } => {
                let id = request.id(format.call_prefix, &format!("call {number}"), 22);
                exchange.record.call(&id);
                let value = (format.call)(&id, name, arguments);
                let input = Json::from(arguments);
                (value, Some(Block::call(id, name.clone(), Some(input.tree().root()))))
            }
        };
        content.push(value);
        blocks.push(block);
    }
    if is_claude(&turn.target.profile) {
        let sealed = seals::seal(exchange, turn, &plan.parts, &blocks);
        let thoughts = content.iter_mut().zip(&blocks).filter(|(_, block)| block.is_none());
        for ((value, _), thought) in thoughts.zip(sealed) {
            *value = (format.thought)(thought);
        }
    }
    let mut thoughts = blocks.iter().enumerate().filter(|(_, block)| block.is_none());
    if let Some((second, _)) = thoughts.nth(1).filter(|_| request.has_fallback())
        && let Some(fallback) = format.fallback
    {
        content.insert(second, fallback(&request.model));
    }
    content
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogue {
    pub(crate) system: Digest,
    pub(crate) tools: Digest,
    pub(crate) messages: Vec<Message>,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
    /// A mid-conversation system message.
    System,
}

#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// A thought with its text and signature, as in Anthropic's `thinking` block.
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// A thought without readable text, as in Anthropic's `redacted_thinking` block.
    Redacted {
        data: Option<String>,
    },
    Text(String),
    /// A tool call. In calls, results and other blocks, `content` is the canonical JSON.
    Call {
        id: String,
        name: String,
        content: Vec<u8>,
    },
    Answer {
        id: String,
        text: String,
        content: Vec<u8>,
    },
    /// Any other block, with Anthropic's name for its type.
    Other {
        kind: String,
        content: Vec<u8>,
    },
}

impl Block {
    pub(crate) fn call(id: String, name: String, input: Option<Node<'_>>) -> Self {
        let input = input.map(canonical_bytes).unwrap_or_default();
        let content = [id.as_bytes(), name.as_bytes(), &input].join(&0);
        Self::Call { id, name, content }
    }

    /// Returns Anthropic's name for the block type.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Thinking { .. } => "thinking",
            Self::Redacted { .. } => "redacted_thinking",
            Self::Text(_) => "text",
            Self::Call { .. } => "tool_use",
            Self::Answer { .. } => "tool_result",
            Self::Other { kind, .. } => kind,
        }
    }

    /// Returns whether the block marks that another model continued the reply.
    pub(crate) fn is_fallback(&self) -> bool {
        matches!(self, Self::Other { kind, .. } if kind == "fallback")
    }

    pub(crate) fn is_thought(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted { .. })
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the content of this block that later Seals are bound to; `None` for thoughts and
    /// cache markers.
    fn bound_content(&self) -> Option<&[u8]> {
        match self {
            Self::Thinking { .. } | Self::Redacted { .. } => None,
            Self::Other { content, .. } if content.is_empty() || self.is_fallback() => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Call { content, .. }
            | Self::Answer { content, .. }
            | Self::Other { content, .. } => Some(content),
        }
    }

    /// Returns the digest of this block that the Seal of a neighbouring thought is bound to.
    pub(crate) fn content_digest(&self) -> Option<Digest> {
        if let Self::Call { id, .. } = self {
            return Some(Digest::new("throughline-sim beside call", id));
        }
        self.text().map(|text| Digest::new("throughline-sim beside text", text))
    }
}

impl Message {
    /// Iterates over the position and call id of each tool result.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.blocks.iter().enumerate().filter_map(|(index, block)| {
            if let Block::Answer { id, .. } = block { Some((index, id.as_str())) } else { None }
        })
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| {
            if let Block::Call { id, .. } = block { Some(id.as_str()) } else { None }
        })
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(Block::text)
    }
}

/// The calls without results, and the results without calls or with a repeated id, in one message.
pub(crate) struct UnpairedTools<'d> {
    pub(crate) number: usize,
    /// Ids of calls that have no result in the next message.
    pub(crate) unanswered: Vec<&'d str>,
    /// Position and call id of the first result that has no call in the previous message.
    pub(crate) unexpected: Option<(usize, &'d str)>,
    /// Position and call id of the first result whose call already has a result in the message.
    pub(crate) repeated: Option<(usize, &'d str)>,
}

impl Dialogue {
    /// Creates a conversation. `tools` is the tool array of the request.
    pub(crate) fn new(system: &str, tools: Option<Node<'_>>, messages: Vec<Message>) -> Self {
        let tools = tools.map(canonical_bytes).unwrap_or_default();
        Self {
            system: Digest::new("throughline-sim system", system),
            tools: Digest::new("throughline-sim tools", tools),
            messages,
        }
    }

    /// Returns the index of the last assistant message.
    pub(crate) fn latest(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == Role::Assistant)
    }

    /// Returns whether the last message contains tool results. System messages are skipped.
    pub(crate) fn is_in_loop(&self) -> bool {
        let last = self.messages.iter().rfind(|message| message.role != Role::System);
        last.is_some_and(|message| message.role == Role::User && message.answers().next().is_some())
    }

    /// Iterates over all blocks. Yields the index of the message, the index of the block in the
    /// message, and the block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (usize, usize, &Block)> {
        let numbered = self.messages.iter().enumerate();
        numbered.flat_map(|(number, message)| {
            message.blocks.iter().enumerate().map(move |(index, block)| (number, index, block))
        })
    }

    /// Finds calls without a result in the next message, and results without a call in the previous
    /// message or with a repeated id. System messages are skipped.
    pub(crate) fn unpaired_tools(&self) -> impl Iterator<Item = UnpairedTools<'_>> {
        let numbered = self.messages.iter().enumerate();
        let turns: Vec<_> = numbered.filter(|(_, message)| message.role != Role::System).collect();
        (0..turns.len()).filter_map(move |position| {
            let message_at = |at: usize| turns.get(at).map(|(_, message)| *message);
            let (number, message) = *turns.get(position)?;
            let next = message_at(position + 1);
            let before = position.checked_sub(1).and_then(message_at);
            let is_answered =
                |call: &str| next.is_some_and(|next| next.answers().any(|(_, id)| id == call));
            let is_called =
                |answer: &str| before.is_some_and(|before| before.calls().any(|id| id == answer));
            let is_models = message.role == Role::Assistant;
            let unanswered = message.calls().filter(|call| is_models && !is_answered(call));
            let unexpected = message.answers().find(|(_, answer)| !is_called(answer));
            let mut answered = HashSet::new();
            let repeated = message.answers().find(|(_, answer)| !answered.insert(*answer));
            Some(UnpairedTools { number, unanswered: unanswered.collect(), unexpected, repeated })
        })
    }

    /// Returns whether the conversation contains thoughts as plain text. Detects tagged text in
    /// assistant messages, and text that equals a thought of a simulated model.
    pub(crate) fn has_thoughts_as_text(&self, state: &SimState) -> bool {
        const TAGS: [&str; 4] = ["<think>", "</think>", "<thinking>", "</thinking>"];
        self.messages.iter().any(|message| {
            message.texts().any(|text| {
                let has_tags = || TAGS.iter().any(|tag| text.contains(tag));
                (message.role == Role::Assistant && has_tags())
                    || state.ledger.contains_thought(text)
            })
        })
    }

    /// Sets the wire-independent fields of `turn` from the conversation and its settings.
    pub(crate) fn fill_turn(&self, turn: &mut Turn, settings: Settings<'_>) {
        turn.shows = settings.shows(&turn.target.profile);
        turn.max_tokens = settings.max_tokens;
        turn.choice = settings.choice;
        for message in &self.messages {
            turn.step += usize::from(message.role == Role::Assistant);
            // A message with tool results continues the current turn, even if it has other content.
            if message.role == Role::User && message.answers().next().is_none() {
                turn.start_user_turn(message.texts().collect::<Vec<_>>().join("\n"));
            }
            for block in &message.blocks {
                if let Block::Call { id, name, .. } = block {
                    turn.called.push(name.clone());
                    turn.expected_replies.push(ReplyKey::Call(id.clone()));
                } else if let Block::Answer { text, .. } = block {
                    turn.results.push(text.clone());
                }
            }
        }
        // A compaction comes first, so nothing shows whether it replaced calls of this turn.
        let has_compaction = self.blocks().any(|(_, _, block)| block.kind() == "compaction");
        turn.compacted = has_compaction && turn.step == 0;
    }
}

/// Running digest of all message content except thoughts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContentDigest(Digest);

impl ContentDigest {
    /// Adds a block to the digest. The role is added with the first block of a message, so messages
    /// with only thoughts do not change the digest.
    pub(crate) fn add(&mut self, role: Role, is_first: bool, content: &[u8]) {
        if is_first {
            self.0 = self.0.and(match role {
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::System => "system",
            });
        }
        self.0 = self.0.and(content);
    }

    pub(crate) fn digest(self) -> Digest {
        self.0
    }
}
