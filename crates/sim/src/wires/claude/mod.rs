//! Checks of Claude requests, shared by all wires that serve Claude.
//!
//! Anthropic's wire and Bedrock's Converse encode the same conversation differently. Each reads it
//! into a [`Dialogue`]; the checks that follow are identical and in the same order: settings,
//! message structure, Seals. Paths use Anthropic's notation, because Bedrock passes Anthropic's
//! errors on.

pub(crate) mod seals;
pub(crate) mod settings;
pub(crate) mod structure;

use throughline_core::Profile;

use crate::digest::Digest;
use crate::ledger::ReplyKey;
use crate::state::SimState;
use crate::turn::Turn;

/// Returns whether a family signs its thoughts and requires them back. APIs compatible with
/// Anthropic's do not sign.
pub(crate) fn is_claude(profile: &Profile) -> bool {
    profile.bound.model && profile.name.starts_with("claude")
}

/// A conversation with Claude.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogue {
    /// Digest of the system prompt.
    pub(crate) system: Digest,
    /// Digest of the tools.
    pub(crate) tools: Digest,
    pub(crate) messages: Vec<Message>,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) blocks: Vec<Block>,
}

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
    /// Instructions within a conversation.
    System,
}

/// One block of a message.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// A thought with its signature.
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// A thought without readable text.
    Redacted {
        data: Option<String>,
    },
    Text(String),
    /// A tool call.
    Call {
        id: String,
        name: String,
        said: Vec<u8>,
    },
    /// A tool result.
    Answer {
        id: String,
        text: String,
        said: Vec<u8>,
    },
    /// Any other block, with Anthropic's name for its type.
    Other {
        kind: String,
        said: Vec<u8>,
    },
}

impl Block {
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

    pub(crate) fn is_thought(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted { .. })
    }

    /// Returns the content that later Seals are bound to; `None` for thoughts and cache markers.
    fn bound_content(&self) -> Option<&[u8]> {
        match self {
            Self::Thinking { .. } | Self::Redacted { .. } => None,
            Self::Other { said, .. } if said.is_empty() => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Call { said, .. } | Self::Answer { said, .. } | Self::Other { said, .. } => {
                Some(said)
            }
        }
    }

    /// Returns the digest by which a neighbouring thought recognises this block.
    pub(crate) fn landmark(&self) -> Option<Digest> {
        match self {
            Self::Text(text) => Some(Digest::new("throughline-sim beside text", text)),
            Self::Call { id, .. } => Some(Digest::new("throughline-sim beside call", id)),
            Self::Thinking { .. }
            | Self::Redacted { .. }
            | Self::Answer { .. }
            | Self::Other { .. } => None,
        }
    }
}

impl Message {
    pub(crate) fn answers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.blocks.iter().enumerate().filter_map(|(place, block)| match block {
            Block::Answer { id, .. } => Some((place, id.as_str())),
            Block::Thinking { .. }
            | Block::Redacted { .. }
            | Block::Text(_)
            | Block::Call { .. }
            | Block::Other { .. } => None,
        })
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.as_str()),
            Block::Thinking { .. }
            | Block::Redacted { .. }
            | Block::Text(_)
            | Block::Answer { .. }
            | Block::Other { .. } => None,
        })
    }
}

impl Dialogue {
    /// Returns the index of the last assistant message.
    pub(crate) fn latest(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == Role::Assistant)
    }

    /// Returns whether the last message contains tool results.
    pub(crate) fn is_in_loop(&self) -> bool {
        self.messages
            .last()
            .is_some_and(|message| message.role == Role::User && message.answers().next().is_some())
    }

    /// Returns whether the conversation contains thoughts as plain text.
    pub(crate) fn has_thoughts_as_text(&self, world: &SimState) -> bool {
        const TAGS: [&str; 4] = ["<think>", "</think>", "<thinking>", "</thinking>"];
        let mut texts = self.messages.iter().flat_map(|message| {
            message.blocks.iter().filter_map(|block| match block {
                Block::Text(text) => Some((message.role, text)),
                Block::Thinking { .. }
                | Block::Redacted { .. }
                | Block::Call { .. }
                | Block::Answer { .. }
                | Block::Other { .. } => None,
            })
        });
        texts.any(|(role, text)| {
            let has_tags = || TAGS.iter().any(|tag| text.contains(tag));
            (role == Role::Assistant && has_tags()) || world.book.contains_thought(text)
        })
    }
}

impl Dialogue {
    /// Fills a turn from the conversation.
    pub(crate) fn fill_turn(&self, turn: &mut Turn) {
        for message in &self.messages {
            match message.role {
                Role::System => {}
                Role::Assistant => turn.step += 1,
                // A message with tool results belongs to the current turn, regardless of its other
                // content.
                Role::User if message.answers().next().is_some() => {}
                Role::User => {
                    let texts = message.blocks.iter().filter_map(|block| match block {
                        Block::Text(text) => Some(text.as_str()),
                        Block::Thinking { .. }
                        | Block::Redacted { .. }
                        | Block::Call { .. }
                        | Block::Answer { .. }
                        | Block::Other { .. } => None,
                    });
                    turn.start_user_turn(texts.collect::<Vec<_>>().join("\n"));
                }
            }
            for block in &message.blocks {
                match block {
                    Block::Call { id, name, .. } => {
                        turn.called.push(name.clone());
                        turn.owed.push(ReplyKey::Call(id.clone()));
                    }
                    Block::Answer { text, .. } => turn.results.push(text.clone()),
                    Block::Thinking { .. }
                    | Block::Redacted { .. }
                    | Block::Text(_)
                    | Block::Other { .. } => {}
                }
            }
        }
    }
}

/// Running digest of all content except thoughts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContentDigest(Digest);

impl ContentDigest {
    /// Adds a block. `is_first` adds the role first, so messages with only thoughts do not count.
    pub(crate) fn block(&mut self, role: Role, is_first: bool, said: &[u8]) {
        if is_first {
            self.0 = self.0.and(match role {
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::System => "system",
            });
        }
        self.0 = self.0.and(said);
    }

    pub(crate) fn mark(self) -> Digest {
        self.0
    }
}
