//! A request to a Claude as its rules see it: messages of blocks, and what is asked for. Made in one pass; nothing is
//! copied but places.

use throughline_core::Node;

use crate::claude::Asking;

/// A request, whichever wire carries it.
pub(crate) struct View<'c> {
    pub(crate) messages: Vec<Message<'c>>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) knobs: Knobs<'c>,
    /// Whether neighbours of one speaker count as one message.
    pub(crate) joins: bool,
    /// Whether the provider keeps what came before these messages.
    pub(crate) is_partial: bool,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Assistant,
    /// A remark of the system's between messages, which ends nobody's turn.
    System,
}

/// One message.
pub(crate) struct Message<'c> {
    pub(crate) node: Node<'c>,
    pub(crate) speaker: Speaker,
    pub(crate) content: Option<Node<'c>>,
    pub(crate) blocks: Vec<Block<'c>>,
}

/// What a block is, as far as the rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Thinking,
    Redacted,
    Call,
    Answer,
    HostedCall,
    HostedAnswer,
    Compaction,
    Other,
}

impl Kind {
    /// Whether it is reasoning.
    pub(crate) fn is_thinking(self) -> bool {
        matches!(self, Self::Thinking | Self::Redacted)
    }
}

/// One block of a message.
#[derive(Clone, Copy)]
pub(crate) struct Block<'c> {
    pub(crate) node: Node<'c>,
    pub(crate) kind: Kind,
    /// The number of its message, and its own in it; none where the content is a bare text.
    pub(crate) message: usize,
    pub(crate) part: Option<usize>,
    /// What can be read of it.
    pub(crate) text: Option<Node<'c>>,
    /// The signature or the redacted data, unless it is absent or `null`.
    pub(crate) seal: Option<Node<'c>>,
    /// The id that joins a call and its answer.
    pub(crate) id: Option<Node<'c>>,
}

impl<'c> Block<'c> {
    /// A block of which only the place is known.
    pub(crate) fn new(node: Node<'c>, kind: Kind, message: usize, part: Option<usize>) -> Self {
        Self { node, kind, message, part, text: None, seal: None, id: None }
    }

    /// Where it stands, as the provider writes it.
    pub(crate) fn place(&self) -> String {
        match self.part {
            Some(part) => format!("messages.{}.content.{part}", self.message),
            None => format!("messages.{}.content", self.message),
        }
    }

    /// Whether it carries a seal that is not empty.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some_and(|seal| seal.is_string() && !seal.is(""))
    }

    /// The provider's word for such a block of reasoning.
    pub(crate) fn word(&self) -> &'static str {
        if self.kind == Kind::Redacted { "redacted_thinking" } else { "thinking" }
    }

    /// The provider's word for its seal.
    pub(crate) fn seal_word(&self) -> &'static str {
        if self.kind == Kind::Redacted { "data" } else { "signature" }
    }
}

/// Messages of one speaker that count as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) speaker: Speaker,
    pub(crate) messages: std::ops::Range<usize>,
}

/// What a request asks for.
#[derive(Default)]
pub(crate) struct Knobs<'c> {
    pub(crate) thinking: Option<Node<'c>>,
    pub(crate) output_config: Option<Node<'c>>,
    /// The efforts that are asked for: the request's own first, then those of single turns.
    pub(crate) efforts: Vec<Node<'c>>,
    /// Sampling settings with the provider's names for them.
    pub(crate) sampling: Vec<(&'static str, Node<'c>)>,
    pub(crate) max_tokens: Option<Node<'c>>,
    pub(crate) choice: Option<Node<'c>>,
    /// Whether `choice` tells the model that it must call a tool, or which.
    pub(crate) is_forced: bool,
    pub(crate) has_tools: bool,
    /// The betas that are asked for; nothing where that is not known.
    pub(crate) betas: Option<String>,
}

impl<'c> Knobs<'c> {
    /// How the request asks for thinking.
    pub(crate) fn asking(&self) -> Asking {
        Asking::at(self.thinking)
    }

    /// The word for what happens to blocks whose prefix changed.
    pub(crate) fn mismatch_behavior(&self) -> Option<Node<'c>> {
        self.thinking?.at("/block_binding/prefix_mismatch_behavior")
    }

    /// Whether a beta is asked for; nothing where that is not known.
    pub(crate) fn has_beta(&self, name: &str) -> Option<bool> {
        Some(self.betas.as_ref()?.contains(name))
    }
}

impl<'c> View<'c> {
    pub(crate) fn new(messages: Vec<Message<'c>>, knobs: Knobs<'c>, joins: bool) -> Self {
        let mut turns: Vec<Turn> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            match turns.last_mut() {
                Some(turn) if message.speaker == Speaker::System => turn.messages.end = index + 1,
                Some(turn) if joins && turn.speaker == message.speaker => {
                    turn.messages.end = index + 1;
                }
                Some(_) | None => {
                    turns.push(Turn { speaker: message.speaker, messages: index..index + 1 });
                }
            }
        }
        Self { messages, turns, knobs, joins, is_partial: false }
    }

    /// The blocks that a turn's speaker said in it.
    pub(crate) fn said_in(&self, turn: &Turn) -> impl Iterator<Item = &Block<'c>> {
        let messages = self.messages.get(turn.messages.clone()).unwrap_or_default();
        let speaker = turn.speaker;
        let own = messages.iter().filter(move |message| message.speaker == speaker);
        own.flat_map(|message| &message.blocks)
    }

    /// The blocks of the model's own messages.
    pub(crate) fn models_blocks(&self) -> impl Iterator<Item = &Block<'c>> {
        let own = self.messages.iter().filter(|message| message.speaker == Speaker::Assistant);
        own.flat_map(|message| &message.blocks)
    }

    /// The model's turn whose calls are answered last of all: it is not finished.
    pub(crate) fn open_loop(&self) -> Option<&Turn> {
        let [.., calls, answers] = self.turns.as_slice() else { return None };
        let is_answered = answers.speaker == Speaker::User
            && self.said_in(answers).any(|block| block.kind == Kind::Answer);
        (is_answered && calls.speaker == Speaker::Assistant).then_some(calls)
    }

    /// The block that begins at that byte.
    pub(crate) fn block_at(&self, start: usize) -> Option<&Block<'c>> {
        let behind = self.messages.partition_point(|message| message.node.range().start <= start);
        let blocks = &self.messages.get(behind.checked_sub(1)?)?.blocks;
        let found = blocks.binary_search_by_key(&start, |block| block.node.range().start).ok()?;
        blocks.get(found)
    }

    /// The turn that a message belongs to.
    pub(crate) fn turn_of(&self, message: usize) -> Option<&Turn> {
        let behind = self.turns.partition_point(|turn| turn.messages.start <= message);
        self.turns.get(behind.checked_sub(1)?)
    }
}
