//! Sends a changed system prompt and changed tools in `system` messages inside the conversation.
//!
//! The message comes last in the request, after the caller's new user message or tool results, and
//! therefore directly before the reply. The API requires this order. The message contains:
//!
//! - a sentence that withdraws the earlier system prompts, then the blocks of the new one;
//! - a `tool_removal` block for each tool that is no longer offered;
//! - a `tool_addition` block with the complete definition of each new or redefined tool.
//!
//! The state that the caller's request is compared with is derived from the earlier request alone:
//! its `system` and `tools`, and the messages that were appended to it.

use throughline_core::{
    AppendedChanges, Call, Digest, Disposition, EncodedRequest, Fate, Item, ItemPosition,
    ReshapeKind, Role, ToolChoice,
};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::DecodeContext;
use crate::anthropic::{WIRE, decode};
use crate::item_reader::ItemReader;
use crate::message_groups::split_leading_system;
use crate::object::copy_members;
use crate::prefix::PrefixHasher;
use crate::prefix_append::{APPENDED_ID, AppendPlan, AppendedMessage, SignedPrefix};

/// The beta for tools that are added or removed by name.
const TOOL_CHANGES_BETA: &str = "mid-conversation-tool-changes-2026-07-01";
/// The beta for tools that are defined in a message. It includes [`TOOL_CHANGES_BETA`].
const INLINE_TOOLS_BETA: &str = "inline-tools-2026-09-15";

/// The first block of a message that contains a new system prompt.
const NEW_PROMPT: &str =
    "The following system prompt replaces every earlier system prompt of this conversation.";
/// The block of a message that withdraws the system prompt.
const NO_PROMPT: &str = "Every earlier system prompt of this conversation no longer applies.";

/// The start of the line in which Claude Code attributes each request. The line is the first block
/// of the system prompt. Its value differs in every request and is no instruction, so a change of
/// this block is ignored.
const ATTRIBUTION: &str = "x-anthropic-billing-header:";

/// Maximum number of cache markers that the API accepts in a request.
const MAX_CACHE_MARKERS: usize = 4;

/// See [`Codec::append_changes`](crate::Codec::append_changes).
pub(super) fn append_changes(
    call: &Call,
    encoded: &EncodedRequest,
    signed: &SignedPrefix<'_>,
) -> Option<AppendPlan> {
    let target = &call.target;
    let allowed = target.provider.dialect.appends;
    if !target.profile.appends || allowed == AppendedChanges::None {
        return None;
    }
    let (before, now) = (Tree::parse(signed.body.clone()).ok()?, Tree::parse(body(encoded)).ok()?);
    let (before, now) = (before.root(), now.root());
    let mut state = PromptState::read(before)?;
    let first_system = state.system.clone();
    let mut offered = state.tool_names();
    let mut messages = Vec::new();
    let mut positions = Vec::new();
    for (index, turns) in turns_before(before, signed.appended)? {
        let node = before.get("messages")?.elements().nth(index)?;
        let message = state.apply(node)?;
        offered.extend(message.added.iter().cloned());
        messages.push(message);
        positions.push(turns);
    }
    let wanted = PromptState::read(now)?;
    let change = state.change_to(&wanted);
    let changes_tools = messages.iter().chain(&change).any(AppendedMessage::changes_tools);
    // An empty tool list that grows later, and a forced tool that the list does not contain, are
    // not documented.
    let has_tools = before.get("tools").is_some_and(|tools| tools.elements().next().is_some());
    let is_forced_elsewhere = matches!(&call.settings.choice, Some(ToolChoice::Tool(name))
        if !tool_names(before).contains(name));
    if changes_tools && (allowed < AppendedChanges::Tools || !has_tools || is_forced_elsewhere)
        || state.unnamed != wanted.unnamed
    {
        return None;
    }
    let (leading, conversation) = split_leading_system(&call.items, &WIRE);
    let ends_with_model = conversation.last().is_none_or(|item| item.role == Role::Assistant);
    if change.is_some() && ends_with_model {
        return None;
    }
    let starts = turn_starts(conversation);
    let mut places: Vec<usize> = Vec::with_capacity(positions.len() + 1);
    for turns in positions {
        places.push(*starts.get(turns)?);
    }
    if let Some(change) = change {
        messages.push(change);
        places.push(conversation.len());
    }
    let context = DecodeContext::of(target.clone());
    let mut reader = ItemReader::for_request(&context, WIRE);
    let items = insert(&mut reader, conversation, &messages, &places);
    let (system, tools) = prefix_values(before, now);
    let system_changed = wanted.system != first_system;
    let own = encoded.fates.iter().take(call.system.len() + leading.len());
    let fates = own.map(|fate| system_fate(fate, system_changed)).collect();
    let beta = beta(&messages);
    offered.retain(|name| !wanted.has_tool(name));
    offered.sort();
    offered.dedup();
    let system = system.as_ref().map(Json::tree);
    let tools = tools.as_ref().map(Json::tree);
    let call = Call {
        system: decode::system_items(&mut reader, system.as_ref().map(Tree::root)),
        tools: decode::tools(tools.as_ref().map(Tree::root)),
        items,
        ..call.clone()
    };
    Some(AppendPlan { messages, removed_tools: offered, call, beta, system: fates })
}

