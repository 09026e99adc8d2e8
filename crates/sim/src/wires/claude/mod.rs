//! What Claude demands, on whichever wire it is asked.
//!
//! Anthropic's own wire and Bedrock's Converse write the same conversation in different words. Each reads its words into
//! a [`Dialogue`]; what is checked from there on is the same, in the same order: the settings, the structure of the messages,
//! the seals. Paths are written as Anthropic writes them, because Bedrock passes Anthropic's sentences on.

pub(crate) mod seals;
pub(crate) mod settings;
pub(crate) mod structure;

use throughline_core::Profile;

use crate::digest::Mark;
use crate::ledger::Landmark;
use crate::turn::Turn;
use crate::world::World;

/// Whether a family signs its thoughts and demands them back. The clones of Anthropic's wire sign nothing.
pub(crate) fn is_claude(profile: &Profile) -> bool {
    profile.bound.model && profile.name.starts_with("claude")
}

/// A conversation with Claude.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogue {
    /// What the system prompt says.
    pub(crate) system: Mark,
    /// What the tools say.
    pub(crate) tools: Mark,
    /// The messages.
    pub(crate) messages: Vec<Message>,
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Who speaks.
    pub(crate) role: Role,
    /// What is said.
    pub(crate) blocks: Vec<Block>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
    /// Instructions in the middle of a conversation.
    System,
}

/// One block of a message.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// A thought with its signature.
    Thinking { text: String, signature: Option<String> },
    /// A thought that nobody may read.
    Redacted { data: Option<String> },
    /// Text.
    Text(String),
    /// A tool is called.
    Call { id: String, name: String, said: Vec<u8> },
    /// A tool answers.
    Answer { id: String, text: String, said: Vec<u8> },
    /// Anything else, with Anthropic's word for its type.
    Other { kind: String, said: Vec<u8> },
}

impl Block {
    /// Anthropic's word for its type.
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

    /// What it says, for those who are bound to it; nothing for a thought, and for a mark of where to cache.
    fn said(&self) -> Option<&[u8]> {
        match self {
            Self::Thinking { .. } | Self::Redacted { .. } => None,
            Self::Other { said, .. } if said.is_empty() => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Call { said, .. } | Self::Answer { said, .. } | Self::Other { said, .. } => {
                Some(said)
            }
        }
    }

    /// By what a thought beside it knows it again.
    pub(crate) fn landmark(&self) -> Option<Mark> {
        match self {
            Self::Text(text) => Some(Mark::of("throughline-sim beside text", text)),
            Self::Call { id, .. } => Some(Mark::of("throughline-sim beside call", id)),
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
    /// The number of the last message that the model spoke.
    pub(crate) fn latest(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| message.role == Role::Assistant)
    }

    /// Whether the last message brings the answers of tools.
    pub(crate) fn is_in_loop(&self) -> bool {
        self.messages
            .last()
            .is_some_and(|message| message.role == Role::User && message.answers().next().is_some())
    }

    /// Whether the model is shown thoughts as though they were text.
    pub(crate) fn is_demoted(&self, world: &World) -> bool {
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
            (role == Role::Assistant && has_tags()) || world.book.was_thought(text)
        })
    }
}

impl Dialogue {
    /// Tells a turn what was said, called and answered.
    pub(crate) fn tell(&self, turn: &mut Turn) {
        for message in &self.messages {
            match message.role {
                Role::System => {}
                Role::Assistant => turn.step += 1,
                // A message that brings answers belongs to the turn, whatever else it says.
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
                    turn.user_said(texts.collect::<Vec<_>>().join("\n"));
                }
            }
            for block in &message.blocks {
                match block {
                    Block::Call { id, name, .. } => {
                        turn.called.push(name.clone());
                        turn.owed.push(Landmark::Call(id.clone()));
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

/// A running digest of what was said but not thought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said(Mark);

impl Said {
    /// Goes on with a block. A message that holds thoughts only was never begun.
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

    pub(crate) fn mark(self) -> Mark {
        self.0
    }
}
