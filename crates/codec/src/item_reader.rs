//! Creates the Items of one decoded request or response. All wires share this module.

mod reuse;

use std::sync::Arc;

use throughline_core::{
    Body, Direction, Envelope, Item, ItemId, ItemPosition, NativePart, Origin, Outcome, Part, Role,
    Seal, Tool, ToolCall, ToolResult, Wire,
};
use throughline_json::{Json, Label, Name, Node};

use crate::call_ids::CallTracker;
pub(crate) use crate::item_reader::reuse::ReusedMessages;
use crate::{DecodeContext, find_seals};

/// Converts one part of a message to an Item.
pub(crate) type ReadPart =
    fn(&mut ItemReader<'_>, ItemPosition, Role, Node<'_>, Option<&Arc<Envelope>>) -> Item;

/// The state that is shared while the parts of one document are decoded.
pub(crate) struct ItemReader<'a> {
    pub(crate) context: &'a DecodeContext,
    pub(crate) origin: Arc<Origin>,
    pub(crate) side: Direction,
    pub(crate) calls: CallTracker,
    wire: Wire,
    /// The first segment of each Item's id: the response id for a response, empty for a request.
    reply: Name,
}

impl<'a> ItemReader<'a> {
    pub(crate) fn for_request(context: &'a DecodeContext, wire: Wire) -> Self {
        let (origin, no_id) = (&context.target.origin, Name::default());
        let reader = Self::for_reply(context, wire, origin, Some(&no_id));
        Self { side: Direction::Request, ..reader }
    }

    pub(crate) fn for_reply(
        context: &'a DecodeContext,
        wire: Wire,
        origin: &Arc<Origin>,
        id: Option<&Name>,
    ) -> Self {
        Self {
            context,
            origin: Arc::clone(origin),
            side: Direction::Response,
            calls: CallTracker::default(),
            wire,
            reply: id.cloned().unwrap_or_else(|| Name::from("reply")),
        }
    }

    pub(crate) fn id_at(&self, place: ItemPosition) -> ItemId {
        ItemId::from_position(&self.reply, place)
    }

    pub(crate) fn item(
        &self,
        place: ItemPosition,
        role: Role,
        body: Body,
        native: NativePart,
    ) -> Item {
        let mut item = Item::new(self.id_at(place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    /// Reads the parts of a message. `content` is a list of parts, or a string that counts as one
    /// text part. A message without parts becomes one unknown Item.
    pub(crate) fn message_items(
        &mut self,
        index: usize,
        role: Role,
        message: Node<'_>,
        content: Option<Node<'_>>,
        read: ReadPart,
    ) -> Vec<Item> {
        let parts = || content.into_iter().flat_map(Node::elements);
        let envelope = Arc::new(Envelope { json: message.json(), parts: parts().count().max(1) });
        if parts().next().is_none() {
            let (body, json) = match content.and_then(Node::name) {
                Some(text) => (Body::Text(text), content.unwrap_or(message).json()),
                None => (Body::Unknown, message.json()),
            };
            let native = self.native(json, Some(&envelope));
            return vec![self.item(ItemPosition::new(index, 0), role, body, native)];
        }
        let place = |at| ItemPosition::new(index, at);
        let item = |(at, part)| read(self, place(at), role, part, Some(&envelope));
        parts().enumerate().map(item).collect()
    }

    /// Reads the parts of a response as assistant Items.
    pub(crate) fn reply_items(&mut self, parts: Option<Node<'_>>, read: ReadPart) -> Vec<Item> {
        let parts = parts.into_iter().flat_map(Node::elements).enumerate();
        let item = |(at, part)| read(self, ItemPosition::new(0, at), Role::Assistant, part, None);
        parts.map(item).collect()
    }

    pub(crate) fn native(&self, json: Json, envelope: Option<&Arc<Envelope>>) -> NativePart {
        let native = NativePart::new(self.wire.clone(), self.side, json);
        NativePart { envelope: envelope.cloned(), ..native }
    }

    /// Creates a Seal for each nested member whose key `format` maps to a Seal format.
    pub(crate) fn seals(
        &self,
        node: Node<'_>,
        format: impl Fn(&str) -> Option<Label>,
    ) -> Vec<Seal> {
        let found = find_seals::find(node, |key| format(key).is_some());
        let sealed = found.filter_map(|(at, value)| {
            let format = format(at.rsplit('/').next()?)?;
            Some(self.context.seal(value.text_bytes()?, format, &self.origin, at))
        });
        sealed.collect()
    }

    /// Builds the body of a tool call that the client must execute, and records the call's id.
    pub(crate) fn tool_call(
        &mut self,
        place: ItemPosition,
        wire_id: Option<Name>,
        name: Option<Name>,
        args: Option<Node<'_>>,
    ) -> Body {
        let name = name.unwrap_or_default();
        let id = self.calls.open(wire_id.as_ref(), &name, place);
        let args = args.map_or_else(Json::null, Node::json);
        Body::Call(ToolCall { id, wire_id, name, args, custom: false })
    }

    pub(crate) fn tool_result(
        &mut self,
        wire_id: Option<Name>,
        is_error: bool,
        parts: Vec<Part>,
    ) -> Body {
        let call = self.calls.answer(wire_id.as_deref(), None);
        let outcome = if is_error { Outcome::Error } else { Outcome::Ok };
        Body::Result(ToolResult { call, wire_id, name: None, outcome, parts })
    }
}

/// Sets the ids of the system prompt's Items: `system.0`, `system.1`, and so on.
pub(crate) fn number_system_items(mut items: Vec<Item>) -> Vec<Item> {
    for (part, item) in items.iter_mut().enumerate() {
        item.id = format!("system.{part}").into();
    }
    items
}

/// Converts a member to its name and an owned value.
pub(crate) fn named_member((key, value): (Node<'_>, Node<'_>)) -> (Name, Json) {
    (key.name().unwrap_or_default(), value.json())
}

/// Reads a list of tools. `read` decodes one tool; this function adds the tool's native part.
pub(crate) fn read_tools(
    tools: Option<Node<'_>>,
    wire: &Wire,
    read: impl Fn(Node<'_>) -> Tool,
) -> Vec<Tool> {
    let Some(tools) = tools else { return Vec::new() };
    let elements: Vec<_> = tools.elements().collect();
    let envelope = Arc::new(Envelope { json: tools.json(), parts: elements.len() });
    let tool = |node: Node<'_>| {
        let native = NativePart::new(wire.clone(), Direction::Request, node.json());
        let native = NativePart { envelope: Some(Arc::clone(&envelope)), ..native };
        Tool { native: Some(native), ..read(node) }
    };
    elements.into_iter().map(tool).collect()
}