fn body(encoded: &EncodedRequest) -> bytes::Bytes {
    encoded.request.body.clone()
}

/// The system prompt and the tools that apply at one position in a conversation.
#[derive(Clone, Debug, Default)]
struct PromptState {
    /// The blocks of the system prompt, without cache markers.
    system: Vec<Block>,
    tools: Vec<(Name, Block)>,
    /// Tools without a name, such as MCP toolsets. They cannot be changed in a message.
    unnamed: Vec<Digest>,
}

/// A value without its cache marker, and a digest that ignores formatting.
#[derive(Clone, Debug)]
struct Block {
    json: Json,
    digest: Digest,
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Block {
    fn new(node: Node<'_>) -> Self {
        let is_marker = |key: &Node<'_>| key.is("cache_control");
        let json = if node.members().any(|(key, _)| is_marker(&key)) {
            json::object(|o| copy_members(o, node.members().filter(|(key, _)| !is_marker(key))))
        } else {
            node.json()
        };
        let mut hasher = PrefixHasher::semantic();
        hasher.update("", &json);
        Self { digest: hasher.digest(), json }
    }
}

impl PromptState {
    /// Reads the state at the start of a request. Returns `None` if the request does not have the
    /// form of this wire.
    fn read(request: Node<'_>) -> Option<Self> {
        request.get("messages").filter(|messages| messages.is_array())?;
        let mut state = Self::default();
        if let Some(system) = request.present("system") {
            state.system = match system.text() {
                Some(text) => {
                    let block = text_block(&text).tree();
                    instructions([block.root()])
                }
                None => instructions(system.elements()),
            };
        }
        for tool in request.present("tools").into_iter().flat_map(Node::elements) {
            match tool.name_of("name") {
                Some(name) => state.offer(name, Block::new(tool)),
                None => state.unnamed.push(Block::new(tool).digest),
            }
        }
        Some(state)
    }

    /// Applies a message that an earlier request appended, and describes it.
    fn apply(&mut self, message: Node<'_>) -> Option<AppendedMessage> {
        let json = message.json();
        let (mut system, mut added, mut removed) = (None, Vec::new(), Vec::new());
        for block in message.get("content")?.elements() {
            match &*block.text_of("type")? {
                "text" => match system.as_mut() {
                    None => system = Some(Vec::new()),
                    Some(blocks) => Vec::push(blocks, Block::new(block)),
                },
                "tool_removal" => {
                    let name = block.at("/tool/name").and_then(Node::name)?;
                    self.tools.retain(|(offered, _)| *offered != name);
                    removed.push(name);
                }
                "tool_addition" => {
                    let definition = block.at("/tool/definition")?;
                    let name = definition.name_of("name")?;
                    self.offer(name.clone(), Block::new(definition));
                    added.push(name);
                }
                _ => return None,
            }
        }
        let has_system = system.is_some();
        if let Some(blocks) = system {
            self.system = blocks;
        }
        Some(AppendedMessage { json, system: has_system, added, removed })
    }

