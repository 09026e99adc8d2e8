//! Reads a conversation from the documented formats: `LLMMessage`, Letta's messages, `RawThought`
//! and `reasoning_details`.
//!
//! These documents do not name the provider that issued their reasoning, so the caller names the
//! owner. An assistant turn becomes a response on the owner's wire, and the owner's codec decodes
//! this response. The resulting Items therefore have the same native parts and Seals as a captured
//! reply: the owner receives them unchanged, and every other target leaves them out. Without an
//! owner, reasoning is kept as an opaque payload that no provider receives.

mod letta;
mod turn;

use std::sync::Arc;

use throughline_core::{Body, Item, Target, Wire, tag};
use throughline_json::{InvalidDocument, Json, Name, Node, StringEnum as _, words};
use throughline_spec::{
    InvalidThought, Message, MessageRole, RawThought, ReasoningCodec, ReasoningItem, ReplayAudit,
    ReplayTurn,
};

use crate::history::turn::AssistantTurn;
use crate::{Catalog, Codec, CodecError, DecodeContext, OpenAiChat, chat};

/// Members of chat messages that identify or describe a message and are not content.
const CHAT_METADATA: [&str; 13] = [
    "annotations",
    "cache_control",
    "citations",
    "id",
    "index",
    "metadata",
    "name",
    "phase",
    "prefix",
    "provider_metadata",
    "status",
    "tool_call_id",
    "type",
];

words! {
    /// A documented format in which a caller supplies a conversation or its reasoning.
    HistoryFormat {
        /// A list of `LLMMessage` documents.
        LlmMessage = "llm-message",
        /// A list of Letta's messages, including `ReasoningMessage`.
        ReasoningMessage = "reasoning-message",
        /// A list of `RawThought` documents.
        RawThought = "raw-thought",
        /// A list of chat messages with `reasoning_details`, or the elements of one turn.
        ReasoningDetails = "reasoning-details",
    }
}

impl HistoryFormat {
    /// Parses the name of a format, such as `llm-message`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.as_str() == name)
    }
}

/// The model that issued the reasoning of a history, and the codecs that translate it.
#[derive(Clone, Copy)]
pub struct HistoryOwner<'c> {
    /// The endpoint and model that issued the reasoning.
    pub target: &'c Target,
    /// The codec of the target's wire.
    pub codec: &'c dyn Codec,
    /// The translator between reasoning elements and the target's native reasoning.
    pub reasoning: &'c dyn ReasoningCodec,
}

impl<'c> HistoryOwner<'c> {
    /// Creates an owner that uses the reasoning codec of its wire.
    pub fn new(target: &'c Target, codec: &'c dyn Codec) -> Self {
        Self { target, codec, reasoning: codec.reasoning() }
    }

    /// Replaces the reasoning codec.
    #[must_use]
    pub fn with_reasoning(self, reasoning: &'c dyn ReasoningCodec) -> Self {
        Self { reasoning, ..self }
    }
}

/// A conversation that was read from a documented format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The Items of the conversation, oldest first.
    pub items: Vec<Item>,
    /// The reasoning of each assistant turn.
    pub turns: Vec<HistoryTurn>,
}

/// The reasoning of one assistant turn.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryTurn {
    /// The index of the first message of the turn.
    pub message: u32,
    /// The reasoning elements of the turn, in order.
    pub reasoning: Vec<ReasoningItem>,
    /// The ids of the turn's tool calls, in order.
    pub calls: Vec<Name>,
    /// Whether a tool result follows the turn.
    pub is_answered: bool,
}

impl HistoryTurn {
    /// Checks whether the turn's reasoning can be replayed to `target`. The stricter of the codec's
    /// contract and the model's contract applies.
    pub fn audit(&self, codec: &dyn ReasoningCodec, target: &Target) -> ReplayAudit {
        let contract = codec.replay_contract(&self.reasoning).max(target.profile.contract);
        let turn = ReplayTurn::new(&self.reasoning).with_calls(&self.calls).with_target(target);
        turn.audit(contract, self.is_answered)
    }
}

