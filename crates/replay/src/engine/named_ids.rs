//! Finds the ids of a model's turn that the caller's own Items name.
//!
//! A client can lose all ids of a model's turn and still send them in other places: the result of a
//! call names the call, an approval names its request, and a request that continues a message
//! thread names the last message.

use std::collections::HashSet;

use throughline_core::{Body, Call, Item, Role, Wire};
use throughline_json::{Json, Name};

use crate::engine::capture;

/// Returns the ids that the caller's Items name, in order. `items` starts after a model's turn, and
/// the next model turn ends the search.
pub(super) fn ids_named_after(items: &[Item]) -> Vec<Name> {
    let (mut named, mut known) = (Vec::new(), HashSet::new());
    for item in items.iter().take_while(|item| item.role != Role::Assistant) {
        let Some(id) = id_named_by(item) else { continue };
        if capture::is_globally_unique_id(&id, "") && known.insert(id.clone()) {
            named.push(id);
        }
    }
    named
}

fn id_named_by(item: &Item) -> Option<Name> {
    match &item.body {
        Body::Result(result) => result.wire_id.clone(),
        Body::Unknown | Body::Hosted(_) => {
            let json = item.native_on(&Wire::OPENAI_RESPONSES).map(|native| &native.json)?;
            member(json, "approval_request_id").or_else(|| member(json, "call_id"))
        }
        Body::Text(_)
        | Body::Media(_)
        | Body::Thought(_)
        | Body::Call(_)
        | Body::Compaction
        | Body::Summary { .. } => None,
    }
}

/// Returns the id of the message that a request to Anthropic's message threads continues.
pub(super) fn previous_message(call: &Call) -> Option<Name> {
    let thread = call.extras.iter().find(|extra| &*extra.key == "thread")?;
    member(&thread.value, "previous_message_id")
}

fn member(json: &Json, key: &str) -> Option<Name> {
    // A text search avoids parsing in the common case.
    memchr::memmem::find(json.bytes(), key.as_bytes())?;
    json.tree().root().name_of(key).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use throughline_core::{CallId, ItemPosition, Outcome, ToolResult};

    use super::*;

    fn result(message: usize, id: &str) -> Item {
        let (call, wire_id) = (CallId::from("call"), Some(Name::from(id)));
        let result =
            ToolResult { call, wire_id, name: None, outcome: Outcome::Ok, parts: Vec::new() };
        let place = ItemPosition::new(message, 0);
        Item::new(format!("m{message}").as_str(), place, Role::Tool, Body::Result(result))
    }

    #[test]
    fn each_id_is_named_once_and_in_order() {
        let ids = ["call_91d4e6a7c2", "call_0", "call_7f3a9c21b0", "call_91d4e6a7c2"];
        let mut items: Vec<Item> =
            ids.iter().enumerate().map(|(index, id)| result(index, id)).collect();
        let place = ItemPosition::new(4, 0);
        items.push(Item::new("m4", place, Role::Assistant, Body::Text(Name::from("text"))));
        items.push(result(5, "call_55aa55aa55"));
        let expected = ["call_91d4e6a7c2", "call_7f3a9c21b0"].map(Name::from);
        assert_eq!(ids_named_after(&items), expected);
    }
}