    /// Returns the message that changes this state to `wanted`; `None` if they are equal.
    fn change_to(&self, wanted: &Self) -> Option<AppendedMessage> {
        let system = self.system != wanted.system;
        let is_new = |(name, tool): &&(Name, Block)| self.tool(name) != Some(tool);
        let added: Vec<_> = wanted.tools.iter().filter(is_new).collect();
        let removed: Vec<Name> =
            self.tool_names().into_iter().filter(|name| !wanted.has_tool(name)).collect();
        if !system && added.is_empty() && removed.is_empty() {
            return None;
        }
        let mut blocks = Vec::new();
        if system {
            let note = if wanted.system.is_empty() { NO_PROMPT } else { NEW_PROMPT };
            blocks.push(text_block(note));
            blocks.extend(wanted.system.iter().map(|block| block.json.clone()));
        }
        blocks.extend(removed.iter().map(|name| {
            object! { "type": "tool_removal", "tool": { "type": "tool_reference", "name": name } }
        }));
        blocks.extend(added.iter().map(|(_, tool)| {
            let definition = &tool.json;
            object! {
                "type": "tool_addition",
                "tool": { "type": "tool_definition", "definition": definition },
            }
        }));
        let json = object! { "role": "system", "content": json::array_of(&blocks) };
        let added = added.iter().map(|(name, _)| name.clone()).collect();
        Some(AppendedMessage { json, system, added, removed })
    }

    fn tool(&self, name: &Name) -> Option<&Block> {
        self.tools.iter().find(|(offered, _)| offered == name).map(|(_, tool)| tool)
    }

    fn has_tool(&self, name: &Name) -> bool {
        self.tool(name).is_some()
    }

    fn tool_names(&self) -> Vec<Name> {
        self.tools.iter().map(|(name, _)| name.clone()).collect()
    }

    fn offer(&mut self, name: Name, tool: Block) {
        match self.tools.iter_mut().find(|(offered, _)| *offered == name) {
            Some((_, known)) => *known = tool,
            None => self.tools.push((name, tool)),
        }
    }
}

impl AppendedMessage {
    fn changes_tools(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }
}

fn text_block(text: &str) -> Json {
    object! { "type": "text", "text": text }
}

/// Returns the blocks of a system prompt that contain instructions.
fn instructions<'n>(blocks: impl IntoIterator<Item = Node<'n>>) -> Vec<Block> {
    let is_instruction = |(index, block): &(usize, Node<'_>)| {
        let text = block.text_of("text").unwrap_or_default();
        let is_ignored = text.trim().is_empty() || *index == 0 && is_attribution(&text);
        !is_ignored
    };
    let blocks = blocks.into_iter().enumerate().filter(is_instruction);
    blocks.map(|(_, block)| Block::new(block)).collect()
}

/// Whether a block contains only the attribution line.
fn is_attribution(text: &str) -> bool {
    text.starts_with(ATTRIBUTION) && text.lines().count() == 1
}

fn tool_names(request: Node<'_>) -> Vec<Name> {
    let tools = request.present("tools").into_iter().flat_map(Node::elements);
    tools.filter_map(|tool| tool.name_of("name")).collect()
}