/// The error for a history that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The document is not a list of the expected documents.
    #[error("expected {expected}")]
    Shape {
        /// The expected form of the document.
        expected: &'static str,
    },
    /// An entry of the list is invalid.
    #[error("entry {index}: {problem}")]
    Entry {
        /// The index of the entry, from 0.
        index: usize,
        /// The invalid member, the problem and how to fix it.
        problem: String,
    },
    /// The owner's codec cannot write or read an assistant turn.
    #[error("entry {index} cannot be written for its owner: {source}")]
    Codec {
        /// The index of the entry, from 0.
        index: usize,
        /// The error of the codec.
        source: CodecError,
    },
}

/// Reads a conversation. `document` is a list, a single entry, or an object whose `messages` or
/// `thoughts` are the list.
pub fn read_history(
    document: &Json,
    format: HistoryFormat,
    owner: Option<HistoryOwner<'_>>,
) -> Result<History, HistoryError> {
    let tree = document.tree();
    let mut builder = HistoryBuilder { owner, history: History::default(), next: 0, entry: 0 };
    match format {
        HistoryFormat::LlmMessage => {
            let expected = "a list of LLMMessage objects, or an object with `messages`";
            for (index, entry) in entries(tree.root(), "messages", expected)?.enumerate() {
                builder.entry = index;
                builder.push_message(&entry.json())?;
            }
        }
        HistoryFormat::ReasoningMessage => {
            let expected = "a list of Letta messages, or an object with `messages`";
            let list = entries(tree.root(), "messages", expected)?;
            builder.push_letta(list)?;
        }
        HistoryFormat::RawThought => {
            let expected = "a list of RawThought objects, or an object with `thoughts`";
            let message = builder.next;
            for (index, entry) in entries(tree.root(), "thoughts", expected)?.enumerate() {
                builder.entry = index;
                builder.push_raw_thought(&entry.json(), message)?;
            }
        }
        HistoryFormat::ReasoningDetails => builder.push_details(tree.root())?,
    }
    Ok(builder.history)
}

/// Returns the entries of a list, of a list in the member `key`, or a single entry.
fn entries<'t>(
    root: Node<'t>,
    key: &str,
    expected: &'static str,
) -> Result<impl Iterator<Item = Node<'t>>, HistoryError> {
    let list = root.get(key).filter(|list| list.is_array());
    let list = list.or(root.is_array().then_some(root));
    let single = root.is_object() && list.is_none();
    if !single && list.is_none() {
        return Err(HistoryError::Shape { expected });
    }
    Ok(list.into_iter().flat_map(Node::elements).chain(single.then_some(root)))
}

/// Appends entries to a history.
struct HistoryBuilder<'c> {
    owner: Option<HistoryOwner<'c>>,
    history: History,
    /// The index of the next message.
    next: u32,
    /// The index of the entry that is being read, for errors.
    entry: usize,
}

