//! Preprocesses a request to a Claude model for the rules: messages, blocks and settings. The view
//! is built in one pass and borrows from the request.

use throughline_json::Node;

use crate::claude::ThinkingMode;

/// A request to a Claude model, independent of the wire.
pub(crate) struct ClaudeRequest<'c> {
    pub(crate) messages: Vec<ClaudeMessage<'c>>,
    pub(crate) turns: Vec<ClaudeTurn>,
    pub(crate) settings: ClaudeSettings<'c>,
    /// Whether consecutive messages by one speaker count as one message.
    pub(crate) joins: bool,
    /// Whether the request contains only the end of a conversation that the provider stores.
    pub(crate) is_partial: bool,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaudeSpeaker {
    User,
    Assistant,
    /// A mid-conversation system message; it does not end a turn.
    System,
}

pub(crate) struct ClaudeMessage<'c> {
    pub(crate) node: Node<'c>,
    pub(crate) speaker: ClaudeSpeaker,
    pub(crate) content: Option<Node<'c>>,
    pub(crate) blocks: Vec<ClaudeBlock<'c>>,
}

/// The block types that the rules distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaudeBlockKind {
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

impl ClaudeBlockKind {
    pub(crate) fn is_thinking(self) -> bool {
        matches!(self, Self::Thinking | Self::Redacted)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ClaudeBlock<'c> {
    pub(crate) node: Node<'c>,
    pub(crate) kind: ClaudeBlockKind,
    /// The index of the message that contains the block. `part` is the index within the message;
    /// `None` if the message's content is a plain string.
    pub(crate) message: usize,
    pub(crate) part: Option<usize>,
    pub(crate) text: Option<Node<'c>>,
    /// The signature or the redacted data; `None` if absent or `null`.
    pub(crate) seal: Option<Node<'c>>,
    /// The id that links a call and its result.
    pub(crate) id: Option<Node<'c>>,
}

impl<'c> ClaudeBlock<'c> {
    /// Creates a block that has no text, Seal or id.
    pub(crate) fn new(
        node: Node<'c>,
        kind: ClaudeBlockKind,
        message: usize,
        part: Option<usize>,
    ) -> Self {
        Self { node, kind, message, part, text: None, seal: None, id: None }
    }

    /// Returns the block's path in the provider's notation.
    pub(crate) fn path(&self) -> String {
        match self.part {
            Some(part) => format!("messages.{}.content.{part}", self.message),
            None => format!("messages.{}.content", self.message),
        }
    }

    /// Returns whether the block has a non-empty Seal.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some_and(|seal| seal.is_string() && !seal.is(""))
    }

    /// Returns the `type` value of this reasoning block.
    pub(crate) fn type_name(&self) -> &'static str {
        if self.kind == ClaudeBlockKind::Redacted { "redacted_thinking" } else { "thinking" }
    }

    /// Returns the name of the member that holds this block's Seal.
    pub(crate) fn seal_name(&self) -> &'static str {
        if self.kind == ClaudeBlockKind::Redacted { "data" } else { "signature" }
    }
}

/// Consecutive messages by one speaker that count as one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaudeTurn {
    pub(crate) speaker: ClaudeSpeaker,
    pub(crate) messages: std::ops::Range<usize>,
}

/// The settings that the rules check, as nodes of the request.
#[derive(Default)]
pub(crate) struct ClaudeSettings<'c> {
    pub(crate) thinking: Option<Node<'c>>,
    pub(crate) output_config: Option<Node<'c>>,
    /// The requested efforts: the effort of the request, then the efforts of individual turns.
    pub(crate) efforts: Vec<Node<'c>>,
    /// The efforts of individual turns, with the indexes of their messages.
    pub(crate) message_efforts: Vec<(usize, Node<'c>)>,
    /// The sampling settings, by the provider's names.
    pub(crate) sampling: Vec<(&'static str, Node<'c>)>,
    pub(crate) max_tokens: Option<Node<'c>>,
    pub(crate) choice: Option<Node<'c>>,
    /// Whether `choice` forces the model to call a tool.
    pub(crate) is_forced: bool,
    pub(crate) has_tools: bool,
    /// The beta features in the request header; `None` if the headers are unknown.
    pub(crate) betas: Option<String>,
}

impl ClaudeSettings<'_> {
    pub(crate) fn thinking_mode(&self) -> ThinkingMode {
        ThinkingMode::from_node(self.thinking)
    }

    /// Returns whether a beta feature is requested; `None` if the headers are unknown.
    pub(crate) fn has_beta(&self, name: &str) -> Option<bool> {
        Some(self.betas.as_ref()?.contains(name))
    }
}

impl<'c> ClaudeRequest<'c> {
    pub(crate) fn new(
        messages: Vec<ClaudeMessage<'c>>,
        settings: ClaudeSettings<'c>,
        joins: bool,
    ) -> Self {
        let mut turns: Vec<ClaudeTurn> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let speaker = message.speaker;
            let joined = turns.last_mut().filter(|turn| {
                speaker == ClaudeSpeaker::System || joins && turn.speaker == speaker
            });
            match joined {
                Some(turn) => turn.messages.end = index + 1,
                None => turns.push(ClaudeTurn { speaker, messages: index..index + 1 }),
            }
        }
        Self { messages, turns, settings, joins, is_partial: false }
    }

    pub(crate) fn blocks_of_turn(
        &self,
        turn: &ClaudeTurn,
    ) -> impl Iterator<Item = &ClaudeBlock<'c>> {
        let messages = self.messages.get(turn.messages.clone()).unwrap_or_default();
        let speaker = turn.speaker;
        let own = messages.iter().filter(move |message| message.speaker == speaker);
        own.flat_map(|message| &message.blocks)
    }

    pub(crate) fn assistant_blocks(&self) -> impl Iterator<Item = &ClaudeBlock<'c>> {
        let own =
            self.messages.iter().filter(|message| message.speaker == ClaudeSpeaker::Assistant);
        own.flat_map(|message| &message.blocks)
    }

    /// Returns the assistant turn of an unfinished tool loop: the turn whose tool results are in
    /// the last turn of the request.
    pub(crate) fn open_loop(&self) -> Option<&ClaudeTurn> {
        let [.., calls, answers] = self.turns.as_slice() else { return None };
        let is_answered = answers.speaker == ClaudeSpeaker::User
            && self.blocks_of_turn(answers).any(|block| block.kind == ClaudeBlockKind::Answer);
        (is_answered && calls.speaker == ClaudeSpeaker::Assistant).then_some(calls)
    }

    /// Returns the block that starts at this byte offset.
    pub(crate) fn block_at(&self, start: usize) -> Option<&ClaudeBlock<'c>> {
        let behind = self.messages.partition_point(|message| message.node.range().start <= start);
        let blocks = &self.messages.get(behind.checked_sub(1)?)?.blocks;
        let found = blocks.binary_search_by_key(&start, |block| block.node.range().start).ok()?;
        blocks.get(found)
    }

    pub(crate) fn turn_of(&self, message: usize) -> Option<&ClaudeTurn> {
        let behind = self.turns.partition_point(|turn| turn.messages.start <= message);
        self.turns.get(behind.checked_sub(1)?)
    }
}