/// Returns, for each of the messages at `indexes`, its index and the number of model turns before
/// it. Consecutive assistant messages count as one turn.
fn turns_before(request: Node<'_>, indexes: &[usize]) -> Option<Vec<(usize, usize)>> {
    let (mut turns, mut is_models) = (0, false);
    let mut found = Vec::with_capacity(indexes.len());
    for (index, message) in request.get("messages")?.elements().enumerate() {
        if indexes.contains(&index) {
            found.push((index, turns));
        }
        let was_models = std::mem::replace(&mut is_models, is_role(message, "assistant"));
        turns += usize::from(is_models && !was_models);
    }
    (found.len() == indexes.len()).then_some(found)
}

fn is_role(message: Node<'_>, role: &str) -> bool {
    message.get("role").is_some_and(|value| value.is(role))
}

/// Returns the index of the first Item of each model turn.
fn turn_starts(items: &[Item]) -> Vec<usize> {
    let mut is_models = false;
    let starts = items.iter().enumerate().filter(|(_, item)| {
        let was_models = std::mem::replace(&mut is_models, item.role == Role::Assistant);
        is_models && !was_models
    });
    starts.map(|(index, _)| index).collect()
}

/// Inserts each message before the Item at its place. The places are in ascending order.
fn insert(
    reader: &mut ItemReader<'_>,
    items: &[Item],
    messages: &[AppendedMessage],
    places: &[usize],
) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::with_capacity(items.len() + messages.len());
    let mut next = 0;
    for (number, (message, place)) in messages.iter().zip(places).enumerate() {
        out.extend_from_slice(items.get(next..*place).unwrap_or_default());
        next = *place;
        // The neighbours belong to other speakers, so the number must only differ from that of a
        // system message before it.
        let index = out.last().map_or(0, |last| last.place.message + 1);
        let tree = message.json.tree();
        let content = tree.root().get("content");
        let new = reader.message_items(0, Role::System, tree.root(), content, decode::read_block);
        out.extend(new.into_iter().enumerate().map(|(part, mut item)| {
            item.id = format!("{APPENDED_ID}{number}.{part}").into();
            item.place = ItemPosition { message: index, ..ItemPosition::new(0, part) };
            item
        }));
    }
    out.extend_from_slice(items.get(next..).unwrap_or_default());
    out
}

/// Returns the system prompt and the tools of the earlier request. Cache markers are removed from
/// them if the caller's new markers would otherwise exceed the limit; markers are not part of the
/// prefix.
fn prefix_values(before: Node<'_>, now: Node<'_>) -> (Option<Json>, Option<Json>) {
    let is_marked = |block: &Node<'_>| block.present("cache_control").is_some();
    let count = |list: Option<Node<'_>>| {
        list.into_iter().flat_map(Node::elements).filter(is_marked).count()
    };
    let messages = now.get("messages").into_iter().flat_map(Node::elements);
    let in_messages: usize = messages.map(|message| count(message.get("content"))).sum();
    let kept = count(before.get("system")) + count(before.get("tools"));
    let is_over = kept + in_messages > MAX_CACHE_MARKERS;
    let value = |name: &str| {
        let node = before.present(name)?;
        if !is_over || !node.is_array() {
            return Some(node.json());
        }
        let blocks: Vec<Json> = node.elements().map(|block| Block::new(block).json).collect();
        Some(json::array_of(&blocks))
    };
    (value("system"), value("tools"))
}

fn system_fate(fate: &Fate, is_changed: bool) -> Fate {
    let is_sent = !matches!(fate.visible, Disposition::Elided(_));
    let mut fate = fate.clone();
    if is_changed && is_sent {
        fate.visible = Disposition::Reshaped(ReshapeKind::Appended);
    }
    fate
}

fn beta(messages: &[AppendedMessage]) -> Option<&'static str> {
    if messages.iter().any(|message| !message.added.is_empty()) {
        return Some(INLINE_TOOLS_BETA);
    }
    messages.iter().any(|message| !message.removed.is_empty()).then_some(TOOL_CHANGES_BETA)
}

#[cfg(test)]
#[path = "prefix_append_tests.rs"]
mod prefix_append_tests;