impl HistoryBuilder<'_> {
    fn error(&self, problem: impl Into<String>) -> HistoryError {
        HistoryError::Entry { index: self.entry, problem: problem.into() }
    }

    fn push_message(&mut self, document: &Json) -> Result<(), HistoryError> {
        let message = Message::parse(document).map_err(|error| self.error(error.to_string()))?;
        match self.owner {
            Some(owner) if message.role == MessageRole::Assistant => {
                let turn = AssistantTurn::from_message(&message, owner);
                self.push_turn(&turn)
            }
            Some(_) | None => self.push_neutral(&message),
        }
    }

    /// Appends a message without an owner. Its thoughts are kept as opaque payloads.
    fn push_neutral(&mut self, message: &Message) -> Result<(), HistoryError> {
        let index = usize::try_from(self.next).unwrap_or(usize::MAX);
        let items: Result<Vec<Item>, InvalidDocument> = message.items(index, None);
        let items = items.map_err(|error| self.error(error.to_string()))?;
        self.append(items);
        Ok(())
    }

    /// Appends Items, whose message numbers start at `self.next`.
    fn append(&mut self, items: Vec<Item>) {
        if items.iter().any(|item| matches!(item.body, Body::Result(_)))
            && let Some(turn) = self.history.turns.last_mut()
        {
            turn.is_answered = true;
        }
        let last = items.iter().map(|item| item.place.message).max();
        self.next = last.map_or(self.next, |last| last.saturating_add(1));
        self.history.items.extend(items);
    }

    fn push_turn(&mut self, turn: &AssistantTurn) -> Result<(), HistoryError> {
        let Some(owner) = self.owner else { return Ok(()) };
        let items = turn.items(owner, self.next);
        let items = items.map_err(|source| HistoryError::Codec { index: self.entry, source })?;
        self.history.turns.push(HistoryTurn {
            message: self.next,
            reasoning: turn.elements.clone(),
            calls: turn.calls.clone(),
            is_answered: false,
        });
        self.append(items);
        Ok(())
    }

    /// Appends a `RawThought`. If a wire defines the payload's tag, the payload becomes the owner's
    /// native part.
    fn push_raw_thought(&mut self, document: &Json, message: u32) -> Result<(), HistoryError> {
        let parsed = RawThought::parse(document);
        let mut item = parsed.map_err(|error: InvalidThought| self.error(error.to_string()))?;
        let parts = self.history.items.iter().filter(|known| known.place.message == message);
        item.place.message = message;
        item.place.part = u32::try_from(parts.count()).unwrap_or(u32::MAX);
        if let Some(owner) = self.owner
            && let Some(owned) = self.owned_thought(&item, owner)?
        {
            item = owned;
        }
        self.append(vec![item]);
        Ok(())
    }

    /// Converts a caller's thought whose tag belongs to a wire to the owner's native thought;
    /// `None` for thoughts with other tags. Other payloads with such a tag are rejected, because a
    /// provider would receive them as its own.
    fn owned_thought(
        &self,
        item: &Item,
        owner: HistoryOwner<'_>,
    ) -> Result<Option<Item>, HistoryError> {
        let Body::Thought(thought) = &item.body else { return Ok(None) };
        let tag = thought.replay_compatibility.as_deref();
        let Some(wire) = tag.and_then(tag::wire_of) else { return Ok(None) };
        let Some(payload) = &thought.payload else { return Ok(None) };
        if wire != owner.target.origin.wire {
            return Err(self.error(format!(
                "replayCompatibility names the wire {wire}, but {} uses {}; name the model that \
                 issued the payload as the owner",
                owner.target.model(),
                owner.target.origin.wire
            )));
        }
        let elements = match payload.tree().root().name() {
            // On the chat wire, the payload of a string member is the string.
            Some(text) => vec![turn::text_element(text, owner.target)],
            None => turn::native_elements(payload, owner),
        };
        let turn = AssistantTurn { elements, ..AssistantTurn::default() };
        let items = turn.items(owner, item.place.message);
        let items = items.map_err(|source| HistoryError::Codec { index: self.entry, source })?;
        let is_owned = |item: &Item| matches!(item.body, Body::Thought(_)) && item.origin.is_some();
        let Some(mut native) = items.into_iter().find(is_owned) else {
            return Err(self.error(format!(
                "payload is not reasoning of {} on the wire {wire}; correct the payload, \
                 replayCompatibility or the owner",
                owner.target.model()
            )));
        };
        (native.id, native.place) = (item.id.clone(), item.place);
        if let Body::Thought(issued) = &mut native.body {
            issued.identity = thought.identity.clone();
            issued.record.clone_from(&thought.record);
            if issued.content.is_empty() {
                issued.content = Arc::clone(&thought.content);
            }
        }
        Ok(Some(native))
    }

    /// Appends chat messages with `reasoning_details`, or the elements of a single turn.
    fn push_details(&mut self, root: Node<'_>) -> Result<(), HistoryError> {
        let expected = "a list of chat messages or of reasoning_details elements";
        let is_element = |node: Node<'_>| {
            node.text_of("type").is_some_and(|kind| kind.starts_with("reasoning."))
        };
        let first = root.elements().next();
        if is_element(root) || first.is_some_and(is_element) {
            let elements = entries(root, "reasoning_details", expected)?;
            let elements = elements.map(ReasoningItem::read).collect();
            let turn = AssistantTurn { elements, ..AssistantTurn::default() };
            return self.push_elements(turn);
        }
        let messages = match root.at("/choices/0/message") {
            Some(message) => vec![message],
            None => entries(root, "messages", expected)?.collect(),
        };
        for (index, message) in messages.into_iter().enumerate() {
            self.entry = index;
            if !message.is_object() {
                return Err(self.error("must be a chat message object"));
            }
            self.push_chat_message(message)?;
        }
        Ok(())
    }

    /// Refuses messages of other formats, whose content would be lost.
    fn check_chat_message(&self, message: Node<'_>) -> Result<(), HistoryError> {
        let role = message.text_of("role");
        match role.as_deref() {
            Some("assistant" | "developer" | "function" | "system" | "tool" | "user") => {}
            None if message.get("reasoning_details").is_some() => {}
            Some(_) | None => {
                return Err(self.error(
                    "role must be assistant, developer, function, system, tool or user; if the \
                     document has another format, name that format",
                ));
            }
        }
        let is_known = |key: &str| chat::is_known_member(key) || CHAT_METADATA.contains(&key);
        let members = message.members().filter(|(_, value)| !value.is_null());
        let mut keys = members.filter_map(|(key, _)| key.text());
        let Some(key) = keys.find(|key| !is_known(key)) else { return Ok(()) };
        Err(self.error(format!(
            "`{key}` is not a member of chat messages; remove it, or, if the document has another \
             format, name that format"
        )))
    }

    fn push_chat_message(&mut self, message: Node<'_>) -> Result<(), HistoryError> {
        self.check_chat_message(message)?;
        let is_assistant = message.get("reasoning_details").is_some()
            || message.get("role").is_some_and(|role| role.is("assistant"));
        let body = object! { "messages": [message.json()] };
        let context = chat_context().ok_or_else(|| self.error("the chat wire is not available"))?;
        let request = throughline_core::Request {
            path: Name::default(),
            headers: Vec::new(),
            body: body.bytes().clone(),
        };
        let decoded = OpenAiChat.decode_request(&request, &context);
        let decoded = decoded.map_err(|error| self.error(error.to_string()))?;
        let next = self.next;
        let mut items = decoded.items;
        for item in &mut items {
            item.place.message = next;
            item.id = format!("message-{next}-{}", item.place.part).into();
            (item.native, item.origin) = (None, None);
            item.seals.clear();
        }
        if !is_assistant {
            self.append(items);
            return Ok(());
        }
        items.retain(|item| !matches!(item.body, Body::Thought(_) | Body::Unknown));
        let elements = OpenAiChat.parse_response(&message.json());
        self.push_elements(AssistantTurn { elements, ..AssistantTurn::from_visible(items) })
    }

    /// Appends a turn of reasoning elements. Without an owner, each element becomes an opaque
    /// payload whose tag is the element's format.
    fn push_elements(&mut self, turn: AssistantTurn) -> Result<(), HistoryError> {
        if self.owner.is_some() {
            return self.push_turn(&turn);
        }
        let message = self.next;
        let mut items: Vec<Item> = turn.elements.iter().map(turn::opaque_item).collect();
        items.extend(turn.visible);
        for (part, item) in (0..).zip(&mut items) {
            item.place = throughline_core::ItemPosition { message, part };
            item.id = format!("message-{message}-{part}").into();
        }
        self.append(items);
        Ok(())
    }
}

/// Returns a context for chat messages that no model issued.
fn chat_context() -> Option<DecodeContext> {
    let catalog = Catalog::builtin();
    let provider = catalog.provider_on_wire("compatible", &Wire::OPENAI_CHAT);
    let provider = provider.or_else(|| catalog.default_provider(&Wire::OPENAI_CHAT))?;
    Some(DecodeContext::of(catalog.target(&provider, "unknown", "default")))
}
